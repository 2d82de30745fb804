//! Connections whose clients have not logged in yet, where they must: how many (see [`Crowd`]), for how long, and what
//! each may send.

use std::sync::Arc;

use crate::model::ids::Millis;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::server::connections::crowd::Crowd;

/// Most connections at once that have not logged in.
pub const STRANGERS_MAX: usize = 512;
/// How long a client may take to log in, in ms.
pub const LOGIN_MS_MAX: Millis = 10_000;
/// Most bytes that a client may send before it has logged in.
pub const STRANGER_BYTES_MAX: usize = 64 << 10;

/// None yet.
pub(in crate::server) fn strangers() -> Arc<Crowd> {
    let what = "as many clients as may be are connected without having logged in: for each new one, one of the address \
                with most is closed, or it is refused";
    Arc::new(Crowd::new(STRANGERS_MAX, what))
}

/// The error of a client for whom there is no place, or not any more.
pub(in crate::server) fn too_many() -> ClientError {
    let text =
        "too many clients are connected to this node without having logged in; try again later";
    ClientError::new(ErrorCode::TooMany, text)
}
