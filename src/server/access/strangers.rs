//! Connections whose clients have not logged in yet, where they must: how many (see [`Crowd`](crate::crowd::Crowd)), for
//! how long, and what each may send.

use crate::model::ids::Millis;
use crate::protocol::client::{ClientError, ErrorCode};

/// Most connections at once that have not logged in.
pub const STRANGERS_MAX: usize = 512;
/// How long a client has at least to log in before it gives way to others of its own address, in ms.
pub(in crate::server) const GRACE_MS: Millis = 1_000;
/// How long a client may take to log in, in ms.
pub const LOGIN_MS_MAX: Millis = 10_000;
/// Most bytes that a client may send before it has logged in.
pub const STRANGER_BYTES_MAX: usize = 64 << 10;

/// The error of a client for whom there is no place, or not any more.
pub(in crate::server) fn too_many() -> ClientError {
    let text =
        "too many clients are connected to this node without having logged in; try again later";
    ClientError::new(ErrorCode::TooMany, text)
}
