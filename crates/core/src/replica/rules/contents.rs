//! Replication rule 10: two contents for one event. Every other rule relies on an event standing
//! for one change. A disk that was set back, a copied directory, a virtual machine that was resumed
//! twice, or a defect can break that. Then nodes that have accounted for the same events hold
//! different entries, and no other rule notices.
//!
//! A node detects it by (I): if it has accounted for a version's event, it holds at least as great
//! a version, or has purged it at its mark. If that is not so, it takes in the other's version, and
//! gives it an event of its own unless both are the same version with different contents.

use std::cmp::Ordering;

use crate::model::chain::Chain;
use crate::model::defects::Defect;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Tock};
use crate::model::invariant::OrBroken;
use crate::model::path::Path;
use crate::model::seen::Mark;
use crate::replica::apply::{Applied, Conflict};
use crate::replica::{Committed, Replica};
use crate::tree::content_sums::ContentSums;

/// A version that a peer holds, without its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListedVersion {
    /// Its newest event.
    pub(crate) newest: Event,
    /// Its tock.
    pub(crate) tock: Tock,
    /// Its content hash.
    pub(crate) hash: u64,
}

/// What became of a version that a peer holds and this node lacked.
#[must_use]
#[derive(Debug)]
pub(crate) enum ContentsApplied {
    /// This node holds it, or a greater one, or no event can be made now. Nothing was changed.
    Nothing,
    /// Its event was not accounted for: it went by replication rule 2.
    Ordinary(Applied),
    /// The tree changed: the version's event had another content here.
    Mended(Box<Mended>),
}

/// One entry that was mended.
#[derive(Debug)]
pub(crate) struct Mended {
    /// The event that had two contents.
    pub(crate) event: Event,
    /// What is in the tree now.
    pub(crate) change: Committed,
    /// Whether `change` is a new event of this node, which must be pushed.
    pub(crate) is_made: bool,
    /// What is there now, and what was there before, with another value.
    pub(crate) conflict: Option<Conflict>,
}

/// How a version that a peer holds compares with what is held here.
enum Standing {
    /// The version held here is as great, or the comparison shows nothing.
    Held,
    /// The same version (path and newest event) with a lesser content is held.
    OtherContent,
    /// A lesser version is held, or nothing.
    Lacking,
}

impl Replica {
    /// The sums over all that is held.
    #[must_use]
    pub fn contents(&self) -> &ContentSums {
        &self.contents
    }

    /// Whether this node lacks a version although it has accounted for its event: then that event
    /// has two contents. `mark` is the peer's at the moment that it held the version.
    pub(crate) fn lacks(&mut self, path: &Path, listed: ListedVersion, mark: &Mark) -> bool {
        // Between two marks, what one side lacks may have been purged.
        if *mark != self.mark || !self.seen.contains(listed.newest) {
            return false;
        }
        let is_lacking = !matches!(self.standing(path, listed), Standing::Held);
        if is_lacking && listed.newest.node == self.own {
            // Another node has made changes under this very incarnation.
            self.usurped = true;
            return false;
        }
        is_lacking
    }

    fn standing(&mut self, path: &Path, theirs: ListedVersion) -> Standing {
        let Some(ours) = self.tree.get(path.as_bytes()) else { return Standing::Lacking };
        if ours.newest() == theirs.newest {
            let hash = self.contents.hash_of(&self.table, path.as_bytes(), ours);
            return match (theirs.tock, theirs.hash) > (ours.tock(), hash) {
                true => Standing::OtherContent,
                false => Standing::Held,
            };
        }
        let order = ours.tock().cmp(&theirs.tock);
        let by_event = || self.table.compare_events(ours.newest(), theirs.newest);
        match order.then_with(by_event) {
            Ordering::Less => Standing::Lacking,
            Ordering::Equal | Ordering::Greater => Standing::Held,
        }
    }

