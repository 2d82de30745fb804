//! `watch`: changes below a path, as they happen.

use clap::Args;
use serde_json::{Value as Json, json};

use super::entry::{ask_for_chain, entry_json, value_text};
use crate::cli::error::CliError;
use crate::cli::remote::{RemoteArgs, parse_path, whole_path};
use crate::cli::terminal::output::{Output, printable};
use crate::client::smart::{Change, WatchEvent, WatchOptions};
use crate::client::{Fields, Message, StreamEvent};
use crate::model::path::Path;

/// Print changes below a path as they happen
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node watch site                     # what changes from now on
  distkv-node watch site --fetch             # first all that is there
  distkv-node watch site.lamp --count 1 --json
  distkv-node watch site --connect n1,n2,n3  # survives the loss of a node

A line on standard error says when the watch has begun. With --json, one object per line: \
path, value (or \"deleted\": true), tock; {\"state\": \"uptodate\"} after what --fetch brought; \
{\"state\": \"restart\"} where changes came faster than they were read, so that only the last \
one of each entry follows.

Exit code: 0 --count was reached, 1 the node ended the watch, 2 usage, 3 refused, 6 \
no node was reached.")]
pub(in crate::cli) struct WatchArgs {
    /// Where to watch; ':' is the root
    #[arg(value_parser = parse_path, default_value = ":")]
    path: Path,

    /// First print all entries
    #[arg(long, overrides_with = "no_fetch")]
    fetch: bool,

    /// Print only what changes from now on; this is the default
    #[arg(long, overrides_with = "fetch")]
    no_fetch: bool,

    /// End after this many entries
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// How many levels below PATH to watch
    #[arg(long, value_name = "N", visible_alias = "max-depth")]
    depth: Option<u64>,

    /// How many levels, PATH's own first, to leave out
    #[arg(long, value_name = "N")]
    min_depth: Option<u64>,

    /// Show the events that last changed each entry, newest first, and when that was
    #[arg(long)]
    chain: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: WatchArgs) -> Result<(), CliError> {
    let mut fields = Fields::at(&args.path);
    fields.bool("fetch", args.fetch).bool("restart", true);
    for (name, depth) in [("max_depth", args.depth), ("min_depth", args.min_depth)] {
        if let Some(depth) = depth {
            fields.u64(name, depth);
        }
    }
    if args.chain {
        ask_for_chain(&mut fields);
    } else if args.remote.json {
        fields.bool("with_time", true);
    }
    if args.remote.names_several()? {
        return watch_cluster(&args).await;
    }
    let remote = args.remote.connect().await?;
    let mut stream = remote.stream("watch", &fields).await?;
    let node = &remote.connection.greeting().node;
    eprintln!("watching {} at {} (node {node})", args.path, remote.connection.address());

    let mut output = Output::new(args.remote.json);
    let mut is_fetched = !args.fetch;
    let mut left = args.count;
    while left != Some(0) {
        match stream.next().await? {
            Some(StreamEvent::Item { path, message }) => {
                let path = whole_path(&args.path, path.as_ref());
                print(&path, &message, is_fetched, &mut output)?;
                left = left.map(|left| left - 1);
            }
            Some(StreamEvent::UpToDate) => {
                is_fetched = true;
                print_state("uptodate", "(up to date)", &mut output)?;
            }
            Some(StreamEvent::State(state, _)) if state == "restart" => {
                let text =
                    "(too many changes at once: only the latest version of each entry follows)";
                print_state(&state, text, &mut output)?;
            }
            Some(StreamEvent::State(state, _)) => {
                print_state(&state, &format!("({})", printable(&state)), &mut output)?;
            }
            Some(StreamEvent::Start) => {}
            None => return Err(CliError::Failure(String::from("the node ended the watch"))),
        }
        output.flush()?;
    }
    Ok(())
}

/// The same at whichever node is up, and then at another one.
async fn watch_cluster(args: &WatchArgs) -> Result<(), CliError> {
    let client = args.remote.client().await?;
    let options =
        WatchOptions { fetch: args.fetch, min_depth: args.min_depth, max_depth: args.depth };
    let mut watch = client.watch(&args.path, options).await?;
    let mut output = Output::new(args.remote.json);
    let (mut is_fetched, mut left) = (!args.fetch, args.count);
    eprintln!("watching {} at {}", args.path, watch.node().map_or("any node".into(), printable));
    while left != Some(0) {
        match watch.next().await? {
            WatchEvent::Change(change) => {
                let message = message_of(&change, args.chain)?;
                print(&change.path.to_string(), &message, is_fetched, &mut output)?;
                left = left.map(|left| left - 1);
            }
            WatchEvent::UpToDate => {
                if args.fetch || !is_fetched {
                    print_state("uptodate", "(up to date)", &mut output)?;
                }
                is_fetched = true;
            }
            WatchEvent::Restarted => {
                is_fetched = false;
                let text = "(restarted: all entries follow)";
                print_state("restart", text, &mut output)?;
            }
            WatchEvent::Resumed { node } => {
                eprintln!("watching {} at {}", args.path, printable(&node));
            }
        }
        output.flush()?;
    }
    Ok(())
}

/// A change as a node tells it.
fn message_of(change: &Change, with_chain: bool) -> Result<Message, CliError> {
    let mut fields = Fields::new();
    if let Some(value) = &change.value {
        fields.raw("value", value.as_bytes());
    }
    if let Some(chain) = change.chain.as_ref().filter(|_| with_chain) {
        let mut bytes = Vec::new();
        chain.encode(&mut bytes);
        fields.raw("chain", &bytes);
    }
    fields.u64("tock", change.tock);
    if let Some(time) = change.time_ms {
        fields.u64("time", time);
    }
    Message::new(&fields.encode()).map_err(|error| CliError::Failure(error.to_string()))
}

fn print(
    path: &str,
    message: &Message,
    is_fetched: bool,
    output: &mut Output,
) -> Result<(), CliError> {
    let is_deleted = message.get("value").is_none();
    if output.json {
        let mut entry = entry_json(path, message);
        if is_deleted {
            entry.insert("deleted".into(), true.into());
        }
        return output.json_line(Json::Object(entry));
    }
    let path = printable(path);
    match (is_deleted, is_fetched) {
        (true, _) => output.line(&format!("deleted  {path}")),
        (false, true) => output.line(&format!("set      {path}  {}", value_text(message))),
        (false, false) => output.line(&format!("is       {path}  {}", value_text(message))),
    }
}

fn print_state(state: &str, text: &str, output: &mut Output) -> Result<(), CliError> {
    output.either(|| json!({ "state": state }), || text.to_owned())
}
