//! The memory of histories that met: each meeting is reported once, and also reaches members that
//! never heard the other history themselves.

use std::collections::BTreeMap;

use super::contest::{Claim, distinct};
use crate::model::ids::{Millis, NodeName};
use crate::model::ping::{Meeting, PING_MEETINGS_MAX, Ping};

/// A meeting is reported for this many turns, so that a few lost pings do not matter. A later
/// report of the same names is another meeting.
pub(crate) const MEETING_TURNS: u64 = 4;

/// Most names remembered from meetings. When it is reached, further strangers are joined without a
/// report until some are forgotten: a network that heals in more pieces at once has enough to
/// recover, and pairs of nodes find the rest by themselves.
pub(crate) const KNOWN_NAMES_MAX: usize = 512;

/// How a name is remembered.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Reports of its history until then are about the meeting that is known.
    told_until: Millis,
    /// Its history, heard until then, has been met. Twice as long as the other: when a member
    /// notices that two sides have met again, all that it tells must have forgotten the last time.
    heard_until: Millis,
    /// It has been gone since; when its history is heard again, that is another meeting. Reports of
    /// the first one are still not new.
    is_over: bool,
}

/// The meetings of the last [`MEETING_TURNS`] turns.
///
/// Invariant: at most `PING_MEETINGS_MAX` meetings and `KNOWN_NAMES_MAX` names.
#[derive(Default, Debug)]
pub(crate) struct Reunions {
    /// In the order in which they became known, the latest last.
    meetings: Vec<Meeting>,
    /// Goes by time, not by turns: these leap where histories meet, and names would be forgotten
    /// while others still report them.
    known: BTreeMap<NodeName, Known>,
}

/// A reported meeting, as seen by a member that hears of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MeetingNews {
    /// One side is ours, the other one was unknown: report it.
    Met {
        /// The side that is ours.
        ours: Vec<NodeName>,
        /// The other.
        theirs: Vec<NodeName>,
    },
    /// Both sides are known here, so it was reported already.
    Known,
    /// It concerns only others as far as is known here, is long over, or there is no sense in it.
    Nothing,
}

impl Reunions {
    /// The latest ones, for a ping.
    pub(crate) fn meetings(&self) -> &[Meeting] {
        &self.meetings
    }

    /// Time has passed: forgets names.
    pub(crate) fn on_time(&mut self, now: Millis) {
        self.known.retain(|_, known| now < known.heard_until);
    }

    /// A claim to another turn is followed: outdated meetings are reported no longer.
    pub(crate) fn on_turn(&mut self, turn: u64) {
        self.meetings.retain(|meeting| is_recent(meeting.turn, turn));
    }

    /// The history leaps ahead by this many turns because it met another: reports continue for as
    /// long as before.
    pub(crate) fn on_leap(&mut self, turns: u64) {
        for meeting in &mut self.meetings {
            meeting.turn = meeting.turn.saturating_add(turns);
        }
    }

    /// Whether a history that is heard belongs to a side that was met already.
    pub(crate) fn knows(&self, claim: &Claim) -> bool {
        claim.history().any(|name| self.known.get(name).is_some_and(|known| !known.is_over))
    }

    /// Whether there is no room for the names of another meeting.
    pub(crate) fn is_full(&self) -> bool {
        self.known.len() >= KNOWN_NAMES_MAX
    }

    /// Remembers a meeting that was heard of or noticed now, and reports it. `telling_ms` is for
    /// how long it can be reported.
    pub(crate) fn remember(&mut self, meeting: Meeting, now: Millis, telling_ms: Millis) {
        for name in meeting.sides.iter().flatten() {
            self.known.remove(name);
        }
        self.pass_on(meeting, now, telling_ms);
    }

    /// Passes on a known meeting: the joint list must not travel without it, or a member that gets
    /// the list that way will not see that it came from two. A known side stays known for as long
    /// as before.
    pub(crate) fn pass_on(&mut self, meeting: Meeting, now: Millis, telling_ms: Millis) {
        self.note_sides(&meeting, now, telling_ms);
        if let Some(told) = self.meetings.iter_mut().find(|told| is_alike(told, &meeting)) {
            told.turn = told.turn.max(meeting.turn);
            return;
        }
        if self.meetings.len() >= PING_MEETINGS_MAX {
            self.meetings.remove(0);
        }
        self.meetings.push(meeting);
    }

    fn note_sides(&mut self, meeting: &Meeting, now: Millis, telling_ms: Millis) {
        let told_until = now.saturating_add(telling_ms);
        let heard_until = told_until.saturating_add(telling_ms);
        for name in meeting.sides.iter().flatten() {
            if !self.known.contains_key(name) && self.known.len() < KNOWN_NAMES_MAX {
                let known = Known { told_until, heard_until, is_over: false };
                self.known.insert(name.clone(), known);
            }
        }
    }

