//! How one entry, as a reply or a stream's message has it, is printed.

use serde_json::{Map, Value as Json};

use crate::cli::terminal::output::{json_of, text_of};
use crate::client::{Chain, Message};
use crate::model::limits::CHAIN_LEN_MAX;

/// Events of a chain that `--chain` asks for: all that an entry can have.
pub(in crate::cli) const CHAIN_EVENTS: u64 = CHAIN_LEN_MAX as u64;

/// The entry as JSON: `path`, `value` if there is one, `chain` if it was asked for, `tock`.
pub(super) fn entry_json(path: &str, message: &Message) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("path".into(), path.into());
    if let Some(value) = message.get("value") {
        out.insert("value".into(), json_of(value));
    }
    add_chain_and_tock(message, &mut out);
    out
}

/// Adds `chain`, newest event first, each as it is typed after `--chain`, and `tock`.
pub(in crate::cli) fn add_chain_and_tock(message: &Message, out: &mut Map<String, Json>) {
    if let Some(bytes) = message.get("chain") {
        let chain = match Chain::decode(bytes) {
            Ok(Some(chain)) => chain.events().map(ToString::to_string).collect(),
            Ok(None) | Err(_) => Json::Null,
        };
        out.insert("chain".into(), chain);
    }
    if let Some(tock) = message.u64("tock") {
        out.insert("tock".into(), tock.into());
    }
}

/// The chain for people; empty when there is none.
pub(in crate::cli) fn chain_text(message: &Message) -> String {
    match message.get("chain").map(Chain::decode) {
        Some(Ok(Some(chain))) => chain.to_string(),
        Some(Ok(None) | Err(_)) | None => String::new(),
    }
}

/// The value for people, with the chain behind it if it was asked for.
pub(super) fn value_text(message: &Message) -> String {
    let value = message.get("value").map(text_of).unwrap_or_else(|| String::from("-"));
    match chain_text(message).as_str() {
        "" => value,
        chain => format!("{value}  [{chain}]"),
    }
}
