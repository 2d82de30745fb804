//! The envelope of every datagram, and the bodies that are not foca's.
//!
//! ```text
//! magic     4 bytes "dkvS"
//! version   u8, 1
//! flags     u8, 0 (reserved for authentication; a datagram with a flag unknown here is dropped)
//! kind      u8, see Kind
//! network   length u8, name
//! body      by kind
//! ```
//!
//! The network's whole name travels, not a hash of it: two networks then never mix, and the
//! receiver of a stray datagram can say which network it is from. A datagram has at most
//! [`DATAGRAM_BYTES_MAX`] bytes, of which [`TAG_BYTES`] are left free for an authentication tag.

use std::net::SocketAddr;

use super::codec::{
    HEADER_BYTES_MAX, IDENTITY_BYTES_MAX, decode_addr, decode_identity, encode_addr,
    encode_identity, read_name, read_u8,
};
use crate::membership::error::CodecError;
use crate::membership::members::identity::{Identity, NetworkName};
use crate::model::invariant::invariant;
use crate::model::limits::NAME_BYTES_MAX;

/// Most bytes of a datagram, the later tag included: below what any path carries unfragmented
/// (IPv6 guarantees 1,280 with its headers).
pub const DATAGRAM_BYTES_MAX: usize = 1199;
/// Bytes at the end of a datagram that are left free for an authentication tag.
pub const TAG_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"dkvS";
const VERSION: u8 = 1;
const FLAGS_KNOWN: u8 = 0;
/// Magic, version, flags, kind, length of the network's name.
const FIXED_BYTES: usize = 8;

const ESTABLISHED: u8 = 1;

/// What a datagram's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::membership) enum Kind {
    /// foca's bytes, from a node that has its place in the network.
    Swim,
    /// foca's bytes, from a node that has only just joined, or is trying to.
    SwimJoining,
    /// The sender's name or address is held by another node: [`Conflict`].
    Conflict,
    /// A process leaves: its last identity.
    Bye,
    /// The answer to a datagram of another network or version: nothing but the envelope, so that
    /// the other side can tell its operator.
    Stranger,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Swim,
            2 => Self::SwimJoining,
            3 => Self::Conflict,
            4 => Self::Bye,
            5 => Self::Stranger,
            _ => return None,
        })
    }

    fn to_byte(self) -> u8 {
        match self {
            Self::Swim => 1,
            Self::SwimJoining => 2,
            Self::Conflict => 3,
            Self::Bye => 4,
            Self::Stranger => 5,
        }
    }
}

/// The content of an envelope.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::membership) enum Opened<'a> {
    /// A datagram of this network.
    Ours { kind: Kind, body: &'a [u8] },
    /// A datagram of another network; `kind` says whether it is itself an answer.
    OtherNetwork { network: String, kind: Option<Kind> },
    /// A datagram of another protocol version. What follows the version is unknown.
    OtherVersion(u8),
}

/// Seals and opens the datagrams of one network.
#[derive(Debug)]
pub(in crate::membership) struct Envelope {
    network: NetworkName,
}

impl Envelope {
    pub(in crate::membership) fn new(network: NetworkName) -> Self {
        Self { network }
    }

    /// How many bytes foca may use.
    pub(in crate::membership) fn body_bytes_max(&self) -> usize {
        DATAGRAM_BYTES_MAX - TAG_BYTES - FIXED_BYTES - self.network.as_str().len()
    }

    /// A whole datagram.
    pub(in crate::membership) fn seal(&self, kind: Kind, body: &[u8]) -> Vec<u8> {
        let network = self.network.as_str().as_bytes();
        invariant!(body.len() <= self.body_bytes_max(), "a body fits into its datagram");
        let mut bytes = Vec::with_capacity(FIXED_BYTES + network.len() + body.len());
        bytes.extend_from_slice(&MAGIC);
        // The name's length is at most NAME_BYTES_MAX, checked when it was made.
        bytes.extend_from_slice(&[VERSION, FLAGS_KNOWN, kind.to_byte(), network.len() as u8]);
        bytes.extend_from_slice(network);
        bytes.extend_from_slice(body);
        bytes
    }

