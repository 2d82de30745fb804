//! What this node says about itself: its greeting, and the address at which peers reach it.

use std::net::{IpAddr, SocketAddr};

use parking_lot::Mutex;

use super::address::{Advertised, HostPort, is_host, is_of_this_host};
use crate::hub::Hub;
use crate::model::ids::{Millis, NodeName, Tock};
use crate::protocol::peer::greeting::{
    Hello, LIMITS, PEERS_MAX, VERSION, VERSION_ARRAY_PATHS, VERSION_OLDEST,
};
use crate::rt;

/// This software's version, for operators.
pub(in crate::node) const SOFTWARE: &str = env!("CARGO_PKG_VERSION");
/// Most bytes of other members' addresses in a greeting, which must fit its frame.
const PEERS_BYTES_MAX: usize = 2048;

/// The constant part of this node's identity. Its incarnation is the engine's, because it may
/// change.
pub(in crate::node) struct Myself {
    pub(in crate::node) name: NodeName,
    pub(in crate::node) network: String,
    /// The bound client port.
    pub(in crate::node) client: SocketAddr,
    /// The bound gossip port.
    pub(in crate::node) gossip: SocketAddr,
    advertised: Advertised,
    /// Where `advertised` leaves it open: the address that SWIM uses, once it is known.
    route: Mutex<Option<IpAddr>>,
    /// Since when it has served clients, as far as that was noticed.
    serving_since: Mutex<Option<Millis>>,
    /// See [`Hello::may_begin`].
    may_begin: Mutex<Option<Tock>>,
}

impl Myself {
    pub(in crate::node) fn new(
        name: NodeName,
        network: String,
        client: SocketAddr,
        gossip: SocketAddr,
        advertised: Advertised,
    ) -> Self {
        Self {
            name,
            network,
            client,
            gossip,
            advertised,
            route: Mutex::new(None),
            serving_since: Mutex::new(None),
            may_begin: Mutex::new(None),
        }
    }

    /// From now on this node serves clients.
    pub(in crate::node) fn note_serving(&self, now: Millis) {
        self.serving_since.lock().get_or_insert(now);
    }

    /// Says whether this node may begin without anybody to catch up from, and with which tock.
    /// Whether it may begin a network.
    pub(in crate::node) fn may_begin(&self) -> bool {
        self.may_begin.lock().is_some()
    }

    pub(in crate::node) fn set_may_begin(&self, tock: Option<Tock>) {
        *self.may_begin.lock() = tock;
    }

    /// The address for SWIM, if it is known yet.
    pub(in crate::node) fn swim_addr(&self) -> Option<SocketAddr> {
        match &self.advertised {
            Advertised::Fixed { addr, .. } => Some(*addr),
            Advertised::Route { port } => self.route.lock().map(|ip| SocketAddr::new(ip, *port)),
        }
    }

    /// A peer is reached from this local address, or reached us at it. Returns the new address for
    /// SWIM if it is the first that is known, or the first that other hosts could use, or takes the place of one that
    /// this host has lost.
    pub(in crate::node) fn learn_route(&self, local: IpAddr) -> Option<SocketAddr> {
        self.learn_route_where(local, is_of_this_host)
    }

    fn learn_route_where(
        &self,
        local: IpAddr,
        is_of_this_host: impl FnOnce(IpAddr) -> bool,
    ) -> Option<SocketAddr> {
        let Advertised::Route { port } = &self.advertised else { return None };
        let local = local.to_canonical();
        let mut route = self.route.lock();
        let better = is_host(local)
            && match *route {
                None => true,
                Some(known) => {
                    (known.is_loopback() && !local.is_loopback())
                        || (known != local
                            && (known.is_loopback() || !local.is_loopback())
                            && !is_of_this_host(known))
                }
            };
        if !better {
            return None;
        }
        *route = Some(local);
        Some(SocketAddr::new(local, *port))
    }

    /// The address at which peers reach this node, for a peer whose connection has this local
    /// address.
    pub(in crate::node) fn gossip_text(&self, local: Option<IpAddr>) -> String {
        match (&self.advertised, self.swim_addr()) {
            (Advertised::Fixed { text, .. }, _) => text.to_string(),
            (Advertised::Route { .. }, Some(addr)) => HostPort::from(addr).to_string(),
            (Advertised::Route { port }, None) => {
                let ip = local.unwrap_or(self.gossip.ip());
                HostPort::from(SocketAddr::new(ip, *port)).to_string()
            }
        }
    }

