//! The side that dials: it speaks first, and knows after the answer that the other side has the key.

use super::clear::{Clear, First, MalformedFrame, Refusal, read_first};
use super::noise::{Ephemeral, Handshake, Side};
use super::{Link, Suite, Suites};
use crate::key::KeyId;
use crate::key_ring::KeyRing;

/// Why a dial did not become a link. The connection must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The other side greets in plaintext.
    #[error("the peer uses no key, and this node does; start it with `--key`, too")]
    Plaintext,
    /// The other side refuses, or somebody on the way says so.
    #[error("the peer refused: {0}")]
    Refused(Refusal),
    /// It speaks another version of the handshake.
    #[error("the peer speaks version {0} of the handshake; upgrade the older")]
    Version(u64),
    /// It answered with another suite or key than it was asked with.
    #[error("the peer answered what it was not asked; the answer was changed on the way")]
    Altered,
    /// The answer is not sealed with the key.
    #[error(
        "the peer does not prove that it has key {0}: it is of another network, or the answer was \
         changed on the way"
    )]
    Proof(KeyId),
    /// A refusal that made this node dial with the slower suite was forged. Dial anew.
    #[error("somebody on the way to the peer forges refusals; the peer takes AES after all")]
    Downgrade,
    /// Not a handshake frame.
    #[error("bad answer: {0}")]
    Malformed(#[from] MalformedFrame),
    /// Noise cannot be set up, or the dial has ended already; never because of what the peer sent.
    #[error("the handshake cannot go on")]
    Over,
}

/// A dial under way.
pub struct Dialler {
    /// None once it has ended.
    handshake: Option<Handshake>,
    clear: Clear,
    suites: Suites,
}

impl std::fmt::Debug for Dialler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialler").field("clear", &self.clear).finish_non_exhaustive()
    }
}

impl Dialler {
    /// Begins a handshake with the ring's primary key, and appends its first message to `out`. `suites` are
    /// those of this machine; `suite` is the preferred one, or after a refusal [`Suites::after`].
    ///
    /// # Errors
    /// [`DialError::Over`] if Noise cannot be set up; nothing is appended.
    pub fn new(
        ring: &KeyRing,
        suites: Suites,
        suite: Suite,
        ephemeral: Ephemeral,
        out: &mut Vec<u8>,
    ) -> Result<Self, DialError> {
        let key = ring.primary();
        let clear = Clear { suite, key: key.id() };
        let network = ring.network().as_str();
        let mut handshake = Handshake::new(Side::Dialler, clear, network, key, ephemeral)
            .map_err(|_| DialError::Over)?;
        let noise = handshake.write(suites).map_err(|_| DialError::Over)?;
        clear.encode(&noise, out);
        Ok(Self { handshake: Some(handshake), clear, suites })
    }

    /// Looks at all that has been received. `None`: more bytes are needed; they are at most
    /// [`super::HANDSHAKE_BYTES_MAX`] and a header. What is behind [`Link::consumed`] are records.
    ///
    /// # Errors
    /// [`DialError`]; the dial has ended.
    pub fn take(&mut self, input: &[u8]) -> Result<Option<Link>, DialError> {
        if self.handshake.is_none() {
            return Err(DialError::Over);
        }
        let first = read_first(input).inspect_err(|_| self.handshake = None)?;
        if first == First::More {
            return Ok(None);
        }
        let mut handshake = self.handshake.take().ok_or(DialError::Over)?;
        let (clear, noise, length) = match first {
            First::More => return Ok(None),
            First::Plaintext(_) => return Err(DialError::Plaintext),
            First::Version(version) => return Err(DialError::Version(version)),
            First::Refusal(refusal) => return Err(DialError::Refused(refusal)),
            First::Handshake { clear, noise, length } => (clear, noise, length),
        };
        if clear != self.clear {
            return Err(DialError::Altered);
        }
        let theirs = handshake.read(noise).map_err(|_| DialError::Proof(clear.key))?;
        let best = Suite::AesGcm;
        if clear.suite != best && self.suites.takes(best) && theirs.takes(best) {
            return Err(DialError::Downgrade);
        }
        let (sealer, opener) = handshake.split();
        Ok(Some(Link { sealer, opener, suite: clear.suite, key: clear.key, consumed: length }))
    }
}
