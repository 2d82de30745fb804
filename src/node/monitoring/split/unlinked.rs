//! Members that are up, as membership sees them, and to which there is no link although this node wants one. Membership hears of a
//! node by way of others, too, so it says nothing of two nodes that cannot reach each other. Pure; time comes in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use super::{Network, News, Presence, SAY_AGAIN_MS};
use crate::membership::{MemberInfo, MemberState};
use crate::model::ids::{Millis, NodeName};
use crate::node::membership::address::{GIVE_ANOTHER, HostPort, is_link_local};
use crate::server::info::names_text;
use crate::server::purge_block::show_ms;

/// Links come about within seconds. Only after this time is it worth a warning that one has not.
const UNLINKED_WARN_MS: Millis = 30_000;

/// See the module.
#[derive(Default)]
pub(in crate::node) struct Unlinked {
    /// Since when each has had no link; at most as many as membership knows.
    since: BTreeMap<NodeName, Millis>,
    /// Those of them that are warned of, as of the last look.
    lasting: BTreeSet<NodeName>,
    /// Why there is no link with one of those that are warned of.
    why: Option<String>,
    /// Those of them that cannot be linked as long as neither side is configured otherwise, and why.
    refusing: BTreeMap<NodeName, Arc<str>>,
    /// Those of the others that are at link-local addresses.
    link_local: BTreeMap<NodeName, SocketAddr>,
    /// When the log said so, and of whom.
    said: Option<(Millis, BTreeSet<NodeName>)>,
}

impl Unlinked {
    /// To be called about every second. `is_wanted`: this node is to be linked with it; `why`: why it is not.
    pub(in crate::node) fn look(
        &mut self,
        network: &Network,
        is_wanted: impl Fn(&NodeName) -> bool,
        why: impl Fn(&NodeName) -> Option<String>,
        now: Millis,
    ) -> Option<News> {
        let is_here = |name: &NodeName| {
            network.present.get(name).is_some_and(|is| *is < Presence::Left)
                && !network.linked.contains(name)
                && is_wanted(name)
        };
        self.since.retain(|name, _| is_here(name));
        for name in network.present.keys().filter(|name| is_here(name)) {
            self.since.entry(name.clone()).or_insert(now);
        }
        let lasts = |since: Millis| now.saturating_sub(since) >= UNLINKED_WARN_MS;
        let lasting = self.since.iter().filter(|(_, since)| lasts(**since));
        self.lasting = lasting.map(|(name, _)| name.clone()).collect();
        let refusing = network.refusing.iter().filter(|(name, _)| self.lasting.contains(*name));
        self.refusing = refusing.map(|(name, why)| (name.clone(), Arc::clone(why))).collect();
        let is_at = |(name, _): &(&NodeName, &SocketAddr)| {
            self.lasting.contains(*name) && !self.refusing.contains_key(*name)
        };
        let link_local = network.link_local.iter().filter(is_at);
        self.link_local = link_local.map(|(name, addr)| (name.clone(), *addr)).collect();
        let why = self.unreached().find_map(why);
        self.why = why;
        if self.lasting.is_empty() {
            let (_, names) = self.said.take()?;
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            return Some(News::Over(format!(
                "no link is missing any more; the last that were: {}",
                names_text(&names)
            )));
        }
        let is_due = self.said.as_ref().is_none_or(|(at, names)| {
            !names.is_superset(&self.lasting) || now.saturating_sub(*at) >= SAY_AGAIN_MS
        });
        if !is_due {
            return None;
        }
        self.said = Some((now, self.lasting.clone()));
        self.text(now).map(News::Silent)
    }

