//! Addresses as people write them, name look-ups, and the address that this node advertises, which
//! may differ from the one that it binds.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

pub(in crate::node) use crate::model::host_port::{HostPort, is_link_local};
use crate::node::config::GOSSIP_PORT;
use crate::node::error::NodeError;
use crate::rt;

/// Longest host name that clients are told: DNS has no longer ones.
const HOST_BYTES_MAX: usize = 253;

/// Why a link-local address is no setting for what others are told.
const LINK_LOCAL: &str = "it is a link-local address, which means something on this host only; give one that \
                          others can use, like a unique local address (fd00::/8)";
/// What to do about a link-local address that others are told.
pub(in crate::node) const GIVE_ANOTHER: &str =
    "give each host another address, like a unique local one (fd00::/8)";

/// Reads the address at which a port is to listen.
///
/// # Errors
/// [`NodeError::Address`].
pub(in crate::node) fn parse_setting(
    what: &'static str,
    text: &str,
    port: u16,
) -> Result<HostPort, NodeError> {
    HostPort::parse_local(text, Some(port)).map_err(|why| NodeError::Address {
        what,
        text: text.to_owned(),
        why: why.to_string(),
    })
}

/// Reads an address that others are told.
fn parse_told(what: &'static str, text: &str, port: u16) -> Result<HostPort, NodeError> {
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
        let text = parse_told("advertised", setting, bound.port())?;
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
        if text.is_link_local() {
            return Err(bad(LINK_LOCAL));
        }
        let found = resolve_setting("advertised", &text).await?;
        let hosts = found.iter().map(|addr| addr.ip().to_canonical()).filter(|ip| is_host(*ip));
        let mut hosts: Vec<IpAddr> = hosts.collect();
        // A host's own name may stand for all addresses that it has.
        if hosts.iter().any(|ip| !is_link_local(*ip)) {
            hosts.retain(|ip| !is_link_local(*ip));
        }
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
        if own.is_empty() && is_link_local(first) {
            return Err(bad(LINK_LOCAL));
        }
        if text.numeric().is_some() || own.is_empty() {
            return fixed(first);
        }
        if !own_ip.is_unspecified() {
            return fixed(own_ip);
        }
        let is_for_others = |ip: &IpAddr| !ip.is_loopback() && !is_link_local(*ip);
        let hosts = own.into_iter().filter(is_for_others).collect();
        Ok(Self::Route { port: text.port, name: Some(OwnName { text, hosts }) })
    }

    /// What an operator should know, where this stays a link-local address.
    pub(in crate::node) fn warning(&self) -> Option<String> {
        match self {
            Self::Fixed { addr, .. } if is_link_local(addr.ip()) => {
                let trouble = unreached_by_others("this node", *addr);
                Some(format!("{trouble}; {GIVE_ANOTHER}, and listen there, or at [::]"))
            }
            Self::Fixed { .. } | Self::Route { .. } => None,
        }
    }
}

/// What follows where nodes are told that one is at a link-local address.
pub(in crate::node) fn unreached_by_others(who: &str, at: SocketAddr) -> String {
    format!(
        "others are told that {who} is at {}, a link-local address, to which they cannot connect without a zone of \
         their own: only nodes that were given it with a zone are linked, and clients cannot use it",
        HostPort::from(at)
    )
}

/// What an operator should know, where the client port listens at a link-local address and clients are told so.
pub(in crate::node) fn client_warning(bound: SocketAddr, told: Option<&str>) -> Option<String> {
    (told.is_none() && is_link_local(bound.ip())).then(|| {
        format!(
            "clients are told that this node is at {}, a link-local address, to which they cannot connect without a \
             zone of their own; {GIVE_ANOTHER}, and listen there, or at [::]",
            HostPort::from(bound)
        )
    })
}

/// Reads the address that clients are told instead of the one at which the client port listens. `port` is the bound
/// one. A name is not looked up: it may mean something only where the clients are.
///
/// # Errors
/// [`NodeError::Address`] for an address that no client could connect to.
pub(in crate::node) fn advertised_client(setting: &str, port: u16) -> Result<HostPort, NodeError> {
    const WHAT: &str = "advertised client";
    let told = parse_told(WHAT, setting, port)?;
    let why = match told.host.parse::<IpAddr>() {
        _ if told.port == 0 => {
            "clients cannot connect to port 0; leave the port out to take the bound one"
        }
        _ if told.is_link_local() => LINK_LOCAL,
        Ok(ip) if is_host(ip.to_canonical()) => return Ok(told),
        Ok(_) => "clients cannot connect to it; give the address of one host",
        Err(_) if is_host_name(&told.host) => return Ok(told),
        Err(_) => "it is neither an IP address nor the name of a host, like n1.example.org",
    };
    Err(NodeError::Address { what: WHAT, text: setting.to_owned(), why: why.to_owned() })
}

