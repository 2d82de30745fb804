//! A member's identity: its address, its name, its incarnation, and how often it had to renew
//! itself.
//!
//! foca keeps one identity per address. If two claim the same address, [`Identity::rank`] decides,
//! in the same way on every node.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::model::ids::{Incarnation, NameError, NodeName};
use crate::model::spelling::LifeRef;

/// The name of a network; the same rules as for a node's. Every datagram carries it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetworkName(Arc<str>);

impl NetworkName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with it.
    pub fn new(name: &str) -> Result<Self, NameError> {
        NodeName::check(name)?;
        Ok(Self(Arc::from(name)))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One member of the network, as foca identifies it.
///
/// `name` and `incarnation` are the engine's identity of a node. `generation` belongs to SWIM
/// alone: a process that was declared down, or that finds its address taken by its own identity of
/// before a restart, takes a higher one and gets in again. It is a counter, never a clock.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The advertised gossip address; see [`canonical_addr`].
    pub(crate) addr: SocketAddr,
    /// The node's name.
    pub name: NodeName,
    /// The node's incarnation: a counter from its data directory, or a random number.
    pub(crate) incarnation: Incarnation,
    /// How often this process renewed itself, or more if it learnt of a higher one.
    pub(crate) generation: u32,
    /// Set on the last identity of a process that leaves, so that "left" and "failed" can be
    /// distinguished wherever the news travels. foca itself knows only "down".
    pub(in crate::membership) leaving: bool,
}

impl Identity {
    /// The identity of a process that starts: generation 0, the address made canonical.
    pub fn new(addr: SocketAddr, name: NodeName, incarnation: Incarnation) -> Self {
        Self { addr: canonical_addr(addr), name, incarnation, generation: 0, leaving: false }
    }

    /// Whether both are the same process, whatever their generations.
    pub(crate) fn is_same_process(&self, other: &Self) -> bool {
        self.incarnation == other.incarnation && self.name == other.name && self.addr == other.addr
    }

    /// The order in which identities of one address beat each other. The generation comes
    /// first, so that a process that learnt the winner's generation can always go above it,
    /// although incarnations are random. Total: two that differ never tie.
    fn rank(&self) -> (u32, bool, Incarnation, &NodeName) {
        (self.generation, self.leaving, self.incarnation, &self.name)
    }

    /// Whether this identity is the one to keep of two with the same address.
    pub(in crate::membership) fn beats(&self, other: &Self) -> bool {
        self.rank() > other.rank()
    }

    /// The same process one generation above `generation`; `None` if there is none left.
    pub(in crate::membership) fn renewed_above(&self, generation: u32) -> Option<Self> {
        let generation = generation.max(self.generation).checked_add(1)?;
        Some(Self { generation, leaving: false, ..self.clone() })
    }

    /// The last identity of this process. It beats all its earlier ones.
    pub(in crate::membership) fn leaving(&self) -> Self {
        Self { generation: self.generation.saturating_add(1), leaving: true, ..self.clone() }
    }

    /// Of two live nodes of one name at different addresses, the one with the smaller seniority
    /// stays: the one that renewed less often was declared down less often; the rest only breaks
    /// ties.
    pub(super) fn seniority(&self) -> (u32, Incarnation, SocketAddr) {
        (self.generation, self.incarnation, self.addr)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = LifeRef { name: self.name.as_str(), incarnation: self.incarnation };
        write!(f, "{life}@{}", self.addr)?;
        write!(f, "/{}{}", self.generation, if self.leaving { " leaving" } else { "" })
    }
}

impl foca::Identity for Identity {
    type Addr = SocketAddr;

    fn renew(&self) -> Option<Self> {
        self.renewed_above(self.generation)
    }

    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.beats(adversary)
    }
}

/// The one form of an address that is compared and sent: an IPv4 address mapped into IPv6 is the
/// IPv4 address, flow label and scope are dropped (they mean nothing on another host, so link-local
/// IPv6 addresses cannot be advertised).
pub(crate) fn canonical_addr(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// Whether datagrams can be sent there: one host, one port. Also keeps a hostile peer from
/// making members send to a multicast or broadcast address.
pub(in crate::membership) fn is_unicast(addr: &SocketAddr) -> bool {
    let broadcast = matches!(addr.ip(), IpAddr::V4(ip) if ip.is_broadcast());
    addr.port() != 0 && !addr.ip().is_unspecified() && !addr.ip().is_multicast() && !broadcast
}

#[cfg(test)]
mod tests {
    use super::*;
    use foca::Identity as _;

    fn identity(incarnation: u64, generation: u32) -> Identity {
        let addr = "10.0.0.1:27587".parse().unwrap();
        let mut identity =
            Identity::new(addr, NodeName::new("a").unwrap(), Incarnation(incarnation));
        identity.generation = generation;
        identity
    }

    #[test]
    fn exactly_one_of_two_different_identities_wins_their_address() {
        let mut all = Vec::new();
        for incarnation in [0, 1, u64::MAX] {
            for generation in [0, 1, u32::MAX] {
                let one = identity(incarnation, generation);
                let mut named = one.clone();
                named.name = NodeName::new("b").unwrap();
                all.extend([Identity { leaving: true, ..one.clone() }, one, named]);
            }
        }
        for a in &all {
            for b in &all {
                assert_eq!(a != b, a.win_addr_conflict(b) != b.win_addr_conflict(a), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_renewed_identity_beats_the_old_one_and_what_it_was_told_of() {
        let restarted = identity(3, 0);
        assert!(restarted.renew().unwrap().beats(&restarted));
        let old = identity(u64::MAX, 7);
        assert!(old.beats(&restarted));
        assert!(restarted.renewed_above(old.generation).unwrap().beats(&old));
        assert!(identity(3, u32::MAX).renew().is_none());
    }

    #[test]
    fn a_leaving_identity_beats_all_earlier_ones_even_at_the_last_generation() {
        for generation in [0, 5, u32::MAX] {
            let one = identity(3, generation);
            assert!(one.leaving().beats(&one));
        }
    }

    #[test]
    fn mapped_addresses_are_the_same_as_plain_ones() {
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:5".parse().unwrap();
        assert_eq!(canonical_addr(mapped), "10.0.0.1:5".parse().unwrap());
        assert!(!is_unicast(&"0.0.0.0:5".parse().unwrap()));
        assert!(!is_unicast(&"10.0.0.1:0".parse().unwrap()));
        assert!(!is_unicast(&"224.0.0.1:5".parse().unwrap()));
        assert!(!is_unicast(&"255.255.255.255:5".parse().unwrap()));
        assert!(is_unicast(&"[::1]:5".parse().unwrap()));
    }
}
