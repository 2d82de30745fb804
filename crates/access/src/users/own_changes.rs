//! How often users may change themselves at one node: their own secret, or the end of their own connections.
//!
//! Whoever has stolen a secret may do so, too. In a loop, its changes would be in the way of the one by which an admin shuts it
//! out. So a user has a few changes at once, then one in each interval; a change that is refused costs nothing. The count is
//! of users, however many connections they have. A user that was removed and made again is another one; only an admin does that.
//! Each node counts by itself.

use std::collections::{BTreeSet, HashMap};

use distkv_model::ids::Millis;

use super::record::{REMOVAL_BYTES, Removal};

/// Most changes of itself that a user may make at once: a new password, one more because of a mistake, and some for programs
/// that replace a token.
pub const OWN_CHANGES_AT_ONCE_MAX: u32 = 5;
/// After so much time, in ms, a user may make one more.
pub const OWN_CHANGE_INTERVAL_MS: Millis = 10_000;
/// Most users who are counted at the same time; of more, the one is forgotten who is the next to have all changes again.
const OWN_CHANGERS_MAX: usize = 16_384;

/// How far a user may be ahead of one change in each interval.
const AHEAD_MS: Millis = OWN_CHANGE_INTERVAL_MS * (OWN_CHANGES_AT_ONCE_MAX as Millis - 1);

/// A user that is there. Of one name there may have been several, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct OneUser<'a> {
    /// How it logs in.
    pub method: &'a str,
    /// Its name.
    pub ident: &'a str,
    /// The removal after which it was made, as its record says ([`super::Record::after`]). It stays whatever the user changes.
    pub after: Option<Removal>,
}

/// Method, name, and the removal before.
type Key = (Box<str>, Box<str>, Option<[u8; REMOVAL_BYTES]>);

/// See the module. Times are those of any clock that is never set back, in ms.
#[derive(Debug, Default)]
pub struct OwnChanges {
    /// When each user has all its changes again; who is not here has them.
    /// Invariant: at most [`OWN_CHANGERS_MAX`].
    whole_at: HashMap<Key, Millis>,
    /// The same, by time.
    order: BTreeSet<(Millis, Key)>,
}

impl OwnChanges {
    /// How long a user must wait from now until its next change, in ms; 0: not at all.
    #[must_use]
    pub fn wait(&self, user: OneUser<'_>, now: Millis) -> Millis {
        let whole_at = self.whole_at.get(&key(user)).copied().unwrap_or(0);
        whole_at.saturating_sub(now.saturating_add(AHEAD_MS))
    }

    /// A user makes a change now.
    ///
    /// # Errors
    /// It must wait first, for so many ms. That costs it nothing.
    pub fn take(&mut self, user: OneUser<'_>, now: Millis) -> Result<(), Millis> {
        match self.wait(user, now) {
            0 => {}
            wait => return Err(wait),
        }
        let key = key(user);
        let before = self.whole_at.remove(&key);
        if let Some(before) = before {
            self.order.remove(&(before, key.clone()));
        }
        let whole_at = before.unwrap_or(0).max(now).saturating_add(OWN_CHANGE_INTERVAL_MS);
        self.whole_at.insert(key.clone(), whole_at);
        self.order.insert((whole_at, key));
        self.forget(now);
        Ok(())
    }

    /// Forgets those who have all their changes, and whoever is too many.
    fn forget(&mut self, now: Millis) {
        while let Some((whole_at, key)) = self.order.first()
            && (*whole_at <= now || self.whole_at.len() > OWN_CHANGERS_MAX)
        {
            self.whole_at.remove(key);
            self.order.pop_first();
        }
    }
}

fn key(user: OneUser<'_>) -> Key {
    (user.method.into(), user.ident.into(), user.after.map(|Removal(id)| id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Millis = OWN_CHANGE_INTERVAL_MS;

    fn user<'a>(method: &'a str, ident: &'a str) -> OneUser<'a> {
        OneUser { method, ident, after: None }
    }

    #[test]
    fn some_are_free_then_there_is_one_in_each_interval_and_refusals_cost_nothing() {
        let mut changes = OwnChanges::default();
        let mut take = |now| changes.take(user("token", "joe"), now);
        for _ in 0..OWN_CHANGES_AT_ONCE_MAX {
            assert_eq!(take(7), Ok(()));
        }
        for _ in 0..100 {
            assert_eq!(take(7), Err(STEP));
        }
        assert_eq!(take(6 + STEP), Err(1));
        assert_eq!(take(7 + STEP), Ok(()));
        assert_eq!(take(7 + STEP), Err(STEP));
        // Whoever waits for long enough has all of them, and no more.
        let later = 7 + 100 * STEP;
        let free = (0..100).take_while(|_| take(later).is_ok()).count();
        assert_eq!(free, OWN_CHANGES_AT_ONCE_MAX as usize);
    }

    #[test]
    fn users_are_told_apart_by_method_and_name_and_by_the_removal_before() {
        let mut changes = OwnChanges::default();
        let joe = user("token", "joe");
        while changes.take(joe, 1).is_ok() {}
        assert_eq!(changes.wait(joe, 1), STEP);
        let again = OneUser { after: Some(Removal([7; REMOVAL_BYTES])), ..joe };
        for other in [user("password", "joe"), user("token", "amy"), again] {
            assert_eq!(changes.wait(other, 1), 0);
            assert_eq!(changes.take(other, 1), Ok(()));
        }
    }

    #[test]
    fn as_many_are_counted_as_may_be_and_whoever_has_all_changes_is_forgotten() {
        let mut changes = OwnChanges::default();
        while changes.take(user("token", "joe"), 1).is_ok() {}
        for n in 0..OWN_CHANGERS_MAX + 10 {
            changes.take(user("token", &n.to_string()), 2).unwrap();
            assert!(changes.whole_at.len() <= OWN_CHANGERS_MAX);
            assert_eq!(changes.whole_at.len(), changes.order.len());
        }
        // The one who has made most is the last to be forgotten.
        assert!(changes.wait(user("token", "joe"), 2) > 0);
        changes.take(user("token", "amy"), 1 + 100 * STEP).unwrap();
        assert_eq!((changes.whole_at.len(), changes.order.len()), (1, 1));
    }
}
