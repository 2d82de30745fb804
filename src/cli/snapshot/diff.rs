//! `snapshot diff`: what differs between two files.

use std::cmp::Ordering;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value as Json, json};

use crate::cli::error::CliError;
use crate::cli::files::read::read_state;
use crate::cli::remote::parse_path;
use crate::cli::terminal::output::{
    Output, json_of, printable_path, short_change_of, short_text_of,
};
use crate::engine::Image;
use crate::model::entry::Entry;
use crate::model::path::Path;

/// Print what differs between the states of two files
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node snapshot diff monday.dkv friday.dkv
  distkv-node snapshot diff monday.dkv friday.dkv --below site --json
  # bring back what was removed:
  distkv-node snapshot diff monday.dkv friday.dkv --json |
    jq -c 'select(.change == \"removed\") | {path, value: .old}' |
    distkv-node import -

Lines begin with + for what only B has, - for what only A has, and ~ for another value. Only \
values count, unless --versions is given: then also who made them and when. Long values are cut; \
with --json they are whole. With --json, one \
object per line: path, change (added, removed, changed, version), old and new value.

Exit code: 0 there is no difference, 1 there is (or a file cannot be read), 2 usage, 8 it cannot be written.")]
pub(super) struct DiffArgs {
    /// The file to compare with
    #[arg(value_name = "A")]
    a: PathBuf,

    /// The file that is compared
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Only what is at and below this path
    #[arg(long, value_name = "PATH", value_parser = parse_path, default_value = ":")]
    below: Path,

    /// Also print entries with the same value that were changed nevertheless
    #[arg(long)]
    versions: bool,

    /// Print JSON, one object per difference
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &DiffArgs, json: bool) -> Result<(), CliError> {
    let (a, b) = (read_state(&args.a, json)?, read_state(&args.b, json)?);
    let mut output = Output::of_verdict(json);
    let mut count = 0_u64;
    compare(&a.image, &b.image, &args.below, args.versions, |difference| {
        count += 1;
        print(&difference, &mut output)
    })?;
    output.flush()?;
    if count == 0 { Ok(()) } else { Err(CliError::Told) }
}

/// Of one path.
struct Difference<'a> {
    path: &'a Path,
    old: Option<&'a [u8]>,
    new: Option<&'a [u8]>,
    /// Who made the versions and when; only where the values are the same.
    versions: Option<(String, String)>,
}

fn compare(
    a: &Image,
    b: &Image,
    below: &Path,
    with_versions: bool,
    mut each: impl FnMut(Difference<'_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut left = a.replica.tree.subtree(below).peekable();
    let mut right = b.replica.tree.subtree(below).peekable();
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((l, _)), Some((r, _))) => l.cmp(r),
        };
        let old = if order.is_le() { left.next() } else { None };
        let new = if order.is_ge() { right.next() } else { None };
        let Some(path) = old.or(new).map(|(path, _)| path) else { return Ok(()) };
        let old_value = old.and_then(|(_, entry)| entry.value());
        let new_value = new.and_then(|(_, entry)| entry.value());
        if old_value != new_value {
            each(Difference { path, old: old_value, new: new_value, versions: None })?;
        } else if with_versions && old_value.is_some() {
            let show = |image: &Image, side: Option<(&Path, &Entry)>| {
                side.map(|(_, entry)| show_version(image, entry)).unwrap_or_default()
            };
            let (from, to) = (show(a, old), show(b, new));
            if from != to {
                let versions = Some((from, to));
                each(Difference { path, old: old_value, new: new_value, versions })?;
            }
        }
    }
}

/// Who made a version, and when: the same for the same version in whatever file.
fn show_version(image: &Image, entry: &Entry) -> String {
    let event = image.replica.table.spell_event(entry.newest());
    format!("{event} tock {}", entry.tock())
}

fn print(difference: &Difference<'_>, output: &mut Output) -> Result<(), CliError> {
    let Difference { path, old, new, versions } = difference;
    let path = path.to_string();
    if output.json {
        let change = match (old, new, versions) {
            (_, _, Some(_)) => "version",
            (None, _, None) => "added",
            (_, None, None) => "removed",
            (Some(_), Some(_), None) => "changed",
        };
        let mut line = Map::new();
        line.insert("path".into(), path.into());
        line.insert("change".into(), change.into());
        for (name, value) in [("old", old), ("new", new)] {
            if let Some(value) = value {
                line.insert(name.into(), json_of(value));
            }
        }
        if let Some((from, to)) = versions {
            line.insert("versions".into(), json!([from, to]));
        }
        return output.json_line(Json::Object(line));
    }
    let path = printable_path(&path);
    match (old, new, versions) {
        (_, _, Some((from, to))) => output.line(&format!("= {path}  {from} -> {to}")),
        (Some(old), Some(new), None) => {
            let (old, new) = short_change_of(old, new);
            output.line(&format!("~ {path}  {old} -> {new}"))
        }
        (Some(old), None, None) => output.line(&format!("- {path}  {}", short_text_of(old))),
        (None, Some(new), None) => output.line(&format!("+ {path}  {}", short_text_of(new))),
        (None, None, None) => Ok(()),
    }
}
