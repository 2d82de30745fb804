//! Which keys the nodes of the network have, as each says itself. Reports are passed on from node to node, so
//! that a node knows of those that it has no link to, and of those that are away. Time is given.

use std::collections::BTreeMap;

use distkv_model::ids::{Millis, NodeName};

use crate::hand_over::{HandOver, REPORTS_MAX, Report};
use crate::key_ring::RingSummary;
use crate::key_ring::handed::Handed;

/// A node says anew what it has after this time, so that others see that its report is still true.
const SAY_INTERVAL_MS: Millis = 300_000;

/// What is known of all nodes, at most [`REPORTS_MAX`].
#[derive(Debug)]
pub struct Reports {
    own: NodeName,
    by_name: BTreeMap<NodeName, Kept>,
    /// Counts changes of the table.
    revision: u64,
}

/// What a peer was told over one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    handed: Handed,
    /// The revision of the reports.
    revision: u64,
}

#[derive(Debug)]
struct Kept {
    report: Report,
    /// The change of the table that brought it.
    revision: u64,
}

impl Reports {
    /// Nothing is known yet. `own`: this node.
    #[must_use]
    pub fn new(own: NodeName) -> Self {
        Self { own, by_name: BTreeMap::new(), revision: 0 }
    }

    /// This node says what it has; `at`: now.
    pub fn say(&mut self, report: Report) {
        let last = self.by_name.get(&self.own).map(|kept| &kept.report);
        let said_at = last.map_or(0, |last| last.at);
        let is_said = last.is_some_and(|last| {
            Report { at: last.at, ..report.clone() } == *last
                && report.at < last.at.saturating_add(SAY_INTERVAL_MS)
        });
        if !is_said {
            // Later than before, also when the clock was set back, or another life said more.
            let at = report.at.max(said_at.saturating_add(1));
            self.put(Report { at, ..report });
        }
    }

    /// Another node says, or passes on, what a node has. The later one counts.
    pub fn take(&mut self, report: Report) {
        let known = self.by_name.get(&report.name).map(|kept| kept.report.at);
        let has_room = known.is_some() || self.by_name.len() < REPORTS_MAX;
        // Of this node itself, only this node knows: it says so again, and later, when it is asked next.
        if has_room && known.is_none_or(|at| at < report.at) {
            self.put(report);
        }
    }

    /// A node does not come back. `ring`: any; nobody looks at it.
    pub fn forget(&mut self, name: &NodeName, now: Millis, ring: RingSummary) {
        let known = self.by_name.get(name).map(|kept| kept.report.at);
        let at = now.max(known.map_or(0, |at| at.saturating_add(1)));
        let report = Report { name: name.clone(), at, ring, trouble: None, is_gone: true };
        if known.is_some() || self.by_name.len() < REPORTS_MAX {
            self.put(report);
        }
    }

    fn put(&mut self, report: Report) {
        self.revision += 1;
        let kept = Kept { revision: self.revision, report };
        self.by_name.insert(kept.report.name.clone(), kept);
    }

    /// Forgets those that nothing was heard of for so long, unless they are members.
    pub fn expire(
        &mut self,
        now: Millis,
        patience_ms: Millis,
        is_member: impl Fn(&NodeName) -> bool,
    ) {
        let patience_ms = patience_ms.saturating_add(2 * SAY_INTERVAL_MS);
        self.by_name.retain(|name, kept| {
            kept.report.at.saturating_add(patience_ms) > now || is_member(name)
        });
    }

    /// How often the table has changed.
    #[cfg(test)]
    #[must_use]
    fn revision(&self) -> u64 {
        self.revision
    }

    /// What a peer is to be told by a node whose ring hands over so much, and that has told it `before` over this
    /// link; none: nothing is new. Keys and reports are state, so whoever is met later gets all of them then.
    #[must_use]
    pub fn tell(
        &self,
        peer: &NodeName,
        handed: Handed,
        before: Option<&Told>,
    ) -> (Option<HandOver>, Told) {
        let told = Told { handed: handed.clone(), revision: self.revision };
        let mut reports = self.since(before.map_or(0, |told| told.revision));
        // It knows better of itself, unless it was forgotten.
        reports.retain(|report| report.name != *peer || report.is_gone);
        let is_new = before.is_none_or(|before| before.handed != handed) || !reports.is_empty();
        (is_new.then_some(HandOver { handed, reports }), told)
    }

