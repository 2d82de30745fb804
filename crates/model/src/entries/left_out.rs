//! What an entry's chain leaves out: the oldest event that each of its events stands for, and the
//! place in the chain below which everything had been deleted.
//!
//! A chain names each incarnation once. If a node has overwritten its own change, the newer event
//! stands for the older one; so a node that has seen only the older one, and purged its deletion,
//! would not find it in the chain. And a chain does not say which of its events were deletions.
//! Both facts are kept among the change record's further fields.

use smallvec::{SmallVec, smallvec};

use crate::chain::ChainBound;
use crate::entry::Entry;
use crate::ids::{Event, Tick};
use crate::limits::CHAIN_LEN_MAX;
use crate::value::Reader;

/// The key of the field: an array with a number for each event of the chain, beginning with the
/// newest, as far as needed. The number says how many ticks back the oldest event of the same
/// incarnation is that this event stands for. A nil behind the numbers means that the state before
/// these events had been deleted, and that the maker of the version knew it.
const KEY: u8 = 7;
/// Room for a key, a head, a nil, and nine bytes for each number.
const FIELD_BYTES_MAX: usize = 96;

/// See the module.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LeftOut {
    /// Per event of the chain, at most [`CHAIN_LEN_MAX`].
    back: SmallVec<[u64; CHAIN_LEN_MAX]>,
    /// Below the last event of `back` there was a deletion.
    ends_at_deletion: bool,
}

/// All events that a node accounts for when it takes an entry: those of its chain, and the oldest
/// that each of them stands for. That one was at the same path and has certainly been overwritten;
/// a node that knows it recognises another version on top of it that comes back after a purge.
pub fn accounted_events(entry: &Entry) -> impl Iterator<Item = Event> {
    let left_out = LeftOut::of(entry);
    let with_oldest = move |(at, event)| [Some(event), left_out.oldest(at, event)];
    entry.events().enumerate().flat_map(with_oldest).flatten()
}

impl LeftOut {
    /// Of an entry; empty if its field is absent, or is nothing that this version knows.
    #[must_use]
    pub fn of(entry: &Entry) -> Self {
        field(entry.extra()).and_then(read).unwrap_or_default()
    }

    /// Of a new version with this event, made on top of an older one.
    #[must_use]
    pub fn on_top_of(old: &Entry, event: Event, bound: ChainBound) -> Self {
        if old.is_tombstone() {
            return Self { back: smallvec![0], ends_at_deletion: true };
        }
        let before = Self::of(old);
        let mut back: SmallVec<[u64; CHAIN_LEN_MAX]> = smallvec![0];
        let mut own = 0;
        for (at, other) in old.events().enumerate() {
            if before.is_before_deletion(at) {
                break;
            }
            let further = before.back.get(at).copied().unwrap_or(0);
            if other.node != event.node {
                back.push(further);
            } else {
                own = event.tick.get().saturating_sub(other.tick.get()).saturating_add(further);
            }
        }
        if let Some(first) = back.first_mut() {
            *first = own;
        }
        back.truncate(bound.get());
        while !before.ends_at_deletion && back.last() == Some(&0) {
            back.pop();
        }
        Self { back, ends_at_deletion: before.ends_at_deletion }
    }

    /// The oldest event for which the one at this place of the chain stands, if that is another one.
    #[must_use]
    pub fn oldest(&self, at: usize, event: Event) -> Option<Event> {
        let back = self.back.get(at).copied().filter(|back| *back > 0)?;
        let tick = Tick::new(event.tick.get().checked_sub(back)?)?;
        (tick > Tick::default()).then_some(Event { tick, ..event })
    }

    /// Whether the event at this place of the chain was deleted by one of those above it.
    #[must_use]
    pub fn is_before_deletion(&self, at: usize) -> bool {
        self.ends_at_deletion && at >= self.back.len()
    }

    /// Whether the version was made on top of a deletion, as far as it tells.
    #[must_use]
    pub fn has_deletion(&self) -> bool {
        self.ends_at_deletion
    }

    fn is_empty(&self) -> bool {
        self.back.is_empty() && !self.ends_at_deletion
    }

    /// An entry's further fields with these instead of those that they had.
    #[must_use]
    pub fn put_into(&self, extra: &[u8]) -> SmallVec<[u8; 36]> {
        if self.is_empty() && field(extra).is_none() {
            return SmallVec::from_slice(extra);
        }
        let mut fields = SmallVec::<[u8; 36]>::from_slice(&[0]);
        let mut is_in = self.is_empty();
        for (key, field) in fields_of(extra) {
            if key > u64::from(KEY) && !is_in {
                self.write(&mut fields);
                is_in = true;
            }
            if key != u64::from(KEY) {
                add(&mut fields, field);
            }
        }
        if !is_in {
            self.write(&mut fields);
        }
        if fields.len() == 1 {
            fields.clear();
        }
        fields
    }

