//! How far a peer or a file may move this node's clock.
//!
//! A network's clock rises with its changes, and no network lives long enough to bring it near its end, where nobody can
//! change anything any more. Nothing turns a clock back. So whoever says that it is there is not believed: a peer that
//! has the cluster's key, or a file.
//!
//! A bound alone would be worth nothing: who brings the clock just below it would have each next change of an honest
//! node refused by all others. So a node whose own clock is near the bound takes what is a little above.

use crate::engine::Engine;
use crate::model::ids::Tock;

/// The greatest clock that is taken from peers and files: a quarter of what there is, and more than a million changes a
/// second for 30,000 years.
pub const FOREIGN_CLOCK_MAX: u64 = 1 << 60;
/// Above that bound: the most by which a peer or a file may be ahead of this node's own clock; more than a network makes
/// changes in many hours in which nodes are cut off from each other.
pub const FOREIGN_LEAD_MAX: u64 = 1 << 32;

/// Whether a tock of a peer or a file is beyond what a network reaches by its changes. `own`: this node's clock.
#[must_use]
pub fn is_too_far(theirs: Tock, own: Tock) -> bool {
    theirs.get() > FOREIGN_CLOCK_MAX.max(own.get().saturating_add(FOREIGN_LEAD_MAX))
}

impl Engine {
    /// Why this node can make no changes any more, if that is so because a counter is at its end.
    #[must_use]
    pub fn used_up(&self) -> Option<&'static str> {
        let replica = &self.replica;
        let is_used_up = replica.tock().next().is_none() || replica.tick().next().is_none();
        is_used_up.then_some(
            "no changes can be made any more: a counter is at its end, which no network reaches by its changes; somebody \
             who has the cluster's key has brought it there, or a file. Take the data to a new network, with a new key: \
             `distkv-node tree : --json > FILE` here, then `distkv-node import FILE` there; or restore there a snapshot \
             from before that. Users, access lists and types are not in the FILE",
        )
    }

    /// What an operator should know of a clock that is beyond what nodes take from each other without knowing it.
    #[must_use]
    pub fn far_clock(&self) -> Option<&'static str> {
        (self.replica.tock().get() >= FOREIGN_CLOCK_MAX).then_some(
            "the network's clock is where no network comes by its changes; somebody who has the cluster's key has brought \
             it there. Nodes without data of this network cannot join it any more. Take the data to a new network, with a \
             new key: `distkv-node tree : --json > FILE` here, then `distkv-node import FILE` there. Users, access lists \
             and types are not in the FILE",
        )
    }
}
