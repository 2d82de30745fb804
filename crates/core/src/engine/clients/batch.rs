//! The door for clients: reads and writes, as many as came together, under one guard. They are carried
//! out in order, and each has its own result; they are no transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::{Engine, EngineWriteError, Outbox};
use crate::model::change_time::ChangeTime;
use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeName, NodeTable, Tick, Tock};
use crate::model::invariant::OrBroken;
use crate::model::spelling::LifeRef;
use crate::protocol::client::chain::Names;
use crate::replica::Policies;
use crate::replica::write::{ChainCondition, Write, Written};
use crate::tree::Spot;

/// So many operations are looked up together: their entries are in the processor's caches then, else
/// each operation waits for its own.
const LOOKED_UP_AT_ONCE: usize = 16;

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
    /// Make it only if there is a value, or else only if there is none: what the client may do depends on
    /// that.
    pub over_value: Option<bool>,
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

/// What came of a batch, and what its replies are written with: the state of its moment.
pub struct BatchDone {
    /// What came of each operation, in order; none for [`Operation::Nothing`]. They are fewer than the
    /// operations if the rest was not carried out: there was no room for it, or [`Self::is_outdated`].
    pub outcomes: SmallVec<[Option<Outcome>; 2]>,
    /// The node's tock.
    pub tock: Tock,
    /// Whether the node serves clients.
    pub is_ready: bool,
    /// The policies are not those of [`BatchTerms::checked`] any more, so what has no outcome was not
    /// carried out: to be checked, and handed in, again.
    pub is_outdated: bool,
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
    /// The policies that the operations were checked against: from where they are others, perhaps because
    /// of an operation of this batch, nothing is carried out. None for what needs no check.
    pub checked: Option<Policies>,
    /// When the changes are made, by the node's clock: what people are told.
    pub time: Option<ChangeTime>,
}

impl BatchTerms {
    /// All of it, however much the results are.
    pub const WHOLE: Self = Self { room: usize::MAX, with_names: false, checked: None, time: None };
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

impl Operation<'_> {
    fn path(&self) -> Option<&[u8]> {
        match self {
            Self::Get(path) => Some(path),
            Self::Write(op) => Some(op.write.path.as_bytes()),
            Self::Nothing | Self::MintTock => None,
        }
    }
}

impl<'a> WriteOp<'a> {
    /// A change for which no copies are asked.
    #[must_use]
    pub fn new(write: Write<'a>) -> Self {
        Self { write, newest: None, copies: 0, over_value: None, tock: None }
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

    /// What came of a write. Not for other operations.
    ///
    /// # Errors
    /// [`EngineWriteError`]; nothing was changed.
    pub fn into_written(self) -> Result<Written, EngineWriteError> {
        let written = match self {
            Self::Written(written) => Some(Ok(written)),
            Self::Refused(error) => Some(Err(error)),
            Self::Found(_) | Self::Tock(_) => None,
        };
        written.or_broken("a write is made or refused")
    }
}

impl Engine {
    /// Carries out operations in order, as far as the terms allow. What they were made of stays in `ops`, to be
    /// dropped without the guard.
    pub fn write_batch(
        &mut self,
        ops: &mut [Operation<'_>],
        terms: BatchTerms,
        out: &mut Outbox,
    ) -> BatchDone {
        let mut outcomes = SmallVec::with_capacity(ops.len());
        let (mut bytes, mut is_outdated) = (0, false);
        'all: for ops in ops.chunks_mut(LOOKED_UP_AT_ONCE) {
            let mut spots = self.find_spots(ops).into_iter();
            for op in ops {
                is_outdated = terms.checked.is_some_and(|checked| checked != self.policies());
                if is_outdated || bytes > terms.room {
                    break 'all;
                }
                let spot = if op.path().is_some() { spots.next() } else { None };
                let outcome = self.carry_out(op, spot, terms.time, out);
                bytes += outcome.as_ref().map_or(0, Outcome::reply_bytes);
                outcomes.push(outcome);
            }
        }
        let names = terms.with_names.then(|| NodeNames::of(self));
        BatchDone { outcomes, tock: self.tock(), is_ready: self.is_ready(), is_outdated, names }
    }

    /// Where the paths of some operations are now: a hint only, since those before may move them.
    fn find_spots(&self, ops: &[Operation<'_>]) -> SmallVec<[Spot; LOOKED_UP_AT_ONCE]> {
        let mut spots = SmallVec::new();
        if ops.len() > 1 {
            let paths = ops.iter().filter_map(Operation::path);
            self.tree().find_many(paths, |spot| spots.push(spot));
        }
        spots
    }

    fn carry_out(
        &mut self,
        op: &mut Operation<'_>,
        spot: Option<Spot>,
        time: Option<ChangeTime>,
        out: &mut Outbox,
    ) -> Option<Outcome> {
        Some(match op {
            Operation::Nothing => return None,
            Operation::MintTock => Outcome::Tock(self.mint_tock()),
            Operation::Get(path) => {
                let spot = self.tree().find(path, spot);
                Outcome::Found(self.tree().get_at(&spot).map(|(_, entry)| entry.clone()))
            }
            Operation::Write(op) => match self.write_op(op, spot, time, out) {
                Ok(written) => Outcome::Written(written),
                Err(error) => Outcome::Refused(error),
            },
        })
    }

    fn write_op(
        &mut self,
        op: &mut WriteOp<'_>,
        spot: Option<Spot>,
        time: Option<ChangeTime>,
        out: &mut Outbox,
    ) -> Result<Written, EngineWriteError> {
        let WriteOp { write, newest, copies, over_value, tock } = op;
        let copies = *copies;
        if let Some(wanted) = *over_value {
            let there = self.get(write.path.as_bytes()).and_then(Entry::value);
            if there.is_some() != wanted {
                return Err(EngineWriteError::NotPermitted);
            }
        }
        write.hints.spot = spot;
        write.time = time;
        if let Some((life, tick)) = *newest {
            write.precondition.chain = self.local_condition(life, tick);
        }
        if let Some(tock) = *tock {
            let there = self.get(write.path.as_bytes());
            // At an empty path, something newer may have been deleted and purged.
            if tock <= there.map_or(self.mark().top(), Entry::tock) {
                return Ok(Written::unmade(there.cloned()));
            }
        }
        if copies > 0 {
            self.check_copies(write, copies)?;
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
    mut write: Write<'_>,
    ack_wanted: bool,
    out: &mut Outbox,
) -> Result<Written, EngineWriteError> {
    engine.write(&mut write, ack_wanted, out)
}
