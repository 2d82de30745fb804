//! Secrets that were wrong a while ago: who sends the same one again has learned nothing and guesses nothing.
//!
//! So a program that goes on with an old secret does not use up the guesses of its user, nor of its address, and keeps
//! nobody out who has the right one. From the address from which it came before, such a secret is not even computed
//! again. From another one it is: the time of the answer tells no stranger what others have tried. Users who do not exist
//! are treated like others. If a user's record changes, everything that was wrong before may be right, and is new.

use std::net::IpAddr;

use distkv_model::host_port::host_of;
use distkv_model::ids::Event;

use super::Sent;
use super::recent::{Digest, Recent, bytes_of, keyed_hash};

/// Most marks of wrong secrets that are remembered, one for each secret and one for each address that sent it; the oldest
/// goes.
const WRONG_SECRETS_MAX: usize = 8_192;

/// Who tries to log in.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The method, as the client said it.
    pub method: &'a str,
    /// The user, as the client said it.
    pub ident: &'a str,
    /// The event that made the user's record; none if there is no such user.
    pub event: Option<Event>,
    /// Where the client is.
    pub address: IpAddr,
}

/// What an attempt with a secret is remembered by. Worth nothing without the key.
#[derive(Clone, Copy)]
pub struct Mark {
    anywhere: Digest,
    here: Digest,
}

/// Wrong secrets of this run of the node.
pub struct WrongSecrets {
    key: [u8; 32],
    known: Recent,
}

impl WrongSecrets {
    /// None yet, with a key that is random and used for nothing else.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, known: Recent::new(WRONG_SECRETS_MAX) }
    }

    /// By what such an attempt is remembered.
    #[must_use]
    pub fn mark(&self, attempt: Attempt<'_>, sent: &Sent) -> Option<Mark> {
        let Attempt { method, ident, event, address } = attempt;
        let event = event.map(bytes_of).unwrap_or_default();
        let parts = [method.as_bytes(), ident.as_bytes(), &event, sent.as_bytes()];
        let host = host_of(address).to_string();
        Some(Mark {
            anywhere: keyed_hash(&self.key, parts)?,
            here: keyed_hash(&self.key, parts.into_iter().chain([host.as_bytes()]))?,
        })
    }

    /// Whether the same was wrong before, from the same address.
    #[must_use]
    pub fn knows(&self, mark: &Mark) -> bool {
        self.known.contains(&mark.here)
    }

    /// It was wrong. Returns whether it is the first time, wherever it comes from: then it was a guess.
    pub fn note(&mut self, mark: Mark) -> bool {
        let is_new = self.known.insert(mark.anywhere);
        self.known.insert(mark.here);
        is_new
    }
}

impl std::fmt::Debug for WrongSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WrongSecrets").field("marks", &self.known.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use distkv_model::ids::{NodeIndex, Tick};

    use super::*;

    fn event(tick: u64) -> Event {
        Event { node: NodeIndex(0), tick: Tick::new(tick).unwrap() }
    }

    fn joe() -> Attempt<'static> {
        let address = Ipv4Addr::new(10, 0, 0, 1).into();
        Attempt { method: "password", ident: "joe", event: Some(event(1)), address }
    }

    fn mark(wrong: &WrongSecrets, attempt: Attempt<'_>, secret: &str) -> Mark {
        wrong.mark(attempt, &Sent::of_text(secret)).unwrap()
    }

    #[test]
    fn the_same_again_is_known_and_nothing_else_is() {
        let mut wrong = WrongSecrets::new([1; 32]);
        let same = mark(&wrong, joe(), "old");
        assert!(!wrong.knows(&same));
        assert!(wrong.note(same));
        assert!(wrong.knows(&same) && !wrong.note(same));
        let others = [
            (joe(), "older"),
            (Attempt { ident: "jo", ..joe() }, "old"),
            (Attempt { method: "token", ..joe() }, "old"),
            (Attempt { method: "passwordj", ident: "oe", ..joe() }, "old"),
            // The record has changed; there is no such user any more.
            (Attempt { event: Some(event(2)), ..joe() }, "old"),
            (Attempt { event: None, ..joe() }, "old"),
        ];
        for (attempt, secret) in others {
            let other = mark(&wrong, attempt, secret);
            assert!(!wrong.knows(&other) && wrong.note(other), "{attempt:?} {secret}");
        }
        // It is looked at again with another key, so by another run of the node.
        let anew = WrongSecrets::new([2; 32]);
        assert!(!wrong.knows(&mark(&anew, joe(), "old")));
    }

    #[test]
    fn from_elsewhere_it_is_looked_at_once_more_and_is_no_guess() {
        let mut wrong = WrongSecrets::new([1; 32]);
        let of = |attempt| WrongSecrets::new([1; 32]).mark(attempt, &Sent::of_text("old")).unwrap();
        assert!(wrong.note(of(joe())));
        let there = of(Attempt { address: Ipv4Addr::new(10, 0, 0, 2).into(), ..joe() });
        assert!(!wrong.knows(&there));
        assert!(!wrong.note(there));
        assert!(wrong.knows(&there));
    }

    #[test]
    fn a_flood_of_others_only_makes_it_forgotten() {
        let mut wrong = WrongSecrets::new([1; 32]);
        let old = mark(&wrong, joe(), "old");
        wrong.note(old);
        for number in 0..WRONG_SECRETS_MAX {
            let other = mark(&wrong, joe(), &format!("guess {number}"));
            assert!(wrong.note(other));
            assert!(wrong.known.len() <= WRONG_SECRETS_MAX);
        }
        assert!(!wrong.knows(&old) && wrong.note(old));
    }
}
