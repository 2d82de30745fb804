//! The door for clients: reads and writes, as many as came together, under one guard. They are carried
//! out in order, and each has its own result; they are no transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Engine, EngineWriteError, Outbox};
use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeName, NodeTable, Tick, Tock};
use crate::model::spelling::LifeRef;
use crate::protocol::client::chain::Names;
use crate::replica::write::{ChainCondition, Write, Written};
use crate::tree::Spot;

/// So many operations are looked up together: their entries are in the processor's caches then, else
/// each operation waits for its own.
const LOOKED_UP_AT_ONCE: usize = 16;

/// One operation of a batch and, once the batch was carried out, its result.
#[derive(Debug)]
pub struct BatchSlot<'a> {
    op: Operation<'a>,
    result: Option<Outcome>,
}

/// What a client wants.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most are writes; to box each costs more than the room"
)]
pub enum Operation<'a> {
    /// Nothing: it was refused before. Its place has no result.
    Nothing,
    /// The entry at a path, given as its bytes.
    Get(&'a [u8]),
    /// A change.
    Write(WriteOp<'a>),
    /// A fresh tock.
    MintTock,
}

/// A change that a client wants.
#[derive(Debug)]
pub struct WriteOp<'a> {
    /// The change.
    pub write: Write<'a>,
    /// The event that must be the entry's newest, as the client names it; then the chain that `write`
    /// asks for does not count.
    pub newest: Option<(LifeRef<'a>, u64)>,
    /// So many peers are to have the change before the client is told; 0 for none.
    pub copies: usize,
    /// Make it only if this is greater than the tock of what is there, or could have been there.
    pub tock: Option<Tock>,
}

/// What came of an operation.
#[derive(Debug)]
pub enum Outcome {
    /// The entry, or tombstone, if there is one.
    Found(Option<Entry>),
    /// The change was made, or was not needed.
    Written(Written),
    /// The change was not made; nothing is different.
    Refused(EngineWriteError),
    /// A fresh tock.
    Tock(Tock),
}

/// What a batch's replies are written with: the state of its moment.
#[derive(Clone)]
pub struct BatchMoment {
    /// So many operations were carried out; for the rest there was no room.
    pub done: usize,
    /// The node's tock.
    pub tock: Tock,
    /// Whether the node serves clients.
    pub is_ready: bool,
    /// The names of nodes, if they were wanted.
    pub names: Option<NodeNames>,
}

/// How a batch is to be carried out.
#[derive(Debug, Clone, Copy)]
pub struct BatchTerms {
    /// Bytes of results after which nothing more is carried out: one result may exceed it, so there is
    /// always progress.
    pub room: usize,
    /// Whether replies will name nodes.
    pub with_names: bool,
}

/// The names under which clients see nodes, at one moment. Cheap to clone.
#[derive(Clone)]
pub struct NodeNames {
    table: Arc<NodeTable>,
    killed: Arc<BTreeSet<NodeName>>,
}

impl NodeNames {
    /// Those of this moment.
    #[must_use]
    pub fn of(engine: &Engine) -> Self {
        Self { table: Arc::clone(engine.table()), killed: Arc::clone(engine.killed()) }
    }

    /// For the writers of replies.
    #[must_use]
    pub fn names(&self) -> Names<'_> {
        Names { table: &self.table, killed: &self.killed }
    }
}

impl<'a> BatchSlot<'a> {
    /// An operation to be carried out.
    #[must_use]
    pub fn new(op: Operation<'a>) -> Self {
        Self { op, result: None }
    }

    /// Its result; none if it was not carried out.
    #[must_use]
    pub fn into_result(self) -> Option<Outcome> {
        self.result
    }

    fn path(&self) -> Option<&[u8]> {
        match &self.op {
            Operation::Get(path) => Some(path),
            Operation::Write(op) => Some(op.write.path.as_bytes()),
            Operation::Nothing | Operation::MintTock => None,
        }
    }
}

impl<'a> WriteOp<'a> {
    /// A change for which no copies are asked.
    #[must_use]
    pub fn new(write: Write<'a>) -> Self {
        Self { write, newest: None, copies: 0, tock: None }
    }
}

