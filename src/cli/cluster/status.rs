//! `status`: how one node is.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;

use super::members::print_warnings;
use crate::cli::error::{CliError, login_options};
use crate::cli::remote::RemoteArgs;
use crate::cli::terminal::output::{Output, Table, count_of, json_of, printable, text_of};
use crate::cli::terminal::times::show_time;
use crate::cli::terminal::units::{show_bytes, show_millis};
use crate::client::message::{array_items, as_str, as_u64, map_items};
use crate::client::{Fields, Message, ServerError};
use crate::node::config::SyncPolicy;
use crate::protocol::client::ErrorCode;

/// Print the status of a node: ready or not, version, sizes, counters
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node status
  distkv-node status --json | jq .entries
  distkv-node status --timeout 1s >/dev/null && echo ready

Where clients must log in, so must this command. For health checks without a login, a node with --http \
answers at /livez (it is up) and /readyz (it serves clients).

Exit code: 0 the node serves clients, 1 it does not (yet), or asks for a login, 2 usage, 6 no node was \
reached, 8 the answer cannot be written.")]
pub(in crate::cli) struct StatusArgs {
    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: StatusArgs) -> Result<(), CliError> {
    let remote = args.remote.connect_in_time().await?;
    let mut output = Output::of_verdict(args.remote.json);
    let reply = match remote.try_request("status", &Fields::new()).await? {
        Ok(reply) => reply,
        Err(error) if is_closed(&error) => {
            let name = &remote.connection.greeting().node;
            output.either(
                || json!({"name": name, "ready": false, "closed": error.text}),
                || asks_for_login(name, &error.text),
            )?;
            output.flush()?;
            return Err(CliError::Told);
        }
        Err(error) => return Err(error.into()),
    };
    if output.json {
        output.json_line(status_json(&reply))?;
    } else {
        print(&reply, &mut output)?;
    }
    output.flush()?;
    if is_ready(&reply) { Ok(()) } else { Err(CliError::Told) }
}

/// What is said of a node that answers, and not to a stranger. `text`: what the node says, in whatever words.
fn asks_for_login(name: &str, text: &str) -> String {
    let (name, text) = (printable(name), printable(text));
    format!("{name} is up and asks for a login: use {}\nIt says: {text}", login_options())
}

/// Whether the node does not serve this client, because it must log in.
pub(in crate::cli) fn is_closed(error: &ServerError) -> bool {
    error.code.as_deref() == Some(ErrorCode::AuthRequired.word())
}

/// Whether the node serves clients.
pub(in crate::cli) fn is_ready(reply: &Message) -> bool {
    reply.bool("ready") == Some(true)
}

/// The reply without what belongs to the protocol.
pub(super) fn status_json(reply: &Message) -> serde_json::Value {
    let fields = reply.fields().filter(|(name, _)| *name != "seq");
    fields.map(|(name, value)| (name.to_owned(), json_of(value))).collect()
}

fn print(reply: &Message, output: &mut Output) -> Result<(), CliError> {
    let mut table = Table::default();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    let shown = |name: &str| reply.get(name).map(text_of).unwrap_or_default();
    let text = |name: &str| reply.str(name).unwrap_or_default().to_owned();
    row("node", text("name"));
    row("life", text("life"));
    row("network", text("network"));
    row("version", text("version"));
    row("ready", ready_text(reply).to_owned());
    if reply.bool("read_only") == Some(true) {
        row("read only", "yes".into());
    }
    row("up for", reply.u64("uptime_ms").map(show_millis).unwrap_or_default());
    let count = |name: &str, one: &str, many: &str| match reply.u64(name) {
        Some(count) => count_of(count, one, many),
        None => many.to_owned(),
    };
    row("members", format!("{} ({})", shown("members"), count("links", "link", "links")));
    row("tick, tock", format!("{}, {}", shown("tick"), shown("tock")));
    let (live, tombstones) = (shown("live_entries"), shown("tombstones"));
    row("entries", format!("{} ({live} with a value, {tombstones} deleted)", shown("entries")));
    row("memory", memory_text(reply));
    row("connections", connections_text(reply));
    row("for clients", client_memory_text(reply));
    if let Some(catching_up) = reply.get("catching_up").filter(|value| *value != [0xc0]) {
        row("catching up", text_of(catching_up));
    }
    if let Some(text) = storage_text(reply) {
        row("data", text);
    }
    if let Some(text) = past_text(reply) {
        row("past since", text);
    }
    if let Some(text) = scheduled_text(reply) {
        row("snapshots", text);
    }
    if let Some(log) = named_map(reply, "client_log").get("file").and_then(|file| as_str(file)) {
        row("client's log", printable(log).into_owned());
    }
    let keepers: Vec<&str> =
        array_items(reply.get("housekeepers").unwrap_or_default()).filter_map(as_str).collect();
    row("housekeepers", keepers.join(" "));
    for (name, value) in map_items(reply.get("counters").unwrap_or_default()) {
        let value = as_u64(value).map_or_else(|| text_of(value), |count| count.to_string());
        row(as_str(name).unwrap_or("?"), value);
    }
    table.print(output)?;
    print_warnings(reply, output)
}

