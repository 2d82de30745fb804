//! Addresses as people write them, name look-ups, and what this node tells others about where
//! it is: what is advertised is told apart from what is bound.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use super::error::NodeError;
use crate::rt;

/// How long a name look-up may take. The system's resolver can hang far longer than anybody
/// wants to wait for one of several peers.
pub(super) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Most addresses of one name that are tried.
pub(super) const ADDRESSES_MAX: usize = 16;

/// A host (name or IP address) and a port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct HostPort {
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl From<SocketAddr> for HostPort {
    fn from(addr: SocketAddr) -> Self {
        Self { host: addr.ip().to_canonical().to_string(), port: addr.port() }
    }
}

impl HostPort {
    /// Reads `host:port`, `[v6]:port`, or either without the port, which is `port` then.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(super) fn parse(text: &str, port: u16) -> Result<Self, String> {
        let form = "give host:port, as in 10.0.0.1:27587, [fd00::1]:27587 or db1.example:27587";
        if text.parse::<Ipv6Addr>().is_ok() {
            return Ok(Self { host: text.to_owned(), port });
        }
        let (host, rest) = match text.strip_prefix('[').and_then(|t| t.split_once(']')) {
            Some((host, rest)) => {
                if host.parse::<Ipv6Addr>().is_err() {
                    return Err(format!("{host:?} is no IPv6 address; {form}"));
                }
                (host, rest)
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => port,
            Some(digits) => digits.parse().map_err(|_| format!("{digits:?} is no port; {form}"))?,
            None => return Err(form.to_owned()),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if host.is_empty() || host.len() > 253 || !host.chars().all(is_name) {
            return Err(format!("{host:?} is no host name or IP address; {form}"));
        }
        Ok(Self { host: host.to_owned(), port })
    }

    /// The address, where the host is an IP address.
    pub(super) fn numeric(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, self.port))
    }

    /// Asks the system's name service, now; several addresses where it knows several.
    ///
    /// # Errors
    /// What the system said, or that it took too long.
    pub(super) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if let Some(addr) = self.numeric() {
            return Ok(vec![addr]);
        }
        let target = (self.host.clone(), self.port);
        let look_up = rt::spawn_blocking(move || target.to_socket_addrs());
        let found = rt::timeout(RESOLVE_TIMEOUT, look_up)
            .await
            .ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))??;
        let mut addrs: Vec<SocketAddr> = Vec::new();
        for addr in found.take(ADDRESSES_MAX) {
            if !addrs.contains(&addr) {
                addrs.push(addr);
            }
        }
        if addrs.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(addrs)
    }
}

/// Reads a setting's address.
///
/// # Errors
/// [`NodeError::Address`].
pub(super) fn parse_setting(
    what: &'static str,
    text: &str,
    port: u16,
) -> Result<HostPort, NodeError> {
    HostPort::parse(text, port).map_err(|why| NodeError::Address {
        what,
        text: text.to_owned(),
        why,
    })
}

/// Resolves one of this node's own addresses.
///
/// # Errors
/// [`NodeError::Resolve`].
pub(super) async fn resolve_setting(
    what: &'static str,
    address: &HostPort,
) -> Result<Vec<SocketAddr>, NodeError> {
    address.resolve().await.map_err(|source| NodeError::Resolve {
        what,
        text: address.to_string(),
        source,
    })
}

/// What this node tells others about where its gossip port is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Advertised {
    /// The same for everybody.
    Fixed {
        /// For greetings; a host name is resolved again by each peer at each attempt.
        text: HostPort,
        /// For SWIM, which knows no names.
        addr: SocketAddr,
    },
    /// Bound to all addresses and told nothing: the address of the route to the peer, with
    /// this port.
    Route {
        /// The bound port.
        port: u16,
    },
}

impl Advertised {
    /// Decides from what is bound and what the configuration says.
    ///
    /// # Errors
    /// [`NodeError::Address`] for what nobody could connect to, [`NodeError::Resolve`].
    pub(super) async fn decide(
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
pub(super) fn route_to(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    let ip = socket.local_addr().ok()?.ip().to_canonical();
    is_host(ip).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_all_their_forms() {
        let read = |text: &str| HostPort::parse(text, 7).map(|a| (a.host.clone(), a.port));
        let expect = |host: &str, port| Ok((host.to_owned(), port));
        assert_eq!(read("10.0.0.1:5"), expect("10.0.0.1", 5));
        assert_eq!(read("10.0.0.1"), expect("10.0.0.1", 7));
        assert_eq!(read("[::1]:5"), expect("::1", 5));
        assert_eq!(read("[::1]"), expect("::1", 7));
        assert_eq!(read("fd00::1"), expect("fd00::1", 7));
        assert_eq!(read("db-1.example:5"), expect("db-1.example", 5));
        for bad in ["", ":5", "a:b", "a:70000", "[x]:5", "a b:5", "[::1]5", "a:5:6", "http://a:5"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        assert_eq!(HostPort::parse("[::1]:5", 0).unwrap().to_string(), "[::1]:5");
    }

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
