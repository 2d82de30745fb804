//! That membership (SWIM) knows every peer to which a link stands. It is told when the link is made, because this node may
//! be the only one that can tell it; and again for as long as the peer is not a member that is up. What was told once can be
//! lost: the peer's host name was not known at that moment, a late goodbye of its life before took its address off the list
//! of those that are called, or hundreds of addresses of nodes that are gone are called before it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::link::Link;
use super::{Links, is_live};
use crate::model::ids::{Incarnation, Millis, NodeName};
use crate::node::membership::address::HostPort;
use crate::rt;

/// A linked peer that has not been up for so long is told of again, and each further time after as long. Something comes
/// over a link in this time (full digests, every 5 s), and a link over which a peer has said farewell does not stand for as
/// long. One datagram for each link: [`LINKS_MAX`](super::LINKS_MAX) of them in this time at most.
const TELL_AGAIN_MS: Millis = 10_000;

/// What membership was told of a linked peer.
#[derive(Debug)]
pub(super) struct ToldOf {
    /// When it was told last, or last had the peer up.
    last: Millis,
    /// How often it was told.
    times: usize,
}

impl ToldOf {
    /// The link is new, and membership is being told.
    pub(super) fn new(now: Millis) -> Self {
        Self { last: now, times: 1 }
    }

    /// To be called about once a second; `is_up`: membership has the peer up; `heard`: when something last came from it.
    /// Whether to tell membership again; if so, how often it was told before.
    fn look(&mut self, is_up: bool, heard: Millis, now: Millis) -> Option<usize> {
        if is_up {
            *self = Self::new(now);
            return None;
        }
        let is_due = now.saturating_sub(self.last) >= TELL_AGAIN_MS;
        if !is_due || now.saturating_sub(heard) >= TELL_AGAIN_MS {
            return None;
        }
        let before = self.times;
        *self = Self { last: now, times: before + 1 };
        Some(before)
    }
}

impl Links {
    /// Tells SWIM again of linked peers that are not up. To be called about once a second.
    pub(in crate::node) fn keep_known(&self) {
        let links: Vec<Arc<Link>> = self.table.lock().values().cloned().collect();
        let roster = self.swim.roster();
        let live: BTreeSet<(&NodeName, Incarnation)> = {
            let live = roster.members.iter().filter(|member| is_live(member.state));
            live.map(|member| (&member.name, member.incarnation)).collect()
        };
        let now = rt::now();
        for link in links.iter().filter(|link| link.end().is_none()) {
            let is_up = live.contains(&(&link.peer.name, link.peer.incarnation));
            let due = link.told_swim.lock().look(is_up, link.heard(), now);
            if let Some(before) = due {
                tracing::debug!(peer = %link.peer.name, "linked, and not up: membership is told again");
                self.tell_swim_of(link, before);
            }
        }
    }

    /// `before`: how often it was told. A host name may have several addresses, of which not all need to be right.
    pub(super) fn tell_swim_of(&self, link: &Link, before: usize) {
        let Ok(gossip) = HostPort::parse(&link.peer.gossip, Some(0)) else { return };
        let (swim, name) = (self.swim.clone(), link.peer.name.clone());
        let tell = move |addr| match before {
            0 => swim.known_peer(Some(name), addr),
            _ => swim.linked(name, addr),
        };
        match gossip.numeric() {
            Some(addr) => tell(addr),
            None => {
                let me = Arc::clone(&self.me);
                drop(rt::spawn(async move {
                    let mut addrs = rt::resolve(&gossip).await.unwrap_or_default();
                    me.order(&mut addrs);
                    let at = before.checked_rem(addrs.len()).unwrap_or(0);
                    if let Some(addr) = addrs.get(at) {
                        tell(*addr);
                    }
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linked_peer_that_is_not_up_is_told_of_again_and_again_and_not_too_often() {
        let mut told = ToldOf::new(0);
        let times = |told: &mut ToldOf, is_up, from: Millis, to: Millis| -> Vec<(Millis, usize)> {
            let seconds = (from..to).step_by(1_000);
            seconds.filter_map(|now| Some((now, told.look(is_up, now, now)?))).collect()
        };
        assert_eq!(times(&mut told, false, 0, 31_000), [(10_000, 1), (20_000, 2), (30_000, 3)]);
        assert_eq!(times(&mut told, true, 31_000, 90_000), []);
        // It was declared down, and removed.
        assert_eq!(times(&mut told, false, 90_000, 100_000), [(99_000, 1)]);
    }

    #[test]
    fn a_link_over_which_nothing_comes_says_nothing_of_its_peer() {
        let mut told = ToldOf::new(0);
        assert_eq!(told.look(false, 5_000, 15_000), None);
        assert_eq!(told.look(false, 15_500, 16_000), Some(1));
    }
}