/// A field that is a map, by the names of its fields; empty if it is none.
fn named_map<'m>(reply: &'m Message, name: &str) -> BTreeMap<&'m str, &'m [u8]> {
    let items = map_items(reply.get(name).unwrap_or_default());
    items.filter_map(|(key, value)| Some((as_str(key)?, value))).collect()
}

/// How the data is kept, if it is.
fn storage_text(reply: &Message) -> Option<String> {
    let storage = named_map(reply, "storage");
    let text = |name: &str| storage.get(name).and_then(|value| as_str(value));
    let count = |name: &str| storage.get(name).and_then(|value| as_u64(value)).unwrap_or(0);
    let directory = printable(text("directory")?);
    let sync = text("sync")?;
    let (log, bytes) = (count("log"), show_bytes(count("bytes")));
    let snapshot = match storage.get("snapshot").filter(|value| **value != [0xc0]) {
        None => String::new(),
        Some(snapshot) => {
            let named = |name| map_items(snapshot).find(|(key, _)| as_str(key) == Some(name));
            let number = |name| named(name).and_then(|(_, value)| as_u64(value));
            match (number("age_ms"), number("time_ms").map(show_time)) {
                (Some(age), _) => format!(", last snapshot {} ago", show_millis(age)),
                (None, Some(at)) => format!(", last snapshot at {at}, when the clock was ahead"),
                (None, None) => String::new(),
            }
        }
    };
    let saving = match storage.get("saving") {
        Some([0xc3]) => ", saving one",
        _ => "",
    };
    // What is on a disk that fails is no answer to how the data is kept.
    if let Some(why) = text("failed") {
        return Some(format!("{directory} (FAILING: {}; sync {sync})", printable(why)));
    }
    Some(format!("{directory} ({bytes}; sync {sync}; log {log}{snapshot}{saving})"))
}

/// The snapshots that the node makes by itself, if it does.
fn scheduled_text(reply: &Message) -> Option<String> {
    let scheduled = named_map(reply, "scheduled");
    let text = |name: &str| scheduled.get(name).and_then(|value| as_str(value));
    let time = |name: &str| scheduled.get(name).and_then(|value| as_u64(value)).map(show_time);
    let (schedule, directory) = (text("schedule")?, printable(text("directory")?));
    let last = match (text("file"), time("time_ms")) {
        (Some(file), Some(at)) => format!("last {} at {at}", printable(file)),
        _ => String::from("none yet"),
    };
    let due_ms = scheduled.get("due_ms").and_then(|value| as_u64(value));
    // While it cannot be made, it is tried again and again.
    let is_over = due_ms.is_some_and(|due| reply.u64("time").is_some_and(|now| due <= now));
    let when = if is_over { "due since" } else { "next at" };
    let next = time("due_ms").map(|at| format!(", {when} {at}")).unwrap_or_default();
    Some(format!("{schedule} in {directory} ({last}{next})"))
}

