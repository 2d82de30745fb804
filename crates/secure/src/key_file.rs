//! The text of a key file. Reading and writing the file, and its mode (0600), are the program's affair.
//!
//! ```text
//! # Comments and empty lines are ignored.
//! network plant
//! key 1f0c3a77 8f…64 hex digits, or base64…2c primary
//! key 90b2e1d4 … shared
//! removed 5512aa01 shared
//! used 3 1f0c3a77
//! ca key MIGHAgEAMBMGByq…          P-256, PKCS#8 DER, base64
//! ca certificate MIIBgTCCASe…      DER, base64
//! ```
//!
//! One `network`, 1 to 4 `key`, of which one is `primary` (a single key needs no mark), at most 16
//! `removed` (ids of keys that no other node may bring back), at most one `used`, and both or none of the `ca`
//! lines. `shared` marks what was ordered over the network, and is handed to other nodes; `used` counts the
//! orders to use another key, and names the key of the last one.

use std::fmt::Write as _;

use distkv_core::membership::NetworkName;
use distkv_model::ids::NameError;
use zeroize::Zeroizing;

use crate::key::{Key, KeyId, from_base64, to_base64};
use crate::key_ring::{Applied, KEYS_MAX, KeyRing, REMOVED_MAX, RingError, Used};

/// Most bytes of a key file.
pub const FILE_BYTES_MAX: usize = 32 << 10;
/// Most bytes of the certificate authority's key or certificate, in DER.
const CA_BYTES_MAX: usize = 4 << 10;

/// The certificate authority of the network's clients: opaque here.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateAuthority {
    /// PKCS#8 of a P-256 key, DER. Secret.
    pub key: Zeroizing<Vec<u8>>,
    /// Its certificate, DER.
    pub certificate: Vec<u8>,
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateAuthority").finish_non_exhaustive()
    }
}

/// What a key file contains. Secrets are overwritten when it is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// The network and its keys.
    pub ring: KeyRing,
    /// What client certificates are made from, if the file has it.
    pub ca: Option<CertificateAuthority>,
}

/// Why a text is no key file, and in which line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", place(*line))]
pub struct KeyFileError {
    /// The line, from 1; 0 if something is missing in the whole file.
    pub line: usize,
    /// What is wrong.
    pub problem: Problem,
}

fn place(line: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}

