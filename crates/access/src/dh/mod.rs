//! The Diffie-Hellman of the original's password logins, and the boxes sealed with its key.
//!
//! The client sends `diffie_hellman` with its public number and a `length`; the answer has this node's. The
//! group is RFC 3526's 5 if `length` is below 32, else its 14; the generator is 2. Numbers are big-endian
//! without leading zero bytes. The key is the first 32 bytes of the shared number in that form, without a
//! hash. Boxes are NaCl's secretbox: nonce (24), tag (16), the rest.
//!
//! Nothing says whose the numbers are: this keeps the secret from those who only listen.

#[cfg(test)]
mod tests;

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{JacobiSymbol, Odd, U512, U1536, U2048, Uint};
use crypto_secretbox::aead::{Aead, KeyInit};
use crypto_secretbox::{Nonce, XSalsa20Poly1305};
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a private number. All exponentiations take as long as with one of this length.
pub const PRIVATE_BYTES: usize = 40;
/// Bytes of a box's nonce.
pub const NONCE_BYTES: usize = 24;
/// Bytes of a box's tag.
const TAG_BYTES: usize = 16;
/// Most bytes of a public number that is looked at: group 14's.
const PUBLIC_BYTES_MAX: usize = 256;
/// Most bytes of a box that is opened; passwords' hashes have 32.
const BOX_BYTES_MAX: usize = 4_096;
/// Below this `length`, the original takes group 5.
const SHORT_LENGTH: u64 = 32;

const GROUP_5: Odd<U1536> = Odd::<U1536>::from_be_hex(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
     EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F\
     83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA237327FFFFFFFFFFFFFFFF",
);
const GROUP_14: Odd<U2048> = Odd::<U2048>::from_be_hex(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
     EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
     EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F\
     83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
     E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510\
     15728E5A8AACAA68FFFFFFFFFFFFFFFF",
);

/// Why there is no shared key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DhError {
    /// The client asked for group 5, which is too small to be taken here.
    #[error("a 'length' below {SHORT_LENGTH} is refused here: its group is too small")]
    TooShort,
    /// The client's number is not between 2 and p - 1, both excluded.
    #[error("Public key malformed: it is out of range")]
    OutOfRange,
    /// The client's number is no square modulo p.
    #[error("Public key malformed: fails Legendre symbol verification.")]
    NoSquare,
    /// The shared number has fewer bytes than a key. By chance, this does not happen.
    #[error("the shared number is too short")]
    ShortShared,
}

/// A box could not be opened: it was not sealed with this key, or it is too long or too short.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Decryption failed. Ciphertext failed verification")]
pub struct BadBox;

/// One of RFC 3526's groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// 1,536 bits.
    Five,
    /// 2,048 bits.
    Fourteen,
}

impl Group {
    /// The group for a client's `length`.
    ///
    /// # Errors
    /// It asks for group 5, and `takes_five` is false.
    pub fn of_length(length: u64, takes_five: bool) -> Result<Self, DhError> {
        match (length < SHORT_LENGTH, takes_five) {
            (false, _) => Ok(Self::Fourteen),
            (true, true) => Ok(Self::Five),
            (true, false) => Err(DhError::TooShort),
        }
    }
}

/// What an exchange gives.
#[derive(Debug)]
pub struct Exchange {
    /// This side's public number, for the other one.
    pub public: Vec<u8>,
    /// The key that both sides have now.
    pub key: BoxKey,
}

/// Carries out an exchange: from the other side's public number, as it was sent, and a private number of this
/// side, fresh and random. Takes some ms of computing, whatever the private number is.
///
/// # Errors
/// The public number is refused; nothing is to be sent then but the error.
pub fn exchange(
    group: Group,
    their_public: &[u8],
    private: &[u8; PRIVATE_BYTES],
) -> Result<Exchange, DhError> {
    match group {
        Group::Five => exchange_in(&GROUP_5, their_public, private),
        Group::Fourteen => exchange_in(&GROUP_14, their_public, private),
    }
}

/// The public number of a private one: what a client sends first.
#[must_use]
pub fn public_of(group: Group, private: &[u8; PRIVATE_BYTES]) -> Vec<u8> {
    match group {
        Group::Five => power(&GROUP_5, &Uint::from_u64(2), private).to_vec(),
        Group::Fourteen => power(&GROUP_14, &Uint::from_u64(2), private).to_vec(),
    }
}