/// Whether the node serves clients, and what it refuses.
fn ready_text(reply: &Message) -> &'static str {
    let storage = named_map(reply, "storage");
    let text = |name: &str| storage.get(name).and_then(|value| as_str(value));
    let every_batch = SyncPolicy::EveryBatch.word();
    match (is_ready(reply), text("failed").is_some() && text("sync") == Some(every_batch)) {
        (true, true) => "for reads only: the log cannot be written, so changes are refused",
        (true, false) => "yes",
        (false, _) => "no",
    }
}

/// How far back the data directory reaches.
fn past_text(reply: &Message) -> Option<String> {
    let storage = named_map(reply, "storage");
    let count = |name: &str| storage.get(name).and_then(|value| as_u64(value));
    Some(format!("{} (tock {})", show_time(count("past_ms")?), count("past_tock")?))
}

/// What clients cost in memory.
fn client_memory_text(reply: &Message) -> String {
    let memory = named_map(reply, "client_memory");
    let count = |name: &str| memory.get(name).and_then(|value| as_u64(value)).unwrap_or(0);
    let (used, pinned, max) = (count("used"), count("pinned"), count("max"));
    let closed = match count("closed") {
        0 => String::new(),
        closed => format!("; {} closed", count_of(closed, "slow reader", "slow readers")),
    };
    let (used, pinned, max) = (show_bytes(used), show_bytes(pinned), show_bytes(max));
    format!("{used} of {max} ({pinned} in snapshots{closed})")
}

/// Those in the places that are kept for the node's own machine are apart.
fn connections_text(reply: &Message) -> String {
    let count = |name: &str| reply.u64(name).unwrap_or(0);
    let (kept, watches) = (count("connections_kept"), count("watches"));
    let (open, max) = (count("connections").saturating_sub(kept), count("connections_max"));
    let looking = match kept {
        0 => String::new(),
        _ => format!(", and {kept} from its own machine to look"),
    };
    format!("{open} of {max}{looking} ({})", count_of(watches, "watch", "watches"))
}

fn memory_text(reply: &Message) -> String {
    let used = reply.u64("memory_bytes").map(show_bytes).unwrap_or_default();
    match reply.u64("memory_max") {
        Some(max) => format!("{used} of {}", show_bytes(max)),
        None => used,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::value::{write_map_len, write_str, write_u64};

    #[test]
    fn a_node_that_asks_for_a_login_is_quoted_in_whatever_words_it_says_so() {
        for text in ["nothing was done: clients of this node must log in", "log in first", ""] {
            let said = asks_for_login("n1\u{1b}", text);
            let (first, second) = said.split_once('\n').unwrap();
            assert!(first.starts_with("n1") && first.contains(" is up and asks for a login: use "));
            assert!(!first.contains('\u{1b}'), "{first}");
            assert_eq!(second, format!("It says: {text}"));
        }
        assert!(!asks_for_login("n1", "a\nb").ends_with("a\nb"), "it is one line");
    }

    /// A scheduled snapshot is tried again and again while it fails: the time for which it was due is over then.
    #[test]
    fn a_scheduled_snapshot_that_is_overdue_is_not_told_as_the_next_one() {
        let told = |now_ms: Option<u64>| {
            let mut reply = Vec::new();
            write_map_len(1 + usize::from(now_ms.is_some()), &mut reply);
            if let Some(now_ms) = now_ms {
                write_str("time", &mut reply);
                write_u64(now_ms, &mut reply);
            }
            write_str("scheduled", &mut reply);
            write_map_len(3, &mut reply);
            for (name, text) in [("schedule", "every 1d"), ("directory", "/var/snapshots")] {
                write_str(name, &mut reply);
                write_str(text, &mut reply);
            }
            write_str("due_ms", &mut reply);
            write_u64(60_000, &mut reply);
            scheduled_text(&Message::new(&reply).unwrap()).unwrap()
        };
        let before = "every 1d in /var/snapshots (none yet, ";
        let next = format!("{before}next at 1970-01-01T00:01:00.000Z)");
        assert_eq!(told(Some(59_999)), next);
        assert_eq!(told(Some(60_000)), format!("{before}due since 1970-01-01T00:01:00.000Z)"));
        // Nodes of earlier versions do not tell their time.
        assert_eq!(told(None), next);
    }
}
