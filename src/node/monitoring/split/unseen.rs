//! Members that this node knew when it was started, and that it has not seen in this life: it may have been started into a
//! split, and nobody it sees can tell it. They come from its list of known peers, from which those are gone that have left;
//! where that has no say, from the Delete group.
//!
//! Before they are missed, and where others are here that know whether they have left, they are not told of as silent. They are
//! `unmet` all the same: nobody here may say of them that they have confirmed something.

use std::collections::{BTreeMap, BTreeSet};

use super::{Network, Presence};
use crate::model::ids::{Millis, NodeName};
use crate::node::membership::peer_file::Stored;

/// They have at least this long to show themselves: more than SWIM takes to see a crash, and a network that is started
/// as a whole to meet.
const SHOW_MS: Millis = 10_000;

/// See the module.
#[derive(Default)]
pub(in crate::node) struct Unseen {
    names: BTreeSet<NodeName>,
    /// Those that have not shown themselves, missed or not.
    unmet: BTreeSet<NodeName>,
    /// When this node was started.
    started: Millis,
    /// How long they have to show themselves.
    patience_ms: Millis,
}

/// Members to be missed from now on.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Missed {
    pub(super) names: BTreeSet<NodeName>,
    pub(super) since: Millis,
    /// How many changes were known here when this node began to serve: they cannot have those since.
    pub(super) known: u64,
}

impl Unseen {
    /// `patience_ms`: for how long the node waits for its peers when it starts.
    pub(in crate::node) fn new(
        names: BTreeSet<NodeName>,
        patience_ms: Millis,
        now: Millis,
    ) -> Self {
        let unmet = names.clone();
        Self { names, unmet, started: now, patience_ms: patience_ms.max(SHOW_MS) }
    }

    /// Who has not shown itself. Members that are not missed are known as such for as long as they would be if they had gone
    /// silent alone.
    pub(super) fn unmet(&self) -> &BTreeSet<NodeName> {
        &self.unmet
    }

    /// Nobody waits any more for this one.
    pub(super) fn give_up(&mut self, name: &NodeName) {
        self.names.remove(name);
        self.unmet.remove(name);
    }

    /// Nobody waits any more for those who have not shown themselves for so long.
    pub(super) fn forget(&mut self, forget_after_ms: Millis, now: Millis) {
        if now.saturating_sub(self.started) >= forget_after_ms.max(self.patience_ms) {
            self.unmet.clear();
        }
    }

    /// Takes note of who is there, has left, or is `forgotten`; and says once whom to miss. That is not before the
    /// node serves: until then it says that it waits.
    pub(super) fn look(
        &mut self,
        network: &Network,
        forgotten: &BTreeSet<NodeName>,
        now: Millis,
    ) -> Option<Missed> {
        let is_unseen = |name: &NodeName| {
            let is = network.present.get(name);
            is.is_none_or(|is| *is == Presence::Silent) && !forgotten.contains(name)
        };
        self.names.retain(is_unseen);
        self.unmet.retain(is_unseen);
        let known = network.known_at_ready?;
        if self.names.is_empty() || now.saturating_sub(self.started) < self.patience_ms {
            return None;
        }
        let mut names = std::mem::take(&mut self.names);
        names.retain(|name| network.is_missed_from_start(name));
        let missed = Missed { names, since: self.started, known };
        (!missed.names.is_empty()).then_some(missed)
    }
}

