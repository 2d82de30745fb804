//! Clients' changes: why one is refused, and how one that was made gets to the peers.

use std::sync::Arc;

use crate::engine::{Engine, Outbox};
use crate::model::count::show_bytes;
use crate::model::defects::Defect;
use crate::model::ids::Tock;
use crate::model::path::Path;
use crate::model::path::bytes::has_array;
use crate::protocol::peer::encode_change;
use crate::replica::Committed;
use crate::replica::write::{ChainCondition, Precondition, Write, WriteError, Written};

/// Bytes of room for a frame that are kept from one change to the next.
const FRAME_KEPT: usize = 4 << 10;

/// The entries take all the memory that they may take, or more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryExcess {
    /// Estimated bytes of all entries.
    pub(crate) used: usize,
    /// The limit, in bytes.
    pub(crate) max: usize,
}

impl MemoryExcess {
    /// The warning for operators.
    #[must_use]
    pub fn text(self) -> String {
        let [used, max] = [self.used, self.max].map(|bytes| show_bytes(bytes as u64));
        format!(
            "entries take {used}, and --max-memory is {max}: clients' changes that need more \
             memory are refused, other nodes' changes are taken all the same; delete something, \
             or raise --max-memory"
        )
    }
}

/// Why a client's write was not made. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EngineWriteError {
    /// The node has not caught up with its network yet.
    #[error("this node has not caught up with its network yet; try again, or another node")]
    NotReady,
    /// The node was started read-only.
    #[error("this node is read-only; write to another one")]
    ReadOnly,
    /// The node is leaving for good.
    #[error("this node is leaving its network for good; write to another one")]
    Leaving,
    /// The client may set a value only where there is one, or only where there is none.
    #[error(
        "what is there decides whether this client may set it, and it may not; nothing was done"
    )]
    NotPermitted,
    /// The node's memory limit is reached, and the change needs more memory.
    #[error(
        "this node's memory limit ({}) is reached, and this change needs more memory; \
         delete something, or raise --max-memory",
        show_bytes(*max as u64)
    )]
    MemoryFull {
        /// The limit, in bytes.
        max: usize,
    },
    /// More copies are wanted than there are peers that acknowledge to this node.
    #[error(
        "'copies' is {wanted}, but in a network of this size this node is linked with {max} peers, and \
         only they confirm changes to it; ask for fewer"
    )]
    TooManyCopies {
        /// How many copies.
        wanted: usize,
        /// How many links.
        max: usize,
    },
    /// A path with an array as an element, while a linked peer cannot read such paths.
    #[error(
        "a path with an array as an element needs peer protocol 3 at all nodes, and this node is linked \
         to an older one; upgrade that first"
    )]
    OlderPeers,
    /// A precondition does not hold, or no event can be made.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Engine {
    /// A client's change. `ack_wanted`: the client waits for copies, so peers should
    /// acknowledge at once.
    ///
    /// # Errors
    /// [`EngineWriteError`]; nothing was changed.
    pub(in crate::engine) fn write(
        &mut self,
        write: &mut Write<'_>,
        ack_wanted: bool,
        out: &mut Outbox,
    ) -> Result<Written, EngineWriteError> {
        if !self.ready {
            return Err(EngineWriteError::NotReady);
        }
        let (clock, now) = (self.replica.tock(), self.peers.schedule.now);
        write.above = match self.config.defects.has(Defect::DeafToClients) {
            true => Tock::default(),
            false => self.clock_lead.believed(write.above, clock, now),
        };
        match self.refusal(write) {
            // One that was made already changes nothing.
            Some(refusal) if self.replica.find_made(write)?.is_none() => Err(refusal),
            _ => self.write_unchecked(write, ack_wanted, out),
        }
    }

    /// Why this node makes no such change now.
    fn refusal(&self, write: &Write<'_>) -> Option<EngineWriteError> {
        if self.config.read_only {
            return Some(EngineWriteError::ReadOnly);
        }
        if self.array_paths_barred && has_array(write.path.as_bytes()) {
            return Some(EngineWriteError::OlderPeers);
        }
        if self.is_retiring() {
            return Some(EngineWriteError::Leaving);
        }
        let max = self.config.memory_max.filter(|_| write.value.is_some())?;
        let is_full = self.replica.tree().memory_bytes() >= max && self.replica.would_grow(write);
        is_full.then_some(EngineWriteError::MemoryFull { max })
    }

    /// Bytes by which the entries exceed the memory limit; none while they are below it. Changes of
    /// peers are taken beyond it, so operators should be warned.
    #[must_use]
    pub fn memory_excess(&self) -> Option<MemoryExcess> {
        let (used, max) = (self.replica.tree().memory_bytes(), self.config.memory_max?);
        (used >= max).then_some(MemoryExcess { used, max })
    }

    /// Gives the root its first value, if it has none: the operator asked for it at the start, so
    /// no limit on clients applies. Returns whether it had none.
    ///
    /// # Errors
    /// [`EngineWriteError`]; nothing was changed.
    pub(in crate::engine) fn init_root(
        &mut self,
        value: &[u8],
        out: &mut Outbox,
    ) -> Result<bool, EngineWriteError> {
        if !self.ready {
            return Err(EngineWriteError::NotReady);
        }
        let precondition = Precondition::chain(ChainCondition::MustBeNew);
        let mut write = Write { precondition, ..Write::new(Path::root(), Some(value)) };
        match self.write_unchecked(&mut write, false, out) {
            Ok(_) => Ok(true),
            Err(EngineWriteError::Write(WriteError::AlreadyExists)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write_unchecked(
        &mut self,
        write: &mut Write<'_>,
        ack_wanted: bool,
        out: &mut Outbox,
    ) -> Result<Written, EngineWriteError> {
        let (clock, now) = (self.replica.tock(), self.peers.schedule.now);
        let mut written = self.replica.write(write)?;
        if let Some(committed) = written.committed.take() {
            self.clock_lead.take(write.above, clock, now);
            self.counters.writes += 1;
            self.push_change(&committed, ack_wanted, out);
            self.publish(committed, out);
        }
        Ok(written)
    }

    /// Pushes a change of this node to all peers, encoded once. The mark is the one of this
    /// very moment (replication rule 5).
    pub(in crate::engine) fn push_change(
        &mut self,
        change: &Committed,
        ack_wanted: bool,
        out: &mut Outbox,
    ) {
        self.peers.note_change(change.entry.newest().node);
        if self.peers.is_empty() {
            return;
        }
        // Assembled in existing room: one allocation, not two.
        self.frame.clear();
        self.frame.shrink_to(FRAME_KEPT);
        let (mark, table) = (self.replica.mark(), self.replica.table());
        encode_change(mark, ack_wanted, &change.path, &change.entry, table, &mut self.frame);
        let frame = Arc::from(self.frame.as_slice());
        self.push_own(change.entry.newest(), frame, out);
    }
}