    fn write(&self, fields: &mut SmallVec<[u8; 36]>) {
        let mut field = SmallVec::<[u8; FIELD_BYTES_MAX]>::new();
        let count = self.back.len() + usize::from(self.ends_at_deletion);
        // At most nine elements: the short form of an array.
        field.extend_from_slice(&[KEY, 0x90 | count as u8]);
        for back in &self.back {
            write_number(*back, &mut field);
        }
        if self.ends_at_deletion {
            field.push(0xc0);
        }
        add(fields, &field);
    }
}

/// Without an allocation, unlike [`crate::value::write_u64`].
fn write_number<const N: usize>(number: u64, out: &mut SmallVec<[u8; N]>)
where
    [u8; N]: smallvec::Array<Item = u8>,
{
    let bytes = number.to_be_bytes();
    let [.., last] = bytes;
    let (head, length) = match number {
        0..=0x7f => return out.push(last),
        0x80..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        _ => (0xcf, 8),
    };
    out.push(head);
    out.extend_from_slice(bytes.get(bytes.len() - length..).unwrap_or_default());
}

/// One more of an entry's further fields, which begin with their count.
fn add(fields: &mut SmallVec<[u8; 36]>, field: &[u8]) {
    fields.extend_from_slice(field);
    if let Some(count) = fields.first_mut() {
        *count = count.saturating_add(1);
    }
}

/// Each of the further fields: its key, and all of its bytes, including the key's. Ends early at
/// malformed fields, which checked ones never are.
fn fields_of(extra: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = extra.get(1..).unwrap_or_default();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut reader = Reader::new(rest);
        let key = reader.read_u64().ok()?;
        reader.skip().ok()?;
        let (field, after) = rest.split_at(reader.position());
        rest = after;
        Some((key, field))
    })
}

/// The field's value.
fn field(extra: &[u8]) -> Option<&[u8]> {
    // Nearly always it is the only one, or there is none.
    match extra {
        [] => return None,
        [1, KEY, value @ ..] => return Some(value),
        _ => {}
    }
    fields_of(extra).find(|(key, _)| *key == u64::from(KEY)).and_then(|(_, field)| field.get(1..))
}

fn read(value: &[u8]) -> Option<LeftOut> {
    let mut reader = Reader::new(value);
    let count = reader.read_array_len().ok()?;
    let mut left_out = LeftOut::default();
    for _ in 0..count.min(CHAIN_LEN_MAX + 1) {
        if reader.take_nil() {
            left_out.ends_at_deletion = true;
            break;
        }
        left_out.back.push(reader.read_u64().ok()?);
    }
    left_out.back.truncate(CHAIN_LEN_MAX);
    Some(left_out)
}

#[cfg(test)]
mod tests {
    use crate::chain::Chain;
    use crate::entry::EntryParts;
    use crate::ids::{NodeIndex, Tock};
    use crate::left_out::*;
    use crate::write_id::WriteId;
    use proptest::prelude::*;

    fn event(node: u32, tick: u64) -> Event {
        Event { node: NodeIndex(node), tick: Tick::new(tick).unwrap() }
    }

    fn first(node: u32, tick: u64) -> Entry {
        entry(Some(&[1]), &Chain::first(event(node, tick)), &[])
    }

    fn entry(value: Option<&[u8]>, chain: &Chain, extra: &[u8]) -> Entry {
        Entry::new(&EntryParts {
            value,
            chain,
            tock: Tock::default(),
            origin: None,
            time: None,
            extra,
        })
    }

    fn on_top(old: &Entry, node: u32, tick: u64, value: Option<&[u8]>) -> Entry {
        let (event, bound) = (event(node, tick), ChainBound::default());
        let extra = LeftOut::on_top_of(old, event, bound).put_into(&[]);
        entry(value, &old.chain().extended(event, bound), &extra)
    }

    #[test]
    fn the_first_of_ones_own_changes_is_known_however_often_it_is_overwritten() {
        let mut entry = first(1, 7);
        assert!(entry.extra().is_empty());
        for tick in [8, 200, 70_000, 1 << 40] {
            entry = on_top(&entry, 1, tick, Some(&[2]));
            assert_eq!(LeftOut::of(&entry).oldest(0, entry.newest()), Some(event(1, 7)));
        }
        // Others write on top of it, and it stays known at its new place.
        entry = on_top(&entry, 2, 5, Some(&[3]));
        assert_eq!(LeftOut::of(&entry).oldest(0, event(2, 5)), None);
        assert_eq!(LeftOut::of(&entry).oldest(1, event(1, 1 << 40)), Some(event(1, 7)));
        entry = on_top(&entry, 1, (1 << 40) + 1, Some(&[4]));
        assert_eq!(entry.events().len(), 2);
        assert_eq!(LeftOut::of(&entry).oldest(0, entry.newest()), Some(event(1, 7)));
    }