    /// Replication rule 10 for a version that a peer held at `mark`, and that this node asked for because
    /// it lacks it.
    pub(crate) fn apply_contents(
        &mut self,
        path: &Path,
        theirs: &Entry,
        mark: &Mark,
    ) -> ContentsApplied {
        let event = theirs.newest();
        if !self.seen.contains(event) {
            return ContentsApplied::Ordinary(self.apply(path, theirs, mark));
        }
        let hash = self.contents.hash_of(&self.table, path.as_bytes(), theirs);
        let listed = ListedVersion { newest: event, tock: theirs.tock(), hash };
        self.check_own_chain(theirs);
        if self.usurped || !self.lacks(path, listed, mark) {
            return ContentsApplied::Nothing;
        }
        let ours = self.tree.get(path.as_bytes()).cloned();
        let (entry, is_made) = match self.standing(path, listed) {
            Standing::Held => return ContentsApplied::Nothing,
            Standing::OtherContent => (theirs.clone(), false),
            Standing::Lacking => match self.renewed(theirs) {
                Some(entry) => (entry, true),
                None => return ContentsApplied::Nothing,
            },
        };
        self.hear_tock(theirs.tock());
        for event in theirs.events() {
            self.seen.insert(event);
        }
        self.write_ids.note(path, &entry);
        let change = self.commit(path.clone(), entry);
        let conflict = ours.filter(|ours| ours.value() != theirs.value()).map(|loser| Conflict {
            path: path.clone(),
            winner: change.entry.clone(),
            loser,
            took_theirs: true,
        });
        ContentsApplied::Mended(Box::new(Mended { event, change, is_made, conflict }))
    }

    /// A peer's version with a new event of this node in the place of its newest: same value and
    /// origin. The old event is accounted for everywhere, with another content, so no node would
    /// accept it; and in a chain it would claim that the other content was known here.
    fn renewed(&mut self, theirs: &Entry) -> Option<Entry> {
        let (event, tock) = self.next_event_above(theirs.tock())?;
        let older = theirs.events().skip(1).filter(|older| older.node != event.node);
        let events = std::iter::once(event).chain(older);
        let chain = Chain::from_events(events, theirs.is_chain_cut());
        let chain = chain.or_broken("a chain with another newest event is one");
        let entry = Entry::new(&EntryParts {
            value: theirs.value(),
            chain: &chain,
            tock,
            origin: Some(theirs.origin()),
            time: theirs.time(),
            extra: theirs.extra(),
        });
        self.account_for_own(event, tock, &chain);
        Some(entry)
    }

    /// Whether contents are compared: always, but with a planted defect.
    #[must_use]
    pub(crate) fn compares_contents(&self) -> bool {
        !self.defects.has(Defect::ContentsNotCompared)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::ids::{Incarnation, NodeId, NodeName, Tick};
    use crate::model::mark::{Lineage, PurgeId};
    use crate::model::write_id::WriteId;
    use crate::replica::contents::*;
    use crate::replica::write::Write;

    fn id(name: &str, life: u64) -> NodeId {
        NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(life) }
    }

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    fn write(replica: &mut Replica, at: &str, value: Option<&[u8]>) -> Entry {
        let mut write = Write::new(path(at), value);
        replica.write(&mut write).unwrap().committed.unwrap().entry
    }

    /// An entry of one node in the indices of another.
    fn moved(from: &Replica, to: &mut Replica, at: &str) -> Option<(Path, Entry)> {
        let entry = from.tree().get(path(at).as_bytes())?.clone();
        let entry = entry.translated(|mut event| {
            event.node = to.intern(from.table().get(event.node)?)?;
            Some(event)
        });
        Some((path(at), entry.unwrap()))
    }

    fn push(from: &Replica, to: &mut Replica, at: &str) -> Applied {
        let (path, entry) = moved(from, to, at).unwrap();
        to.apply(&path, &entry, from.mark())
    }

    /// What `from` holds at a path is listed to `to`, and fetched if it is lacking there.
    fn compare(from: &mut Replica, to: &mut Replica, at: &str) -> ContentsApplied {
        let Some((path, entry)) = moved(from, to, at) else { return ContentsApplied::Nothing };
        let hash = to.contents.hash_of(&to.table, path.as_bytes(), &entry);
        let listed = ListedVersion { newest: entry.newest(), tock: entry.tock(), hash };
        let mark = from.mark().clone();
        match to.lacks(&path, listed, &mark) {
            true => to.apply_contents(&path, &entry, &mark),
            false => ContentsApplied::Nothing,
        }
    }

