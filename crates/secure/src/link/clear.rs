//! What a handshake frame shows in the clear, and refusals. Everything here is what an attacker may
//! write, too.

use distkv_core::protocol::frame::{
    FrameError, GREETING_BYTES_MAX, HEADER_BYTES, split_frame, write_frame,
};
use distkv_model::value::{ReadError, Reader, write_array_len, write_bin, write_u64};

use super::Suite;
use crate::key::{ID_BYTES, KeyId};
use crate::key_ring::KEYS_MAX;

/// Most bytes of a handshake frame's body; the same as a plaintext greeting's, so that either is told from
/// the other before it is read.
pub const HANDSHAKE_BYTES_MAX: usize = GREETING_BYTES_MAX;
/// The frame kind of handshakes.
pub const SECURED: u8 = 0x46;
/// The frame kinds of plaintext greetings: a hello, a refusal.
const GREETINGS: [u8; 2] = [0x44, 0x45];
/// The version of the handshake.
pub(super) const VERSION: u64 = 1;

/// Why bytes are no handshake frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFrame {
    /// Not framed as messages between nodes are.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// A frame of another kind, and no greeting either.
    #[error("this is not a distkv peer: its first frame is of kind {0}")]
    Kind(u8),
    /// Not the MessagePack that belongs there.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// A field of another length, or a suite that does not exist.
    #[error("its field {0:?} makes no sense")]
    Field(&'static str),
}

/// Why an acceptor did not take a handshake. **Not authenticated**: anybody on the path can write it. It
/// is for logs, and for the suite of the next dial; nothing else may depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The acceptor does not have the dialler's key. Those that it has:
    UnknownKey(Vec<KeyId>),
    /// It has a key of that id, but the message does not fit: it is of another network's name, or was changed on
    /// the way.
    Proof,
    /// It has no AES hardware: dial again with the other suite.
    Suite,
    /// It speaks another version of the handshake.
    Version,
    /// Something that this version does not know.
    Other(u64),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownKey(known) => {
                write!(f, "it does not have this node's primary key; it says that it has ")?;
                for (at, id) in known.iter().enumerate() {
                    write!(f, "{}{id}", if at == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::Proof => f.write_str(
                "it has the key, but is of another network; compare the `network` lines of both key files",
            ),
            Self::Suite => f.write_str("it has no AES hardware"),
            Self::Version => f.write_str("it speaks another version of the handshake; upgrade the older"),
            Self::Other(code) => write!(f, "code {code}, which this version does not know"),
        }
    }
}

impl Refusal {
    fn code(&self) -> u64 {
        match self {
            Self::UnknownKey(_) => 1,
            Self::Proof => 2,
            Self::Suite => 3,
            Self::Version => 4,
            Self::Other(code) => *code,
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, MalformedFrame> {
        let code = r.read_u64()?;
        let details = r.read_bin()?;
        Ok(match code {
            1 => {
                let (ids, rest) = details.as_chunks::<ID_BYTES>();
                if !rest.is_empty() || ids.len() > KEYS_MAX {
                    return Err(MalformedFrame::Field("details"));
                }
                Self::UnknownKey(ids.iter().copied().map(KeyId).collect())
            }
            2 => Self::Proof,
            3 => Self::Suite,
            4 => Self::Version,
            code => Self::Other(code),
        })
    }

    /// Appends the refusal as a frame.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let details: Vec<u8> = match self {
            Self::UnknownKey(ids) => ids.iter().flat_map(|id| id.0).collect(),
            _ => Vec::new(),
        };
        write_frame(SECURED, out, |out| {
            write_array_len(4, out);
            write_u64(VERSION, out);
            write_u64(0, out);
            write_u64(self.code(), out);
            write_bin(&details, out);
        });
    }
}

/// The clear fields of a handshake frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clear {
    pub(super) suite: Suite,
    pub(super) key: KeyId,
}

impl Clear {
    /// Appends a handshake frame.
    pub(super) fn encode(self, noise: &[u8], out: &mut Vec<u8>) {
        write_frame(SECURED, out, |out| {
            write_array_len(4, out);
            write_u64(VERSION, out);
            write_u64(u64::from(self.suite.number()), out);
            write_bin(&self.key.0, out);
            write_bin(noise, out);
        });
    }

    /// What both sides mix into the handshake: if they disagree about any of it, it fails.
    pub(super) fn prologue(self, network: &str) -> Vec<u8> {
        let mut prologue = b"distkv link ".to_vec();
        prologue.extend_from_slice(&[VERSION as u8, self.suite.number()]);
        prologue.extend_from_slice(&self.key.0);
        prologue.extend_from_slice(network.as_bytes());
        prologue
    }
}

/// What a first frame is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum First<'a> {
    /// More bytes are needed.
    More,
    /// A greeting in plaintext: of this kind.
    Plaintext(u8),
    /// A handshake of another version.
    Version(u64),
    Refusal(Refusal),
    Handshake {
        clear: Clear,
        noise: &'a [u8],
        /// Bytes of the whole frame.
        length: usize,
    },
}

/// Looks at the other side's first frame.
pub(super) fn read_first(input: &[u8]) -> Result<First<'_>, MalformedFrame> {
    let frame = split_frame(input, HANDSHAKE_BYTES_MAX)?;
    // The kind says enough, even if the rest never comes.
    match input.get(HEADER_BYTES - 1) {
        None => return Ok(First::More),
        Some(kind) if GREETINGS.contains(kind) => return Ok(First::Plaintext(*kind)),
        Some(&SECURED) => {}
        Some(kind) => return Err(MalformedFrame::Kind(*kind)),
    }
    let Some(frame) = frame else { return Ok(First::More) };
    let mut r = Reader::new(frame.body);
    let fields = r.read_array_len()?;
    let version = r.read_u64()?;
    if version != VERSION {
        return Ok(First::Version(version));
    }
    if fields != 4 {
        return Err(MalformedFrame::Field("fields"));
    }
    let first = match r.read_u64()? {
        0 => First::Refusal(Refusal::read(&mut r)?),
        suite => {
            let suite = Suite::from_number(suite).ok_or(MalformedFrame::Field("suite"))?;
            let key = r.read_bin()?.try_into().map_err(|_| MalformedFrame::Field("key id"))?;
            let clear = Clear { suite, key: KeyId(key) };
            First::Handshake { clear, noise: r.read_bin()?, length: frame.length }
        }
    };
    r.finish()?;
    Ok(first)
}
