//! The errors that clients see: a text for people, and a code word for programs.

use crate::model::ids::Millis;

/// The fixed word that every error carries as `code`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorCode {
    /// A field is missing or malformed.
    BadRequest,
    /// Not a MessagePack map at all; the connection is closed after this.
    BadMessage,
    /// No action has this name.
    UnknownAction,
    /// An action of the original that this version does not have.
    NotImplemented,
    /// No such path, node or event.
    NotFound,
    /// `chain: nil`, but there is a value. Nothing was changed.
    AlreadyExists,
    /// A chain was given, but there is no value. Nothing was changed.
    IsNew,
    /// The entry's newest event is not the one that was given. Nothing was changed.
    ChainMismatch,
    /// The entry's value is not the one that was given. Nothing was changed.
    DataMismatch,
    /// The value does not fit the type that is asked for there, or the type itself is not good. Nothing was
    /// changed.
    TypeMismatch,
    /// The write id is that of another write. Nothing was changed.
    WidReused,
    /// The write comes too late: its client does not wait for it any more, and has gone on. Nothing was changed.
    GivenUp,
    /// The request came later than its client had said that it counts. Nothing was changed.
    TooLate,
    /// The root cannot be deleted. Nothing was changed.
    IsRoot,
    /// The node still owns entries, is the one that was asked, or must stay a member. Nothing was changed.
    InUse,
    /// The node has not caught up with its network yet; try another one, or later.
    NotReady,
    /// The node takes no changes from clients.
    ReadOnly,
    /// The node's memory limit is reached. Nothing was changed.
    MemoryFull,
    /// The node cannot make changes now: its counters are used up or its identity is in doubt.
    NoEvent,
    /// Something is larger or deeper than allowed.
    TooLarge,
    /// Too many open requests, watches, connections.
    TooMany,
    /// The client was too slow for something that costs the node memory meanwhile.
    TooSlow,
    /// The change is made here, but not confirmed by as many peers as were asked for.
    UnknownFate,
    /// The node cannot write to its disk. A change that was refused was not made; one that was in
    /// flight when that began is made in memory, and may be lost with it.
    StorageFailed,
    /// The session may not do this.
    Denied,
    /// Clients must log in first, or the session is not logged in any more. Nothing was changed.
    AuthRequired,
    /// A login failed: there is no such user, or the secret is another one.
    AuthFailed,
    /// A bug in the node.
    Internal,
}

impl ErrorCode {
    /// All of them, in their order.
    pub const ALL: [Self; 28] = [
        Self::BadRequest,
        Self::BadMessage,
        Self::UnknownAction,
        Self::NotImplemented,
        Self::NotFound,
        Self::AlreadyExists,
        Self::IsNew,
        Self::ChainMismatch,
        Self::DataMismatch,
        Self::TypeMismatch,
        Self::WidReused,
        Self::GivenUp,
        Self::TooLate,
        Self::IsRoot,
        Self::InUse,
        Self::NotReady,
        Self::ReadOnly,
        Self::MemoryFull,
        Self::NoEvent,
        Self::TooLarge,
        Self::TooMany,
        Self::TooSlow,
        Self::UnknownFate,
        Self::StorageFailed,
        Self::Denied,
        Self::AuthRequired,
        Self::AuthFailed,
        Self::Internal,
    ];

    /// The word on the wire.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::BadMessage => "bad_message",
            Self::UnknownAction => "unknown_action",
            Self::NotImplemented => "not_implemented",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::IsNew => "is_new",
            Self::ChainMismatch => "chain_mismatch",
            Self::DataMismatch => "data_mismatch",
            Self::TypeMismatch => "type_mismatch",
            Self::WidReused => "wid_reused",
            Self::GivenUp => "given_up",
            Self::TooLate => "too_late",
            Self::IsRoot => "is_root",
            Self::InUse => "in_use",
            Self::NotReady => "not_ready",
            Self::ReadOnly => "read_only",
            Self::MemoryFull => "memory_full",
            Self::NoEvent => "no_event",
            Self::TooLarge => "too_large",
            Self::TooMany => "too_many",
            Self::TooSlow => "too_slow",
            Self::UnknownFate => "unknown_fate",
            Self::StorageFailed => "storage_failed",
            Self::Denied => "denied",
            Self::AuthRequired => "auth_required",
            Self::AuthFailed => "auth_failed",
            Self::Internal => "internal",
        }
    }
}

/// An error for a client. Its code says whether anything was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct ClientError {
    /// For programs.
    pub code: ErrorCode,
    /// For people; but clients of the original look for some words in it (docs/client-protocol.md,
    /// "Actions").
    pub text: String,
    /// The change that was asked for is made here; something else about it has failed.
    pub(crate) is_made: bool,
    /// How many entries were changed before it was stopped.
    pub(crate) changed: Option<u64>,
    /// What the node's clock says, where that is why.
    pub(crate) clock: Option<Millis>,
    /// Of a refusal by an access list: whose, and where.
    pub(crate) explain: Option<Box<Explain>>,
}

/// What an admin has explained to see why an access list refuses something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explain {
    /// The user's name.
    pub user: Box<str>,
    /// The whole path, in text form.
    pub path: Box<str>,
}

impl ClientError {
    /// An error with its text.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), is_made: false, changed: None, clock: None, explain: None }
    }

    /// The same, of a refusal by an access list.
    #[must_use]
    pub fn explained_by(self, explain: Option<Explain>) -> Self {
        Self { explain: explain.map(Box::new), ..self }
    }

    /// A request that counted until `by`; the node's clock says `clock`, which is later.
    #[must_use]
    pub fn too_late(by: Millis, clock: Millis) -> Self {
        let late = clock.saturating_sub(by);
        let text = format!(
            "this request comes {late} ms too late: its client has said until when it counts; nothing was changed"
        );
        Self { clock: Some(clock), ..Self::new(ErrorCode::TooLate, text) }
    }

    /// The same, where the change that was asked for is made here all the same.
    pub fn of_made(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { is_made: true, ..Self::new(code, text) }
    }

    /// Its client has stopped a request that changes many entries, after this many; the others are as they were.
    #[must_use]
    pub fn stopped_after(changed: u64) -> Self {
        let text = format!("stopped: {changed} changed before, and no others");
        Self { changed: Some(changed), ..Self::new(ErrorCode::UnknownFate, text) }
    }

    /// A field that is missing or malformed.
    pub fn bad_request(text: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, text)
    }
}