    /// A name is gone: meeting its history again is another meeting.
    pub(crate) fn on_gone(&mut self, name: &NodeName) {
        if let Some(known) = self.known.get_mut(name) {
            known.is_over = true;
        }
    }

    /// Judges a reported meeting; `turn` is the latest turn that reporter or hearer know of, `ours`
    /// the hearer's own history.
    #[must_use]
    pub(crate) fn decide_news(
        &self,
        meeting: &Meeting,
        turn: u64,
        ours: &Claim,
        now: Millis,
    ) -> MeetingNews {
        if !is_recent(meeting.turn, turn) {
            return MeetingNews::Nothing;
        }
        let [left, right] = &meeting.sides;
        let shares = left.iter().any(|name| right.contains(name));
        if shares || left.is_empty() || right.is_empty() || self.is_full() {
            return MeetingNews::Nothing;
        }
        let is_known =
            |name: &NodeName| self.known.get(name).is_some_and(|known| now < known.told_until);
        let is_ours = |side: &Vec<_>| ours.shares_with(side) || side.iter().any(is_known);
        match (is_ours(left), is_ours(right)) {
            (true, false) => MeetingNews::Met { ours: left.clone(), theirs: right.clone() },
            (false, true) => MeetingNews::Met { ours: right.clone(), theirs: left.clone() },
            (true, true) => MeetingNews::Known,
            (false, false) => MeetingNews::Nothing,
        }
    }
}

/// The meetings of a ping that are not outdated by its own claim, sorted, the oldest first: a later
/// one may have one of the sides that became one in an older one.
pub(crate) fn recent(ping: &Ping, claim: &Claim) -> Vec<Meeting> {
    let meetings = ping.meetings.iter().take(PING_MEETINGS_MAX);
    let recent = meetings.filter(|meeting| is_recent(meeting.turn, claim.turn()));
    let orderly = |meeting: &Meeting| Meeting {
        turn: meeting.turn,
        sides: meeting.sides.each_ref().map(|side| distinct(side)),
    };
    let mut recent: Vec<_> = recent.map(orderly).collect();
    recent.sort_by_key(|meeting| meeting.turn);
    recent
}

/// Whether two are about the same: others noticed it at another turn of their list.
fn is_alike(one: &Meeting, other: &Meeting) -> bool {
    let shares = |a: &[NodeName], b: &[NodeName]| a.iter().any(|name| b.contains(name));
    let [a, b] = &one.sides;
    let [c, d] = &other.sides;
    (shares(a, c) && shares(b, d)) || (shares(a, d) && shares(b, c))
}

