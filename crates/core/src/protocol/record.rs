//! The change record: one version of an entry as it travels between nodes (and, later, as it
//! is written to disk). Self-contained, so that one encoded body serves every peer.
//!
//! A MessagePack map with small integer keys in rising order:
//!
//! | key | content |
//! |---|---|
//! | 0 | path: binary, canonical elements one after the other |
//! | 1 | tock |
//! | 2 | chain: array of events, newest first; a trailing nil means that it was cut off. The newest one may have a fourth element: when it was made, milliseconds since 1970 |
//! | 3 | value: one MessagePack value; left out for a deletion |
//! | 4 | origin: an event; only in a re-issue (docs/replication-rules.md, "State") |
//! | 5 | write id: 16 bytes, chosen by the client ([`crate::model::write_id`]); kept as if unknown |
//! | 6 | reserved: owner |
//! | 7 | what the chain leaves out ([`crate::model::left_out`]); kept as if unknown |
//! | 8… | unknown to this version |
//!
//! An event is `[name, incarnation, tick]`; further elements are ignored. Keys from 5 on are kept and
//! forwarded verbatim, so that old and new nodes can run side by side.
//!
//! The time is no field of its own, because a node that does not know it would keep it among its further
//! fields, and they are compared between nodes (replication rule 10). As an element of the event, such a node
//! ignores it and passes the change on without it. So does this version with what is no time.

use std::fmt;

use smallvec::SmallVec;

use crate::model::chain::Chain;
use crate::model::change_time::ChangeTime;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Incarnation, NodeId, NodeName, NodeTable, Tick, Tock};
use crate::model::invariant::OrBroken;
use crate::model::limits::{CHAIN_LEN_MAX, RECORD_EXTRA_BYTES_MAX};
use crate::model::path::{Path, PathError};
use crate::model::spelling::LifeRef;
use crate::model::value::{
    ReadError, Reader, SkipLimits, write_array_len, write_bin, write_map_len, write_nil, write_str,
    write_u64,
};

/// The first key that is passed on as it came, whatever is in it.
const EXTRA_FROM: u64 = 5;
/// Most keys of a record; there is no use for more, and extra keys cost memory in every entry.
const KEYS_MAX: usize = 32;

/// Why bytes are no change record. Nothing was kept of them.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// Not the MessagePack that belongs there.
    #[error("bad change record: {0}")]
    Read(#[from] ReadError),
    /// The path is not canonical or breaks a limit.
    #[error("bad path in a change record: {0}")]
    Path(#[from] PathError),
    /// A tick or tock of 2^62 or above, or a tick of 0.
    #[error("a change record has the counter {0}, which is out of range")]
    Counter(u64),
    /// A node name that no node can have.
    #[error("a change record names the node {0:?}, which is no valid name")]
    Name(String),
    /// A chain without events or with too many of them.
    #[error("a change record has a chain of {0} events; 1 to {CHAIN_LEN_MAX} are allowed")]
    ChainLength(usize),
    /// A field that must be there is not.
    #[error("a change record lacks its {0}")]
    Missing(&'static str),
    /// The keys are not rising, or there are too many.
    #[error("a change record has keys that repeat, fall or are too many")]
    Keys,
    /// The fields unknown to this version are too long.
    #[error(
        "a change record carries {0} bytes of unknown fields; at most {RECORD_EXTRA_BYTES_MAX} are allowed"
    )]
    ExtraTooLong(usize),
}

/// One event as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRef<'a> {
    /// A valid node name.
    pub name: &'a str,
    /// Which of the node's lives.
    pub incarnation: Incarnation,
    /// From 1.
    pub tick: Tick,
}

/// As events are spelled everywhere.
impl fmt::Display for EventRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = LifeRef { name: self.name, incarnation: self.incarnation };
        life.event(self.tick.get()).fmt(f)
    }
}

impl EventRef<'_> {
    /// The event in local form; an incarnation that is new here is added. `None` when the
    /// table is full.
    pub(crate) fn intern(&self, table: &mut NodeTable) -> Option<Event> {
        let node = match table.find(self.name, self.incarnation) {
            Some(node) => node,
            None => table.intern(&NodeId {
                name: NodeName::new(self.name).ok()?,
                incarnation: self.incarnation,
            })?,
        };
        Some(Event { node, tick: self.tick })
    }
}

