//! The elected list as this member sees it: its members, those that took no turn recently, and when
//! each was heard.

use std::collections::VecDeque;

use super::contest::Claim;
use crate::model::ids::{Millis, NodeName};

/// Turns in a row that one on the list may let pass before it is taken off. Less, and a few lost
/// pings change the list; more, and one that died delays every turn by a gap for longer.
pub(crate) const MISSED_TURNS_MAX: u8 = 3;

/// Most names remembered as gone. Beyond it the oldest is forgotten, and comes off the list by
/// missing its turns.
pub(crate) const GONE_NAMES_MAX: usize = 256;

/// One on the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Listed {
    pub(crate) name: NodeName,
    /// When it was heard itself, or else when it came on the list.
    pub(crate) heard_at: Millis,
    /// Turns that it let pass since it last took one.
    missed: u8,
}

/// The list, newest first, and the names that are known to be gone.
///
/// Invariant: no name is listed twice, none is both listed and gone.
#[derive(Default, Debug)]
pub(crate) struct Roster {
    listed: Vec<Listed>,
    gone: VecDeque<NodeName>,
}

impl Roster {
    pub(crate) fn len(&self) -> usize {
        self.listed.len()
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listed> {
        self.listed.iter()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &NodeName> {
        self.listed.iter().map(|listed| &listed.name)
    }

    /// A name's place; 0 for the holder of the turn.
    pub(crate) fn place(&self, name: &NodeName) -> Option<usize> {
        self.names().position(|listed| listed == name)
    }

    pub(crate) fn is_gone(&self, name: &NodeName) -> bool {
        self.gone.contains(name)
    }

    /// A member was heard itself, so it is not gone.
    pub(crate) fn on_heard(&mut self, name: &NodeName, now: Millis) {
        self.gone.retain(|gone| gone != name);
        if let Some(listed) = self.listed.iter_mut().find(|listed| listed.name == *name) {
            listed.heard_at = now;
        }
    }

    /// Members that could not be heard until now have heard these recently.
    pub(crate) fn on_back<'a>(&mut self, names: impl IntoIterator<Item = &'a NodeName>) {
        for name in names {
            self.gone.retain(|gone| gone != name);
        }
    }

    /// A member is known to be gone; returns whether it was on the list.
    pub(crate) fn on_gone(&mut self, name: &NodeName) -> bool {
        if !self.is_gone(name) {
            if self.gone.len() >= GONE_NAMES_MAX {
                self.gone.pop_front();
            }
            self.gone.push_back(name.clone());
        }
        let before = self.len();
        self.listed.retain(|listed| listed.name != *name);
        self.len() < before
    }

    /// A member claimed the present turn, or a later one, so it lets none pass, whoever won.
    pub(crate) fn on_took_part(&mut self, name: &NodeName) {
        if let Some(listed) = self.listed.iter_mut().find(|listed| listed.name == *name) {
            listed.missed = 0;
        }
    }

    /// The next turn went to `holder`: those that had their chance before it let one pass.
    pub(crate) fn on_turn(&mut self, holder: &NodeName, list_len: usize) {
        let waited_for = match self.place(holder) {
            Some(place) => place + 1,
            None if self.len() >= list_len => 0,
            // A newcomer on a list with room comes before all that are listed.
            None => self.len(),
        };
        for listed in self.listed.iter_mut().skip(waited_for) {
            listed.missed = listed.missed.saturating_add(1);
        }
    }

    /// Whom a claim of one's own leaves on the list.
    pub(crate) fn present(&self) -> impl Iterator<Item = NodeName> {
        let present = self.listed.iter().filter(|listed| listed.missed < MISSED_TURNS_MAX);
        present.map(|listed| listed.name.clone())
    }

    /// The list of a claim, without members that are gone.
    pub(crate) fn follow(&mut self, claim: &Claim, list_len: usize, now: Millis) {
        let mut old = std::mem::take(&mut self.listed);
        for name in claim.history().take(list_len) {
            if self.gone.contains(name) {
                continue;
            }
            let known = old.iter().position(|listed| listed.name == *name);
            let mut listed = match known {
                Some(place) => old.swap_remove(place),
                None => Listed { name: name.clone(), heard_at: now, missed: 0 },
            };
            if name == claim.holder() {
                listed.missed = 0;
            }
            self.listed.push(listed);
        }
    }

    /// Forgets the list, but not which members are gone.
    pub(crate) fn clear(&mut self) {
        self.listed.clear();
    }

    /// The configuration allows no more than this many.
    pub(crate) fn truncate(&mut self, list_len: usize) {
        self.listed.truncate(list_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::tests::{names, text};

    fn claim(turn: u64, history: &str) -> Claim {
        let names = names(history);
        Claim::new(turn, Some(0), &names[0], names[1..].iter().cloned()).unwrap()
    }

    fn following(history: &str) -> Roster {
        let mut roster = Roster::default();
        roster.follow(&claim(1, history), 4, 100);
        roster
    }

    fn turn(roster: &mut Roster, turn: u64, history: &str) {
        let claim = claim(turn, history);
        roster.on_turn(claim.holder(), 4);
        roster.follow(&claim, 4, 100);
    }

    #[test]
    fn who_lets_three_turns_pass_is_left_out() {
        let mut roster = following("a b c x");
        turn(&mut roster, 2, "c a b x");
        turn(&mut roster, 3, "b c a x");
        assert_eq!(text(roster.present()), "b c a x");
        turn(&mut roster, 4, "a b c x");
        assert_eq!(text(roster.present()), "a b c");
    }

    #[test]
    fn who_takes_its_turn_has_let_none_pass() {
        let mut roster = following("a b c x");
        turn(&mut roster, 2, "c a b x");
        turn(&mut roster, 3, "b c a x");
        roster.on_took_part(&names("x")[0]);
        turn(&mut roster, 4, "a b c x");
        turn(&mut roster, 5, "x a b c");
        turn(&mut roster, 6, "b x a c");
        turn(&mut roster, 7, "a b x c");
        assert_eq!(text(roster.present()), "a b x c");
        turn(&mut roster, 8, "b a x c");
        assert_eq!(text(roster.present()), "b a x", "c let 6, 7 and 8 pass");
    }

    #[test]
    fn turns_that_were_let_pass_count_only_in_a_row() {
        let mut claims_and_loses = following("a b c x");
        turn(&mut claims_and_loses, 2, "c a b x");
        turn(&mut claims_and_loses, 3, "b c a x");
        claims_and_loses.on_took_part(&names("x")[0]);
        turn(&mut claims_and_loses, 4, "a b c x");
        assert_eq!(text(claims_and_loses.present()), "a b c x");
        let mut holds = following("a b c x");
        turn(&mut holds, 2, "c a b x");
        turn(&mut holds, 3, "b c a x");
        turn(&mut holds, 4, "x b c a");
        for (number, history) in [(5, "a x b c"), (6, "c a x b"), (7, "b c a x"), (8, "a b c x")] {
            turn(&mut holds, number, history);
        }
        assert_eq!(text(holds.present()), "a b c x", "x let two pass, took one, and let one pass");
    }

    #[test]
    fn a_newcomer_takes_nobodys_turn_while_there_is_room() {
        let mut roster = following("a b");
        for number in 2..9 {
            turn(&mut roster, number, "a b");
            roster.on_turn(&names("c")[0], 4);
        }
        assert_eq!(text(roster.present()), "a");
        let mut roster = following("a b");
        for _ in 0..9 {
            roster.on_turn(&names("c")[0], 4);
        }
        assert_eq!(text(roster.present()), "a b");
        let mut full = following("a b c d");
        for _ in 0..3 {
            full.on_turn(&names("e")[0], 4);
        }
        assert_eq!(text(full.present()), "", "a stranger comes only after all of a full list");
    }

    #[test]
    fn who_is_gone_stays_off_the_list_until_it_is_heard() {
        let mut roster = following("a b c");
        assert!(roster.on_gone(&names("b")[0]));
        assert!(!roster.on_gone(&names("b")[0]));
        assert_eq!(text(roster.names().cloned()), "a c");
        roster.follow(&claim(2, "c a b"), 4, 200);
        assert_eq!(text(roster.names().cloned()), "c a");
        roster.on_heard(&names("b")[0], 300);
        roster.follow(&claim(3, "a c b"), 4, 300);
        assert_eq!(text(roster.names().cloned()), "a c b");
    }

    #[test]
    fn the_names_of_those_gone_are_bounded() {
        let mut roster = Roster::default();
        for i in 0..=GONE_NAMES_MAX {
            roster.on_gone(&NodeName::new(&format!("n{i}")).unwrap());
        }
        assert_eq!(roster.gone.len(), GONE_NAMES_MAX);
        assert!(!roster.is_gone(&names("n0")[0]));
        assert!(roster.is_gone(&names("n256")[0]));
    }

    #[test]
    fn when_each_was_heard_survives_new_turns() {
        let mut roster = following("a b");
        roster.on_heard(&names("b")[0], 500);
        roster.follow(&claim(2, "b a c"), 4, 900);
        let heard: Vec<_> = roster.iter().map(|l| (l.name.as_str(), l.heard_at)).collect();
        assert_eq!(heard, [("b", 500), ("a", 100), ("c", 900)]);
    }
}
