//! The Delete group's member list: the nodes that must agree before tombstones may be dropped
//! (replication rule 7).

use std::cmp::Ordering;

use xxhash_rust::xxh64::xxh64;

use super::ids::{NodeId, NodeName};
use super::mark::{Component, Lineage, PurgeId};

/// Most members of the Delete group. Every round waits for all of them; a handful is usual.
pub const GROUP_MEMBERS_MAX: usize = 64;

/// One member. A member keeps a record of what it agreed to, so it is more than a name: a node that
/// comes back without that record is another member.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member {
    /// The node's name.
    pub name: NodeName,
    /// The id of its data directory; of a node without one its incarnation.
    pub store: u64,
    /// Whether it has a data directory.
    pub durable: bool,
}

/// The member list. The greater one is in force everywhere ([`GroupConfig::supersedes`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    /// Rises with each change.
    pub version: u64,
    /// The succession of decisions that these members make; a forced change starts another.
    pub lineage: Lineage,
    /// The purge that a planned change came with; none after a forced change. The list decides
    /// nothing before that purge: only a node that has applied it begins a round or agrees to one.
    pub since: Component,
    /// Sorted, each name once; 1 to [`GROUP_MEMBERS_MAX`].
    members: Vec<Member>,
}

impl GroupConfig {
    /// A list; `None` if it is empty, too long, or names a node twice.
    pub fn new(version: u64, lineage: Lineage, mut members: Vec<Member>) -> Option<Self> {
        members.sort_unstable();
        let twice = members.windows(2).any(|w| matches!(w, [a, b] if a.name == b.name));
        let fits = !members.is_empty() && members.len() <= GROUP_MEMBERS_MAX && !twice;
        fits.then_some(Self { version, lineage, since: Component::default(), members })
    }

    /// The same list, in force from a purge on.
    #[must_use]
    pub fn from_purge_on(self, since: Component) -> Self {
        Self { since, ..self }
    }

    /// The members, by name.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member of that name.
    #[must_use]
    pub fn member(&self, name: &NodeName) -> Option<&Member> {
        self.members.iter().find(|m| m.name == *name)
    }

    /// Whether this list takes the place of another: by version, then by content, so that all nodes
    /// that hear of both end with the same one.
    #[must_use]
    pub fn supersedes(&self, other: &Self) -> bool {
        let key = |c: &Self| (c.version, c.lineage.clone(), c.members.clone());
        key(self).cmp(&key(other)) == Ordering::Greater
    }

    /// The list with a member added or replaced, in the same lineage.
    #[cfg(test)]
    pub(crate) fn with(&self, member: Member) -> Option<Self> {
        let mut members: Vec<Member> =
            self.members.iter().filter(|m| m.name != member.name).cloned().collect();
        members.push(member);
        Self::new(self.version.checked_add(1)?, self.lineage.clone(), members)
    }
}

/// Names one round of the Delete group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RoundId {
    /// Who coordinates it, in which of its lives: a restarted coordinator forgets its rounds.
    pub coordinator: NodeId,
    /// Its number.
    pub number: u64,
    /// The version of the member list that it was begun under.
    pub version: u64,
}

impl RoundId {
    /// The id of the purge that this round agrees on.
    #[must_use]
    pub fn purge_id(&self) -> Option<PurgeId> {
        let NodeId { name, incarnation } = &self.coordinator;
        let coordinator = xxh64(name.as_str().as_bytes(), incarnation.0);
        let round = xxh64(&self.number.to_le_bytes(), coordinator);
        PurgeId::new(xxh64(&self.version.to_le_bytes(), round))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, store: u64) -> Member {
        Member { name: NodeName::new(name).unwrap(), store, durable: true }
    }

    #[test]
    fn a_list_has_each_name_once_and_is_sorted() {
        let list = |members| GroupConfig::new(1, Lineage(None), members);
        assert!(list(vec![]).is_none());
        assert!(list(vec![member("a", 1), member("a", 2)]).is_none());
        let two = list(vec![member("b", 1), member("a", 2)]).unwrap();
        assert_eq!(two.members()[0].name.as_str(), "a");
        let three = two.with(member("c", 3)).unwrap();
        assert_eq!((three.version, three.members().len()), (2, 3));
        assert_eq!(three.with(member("c", 4)).unwrap().members().len(), 3);
    }

    #[test]
    fn of_two_lists_all_take_the_same_one() {
        let a = GroupConfig::new(2, Lineage(None), vec![member("a", 1)]).unwrap();
        let b = GroupConfig::new(2, Lineage(None), vec![member("b", 1)]).unwrap();
        assert!(a.supersedes(&b) ^ b.supersedes(&a));
        assert!(!a.supersedes(&a));
        let newer = a.with(member("a", 2)).unwrap();
        assert!(newer.supersedes(&b) && newer.supersedes(&a));
    }
}
