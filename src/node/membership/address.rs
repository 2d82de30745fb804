//! Addresses as people write them, name look-ups, and the address that this node advertises, which
//! may differ from the one that it binds.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

pub(in crate::node) use crate::model::host_port::HostPort;
use crate::node::config::GOSSIP_PORT;
use crate::node::error::NodeError;
use crate::rt;

/// Reads a setting's address.
///
/// # Errors
/// [`NodeError::Address`].
pub(in crate::node) fn parse_setting(
    what: &'static str,
    text: &str,
    port: u16,
) -> Result<HostPort, NodeError> {
    HostPort::parse(text, Some(port)).map_err(|why| NodeError::Address {
        what,
        text: text.to_owned(),
        why: why.to_string(),
    })
}

/// Reads a peer's address, which is to be connected to.
///
/// # Errors
/// [`NodeError::Address`].
pub(in crate::node) fn parse_peer(text: &str) -> Result<HostPort, NodeError> {
    HostPort::parse_remote(text, Some(GOSSIP_PORT)).map_err(|why| NodeError::Address {
        what: "peer",
        text: text.to_owned(),
        why: why.to_string(),
    })
}

/// Resolves one of this node's own addresses.
///
/// # Errors
/// [`NodeError::Resolve`].
pub(in crate::node) async fn resolve_setting(
    what: &'static str,
    address: &HostPort,
) -> Result<Vec<SocketAddr>, NodeError> {
    rt::resolve(address).await.map_err(|source| NodeError::Resolve {
        what,
        text: address.to_string(),
        source,
    })
}

/// The address of this node's gossip port, as advertised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::node) enum Advertised {
    /// The same for all peers.
    Fixed {
        /// For greetings; a host name is resolved again by each peer at each attempt.
        text: HostPort,
        /// For SWIM, which knows no names.
        addr: SocketAddr,
    },
    /// Bound to all addresses without an explicit one, or with a name that this host has: the address of the route to
    /// the peer, with this port.
    Route {
        /// The bound port, or the name's.
        port: u16,
        /// What greetings say instead.
        name: Option<OwnName>,
    },
}

/// A name that is advertised, and that means this host. Which of its addresses peers can use shows only when they come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::node) struct OwnName {
    /// For greetings.
    pub(super) text: HostPort,
    /// Those of its addresses that other hosts may reach. Many hosts take their own name for a loopback address.
    hosts: Vec<IpAddr>,
}

impl OwnName {
    /// The address of the name by which a peer comes that is reached from, or has reached, this one.
    pub(super) fn host_for(&self, local: IpAddr) -> IpAddr {
        let local = local.to_canonical();
        let fits = |ip: &&IpAddr| ip.is_ipv4() == local.is_ipv4() && is_of_this_host(**ip);
        let is_named = self.hosts.contains(&local);
        let host = self.hosts.iter().find(fits).filter(|_| !is_named);
        host.copied().unwrap_or(local)
    }
}

impl Advertised {
    /// Decides from the bound address and the configuration.
    ///
    /// # Errors
    /// [`NodeError::Address`] for an address that nobody could connect to, [`NodeError::Resolve`].
    pub(in crate::node) async fn decide(
        setting: Option<&str>,
        bound: SocketAddr,
    ) -> Result<Self, NodeError> {
        let Some(setting) = setting else {
            let ip = bound.ip().to_canonical();
            return Ok(if ip.is_unspecified() {
                Self::Route { port: bound.port(), name: None }
            } else {
                let addr = SocketAddr::new(ip, bound.port());
                Self::Fixed { text: addr.into(), addr }
            });
        };
        let text = parse_setting("advertised", setting, bound.port())?;
        let bad = |why: &str| NodeError::Address {
            what: "advertised",
            text: setting.to_owned(),
            why: why.to_owned(),
        };
        if text.port == 0 {
            return Err(bad(
                "peers cannot connect to port 0; leave the port out to take the bound one",
            ));
        }
        let found = resolve_setting("advertised", &text).await?;
        let hosts = found.iter().map(|addr| addr.ip().to_canonical()).filter(|ip| is_host(*ip));
        let hosts: Vec<IpAddr> = hosts.collect();
        let own_ip = bound.ip().to_canonical();
        let fits = hosts.iter().find(|ip| ip.is_ipv4() == own_ip.is_ipv4());
        let Some(first) = fits.or(hosts.first()).copied() else {
            return Err(bad("peers cannot connect to it; give the address of one host"));
        };
        let fixed = |ip| {
            let addr = SocketAddr::new(ip, text.port);
            Ok(Self::Fixed { text: text.clone(), addr })
        };
        // A name of another host is that of a gateway, which passes on what comes.
        let own: Vec<IpAddr> = hosts.into_iter().filter(|ip| is_of_this_host(*ip)).collect();
        if text.numeric().is_some() || own.is_empty() {
            return fixed(first);
        }
        if !own_ip.is_unspecified() {
            return fixed(own_ip);
        }
        let hosts = own.into_iter().filter(|ip| !ip.is_loopback()).collect();
        Ok(Self::Route { port: text.port, name: Some(OwnName { text, hosts }) })
    }
}

