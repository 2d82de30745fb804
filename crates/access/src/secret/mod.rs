//! What clients prove who they are with: passwords, tokens, the cluster's key; and what slows guesses down.
//!
//! Python clients send the SHA-256 of a password, so [`Sent`] is that; a record keeps it as Argon2id
//! ([`password`]), or, for tokens, which cannot be guessed, as a SHA-256 of it. What a record keeps does not
//! log anybody in.

pub mod cache;
pub mod guesses;
pub mod key;
pub(crate) mod password;
mod recent;
pub mod wrong;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use cache::LoginCache;
pub use guesses::Guesses;
pub use password::{HashError, PasswordHash};
pub use wrong::WrongSecrets;

/// Random bytes of a token.
pub const TOKEN_BYTES: usize = 32;

/// What a client sends instead of a password: its SHA-256. Never shown, overwritten in the end.
#[derive(Clone)]
pub struct Sent(Zeroizing<[u8; 32]>);

impl Sent {
    /// Of the hash as it came.
    #[must_use]
    pub(crate) fn new(hash: [u8; 32]) -> Self {
        Self(Zeroizing::new(hash))
    }

    /// Of the hash as it came; none unless it has 32 bytes.
    #[must_use]
    pub fn from_slice(hash: &[u8]) -> Option<Self> {
        hash.try_into().ok().map(Self::new)
    }

    /// Of a password or a token's text itself, as clients of ours send it.
    #[must_use]
    pub fn of_text(password: &str) -> Self {
        Self::new(Sha256::digest(password.as_bytes()).into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sent(…)")
    }
}

/// What a record keeps of a token. A token is the hexadecimal text of [`TOKEN_BYTES`] random bytes, and is
/// used like a password. It cannot be guessed, so a fast hash will do.
#[derive(Clone, Copy, Debug)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// What is kept of a token's text, by what a client sends of it.
    #[must_use]
    pub fn of(sent: &Sent) -> Self {
        Self(Sha256::digest(sent.as_bytes()).into())
    }

    /// As it is kept; none unless it has 32 bytes.
    #[must_use]
    pub(crate) fn from_slice(hash: &[u8]) -> Option<Self> {
        hash.try_into().ok().map(Self)
    }

    /// As it is kept.
    #[must_use]
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn is_of(&self, sent: &Sent) -> bool {
        Self::of(sent).0.ct_eq(&self.0).into()
    }
}

/// A new token's text, from random bytes.
#[must_use]
pub fn token_text(random: &[u8; TOKEN_BYTES]) -> String {
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a record has a client prove.
#[derive(Clone, Debug, Default)]
pub enum Secret {
    /// Nothing that can be proved: nobody logs in. Methods that ask for no secret do not look at it.
    #[default]
    None,
    /// A password.
    Password(PasswordHash),
    /// A password whose SHA-256 was stored as it is, by the original. To be converted
    /// ([`PasswordHash::new`]) as soon as it is seen.
    Legacy(Sent),
    /// A token.
    Token(TokenHash),
}

impl Secret {
    /// Whether another record has this very secret. A password that was hashed anew is another one, even if it is the same
    /// text.
    #[must_use]
    pub fn is_that_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Password(hash), Self::Password(other)) => hash == other,
            (Self::Legacy(sent), Self::Legacy(other)) => sent.as_bytes() == other.as_bytes(),
            (Self::Token(hash), Self::Token(other)) => hash.0 == other.0,
            (Self::None | Self::Password(_) | Self::Legacy(_) | Self::Token(_), _) => false,
        }
    }

    /// Whether this is a token, and a client sent it. That is quick, and needs no slowing down: guesses lead nowhere.
    #[must_use]
    pub fn is_token(&self, sent: &Sent) -> bool {
        matches!(self, Self::Token(hash) if hash.is_of(sent))
    }
}

/// Whether what a client sent is a user's secret; `secret` is none for an unknown user. A refusal takes as
/// long as one Argon2id, whatever the reason, and so does a good password: call it where that does no harm.
#[must_use]
pub fn check(secret: Option<&Secret>, sent: &Sent) -> bool {
    let is_good = match secret {
        Some(Secret::Password(hash)) => return hash.is_of(sent),
        Some(Secret::Token(hash)) => hash.is_of(sent),
        Some(Secret::Legacy(hash)) => hash.as_bytes().ct_eq(sent.as_bytes()).into(),
        Some(Secret::None) | None => false,
    };
    if !is_good {
        password::spend(sent);
    }
    is_good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_checked_by_its_hash_which_does_not_log_in() {
        let text = token_text(&[0xa5; TOKEN_BYTES]);
        assert_eq!(text.len(), 64);
        let kept = TokenHash::of(&Sent::of_text(&text));
        let secret = Secret::Token(TokenHash::from_slice(kept.as_bytes()).unwrap());
        assert!(check(Some(&secret), &Sent::of_text(&text)));
        assert!(!check(Some(&secret), &Sent::of_text("other")));
        assert!(!check(Some(&secret), &Sent::new(*kept.as_bytes())));
    }

    #[test]
    fn what_the_original_stored_is_checked_and_nothing_is_checked_of_nobody() {
        let sent = Sent::of_text("test123");
        let hex: String = sent.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ecd71870d1963316a97e3ac3408c9835ad8cf0f3c1bc703527c30265534f75ae");
        let legacy = Secret::Legacy(Sent::from_slice(sent.as_bytes()).unwrap());
        assert!(check(Some(&legacy), &sent));
        assert!(!check(Some(&legacy), &Sent::of_text("test124")));
        assert!(!check(Some(&Secret::None), &sent));
        assert!(!check(None, &sent));
        assert!(Sent::from_slice(&[0; 31]).is_none() && TokenHash::from_slice(&[0; 33]).is_none());
        assert_eq!(format!("{sent:?} {legacy:?}"), "Sent(…) Legacy(Sent(…))");
    }
}
