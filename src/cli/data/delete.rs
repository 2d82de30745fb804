//! `delete`: one entry, or all below it.

use std::time::Duration;

use clap::Args;
use serde_json::{Value as Json, json};

use super::nothing::note_nothing_deleted;
use super::set::{ConditionArgs, CopiesArgs, change_json, change_text, named};
use super::system::SystemArgs;
use super::trees::undo;
use crate::cli::error::CliError;
use crate::cli::remote::{RemoteArgs, RequestKind, address_entry, parse_path, whole_path};
use crate::cli::terminal::interrupt::Interrupt;
use crate::cli::terminal::output::{Output, count_of, printable, printable_path, shown_path};
use crate::cli::terminal::times::show_time;
use crate::cli::{say, typed};
use crate::client::{Fields, ServerError, StreamEvent};
use crate::model::path::Path;
use crate::rt;

/// Entries below a deleted one are counted up to this many; `1000` means 1000 or more.
const BELOW_MAX: u64 = 1000;
/// How long a node may take to delete a subtree unless `--timeout` says so: a million entries take
/// seconds, on a disk that must sync them longer.
const RECURSIVE_TIMEOUT: Duration = Duration::from_secs(600);

/// Delete an entry, or with --recursive all below it too
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node delete site.lamp
  distkv-node delete site.lamp --if-value '{\"on\": false}'
  distkv-node delete site --recursive
  distkv-node delete plant --recursive --dry-run  # what that would delete

Without --recursive, entries below the path stay, and their number is printed. PATH is no pattern: there are no \
wildcards. With --json: \
path, changed, chain, tock, and below, the number of entries below the path if there are any \
(1000 means 1000 or more).

With --recursive, --json prints path, changed, the number of entries that were deleted, and dry_run. With --dry-run, \
it prints one object with the path of each entry, and at the end one with changed and dry_run.

With --recursive, the node may take 10 minutes, unless --timeout says otherwise. The root (':') is not \
deleted that way. Ctrl-C has the node stop; the command says how many entries it had deleted, and what brings them back \
(`undo`). If the command is killed, or loses its connection, the node goes on and deletes all of it.

Exit code: 0 it is gone (or was not there), 1 failed, 2 usage, 3 refused (with --recursive, the error says how \
many were deleted before), 5 a precondition does not hold, \
6 no node was reached, 7 it may have been done (with --recursive, the error says how to go on), 8 --dry-run cannot be \
written, 130 interrupted (with \
--recursive, the error says how many were deleted).")]
pub(in crate::cli) struct DeleteArgs {
    /// The entry's path, like a.b:1.c
    #[arg(value_parser = parse_path)]
    path: Path,

    /// Delete all below it too
    #[arg(short, long, conflicts_with_all = ["chain", "if_new", "if_value", "copies"])]
    recursive: bool,

    /// With --recursive: print the paths that would be deleted, and delete nothing
    #[arg(short = 'n', long, requires = "recursive")]
    dry_run: bool,

    #[command(flatten)]
    copies: CopiesArgs,

    #[command(flatten)]
    condition: ConditionArgs,

