//! Claims and which of two is the greater: collisions are resolved here, in the same way on every
//! node that hears both, in whatever order.

use crate::model::ids::NodeName;
use crate::model::ping::{HISTORY_LEN_MAX, Ping, TURN_LIMIT};

/// A history is a past from this turn on. A younger one is what members make that start before they
/// hear each other, and meeting it is no healed split. If pings are lost or slow, and many nodes
/// start at once, it can take some turns until all have heard of one history; in each of them, a
/// node must have missed all claims of the other.
pub(crate) const PAST_TURNS_MIN: u64 = 8;

/// A member's claim to a turn.
///
/// Ordered by turn, then value (not ready is least), then holder: of two claims the greater one
/// counts. The rest of the history decides only between the tellings of one claim that two
/// meetings at the same turn made different; total, so that nothing depends on who is heard first.
///
/// Invariant: 1 <= turn < `TURN_LIMIT`; holder and rest are different names, at most
/// `HISTORY_LEN_MAX` of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Claim {
    turn: u64,
    value: Option<u64>,
    holder: NodeName,
    rest: Vec<NodeName>,
}

impl Claim {
    /// What a ping says, made orderly; `None` if it claims nothing, or a turn out of range.
    pub(crate) fn from_ping(ping: &Ping) -> Option<Self> {
        let history = distinct(&ping.history);
        let (holder, rest) = history.split_first()?;
        (1..TURN_LIMIT).contains(&ping.turn).then(|| Self {
            turn: ping.turn,
            value: ping.value,
            holder: holder.clone(),
            rest: rest.to_vec(),
        })
    }

    /// A claim to a turn; `others` are the rest of the list, newest first, in which a name may be
    /// given twice. `None` when the turns are used up.
    pub(crate) fn new(
        turn: u64,
        value: Option<u64>,
        holder: &NodeName,
        others: impl Iterator<Item = NodeName>,
    ) -> Option<Self> {
        let mut rest: Vec<NodeName> = Vec::new();
        for name in others {
            if rest.len() + 1 < HISTORY_LEN_MAX && name != *holder && !rest.contains(&name) {
                rest.push(name);
            }
        }
        (turn < TURN_LIMIT).then(|| Self { turn, value, holder: holder.clone(), rest })
    }

    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    pub(crate) fn value(&self) -> Option<u64> {
        self.value
    }

    pub(crate) fn holder(&self) -> &NodeName {
        &self.holder
    }

    /// Newest first.
    pub(crate) fn history(&self) -> impl Iterator<Item = &NodeName> {
        std::iter::once(&self.holder).chain(&self.rest)
    }

    /// Whether a name is in both.
    pub(crate) fn shares_with<'a>(&self, names: impl IntoIterator<Item = &'a NodeName>) -> bool {
        names.into_iter().any(|name| self.history().any(|own| own == name))
    }

    /// Whether it stands for a group that has existed for a while and has a ready member: only then
    /// is there anything to recover when another one is met.
    pub(crate) fn is_past(&self) -> bool {
        self.turn >= PAST_TURNS_MIN && self.value.is_some()
    }

    /// The result of two pasts that share nothing: the greater one continues, and its list takes
    /// from both sides in turn. One turn further than both, so that it beats each of them wherever
    /// it is heard. `None` when the turns are used up.
    pub(crate) fn merged(&self, other: &Self, list_len: usize) -> Option<Self> {
        let (winner, loser) = if self >= other { (self, other) } else { (other, self) };
        let mut rest = Vec::new();
        let mut winners = winner.rest.iter();
        let mut losers = loser.history();
        loop {
            let pair = [losers.next(), winners.next()];
            if pair.iter().all(Option::is_none) {
                break;
            }
            for name in pair.into_iter().flatten() {
                // A name can be on both sides where ours is known to be gone.
                if *name != winner.holder && !rest.contains(name) {
                    rest.push(name.clone());
                }
            }
        }
        rest.truncate(list_len.saturating_sub(1));
        let turn = winner.turn + 1;
        Self::new(turn, winner.value, &winner.holder, rest.into_iter())
    }

    /// The result of two histories that share nothing, at least one of which is no past: one with a
    /// ready member beats one without, then the greater one wins; the other is forgotten. Never
    /// less than either, so that it beats both wherever it is heard. `None` when the turns are used
    /// up.
    pub(crate) fn joined(&self, other: &Self) -> Option<Self> {
        let rank = |claim: &Self| (claim.value.is_some(), claim.is_past());
        let (winner, loser) =
            if (rank(self), self) >= (rank(other), other) { (self, other) } else { (other, self) };
        if winner > loser {
            return Some(winner.clone());
        }
        Self::new(loser.turn + 1, winner.value, &winner.holder, winner.rest.iter().cloned())
    }
}

