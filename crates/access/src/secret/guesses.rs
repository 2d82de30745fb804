//! Slows guesses of secrets down: each user and each address has five tries, then must wait, twice as long
//! after each further failure.
//!
//! Only a try that was wrong is a failure, and only once: the same wrong secret again is none ([`WrongSecrets`]). One
//! that is under way takes a place among those that may still be wrong before somebody must wait, so that many at once
//! get no further than one after the other; where all places are taken, the next one waits for one of them to end, and is
//! judged anew then. So right logins at once keep nobody out.
//! Users who do not exist count like others. Guesses from many addresses meet the user's limit, those at many users
//! the address's. Where a user has logged in before, only what that user does from there counts, so strangers
//! cannot lock it out, nor can others behind the same address.
//!
//! All that is for passwords, which people choose. A token cannot be guessed, so whoever sends the right one is let in
//! without being asked here: strangers who know its user's name lock nobody out, not even at a node that was just
//! started. Of a wrong secret nobody learns whose it could have been: it counts like any other.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use distkv_model::host_port::host_of;
use distkv_model::ids::Millis;

#[cfg(doc)]
use super::WrongSecrets;

/// Failures that need not be waited for.
pub const FREE: u32 = 5;
/// The first wait.
const FIRST_MS: Millis = 1_000;
/// The longest wait.
pub const WAIT_MS_MAX: Millis = 60_000;
/// After that time without a try, failures are forgotten.
const FORGOTTEN_MS: Millis = 600_000;
/// After that time without a try, it is forgotten that a user logged in from an address: a week.
const PAIR_FORGOTTEN_MS: Millis = 7 * 24 * 3_600_000;
/// Most users, addresses, and pairs of them, that are counted at the same time; the one without a try for
/// the longest time is forgotten. (Far fewer are under way at a time, so none of those is.)
const COUNTED_MAX: usize = 16_384;
/// Most characters of a user's name that are told apart: names come from outside.
const IDENT_CHARS: usize = 64;

/// The tries of the last time.
#[derive(Debug)]
pub struct Guesses {
    users: Counts<Box<str>>,
    addresses: Counts<IpAddr>,
    /// Users where they have logged in.
    pairs: Counts<(Box<str>, IpAddr)>,
}

/// What becomes of a try that wants to begin.
#[derive(Debug, PartialEq, Eq)]
pub enum Begin {
    /// Its secret may be looked at. [`Guesses::end`] must be told how that ended.
    Begun(Try),
    /// Nothing has failed too often, but as many tries are under way as may fail: it may ask again when one of them
    /// has ended. It does not count.
    Waits,
    /// Too many have failed: it may come again after so many ms. It does not count.
    Refused(Millis),
}

/// A try under way.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Try {
    user: Box<str>,
    address: IpAddr,
    /// Whether it counts for the user at this address only.
    is_known: bool,
}

/// How a try has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The secret was right.
    Right,
    /// It was not.
    Wrong,
    /// It was not, nor was it when it came before, so nothing could be learned.
    WrongAgain,
    /// It was not looked at, so nothing could be learned.
    NotLookedAt,
}

impl Default for Guesses {
    fn default() -> Self {
        Self {
            users: Counts::kept_for(FORGOTTEN_MS),
            addresses: Counts::kept_for(FORGOTTEN_MS),
            pairs: Counts::kept_for(PAIR_FORGOTTEN_MS),
        }
    }
}

impl Guesses {
    /// A try of this user (whether it exists or not) from this address, at this time.
    pub fn begin(&mut self, ident: &str, address: IpAddr, now: Millis) -> Begin {
        let (user, address) = (user_key(ident), host_of(address));
        let pair = (user.clone(), address);
        let is_known = self.pairs.is_counted(&pair, now);
        let (wait, is_full) = if is_known {
            (self.pairs.wait(&pair, now), self.pairs.is_full(&pair, now))
        } else {
            (
                self.users.wait(&user, now).max(self.addresses.wait(&address, now)),
                self.users.is_full(&user, now) || self.addresses.is_full(&address, now),
            )
        };
        if wait > 0 {
            return Begin::Refused(wait);
        }
        if is_full {
            return Begin::Waits;
        }
        if is_known {
            self.pairs.begin(pair, now);
        } else {
            self.users.begin(user.clone(), now);
            self.addresses.begin(address, now);
        }
        Begin::Begun(Try { user, address, is_known })
    }

