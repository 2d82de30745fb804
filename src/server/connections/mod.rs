//! Clients' connections: accepting and closing them, cutting messages from what arrives, and the
//! session that carries requests out.
//!
//! | file | what |
//! |---|---|
//! | `accept` | accepting connections, and refusing those beyond the limit |
//! | `connection` | one client: the loop that moves bytes |
//! | `exchange` | what that loop does whatever the bytes come through |
//! | `input` | cutting messages from what arrives |
//! | `oversized` | a message that is too deep or too long: skipped as it arrives |
//! | `session` | one client's state; batches of requests, without I/O |
//! | `not_ready` | requests that wait for the node to be ready |
//! | `unsynced_replies` | replies that are sent only when the changes that they tell of are on disk |
//! | `memory_pressure` | closes the worst reader when clients take too much memory |
//! | `socket` | a client's socket: its options, and writing with patience |
//! | [`tls`] | who must use TLS, and the handshake |
//! | `throttled_warning` | warnings that come in floods, as one line with a count |

pub(super) mod accept;
pub(super) mod connection;
pub(super) mod exchange;
pub(super) mod input;
pub(super) mod memory_pressure;
mod not_ready;
mod oversized;
pub(super) mod session;
mod socket;
pub(super) mod throttled_warning;
pub(super) mod tls;
pub(super) mod unsynced_replies;
