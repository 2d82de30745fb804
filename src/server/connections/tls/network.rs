//! Networks of addresses, as `10.1.0.0/16` or `fd00::/8`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// All addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    bits: u32,
}

/// A text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network; write an address, or as 10.1.0.0/16")]
pub struct NetworkError(String);

impl FromStr for IpNetwork {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl IpNetwork {
    /// Whether the address is one of them. An IPv4 address counts as such also where it is written as IPv6.
    #[must_use]
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let differ = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        differ >= self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_what_begins_like_it() {
        let contains = |network: &str, address: &str| {
            network.parse::<IpNetwork>().unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("10.1.0.0/16", "10.1.255.1") && !contains("10.1.0.0/16", "10.2.0.0"));
        assert!(contains("10.1.2.3", "10.1.2.3") && !contains("10.1.2.3", "10.1.2.2"));
        assert!(contains("0.0.0.0/0", "1.2.3.4") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("fd00::/8", "fdff::1") && !contains("fd00::/8", "fe00::1"));
        assert!(contains("::/0", "2001::1") && contains("10.0.0.0/9", "::ffff:10.127.0.1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for wrong in ["", "10.1", "10.1.0.0/33", "10.1.0.0/x", "::/129", "host/8", "10.0.0.0/-1"] {
            assert!(wrong.parse::<IpNetwork>().is_err(), "{wrong}");
        }
        assert_eq!("10.1.0.0/16".parse::<IpNetwork>().unwrap().to_string(), "10.1.0.0/16");
    }
}