    /// A try has ended, at this time. If it was right, the user is known at the address from now on; failures of the
    /// address, and of the user elsewhere, stay.
    pub fn end(&mut self, ended: Try, outcome: Outcome, now: Millis) {
        let Try { user, address, is_known } = ended;
        let is_wrong = outcome == Outcome::Wrong;
        let pair = (user.clone(), address);
        if is_known {
            self.pairs.end(pair.clone(), is_wrong, now);
        } else {
            self.users.end(user, is_wrong, now);
            self.addresses.end(address, is_wrong, now);
        }
        if outcome == Outcome::Right {
            self.pairs.set_good(pair, now);
        }
    }
}

/// A long name is cut.
fn user_key(ident: &str) -> Box<str> {
    ident.chars().take(IDENT_CHARS).collect()
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    failures: u32,
    /// When the last of them ended.
    failed: Millis,
    /// Tries that may become failures.
    under_way: u32,
    /// When the last try began or ended.
    last: Millis,
    /// Tells those of the same moment apart.
    number: u64,
}

#[derive(Debug)]
struct Counts<K> {
    /// Invariant: at most [`COUNTED_MAX`].
    counts: HashMap<K, Count>,
    /// The same, by the time of the last try.
    order: BTreeSet<(Millis, u64, K)>,
    next: u64,
    kept_ms: Millis,
}

impl<K: Clone + Ord + Hash> Counts<K> {
    fn kept_for(kept_ms: Millis) -> Self {
        Self { counts: HashMap::new(), order: BTreeSet::new(), next: 0, kept_ms }
    }

    fn of(&self, key: &K, now: Millis) -> Option<&Count> {
        self.counts.get(key).filter(|count| now.saturating_sub(count.last) < self.kept_ms)
    }

    fn is_counted(&self, key: &K, now: Millis) -> bool {
        self.of(key, now).is_some()
    }

    /// How long to wait from now, in ms, for what has failed.
    fn wait(&self, key: &K, now: Millis) -> Millis {
        let Some(count) = self.of(key, now) else { return 0 };
        let Some(more) = count.failures.checked_sub(FREE) else { return 0 };
        // Doubles so often that more would be above the longest wait anyway.
        let pause = (FIRST_MS << more.min(16)).min(WAIT_MS_MAX);
        count.failed.saturating_add(pause).saturating_sub(now)
    }

    /// Whether as many are under way as may fail before there is a wait (again).
    fn is_full(&self, key: &K, now: Millis) -> bool {
        self.of(key, now)
            .is_some_and(|count| count.under_way >= FREE.saturating_sub(count.failures).max(1))
    }

    fn begin(&mut self, key: K, now: Millis) {
        self.change(key, now, |count| count.under_way += 1);
    }

    fn end(&mut self, key: K, is_wrong: bool, now: Millis) {
        self.change(key, now, |count| {
            count.under_way = count.under_way.saturating_sub(1);
            if is_wrong {
                (count.failures, count.failed) = (count.failures.saturating_add(1), now);
            }
        });
    }

    fn set_good(&mut self, key: K, now: Millis) {
        self.change(key, now, |count| count.failures = 0);
    }

