//! Replication rule 7: nodes that were here recently have a say, though they are not on the list. A
//! round waits for them for a bounded time, so that nothing is purged before a node whose link was
//! cut for a moment knows of the deletion. They cannot block for ever, and cannot decide anything.

use std::collections::BTreeMap;

use super::{Engine, Member};
use crate::engine::LinkId;
use crate::model::group::GroupConfig;
use crate::model::ids::{Incarnation, Millis, NodeId, NodeName};

/// Most nodes that have a say besides the list; more than ever have a link to one node.
const WITNESSES_MAX: usize = 1_024;

/// A node that is not on the list.
pub(super) struct Witness {
    member: Member,
    /// When it was last linked and ready.
    here_at: Millis,
}

/// Nodes that have left for good, by name, in which life. Who comes back has another one.
pub(super) type Retired = BTreeMap<NodeName, Incarnation>;

/// Nodes that are not on the list and were here lately, by name.
pub(super) type Witnesses = BTreeMap<NodeName, Witness>;

impl Engine {
    /// The list changes to `next`. A planned change takes a node with data off the list only when that
    /// node leaves for good, or has come back with another directory: nobody waits for what was on the
    /// list, also if it is killed before it says farewell.
    pub(super) fn note_retired(&mut self, next: &GroupConfig) {
        let Some(current) = &self.delete.config else { return };
        if current.lineage != next.lineage {
            return;
        }
        for (link, peer) in &self.delete.peers {
            let name = &peer.name;
            let was_listed = current.member(name).is_some_and(|member| member.durable);
            if was_listed
                && next.member(name).is_none()
                && self.delete.retired.len() < WITNESSES_MAX
                && let Some(peer) = self.peers.get(*link)
            {
                self.delete.retired.insert(name.clone(), peer.id.incarnation);
            }
        }
    }

    /// Notes which nodes are here, and forgets those that were away for too long to have a say. Without a list, too: who
    /// founds it later knows who was here before.
    pub(super) fn note_witnesses(&mut self, config: Option<&GroupConfig>, now: Millis) {
        let has_say = |link: &LinkId| {
            let retired = |id: &NodeId| self.delete.retired.get(&id.name) == Some(&id.incarnation);
            self.peers.get(*link).is_some_and(|p| p.ready && !retired(&p.id))
        };
        for (_, member) in self.delete.peers.iter().filter(|(link, _)| has_say(link)) {
            if self.delete.witnesses.len() < WITNESSES_MAX {
                let witness = Witness { member: member.clone(), here_at: now };
                self.delete.witnesses.insert(member.name.clone(), witness);
            }
        }
        let say_ms = self.delete.settings.say_for_ms;
        // If changes spread over a tree, links come and go while all are up: then only neighbours
        // are asked, and no node is waited for.
        let is_tree = self.spread.is_tree();
        let mut witnesses = std::mem::take(&mut self.delete.witnesses);
        witnesses.retain(|name, witness| {
            config.is_none_or(|config| config.member(name).is_none())
                && now.saturating_sub(witness.here_at) <= say_ms
                && (!is_tree || self.link_of(&witness.member).is_some())
        });
        self.delete.witnesses = witnesses;
    }

    /// A node has said that it leaves: no node waits for it.
    pub(in crate::engine) fn forget_witness(&mut self, link: LinkId) {
        // Until its link is closed, it must not be noted again.
        if let Some(member) = self.delete.peers.remove(&link) {
            self.delete.witnesses.remove(&member.name);
        }
    }

    /// The nodes that have a say besides the list.
    pub(super) fn witnesses(&self) -> impl Iterator<Item = &Member> {
        self.delete.witnesses.values().map(|witness| &witness.member)
    }

    /// Nodes that are not here and for which a round waits, its coordinator's or another one's, and for how long they have
    /// been gone.
    pub(super) fn awaited(&self, now: Millis) -> Vec<(NodeName, Millis)> {
        let gone = |w: &&Witness| self.link_of(&w.member).is_none();
        let away = self.delete.witnesses.values().filter(gone);
        away.map(|w| (w.member.name.clone(), now.saturating_sub(w.here_at))).collect()
    }
}
