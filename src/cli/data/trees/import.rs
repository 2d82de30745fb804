//! `import`: entries from lines of JSON, as new changes.

use std::io;
use std::path::PathBuf;

use clap::Args;
use futures::future::join_all;
use serde_json::json;

use super::again;
use super::doubt::{Doubt, may_have_been};
use super::repeated::Repeated;
use crate::cli::data::system::SystemArgs;
use crate::cli::error::CliError;
use crate::cli::files::read::{Lines, name_of};
use crate::cli::remote::{Remote, RemoteArgs, address_entry, parse_path};
use crate::cli::say;
use crate::cli::terminal::interrupt::Interrupt;
use crate::cli::terminal::output::{Output, count_of, shown_path};
use crate::cli::terminal::progress::ProgressBar;
use crate::client::Fields;
use crate::model::meta::AUTH_PATH;
use crate::model::path::Path;
use crate::protocol::lines::{Line, decode_line};

/// Requests that are under way at once.
const REQUESTS: usize = 64;
/// How a line about users is refused.
const REFUSED: &str = "it belongs to the system (`:n`)";
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
Lines for what belongs to the system (below :n) are refused without --system, and users and logins (below :n.auth) \
always. To restore entries with their history, and users, see `snapshot restore`.

Lines are carried out in their order. If a line sets an entry that an earlier line had set, its value replaces that one, \
and after the end the command says how many such lines there were, and which was the first (--json: repeated). Two keys \
of another store can be one path, like user:16 and user:x10. `diff` and `apply` refuse such a file.

Exit code: 0 done, 1 stopped at an error (the text says at which line), 2 usage, 3 a \
line was refused, 5 its precondition does not hold, 6 no node was reached, 7 it may have been done, \
130 interrupted (of these two, the text says how to go on).")]
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
    system: SystemArgs,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

/// What was done.
#[derive(Debug, Default)]
struct Done {
    lines: u64,
    set: u64,
    deleted: u64,
    unchanged: u64,
    /// Deletions that were not to be carried out.
    left_out: u64,
    /// Lines whose entry an earlier one had set.
    repeated: Repeated,
}

pub(in crate::cli) async fn run(args: ImportArgs) -> Result<(), CliError> {
    args.system.check(&args.below)?;
    let interrupt = Interrupt::heed()?;
    let (source, bytes) = interrupt.open(&args.file)?;
    let connected = interrupt.or(args.remote.connect()).await;
    let remote = connected.map_err(|error| error.left("nothing was imported"))?;
    let mut bar = ProgressBar::new("importing", args.remote.json);
    let mut lines = Lines::new(&args.file, source);
    let mut done = Done::default();
    let look = |read| bar.bytes(read, bytes);
    let imported = import(&args, &remote, &mut lines, &mut done, (&interrupt, look));
    let imported = interrupt.soon(imported).await.map_err(|error| interrupt.outweighs(error));
    drop(bar);
    let mut output = Output::of_change(args.remote.json);
    let Done { lines, set, deleted, unchanged, left_out, repeated } = done;
    output.either(
        || {
            json!({
                "lines": lines, "changed": set + deleted, "set": set, "deleted": deleted,
                "unchanged": unchanged, "deletions_left_out": left_out,
                "repeated": repeated.count, "repeated_not_checked": repeated.unchecked,
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
    repeated.notes(args.if_new).iter().for_each(|note| say::note(note));
    imported.map_err(|error| {
        let rest = args.rest_text();
        error.left(&rest).in_doubt(|| rest)
    })
}

impl ImportArgs {
    /// How to go on where it was broken off: what is as the file says by then is not changed.
    fn rest_text(&self) -> String {
        let flags = again::given([
            ("--if-new", self.if_new),
            ("--deletions", self.deletions),
            ("--system", self.system.is_given()),
        ]);
        let goes_on = again::goes_on_with("import", &self.file, &self.below, &flags);
        format!("the lines behind these were not imported; {goes_on}")
    }
}

/// Of the lines from the first to the last.
fn in_doubt((first, last): (u64, u64)) -> String {
    let lines = if first == last { "line" } else { "lines" };
    may_have_been(&format!("{lines} {first}"), (first < last).then_some(last), "imported")
}

/// Imports all lines. What was done is right also if it stops before. `look` is told how many bytes were read.
async fn import<R: io::Read>(
    args: &ImportArgs,
    remote: &Remote,
    lines: &mut Lines<R>,
    done: &mut Done,
    (interrupt, mut look): (&Interrupt, impl FnMut(u64)),
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
        let replies = match (batch.first(), batch.last()) {
            (Some(first), Some(last)) => {
                let lines = in_doubt((first.line, last.line));
                interrupt.in_doubt(lines, join_all(replies)).await
            }
            _ => Vec::new(),
        };
        let mut doubt = Doubt::default();
        // All are looked at: those behind one that failed were sent, too.
        for (reply, request) in replies.into_iter().zip(&batch) {
            match reply {
                Ok(reply) if reply.bool("changed") == Some(false) => done.unchanged += 1,
                Ok(_) if request.deletes => done.deleted += 1,
                Ok(_) => {
                    done.set += 1;
                    request.note_repeated(&mut done.repeated);
                }
                Err(error) if args.if_new && error.has_code("already_exists") => {
                    done.unchanged += 1;
                    request.note_repeated(&mut done.repeated);
                }
                Err(error) => {
                    let (line, path) = (request.line, shown_path(&request.path));
                    let is_login = request.is_login && error.has_code("denied");
                    let advice = if is_login { NO_LOGINS } else { "" };
                    let error = error.said(|why| format!("line {line} ({path}): {why}{advice}"));
                    doubt.add(line, error);
                }
            }
        }
        doubt.end(interrupt, in_doubt)?;
        match bad {
            Some(error) => return Err(error),
            None if is_over => return Ok(()),
            None => {
                look(lines.bytes);
                interrupt.check()?;
            }
        }
    }
}

/// What a line asks for.
struct Request {
    line: u64,
    path: Path,
    action: &'static str,
    deletes: bool,
    /// An earlier line sets the same entry.
    is_repeated: bool,
    /// It is about users, or how they log in.
    is_login: bool,
    fields: Fields,
}

impl Request {
    /// Of the two lines, the value of only one is there now.
    fn note_repeated(&self, repeated: &mut Repeated) {
        if self.is_repeated {
            repeated.found(self.line, &self.path);
        }
    }
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
        args.system.check_one(&whole).map_err(|why| {
            let why = if is_login { String::from(REFUSED) + NO_LOGINS } else { why };
            failed(format!("{}: {why}", shown_path(&whole)))
        })?;
        let Some(value) = value else {
            if !args.deletions {
                done.left_out += 1;
                continue;
            }
            let (action, below) = address_entry(&whole, "delete_value", "delete_internal")?;
            let (fields, line, deletes) = (Fields::at(&below), count, true);
            done.repeated.deletes(&whole);
            let (path, is_repeated) = (whole, false);
            return Ok(Some(Request {
                line,
                path,
                action,
                deletes,
                is_repeated,
                is_login,
                fields,
            }));
        };
        let (action, below) = address_entry(&whole, "set_value", "set_internal")?;
        let mut fields = Fields::at(&below);
        fields.raw("value", value.as_bytes()).bool("idem", true).u64("nchain", 0);
        if args.if_new {
            fields.nil("chain");
        }
        let (line, deletes) = (count, false);
        let is_repeated = done.repeated.sets(line, &whole);
        let path = whole;
        return Ok(Some(Request { line, path, action, deletes, is_repeated, is_login, fields }));
    }
}