/// Whether a meeting of one turn is still reported in another, later one.
fn is_recent(turn: u64, now: u64) -> bool {
    (turn..turn.saturating_add(MEETING_TURNS)).contains(&now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::tests::names;

    fn claim(turn: u64, history: &str) -> Claim {
        let names = names(history);
        Claim::new(turn, Some(0), &names[0], names[1..].iter().cloned()).unwrap()
    }

    fn meeting(turn: u64, left: &str, right: &str) -> Meeting {
        Meeting { turn, sides: [names(left), names(right)] }
    }

    #[test]
    fn news_of_a_meeting_concern_who_is_of_one_side_and_knows_not_the_other() {
        let mut reunions = Reunions::default();
        let told = meeting(101, "a b", "x y");
        let met = |ours, theirs| MeetingNews::Met { ours: names(ours), theirs: names(theirs) };
        let news = |r: &Reunions, ours| r.decide_news(&told, 101, &claim(100, ours), 9);
        assert_eq!(news(&reunions, "b c"), met("a b", "x y"));
        assert_eq!(news(&reunions, "y z"), met("x y", "a b"));
        assert_eq!(news(&reunions, "b y"), MeetingNews::Known);
        assert_eq!(news(&reunions, "p q"), MeetingNews::Nothing);
        reunions.remember(meeting(101, "c b", "y z"), 0, 500);
        assert_eq!(news(&reunions, "b c"), MeetingNews::Known);
    }

    #[test]
    fn old_and_absurd_news_are_no_news() {
        let reunions = Reunions::default();
        let ours = claim(100, "a b");
        let none = [
            (meeting(101, "a", "x"), 105),
            (meeting(102, "a", "x"), 101),
            (meeting(u64::MAX, "a", "x"), 101),
            (meeting(101, "", "x"), 101),
            (meeting(101, "", "a"), 101),
            (meeting(101, "x", ""), 101),
            (meeting(101, "a", ""), 101),
            (meeting(101, "a", "x a"), 101),
            (meeting(101, "x a", "x"), 101),
        ];
        for (told, turn) in none {
            let news = reunions.decide_news(&told, turn, &ours, 9);
            assert!(!matches!(news, MeetingNews::Met { .. }), "{told:?}");
        }
        let told = meeting(101, "a", "x");
        assert!(matches!(reunions.decide_news(&told, 104, &ours, 9), MeetingNews::Met { .. }));
    }

    #[test]
    fn who_was_met_is_known_for_some_time_or_until_it_is_gone() {
        let mut reunions = Reunions::default();
        reunions.remember(meeting(101, "a b", "x y"), 0, 500);
        reunions.pass_on(meeting(104, "b a", "y x"), 300, 500);
        assert_eq!(reunions.meetings(), [meeting(104, "a b", "x y")]);
        reunions.on_time(999);
        assert!(reunions.knows(&claim(60, "z y")));
        assert!(!reunions.knows(&claim(60, "z")));
        reunions.on_gone(&names("y")[0]);
        assert!(!reunions.knows(&claim(60, "z y")), "heard again, it is another meeting");
        let told = meeting(104, "b", "y");
        let news = |r: &Reunions, now| r.decide_news(&told, 104, &claim(104, "a b"), now);
        assert_eq!(news(&reunions, 499), MeetingNews::Known, "the first one, told once more");
        let again = MeetingNews::Met { ours: names("b"), theirs: names("y") };
        assert_eq!(news(&reunions, 500), again);
        reunions.on_time(1_000);
        assert!(!reunions.knows(&claim(60, "x")));
        reunions.remember(told.clone(), 1_000, 500);
        assert!(reunions.knows(&claim(60, "y")));
        assert_eq!(news(&reunions, 1_499), MeetingNews::Known);
    }

    #[test]
    fn a_meeting_is_told_for_some_turns_also_if_they_leap() {
        let mut reunions = Reunions::default();
        reunions.remember(meeting(101, "a b", "x y"), 0, 500);
        reunions.on_turn(103);
        reunions.on_leap(900);
        reunions.on_turn(1_003);
        assert_eq!(reunions.meetings(), [meeting(1_001, "a b", "x y")]);
        reunions.on_turn(1_004);
        assert_eq!(reunions.meetings().len(), 1);
        reunions.on_turn(1_005);
        assert!(reunions.meetings().is_empty());
    }

    #[test]
    fn what_a_ping_tells_of_meetings_is_made_orderly() {
        let history = names("a b");
        let ping = Ping {
            group: crate::model::ping::GroupId(0),
            sender: history[0].clone(),
            turn: 107,
            value: Some(0),
            history,
            meetings: vec![
                meeting(107, "a b a", "x"),
                meeting(103, "a", "x"),
                meeting(108, "a", "x"),
                meeting(u64::MAX, "a", "x"),
                meeting(104, "c c", "y"),
            ],
            config: crate::model::ping::ConfigVersion::DEFAULT,
        };
        let found = recent(&ping, &Claim::from_ping(&ping).unwrap());
        assert_eq!(found, [meeting(104, "c", "y"), meeting(107, "a b", "x")]);
        let many = Ping { meetings: vec![meeting(107, "a", "x"); 100], ..ping };
        assert_eq!(recent(&many, &claim(107, "a")).len(), PING_MEETINGS_MAX);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut reunions = Reunions::default();
        for i in 0..KNOWN_NAMES_MAX as u64 {
            reunions.remember(meeting(i, &format!("a{i}"), &format!("b{i}")), 0, 500);
        }
        assert_eq!(reunions.known.len(), KNOWN_NAMES_MAX);
        assert_eq!(reunions.meetings.len(), PING_MEETINGS_MAX);
        assert!(reunions.is_full());
    }
    #[test]
    fn meetings_that_share_one_side_only_are_told_apart() {
        let mut reunions = Reunions::default();
        reunions.remember(meeting(101, "a", "x"), 0, 500);
        reunions.pass_on(meeting(102, "b", "x"), 0, 500);
        reunions.pass_on(meeting(103, "a", "y"), 0, 500);
        let told = [meeting(101, "a", "x"), meeting(102, "b", "x"), meeting(103, "a", "y")];
        assert_eq!(reunions.meetings(), told);
        reunions.pass_on(meeting(104, "x", "a"), 0, 500);
        assert_eq!(reunions.meetings()[0].turn, 104, "the first one, from its other side");
        assert_eq!(reunions.meetings().len(), 3);
    }
}
