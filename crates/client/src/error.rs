//! What can go wrong for a client.

use crate::connection::{OwnNetwork, STREAMS_MAX, shown};
use crate::model::count::count_of;
use crate::pool::CONNECTIONS_PER_NODE_MAX;

/// The code of [`ClientError::NoAccess`] where the node's certificate has expired or is not valid yet, by the clock here. The
/// client itself says so, whatever version the node has: it was sent nothing.
pub const WRONG_TIME: &str = "wrong_time";

/// Why a request got no good answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The node answered with an error. For a write this is final: it was not made, unless the code
    /// is `unknown_fate`. The connection stays usable.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The name of the node's host could not be looked up. Nothing was sent.
    #[error("cannot look up {address}: {reason}")]
    Resolve {
        /// The name that was looked up.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// No connection came about. Nothing was sent.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Where to.
        address: String,
        /// Why not.
        reason: String,
    },
    /// The system gives this process no file descriptor for a connection: that says nothing of the node. Nothing was sent.
    #[error(
        "the system gives this process no file descriptor for a connection to {address}: {reason}"
    )]
    NoDescriptor {
        /// Where to.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// No TLS came about, or the node does not know the user: the reason says which of address, name, CA, time, user
    /// and secret is wrong. No request was sent.
    #[error("cannot get into {address}: {reason}")]
    NoAccess {
        /// Where to.
        address: String,
        /// What is wrong.
        reason: String,
        /// The node's word for it, if it was the node that said so; `plaintext_login` where the client itself has refused
        /// to send its secret there in plain text; `wrong_time` ([`WRONG_TIME`]).
        code: Option<Box<str>>,
        /// The node had greeted, and its greeting named no other network. If not, no TLS came about, and nobody knows
        /// whose node it is.
        greeted: bool,
    },
    /// The node makes this login wait, because too many have failed: it has not looked at the secret. No request was sent.
    #[error("{address} makes the login wait: {error}")]
    LoginWaits {
        /// Where to.
        address: String,
        /// The node's words.
        error: Box<ServerError>,
    },
    /// The node is of another network than this client, as its greeting says. Nothing was sent.
    #[error(
        "cannot use {address}: it is a node of the network {}, and this client is of {ours}",
        shown(.theirs)
    )]
    OtherNetwork {
        /// Where to.
        address: String,
        /// The client's network.
        ours: Box<OwnNetwork>,
        /// The network that the node names.
        theirs: Box<str>,
    },
    /// The connection ended. Whether an unanswered request was carried out is not known.
    #[error("the connection to {address} is lost: {reason}")]
    Lost {
        /// Where to.
        address: String,
        /// How.
        reason: String,
    },
    /// The node has the request, and did not answer in time. Whether it was carried out is not known.
    #[error("{address} is silent: {reason}")]
    Silent {
        /// Where.
        address: String,
        /// What did not come, and for how long.
        reason: String,
    },
    /// The call had no time. Nothing was sent.
    #[error("there was none, because the call had no time")]
    NoTime,
    /// The other side does not keep to the protocol. An unanswered request may have been
    /// carried out.
    #[error("{address} does not speak the client protocol: {reason}")]
    Protocol {
        /// The node.
        address: String,
        /// What was wrong.
        reason: String,
    },
    /// The request is longer than any node takes. Nothing was sent.
    #[error("the request is {0} bytes long; at most {max} can be sent", max = super::message::REQUEST_BYTES_MAX)]
    TooLarge(usize),
    /// Too many requests are open on this connection. Nothing was sent.
    #[error("{0} requests are open on this connection already")]
    Busy(usize),
    /// Each connection to the node has as many streams as it may have, and there may be no further connection: this client
    /// has no room for another one, and the node is fine. Nothing was sent.
    #[error(
        "this client has no room for another stream: {streams} watches, monitors and trees are open on its {} to \
         {address}, at most {each} on each; `connections_per_node` is {connections_per_node}, and may be up to {most}",
        count_of(*.connections as u64, "connection", "connections"),
        each = STREAMS_MAX,
        most = CONNECTIONS_PER_NODE_MAX
    )]
    TooManyStreams {
        /// The node.
        address: String,
        /// Streams that are open to it.
        streams: usize,
        /// On so many connections.
        connections: usize,
        /// The setting of [`PoolConfig`](crate::PoolConfig).
        connections_per_node: usize,
    },
}

