//! What is remembered of histories that met: so that each meeting is reported once, and so that
//! those hear of it who never heard the other history themselves.

use std::collections::BTreeMap;

use super::contest::{Claim, distinct};
use crate::model::ids::NodeName;
use crate::model::ping::{Meeting, PING_MEETINGS_MAX, Ping};

/// For so many turns a meeting is told, so that a few lost pings do not matter. Each hearer knows
/// the names for as many turns after it last heard of them; then another split of the same two
/// sides would be noticed.
pub(crate) const MEETING_TURNS: u64 = 6;

/// Most names remembered from meetings. When it is reached, further strangers are joined without a
/// report until some are forgotten: a network that heals in more pieces at once has enough to
/// recover, and pairs of nodes find the rest by themselves.
pub(crate) const KNOWN_NAMES_MAX: usize = 512;

/// How a name is remembered.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// How many turns this member followed by then.
    at: u64,
    /// It is gone since; when its history is heard again, that is another meeting. What is told of
    /// the first one is still no news.
    is_over: bool,
}

/// The meetings of the last [`MEETING_TURNS`] turns.
///
/// Invariant: at most `PING_MEETINGS_MAX` meetings and `KNOWN_NAMES_MAX` names.
#[derive(Default, Debug)]
pub(crate) struct Reunions {
    meetings: Vec<Meeting>,
    known: BTreeMap<NodeName, Known>,
    /// Turns followed. Names go by this count, not by the turns' numbers: these leap where a
    /// history meets one that is further, and names would be forgotten while others still tell them.
    followed: u64,
}

/// What is told of a meeting, as seen by one who hears of it.
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

    /// A claim to another turn is followed: forgets what is over.
    pub(crate) fn on_turn(&mut self, turn: u64) {
        self.followed += 1;
        let followed = self.followed;
        self.meetings.retain(|meeting| is_recent(meeting.turn, turn));
        self.known.retain(|_, known| is_recent(known.at, followed));
    }

    /// The history leaps to a turn because it met another: what was told goes on being told.
    pub(crate) fn on_leap(&mut self, turn: u64) {
        for meeting in &mut self.meetings {
            meeting.turn = turn;
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

    /// Remembers a meeting, to tell it.
    pub(crate) fn remember(&mut self, meeting: Meeting) {
        self.note_sides(&meeting);
        for name in meeting.sides.iter().flatten() {
            if let Some(known) = self.known.get_mut(name) {
                known.is_over = false;
            }
        }
        if self.meetings.len() >= PING_MEETINGS_MAX {
            self.meetings.remove(0);
        }
        self.meetings.push(meeting);
    }

    /// Remembers who met, without telling of it.
    pub(crate) fn note_sides(&mut self, meeting: &Meeting) {
        let at = self.followed;
        for name in meeting.sides.iter().flat_map(|side| distinct(side)) {
            if let Some(known) = self.known.get_mut(&name) {
                known.at = at;
            } else if self.known.len() < KNOWN_NAMES_MAX {
                self.known.insert(name, Known { at, is_over: false });
            }
        }
    }

    /// A name is gone: meeting its history again is another meeting.
    pub(crate) fn on_gone(&mut self, name: &NodeName) {
        if let Some(known) = self.known.get_mut(name) {
            known.is_over = true;
        }
    }

    /// Judges what is told of a meeting; `turn` is the latest turn that teller or hearer know of,
    /// `ours` the hearer's own history.
    #[must_use]
    pub(crate) fn decide_news(&self, meeting: &Meeting, turn: u64, ours: &Claim) -> MeetingNews {
        if !is_recent(meeting.turn, turn) {
            return MeetingNews::Nothing;
        }
        let sides = meeting.sides.each_ref().map(|side| distinct(side));
        let [left, right] = &sides;
        let shares = left.iter().any(|name| right.contains(name));
        if shares || left.is_empty() || right.is_empty() || self.is_full() {
            return MeetingNews::Nothing;
        }
        let is_ours = |side: &Vec<NodeName>| {
            ours.shares_with(side) || side.iter().any(|name| self.known.contains_key(name))
        };
        let [left, right] = sides;
        match (is_ours(&left), is_ours(&right)) {
            (true, false) => MeetingNews::Met { ours: left, theirs: right },
            (false, true) => MeetingNews::Met { ours: right, theirs: left },
            (true, true) => MeetingNews::Known,
            (false, false) => MeetingNews::Nothing,
        }
    }
}

/// The meetings that a ping tells of and that are not over by its own claim.
pub(crate) fn recent<'a>(ping: &'a Ping, claim: &Claim) -> Vec<&'a Meeting> {
    let meetings = ping.meetings.iter().take(PING_MEETINGS_MAX);
    meetings.filter(|meeting| is_recent(meeting.turn, claim.turn())).collect()
}