    #[test]
    fn what_was_before_a_deletion_is_left_behind() {
        let deleted = on_top(&on_top(&first(1, 7), 1, 9, Some(&[2])), 2, 4, None);
        let again = on_top(&deleted, 1, 20, Some(&[3]));
        assert_eq!(again.events().collect::<Vec<_>>(), [event(1, 20), event(2, 4)]);
        let left = LeftOut::of(&again);
        assert_eq!(left.oldest(0, event(1, 20)), None);
        assert_eq!([0, 1, 2].map(|at| left.is_before_deletion(at)), [false, true, true]);
        // On top of that: events above the deletion are named, those below it are not.
        let over = on_top(&on_top(&again, 1, 25, Some(&[4])), 3, 1, Some(&[4]));
        let left = LeftOut::of(&over);
        assert_eq!(left.oldest(1, event(1, 25)), Some(event(1, 20)));
        assert_eq!([1, 2].map(|at| left.is_before_deletion(at)), [false, true]);
        // Also if the maker of the deletion continues, and its event is left out.
        for old in [&deleted, &over] {
            let deleter = on_top(old, 2, 5, Some(&[5]));
            let left = LeftOut::of(&deleter);
            assert_eq!(left.oldest(0, event(2, 5)), None);
            assert!(left.is_before_deletion(deleter.events().len()));
        }
        assert!(LeftOut::of(&on_top(&deleted, 2, 5, Some(&[5]))).is_before_deletion(1));
    }

    #[test]
    fn the_field_has_its_place_among_the_others() {
        let left = LeftOut::of(&on_top(&first(1, 7), 1, 9, Some(&[2])));
        assert_eq!(left.put_into(&[])[..], [1, KEY, 0x91, 2]);
        let id = WriteId([7; 16]);
        let with_id = left.put_into(&id.to_extra());
        assert_eq!((with_id[0], WriteId::of_extra(&with_id)), (2, Some(id)));
        assert_eq!(field(&with_id), Some(&[0x91, 2][..]));
        assert_eq!(LeftOut::default().put_into(&with_id)[..], id.to_extra());
        assert_eq!(left.put_into(&[2, 6, 0xc3, 9, 0xc0])[..], [3, 6, 0xc3, KEY, 0x91, 2, 9, 0xc0]);
        assert_eq!(left.put_into(&[1, KEY, 0xc3])[..], [1, KEY, 0x91, 2], "what was no such field");
        assert!(LeftOut::default().put_into(&[1, KEY, 0x91, 2]).is_empty());
    }

    #[test]
    fn what_a_peer_made_up_does_no_harm() {
        for value in [&[0xc3][..], &[0x91, 0xa1, b'x'], &[0x92, 0], &[0x91], &[]] {
            assert_eq!(read(value), None, "{value:?}");
        }
        let far = read(&[0x91, 0xcf, 255, 255, 255, 255, 255, 255, 255, 255]).unwrap();
        assert_eq!(far.oldest(0, event(1, 9)), None);
        let all = read(&[0x91, 9]).unwrap();
        assert_eq!(all.oldest(0, event(1, 9)), None, "there is no tick 0");
    }

    proptest! {
        #[test]
        fn what_is_left_out_is_what_the_whole_history_says(
            history in proptest::collection::vec((0u32..4, 1u64..200, any::<bool>()), 1..40),
        ) {
            let mut ticks = [0; 4];
            // All changes of a path, oldest first, and whether each deleted it.
            let mut events: Vec<(Event, bool)> = Vec::new();
            let mut now: Option<Entry> = None;
            for (node, further, deletes) in history {
                let tick = &mut ticks[node as usize];
                *tick += further;
                let value = (!deletes).then_some(&[1][..]);
                now = Some(match now {
                    None => entry(value, &Chain::first(event(node, *tick)), &[]),
                    Some(old) => on_top(&old, node, *tick, value),
                });
                events.push((event(node, *tick), deletes));
                let entry = now.as_ref().unwrap();
                let deletion = events.iter().rev().skip(1).position(|(_, deletes)| *deletes);
                let since = deletion.map_or(0, |back| events.len() - 1 - back);
                let left_out = LeftOut::of(entry);
                for (at, newest) in entry.events().enumerate() {
                    let mut own = events[since..].iter().map(|(event, _)| *event);
                    let first = own.find(|event| event.node == newest.node);
                    prop_assert_eq!(left_out.is_before_deletion(at), first.is_none());
                    if let Some(first) = first {
                        let oldest = left_out.oldest(at, newest).unwrap_or(newest);
                        prop_assert_eq!(oldest, first, "of {:?} in {:?}", newest, events);
                    }
                }
                // And what whoever takes it accounts for has all been there.
                let made: Vec<Event> = events.iter().map(|(event, _)| *event).collect();
                prop_assert!(accounted_events(entry).all(|event| made.contains(&event)));
            }
        }
    }
}
