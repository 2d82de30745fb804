//! Where this node is, as its peers were told: learnt from connections, said once in each greeting, and said again in
//! a new one when it is another address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::Links;
use super::link::{Link, LinkEnd};
use crate::model::ids::Millis;
use crate::node::config::GOSSIP_PORT;
use crate::node::membership::address::{
    GIVE_ANOTHER, HostPort, is_link_local, is_of_this_host, route_to, unreached_by_others,
};
use crate::node::membership::identity::Told;
use crate::rt;

/// A link over which the peer was told what is not so any more is closed, to be greeted anew, but no younger one: so a
/// host whose addresses come and go loses each link at most this often.
const TOLD_AGE_MIN_MS: Millis = 5_000;
/// Of the links, one in so many is greeted anew at a time, so that most of them stand meanwhile.
const SHARE: usize = 4;

impl Links {
    /// A link has shown at which local address peers reach this node.
    pub(super) fn learn_route_of(&self, link: &Link) {
        let Some(local) = link.local_ip() else { return };
        let peer = HostPort::parse(&link.peer.gossip, Some(0)).ok().and_then(|at| at.numeric());
        // A peer that can be called by the other family only cannot answer this address's datagrams.
        let other = peer.filter(|at| at.is_ipv4() != local.is_ipv4() && !at.ip().is_loopback());
        let other = other.and_then(route_to).filter(|ip| self.me.hears(*ip));
        if let Some(addr) = self.me.learn_route(other.unwrap_or(local)) {
            self.on_route(addr);
        }
        self.check_reach(link, local);
    }

    /// The system would use this local address to reach a peer.
    pub(super) fn guess_route(&self, local: IpAddr) {
        if let Some(addr) = self.me.guess_route(local) {
            self.on_route(addr);
        }
    }

    /// No link shows at which address peers reach this node, and the one that they are told is gone: clients are told it, too.
    fn replace_lost_route(&self) {
        let peers: Vec<SocketAddr> =
            self.targets.lock().addresses().filter_map(|at| at.parse().ok()).collect();
        for local in peers.into_iter().filter_map(route_to) {
            self.guess_route(local);
            if !self.me.has_lost_route() {
                return;
            }
        }
        if let Some(addr) = self.me.replace_lost_route() {
            self.on_route(addr);
        }
    }

    fn on_route(&self, addr: SocketAddr) {
        tracing::info!(%addr, "peers reach this node here");
        if is_link_local(addr.ip()) {
            let trouble = unreached_by_others("this node", addr);
            tracing::warn!("{trouble}; {GIVE_ANOTHER}, or name one with --advertise");
        }
        self.take_place();
        // Clients are told this node's own addresses, too.
        self.hub.cluster_changed.notify(usize::MAX);
    }

    /// Tells SWIM where this node is and which life it is, both as of this moment: of two tasks that each tell a new one, the
    /// later must not tell what the other has just replaced, since nobody would notice.
    pub(super) fn take_place(&self) {
        let _place = self.place.lock();
        if let Some(addr) = self.me.swim_addr() {
            let incarnation = self.hub.read(|e| e.id().incarnation);
            self.swim.become_member(addr, incarnation);
        }
    }

    /// Takes another address where this host has lost the one that peers are told, and sees to it that peers which
    /// were told something else hear of it. To be called about once a second.
    pub(in crate::node) fn keep_told(&self) {
        let links: Vec<Arc<Link>> = self.table.lock().values().cloned().collect();
        let stands = |link: &&Arc<Link>| link.end().is_none();
        if self.me.has_lost_route() || self.me.wants_better() {
            for link in links.iter().filter(stands) {
                // A link may outlive its address for a while.
                if link.local_ip().is_some_and(is_of_this_host) {
                    self.learn_route_of(link);
                }
            }
        }
        if self.me.has_lost_route() {
            self.replace_lost_route();
        }
        let now = rt::now();
        let is_old = |link: &&Arc<Link>| now.saturating_sub(link.since) >= TOLD_AGE_MIN_MS;
        // Links mostly have one local address, and to find out what is told there asks the system.
        let mut told_at: BTreeMap<IpAddr, Told> = BTreeMap::new();
        let mut is_stale = |link: &Link, local: IpAddr| {
            let told = told_at.entry(local).or_insert_with(|| self.me.told(Some(local)));
            link.told != *told
        };
        let old = links.iter().filter(stands).filter(is_old);
        let stale = old.filter(|link| link.local_ip().is_some_and(|local| is_stale(link, local)));
        for link in stale.take(links.len().div_ceil(SHARE)) {
            link.close(LinkEnd::Moved);
        }
    }

    /// Warns of a peer that others cannot reach at the address that they are told.
    pub(super) fn check_link_local(&self, name: &str, addr: SocketAddr) {
        if is_link_local(addr.ip()) {
            let trouble = unreached_by_others(name, addr);
            self.complain(name, "link_local", &format!("{trouble}; {GIVE_ANOTHER}"));
        }
    }

    /// Warns where one of the two nodes of a link tells the other, on another machine, an address at which membership
    /// does not reach it: they are linked, but membership needs a way in both directions.
    fn check_reach(&self, link: &Link, local: IpAddr) {
        let numeric = |at: &str| HostPort::parse(at, Some(0)).ok().and_then(|at| at.numeric());
        let is_loopback = |at: &str| numeric(at).is_some_and(|addr| addr.ip().is_loopback());
        let remote = link.remote.ip().to_canonical();
        if remote.is_loopback() || remote == local {
            return;
        }
        if let Some(addr) = numeric(&link.peer.gossip) {
            self.check_link_local(link.peer.name.as_str(), addr);
        }
        let (peer, own) = (&link.peer, self.me.gossip_text(Some(local)));
        let all = if remote.is_ipv4() { "0.0.0.0" } else { "[::]" };
        let open = format!("start it with --gossip {all}:{GOSSIP_PORT}");
        let (reason, whose, remedy) = if is_loopback(&own) {
            if self.me.learns_route() {
                // Another link is showing a better one.
                return;
            }
            let text = format!(
                "peers are told to find this node at {own}, where no other machine reaches it: it"
            );
            let is_advertised = self.me.gossip.ip().is_unspecified();
            let remedy =
                String::from("start it without --advertise, or with another address there");
            ("loopback", text, if is_advertised { remedy } else { open })
        } else if is_loopback(&peer.gossip) {
            let at = &peer.gossip;
            let text = format!(
                "this peer, at {remote}, listens for peers at {at}, where no other machine reaches it: it"
            );
            ("loopback", text, open)
        } else if numeric(&peer.gossip).is_some_and(|at| !self.me.hears(at.ip())) {
            let text = format!(
                "this peer is called at {}, and this node listens at {}, for the other family of addresses \
                 only: each",
                peer.gossip, self.me.gossip
            );
            let remedy = format!(
                "start all nodes with one of the two families, or with --gossip [::]:{GOSSIP_PORT}"
            );
            ("family", text, remedy)
        } else {
            return;
        };
        let text =
            format!("{whose} takes part, but others see it as joining, never as up; {remedy}");
        self.complain(peer.name.as_str(), reason, &text);
    }
}
