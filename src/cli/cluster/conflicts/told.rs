//! A conflict as a node tells it, and how it is printed.

use std::collections::{HashSet, VecDeque};

use serde_json::{Map, Value as Json};

use super::ConflictsArgs;
use crate::cli::data::entry::{add_chain_and_tock, chain_text};
use crate::cli::error::CliError;
use crate::cli::remote::whole_path;
use crate::cli::say;
use crate::cli::terminal::output::{Output, count_of, json_of, printable, printable_path, text_of};
use crate::cli::terminal::times::show_time;
use crate::client::Message;
use crate::model::path::Path;

/// So many conflicts are remembered, so that what several nodes tell is printed once.
const REMEMBERED_MAX: usize = 1 << 14;

/// A conflict as a node tells it.
pub(super) struct Told {
    node: String,
    /// Which of the node's places it is in.
    pub(super) place: usize,
    path: String,
    message: Message,
    winner: Message,
    loser: Message,
}

impl Told {
    /// `None` where a node tells something else.
    pub(super) fn new(
        (node, place): (&str, usize),
        asked: &Path,
        below: Option<&Path>,
        message: &Message,
    ) -> Option<Told> {
        let conflict = Message::new(message.get("conflict")?).ok()?;
        let version = |name| Message::new(conflict.get(name)?).ok();
        let (winner, loser) = (version("winner")?, version("loser")?);
        let path = whole_path(asked, below);
        Some(Told { node: node.to_owned(), place, path, winner, loser, message: conflict })
    }

    pub(super) fn number(&self) -> u64 {
        self.message.u64("number").unwrap_or(0)
    }

    /// What tells it from other conflicts, whichever node tells it.
    fn key(&self) -> (String, String, String) {
        (self.path.clone(), chain_text(&self.winner), chain_text(&self.loser))
    }

    fn json(&self) -> Json {
        let mut out = Map::new();
        out.insert("node".into(), self.node.as_str().into());
        out.insert("number".into(), self.number().into());
        out.insert("path".into(), self.path.as_str().into());
        out.insert("changed".into(), self.message.bool("changed").into());
        out.insert("winner".into(), version_json(&self.winner));
        out.insert("loser".into(), version_json(&self.loser));
        Json::Object(out)
    }

    fn lines(&self, shows_node: bool) -> [String; 3] {
        let node = if shows_node { format!("{} ", self.node) } else { String::new() };
        let head = format!("{node}{}  {}", self.number(), printable_path(&self.path));
        let values = [&self.winner, &self.loser].map(|version| match version.get("value") {
            Some(value) => text_of(value),
            None => String::from("(deleted)"),
        });
        let chains =
            [&self.winner, &self.loser].map(|version| printable(&chain_text(version)).into_owned());
        let width = |texts: &[String; 2]| {
            texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).min(WIDTH_MAX)
        };
        let (value_width, chain_width) = (width(&values), width(&chains));
        let line = |word, value: &str, chain: &str, version: &Message| {
            // A deletion that was purged has none.
            let tock = version.u64("tock").filter(|tock| *tock > 0);
            let tock = tock.map(|tock| format!("tock {tock}")).unwrap_or_default();
            let time = version.u64("time").map(show_time).unwrap_or_default();
            format!("   {word}  {value:value_width$}  {chain:chain_width$}  {tock}  {time}")
        };
        let [(kept, kept_chain), (lost, lost_chain)] =
            [(&values[0], &chains[0]), (&values[1], &chains[1])];
        [
            head,
            line("kept", kept, kept_chain, &self.winner),
            line("lost", lost, lost_chain, &self.loser),
        ]
    }
}

/// Values longer than this do not push what is behind shorter ones to the right.
const WIDTH_MAX: usize = 60;

fn version_json(version: &Message) -> Json {
    let mut out = Map::new();
    match version.get("value") {
        Some(value) => out.insert("value".into(), json_of(value)),
        None => out.insert("deleted".into(), true.into()),
    };
    add_chain_and_tock(version, &mut out);
    Json::Object(out)
}

/// Says how many a node had dropped before they were read.
pub(super) fn tell_dropped(node: &str, dropped: u64) {
    if dropped > 0 {
        let are = count_of(dropped, "before this is", "before this are");
        say::line(&format!("({are} not listed at {node} any more; see its log)"));
    }
}

/// Prints each conflict once.
pub(super) struct Printer {
    output: Output,
    shows_node: bool,
    limit: Option<u64>,
    left: Option<u64>,
    pub(super) printed: u64,
    known: HashSet<(String, String, String)>,
    /// The same, oldest first.
    order: VecDeque<(String, String, String)>,
}

impl Printer {
    pub(super) fn new(args: &ConflictsArgs) -> Printer {
        Printer {
            output: Output::of_read(args.remote.json),
            shows_node: args.all,
            limit: args.limit,
            left: args.count,
            printed: 0,
            known: HashSet::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// Prints the lists of all nodes, as one.
    pub(super) fn print_recent(&mut self, mut recent: Vec<Told>) -> Result<(), CliError> {
        let mut known = HashSet::new();
        recent.retain(|told| known.insert(told.key()));
        if self.shows_node {
            // The nodes' numbers say nothing of each other; the winners' tocks do.
            recent.sort_by_key(|told| told.winner.u64("tock"));
        }
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        let left_out = limit.map_or(0, |limit| recent.len().saturating_sub(limit));
        recent.drain(..left_out);
        recent.iter().try_for_each(|told| self.print(told))
    }

    pub(super) fn print(&mut self, told: &Told) -> Result<(), CliError> {
        if self.is_done() || !self.known.insert(told.key()) {
            return Ok(());
        }
        self.order.push_back(told.key());
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.left = self.left.map(|left| left - 1);
        self.printed += 1;
        if self.output.json {
            self.output.json_line(told.json())?;
        } else {
            for line in told.lines(self.shows_node) {
                self.output.line(line.trim_end())?;
            }
        }
        self.output.flush()
    }
}
