//! What each of two nodes still lacks of the other's changes. Both tell which changes they have accounted for; what one has and
//! the other has not is on its way, if they are in one network.

use std::collections::BTreeMap;

use crate::cli::error::CliError;
use crate::cli::remote::Remote;
use crate::client::message::{array_items, as_str, as_u64, map_items};
use crate::client::{ChainEvent, Fields, Message};

/// Ticks from the first one to before the second one.
type Range = (u64, u64);

/// Which changes a node has accounted for, and which others it knows of.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    /// Its own life.
    life: String,
    /// By life: the highest tick that it has heard of.
    heard: BTreeMap<String, u64>,
    /// By life: what it lacks of those. Invariant: sorted. Nodes tell ranges that do not overlap; of others, some are counted
    /// twice or not at all.
    missing: BTreeMap<String, Vec<Range>>,
    /// By life, of the members that it knows: whether that one is down, that is, has answered nothing for some time.
    members: BTreeMap<String, bool>,
}

impl Knowledge {
    /// Asks a node; nothing where it does not tell that to this client, or knows no such question.
    pub(super) async fn ask(remote: &Remote) -> Result<Option<Knowledge>, CliError> {
        let mut fields = Fields::new();
        // Retired lives, too: to find out which of them to leave out would take a walk over all entries.
        fields.bool("nodes", true).bool("missing", true).bool("over", true);
        let Ok(state) = remote.try_request("get_state", &fields).await? else { return Ok(None) };
        let Ok(members) = remote.try_request("members", &Fields::new()).await? else {
            return Ok(None);
        };
        Ok(Some(Knowledge::of(&state, &members)))
    }

    fn of(state: &Message, members: &Message) -> Knowledge {
        let part = |name| map_items(state.get(name).unwrap_or_default());
        let life = |bytes| as_str(bytes).map(str::to_owned);
        let heard = part("nodes").filter_map(|(of, tick)| Some((life(of)?, as_u64(tick)?)));
        let missing = part("missing").filter_map(|(of, ticks)| {
            let ranges = array_items(ticks).filter_map(range_of).filter(|(from, to)| from < to);
            let mut ranges: Vec<Range> = ranges.collect();
            ranges.sort_unstable();
            Some((life(of)?, ranges))
        });
        let rows = array_items(members.get("result").unwrap_or_default());
        let rows = rows.filter_map(|row| Message::new(row).ok());
        Knowledge {
            life: state.str("node").unwrap_or_default().to_owned(),
            heard: heard.collect(),
            missing: missing.collect(),
            members: rows.filter_map(member_of).collect(),
        }
    }

    /// How many changes it lacks that the other one has, and will be sent.
    pub(super) fn lacks(&self, other: &Knowledge) -> u64 {
        let is_one_network = self.is_in_network_of(other);
        let mut count: u64 = 0;
        for (life, highest) in &other.heard {
            let end = highest.saturating_add(1);
            let first_unheard = self.heard_of(life).saturating_add(1);
            let unheard = (first_unheard, end);
            let missing = self.missing_of(life).iter().map(|(from, to)| (*from, (*to).min(end)));
            let lacking = missing.chain(is_one_network.then_some(unheard));
            let there = other.missing_of(life);
            let counts = lacking.map(|range| length(range).saturating_sub(overlap(range, there)));
            count = counts.fold(count, u64::saturating_add);
        }
        count
    }

    /// Whether it lacks this change, which the other one has in an entry.
    pub(super) fn lacks_change(&self, change: &ChainEvent, other: &Knowledge) -> bool {
        let Some(tick) = change.tick else { return false };
        if tick > self.heard_of(&change.node) {
            return self.is_in_network_of(other);
        }
        let missing = self.missing_of(&change.node);
        let next = missing.partition_point(|(_, to)| *to <= tick);
        missing.get(next).is_some_and(|(from, _)| *from <= tick)
    }

    /// Whether one of the two has met the other: what happens at one is sent to the other then, sooner or later. Changes of which
    /// a node has only not heard say nothing of that: nodes of other networks have such changes, too.
    fn is_in_network_of(&self, other: &Knowledge) -> bool {
        let knows =
            |a: &Knowledge, b: &Knowledge| !b.life.is_empty() && a.members.contains_key(&b.life);
        knows(self, other) || knows(other, self)
    }

    /// Whether the other one is down, as far as this one sees.
    pub(super) fn sees_down(&self, other: &Knowledge) -> bool {
        self.members.get(&other.life).copied().unwrap_or(false)
    }

    fn heard_of(&self, life: &str) -> u64 {
        self.heard.get(life).copied().unwrap_or(0)
    }

    fn missing_of(&self, life: &str) -> &[Range] {
        self.missing.get(life).map(Vec::as_slice).unwrap_or_default()
    }
}

