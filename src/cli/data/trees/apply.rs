//! `diff` and `apply`: lines of JSON against what a network holds, and what it takes to make the one the other.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use futures::future::join_all;
use rustix::fs::FileType;
use serde_json::{Map, Value as Json, json};

use super::again;
use super::copy::told_at;
use super::doubt::{Doubt, may_have_been};
use crate::cli::data::system::refusal;
use crate::cli::error::CliError;
use crate::cli::files::read::{Lines, name_of};
use crate::cli::remote::{Remote, RemoteArgs, parse_path};
use crate::cli::say;
use crate::cli::terminal::interrupt::Interrupt;
use crate::cli::terminal::output::{
    Output, count_of, json_of, printable_path, short_change_of, short_text_of, shown_path,
};
use crate::cli::terminal::progress::ProgressBar;
use crate::client::{Fields, StreamEvent};
use crate::model::path::Path;
use crate::model::value::Value;
use crate::protocol::lines::{Line, decode_line};

/// Requests that are under way at once.
const REQUESTS: usize = 64;
/// Most entries that a file may have: all of them are kept in memory.
const ENTRIES_MAX: usize = 10_000_000;
/// What a node answers if an entry is not what it was when it was compared.
const CHANGED_CODES: [&str; 3] = ["already_exists", "chain_mismatch", "is_new"];

/// Print what differs between lines of JSON and a network
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node tree site --json > site.jsonl
  distkv-node diff site.jsonl --below site
  distkv-node diff site.jsonl --below site --json

Lines begin with + for what only the file has, - for what only the network has, and ~ for another value. \
Only what is at and below --below counts; the file may have nothing else. Values count, not who made them. \
Long values are cut; with --json they are whole. \
With --json, one object per line: path, change (add, remove, change), now and then. `apply` makes the \
network match the file.

Exit code: 0 there is no difference, 1 there is (or the file cannot be read), 2 usage, 3 refused, 6 no node \
was reached, 8 it cannot be written, 130 interrupted.")]
pub(in crate::cli) struct DiffArgs {
    #[command(flatten)]
    wanted: WantedArgs,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

/// Make a network match lines of JSON
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node apply site.jsonl --below site --delete --dry-run
  distkv-node apply site.jsonl --below site --delete
  distkv-node tree --json --connect other | distkv-node apply -

Sets what differs, and leaves alone what is equal. What the file does not have stays, unless --delete \
is given. With --delete, what comes out of a pipe is refused: a command that fails there leaves only a part, \
and the rest would be deleted. Write it to a file, look at the command's exit code, and apply the file; or add \
--allow-pipe. A file without a line is refused, too: --allow-empty takes it, and deletes everything. Each entry is changed only if nobody else has changed it since it was compared; such an entry \
is left as it is, and counted.

With --json, one object with the numbers: set, deleted, changed_meanwhile, dry_run. With --dry-run, one object per \
line for each change comes before it, as `diff` prints them. Long values are cut; with --json they are whole.

Exit code: 0 done, 1 failed, or somebody else changed something meanwhile; 2 usage, 3 refused, 6 no node \
was reached, 7 it may have been done, 8 --dry-run cannot be written, 130 interrupted (of 7 and 130, the text says how \
to go on).")]
pub(in crate::cli) struct ApplyArgs {
    #[command(flatten)]
    wanted: WantedArgs,

    /// Delete what the file does not have
    #[arg(long)]
    delete: bool,

    /// With --delete: take a file without a line, too, and delete everything
    #[arg(long, requires = "delete")]
    allow_empty: bool,

    /// With --delete: read from a pipe, too, and delete what a command that failed there has left out
    #[arg(long, requires = "delete")]
    allow_pipe: bool,

