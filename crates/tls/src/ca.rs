//! A network's certificate authority (CA): a P-256 key and a self-signed certificate, which the key file holds as bytes.
//! Each node issues its own certificate from it, and renews that in memory; an administrator issues those of users.
//!
//! A certificate is valid from an hour ago, for machines whose clocks are a little behind; in the first hour of 1970, from
//! its beginning.

use std::fmt;
use std::str::FromStr;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use ring::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use time::OffsetDateTime;

use crate::{der, provider};

/// Days for which a node's certificate is valid. It is renewed daily.
pub(crate) const NODE_DAYS: u32 = 30;
/// Most days for which a user's certificate can be valid.
pub(crate) const USER_DAYS_MAX: u32 = 3_650;
/// Days for which a CA is valid: longer than any network, as each certificate issued from it ends before.
const CA_DAYS: u32 = 36_500;
/// Names in a node's certificate.
pub(crate) const NAMES_MAX: usize = 64;
/// Bytes of one such name, and of a user's name.
pub(crate) const NAME_BYTES_MAX: usize = 253;
const HOUR_SECS: i64 = 3_600;
const DAY_SECS: i64 = 24 * HOUR_SECS;

/// Why there is no CA, or no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaError {
    /// The key is none, or none for P-256.
    #[error("the CA's private key is no P-256 key in PKCS#8 form ({0})")]
    Key(String),
    /// The certificate is none, or is not of this key and network.
    #[error(
        "the CA's certificate does not belong to its key and the network {network:?} ({reason})"
    )]
    Certificate {
        /// The network's name.
        network: String,
        /// What is wrong.
        reason: String,
    },
    /// A name that a certificate cannot have.
    #[error(
        "{0:?} cannot be a name in a certificate; use a host name, an IP address, or plain ASCII of up to 253 bytes"
    )]
    Name(String),
    /// Too many of them, or none.
    #[error("a node's certificate has from 1 to {NAMES_MAX} names, not {0}")]
    Names(usize),
    /// More or less than possible.
    #[error("a user's certificate is valid for 1 to {USER_DAYS_MAX} days, not {0}")]
    Days(u32),
    /// A time that certificates cannot tell.
    #[error("{0} seconds since 1970 is no time for a certificate; is the clock right?")]
    Time(u64),
    /// Signing failed, or the random source.
    #[error("the certificate could not be made: {0}")]
    Failed(String),
}

/// The SHA-256 of a CA's certificate: by it a client knows the CA. As text, `sha256:` and 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CaHash(pub [u8; 32]);

impl CaHash {
    /// The hash of a certificate (DER).
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        let mut hash = [0; 32];
        for (to, from) in hash.iter_mut().zip(digest(&SHA256, certificate).as_ref()) {
            *to = *from;
        }
        Self(hash)
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text is no hash of a CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the hash of a CA is sha256: and 64 hex digits")]
pub struct HashError;

impl FromStr for CaHash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        let digits = text.strip_prefix("sha256:").ok_or(HashError)?;
        if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(HashError);
        }
        let mut hash = [0; 32];
        for (index, byte) in hash.iter_mut().enumerate() {
            let pair = digits.get(2 * index..2 * index + 2).ok_or(HashError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| HashError)?;
        }
        Ok(Self(hash))
    }
}

/// From when to when a certificate and its chain are valid, in seconds since 1970, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// The first second of the last one to begin.
    pub from: u64,
    /// The last second of the first one to end.
    pub to: u64,
    /// For how many seconds that one is valid in all.
    pub lasts: u64,
}

impl Period {
    /// When a certificate (DER) is valid; a time before 1970 counts as 1970.
    fn of(certificate: &[u8]) -> Option<Self> {
        let validity = der::validity(certificate)?;
        let at = |seconds: i64| u64::try_from(seconds).unwrap_or(0);
        let (from, to) = (at(validity.from), at(validity.to));
        Some(Self { from, to, lasts: to.saturating_sub(from) })
    }

    /// When all of these are valid.
    fn of_all(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let periods = chain.iter().filter_map(|certificate| Self::of(certificate));
        periods.reduce(|a, b| {
            let first_to_end = if a.to <= b.to { a } else { b };
            Self { from: a.from.max(b.from), ..first_to_end }
        })
    }
}

/// A certificate, those that lead from it to its CA (included), and its private key.
pub struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// Invariant: `chain` and `key` as PEM, if this crate issued it; the operator's own is never written.
    pem: Option<(String, String)>,
}

impl Identity {
    pub(crate) fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key, pem: None }
    }

    /// The certificates (DER), the owner's first.
    #[must_use]
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The private key (DER, PKCS#8 if it was issued here).
    #[must_use]
    pub(crate) fn key(&self) -> &[u8] {
        self.key.secret_der()
    }

    /// The chain and the key as PEM text; `None` for one that was not issued here.
    #[must_use]
    pub fn pem(&self) -> Option<(&str, &str)> {
        self.pem.as_ref().map(|(chain, key)| (chain.as_str(), key.as_str()))
    }

    /// When all certificates of the chain are valid; none if that cannot be read.
    #[must_use]
    pub fn period(&self) -> Option<Period> {
        Self::period_of(&self.chain)
    }

    /// The same of another chain.
    pub(crate) fn period_of(chain: &[CertificateDer<'_>]) -> Option<Period> {
        Period::of_all(chain)
    }

    /// What clients pin: the hash of the chain's last certificate.
    #[must_use]
    pub(crate) fn ca_hash(&self) -> Option<CaHash> {
        self.chain.last().map(|certificate| CaHash::of(certificate))
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key(), pem: self.pem.clone() }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} certificates)", self.chain.len())
    }
}

