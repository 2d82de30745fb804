//! Logins that were good a while ago, so that a client that connects often does not cost an Argon2id each
//! time. What is kept is a keyed hash, of use to nobody without the key, which is never stored.

use distkv_model::ids::Event;

use super::Sent;
use super::recent::{Digest, Recent, bytes_of, keyed_hash};

/// Most logins that are remembered; the oldest goes.
const LOGINS_MAX: usize = 4_096;

/// Who logs in: a method, a user, and the event of the record as it was checked. After any change of the
/// record that is another one, so nothing needs to be forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// The method.
    pub method: &'a str,
    /// The user.
    pub ident: &'a str,
    /// The event that made the user's record.
    pub event: Event,
}

/// Good logins of this run of the node.
pub struct LoginCache {
    key: [u8; 32],
    known: Recent,
}

impl LoginCache {
    /// An empty cache, with a key that is random and used for nothing else.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, known: Recent::new(LOGINS_MAX) }
    }

    /// Whether this was remembered.
    #[must_use]
    pub fn knows(&self, login: Login<'_>, sent: &Sent) -> bool {
        self.hash(login, sent).is_some_and(|hash| self.known.contains(&hash))
    }

    /// Remembers what was checked and good.
    pub fn remember(&mut self, login: Login<'_>, sent: &Sent) {
        if let Some(hash) = self.hash(login, sent) {
            self.known.insert(hash);
        }
    }

    fn hash(&self, login: Login<'_>, sent: &Sent) -> Option<Digest> {
        let Login { method, ident, event } = login;
        let event = bytes_of(event);
        keyed_hash(&self.key, [method.as_bytes(), ident.as_bytes(), &event, sent.as_bytes()])
    }
}

impl std::fmt::Debug for LoginCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginCache").field("logins", &self.known.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use distkv_model::ids::{NodeIndex, Tick};

    use super::*;

    fn event(tick: u64) -> Event {
        Event { node: NodeIndex(0), tick: Tick::new(tick).unwrap() }
    }

    #[test]
    fn a_login_is_known_until_the_record_changes() {
        let mut cache = LoginCache::new([1; 32]);
        let joe = Login { method: "password", ident: "joe", event: event(1) };
        let sent = Sent::of_text("geheim");
        assert!(!cache.knows(joe, &sent));
        cache.remember(joe, &sent);
        assert!(cache.knows(joe, &sent));
        assert!(!cache.knows(joe, &Sent::of_text("other")));
        assert!(!cache.knows(Login { event: event(2), ..joe }, &sent));
        assert!(!cache.knows(Login { ident: "jo", ..joe }, &sent));
        // Where one text ends and the next begins matters.
        assert!(!cache.knows(Login { method: "passwordj", ident: "oe", ..joe }, &sent));
    }

    #[test]
    fn the_oldest_login_goes_first() {
        let mut cache = LoginCache::new([1; 32]);
        let sent = Sent::of_text("geheim");
        let of = |tick| Login { method: "password", ident: "joe", event: event(tick) };
        let last = LOGINS_MAX as u64 + 1;
        for tick in 1..=last {
            cache.remember(of(tick), &sent);
            cache.remember(of(tick), &sent);
        }
        assert!(
            !cache.knows(of(1), &sent) && cache.knows(of(2), &sent) && cache.knows(of(last), &sent)
        );
        assert_eq!(cache.known.len(), LOGINS_MAX);
    }
}
