//! Replication rule 1: a change that a client of this node makes, with its preconditions.

use crate::model::chain::Chain;
use crate::model::change_time::ChangeTime;
use crate::model::defects::Defect;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Tock};
use crate::model::left_out::LeftOut;
use crate::model::path::PathBytes;
use crate::model::value::values_equal;
use crate::model::write_id::WriteId;
use crate::replica::write_ids::Made;
use crate::replica::{Committed, Replica};
use crate::tree::Spot;

/// A client's precondition for its change (docs/client-protocol.md, "Actions").
#[derive(Clone, Copy, Debug, Default)]
pub struct Precondition<'a> {
    /// What the entry's newest event must be.
    pub chain: ChainCondition,
    /// Whether the newest event may be that of a deletion. It may not, as with the original, unless a client asks for it.
    pub of_deletion: bool,
    /// The value that must be there, as checked MessagePack.
    pub value: Option<&'a [u8]>,
}

impl Precondition<'_> {
    /// The entry's newest event must be this one, of a value.
    #[must_use]
    pub fn chain(chain: ChainCondition) -> Self {
        Self { chain, ..Self::default() }
    }
}

/// The `chain` field of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChainCondition {
    /// Not sent: any state will do.
    #[default]
    Any,
    /// nil: the entry must be new (not there, or deleted).
    MustBeNew,
    /// The newest event must be this one.
    Newest(Event),
    /// An event of a life that this node has never heard of: cannot match.
    Unknown,
}

/// A change to make.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// Where.
    pub path: PathBytes<'a>,
    /// The new value as one checked MessagePack value; none deletes.
    pub value: Option<&'a [u8]>,
    /// What must be the case.
    pub precondition: Precondition<'a>,
    /// Make no event if the value is already there.
    pub idempotent: bool,
    /// By this one the write is known when it comes again, here or at another node.
    pub write_id: Option<WriteId>,
    /// The greatest tock that the client has heard of: the change comes after all that it knows.
    pub above: Tock,
    /// The tock of the client's own last change there, as far as it remembers. Where this node has not heard of that
    /// change, an event is made although nothing seems to be different: else the older change would win when it comes.
    pub own: Tock,
    /// When it is made, by this node's clock; it goes with the change, for people only.
    pub time: Option<ChangeTime>,
    /// What makes it cheaper.
    pub hints: Hints,
}

impl<'a> Write<'a> {
    /// A change without preconditions.
    pub fn new(path: impl Into<PathBytes<'a>>, value: Option<&'a [u8]>) -> Self {
        Self {
            path: path.into(),
            value,
            precondition: Precondition::default(),
            idempotent: false,
            write_id: None,
            above: Tock::default(),
            own: Tock::default(),
            time: None,
            hints: Hints::default(),
        }
    }
}

/// Hints that make a change cheaper, without any effect on its result.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Where the path was found a moment ago.
    pub(crate) spot: Option<Spot>,
    /// An entry that nobody needs: if nobody else has it and it has the right size, its memory is
    /// used for the new one. It is in the caches, other than what an allocator would give.
    pub(crate) room: Option<Entry>,
}

impl Hints {
    /// An entry that nobody needs, in whose memory the new one may be made.
    #[must_use]
    pub fn with_room(room: Option<Entry>) -> Self {
        Self { spot: None, room }
    }
}

/// What a write did.
#[derive(Clone, Debug)]
pub struct Written {
    /// Whether the value is another one than before.
    pub changed: bool,
    /// The version before; a tombstone or none if there was no value.
    pub old: Option<Entry>,
    /// The version now; none only if there was no entry and nothing to delete.
    pub entry: Option<Entry>,
    /// Whether an event was made: `entry` is the new version.
    pub is_made: bool,
    /// The new version, where an event was made: to be logged, pushed and watched. The engine takes
    /// it.
    pub(crate) committed: Option<Committed>,
    /// The write was made when it came for the first time: nothing was changed now. `changed` and
    /// `old` have no meaning then; `entry` is the present one.
    pub repeated: Option<Made>,
}

