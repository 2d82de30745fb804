//! `host:port`, as people write it: IPv4, IPv6 in brackets, host names. Pure: looking names up
//! is `rt`'s.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The port at which nodes listen for clients, unless told otherwise.
pub const CLIENT_PORT: u16 = 27586;
/// The port at which nodes listen for each other (TCP and UDP), unless told otherwise.
pub const GOSSIP_PORT: u16 = 27587;

/// An IPv6 address belongs to whoever has this many of its first bits.
const IPV6_BITS: u32 = 64;

/// What stands for all addresses that whoever has this one can have: of IPv6 its whole /64. An IPv4 address that is
/// written as one of IPv6 is one of IPv4.
#[must_use]
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> IPV6_BITS << IPV6_BITS).into(),
    }
}

/// A host and a port; the host is looked up anew at each attempt to connect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// An address without brackets, or a name.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is a list.
    #[error("{0:?} is more than one address; write HOST:PORT, each one by itself")]
    Several(String),
    /// It is a URL.
    #[error("{0:?} is a URL; write HOST:PORT, without what stands before \"://\"")]
    Url(String),
    /// There is no host in it.
    #[error("{0:?} has no host; write HOST:PORT")]
    NoHost(String),
    /// There is no port in it, and there must be one.
    #[error("{0:?} has no port; write HOST:PORT, and an IPv6 address as [ADDRESS]:PORT")]
    NoPort(String),
    /// The port is none.
    #[error(
        "{text:?}: {port:?} is no port; write HOST:PORT, with a port from 0 to 65535, and an IPv6 address as [ADDRESS]:PORT"
    )]
    Port {
        /// The whole.
        text: String,
        /// The port in it.
        port: String,
    },
    /// It is to be connected to, and nobody can be at port 0.
    #[error("{0:?}: nothing listens at port 0; write HOST:PORT, with the port that the node has")]
    NoOnesPort(String),
    /// The brackets hold no IPv6 address, or do not close.
    #[error("{0:?} has no IPv6 address in its brackets; write [ADDRESS]:PORT")]
    Brackets(String),
    /// The host has a character that no host name has.
    #[error("{text:?}: {character:?} cannot be part of a host name")]
    Character {
        /// The whole.
        text: String,
        /// The character.
        character: char,
    },
}

impl HostPort {
    /// Reads `host:port`, or `host` alone if there is a default port.
    ///
    /// # Errors
    /// [`AddressError`] says what is wrong, and what the right form is.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<HostPort, AddressError> {
        // Else the rest of it would be taken for a port that is none.
        if text.contains(',') {
            return Err(AddressError::Several(text.to_owned()));
        }
        if text.contains("://") {
            return Err(AddressError::Url(text.to_owned()));
        }
        let (host, port) = split(text)?;
        let no_port = |port: &str| AddressError::Port { text: text.into(), port: port.into() };
        let port = match port {
            // A sign would be read as well.
            Some(port) if port.starts_with('+') => return Err(no_port(port)),
            Some(port) => port.parse().map_err(|_| no_port(port))?,
            None => default_port.ok_or_else(|| AddressError::NoPort(text.to_owned()))?,
        };
        if host.is_empty() {
            return Err(AddressError::NoHost(text.to_owned()));
        }
        // A zone ("fe80::1%eth0") has more; the system judges it.
        let is_good = |c: &char| c.is_alphanumeric() || "-_.:%".contains(*c);
        match host.chars().find(|c| !is_good(c)) {
            Some(character) => Err(AddressError::Character { text: text.to_owned(), character }),
            None => Ok(HostPort { host: host.to_owned(), port }),
        }
    }

    /// The same for an address that is to be connected to: port 0 is none.
    ///
    /// # Errors
    /// [`AddressError`] says what is wrong, and what the right form is.
    pub fn parse_remote(text: &str, default_port: Option<u16>) -> Result<HostPort, AddressError> {
        let address = HostPort::parse(text, default_port)?;
        if address.port == 0 {
            return Err(AddressError::NoOnesPort(text.to_owned()));
        }
        Ok(address)
    }

    /// The address, where the host is an IP address.
    #[must_use]
    pub fn numeric(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, self.port))
    }
}

/// `host:port`; see [`HostPort::parse`].
impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<HostPort, AddressError> {
        HostPort::parse(text, None)
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> HostPort {
        HostPort { host: address.ip().to_canonical().to_string(), port: address.port() }
    }
}

/// The host, without brackets, and the port, if there is one.
fn split(text: &str) -> Result<(&str, Option<&str>), AddressError> {
    if let Some(rest) = text.strip_prefix('[') {
        let bad = || AddressError::Brackets(text.to_owned());
        let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
        // A zone ("fe80::1%eth0") is for the system to judge.
        let address = host.split('%').next().unwrap_or_default();
        address.parse::<Ipv6Addr>().map_err(|_| bad())?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(bad()),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text, None));
    }
    // A text with more colons is neither an address nor a name; the error about its "port" says so.
    match text.split_once(':') {
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
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

#[cfg(test)]
mod tests {
    use crate::host_port::*;

    fn parsed(text: &str) -> Option<(String, u16)> {
        HostPort::parse(text, Some(1)).ok().map(|address| (address.host, address.port))
    }

    #[test]
    fn addresses_of_all_kinds_are_read() {
        let of = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(parsed("127.0.0.1:80"), of("127.0.0.1", 80));
        assert_eq!(parsed("localhost"), of("localhost", 1));
        assert_eq!(parsed("node.example.org:27586"), of("node.example.org", 27586));
        assert_eq!(parsed("[::1]:80"), of("::1", 80));
        assert_eq!(parsed("[::1]"), of("::1", 1));
        assert_eq!(parsed("::1"), of("::1", 1));
        assert_eq!(parsed("[fe80::1%eth0]:80"), of("fe80::1%eth0", 80));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "", ":80", "a:b", "a:65536", "a:-1", "[::1", "[x]:80", "[::1]80", "a b:1", "a:5:6",
            "a:+80",
        ] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
        let told = |text| HostPort::parse(text, Some(1)).unwrap_err().to_string();
        assert!(told("distkv://h:1").starts_with("\"distkv://h:1\" is a URL; write HOST:PORT"));
        for text in ["h1:1,h2:2", "h1,h2", "[::1]:1,h"] {
            assert!(told(text).contains("is more than one address"), "{text}");
        }
        assert!(HostPort::parse("a:0", None).is_ok_and(|any| any.port == 0));
        assert!(HostPort::parse_remote("a", Some(5)).is_ok_and(|there| there.port == 5));
        let error = HostPort::parse_remote("a:0", None).unwrap_err();
        assert!(error.to_string().starts_with("\"a:0\": nothing listens at port 0"), "{error}");
        let error = HostPort::parse("localhost", None).unwrap_err();
        assert!(matches!(error, AddressError::NoPort(_)));
    }

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in ["127.0.0.1:80", "[::1]:80", "localhost:1"] {
            assert_eq!(HostPort::parse(text, None).unwrap().to_string(), text);
        }
    }
}