/// Whom a node expects that is started with this list of peers. `listed`: the members of the Delete group.
pub(in crate::node) fn expected(
    stored: &Stored,
    listed: impl Iterator<Item = NodeName>,
    own: &NodeName,
) -> BTreeSet<NodeName> {
    let mut names = BTreeMap::new();
    for peer in &stored.peers {
        names.extend(peer.name.clone().map(|name| (name, peer.is_missed)));
    }
    if !stored.is_complete() {
        listed.for_each(|name| _ = names.entry(name).or_insert(true));
    }
    names.remove(own);
    names.into_iter().filter_map(|(name, is_missed)| is_missed.then_some(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::membership::peer_file::KnownPeer;

    fn names(list: &[&str]) -> BTreeSet<NodeName> {
        list.iter().map(|name| NodeName::new(name).unwrap()).collect()
    }

    fn network(present: &[(&str, Presence)], listed: &[&str], known: u64) -> Network {
        // Two were made before the first look.
        let known_at_ready = Some(known.min(2));
        let present = present.iter().map(|(name, is)| (NodeName::new(name).unwrap(), *is));
        Network {
            present: present.collect(),
            listed: names(listed),
            known,
            known_at_ready,
            ..Network::default()
        }
    }

    #[test]
    fn who_does_not_show_itself_in_time_is_missed_once_the_node_serves() {
        let mut unseen = Unseen::new(names(&["b", "c", "d", "e"]), 0, 1_000);
        let none = names(&[]);
        let starting = Network { known_at_ready: None, ..network(&[], &[], 3) };
        assert_eq!(unseen.look(&starting, &none, 500_000), None, "it does not serve yet");
        let seen = network(&[("d", Presence::Doubtful), ("e", Presence::Left)], &[], 4);
        assert_eq!(unseen.look(&seen, &none, 10_999), None, "they may come");
        let found = unseen.look(&network(&[], &[], 9), &names(&["c"]), 11_000).unwrap();
        assert_eq!(found, Missed { names: names(&["b"]), since: 1_000, known: 2 });
        assert_eq!(unseen.look(&network(&[], &[], 9), &none, 20_000), None, "it is said once");
        // An operator who lets peers take longer is not warned before.
        let mut unseen = Unseen::new(names(&["b"]), 60_000, 0);
        assert_eq!(unseen.look(&network(&[], &[], 0), &none, 59_999), None);
        assert!(unseen.look(&network(&[], &[], 0), &none, 60_000).is_some());
    }

    #[test]
    fn where_others_are_here_only_members_of_the_delete_group_are_missed() {
        let mut unseen = Unseen::new(names(&["b", "c", "d"]), 0, 0);
        let none = names(&[]);
        let with = network(&[("b", Presence::Here)], &["c"], 0);
        assert_eq!(unseen.look(&with, &none, 10_000).unwrap().names, names(&["c"]));
        let mut unseen = Unseen::new(names(&["b", "d"]), 0, 0);
        assert_eq!(unseen.look(&with, &none, 10_000), None, "the others know whether d has left");
        // This node does not, and has not met it.
        assert_eq!(*unseen.unmet(), names(&["d"]));
        unseen.forget(60_000, 59_999);
        assert_eq!(unseen.look(&with, &none, 59_999), None);
        assert_eq!(*unseen.unmet(), names(&["d"]));
        unseen.forget(60_000, 60_000);
        assert_eq!(*unseen.unmet(), none);
    }

    #[test]
    fn who_shows_itself_or_has_left_or_is_forgotten_is_not_unmet() {
        let mut unseen = Unseen::new(names(&["b", "c", "d", "e"]), 0, 0);
        assert_eq!(*unseen.unmet(), names(&["b", "c", "d", "e"]));
        let starting = [("b", Presence::Doubtful), ("c", Presence::Left), ("e", Presence::Silent)];
        let starting = Network { known_at_ready: None, ..network(&starting, &[], 0) };
        assert_eq!(unseen.look(&starting, &names(&["d"]), 100), None);
        assert_eq!(*unseen.unmet(), names(&["e"]));
    }

    fn stored(peers: &[(&str, Option<&str>, bool)], is_whole: bool) -> Stored {
        let peer = |(address, name, is_missed): &(&str, Option<&str>, bool)| KnownPeer {
            address: (*address).to_owned(),
            name: name.map(|name| NodeName::new(name).unwrap()),
            is_missed: *is_missed,
        };
        Stored { peers: peers.iter().map(peer).collect(), damage: None, is_whole }
    }

    #[test]
    fn members_are_those_of_the_list_and_without_one_those_of_the_delete_group() {
        let own = NodeName::new("a").unwrap();
        let expected =
            |stored: &Stored, listed: &[&str]| expected(stored, names(listed).into_iter(), &own);
        let list = stored(&[("h:1", Some("b"), true), ("h:2", Some("c"), false)], true);
        assert_eq!(expected(&list, &["a", "c", "d"]), names(&["b"]), "d has left");
        assert_eq!(expected(&stored(&[], true), &["a", "b"]), names(&[]), "all have left");
        assert_eq!(expected(&stored(&[], false), &["a", "b"]), names(&["b"]));
        let damaged = stored(&[("h:1", Some("b"), true), ("h:2", Some("c"), false)], false);
        assert_eq!(expected(&damaged, &["a", "c", "d"]), names(&["b", "d"]));
        // What people write need not be a member, and need not be all of them.
        let given = stored(&[("h:1", None, true)], true);
        assert_eq!(expected(&given, &[]), names(&[]));
        assert_eq!(expected(&given, &["a", "b"]), names(&["b"]));
    }
}
