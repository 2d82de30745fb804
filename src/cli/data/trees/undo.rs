//! `undo`: what was deleted below a path since a moment, made anew.

use std::collections::BTreeMap;
use std::env;
use std::path::Path as FilePath;

use clap::Args;
use serde_json::{Value as Json, json};

use super::again;
use super::apply::{Difference, Done, carry_out, compare};
use crate::cli::error::CliError;
use crate::cli::files::gap::Gap;
use crate::cli::files::new_file::NewFile;
use crate::cli::files::read::read_state;
use crate::cli::remote::{Remote, RemoteArgs, parse_path};
use crate::cli::snapshot::save::{PAST_TIMEOUT, fetch};
use crate::cli::terminal::interrupt::Interrupt;
use crate::cli::terminal::output::{
    Output, count_of, json_of, printable_path, short_change_of, short_text_of, shown_path,
};
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::terminal::times::{Moment, parse_moment, show_time};
use crate::cli::{say, typed};
use crate::client::Fields;
use crate::model::path::Path;
use crate::model::value::Value;
use crate::rt;

/// Bring back what was deleted below a path since a moment
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node undo --below site --at 10m --dry-run
  distkv-node undo --below site --at 10m
  distkv-node undo --below site --at '10m ago' --overwrite

A node with a data directory remembers its past (see `run --keep-for`). The node that is asked looks up \
what was below the path at that moment; entries that had a value then and have none now are set to it \
again, as new changes, which all nodes get. What has another value now, or is new, was changed later: it \
is printed, and kept, unless --overwrite is given: that sets changed entries back, too. Nothing is ever \
deleted. Each entry is set only if nobody changes it meanwhile. Long values are printed cut, two of one entry where they differ; with --json they are whole.

A time is when a change came to the node that is asked, by that node's clock; '10m' counts back from \
now by the same clock. Of a moment at which that node did not run, or could not log because its disk had \
failed, or which its clock leapt over, it knows only the state before that time: nothing is undone then, \
unless --allow-gap is given. Better ask another node (--connect), or take a moment at which it ran. Nor is \
anything undone by a moment that the clock showed more than once because it was set back: the error says when, \
and with --allow-gap, undo goes by the last state that can be meant. Where a log that the state needs is missing or \
damaged, the error says before which moment, and from which on, states are available; or ask another node.

Exit code: 0 done, 1 failed, or the node does not remember that moment, or not surely; 2 usage, 3 refused, 6 no node was \
reached, 7 it may have been done, 8 --dry-run cannot be written, 130 interrupted (of 7 and 130, the text says how to go \
on).")]
pub(in crate::cli) struct UndoArgs {
    /// Only what is at and below this path; ':' is everything
    #[arg(long, value_name = "PATH", value_parser = parse_path)]
    below: Path,

    /// The moment just before the mistake, like 2026-11-20T12:00 (UTC), 'yesterday 14:00', or 10m for 10
    /// minutes ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    at: Moment,

    /// Also set back what has another value now
    #[arg(long)]
    overwrite: bool,

    /// Also if the node did not run at that moment, or could not log: go by its state before that; or if its clock was set
    /// back: by the last state that can be meant
    #[arg(long)]
    allow_gap: bool,

    /// Print what would be done, and do nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: UndoArgs) -> Result<(), CliError> {
    let json = args.remote.json;
    let interrupt = Interrupt::heed()?;
    if args.below.strip_prefix(&Path::system_root()).is_some() {
        let text = "what is below :n belongs to the system: set it again with the command for it";
        return Err(CliError::Usage(text.to_owned()));
    }
    let past = interrupt.or(args.look_up()).await;
    let (remote, Past { at, remembered, found, gap }) =
        past.map_err(|error| error.left("nothing was changed"))?;
    if let Some(gap) = &gap {
        say::note(&gap.note());
    }
    let is_undone = |difference: &Difference| {
        difference.then.is_some() && (difference.now.is_none() || args.overwrite)
    };
    let (undone, kept): (Vec<_>, Vec<_>) = found.into_iter().partition(is_undone);
    let mut output = if args.dry_run { Output::of_read(json) } else { Output::of_change(json) };
    if args.dry_run {
        undone.iter().try_for_each(|difference| print(difference, "restore", &mut output))?;
    }
    kept.iter().try_for_each(|difference| print(difference, "keep", &mut output))?;
    output.flush()?;
    let mut done = Done::default();
    let mut undoing = Ok(());
    if !args.dry_run {
        let mut bar = ProgressBar::new("undoing", json);
        let total = undone.len() as u64;
        let look = |count| bar.entries(count, total);
        undoing = carry_out(&remote, &undone, &mut done, (&interrupt, look)).await;
    }
    let kept = kept.len() as u64;
    let (restored, set) = match args.dry_run {
        true => (undone.len() as u64, "would be set"),
        false => (done.set, "set"),
    };
    let text = || {
        let (count, at) = (count_of(restored, "entry", "entries"), show_time(at));
        let mut text = format!("{count} {set} as of {at}, {kept} changed later and kept");
        if remembered == 0 {
            text.push_str("; nothing was there at that moment");
        }
        text
    };
    output.either(
        || {
            let mut told = json!({
                "restored": restored, "kept": kept, "changed_meanwhile": done.changed,
                "dry_run": args.dry_run,
            });
            if let (Some(gap), Some(told)) = (&gap, told.as_object_mut()) {
                told.insert("gap".into(), gap.json());
            }
            told
        },
        text,
    )?;
    output.flush()?;
    undoing.map_err(|error| {
        let rest = args.rest_text(at);
        error.left(&rest).in_doubt(|| rest)
    })?;
    if done.changed > 0 {
        let count = count_of(done.changed, "entry was", "entries were");
        return Err(CliError::Failure(format!("{count} changed meanwhile and left alone")));
    }
    Ok(())
}

