//! Whatever a client sends, or a file holds: requests, saved states and lines must be decoded or
//! refused; what is a value stays one on its way through JSON.
#![no_main]

use distkv_model::path::Path;
use distkv_model::value::{SkipLimits, Skipper, Value};
use distkv_core::protocol::client::decode;
use distkv_core::protocol::json::{json_from_msgpack, value_from_json};
use distkv_core::protocol::lines::decode_version;
use distkv_core::protocol::saved_state::SavedStateReader;
use distkv_core::protocol::saved_state::python::check_value;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // As a connection takes it: message by message, and the same in pieces.
    let limits = SkipLimits { depth_max: 70, bytes_max: 1 << 20 };
    let mut rest = data;
    while let Ok(Some(length)) = Skipper::new(limits).advance(rest) {
        let (message, behind) = rest.split_at(length);
        let mut pieces = Skipper::new(limits);
        let cut = length / 2;
        if !matches!(pieces.advance(&message[..cut]), Ok(Some(_))) {
            assert_eq!(pieces.advance(message), Ok(Some(length)));
        }
        let _ = decode(message);
        if let Ok(value) = Value::new(message)
            && let Ok(json) = json_from_msgpack(value.as_bytes())
        {
            let _ = value_from_json(&json);
            let _ = check_value(value.as_bytes());
        }
        if let Ok(path) = Path::from_msgpack_value(message) {
            assert_eq!(path.to_string().parse(), Ok(path));
        }
        rest = behind;
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = decode_version(text);
    }
    let mut reader = SavedStateReader::new();
    for piece in data.chunks(11) {
        reader.feed(piece);
        while let Ok(Some(_)) = reader.next_record() {}
    }
});