    /// What has changed since.
    #[must_use]
    pub(crate) fn since(&self, revision: u64) -> Vec<Report> {
        let news = self.by_name.values().filter(|kept| kept.revision > revision);
        news.map(|kept| kept.report.clone()).collect()
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Report> {
        self.since(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn name(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn report(of: &str, at: Millis, key: u8) -> Report {
        let id = Key::new([key; 32]).id();
        let ring = RingSummary { ids: vec![id], primary: id };
        Report { name: name(of), at, ring, trouble: None, is_gone: false }
    }

    #[test]
    fn the_later_report_counts_and_what_is_new_is_told() {
        let mut reports = Reports::new(name("a"));
        reports.take(report("b", 5, 1));
        reports.take(report("b", 4, 2));
        assert_eq!(reports.all(), [report("b", 5, 1)]);
        let before = reports.revision();
        reports.take(report("b", 5, 2));
        assert_eq!(reports.since(before), []);
        reports.take(report("b", 6, 2));
        assert_eq!(reports.since(before), [report("b", 6, 2)]);
    }

    #[test]
    fn a_node_says_what_is_new_at_once_and_the_rest_every_five_minutes() {
        let mut reports = Reports::new(name("a"));
        reports.say(report("a", 100, 1));
        reports.say(report("a", 200, 1));
        assert_eq!(reports.all(), [report("a", 100, 1)]);
        reports.say(report("a", 100 + SAY_INTERVAL_MS, 1));
        assert_eq!(reports.all(), [report("a", 100 + SAY_INTERVAL_MS, 1)]);
        // Its clock was set back.
        reports.say(report("a", 50, 2));
        assert_eq!(reports.all(), [report("a", 101 + SAY_INTERVAL_MS, 2)]);
    }

    #[test]
    fn what_others_believe_of_a_node_is_corrected_by_itself() {
        let mut reports = Reports::new(name("a"));
        reports.say(report("a", 100, 1));
        // Its former life, whose clock was ahead.
        reports.take(report("a", 900, 7));
        reports.say(report("a", 110, 1));
        assert_eq!(reports.all(), [report("a", 901, 1)]);
        reports.forget(&name("a"), 950, report("a", 0, 1).ring);
        assert!(reports.all()[0].is_gone);
        reports.say(report("a", 960, 1));
        assert_eq!(reports.all(), [report("a", 960, 1)]);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_who_is_no_member() {
        let mut reports = Reports::new(name("a"));
        for number in 0..=REPORTS_MAX {
            reports.take(report(&format!("n{number}"), 1, 1));
        }
        assert_eq!(reports.all().len(), REPORTS_MAX);
        reports.take(report("n0", 2, 2));
        assert_eq!(reports.all()[0], report("n0", 2, 2));
        let now = 10 + 2 * SAY_INTERVAL_MS + 600_000;
        reports.expire(now, 600_000, |member| *member == name("n7"));
        assert_eq!(reports.all(), [report("n7", 1, 1)]);
    }

    #[test]
    fn a_peer_is_told_what_is_new_and_nothing_of_itself() {
        let ring = crate::key_ring::KeyRing::new(
            distkv_core::membership::NetworkName::new("plant").unwrap(),
            Key::new([1; 32]),
        );
        let mut reports = Reports::new(name("a"));
        reports.take(report("b", 1, 1));
        reports.take(report("c", 1, 1));
        let (message, told) = reports.tell(&name("b"), ring.handed(), None);
        assert_eq!(message.unwrap().reports, [report("c", 1, 1)]);
        reports.take(report("b", 2, 1));
        let (message, told) = reports.tell(&name("b"), ring.handed(), Some(&told));
        assert_eq!(message, None);
        let mut ring = ring;
        ring.order_add(Key::new([2; 32])).unwrap();
        let (message, _) = reports.tell(&name("b"), ring.handed(), Some(&told));
        let message = message.unwrap();
        assert_eq!((message.handed, message.reports), (ring.handed(), vec![]));
    }
}
