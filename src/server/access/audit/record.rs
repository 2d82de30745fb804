//! One line of the audit log: what happened, who did it, from where, and what came of it. Never a value of the data, and never
//! a secret: what looks like one in a name or a path is left out, because people type things in the wrong place.

use std::net::IpAddr;

use serde::Serialize;

use crate::model::ids::Millis;
use crate::model::secrets::without_secrets;

/// Most characters of a text in a record; clients choose most of them.
pub(crate) const TEXT_CHARS_MAX: usize = 256;
/// Most characters of a user's name that a client only says is its own: enough to see who mistypes, and not all of what was
/// pasted there by mistake.
pub(crate) const CLAIMED_CHARS_MAX: usize = 64;
/// In so many characters of a text secrets are looked for; more of it is never recorded. Longer than a ticket, or a private key.
pub(crate) const SEARCHED_CHARS_MAX: usize = 8_192;

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    /// The audit log itself: it begins, ends, or has lost records.
    Audit,
    /// A client has said who it is.
    Login,
    /// A request was refused: the client has not logged in, or may not do that.
    Denied,
    /// A user was made, changed or removed.
    User,
    /// An access list was changed.
    Acl,
    /// A type, or where it is asked for, was changed.
    Type,
    /// How clients log in was changed.
    Auth,
    /// The cluster's keys at this node were changed.
    Key,
    /// Something else that only admins may do.
    Admin,
    /// Something came to the gossip port from who is no member, or cannot be one.
    Peer,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// It was begun; what comes of it, only its reply tells.
    Begun,
    /// It was done.
    Done,
    /// The login was good.
    Accepted,
    /// Nothing was done.
    Refused,
    /// It has ended.
    Ended,
    /// Records were lost: so many as `count` says.
    Dropped,
}

/// See the module. The fields stand in each line in this order, as docs/security.md explains them; those that say
/// nothing are null, so that all lines have the same.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub(crate) struct Record {
    /// What has happened.
    pub(crate) event: Event,
    /// What came of it.
    pub(crate) outcome: Outcome,
    /// Who did it: the user's name; of a refused login, who the client said it was.
    pub(crate) user: Option<Box<str>>,
    /// How the user logs in.
    pub(crate) method: Option<Box<str>>,
    /// From where.
    pub(crate) address: Option<IpAddr>,
    /// The action of the client protocol.
    pub(crate) action: Option<&'static str>,
    /// To whom, or what, it was done: a user, a path, a node. Of a refused peer: what it calls itself, or its key.
    pub(crate) target: Option<Box<str>>,
    /// More about it, in words.
    pub(crate) detail: Option<Box<str>>,
}

impl Record {
    /// Of which nothing else is known.
    #[must_use]
    pub(crate) fn new(event: Event, outcome: Outcome) -> Self {
        Self {
            event,
            outcome,
            user: None,
            method: None,
            address: None,
            action: None,
            target: None,
            detail: None,
        }
    }

    /// Who called at the gossip port was refused. `reason`: one of few, in the node's own words.
    #[must_use]
    pub(crate) fn peer_refused(address: IpAddr, reason: &'static str) -> Self {
        let address = Some(address.to_canonical());
        Self { address, ..Self::new(Event::Peer, Outcome::Refused) }.detail(reason)
    }

    /// Whether it tells of something that was done, or of the log itself: the others are logins and refusals.
    pub(crate) fn tells_of_a_deed(&self) -> bool {
        self.event == Event::Audit || matches!(self.outcome, Outcome::Begun | Outcome::Done)
    }

    /// Who did it.
    #[must_use]
    pub(crate) fn user(self, name: &str) -> Self {
        Self { user: Some(short(name, TEXT_CHARS_MAX)), ..self }
    }

    /// Who the client says it is, and has not shown that it is.
    #[must_use]
    pub(crate) fn claimed(self, name: &str) -> Self {
        Self { user: Some(short(name, CLAIMED_CHARS_MAX)), ..self }
    }

    /// How that one logs in.
    #[must_use]
    pub(crate) fn method(self, method: &str) -> Self {
        Self { method: Some(short(method, TEXT_CHARS_MAX)), ..self }
    }

    /// To whom, or what.
    #[must_use]
    pub(crate) fn target(self, target: &str) -> Self {
        Self { target: Some(short(target, TEXT_CHARS_MAX)), ..self }
    }

    /// More about it.
    #[must_use]
    pub(crate) fn detail(self, detail: &str) -> Self {
        Self { detail: Some(short(detail, TEXT_CHARS_MAX)), ..self }
    }
}

/// A record on its way to the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// When, in ms since 1970.
    pub(crate) time_ms: Millis,
    /// What.
    pub(crate) record: Record,
    /// How often, since the last such line; 1 for all that are not put together.
    pub(crate) count: u64,
}

/// The beginning of a text, without secrets, with a sign where it was cut off. Of a secret that is cut, the rest might not look
/// like one, so that comes last.
fn short(text: &str, most: usize) -> Box<str> {
    let searched = beginning(text, SEARCHED_CHARS_MAX).unwrap_or(text);
    let text = without_secrets(searched);
    match beginning(&text, most) {
        None => text.into(),
        Some(begin) => format!("{begin}…").into(),
    }
}

/// The first so many characters, if there are more.
fn beginning(text: &str, count: usize) -> Option<&str> {
    let (end, _) = text.char_indices().nth(count)?;
    text.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_off_between_characters() {
        let record = Record::new(Event::Login, Outcome::Refused).user(&"ä".repeat(300));
        let user = record.user.unwrap();
        assert_eq!(user.chars().count(), TEXT_CHARS_MAX + 1);
        assert!(user.ends_with("ä…"));
        let record = Record::new(Event::Login, Outcome::Refused).claimed(&"ä".repeat(300));
        assert_eq!(record.user.unwrap().chars().count(), CLAIMED_CHARS_MAX + 1);
        assert_eq!(&*short("joe", TEXT_CHARS_MAX), "joe");
        let whole = "x".repeat(TEXT_CHARS_MAX);
        assert_eq!(&*short(&whole, TEXT_CHARS_MAX), whole);
    }

    #[test]
    fn secrets_are_left_out_wherever_they_stand_also_across_the_end() {
        let (ticket, made) =
            (format!("distkv1.{}", "gqlhZGRyZXNz".repeat(20)), "9eb2acd8".repeat(8));
        let with = |text: &str| {
            Record::new(Event::Denied, Outcome::Refused).user(text).target(text).detail(text)
        };
        for secret in [&ticket, &made] {
            for before in [0, 10, 200, 250, 255] {
                let text = format!("{} {secret}", "-".repeat(before));
                let record = with(&text);
                for told in [record.user, record.target, record.detail] {
                    assert!(!told.unwrap().contains(&secret[..8]), "{before}");
                }
            }
        }
        let record = Record::new(Event::Login, Outcome::Refused).claimed(&ticket);
        assert_eq!(record.user.as_deref(), Some("[a ticket, not shown]"));
        // Of what is longer than is looked at, nothing but the beginning counts.
        let long = format!("{} {made}", "-".repeat(SEARCHED_CHARS_MAX));
        assert_eq!(with(&long).target.unwrap().chars().count(), TEXT_CHARS_MAX + 1);
    }
}