fn exchange_in<const LIMBS: usize>(
    prime: &Odd<Uint<LIMBS>>,
    their_public: &[u8],
    private: &[u8; PRIVATE_BYTES],
) -> Result<Exchange, DhError> {
    let theirs = number(their_public).ok_or(DhError::OutOfRange)?;
    // Public, so these may take as long as they take.
    if theirs <= Uint::from_u64(2) || theirs >= prime.get().wrapping_sub(&Uint::ONE) {
        return Err(DhError::OutOfRange);
    }
    if theirs.jacobi_symbol_vartime(prime) != JacobiSymbol::One {
        return Err(DhError::NoSquare);
    }
    let public = power(prime, &Uint::from_u64(2), private).to_vec();
    let shared = power(prime, &theirs, private);
    let key = shared.first_chunk().ok_or(DhError::ShortShared)?;
    Ok(Exchange { public, key: BoxKey::new(*key) })
}

/// A number from its bytes, leading zeros or not; none if it is too long.
fn number<const LIMBS: usize>(bytes: &[u8]) -> Option<Uint<LIMBS>> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let digits = bytes.get(zeros..)?;
    let mut padded = Zeroizing::new([0; PUBLIC_BYTES_MAX]);
    let padded = padded.get_mut(..Uint::<LIMBS>::BYTES)?;
    let start = padded.len().checked_sub(digits.len())?;
    padded.get_mut(start..)?.copy_from_slice(digits);
    Some(Uint::from_be_slice(padded))
}

/// `base` to the power of a private number, without leading zero bytes.
fn power<const LIMBS: usize>(
    prime: &Odd<Uint<LIMBS>>,
    base: &Uint<LIMBS>,
    private: &[u8; PRIVATE_BYTES],
) -> Zeroizing<Vec<u8>> {
    let mut padded = Zeroizing::new([0; U512::BYTES]);
    if let Some(end) = padded.last_chunk_mut() {
        *end = *private;
    }
    let exponent = Zeroizing::new(U512::from_be_slice(padded.as_slice()));
    let params = FixedMontyParams::new_vartime(*prime);
    let mut form =
        FixedMontyForm::new(base, &params).pow_bounded_exp(&*exponent, 8 * PRIVATE_BYTES as u32);
    let number = Zeroizing::new(form.retrieve());
    form.zeroize();
    let bytes = Zeroizing::new(number.to_be_bytes().as_ref().to_vec());
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Zeroizing::new(bytes.get(zeros..).unwrap_or_default().to_vec())
}

/// The key of both sides' boxes. Its bytes are never shown, and are overwritten in the end.
#[derive(Clone)]
pub struct BoxKey(Zeroizing<[u8; 32]>);

impl BoxKey {
    /// From its bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Opens a box: nonce, tag, sealed bytes.
    ///
    /// # Errors
    /// It was not sealed with this key, or is longer than [`BOX_BYTES_MAX`].
    pub fn open(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, BadBox> {
        let is_sane = (NONCE_BYTES + TAG_BYTES..=BOX_BYTES_MAX).contains(&sealed.len());
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(BadBox)?;
        if !is_sane {
            return Err(BadBox);
        }
        let cipher = XSalsa20Poly1305::new((&*self.0).into());
        cipher.decrypt(&Nonce::from(*nonce), rest).map(Zeroizing::new).map_err(|_| BadBox)
    }

    /// Seals bytes with a nonce that is never used again with this key.
    ///
    /// # Errors
    /// There are too many bytes for a box that can be opened.
    pub fn seal(&self, nonce: [u8; NONCE_BYTES], plain: &[u8]) -> Result<Vec<u8>, BadBox> {
        if plain.len() > BOX_BYTES_MAX - NONCE_BYTES - TAG_BYTES {
            return Err(BadBox);
        }
        let cipher = XSalsa20Poly1305::new((&*self.0).into());
        let sealed = cipher.encrypt(&Nonce::from(nonce), plain).map_err(|_| BadBox)?;
        Ok([&nonce[..], &sealed].concat())
    }
}

impl std::fmt::Debug for BoxKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BoxKey(…)")
    }
}