/// The first [`HISTORY_LEN_MAX`] names, each once: a ping may say anything.
pub(crate) fn distinct(names: &[NodeName]) -> Vec<NodeName> {
    let mut found: Vec<NodeName> = Vec::new();
    for name in names.iter().take(HISTORY_LEN_MAX) {
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::tests::names;

    fn claim(turn: u64, value: Option<u64>, history: &str) -> Claim {
        let names = names(history);
        Claim::new(turn, value, &names[0], names[1..].iter().cloned()).unwrap()
    }

    #[test]
    fn claims_are_ordered_by_turn_then_value_then_name() {
        let ascending = [
            claim(4, Some(9), "z"),
            claim(5, None, "z a"),
            claim(5, Some(0), "z a"),
            claim(5, Some(1), "a b"),
            claim(5, Some(1), "b a"),
            claim(5, Some(2), "a b"),
            claim(6, None, "a"),
        ];
        assert!(ascending.is_sorted_by(|a, b| a < b), "{ascending:?}");
    }

    #[test]
    fn a_merged_claim_is_the_same_from_both_sides_and_beats_both() {
        let a = claim(100, Some(1), "a1 a2 a3 a4");
        let b = claim(90, Some(7), "b1 b2 b3 b4");
        let merged = a.merged(&b, 4).unwrap();
        assert_eq!(merged, claim(101, Some(1), "a1 b1 a2 b2"));
        assert_eq!(b.merged(&a, 4).unwrap(), merged);
        assert!(merged > a && merged > b);
        assert_eq!(a.merged(&b, 3).unwrap(), claim(101, Some(1), "a1 b1 a2"));
        assert_eq!(a.merged(&b, 16).unwrap(), claim(101, Some(1), "a1 b1 a2 b2 a3 b3 a4 b4"));
        let same = claim(95, Some(1), "a2 a1 c");
        assert_eq!(a.merged(&same, 6).unwrap(), claim(101, Some(1), "a1 a2 a3 c a4"));
        let room_for_all = a.merged(&same, 5).unwrap();
        assert_eq!(room_for_all, claim(101, Some(1), "a1 a2 a3 c a4"), "a2 takes one place");
        let lone = claim(9, Some(1), "c");
        assert_eq!(a.merged(&lone, 4).unwrap(), claim(101, Some(1), "a1 c a2 a3"));
    }

    #[test]
    fn one_that_only_started_joins_the_other_however_long_it_waited() {
        let past = claim(50, Some(1), "a b");
        let young = claim(2, Some(9), "c");
        assert_eq!(past.joined(&young).unwrap(), past);
        assert_eq!(young.joined(&past).unwrap(), past);
        let waiting = claim(700, None, "d e");
        let joined = past.joined(&waiting).unwrap();
        assert_eq!(joined, claim(701, Some(1), "a b"));
        assert_eq!(waiting.joined(&past).unwrap(), joined);
        assert!(joined > waiting && joined > past);
    }

    #[test]
    fn what_a_ping_says_is_made_orderly() {
        let mut ping = Ping {
            group: crate::model::ping::GroupId(0),
            sender: names("a")[0].clone(),
            turn: 7,
            value: None,
            history: names("a b a b c"),
            meetings: Vec::new(),
            config: crate::model::ping::ConfigVersion::DEFAULT,
        };
        assert_eq!(Claim::from_ping(&ping), Some(claim(7, None, "a b c")));
        ping.history = (0..40).map(|i| NodeName::new(&format!("n{i}")).unwrap()).collect();
        assert_eq!(Claim::from_ping(&ping).unwrap().history().count(), HISTORY_LEN_MAX);
        for turn in [0, TURN_LIMIT, u64::MAX] {
            ping.turn = turn;
            assert_eq!(Claim::from_ping(&ping), None);
        }
        ping.turn = 1;
        ping.history.clear();
        assert_eq!(Claim::from_ping(&ping), None);
    }
    #[test]
    fn a_claim_names_nobody_twice_and_no_more_than_fit() {
        let all: Vec<NodeName> =
            (0..40).map(|at| NodeName::new(&format!("n{at}")).unwrap()).collect();
        let others = all.iter().chain(&all).cloned();
        let claim = Claim::new(1, Some(0), &all[3], others).unwrap();
        let named: Vec<&NodeName> = claim.history().collect();
        assert_eq!(named.len(), HISTORY_LEN_MAX);
        assert_eq!(named.iter().collect::<std::collections::BTreeSet<_>>().len(), named.len());
    }
}
