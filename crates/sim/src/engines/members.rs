//! Who each node believes to be a member, in runs that have membership: what SWIM would say, which
//! node by node comes to see who is up and can be reached. With it come networks in which not all
//! are linked with all, and changes are passed on (`crate::engine::spread`).

use std::collections::BTreeSet;

use super::cluster::Cluster;
use crate::engine::Input;
use crate::model::ids::NodeId;

/// In how many of a hundred ticks a node notices that another has come or gone.
const NOTICES_PERCENT: u32 = 20;
/// One in so many nodes takes every network for a small one, as earlier versions do.
const OLD_ONE_IN: u64 = 7;

impl Cluster<'_> {
    /// Up to how many nodes a node links with all of them.
    pub(crate) fn full_mesh_max(&self, node: usize) -> usize {
        let is_old = (self.plan.hash_seed ^ node as u64).is_multiple_of(OLD_ONE_IN);
        self.plan.full_mesh_max.filter(|_| !is_old).unwrap_or(usize::MAX)
    }

    /// A node's SWIM notices who has come and gone, and the node dials whom it wants links with now.
    pub(super) fn look_at_members(&mut self, node: usize) {
        if self.plan.full_mesh_max.is_none() {
            return;
        }
        let there = self.reachable(node);
        let known: BTreeSet<NodeId> = match &self.nodes[node].engine {
            Some(engine) => engine.members().cloned().collect(),
            None => return,
        };
        for member in there.difference(&known) {
            if self.notices() {
                self.handle(node, Input::MemberUp { member: member.clone() });
            }
        }
        for member in known.difference(&there) {
            if self.notices() {
                self.handle(node, Input::MemberDown { member: member.clone() });
            }
        }
        let wanted = self.nodes[node].engine.as_ref().and_then(|e| e.wanted_links().cloned());
        if self.nodes[node].wanted != wanted {
            self.nodes[node].wanted = wanted;
            self.dial_all(node);
        }
    }

    fn notices(&mut self) -> bool {
        self.is_healing() || self.rng.percent(NOTICES_PERCENT)
    }

    /// The others that are up and can be reached.
    fn reachable(&self, node: usize) -> BTreeSet<NodeId> {
        let name = &self.nodes[node].name;
        let others = self.nodes.iter().enumerate();
        let others = others.filter(|(at, n)| n.name != *name && !self.network.is_cut(node, *at));
        others.filter_map(|(_, n)| n.engine.as_ref()).map(|e| e.id().clone()).collect()
    }

    /// Whether there is to be a link between two nodes: one of them wants it, or has nothing yet.
    pub(crate) fn is_wanted(&self, a: usize, b: usize) -> bool {
        let wants = |from: usize, to: usize| {
            self.nodes[from].engine.as_ref().is_some_and(|engine| {
                let wanted = engine.wanted_links();
                !engine.is_ready()
                    || wanted.is_none_or(|wanted| wanted.contains(&self.nodes[to].name))
            })
        };
        wants(a, b) || wants(b, a)
    }

    /// Whether all nodes that are up are linked with whom they are to be.
    pub(crate) fn is_meshed(&self) -> bool {
        let up: Vec<usize> = (0..self.nodes.len()).filter(|at| self.nodes[*at].is_up()).collect();
        let is_linked =
            |a: usize, b: usize| self.nodes[a].ends.iter().any(|end| self.network.peer(*end) == b);
        let knows_all = |a: usize| {
            let members = self.nodes[a].engine.iter().flat_map(|e| e.members());
            self.plan.full_mesh_max.is_none() || members.count() + 1 == up.len()
        };
        up.iter().all(|a| knows_all(*a))
            && up
                .iter()
                .all(|a| up.iter().all(|b| a == b || is_linked(*a, *b) || !self.is_wanted(*a, *b)))
    }
}
