//! The durable list of peers: whom to call when they are missing.
//!
//! SWIM forgets the dead, and a node without active members falls silent; so two halves of a split
//! network, or two nodes that lost each other, would never meet again. This list does not forget,
//! and one missing peer is called about once a second, always.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::membership::io::PeerInfo;
use crate::model::ids::{Millis, NodeName};

/// Most peers on the list: an order of magnitude above the largest network aimed at, and still
/// only tens of kilobytes. When it is full, those that never were up go first, then those that
/// have been away longest.
pub const PEERS_MAX: usize = 1024;

/// A peer that went missing this recently is called on every other turn, so that a long list of
/// old addresses does not delay the healing of a split.
pub(in crate::membership) const RECENTLY_LOST_MS: Millis = 600_000;
/// An address at which no member ever came up is called this often in its turn, and from then on
/// once per [`MERE_ADDR_PERIOD_MS`], unless we are alone. It may be a mistake, or another address of
/// a node that is long a member; then it answers every call and still never comes up.
const MERE_ADDR_CALLS: u32 = 10;
const MERE_ADDR_PERIOD_MS: Millis = 60_000;

#[derive(Debug, Clone)]
struct Peer {
    name: Option<NodeName>,
    is_up: bool,
    /// When it went down, if it ever was up and is not now.
    lost_at: Option<Millis>,
    was_up: bool,
    /// Number of the last call to it; 0 if there was none.
    last_call: u64,
    last_call_at: Millis,
    calls: u32,
}

impl Peer {
    fn new(name: Option<NodeName>) -> Self {
        Self {
            name,
            is_up: false,
            lost_at: None,
            was_up: false,
            last_call: 0,
            last_call_at: 0,
            calls: 0,
        }
    }

    fn is_recent(&self, now: Millis) -> bool {
        match self.lost_at {
            Some(at) => now.saturating_sub(at) < RECENTLY_LOST_MS,
            None => self.calls == 0,
        }
    }

    /// Whether there has been no node for a while; or there never was one, however often it was called.
    fn is_gone(&self, now: Millis) -> bool {
        !self.is_up
            && match self.lost_at {
                Some(at) => now.saturating_sub(at) >= RECENTLY_LOST_MS,
                None => self.calls >= MERE_ADDR_CALLS,
            }
    }

    fn is_due(&self, now: Millis, alone: bool) -> bool {
        let waited = now.saturating_sub(self.last_call_at) >= MERE_ADDR_PERIOD_MS;
        !self.is_up && (alone || self.was_up || self.calls < MERE_ADDR_CALLS || waited)
    }
}

/// The list.
#[derive(Debug, Default)]
pub(in crate::membership) struct PeerList {
    /// Invariant: at most [`PEERS_MAX`].
    peers: BTreeMap<SocketAddr, Peer>,
    calls: u64,
}

impl PeerList {
    /// Adds an address, or a name to an address. No effect if the list is full of better ones.
    pub(in crate::membership) fn add(&mut self, addr: SocketAddr, name: Option<NodeName>) {
        if let Some(peer) = self.peers.get_mut(&addr) {
            if name.is_some() && !peer.is_up {
                peer.name = name;
            }
        } else if self.make_room(false) {
            self.peers.insert(addr, Peer::new(name));
        }
    }

    /// Takes an address off the list.
    pub(in crate::membership) fn forget(&mut self, addr: &SocketAddr) {
        self.peers.remove(addr);
    }

    /// A member came up. If it was known at another address where no node has been for a while, it has moved: the
    /// old address is removed; otherwise a network whose nodes get new addresses would collect dead
    /// ones for ever. Not at once: what came up may be a copy, which gives way, and the node is where it was.
    pub(in crate::membership) fn on_up(&mut self, addr: SocketAddr, name: &NodeName, now: Millis) {
        self.peers.retain(|at, peer| {
            *at == addr || !peer.is_gone(now) || peer.name.as_ref() != Some(name)
        });
        if self.peers.contains_key(&addr) || self.make_room(true) {
            let peer = self.peers.entry(addr).or_insert_with(|| Peer::new(None));
            peer.name = Some(name.clone());
            peer.is_up = true;
            peer.was_up = true;
            peer.lost_at = None;
        }
    }

