//! Which of its host's addresses a node tells others, where it listens at all of them. Pure: what the host has
//! comes in.
//!
//! A node has one address for all of its peers, because membership does. So the first one that works stays, even if
//! there are others, until there is a better one or the host has lost it.

use std::net::{IpAddr, SocketAddr};

use super::address::{is_host, is_link_local};

/// Which addresses reach a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct Families {
    v4: bool,
    v6: bool,
}

impl Families {
    /// Those of a socket that is bound to that address. `v6_only`: IPv4 does not come in at `[::]`.
    pub(in crate::node) fn of(bound: IpAddr, v6_only: bool) -> Self {
        match bound.to_canonical() {
            IpAddr::V4(_) => Self { v4: true, v6: false },
            IpAddr::V6(ip) => Self { v4: ip.is_unspecified() && !v6_only, v6: true },
        }
    }

    /// Whether an address is of such a family.
    pub(in crate::node) fn take(self, ip: IpAddr) -> bool {
        if ip.to_canonical().is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// How an address was found, the weaker first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::node) enum Source {
    /// The system would use it to reach somebody who may not be there.
    Guess,
    /// A connection to a peer has it.
    Connection,
}

/// Who can use an address, the fewer first.
fn reach(ip: IpAddr) -> u8 {
    match ip {
        _ if ip.is_loopback() => 0,
        // Only with the name of a network interface, which differs from host to host.
        _ if is_link_local(ip) => 1,
        IpAddr::V4(_) | IpAddr::V6(_) => 2,
    }
}

/// The address that is told.
#[derive(Debug)]
pub(in crate::node) struct Route {
    /// Of the listener that peers call.
    families: Families,
    known: Option<(IpAddr, Source)>,
}

impl Route {
    pub(in crate::node) fn new(families: Families) -> Self {
        Self { families, known: None }
    }

    /// The address, once one is known.
    pub(in crate::node) fn ip(&self) -> Option<IpAddr> {
        self.known.map(|(ip, _)| ip)
    }

    /// Whether a guess is better than nothing, or than the last one.
    pub(in crate::node) fn wants_guess(&self) -> bool {
        self.known.is_none_or(|(_, source)| source == Source::Guess)
    }

    /// Takes an address if it is better than the one that is told now. Returns whether another one is told from now on.
    pub(in crate::node) fn learn(
        &mut self,
        ip: IpAddr,
        source: Source,
        is_of_this_host: impl FnOnce(IpAddr) -> bool,
    ) -> bool {
        let ip = ip.to_canonical();
        if let Some((known, found)) = &mut self.known
            && *known == ip
        {
            *found = source.max(*found);
            return false;
        }
        let is_better = self.is_better(ip, source, is_of_this_host);
        if is_better {
            self.known = Some((ip, source));
        }
        is_better
    }

