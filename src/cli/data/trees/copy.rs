//! `cp` and `mv`: an entry, or all below it, under another path.

use clap::Args;
use futures::future::join_all;
use serde_json::json;

use super::again;
use super::doubt::{Doubt, may_have_been};
use crate::cli::data::system::refusal;
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs, parse_path};
use crate::cli::terminal::interrupt::Interrupt;
use crate::cli::terminal::output::{Output, count_of, shown_path};
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::typed;
use crate::client::{Fields, StreamEvent};
use crate::model::path::Path;
use crate::model::value::values_equal;

/// Entries that are under way at once.
const ENTRIES: usize = 64;
/// What a node answers if there is a value at the new path.
const IS_THERE: &str = "already_exists";

/// Copy an entry, or with --recursive all below it too
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node cp site.lamp site.spare
  distkv-node cp site archive.site --recursive
  distkv-node cp site archive.site --recursive --force

What is at the new path already is not replaced, unless with --force, and what is only there stays. \
Where it has the same value already, nothing is to be done. All is read as it was at one moment.

Exit code: 0 done, 1 failed (the text says at which entry), 2 usage, 3 refused, 5 something is there \
already, 6 no node was reached, 7 it may have been done, 130 interrupted (of these two, the text says how to \
go on).")]
pub(in crate::cli) struct CpArgs {
    #[command(flatten)]
    places: Places,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

/// Move an entry, or with --recursive all below it too
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node mv site.spare site.light
  distkv-node mv archive.site plant.site --recursive

Entry by entry: each is set at the new path, and then deleted at the old one, if nobody has changed it \
there meanwhile; what was changed stays at both, and is told. What is at the new path already is not \
replaced, unless with --force; where it has the same value already, only the old path's is deleted. So a \
move that was broken off is finished by running it again.

Of several who move an entry at once, one moves it, and the others fail, perhaps with a copy at their \
new paths, as long as all reach the same node: where each names several nodes, that is the one that \
clients prefer for the old path. It is not so over a split, or when that node freezes or is killed \
meanwhile.

Exit code: 0 done, 1 failed (the text says at which entry), or something stays; 2 usage, 3 refused, \
5 something is there already, 6 no node was reached, 7 it may have been done, 130 interrupted (of these two, \
the text says how to go on).")]
pub(in crate::cli) struct MvArgs {
    #[command(flatten)]
    places: Places,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

/// From where to where.
#[derive(Debug, Clone, Args)]
struct Places {
    /// The path as it is
    #[arg(value_parser = parse_path)]
    from: Path,

    /// The new path
    #[arg(value_parser = parse_path)]
    to: Path,

    /// All that is below the path, too
    #[arg(short, long)]
    recursive: bool,

