//! Slows guesses of secrets down: each user and each address has five tries, then must wait, twice as long
//! after each further failure.
//!
//! A try counts as failed until it is told to be good, so that many at once do not slip through. Users who do
//! not exist count like others. Guesses from many addresses meet the user's limit, those at many users the
//! address's. Where a user has logged in before, only what that user does from there counts, so strangers
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
/// the longest time is forgotten.
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
    /// Begins a try of this user (whether it exists or not) from this address, at this time; or says how
    /// many ms to wait. Each try that begins counts as failed until [`Guesses::good`].
    ///
    /// # Errors
    /// It is too early. The try does not count.
    pub fn begin(&mut self, ident: &str, address: IpAddr, now: Millis) -> Result<(), Millis> {
        let (user, address) = (user_key(ident), host_of(address));
        let pair = (user.clone(), address);
        if self.pairs.is_counted(&pair, now) {
            let wait = self.pairs.wait(&pair, now);
            if wait > 0 {
                return Err(wait);
            }
            self.pairs.fail(pair, now);
            return Ok(());
        }
        match self.users.wait(&user, now).max(self.addresses.wait(&address, now)) {
            0 => {
                self.users.fail(user, now);
                self.addresses.fail(address, now);
                Ok(())
            }
            wait => Err(wait),
        }
    }

    /// The try that began here was good: the user's failures are forgotten, the address has one less.
    pub fn good(&mut self, ident: &str, address: IpAddr, now: Millis) {
        let (user, address) = (user_key(ident), host_of(address));
        let pair = (user.clone(), address);
        if !self.pairs.is_counted(&pair, now) {
            self.users.take_back(&user);
            self.addresses.take_back(&address);
        }
        self.pairs.set_good(pair, now);
    }
}

/// A long name is cut.
fn user_key(ident: &str) -> Box<str> {
    ident.chars().take(IDENT_CHARS).collect()
}

#[derive(Clone, Copy, Debug)]
struct Count {
    failures: u32,
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

    /// How long to wait from now, in ms.
    fn wait(&self, key: &K, now: Millis) -> Millis {
        let Some(count) = self.of(key, now) else { return 0 };
        let Some(more) = count.failures.checked_sub(FREE) else { return 0 };
        // Doubles so often that more would be above the longest wait anyway.
        let pause = (FIRST_MS << more.min(16)).min(WAIT_MS_MAX);
        count.last.saturating_add(pause).saturating_sub(now)
    }

    fn fail(&mut self, key: K, now: Millis) {
        let failures = self.of(&key, now).map_or(0, |count| count.failures);
        self.put(key, failures.saturating_add(1), now);
    }

    fn set_good(&mut self, key: K, now: Millis) {
        self.put(key, 0, now);
    }

    /// Takes one failure back.
    fn take_back(&mut self, key: &K) {
        if let Some(count) = self.counts.get_mut(key) {
            count.failures = count.failures.saturating_sub(1);
        }
    }

    fn put(&mut self, key: K, failures: u32, now: Millis) {
        self.next += 1;
        let count = Count { failures, last: now, number: self.next };
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

    /// Tries as early as possible; how long each had to wait, in s.
    fn waits(
        guesses: &mut Guesses,
        from: impl Fn(u32) -> (String, IpAddr),
        now: &mut Millis,
    ) -> Vec<u64> {
        let mut waits = Vec::new();
        for n in 0..14 {
            let (ident, address) = from(n);
            let wait = guesses.begin(&ident, address, *now).err().unwrap_or(0);
            *now += wait;
            waits.push(wait / 1_000);
            if wait > 0 {
                assert_eq!(guesses.begin(&ident, address, *now - 1), Err(1));
                assert_eq!(guesses.begin(&ident, address, *now), Ok(()));
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

    #[test]
    fn all_at_once_count_like_one_after_the_other() {
        let mut guesses = Guesses::default();
        let begun = (0..100).filter(|_| guesses.begin("joe", address(1), 0).is_ok()).count();
        assert_eq!(begun, FREE as usize);
    }

    #[test]
    fn a_user_who_logged_in_is_not_locked_out_by_strangers_nor_by_others_there() {
        let mut guesses = Guesses::default();
        guesses.begin("joe", address(1), 0).unwrap();
        guesses.good("joe", address(1), 0);
        for n in 0..20 {
            let _ = guesses.begin("joe", address(9), n);
            let _ = guesses.begin("other", address(1), n);
        }
        assert!(guesses.begin("joe", address(9), 30).is_err());
        assert!(guesses.begin("other", address(1), 30).is_err());
        assert_eq!(guesses.begin("joe", address(1), 30), Ok(()));
        // Also when it comes back after days in which strangers never stopped.
        let days = 3 * 24 * 3_600_000;
        for n in 0..20 {
            let _ = guesses.begin("joe", address(9), days + n);
        }
        assert!(guesses.begin("joe", address(2), days + 30).is_err());
        assert_eq!(guesses.begin("joe", address(1), days + 30), Ok(()));
        guesses.good("joe", address(1), days + 30);
        // Its own guesses from there are limited all the same.
        let mut begin = || guesses.begin("joe", address(1), days + 30).is_ok();
        let begun = (0..20).filter(|_| begin()).count();
        assert_eq!(begun, FREE as usize);
    }

    #[test]
    fn good_logins_never_wait_and_do_not_clear_the_address_of_guesses_at_others() {
        let mut guesses = Guesses::default();
        for n in 0..100 {
            guesses.begin("joe", address(1), n).unwrap();
            guesses.good("joe", address(1), n);
        }
        let mut begun = 0;
        for n in 0..100 {
            begun += usize::from(guesses.begin(&format!("u{n}"), address(1), 200).is_ok());
            guesses.begin("joe", address(1), 200).unwrap();
            guesses.good("joe", address(1), 200);
        }
        assert_eq!(begun, FREE as usize);
    }

    #[test]
    fn failures_are_forgotten_after_ten_minutes_without_a_try() {
        let mut guesses = Guesses::default();
        let mut now = 0;
        waits(&mut guesses, |_| ("joe".to_owned(), address(1)), &mut now);
        assert!(guesses.begin("joe", address(1), now + 1).is_err());
        assert_eq!(guesses.begin("joe", address(1), now + FORGOTTEN_MS), Ok(()));
        assert_eq!(guesses.begin("joe", address(1), now + FORGOTTEN_MS), Ok(()));
    }

    #[test]
    fn tables_are_bounded_and_a_long_name_is_one() {
        let mut guesses = Guesses::default();
        for n in 0..COUNTED_MAX as u32 + 10 {
            guesses.begin(&format!("u{n}"), address(n), n.into()).unwrap();
            guesses.good(&format!("u{n}"), address(n), n.into());
        }
        assert_eq!(guesses.users.counts.len(), COUNTED_MAX);
        assert_eq!(guesses.users.order.len(), COUNTED_MAX);
        assert_eq!(guesses.addresses.counts.len(), COUNTED_MAX);
        assert_eq!(guesses.pairs.counts.len(), COUNTED_MAX);
        let mut guesses = Guesses::default();
        for n in 0..100 {
            let _ = guesses.begin(&format!("{}{n}", "x".repeat(IDENT_CHARS)), address(n), 0);
        }
        assert_eq!(guesses.users.counts.len(), 1);
    }
}
