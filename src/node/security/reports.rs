//! Which keys the nodes of the network have, as each says itself. Reports are passed on from node to node, so
//! that a node knows of those that it has no link to, and of those that are away.

use std::collections::BTreeMap;

use crate::model::ids::{Millis, NodeName};
use crate::secure::hand_over::{REPORTS_MAX, Report};
use crate::secure::key_ring::RingSummary;

/// A node says anew what it has after this time, so that others see that its report is still true.
const SAY_INTERVAL_MS: Millis = 300_000;

/// What is known of all nodes, at most [`REPORTS_MAX`].
pub(super) struct Reports {
    own: NodeName,
    by_name: BTreeMap<NodeName, Kept>,
    /// Counts changes of the table.
    revision: u64,
}

struct Kept {
    report: Report,
    /// The change of the table that brought it.
    revision: u64,
}

impl Reports {
    pub(super) fn new(own: NodeName) -> Self {
        Self { own, by_name: BTreeMap::new(), revision: 0 }
    }

    /// This node says what it has; `at`: now.
    pub(super) fn say(&mut self, report: Report) {
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
    pub(super) fn take(&mut self, report: Report) {
        let known = self.by_name.get(&report.name).map(|kept| kept.report.at);
        let has_room = known.is_some() || self.by_name.len() < REPORTS_MAX;
        // Of this node itself, only this node knows: it says so again, and later, when it is asked next.
        if has_room && known.is_none_or(|at| at < report.at) {
            self.put(report);
        }
    }

    /// A node does not come back. `ring`: any; nobody looks at it.
    pub(super) fn forget(&mut self, name: &NodeName, now: Millis, ring: RingSummary) {
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
    pub(super) fn expire(
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
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// What has changed since.
    pub(super) fn since(&self, revision: u64) -> Vec<Report> {
        let news = self.by_name.values().filter(|kept| kept.revision > revision);
        news.map(|kept| kept.report.clone()).collect()
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<Report> {
        self.since(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secure::key::Key;

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
}
