//! Passwords as records keep them: Argon2id over what clients send, as a PHC string.

use argon2::password_hash::{
    PasswordHash as Phc, PasswordHasher, PasswordVerifier, Salt, SaltString,
};
use argon2::{Algorithm, Argon2, Params, Version};

use super::Sent;

/// Bytes of a salt.
pub(crate) const SALT_BYTES: usize = 16;
/// Memory of one hash: 19 MiB.
const MEMORY_KIB: u32 = 19 * 1_024;
const ROUNDS: u32 = 2;
const LANES: u32 = 1;
/// Most memory that a stored hash may ask for, 64 MiB: whoever can store one must not exhaust the node.
const MEMORY_BYTES_MAX: u64 = 64 << 20;
/// Most rounds that a stored hash may ask for.
const ROUNDS_MAX: u32 = 8;
/// Most lanes that a stored hash may ask for.
const LANES_MAX: u32 = 4;
/// Most bytes of a stored hash.
const PHC_BYTES_MAX: usize = 256;

/// Why there is no hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HashError {
    /// The text is no hash that this version checks.
    #[error("not an Argon2id hash within the limits")]
    Unreadable,
    /// The computation itself failed.
    #[error("a password could not be hashed")]
    Failed,
}

/// A password's hash, which was read, and is within the limits.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    /// Invariant: parses, Argon2id, parameters within the limits.
    phc: Box<str>,
}

impl PasswordHash {
    /// Hashes what a client sent (or what the original stored), with a fresh random salt. Takes 20 ms and more.
    ///
    /// # Errors
    /// The computation failed, for lack of memory.
    pub fn new(sent: &Sent, salt: [u8; SALT_BYTES]) -> Result<Self, HashError> {
        let salt = SaltString::encode_b64(&salt).map_err(|_| HashError::Failed)?;
        let hash = argon2().hash_password(sent.as_bytes(), Salt::from(&salt));
        Ok(Self { phc: hash.map_err(|_| HashError::Failed)?.to_string().into() })
    }

    /// Reads a stored hash.
    ///
    /// # Errors
    /// It is none, or asks for more than the limits allow.
    pub fn read(text: &str) -> Result<Self, HashError> {
        if text.len() > PHC_BYTES_MAX {
            return Err(HashError::Unreadable);
        }
        let phc = Phc::new(text).map_err(|_| HashError::Unreadable)?;
        let params = Params::try_from(&phc).map_err(|_| HashError::Unreadable)?;
        let is_sane = phc.algorithm == Algorithm::Argon2id.ident()
            && phc.version == Some(Version::V0x13.into())
            && phc.hash.is_some_and(|hash| hash.len() >= 32)
            && phc.salt.is_some_and(|salt| salt.as_str().len() >= 11)
            && 1_024 * u64::from(params.m_cost()) <= MEMORY_BYTES_MAX
            && params.t_cost() <= ROUNDS_MAX
            && params.p_cost() <= LANES_MAX;
        match is_sane {
            true => Ok(Self { phc: text.into() }),
            false => Err(HashError::Unreadable),
        }
    }

    /// As it is stored.
    #[must_use]
    pub(crate) fn as_str(&self) -> &str {
        &self.phc
    }

    pub(super) fn is_of(&self, sent: &Sent) -> bool {
        let Ok(phc) = Phc::new(&self.phc) else { return false };
        argon2().verify_password(sent.as_bytes(), &phc).is_ok()
    }
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

/// Spends the time of one check, so that refusals do not tell why.
pub(super) fn spend(sent: &Sent) {
    let mut out = [0; 32];
    let result = argon2().hash_password_into(sent.as_bytes(), b"nobody's own salt", &mut out);
    std::hint::black_box((result.is_ok(), out));
}

/// With the parameters of new hashes; a check takes those of the stored one.
fn argon2() -> Argon2<'static> {
    #[cfg(test)]
    tests::COMPUTED.with(|computed| computed.set(computed.get() + 1));
    let params = Params::new(MEMORY_KIB, ROUNDS, LANES, Some(32)).unwrap_or(Params::DEFAULT);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::secret::{Secret, TokenHash, check};

    thread_local! {
        /// How many hashes this thread has computed.
        pub(super) static COMPUTED: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn each_refusal_computes_one_hash_whether_the_user_exists_or_not() {
        let sent = Sent::of_text("geheim");
        let other = Sent::of_text("other");
        let secrets = [
            None,
            Some(Secret::None),
            Some(Secret::Token(TokenHash::of(&other))),
            Some(Secret::Legacy(other.clone())),
            Some(Secret::Password(PasswordHash::new(&other, [7; SALT_BYTES]).unwrap())),
        ];
        for secret in secrets {
            let before = COMPUTED.get();
            assert!(!check(secret.as_ref(), &sent));
            assert_eq!(COMPUTED.get() - before, 1, "{secret:?}");
        }
    }

    #[test]
    fn a_password_is_kept_as_argon2id_and_its_hash_does_not_log_in() {
        let sent = Sent::of_text("geheim");
        let hash = PasswordHash::new(&sent, [7; SALT_BYTES]).unwrap();
        assert!(hash.as_str().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.as_str());
        let again = PasswordHash::read(hash.as_str()).unwrap();
        assert!(check(Some(&Secret::Password(again)), &sent));
        let secret = Secret::Password(hash.clone());
        assert!(!check(Some(&secret), &Sent::of_text("Geheim")));
        assert!(!check(Some(&secret), &Sent::of_text(hash.as_str())));
        let raw = Phc::new(hash.as_str()).unwrap().hash.unwrap();
        assert!(!check(Some(&secret), &Sent::from_slice(raw.as_bytes()).unwrap()));
        assert_ne!(PasswordHash::new(&sent, [8; SALT_BYTES]).unwrap(), hash);
        assert_eq!(format!("{hash:?}"), "PasswordHash(…)");
    }

    #[test]
    fn hashes_that_would_exhaust_the_node_or_are_weak_are_not_read() {
        let tail = "c29tZXNhbHRzYWx0$MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE";
        let good = format!("$argon2id$v=19$m=65536,t=8,p=4${tail}");
        assert!(PasswordHash::read(&good).is_ok());
        let bad = [
            format!("$argon2id$v=19$m=65537,t=8,p=4${tail}"),
            format!("$argon2id$v=19$m=65536,t=9,p=4${tail}"),
            format!("$argon2id$v=19$m=65536,t=8,p=5${tail}"),
            format!("$argon2id$v=19$m=4294967295,t=1,p=1${tail}"),
            format!("$argon2i$v=19$m=19456,t=2,p=1${tail}"),
            format!("$argon2d$v=19$m=19456,t=2,p=1${tail}"),
            format!("$argon2id$v=16$m=19456,t=2,p=1${tail}"),
            format!("$argon2id$m=19456,t=2,p=1${tail}"),
            "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzYWx0$MDEyMzQ1Njc4OTA".to_owned(),
            "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzYWx0".to_owned(),
            "$argon2id$v=19$m=19456,t=2,p=1".to_owned(),
            String::new(),
            "geheim".to_owned(),
            format!("{good}{}", "A".repeat(PHC_BYTES_MAX)),
        ];
        for text in bad {
            assert_eq!(PasswordHash::read(&text), Err(HashError::Unreadable), "{text}");
        }
    }
}