/// Whether an address means one host.
pub(super) fn is_host(ip: IpAddr) -> bool {
    !(ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST))
}

/// The local address of the route to a peer; nothing is sent for it.
pub(in crate::node) fn route_to(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    let ip = socket.local_addr().ok()?.ip().to_canonical();
    is_host(ip).then_some(ip)
}

/// Whether an address is one of this host's now. Where that cannot be found out, it is.
pub(in crate::node) fn is_of_this_host(ip: IpAddr) -> bool {
    match UdpSocket::bind((ip, 0)) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_could_connect_to_is_not_advertised() {
        let bound: SocketAddr = "0.0.0.0:9".parse().unwrap();
        let decide = |setting, bound| rt::block_on(Advertised::decide(setting, bound));
        let anywhere = Advertised::Route { port: 9, name: None };
        assert_eq!(decide(None, bound).unwrap(), anywhere);
        for bad in ["0.0.0.0", "224.0.0.1", "10.0.0.1:0", "not a host", "[::]:5"] {
            assert!(decide(Some(bad), bound).is_err(), "{bad:?}");
        }
        let fixed = decide(Some("10.0.0.1"), bound).unwrap();
        let addr: SocketAddr = "10.0.0.1:9".parse().unwrap();
        assert_eq!(fixed, Advertised::Fixed { text: addr.into(), addr });
    }

    #[test]
    fn of_a_name_that_this_host_has_it_is_open_which_address_peers_use() {
        let decide = |setting: &str, bound: &str| {
            rt::block_on(Advertised::decide(Some(setting), bound.parse().unwrap())).unwrap()
        };
        let text = HostPort { host: "localhost".into(), port: 5 };
        let name = Some(OwnName { text: text.clone(), hosts: Vec::new() });
        for all in ["0.0.0.0:9", "[::]:9"] {
            let named = decide("localhost:5", all);
            assert_eq!(named, Advertised::Route { port: 5, name: name.clone() });
        }
        // Nothing comes in anywhere else.
        let addr = "127.0.0.2:5".parse().unwrap();
        assert_eq!(decide("localhost:5", "127.0.0.2:9"), Advertised::Fixed { text, addr });
    }

    #[test]
    fn a_peer_that_comes_by_another_address_is_told_the_names_own() {
        let (one, other) = ("127.0.0.1".parse().unwrap(), "127.0.0.9".parse().unwrap());
        let v6: IpAddr = "fd00::1".parse().unwrap();
        let text = HostPort { host: "n1.example.org".into(), port: 5 };
        let name = |hosts: &[IpAddr]| OwnName { text: text.clone(), hosts: hosts.to_vec() };
        assert_eq!(name(&[one]).host_for(one), one);
        assert_eq!(name(&[one]).host_for(other), one);
        assert_eq!(name(&[]).host_for(other), other, "it has none");
        assert_eq!(name(&[one]).host_for(v6), v6, "none of that family");
        let gone = "192.0.2.1".parse().unwrap();
        assert_eq!(name(&[gone]).host_for(other), other, "the host has lost it");
    }

    #[test]
    fn the_route_to_a_loopback_address_is_loopback() {
        assert_eq!(route_to("127.0.0.1:9".parse().unwrap()), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
