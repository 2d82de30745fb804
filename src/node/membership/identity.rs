//! What this node says about itself: its greeting, and the address at which peers reach it.

use std::net::{IpAddr, SocketAddr};

use parking_lot::Mutex;

use super::address::{
    Advertised, HostPort, OwnName, interface_addresses, is_host, is_link_local, is_of_this_host,
};
use super::route::{Families, Route, Source, beside, first_that_fits, own_family_first};
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

/// Where a node is reached, in its own words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::node) struct Told {
    pub(in crate::node) gossip: String,
    pub(in crate::node) client: String,
}

impl Told {
    /// What was said in a greeting.
    pub(in crate::node) fn by(hello: &Hello) -> Self {
        Self { gossip: hello.gossip.clone(), client: hello.client.clone() }
    }
}

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
    /// Where clients reach this node, if the operator has said so.
    advertised_client: Option<HostPort>,
    /// IPv4 does not come in at `[::]`.
    v6_only: bool,
    /// Where `advertised` leaves it open: the address that SWIM uses, once it is known.
    route: Mutex<Route>,
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
            advertised_client: None,
            v6_only: false,
            route: Mutex::new(Route::new(Families::of(gossip.ip(), false))),
            serving_since: Mutex::new(None),
            may_begin: Mutex::new(None),
        }
    }

    /// The same where the system lets IPv4 in at `[::]`, or does not.
    pub(in crate::node) fn with_v6_only(mut self, v6_only: bool) -> Self {
        self.v6_only = v6_only;
        self.route = Mutex::new(Route::new(self.families_of(self.gossip)));
        self
    }

    /// Has clients told this address, if there is one, whatever the client port is bound to.
    pub(in crate::node) fn with_advertised_client(self, told: Option<HostPort>) -> Self {
        Self { advertised_client: told, ..self }
    }

    fn families_of(&self, bound: SocketAddr) -> Families {
        Families::of(bound.ip(), self.v6_only)
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
            Advertised::Route { port, .. } => {
                self.route.lock().ip().map(|ip| SocketAddr::new(ip, *port))
            }
        }
    }

    /// Whether datagrams of an address's family come in at the gossip port.
    pub(in crate::node) fn hears(&self, ip: IpAddr) -> bool {
        self.families_of(self.gossip).take(ip)
    }

    /// Puts a peer's addresses in the order in which to call them.
    pub(in crate::node) fn order(&self, peer: &mut [SocketAddr]) {
        own_family_first(self.families_of(self.gossip), peer);
    }

    /// Whether connections show at which address peers reach this node.
    pub(in crate::node) fn learns_route(&self) -> bool {
        matches!(self.advertised, Advertised::Route { .. })
    }

    /// Whether this node has to guess at which address peers may reach it: before the first connection.
    pub(in crate::node) fn wants_guess(&self) -> bool {
        self.learns_route() && self.route.lock().wants_guess()
    }

    /// The system would use this local address for a peer. Returns the address for SWIM if it is another one now.
    pub(in crate::node) fn guess_route(&self, local: IpAddr) -> Option<SocketAddr> {
        self.learn(local, Source::Guess)
    }

    /// A peer is reached from this local address, or reached us at it. Returns the address for SWIM if it is another
    /// one now.
    pub(in crate::node) fn learn_route(&self, local: IpAddr) -> Option<SocketAddr> {
        self.learn(local, Source::Connection)
    }

    fn learn(&self, local: IpAddr, source: Source) -> Option<SocketAddr> {
        let Advertised::Route { port, name } = &self.advertised else { return None };
        let local = name.as_ref().map_or(local, |name| name.host_for(local));
        let (local, source) = match self.beside(local) {
            Some(other) => (other, Source::Guess),
            None => (local, source),
        };
        let mut route = self.route.lock();
        let is_new = route.learn(local, source, is_of_this_host);
        route.ip().filter(|_| is_new).map(|ip| SocketAddr::new(ip, *port))
    }

    /// What peers can use instead of an address that is link-local, if this host has it.
    fn beside(&self, local: IpAddr) -> Option<IpAddr> {
        let families = self.families_of(self.gossip);
        is_link_local(local).then(|| beside(local, families, &interface_addresses())).flatten()
    }

    /// Whether this host may have a better address by now than the one that peers are told: a router may give it one
    /// at any time.
    pub(in crate::node) fn wants_better(&self) -> bool {
        self.learns_route() && self.route.lock().ip().is_some_and(is_link_local)
    }

    /// Whether this host has lost the address that peers are told.
    pub(in crate::node) fn has_lost_route(&self) -> bool {
        let told = match self.advertised {
            Advertised::Fixed { .. } => None,
            Advertised::Route { .. } => self.route.lock().ip(),
        };
        told.is_some_and(|ip| !is_of_this_host(ip))
    }

    /// An address in place of the one that this host has lost, where no connection shows one: of the host's addresses, the
    /// first that peers may use, if possible of the same family. Returns the address for SWIM if it is another one now.
    pub(in crate::node) fn replace_lost_route(&self) -> Option<SocketAddr> {
        let lost = self.route.lock().ip()?;
        let mut all: Vec<IpAddr> = interface_addresses().into_iter().map(|(_, ip)| ip).collect();
        all.sort_by_key(|ip| ip.is_ipv4() != lost.is_ipv4());
        all.into_iter().find_map(|ip| self.guess_route(ip))
    }

    /// The address at which peers reach this node, for a peer whose connection has this local
    /// address.
    pub(in crate::node) fn gossip_text(&self, local: Option<IpAddr>) -> String {
        match &self.advertised {
            Advertised::Fixed { text, .. }
            | Advertised::Route { name: Some(OwnName { text, .. }), .. } => text.to_string(),
            Advertised::Route { port, name: None } => {
                let local = local.map(|ip| self.beside(ip).unwrap_or(ip));
                let ip = self.route.lock().told(local, is_of_this_host);
                HostPort::from(SocketAddr::new(ip.unwrap_or(self.gossip.ip()), *port)).to_string()
            }
        }
    }

    /// The address at which clients reach this node: the one that the operator has said, or else where its port is.
    pub(in crate::node) fn client_text(&self, local: Option<IpAddr>) -> String {
        match &self.advertised_client {
            Some(told) => told.to_string(),
            None => self.client_port_text(local),
        }
    }

    /// Where the client port is: at the bound address, or, if bound to all addresses, at the host of the gossip
    /// address.
    pub(in crate::node) fn client_port_text(&self, local: Option<IpAddr>) -> String {
        if is_host(self.client.ip().to_canonical()) {
            return HostPort::from(self.client).to_string();
        }
        let gossip = HostPort::parse(&self.gossip_text(local), Some(0));
        let host = match gossip.as_ref().map(|gossip| (gossip.numeric(), &gossip.host)) {
            Ok((Some(told), _)) => {
                first_that_fits(self.families_of(self.client), told.ip(), local).to_string()
            }
            Ok((None, name)) => name.clone(),
            Err(_) => self.client.ip().to_string(),
        };
        HostPort { host, port: self.client.port() }.to_string()
    }

    /// What a peer is told over a connection with this local address: where peers and where clients reach this node.
    pub(in crate::node) fn told(&self, local: Option<IpAddr>) -> Told {
        Told { gossip: self.gossip_text(local), client: self.client_text(local) }
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
        let me = myself("0.0.0.0:7", "[::]:6", Advertised::Route { port: 7, name: None });
        assert_eq!(me.swim_addr(), None);
        let local: IpAddr = "10.0.0.9".parse().unwrap();
        assert_eq!(me.gossip_text(Some(local)), "10.0.0.9:7");
        assert_eq!(me.client_text(Some(local)), "10.0.0.9:6");
    }

    #[test]
    fn each_connection_is_told_what_is_best_by_then() {
        let me = myself("[::]:7", "0.0.0.0:6", Advertised::Route { port: 7, name: None });
        let told = |local: &str| {
            let Told { gossip, client } = me.told(Some(local.parse().unwrap()));
            [gossip, client]
        };
        assert_eq!(told("127.0.0.1"), ["127.0.0.1:7", "127.0.0.1:6"]);
        let near: SocketAddr = "127.0.0.1:7".parse().unwrap();
        assert_eq!(me.learn_route(near.ip()), Some(near));
        assert_eq!(me.learn_route(near.ip()), None);
        // A peer that came by another way is told that one before anything is learnt from it.
        assert_eq!(told("10.0.0.9"), ["10.0.0.9:7", "10.0.0.9:6"]);
        assert_eq!(told("127.0.0.1"), ["127.0.0.1:7", "127.0.0.1:6"]);
        let far: SocketAddr = "[fd00::5]:7".parse().unwrap();
        assert_eq!(me.learn_route(far.ip()), Some(far));
        // Clients cannot come in by IPv6.
        assert_eq!(told("::1"), ["[fd00::5]:7", "[fd00::5]:6"]);
        assert_eq!(told("127.0.0.1"), ["[fd00::5]:7", "127.0.0.1:6"]);
    }

    #[test]
    fn a_guess_is_wanted_until_there_is_a_connection() {
        let me = myself("0.0.0.0:7", "0.0.0.0:6", Advertised::Route { port: 7, name: None });
        assert!(me.wants_guess());
        assert_eq!(me.guess_route("fd00::5".parse().unwrap()), None, "nothing listens there");
        assert_eq!(me.guess_route([127, 0, 0, 1].into()), "127.0.0.1:7".parse().ok());
        assert!(me.wants_guess());
        assert_eq!(me.learn_route([127, 0, 0, 1].into()), None);
        assert!(!me.wants_guess());
        let fixed = Advertised::Fixed { text: me.gossip.into(), addr: me.gossip };
        assert!(!myself("10.0.0.1:7", "0.0.0.0:6", fixed).wants_guess());
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
        assert_eq!(me.learn_route("10.0.0.1".parse().unwrap()), None);
        assert!(!me.has_lost_route(), "it need not be this host's own");
    }

    #[test]
    fn clients_are_told_what_is_advertised_to_them_and_peers_are_not() {
        let addr: SocketAddr = "10.1.1.1:99".parse().unwrap();
        let fixed = Advertised::Fixed { text: addr.into(), addr };
        let route = Advertised::Route { port: 7, name: None };
        let local = Some("192.168.0.1".parse().unwrap());
        for (advertised, gossip) in [(fixed, "10.1.1.1:99"), (route, "192.168.0.1:7")] {
            for client in ["127.0.0.1:6", "0.0.0.0:6", "[::]:6"] {
                let told = HostPort { host: "db.example".into(), port: 37586 };
                let me = myself("0.0.0.0:7", client, advertised.clone());
                let before = me.client_text(local);
                let me = me.with_advertised_client(Some(told));
                let expected = Told { gossip: gossip.into(), client: "db.example:37586".into() };
                assert_eq!(me.told(local), expected, "{client}");
                assert_eq!(me.client_text(None), expected.client);
                assert_eq!(me.client_port_text(local), before, "that is where the port is");
            }
        }
    }
}