/// Why a write was not made. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WriteError {
    /// The chain was nil, but there is a value.
    #[error("Entry already exists")]
    AlreadyExists,
    /// A chain was given, but there is no value.
    #[error("Entry is new")]
    IsNew,
    /// The chain's newest event is not the entry's.
    #[error("Chain is different")]
    ChainMismatch {
        /// The entry's newest event.
        newest: Event,
    },
    /// The old value is not the entry's, which perhaps has none.
    #[error("Data is different")]
    ValueMismatch {
        /// The value, if there is one.
        current: Option<Entry>,
    },
    /// Another write has the same id: other path, other value, or a deletion.
    #[error("the write id is that of another write")]
    IdReused,
    /// Its client does not wait for it any more, as a later write of that client says. It would be put on top of what the
    /// client has written since.
    #[error("this write comes too late: its client has given it up and gone on to later ones")]
    GivenUp,
    /// Ticks or tocks are used up, or this identity is in use elsewhere.
    #[error(
        "this node cannot make changes now: its counters are used up or its identity is in doubt"
    )]
    NoEvent,
}

impl Replica {
    /// Replication rule 1: tock = max(own tock, the old entry's, what the client has heard of) + 1; chain = the new
    /// event, then the old chain without events of this incarnation, cut to the bound.
    ///
    /// Deleting an entry that does not exist makes no event: its tombstone would only have to be
    /// purged again. It is needed where the client has changed the entry at another node, of which nobody has heard here.
    ///
    /// A write that was already made is recognised by its id, whatever its preconditions: they held
    /// when it was made. One that is not known, and that its client has given up since, is refused: clients number their
    /// writes, and say with each for which older ones they still wait (the order of RIFL, Lee et al., SOSP 2015).
    ///
    /// Of the write, only its hints are used up.
    ///
    /// # Errors
    /// [`WriteError`]; nothing was changed.
    pub fn write(&mut self, write: &mut Write<'_>) -> Result<Written, WriteError> {
        if let Some(made) = self.find_made(write)? {
            return Ok(self.repeated(&write.path, made));
        }
        if let Some(id) = write.write_id
            && self.write_ids.meet(id)
            && !self.has(Defect::GivenUpIsMade)
        {
            return Err(WriteError::GivenUp);
        }
        let spot = self.tree.find(write.path.as_bytes(), write.hints.spot.take());
        let there = self.tree.get_at(&spot);
        let old = there.map(|(_, entry)| entry);
        let same = match (old.and_then(Entry::value), write.value) {
            (Some(a), Some(b)) => values_equal(a, b),
            (None, None) => true,
            _ => false,
        };
        // At an empty path, something may have been deleted and purged.
        let tock = old.map_or(self.mark.top(), Entry::tock);
        let is_done = same && (write.idempotent || write.value.is_none()) && tock >= write.own;
        // An idempotent change that is already made is no change, whatever its preconditions: so a
        // client that does not know whether it arrived can send it again.
        if !is_done || write.value.is_none() {
            check_precondition(&write.precondition, old)?;
        }
        if is_done {
            return Ok(Written::unmade(old.cloned()));
        }
        let (event, tock) =
            self.next_event_above(tock.max(write.above)).ok_or(WriteError::NoEvent)?;
        let chain = match old {
            Some(old) => old.chain().extended(event, self.chain_bound),
            None => Chain::first(event),
        };
        let left_out = old.map(|old| LeftOut::on_top_of(old, event, self.chain_bound));
        let extra = write.write_id.map(WriteId::to_extra);
        let extra = extra.as_ref().map_or(&[][..], |extra| extra);
        let extra = left_out.unwrap_or_default().put_into(extra);
        let (value, time) = (write.value, write.time);
        let parts = EntryParts { value, chain: &chain, tock, origin: None, time, extra: &extra };
        let entry = Entry::new_in(write.hints.room.take(), &parts);
        // The tree's own path, if there is one: it need not be made.
        let path = there.map_or_else(|| write.path.to_path(), |(path, _)| path.clone());
        self.account_for_own(event, tock, &chain);
        if let Some(id) = write.write_id {
            self.write_ids.note_made(id, &path, &entry);
        }
        let (committed, old) = self.commit_at(&spot, path, entry.clone());
        let (entry, committed) = (Some(entry), Some(committed));
        Ok(Written { changed: !same, old, entry, is_made: true, committed, repeated: None })
    }