    /// A line for people about those that have had no link for long, as of the last look.
    pub(in crate::node) fn text(&self, now: Millis) -> Option<String> {
        let since = self.lasting.iter().filter_map(|name| self.since.get(name)).min()?;
        let since = show_ms(now.saturating_sub(*since));
        let beginning = |names: &[String]| {
            let is = if names.len() == 1 { "it is" } else { "they are" };
            format!("there has been no link to {} for {since}, although {is} up", names_text(names))
        };
        let mut parts = Vec::new();
        let unreached: Vec<String> = self.unreached().map(ToString::to_string).collect();
        if !unreached.is_empty() {
            let (it, them) = match unreached.len() {
                1 => ("it", "the two"),
                _ => ("them", "this node and these"),
            };
            let beginning = beginning(&unreached);
            let why = self.why.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
            parts.push(format!(
                "{beginning}: {them} cannot reach each other by TCP, so changes go by way of others, and later; look at \
                 the firewalls and routes between this node and {it}, and at the addresses that they give to others \
                 (--advertise){why}"
            ));
        }
        let link_local: Vec<String> = self.link_local.keys().map(ToString::to_string).collect();
        if let Some(addr) = self.link_local.values().next() {
            let beginning = beginning(&link_local);
            parts.push(format!(
                "{beginning}: a link-local address, like {}, needs a zone, which this node does not know, so changes go \
                 by way of others, and later; {GIVE_ANOTHER}",
                HostPort::from(*addr)
            ));
        }
        let refusing: Vec<String> = self.refusing.keys().map(ToString::to_string).collect();
        if let Some(why) = self.refusing.values().next() {
            let beginning = beginning(&refusing);
            parts.push(format!(
                "{beginning}: one side refuses the other, so changes go by way of others if they can; {why}"
            ));
        }
        (!parts.is_empty()).then(|| parts.join(". Besides, "))
    }

    /// Those that are warned of and should be reached.
    fn unreached(&self) -> impl Iterator<Item = &NodeName> {
        let is_known = |name: &NodeName| {
            self.refusing.contains_key(name) || self.link_local.contains_key(name)
        };
        self.lasting.iter().filter(move |name| !is_known(name))
    }
}