    /// A member failed: it stays on the list.
    pub(in crate::membership) fn on_failed(&mut self, addr: &SocketAddr, now: Millis) {
        if let Some(peer) = self.peers.get_mut(addr) {
            peer.is_up = false;
            peer.lost_at = Some(now);
        }
    }

    /// Whom to call now: in turn, the one that waited longest. Every other time, only those that
    /// went missing of late or were never called are considered, if there are any. `alone`: we
    /// have no active member.
    pub(in crate::membership) fn next_to_call(
        &mut self,
        now: Millis,
        alone: bool,
    ) -> Option<SocketAddr> {
        let due = || self.peers.iter().filter(|(_, peer)| peer.is_due(now, alone));
        let waited_longest = |(_, peer): &(&SocketAddr, &Peer)| peer.last_call;
        let recent = if self.calls.is_multiple_of(2) {
            due().filter(|(_, peer)| peer.is_recent(now)).min_by_key(waited_longest)
        } else {
            None
        };
        let (addr, peer) = recent.or_else(|| due().min_by_key(waited_longest))?;
        let (addr, name) = (*addr, peer.name.as_ref());
        // It has moved: this is the last call to that address.
        if peer.is_gone(now)
            && self.peers.values().any(|other| other.is_up && other.name.as_ref() == name)
        {
            self.peers.remove(&addr);
        } else {
            self.on_called(&addr, now);
        }
        Some(addr)
    }

    /// It is called, in its turn or outside it.
    pub(in crate::membership) fn on_called(&mut self, addr: &SocketAddr, now: Millis) {
        self.calls += 1;
        if let Some(peer) = self.peers.get_mut(addr) {
            peer.last_call = self.calls;
            peer.last_call_at = now;
            peer.calls = peer.calls.saturating_add(1);
        }
    }

