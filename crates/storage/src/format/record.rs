//! Records: the items of a frame's payload, in snapshots and logs. Each is a MessagePack array;
//! `docs/storage-format.md` draws them.
//!
//! | first element | record | then |
//! |---|---|---|
//! | 0 to 15, 32 to 47 | an entry as it is now; bits: 1 value, 2 origin, 4 chain cut, 8 extra, 32 time | path, tock, chain, value, origin, extra, time |
//! | 16 | an entry that left the tree | path, node, tick |
//! | 17 | an incarnation; they are numbered 0, 1, 2 … in each file | name, incarnation |
//! | 18 to 21 | what a node knows besides entries: [`super::knowledge`] | |
//!
//! Events are `node, tick`: the number of an incarnation that was named before in the same file,
//! and a tick. A chain is one array of them, flat.

use smallvec::SmallVec;

use crate::error::FormatError;
use crate::model::chain::Chain;
use crate::model::change_time::ChangeTime;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{
    Event, Incarnation, NODE_TABLE_MAX, NodeId, NodeIndex, NodeName, NodeTable, Tick, Tock,
};
use crate::model::limits::{CHAIN_LEN_MAX, RECORD_EXTRA_BYTES_MAX};
use crate::model::path::Path;
use crate::model::value::{Reader, SkipLimits, write_array_len, write_bin, write_str, write_u64};

const HAS_VALUE: u64 = 1;
const HAS_ORIGIN: u64 = 2;
const CHAIN_CUT: u64 = 4;
const HAS_EXTRA: u64 = 8;
/// The kinds from 16 to 31 are other records.
const HAS_TIME: u64 = 32;
/// Kinds up to this one are entries, and so are those with [`HAS_TIME`] besides.
const ENTRY_MAX: u64 = 15;
const LAST_TIMED_ENTRY: u64 = ENTRY_MAX | HAS_TIME;
const GONE: u64 = 16;
const NODE: u64 = 17;
pub(super) const STATE: u64 = 18;
pub(super) const SEEN: u64 = 19;
pub(super) const DECIDED: u64 = 20;
pub(super) const DECIDED_SEEN: u64 = 21;
/// The first key of a change record that this version does not interpret.
const EXTRA_KEY_FROM: u64 = 5;

/// A record that was read.
#[derive(Debug)]
pub(crate) enum Record {
    /// An entry.
    Entry { path: Path, entry: Entry },
    /// An entry that left the tree.
    Gone { path: Path, newest: Event },
    /// An incarnation was named. The dictionary has it.
    Node,
    /// A part of a node's knowledge: its kind; the reader is positioned at its fields, and the
    /// number says how many there are.
    Knowledge { kind: u64, fields: usize },
}

/// The incarnations that a file has named, as indices of a node table.
#[derive(Clone, Default)]
pub(crate) struct Dictionary {
    table: NodeTable,
    /// Where each of the file's incarnations is in the table.
    places: Vec<NodeIndex>,
}

impl Dictionary {
    /// For a new file; its incarnations are added to the table.
    pub(crate) fn new(table: NodeTable) -> Self {
        Self { table, places: Vec::new() }
    }

    pub(crate) fn table(&self) -> &NodeTable {
        &self.table
    }

    pub(crate) fn into_table(self) -> NodeTable {
        self.table
    }

    /// How many incarnations the file has named.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Reads one record.
    pub(crate) fn read(&mut self, r: &mut Reader<'_>) -> Result<Record, FormatError> {
        let fields = r.read_array_len()?;
        let kind = r.read_u64()?;
        match kind {
            0..=ENTRY_MAX | HAS_TIME..=LAST_TIMED_ENTRY => self.read_entry(r, kind, fields),
            GONE => {
                expect_fields(fields, 4)?;
                let path = Path::from_canonical(r.read_bin()?)?;
                Ok(Record::Gone { path, newest: self.read_event(r)? })
            }
            NODE => {
                expect_fields(fields, 3)?;
                let name = NodeName::new(r.read_str()?)?;
                self.add(&NodeId { name, incarnation: Incarnation(r.read_u64()?) })?;
                Ok(Record::Node)
            }
            STATE..=DECIDED_SEEN => Ok(Record::Knowledge { kind, fields }),
            other => Err(FormatError::Unknown("a record", other)),
        }
    }

    fn add(&mut self, id: &NodeId) -> Result<(), FormatError> {
        let index = self.table.intern(id).ok_or(FormatError::TooManyIncarnations)?;
        // More can only be if one is named many times.
        if self.places.len() >= NODE_TABLE_MAX {
            return Err(FormatError::TooManyIncarnations);
        }
        self.places.push(index);
        Ok(())
    }

    /// An incarnation by its number in the file.
    pub(super) fn read_node(&self, r: &mut Reader<'_>) -> Result<NodeIndex, FormatError> {
        let number = r.read_u64()?;
        let place = usize::try_from(number).ok().and_then(|at| self.places.get(at));
        place.copied().ok_or(FormatError::Incarnation(number))
    }

    fn read_event(&self, r: &mut Reader<'_>) -> Result<Event, FormatError> {
        Ok(Event { node: self.read_node(r)?, tick: read_used_tick(r)? })
    }

