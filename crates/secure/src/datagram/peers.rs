//! What is known of the addresses that this node sends to: the epoch of the node there, and the
//! datagrams that wait until it is known.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::pace::Pace;

/// Most addresses that are remembered; the one not sent to for longest goes.
pub(super) const PEERS_MAX: usize = 4_096;
/// Most datagrams that wait for one address; the oldest goes.
pub(super) const WAITING_MAX: usize = 4;
/// How long a datagram waits at most, in milliseconds: SWIM has given its question up by then.
pub(super) const WAIT_MS_MAX: u64 = 1_000;
/// Most datagrams whose address is remembered, so that a `tell` is matched with what it answers. No `tell` is among
/// them, which is never answered: whoever makes this node send many of those would have it forget the rest.
pub(super) const SENT_MAX: usize = 1_024;

/// An address, and the node there.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The epoch to seal for; `None` until it is known.
    pub(super) epoch: Option<u64>,
    /// My counter that the `tell` answered from which the epoch is known; 0 if it is known from a datagram.
    /// Only an answer to something later replaces it.
    pub(super) proof: u64,
    pub(super) asks: Pace,
    pub(super) tells: Pace,
    /// When each came, and its plaintext; at most `WAITING_MAX`.
    waiting: VecDeque<(u64, Vec<u8>)>,
    used: u64,
}

impl Peer {
    /// Lets a datagram wait.
    pub(super) fn wait(&mut self, plain: &[u8], now: u64) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back((now, plain.to_vec()));
    }

    /// What waits and has not waited too long.
    pub(super) fn take_waiting(&mut self, now: u64) -> Vec<Vec<u8>> {
        let waiting = std::mem::take(&mut self.waiting);
        let is_fresh = |since: u64| now.saturating_sub(since) <= WAIT_MS_MAX;
        waiting.into_iter().filter(|(since, _)| is_fresh(*since)).map(|(_, plain)| plain).collect()
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Peers {
    peers: BTreeMap<SocketAddr, Peer>,
    uses: u64,
}

impl Peers {
    pub(super) fn get(&self, addr: SocketAddr) -> Option<&Peer> {
        self.peers.get(&addr)
    }

    pub(super) fn get_mut(&mut self, addr: SocketAddr) -> Option<&mut Peer> {
        self.peers.get_mut(&addr)
    }

    /// The peer of an address, which is remembered from now on.
    pub(super) fn use_or_add(&mut self, addr: SocketAddr) -> &mut Peer {
        if !self.peers.contains_key(&addr) && self.peers.len() >= PEERS_MAX {
            let oldest = self.peers.iter().min_by_key(|(_, peer)| peer.used).map(|(addr, _)| *addr);
            oldest.map(|addr| self.peers.remove(&addr));
        }
        self.uses += 1;
        let peer = self.peers.entry(addr).or_default();
        peer.used = self.uses;
        peer
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.peers.values().map(|peer| peer.waiting.len()).sum()
    }
}

/// To which address the latest counters went.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The counter of the newest.
    newest: u64,
    /// By counter, oldest first, those that a `tell` may answer; at most `SENT_MAX`.
    to: VecDeque<(u64, SocketAddr)>,
}

impl Sent {
    /// The counter of the next datagram. They begin at 1.
    pub(super) fn count(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    /// The newest goes to this address, and a `tell` may answer it.
    pub(super) fn remember(&mut self, to: SocketAddr) {
        if self.to.len() >= SENT_MAX {
            self.to.pop_front();
        }
        self.to.push_back((self.newest, to));
    }

    /// Where a counter went, if it is one of the latest.
    pub(super) fn address_of(&self, counter: u64) -> Option<SocketAddr> {
        let at = self.to.binary_search_by_key(&counter, |(counter, _)| *counter).ok()?;
        self.to.get(at).map(|(_, to)| *to)
    }
}
