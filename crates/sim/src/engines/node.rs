//! One simulated node: its engine while it runs, its disk, and the ends of its links.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::disk::{Disk, Saved};
use super::event_log::EventLog;
use crate::engine::Engine;
use crate::model::ids::{NodeName, Tick};
use crate::oracle::shadow::Shadow;

/// One simulated node.
pub(crate) struct Node {
    pub(crate) name: NodeName,
    /// For people: the name, with a `'` for a copy.
    pub(crate) label: String,
    /// None while it is down.
    pub(crate) engine: Option<Engine>,
    /// What the judge knows of it.
    pub(crate) shadow: Shadow,
    pub(crate) disk: Disk,
    /// The log of its process.
    pub(crate) log: EventLog,
    /// Its whole state when it went down.
    pub(crate) last: Option<Saved>,
    /// How often its process was started: events planned for an earlier process are void.
    pub(crate) process: u32,
    /// It handles nothing for a while.
    pub(crate) frozen: bool,
    /// It never comes back.
    pub(crate) gone: bool,
    /// With whom it wanted links when it last dialled; none: with everybody.
    pub(crate) wanted: Option<Arc<BTreeSet<NodeName>>>,
    /// The ends of the links that stand, as it sees them.
    pub(crate) ends: Vec<u32>,
    /// Catch-ups that it is answering.
    pub(crate) serving: usize,
    /// The other node of the same name, where a disk was copied.
    pub(crate) twin: Option<usize>,
    /// It runs from a copied disk that had this tick, and has not found out yet: it must not make
    /// changes, because nothing could tell them from the original's.
    pub(crate) copied_at: Option<Tick>,
}

impl Node {
    pub(crate) fn new(name: NodeName, label: String) -> Self {
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
    pub(crate) fn is_awake(&self) -> bool {
        self.engine.is_some() && !self.frozen
    }

    /// Its state now, and what the judge knows of it.
    pub(crate) fn save(&self) -> Option<Saved> {
        let engine = self.engine.as_ref()?;
        Some(Saved { image: engine.image(), shadow: self.shadow.clone() })
    }

    pub(crate) fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.engine.as_ref().is_some_and(Engine::is_ready)
    }
}
