//! One version of an entry: value (or none: a tombstone), chain, tock, the origin that a
//! re-issue carries, and when it was made. Packed into one shared allocation, because a node holds millions of them.

use std::cmp::Ordering;
use std::fmt;

use smallvec::SmallVec;

use super::shared_bytes::{SHARED_BYTES_HEAD, SharedBytes};
use crate::chain::Chain;
use crate::change_time::ChangeTime;
use crate::ids::{Event, NodeIndex, NodeTable, Tick, Tock};
use crate::invariant::{OrBroken, invariant};

const HAS_VALUE: u8 = 1;
const HAS_ORIGIN: u8 = 2;
const CHAIN_CUT: u8 = 4;
const HAS_TIME: u8 = 8;

/// Bytes before the events: tock (8), flags (1), chain length (1), the time's upper half (2), value length (4).
const HEADER: usize = 16;
/// Bytes of the rest of a time, behind the events.
const TIME: usize = 4;
/// Bytes of one event: node index (4), tick (8).
const EVENT: usize = 12;
/// Entries of up to this many bytes are assembled on the stack, so that only the final bytes are
/// allocated.
const PACKED_IN_PLACE: usize = 512;
/// Bytes that come into the processor's caches together.
const CACHE_LINE: usize = 64;
/// What [`Entry`]'s layout says: whatever is read from one was put there by [`Entry::new`].
const PACKED: &str = "an entry holds all that its layout says";
/// Of a long value the processor sees by itself that one line is read after the other.
const TOUCHED_LINES: usize = 4;

/// One version of an entry. Immutable; a clone shares the allocation.
///
/// Layout, little endian: `tock u64 | flags u8 | events u8 | time u16 | value length u32 |
/// events (u32 node, u64 tick)* | origin (if any) | time u32 (if there is one) | value | extra`.
/// The time's upper 16 bits come first, 0 if there is none.
///
/// Two entries are equal if all of that is. No rule asks for it: they compare versions with
/// [`Entry::compare`], and nodes compare [`Entry::content_tail`] and what else identifies a version, never the time.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    data: SharedBytes,
}

/// What an [`Entry`] is made of.
#[derive(Clone, Debug)]
pub struct EntryParts<'a> {
    /// One MessagePack value as raw bytes, already checked; none for a tombstone.
    pub value: Option<&'a [u8]>,
    /// The events that last changed the entry.
    pub chain: &'a Chain,
    /// The change's tock.
    pub tock: Tock,
    /// Only for a re-issue: the event that first brought its value (docs/replication-rules.md, "State").
    pub origin: Option<Event>,
    /// When the change was made, if its maker told it. For people only.
    pub time: Option<ChangeTime>,
    /// Fields of the change record that this version does not know, kept verbatim.
    pub extra: &'a [u8],
}

/// Writes an entry's bytes to their place, which has their length.
fn pack(parts: &EntryParts<'_>, place: &mut [u8]) {
    let (value, events) = (parts.value.unwrap_or_default(), parts.chain.events());
    let mut flags = 0;
    flags |= if parts.value.is_some() { HAS_VALUE } else { 0 };
    flags |= if parts.origin.is_some() { HAS_ORIGIN } else { 0 };
    flags |= if parts.chain.is_cut() { CHAIN_CUT } else { 0 };
    flags |= if parts.time.is_some() { HAS_TIME } else { 0 };
    let (time_upper, time_lower) = parts.time.map_or((0, 0), ChangeTime::parts);
    let mut rest = place;
    // In few pieces: each costs more than its bytes.
    let sizes = u64::from(flags)
        | (events.len() as u64 & 0xff) << 8
        | u64::from(time_upper) << 16
        | (value.len() as u64) << 32;
    put(&mut rest, &parts.tock.get().to_le_bytes());
    put(&mut rest, &sizes.to_le_bytes());
    for event in events.iter().chain(parts.origin.iter()) {
        put(&mut rest, &event.node.0.to_le_bytes());
        put(&mut rest, &event.tick.get().to_le_bytes());
    }
    if parts.time.is_some() {
        put(&mut rest, &time_lower.to_le_bytes());
    }
    put(&mut rest, value);
    put(&mut rest, parts.extra);
}

