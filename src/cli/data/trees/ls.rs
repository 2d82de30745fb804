//! `ls`: the names directly below a path.

use clap::Args;
use futures::future::try_join_all;
use serde_json::{Map, Value as Json};

use crate::cli::data::entry::value_text;
use crate::cli::data::nothing::note_nothing;
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs, address_entry, parse_path, whole_path};
use crate::cli::terminal::output::{Output, json_of, printable_path};
use crate::cli::terminal::times::show_time;
use crate::client::{Fields, Message, StreamEvent};
use crate::model::path::Path;

/// So many names are looked at together: of each without a value the node is asked whether something is below it.
const ROWS_AT_ONCE: usize = 32;
/// With --long, in the place of a value. Values are JSON, so none looks like that.
const NO_VALUE: &str = "(no value; there are entries below)";

/// List what is directly below a path
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node ls             # the first elements of all paths
  distkv-node ls site        # what is directly below site
  distkv-node ls site --long # with values, and when they were set
  distkv-node ls --json | jq -r .path
  distkv-node ls site | wc -l # how many there are

Each line is a whole path and nothing else, so that it can be given to other commands; control characters are printed \
as `distkv-node --help`, \"Paths\", says. A path without a value of its own is printed if there are entries below it. \
If there is none to print, a line on standard error says so (not with --json). PATH is no pattern: there are no wildcards. \
With --long, the value and the time stand behind tabs, which no printed path has in it; in place of a value that is not \
there stands \"(no value; there are entries below)\". `tree` prints everything at once. With --json, one object per line: \
path, has_value, with --long the value, and time (when it was changed, if that is known).

Exit code: 0 done (also where there is nothing), 1 failed, 2 usage, 3 refused, 6 no node was \
reached, 8 it cannot be written.")]
pub(in crate::cli) struct LsArgs {
    /// Where to look; ':' is the root
    #[arg(value_parser = parse_path, default_value = ":")]
    path: Path,

    /// Print values, too, and when each was set, if that is known
    #[arg(short, long)]
    long: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: LsArgs) -> Result<(), CliError> {
    let (action, path) = address_entry(&args.path, "get_tree", "get_tree_internal")?;
    let mut fields = Fields::at(&path);
    fields.u64("min_depth", 1).u64("max_depth", 1).u64("nchain", 0).bool("empty", true);
    fields.bool("with_time", args.long || args.remote.json);
    let remote = args.remote.connect_for_streams().await?;
    let mut stream = remote.stream(action, &fields).await?;
    let mut output = Output::of_read(args.remote.json);
    let mut rows = Vec::with_capacity(ROWS_AT_ONCE);
    let (mut is_whole, mut is_empty) = (false, true);
    while !is_whole {
        match remote.next(&mut stream).await? {
            Some(StreamEvent::Item { path, message }) => rows.push((path, message)),
            Some(_) => {}
            None => is_whole = true,
        }
        if !is_whole && rows.len() < ROWS_AT_ONCE {
            continue;
        }
        let looks = rows.iter().map(|(path, message)| {
            let path = path.as_ref().and_then(|path| args.path.join(path).ok());
            let has_value = message.get("value").is_some();
            let remote = &remote;
            async move {
                match path {
                    Some(path) if !has_value => has_below(remote, &path).await,
                    _ => Ok(true),
                }
            }
        });
        let is_there = try_join_all(looks).await?;
        for ((path, message), is_there) in rows.drain(..).zip(is_there) {
            if is_there {
                is_empty = false;
                let path = whole_path(&args.path, path.as_ref());
                print(&path, &message, args.long, &mut output)?;
            }
        }
    }
    output.flush()?;
    if is_empty && !output.json {
        note_nothing("below", &args.path);
    }
    Ok(())
}

/// Whether there is an entry below a path, which has no value itself: deleted ones may be all that is left of it.
async fn has_below(remote: &Remote, path: &Path) -> Result<bool, CliError> {
    let (action, path) = address_entry(path, "get_tree", "get_tree_internal")?;
    let mut fields = Fields::at(&path);
    fields.u64("min_depth", 1).u64("nchain", 0);
    let mut stream = remote.stream(action, &fields).await?;
    while let Some(event) = remote.next(&mut stream).await? {
        if matches!(event, StreamEvent::Item { .. }) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn print(path: &str, message: &Message, long: bool, output: &mut Output) -> Result<(), CliError> {
    let value = message.get("value");
    if output.json {
        let mut out = Map::new();
        out.insert("path".into(), path.into());
        out.insert("has_value".into(), value.is_some().into());
        if let Some(value) = value {
            if long {
                out.insert("value".into(), json_of(value));
            }
            if let Some(time) = message.u64("time") {
                out.insert("time".into(), show_time(time).into());
            }
        }
        return output.json_line(Json::Object(out));
    }
    // No column has a tab in it.
    let mut columns = vec![printable_path(path).into_owned()];
    if long {
        match value {
            Some(_) => columns.push(value_text(message)),
            None => columns.push(NO_VALUE.to_owned()),
        }
        let time = message.u64("time").filter(|_| value.is_some());
        columns.extend(time.map(|time| format!("({})", show_time(time))));
    }
    output.line(&columns.join("\t"))
}
