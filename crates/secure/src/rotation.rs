//! Where the rotation of a network's keys stands, by the keys of one node, and what comes next. Whether that may be
//! done is decided by [`blocks_use`](crate::key_ring::blocks_use) and
//! [`blocks_removal`](crate::key_ring::blocks_removal), of all nodes.

use crate::key::KeyId;
use crate::key_ring::RingSummary;

/// Where a rotation stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What comes next.
    pub next: Next,
    /// Keys that were in use before.
    pub old: Vec<KeyId>,
}

/// The next step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There is nothing but one key: make another.
    Make,
    /// There is a key behind the primary, which is not in use yet.
    GoOn(KeyId),
    /// The primary is the new one: the old ones were not removed yet.
    InUse(KeyId),
}

impl Plan {
    /// By the keys of a node, which stand in the order in which they were added, those that are superseded first.
    #[must_use]
    pub fn of(ring: &RingSummary) -> Self {
        let primary = ring.primary;
        let old: Vec<KeyId> = ring.ids.iter().copied().take_while(|id| *id != primary).collect();
        let next = match ring.ids.last() {
            Some(last) if *last != primary => Next::GoOn(*last),
            _ if old.is_empty() => Next::Make,
            _ => Next::InUse(primary),
        };
        Self { next, old }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(ids: &[u8], primary: u8) -> Plan {
        let id = |byte| KeyId([byte; 4]);
        Plan::of(&RingSummary { ids: ids.iter().copied().map(id).collect(), primary: id(primary) })
    }

    #[test]
    fn what_comes_next_is_told_by_the_order_of_the_keys() {
        let id = |byte| KeyId([byte; 4]);
        assert_eq!(plan(&[1], 1), Plan { next: Next::Make, old: vec![] });
        assert_eq!(plan(&[1, 2], 1), Plan { next: Next::GoOn(id(2)), old: vec![] });
        assert_eq!(plan(&[1, 2], 2), Plan { next: Next::InUse(id(2)), old: vec![id(1)] });
        assert_eq!(plan(&[1, 2, 3], 2), Plan { next: Next::GoOn(id(3)), old: vec![id(1)] });
    }
}