    /// Two observers, each of which has heard of another content of the events of one life.
    fn forked(first: &[(&str, u8)], second: &[(&str, u8)]) -> (Replica, Replica) {
        let observers = [(first, id("o", 1)), (second, id("p", 1))].map(|(changes, observer)| {
            let mut maker = Replica::new(&id("m", 1), 1);
            let mut observer = Replica::new(&observer, 2);
            for (at, value) in changes {
                write(&mut maker, at, Some(&[*value]));
                let _ = push(&maker, &mut observer, at);
            }
            observer
        });
        let [a, b] = observers;
        (a, b)
    }

    fn value(replica: &Replica, at: &str) -> Option<u8> {
        replica.tree().get(path(at).as_bytes())?.value()?.first().copied()
    }

    #[test]
    fn of_one_version_with_two_contents_the_same_stays_on_both_sides() {
        let (mut a, mut b) = forked(&[("k", 1)], &[("k", 2)]);
        assert_eq!(a.seen().count(), 1);
        assert_ne!(a.contents().total(), b.contents().total());
        let taken = [compare(&mut a, &mut b, "k"), compare(&mut b, &mut a, "k")];
        let mended: Vec<_> = taken
            .into_iter()
            .filter_map(|t| match t {
                ContentsApplied::Mended(mended) => Some(mended),
                _ => None,
            })
            .collect();
        let [mended] = &mended[..] else { panic!("one of the two sides takes the other's") };
        let conflict = mended.conflict.as_ref().expect("the values differ");
        let values = [conflict.winner.value(), conflict.loser.value()];
        assert!(values.contains(&Some(&[1][..])) && values.contains(&Some(&[2][..])));
        assert!(!mended.is_made);
        assert_eq!(value(&a, "k"), value(&b, "k"));
        assert_eq!(a.contents().total(), b.contents().total());
    }

    #[test]
    fn an_event_that_names_two_paths_keeps_both_entries_and_gets_new_events() {
        let (mut a, mut b) = forked(&[("k", 1)], &[("l", 2)]);
        for at in ["k", "l"] {
            let _ = compare(&mut a, &mut b, at);
            let _ = compare(&mut b, &mut a, at);
        }
        // The new events go by replication rule 2, as any change.
        assert!(matches!(push(&b, &mut a, "k"), Applied::Taken(_)));
        assert!(matches!(push(&a, &mut b, "l"), Applied::Taken(_)));
        for node in [&a, &b] {
            assert_eq!((value(node, "k"), value(node, "l")), (Some(1), Some(2)));
        }
        assert_eq!(a.contents().total(), b.contents().total());
        // A third node that learns of either is told both.
        let mut c = Replica::new(&id("c", 1), 3);
        for at in ["k", "l"] {
            assert!(matches!(push(&a, &mut c, at), Applied::Taken(_)));
        }
    }

    #[test]
    fn what_a_later_change_replaced_is_not_brought_back() {
        let (mut a, mut b) = forked(&[("k", 1)], &[("k", 1)]);
        write(&mut b, "k", Some(&[9]));
        assert!(matches!(compare(&mut a, &mut b, "k"), ContentsApplied::Nothing));
        // Nor is it a difference that b's change has not come to a yet.
        assert!(matches!(compare(&mut b, &mut a, "k"), ContentsApplied::Nothing));
        assert_eq!(value(&a, "k"), Some(1));
    }

    #[test]
    fn what_was_purged_at_another_mark_is_no_difference() {
        let (mut a, mut b) = forked(&[("k", 1)], &[("k", 1)]);
        write(&mut b, "k", None);
        let pair = b.propose_pair(&Lineage(None), PurgeId::new(1), 100).unwrap();
        assert_eq!(b.apply_purge(&pair).len(), 1);
        assert!(matches!(compare(&mut a, &mut b, "k"), ContentsApplied::Nothing));
        assert!(b.tree().is_empty());
    }

