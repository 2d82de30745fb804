//! The change of one entry that a client asks for: `set_value`, `delete_value`, their internal
//! forms.

use crate::model::ids::{Millis, Tock};
use crate::model::value::{Kind, Reader};
use crate::model::write_id::WriteId;
use crate::protocol::client::action::Action;
use crate::protocol::client::chain::ChainField;
use crate::protocol::client::decode::{chain_length, path};
use crate::protocol::client::error::ClientError;
use crate::protocol::client::field::{Field, Fields, wrong, wrong_kind};
use crate::protocol::client::request::{ChainLength, RequestPath};

/// How long a write waits for its copies unless the request says how long.
const COPIES_TIMEOUT_MS: Millis = 10_000;
/// The longest that a write may wait for its copies.
const COPIES_TIMEOUT_MS_MAX: Millis = 3_600_000;

/// A change of one entry that is asked for.
#[derive(Debug)]
pub struct WriteRequest<'a> {
    /// For hooks and messages: which of the four it is.
    pub action: Action,
    /// Where.
    pub path: RequestPath<'a>,
    /// The new value, checked; none to delete.
    pub value: Option<&'a [u8]>,
    /// What the newest event must be.
    pub chain: ChainField<'a>,
    /// Whether the newest event may be that of a deletion. Without it a deleted entry is new, as with the original.
    pub of_deletion: bool,
    /// What the old value must be.
    pub prev: Option<&'a [u8]>,
    /// Make no event for the same value.
    pub idempotent: bool,
    /// How much of the chain the reply holds.
    pub reply_chain: ChainLength,
    /// How many peers must have acknowledged the change before the reply; 0 for none.
    pub copies: usize,
    /// How long to wait for them.
    pub copies_timeout: Millis,
    /// By this one the write is known when it comes again.
    pub write_id: Option<WriteId>,
    /// The greatest tock that the client has heard of: the change comes after it.
    pub above: Tock,
    /// The tock of the client's own last change there, as far as it remembers.
    pub own: Tock,
}

pub(super) fn decode_write<'a>(
    action: Action,
    fields: &Fields<'a>,
) -> Result<WriteRequest<'a>, ClientError> {
    let path = path(action, fields)?;
    let sets = matches!(action, Action::SetValue | Action::SetInternal);
    let value = fields.new_value(Field::Value)?;
    if sets && value.is_none() {
        return Err(ClientError::bad_request(
            "the field 'value' is missing. Call 'delete_value' if you want to clear the value",
        ));
    }
    if !sets && value.is_some() {
        return Err(ClientError::bad_request("A deleted entry can't have a value"));
    }
    let copies = fields.int_or_nil(Field::Copies)?.unwrap_or(0);
    let copies = usize::try_from(copies).map_err(|_| {
        ClientError::bad_request("bad field 'copies': it must be 0 or a number of peers")
    })?;
    Ok(WriteRequest {
        action,
        path,
        value,
        chain: ChainField::decode(fields.get(Field::Chain))?,
        of_deletion: fields.flag(Field::Deleted)?,
        prev: fields.old_value(Field::Prev)?,
        idempotent: fields.flag(Field::Idem)?,
        reply_chain: chain_length(fields, 1)?,
        copies,
        copies_timeout: timeout(fields)?,
        write_id: write_id(fields)?,
        above: heard_tock(fields, Field::Above)?,
        own: heard_tock(fields, Field::Own)?,
    })
}

/// The field `wid`: a byte string of 16 bytes.
fn write_id(fields: &Fields<'_>) -> Result<Option<WriteId>, ClientError> {
    let Some(raw) = fields.get_non_nil(Field::Wid) else { return Ok(None) };
    let bytes = Reader::new(raw).read_bin().map_err(|e| wrong(Field::Wid, &e))?;
    let id = bytes.try_into().map_err(|_| {
        let text = format!("bad field 'wid': {} bytes instead of {}", bytes.len(), WriteId::BYTES);
        ClientError::bad_request(text)
    })?;
    Ok(Some(WriteId(id)))
}

/// A tock that the client was told, or 0.
pub(super) fn heard_tock(fields: &Fields<'_>, field: Field) -> Result<Tock, ClientError> {
    let number = fields.int_or_nil(field)?.unwrap_or(0);
    u64::try_from(number).ok().and_then(Tock::new).ok_or_else(|| {
        let text = format!("bad field '{}': it is out of the range of tocks", field.name());
        ClientError::bad_request(text)
    })
}

