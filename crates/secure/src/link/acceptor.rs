//! The side that is dialled. A wrong key costs it one hash and one AEAD, no Diffie-Hellman.

use distkv_core::protocol::peer::greeting::{Refusal as PlaintextRefusal, RefusalCode};

use super::clear::{First, MalformedFrame, Refusal, read_first};
use super::noise::{Ephemeral, Handshake, Side};
use super::{Link, Suites};
use crate::key::KeyId;
use crate::key_ring::KeyRing;

/// Why a connection did not become a link. What `take` appended should be sent, at most once and without
/// waiting, and the connection must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// The dialler greets in plaintext. While a network moves to a key, its greeting can be read instead.
    #[error("the peer uses no key, and this node does; start it with `--key`, too")]
    Plaintext,
    /// The dialler's key is not in the ring.
    #[error(
        "the peer has key {0}, which this node does not have; `key list` shows those of a node"
    )]
    UnknownKey(KeyId),
    /// It names a key of the ring and does not prove that it has it.
    #[error(
        "the peer does not prove that it has key {0}: it is of another network, or somebody tries keys"
    )]
    Proof(KeyId),
    /// It wants AES, for which this machine has no hardware. It will dial again.
    #[error("the peer wants AES, for which this machine has no hardware; it will dial again")]
    Suite,
    /// It speaks another version of the handshake.
    #[error("the peer speaks version {0} of the handshake; upgrade the older")]
    Version(u64),
    /// A refusal where a first message belongs.
    #[error("the peer refuses before it was asked anything")]
    Refusal,
    /// Not a handshake frame.
    #[error("bad handshake: {0}")]
    Malformed(#[from] MalformedFrame),
    /// Noise cannot be set up, or the handshake has ended already; never because of what the peer sent.
    #[error("the handshake cannot go on")]
    Over,
}

/// A connection that was accepted and has not shown yet that it may.
#[derive(Debug)]
pub struct Acceptor {
    suites: Suites,
    /// None once it has ended.
    ephemeral: Option<Ephemeral>,
}

impl Acceptor {
    /// One for a new connection. `suites` are those of this machine.
    #[must_use]
    pub fn new(suites: Suites, ephemeral: Ephemeral) -> Self {
        Self { suites, ephemeral: Some(ephemeral) }
    }

    /// Looks at all that has been received; takes any key of the ring. `None`: more bytes are needed; they
    /// are at most [`super::HANDSHAKE_BYTES_MAX`] and a header. With a link, the answer is appended to
    /// `out`. The link is half-open until its opener has opened a record.
    ///
    /// # Errors
    /// [`AcceptError`]; the handshake has ended. A refusal may have been appended to `out`: one that a
    /// plaintext node understands to a plaintext node, and nothing to what is no node.
    pub fn take(
        &mut self,
        ring: &KeyRing,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Link>, AcceptError> {
        if self.ephemeral.is_none() {
            return Err(AcceptError::Over);
        }
        let first = read_first(input).inspect_err(|_| self.ephemeral = None)?;
        if first == First::More {
            return Ok(None);
        }
        let ephemeral = self.ephemeral.take().ok_or(AcceptError::Over)?;
        let mut refuse = |refusal: Refusal, error| {
            refusal.encode(out);
            Err(error)
        };
        let (clear, noise, length) = match first {
            First::More => return Ok(None),
            First::Plaintext(_) => {
                let text = "this network is secured with a key; start this node with `--key FILE`";
                PlaintextRefusal::new(RefusalCode::Other, text.to_owned()).encode(out);
                return Err(AcceptError::Plaintext);
            }
            First::Version(version) => {
                return refuse(Refusal::Version, AcceptError::Version(version));
            }
            First::Refusal(_) => return Err(AcceptError::Refusal),
            First::Handshake { clear, noise, length } => (clear, noise, length),
        };
        let Some(key) = ring.lookup(clear.key) else {
            let known = ring.summary().ids;
            return refuse(Refusal::UnknownKey(known), AcceptError::UnknownKey(clear.key));
        };
        if !self.suites.takes(clear.suite) {
            return refuse(Refusal::Suite, AcceptError::Suite);
        }
        let network = ring.network().as_str();
        let mut handshake = Handshake::new(Side::Acceptor, clear, network, key, ephemeral)
            .map_err(|_| AcceptError::Over)?;
        // The dialler compares the suites of both: it knows why it did not dial with the best.
        if handshake.read(noise).is_err() {
            return refuse(Refusal::Proof, AcceptError::Proof(clear.key));
        }
        let answer = handshake.write(self.suites).map_err(|_| AcceptError::Over)?;
        clear.encode(&answer, out);
        let (sealer, opener) = handshake.split();
        Ok(Some(Link { sealer, opener, suite: clear.suite, key: clear.key, consumed: length }))
    }
}