/// Whether a meeting of one turn is still told in another, later one.
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
        let news = |r: &Reunions, ours| r.decide_news(&told, 101, &claim(100, ours));
        assert_eq!(news(&reunions, "b c"), met("a b", "x y"));
        assert_eq!(news(&reunions, "y z"), met("x y", "a b"));
        assert_eq!(news(&reunions, "b y"), MeetingNews::Known);
        assert_eq!(news(&reunions, "p q"), MeetingNews::Nothing);
        reunions.remember(meeting(101, "c b", "y z"));
        assert_eq!(news(&reunions, "b c"), MeetingNews::Known);
    }

    #[test]
    fn old_and_absurd_news_are_no_news() {
        let reunions = Reunions::default();
        let ours = claim(100, "a b");
        let none = [
            (meeting(101, "a", "x"), 107),
            (meeting(102, "a", "x"), 101),
            (meeting(u64::MAX, "a", "x"), 101),
            (meeting(101, "", "x"), 101),
            (meeting(101, "a", ""), 101),
            (meeting(101, "a", "x a"), 101),
            (meeting(101, "x a", "x"), 101),
        ];
        for (told, turn) in none {
            let news = reunions.decide_news(&told, turn, &ours);
            assert!(!matches!(news, MeetingNews::Met { .. }), "{told:?}");
        }
        let told = meeting(101, "a", "x");
        assert!(matches!(reunions.decide_news(&told, 106, &ours), MeetingNews::Met { .. }));
    }

    #[test]
    fn who_was_met_is_known_for_some_turns_or_until_it_is_gone() {
        let mut reunions = Reunions::default();
        reunions.remember(meeting(101, "a b", "x y"));
        for turn in 102..107 {
            reunions.on_turn(turn);
        }
        assert!(reunions.knows(&claim(60, "z y")));
        assert!(!reunions.knows(&claim(60, "z")));
        reunions.on_gone(&names("y")[0]);
        assert!(!reunions.knows(&claim(60, "z y")), "heard again, it is another meeting");
        let told = meeting(102, "b", "y");
        let news = reunions.decide_news(&told, 106, &claim(106, "a b"));
        assert_eq!(news, MeetingNews::Known, "the first meeting, told once more, is no news");
        assert_eq!(reunions.meetings().len(), 1);
        reunions.on_turn(107);
        assert!(!reunions.knows(&claim(60, "x")));
        assert!(reunions.meetings().is_empty());
    }

    #[test]
    fn a_leap_to_the_turn_of_another_history_makes_nothing_forgotten() {
        let mut reunions = Reunions::default();
        reunions.remember(meeting(101, "a b", "x y"));
        reunions.on_leap(901);
        reunions.on_turn(901);
        assert!(reunions.knows(&claim(60, "x y")));
        assert_eq!(reunions.meetings(), [meeting(901, "a b", "x y")]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut reunions = Reunions::default();
        for i in 0..KNOWN_NAMES_MAX as u64 {
            reunions.remember(meeting(i, &format!("a{i}"), &format!("b{i}")));
        }
        assert_eq!(reunions.known.len(), KNOWN_NAMES_MAX);
        assert_eq!(reunions.meetings.len(), PING_MEETINGS_MAX);
        assert!(reunions.is_full());
    }
}
