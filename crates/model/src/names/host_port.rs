//! `host:port`, as people write it: IPv4, IPv6 in brackets, host names. Pure: looking names up
//! is `rt`'s.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The port at which nodes listen for clients, unless told otherwise.
pub const CLIENT_PORT: u16 = 27586;
/// The port at which nodes listen for each other (TCP and UDP), unless told otherwise.
pub const GOSSIP_PORT: u16 = 27587;

/// Most bytes between two dots of a host's name (RFC 1035).
const LABEL_BYTES_MAX: usize = 63;

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

/// Whether this is an IPv6 link-local address (fe80::/10).
#[must_use]
pub fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
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
    /// A bracket that does not close.
    #[error("{0:?} does not close its bracket; write [ADDRESS]:PORT")]
    OpenBracket(String),
    /// What is in the brackets is no IPv6 address.
    #[error("{text:?}: brackets are for IPv6 addresses, and {host:?} is none; write HOST:PORT")]
    Brackets {
        /// The whole.
        text: String,
        /// What is in the brackets.
        host: String,
    },
    /// Something other than a port stands behind the brackets.
    #[error("{0:?} has no colon after its brackets; write [ADDRESS]:PORT")]
    NoColon(String),
    /// An IPv6 address with a zone and a port, without brackets.
    #[error("{text:?} needs brackets before its port; write {like}")]
    NoBrackets {
        /// The whole.
        text: String,
        /// What is probably meant.
        like: HostPort,
    },
    /// It is an IPv6 link-local address, which this machine cannot use without a zone.
    #[error(
        "{text:?} is a link-local address and has no zone (the name of this machine's network interface); give its zone, like {like}"
    )]
    NoZone {
        /// The whole.
        text: String,
        /// The address with a zone.
        like: HostPort,
    },
    /// The host has a part that is too long for a name. A ticket or a key has.
    #[error(
        "{0:?} is no address: between two dots, a name has at most {LABEL_BYTES_MAX} characters; write HOST:PORT"
    )]
    LongName(String),
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
        if let Some(character) = host.chars().find(|c| !is_good(c)) {
            return Err(AddressError::Character { text: text.to_owned(), character });
        }
        if host.split('.').any(|label| label.len() > LABEL_BYTES_MAX) {
            return Err(AddressError::LongName(text.to_owned()));
        }
        Ok(HostPort { host: host.to_owned(), port })
    }

    /// The same for an address of this machine, at which something is to listen: a link-local one needs its zone.
    ///
    /// # Errors
    /// [`AddressError`] says what is wrong, and what the right form is.
    pub fn parse_local(text: &str, default_port: Option<u16>) -> Result<HostPort, AddressError> {
        let address = HostPort::parse(text, default_port)?;
        let (ip, zone) = split_zone(&address.host);
        if address.is_link_local() && zone.is_empty() {
            let like = HostPort { host: format!("{ip}%eth0"), port: address.port };
            return Err(AddressError::NoZone { text: text.to_owned(), like });
        }
        Ok(address)
    }

    /// The same for an address that is to be connected to: port 0 is none, either.
    ///
    /// # Errors
    /// [`AddressError`] says what is wrong, and what the right form is.
    pub fn parse_remote(text: &str, default_port: Option<u16>) -> Result<HostPort, AddressError> {
        let address = HostPort::parse_local(text, default_port)?;
        if address.port == 0 {
            return Err(AddressError::NoOnesPort(text.to_owned()));
        }
        Ok(address)
    }

    /// Whether the host is an IPv6 link-local address. It means something on one link only, so this host needs a zone
    /// with it, and others need another one, or cannot use it at all.
    #[must_use]
    pub fn is_link_local(&self) -> bool {
        let ip = split_zone(&self.host).0.parse::<IpAddr>();
        ip.is_ok_and(is_link_local)
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
        let is_open = || AddressError::OpenBracket(text.to_owned());
        let (host, rest) = rest.split_once(']').ok_or_else(is_open)?;
        if !host.is_empty() && !is_ipv6(host) {
            return Err(AddressError::Brackets { text: text.to_owned(), host: host.to_owned() });
        }
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(AddressError::NoColon(text.to_owned())),
        };
    }
    if is_ipv6(text) {
        return Ok((text, None));
    }
    if let Some((host, port)) = text.rsplit_once(':')
        && host.contains('%')
        && is_ipv6(host)
        && let Ok(port) = port.parse()
    {
        let like = HostPort { host: host.to_owned(), port };
        return Err(AddressError::NoBrackets { text: text.to_owned(), like });
    }
    // A text with more colons is neither an address nor a name; the error about its "port" says so.
    match text.split_once(':') {
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

/// An address, and its zone, if it has one ("fe80::1%eth0").
fn split_zone(host: &str) -> (&str, &str) {
    host.split_once('%').unwrap_or((host, ""))
}

/// Whether this is an IPv6 address, with a zone or without; which zones there are, the system knows.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = split_zone(text);
    address.parse::<Ipv6Addr>().is_ok() && !zone.contains(':')
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
        assert_eq!(parsed("fe80::1%eth0"), of("fe80::1%eth0", 1));
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
        let long = |count| format!("n1.{}.example:1", "a".repeat(count));
        assert!(HostPort::parse(&long(63), None).is_ok());
        let error = HostPort::parse(&long(64), None).unwrap_err();
        assert!(error.to_string().contains("at most 63 characters; write HOST:PORT"), "{error}");
        let error = HostPort::parse("localhost", None).unwrap_err();
        assert!(matches!(error, AddressError::NoPort(_)));
    }

    #[test]
    fn of_an_ipv6_address_it_is_told_what_its_form_lacks() {
        for (text, what) in [
            ("[::1", "does not close its bracket; write [ADDRESS]:PORT"),
            ("[::1:80", "does not close its bracket; write [ADDRESS]:PORT"),
            ("[::1]80", "has no colon after its brackets; write [ADDRESS]:PORT"),
            (
                "[10.0.0.1]:80",
                "brackets are for IPv6 addresses, and \"10.0.0.1\" is none; write HOST:PORT",
            ),
            ("[n1]:80", "brackets are for IPv6 addresses, and \"n1\" is none; write HOST:PORT"),
            ("[]:80", "has no host; write HOST:PORT"),
            ("fe80::1%eth0:80", "needs brackets before its port; write [fe80::1%eth0]:80"),
            ("fe80::1%eth0:80:1", "is no port; write HOST:PORT"),
        ] {
            let error = HostPort::parse(text, Some(1)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?}")) && error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_link_local_address_is_used_with_a_zone_only() {
        for (text, like) in [
            ("[fe80::1]:80", "[fe80::1%eth0]:80"),
            ("fe80::1", "[fe80::1%eth0]:5"),
            ("[FEBF::1%]:80", "[FEBF::1%eth0]:80"),
            ("fe80::1%", "[fe80::1%eth0]:5"),
        ] {
            let error = HostPort::parse_remote(text, Some(5)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is a link-local address")), "{error}");
            assert!(error.ends_with(&format!("give its zone, like {like}")), "{error}");
            // Nodes tell such addresses of others.
            assert!(HostPort::parse(text, Some(5)).is_ok());
        }
        for text in ["[fe80::1%eth0]:5", "fe80::1%2", "[fec0::1]:5", "fd00::1", "169.254.0.1:5"] {
            assert!(HostPort::parse_remote(text, Some(5)).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in ["127.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:80", "localhost:1"] {
            assert_eq!(HostPort::parse(text, None).unwrap().to_string(), text);
        }
    }
}
