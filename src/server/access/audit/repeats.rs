//! Records that may come thousands of times per second, because whoever causes them needs no right to, or has it: the
//! first of each kind at once, and the others as a count. So the lines that strangers and users can cause are bounded;
//! see [`Bounds`].

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::record::{Event, Outcome, Record};
use crate::model::ids::Millis;

/// A count is written this often at most.
pub(crate) const INTERVAL_MS: Millis = 10_000;
/// Most different records that are counted at a time. Those beyond are counted together, whoever caused them.
pub(crate) const KINDS_MAX: usize = 1_024;
/// Most different logins that are counted at a time: all connections that a node has unless told otherwise, and some,
/// because all of them come back when it was restarted, and who they are should be told one by one.
pub(crate) const LOGIN_KINDS_MAX: usize = 16_384;
/// Most of either that one user can cause. Its others are counted together, under its name: so a user with many
/// addresses fills no disk and hides no other one.
pub(crate) const KINDS_OF_USER_MAX: usize = 64;
/// Beginnings are rounded up to this, so that however many kinds there are, they are looked through this often at most.
const GRAIN_MS: Millis = 100;
/// A count of refused strangers is written this often at most. Peers try again for as long as they run, and whoever
/// sends datagrams can name any address; who tries to log in can name any user.
pub(crate) const STRANGER_INTERVAL_MS: Millis = 600_000;
/// Most different kinds of refused peers, and as many of refused clients that have not logged in, that are counted at a
/// time. Those beyond are counted together, by reason or action.
pub(crate) const STRANGER_KINDS_MAX: usize = 256;

/// What stands in a record in which several users, addresses or targets were put together.
const OTHERS: &str = "of other users and addresses, put together";
/// The same where they are one user's.
const OTHERS_OF_USER: &str = "of other addresses, actions and reasons, put together";

/// How much may be written. In each interval, every kind has a first line and a count at most, and so has every sort
/// of kinds that are put together because there are too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    /// Most different kinds at a time.
    pub(crate) kinds: usize,
    /// Most of them that are one user's.
    pub(crate) of_user: usize,
    /// The time from one count of a kind to the next.
    pub(crate) interval_ms: Millis,
}

impl Bounds {
    /// Of what clients do who have logged in, or need not.
    pub(crate) const CLIENTS: Self =
        Self { kinds: KINDS_MAX, of_user: KINDS_OF_USER_MAX, interval_ms: INTERVAL_MS };
    /// Of logins that were good.
    pub(crate) const LOGINS: Self = Self { kinds: LOGIN_KINDS_MAX, ..Self::CLIENTS };
    /// Of peers that are refused, and of clients that have not logged in: whom they call themselves means nothing.
    pub(crate) const STRANGERS: Self = Self {
        kinds: STRANGER_KINDS_MAX,
        of_user: STRANGER_KINDS_MAX,
        interval_ms: STRANGER_INTERVAL_MS,
    };
}

/// See the module.
pub(crate) struct Repeats {
    bounds: Bounds,
    /// When the count of each began, and what was counted since. Invariant: at most as many as the bound says, and
    /// a few that have several put together.
    kinds: HashMap<Record, Counted>,
    /// How many of them are each user's. Only looked up, never walked.
    of_users: HashMap<User, usize>,
    /// The earliest of the beginnings; none if there are no kinds.
    oldest: Option<Millis>,
}

/// By method and name; who has the cluster's key has no name.
type User = (Box<str>, Option<Box<str>>);

struct Counted {
    since: Millis,
    count: u64,
    /// The last that was counted: with what differs within a kind.
    last: Record,
}

