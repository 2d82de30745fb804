//! `snapshot inspect`: what is in a file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value as Json, json};

use crate::cli::error::CliError;
use crate::cli::files::read::{StateFile, read_state};
use crate::cli::terminal::output::{Output, Table, printable, shown_path};
use crate::cli::terminal::times::show_time;
use crate::cli::terminal::units::show_bytes;
use crate::engine::Image;
use crate::model::ids::NodeId;
use crate::model::path::Path;
use crate::model::tick_set::TickSet;

/// Subtrees at most so many levels deep are compared, unless told otherwise.
const DEPTH: usize = 2;
/// So many subtrees are shown, unless told otherwise.
const TOP: usize = 10;

/// Print what is in a file: whose it is, counts, ticks, the biggest subtrees
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node snapshot inspect monday.dkv
  distkv-node snapshot inspect monday.dkv --depth 3 --top 20
  distkv-node snapshot inspect monday.dkv --json | jq .entries

For each life of a node, TICK is its last change that is accounted for, and MISSING how many \
before it are not. The mark says how far deleted entries were purged.

Exit code: 0 done, 1 the file is damaged or cannot be read, 2 usage, 8 what is found cannot be written.")]
pub(super) struct InspectArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How many of the biggest subtrees to print
    #[arg(long, value_name = "N", default_value_t = TOP)]
    top: usize,

    /// How many elements the paths of those subtrees may have
    #[arg(long, value_name = "N", default_value_t = DEPTH)]
    depth: usize,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// A subtree's size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    entries: u64,
    bytes: u64,
}

pub(super) fn run(args: &InspectArgs, json: bool) -> Result<(), CliError> {
    let state = read_state(&args.file, json)?;
    let subtrees = biggest(&state.image, args.depth, args.top);
    let mut output = Output::of_read(json);
    if json {
        output.json_line(Json::Object(state_json(&state, &subtrees)))?;
    } else {
        print(&state, &subtrees, &mut output)?;
    }
    output.flush()
}

/// What each life has done, as far as the file accounts for it.
struct Life<'a> {
    id: &'a NodeId,
    tick: u64,
    missing: u64,
}

fn lives(image: &Image) -> Vec<Life<'_>> {
    let replica = &image.replica;
    let life = |(node, id)| {
        let seen = replica.seen.get(node);
        let tick = seen.map_or(0, TickSet::max);
        Life { id, tick, missing: seen.map_or(0, |seen| seen.missing_below(tick).count()) }
    };
    let mut lives: Vec<Life<'_>> = replica.table.iter().map(life).collect();
    lives.retain(|life| life.tick > 0 || life.id == image.id());
    lives.sort_by(|a, b| a.id.cmp(b.id));
    lives
}

/// The subtrees with the most bytes, the biggest first. One that is all of the one around it is
/// left to speak for both.
fn biggest(image: &Image, depth: usize, top: usize) -> Vec<(Path, Size)> {
    let mut sizes: BTreeMap<Path, Size> = BTreeMap::new();
    for (path, entry) in image.replica.tree.all() {
        let bytes = (path.as_bytes().len() + entry.memory_bytes()) as u64;
        let elements = path.len();
        for length in 1..=elements.min(depth) {
            let size = sizes.entry(path.prefix(length)).or_default();
            size.entries += 1;
            size.bytes += bytes;
        }
    }
    let all: Vec<(Path, Size)> = sizes.into_iter().collect();
    let mut kept: Vec<(Path, Size)> = Vec::new();
    for (at, (path, size)) in all.iter().enumerate() {
        // What is below a path comes directly behind it.
        let is_repeated =
            all.get(at + 1).is_some_and(|(next, same)| same == size && next.starts_with(path));
        if !is_repeated {
            kept.push((path.clone(), *size));
        }
    }
    kept.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
    kept.truncate(top);
    kept
}

