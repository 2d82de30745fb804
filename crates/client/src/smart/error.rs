//! What a call can end with when it does not succeed.

use std::fmt;

use super::config::ReadModeError;
use crate::error::{ClientError, ServerError};
use crate::login::PLAINTEXT_LOGIN;
use crate::model::count::count_of;
use crate::retry::ErrorClass;

/// What became of what the call was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was not done, and will not be.
    NotDone,
    /// It may have been done, or may still be, once.
    Unknown,
    /// A node has made the change, but not as many others as were asked for have confirmed it. It
    /// spreads by itself, unless that node is lost before.
    Unconfirmed,
}

impl Fate {
    /// As a word: `not_done`, `unknown`, `unconfirmed`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::NotDone => "not_done",
            Fate::Unknown => "unknown",
            Fate::Unconfirmed => "unconfirmed",
        }
    }
}

/// Where, how often, and with what effect a call was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// The node of the last try, by its name, or by its address if the name is not known.
    pub node: Option<String>,
    /// Tries, the last one included; 0: there was none, or a watch or monitor was open when the client was closed.
    pub attempts: u32,
    /// What became of it.
    pub fate: Fate,
}

impl fmt::Display for At {
    /// `(at n1, 3 tries, may have been done)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = match self.fate {
            Fate::NotDone => "",
            Fate::Unknown => ", may have been done",
            Fate::Unconfirmed => ", done but not confirmed",
        };
        f.write_str(&self.told(fate))
    }
}

impl At {
    fn told(&self, fate: &str) -> String {
        let tries = count_of(u64::from(self.attempts), "try", "tries");
        match &self.node {
            Some(node) => format!("(at {node}, {tries}{fate})"),
            None => format!("({tries}{fate})"),
        }
    }

    /// The same of a refusal: where the node has done a part before, `(at n1, 1 try, done in part)`.
    #[must_use]
    pub fn of_refusal(&self, error: &ServerError) -> String {
        match error.is_made {
            true => self.told(", done in part"),
            false => self.to_string(),
        }
    }

    /// Whether an earlier try may have done what the last one was refused for.
    #[must_use]
    pub fn is_doubtful(&self, error: &ServerError) -> bool {
        // Of another kind of error, the doubt may be its own.
        let is_final = ErrorClass::of_server(error) == ErrorClass::Final;
        self.fate != Fate::NotDone && !error.is_made && is_final
    }

    /// The node's words of a refusal. It knows of no try but the one that it refuses, so that "nothing was changed" says
    /// nothing of an earlier one.
    #[must_use]
    pub fn words_of(&self, error: &ServerError) -> String {
        match self.is_doubtful(error) {
            true => format!(
                "an earlier try may have done it; the last one was refused: {}",
                of_one_try(&error.text)
            ),
            false => error.text.clone(),
        }
    }
}

/// A node's words without what they say of the whole call.
fn of_one_try(text: &str) -> String {
    text.replace("; nothing was changed", "")
}

/// How a call ended that no node could do.
fn unavailable(error: &ClientError) -> String {
    match error {
        // Nodes are fine, and no time has passed.
        ClientError::TooManyStreams { .. } => error.to_string(),
        _ => format!("no node could do it in time; the last try: {error}"),
    }
}

