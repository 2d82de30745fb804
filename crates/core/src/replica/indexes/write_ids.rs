//! The ids of recent writes, by which a repeated one is recognised.
//!
//! Every write that arrives with an id is noted, whether it is made here, pushed, fetched or read
//! from a file, and also if it loses against another version. Ids are stored only with their
//! entries; when a node comes back, the rest is rebuilt from them, and writes that were overwritten
//! meanwhile are not known any more.

use std::collections::{HashMap, VecDeque};

use ahash::RandomState;
use smallvec::SmallVec;
use xxhash_rust::xxh64::xxh64;

use crate::model::entry::Entry;
use crate::model::ids::{Event, Tock};
use crate::model::invariant::invariant;
use crate::model::path::Path;
use crate::model::write_id::{WriteId, WritePlace};
use crate::replica::indexes::given_up::GivenUp;
use crate::tree::Tree;

/// Most write ids that are kept; the oldest go first. About 6 MiB; at 10,000 such writes a second in
/// the whole network they reach back 6 s, at 100 eleven minutes. A client tries again for seconds.
pub(crate) const WRITE_IDS_MAX: usize = 1 << 16;

/// What a write did that had an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// Its event.
    pub event: Event,
    /// Its tock.
    pub tock: Tock,
    /// Of its path and value.
    content: u64,
}

impl Made {
    fn of(path: &Path, entry: &Entry) -> Self {
        let content = content(path.as_bytes(), entry.value());
        // A re-issue of a write was not necessarily made by the node that made the write.
        Self { event: entry.origin(), tock: entry.tock(), content }
    }

    /// Whether it was this very write: the same path (in canonical bytes), and the same value byte for byte.
    #[must_use]
    pub(crate) fn is_of(&self, path: &[u8], value: Option<&[u8]>) -> bool {
        self.content == content(path, value)
    }
}

/// Enough to detect a client's mistake: a client that wants two writes to look the same has better
/// means.
fn content(path: &[u8], value: Option<&[u8]>) -> u64 {
    let path = xxh64(path, 0);
    value.map_or(!path, |value| xxh64(value, path))
}

/// Most further copies of one write that are kept: a client tries again a few times.
const COPIES_MAX: usize = 8;

/// The events of further copies of a write.
pub(in crate::replica) type Copies = SmallVec<[Event; 2]>;

/// The recent ones.
pub(in crate::replica) struct WriteIds {
    made: HashMap<WriteId, Made, RandomState>,
    /// For writes that were made more than once, by nodes that did not know of each other's: the
    /// events other than the first one's. Invariant: only ids that `made` has, too.
    copies: HashMap<WriteId, Copies, RandomState>,
    /// Oldest first. Invariant: the same ids as `made` has, at most [`WRITE_IDS_MAX`].
    order: VecDeque<WriteId>,
    /// What ids tell of the writes before them.
    given_up: GivenUp,
}

impl WriteIds {
    /// Of a tree: the latest of its entries that have one. Its hashes are as hard to guess as the
    /// tree's.
    pub(in crate::replica) fn of(tree: &Tree) -> Self {
        let mut found = Vec::new();
        for (path, entry) in tree.all() {
            if let Some(id) = WriteId::of_extra(entry.extra()) {
                found.push((id, Made::of(&path, &entry)));
            }
        }
        // Not the order of the tree, which is that of no node else.
        found.sort_unstable_by_key(|(id, made)| (made.tock, *id));
        let mut ids = Self {
            made: HashMap::with_hasher(tree.hasher()),
            copies: HashMap::with_hasher(tree.hasher()),
            order: VecDeque::new(),
            given_up: GivenUp::new(tree.hasher()),
        };
        for (id, _) in &found {
            ids.meet(*id);
        }
        for (id, made) in found.drain(found.len().saturating_sub(WRITE_IDS_MAX)..) {
            ids.insert(id, made);
        }
        ids
    }

    /// Notes a version that has come, if it has an id.
    pub(in crate::replica) fn note(&mut self, path: &Path, entry: &Entry) {
        let extra = entry.extra();
        if !extra.is_empty()
            && let Some(id) = WriteId::of_extra(extra)
        {
            self.meet(id);
            self.note_made(id, path, entry);
        }
    }

    /// Notes a change with this id, which was met before.
    pub(in crate::replica) fn note_made(&mut self, id: WriteId, path: &Path, entry: &Entry) {
        self.insert(id, Made::of(path, entry));
    }

    /// A write with this id is met, made or not. Whether its client does not wait for it any more, as later writes of that
    /// client have said.
    pub(in crate::replica) fn meet(&mut self, id: WriteId) -> bool {
        WritePlace::of(id).is_some_and(|place| self.given_up.meet(place))
    }

    /// The first write that had an id counts.
    fn insert(&mut self, id: WriteId, made: Made) {
        if let Some(first) = self.made.get(&id) {
            if first.event != made.event && first.content == made.content {
                let copies = self.copies.entry(id).or_default();
                if copies.len() < COPIES_MAX && !copies.contains(&made.event) {
                    copies.push(made.event);
                }
            }
            return;
        }
        if self.order.len() >= WRITE_IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            let made = self.made.remove(&oldest);
            invariant!(made.is_some(), "a write id in order is one that is known");
            self.copies.remove(&oldest);
        }
        self.order.push_back(id);
        self.made.insert(id, made);
        invariant!(
            self.order.len() == self.made.len(),
            "the write ids in order are those that are known"
        );
    }

    /// The events of all copies of an entry's write but its own; nearly always none.
    pub(in crate::replica) fn copies_of(&self, path: &Path, entry: &Entry) -> Copies {
        let mut copies = Copies::new();
        if !self.copies.is_empty()
            && let Some(id) = WriteId::of_extra(entry.extra())
            && let Some(further) = self.copies.get(&id)
            && let Some(first) = self.made.get(&id)
            && first.is_of(path.as_bytes(), entry.value())
        {
            let own = entry.origin();
            let all = std::iter::once(first.event).chain(further.iter().copied());
            copies.extend(all.filter(|event| *event != own));
        }
        copies
    }

    /// What the write with that id did, if it is known here.
    pub(in crate::replica) fn get(&self, id: &WriteId) -> Option<Made> {
        self.made.get(id).copied()
    }
}

