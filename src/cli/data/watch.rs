//! `watch`: changes below a path, as they happen.

use std::time::Duration;

use clap::Args;
use serde_json::{Value as Json, json};

use super::entry::{ask_for_chain, entry_json, value_text};
use super::nothing::note_nothing_to_watch;
use super::rewatch::{NodeWatch, Told};
use crate::cli::error::CliError;
use crate::cli::remote::{RemoteArgs, parse_path};
use crate::cli::say;
use crate::cli::terminal::output::{
    Output, end_with_reader, printable, printable_path, shown_path,
};
use crate::client::smart::{Change, Watch, WatchEvent, WatchOptions};
use crate::client::{Fields, Message};
use crate::model::ids::Millis;
use crate::model::path::Path;
use crate::rt;

/// When no node was reached for so long, that is told.
const LOST_AFTER: Duration = Duration::from_secs(1);

/// Print changes below a path as they happen
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node watch site                     # what changes from now on
  distkv-node watch site --fetch             # first all that is there
  distkv-node watch site.lamp --count 1 --json
  distkv-node watch site --connect n1,n2,n3  # survives the loss of a node

A line on standard error says when the watch has begun. PATH is no pattern: there are no wildcards, and all below it is \
watched, too. With --json, one object per line: \
path, value (or \"deleted\": true), tock and, if it is known, time; {\"state\": \"uptodate\"} after what --fetch brought. \
{\"state\": \"restart\", \"all\": false}: not all changes were told, mostly because they came faster than they were read. \
Keep what was printed; the latest version of what was missed follows, deletions included. \
{\"state\": \"restart\", \"all\": true}: the watch begins anew. Forget what was printed; all entries follow, and then \
{\"state\": \"uptodate\"}.

When the connection is lost, the watch connects again, for as long as that takes, and prints the latest version \
of what changed meanwhile; lines on standard error say so. With one node, changes are found by their tocks: one that \
another node made at the very moment of the loss can be missed, and so is a deletion of an entry that was not printed \
before. If the node lacks changes that it had (it was alone, in memory, or an old copy of its data was put back), the \
watch begins anew, unless it has printed all entries that there were. \
With several nodes nothing is missed but versions that were replaced meanwhile. --no-reconnect is for \
scripts that want to know of the loss. A node that has said nothing for as long as --timeout is asked whether it is \
there, and is lost when it does not answer in that time.

Exit code: 0 --count was reached, 2 usage, 3 refused, 6 no node was reached at the beginning, 8 it cannot be \
written; with --no-reconnect also 1 the node stopped, 6 the connection was lost.")]
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

    /// End with exit code 1 when the node stops and 6 when the connection is lost, instead of connecting again
    #[arg(long)]
    no_reconnect: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: WatchArgs) -> Result<(), CliError> {
    end_with_reader(args.count.is_some())?;
    let is_cluster = args.remote.names_several()? && !args.no_reconnect;
    match note_nothing_to_watch(&args.path, &args.remote).await {
        // The watch itself tries for longer, and says so.
        Err(_) if is_cluster => {}
        noted => noted?,
    }
    let mut fields = Fields::at(&args.path);
    fields.bool("restart", true);
    for (name, depth) in [("max_depth", args.depth), ("min_depth", args.min_depth)] {
        if let Some(depth) = depth {
            fields.u64(name, depth);
        }
    }
    if args.chain {
        ask_for_chain(&mut fields);
    } else {
        // By its newest event, a version is known again after a loss.
        fields.u64("nchain", 1).bool("with_time", args.remote.json);
    }
    if is_cluster {
        return watch_cluster(&args).await;
    }
    let how = (args.fetch, !args.no_reconnect);
    let mut watch = NodeWatch::begin(&args.path, fields, how, &args.remote).await?;
    let mut output = Output::of_read(args.remote.json);
    let mut is_fetched = !args.fetch;
    let mut left = args.count;
    while left != Some(0) {
        match watch.next().await? {
            Told::Entry { path, message } => {
                let message = asked_of(&message, args.chain)?;
                print(&path, &message, is_fetched, &mut output)?;
                left = left.map(|left| left - 1);
            }
            Told::Gone(path) => {
                print(&path, &nothing_of()?, is_fetched, &mut output)?;
                left = left.map(|left| left - 1);
            }
            Told::UpToDate => {
                is_fetched = true;
                print_state("uptodate", "(up to date)", &mut output)?;
            }
            Told::Restart => {
                is_fetched = false;
                print_restart(true, &mut output)?;
            }
            Told::State(state) if state == "restart" => print_restart(false, &mut output)?,
            Told::State(state) => {
                print_state(&state, &format!("({})", printable(&state)), &mut output)?;
            }
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
    let mut output = Output::of_read(args.remote.json);
    let (mut is_fetched, mut left) = (!args.fetch, args.count);
    let (mut is_let_in, mut lost) = (false, Lost::default());
    while left != Some(0) {
        // Dropping the wait loses nothing.
        let Some(event) = rt::timeout(LOST_AFTER, watch.next()).await else {
            lost.look(&watch, args.remote.timeout_or_default());
            continue;
        };
        let event = event?;
        // A node may begin a watch before it refuses it. All that it has comes first, also where nobody asked for it.
        if !std::mem::replace(&mut is_let_in, true) {
            let node = watch.node().map_or("any node".into(), printable);
            say::line(&format!("watching {} at {node}", shown_path(&args.path)));
        }
        match event {
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
                print_restart(true, &mut output)?;
            }
            WatchEvent::Resumed { node } => {
                lost = Lost::default();
                say::line(&format!("watching {} at {}", shown_path(&args.path), printable(&node)));
            }
        }
        output.flush()?;
    }
    Ok(())
}

/// Whether a watch has no node, and whether that was told.
#[derive(Default)]
struct Lost {
    /// By [`rt::now`].
    since: Option<Millis>,
    is_told: bool,
}

impl Lost {
    /// Nothing has come for a while. Where nodes do not let the client in, the watch mostly ends with that in a moment, and
    /// then nothing else is to be told: that is known when each has answered, which takes as long as a login may.
    fn look(&mut self, watch: &Watch, patience: Duration) {
        if watch.node().is_some() {
            *self = Lost::default();
            return;
        }
        let since = *self.since.get_or_insert_with(rt::now);
        let why = match watch.is_shut_out() {
            _ if self.is_told => return,
            false => "no node can be reached",
            true if rt::now().saturating_sub(since) < rt::millis(patience) => return,
            true => "no node lets this command in",
        };
        say::line(&format!("{why}; trying again until that works (Ctrl-C ends it)"));
        self.is_told = true;
    }
}

/// What of an entry is printed, without the event that only the watch itself needs.
fn asked_of(message: &Message, with_chain: bool) -> Result<Message, CliError> {
    let mut fields = Fields::new();
    for name in ["value", "chain", "tock", "time"] {
        if let Some(value) = message.get(name).filter(|_| name != "chain" || with_chain) {
            fields.raw(name, value);
        }
    }
    Message::new(&fields.encode()).map_err(|error| CliError::Failure(error.to_string()))
}

/// What is said of an entry of which nothing is known but that it is gone.
fn nothing_of() -> Result<Message, CliError> {
    Message::new(&Fields::new().encode()).map_err(|error| CliError::Failure(error.to_string()))
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
    let path = printable_path(path);
    match (is_deleted, is_fetched) {
        (true, _) => output.line(&format!("deleted  {path}")),
        (false, true) => output.line(&format!("set      {path}  {}", value_text(message))),
        (false, false) => output.line(&format!("is       {path}  {}", value_text(message))),
    }
}

/// `all`: everything follows, and what was printed does not count any more. Otherwise it does, and what was missed follows.
fn print_restart(all: bool, output: &mut Output) -> Result<(), CliError> {
    let text = match all {
        true => "(restarted: all entries follow)",
        false => "(not all changes were told: the latest version of what was missed follows)",
    };
    output.either(|| json!({ "state": "restart", "all": all }), || text.to_owned())
}

fn print_state(state: &str, text: &str, output: &mut Output) -> Result<(), CliError> {
    output.either(|| json!({ "state": state }), || text.to_owned())
}