/// What is wrong with a key file, and what to do. No text shows a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what each one is")]
pub enum Problem {
    #[error("a key file has at most {FILE_BYTES_MAX} bytes; is this the right file?")]
    TooLong,
    #[error(
        "it does not begin with `network`, `key`, `removed`, `used`, `ca` or `#`. If this is no key file, make one with \
         `distkv-node key new`; if a newer version of distkv-node wrote it, use that version; else remove the line"
    )]
    Unknown,
    #[error("`network` takes one name, as in `network plant`")]
    Network,
    #[error("{0}")]
    NetworkName(#[from] NameError),
    #[error("`network` stands there twice; keep one")]
    NetworkTwice,
    #[error("there is no `network` line; add `network NAME`, or copy the file from another node")]
    NoNetwork,
    #[error(
        "a key is written `key ID SECRET` or `key ID SECRET primary`; copy the line from a node that works"
    )]
    Key,
    #[error("the id of a key is 8 hex digits; copy the line from a node that works")]
    Id,
    #[error(
        "a secret is 32 bytes, as 64 hex digits or base64; copy the line from a node that works"
    )]
    Secret,
    #[error(
        "the secret has the id {is}, not {told}: the line is damaged; copy it from a node that works"
    )]
    OtherId { told: KeyId, is: KeyId },
    #[error("key {0} stands there twice; keep one of the lines")]
    KeyTwice(KeyId),
    #[error("more than {KEYS_MAX} keys; remove those that are not used any more")]
    KeysTooMany,
    #[error(
        "there is no key; copy the file from another node, or, for a new network, make one with `key new --network NAME`"
    )]
    NoKey,
    #[error("keys {0} and {1} are both marked `primary`; unmark one")]
    TwoPrimaries(KeyId, KeyId),
    #[error("none of the keys is marked `primary`; mark the one that the other nodes use")]
    NoPrimary,
    #[error("a removed key is written `removed ID`, 8 hex digits; remove the line")]
    Removed,
    #[error("the last order to use a key is written `used COUNT ID`, once; remove the line")]
    Used,
    #[error("key {0} is listed as removed, too; remove one of the two lines")]
    KeyAndRemoved(KeyId),
    #[error("more than {REMOVED_MAX} removed keys; remove the first of these lines")]
    RemovedTooMany,
    #[error(
        "`ca` is written `ca key BASE64` and `ca certificate BASE64`, at most {CA_BYTES_MAX} bytes each"
    )]
    Ca,
    #[error("`ca {0}` stands there twice; keep one")]
    CaTwice(&'static str),
    #[error("`ca {0}` is missing; a certificate authority has both a key and a certificate")]
    CaHalf(&'static str),
}

/// What the lines said so far.
#[derive(Default)]
struct Lines {
    network: Option<NetworkName>,
    keys: Vec<Key>,
    primary: Option<KeyId>,
    removed: Vec<KeyId>,
    /// Of the keys and the removed ones.
    shared: Vec<KeyId>,
    used: Option<Used>,
    ca_key: Option<Zeroizing<Vec<u8>>>,
    ca_certificate: Option<Zeroizing<Vec<u8>>>,
}

impl KeyFile {
    /// Reads the text of a key file.
    ///
    /// # Errors
    /// [`KeyFileError`] names the line and says what to do; it never shows a secret.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let at = |line| move |problem| KeyFileError { line, problem };
        if text.len() > FILE_BYTES_MAX {
            return Err(at(0)(Problem::TooLong));
        }
        let mut lines = Lines::default();
        for (number, line) in (1..).zip(text.lines()) {
            lines.take(line).map_err(at(number))?;
        }
        lines.finish().map_err(at(0))
    }

    /// The text of a key file, with a comment at its head. [`Self::parse`] reads it back.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // Large enough that no copy with secrets is left behind when it grows.
        let ca_bytes = self.ca.as_ref().map_or(0, |ca| ca.key.len() + ca.certificate.len());
        let mut text = Zeroizing::new(String::with_capacity(2_048 + 2 * ca_bytes));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "# The key of a distkv network: whoever has it is a member and an administrator.\n\
             # Copy it to every node, readable by its user only.\n\
             network {}",
            self.ring.network()
        );
        for key in self.ring.keys() {
            let mark = if key.id() == self.ring.primary_id() { " primary" } else { "" };
            let shared = shared_mark(&self.ring, key.id());
            let _ = writeln!(text, "key {} {}{mark}{shared}", key.id(), *key.secret_text());
        }
        for id in self.ring.removed() {
            let _ = writeln!(text, "removed {id}{}", shared_mark(&self.ring, *id));
        }
        if let Some(Used { count, id }) = self.ring.used() {
            let _ = writeln!(text, "used {count} {id}");
        }
        if let Some(ca) = &self.ca {
            let _ = writeln!(text, "ca key {}", *to_base64(&ca.key));
            let _ = writeln!(text, "ca certificate {}", *to_base64(&ca.certificate));
        }
        text
    }
}

fn shared_mark(ring: &KeyRing, id: KeyId) -> &'static str {
    if ring.is_shared(id) { " shared" } else { "" }
}

/// The first words behind the one that a line begins with; no line has as many.
type Words<'a> = [Option<&'a str>; 5];

impl Lines {
    fn take(&mut self, line: &str) -> Result<(), Problem> {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { return Ok(()) };
        if first.starts_with('#') {
            return Ok(());
        }
        let words = std::array::from_fn(|_| words.next());
        match first {
            "network" => self.take_network(words),
            "key" => self.take_key(words),
            "removed" => self.take_removed(words),
            "used" => self.take_used(words),
            "ca" => self.take_ca(words),
            _ => Err(Problem::Unknown),
        }
    }

    fn take_network(&mut self, words: Words<'_>) -> Result<(), Problem> {
        let [Some(name), None, ..] = words else { return Err(Problem::Network) };
        if self.network.is_some() {
            return Err(Problem::NetworkTwice);
        }
        self.network = Some(NetworkName::new(name)?);
        Ok(())
    }