    #[test]
    fn who_meets_a_change_of_its_own_life_that_it_never_made_renews_itself() {
        let mut original = Replica::new(&id("m", 1), 1);
        let mut twin = Replica::new(&id("m", 1), 1);
        write(&mut original, "k", Some(&[1]));
        write(&mut twin, "l", Some(&[2]));
        let mut observer = Replica::new(&id("o", 1), 2);
        let _ = push(&twin, &mut observer, "l");
        assert!(matches!(compare(&mut observer, &mut original, "l"), ContentsApplied::Nothing));
        assert!(original.is_usurped());
        assert!(original.renew(&id("m", 2)));
        assert!(matches!(
            compare(&mut observer, &mut original, "l"),
            ContentsApplied::Mended(mended) if mended.is_made
        ));
        assert_eq!((value(&original, "k"), value(&original, "l")), (Some(1), Some(2)));
    }
    #[test]
    fn what_a_peer_rightly_holds_of_this_life_is_no_reason_to_renew() {
        let mut maker = Replica::new(&id("m", 1), 1);
        let mut observer = Replica::new(&id("o", 1), 2);
        write(&mut maker, "k", Some(&[1]));
        let _ = push(&maker, &mut observer, "k");
        assert!(matches!(compare(&mut observer, &mut maker, "k"), ContentsApplied::Nothing));
        assert!(!maker.is_usurped());
    }

    #[test]
    fn the_own_tock_is_never_below_that_of_a_version_that_was_repaired() {
        let (mut a, mut b) = (Replica::new(&id("o", 1), 1), Replica::new(&id("p", 1), 2));
        for (heard, observer) in [(0, &mut a), (50, &mut b)] {
            let mut maker = Replica::new(&id("m", 1), 1);
            maker.hear_tock(Tock::new(heard).unwrap());
            write(&mut maker, "k", Some(&[heard as u8]));
            let _ = push(&maker, observer, "k");
        }
        assert!(matches!(compare(&mut b, &mut a, "k"), ContentsApplied::Mended(_)));
        assert_eq!(value(&a, "k"), Some(50));
        assert!(a.tock() > Tock::new(50).unwrap());
    }

    #[test]
    fn who_is_in_doubt_of_its_identity_repairs_nothing_before_it_renews() {
        let (mut a, mut b) = forked(&[("k", 1)], &[("k", 2)]);
        for node in [&mut a, &mut b] {
            node.check_own(Event { node: node.own(), tick: Tick::new(99).unwrap() });
        }
        assert!(matches!(compare(&mut a, &mut b, "k"), ContentsApplied::Nothing));
        assert!(matches!(compare(&mut b, &mut a, "k"), ContentsApplied::Nothing));
        assert_eq!((value(&a, "k"), value(&b, "k")), (Some(1), Some(2)));
        assert!(a.renew(&id("o", 2)) && b.renew(&id("p", 2)));
        let _ = (compare(&mut a, &mut b, "k"), compare(&mut b, &mut a, "k"));
        assert_eq!(value(&a, "k"), value(&b, "k"));
    }

    #[test]
    fn the_id_of_a_write_that_was_repaired_is_known() {
        let ids = [WriteId([1; WriteId::BYTES]), WriteId([2; WriteId::BYTES])];
        let with_id = |side: usize, value: &'static [u8]| Write {
            write_id: Some(ids[side]),
            ..Write::new(path("k"), Some(value))
        };
        let values: [&[u8]; 2] = [&[0], &[1]];
        let [mut a, mut b] = [0, 1].map(|side| {
            let mut maker = Replica::new(&id("m", 1), 1);
            let mut observer = Replica::new(&id(["o", "p"][side], 1), 2);
            maker.write(&mut with_id(side, values[side])).unwrap();
            let _ = push(&maker, &mut observer, "k");
            observer
        });
        let _ = (compare(&mut a, &mut b, "k"), compare(&mut b, &mut a, "k"));
        let stays = usize::from(value(&a, "k").unwrap());
        for node in [&mut a, &mut b] {
            let again = node.write(&mut with_id(stays, values[stays])).unwrap();
            assert!(again.repeated.is_some() && again.committed.is_none());
        }
    }
}
