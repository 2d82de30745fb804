//! One sealed datagram: its bytes, and the keys that seal and open it.

use chacha20poly1305::aead::{AeadInPlace as _, KeyInit as _};
use chacha20poly1305::{Key as AeadKey, Tag, XChaCha20Poly1305, XNonce};

use crate::key::{ID_BYTES, KeyId, Purpose};
use crate::key_ring::KeyRing;

pub(super) const MAGIC: [u8; 4] = *b"dkvS";
pub(super) const VERSION: u8 = 1;
/// The flags of a plaintext datagram, and of a sealed one.
const PLAIN: u8 = 0;
const SEALED: u8 = 1;
/// Bytes of magic, version and flags.
pub(super) const HEAD_BYTES: usize = 6;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// What is authenticated besides the sealed part; the nonce is, by its use.
const CLEAR_BYTES: usize = HEAD_BYTES + ID_BYTES;
const SEALED_AT: usize = CLEAR_BYTES + NONCE_BYTES;

/// Bytes that sealing adds to a datagram.
pub(crate) const OVERHEAD_BYTES: usize = ID_BYTES + NONCE_BYTES + TAG_BYTES;

/// Who seals for whom, and the how manyth datagram of this sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonce {
    pub(super) sender: u64,
    pub(super) counter: u64,
    /// 0 if the sender does not know it.
    pub(super) receiver: u64,
}

impl Nonce {
    fn to_bytes(self) -> [u8; NONCE_BYTES] {
        let mut bytes = [0; NONCE_BYTES];
        let numbers = [self.sender, self.counter, self.receiver];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; NONCE_BYTES]) -> Option<Self> {
        let (numbers, _) = bytes.as_chunks::<8>();
        let [sender, counter, receiver] = *<&[[u8; 8]; 3]>::try_from(numbers).ok()?;
        let [sender, counter, receiver] = [sender, counter, receiver].map(u64::from_be_bytes);
        Some(Self { sender, counter, receiver })
    }
}

/// A datagram whose clear part was read; whether it is genuine is not known yet.
pub(super) struct Read<'a> {
    pub(super) id: KeyId,
    pub(super) nonce: Nonce,
    clear: &'a [u8],
    nonce_bytes: &'a [u8],
    sealed: &'a [u8],
    tag: &'a [u8],
}

/// What bytes are that are no sealed datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotSealed {
    Plaintext,
    Malformed,
}

/// Reads the clear part.
pub(super) fn read(bytes: &[u8]) -> Result<Read<'_>, NotSealed> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(NotSealed::Malformed)?;
    match rest {
        [VERSION, SEALED, ..] => {}
        [VERSION, PLAIN, ..] => return Err(NotSealed::Plaintext),
        _ => return Err(NotSealed::Malformed),
    }
    let parts = || {
        let (clear, rest) = bytes.split_at_checked(CLEAR_BYTES)?;
        let (nonce_bytes, rest) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let (sealed, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        let id = KeyId(*clear.last_chunk()?);
        let nonce = Nonce::from_bytes(nonce_bytes)?;
        Some(Read { id, nonce, clear, nonce_bytes, sealed, tag })
    };
    parts().ok_or(NotSealed::Malformed)
}

/// What a plaintext datagram has behind its head: kind, network, body.
pub(super) fn content(plain: &[u8]) -> Option<&[u8]> {
    let (head, content) = plain.split_at_checked(HEAD_BYTES)?;
    (head.strip_prefix(&MAGIC) == Some(&[VERSION, PLAIN])).then_some(content)
}

/// A plaintext datagram's first bytes.
fn plain_head() -> Vec<u8> {
    [MAGIC.as_slice(), &[VERSION, PLAIN]].concat()
}

/// The datagram keys of a ring.
pub(super) struct Keys {
    /// In the ring's order; at most its `KEYS_MAX`.
    keys: Vec<(KeyId, XChaCha20Poly1305)>,
    primary: KeyId,
}

impl Keys {
    pub(super) fn new(ring: &KeyRing) -> Self {
        let cipher = |key: &[u8; 32]| XChaCha20Poly1305::new(AeadKey::from_slice(key));
        let keys = ring.keys().iter();
        let keys = keys.map(|key| (key.id(), cipher(&key.derive(Purpose::Datagram)))).collect();
        Self { keys, primary: ring.primary_id() }
    }

    fn get(&self, id: KeyId) -> Option<&XChaCha20Poly1305> {
        self.keys.iter().find(|(known, _)| *known == id).map(|(_, cipher)| cipher)
    }

    pub(super) fn has(&self, id: KeyId) -> bool {
        self.get(id).is_some()
    }

    /// Seals content with the primary key. None only if a datagram were longer than 256 GiB.
    pub(super) fn seal(&self, nonce: Nonce, content: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(SEALED_AT + content.len() + TAG_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, SEALED]);
        bytes.extend_from_slice(&self.primary.0);
        bytes.extend_from_slice(&nonce.to_bytes());
        bytes.extend_from_slice(content);
        let (clear, sealed) = bytes.split_at_mut_checked(SEALED_AT)?;
        let (clear, nonce) = clear.split_at(CLEAR_BYTES);
        let cipher = self.get(self.primary)?;
        let nonce = XNonce::from_slice(nonce);
        let tag = cipher.encrypt_in_place_detached(nonce, clear, sealed).ok()?;
        bytes.extend_from_slice(&tag);
        Some(bytes)
    }

    /// Opens a datagram: the plaintext one that was sealed. `None` if it is forged or damaged.
    pub(super) fn open(&self, read: &Read<'_>) -> Option<Vec<u8>> {
        let mut plain = plain_head();
        plain.extend_from_slice(read.sealed);
        let sealed = plain.get_mut(HEAD_BYTES..)?;
        let (nonce, tag) = (XNonce::from_slice(read.nonce_bytes), Tag::from_slice(read.tag));
        self.get(read.id)?.decrypt_in_place_detached(nonce, read.clear, sealed, tag).ok()?;
        Some(plain)
    }
}