    fn read_entry(
        &self,
        r: &mut Reader<'_>,
        flags: u64,
        fields: usize,
    ) -> Result<Record, FormatError> {
        let has = |flag: u64| flags & flag != 0;
        let optional =
            [HAS_VALUE, HAS_EXTRA, HAS_TIME].into_iter().filter(|flag| has(*flag)).count();
        expect_fields(fields, 4 + optional + 2 * usize::from(has(HAS_ORIGIN)))?;
        let path = Path::from_canonical(r.read_bin()?)?;
        let tock = read_tock(r)?;
        let numbers = r.read_array_len()?;
        if numbers == 0 || !numbers.is_multiple_of(2) || numbers > 2 * CHAIN_LEN_MAX {
            return Err(FormatError::Chain(numbers));
        }
        let mut events: SmallVec<[Event; 2]> = SmallVec::new();
        for _ in 0..numbers / 2 {
            events.push(self.read_event(r)?);
        }
        let chain =
            Chain::from_events(events, has(CHAIN_CUT)).ok_or(FormatError::Chain(numbers))?;
        let value = if has(HAS_VALUE) { Some(r.read_raw_within(SkipLimits::VALUE)?) } else { None };
        let origin = if has(HAS_ORIGIN) { Some(self.read_event(r)?) } else { None };
        let extra = if has(HAS_EXTRA) { checked_extra(r.read_bin()?)? } else { &[] };
        // What is no time that can be kept, nobody needs.
        let time = if has(HAS_TIME) { ChangeTime::new(r.read_u64()?) } else { None };
        let entry = Entry::new(&EntryParts { value, chain: &chain, tock, origin, time, extra });
        Ok(Record::Entry { path, entry })
    }
}

/// Fields of a change record that this version does not know: a count and as many keys and values.
/// They are passed on to peers unchanged, so they are checked as if they came from a peer.
fn checked_extra(extra: &[u8]) -> Result<&[u8], FormatError> {
    if extra.len() > RECORD_EXTRA_BYTES_MAX + 1 {
        return Err(FormatError::TooMany(extra.len(), "bytes of unknown fields"));
    }
    let (count, rest) = extra.split_first().ok_or(FormatError::Lacks("count of extra fields"))?;
    let mut reader = Reader::new(rest);
    let mut key_min = EXTRA_KEY_FROM;
    for _ in 0..*count {
        let key = reader.read_u64()?;
        if key < key_min {
            return Err(FormatError::Kind("an extra field", key));
        }
        key_min = key.saturating_add(1);
        reader.skip()?;
    }
    reader.finish()?;
    Ok(extra)
}

pub(super) fn expect_fields(found: usize, expected: usize) -> Result<(), FormatError> {
    if found == expected { Ok(()) } else { Err(FormatError::TooMany(found, "fields in a record")) }
}

/// A tick that was used: not 0.
pub(super) fn read_used_tick(r: &mut Reader<'_>) -> Result<Tick, FormatError> {
    let raw = r.read_u64()?;
    Tick::new(raw).filter(|t| t.get() > 0).ok_or(FormatError::Counter(raw))
}

pub(super) fn read_tick(r: &mut Reader<'_>) -> Result<Tick, FormatError> {
    let raw = r.read_u64()?;
    Tick::new(raw).ok_or(FormatError::Counter(raw))
}

pub(super) fn read_tock(r: &mut Reader<'_>) -> Result<Tock, FormatError> {
    let raw = r.read_u64()?;
    Tock::new(raw).ok_or(FormatError::Counter(raw))
}

/// Appends an entry. Its events are in the indices of the table whose incarnations were named to
/// the file in their order.
pub(crate) fn write_entry(path: &[u8], entry: &Entry, out: &mut Vec<u8>) {
    let (value, origin, extra) = (entry.value(), entry.reissue_of(), entry.extra());
    let time = entry.time();
    let mut kind = 0;
    kind |= if value.is_some() { HAS_VALUE } else { 0 };
    kind |= if origin.is_some() { HAS_ORIGIN } else { 0 };
    kind |= if entry.is_chain_cut() { CHAIN_CUT } else { 0 };
    kind |= if extra.is_empty() { 0 } else { HAS_EXTRA };
    kind |= if time.is_some() { HAS_TIME } else { 0 };
    let optional = [value.is_some(), !extra.is_empty(), time.is_some()];
    let optional = optional.into_iter().filter(|is_there| *is_there).count();
    write_array_len(4 + optional + 2 * usize::from(origin.is_some()), out);
    write_u64(kind, out);
    write_bin(path, out);
    write_u64(entry.tock().get(), out);
    write_array_len(2 * entry.events().len(), out);
    for event in entry.events() {
        write_event(event, out);
    }
    if let Some(value) = value {
        out.extend_from_slice(value);
    }
    if let Some(origin) = origin {
        write_event(origin, out);
    }
    if !extra.is_empty() {
        write_bin(extra, out);
    }
    if let Some(time) = time {
        write_u64(time.ms(), out);
    }
}

/// Appends that an entry left the tree.
pub(crate) fn write_gone(path: &[u8], newest: Event, out: &mut Vec<u8>) {
    write_array_len(4, out);
    write_u64(GONE, out);
    write_bin(path, out);
    write_event(newest, out);
}

/// Appends an incarnation, which gets the next number.
pub(crate) fn write_node(id: &NodeId, out: &mut Vec<u8>) {
    write_array_len(3, out);
    write_u64(NODE, out);
    write_str(id.name.as_str(), out);
    write_u64(id.incarnation.0, out);
}

fn write_event(event: Event, out: &mut Vec<u8>) {
    write_u64(event.node.as_usize() as u64, out);
    write_u64(event.tick.get(), out);
}