    /// The list, in order of addresses.
    pub(in crate::membership) fn iter(&self) -> impl Iterator<Item = PeerInfo> + '_ {
        self.peers.iter().map(|(addr, peer)| PeerInfo {
            addr: *addr,
            name: peer.name.clone(),
            was_up: peer.was_up,
        })
    }

    /// Whether there is room for one more, made if need be: for a member that is up at the expense
    /// of any that is missing, for a mere address only of those that never were up.
    fn make_room(&mut self, for_member: bool) -> bool {
        if self.peers.len() < PEERS_MAX {
            return true;
        }
        let worst = self
            .peers
            .iter()
            .filter(|(_, peer)| !peer.is_up && (for_member || !peer.was_up))
            .min_by_key(|(_, peer)| (peer.was_up, peer.lost_at))
            .map(|(addr, _)| *addr);
        worst.is_some_and(|addr| self.peers.remove(&addr).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 27587))
    }

    fn name(n: usize) -> NodeName {
        NodeName::new(&format!("node{n}")).unwrap()
    }

    #[test]
    fn missing_peers_are_called_in_turn_and_members_are_not() {
        let mut list = PeerList::default();
        for n in 0..4 {
            list.add(addr(n), None);
        }
        list.on_up(addr(2), &name(2), 0);
        let mut called: Vec<_> = (0..6).filter_map(|_| list.next_to_call(0, true)).collect();
        called.sort();
        let expected = [0, 0, 1, 1, 3, 3].map(addr);
        assert_eq!(called, expected);
        list.on_failed(&addr(2), 5);
        assert!((0..2).any(|_| list.next_to_call(6, true) == Some(addr(2))), "freshly lost: soon");
    }

    #[test]
    fn a_long_list_of_old_addresses_does_not_delay_a_peer_lost_just_now() {
        let mut list = PeerList::default();
        for n in 0..500 {
            list.add(addr(n), None);
            list.next_to_call(0, true);
        }
        list.on_up(addr(600), &name(600), 0);
        list.on_failed(&addr(600), 10);
        let calls: Vec<_> = (0..10).filter_map(|_| list.next_to_call(1_000, true)).collect();
        assert!(calls.iter().filter(|at| **at == addr(600)).count() >= 5);
        let later = RECENTLY_LOST_MS * 2;
        let calls: Vec<_> = (0..501).filter_map(|_| list.next_to_call(later, true)).collect();
        assert_eq!(calls.iter().filter(|at| **at == addr(600)).count(), 1, "then in its turn");
    }

    #[test]
    fn an_address_where_nobody_ever_came_up_is_called_rarely_after_a_while_unless_we_are_alone() {
        let mut list = PeerList::default();
        list.add(addr(1), None);
        let calls = |list: &mut PeerList, from: Millis, alone| {
            (0..600).filter(|s| list.next_to_call(from + s * 1_000, alone).is_some()).count()
        };
        assert_eq!(calls(&mut list, 1_000_000, false), 10 + 9);
        assert_eq!(calls(&mut list, 2_000_000, true), 600);
        list.on_up(addr(1), &name(1), 0);
        list.on_failed(&addr(1), 0);
        assert_eq!(calls(&mut list, 3_000_000, false), 600, "it was a member once");
    }

    #[test]
    fn a_full_list_gives_up_the_least_useful_first() {
        let mut list = PeerList::default();
        for n in 0..PEERS_MAX {
            list.on_up(addr(n), &name(n), 0);
        }
        list.add(addr(5000), None);
        assert!(list.iter().all(|peer| peer.addr != addr(5000)), "no room for a mere address");
        list.on_up(addr(5000), &name(5000), 0);
        assert!(list.iter().all(|peer| peer.addr != addr(5000)), "no room: all others are up");
        list.on_failed(&addr(7), 20);
        list.on_failed(&addr(8), 10);
        list.on_up(addr(5000), &name(5000), 0);
        assert!(list.iter().any(|peer| peer.addr == addr(5000)));
        assert!(list.iter().all(|peer| peer.addr != addr(8)), "away longest");
        assert!(list.iter().any(|peer| peer.addr == addr(7)));
        assert_eq!(list.iter().count(), PEERS_MAX);
    }

    #[test]
    fn a_node_that_comes_up_elsewhere_leaves_no_old_address_behind() {
        // Whether somebody else comes up later, or not.
        for is_looked_at in [true, false] {
            let mut list = PeerList::default();
            list.on_up(addr(1), &name(1), 0);
            list.on_failed(&addr(1), 0);
            list.on_up(addr(2), &name(1), 10);
            let addrs = |list: &PeerList| list.iter().map(|peer| peer.addr).collect::<Vec<_>>();
            // It may have been a copy that gives way.
            assert_eq!(addrs(&list), [addr(1), addr(2)]);
            assert_eq!(list.next_to_call(20, false), Some(addr(1)));
            if is_looked_at {
                list.next_to_call(RECENTLY_LOST_MS, false);
            } else {
                list.on_up(addr(2), &name(1), RECENTLY_LOST_MS);
            }
            assert_eq!(addrs(&list), [addr(2)]);
        }
    }

    #[test]
    fn an_address_that_was_told_and_not_tried_yet_stays_while_its_node_is_up_elsewhere() {
        let mut list = PeerList::default();
        list.on_up(addr(2), &name(1), 0);
        list.add(addr(1), Some(name(1)));
        for n in 0..u64::from(MERE_ADDR_CALLS) {
            assert_eq!(list.next_to_call(n, false), Some(addr(1)));
            list.on_up(addr(2), &name(1), n);
        }
        assert_eq!(list.iter().count(), 1, "nobody is there");
    }

    #[test]
    fn where_a_copy_came_up_and_gave_way_the_node_is_called_at_its_own_address() {
        let mut list = PeerList::default();
        list.on_up(addr(1), &name(1), 0);
        list.on_failed(&addr(1), 1_000);
        list.on_up(addr(2), &name(1), 1_500);
        list.on_failed(&addr(2), 2_000);
        let called: Vec<_> = (0..4).filter_map(|n| list.next_to_call(3_000 + n, true)).collect();
        assert!(called.contains(&addr(1)) && called.contains(&addr(2)), "{called:?}");
    }
}