fn print(
    state: &StateFile,
    subtrees: &[(Path, Size)],
    output: &mut Output,
) -> Result<(), CliError> {
    let replica = &state.image.replica;
    let tree = &replica.tree;
    let mut table = Table::default();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("file", format!("{}, {}", state.format, show_bytes(state.bytes)));
    row("node", replica.id.name.to_string());
    row("life", replica.id.to_string());
    if let Some(header) = &state.header {
        row("network", header.network.clone());
        row("taken", show_time(header.time_ms));
        if header.store != 0 {
            row("store", format!("{:016x}, number {}", header.store, header.number));
        }
    }
    let (live, deleted) = (tree.live_len(), tree.tombstone_len());
    row("entries", format!("{} ({live} with a value, {deleted} deleted)", tree.len()));
    row("in memory", show_bytes(tree.memory_bytes() as u64));
    row("tick, tock", format!("{}, {}", replica.tick, replica.tock));
    let marks: Vec<String> =
        replica.mark.iter().map(|(lineage, tock)| format!("{tock} ({lineage})")).collect();
    row("mark", marks.join(", "));
    if let Some(group) = &state.image.group {
        let names: Vec<&str> = group.members().iter().map(|member| member.name.as_str()).collect();
        row("delete group", format!("{} (version {})", names.join(" "), group.version));
    }
    table.print(output)?;
    for note in &state.notes {
        output.line(&format!("note: {}", printable(note)))?;
    }
    let mut nodes = Table::with_head(&["LIFE", "TICK", "MISSING"]);
    for life in lives(&state.image) {
        let missing = if life.missing > 0 { life.missing.to_string() } else { String::new() };
        nodes.row([life.id.to_string(), life.tick.to_string(), missing]);
    }
    output.line("")?;
    nodes.print(output)?;
    if !subtrees.is_empty() {
        let mut table = Table::with_head(&["BIGGEST SUBTREES", "ENTRIES", "SIZE"]);
        for (path, size) in subtrees {
            table.row([shown_path(path), size.entries.to_string(), show_bytes(size.bytes)]);
        }
        output.line("")?;
        table.print(output)?;
    }
    Ok(())
}

fn state_json(state: &StateFile, subtrees: &[(Path, Size)]) -> Map<String, Json> {
    let replica = &state.image.replica;
    let tree = &replica.tree;
    let mut out = Map::new();
    let mut field = |name: &str, value: Json| out.insert(name.to_owned(), value);
    field("format", state.format.word().into());
    field("bytes", state.bytes.into());
    field("name", replica.id.name.as_str().into());
    field("life", replica.id.to_string().into());
    if let Some(header) = &state.header {
        field("network", header.network.as_str().into());
        field("time", show_time(header.time_ms).into());
        field("time_ms", header.time_ms.into());
        field("store", format!("{:016x}", header.store).into());
        field("number", header.number.into());
    }
    field("entries", tree.len().into());
    field("live_entries", tree.live_len().into());
    field("tombstones", tree.tombstone_len().into());
    field("memory_bytes", tree.memory_bytes().into());
    field("tick", replica.tick.get().into());
    field("tock", replica.tock.get().into());
    let mark = |(lineage, tock): (&crate::model::seen::Lineage, crate::model::ids::Tock)| json!({ "lineage": lineage.to_string(), "tock": tock.get() });
    field("mark", replica.mark.iter().map(mark).collect());
    let group = state.image.group.as_ref().map(|group| {
        let names: Vec<&str> = group.members().iter().map(|member| member.name.as_str()).collect();
        json!({ "version": group.version, "members": names })
    });
    field("delete_group", group.unwrap_or_default());
    let nodes = lives(&state.image);
    let node = |life: &Life<'_>| {
        json!({
            "name": life.id.name.as_str(),
            "life": life.id.to_string(),
            "tick": life.tick,
            "missing": life.missing,
        })
    };
    field("nodes", nodes.iter().map(node).collect());
    let subtree = |(path, size): &(Path, Size)| json!({ "path": path.to_string(), "entries": size.entries, "bytes": size.bytes });
    field("subtrees", subtrees.iter().map(subtree).collect());
    field("notes", state.notes.iter().map(|note| Json::from(note.as_str())).collect());
    out
}