    /// Takes a datagram apart as far as the body.
    pub(in crate::membership) fn open<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Result<Opened<'a>, CodecError> {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return Err(CodecError::OutOfBounds("length"));
        }
        let mut rest = bytes.strip_prefix(&MAGIC).ok_or(CodecError::Unknown("magic"))?;
        let version = read_u8(&mut rest)?;
        if version != VERSION {
            return Ok(Opened::OtherVersion(version));
        }
        if read_u8(&mut rest)? & !FLAGS_KNOWN != 0 {
            return Err(CodecError::Unknown("flags"));
        }
        let kind = Kind::from_byte(read_u8(&mut rest)?);
        let network = read_name(&mut rest)?;
        if network.as_str() != self.network.as_str() {
            let network = network.as_str().to_owned();
            return Ok(Opened::OtherNetwork { network, kind });
        }
        let kind = kind.ok_or(CodecError::Unknown("kind"))?;
        Ok(Opened::Ours { kind, body: rest })
    }
}

/// "Your name, or your address, is held by another": sent to a node that would otherwise only be
/// ignored, and could not know why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::membership) struct Conflict {
    /// The address of the sender of this notice. Only the holder itself proves that the holder
    /// lives.
    pub(in crate::membership) sender: SocketAddr,
    /// Whom it is about; so that it is not taken for news about a later generation.
    pub(in crate::membership) loser: Identity,
    /// The node that has the loser's address, or another live node with its name.
    pub(in crate::membership) holder: Identity,
    /// Whether the holder has its place in the network (true unless the holder itself denies it).
    pub(in crate::membership) established: bool,
}

impl Conflict {
    /// Whether the holder itself speaks.
    pub(in crate::membership) fn is_from_holder(&self) -> bool {
        self.sender == self.holder.addr
    }

    pub(in crate::membership) fn encode(&self) -> Result<Vec<u8>, CodecError> {
        let mut bytes = vec![if self.established { ESTABLISHED } else { 0 }];
        encode_addr(&self.sender, &mut bytes)?;
        encode_identity(&self.loser, &mut bytes)?;
        encode_identity(&self.holder, &mut bytes)?;
        Ok(bytes)
    }

    pub(in crate::membership) fn decode(mut body: &[u8]) -> Result<Self, CodecError> {
        let flags = read_u8(&mut body)?;
        if flags & !ESTABLISHED != 0 {
            return Err(CodecError::Unknown("conflict flags"));
        }
        let sender = decode_addr(&mut body)?;
        let loser = decode_identity(&mut body)?;
        let holder = decode_identity(&mut body)?;
        expect_end(body)?;
        Ok(Self { sender, loser, holder, established: flags & ESTABLISHED != 0 })
    }
}

/// The body of [`Kind::Bye`].
pub(in crate::membership) fn encode_bye(identity: &Identity) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::with_capacity(IDENTITY_BYTES_MAX);
    encode_identity(identity, &mut bytes)?;
    Ok(bytes)
}

/// Reads the body of [`Kind::Bye`]; only a leaving identity says goodbye.
pub(in crate::membership) fn decode_bye(mut body: &[u8]) -> Result<Identity, CodecError> {
    let identity = decode_identity(&mut body)?;
    expect_end(body)?;
    if identity.leaving { Ok(identity) } else { Err(CodecError::Unknown("goodbye")) }
}

fn expect_end(rest: &[u8]) -> Result<(), CodecError> {
    if rest.is_empty() { Ok(()) } else { Err(CodecError::Trailing) }
}