    /// What to tell a peer over a connection that has this local address. An address at which nobody listens is told
    /// only by a node that has no other.
    pub(in crate::node) fn told(
        &self,
        local: Option<IpAddr>,
        is_of_this_host: impl FnOnce(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        let local = local.map(|ip| ip.to_canonical());
        let better = local.filter(|ip| self.is_better(*ip, Source::Connection, is_of_this_host));
        better.or(self.ip()).or(local)
    }

    fn is_better(
        &self,
        ip: IpAddr,
        source: Source,
        is_of_this_host: impl FnOnce(IpAddr) -> bool,
    ) -> bool {
        if !is_host(ip) || !self.families.take(ip) {
            return false;
        }
        let Some((known, found)) = self.known else { return true };
        match reach(ip).cmp(&reach(known)) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => ip != known && (source > found || !is_of_this_host(known)),
        }
    }
}

/// Another address of the network interface that has this link-local one: who shares the link can use it without a
/// zone. None where two interfaces have the link-local address, as those of VLANs do.
pub(in crate::node) fn beside(
    link_local: IpAddr,
    families: Families,
    all: &[(String, IpAddr)],
) -> Option<IpAddr> {
    let mut interfaces = all.iter().filter(|(_, ip)| *ip == link_local).map(|(name, _)| name);
    let interface = interfaces.next().filter(|_| interfaces.next().is_none())?;
    let is_for_others = |ip: IpAddr| is_host(ip) && !is_link_local(ip) && families.take(ip);
    let others = all.iter().filter(|(name, ip)| name == interface && is_for_others(*ip));
    // The peer has IPv6, since it was reached by it.
    others.map(|(_, ip)| *ip).min_by_key(IpAddr::is_ipv4)
}

/// The address of a listener's port, as a socket of those families is told it.
pub(in crate::node) fn first_that_fits(
    families: Families,
    told: IpAddr,
    local: Option<IpAddr>,
) -> IpAddr {
    let fits = |ip: &IpAddr| families.take(*ip);
    let local = local.map(|ip| ip.to_canonical()).filter(|ip| is_host(*ip));
    [Some(told), local].into_iter().flatten().find(fits).unwrap_or(told)
}

/// Addresses in the order in which to call them: first those from which a peer, or its datagrams, can be answered
/// by the same family.
pub(in crate::node) fn own_family_first(families: Families, addrs: &mut [SocketAddr]) {
    addrs.sort_by_key(|addr| !families.take(addr.ip()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn route(bound: &str) -> Route {
        Route::new(Families::of(ip(bound), false))
    }

    const GUESS: Source = Source::Guess;
    const LINK: Source = Source::Connection;

    #[test]
    fn only_an_address_at_which_the_node_listens_is_learnt() {
        for (bound, v6_only, v4, v6) in [
            ("0.0.0.0", false, true, false),
            ("[::]", false, true, true),
            ("[::]", true, false, true),
            ("[::ffff:10.0.0.1]", false, true, false),
            ("[fd00::1]", false, false, true),
        ] {
            let families = Families::of(ip(bound.trim_matches(['[', ']'])), v6_only);
            assert_eq!(families, Families { v4, v6 }, "{bound}");
            for source in [GUESS, LINK] {
                let learns = |text| Route::new(families).learn(ip(text), source, |_| true);
                assert_eq!(learns("10.0.0.9"), v4, "{bound}");
                assert_eq!(learns("::ffff:10.0.0.9"), v4, "{bound}");
                assert_eq!(learns("fd00::9"), v6, "{bound}");
                assert!(!learns("0.0.0.0") && !learns("::") && !learns("224.0.0.1"));
            }
        }
    }

    #[test]
    fn a_connection_outranks_a_guess_and_the_first_connection_stays() {
        let mut route = route("::");
        assert!(route.wants_guess());
        assert!(route.learn(ip("fd00::5"), GUESS, |_| true));
        assert!(route.wants_guess());
        assert!(!route.learn(ip("fd00::6"), GUESS, |_| true), "the first guess stays");
        assert_eq!(route.told(Some(ip("10.0.0.1")), |_| true), Some(ip("10.0.0.1")));
        assert!(route.learn(ip("10.0.0.1"), LINK, |_| true));
        assert!(!route.wants_guess());
        assert!(!route.learn(ip("fd00::5"), LINK, |_| true));
        assert_eq!(route.told(Some(ip("fd00::5")), |_| true), Some(ip("10.0.0.1")));
    }

    #[test]
    fn a_guess_that_a_connection_confirms_is_not_outranked_any_more() {
        let mut route = route("0.0.0.0");
        assert!(route.learn(ip("10.0.0.1"), GUESS, |_| true));
        assert!(!route.learn(ip("::ffff:10.0.0.1"), LINK, |_| true), "nothing else is told");
        assert!(!route.learn(ip("10.0.0.1"), GUESS, |_| true));
        assert!(!route.learn(ip("192.168.0.1"), LINK, |_| true));
        assert_eq!(route.ip(), Some(ip("10.0.0.1")));
    }

    #[test]
    fn what_others_can_use_comes_before_what_only_this_host_can() {
        let mut route = route("::");
        for better in ["::ffff:127.0.0.1", "fe80::1", "fd00::5"] {
            assert!(route.learn(ip(better), LINK, |_| true), "{better}");
            assert!(!route.learn(ip("::1"), LINK, |_| true), "after {better}");
        }
        assert_eq!(route.told(Some(ip("127.0.0.1")), |_| true), Some(ip("fd00::5")));
        assert!(!route.learn(ip("127.0.0.1"), LINK, |_| false), "not even if it is lost");
        // A guess that others can use is better than a connection that they cannot.
        let mut guessed = Route::new(Families::of(ip("::"), false));
        assert!(guessed.learn(ip("10.0.0.1"), GUESS, |_| true));
        assert!(!guessed.learn(ip("127.0.0.1"), LINK, |_| true));
    }

    #[test]
    fn an_address_that_the_host_has_lost_gives_way_to_any_other_that_others_can_use() {
        let mut route = route("0.0.0.0");
        assert!(route.learn(ip("10.0.0.1"), LINK, |_| true));
        let has_lost = |known: IpAddr| known != ip("10.0.0.1");
        assert_eq!(route.told(Some(ip("10.0.0.2")), has_lost), Some(ip("10.0.0.2")));
        assert_eq!(route.told(Some(ip("fd00::2")), has_lost), Some(ip("10.0.0.1")));
        assert!(route.learn(ip("10.0.0.2"), LINK, has_lost));
        assert!(!route.learn(ip("10.0.0.1"), LINK, |_| true), "it does not go back");
    }

    #[test]
    fn who_knows_nothing_tells_what_the_connection_has() {
        let route = route("0.0.0.0");
        assert_eq!(route.told(None, |_| true), None);
        assert_eq!(route.told(Some(ip("fd00::2")), |_| true), Some(ip("fd00::2")));
    }

    #[test]
    fn beside_a_link_local_address_is_another_one_of_its_interface() {
        let all = |addresses: &[(&str, &str)]| -> Vec<(String, IpAddr)> {
            addresses.iter().map(|(name, text)| ((*name).to_owned(), ip(text))).collect()
        };
        let both = Families::of(ip("::"), false);
        let found =
            |families, addresses: &[(&str, &str)]| beside(ip("fe80::1"), families, &all(addresses));
        let eth0 = [("eth0", "10.0.0.1"), ("eth0", "fe80::1"), ("eth0", "fd00::1")];
        let eth1 = [("lo", "::1"), ("eth1", "fd00:1::1"), ("eth1", "fe80::2")];
        assert_eq!(found(both, &[eth1, eth0].concat()), Some(ip("fd00::1")));
        assert_eq!(found(Families::of(ip("::"), true), &eth0[..2]), None, "IPv4 does not come in");
        assert_eq!(found(both, &eth0[..2]), Some(ip("10.0.0.1")));
        assert_eq!(found(both, &[("eth0", "fe80::1"), ("eth0", "fe80::2")]), None);
        assert_eq!(found(both, &eth1), None, "it is gone");
        let vlan = [("eth0.5", "fe80::1"), ("eth0.5", "fd00:5::1")];
        assert_eq!(found(both, &[&eth0[..], &vlan].concat()), None, "of which interface is it?");
    }

    #[test]
    fn clients_are_told_an_address_of_the_family_that_their_port_has() {
        let v4 = Families::of(ip("0.0.0.0"), false);
        let v6 = Families::of(ip("::"), true);
        let (ten, fd) = (ip("10.0.0.1"), ip("fd00::1"));
        assert_eq!(first_that_fits(v4, ten, Some(fd)), ten);
        assert_eq!(first_that_fits(v4, fd, Some(ten)), ten);
        assert_eq!(first_that_fits(v6, ten, Some(fd)), fd);
        assert_eq!(first_that_fits(v6, ten, None), ten);
    }

    #[test]
    fn addresses_of_this_nodes_family_are_called_first_in_their_order() {
        let addrs = || -> Vec<SocketAddr> {
            ["[fd00::1]:1", "10.0.0.1:1", "[fd00::2]:1", "10.0.0.2:1"]
                .map(|text| text.parse().unwrap())
                .to_vec()
        };
        let sorted = |bound| {
            let mut sorted = addrs();
            own_family_first(Families::of(ip(bound), false), &mut sorted);
            sorted
        };
        assert_eq!(sorted("::"), addrs());
        let [a, b, c, d] = addrs()[..] else { panic!("four") };
        assert_eq!(sorted("0.0.0.0"), [b, d, a, c]);
        assert_eq!(sorted("fd00::9"), [a, c, b, d]);
    }
}
