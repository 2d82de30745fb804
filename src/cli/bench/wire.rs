//! What a load generator says, and how it knows an answer again, in each protocol.
//!
//! Written for speed, not for all of a protocol: requests are bytes that are put together, and of an
//! answer only its length, its number and whether it is an error are looked at. What is particular to
//! a protocol is in `peers`.

use super::peers::{distkv, etcd, nats, redis};
use crate::model::value::{ReadError, SkipError};

/// A key's length: `key-` and twelve digits.
pub(super) const KEY_BYTES: usize = 16;

/// Which protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Protocol {
    /// A distkv-node, or a Python DistKV
    Distkv,
    /// The same; the keys are below a path of their own
    #[value(skip)]
    DistkvPlace,
    /// A Redis, or what speaks like it
    Redis,
    /// The same; what is written is published to a channel instead
    #[value(skip)]
    RedisChannel,
    /// etcd's gRPC, without TLS
    Etcd,
    /// NATS, with a key-value bucket `bench`
    Nats,
}

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    /// The connection's number, as [`Protocol::hello`] got it.
    pub(super) connection: u64,
    /// The request's, on its connection; from 1.
    pub(super) seq: u64,
}

impl From<u64> for Tag {
    fn from(seq: u64) -> Self {
        Self { connection: 0, seq }
    }
}

/// An answer that is here wholly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// How many bytes it has.
    pub(super) bytes: usize,
    /// The number of the request that it answers; none where answers come in the order of requests; 0 for
    /// what answers none.
    pub(super) seq: Option<u64>,
    pub(super) is_error: bool,
}

/// What came is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    /// Not the client protocol.
    #[error("the answer is not of the client protocol: {0}")]
    Distkv(ReadError),
    /// Not Redis's.
    #[error("the answer is not of Redis's protocol")]
    Redis,
    /// Not HTTP/2.
    #[error("the answer is not of etcd's protocol")]
    Etcd,
    /// Not that of NATS.
    #[error("the answer is not of the protocol of NATS")]
    Nats,
}

impl Protocol {
    /// Appends what a connection begins with; `connection` is a number that no other has.
    pub(super) fn hello(self, connection: u64, out: &mut Vec<u8>) {
        match self {
            Self::Distkv | Self::DistkvPlace | Self::Redis | Self::RedisChannel => {}
            Self::Etcd => etcd::hello(out),
            Self::Nats => nats::hello(connection, out),
        }
    }

    /// Whether a connection's requests must have numbers that rise.
    pub(super) fn numbers_rise(self) -> bool {
        self == Self::Etcd
    }

    /// Appends a read.
    pub(super) fn get(self, key: u64, tag: impl Into<Tag>, out: &mut Vec<u8>) {
        let (key, tag) = (key_bytes(key), tag.into());
        match self {
            Self::Distkv => distkv::get(distkv::ROOT, &key, tag.seq, out),
            Self::DistkvPlace => distkv::get(distkv::PLACE, &key, tag.seq, out),
            Self::Redis | Self::RedisChannel => redis::get(&key, out),
            Self::Etcd => etcd::get(&key, tag.seq, out),
            Self::Nats => nats::get(&key, tag, out),
        }
    }

    /// Appends a write.
    pub(super) fn set(self, key: u64, value: &[u8], tag: impl Into<Tag>, out: &mut Vec<u8>) {
        let (key, tag) = (key_bytes(key), tag.into());
        match self {
            Self::Distkv => distkv::set(distkv::ROOT, &key, value, tag.seq, out),
            Self::DistkvPlace => distkv::set(distkv::PLACE, &key, value, tag.seq, out),
            Self::Redis => redis::set(&key, value, out),
            Self::RedisChannel => redis::publish(value, out),
            Self::Etcd => etcd::set(&key, value, tag.seq, out),
            Self::Nats => nats::set(&key, value, tag, out),
        }
    }

    /// The answer that some bytes begin with, if all of it is here.
    ///
    /// # Errors
    /// They do not begin with one.
    pub(super) fn answer(self, bytes: &[u8]) -> Result<Option<Answer>, WireError> {
        match self {
            Self::Distkv | Self::DistkvPlace => match distkv::answer(bytes) {
                Ok(answer) => Ok(Some(answer)),
                Err(
                    ReadError::Truncated { .. } | ReadError::Skip(SkipError::Incomplete { .. }),
                ) => Ok(None),
                Err(error) => Err(WireError::Distkv(error)),
            },
            Self::Redis | Self::RedisChannel => redis::answer(bytes),
            Self::Etcd => etcd::answer(bytes),
            Self::Nats => nats::answer(bytes),
        }
    }

    /// Appends the wish to be told of all changes, the only one of its connection.
    pub(super) fn watch(self, connection: u64, out: &mut Vec<u8>) {
        match self {
            Self::Distkv | Self::DistkvPlace => distkv::watch(out),
            Self::Redis => redis::subscribe_to_writes(out),
            Self::RedisChannel => redis::subscribe_to_channel(out),
            Self::Etcd => etcd::watch(out),
            Self::Nats => nats::consume("new", connection, out),
        }
    }

    /// Whether what has come since then says that it has begun.
    pub(super) fn has_begun(self, bytes: &[u8]) -> bool {
        match self {
            Self::Distkv | Self::DistkvPlace => contains(bytes, b"start"),
            Self::Redis | Self::RedisChannel => contains(bytes, b"subscribe\r\n"),
            Self::Etcd => etcd::has_data(bytes),
            Self::Nats => contains(bytes, b"consumer_create_response"),
        }
    }

    /// What each change that is told has in it once.
    pub(super) fn mark_of_change(self) -> &'static [u8] {
        match self {
            Self::RedisChannel => b"message\r\n",
            _ => b"key-0000",
        }
    }
}

/// Whether some bytes are in others.
pub(super) fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// A key as it is in every protocol.
pub(super) fn key_bytes(mut key: u64) -> [u8; KEY_BYTES] {
    let mut bytes = *b"key-000000000000";
    for digit in bytes.iter_mut().rev().take(12) {
        *digit = b'0' + (key % 10) as u8;
        key /= 10;
    }
    bytes
}