    fn take_key(&mut self, words: Words<'_>) -> Result<(), Problem> {
        let [Some(id), Some(secret), marks @ ..] = words else { return Err(Problem::Key) };
        let (is_primary, is_shared) = match marks {
            [None, ..] => (false, false),
            [Some("primary"), None, _] => (true, false),
            [Some("shared"), None, _] => (false, true),
            [Some("primary"), Some("shared"), None] => (true, true),
            _ => return Err(Problem::Key),
        };
        let told = id.parse().map_err(|_| Problem::Id)?;
        let key = Key::from_text(secret).ok_or(Problem::Secret)?;
        let is = key.id();
        if is != told {
            return Err(Problem::OtherId { told, is });
        }
        if self.keys.iter().any(|key| key.id() == is) {
            return Err(Problem::KeyTwice(is));
        }
        if self.removed.contains(&is) {
            return Err(Problem::KeyAndRemoved(is));
        }
        if self.keys.len() >= KEYS_MAX {
            return Err(Problem::KeysTooMany);
        }
        if is_primary {
            if let Some(other) = self.primary {
                return Err(Problem::TwoPrimaries(other, is));
            }
            self.primary = Some(is);
        }
        if is_shared {
            self.shared.push(is);
        }
        self.keys.push(key);
        Ok(())
    }

    fn take_removed(&mut self, words: Words<'_>) -> Result<(), Problem> {
        let (id, is_shared) = match words {
            [Some(id), None, ..] => (id, false),
            [Some(id), Some("shared"), None, ..] => (id, true),
            _ => return Err(Problem::Removed),
        };
        let id = id.parse().map_err(|_| Problem::Removed)?;
        if self.keys.iter().any(|key| key.id() == id) {
            return Err(Problem::KeyAndRemoved(id));
        }
        if self.removed.len() >= REMOVED_MAX {
            return Err(Problem::RemovedTooMany);
        }
        if is_shared {
            self.shared.push(id);
        }
        self.removed.push(id);
        Ok(())
    }

    fn take_used(&mut self, words: Words<'_>) -> Result<(), Problem> {
        let [Some(count), Some(id), None, ..] = words else { return Err(Problem::Used) };
        let (count, id) = (count.parse(), id.parse());
        let (Ok(count), Ok(id), None) = (count, id, self.used) else { return Err(Problem::Used) };
        self.used = Some(Used { count, id });
        Ok(())
    }

    fn take_ca(&mut self, words: Words<'_>) -> Result<(), Problem> {
        let [Some(what), Some(base64), None, ..] = words else { return Err(Problem::Ca) };
        let (slot, name) = match what {
            "key" => (&mut self.ca_key, "key"),
            "certificate" => (&mut self.ca_certificate, "certificate"),
            _ => return Err(Problem::Ca),
        };
        if slot.is_some() {
            return Err(Problem::CaTwice(name));
        }
        let bytes = from_base64(base64).ok_or(Problem::Ca)?;
        if bytes.is_empty() || bytes.len() > CA_BYTES_MAX {
            return Err(Problem::Ca);
        }
        *slot = Some(bytes);
        Ok(())
    }

    fn finish(self) -> Result<KeyFile, Problem> {
        let only = self.keys.len() == 1;
        let mut keys = self.keys.into_iter();
        // Of a file with nothing in it, this says more.
        let first = keys.next().ok_or(Problem::NoKey)?;
        let network = self.network.ok_or(Problem::NoNetwork)?;
        let primary = self.primary.or(only.then(|| first.id())).ok_or(Problem::NoPrimary)?;
        let mut ring = KeyRing::new(network, first);
        for key in keys {
            let id = key.id();
            match ring.add(key) {
                Ok(Applied::Changed) => {}
                Err(RingError::Full) => return Err(Problem::KeysTooMany),
                _ => return Err(Problem::KeyTwice(id)),
            }
        }
        if ring.make_primary(primary).is_err() {
            return Err(Problem::NoPrimary);
        }
        self.removed.iter().for_each(|id| ring.remember_removed(*id));
        ring.restore(&self.shared, self.used);
        let ca = match (self.ca_key, self.ca_certificate) {
            (Some(key), Some(certificate)) => {
                Some(CertificateAuthority { key, certificate: certificate.to_vec() })
            }
            (None, None) => None,
            (Some(_), None) => return Err(Problem::CaHalf("certificate")),
            (None, Some(_)) => return Err(Problem::CaHalf("key")),
        };
        Ok(KeyFile { ring, ca })
    }
}

#[cfg(test)]
mod tests;
