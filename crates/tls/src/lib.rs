//! TLS 1.3 between clients and nodes, the certificates that it needs, and tickets: all that a client must know to
//! connect, in one string. No sockets, files or clock: bytes and time are passed in. Randomness is `ring`'s.
//!
//! | module | what |
//! |---|---|
//! | [`ca`] | a network's certificate authority: making, loading, issuing |
//! | [`pem`] | certificates and keys of the operator's own, as PEM text |
//! | [`server`] | what a node presents, replaceable while it runs; certificates of clients |
//! | [`trust`] | whom a client believes |
//! | [`channel`] | one TLS session, for both sides: bytes in, bytes out |
//! | [`ticket`] | addresses, CA and login in one string |
//! | [`error`] | what can go wrong, and which of address, name, CA and time it is |
//! | `fitness` | whether clients could believe what a node is to show |
//! | `der` | the few fields of a certificate that nothing else tells |

pub mod ca;
pub mod channel;
mod der;
pub mod error;
mod fitness;
pub mod pem;
pub mod server;
pub mod ticket;
pub mod trust;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

pub use ca::{Ca, CaHash, Identity, Period};
pub use channel::Channel;
pub use error::TlsError;
pub use fitness::{Presented, Unfit};
pub use server::ServerTls;
pub use ticket::{Login, Ticket};
pub use trust::{ClientTls, Trust};

/// The protocol that both sides name in the handshake, so that neither a browser nor another service that trusts the
/// same CA is taken for a client or a node. A client that names no protocol is served.
const ALPN_NAME: &[u8] = b"distkv";
/// The same for the HTTP port: what it speaks. A client that offers others only, like HTTP/2, is refused.
const HTTP_ALPN_NAME: &[u8] = b"http/1.1";

/// Tells the time, in seconds since 1970 (UTC).
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// A clock that asks `now` whenever the validity of a certificate is decided.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Seconds since 1970.
    #[must_use]
    pub(crate) fn now(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(self.now())))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
