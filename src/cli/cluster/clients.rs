//! `clients`: who is connected to a node, and what clients ask it for most.

use clap::Args;

use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::terminal::output::{Output, Table, count_of, json_of};
use crate::cli::terminal::units::{show_bytes, show_millis};
use crate::client::message::{array_items, as_str, as_u64, map_items};
use crate::client::{Fields, Message};
use crate::model::path::Path;

/// Kinds of requests that a row names, the most frequent ones.
const KINDS_SHOWN: usize = 3;

/// Print who is connected to a node, or what is asked for most
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node clients
  distkv-node clients --json | jq -r 'select(.waiting > 1000000) | .address'
  distkv-node clients --prefixes --limit 10

USER is who has logged in, and by which method; a client that has not is shown as a dash. IDLE says \
for how long nothing was sent or received. OF WHICH has the most frequent kinds of requests. WAITING \
is how much the client has not read yet.

With --prefixes: the first two elements of the paths that clients ask for most, here and lately \
(counts are halved every minute). They are estimates from one request in 64; OVER says how much \
too high a count may be.

With --json, one object per line. On a secured node, this is for admins.

Exit code: 0 done, 1 failed, 2 usage, 3 refused, 6 no node was reached, 8 it cannot be written.")]
pub(in crate::cli) struct ClientsArgs {
    /// What is asked for most, and not who is connected
    #[arg(long)]
    prefixes: bool,

    /// Print at most this many [default: all; of prefixes 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

/// Prefixes that are printed unless told otherwise.
const PREFIXES: u64 = 20;

pub(in crate::cli) async fn run(args: ClientsArgs) -> Result<(), CliError> {
    let remote = args.remote.connect_in_time().await?;
    let mut output = Output::of_read(args.remote.json);
    if args.prefixes {
        prefixes(&remote, args.limit.unwrap_or(PREFIXES), &mut output).await?;
    } else {
        clients(&remote, args.limit.unwrap_or(u64::MAX), &mut output).await?;
    }
    output.flush()
}

async fn clients(remote: &Remote, limit: u64, output: &mut Output) -> Result<(), CliError> {
    let head = [
        "ADDRESS", "USER", "TLS", "FOR", "IDLE", "ASKED", "OF WHICH", "WATCHES", "IN", "OUT",
        "WAITING",
    ];
    let mut table = Table::with_head(&head);
    let (mut after, mut left, mut count) = (None, limit, 0);
    loop {
        let mut fields = Fields::new();
        fields.u64("limit", left.min(1_000));
        if let Some(after) = after {
            fields.u64("after", after);
        }
        let reply = remote.request("clients", &fields).await?;
        for row in array_items(reply.get("result").unwrap_or_default()) {
            (left, count) = (left.saturating_sub(1), count + 1);
            match Message::new(row) {
                _ if output.json => output.json_line(json_of(row))?,
                Ok(row) => table.row(cells(&row)),
                Err(_) => {}
            }
        }
        after = reply.u64("next");
        if after.is_none() || left == 0 {
            break;
        }
    }
    if !output.json {
        table.print(output)?;
        let more = if after.is_some() { ", and there are more" } else { "" };
        output.line(&format!("{}{more}", count_of(count, "connection", "connections")))?;
    }
    Ok(())
}

fn cells(row: &Message) -> [String; 11] {
    let user = match (row.str("user"), row.str("method")) {
        (Some(user), Some(method)) => format!("{user} ({method})"),
        (_, Some(method)) => format!("({method})"),
        (_, None) => String::new(),
    };
    let number = |name: &str| row.u64(name).unwrap_or(0);
    [
        row.str("address").unwrap_or_default().to_owned(),
        user,
        String::from(if row.bool("tls") == Some(true) { "yes" } else { "no" }),
        show_millis(number("since_ms")),
        show_millis(number("silent_ms")),
        number("asked").to_string(),
        kinds(row.get("requests").unwrap_or_default()),
        number("watches").to_string(),
        show_bytes(number("received")),
        show_bytes(number("sent")),
        show_bytes(number("waiting")),
    ]
}

/// The most frequent kinds: `get 120, set 3`.
fn kinds(requests: &[u8]) -> String {
    let all = map_items(requests).filter_map(|(kind, count)| Some((as_str(kind)?, as_u64(count)?)));
    let mut all: Vec<(&str, u64)> = all.collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let shown = all.iter().take(KINDS_SHOWN).map(|(kind, count)| format!("{kind} {count}"));
    shown.collect::<Vec<_>>().join(", ")
}

async fn prefixes(remote: &Remote, limit: u64, output: &mut Output) -> Result<(), CliError> {
    let mut fields = Fields::new();
    fields.bool("prefixes", true).u64("limit", limit);
    let reply = remote.request("clients", &fields).await?;
    let mut table = Table::with_head(&["REQUESTS", "OVER", "BELOW"]);
    let mut count = 0;
    for row in array_items(reply.get("result").unwrap_or_default()) {
        let Ok(row) = Message::new(row) else { continue };
        let path = row.get("path").and_then(|path| Path::from_msgpack_value(path).ok());
        let path = path.unwrap_or_default().to_string();
        let (requests, over) = (row.u64("requests").unwrap_or(0), row.u64("over").unwrap_or(0));
        count += 1;
        if output.json {
            let line = serde_json::json!({"path": path, "requests": requests, "over": over});
            output.json_line(line)?;
        } else {
            table.row([requests.to_string(), over.to_string(), path]);
        }
    }
    if output.json {
        return Ok(());
    }
    if count == 0 {
        return output.line("too little was asked for lately to tell");
    }
    table.print(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_kinds_are_named() {
        let map = b"\x84\xa3set\x03\xa3get\xcd\x01\x00\xa4list\x03\xa5watch\x01";
        assert_eq!(kinds(map), "get 256, list 3, set 3");
        assert_eq!(kinds(b"\x80"), "");
    }
}