/// A checked change record that borrows from the bytes it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Record<'a> {
    /// Where.
    pub path: Path,
    /// The change's tock.
    pub tock: Tock,
    /// The chain, newest first; 1 to [`CHAIN_LEN_MAX`] events.
    pub events: SmallVec<[EventRef<'a>; 2]>,
    /// Whether older events of the chain were dropped.
    pub chain_cut: bool,
    /// When the change was made, if its maker told it; for people.
    pub time: Option<ChangeTime>,
    /// One MessagePack value; none for a deletion.
    pub value: Option<&'a [u8]>,
    /// Only in a re-issue.
    pub origin: Option<EventRef<'a>>,
    /// A count byte and the unknown fields' keys and values; empty if there are none.
    pub extra: SmallVec<[u8; 0]>,
}

impl<'a> Record<'a> {
    /// Reads one record; afterwards the reader is positioned after it.
    ///
    /// # Errors
    /// [`RecordError`] says what is wrong.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, RecordError> {
        let keys = reader.read_map_len()?;
        if keys > KEYS_MAX {
            return Err(RecordError::Keys);
        }
        let (mut path, mut tock, mut chain, mut value, mut origin) = (None, None, None, None, None);
        let mut extra = SmallVec::new();
        let mut next_key = 0;
        for at in 0..keys {
            let before = reader.rest();
            let key = reader.read_u64()?;
            if key < next_key {
                return Err(RecordError::Keys);
            }
            next_key = key.checked_add(1).ok_or(RecordError::Keys)?;
            match key {
                0 => path = Some(Path::from_canonical(reader.read_bin()?)?),
                1 => tock = Some(read_tock(reader)?),
                2 => chain = Some(read_chain(reader)?),
                3 => value = Some(reader.read_raw_within(SkipLimits::VALUE)?),
                4 => origin = Some(read_event(reader)?),
                _ => {
                    for _ in at + 1..keys {
                        reader.skip()?;
                        let following = reader.read_u64()?;
                        if following < next_key {
                            return Err(RecordError::Keys);
                        }
                        next_key = following.checked_add(1).ok_or(RecordError::Keys)?;
                    }
                    reader.skip()?;
                    let length = before.len() - reader.rest().len();
                    if length > RECORD_EXTRA_BYTES_MAX {
                        return Err(RecordError::ExtraTooLong(length));
                    }
                    extra.push((keys - at) as u8);
                    let fields = before.get(..length);
                    extra.extend_from_slice(fields.or_broken("what was read was there"));
                    break;
                }
            }
        }
        let ReadChain { events, is_cut: chain_cut, time } =
            chain.ok_or(RecordError::Missing("chain"))?;
        Ok(Self {
            path: path.ok_or(RecordError::Missing("path"))?,
            tock: tock.ok_or(RecordError::Missing("tock"))?,
            events,
            chain_cut,
            time,
            value,
            origin,
            extra,
        })
    }

    /// The entry in local form; incarnations that are new here are added to the table. `None`
    /// when the table is full.
    pub(crate) fn to_entry(&self, table: &mut NodeTable) -> Option<Entry> {
        self.to_entry_with(None, |event| event.intern(table))
    }

    /// The entry in local form, its events translated by `resolve`; `None` if that returns `None`.
    /// `room`: see [`Entry::new_in`].
    pub(crate) fn to_entry_with(
        &self,
        room: Option<Entry>,
        mut resolve: impl FnMut(&EventRef<'a>) -> Option<Event>,
    ) -> Option<Entry> {
        let mut events: SmallVec<[Event; CHAIN_LEN_MAX]> = SmallVec::new();
        for event in &self.events {
            events.push(resolve(event)?);
        }
        let origin = match &self.origin {
            Some(origin) => Some(resolve(origin)?),
            None => None,
        };
        let chain = Chain::from_events(events, self.chain_cut);
        let chain = chain.or_broken("a record that was read has 1 to 8 events");
        let (value, tock, time, extra) = (self.value, self.tock, self.time, &self.extra);
        let parts = EntryParts { value, chain: &chain, tock, origin, time, extra };
        Some(Entry::new_in(room, &parts))
    }
}