/// Writes some bytes where `rest` begins, and lets it begin behind them.
#[inline]
fn put(rest: &mut &mut [u8], bytes: &[u8]) {
    let place = rest.split_off_mut(..bytes.len()).or_broken(PACKED);
    place.copy_from_slice(bytes);
}

impl Entry {
    /// Packs an entry. The value is the caller's to have checked (at most 4 GiB here; the
    /// protocol's limit is far below).
    #[must_use]
    pub fn new(parts: &EntryParts<'_>) -> Self {
        Self::new_in(None, parts)
    }

    /// As [`Entry::new`], but in the memory of another entry, if nobody else holds it and its
    /// length is the same.
    #[must_use]
    pub fn new_in(room: Option<Self>, parts: &EntryParts<'_>) -> Self {
        let value = parts.value.unwrap_or_default();
        invariant!(u32::try_from(value.len()).is_ok(), "a value has less than 4 GiB");
        let origin_len = if parts.origin.is_some() { EVENT } else { 0 };
        let time_len = if parts.time.is_some() { TIME } else { 0 };
        let events_len = parts.chain.events().len() * EVENT;
        let len = HEADER + events_len + origin_len + time_len + value.len() + parts.extra.len();
        if let Some(mut room) = room
            && room.data.overwrite(len, |place| pack(parts, place))
        {
            return room;
        }
        let mut data = SmallVec::<[u8; PACKED_IN_PLACE]>::from_elem(0, len);
        pack(parts, &mut data);
        Self { data: SharedBytes::from(data.as_slice()) }
    }

    /// Starts to load the entry's bytes into the processor's caches, without waiting for them.
    #[inline]
    #[must_use]
    pub fn touch(&self) -> u8 {
        let last = self.data.last().copied().unwrap_or_default();
        self.data.iter().step_by(CACHE_LINE).take(TOUCHED_LINES).fold(last, |all, byte| all ^ byte)
    }