/// The field `timeout`: seconds, as an integer or a float.
pub(super) fn timeout(fields: &Fields<'_>) -> Result<Millis, ClientError> {
    let Some(raw) = fields.get_non_nil(Field::Timeout) else { return Ok(COPIES_TIMEOUT_MS) };
    let mut reader = Reader::new(raw);
    let seconds = match reader.peek_kind() {
        Ok(Kind::Float) => reader.read_f64(),
        Ok(Kind::Int) => reader.read_int().map(|s| s as f64),
        _ => Err(wrong_kind(raw, "a number of seconds")),
    };
    let seconds = seconds.map_err(|e| wrong(Field::Timeout, &e))?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(ClientError::bad_request("bad field 'timeout': it must be 0 or above"));
    }
    Ok(((seconds * 1000.0) as Millis).min(COPIES_TIMEOUT_MS_MAX))
}

#[cfg(test)]
mod tests {
    use crate::protocol::client::request::Request;
    use crate::protocol::client::{ClientMessage, ErrorCode, decode};

    /// Values that the original's clients cannot read, and what is said of each.
    const UNREADABLE: [(&[u8], &str); 8] = [
        (b"\xa4caf\xe9", "a string that is not UTF-8"),
        (b"\x91\x81\xa1a\xa1\xff", "store bytes (bin) instead"),
        (b"\x81\xa1\xff\x01", "a string that is not UTF-8"),
        (b"\x81\x80\x01", "a map in the key of a map"),
        (b"\xc7\x03\xff\x01\x02\x03", "a time (extension -1)"),
        (b"\xd7\xff\xff\xff\xff\xff\xff\xff\xff\xff", "a time (extension -1)"),
        (b"\xc7\x02\x03\xc1\xc1", "a path (extension 3)"),
        (b"\xc7\x00\x05", "an object"),
    ];

    /// The field, then a value, behind whatever else the request needs.
    fn message(action: &str, field: &str, value: &[u8]) -> Vec<u8> {
        let text = |text: &str| [&[0xa0 | text.len() as u8][..], text.as_bytes()].concat();
        let parts: [&[u8]; 6] =
            [b"\x86", &text("action"), &text(action), &text("seq"), b"\x07", &text("path")];
        let more = [b"\xd5\x03\xa1a", &text("topic")[..], b"\xa1t", &text("tock"), b"\x05"];
        [&parts.concat(), &more.concat()[..], &text(field), value].concat()
    }

    #[test]
    fn a_value_that_not_every_client_could_read_is_refused_wherever_clients_store_or_send_one() {
        let doors = [
            ("set_value", "value"),
            ("set_internal", "value"),
            ("update", "value"),
            ("msg_send", "data"),
        ];
        for (action, field) in doors {
            for (value, what) in UNREADABLE {
                let message = message(action, field, value);
                let refusal = decode(&message).unwrap_err();
                assert_eq!((refusal.seq, refusal.is_fatal), (Some(7), false));
                let (code, text) = (refusal.error.code, refusal.error.text);
                assert_eq!(code, ErrorCode::BadRequest, "{action}: {text}");
                assert!(text.contains(what) && text.contains(&format!("'{field}'")), "{text}");
            }
            // Of a key that comes twice, the last counts everywhere.
            for value in
                [&b"\x82\xa1a\x01\xa1a\x02"[..], b"\xc4\x02\xff\xfe", b"\xd6\xff\0\0\0\x01"]
            {
                assert!(decode(&message(action, field, value)).is_ok(), "{action}: {value:x?}");
            }
        }
    }

    #[test]
    fn in_a_batch_the_one_operation_is_refused() {
        let ops = |value: &[u8]| {
            let head = &b"\x83\xa6action\xa9set_value\xa4path\xd5\x03\xa1a\xa5value"[..];
            [b"\x92", head, value, head, b"\x01"].concat()
        };
        for (value, what) in UNREADABLE {
            let message = message("batch", "ops", &ops(value));
            let Ok(ClientMessage::Request { request: Request::Batch(mut batch), .. }) =
                decode(&message)
            else {
                panic!("{value:x?}");
            };
            let [refused, taken] = <[_; 2]>::try_from(batch.take(9, usize::MAX)).unwrap();
            let error = refused.unwrap_err();
            assert_eq!(error.code, ErrorCode::BadRequest);
            assert!(error.text.contains(what) && taken.is_ok(), "{}", error.text);
        }
    }

    #[test]
    fn such_a_value_may_be_replaced_where_it_is() {
        for (value, _) in UNREADABLE {
            let mut message = message("set_value", "prev", value);
            message[0] += 1;
            message.extend(b"\xa5value\x01");
            let decoded = decode(&message).unwrap();
            let ClientMessage::Request { request: Request::Write(write), .. } = decoded else {
                panic!("{decoded:?}");
            };
            assert_eq!(write.prev, Some(value));
        }
    }
}
