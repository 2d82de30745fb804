//! Members that are up, as membership sees them, and to which there is no link although this node wants one. Membership hears of a
//! node by way of others, too, so it says nothing of two nodes that cannot reach each other. Pure; time comes in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Network, News, Presence, SAY_AGAIN_MS};
use crate::model::ids::{Millis, NodeName};
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
        let beginning = |names: &[String], is: &str| {
            format!("there has been no link to {} for {since}, although {is} up", names_text(names))
        };
        let refusing: Vec<String> = self.refusing.keys().map(ToString::to_string).collect();
        let refusing = self.refusing.values().next().map(|why| {
            let is = if refusing.len() == 1 { "it is" } else { "they are" };
            let beginning = beginning(&refusing, is);
            format!("{beginning}: one side refuses the other, so changes go by way of others if they can; {why}")
        });
        let names: Vec<String> = self.unreached().map(ToString::to_string).collect();
        if names.is_empty() {
            return refusing;
        }
        let (is, it, them) = match names.len() {
            1 => ("it is", "it", "the two"),
            _ => ("they are", "them", "this node and these"),
        };
        let beginning = beginning(&names, is);
        let why = self.why.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        let refusing = refusing.map(|text| format!(". Besides, {text}")).unwrap_or_default();
        Some(format!(
            "{beginning}: {them} cannot reach each other by TCP, so changes go by way of others, and later; look at the \
             firewalls and routes between this node and {it}, and at the addresses that they give to others \
             (--advertise){why}{refusing}"
        ))
    }

    /// Those that are warned of and refuse nothing.
    fn unreached(&self) -> impl Iterator<Item = &NodeName> {
        self.lasting.iter().filter(|name| !self.refusing.contains_key(*name))
    }
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