    #[inline]
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.data.get(at..).and_then(<[u8]>::first_chunk);
        *bytes.or_broken(PACKED)
    }

    #[inline]
    fn flag(&self, flag: u8) -> bool {
        let [flags] = self.bytes(8);
        flags & flag != 0
    }

    #[inline]
    fn event_count(&self) -> usize {
        let [count] = self.bytes(9);
        usize::from(count)
    }

    #[inline]
    fn event_at(&self, at: usize) -> Event {
        Event {
            node: NodeIndex(u32::from_le_bytes(self.bytes(at))),
            tick: Tick::new(u64::from_le_bytes(self.bytes(at + 4))).or_broken(PACKED),
        }
    }

    /// Where the time is, or would be.
    #[inline]
    fn time_at(&self) -> usize {
        let origin = if self.flag(HAS_ORIGIN) { EVENT } else { 0 };
        HEADER + self.event_count() * EVENT + origin
    }

    #[inline]
    fn value_range(&self) -> std::ops::Range<usize> {
        let from = self.time_at() + if self.flag(HAS_TIME) { TIME } else { 0 };
        from..from + u32::from_le_bytes(self.bytes(12)) as usize
    }

    /// The change's tock.
    #[inline]
    #[must_use]
    pub fn tock(&self) -> Tock {
        Tock::new(u64::from_le_bytes(self.bytes(0))).or_broken(PACKED)
    }

    /// The value as raw MessagePack; none for a tombstone.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.flag(HAS_VALUE).then(|| self.data.get(self.value_range()).or_broken(PACKED))
    }

    /// Whether the entry is deleted.
    #[inline]
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        !self.flag(HAS_VALUE)
    }

    /// The event that made this version.
    #[inline]
    #[must_use]
    pub fn newest(&self) -> Event {
        self.event_at(HEADER)
    }

    /// The events of the chain, newest first.
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event> + '_ {
        (0..self.event_count()).map(|i| self.event_at(HEADER + i * EVENT))
    }

    /// Whether the chain lost older events at its bound.
    #[must_use]
    pub fn is_chain_cut(&self) -> bool {
        self.flag(CHAIN_CUT)
    }

    /// The chain, unpacked.
    #[must_use]
    pub fn chain(&self) -> Chain {
        Chain::from_events(self.events(), self.is_chain_cut()).or_broken(PACKED)
    }

    /// The field that only a re-issue has.
    #[inline]
    #[must_use]
    pub fn reissue_of(&self) -> Option<Event> {
        let at = HEADER + self.event_count() * EVENT;
        self.flag(HAS_ORIGIN).then(|| self.event_at(at))
    }

    /// The event that first brought the value: the newest one where no other is named
    /// (docs/replication-rules.md, "State", origin).
    #[inline]
    #[must_use]
    pub fn origin(&self) -> Event {
        self.reissue_of().unwrap_or_else(|| self.newest())
    }

    /// When the change was made that brought the value, or deleted it, by its maker's clock; none if nobody told it.
    /// For people only.
    #[inline]
    #[must_use]
    pub fn time(&self) -> Option<ChangeTime> {
        self.flag(HAS_TIME).then(|| {
            let upper = u16::from_le_bytes(self.bytes(10));
            ChangeTime::of_parts(upper, u32::from_le_bytes(self.bytes(self.time_at())))
        })
    }

    /// Fields of the change record that this version does not know.
    #[inline]
    #[must_use]
    pub fn extra(&self) -> &[u8] {
        self.data.get(self.value_range().end..).or_broken(PACKED)
    }

    /// Bytes of the value; 0 of a tombstone.
    #[inline]
    #[must_use]
    pub fn value_len(&self) -> usize {
        u32::from_le_bytes(self.bytes(12)) as usize
    }

    /// The value and, right behind it, [`Entry::extra`]: everything of a version that does not depend on a node
    /// table. The time is not in it.
    #[inline]
    #[must_use]
    pub fn content_tail(&self) -> &[u8] {
        self.data.get(self.value_range().start..).or_broken(PACKED)
    }

    /// What watchers receive for a value that left the tree without an event (replication rule 4a):
    /// a tombstone with the same chain, tock and origin, and no time, since nobody knows when it was deleted. It is
    /// never put into a tree.
    #[must_use]
    pub fn without_value(&self) -> Self {
        Self::new(&EntryParts {
            value: None,
            chain: &self.chain(),
            tock: self.tock(),
            origin: self.reissue_of(),
            time: None,
            extra: &[],
        })
    }

    /// The same version in the indices of another node table; `None` where `translate` has
    /// none for an event.
    pub fn translated(&self, mut translate: impl FnMut(Event) -> Option<Event>) -> Option<Self> {
        let mut events = smallvec::SmallVec::<[Event; 4]>::new();
        for event in self.events() {
            events.push(translate(event)?);
        }
        let origin = match self.reissue_of() {
            Some(origin) => Some(translate(origin)?),
            None => None,
        };
        let chain = Chain::from_events(events, self.is_chain_cut()).or_broken(PACKED);
        let (value, tock, time, extra) = (self.value(), self.tock(), self.time(), self.extra());
        Some(Self::new(&EntryParts { value, chain: &chain, tock, origin, time, extra }))
    }

    /// Bytes that the entry takes in memory, without its path.
    #[inline]
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.data.len() + SHARED_BYTES_HEAD
    }

    /// `covers(w, l)` of docs/replication-rules.md, "State": this entry's chain names the other's newest
    /// event or its origin, or a later event of that incarnation.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let (newest, origin) = (other.newest(), other.origin());
        self.covers_event(newest) || (origin != newest && self.covers_event(origin))
    }

    /// Whether this entry's chain names an event, or a later one of its incarnation.
    #[inline]
    #[must_use]
    pub fn covers_event(&self, event: Event) -> bool {
        self.events().any(|e| e.node == event.node && e.tick >= event.tick)
    }

    /// Replication rule 1: versions are ordered by (tock, name, incarnation, tick). Total, so ties never
    /// depend on arrival.
    #[must_use]
    pub fn compare(&self, other: &Self, table: &NodeTable) -> Ordering {
        self.tock()
            .cmp(&other.tock())
            .then_with(|| table.compare_events(self.newest(), other.newest()))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("tock", &self.tock().get())
            .field("chain", &self.chain())
            .field("value", &self.value())
            .field("origin", &self.reissue_of())
            .field("time", &self.time())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::entry::*;

    fn event(node: u32, tick: u64) -> Event {
        Event { node: NodeIndex(node), tick: Tick::new(tick).unwrap() }
    }

    fn entry(events: &[Event], origin: Option<Event>, value: Option<&[u8]>, tock: u64) -> Entry {
        let chain = Chain::from_events(events.iter().copied(), true).unwrap();
        let tock = Tock::new(tock).unwrap();
        Entry::new(&EntryParts { value, chain: &chain, tock, origin, time: None, extra: b"xy" })
    }

    fn timed(entry: &Entry, ms: u64) -> Entry {
        Entry::new(&EntryParts {
            value: entry.value(),
            chain: &entry.chain(),
            tock: entry.tock(),
            origin: entry.reissue_of(),
            time: ChangeTime::new(ms),
            extra: entry.extra(),
        })
    }

    #[test]
    fn an_entry_gives_back_what_it_was_made_of() {
        for value in [None, Some(&[0xc0][..]), Some(&[0xa1, b'x'][..])] {
            for origin in [None, Some(event(9, 8))] {
                let events = [event(1, 7), event(2, 3)];
                let e = entry(&events, origin, value, 77);
                assert_eq!(e.value(), value);
                assert_eq!(e.is_tombstone(), value.is_none());
                assert_eq!(e.events().collect::<Vec<_>>(), events);
                assert_eq!(e.reissue_of(), origin);
                assert_eq!(e.origin(), origin.unwrap_or(event(1, 7)));
                assert_eq!((e.tock().get(), e.extra()), (77, &b"xy"[..]));
                assert!(e.is_chain_cut() && e.chain().is_cut());
            }
        }
    }

    #[test]
    fn a_time_takes_four_bytes_and_changes_nothing_else() {
        for value in [None, Some(&[0xc0][..])] {
            for origin in [None, Some(event(9, 8))] {
                let plain = entry(&[event(1, 7), event(2, 3)], origin, value, 77);
                assert_eq!(plain.time(), None);
                for ms in [0, 5, 1_795_000_000_123, 253_370_764_799_999] {
                    let timed = timed(&plain, ms);
                    assert_eq!(timed.time().map(ChangeTime::ms), Some(ms));
                    assert_eq!(timed.memory_bytes(), plain.memory_bytes() + 4);
                    assert_eq!((timed.value(), timed.extra()), (plain.value(), plain.extra()));
                    assert_eq!((timed.chain(), timed.tock()), (plain.chain(), plain.tock()));
                    assert_eq!(timed.reissue_of(), plain.reissue_of());
                    assert_eq!(timed.content_tail(), plain.content_tail());
                    assert_eq!(timed.translated(Some), Some(timed.clone()));
                    assert_eq!(timed.without_value().time(), None);
                }
            }
        }
    }

    #[test]
    fn what_stands_for_a_dropped_value_differs_in_the_value_alone() {
        let value = entry(&[event(1, 7), event(2, 3)], Some(event(9, 8)), Some(&[0xc0]), 77);
        let gone = value.without_value();
        assert_eq!((gone.value(), gone.tock()), (None, value.tock()));
        assert_eq!((gone.chain(), gone.reissue_of()), (value.chain(), value.reissue_of()));
    }

    #[test]
    fn a_version_covers_what_its_chain_names_also_by_origin() {
        let newer = entry(&[event(1, 7), event(2, 3)], None, None, 9);
        assert!(newer.covers(&entry(&[event(2, 3)], None, None, 5)));
        assert!(newer.covers(&entry(&[event(2, 1)], None, None, 5)));
        assert!(!newer.covers(&entry(&[event(2, 4)], None, None, 5)));
        let reissue = entry(&[event(4, 1)], Some(event(2, 2)), None, 10);
        assert!(newer.covers(&reissue));
    }
}
