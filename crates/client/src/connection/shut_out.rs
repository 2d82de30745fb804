//! What nodes have said last against a client, for those who connect again and again.
//!
//! A node that makes a login wait, because too many have failed, has not looked at the secret: that says nothing of this
//! client. But if it has refused the client just before, or closed a connection of it with such an error, then it still
//! does: where many work as one user that is removed, a node looks at the logins of a few only.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::connection::Connection;
use crate::error::{ClientError, ServerError};
use crate::model::ids::Millis;
use crate::rt;

/// For so long it counts: the longest that a node makes a login wait.
const STANDS_MS_MAX: Millis = 60_000;

/// Most addresses that are remembered. More than any network has.
const ADDRESSES_MAX: usize = 4096;

/// See the module; clones share it. It has an entry for each address that refused the client, the latest last.
#[derive(Debug, Clone, Default)]
pub struct ShutOut(Arc<Mutex<Vec<Said>>>);

/// What a node has said, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    address: String,
    reason: String,
    code: Option<Box<str>>,
    at: Millis,
}

/// Two are the same if the same was said.
impl PartialEq for ShutOut {
    fn eq(&self, other: &ShutOut) -> bool {
        // One lock after the other: both may be the same.
        let own = self.0.lock().clone();
        own == *other.0.lock()
    }
}

impl Eq for ShutOut {}

impl ShutOut {
    /// How an attempt to connect has ended, by what is remembered; and remembers it.
    pub(super) fn judge(
        &self,
        connected: Result<Connection, ClientError>,
    ) -> Result<Connection, ClientError> {
        match connected {
            Ok(connection) => {
                self.on_let_in(connection.address(), &connection.shared.last_words);
                Ok(connection)
            }
            Err(error) => Err(self.meaning_of(error, rt::now())),
        }
    }

    /// What an error says of this client, by what is remembered; and remembers it, if it is a refusal.
    pub(crate) fn meaning_of(&self, error: ClientError, now: Millis) -> ClientError {
        match error {
            ClientError::NoAccess { ref address, ref reason, ref code, greeted: true } => {
                self.note(address, reason.clone(), code.clone(), now);
                error
            }
            ClientError::LoginWaits { ref address, error: ref waits } => {
                self.standing(address, waits, now).unwrap_or(error)
            }
            other => other,
        }
    }

    /// The refusal that stands at a node which makes this client wait.
    fn standing(&self, address: &str, waits: &ServerError, now: Millis) -> Option<ClientError> {
        let all = self.0.lock();
        let said = all.iter().find(|said| said.address == address)?;
        let ago = now.saturating_sub(said.at);
        (ago < STANDS_MS_MAX).then(|| ClientError::NoAccess {
            address: address.to_owned(),
            reason: format!(
                "{} (it said so {} s ago; now it makes the login wait: {waits})",
                said.reason,
                ago / 1_000
            ),
            code: said.code.clone(),
            greeted: true,
        })
    }

    /// What was said before this time counts no more: the client came with another secret then.
    pub(super) fn forget_before(&self, since: Millis) {
        self.0.lock().retain(|said| said.at >= since);
    }

    /// Whether something that was said against this client is remembered, and no older than it counts.
    pub(crate) fn stands(&self, now: Millis) -> bool {
        self.0.lock().iter().any(|said| now.saturating_sub(said.at) < STANDS_MS_MAX)
    }

    /// A node has closed a connection, and said this; `words`: what it has said on that one. Alone that is no refusal:
    /// the client connects again and asks, because it may have been let in again meanwhile.
    pub(super) fn on_last_words(
        &self,
        address: &str,
        error: &ServerError,
        words: &OnceLock<ServerError>,
    ) {
        let mut all = self.0.lock();
        let is_first = words.set(error.clone()).is_ok();
        if is_first && error.shuts_out() {
            let reason = format!("it closed a connection of this client: {error}");
            let code = error.code.as_deref().map(Into::into);
            put(&mut all, Said { address: address.to_owned(), reason, code, at: rt::now() });
        }
    }

    /// A node has let the client in: nothing else counts, unless it has closed that very connection since. `words`: what it
    /// has said as it did.
    fn on_let_in(&self, address: &str, words: &OnceLock<ServerError>) {
        let mut all = self.0.lock();
        if words.get().is_none() {
            all.retain(|said| said.address != address);
        }
    }