impl Repeats {
    /// Nothing is counted yet.
    #[must_use]
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, kinds: HashMap::new(), of_users: HashMap::new(), oldest: None }
    }

    /// Counts a record; returns it if it is to be written at once.
    pub(crate) fn note(&mut self, record: Record, now: Millis) -> Option<Record> {
        let mut kind = kind_of(&record);
        let mut record = record;
        if !self.kinds.contains_key(&kind) && self.has_its_share(&kind) {
            kind = put_together_of_user(kind);
            record = kind.clone();
        }
        if !self.kinds.contains_key(&kind) && self.kinds.len() >= self.bounds.kinds {
            kind = put_together(kind);
            record = kind.clone();
        }
        match self.kinds.get_mut(&kind) {
            Some(counted) => {
                counted.count += 1;
                counted.last = record;
                None
            }
            None => {
                let last = record.clone();
                let since = now.checked_next_multiple_of(GRAIN_MS).unwrap_or(now);
                self.oldest = Some(self.oldest.map_or(since, |oldest| oldest.min(since)));
                if let Some(user) = user_of(&kind) {
                    *self.of_users.entry(user).or_default() += 1;
                }
                self.kinds.insert(kind, Counted { since, count: 0, last });
                Some(record)
            }
        }
    }

    /// Whether the user of a kind has as many as one may have.
    fn has_its_share(&self, kind: &Record) -> bool {
        let own = user_of(kind).and_then(|user| self.of_users.get(&user));
        own.is_some_and(|own| *own >= self.bounds.of_user)
    }

    /// What was counted for as long as it may be, with the counts. Those of which there were no more are forgotten.
    pub(crate) fn take_due(&mut self, now: Millis) -> Vec<(Record, u64)> {
        let interval_ms = self.bounds.interval_ms;
        let is_due = |since: Millis| now.saturating_sub(since) >= interval_ms;
        if !self.oldest.is_some_and(is_due) {
            return Vec::new();
        }
        let mut due = Vec::new();
        let of_users = &mut self.of_users;
        self.kinds.retain(|kind, counted| {
            if !is_due(counted.since) {
                return true;
            }
            if counted.count > 0 {
                due.push((counted.last.clone(), counted.count));
                (counted.since, counted.count) = (now, 0);
                // At the end of time, that was the last.
                if now != Millis::MAX {
                    return true;
                }
            }
            if let Some(user) = user_of(kind)
                && let Entry::Occupied(mut own) = of_users.entry(user)
            {
                *own.get_mut() -= 1;
                if *own.get() == 0 {
                    own.remove();
                }
            }
            false
        });
        self.oldest = self.kinds.values().map(|counted| counted.since).min();
        // No order depends on that of a hash map.
        due.sort_by(|(a, _), (b, _)| sort_key(a).cmp(&sort_key(b)));
        due
    }
}

/// Records that differ in nothing else are counted together.
fn kind_of(record: &Record) -> Record {
    match record.outcome {
        // Which user is guessed at matters, and where from; what a client tries to reach does not.
        Outcome::Refused => Record { target: None, ..record.clone() },
        _ => Record { target: None, detail: None, ..record.clone() },
    }
}

/// Whose a record is; none where nobody has logged in.
fn user_of(record: &Record) -> Option<User> {
    Some((record.method.clone()?, record.user.clone()))
}

/// What a user's kinds are counted as beyond those that it may have.
fn put_together_of_user(kind: Record) -> Record {
    Record { address: None, action: None, target: None, ..kind }.detail(OTHERS_OF_USER)
}

/// What all of one sort are counted as, if there are too many kinds.
fn put_together(kind: Record) -> Record {
    let kind = Record { user: None, address: None, method: None, ..kind };
    match kind.event {
        // The reasons are few, and the node's own words.
        Event::Peer => kind.target(OTHERS),
        _ => kind.detail(OTHERS),
    }
}

type SortKey<'a> =
    (u8, Option<&'a str>, Option<std::net::IpAddr>, Option<&'a str>, Option<&'a str>);

fn sort_key(record: &Record) -> SortKey<'_> {
    let detail = record.detail.as_deref();
    (record.event as u8, record.user.as_deref(), record.address, record.action, detail)
}

#[cfg(test)]
mod tests {
    use super::super::record::Event;
    use super::*;

    fn refused(user: &str) -> Record {
        Record::new(Event::Login, Outcome::Refused).user(user)
    }

    #[test]
    fn a_flood_is_one_line_at_once_and_a_count_every_ten_seconds() {
        let mut repeats = Repeats::new(Bounds::CLIENTS);
        let mut lines = Vec::new();
        for now in 0..25_000 {
            lines.extend(repeats.take_due(now).into_iter().map(|(_, count)| (now, count)));
            lines.extend(repeats.note(refused("joe"), now).map(|_| (now, 1)));
        }
        assert_eq!(lines, [(0, 1), (10_000, 9_999), (20_000, 10_000)]);
        assert_eq!(repeats.take_due(30_000), [(refused("joe"), 5_000)]);
        assert!(repeats.take_due(40_000).is_empty());
        assert!(repeats.kinds.is_empty(), "nothing is kept of what has ceased");
        assert!(repeats.note(refused("joe"), 50_000).is_some());
    }

    #[test]
    fn what_differs_in_its_target_only_is_counted_together_and_users_are_not() {
        let mut repeats = Repeats::new(Bounds::CLIENTS);
        assert!(repeats.note(refused("joe").target("a"), 0).is_some());
        assert!(repeats.note(refused("joe").target("b"), 1).is_none());
        assert!(repeats.note(refused("amy"), 2).is_some());
        assert_eq!(repeats.take_due(10_000), [(refused("joe").target("b"), 1)]);
    }