/// The members that are up at a link-local address, and at no other.
pub(in crate::node) fn at_link_local(members: &[MemberInfo]) -> BTreeMap<NodeName, SocketAddr> {
    let is_up = |member: &&MemberInfo| member.state == MemberState::Up;
    let (at, others): (Vec<_>, Vec<_>) =
        members.iter().filter(is_up).partition(|member| is_link_local(member.addr.ip()));
    let has_other = |name: &NodeName| others.iter().any(|other| other.name == *name);
    let at = at.into_iter().filter(|member| !has_other(&member.name));
    at.map(|member| (member.name.clone(), member.addr)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    /// What is said where these are up and these are linked; n9 is not wanted.
    fn look(unlinked: &mut Unlinked, up: &[&str], linked: &[&str], now: Millis) -> Option<News> {
        let network = Network {
            present: up.iter().map(|up| (name(up), Presence::Here)).collect(),
            linked: linked.iter().map(|linked| name(linked)).collect(),
            ..Network::default()
        };
        let why = |of: &NodeName| (of.as_str() == "n2").then(|| String::from("n2:1: no answer"));
        unlinked.look(&network, |of| of.as_str() != "n9", why, now)
    }

    #[test]
    fn who_is_up_and_not_linked_for_half_a_minute_is_told_of_with_the_reason() {
        let mut unlinked = Unlinked::default();
        let up = ["n2", "n3", "n9"];
        for now in [0, 15_000, UNLINKED_WARN_MS - 1] {
            assert_eq!(look(&mut unlinked, &up, &["n3"], now), None);
            assert_eq!(unlinked.text(now), None);
        }
        let said = look(&mut unlinked, &up, &["n3"], UNLINKED_WARN_MS);
        let Some(News::Silent(said)) = said else { panic!("{said:?}") };
        let begins = "there has been no link to n2 for 30 s, although it is up: the two cannot";
        assert!(said.starts_with(begins), "{said}");
        assert!(said.ends_with("(--advertise); n2:1: no answer"), "{said}");
        assert_eq!(unlinked.text(UNLINKED_WARN_MS), Some(said));
        assert_eq!(look(&mut unlinked, &up, &["n3"], UNLINKED_WARN_MS + 1), None, "said before");
        let again = UNLINKED_WARN_MS + SAY_AGAIN_MS;
        assert!(matches!(look(&mut unlinked, &up, &["n3"], again), Some(News::Silent(_))));
        let over = look(&mut unlinked, &up, &["n2", "n3"], again + 1);
        assert!(matches!(over, Some(News::Over(text)) if text.ends_with(": n2")));
        assert_eq!(unlinked.text(again + 1), None);
        assert_eq!(look(&mut unlinked, &up, &["n2", "n3"], again + 2), None);
    }

    #[test]
    fn of_a_peer_that_refuses_the_reason_is_told_and_no_firewall() {
        let mut unlinked = Unlinked::default();
        let mut network = Network {
            present: [(name("n2"), Presence::Here)].into(),
            refusing: [(name("n2"), Arc::from("n2 has an older version"))].into(),
            ..Network::default()
        };
        let mut look = |network: &Network, now| {
            unlinked.look(network, |_| true, |of| Some(format!("{of}: no answer")), now)
        };
        assert_eq!(look(&network, 0), None);
        let Some(News::Silent(said)) = look(&network, UNLINKED_WARN_MS) else { panic!() };
        assert!(said.contains("no link to n2 for 30 s, although it is up"), "{said}");
        assert!(said.ends_with("; n2 has an older version"), "{said}");
        assert!(!said.contains("firewall") && !said.contains("TCP"), "{said}");
        network.present.insert(name("n3"), Presence::Here);
        assert_eq!(look(&network, UNLINKED_WARN_MS), None);
        let Some(News::Silent(said)) = look(&network, 2 * UNLINKED_WARN_MS) else { panic!() };
        assert!(said.starts_with("there has been no link to n3 for"), "{said}");
        assert!(said.contains("(--advertise); n3: no answer. Besides, there has been"), "{said}");
        assert!(said.ends_with("; n2 has an older version"), "{said}");
    }

    #[test]
    fn of_a_peer_at_a_link_local_address_that_is_told_and_no_firewall() {
        let mut unlinked = Unlinked::default();
        let addr = "[fe80::2]:27587".parse().unwrap();
        let mut network = Network {
            present: [(name("n2"), Presence::Here)].into(),
            link_local: [(name("n2"), addr), (name("n5"), addr)].into(),
            ..Network::default()
        };
        let mut look = |network: &Network, now| {
            unlinked.look(network, |_| true, |of| Some(format!("{of}: no answer")), now)
        };
        assert_eq!(look(&network, 0), None);
        let Some(News::Silent(said)) = look(&network, UNLINKED_WARN_MS) else { panic!() };
        let begins = "there has been no link to n2 for 30 s, although it is up: a link-local";
        assert!(said.starts_with(begins) && said.contains("like [fe80::2]:27587, needs"), "{said}");
        assert!(said.ends_with(&format!("; {GIVE_ANOTHER}")), "{said}");
        network.present.insert(name("n3"), Presence::Here);
        assert_eq!(look(&network, UNLINKED_WARN_MS), None);
        let Some(News::Silent(said)) = look(&network, 2 * UNLINKED_WARN_MS) else { panic!() };
        assert!(said.starts_with("there has been no link to n3 for"), "{said}");
        assert!(said.contains("(--advertise); n3: no answer. Besides, there has been"), "{said}");
        network.refusing = [(name("n2"), Arc::from("n2 has an older version"))].into();
        look(&network, 2 * UNLINKED_WARN_MS);
        let said = unlinked.text(2 * UNLINKED_WARN_MS).unwrap();
        assert!(
            !said.contains("link-local") && said.ends_with("; n2 has an older version"),
            "{said}"
        );
    }

    #[test]
    fn a_link_that_is_renewed_and_a_member_that_goes_are_no_pair_that_cannot_meet() {
        let mut unlinked = Unlinked::default();
        assert_eq!(look(&mut unlinked, &["n2", "n3"], &[], 0), None);
        assert_eq!(look(&mut unlinked, &["n3"], &["n3"], 20_000), None);
        assert_eq!(look(&mut unlinked, &["n2", "n3"], &[], 20_500), None);
        assert_eq!(look(&mut unlinked, &["n2", "n3"], &[], 40_000), None);
        let said = look(&mut unlinked, &["n2", "n3"], &[], 50_500);
        let Some(News::Silent(said)) = said else { panic!("{said:?}") };
        assert!(said.contains("no link to n2 and n3 for 30 s, although they are up"), "{said}");
    }
}
