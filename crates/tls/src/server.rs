//! The node's side: what it presents, and which certificates of clients it believes. Both are replaced while the node runs;
//! sessions that have begun keep what they began with.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use crate::ca::{Ca, CaHash, Identity, Period};
use crate::channel::Channel;
use crate::error::TlsError;
use crate::pem::{self, PemError};
use crate::{ALPN_NAME, Clock, HTTP_ALPN_NAME, provider};

/// Whose certificates log clients in.
#[derive(Debug, Clone)]
pub struct ClientRoots(RootCertStore);

impl ClientRoots {
    /// Nobody's.
    #[must_use]
    pub fn none() -> Self {
        Self(RootCertStore::empty())
    }

    /// Those that the network's CA has issued to users, too.
    ///
    /// # Errors
    /// [`TlsError::Settings`] if the CA's certificate cannot be one.
    pub fn with_ca(mut self, ca: &Ca) -> Result<Self, TlsError> {
        let certificate = ca.certificate().to_vec().into();
        self.0.add(certificate).map_err(|error| TlsError::Settings(error.to_string()))?;
        Ok(self)
    }

    /// Those that a CA of the operator's has issued, too (`--client-ca`, PEM).
    ///
    /// # Errors
    /// [`PemError`]
    pub fn with_pem(mut self, text: &[u8]) -> Result<Self, PemError> {
        self.0.roots.extend(pem::roots(text)?.roots);
        Ok(self)
    }
}

/// What a node presents to its clients.
pub struct ServerTls {
    clock: Clock,
    current: RwLock<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    /// For those that come by HTTP.
    http: Arc<ServerConfig>,
    hash: Option<CaHash>,
    period: Option<Period>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerTls({:?})", self.current.read().hash)
    }
}

impl ServerTls {
    /// Presents this certificate; a client may present one of `clients`.
    ///
    /// # Errors
    /// [`TlsError::Settings`] if the key is not the certificate's, or of an unknown kind.
    pub fn new(identity: &Identity, clients: &ClientRoots, clock: Clock) -> Result<Self, TlsError> {
        let current = RwLock::new(Current::new(identity, clients, &clock)?);
        Ok(Self { clock, current })
    }

    /// Presents another certificate from now on, to new clients.
    ///
    /// # Errors
    /// As [`ServerTls::new`]; then nothing has changed.
    pub fn replace(&self, identity: &Identity, clients: &ClientRoots) -> Result<(), TlsError> {
        let next = Current::new(identity, clients, &self.clock)?;
        *self.current.write() = next;
        Ok(())
    }

    /// What clients pin: the hash of the last certificate of the chain that is presented now.
    #[must_use]
    pub fn ca_hash(&self) -> Option<CaHash> {
        self.current.read().hash
    }

    /// When the certificate that is presented now is valid, with all of its chain.
    #[must_use]
    pub fn period(&self) -> Option<Period> {
        self.current.read().period
    }

    /// A session with a client that has just connected.
    ///
    /// # Errors
    /// [`TlsError::Settings`]
    pub fn accept(&self) -> Result<Channel, TlsError> {
        Channel::server(Arc::clone(&self.current.read().config))
    }

    /// A session with whoever has just connected to speak HTTP/1.1: with the same certificate, and without a question for
    /// the client's, which a browser would pass on to its user.
    ///
    /// # Errors
    /// [`TlsError::Settings`]
    pub fn accept_http(&self) -> Result<Channel, TlsError> {
        Channel::server(Arc::clone(&self.current.read().http))
    }
}

impl Current {
    fn new(identity: &Identity, clients: &ClientRoots, clock: &Clock) -> Result<Self, TlsError> {
        Ok(Self {
            config: settings(identity, clients, clock, ALPN_NAME)?,
            http: settings(identity, &ClientRoots::none(), clock, HTTP_ALPN_NAME)?,
            hash: identity.ca_hash(),
            period: identity.period(),
        })
    }
}

/// How a node speaks TLS with those that speak `protocol`.
fn settings(
    identity: &Identity,
    clients: &ClientRoots,
    clock: &Clock,
    protocol: &[u8],
) -> Result<Arc<ServerConfig>, TlsError> {
    let failed = |error: rustls::Error| TlsError::Settings(error.to_string());
    let builder = ServerConfig::builder_with_details(provider(), Arc::new(clock.clone()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?;
    let builder = if clients.0.is_empty() {
        builder.with_no_client_auth()
    } else {
        let roots = Arc::new(clients.0.clone());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .allow_unauthenticated()
            .build()
            .map_err(|error| TlsError::Settings(error.to_string()))?;
        builder.with_client_cert_verifier(verifier)
    };
    let mut config = builder
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())
        .map_err(failed)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    // No session outlives its connection: a handshake is cheap, and each one checks the certificates anew.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}
