//! What stores speak: the load generator's protocol, chosen at run time, and watching. What is particular
//! to a store is in `stores`.

use distkv_bench::distkv::{DistKv, watch_request};
use distkv_bench::wire::{Answer, Protocol, Tag, WireError, key_bytes};
use distkv_model::path::Path;

use crate::stores::{etcd, nats, redis};

/// Which protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StoreProtocol {
    /// A distkv-node, or a Python DistKV
    Distkv,
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

impl Protocol for StoreProtocol {
    fn hello(self, connection: u64, out: &mut Vec<u8>) {
        match self {
            Self::Distkv => DistKv::Root.hello(connection, out),
            Self::Redis | Self::RedisChannel => {}
            Self::Etcd => etcd::hello(out),
            Self::Nats => nats::hello(connection, out),
        }
    }

    fn numbers_rise(self) -> bool {
        self == Self::Etcd
    }

    fn get(self, key: u64, tag: Tag, out: &mut Vec<u8>) {
        let bytes = key_bytes(key);
        match self {
            Self::Distkv => DistKv::Root.get(key, tag, out),
            Self::Redis | Self::RedisChannel => redis::get(&bytes, out),
            Self::Etcd => etcd::get(&bytes, tag.seq, out),
            Self::Nats => nats::get(&bytes, tag, out),
        }
    }

    fn set(self, key: u64, value: &[u8], tag: Tag, out: &mut Vec<u8>) {
        let bytes = key_bytes(key);
        match self {
            Self::Distkv => DistKv::Root.set(key, value, tag, out),
            Self::Redis => redis::set(&bytes, value, out),
            Self::RedisChannel => redis::publish(value, out),
            Self::Etcd => etcd::set(&bytes, value, tag.seq, out),
            Self::Nats => nats::set(&bytes, value, tag, out),
        }
    }

    fn answer(self, bytes: &[u8]) -> Result<Option<Answer>, WireError> {
        match self {
            Self::Distkv => DistKv::Root.answer(bytes),
            Self::Redis | Self::RedisChannel => redis::answer(bytes),
            Self::Etcd => etcd::answer(bytes),
            Self::Nats => nats::answer(bytes),
        }
    }
}

impl StoreProtocol {
    /// Appends the wish to be told of all changes, the only one of its connection.
    pub(crate) fn watch(self, connection: u64, out: &mut Vec<u8>) {
        match self {
            Self::Distkv => out.extend_from_slice(&watch_request(&Path::root())),
            Self::Redis => redis::subscribe_to_writes(out),
            Self::RedisChannel => redis::subscribe_to_channel(out),
            Self::Etcd => etcd::watch(out),
            Self::Nats => nats::consume("new", connection, out),
        }
    }

    /// Whether what has come since then says that it has begun.
    pub(crate) fn has_begun(self, bytes: &[u8]) -> bool {
        match self {
            Self::Distkv => contains(bytes, b"start"),
            Self::Redis | Self::RedisChannel => contains(bytes, b"subscribe\r\n"),
            Self::Etcd => etcd::has_data(bytes),
            Self::Nats => contains(bytes, b"consumer_create_response"),
        }
    }

    /// What each change that is told has in it once.
    pub(crate) fn mark_of_change(self) -> &'static [u8] {
        match self {
            Self::RedisChannel => b"message\r\n",
            _ => b"key-0000",
        }
    }
}

/// Whether some bytes are in others.
pub(crate) fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