    fn note(&self, address: &str, reason: String, code: Option<Box<str>>, at: Millis) {
        put(&mut self.0.lock(), Said { address: address.to_owned(), reason, code, at });
    }
}

/// The last word of an address counts.
fn put(all: &mut Vec<Said>, said: Said) {
    all.retain(|other| other.address != said.address);
    if all.len() >= ADDRESSES_MAX {
        all.remove(0);
    }
    all.push(said);
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "a:1";

    fn server(code: &str) -> ServerError {
        ServerError::new(Some(code.to_owned()), format!("says {code}"))
    }

    fn waits() -> ClientError {
        ClientError::LoginWaits { address: AT.to_owned(), error: Box::new(server("too_many")) }
    }

    fn refused(greeted: bool) -> ClientError {
        let (address, reason) = (AT.to_owned(), String::from("who is that"));
        ClientError::NoAccess { address, reason, code: Some("auth_failed".into()), greeted }
    }

    fn is_refused(shut_out: &ShutOut, now: Millis) -> bool {
        matches!(shut_out.meaning_of(waits(), now), ClientError::NoAccess { greeted: true, .. })
    }

    #[test]
    fn a_refusal_stands_for_a_minute_and_waiting_does_not_make_it_longer() {
        let shut_out = ShutOut::default();
        assert!(!is_refused(&shut_out, 1_000));
        assert_eq!(shut_out.meaning_of(refused(true), 1_000), refused(true));
        assert!(is_refused(&shut_out, 1_000));
        assert!(is_refused(&shut_out, 1_000 + STANDS_MS_MAX - 1));
        assert!(!is_refused(&shut_out, 1_000 + STANDS_MS_MAX));
        let told = shut_out.meaning_of(waits(), 3_500).to_string();
        assert_eq!(
            told,
            "cannot get into a:1: who is that (it said so 2 s ago; now it makes the login wait: says too_many)"
        );
        // A node that is full says nothing of this client, and another one has said nothing.
        let full = ClientError::Server(server("too_many"));
        assert_eq!(shut_out.meaning_of(full.clone(), 1_000), full);
        let other =
            ClientError::LoginWaits { address: String::from("b:1"), error: Box::new(server("x")) };
        assert_eq!(shut_out.meaning_of(other.clone(), 1_000), other);
        // Before its greeting it may have been anybody.
        let shut_out = ShutOut::default();
        shut_out.meaning_of(refused(false), 1_000);
        assert!(!is_refused(&shut_out, 1_000));
    }

    #[test]
    fn of_too_many_addresses_the_latest_are_remembered() {
        let shut_out = ShutOut::default();
        let note = |at: &str| shut_out.note(at, String::new(), None, 1_000);
        note("first:1");
        note(AT);
        // Which is the latest word of that one.
        note("first:1");
        (1..ADDRESSES_MAX).for_each(|number| note(&format!("b:{number}")));
        assert!(!is_refused(&shut_out, 1_000), "it is the oldest");
        assert_eq!(shut_out.0.lock().len(), ADDRESSES_MAX);
        assert!(shut_out.standing("first:1", &server("too_many"), 1_000).is_some());
        let last = format!("b:{}", ADDRESSES_MAX - 1);
        assert!(shut_out.standing(&last, &server("too_many"), 1_000).is_some());
    }

    #[test]
    fn what_was_said_of_another_secret_counts_no_more() {
        let shut_out = ShutOut::default();
        shut_out.meaning_of(refused(true), 1_000);
        shut_out.forget_before(1_000);
        assert!(is_refused(&shut_out, 1_002));
        shut_out.forget_before(1_001);
        assert!(!is_refused(&shut_out, 1_002));
    }

    #[test]
    fn last_words_count_until_the_node_lets_the_client_in() {
        for (code, counts) in [("auth_required", true), ("denied", true), ("too_many", false)] {
            let (shut_out, words) = (ShutOut::default(), OnceLock::new());
            shut_out.on_last_words(AT, &server(code), &words);
            assert_eq!(is_refused(&shut_out, rt::now()), counts, "{code}");
            assert_eq!(words.get(), Some(&server(code)));
            // The one that was closed was let in before.
            shut_out.on_let_in(AT, &words);
            assert_eq!(is_refused(&shut_out, rt::now()), counts, "{code}");
            shut_out.on_let_in(AT, &OnceLock::new());
            assert!(!is_refused(&shut_out, rt::now()), "{code}");
        }
    }
}