/// A node's error message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ServerError {
    /// The word for programs; none from servers that have no such words (docs/client-protocol.md, "Where we
    /// do better, on purpose").
    pub code: Option<String>,
    /// The text for people.
    pub text: String,
    /// The node says that it has made the change: it is not refused, only not confirmed, or not safe.
    pub is_made: bool,
    /// Of a request that was stopped: how many entries it had changed.
    pub changed: Option<u64>,
    /// Of a refusal by an access list: the user, and the whole path in text form. An admin has them explained.
    pub explain: Option<Box<(String, String)>>,
}

impl ServerError {
    /// One that says nothing of a change that was made.
    #[must_use]
    pub fn new(code: Option<String>, text: String) -> ServerError {
        ServerError { code, text, is_made: false, changed: None, explain: None }
    }

    /// Whether it says that the client is not let in.
    pub(crate) fn shuts_out(&self) -> bool {
        ["auth_required", "auth_failed", "denied"].iter().any(|code| self.has_code(code))
    }

    /// Whether the code is this word.
    #[must_use]
    pub fn has_code(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }
}

/// Why a client by TLS had no connection that the node took for one without.
pub(crate) const BEGAN_TOO_LATE: &str = "this client began too late: nothing of its TLS handshake had come when \
                                         the node stopped waiting (a slow link, or a busy machine). Try again";

/// Why a client had no connection where nobody answered, or not in time.
pub(crate) const NO_GREETING: &str = "no greeting within";

impl ClientError {
    /// Whether nobody has greeted this client in time: there may be a node, which hangs.
    #[must_use]
    pub fn has_no_greeting(&self) -> bool {
        matches!(self, ClientError::Connect { reason, .. } if reason.starts_with(NO_GREETING))
    }

    /// Whether a node has stopped waiting for this client's TLS: the next time it may be soon enough.
    #[must_use]
    pub fn began_too_late(&self) -> bool {
        matches!(self, ClientError::Connect { reason, .. } if reason == BEGAN_TOO_LATE)
    }

    /// The node's error, if that is what this is.
    #[must_use]
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            ClientError::Server(error) => Some(error),
            ClientError::LoginWaits { error, .. } => Some(error),
            ClientError::Resolve { .. }
            | ClientError::Connect { .. }
            | ClientError::NoDescriptor { .. }
            | ClientError::NoAccess { .. }
            | ClientError::OtherNetwork { .. }
            | ClientError::Lost { .. }
            | ClientError::Silent { .. }
            | ClientError::NoTime
            | ClientError::Protocol { .. }
            | ClientError::TooLarge(_)
            | ClientError::Busy(_)
            | ClientError::TooManyStreams { .. } => None,
        }
    }

    /// The word for programs: a node's, or what kind of error it is. Unlike the error's text, which may be a node's, it names
    /// neither paths nor values.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            ClientError::Server(error) => error.code.as_deref().unwrap_or("refused"),
            ClientError::Resolve { .. } => "resolve",
            ClientError::Connect { .. } => "connect",
            ClientError::NoDescriptor { .. } => "no_descriptor",
            ClientError::NoAccess { code, .. } => code.as_deref().unwrap_or("no_access"),
            ClientError::LoginWaits { .. } => "login_waits",
            ClientError::OtherNetwork { .. } => "other_network",
            ClientError::Lost { .. } => "lost",
            ClientError::Silent { .. } => "silent",
            ClientError::NoTime => "no_time",
            ClientError::Protocol { .. } => "protocol",
            ClientError::TooLarge(_) => "too_large",
            ClientError::Busy(_) => "busy",
            ClientError::TooManyStreams { .. } => "too_many_streams",
        }
    }

    /// Where it happened, as far as the error says.
    pub(crate) fn address(&self) -> Option<&str> {
        match self {
            ClientError::Connect { address, .. }
            | ClientError::NoDescriptor { address, .. }
            | ClientError::NoAccess { address, .. }
            | ClientError::LoginWaits { address, .. }
            | ClientError::OtherNetwork { address, .. }
            | ClientError::Lost { address, .. }
            | ClientError::Silent { address, .. }
            | ClientError::Protocol { address, .. }
            | ClientError::TooManyStreams { address, .. } => Some(address),
            ClientError::Resolve { .. }
            | ClientError::Server(_)
            | ClientError::NoTime
            | ClientError::TooLarge(_)
            | ClientError::Busy(_) => None,
        }
    }
}
