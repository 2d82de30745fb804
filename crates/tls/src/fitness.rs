//! Whether clients could believe a node that shows a certificate: looked at before it is shown, with what clients look with.
//! The time has no say here: it passes.

use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

use crate::ca::{CaHash, Identity};
use crate::error::plain_names;
use crate::provider;

/// A name that no certificate is for.
const NOBODY: &str = "nobody.invalid";

/// Why no client could believe a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It comes alone, or with a CA that has not issued it.
    #[error(
        "no CA that has issued the certificate is in the file: clients know a node by its CA, which the node must send along, \
         so put its CA's certificate behind it, and between the two those that lead there"
    )]
    NoCa,
    /// Its extended key usage does not have it.
    #[error(
        "the certificate is not for servers (it may be one for clients): no client believes a node that shows it"
    )]
    NotForServers,
}

/// What a node shows its clients: its certificate, and those behind it. Without the private key.
#[derive(Debug, Clone)]
pub struct Presented(Vec<CertificateDer<'static>>);

impl Identity {
    /// What whoever has it shows.
    #[must_use]
    pub fn presented(&self) -> Presented {
        Presented(self.chain().to_vec())
    }
}

impl Presented {
    /// Whether some client could believe a node that shows this. A client believes one certificate, which must be in what is
    /// shown, so any of them may be the one that leads to the node's: the root of a public CA need not be there, and one that has
    /// signed itself is its own.
    ///
    /// # Errors
    /// [`Unfit`]; only where it is certain, as other programs that come by HTTP may be less strict.
    pub fn check(&self) -> Result<(), Unfit> {
        let Some((leaf, others)) = self.0.split_first() else { return Err(Unfit::NoCa) };
        let Ok(parsed) = ParsedCertificate::try_from(leaf) else { return Ok(()) };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.0.iter().cloned());
        let seconds = Identity::period_of(&self.0).map_or(0, |period| period.from);
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let algorithms = provider().signature_verification_algorithms.all;
        let checked =
            verify_server_cert_signed_by_trust_anchor(&parsed, &roots, others, now, algorithms);
        match checked {
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => Err(Unfit::NoCa),
            Err(Error::InvalidCertificate(
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
            )) => Err(Unfit::NotForServers),
            _ => Ok(()),
        }
    }

    /// The names of the node's certificate, as people write them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match self.verify_name(NOBODY) {
            Some(Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented,
                ..
            }))) => plain_names(&presented),
            _ => Vec::new(),
        }
    }

    /// Whether the node's certificate is for this host.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        matches!(self.verify_name(host), Some(Ok(())))
    }

    /// Whether there is a host that both are for.
    #[must_use]
    pub fn shares_a_name_with(&self, other: &Self) -> bool {
        let (own, others) = (self.names(), other.names());
        let is_others = |name: &String| others.contains(name) || other.is_for(name);
        own.iter().any(is_others) || others.iter().any(|name| self.is_for(name))
    }

    /// By what clients know the CA of these: the last.
    #[must_use]
    pub fn ca_hash(&self) -> Option<CaHash> {
        self.0.last().map(|certificate| CaHash::of(certificate))
    }

    /// Whether a client that knows this CA finds it here.
    #[must_use]
    pub fn contains(&self, ca: CaHash) -> bool {
        self.0.iter().any(|certificate| CaHash::of(certificate) == ca)
    }

    /// What a client says to it that comes by this name; none where there is no such name, or nothing to be read.
    fn verify_name(&self, host: &str) -> Option<Result<(), Error>> {
        let parsed = ParsedCertificate::try_from(self.0.first()?).ok()?;
        let name = ServerName::try_from(host).ok()?;
        Some(verify_server_name(&parsed, &name))
    }
}
