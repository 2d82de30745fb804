//! The client's side: whom it believes. Either the CA with a hash that it was told, which the node's chain must contain, or
//! CAs from a file. Nothing is taken from the system.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, PeerIncompatible,
    RootCertStore, SignatureScheme,
};

use crate::ca::{CaHash, Identity};
use crate::channel::Channel;
use crate::error::{OtherCa, TlsError};
use crate::pem::{self, PemError};
use crate::{ALPN_NAME, Clock, provider};

/// Whom a client believes.
#[derive(Debug, Clone)]
pub struct Trust {
    trusted: Trusted,
    /// The certificate must be for the host that is connected to.
    is_named: bool,
}

#[derive(Debug, Clone)]
enum Trusted {
    Hash(CaHash),
    Roots(Arc<RootCertStore>),
}

impl Trust {
    /// The CA whose certificate has this hash. The node must present it.
    #[must_use]
    pub fn hash(hash: CaHash) -> Self {
        Self { trusted: Trusted::Hash(hash), is_named: true }
    }

    /// The CAs in a PEM file.
    ///
    /// # Errors
    /// [`PemError`]
    pub fn pem(text: &[u8]) -> Result<Self, PemError> {
        Ok(Self { trusted: Trusted::Roots(Arc::new(pem::roots(text)?)), is_named: true })
    }
}

impl Trust {
    /// Believes any node's certificate of that CA, whatever host it is for. Only for a CA whose certificates for
    /// servers are all of nodes that may do everything anyway: that of a network's key file.
    #[must_use]
    pub fn whatever_its_name(self) -> Self {
        Self { is_named: false, ..self }
    }
}

/// How a client connects by TLS; any number of connections share it.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

/// The same settings, not merely equal ones.
impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientTls {}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls")
    }
}

impl ClientTls {
    /// Believes `trust`, and presents `identity` if the node asks for a certificate.
    ///
    /// # Errors
    /// [`TlsError::Settings`] if the certificate and its key do not belong together.
    pub fn new(trust: Trust, identity: Option<&Identity>, clock: Clock) -> Result<Self, TlsError> {
        let failed = |error: Error| TlsError::Settings(error.to_string());
        let provider = provider();
        let verifier = Arc::new(Verifier { trust, provider: Arc::clone(&provider) });
        let builder = ClientConfig::builder_with_details(provider, Arc::new(clock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match identity {
            Some(identity) => builder
                .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                .map_err(failed)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN_NAME.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// A session with the node at `host`, a name or an IP address (without brackets) that its certificate must have. The
    /// zone of an IPv6 address (`fe80::1%eth0`) is left out: it is this machine's, so no certificate has it.
    ///
    /// # Errors
    /// [`TlsError::BadName`] if no certificate could have this name.
    pub fn connect(&self, host: &str) -> Result<Channel, TlsError> {
        let name = ServerName::try_from(without_zone(host).to_owned())
            .map_err(|_| TlsError::BadName(host.to_owned()))?;
        Channel::client(Arc::clone(&self.0), name)
    }
}

/// An IPv6 address without its zone; anything else as it is.
fn without_zone(host: &str) -> &str {
    match host.split_once('%') {
        Some((ip, zone)) if !zone.is_empty() && ip.parse::<Ipv6Addr>().is_ok() => ip,
        _ => host,
    }
}

/// Decides whether a node's certificate is believed.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// The one certificate of a chain that has this hash.
    fn pinned(
        wanted: CaHash,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
    ) -> Result<RootCertStore, Error> {
        let mut chain = others.iter().rev().chain([leaf]);
        let Some(found) = chain.find(|certificate| CaHash::of(certificate) == wanted) else {
            let found = CaHash::of(others.last().unwrap_or(leaf));
            let other = OtherError(Arc::new(OtherCa { wanted, found }));
            return Err(CertificateError::Other(other).into());
        };
        let mut roots = RootCertStore::empty();
        roots.add(found.clone().into_owned())?;
        Ok(roots)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let pinned;
        let roots = match &self.trust.trusted {
            Trusted::Roots(roots) => roots.as_ref(),
            Trusted::Hash(hash) => {
                pinned = Self::pinned(*hash, end_entity, intermediates)?;
                &pinned
            }
        };
        let leaf = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&leaf, roots, intermediates, now, algorithms)?;
        if self.trust.is_named {
            verify_server_name(&leaf, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