fn read_tock(reader: &mut Reader<'_>) -> Result<Tock, RecordError> {
    let raw = reader.read_u64()?;
    Tock::new(raw).ok_or(RecordError::Counter(raw))
}

/// Reads `[name, incarnation, tick]`; more elements are ignored.
pub(super) fn read_event<'a>(reader: &mut Reader<'a>) -> Result<EventRef<'a>, RecordError> {
    Ok(read_timed_event(reader)?.0)
}

/// Reads an event and the time behind it. What is no time is ignored, as by nodes that know of none.
fn read_timed_event<'a>(
    reader: &mut Reader<'a>,
) -> Result<(EventRef<'a>, Option<ChangeTime>), RecordError> {
    let length = reader.read_array_len()?;
    if length < 3 {
        return Err(RecordError::Missing("event's name, incarnation and tick"));
    }
    let name = reader.read_str()?;
    if NodeName::check(name).is_err() {
        return Err(RecordError::Name(name.chars().take(80).collect()));
    }
    let incarnation = Incarnation(reader.read_u64()?);
    let raw = reader.read_u64()?;
    let tick = Tick::new(raw).filter(|t| t.get() > 0).ok_or(RecordError::Counter(raw))?;
    let (mut time, mut read) = (None, 3);
    if length > 3
        && let Ok(ms) = reader.read_u64()
    {
        (time, read) = (ChangeTime::new(ms), 4);
    }
    for _ in read..length {
        reader.skip()?;
    }
    Ok((EventRef { name, incarnation, tick }, time))
}

struct ReadChain<'a> {
    events: SmallVec<[EventRef<'a>; 2]>,
    is_cut: bool,
    /// Of the newest event; those of others are ignored.
    time: Option<ChangeTime>,
}

fn read_chain<'a>(reader: &mut Reader<'a>) -> Result<ReadChain<'a>, RecordError> {
    let length = reader.read_array_len()?;
    if length == 0 || length > CHAIN_LEN_MAX + 1 {
        return Err(RecordError::ChainLength(length));
    }
    let (mut events, mut time) = (SmallVec::new(), None);
    for at in 0..length {
        if at + 1 == length && reader.take_nil() {
            return if events.is_empty() {
                Err(RecordError::ChainLength(0))
            } else {
                Ok(ReadChain { events, is_cut: true, time })
            };
        }
        let (event, made) = read_timed_event(reader)?;
        if at == 0 {
            time = made;
        }
        events.push(event);
    }
    if events.len() > CHAIN_LEN_MAX {
        return Err(RecordError::ChainLength(events.len()));
    }
    Ok(ReadChain { events, is_cut: false, time })
}

/// Appends the record of a version, whose events are in the table's indices.
pub fn encode_record(path: &[u8], entry: &Entry, table: &NodeTable, out: &mut Vec<u8>) {
    let (extra_count, extra) = match entry.extra().split_first() {
        Some((count, rest)) => (usize::from(*count), rest),
        None => (0, &[][..]),
    };
    let origin = entry.reissue_of();
    let known = 3 + usize::from(entry.value().is_some()) + usize::from(origin.is_some());
    write_map_len(known + extra_count, out);
    write_u64(0, out);
    write_bin(path, out);
    write_u64(1, out);
    write_u64(entry.tock().get(), out);
    write_u64(2, out);
    write_array_len(entry.events().len() + usize::from(entry.is_chain_cut()), out);
    let mut time = entry.time();
    for event in entry.events() {
        write_event(event, time.take(), table, out);
    }
    if entry.is_chain_cut() {
        write_nil(out);
    }
    if let Some(value) = entry.value() {
        write_u64(3, out);
        out.extend_from_slice(value);
    }
    if let Some(origin) = origin {
        write_u64(4, out);
        write_event(origin, None, table, out);
    }
    out.extend_from_slice(extra);
}

