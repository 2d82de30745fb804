//! `import`: entries from lines of JSON, as new changes.

use std::io;
use std::path::PathBuf;

use clap::Args;
use futures::future::join_all;
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::files::read::{Lines, name_of};
use crate::cli::remote::{Remote, RemoteArgs, address_entry, parse_path};
use crate::cli::terminal::interrupt::Interrupt;
use crate::cli::terminal::output::{Output, count_of, printable_path};
use crate::cli::terminal::progress::ProgressBar;
use crate::client::Fields;
use crate::model::meta::AUTH_PATH;
use crate::model::path::Path;
use crate::protocol::lines::{Line, decode_line};

/// Requests that are under way at once.
const REQUESTS: usize = 64;
/// What to do where a line about users is refused.
const NO_LOGINS: &str = "; users are not imported: leave out the lines below :n.auth, or take in the whole file with \
                         `snapshot restore`";

/// Set entries from lines of JSON: one object with path and value per line
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node import entries.jsonl
  distkv-node tree site --json | distkv-node --connect other import -
  # site.lamp becomes archive.2026.site.lamp:
  distkv-node import old.jsonl --below archive.2026
  # site as it was:
  distkv-node log replay /var/lib/distkv --until-time 2026-11-20 \\
    --to - --format jsonl --below site | distkv-node import -

Each line is an object with \"path\" and \"value\"; other fields are ignored. Every value that \
differs from what is there is set, as `set` does it: it replaces what is there, and brings \
back what was deleted. Lines with \"deleted\": true are skipped unless --deletions is given. \
Users and logins (below :n.auth) \
are refused. To restore entries with their history, and users, see `snapshot restore`.

Exit code: 0 done, 1 stopped at an error (the text says at which line), 2 usage, 3 a \
line was refused, 5 its precondition does not hold, 6 no node was reached, 7 it may have been done, \
130 interrupted (what was done is told).")]
pub(in crate::cli) struct ImportArgs {
    /// The file; '-' is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Put what is read below this path
    #[arg(long, value_name = "PATH", value_parser = parse_path, default_value = ":")]
    below: Path,

    /// Set only entries that have no value
    #[arg(long)]
    if_new: bool,

    /// Also delete what the file says is deleted
    #[arg(long, conflicts_with = "if_new")]
    deletions: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    lines: u64,
    set: u64,
    deleted: u64,
    unchanged: u64,
    /// Deletions that were not to be carried out.
    left_out: u64,
}

pub(in crate::cli) async fn run(args: ImportArgs) -> Result<(), CliError> {
    let interrupt = Interrupt::heed()?;
    let (source, bytes) = interrupt.open(&args.file)?;
    let connected = interrupt.or(args.remote.connect()).await;
    let remote = connected.map_err(|error| error.left("nothing was imported"))?;
    let mut bar = ProgressBar::new("importing", args.remote.json);
    let mut lines = Lines::new(&args.file, source);
    let mut done = Done::default();
    let imported = import(&args, &remote, &mut lines, &mut done, |read| {
        bar.bytes(read, bytes);
        interrupt.check()
    });
    let imported = interrupt.soon(imported).await.map_err(|error| interrupt.outweighs(error));
    drop(bar);
    let mut output = Output::of_change(args.remote.json);
    let Done { lines, set, deleted, unchanged, left_out } = done;
    output.either(
        || {
            json!({
                "lines": lines, "changed": set + deleted, "set": set, "deleted": deleted,
                "unchanged": unchanged, "deletions_left_out": left_out,
            })
        },
        || {
            let deleted =
                if args.deletions { format!("{deleted} deleted, ") } else { String::new() };
            let mut text = format!("{set} set, {deleted}{unchanged} unchanged");
            if left_out > 0 {
                let skipped = count_of(left_out, "deletion", "deletions");
                text.push_str(&format!("; {skipped} skipped (--deletions carries them out)"));
            }
            text
        },
    )?;
    output.flush()?;
    let rest = "the lines behind these were not imported; importing the file again does no harm";
    imported.map_err(|error| error.left(rest))
}

/// Imports all lines. What was done is right also if it stops before.
async fn import<R: io::Read>(
    args: &ImportArgs,
    remote: &Remote,
    lines: &mut Lines<R>,
    done: &mut Done,
    mut look: impl FnMut(u64) -> Result<(), CliError>,
) -> Result<(), CliError> {
    loop {
        let mut batch = Vec::new();
        let mut bad = None;
        while batch.len() < REQUESTS {
            match next_request(args, lines, done) {
                Ok(Some(request)) => batch.push(request),
                Ok(None) => break,
                Err(error) => {
                    // What stands before it comes first.
                    bad = Some(error);
                    break;
                }
            }
        }
        let is_over = batch.len() < REQUESTS;
        let replies = batch.iter().map(|request| remote.request(request.action, &request.fields));
        for (reply, request) in join_all(replies).await.into_iter().zip(&batch) {
            match reply {
                Ok(reply) if reply.bool("changed") == Some(false) => done.unchanged += 1,
                Ok(_) if request.deletes => done.deleted += 1,
                Ok(_) => done.set += 1,
                Err(error) if args.if_new && error.has_code("already_exists") => {
                    done.unchanged += 1;
                }
                Err(error) => {
                    let (line, path) = (request.line, printable_path(&request.path).into_owned());
                    let is_login = request.is_login && error.has_code("denied");
                    let advice = if is_login { NO_LOGINS } else { "" };
                    return Err(error.said(|why| format!("line {line} ({path}): {why}{advice}")));
                }
            }
        }
        match bad {
            Some(error) => return Err(error),
            None if is_over => return Ok(()),
            None => look(lines.bytes)?,
        }
    }
}

/// What a line asks for.
struct Request {
    line: u64,
    path: String,
    action: &'static str,
    deletes: bool,
    /// It is about users, or how they log in.
    is_login: bool,
    fields: Fields,
}

fn next_request<R: io::Read>(
    args: &ImportArgs,
    lines: &mut Lines<R>,
    done: &mut Done,
) -> Result<Option<Request>, CliError> {
    loop {
        let count = lines.count + 1;
        let name = name_of(&args.file);
        let failed = |why: String| CliError::Failure(format!("{name}: line {count}: {why}"));
        let Some(text) = lines.next()? else { return Ok(None) };
        if text.trim().is_empty() {
            continue;
        }
        let decoded = decode_line(text).map_err(|error| failed(error.to_string()));
        let Line { path, value } = decoded?;
        done.lines += 1;
        let whole = args.below.join(&path).map_err(|error| failed(error.to_string()))?;
        let is_login = whole.as_bytes().starts_with(AUTH_PATH);
        let Some(value) = value else {
            if !args.deletions {
                done.left_out += 1;
                continue;
            }
            let (action, below) = address_entry(&whole, "delete_value", "delete_internal")?;
            let (fields, path) = (Fields::at(&below), whole.to_string());
            let (line, deletes) = (count, true);
            return Ok(Some(Request { line, path, action, deletes, is_login, fields }));
        };
        let (action, below) = address_entry(&whole, "set_value", "set_internal")?;
        let mut fields = Fields::at(&below);
        fields.raw("value", value.as_bytes()).bool("idem", true).u64("nchain", 0);
        if args.if_new {
            fields.nil("chain");
        }
        let path = whole.to_string();
        let (line, deletes) = (count, false);
        return Ok(Some(Request { line, path, action, deletes, is_login, fields }));
    }
}
