//! Replication rule 7: leaving for good. A member that will not come back has the list changed as
//! planned, to one without it, while it is still here: so no node waits for it afterwards, and
//! nobody has to forget it.
//!
//! It coordinates that one round itself, elected or not. The election only keeps coordinators from
//! disturbing each other; that at most one purge begins at any mark rests on what members agree to.
//! As soon as the list is without it, it says of itself that it has no data directory; otherwise
//! the next coordinator would take it in again.

use std::collections::BTreeSet;

use super::{Engine, Member};
use crate::engine::{LinkId, Outbox};
use crate::model::group::GroupConfig;
use crate::model::ids::NodeName;

/// How far this node is with leaving for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Retiring {
    /// The list still has it.
    Asked,
    /// The list is without it. The nodes that have confirmed that they know that list.
    Agreed { confirmed: BTreeSet<LinkId> },
    /// The list never had it, and as it has no data directory nobody will take it in: nobody need confirm that.
    NeverListed,
}

/// As above, for callers that wait for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Retirement {
    /// All members, old and new, must agree. Of these some are not here, by name.
    Agreeing {
        /// The nodes that are away.
        away: Vec<NodeName>,
        /// All have agreed; this node's disk must confirm it, and then it cannot be undone.
        is_decided: bool,
    },
    /// Agreed. Members that are here and have not said yet that they know it, by name, and changes of
    /// this node that are on no other node.
    Spreading {
        /// The nodes that have not confirmed it yet.
        unconfirmed: Vec<NodeName>,
        /// How many changes.
        unshared: u64,
    },
    /// Done: the node can go.
    Done,
}

/// Why a node cannot begin to leave for good. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RetireError {
    /// The node has not caught up with its network yet.
    #[error("this node has not caught up with its network yet; try again when it has")]
    NotReady,
    /// No node is here that could keep the data.
    #[error(
        "no other node of the network is linked to this one and serves clients, so nobody could keep \
         the data; `leave` without --for-good stops this node and keeps its data directory"
    )]
    Alone,
}

impl Engine {
    /// This node is to leave for good: it takes no more changes of clients, and looks for all members'
    /// agreement from the next tick on. See [`Engine::retirement`] for how far that is.
    ///
    /// # Errors
    /// [`RetireError`]; nothing was changed.
    pub(in crate::engine) fn begin_retirement(
        &mut self,
        out: &mut Outbox,
    ) -> Result<(), RetireError> {
        if !self.ready {
            return Err(RetireError::NotReady);
        }
        if !self.has_ready_peer() {
            return Err(RetireError::Alone);
        }
        if self.delete.retires.is_none() {
            let can_be_listed = self.as_listed().durable || self.is_listed();
            self.delete.retires =
                Some(if can_be_listed { Retiring::Asked } else { Retiring::NeverListed });
            self.delete.round_due = 0;
            self.delete.retry_due = 0;
            self.update_retirement();
            self.broadcast_group(out);
        }
        Ok(())
    }

    /// Stays after all. Tells whether that is so: not if the list is without this node already, or if
    /// all have agreed and the disk is about to confirm it.
    pub(in crate::engine) fn cancel_retirement(&mut self) -> bool {
        let asked = matches!(self.delete.retires, Some(Retiring::Asked | Retiring::NeverListed));
        let can = asked && self.delete.deciding.is_none();
        if can {
            self.delete.retires = None;
            // Members may have agreed to it. That binds them to nothing before it is announced.
            self.delete.round = None;
        }
        can
    }

    /// Whether this node is leaving for good, and how far that is.
    #[must_use]
    pub fn retirement(&self) -> Option<Retirement> {
        let members = self.delete.config.iter().flat_map(GroupConfig::members);
        let confirmed = match self.delete.retires.as_ref()? {
            Retiring::Asked => {
                let me = self.as_listed();
                let away = members.filter(|m| **m != me && self.link_of(m).is_none());
                let away = away.map(|member| member.name.clone()).collect();
                return Some(Retirement::Agreeing {
                    away,
                    is_decided: self.delete.deciding.is_some(),
                });
            }
            Retiring::Agreed { confirmed } => confirmed,
            Retiring::NeverListed => {
                return Some(match self.unshared_changes() {
                    0 => Retirement::Done,
                    unshared => Retirement::Spreading { unconfirmed: Vec::new(), unshared },
                });
            }
        };
        let here = members.filter_map(|member| Some((member, self.link_of(member)?)));
        let open = here.filter(|(_, link)| !confirmed.contains(link));
        let unconfirmed: Vec<NodeName> = open.map(|(member, _)| member.name.clone()).collect();
        let unshared = self.unshared_changes();
        // Without a list no node can confirm it.
        let is_told = !confirmed.is_empty() || self.delete.config.is_none();
        if unconfirmed.is_empty() && unshared == 0 && is_told {
            return Some(Retirement::Done);
        }
        Some(Retirement::Spreading { unconfirmed, unshared })
    }

    /// Whether this node is leaving for good.
    pub(in crate::engine) fn is_retiring(&self) -> bool {
        self.delete.retires.is_some()
    }

    /// Whether the list is still to be changed for this node's leaving.
    pub(super) fn wants_to_retire(&self) -> bool {
        self.delete.retires == Some(Retiring::Asked)
    }

    /// Whether the list is without this node for good.
    pub(super) fn is_retired(&self) -> bool {
        matches!(self.delete.retires, Some(Retiring::Agreed { .. } | Retiring::NeverListed))
    }

    /// The list without this node. If that would be empty, it has one of the nodes that are here.
    pub(super) fn without_this(&self, config: &GroupConfig) -> Option<GroupConfig> {
        let me = self.as_listed();
        if !config.members().contains(&me) {
            return None;
        }
        let mut rest: Vec<Member> =
            config.members().iter().filter(|member| **member != me).cloned().collect();
        if rest.is_empty() {
            rest.extend(self.first_ready_peer());
        }
        GroupConfig::new(config.version.checked_add(1)?, config.lineage.clone(), rest)
    }

    fn is_listed(&self) -> bool {
        let me = self.as_listed();
        self.delete.config.as_ref().is_some_and(|config| config.members().contains(&me))
    }

    /// The list may be another one than before.
    pub(super) fn update_retirement(&mut self) {
        let Some(retires) = &self.delete.retires else { return };
        if self.is_listed() {
            self.delete.retires = Some(Retiring::Asked);
        } else if *retires == Retiring::Asked {
            self.delete.retires = Some(Retiring::Agreed { confirmed: BTreeSet::new() });
        }
    }

    /// A peer has told its list.
    pub(super) fn note_confirmation(&mut self, link: LinkId, theirs: Option<&GroupConfig>) {
        let me = self.as_listed();
        let knows = match (theirs, &self.delete.config) {
            (Some(theirs), Some(ours)) => {
                theirs.version >= ours.version && !theirs.members().contains(&me)
            }
            _ => false,
        };
        if let Some(Retiring::Agreed { confirmed }) = &mut self.delete.retires
            && knows
        {
            confirmed.insert(link);
        }
    }

    /// A link is gone, and what was sent over it may be lost, too.
    pub(super) fn forget_confirmation(&mut self, link: LinkId) {
        if let Some(Retiring::Agreed { confirmed }) = &mut self.delete.retires {
            confirmed.remove(&link);
        }
    }
}