    #[test]
    fn many_kinds_take_bounded_room_and_none_is_lost() {
        let mut repeats = Repeats::new(Bounds::CLIENTS);
        let users = KINDS_MAX + 500;
        let told = (0..users).filter_map(|n| repeats.note(refused(&n.to_string()), 0)).count();
        assert_eq!(told, KINDS_MAX + 1);
        assert_eq!(repeats.kinds.len(), KINDS_MAX + 1);
        let due = repeats.take_due(INTERVAL_MS);
        assert_eq!(due.len(), 1);
        let (others, count) = &due[0];
        assert_eq!((&others.user, *count), (&None, 499));
        assert_eq!(others.detail.as_deref(), Some(OTHERS));
    }

    #[test]
    fn a_user_with_many_addresses_has_a_few_lines_and_leaves_the_others_theirs() {
        let mut repeats = Repeats::new(Bounds::CLIENTS);
        let from = |user: &str, n: u32| Record {
            address: Some(std::net::Ipv4Addr::from_bits(n).into()),
            ..refused(user).method("token")
        };
        let told = (0..20_000).filter(|n| repeats.note(from("joe", *n), 0).is_some()).count();
        assert_eq!(told, KINDS_OF_USER_MAX + 1);
        assert!(repeats.note(from("amy", 7), 0) == Some(from("amy", 7)));
        // Whoever has the key has no name, and who has not logged in no share.
        let key = |n| Record { user: None, ..from("", n) }.method("key");
        assert_eq!((0..70).filter(|n| repeats.note(key(*n), 0).is_some()).count(), 65);
        assert!((0..99).all(|n| repeats.note(refused(&n.to_string()), 0).is_some()));
        let due = repeats.take_due(INTERVAL_MS);
        let joe: Vec<_> = due.iter().filter(|(r, _)| r.user.as_deref() == Some("joe")).collect();
        let [(together, count)] = joe[..] else { panic!("{joe:?}") };
        assert_eq!((together.address, *count), (None, 20_000 - told as u64));
        assert_eq!(together.detail.as_deref(), Some(OTHERS_OF_USER));
        // When it is over, the share is free again.
        assert!(repeats.take_due(3 * INTERVAL_MS).is_empty());
        assert!(repeats.kinds.is_empty() && repeats.of_users.is_empty());
    }

    /// What a stranger with very many addresses can have written: lines, in so many intervals.
    #[test]
    fn a_flood_from_everywhere_has_a_bounded_number_of_lines_and_none_is_lost() {
        const REASONS: [&str; 3] = ["unknown key", "no key", "bad handshake"];
        let mut repeats = Repeats::new(Bounds::STRANGERS);
        let (mut lines, mut told) = (0, 0);
        let (intervals, per_interval) = (3, 30_000);
        for number in 0..intervals * per_interval {
            let now = number * STRANGER_INTERVAL_MS / per_interval;
            let due = repeats.take_due(now);
            lines += due.len();
            told += due.iter().map(|(_, count)| count).sum::<u64>();
            let address = std::net::Ipv4Addr::from_bits(number as u32);
            let reason = REASONS[number as usize % REASONS.len()];
            if repeats.note(Record::peer_refused(address.into(), reason), now).is_some() {
                lines += 1;
                told += 1;
            }
        }
        let due = repeats.take_due(Millis::MAX);
        lines += due.len();
        told += due.iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(told, intervals * per_interval);
        let bound = 2 * (STRANGER_KINDS_MAX + REASONS.len()) * (intervals as usize + 1);
        assert!(lines <= bound, "{lines} lines");
        // Who was put together is told by reason.
        let others = due.iter().filter(|(record, _)| record.target.as_deref() == Some(OTHERS));
        let mut reasons: Vec<_> =
            others.map(|(record, _)| record.detail.clone().unwrap()).collect();
        reasons.sort();
        assert_eq!(reasons, ["bad handshake".into(), "no key".into(), "unknown key".into()]);
    }

    #[test]
    fn a_peer_that_tries_again_and_again_is_two_lines_in_ten_minutes() {
        let mut repeats = Repeats::new(Bounds::STRANGERS);
        let refused = || Record::peer_refused([10, 0, 0, 7].into(), "unknown key");
        let mut lines = Vec::new();
        for now in (0..STRANGER_INTERVAL_MS).step_by(1_000) {
            let key = format!("key {now}");
            lines.extend(repeats.take_due(now));
            lines.extend(repeats.note(refused().target(&key), now).map(|record| (record, 1)));
        }
        lines.extend(repeats.take_due(STRANGER_INTERVAL_MS));
        let counts: Vec<u64> = lines.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 599]);
        assert!(repeats.note(Record::peer_refused([10, 0, 0, 7].into(), "no key"), 0).is_some());
    }
}
