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
    /// Bound to all addresses without an explicit address: the address of the route to the peer,
    /// with this port.
    Route {
        /// The bound port.
        port: u16,
    },
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
                Self::Route { port: bound.port() }
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
        let fits = |addr: &&SocketAddr| addr.is_ipv4() == bound.ip().to_canonical().is_ipv4();
        let addr = found.iter().find(fits).or(found.first()).copied();
        match addr {
            Some(addr) if is_host(addr.ip()) => {
                let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
                Ok(Self::Fixed { text, addr })
            }
            _ => Err(bad("peers cannot connect to it; give the address of one host")),
        }
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
        assert_eq!(decide(None, bound).unwrap(), Advertised::Route { port: 9 });
        for bad in ["0.0.0.0", "224.0.0.1", "10.0.0.1:0", "not a host", "[::]:5"] {
            assert!(decide(Some(bad), bound).is_err(), "{bad:?}");
        }
        let fixed = decide(Some("10.0.0.1"), bound).unwrap();
        let addr: SocketAddr = "10.0.0.1:9".parse().unwrap();
        assert_eq!(fixed, Advertised::Fixed { text: addr.into(), addr });
        let named = decide(Some("localhost:5"), bound).unwrap();
        let Advertised::Fixed { text, addr } = named else { panic!("{named:?}") };
        assert_eq!(
            (text.to_string().as_str(), addr),
            ("localhost:5", "127.0.0.1:5".parse().unwrap())
        );
    }

    #[test]
    fn the_route_to_a_loopback_address_is_loopback() {
        assert_eq!(route_to("127.0.0.1:9".parse().unwrap()), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
