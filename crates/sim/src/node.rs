//! One simulated node: its engine while it runs, its disk, and the ends of its links.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::disk::{Disk, Saved};
use super::event_log::EventLog;
use super::oracle::shadow::Shadow;
use crate::engine::Engine;
use crate::model::ids::{NodeName, Tick};

/// One simulated node.
pub(super) struct Node {
    pub(super) name: NodeName,
    /// For people: the name, with a `'` for a copy.
    pub(super) label: String,
    /// None while it is down.
    pub(super) engine: Option<Engine>,
    /// What the judge knows of it.
    pub(super) shadow: Shadow,
    pub(super) disk: Disk,
    /// The log of its process.
    pub(super) log: EventLog,
    /// Its whole state when it went down.
    pub(super) last: Option<Saved>,
    /// How often its process was started: events planned for an earlier process are void.
    pub(super) process: u32,
    /// It handles nothing for a while.
    pub(super) frozen: bool,
    /// It never comes back.
    pub(super) gone: bool,
    /// With whom it wanted links when it last dialled; none: with everybody.
    pub(super) wanted: Option<Arc<BTreeSet<NodeName>>>,
    /// The ends of the links that stand, as it sees them.
    pub(super) ends: Vec<u32>,
    /// Catch-ups that it is answering.
    pub(super) serving: usize,
    /// The other node of the same name, where a disk was copied.
    pub(super) twin: Option<usize>,
    /// It runs from a copied disk that had this tick, and has not found out yet: it must not make
    /// changes, because nothing could tell them from the original's.
    pub(super) copied_at: Option<Tick>,
}

impl Node {
    pub(super) fn new(name: NodeName, label: String) -> Self {
        Self {
            name,
            label,
            engine: None,
            shadow: Shadow::default(),
            disk: Disk::default(),
            log: EventLog::default(),
            last: None,
            process: 0,
            frozen: false,
            gone: false,
            wanted: None,
            ends: Vec::new(),
            serving: 0,
            twin: None,
            copied_at: None,
        }
    }

    /// Whether it does anything.
    pub(super) fn is_awake(&self) -> bool {
        self.engine.is_some() && !self.frozen
    }

    /// Its state now, and what the judge knows of it.
    pub(super) fn save(&self) -> Option<Saved> {
        let engine = self.engine.as_ref()?;
        Some(Saved { image: engine.image(), shadow: self.shadow.clone() })
    }

    pub(super) fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.engine.as_ref().is_some_and(Engine::is_ready)
    }
}