/// A network's CA.
pub struct Ca {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ca({})", self.hash())
    }
}

impl Ca {
    /// A new CA with a new key; `now` in seconds since 1970.
    ///
    /// # Errors
    /// [`CaError`]
    pub fn make(network: &str, now: u64) -> Result<Self, CaError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = authority(network)?;
        (params.not_before, params.not_after) = period(now, CA_DAYS)?;
        let certificate = params.self_signed(&key).map_err(failed)?.der().clone();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// The CA of a network whose private key (PKCS#8) and certificate were made before, both DER.
    ///
    /// # Errors
    /// [`CaError::Key`] or [`CaError::Certificate`] if they are damaged or do not belong together.
    pub fn load(network: &str, key: &[u8], certificate: &[u8]) -> Result<Self, CaError> {
        let key = PrivatePkcs8KeyDer::from(key);
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)
            .map_err(|error| CaError::Key(error.to_string()))?;
        let certificate = CertificateDer::from(certificate.to_vec());
        let ca = Self { certificate, issuer: Issuer::new(authority(network)?, key) };
        ca.check(network)?;
        Ok(ca)
    }

    /// Issues a certificate and looks whether it leads to the CA's: that fails where key, name and certificate are
    /// not of one CA.
    fn check(&self, network: &str) -> Result<(), CaError> {
        let wrong = |reason: String| CaError::Certificate { network: network.to_owned(), reason };
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).map_err(|error| wrong(error.to_string()))?;
        let now = 1_700_000_000;
        let probe = self.issue_node(&["probe"], now)?;
        let leaf = probe.chain.first().ok_or_else(|| wrong(String::from("no certificate")))?;
        let leaf = ParsedCertificate::try_from(leaf).map_err(|error| wrong(error.to_string()))?;
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
        let algorithms = provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&leaf, &roots, &[], now, algorithms)
            .map_err(|_| wrong(String::from("what the key signs is not of this CA")))
    }

    /// The CA's certificate (DER).
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The private key (PKCS#8, DER).
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.issuer.key().serialized_der()
    }

    /// By what clients know this CA.
    #[must_use]
    pub fn hash(&self) -> CaHash {
        CaHash::of(&self.certificate)
    }

    /// A certificate for a node with these names, each a host name or an IP address; valid for [`NODE_DAYS`] from
    /// `now`, which is in seconds since 1970. Repeated names count once.
    ///
    /// # Errors
    /// [`CaError`]
    pub fn issue_node(&self, names: &[&str], now: u64) -> Result<Identity, CaError> {
        let mut different: Vec<String> = Vec::new();
        for name in names {
            check_name(name)?;
            if !different.iter().any(|known| known == name) {
                different.push((*name).to_owned());
            }
        }
        if different.is_empty() || different.len() > NAMES_MAX {
            return Err(CaError::Names(different.len()));
        }
        let first = different.first().cloned().unwrap_or_default();
        let mut params =
            CertificateParams::new(different).map_err(|_| CaError::Name(names.join(" ")))?;
        params.distinguished_name = named(&first);
        (params.not_before, params.not_after) = period(now, NODE_DAYS)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// A certificate by which a client is the user of this name, for so many days from `now`.
    ///
    /// # Errors
    /// [`CaError`]
    pub fn issue_user(&self, user: &str, days: u32, now: u64) -> Result<Identity, CaError> {
        check_name(user)?;
        if !(1..=USER_DAYS_MAX).contains(&days) {
            return Err(CaError::Days(days));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = named(user);
        (params.not_before, params.not_after) = period(now, days)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<Identity, CaError> {
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let pem =
            (certificate.pem() + &crate::pem::certificate(&self.certificate), key.serialize_pem());
        let chain = vec![certificate.der().clone(), self.certificate.clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Identity { chain, key, pem: Some(pem) })
    }
}

/// What a CA's certificate says besides its validity. The same for each start of each version: from it, the issuer is
/// made again.
fn authority(network: &str) -> Result<CertificateParams, CaError> {
    let mut params = CertificateParams::default();
    if network.is_empty() || network.len() > NAME_BYTES_MAX {
        return Err(CaError::Name(network.to_owned()));
    }
    params.distinguished_name = named(network);
    params.distinguished_name.push(DnType::OrganizationName, "distkv network");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn check_name(name: &str) -> Result<(), CaError> {
    let is_good = |b: u8| b.is_ascii_graphic() || b == b' ';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_good) {
        return Err(CaError::Name(name.to_owned()));
    }
    Ok(())
}

/// From an hour before `now` to so many days after it. Not from before 1970: who checks a certificate cannot read such a
/// time, and a machine without a battery has the first hour of 1970 until it is told the time.
fn period(now: u64, days: u32) -> Result<(OffsetDateTime, OffsetDateTime), CaError> {
    let at =
        |seconds: i64| OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| CaError::Time(now));
    let seconds = i64::try_from(now).map_err(|_| CaError::Time(now))?;
    let to = seconds.checked_add(i64::from(days) * DAY_SECS).ok_or(CaError::Time(now))?;
    Ok((at((seconds - HOUR_SECS).max(0))?, at(to)?))
}

fn failed(error: rcgen::Error) -> CaError {
    CaError::Failed(error.to_string())
}
