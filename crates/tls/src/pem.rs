//! Certificates and keys of the operator's own, as PEM text: read whole, checked before they are used.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::ca::{CaHash, Identity};
use crate::der::Validity;
use crate::error::date;
use crate::{der, provider};

/// Certificates in one file.
pub(crate) const CERTIFICATES_MAX: usize = 64;
/// Bytes of such a file. TLS itself carries no chain of more than 64 KiB.
pub const PEM_BYTES_MAX: usize = 256 << 10;
const LINE_CHARS: usize = 64;

/// Why a certificate or key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// There is none.
    #[error("no {what} in it: it must be PEM text with -----BEGIN {label}-----")]
    Missing {
        /// What should be there.
        what: &'static str,
        /// The label in PEM.
        label: &'static str,
    },
    /// It is damaged.
    #[error("the PEM text is damaged: {0}")]
    Damaged(String),
    /// The key is encrypted.
    #[error(
        "the private key is encrypted with a passphrase, for which a node cannot ask; decrypt it, with `umask 077; \
         openssl pkey -in FILE -out NEW`, and name the new file"
    )]
    Encrypted,
    /// More than a node reads.
    #[error("{0}: more than {PEM_BYTES_MAX} bytes, or more than {CERTIFICATES_MAX} certificates")]
    TooLarge(&'static str),
    /// The key is not the certificate's, or of a kind that is not supported.
    #[error(
        "the private key does not belong to the first certificate, or is of an unknown kind ({0})"
    )]
    Key(String),
    /// No longer, or not yet, valid.
    #[error("the certificate is valid from {from} to {to}, and now it is {now}")]
    Time {
        /// Its first second.
        from: String,
        /// Its last second.
        to: String,
        /// The present time.
        now: String,
    },
}

/// The operator's certificate, with the chain to its CA, and its key. `now` in seconds since 1970.
///
/// # Errors
/// [`PemError`]
pub fn identity(chain: &[u8], key: &[u8], now: u64) -> Result<Identity, PemError> {
    let identity = identity_of_any_time(chain, key)?;
    for certificate in identity.chain() {
        check_time(certificate, now)?;
    }
    Ok(identity)
}

/// The same, for who looks by itself whether it is valid now ([`Identity::period`]).
///
/// # Errors
/// [`PemError`], but [`PemError::Time`].
pub fn identity_of_any_time(chain: &[u8], key: &[u8]) -> Result<Identity, PemError> {
    let chain = certificates(chain)?;
    if key.len() > PEM_BYTES_MAX {
        return Err(PemError::TooLarge("the key"));
    }
    if is_encrypted(key) {
        return Err(PemError::Encrypted);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        pem::Error::NoItemsFound => PemError::Missing { what: "private key", label: "PRIVATE KEY" },
        error => damaged(&error),
    })?;
    CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider())
        .map_err(|error| PemError::Key(error.to_string()))?;
    for certificate in &chain {
        validity(certificate)?;
    }
    Ok(Identity::new(chain, key))
}

/// Whether the first private key in a text is encrypted, in either form: a label says so, or a header below it.
fn is_encrypted(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii);
    let begins =
        |line: &[u8]| line.starts_with(b"-----BEGIN ") && line.ends_with(b"PRIVATE KEY-----");
    match lines.find(|line| begins(line)) {
        Some(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") => true,
        Some(_) => lines
            .find(|line| !line.is_empty())
            .is_some_and(|line| line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED")),
        None => false,
    }
}

/// What is wrong with a PEM text. The library shows the bytes of a line as numbers.
fn damaged(error: &pem::Error) -> PemError {
    let shown =
        |line: &[u8]| String::from_utf8_lossy(line).chars().take(LINE_CHARS).collect::<String>();
    PemError::Damaged(match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("the line -----END {}----- is missing", shown(end_marker).escape_debug())
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("the line {:?} begins nothing", shown(line))
        }
        error => error.to_string(),
    })
}

/// Certificates of CAs that are trusted.
///
/// # Errors
/// [`PemError`]
pub(crate) fn roots(pem: &[u8]) -> Result<RootCertStore, PemError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| PemError::Damaged(error.to_string()))?;
    }
    Ok(roots)
}

/// By what clients know the CA in this text: the hash of its last certificate.
///
/// # Errors
/// [`PemError`]
pub fn ca_hash(pem: &[u8]) -> Result<CaHash, PemError> {
    let missing = PemError::Missing { what: "certificate", label: "CERTIFICATE" };
    certificates(pem)?.last().map(|certificate| CaHash::of(certificate)).ok_or(missing)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    if pem.len() > PEM_BYTES_MAX {
        return Err(PemError::TooLarge("the certificates"));
    }
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        if found.len() == CERTIFICATES_MAX {
            return Err(PemError::TooLarge("the certificates"));
        }
        found.push(certificate.map_err(|error| damaged(&error))?);
    }
    if found.is_empty() {
        return Err(PemError::Missing { what: "certificate", label: "CERTIFICATE" });
    }
    Ok(found)
}

fn validity(certificate: &[u8]) -> Result<Validity, PemError> {
    let damaged =
        || PemError::Damaged(String::from("the certificate has no validity that can be read"));
    der::validity(certificate).ok_or_else(damaged)
}

fn check_time(certificate: &[u8], now: u64) -> Result<(), PemError> {
    let validity = validity(certificate)?;
    let seconds = i64::try_from(now).unwrap_or(i64::MAX);
    if (validity.from..=validity.to).contains(&seconds) {
        return Ok(());
    }
    Err(PemError::Time { from: date(validity.from), to: date(validity.to), now: date(seconds) })
}

/// A certificate (DER) as PEM text.
#[must_use]
pub fn certificate(der: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = STANDARD.encode(der);
    while !rest.is_empty() {
        let behind = rest.split_off(rest.len().min(LINE_CHARS));
        text.push_str(&rest);
        text.push('\n');
        rest = behind;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}
