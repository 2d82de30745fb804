//! snow, as links need it: an ephemeral key that is passed in, and the two keys that come out.

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{
    BoxedCryptoResolver, CryptoResolver, DefaultResolver, FallbackResolver, RingResolver,
};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::clear::Clear;
use super::records::{Opener, Sealer};
use super::{Suite, Suites};
use crate::key::{Key, Purpose};

/// Room for a Noise message of ours: an ephemeral key, the payload, a tag.
const MESSAGE_BYTES: usize = 32 + 1 + 16;

/// The secret half of a key that serves one handshake.
pub struct Ephemeral(Zeroizing<[u8; 32]>);

impl Ephemeral {
    /// One made of 32 random bytes, **which nothing else uses, ever**: they are the link's secrecy.
    #[must_use]
    pub fn new(random: [u8; 32]) -> Self {
        Self(Zeroizing::new(random))
    }
}

impl std::fmt::Debug for Ephemeral {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ephemeral")
    }
}

/// Which side of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Dialler,
    Acceptor,
}

/// A handshake under way.
pub(super) struct Handshake {
    state: HandshakeState,
    side: Side,
    suite: Suite,
}

impl Handshake {
    pub(super) fn new(
        side: Side,
        clear: Clear,
        network: &str,
        key: &Key,
        ephemeral: Ephemeral,
    ) -> Result<Self, snow::Error> {
        let pattern = match clear.suite {
            Suite::AesGcm => "Noise_NNpsk0_25519_AESGCM_SHA256",
            Suite::ChaChaPoly => "Noise_NNpsk0_25519_ChaChaPoly_SHA256",
        };
        let psk = key.derive(Purpose::Link);
        let prologue = clear.prologue(network);
        let inner = FallbackResolver::new(Box::new(RingResolver), Box::new(DefaultResolver));
        let resolver: BoxedCryptoResolver = Box::new(Resolver { inner, ephemeral: ephemeral.0 });
        let builder = Builder::with_resolver(pattern.parse()?, resolver);
        let builder = builder.psk(0, &psk)?.prologue(&prologue)?;
        let state = match side {
            Side::Dialler => builder.build_initiator()?,
            Side::Acceptor => builder.build_responder()?,
        };
        Ok(Self { state, side, suite: clear.suite })
    }

    /// The next message of this side.
    pub(super) fn write(&mut self, suites: Suites) -> Result<Vec<u8>, snow::Error> {
        let mut message = vec![0; MESSAGE_BYTES];
        let length = self.state.write_message(&[suites.to_byte()], &mut message)?;
        message.truncate(length);
        Ok(message)
    }

    /// Reads the other side's message: the suites that it takes.
    pub(super) fn read(&mut self, message: &[u8]) -> Result<Suites, snow::Error> {
        let mut payload = vec![0; message.len()];
        let length = self.state.read_message(message, &mut payload)?;
        payload.truncate(length);
        payload.first().map(|byte| Suites::from_byte(*byte)).ok_or(snow::Error::Input)
    }

    /// Both halves of the link.
    pub(super) fn split(mut self) -> (Sealer, Opener) {
        let (from_dialler, from_acceptor) = self.state.dangerously_get_raw_split();
        let (from_dialler, from_acceptor) =
            (Zeroizing::new(from_dialler), Zeroizing::new(from_acceptor));
        let (mine, theirs) = match self.side {
            Side::Dialler => (&from_dialler, &from_acceptor),
            Side::Acceptor => (&from_acceptor, &from_dialler),
        };
        (Sealer::new(self.suite, mine), Opener::new(self.suite, theirs))
    }
}

/// ring where it has the primitive, else RustCrypto; and no random numbers but the one passed in.
struct Resolver {
    inner: FallbackResolver,
    ephemeral: Zeroizing<[u8; 32]>,
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.ephemeral.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        self.inner.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        self.inner.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        self.inner.resolve_cipher(choice)
    }
}

/// Gives its 32 bytes once.
struct Once(Option<Zeroizing<[u8; 32]>>);

impl Random for Once {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        let bytes =
            self.0.take().filter(|bytes| bytes.len() == out.len()).ok_or(snow::Error::Rng)?;
        out.copy_from_slice(&*bytes);
        Ok(())
    }
}