/// Whether a text can be the name of a host, so that clients can look it up, and certificates can have it. No name ends
/// with a number: that is an address with a mistake in it.
fn is_host_name(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_fine);
    let last = text.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= HOST_BYTES_MAX && text.split('.').all(is_label) && !is_number
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

/// The addresses that this host has, each with the name of its network interface.
pub(super) fn interface_addresses() -> Vec<(String, IpAddr)> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    // A further address of an interface can have a label: "eth0:1".
    let name = |label: &str| label.split(':').next().unwrap_or_default().to_owned();
    all.iter().map(|one| (name(&one.name), one.ip())).collect()
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
        for link_local in ["[fe80::1%lo]:5", "[fe80::1]:5", "fe80::1%lo", "fe80::1"] {
            let error = decide(Some(link_local), bound).unwrap_err().to_string();
            let begins = format!("the advertised address {link_local:?} cannot be used: it is a");
            assert!(error.starts_with(&begins) && error.contains("(fd00::/8)"), "{error}");
        }
        let fixed = decide(Some("10.0.0.1"), bound).unwrap();
        let addr: SocketAddr = "10.0.0.1:9".parse().unwrap();
        assert_eq!(fixed, Advertised::Fixed { text: addr.into(), addr });
    }

    #[test]
    fn clients_are_told_a_name_as_it_is_and_nothing_that_they_could_not_connect_to() {
        let told = |setting: &str| advertised_client(setting, 9).map(|told| told.to_string());
        for (setting, expected) in [
            ("10.0.0.1", "10.0.0.1:9"),
            ("10.0.0.1:5", "10.0.0.1:5"),
            // Forwarded by ssh, say.
            ("127.0.0.1:5", "127.0.0.1:5"),
            ("no-such-host.invalid:5", "no-such-host.invalid:5"),
            ("N_1.example.org", "N_1.example.org:9"),
            ("[fd00::1]:5", "[fd00::1]:5"),
            ("fd00::1", "[fd00::1]:9"),
        ] {
            assert_eq!(told(setting).unwrap(), expected);
        }
        let long = format!("{}org", "a.".repeat(HOST_BYTES_MAX / 2));
        for (setting, why) in [
            ("n1:0", "clients cannot connect to port 0; leave the port out"),
            ("0.0.0.0:5", "give the address of one host"),
            ("0.0.0.0", "give the address of one host"),
            ("[::]:5", "give the address of one host"),
            ("[::ffff:0.0.0.0]:5", "give the address of one host"),
            ("224.0.0.1", "give the address of one host"),
            ("10.0.0.300", "neither an IP address nor the name of a host"),
            ("10.0.1:5", "neither an IP address nor the name of a host"),
            ("0", "neither an IP address nor the name of a host"),
            ("n1.", "neither an IP address nor the name of a host"),
            (
                "[fe80::1%eth0]:5",
                "it is a link-local address, which means something on this host only",
            ),
            ("fe80::1", "it is a link-local address, which means something on this host only"),
            (&long, "neither an IP address nor the name of a host"),
            ("a b", "cannot be part of a host name"),
            (":5", "has no host"),
        ] {
            let error = told(setting).unwrap_err().to_string();
            let begins = format!("the advertised client address {setting:?} cannot be used: ");
            assert!(error.starts_with(&begins) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_port_at_a_link_local_address_is_warned_of_where_others_are_told_of_it() {
        let (near, far) = ("[fe80::1%2]:5".parse().unwrap(), "[fd00::1]:5".parse().unwrap());
        let decide = |setting, bound| rt::block_on(Advertised::decide(setting, bound)).unwrap();
        let warning = decide(None, near).warning().unwrap();
        let begins = "others are told that this node is at [fe80::1]:5, a link-local address";
        assert!(warning.starts_with(begins) && warning.contains(GIVE_ANOTHER), "{warning}");
        assert_eq!(decide(Some("10.0.0.1"), near).warning(), None);
        assert_eq!(decide(None, far).warning(), None);
        let warning = client_warning(near, None).unwrap();
        let begins = "clients are told that this node is at [fe80::1]:5, a link-local address";
        assert!(warning.starts_with(begins) && warning.contains(GIVE_ANOTHER), "{warning}");
        assert_eq!(client_warning(near, Some("n1.example.org")), None);
        assert_eq!(client_warning(far, None), None);
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