    #[command(flatten)]
    system: SystemArgs,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(mut args: DeleteArgs) -> Result<(), CliError> {
    let path = args.path.to_string();
    if args.recursive && args.path.is_root() {
        return Err(CliError::Usage(String::from(
            "the root is not deleted with all below it; delete what `distkv-node ls` lists, one by one",
        )));
    }
    if args.dry_run {
        return show(&args, Output::of_read(args.remote.json)).await;
    }
    args.system.check(&args.path)?;
    let mut output = Output::new(args.remote.json);
    if args.recursive {
        args.remote.answer = Some(RECURSIVE_TIMEOUT);
        let (count, rest) = delete_tree(&args).await?;
        output.either(
            || json!({"path": path, "changed": count, "dry_run": false}),
            || match count {
                0 => format!("{}: nothing to delete", printable_path(&path)),
                count => format!("{}: {count} deleted", printable_path(&path)),
            },
        )?;
        output.flush()?;
        if count == 0 && rest.is_ok() && !output.json {
            note_nothing_deleted(&args.path);
        }
        return rest;
    }
    let (action, below) = address_entry(&args.path, "delete_value", "delete_internal")?;
    let mut fields = Fields::at(&below);
    fields.u64("nchain", 1);
    args.condition.add_to(&mut fields);
    args.copies.add_to(&args.remote, &mut fields);
    let reach = args.copies.reach(&args.remote).await?;
    let reply = reach.request(action, fields, &args.path, RequestKind::Write).await?;
    drop(reach);
    let stays = count_below(&args).await;
    let json = || {
        let mut json = change_json(&path, &reply);
        if let (Json::Object(fields), true) = (&mut json, stays > 0) {
            fields.insert("below".into(), stays.into());
        }
        json
    };
    let text = || {
        let mut text = match reply.bool("changed") {
            Some(false) => format!("{}: nothing to delete", named(&path)),
            Some(true) | None => change_text(&path, "deleted", &reply),
        };
        if stays > 0 {
            text.push_str(&stays_text(&args.path, stays));
        }
        printable(&text).into_owned()
    };
    output.either(json, text)?;
    output.flush()?;
    if reply.bool("changed") == Some(false) && stays == 0 && !output.json {
        note_nothing_deleted(&args.path);
    }
    Ok(())
}

/// Has a node delete all that is at and below the path, until it is interrupted. How many are deleted, and the error if that
/// is not all.
async fn delete_tree(args: &DeleteArgs) -> Result<(u64, Result<(), CliError>), CliError> {
    let interrupt = Interrupt::heed()?;
    let reached = interrupt.or_before(args.remote.connect_in_time()).await;
    let remote = reached.map_err(|error| error.left("nothing was deleted"))?;
    // The moment before: what was deleted in this one is not to be left out.
    let before = show_time(rt::wall_clock_ms().saturating_sub(1));
    let fields = Fields::at(&args.path);
    let deleting = remote.request_until("delete_tree", &fields, interrupt.requested());
    let in_doubt = format!(
        "what is at and below {} may be deleted, all of it or a part",
        shown_path(&args.path)
    );
    let undo = undo_text(&args.path, &before);
    let deleted = interrupt.soon(interrupt.in_doubt(in_doubt, deleting)).await;
    let error = match deleted {
        Ok(Ok(reply)) => return Ok((reply.u64("changed").unwrap_or(0), Ok(()))),
        Ok(Err(ServerError { changed: Some(count), .. })) => {
            let were = count_of(count, "entry was", "entries were");
            let undo = if count > 0 { &undo } else { "" };
            let text = format!("{were} deleted, and the others are left{undo}");
            return Ok((count, Err(CliError::INTERRUPTED.left(&text))));
        }
        Ok(Err(error)) => CliError::from(error),
        Err(CliError::Interrupted(text)) => CliError::Interrupted(text + &undo),
        Err(error) => error,
    };
    // Older nodes do not tell how many they had deleted when they were stopped.
    Err(if error.may_have_been_done() {
        let rest = rest_text(&args.path, &before);
        interrupt.outweighs(error).left(&rest).in_doubt(|| rest)
    } else {
        error
    })
}

/// How to go on where the node's answer has not come.
fn rest_text(path: &Path, before: &str) -> String {
    let delete = typed::command("delete", &[&path.to_string()], recursive_at(path));
    format!(
        "some of it may be deleted; {delete} deletes the rest, with what was set there since, at this node or at another \
         one (--connect){}",
        undo_text(path, before)
    )
}

/// The options of the command that deletes all below a path.
fn recursive_at(path: &Path) -> &'static [&'static str] {
    match path.is_system() {
        true => &["--recursive", "--system"],
        false => &["--recursive"],
    }
}

/// What brings back what was deleted below a path since this moment; nothing if that is not possible.
fn undo_text(path: &Path, before: &str) -> String {
    if path.is_system() {
        return String::new();
    }
    let undo = undo::command(path, before, &[]);
    format!("; {undo} brings it back, at a node that has a data directory")
}

/// Prints what `--recursive` would delete.
async fn show(args: &DeleteArgs, mut output: Output) -> Result<(), CliError> {
    let mut fields = Fields::at(&args.path);
    fields.u64("nchain", 0);
    let remote = args.remote.connect().await?;
    let mut stream = remote.stream("get_tree", &fields).await?;
    let mut count = 0;
    while let Some(event) = remote.next(&mut stream).await? {
        let StreamEvent::Item { path, .. } = event else { continue };
        let path = whole_path(&args.path, path.as_ref());
        output.either(|| json!({"path": path}), || printable_path(&path).into_owned())?;
        count += 1;
    }
    if output.json {
        output.json_line(json!({"changed": count, "dry_run": true}))?;
        return output.flush();
    }
    output.flush()?;
    say::line(&format!("{} would be deleted", count_of(count, "entry", "entries")));
    if count == 0 {
        note_nothing_deleted(&args.path);
    }
    Ok(())
}

/// What stays below a path, and how to delete that too, where there is a way.
fn stays_text(path: &Path, stays: u64) -> String {
    let (verb, them) = if stays == 1 { ("stays", "that") } else { ("stay", "them") };
    let more = if stays < BELOW_MAX { "" } else { " or more" };
    let count = count_of(stays, "entry", "entries");
    let count = count.replacen(' ', &format!("{more} "), 1);
    if path.is_root() {
        return format!("; {count} below it {verb}");
    }
    let delete = typed::command("delete", &[&path.to_string()], recursive_at(path));
    format!("; {count} below it {verb}: {delete} deletes {them} too")
}

/// How many entries there are below the path, up to [`BELOW_MAX`]. Nothing depends on it, so a node
/// that does not tell is not asked again.
async fn count_below(args: &DeleteArgs) -> u64 {
    let counting = async {
        let (action, path) = address_entry(&args.path, "get_tree", "get_tree_internal")?;
        let mut fields = Fields::at(&path);
        fields.u64("min_depth", 1).u64("nchain", 0);
        let remote = args.remote.connect().await?;
        let mut stream = remote.stream(action, &fields).await?;
        let mut count = 0;
        while count < BELOW_MAX
            && let Some(event) = remote.next(&mut stream).await?
        {
            count += u64::from(matches!(event, StreamEvent::Item { .. }));
        }
        Ok::<u64, CliError>(count)
    };
    counting.await.unwrap_or(0)
}
