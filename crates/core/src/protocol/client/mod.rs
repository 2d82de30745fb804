//! The client protocol (docs/client-protocol.md), pure: bytes to typed requests, borrowing from the
//! buffer that they came in, and replies to bytes.
//!
//! Messages are plain MessagePack maps one after the other, in both directions, without a length
//! in front. MessagePack maps have an order on the wire, and the original's is fixed per kind of
//! message; every reply here keeps to it, so that the two can be compared byte for byte.
//!
//! | file | what |
//! |---|---|
//! | [`action`] | the actions' names |
//! | [`field`] | a message's fields, not yet typed |
//! | `coerce` | integers and flags, as Python takes them |
//! | [`request`] | typed requests |
//! | [`mod@decode`] | how they are decoded |
//! | [`auth`] | those of them that are about logins and users |
//! | [`batch`] | many of them in one request |
//! | [`mod@write`] | the change of one entry |
//! | [`topic`] | the topics of messages, and which patterns match them |
//! | [`stored`] | those of them that are about files |
//! | [`error`] | the code words of errors |
//! | [`chain`] | chains as clients see them |
//! | [`shorten`] | the shortened paths of streams |
//! | [`reply`] | the writer of messages, and the replies that are not of one action only |

mod replies;
mod requests;
mod word;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use decode::{decode, decode_fields};
pub use error::{ClientError, ErrorCode};
pub use field::Fields;
pub use replies::{chain, error, reply, shorten};
pub use reply::MessageWriter;
pub use request::{BadMessage, ClientMessage, Request};
pub use requests::{
    action, auth, batch, decode, field, operator, request, shards, stored, topic, write,
};

/// The version of the original whose protocol this is. The greeting names it, because clients may
/// derive from it what they can ask for.
const PROTOCOL_VERSION: [u64; 3] = [0, 65, 0];
