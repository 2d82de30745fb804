//! Replication rule 7: handing over. The only member of the list has no data directory and stops: it gives
//! the list to a successor, in the same lineage. Otherwise its successor, or its own next life, would have
//! to start another one.

use super::{Engine, Member};
use crate::engine::LinkId;
use crate::model::group::GroupConfig;

impl Engine {
    /// This node is about to stop: if it is the only member of the Delete group and has no data
    /// directory, it looks for a successor from the next tick on. Best effort.
    pub(in crate::engine) fn begin_hand_over(&mut self) {
        self.delete.hands_over = true;
        self.delete.round_due = 0;
    }

    /// Whether there is nothing left to hand over, or no node to take it.
    #[must_use]
    pub fn has_handed_over(&self) -> bool {
        !self.ready || self.delete.config.as_ref().is_none_or(|c| self.successor(c).is_none())
    }

    /// The list that this node leaves behind, if it must leave one.
    pub(super) fn handed_over(&self, config: &GroupConfig) -> Option<GroupConfig> {
        if !self.delete.hands_over {
            return None;
        }
        let version = config.version.checked_add(1)?;
        GroupConfig::new(version, config.lineage.clone(), vec![self.successor(config)?])
    }

    fn successor(&self, config: &GroupConfig) -> Option<Member> {
        let me = self.as_member();
        if me.durable || *config.members() != [me] {
            return None;
        }
        self.first_ready_peer()
    }

    /// The node that takes over a place, of those that are here: one with data, if there is one.
    pub(super) fn first_ready_peer(&self) -> Option<Member> {
        let ready = |link: &LinkId| self.peers.get(*link).is_some_and(|p| p.ready);
        let here = self.delete.peers.iter().filter(|(link, _)| ready(link)).map(|(_, m)| m);
        here.min_by_key(|m| (!m.durable, m.name.clone())).cloned()
    }
}