    /// Replace what is at the new path
    #[arg(short, long)]
    force: bool,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    copied: u64,
    /// Of a move: deleted at the old path.
    deleted: u64,
    /// Of a move: changed by somebody else meanwhile.
    changed: u64,
    /// Of a move: entries are being deleted at the old path, or that was broken off.
    is_deleting: bool,
}

/// An entry on its way.
struct Entry {
    from: Path,
    to: Path,
    value: Vec<u8>,
    chain: Vec<u8>,
}

pub(in crate::cli) async fn copy(args: CpArgs) -> Result<(), CliError> {
    run(&args.places, &args.remote, false).await
}

pub(in crate::cli) async fn rename(args: MvArgs) -> Result<(), CliError> {
    run(&args.places, &args.remote, true).await
}

async fn run(places: &Places, remote: &RemoteArgs, moves: bool) -> Result<(), CliError> {
    places.check()?;
    // Replies wait behind a stream that is not read, so what is read has a connection of its own.
    let interrupt = Interrupt::heed()?;
    let connecting = async {
        // All of a move is done at one node: what it deletes at one must not be lost with another.
        let remote = if moves { remote.toward(&places.from).await? } else { remote.clone() };
        Ok((remote.connect().await?, remote.connect().await?))
    };
    let connected = interrupt.or(connecting).await;
    let nothing = if moves { "nothing was moved" } else { "nothing was copied" };
    let (source, target) = connected.map_err(|error| error.left(nothing))?;
    let mut bar = ProgressBar::new(if moves { "moving" } else { "copying" }, remote.json);
    let mut done = Done::default();
    let look = |count| bar.entries(count, 0);
    let carried = places.carry(&source, &target, moves, &mut done, (&interrupt, look));
    let carried = interrupt.soon(carried).await;
    drop(bar);
    let mut output = Output::of_change(remote.json);
    let Done { copied, deleted, changed, is_deleting } = done;
    let json = || match moves {
        true => json!({"copied": copied, "deleted": deleted, "changed_meanwhile": changed}),
        false => json!({"copied": copied}),
    };
    let text = || {
        let count = count_of(if moves { deleted } else { copied }, "entry", "entries");
        let (from, to) = (shown_path(&places.from), shown_path(&places.to));
        let verb = if moves { "moved" } else { "copied" };
        format!("{count} {verb} from {from} to {to}")
    };
    output.either(json, text)?;
    output.flush()?;
    let both = match copied.saturating_sub(deleted + changed) {
        both @ 1.. if moves => {
            let most = if is_deleting { "at most " } else { "" };
            format!("{most}{} at both paths, ", count_of(both, "entry is", "entries are"))
        }
        _ => String::new(),
    };
    let rest = if moves { "the rest is where it was" } else { "the rest was not copied" };
    let rest = format!("{both}{rest}");
    let again = format!("{rest}; {}", again::goes_on(&places.command(moves), ""));
    carried.map_err(|error| {
        // The same command would end there once more.
        let rest = if error.has_code(IS_THERE) { rest } else { again };
        let is_in_doubt = error.may_have_been_done();
        match copied {
            0 => error.left(&rest).in_doubt(|| rest),
            _ if is_in_doubt => error.in_doubt(|| rest),
            _ => error.left(&rest).said(|text| format!("{text}; {rest}")),
        }
    })?;
    if copied == 0 {
        return Err(CliError::Failure(places.nothing_there()));
    }
    if changed > 0 {
        let count = count_of(changed, "entry was", "entries were");
        return Err(CliError::Failure(format!(
            "{count} changed or deleted at the old path meanwhile, and not moved from there: see what is at \
             both paths, and delete what should go"
        )));
    }
    Ok(())
}

impl Places {
    fn check(&self) -> Result<(), CliError> {
        let usage = |text: String| Err(CliError::Usage(text));
        if let Some(path) = [&self.from, &self.to].into_iter().find(|path| path.is_system()) {
            return usage(refusal(path));
        }
        if self.from == self.to {
            return usage(String::from("both paths are the same"));
        }
        if self.recursive && self.to.strip_prefix(&self.from).is_some() {
            let (to, from) = (shown_path(&self.to), shown_path(&self.from));
            return usage(format!("{to} is below {from} itself"));
        }
        Ok(())
    }

    /// The command that goes on, as it can be typed.
    fn command(&self, moves: bool) -> String {
        let flags = again::given([("--recursive", self.recursive), ("--force", self.force)]);
        let paths = [self.from.to_string(), self.to.to_string()];
        let words = if moves { "mv" } else { "cp" };
        typed::command(words, &paths.each_ref().map(String::as_str), &flags)
    }

    fn nothing_there(&self) -> String {
        let from = shown_path(&self.from);
        match self.recursive {
            true => format!("there is no value at {from} or below it"),
            false => format!("{from} has no value; --recursive takes what is below it"),
        }
    }

    /// Reads all, and carries each entry over, until it is interrupted. What was done is right also if it stops before. `look`
    /// is told how many are copied.
    async fn carry(
        &self,
        source: &Remote,
        target: &Remote,
        moves: bool,
        done: &mut Done,
        (interrupt, mut look): (&Interrupt, impl FnMut(u64)),
    ) -> Result<(), CliError> {
        let mut fields = Fields::at(&self.from);
        fields.u64("nchain", 1);
        if !self.recursive {
            fields.u64("max_depth", 0);
        }
        let mut stream = source.stream("get_tree", &fields).await?;
        let mut is_over = false;
        while !is_over {
            let mut batch = Vec::with_capacity(ENTRIES);
            while batch.len() < ENTRIES && !is_over {
                match source.next(&mut stream).await? {
                    Some(StreamEvent::Item { path, message }) => {
                        let (Some(value), Some(chain)) =
                            (message.get("value"), message.get("chain"))
                        else {
                            continue;
                        };
                        let below = path.unwrap_or_default();
                        let join = |top: &Path| {
                            top.join(&below).map_err(|error| CliError::Failure(error.to_string()))
                        };
                        let (value, chain) = (value.to_vec(), chain.to_vec());
                        batch.push(Entry {
                            from: join(&self.from)?,
                            to: join(&self.to)?,
                            value,
                            chain,
                        });
                    }
                    Some(_) => {}
                    None => is_over = true,
                }
            }
            let Some(ends) = batch.first().zip(batch.last()) else { break };
            let ends = (&ends.0.from, &ends.1.from);
            let copied = if moves { "copied to the new path" } else { "copied" };
            let setting = self.set_all(target, &batch, done, (interrupt, copied));
            interrupt.in_doubt(in_doubt(ends, copied), setting).await?;
            if moves {
                let deleting = delete_all(target, &batch, done, interrupt);
                interrupt.in_doubt(in_doubt(ends, DELETED), deleting).await?;
            }
            if !is_over {
                look(done.copied);
                interrupt.check()?;
            }
        }
        Ok(())
    }