/// What was there.
struct Past {
    /// When, by the clock of the node that was asked.
    at: u64,
    /// How many entries had a value then.
    remembered: u64,
    /// What is different now.
    found: Vec<Difference>,
    /// If the node does not surely know the state of the moment.
    gap: Option<Gap>,
}

/// The command that undoes what was done below a path since a moment, as it can be typed.
pub(in crate::cli::data) fn command(below: &Path, at: &str, flags: &[&str]) -> String {
    let below = again::below(below);
    let below: Vec<&str> = below.iter().map(String::as_str).collect();
    typed::command("undo", &[], &[&below, &["--at", at][..], flags].concat())
}

impl UndoArgs {
    /// How to go on where it was broken off. A moment that was said as a time before now is another one by then.
    fn rest_text(&self, at: u64) -> String {
        let flags = [("--overwrite", self.overwrite), ("--allow-gap", self.allow_gap)];
        let again = command(&self.below, &show_time(at), &again::given(flags));
        format!(
            "the rest was left as it is; {again} goes on from there, at this node or at another one that has a data \
             directory (--connect)"
        )
    }

    /// What was there at the moment, and a connection to change it by.
    async fn look_up(&self) -> Result<(Remote, Past), CliError> {
        let mut remote = self.remote.clone();
        remote.answer = Some(PAST_TIMEOUT);
        let node = remote.connect().await?;
        let at = self.at.of_node(&node).await?;
        let mut wanted = Fields::at(&self.below);
        wanted.u64("time", at);
        // By way of a file: it may be more than memory should hold twice.
        let beside = env::temp_dir().join("distkv-undo");
        let mut file = NewFile::scratch(&beside)?;
        let past = FilePath::new("the past state");
        let gap = fetch(&mut file, past, &node, &wanted, remote.json).await?.gap;
        if let Some(gap) = gap.filter(|_| !self.allow_gap && !self.dry_run) {
            return Err(CliError::Failure(format!(
                "{}; nothing was changed: take {}, ask another node (--connect), or look with --dry-run \
                 and go by that state with --allow-gap",
                gap.note(),
                gap.other_moment()
            )));
        }
        let (path, json) = (file.temporary(), self.remote.json);
        let state = rt::spawn_blocking(move || read_state(&path, json)).await?;
        drop(file);
        let entries = state.image.replica.tree.subtree(&self.below);
        let valued = entries.filter_map(|(path, entry)| Some((path.clone(), entry.value()?)));
        let system = Path::system_root();
        let then = valued
            .filter(|(path, _)| path.strip_prefix(&system).is_none())
            .map(|(path, value)| match Value::new(value) {
                Ok(value) => Ok((path, value)),
                Err(error) => Err(CliError::Failure(format!("{}: {error}", shown_path(&path)))),
            })
            .collect::<Result<BTreeMap<_, _>, _>>()?;
        let remembered = then.len() as u64;
        let remote = self.remote.connect().await?;
        let found = compare(&remote, &self.below, then, self.remote.json).await?;
        Ok((remote, Past { at, remembered, found, gap }))
    }
}

/// Prints what is done with an entry.
fn print(difference: &Difference, what: &str, output: &mut Output) -> Result<(), CliError> {
    let path = difference.path.to_string();
    let now = difference.now.as_ref().map(|(value, _)| value.as_slice());
    let then = difference.then.as_ref().map(Value::as_bytes);
    output.either(
        || {
            let value = |value: Option<&[u8]>| value.map_or(Json::Null, json_of);
            json!({"path": path, "change": what, "now": value(now), "then": value(then)})
        },
        || {
            let path = printable_path(&path);
            match (now, then) {
                (None, then) => {
                    format!("+ {path}  {}", then.map(short_text_of).unwrap_or_default())
                }
                (Some(now), Some(then)) => {
                    let (now, then) = short_change_of(now, then);
                    match what {
                        "restore" => format!("~ {path}  {now} -> {then}"),
                        _ => format!("kept {path}  {now} (was {then})"),
                    }
                }
                (Some(now), None) => format!("kept {path}  {} (is new)", short_text_of(now)),
            }
        },
    )
}