#[cfg(test)]
mod tests {
    use crate::model::chain::Chain;
    use crate::model::entry::EntryParts;
    use crate::model::ids::{NodeIndex, Tick};
    use crate::replica::write_ids::*;

    fn id(number: u32) -> WriteId {
        let mut bytes = [0; WriteId::BYTES];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        WriteId(bytes)
    }

    fn entry(number: u32, tock: u64) -> Entry {
        let event = Event { node: NodeIndex(0), tick: Tick::new(tock).unwrap() };
        Entry::new(&EntryParts {
            value: Some(&[0xc0]),
            chain: &Chain::first(event),
            tock: Tock::new(tock).unwrap(),
            origin: None,
            time: None,
            extra: &id(number).to_extra(),
        })
    }

    fn path(number: u32) -> Path {
        format!("k{number}").parse().unwrap()
    }

    #[test]
    fn the_oldest_ids_go_first_and_the_first_write_with_one_counts() {
        let mut ids = WriteIds::of(&Tree::new(1));
        for number in 0..=WRITE_IDS_MAX as u32 {
            ids.note(&path(number), &entry(number, 1 + u64::from(number)));
        }
        assert_eq!(ids.get(&id(0)), None);
        assert_eq!((ids.made.len(), ids.order.len()), (WRITE_IDS_MAX, WRITE_IDS_MAX));
        assert!(ids.get(&id(1)).is_some());
        ids.note(&path(1), &entry(1, 1 << 40));
        assert_eq!(ids.get(&id(1)).map(|made| made.tock), Tock::new(2));
        assert_eq!(ids.order.len(), WRITE_IDS_MAX);
    }

    #[test]
    fn of_a_tree_the_latest_are_known() {
        let mut tree = Tree::new(1);
        for number in 0..WRITE_IDS_MAX as u32 + 10 {
            // The greatest numbers are the oldest.
            tree.insert(&path(number), entry(number, (1 << 20) - u64::from(number)));
        }
        let mut ids = WriteIds::of(&tree);
        assert_eq!(ids.order.len(), WRITE_IDS_MAX);
        assert!(ids.get(&id(WRITE_IDS_MAX as u32)).is_none());
        assert!(ids.get(&id(0)).is_some() && ids.get(&id(WRITE_IDS_MAX as u32 - 1)).is_some());
        // The next one to go is the oldest that is left.
        ids.note(&path(1), &entry(1 << 30, 1 << 21));
        assert!(ids.get(&id(WRITE_IDS_MAX as u32 - 1)).is_none());
    }

    #[test]
    fn of_a_tree_it_is_known_what_its_clients_have_given_up() {
        let place = |number, settled| WritePlace { client: 1, number, settled };
        let parts = |id: WriteId| {
            let chain = Chain::first(Event { node: NodeIndex(0), tick: Tick::new(1).unwrap() });
            let (value, tock) = (Some(&[1][..]), Tock::new(1).unwrap());
            let extra = &id.to_extra();
            Entry::new(&EntryParts { value, chain: &chain, tock, origin: None, time: None, extra })
        };
        let mut tree = Tree::new(1);
        tree.insert(&path(1), parts(place(5, 4).to_id()));
        let mut ids = WriteIds::of(&tree);
        assert!(ids.meet(place(3, 3).to_id()) && !ids.meet(place(4, 4).to_id()));
    }

    #[test]
    fn a_deletion_is_not_a_value_and_a_path_is_not_another() {
        let made = Made::of(&path(1), &entry(1, 1));
        assert!(made.is_of(path(1).as_bytes(), Some(&[0xc0])));
        assert!(!made.is_of(path(1).as_bytes(), Some(&[0xc2])));
        assert!(!made.is_of(path(2).as_bytes(), Some(&[0xc0])));
        assert!(!made.is_of(path(1).as_bytes(), None));
    }

    /// A write with the first id that the node made as its first change.
    fn made_by(node: u32, value: u8) -> Entry {
        let event = Event { node: NodeIndex(node), tick: Tick::new(1).unwrap() };
        Entry::new(&EntryParts {
            value: Some(&[value]),
            chain: &Chain::first(event),
            tock: Tock::new(1).unwrap(),
            origin: None,
            time: None,
            extra: &id(1).to_extra(),
        })
    }

    #[test]
    fn the_copies_of_a_write_are_those_of_the_same_content_each_once_and_so_many() {
        let mut ids = WriteIds::of(&Tree::new(1));
        let makers = |ids: &WriteIds| -> Vec<u32> {
            ids.copies_of(&path(1), &made_by(0, 1)).iter().map(|event| event.node.0).collect()
        };
        ids.note(&path(1), &made_by(0, 1));
        // Another write with that id, by mistake.
        ids.note(&path(1), &made_by(50, 2));
        assert!(makers(&ids).is_empty());
        for _ in 0..2 * COPIES_MAX {
            ids.note(&path(1), &made_by(1, 1));
        }
        assert_eq!(makers(&ids), [1]);
        (2..40).for_each(|node| ids.note(&path(1), &made_by(node, 1)));
        assert_eq!(makers(&ids), (1..=COPIES_MAX as u32).collect::<Vec<_>>());
    }
}