// Every body of ours fits, whatever the names; and foca has room for members after its header.
const BODY_BYTES_LEAST: usize = DATAGRAM_BYTES_MAX - TAG_BYTES - FIXED_BYTES - NAME_BYTES_MAX;
const _: () = assert!(BODY_BYTES_LEAST > 1 + 3 * IDENTITY_BYTES_MAX);
const _: () = assert!(BODY_BYTES_LEAST > HEADER_BYTES_MAX + 2 + 5 * (IDENTITY_BYTES_MAX + 3));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Incarnation, NodeName};
    use proptest::prelude::*;

    fn envelope(network: &str) -> Envelope {
        Envelope::new(NetworkName::new(network).unwrap())
    }

    fn identity(name: &str) -> Identity {
        let addr = "[2001:db8::1]:27587".parse().unwrap();
        Identity::new(addr, NodeName::new(name).unwrap(), Incarnation(7))
    }

    #[test]
    fn what_is_sealed_is_opened_by_the_same_network_only() {
        let bytes = envelope("staging").seal(Kind::Swim, b"body");
        let ours = Opened::Ours { kind: Kind::Swim, body: b"body" };
        assert_eq!(envelope("staging").open(&bytes), Ok(ours));
        let other = Opened::OtherNetwork { network: "staging".to_owned(), kind: Some(Kind::Swim) };
        assert_eq!(envelope("production").open(&bytes), Ok(other));
        assert!(matches!(envelope("stagin").open(&bytes), Ok(Opened::OtherNetwork { .. })));
    }

    #[test]
    fn the_fields_of_the_envelope_are_checked() {
        let envelope = envelope("n");
        let with = |at: usize, byte: u8| {
            let mut bytes = envelope.seal(Kind::Bye, b"");
            bytes[at] = byte;
            envelope.open(&bytes).map(|opened| format!("{opened:?}"))
        };
        assert_eq!(with(0, 0), Err(CodecError::Unknown("magic")));
        assert_eq!(with(4, 2), Ok("OtherVersion(2)".to_owned()));
        assert_eq!(with(5, 1), Err(CodecError::Unknown("flags")));
        assert_eq!(with(6, 99), Err(CodecError::Unknown("kind")));
        assert_eq!(with(7, 0), Err(CodecError::OutOfBounds("name")));
        assert_eq!(with(7, 9), Err(CodecError::CutShort));
        let long = vec![0; DATAGRAM_BYTES_MAX + 1];
        assert_eq!(envelope.open(&long), Err(CodecError::OutOfBounds("length")));
    }

    #[test]
    fn the_largest_datagram_is_short_enough_and_leaves_room_for_a_tag() {
        for network in ["n".to_owned(), "n".repeat(NAME_BYTES_MAX)] {
            let envelope = envelope(&network);
            let bytes = envelope.seal(Kind::Swim, &vec![0; envelope.body_bytes_max()]);
            assert_eq!(bytes.len() + TAG_BYTES, DATAGRAM_BYTES_MAX);
            assert!(bytes.len() + TAG_BYTES < 1200);
        }
    }

    #[test]
    fn conflicts_and_goodbyes_survive_the_wire_and_end_where_they_should() {
        let conflict = Conflict {
            sender: "10.0.0.1:5".parse().unwrap(),
            loser: identity("a"),
            holder: identity("b"),
            established: true,
        };
        let mut bytes = conflict.encode().unwrap();
        assert_eq!(Conflict::decode(&bytes), Ok(conflict));
        bytes.push(0);
        assert_eq!(Conflict::decode(&bytes), Err(CodecError::Trailing));

        let leaving = identity("a").leaving();
        assert_eq!(decode_bye(&encode_bye(&leaving).unwrap()), Ok(leaving));
        let staying = encode_bye(&identity("a")).unwrap();
        assert_eq!(decode_bye(&staying), Err(CodecError::Unknown("goodbye")));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_envelope_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..300), headed in any::<bool>(),
        ) {
            if headed {
                let mut whole = b"dkvS\x01\x00".to_vec();
                whole.append(&mut bytes);
                bytes = whole;
            }
            let _ = envelope("n").open(&bytes);
            let _ = Conflict::decode(&bytes);
            let _ = decode_bye(&bytes);
        }
    }
}