    async fn set_all(
        &self,
        remote: &Remote,
        batch: &[Entry],
        done: &mut Done,
        (interrupt, copied): (&Interrupt, &str),
    ) -> Result<(), CliError> {
        let requests: Vec<Fields> = batch.iter().map(|entry| self.setting(entry)).collect();
        let setting = requests.iter().map(|fields| remote.request("set_value", fields));
        let mut doubt = Doubt::default();
        // All are looked at: those behind one that failed were sent, too.
        for (reply, entry) in join_all(setting).await.into_iter().zip(batch) {
            let error = match reply {
                Ok(_) => {
                    done.copied += 1;
                    continue;
                }
                Err(error) if error.has_code(IS_THERE) => match has_value(remote, entry).await {
                    Ok(true) => {
                        done.copied += 1;
                        continue;
                    }
                    Ok(false) => told_at(&entry.to, error, "; --force replaces what is there"),
                    Err(error) => told_at(&entry.to, error, ""),
                },
                Err(error) => told_at(&entry.to, error, ""),
            };
            doubt.add(&entry.from, error);
        }
        doubt.end(interrupt, |open| in_doubt(open, copied))
    }

    fn setting(&self, entry: &Entry) -> Fields {
        let mut fields = Fields::at(&entry.to);
        fields.raw("value", &entry.value).u64("nchain", 0);
        if self.force {
            fields.bool("idem", true);
        } else {
            fields.nil("chain");
        }
        fields
    }
}

/// Whether the new path has the entry's value already: as after a command that was broken off. Nothing is replaced then.
async fn has_value(remote: &Remote, entry: &Entry) -> Result<bool, CliError> {
    let reply = remote.request("get_value", &Fields::at(&entry.to)).await?;
    Ok(reply.get("value").is_some_and(|value| values_equal(value, &entry.value)))
}

/// What may have been done of a move's entries once they are copied.
const DELETED: &str = "deleted at the old path";

/// Of the entries from the first to the last, by their old paths.
fn in_doubt((first, last): (&Path, &Path), what: &str) -> String {
    let last = (first < last).then(|| shown_path(last));
    may_have_been(&shown_path(first), last, what)
}

/// Deletes what was carried over, where nobody has changed it meanwhile.
async fn delete_all(
    remote: &Remote,
    batch: &[Entry],
    done: &mut Done,
    interrupt: &Interrupt,
) -> Result<(), CliError> {
    let request = |entry: &Entry| {
        let mut fields = Fields::at(&entry.from);
        fields.raw("chain", &entry.chain).u64("nchain", 0);
        fields
    };
    let requests: Vec<Fields> = batch.iter().map(request).collect();
    let deleting = requests.iter().map(|fields| remote.request("delete_value", fields));
    done.is_deleting = true;
    let mut doubt = Doubt::default();
    for (reply, entry) in join_all(deleting).await.into_iter().zip(batch) {
        match reply {
            Ok(_) => done.deleted += 1,
            Err(error) if ["chain_mismatch", "is_new"].iter().any(|code| error.has_code(code)) => {
                done.changed += 1;
            }
            Err(error) => doubt.add(&entry.from, told_at(&entry.from, error, "")),
        }
    }
    doubt.end(interrupt, |open| in_doubt(open, DELETED))?;
    done.is_deleting = false;
    Ok(())
}

/// What failed at which entry, and what to do.
pub(super) fn told_at(path: &Path, error: CliError, advice: &str) -> CliError {
    error.said(|why| format!("{}: {why}{advice}", shown_path(path)))
}
