//! What one client may do to the node. Each limit is at or below what the protocol allows.

use super::access::audit::Audit;
use super::access::cluster_key::ClusterKeys;
use super::connections::tls::TlsSettings;
use crate::hub::client_memory::CLIENT_MEMORY;
use crate::model::limits::{PATH_BYTES_MAX, VALUE_BYTES_MAX};

/// The smallest that a message's limit may be: one greatest value, with its path and whatever
/// else belongs to a write.
pub(crate) const MESSAGE_BYTES_MIN: usize = VALUE_BYTES_MAX + 2 * PATH_BYTES_MAX + 4096;

/// The default limit of a message: what clients send at most, two of the greatest values with their path and whatever else
/// belongs to a write.
const MESSAGE_BYTES: usize = 2 * VALUE_BYTES_MAX + PATH_BYTES_MAX + 4096;

/// The default limit of open requests of one connection: enough for a program that has a watch for
/// each of 10,000 entries.
pub(crate) const OPEN_REQUESTS: usize = 16 << 10;

/// By default, how long requests wait for a node to be ready: joining takes seconds, and programs
/// that start with the machine should not have to try again.
pub(crate) const READY_WAIT_MS: u64 = 30_000;

/// The limits of client connections. The defaults are safe for a node in the open.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Most bytes of one message; at least [`MESSAGE_BYTES_MIN`] counts.
    pub message_bytes_max: usize,
    /// Most open requests of one connection: streams, and writes that wait for copies.
    pub open_requests_max: usize,
    /// Most bytes that wait to be written to one connection, but for one message: no further
    /// requests are taken and streams pause until its client reads.
    pub output_bytes_max: usize,
    /// Most connections; further ones get an error and are closed.
    pub connections_max: usize,
    /// Most connections at once that are kept, for up to 2 s, until their clients have read that; further ones are told,
    /// and closed at once.
    pub refusals_max: usize,
    /// So many clients of the node's own machine are let in when there is no room, to look what is wrong: they may log in
    /// and ask for `status`, `members` and `clients`.
    pub kept_connections: usize,
    /// Most bytes of memory that all clients together may cost: buffers, queues, open requests, and
    /// what only the snapshots of their streams still hold. Beyond, the worst readers are closed.
    pub client_memory_max: usize,
    /// A client that has not read for this long while output waits for it is closed.
    pub write_stall_ms: u64,
    /// A client that sends nothing any more is closed if its streams have found nothing to send for this long, although they
    /// have not looked at everything: most such clients are gone.
    pub search_after_end_ms: u64,
    /// A stream that still needs its snapshot is ended if its client acknowledges nothing for this
    /// long: the snapshot keeps everything in memory that was overwritten since.
    pub snapshot_stall_ms: u64,
    /// How long requests wait for a node that has not caught up with its network yet; then they are
    /// refused. 0: at once. Each connection's requests wait together, at most for this long.
    pub ready_wait_ms: u64,
    /// The window of streams that the greeting offers to clients which want flow control; a
    /// client that asks for another one gets that.
    pub qlen: u64,
    /// Whether `restore` is accepted from other machines, too. Its input is trusted as if it came
    /// from a peer.
    pub remote_restore: bool,
    /// Whether clients are served although the data says that they must log in. The engine decides
    /// by its own setting; here it decides which clients may delete entries that are not enforced.
    pub ignore_auth: bool,
    /// The cluster's keys: clients must log in whatever the data says, and those who have one are admins.
    /// None: clients must log in if the data says so.
    pub cluster_keys: Option<ClusterKeys>,
    /// Where logins, refusals and changes of who may do what are recorded; none: nowhere.
    pub audit: Option<Audit>,
    /// After how long without a link to any other node users cannot log in, in milliseconds: the node cannot know
    /// who was removed meanwhile. None: they always can.
    pub isolated_logins_ms: Option<u64>,
    /// TLS at the client port; none: all in plain text.
    pub tls: Option<TlsSettings>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            message_bytes_max: MESSAGE_BYTES,
            open_requests_max: OPEN_REQUESTS,
            output_bytes_max: 1 << 20,
            connections_max: 10_000,
            refusals_max: super::REFUSALS_MAX,
            kept_connections: 0,
            client_memory_max: CLIENT_MEMORY,
            write_stall_ms: 60_000,
            search_after_end_ms: 10_000,
            snapshot_stall_ms: 300_000,
            ready_wait_ms: READY_WAIT_MS,
            qlen: 10,
            remote_restore: false,
            ignore_auth: false,
            cluster_keys: None,
            audit: None,
            isolated_logins_ms: None,
            tls: None,
        }
    }
}

impl ServerConfig {
    /// The limit of a message that is in force.
    #[must_use]
    pub(crate) fn message_limit(&self) -> usize {
        self.message_bytes_max.max(MESSAGE_BYTES_MIN)
    }
}
