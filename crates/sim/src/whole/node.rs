//! One whole node: a place with a name, an address and perhaps a disk, and the process that runs there
//! while one does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use super::environment::system::{SimSystem, Work};
use crate::durable::{Logger, SyncPolicy};
use crate::hub::Hub;
use crate::hub::log_queue::LogQueue;
use crate::membership::Swim;
use crate::model::ids::{Millis, NodeId, NodeName};
use crate::storage::memory_disk::MemoryDisk;

/// Most copies of a directory that are kept.
pub(super) const BACKUPS_MAX: usize = 3;

/// A change that a client was told of, by the process that told it.
#[derive(Clone)]
pub(super) struct Told {
    /// Of the log's batch that has it, or of a later one.
    pub(super) number: u64,
    pub(super) at: Millis,
    pub(super) event: (NodeId, u64),
}

/// A running process.
pub(super) struct Process {
    /// Counts the processes of the whole run: events that were planned for another one are void.
    pub(super) number: u64,
    pub(super) started_at: Millis,
    pub(super) hub: Arc<Hub>,
    /// With a data directory: who writes the log, and its queue.
    pub(super) logger: Option<Logger>,
    pub(super) log: Option<Arc<LogQueue>>,
    pub(super) system: Arc<SimSystem>,
    /// A second log, which the judge reads.
    pub(super) observer: Arc<LogQueue>,
    pub(super) swim: Swim,
    pub(super) wake_at: Option<Millis>,
    /// Who is there, as SWIM says.
    pub(super) up: BTreeMap<SocketAddr, NodeName>,
    /// The links that stand as it sees them: by place, the wire.
    pub(super) links: BTreeMap<usize, usize>,
    pub(super) dialling: BTreeSet<usize>,
    pub(super) frozen: bool,
    /// A step of the log's thread is planned for this time.
    pub(super) log_planned: Option<Millis>,
    /// The disk does nothing before this time.
    pub(super) disk_stalled_until: Millis,
    /// Snapshots that are being made.
    pub(super) jobs: Vec<Work>,
    /// It is killed when its disk fails.
    pub(super) dies_with_disk: bool,
    /// What clients were told.
    pub(super) told: Vec<Told>,
    /// What it has committed, by event.
    pub(super) committed: BTreeSet<(NodeId, u64)>,
    /// The disk was slow, or the process stood still: the second of `every-second` may be over.
    pub(super) was_slow: bool,
}

impl Process {
    /// Whether everything up to this batch may be seen outside, or waiting would help nobody.
    pub(super) fn is_safe(&self, number: u64) -> bool {
        self.log
            .as_ref()
            .is_none_or(|log| !log.gates() || log.synced() >= number || log.failure().is_some())
    }

    /// The last batch of now, where outsiders must wait for it.
    pub(super) fn gate(&self) -> u64 {
        self.log.as_ref().filter(|log| log.gates()).map_or(0, |log| log.appended())
    }

    pub(super) fn failures(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.failures())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.hub.read(crate::engine::Engine::is_ready)
    }

    /// Whether it has accounted for an event.
    pub(super) fn knows(&self, (id, tick): &(NodeId, u64)) -> bool {
        self.hub.read(|engine| super::judging::view::knows(engine, id, *tick))
    }
}

/// A place for a node.
pub(super) struct Slot {
    pub(super) name: NodeName,
    /// For people.
    pub(super) label: String,
    pub(super) addr: SocketAddr,
    pub(super) sync: Option<SyncPolicy>,
    pub(super) disk: MemoryDisk,
    pub(super) process: Option<Process>,
    pub(super) backups: Vec<MemoryDisk>,
    /// It never comes back.
    pub(super) gone: bool,
    /// Events that the directory must have.
    pub(super) must: BTreeSet<(NodeId, u64)>,
    /// What it knew when it went down, of what clients were told.
    pub(super) knew: BTreeSet<(NodeId, u64)>,
    /// The disk does not do what it is asked to.
    pub(super) disk_fails: bool,
    /// Whether it may found a network.
    pub(super) founds: bool,
}

impl Slot {
    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Whether it does anything.
    pub(super) fn is_awake(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.frozen)
    }

    /// Its process, if that is still the one with this number.
    pub(super) fn running(&mut self, number: u64) -> Option<&mut Process> {
        self.process.as_mut().filter(|process| process.number == number)
    }
}
