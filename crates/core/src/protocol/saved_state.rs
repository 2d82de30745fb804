//! The files that the Python DistKV writes with `save` and `log` (docs/client-protocol.md, "Saved
//! state and change log"), decoded piece by piece: MessagePack maps one after the other, without a
//! header.
//!
//! First a state record `{nodes, known, deleted, node, tock}`, which may come again at any
//! point; then entries `{value, chain, tock, path, depth}` (saved state) or changes `{node,
//! tick, prev, path, value?, tock, depth}` (log; a deletion has no value). Paths are shortened,
//! from the empty path. `known` are the superseded ticks only; a saved state has no tombstones,
//! only `deleted`, the ticks in their chains.
//!
//! DistKV's nodes have no incarnations: a node that takes the file in gives them one that is
//! derived from the file (`engine::load`).
//!
//! | file | what |
//! |---|---|
//! | this one | the parts of a file, and its reader |
//! | [`node`] | the maker of a change, as a file names it |
//! | [`writer`] | the other direction |
//! | [`python`] | what the original can hold, and what it cannot load |

mod node;
pub mod python;
pub(crate) mod writer;

pub use node::SavedNode;
pub use writer::SavedStateWriter;

use crate::model::chain::Chain;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Tick, Tock};
use crate::model::invariant::OrBroken;
use crate::model::lengthen::{LengthenError, Lengthener};
use crate::model::limits::CHAIN_LEN_MAX;
use crate::model::path::{Path, PathError};
use crate::model::spelling::SpellingError;
use crate::model::tick_set::TickSet;
use crate::model::value::skip::SKIP_DEPTH_MAX;
use crate::model::value::{ReadError, Reader, SkipError, SkipLimits, Skipper, Value, ValueError};

/// Most bytes of one record: a value at its limit with all that belongs to it; or the tick sets
/// of a state record, at up to 20 bytes per range.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// What a file is made of.
#[derive(Debug, Clone, PartialEq)]
pub enum SavedRecord {
    /// What the node that wrote the file knew.
    State(SavedState),
    /// An entry, or a change.
    Entry(SavedEntry),
    /// An entry that cannot be one here, such as one with a NaN in its path. The reader of the file
    /// should report it and continue.
    Unusable {
        /// Where in the file.
        offset: u64,
        /// Why.
        reason: UnusableEntry,
    },
}

/// What the node that wrote the file knew when it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedState {
    /// The writer of the file.
    pub(crate) node: SavedNode,
    /// Its tock.
    pub(crate) tock: Tock,
    /// All nodes with their highest ticks; none for one that never wrote.
    pub(crate) nodes: Vec<(SavedNode, Option<Tick>)>,
    /// Superseded ticks.
    pub known: Vec<(SavedNode, TickSet)>,
    /// Ticks in the chains of tombstones.
    pub(crate) deleted: Vec<(SavedNode, TickSet)>,
}

/// An entry, or a change.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedEntry {
    /// Where in the file.
    pub(crate) offset: u64,
    /// Where in the tree.
    pub(crate) path: Path,
    /// Its value; none if it was deleted.
    pub(crate) value: Option<Value>,
    /// The events that last changed it, newest first, each node once, within the bound of
    /// chains.
    pub(crate) chain: Vec<(SavedNode, Tick)>,
    /// Whether older events were dropped.
    pub(crate) is_chain_cut: bool,
    /// The change's tock.
    pub(crate) tock: Tock,
}

impl SavedEntry {
    /// The entry that it is here, with its chain's events as this node knows their makers, in the same order.
    pub(crate) fn with_events(&self, events: Vec<Event>) -> Entry {
        let chain = Chain::from_events(events, self.is_chain_cut);
        let chain = chain.or_broken("an entry that was read from a file has 1 to 8 events");
        Entry::new(&EntryParts {
            value: self.value.as_ref().map(Value::as_bytes),
            chain: &chain,
            tock: self.tock,
            origin: None,
            time: None,
            extra: &[],
        })
    }
}