    /// Whether a write would make its entry take more memory than it does now. To be asked only
    /// where memory is short: it makes the new version to measure it.
    #[must_use]
    pub(crate) fn would_grow(&self, write: &Write<'_>) -> bool {
        let Some(value) = write.value else { return false };
        let Some(old) = self.tree.get_at(&self.tree.find(write.path.as_bytes(), write.hints.spot))
        else {
            return true;
        };
        let old = old.1;
        let Some((event, tock)) = self.next_event_above(old.tock().max(write.above)) else {
            return true;
        };
        let extra = write.write_id.map(WriteId::to_extra);
        let new = Entry::new(&EntryParts {
            value: Some(value),
            chain: &old.chain().extended(event, self.chain_bound),
            tock,
            origin: None,
            time: write.time,
            extra: extra.as_ref().map_or(&[], |extra| extra),
        });
        new.memory_bytes() > old.memory_bytes()
    }

    /// What a write did when it came for the first time, if it has come before.
    ///
    /// # Errors
    /// [`WriteError::IdReused`]: that was another write.
    pub(crate) fn find_made(&self, write: &Write<'_>) -> Result<Option<Made>, WriteError> {
        let Some(id) = &write.write_id else { return Ok(None) };
        match self.write_ids.get(id) {
            Some(made) if !made.is_of(write.path.as_bytes(), write.value) => {
                Err(WriteError::IdReused)
            }
            made => Ok(made),
        }
    }

    fn repeated(&self, path: &PathBytes<'_>, made: Made) -> Written {
        let entry = self.tree.get(path.as_bytes()).cloned();
        Written { changed: true, old: None, repeated: Some(made), ..Written::unmade(entry) }
    }
}

impl Written {
    /// The new version, where an event was made.
    #[must_use]
    pub fn made(&self) -> Option<&Entry> {
        self.entry.as_ref().filter(|_| self.is_made)
    }

    /// Nothing was done; this is there.
    pub(crate) fn unmade(entry: Option<Entry>) -> Self {
        let old = entry.clone();
        Self { changed: false, old, entry, is_made: false, committed: None, repeated: None }
    }
}

fn check_precondition(wanted: &Precondition<'_>, old: Option<&Entry>) -> Result<(), WriteError> {
    let live = old.filter(|e| !e.is_tombstone());
    // A deleted entry counts as new, although it still has a chain (docs/client-protocol.md,
    // "Actions").
    let held = if wanted.of_deletion { old } else { live };
    match (wanted.chain, held) {
        (ChainCondition::Any, _) => {}
        (ChainCondition::MustBeNew, _) if live.is_none() => {}
        (ChainCondition::MustBeNew, _) => return Err(WriteError::AlreadyExists),
        (ChainCondition::Newest(_) | ChainCondition::Unknown, None) => {
            return Err(WriteError::IsNew);
        }
        (ChainCondition::Newest(event), Some(entry)) if entry.newest() == event => {}
        (_, Some(entry)) if entry.is_tombstone() => return Err(WriteError::IsNew),
        (_, Some(entry)) => return Err(WriteError::ChainMismatch { newest: entry.newest() }),
    }
    match (wanted.value, live.and_then(Entry::value)) {
        (None, _) => Ok(()),
        (Some(wanted), Some(value)) if values_equal(wanted, value) => Ok(()),
        (Some(_), _) => Err(WriteError::ValueMismatch { current: live.cloned() }),
    }
}
