//! Members that have said farewell over their link. Membership hears of most farewells by itself; not of those of nodes that no
//! datagram reaches, which are here by their link alone.

use std::collections::{BTreeMap, BTreeSet};

use super::{Presence, SILENT_MEMBERS_MAX};
use crate::model::ids::{Incarnation, NodeName};

/// See the module.
#[derive(Default)]
pub(super) struct Parted {
    /// The last life of each that has said farewell; at most [`SILENT_MEMBERS_MAX`].
    lives: BTreeMap<NodeName, Incarnation>,
}

impl Parted {
    /// That life of a member has said farewell.
    pub(super) fn note(&mut self, name: NodeName, life: Incarnation) {
        self.lives.insert(name, life);
        while self.lives.len() > SILENT_MEMBERS_MAX {
            self.lives.pop_first();
        }
    }

    /// These lives are here. One that has said farewell may be among them for a moment.
    pub(super) fn look(&mut self, here: &BTreeSet<(NodeName, Incarnation)>) {
        for (name, life) in here {
            if self.lives.get(name).is_some_and(|parted| parted != life) {
                self.lives.remove(name);
            }
        }
    }

    /// Those who have gone since.
    pub(super) fn gone(&self, present: &BTreeMap<NodeName, Presence>) -> BTreeSet<NodeName> {
        let is_here = |name: &NodeName| present.get(name).is_some_and(|is| *is < Presence::Left);
        self.lives.keys().filter(|name| !is_here(name)).cloned().collect()
    }

    /// All that have not come back.
    pub(super) fn names(&self) -> BTreeSet<NodeName> {
        self.lives.keys().cloned().collect()
    }
}