fn length((from, to): Range) -> u64 {
    to.saturating_sub(from)
}

/// How many ticks of a range are in any of the others, which are sorted.
fn overlap((from, to): Range, others: &[Range]) -> u64 {
    let first = others.partition_point(|(_, end)| *end <= from);
    let others = others.iter().skip(first).take_while(|(first, _)| *first < to);
    let common = others.map(|(first, end)| length(((*first).max(from), (*end).min(to))));
    common.fold(0, u64::saturating_add)
}

/// A member's life, and whether it is down.
fn member_of(row: Message) -> Option<(String, bool)> {
    Some((row.str("life")?.to_owned(), row.str("state") == Some("down")))
}

/// One tick, or a range of them.
fn range_of(bytes: &[u8]) -> Option<Range> {
    if let Some(tick) = as_u64(bytes) {
        return Some((tick, tick.saturating_add(1)));
    }
    match array_items(bytes).filter_map(as_u64).collect::<Vec<_>>().as_slice() {
        [from, to] => Some((*from, *to)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its life, how far it has heard of `w~1` and what of that it misses, and whom it knows.
    fn node(life: &str, heard: u64, missing: &[Range], members: &[&str]) -> Knowledge {
        Knowledge {
            life: life.into(),
            heard: BTreeMap::from([("w~1".into(), heard)]),
            missing: BTreeMap::from([("w~1".into(), missing.to_vec())]),
            members: members.iter().map(|life| ((*life).to_owned(), false)).collect(),
        }
    }

    fn change(tick: u64) -> ChainEvent {
        ChainEvent { node: "w~1".into(), tick: Some(tick) }
    }

    #[test]
    fn what_one_lacks_is_what_the_other_has_accounted_for() {
        let a = node("a~1", 10, &[(2, 4)], &["b~1"]);
        let b = node("b~1", 8, &[(3, 6)], &[]);
        // 4, 5, and 9, 10, of which it has not heard; 3 is missing at both.
        assert_eq!((b.lacks(&a), a.lacks(&b)), (4, 1));
        let lacking = |node: &Knowledge, other: &Knowledge| -> Vec<u64> {
            (1..=11).filter(|t| node.lacks_change(&change(*t), other)).collect()
        };
        assert_eq!(lacking(&b, &a), [3, 4, 5, 9, 10, 11]);
        assert_eq!(lacking(&a, &b), [2, 3, 11]);
        assert!(!a.lacks_change(&ChainEvent { node: "w~1".into(), tick: None }, &b));
    }

    #[test]
    fn nodes_that_have_not_met_wait_only_for_what_they_have_heard_of() {
        let (a, b) = (node("a~1", 10, &[], &["c~1"]), node("b~1", 8, &[(3, 6)], &["c~1"]));
        assert_eq!((b.lacks(&a), a.lacks(&b)), (3, 0));
        assert!(b.lacks_change(&change(5), &a) && !b.lacks_change(&change(9), &a));
        // Nothing is known of either's life.
        let (a, b) = (node("", 10, &[], &[""]), node("", 8, &[], &[""]));
        assert_eq!(b.lacks(&a), 0);
    }

    #[test]
    fn what_a_node_tells_is_read_whatever_it_is() {
        let mut state = Fields::new();
        // w~1: 5; and what is no tick.
        state.raw("nodes", b"\x82\xa3w~1\x05\xa3w~2\xc0").str("node", "a~1");
        // [[2, 4), 4, [9, 5), "x", [1]]
        state.raw("missing", b"\x81\xa3w~1\x95\x92\x02\x04\x04\x92\x09\x05\xa1x\x91\x01");
        let mut members = Fields::new();
        members.raw(
            "result",
            b"\x94\x81\xa4life\xa3b~1\x81\xa4life\xc0\x01\x82\xa4life\xa3c~1\xa5state\xa4down",
        );
        let read = |fields: &Fields| Message::new(&fields.encode()).unwrap();
        let known = Knowledge::of(&read(&state), &read(&members));
        assert_eq!(known.heard, BTreeMap::from([("w~1".into(), 5)]));
        assert_eq!(known.missing["w~1"], [(2, 4), (4, 5)]);
        assert_eq!(known.members, BTreeMap::from([("b~1".into(), false), ("c~1".into(), true)]));
        let known = Knowledge::of(&read(&Fields::new()), &read(&Fields::new()));
        assert_eq!((known.heard.len(), known.members.len()), (0, 0));
        let most = node("b~1", u64::MAX, &[(0, u64::MAX)], &["a~1"]);
        assert_eq!(node("a~1", 0, &[], &[]).lacks(&most), 0);
        assert_eq!(most.lacks(&node("a~1", u64::MAX, &[], &[])), u64::MAX);
    }
}
