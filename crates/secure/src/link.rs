//! Sealed links: the handshake Noise NNpsk0 with the cluster key, then records.
//!
//! Each side's first frame is of kind 0x46, framed as all frames between nodes are:
//!
//! ```text
//! dialler   [1, suite, key id, noise 1]     version 1; suite 1 AESGCM, 2 ChaChaPoly; bin 4; bin
//! acceptor  [1, suite, key id, noise 2]     the same suite and id, or
//!           [1, 0, code, details]           a refusal, which is not authenticated: `Refusal`
//! then      u16 length ‖ record, …          in both directions: `Sealer`, `Opener`
//! ```
//!
//! The Noise protocol is `Noise_NNpsk0_25519_AESGCM_SHA256`, or `ChaChaPoly`. The pre-shared key is
//! derived from the cluster key; the prologue is all clear fields and the network's name, so a changed
//! field or another network fails. The payload of both messages is one byte, the suites that the
//! sender takes; more bytes are ignored.
//!
//! What each side knows: once the dialler has the answer, the acceptor has the key and is there now. Once
//! the acceptor has *opened a record*, the dialler is. Before, it may be looking at a replay, whose sender
//! can read and write nothing. An ephemeral key each makes old traffic stay closed if the cluster key
//! leaks later.
//!
//! Suites: a dialler with AES hardware dials with AESGCM. An acceptor without refuses, and the dialler dials
//! again with ChaChaPoly. Should an attacker forge that refusal, the payloads show that both sides take
//! AESGCM, and the second dial fails with [`DialError::Downgrade`]; both suites are sound anyway.

mod acceptor;
mod clear;
mod dialler;
mod noise;
mod records;

pub use acceptor::{AcceptError, Acceptor};
pub use clear::{HANDSHAKE_BYTES_MAX, MalformedFrame, Refusal, SECURED};
pub use dialler::{DialError, Dialler};
pub use noise::Ephemeral;
pub use records::{Opener, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, RecordError, Sealer};

use crate::key::KeyId;

/// The cipher of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// AES-256-GCM: the faster one where the processor has instructions for it, and slow, and not in
    /// constant time, where it has not.
    AesGcm,
    /// ChaCha20-Poly1305: the same everywhere.
    ChaChaPoly,
}

impl Suite {
    const ALL: [Self; 2] = [Self::AesGcm, Self::ChaChaPoly];

    /// The number on the wire.
    fn number(self) -> u8 {
        match self {
            Self::AesGcm => 1,
            Self::ChaChaPoly => 2,
        }
    }

    fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| u64::from(suite.number()) == number)
    }
}

/// The suites that a machine takes: always ChaChaPoly, and AESGCM if it has the hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suites {
    aes: bool,
}

impl Suites {
    /// Those of a machine with or without AES hardware.
    #[must_use]
    pub const fn new(has_aes_hardware: bool) -> Self {
        Self { aes: has_aes_hardware }
    }

    /// Those of the machine that this runs on.
    #[must_use]
    pub fn of_this_machine() -> Self {
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        let aes = std::arch::is_x86_feature_detected!("aes")
            && std::arch::is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let aes = std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull");
        #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
        let aes = false;
        Self::new(aes)
    }

    /// The suite of a first dial.
    #[must_use]
    pub fn preferred(self) -> Suite {
        if self.aes { Suite::AesGcm } else { Suite::ChaChaPoly }
    }

    /// The suite of the next dial to a node that refused the last one.
    #[must_use]
    pub fn after(self, refusal: &Refusal) -> Suite {
        if *refusal == Refusal::Suite { Suite::ChaChaPoly } else { self.preferred() }
    }

    /// Whether a suite is among them.
    #[must_use]
    pub fn takes(self, suite: Suite) -> bool {
        self.aes || suite == Suite::ChaChaPoly
    }

    /// One bit for each suite.
    fn to_byte(self) -> u8 {
        0b10 | u8::from(self.aes)
    }

    fn from_byte(byte: u8) -> Self {
        Self { aes: byte & 1 != 0 }
    }
}

/// A link whose handshake is over. Its two halves are independent: one for the task that reads, one for
/// the task that writes.
#[derive(Debug)]
pub struct Link {
    /// Seals what this side sends.
    pub sealer: Sealer,
    /// Opens what the other side sends.
    pub opener: Opener,
    /// The cipher.
    pub suite: Suite,
    /// The key that the handshake proved.
    pub key: KeyId,
    /// Bytes of the input that were the handshake's; records are behind them.
    pub consumed: usize,
}

#[cfg(test)]
mod tests;