/// Why an entry of a file cannot be one here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableEntry {
    /// Its path.
    #[error("{0}")]
    Path(#[from] PathError),
    /// Its value.
    #[error("{0}")]
    Value(#[from] ValueError),
}

/// Why a file cannot be read (any further). What was read before is valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset} of the saved state: {problem}")]
pub struct SavedStateError {
    /// Where the record begins that is bad.
    pub(crate) offset: u64,
    /// What is wrong with it.
    pub problem: SavedStateProblem,
}

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SavedStateProblem {
    /// Not MessagePack, or too large.
    #[error("{0}")]
    Skip(#[from] SkipError),
    /// Something else than what belongs there.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// The file ends within a record.
    #[error("the file ends within a record; {0} bytes of it are there")]
    CutOff(usize),
    /// A field that must be there.
    #[error("a record without '{0}'")]
    Missing(&'static str),
    /// A name that no node, and no life of one, can have.
    #[error("bad node name: {0}")]
    Name(#[from] SpellingError),
    /// A tick or tock out of range.
    #[error("a tick or tock out of range: {0}")]
    Counter(u64),
    /// A range of ticks that is none.
    #[error("a bad range of ticks")]
    Ticks,
    /// A shortened path that does not fit to the one before.
    #[error("{0}")]
    Path(#[from] LengthenError),
    /// A chain without an event.
    #[error("an entry without a chain")]
    NoChain,
}

/// Decodes a file that is fed in pieces of any size.
#[derive(Debug)]
pub struct SavedStateReader {
    buffer: Vec<u8>,
    /// Where the next record begins in the buffer, and in the file.
    start: usize,
    offset: u64,
    skipper: Skipper,
    paths: Lengthener,
    has_changes: bool,
}

/// All records of a file that is in memory. Ends after the first error.
pub(crate) struct Records {
    reader: SavedStateReader,
    is_over: bool,
}

impl Default for SavedStateReader {
    fn default() -> Self {
        Self::new()
    }
}

impl SavedStateReader {
    /// A reader at the start of a file.
    #[must_use]
    pub fn new() -> Self {
        let skipper = new_skipper();
        let paths = Lengthener::default();
        Self { buffer: Vec::new(), start: 0, offset: 0, skipper, paths, has_changes: false }
    }

    /// Reads a file that is in memory.
    pub(crate) fn read_all(bytes: &[u8]) -> Records {
        let mut reader = Self::new();
        reader.feed(bytes);
        Records { reader, is_over: false }
    }

    /// Takes in more of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next record; none if more of the file must be fed first.
    ///
    /// # Errors
    /// The file cannot be read on.
    pub fn next_record(&mut self) -> Result<Option<SavedRecord>, SavedStateError> {
        let at = self.offset;
        let failed = |problem| SavedStateError { offset: at, problem };
        let rest = self.buffer.get(self.start..).or_broken("what was read is within the buffer");
        if rest.is_empty() {
            return Ok(None);
        }
        let length = match self.skipper.advance(rest).map_err(|e| failed(e.into()))? {
            Some(length) => length,
            None => return Ok(None),
        };
        let record = rest.get(..length).or_broken("a record that is whole is here");
        let decoded = decode(record, at, &mut self.paths, &mut self.has_changes);
        let decoded = decoded.map_err(failed)?;
        self.start += length;
        self.offset += length as u64;
        self.skipper = new_skipper();
        Ok(Some(decoded))
    }

    /// Ends reading.
    ///
    /// # Errors
    /// The file ended within a record.
    pub fn finish(&self) -> Result<(), SavedStateError> {
        match self.buffer.len() - self.start {
            0 => Ok(()),
            left => {
                let problem = SavedStateProblem::CutOff(left);
                Err(SavedStateError { offset: self.offset, problem })
            }
        }
    }
}

impl SavedStateReader {
    /// Whether a change was among what was read: then the file is a log.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.has_changes
    }
}

impl Records {
    /// Whether a change was among them: then the file is a log.
    pub(crate) fn is_log(&self) -> bool {
        self.reader.has_changes()
    }
}

impl Iterator for Records {
    type Item = Result<SavedRecord, SavedStateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.reader.next_record();
        self.is_over = !matches!(next, Ok(Some(_)));
        next.and_then(|record| match record {
            Some(record) => Ok(Some(record)),
            None => self.reader.finish().map(|()| None),
        })
        .transpose()
    }
}

fn new_skipper() -> Skipper {
    Skipper::new(SkipLimits { depth_max: SKIP_DEPTH_MAX, bytes_max: RECORD_BYTES_MAX })
}

/// The fields of a record, as their bytes.
#[derive(Default)]
struct RawRecord<'a> {
    nodes: Option<&'a [u8]>,
    known: Option<&'a [u8]>,
    deleted: Option<&'a [u8]>,
    node: Option<&'a [u8]>,
    tick: Option<&'a [u8]>,
    prev: Option<&'a [u8]>,
    tock: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    depth: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    chain: Option<&'a [u8]>,
}

fn decode(
    record: &[u8],
    offset: u64,
    paths: &mut Lengthener,
    has_changes: &mut bool,
) -> Result<SavedRecord, SavedStateProblem> {
    let mut raw = RawRecord::default();
    let mut reader = Reader::new(record);
    for _ in 0..reader.read_map_len()? {
        let key = reader.read_str_bytes()?;
        let value = Some(reader.read_raw()?);
        match key {
            b"nodes" => raw.nodes = value,
            b"known" => raw.known = value,
            b"deleted" => raw.deleted = value,
            b"node" => raw.node = value,
            b"tick" => raw.tick = value,
            b"prev" => raw.prev = value,
            b"tock" => raw.tock = value,
            b"path" => raw.path = value,
            b"depth" => raw.depth = value,
            b"value" => raw.value = value,
            b"chain" => raw.chain = value,
            _ => {}
        }
    }
    let tock = need(raw.tock, "tock")?.read_u64()?;
    let tock = Tock::new(tock).ok_or(SavedStateProblem::Counter(tock))?;
    if raw.path.is_none() && raw.nodes.is_some() {
        return decode_state(&raw, tock).map(SavedRecord::State);
    }
    *has_changes |= raw.chain.is_none();
    decode_entry(&raw, tock, offset, paths)
}

fn need<'a>(field: Option<&'a [u8]>, name: &'static str) -> Result<Reader<'a>, SavedStateProblem> {
    field.map(Reader::new).ok_or(SavedStateProblem::Missing(name))
}

fn decode_state(raw: &RawRecord<'_>, tock: Tock) -> Result<SavedState, SavedStateProblem> {
    let mut nodes = Vec::new();
    let mut reader = need(raw.nodes, "nodes")?;
    for _ in 0..reader.read_map_len()? {
        let name = SavedNode::new(reader.read_str()?)?;
        let tick = if reader.take_nil() { None } else { Some(read_tick(&mut reader)?) };
        nodes.push((name, tick));
    }
    Ok(SavedState {
        node: SavedNode::new(need(raw.node, "node")?.read_str()?)?,
        tock,
        nodes,
        known: decode_tick_sets(raw.known)?,
        deleted: decode_tick_sets(raw.deleted)?,
    })
}

/// A tick; 0, for "none yet", is one too here.
fn read_tick(reader: &mut Reader<'_>) -> Result<Tick, SavedStateProblem> {
    let tick = reader.read_u64()?;
    Tick::new(tick).ok_or(SavedStateProblem::Counter(tick))
}

fn decode_tick_sets(raw: Option<&[u8]>) -> Result<Vec<(SavedNode, TickSet)>, SavedStateProblem> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    let mut sets = Vec::new();
    let mut reader = Reader::new(raw);
    for _ in 0..reader.read_map_len()? {
        let name = SavedNode::new(reader.read_str()?)?;
        let mut ticks = TickSet::new();
        for _ in 0..reader.read_array_len()? {
            let (from, to) = match reader.read_u64() {
                Ok(tick) => (tick, tick.saturating_add(1)),
                Err(_) if reader.read_array_len()? == 2 => (reader.read_u64()?, reader.read_u64()?),
                Err(_) => return Err(SavedStateProblem::Ticks),
            };
            if to <= from || !ticks.insert_range(from, to) {
                return Err(SavedStateProblem::Ticks);
            }
        }
        sets.push((name, ticks));
    }
    Ok(sets)
}

fn decode_entry(
    raw: &RawRecord<'_>,
    tock: Tock,
    offset: u64,
    paths: &mut Lengthener,
) -> Result<SavedRecord, SavedStateProblem> {
    let depth = match raw.depth {
        Some(depth) => Reader::new(depth).read_u64()?,
        None => 0,
    };
    let whole = paths.lengthen(raw.path.ok_or(SavedStateProblem::Missing("path"))?, depth)?;
    let mut chain = ChainReader::default();
    match raw.chain {
        Some(links) => chain.read_links(links)?,
        None => {
            let name = SavedNode::new(need(raw.node, "node")?.read_str()?)?;
            chain.push(name, read_tick(&mut need(raw.tick, "tick")?)?);
            match raw.prev {
                Some(prev) => chain.read_links(prev)?,
                None => chain.is_cut = true,
            }
        }
    }
    if chain.events.is_empty() {
        return Err(SavedStateProblem::NoChain);
    }
    let path = match Path::from_msgpack(whole) {
        Ok(path) => path,
        Err(e) => return Ok(SavedRecord::Unusable { offset, reason: e.into() }),
    };
    let value = match raw.value.map(Value::new).transpose() {
        Ok(value) => value,
        Err(e) => return Ok(SavedRecord::Unusable { offset, reason: e.into() }),
    };
    let (chain, is_chain_cut) = (chain.events, chain.is_cut);
    Ok(SavedRecord::Entry(SavedEntry { offset, path, value, chain, is_chain_cut, tock }))
}

/// A chain as it is read: cut to what a chain may be here.
#[derive(Default)]
struct ChainReader {
    events: Vec<(SavedNode, Tick)>,
    is_cut: bool,
}

impl ChainReader {
    fn push(&mut self, node: SavedNode, tick: Tick) {
        if self.events.len() >= CHAIN_LEN_MAX {
            self.is_cut = true;
        } else if !self.events.iter().any(|(known, _)| *known == node) {
            self.events.push((node, tick));
        }
    }

    /// Reads nested maps `{node, tick, prev}`. They nest no deeper than the record may.
    fn read_links(&mut self, links: &[u8]) -> Result<(), SavedStateProblem> {
        let mut next = Some(links);
        while let Some(link) = next.take() {
            let mut reader = Reader::new(link);
            if reader.take_nil() {
                return Ok(());
            }
            let (mut node, mut tick, mut prev) = (None, None, None);
            for _ in 0..reader.read_map_len()? {
                let key = reader.read_str_bytes()?;
                let value = Some(reader.read_raw()?);
                match key {
                    b"node" => node = value,
                    b"tick" => tick = value,
                    b"prev" => prev = value,
                    _ => {}
                }
            }
            let name = SavedNode::new(need(node, "node")?.read_str()?)?;
            self.push(name, read_tick(&mut need(tick, "tick")?)?);
            self.is_cut |= prev.is_none();
            next = prev;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