/// What the text of a missing majority says of a node that does not let the client in.
fn not_let_in(refusal: Option<&ClientError>) -> String {
    let told = |error| format!("; one does not let this client in: {error}");
    refusal.map(told).unwrap_or_default()
}

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// A node refused it, and no other try can help: a precondition does not hold, the request is bad,
    /// it is not allowed … Where the fate is unknown, an earlier try may have done it, or the node has done a part before: it
    /// has deleted what may be deleted of a tree ([`ServerError::is_made`]).
    #[error("{} {}", .at.words_of(.error), .at.of_refusal(.error))]
    Refused {
        /// What the node said.
        error: ServerError,
        /// Where.
        at: At,
    },
    /// No node lets this client in: TLS does not come about, the user is not known, or none is of its network.
    #[error("{error} {at}")]
    NoAccess {
        /// What is wrong.
        error: ClientError,
        /// Where.
        at: At,
    },
    /// The deadline passed while no node could do it. With [`ClientError::TooManyStreams`], which is told at once, this
    /// client has no room for another watch, monitor or tree.
    #[error("{} {at}", unavailable(.error))]
    Unavailable {
        /// How the last try failed.
        error: ClientError,
        /// Where.
        at: At,
    },
    /// A tree that came entry by entry broke off: its node was lost, or sent nothing for long. What came is not all.
    #[error("it broke off before its end: {error} {at}")]
    BrokenOff {
        /// How.
        error: ClientError,
        /// Where.
        at: At,
    },
    /// A try may have been carried out, and another one could do it twice; or the deadline passed
    /// after such a try.
    #[error("it may have been done: {} {at}", of_one_try(&.error.to_string()))]
    FateUnknown {
        /// How the last try failed.
        error: ClientError,
        /// Where.
        at: At,
    },
    /// Fewer than a majority of the nodes answered a read that needs one.
    #[error("{answered} of {nodes} nodes answered, {needed} must{} {at}", not_let_in(.refusal.as_deref()))]
    NoMajority {
        /// Nodes that answered.
        answered: usize,
        /// How many must.
        needed: usize,
        /// How many there are.
        nodes: usize,
        /// Why one that did not answer does not let this client in, or makes its login wait, if one does so.
        refusal: Option<Box<ClientError>>,
        /// Where.
        at: At,
    },
    /// There is no such read mode.
    #[error(transparent)]
    ReadMode(#[from] ReadModeError),
    /// The value, read or to be written, is not of this type. A write was not sent.
    #[error("the value does not fit: {0}")]
    Value(String),
    /// The call cannot be made like that. Nothing was sent.
    #[error("{0}")]
    Usage(String),
    /// The client was closed.
    #[error("the client was closed {0}")]
    Closed(At),
}

impl CallError {
    /// The word for programs: a node's, or `no_access`, `plaintext_login` (no access, because the client itself sends no
    /// secret there in plain text), `unavailable`, `too_many_streams`, `fate_unknown`, `no_majority`, `read_mode`, `bad_value`, `usage`,
    /// `closed`. None where an old node refused without a word.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            CallError::Refused { error, .. } => error.code.as_deref(),
            CallError::NoAccess {
                error: ClientError::NoAccess { code: Some(code), .. }, ..
            } if **code == *PLAINTEXT_LOGIN => Some(PLAINTEXT_LOGIN),
            CallError::NoAccess { .. } => Some("no_access"),
            CallError::Unavailable {
                error: error @ ClientError::TooManyStreams { .. }, ..
            } => Some(error.code()),
            CallError::Unavailable { .. } | CallError::BrokenOff { .. } => Some("unavailable"),
            CallError::FateUnknown { error, .. } => {
                let code = error.server().and_then(|error| error.code.as_deref());
                Some(code.unwrap_or("fate_unknown"))
            }
            CallError::NoMajority { .. } => Some("no_majority"),
            CallError::ReadMode(_) => Some("read_mode"),
            CallError::Value(_) => Some("bad_value"),
            CallError::Usage(_) => Some("usage"),
            CallError::Closed(_) => Some("closed"),
        }
    }

    /// Whether a node refused with this word.
    #[must_use]
    pub fn has_code(&self, code: &str) -> bool {
        self.code() == Some(code)
    }

    /// The node of the last try.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.at()?.node.as_deref()
    }

    /// Tries.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.at().map_or(0, |at| at.attempts)
    }

    /// What is known of a write that failed.
    #[must_use]
    pub fn fate(&self) -> Fate {
        self.at().map_or(Fate::NotDone, |at| at.fate)
    }

    /// Whether a precondition of a write did not hold: somebody was there first, or the node that was asked has not heard of
    /// that version yet (a split that has just begun: read again, and try again). Where [`CallError::fate`] is not
    /// [`Fate::NotDone`], an earlier try may have made this write, and the last try has met it, or what came after it.
    #[must_use]
    pub fn is_precondition(&self) -> bool {
        let codes = ["already_exists", "is_new", "chain_mismatch", "data_mismatch"];
        codes.iter().any(|code| self.has_code(code))
    }

    fn at(&self) -> Option<&At> {
        match self {
            CallError::Refused { at, .. }
            | CallError::NoAccess { at, .. }
            | CallError::Unavailable { at, .. }
            | CallError::BrokenOff { at, .. }
            | CallError::FateUnknown { at, .. }
            | CallError::NoMajority { at, .. }
            | CallError::Closed(at) => Some(at),
            CallError::ReadMode(_) | CallError::Value(_) | CallError::Usage(_) => None,
        }
    }
}