    /// The address at which clients reach this node: the bound one, or, if bound to all addresses,
    /// the host of the gossip address.
    pub(in crate::node) fn client_text(&self, local: Option<IpAddr>) -> String {
        if is_host(self.client.ip().to_canonical()) {
            return HostPort::from(self.client).to_string();
        }
        let gossip = HostPort::parse(&self.gossip_text(local), Some(0));
        let host = gossip.map_or_else(|_| self.client.ip().to_string(), |gossip| gossip.host);
        HostPort { host, port: self.client.port() }.to_string()
    }

    /// The greeting for a connection with this local address. `peers`: addresses of members.
    pub(in crate::node) fn hello(
        &self,
        hub: &Hub,
        local: Option<IpAddr>,
        peers: impl Iterator<Item = String>,
    ) -> Hello {
        let (incarnation, ready, has_array_paths) =
            hub.read(|e| (e.id().incarnation, e.is_ready(), e.tree().has_array_paths()));
        let oldest = if has_array_paths { VERSION_ARRAY_PATHS } else { VERSION_OLDEST };
        let now = rt::now();
        let since = ready.then(|| *self.serving_since.lock().get_or_insert(now));
        let mut room = PEERS_BYTES_MAX;
        let peers = peers
            .take_while(|peer| {
                let fits = peer.len() + 3 <= room;
                room = room.saturating_sub(peer.len() + 3);
                fits
            })
            .take(PEERS_MAX)
            .collect();
        Hello {
            versions: (oldest, VERSION),
            features: 0,
            network: self.network.clone(),
            name: self.name.clone(),
            incarnation,
            gossip: self.gossip_text(local),
            client: self.client_text(local),
            ready,
            serving_ms: since.map_or(0, |since| now.saturating_sub(since)),
            may_begin: self.may_begin.lock().filter(|_| !ready),
            limits: LIMITS.to_vec(),
            software: SOFTWARE.to_owned(),
            peers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn myself(gossip: &str, client: &str, advertised: Advertised) -> Myself {
        let (client, gossip) = (client.parse().unwrap(), gossip.parse().unwrap());
        Myself::new(NodeName::new("a").unwrap(), "net".into(), client, gossip, advertised)
    }

    #[test]
    fn a_wildcard_node_is_where_its_peers_see_it() {
        let me = myself("0.0.0.0:7", "[::]:6", Advertised::Route { port: 7 });
        assert_eq!(me.swim_addr(), None);
        let local: IpAddr = "10.0.0.9".parse().unwrap();
        assert_eq!(me.gossip_text(Some(local)), "10.0.0.9:7");
        assert_eq!(me.client_text(Some(local)), "10.0.0.9:6");
    }

    #[test]
    fn a_loopback_route_gives_way_to_one_that_other_hosts_can_use() {
        let me = myself("[::]:7", "127.0.0.1:6", Advertised::Route { port: 7 });
        let learn = |ip: &str| me.learn_route_where(ip.parse().unwrap(), |_| true);
        assert_eq!(learn("0.0.0.0"), None);
        assert_eq!(learn("::ffff:127.0.0.1"), "127.0.0.1:7".parse().ok());
        assert_eq!(learn("127.0.0.1"), None);
        assert_eq!(learn("fd00::5"), "[fd00::5]:7".parse().ok());
        assert_eq!(learn("10.0.0.1"), None, "one that works is kept");
        assert_eq!(me.gossip_text(None), "[fd00::5]:7");
        // One that this host has lost is not, but not for one that only this host can use.
        assert_eq!(me.learn_route_where("127.0.0.1".parse().unwrap(), |_| false), None);
        let lost: IpAddr = "fd00::5".parse().unwrap();
        let next = me.learn_route_where("10.0.0.1".parse().unwrap(), |ip| ip != lost);
        assert_eq!(next, "10.0.0.1:7".parse().ok());
    }

    #[test]
    fn what_is_advertised_is_what_is_told() {
        let addr = "10.1.1.1:99".parse().unwrap();
        let text = HostPort { host: "db.example".into(), port: 99 };
        let me = myself("0.0.0.0:7", "0.0.0.0:6", Advertised::Fixed { text, addr });
        let local = Some("192.168.0.1".parse().unwrap());
        assert_eq!(me.gossip_text(local), "db.example:99");
        assert_eq!(me.client_text(local), "db.example:6");
        assert_eq!(me.swim_addr(), Some(addr));
        assert_eq!(me.learn_route_where("10.0.0.1".parse().unwrap(), |_| false), None);
    }
}