impl Outcome {
    /// About how many bytes it takes in a reply, where that can be many.
    #[must_use]
    pub fn reply_bytes(&self) -> usize {
        let entry = match self {
            Self::Found(entry) => entry.as_ref(),
            Self::Written(written) => written.old.as_ref(),
            Self::Refused(_) | Self::Tock(_) => None,
        };
        entry.map_or(0, Entry::memory_bytes)
    }
}

impl Engine {
    /// Carries out operations in order, as far as the terms allow.
    pub fn write_batch(
        &mut self,
        slots: &mut [BatchSlot<'_>],
        terms: BatchTerms,
        out: &mut Outbox,
    ) -> BatchMoment {
        let (mut bytes, mut done) = (0, 0);
        'all: for slots in slots.chunks_mut(LOOKED_UP_AT_ONCE) {
            let mut spots = self.find_spots(slots).into_iter();
            for slot in slots {
                if bytes > terms.room {
                    break 'all;
                }
                let spot = if slot.path().is_some() { spots.next() } else { None };
                slot.result =
                    self.carry_out(std::mem::replace(&mut slot.op, Operation::Nothing), spot, out);
                bytes += slot.result.as_ref().map_or(0, Outcome::reply_bytes);
                done += 1;
            }
        }
        let names = terms.with_names.then(|| NodeNames::of(self));
        BatchMoment { done, tock: self.tock(), is_ready: self.is_ready(), names }
    }

    /// Where the paths of some operations are now: a hint only, since those before may move them.
    fn find_spots(&self, slots: &[BatchSlot<'_>]) -> SmallVec<[Spot; LOOKED_UP_AT_ONCE]> {
        let mut spots = SmallVec::new();
        if slots.len() > 1 {
            let paths = slots.iter().filter_map(BatchSlot::path);
            self.tree().find_many(paths, |spot| spots.push(spot));
        }
        spots
    }

    fn carry_out(
        &mut self,
        op: Operation<'_>,
        spot: Option<Spot>,
        out: &mut Outbox,
    ) -> Option<Outcome> {
        Some(match op {
            Operation::Nothing => return None,
            Operation::MintTock => Outcome::Tock(self.mint_tock()),
            Operation::Get(path) => {
                let spot = self.tree().find(path, spot);
                Outcome::Found(self.tree().get_at(&spot).map(|(_, entry)| entry.clone()))
            }
            Operation::Write(op) => match self.write_op(op, spot, out) {
                Ok(written) => Outcome::Written(written),
                Err(error) => Outcome::Refused(error),
            },
        })
    }

    fn write_op(
        &mut self,
        op: WriteOp<'_>,
        spot: Option<Spot>,
        out: &mut Outbox,
    ) -> Result<Written, EngineWriteError> {
        let WriteOp { mut write, newest, copies, tock } = op;
        write.hints.spot = spot;
        if let Some((life, tick)) = newest {
            write.precondition.chain = self.local_condition(life, tick);
        }
        if let Some(tock) = tock {
            let there = self.get(write.path.as_bytes());
            // At an empty path, something newer may have been deleted and purged.
            if tock <= there.map_or(self.mark().top(), Entry::tock) {
                return Ok(Written::unmade(there.cloned()));
            }
        }
        if copies > 0 {
            self.check_copies(&write, copies)?;
        }
        self.write(write, copies > 0, out)
    }

    fn local_condition(&self, life: LifeRef<'_>, tick: u64) -> ChainCondition {
        match self.table().find(life.name, life.incarnation).zip(Tick::new(tick)) {
            Some((node, tick)) => ChainCondition::Newest(Event { node, tick }),
            None => ChainCondition::Unknown,
        }
    }
}

/// One change by itself, as a batch of one would make it; for callers that are no clients.
/// `ack_wanted`: peers are to acknowledge it at once.
///
/// # Errors
/// [`EngineWriteError`]; nothing was changed.
pub fn write_one(
    engine: &mut Engine,
    write: Write<'_>,
    ack_wanted: bool,
    out: &mut Outbox,
) -> Result<Written, EngineWriteError> {
    engine.write(write, ack_wanted, out)
}