    fn change(&mut self, key: K, now: Millis, change: impl FnOnce(&mut Count)) {
        let mut count = self.of(&key, now).copied().unwrap_or_default();
        change(&mut count);
        self.next += 1;
        (count.last, count.number) = (now, self.next);
        if let Some(old) = self.counts.insert(key.clone(), count) {
            self.order.remove(&(old.last, old.number, key.clone()));
        }
        self.order.insert((now, count.number, key));
        if self.counts.len() > COUNTED_MAX
            && let Some((_, _, oldest)) = self.order.pop_first()
        {
            self.counts.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    impl Guesses {
        /// A try that is looked at, and wrong; or how long it must wait.
        fn wrong(&mut self, ident: &str, address: IpAddr, now: Millis) -> Result<(), Millis> {
            self.whole(ident, address, Outcome::Wrong, now)
        }

        fn right(&mut self, ident: &str, address: IpAddr, now: Millis) -> Result<(), Millis> {
            self.whole(ident, address, Outcome::Right, now)
        }

        fn whole(
            &mut self,
            ident: &str,
            address: IpAddr,
            outcome: Outcome,
            now: Millis,
        ) -> Result<(), Millis> {
            match self.begin(ident, address, now) {
                Begin::Begun(begun) => {
                    self.end(begun, outcome, now);
                    Ok(())
                }
                Begin::Refused(wait) => Err(wait),
                Begin::Waits => panic!("nothing is under way"),
            }
        }

        /// As many tries as may be under way.
        fn begin_all(&mut self, ident: &str, address: IpAddr, now: Millis) -> Vec<Try> {
            let begin = || match self.begin(ident, address, now) {
                Begin::Begun(begun) => Some(begun),
                Begin::Waits | Begin::Refused(_) => None,
            };
            std::iter::from_fn(begin).take(100).collect()
        }
    }

    /// Tries as early as possible; how long each had to wait, in s.
    fn waits(
        guesses: &mut Guesses,
        from: impl Fn(u32) -> (String, IpAddr),
        now: &mut Millis,
    ) -> Vec<u64> {
        let mut waits = Vec::new();
        for n in 0..14 {
            let (ident, address) = from(n);
            let wait = guesses.wrong(&ident, address, *now).err().unwrap_or(0);
            *now += wait;
            waits.push(wait / 1_000);
            if wait > 0 {
                assert_eq!(guesses.wrong(&ident, address, *now - 1), Err(1));
                assert_eq!(guesses.wrong(&ident, address, *now), Ok(()));
            }
        }
        waits
    }

    const SLOW: [u64; 14] = [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60];

    #[test]
    fn five_tries_are_free_then_each_waits_twice_as_long() {
        let mut now = 5;
        let from = |_| ("joe".to_owned(), address(1));
        assert_eq!(waits(&mut Guesses::default(), from, &mut now), SLOW);
    }

    #[test]
    fn many_addresses_do_not_help_against_one_user_nor_many_users_from_one_address() {
        let mut now = 5;
        let from = |n| ("joe".to_owned(), address(n));
        assert_eq!(waits(&mut Guesses::default(), from, &mut now), SLOW);
        let from = |n| (format!("joe{n}"), address(1));
        assert_eq!(waits(&mut Guesses::default(), from, &mut now), SLOW);
        let from = |n| {
            let bits = (0x2001_0db8_u128 << 96) + u128::from(n);
            (format!("joe{n}"), IpAddr::V6(Ipv6Addr::from_bits(bits)))
        };
        assert_eq!(waits(&mut Guesses::default(), from, &mut now), SLOW);
    }

    /// One user and one address, one user at many, many users at one.
    const CROWDS: [fn(u32) -> (String, IpAddr); 3] = [
        |_| ("joe".to_owned(), address(1)),
        |n| ("joe".to_owned(), address(n)),
        |n| (format!("joe{n}"), address(1)),
    ];

    #[test]
    fn guesses_at_once_get_no_further_than_one_after_the_other() {
        for from in CROWDS {
            let (mut guesses, mut now, mut looked_at) = (Guesses::default(), 0, Vec::new());
            // A thousand connections ask again whenever something has ended, or the time has come.
            while looked_at.len() < SLOW.len() {
                let mut under_way = Vec::new();
                let mut wait = None;
                for n in 0..1_000 {
                    let (ident, address) = from(n);
                    match guesses.begin(&ident, address, now) {
                        Begin::Begun(begun) => under_way.push(begun),
                        Begin::Waits => assert!(!under_way.is_empty()),
                        Begin::Refused(ms) => wait = Some(ms),
                    }
                }
                looked_at.extend(under_way.iter().map(|_| now));
                under_way.into_iter().for_each(|one| guesses.end(one, Outcome::Wrong, now));
                now += wait.unwrap_or(0);
            }
            let mut at = 0;
            let serial: Vec<Millis> = SLOW
                .into_iter()
                .map(|wait| {
                    at += wait * 1_000;
                    at
                })
                .collect();
            assert_eq!(looked_at, serial);
        }
    }

    #[test]
    fn right_logins_at_once_wait_for_each_other_and_are_never_refused() {
        for from in CROWDS {
            let mut guesses = Guesses::default();
            let mut rest: Vec<u32> = (0..100).collect();
            let mut rounds = 0;
            while !rest.is_empty() {
                let mut under_way = Vec::new();
                rest.retain(|n| {
                    let (ident, address) = from(*n);
                    match guesses.begin(&ident, address, 5) {
                        Begin::Begun(begun) => under_way.push(begun),
                        Begin::Waits => return true,
                        Begin::Refused(ms) => panic!("{ident} must wait for {ms} ms"),
                    }
                    false
                });
                under_way.into_iter().for_each(|one| guesses.end(one, Outcome::Right, 5));
                rounds += 1;
            }
            assert_eq!(rounds, 100 / FREE);
            // They leave no failure behind, neither at the address nor of the user.
            for (ident, address) in [("other", address(1)), ("joe", address(200))] {
                assert_eq!(guesses.begin_all(ident, address, 6).len(), FREE as usize);
            }
        }
    }

    #[test]
    fn a_failure_among_right_logins_at_once_leaves_one_place_less() {
        let mut guesses = Guesses::default();
        let mut under_way = guesses.begin_all("joe", address(1), 0);
        assert_eq!(guesses.begin("joe", address(1), 0), Begin::Waits);
        guesses.end(under_way.pop().unwrap(), Outcome::Wrong, 1);
        // Four may still be wrong, so a fifth one could be the sixth failure.
        assert_eq!(guesses.begin("joe", address(1), 1), Begin::Waits);
        guesses.end(under_way.pop().unwrap(), Outcome::Right, 1);
        // From now on it is known there, and only what it does from there counts.
        assert_eq!(guesses.begin_all("joe", address(1), 1).len(), FREE as usize);
        assert_eq!(guesses.begin_all("joe", address(2), 1).len(), 1);
    }

    #[test]
    fn a_try_that_is_not_looked_at_does_not_count() {
        let mut guesses = Guesses::default();
        for n in 0..100 {
            guesses.whole("joe", address(1), Outcome::NotLookedAt, n).unwrap();
        }
        assert!(!guesses.pairs.is_counted(&("joe".into(), address(1)), 100));
        for _ in 0..FREE {
            guesses.wrong("joe", address(1), 100).unwrap();
        }
        assert_eq!(guesses.wrong("joe", address(1), 100), Err(FIRST_MS));
        // Where only one may be under way, it neither counts nor makes the others wait for longer.
        let now = 100 + FIRST_MS;
        guesses.whole("joe", address(1), Outcome::NotLookedAt, now).unwrap();
        assert_eq!(guesses.begin_all("joe", address(1), now).len(), 1);
    }

    #[test]
    fn a_user_who_logged_in_is_not_locked_out_by_strangers_nor_by_others_there() {
        let mut guesses = Guesses::default();
        guesses.right("joe", address(1), 0).unwrap();
        for n in 0..20 {
            let _ = guesses.wrong("joe", address(9), n);
            let _ = guesses.wrong("other", address(1), n);
        }
        assert!(guesses.wrong("joe", address(9), 30).is_err());
        assert!(guesses.wrong("other", address(1), 30).is_err());
        assert_eq!(guesses.right("joe", address(1), 30), Ok(()));
        // Also when it comes back after days in which strangers never stopped.
        let days = 3 * 24 * 3_600_000;
        for n in 0..20 {
            let _ = guesses.wrong("joe", address(9), days + n);
        }
        assert!(guesses.wrong("joe", address(2), days + 30).is_err());
        assert_eq!(guesses.right("joe", address(1), days + 30), Ok(()));
        // Its own guesses from there are limited all the same.
        let mut guess = || guesses.wrong("joe", address(1), days + 30).is_ok();
        let begun = (0..20).filter(|_| guess()).count();
        assert_eq!(begun, FREE as usize);
    }

    #[test]
    fn good_logins_never_wait_and_do_not_clear_the_address_of_guesses_at_others() {
        let mut guesses = Guesses::default();
        for n in 0..100 {
            guesses.right("joe", address(1), n).unwrap();
        }
        let mut begun = 0;
        for n in 0..100 {
            begun += usize::from(guesses.wrong(&format!("u{n}"), address(1), 200).is_ok());
            guesses.right("joe", address(1), 200).unwrap();
        }
        assert_eq!(begun, FREE as usize);
    }

    #[test]
    fn failures_are_forgotten_after_ten_minutes_without_a_try() {
        let mut guesses = Guesses::default();
        let mut now = 0;
        waits(&mut guesses, |_| ("joe".to_owned(), address(1)), &mut now);
        assert!(guesses.wrong("joe", address(1), now + 1).is_err());
        assert_eq!(guesses.wrong("joe", address(1), now + FORGOTTEN_MS), Ok(()));
        assert_eq!(guesses.wrong("joe", address(1), now + FORGOTTEN_MS), Ok(()));
    }

    #[test]
    fn tables_are_bounded_and_a_long_name_is_one() {
        let mut guesses = Guesses::default();
        for n in 0..COUNTED_MAX as u32 + 10 {
            guesses.right(&format!("u{n}"), address(n), n.into()).unwrap();
        }
        assert_eq!(guesses.users.counts.len(), COUNTED_MAX);
        assert_eq!(guesses.users.order.len(), COUNTED_MAX);
        assert_eq!(guesses.addresses.counts.len(), COUNTED_MAX);
        assert_eq!(guesses.pairs.counts.len(), COUNTED_MAX);
        let mut guesses = Guesses::default();
        for n in 0..100 {
            let _ = guesses.wrong(&format!("{}{n}", "x".repeat(IDENT_CHARS)), address(n), 0);
        }
        assert_eq!(guesses.users.counts.len(), 1);
    }
}
