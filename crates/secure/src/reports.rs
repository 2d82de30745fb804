//! Which keys the nodes of the network have, as each says itself. Reports are passed on from node to node, so
//! that a node knows of those that it has no link to, and of those that are away. Time is given.

use std::collections::BTreeMap;

use distkv_model::ids::{Millis, NodeName};

use crate::hand_over::{HandOver, REPORTS_MAX, Report};
use crate::key_ring::RingSummary;
use crate::key_ring::handed::Handed;

/// A node says anew what it has after this time, so that others see that its report is still true.
const SAY_INTERVAL_MS: Millis = 300_000;
/// So much time is between two corrections of what others believe of a node: another node under its name, whose
/// report contradicts it each time, must not keep all nodes busy.
const CORRECT_INTERVAL_MS: Millis = 5_000;

/// What is known of all nodes, at most [`REPORTS_MAX`].
#[derive(Debug)]
pub struct Reports {
    own: NodeName,
    by_name: BTreeMap<NodeName, Kept>,
    /// The time of a report of this node that others have, that is not what it says, and later than that.
    contradicted: Option<Millis>,
    /// When this node corrected that last, by its own clock.
    corrected: Option<Millis>,
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
        Self { own, by_name: BTreeMap::new(), contradicted: None, corrected: None, revision: 0 }
    }

    /// This node says what it has; `at`: now.
    pub fn say(&mut self, report: Report) {
        let now = report.at;
        let last = self.by_name.get(&self.own).map(|kept| &kept.report);
        let said_at = last.map_or(0, |last| last.at);
        let is_same = last.is_some_and(|last| has_same_contents(last, &report));
        let corrects = self.contradicted.is_some()
            // A clock that was set back must not make others wait.
            && self.corrected.is_none_or(|at| now < at || at.saturating_add(CORRECT_INTERVAL_MS) <= now);
        if is_same && now < said_at.saturating_add(SAY_INTERVAL_MS) && !corrects {
            return;
        }
        // Later than before, also when the clock was set back, or another life said more.
        let heard_at = self.contradicted.take().unwrap_or(0);
        if heard_at > 0 {
            self.corrected = Some(now);
        }
        let at = now.max(said_at.max(heard_at).saturating_add(1));
        self.put(Report { at, ..report });
    }

    /// Another node says, or passes on, what a node has. The later one counts.
    pub fn take(&mut self, report: Report) {
        let known = self.by_name.get(&report.name).map(|kept| &kept.report);
        let has_room = known.is_some() || self.by_name.len() < REPORTS_MAX;
        if !has_room || known.is_some_and(|known| known.at >= report.at) {
            return;
        }
        // Of this node itself, only this node knows. A former life whose clock was ahead is corrected, or else it
        // would be believed until that time has come.
        if report.name == self.own && known.is_none_or(|known| !has_same_contents(known, &report)) {
            self.contradicted = self.contradicted.max(Some(report.at));
        } else {
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
    pub fn tell(&self, handed: Handed, before: Option<&Told>) -> (Option<HandOver>, Told) {
        let told = Told { handed: handed.clone(), revision: self.revision };
        // Also what is believed of the peer itself: only so does it find out that it must correct that.
        let reports = self.since(before.map_or(0, |told| told.revision));
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

/// Whether two reports differ in nothing but their time.
fn has_same_contents(one: &Report, other: &Report) -> bool {
    Report { at: other.at, ..one.clone() } == *other
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

    /// A node of the test below: what it knows, what it told the other, and what it says of itself.
    struct Node {
        reports: Reports,
        told: Option<Told>,
        says: Report,
    }

    impl Node {
        fn new(says: Report) -> Self {
            Self { reports: Reports::new(says.name.clone()), told: None, says }
        }

        /// Says what it has, and tells the other what is new over their link; whether anything was.
        fn tell(&mut self, to: &mut Self) -> bool {
            self.reports.say(self.says.clone());
            let (message, told) = self.reports.tell(ring().handed(), self.told.as_ref());
            self.told = Some(told);
            let Some(message) = message else { return false };
            message.reports.into_iter().for_each(|report| to.reports.take(report));
            true
        }

        fn of(&self, name: &str) -> Report {
            let all = self.reports.all();
            all.into_iter().find(|report| report.name.as_str() == name).unwrap()
        }
    }

    /// Until neither has anything to say: how many messages that took.
    fn talk(one: &mut Node, other: &mut Node) -> usize {
        let mut count = 0;
        loop {
            let said = [one.tell(other), other.tell(one)];
            let news = said.into_iter().filter(|is_news| *is_news).count();
            if news == 0 {
                return count;
            }
            count += news;
            assert!(count < 100, "they never come to an end");
        }
    }

    fn ring() -> crate::key_ring::KeyRing {
        let network = distkv_core::membership::NetworkName::new("plant").unwrap();
        crate::key_ring::KeyRing::new(network, Key::new([1; 32]))
    }

    #[test]
    fn a_node_that_ran_with_its_clock_ahead_hears_of_that_and_corrects_it() {
        for (has, ahead) in [(1, 3_600_000), (1, 40 * 86_400_000), (7, 3_600_000)] {
            let mut a = Node::new(report("a", 1_000, 1));
            let mut b = Node::new(report("b", 1_000 + ahead, 7));
            talk(&mut a, &mut b);
            assert_eq!(a.of("b"), report("b", 1_000 + ahead, 7));
            // It is started again, with the right clock and perhaps other keys: the link is a new one.
            b = Node::new(report("b", 5_000, has));
            a.told = None;
            let count = talk(&mut a, &mut b);
            for node in [&a, &b] {
                assert_eq!(node.of("b").ring, report("b", 0, has).ring);
                assert!(node.of("b").at >= 1_000 + ahead);
            }
            assert!(count <= 6, "{count} messages");
            // What changes later is heard, too, although the clock is still behind.
            b.says = report("b", 6_000, 9);
            talk(&mut a, &mut b);
            assert_eq!(a.of("b").ring, b.says.ring);
        }
    }

    #[test]
    fn two_nodes_of_one_name_do_not_correct_each_other_without_end() {
        let mut one = Node::new(report("b", 1_000, 1));
        let mut other = Node::new(report("b", 1_000, 2));
        let count = talk(&mut one, &mut other);
        assert!(count <= 8, "{count} messages");
        // Each goes on saying what itself has.
        assert_eq!((one.of("b").ring, other.of("b").ring), (one.says.ring, other.says.ring));
    }

    #[test]
    fn a_peer_is_told_what_is_new() {
        let mut ring = ring();
        let mut reports = Reports::new(name("a"));
        reports.take(report("b", 1, 1));
        reports.take(report("c", 1, 1));
        let (message, told) = reports.tell(ring.handed(), None);
        assert_eq!(message.unwrap().reports, [report("b", 1, 1), report("c", 1, 1)]);
        reports.take(report("c", 1, 2));
        let (message, told) = reports.tell(ring.handed(), Some(&told));
        assert_eq!(message, None);
        ring.order_add(Key::new([2; 32])).unwrap();
        let (message, _) = reports.tell(ring.handed(), Some(&told));
        let message = message.unwrap();
        assert_eq!((message.handed, message.reports), (ring.handed(), vec![]));
    }
}
