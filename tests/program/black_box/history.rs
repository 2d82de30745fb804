//! What clients saw, and what was done to the nodes meanwhile: all that the checker knows. Nothing
//! here comes from inside of a node; it is replies, watches, the final trees and the log's lines
//! about conflicts.

use std::collections::BTreeMap;
use std::time::Instant;

use rmpv::Value;

use super::processes::field;

/// A change as clients see it: the life of a node, as the node spells it, and a tick.
pub type EventId = (String, u64);

/// One version of an entry as a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// None where it is a deletion.
    pub value: Option<String>,
    /// Newest first; never empty.
    pub chain: Vec<EventId>,
    /// Whether older events were cut off.
    pub is_cut: bool,
    pub tock: u64,
}

impl Version {
    /// The version that a message tells of; none where it has no chain.
    pub fn of(message: &Value) -> Option<Self> {
        let mut chain = Vec::new();
        let mut link = field(message, "chain").filter(|c| !c.is_nil())?;
        let is_cut = loop {
            let node = field(&link, "node")?.as_str()?.to_owned();
            chain.push((node, field(&link, "tick")?.as_u64()?));
            match field(&link, "prev") {
                None => break true,
                Some(Value::Nil) => break false,
                Some(next) => link = next,
            }
        };
        let value = field(message, "value").and_then(|v| v.as_str().map(str::to_owned));
        Some(Self { value, chain, is_cut, tock: field(message, "tock")?.as_u64()? })
    }

    pub fn event(&self) -> &EventId {
        &self.chain[0]
    }

    /// Whether the chain names that change.
    pub fn names(&self, event: &EventId) -> bool {
        self.chain.contains(event)
    }
}

/// What a write asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Set,
    Delete,
    /// Only if the newest event is this one.
    SetIf(EventId),
    /// Only if there is no value.
    SetNew,
}

/// What a client knows of the fate of its write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Acknowledged, with the version that was made.
    Made(Version),
    /// Acknowledged, and nothing was to be done (a deletion of nothing).
    Nothing,
    /// An error that promises that nothing was changed.
    Refused(String),
    /// No answer, or one that leaves it open.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Write {
    pub node: usize,
    pub life: u64,
    pub path: String,
    pub wish: Wish,
    /// Unique; none for a deletion.
    pub value: Option<String>,
    pub start: Instant,
    pub end: Instant,
    pub fate: Fate,
    /// The value that was replaced, as the reply says; only where no chain was asked for.
    pub over: Option<String>,
}

impl Write {
    pub fn made(&self) -> Option<&Version> {
        match &self.fate {
            Fate::Made(version) => Some(version),
            Fate::Nothing | Fate::Refused(_) | Fate::Unknown => None,
        }
    }

    /// Whether the write may have been made.
    pub fn is_possible(&self) -> bool {
        matches!(self.fate, Fate::Made(_) | Fate::Unknown)
    }
}

#[derive(Clone, Debug)]
pub struct Read {
    pub node: usize,
    pub life: u64,
    pub path: String,
    pub start: Instant,
    pub end: Instant,
    /// None where there was nothing.
    pub version: Option<Version>,
}

/// One watch, from its start to the end of the connection.
#[derive(Clone, Debug)]
pub struct Watch {
    pub node: usize,
    pub life: u64,
    /// When the state of the start had come; none if it never had.
    pub up_to_date: Option<Instant>,
    pub end: Instant,
    /// Whether it was open until the run was over and all nodes agreed.
    pub is_open: bool,
    /// Whether the node said that it starts over: versions may be skipped.
    pub restarted: bool,
    pub items: Vec<(Instant, String, Version)>,
}

/// A conflict that a node reported in its log.
#[derive(Clone, Debug)]
pub struct Conflict {
    pub path: String,
    pub lost_chain: Vec<EventId>,
    /// As the log shows it: JSON, or `(deleted)`.
    pub lost_value: String,
}

/// A stretch of time in which nodes cannot be expected to reach each other at once.
#[derive(Clone, Copy, Debug)]
pub struct Disturbance {
    pub from: Instant,
    pub to: Instant,
}

/// A node lost something that it had acknowledged, and may have: changes of its lives up to `life`
/// that were acknowledged after `safe_before`, if the others had not got them.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub node: usize,
    pub life: u64,
    /// What was acknowledged before this is on its disk.
    pub kept_before: Option<Instant>,
    /// What had spread before this, the others have.
    pub at: Instant,
    /// The node was gone at the latest then: a signal takes a while to be sent, and to be heard.
    pub gone: Instant,
}

/// A live tree as a node told it: path to version.
pub type Tree = BTreeMap<String, Version>;

/// All of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
    pub watches: Vec<Watch>,
    pub conflicts: Vec<Conflict>,
    pub disturbances: Vec<Disturbance>,
    pub losses: Vec<Loss>,
    /// Per node that runs at the end.
    pub trees: BTreeMap<usize, Tree>,
    /// What the run itself found wrong (nodes that never agreed, exit codes, …).
    pub complaints: Vec<String>,
}

impl History {
    pub fn add(&mut self, other: History) {
        self.writes.extend(other.writes);
        self.reads.extend(other.reads);
        self.watches.extend(other.watches);
        self.complaints.extend(other.complaints);
    }
}

/// Reads `n1~5f.17` or `n1~5f:17`, as logs spell an event.
pub fn parse_event(text: &str) -> Option<EventId> {
    let (life, tick) = text.rsplit_once([':', '.'])?;
    Some((life.to_owned(), tick.parse().ok()?))
}

/// Reads a line of a node's log that tells of a conflict.
pub fn parse_conflict(line: &str) -> Option<Conflict> {
    if !line.contains("conflict:") {
        return None;
    }
    let quoted = |key: &str| -> Option<String> {
        let at = line.find(&format!(" {key}="))? + key.len() + 2;
        let rest = &line[at..];
        if let Some(text) = rest.strip_prefix('"') {
            let mut out = String::new();
            let mut letters = text.chars();
            loop {
                match letters.next()? {
                    '"' => return Some(out),
                    '\\' => out.push(letters.next()?),
                    c => out.push(c),
                }
            }
        }
        Some(rest.split_whitespace().next()?.to_owned())
    };
    // Of a purged deletion that was undone, only its event is told.
    let lost = quoted("lost_chain").or_else(|| quoted("deleted"))?;
    Some(Conflict {
        path: quoted("path")?,
        lost_chain: lost.split_whitespace().filter_map(parse_event).collect(),
        lost_value: quoted("lost_value")?,
    })
}