    /// Print what would be done, and do nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

/// What should be there.
#[derive(Debug, Clone, Args)]
struct WantedArgs {
    /// The file: one object with path and value per line; '-' is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Only what is at and below this path
    #[arg(long, value_name = "PATH", value_parser = parse_path, default_value = ":")]
    below: Path,
}

/// Of one path; at least one of the values is there, and they differ.
pub(super) struct Difference {
    pub(super) path: Path,
    /// What the network has, and the entry's newest event.
    pub(super) now: Option<(Vec<u8>, Vec<u8>)>,
    /// What the file has.
    pub(super) then: Option<Value>,
}

pub(in crate::cli) async fn run_diff(args: DiffArgs) -> Result<(), CliError> {
    let interrupt = Interrupt::heed()?;
    let compared = args.wanted.compare(&args.remote, &interrupt).await;
    // Who sees no difference should not take that for the answer.
    let early = "the comparison had not ended, so no difference was printed";
    let (_, _, differences) = compared.map_err(|error| error.left(early))?;
    let mut output = Output::of_verdict(args.remote.json);
    let printed = differences
        .iter()
        .try_for_each(|difference| interrupt.check().and_then(|()| difference.print(&mut output)));
    output.flush()?;
    printed.map_err(|error| error.left("not all differences were printed"))?;
    if differences.is_empty() { Ok(()) } else { Err(CliError::Told) }
}

pub(in crate::cli) async fn run_apply(args: ApplyArgs) -> Result<(), CliError> {
    // A file has no lines for what is there; but with --delete, what is not in the file goes.
    if args.wanted.below.is_system() {
        return Err(CliError::Usage(refusal(&args.wanted.below)));
    }
    let interrupt = Interrupt::heed()?;
    let compared = args.wanted.compare(&args.remote, &interrupt).await;
    let (remote, lines, mut differences) =
        compared.map_err(|error| error.left("nothing was changed"))?;
    if lines == 0 && args.delete && !args.allow_empty {
        let file = name_of(&args.wanted.file);
        return Err(CliError::Failure(format!(
            "{file} is empty, and --delete would delete all that is at and below {}; nothing was changed; if you \
             mean that, add --allow-empty",
            args.wanted.below
        )));
    }
    if lines > 0 && args.delete && !args.allow_pipe && !args.dry_run && !args.wanted.is_regular() {
        let file = name_of(&args.wanted.file);
        return Err(CliError::Failure(format!(
            "{file} comes out of a pipe, so nobody can tell whether all of it has come, and --delete would delete the rest; \
             nothing was changed; write it to a file first, or add --allow-pipe"
        )));
    }
    differences.retain(|difference| args.delete || difference.then.is_some());
    if args.dry_run {
        let mut output = Output::of_read(args.remote.json);
        differences.iter().try_for_each(|difference| difference.print(&mut output))?;
        let total = differences.len() as u64;
        let set = differences.iter().filter(|difference| difference.then.is_some()).count() as u64;
        let deleted = total - set;
        if output.json {
            output.json_line(counts(Done { set, deleted, changed: 0 }, true))?;
            return output.flush();
        }
        output.flush()?;
        let count = count_of(total, "entry", "entries");
        say::line(&format!("{count} would be changed: {set} set, {deleted} deleted"));
        return Ok(());
    }
    let mut done = Done::default();
    let mut bar = ProgressBar::new("applying", args.remote.json);
    let total = differences.len() as u64;
    let look = |count| bar.entries(count, total);
    let applied = carry_out(&remote, &differences, &mut done, (&interrupt, look)).await;
    drop(bar);
    let mut output = Output::of_change(args.remote.json);
    let Done { set, deleted, changed } = done;
    output.either(|| counts(done, false), || format!("{set} set, {deleted} deleted"))?;
    output.flush()?;
    applied.map_err(|error| {
        let rest = args.rest_text();
        error.left(&rest).in_doubt(|| rest)
    })?;
    if changed > 0 {
        let count = count_of(changed, "entry was", "entries were");
        return Err(CliError::Failure(format!(
            "{count} changed by somebody else meanwhile and left alone; run the command again"
        )));
    }
    Ok(())
}

/// What was done, or would be, for programs.
fn counts(Done { set, deleted, changed }: Done, is_dry_run: bool) -> Json {
    json!({"set": set, "deleted": deleted, "changed_meanwhile": changed, "dry_run": is_dry_run})
}

impl ApplyArgs {
    /// How to go on where it was broken off: what is equal by then is left alone.
    fn rest_text(&self) -> String {
        let flags = again::given([
            ("--delete", self.delete),
            ("--allow-empty", self.allow_empty),
            ("--allow-pipe", self.allow_pipe),
        ]);
        let WantedArgs { file, below, .. } = &self.wanted;
        let goes_on = again::goes_on_with("apply", file, below, &flags);
        format!("the rest was left as it is; {goes_on}")
    }
}

impl WantedArgs {
    /// Whether it is a file that somebody has written before, and not what another command is writing.
    fn is_regular(&self) -> bool {
        if self.file.as_os_str() == "-" {
            let stat = rustix::fs::fstat(std::io::stdin());
            return stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        }
        std::fs::metadata(&self.file).is_ok_and(|found| found.is_file())
    }

