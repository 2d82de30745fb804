//! `tree`: all entries below a path.

use clap::Args;
use serde_json::Value as Json;

use crate::cli::data::entry::{ask_for_chain, entry_json, value_text};
use crate::cli::data::nothing::note_nothing;
use crate::cli::error::CliError;
use crate::cli::remote::{RemoteArgs, address_entry, parse_path, whole_path};
use crate::cli::say;
use crate::cli::terminal::output::{Output, count_of, printable_path};
use crate::client::{Fields, StreamEvent};
use crate::model::path::Path;

/// Lines that are looked at to find out how wide the column of paths must be; those that follow
/// are printed as they come.
const ALIGNED_LINES: usize = 256;
/// Widest column of paths.
const PATH_WIDTH_MAX: usize = 60;

/// Print all entries below a path
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node tree                     # everything
  distkv-node tree site --depth 1      # site, and what is directly below it
  distkv-node tree --depth 1 --empty   # the first elements of all paths
  distkv-node tree site --min-depth 1  # without site itself
  distkv-node tree site --json | jq -r .path  # the paths only
  distkv-node tree site --json | wc -l        # how many entries there are

Entries come in a fixed order, as they were at one moment. If there are none, a line on standard error says so (not with --json). \
PATH is no pattern: there are no wildcards. With --json, one object per line: \
path, value, tock, time (when it was changed, if that is known), and with --chain the events that last \
changed it.

Exit code: 0 done (also where there is nothing), 1 failed, 2 usage, 3 refused, 6 no node was \
reached, 8 it cannot be written.")]
pub(in crate::cli) struct TreeArgs {
    /// Where to begin; ':' is the root
    #[arg(value_parser = parse_path, default_value = ":")]
    path: Path,

    /// How many levels below PATH to print
    #[arg(long, value_name = "N", visible_alias = "max-depth")]
    depth: Option<u64>,

    /// How many levels, PATH's own first, to leave out
    #[arg(long, value_name = "N")]
    min_depth: Option<u64>,

    /// Also print nodes of the tree that have no value
    #[arg(long)]
    empty: bool,

    /// Show the events that last changed each entry, newest first, and when that was
    #[arg(long)]
    chain: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: TreeArgs) -> Result<(), CliError> {
    let (action, path) = address_entry(&args.path, "get_tree", "get_tree_internal")?;
    let mut fields = Fields::at(&path);
    for (name, depth) in [("max_depth", args.depth), ("min_depth", args.min_depth)] {
        if let Some(depth) = depth {
            fields.u64(name, depth);
        }
    }
    if args.empty {
        fields.bool("empty", true);
    }
    if args.chain {
        ask_for_chain(&mut fields);
    } else if args.remote.json {
        fields.bool("with_time", true);
    }
    let remote = args.remote.connect().await?;
    let mut stream = remote.stream(action, &fields).await?;
    let mut lines = AlignedLines::new(Output::of_read(args.remote.json));
    let mut is_empty = true;
    while let Some(event) = remote.next(&mut stream).await? {
        let StreamEvent::Item { path, message } = event else { continue };
        is_empty = false;
        let path = whole_path(&args.path, path.as_ref());
        if lines.output.json {
            lines.output.json_line(Json::Object(entry_json(&path, &message)))?;
        } else {
            lines.add(printable_path(&path).into_owned(), value_text(&message))?;
        }
    }
    lines.finish()?;
    if args.remote.json {
        return Ok(());
    }
    let is_deeper = match args.depth.filter(|_| !args.empty) {
        Some(depth) => tell_deeper(&args, depth).await,
        None => false,
    };
    if is_empty && !is_deeper {
        note_nothing(&place(args.min_depth.unwrap_or(0)), &args.path);
    }
    Ok(())
}

/// Where entries are that are so many levels, or more, below a path.
fn place(min_depth: u64) -> String {
    match min_depth {
        0 => "at or below".to_owned(),
        depth => format!("{} or more below", count_of(depth, "level", "levels")),
    }
}

/// Says whether there are entries below those that --depth prints. Programs asked for just those.
async fn tell_deeper(args: &TreeArgs, depth: u64) -> bool {
    let looking = async {
        let (action, path) = address_entry(&args.path, "get_tree", "get_tree_internal")?;
        let mut fields = Fields::at(&path);
        fields.u64("min_depth", depth.saturating_add(1)).u64("nchain", 0);
        let remote = args.remote.connect().await?;
        let mut stream = remote.stream(action, &fields).await?;
        while let Some(event) = remote.next(&mut stream).await? {
            if matches!(event, StreamEvent::Item { .. }) {
                return Ok(true);
            }
        }
        Ok::<bool, CliError>(false)
    };
    // What was asked for is printed: a node that does not tell this is not asked again.
    let is_deeper = looking.await.unwrap_or(false);
    if is_deeper {
        say::note(&format!(
            "there are entries deeper than --depth {depth}; --empty prints the paths that lead there"
        ));
    }
    is_deeper
}

/// Lines of two columns, of which the first is as wide as the first lines need.
struct AlignedLines {
    output: Output,
    /// Invariant: at most [`ALIGNED_LINES`], and none once the width is known.
    held: Vec<(String, String)>,
    width: Option<usize>,
}

impl AlignedLines {
    fn new(output: Output) -> AlignedLines {
        AlignedLines { output, held: Vec::new(), width: None }
    }

    fn add(&mut self, left: String, right: String) -> Result<(), CliError> {
        match self.width {
            Some(width) => self.print(width, &left, &right),
            None => {
                self.held.push((left, right));
                if self.held.len() < ALIGNED_LINES { Ok(()) } else { self.release() }
            }
        }
    }

    fn release(&mut self) -> Result<(), CliError> {
        let held = std::mem::take(&mut self.held);
        let widest = held.iter().map(|(left, _)| left.chars().count()).max();
        let width = widest.unwrap_or(0).min(PATH_WIDTH_MAX);
        self.width = Some(width);
        held.iter().try_for_each(|(left, right)| self.print(width, left, right))
    }

    fn print(&mut self, width: usize, left: &str, right: &str) -> Result<(), CliError> {
        self.output.line(&format!("{left:<width$}  {right}"))
    }

    fn finish(mut self) -> Result<(), CliError> {
        self.release()?;
        self.output.flush()
    }
}
