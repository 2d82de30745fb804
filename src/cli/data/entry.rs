//! How one entry, as a reply or a stream's message has it, is printed.

use serde_json::{Map, Value as Json};

use crate::cli::terminal::output::{json_of, text_of};
use crate::cli::terminal::times::show_time;
use crate::client::{Chain, Fields, Message};
use crate::model::limits::CHAIN_LEN_MAX;

/// Events of a chain that `--chain` asks for: all that an entry can have.
const CHAIN_EVENTS: u64 = CHAIN_LEN_MAX as u64;

/// Asks for an entry's chain, and for when it was changed.
pub(in crate::cli) fn ask_for_chain(fields: &mut Fields) {
    fields.u64("nchain", CHAIN_EVENTS).bool("with_time", true);
}

/// The entry as JSON: `path`, `value` if there is one, `chain` and `time` if they were asked for, `tock`.
pub(super) fn entry_json(path: &str, message: &Message) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("path".into(), path.into());
    if let Some(value) = message.get("value") {
        out.insert("value".into(), json_of(value));
    }
    add_chain_and_tock(message, &mut out);
    out
}

/// Adds `chain`, newest event first, each as it is typed after `--chain`, `tock`, and `time`.
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
    if let Some(time) = message.u64("time") {
        out.insert("time".into(), show_time(time).into());
    }
}

/// The chain for people, and when its newest event was made, if that is known; empty when there is no chain.
pub(in crate::cli) fn chain_and_time_text(message: &Message) -> String {
    match (chain_text(message), message.u64("time")) {
        (chain, Some(time)) if !chain.is_empty() => format!("{chain}  {}", show_time(time)),
        (chain, _) => chain,
    }
}

/// The chain for people; empty when there is none.
pub(in crate::cli) fn chain_text(message: &Message) -> String {
    match message.get("chain").map(Chain::decode) {
        Some(Ok(Some(chain))) => chain.to_string(),
        Some(Ok(None) | Err(_)) | None => String::new(),
    }
}

/// The value for people, with the chain and the time behind it if they were asked for.
pub(super) fn value_text(message: &Message) -> String {
    let value = message.get("value").map(text_of).unwrap_or_else(|| String::from("-"));
    match chain_and_time_text(message).as_str() {
        "" => value,
        chain => format!("{value}  [{chain}]"),
    }
}