    /// Connects, and compares the file with what is there. Also tells how many lines the file has.
    async fn compare(
        &self,
        remote: &RemoteArgs,
        interrupt: &Interrupt,
    ) -> Result<(Remote, u64, Vec<Difference>), CliError> {
        let (source, _) = interrupt.open(&self.file)?;
        let node = interrupt.or(remote.connect()).await?;
        let read = self.read(source).map_err(|error| interrupt.outweighs(error));
        let (lines, wanted) = read?;
        let comparing = compare(&node, &self.below, wanted, remote.json);
        let differences = interrupt.or(comparing).await?;
        Ok((node, lines, differences))
    }

    /// What the file says, and in how many lines.
    fn read(&self, source: impl Read) -> Result<(u64, BTreeMap<Path, Value>), CliError> {
        let mut lines = Lines::new(&self.file, source);
        let (mut said, mut wanted) = (0, BTreeMap::new());
        loop {
            let place = format!("{}: line {}", name_of(&self.file), lines.count + 1);
            let failed = |why: String| Err(CliError::Failure(format!("{place}: {why}")));
            let Some(text) = lines.next()? else { return Ok((said, wanted)) };
            if text.trim().is_empty() {
                continue;
            }
            said += 1;
            let Line { path, value } = match decode_line(text) {
                Ok(line) => line,
                Err(error) => return failed(error.to_string()),
            };
            if path.strip_prefix(&self.below).is_none() {
                return failed(format!(
                    "{} is not below {}",
                    shown_path(&path),
                    shown_path(&self.below)
                ));
            }
            if path.is_system() {
                return failed(refusal(&path));
            }
            // What is said to be deleted is not wanted.
            let Some(value) = value else { continue };
            if wanted.len() == ENTRIES_MAX {
                return failed(format!("more than {ENTRIES_MAX} entries; compare part by part"));
            }
            if wanted.insert(path.clone(), value).is_some() {
                return failed(format!("{} stands in the file twice", shown_path(&path)));
            }
        }
    }
}

/// What the network has at and below a path, against what is wanted there: all differences, in the order of the
/// paths.
pub(super) async fn compare(
    remote: &Remote,
    below: &Path,
    mut wanted: BTreeMap<Path, Value>,
    json: bool,
) -> Result<Vec<Difference>, CliError> {
    let mut fields = Fields::at(below);
    fields.u64("nchain", 1);
    let mut bar = ProgressBar::new("comparing", json);
    let (mut compared, mut found) = (0, Vec::new());
    let mut stream = remote.stream("get_tree", &fields).await?;
    while let Some(event) = remote.next(&mut stream).await? {
        let StreamEvent::Item { path, message } = event else { continue };
        let (Some(value), Some(chain)) = (message.get("value"), message.get("chain")) else {
            continue;
        };
        let path = below.join(&path.unwrap_or_default());
        let path = path.map_err(|error| CliError::Failure(error.to_string()))?;
        let then = wanted.remove(&path);
        // Clients write one value in several ways.
        let is_equal =
            |then: &Value| then.as_bytes() == value || json_of(then.as_bytes()) == json_of(value);
        if !then.as_ref().is_some_and(is_equal) {
            found.push(Difference { path, now: Some((value.to_vec(), chain.to_vec())), then });
        }
        compared += 1;
        bar.entries(compared, 0);
    }
    let added = wanted.into_iter();
    found.extend(added.map(|(path, then)| Difference { path, now: None, then: Some(then) }));
    found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

impl Difference {
    fn print(&self, output: &mut Output) -> Result<(), CliError> {
        let path = self.path.to_string();
        let now = self.now.as_ref().map(|(value, _)| value.as_slice());
        let then = self.then.as_ref().map(Value::as_bytes);
        output.either(
            || {
                let change = match (now, then) {
                    (None, _) => "add",
                    (_, None) => "remove",
                    (Some(_), Some(_)) => "change",
                };
                let mut line = Map::new();
                line.insert("path".into(), path.as_str().into());
                line.insert("change".into(), change.into());
                for (name, value) in [("now", now), ("then", then)] {
                    line.extend(value.map(|value| (String::from(name), json_of(value))));
                }
                Json::Object(line)
            },
            || {
                let text = |value: Option<&[u8]>| value.map(short_text_of).unwrap_or_default();
                let path = printable_path(&path);
                match (now, then) {
                    (None, _) => format!("+ {path}  {}", text(then)),
                    (_, None) => format!("- {path}  {}", text(now)),
                    (Some(now), Some(then)) => {
                        let (now, then) = short_change_of(now, then);
                        format!("~ {path}  {now} -> {then}")
                    }
                }
            },
        )
    }

    /// The action that makes the network what the file says, if nobody was faster.
    fn request(&self) -> (&'static str, Fields) {
        let mut fields = Fields::at(&self.path);
        fields.u64("nchain", 0);
        match &self.now {
            Some((_, chain)) => fields.raw("chain", chain),
            None => fields.nil("chain"),
        };
        match &self.then {
            Some(value) => {
                fields.raw("value", value.as_bytes());
                ("set_value", fields)
            }
            None => ("delete_value", fields),
        }
    }
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Done {
    pub(super) set: u64,
    pub(super) deleted: u64,
    /// Changed by somebody else since it was compared.
    pub(super) changed: u64,
}

/// Makes all changes, until it is interrupted. What was done is right also if it stops before. `look` is told how many are
/// done.
///
/// # Errors
/// It was broken off; what may have been done of the changes that were under way is told.
pub(super) async fn carry_out(
    remote: &Remote,
    differences: &[Difference],
    done: &mut Done,
    (interrupt, mut look): (&Interrupt, impl FnMut(u64)),
) -> Result<(), CliError> {
    let carrying = async {
        for batch in differences.chunks(REQUESTS) {
            look(done.set + done.deleted + done.changed);
            interrupt.check()?;
            let requests: Vec<_> = batch.iter().map(Difference::request).collect();
            let asking = requests.iter().map(|(action, fields)| remote.request(action, fields));
            let places = batch.first().zip(batch.last()).map(|(a, z)| (&a.path, &z.path));
            let what = places.map(in_doubt).unwrap_or_default();
            let replies = interrupt.in_doubt(what, join_all(asking)).await;
            let mut doubt = Doubt::default();
            // All are looked at: those behind one that failed were sent, too.
            for (reply, difference) in replies.into_iter().zip(batch) {
                match reply {
                    Ok(_) if difference.then.is_some() => done.set += 1,
                    Ok(_) => done.deleted += 1,
                    Err(error) if CHANGED_CODES.iter().any(|code| error.has_code(code)) => {
                        done.changed += 1;
                    }
                    Err(error) => {
                        doubt.add(&difference.path, told_at(&difference.path, error, ""));
                    }
                }
            }
            doubt.end(interrupt, in_doubt)?;
        }
        Ok(())
    };
    interrupt.soon(carrying).await
}

/// Of the entries from the first to the last.
fn in_doubt((first, last): (&Path, &Path)) -> String {
    let last = (first < last).then(|| shown_path(last));
    may_have_been(&shown_path(first), last, "changed")
}
