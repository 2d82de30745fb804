//! One cluster key: 32 secret bytes, the id that names it in the clear, and the keys derived from it.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use hkdf::Hkdf;
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize as _, ZeroizeOnDrop, Zeroizing};

/// Bytes of a secret, and of every key derived from it.
pub(crate) const SECRET_BYTES: usize = 32;
/// Bytes of a key's id.
pub(crate) const ID_BYTES: usize = 4;

/// What a derived key is for. Two purposes never share a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The pre-shared key of link handshakes.
    Link,
    /// The key of all datagrams.
    Datagram,
    /// Proves at a client port that the client has the key.
    AdminLogin,
}

impl Purpose {
    /// What the derivation is given. A change of a format changes its number.
    fn info(self) -> &'static [u8] {
        match self {
            Self::Link => b"link 1",
            Self::Datagram => b"datagram 1",
            Self::AdminLogin => b"admin login 1",
        }
    }
}

/// Names a key: the first 4 bytes of a hash of its secret, written as 8 hex digits. Not secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; ID_BYTES]);

impl KeyId {
    fn of(secret: &[u8; SECRET_BYTES]) -> Self {
        let hash = Sha256::new().chain_update(b"distkv key id 1").chain_update(secret).finalize();
        let [a, b, c, d, ..] = <[u8; 32]>::from(hash);
        Self([a, b, c, d])
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is no key id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key id is 8 hex digits")]
pub struct KeyIdError;

impl FromStr for KeyId {
    type Err = KeyIdError;

    fn from_str(text: &str) -> Result<Self, KeyIdError> {
        let mut bytes = [0; ID_BYTES];
        if from_hex(text, &mut bytes) { Ok(Self(bytes)) } else { Err(KeyIdError) }
    }
}

/// A cluster key. Its bytes are overwritten when it is dropped, and never shown by `Debug`.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    secret: [u8; SECRET_BYTES],
}

impl Key {
    /// A key of 32 random bytes.
    #[must_use]
    pub fn new(mut secret: [u8; SECRET_BYTES]) -> Self {
        let key = Self { id: KeyId::of(&secret), secret };
        secret.zeroize();
        key
    }

    /// Reads a secret as people write it: 64 hex digits, or base64 with or without its `=`.
    /// `None` if it is neither, or not 32 bytes.
    #[must_use]
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        if !from_hex(text, &mut *secret) {
            let bytes = from_base64(text)?;
            *secret = <[u8; SECRET_BYTES]>::try_from(bytes.as_slice()).ok()?;
        }
        Some(Self::new(*secret))
    }

    /// What names the key.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The secret itself, for storing the key or handing it to another member.
    #[must_use]
    pub fn secret(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }

    /// The secret as hex digits.
    #[must_use]
    pub(crate) fn secret_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * SECRET_BYTES));
        for byte in self.secret {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// The key for one purpose: HKDF-SHA-256 without a salt. Nobody can compute the secret, or the key of
    /// another purpose, from it.
    #[must_use]
    pub fn derive(&self, purpose: Purpose) -> Zeroizing<[u8; SECRET_BYTES]> {
        let mut derived = Zeroizing::new([0; SECRET_BYTES]);
        let hkdf = Hkdf::<Sha256>::new(None, &self.secret);
        // Fails only for outputs of more than 255 hashes.
        let expanded = hkdf.expand(purpose.info(), &mut *derived);
        distkv_model::invariant!(expanded.is_ok(), "32 bytes are a length that HKDF can give");
        derived
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl ZeroizeOnDrop for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The same key: the id is a hash of 32 bits, so secrets are compared, in constant time.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let differences =
            self.secret.iter().zip(&other.secret).fold(0, |all, (a, b)| all | (a ^ b));
        differences == 0
    }
}

impl Eq for Key {}

/// Decodes hex digits that fill `bytes` exactly.
fn from_hex(text: &str, bytes: &mut [u8]) -> bool {
    if text.len() != 2 * bytes.len() || !text.is_ascii() {
        return false;
    }
    let digit = |digit: u8| char::from(digit).to_digit(16);
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let &[high, low] = pair else { return false };
        let (Some(high), Some(low)) = (digit(high), digit(low)) else { return false };
        *byte = (high << 4 | low) as u8;
    }
    true
}

/// Decodes standard base64, padded or not.
pub(crate) fn from_base64(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    use base64::Engine as _;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, config);
    engine.decode(text).ok().map(Zeroizing::new)
}

/// Encodes standard base64, padded.
pub(crate) fn to_base64(bytes: &[u8]) -> Zeroizing<String> {
    use base64::Engine as _;
    Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_in_hex_and_in_base64() {
        let key = Key::new([0xab; 32]);
        assert_eq!(Key::from_text(&key.secret_text()), Some(key.clone()));
        assert_eq!(Key::from_text(&key.secret_text().to_uppercase()), Some(key.clone()));
        let text = to_base64(&[0xab; 32]);
        assert_eq!(Key::from_text(&text), Some(key.clone()));
        assert_eq!(Key::from_text(text.trim_end_matches('=')), Some(key));
    }

    #[test]
    fn what_is_not_32_bytes_is_no_key() {
        let hex = "ab".repeat(32);
        for text in ["", "ab", &hex[1..], &format!("{hex}ab"), &hex.replace('a', "g"), "é"] {
            assert_eq!(Key::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn ids_and_derived_keys_differ_by_secret_and_purpose() {
        let (one, other) = (Key::new([1; 32]), Key::new([2; 32]));
        assert_ne!(one.id(), other.id());
        assert_eq!(one.id().to_string().parse(), Ok(one.id()));
        let purposes = [Purpose::Link, Purpose::Datagram, Purpose::AdminLogin];
        let mut all: Vec<_> = purposes.map(|p| *one.derive(p)).into_iter().collect();
        all.extend(purposes.map(|p| *other.derive(p)));
        all.extend([*one.secret(), *other.secret()]);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8);
    }

    /// The formats on disk and on the wire depend on these: they may never change. Computed apart, with
    /// Python's hashlib and hmac.
    #[test]
    fn the_derivation_is_fixed() {
        let key = Key::new(std::array::from_fn(|at| at as u8));
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(key.id().to_string(), "6d455e33");
        assert_eq!(
            hex(&*key.derive(Purpose::Link)),
            "d08adbc9a3db15b32ea4322e6401d065cb46aa75b8bc3411226b76e5795bc8ff"
        );
        assert_eq!(
            hex(&*key.derive(Purpose::Datagram)),
            "48e58a3d3d606fc3581a28622fd3270631d70bb90c8ac53faf28d72f049ed817"
        );
        assert_eq!(
            hex(&*key.derive(Purpose::AdminLogin)),
            "c477ead7c984ea69c4b5c205e59b6ca903d73b3d3e58cf9daffa83a71acd7d29"
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let text = format!("{:?}", Key::new([0xab; 32]));
        assert!(!text.contains("171") && !text.contains("abab"), "{text}");
    }
}