fn write_event(event: Event, time: Option<ChangeTime>, table: &NodeTable, out: &mut Vec<u8>) {
    write_array_len(3 + usize::from(time.is_some()), out);
    let id = table.id(event.node);
    write_str(id.name.as_str(), out);
    write_u64(id.incarnation.0, out);
    write_u64(event.tick.get(), out);
    if let Some(time) = time {
        write_u64(time.ms(), out);
    }
}

/// Whether bytes from a file could be the unknown fields of a change: a count, and as many keys and
/// values. They are passed on to peers unchanged.
#[must_use]
pub(crate) fn is_extra(extra: &[u8]) -> bool {
    let Some((count, rest)) = extra.split_first() else { return true };
    let (mut reader, mut key_min) = (Reader::new(rest), EXTRA_FROM);
    for _ in 0..*count {
        match reader.read_u64() {
            Ok(key) if key >= key_min => key_min = key.saturating_add(1),
            _ => return false,
        }
        if reader.skip().is_err() {
            return false;
        }
    }
    reader.is_at_end() && rest.len() <= RECORD_EXTRA_BYTES_MAX
}

const _: () = assert!(EXTRA_FROM == 5, "decode's match takes every key from 5 on as extra");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(name: &str) -> NodeId {
        NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(u64::MAX) }
    }

    fn sample(value: Option<&[u8]>, origin: bool, cut: bool) -> (Vec<u8>, NodeTable, Entry) {
        timed_sample(value, origin, cut, None)
    }

    fn timed_sample(
        value: Option<&[u8]>,
        origin: bool,
        cut: bool,
        time: Option<u64>,
    ) -> (Vec<u8>, NodeTable, Entry) {
        let mut table = NodeTable::new();
        let (a, b) = (table.intern(&id("a")).unwrap(), table.intern(&id("b")).unwrap());
        let event = |node, tick| Event { node, tick: Tick::new(tick).unwrap() };
        let chain = Chain::from_events([event(a, 300), event(b, 2)], cut).unwrap();
        let entry = Entry::new(&EntryParts {
            value,
            chain: &chain,
            tock: Tock::new(1 << 40).unwrap(),
            origin: origin.then(|| event(b, 7)),
            time: time.and_then(ChangeTime::new),
            extra: &[],
        });
        let path: Path = "a.b".parse().unwrap();
        let mut bytes = Vec::new();
        encode_record(path.as_bytes(), &entry, &table, &mut bytes);
        (bytes, table, entry)
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        for value in [None, Some(&[0xc0][..]), Some(&[0xc7, 1, 99, 5][..])] {
            for (origin, cut) in [(false, false), (true, false), (false, true), (true, true)] {
                for time in [None, Some(0), Some(1_795_000_000_123)] {
                    let (bytes, mut table, entry) = timed_sample(value, origin, cut, time);
                    let mut reader = Reader::new(&bytes);
                    let record = Record::decode(&mut reader).unwrap();
                    assert!(reader.is_at_end());
                    assert_eq!(record.path, "a.b".parse().unwrap());
                    assert_eq!(record.time.map(ChangeTime::ms), time);
                    assert_eq!(record.to_entry(&mut table), Some(entry));
                }
            }
        }
    }

    /// The record of a version with a time, the bytes of which were replaced.
    fn with_time_as(bytes: &[u8]) -> Vec<u8> {
        let (record, ..) = timed_sample(Some(&[1]), true, true, Some(1_795_000_000_123));
        let time = 1_795_000_000_123_u64.to_be_bytes_marked();
        let at = record.windows(time.len()).position(|window| window == time).unwrap();
        let [before, after] = [&record[..at], &record[at + time.len()..]];
        [before, bytes, after].concat()
    }

    #[test]
    fn what_is_no_time_is_ignored_and_the_change_is_taken_without_one() {
        let (plain, mut table, entry) = sample(Some(&[1]), true, true);
        let far = [0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        let others: [&[u8]; 7] =
            [&far, &[0xff], &[0xc0], b"\xa3now", &[0x93, 1, 2, 3], &[0xca, 0, 0, 0, 0], &[0xc1]];
        for time in others {
            let bytes = with_time_as(time);
            let mut reader = Reader::new(&bytes);
            let Ok(record) = Record::decode(&mut reader) else {
                assert_eq!(time, [0xc1], "that is no MessagePack");
                continue;
            };
            assert!(reader.is_at_end());
            assert_eq!((record.time, record.to_entry(&mut table)), (None, Some(entry.clone())));
            let mut again = Vec::new();
            encode_record(record.path.as_bytes(), &entry, &table, &mut again);
            assert_eq!(again, plain, "it is not passed on");
        }
    }

    #[test]
    fn the_time_is_a_further_element_of_the_newest_event_which_older_versions_skip() {
        let (timed, ..) = timed_sample(Some(&[1]), true, true, Some(5));
        let (plain, ..) = sample(Some(&[1]), true, true);
        let head = [0x93, 0xa1, b'a', 0xcf, 255, 255, 255, 255, 255, 255, 255, 255, 0xcd, 1, 44];
        let at = plain.windows(head.len()).position(|window| window == head).unwrap();
        let mut expected = plain.clone();
        expected[at] = 0x94;
        expected.insert(at + head.len(), 5);
        assert_eq!(timed, expected);
        // A time behind an older event, or behind the origin, is nobody's.
        let others: Vec<usize> =
            (0..plain.len()).filter(|at| plain[*at..].starts_with(b"\x93\xa1b")).collect();
        assert_eq!(others.len(), 2);
        for at in others {
            let mut bytes = plain.clone();
            bytes[at] = 0x94;
            bytes.insert(at + 13, 9);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Record::decode(&mut reader).unwrap().time, None);
            assert!(reader.is_at_end());
        }
    }

    #[test]
    fn fields_of_a_later_version_are_kept_and_forwarded_verbatim() {
        let (mut bytes, mut table, _) = sample(Some(&[1]), false, false);
        bytes[0] += 2; // two more keys in the fixmap
        bytes.extend_from_slice(&[5, 0xc4, 2, 8, 9, 17, 0x81, 1, 2]);
        let record = Record::decode(&mut Reader::new(&bytes)).unwrap();
        let entry = record.to_entry(&mut table).unwrap();
        let mut again = Vec::new();
        encode_record(record.path.as_bytes(), &entry, &table, &mut again);
        assert_eq!(again, bytes);
    }

    #[test]
    fn absurd_counters_are_refused() {
        let (bytes, _, _) = sample(None, false, false);
        let tock_at =
            bytes.windows(9).position(|w| w == (1u64 << 40).to_be_bytes_marked()).unwrap();
        let mut bad = bytes.clone();
        bad[tock_at + 1..tock_at + 9].copy_from_slice(&(1u64 << 62).to_be_bytes());
        assert_eq!(Record::decode(&mut Reader::new(&bad)), Err(RecordError::Counter(1 << 62)));
    }

    trait Marked {
        fn to_be_bytes_marked(self) -> [u8; 9];
    }

    impl Marked for u64 {
        fn to_be_bytes_marked(self) -> [u8; 9] {
            let mut out = [0xcf; 9];
            out[1..].copy_from_slice(&self.to_be_bytes());
            out
        }
    }

    #[test]
    fn repeated_or_falling_keys_are_refused() {
        assert_eq!(Record::decode(&mut Reader::new(&[0x82, 1, 5, 1, 5])), Err(RecordError::Keys));
        assert_eq!(Record::decode(&mut Reader::new(&[0x80])), Err(RecordError::Missing("chain")));
    }

    proptest! {
        #[test]
        fn damaged_records_are_refused_or_read_but_never_panic(
            at in 0usize..64, byte: u8, cut in 0usize..64,
        ) {
            let (mut bytes, mut table, _) = sample(Some(&[0x92, 1, 0xa1, b'x']), true, true);
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(length - cut % length);
            if let Ok(record) = Record::decode(&mut Reader::new(&bytes)) {
                let _ = record.to_entry(&mut table);
            }
        }
    }
}
