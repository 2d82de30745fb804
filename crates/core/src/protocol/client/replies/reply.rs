//! The writer of messages to clients, and the replies that are not of one action only. The
//! order of the fields is the original's.

use crate::model::entry::Entry;
use crate::model::ids::{Millis, Tick, Tock};
use crate::model::invariant::invariant;
use crate::model::meta::shown;
use crate::model::tick_set::TickSet;
use crate::model::value::{
    write_array_len, write_bin, write_bool, write_nil, write_str, write_u64,
};
use crate::protocol::client::PROTOCOL_VERSION;
use crate::protocol::client::chain::Names;
use crate::protocol::client::error::{ClientError, Explain};
use crate::protocol::client::request::ChainLength;

/// As many fields as a MessagePack head of one byte can say. Few messages have more.
const SHORT_MAP_MAX: u16 = 15;
/// The head of a longer map, before its count of two bytes.
const LONG_MAP: u8 = 0xde;

/// Writes one map at the end of a buffer, field by field.
pub struct MessageWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Where the map's head stands.
    head: usize,
    fields: u16,
}

impl<'o> MessageWriter<'o> {
    /// Begins a message. It is whole after each field.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        let head = out.len();
        out.push(0x80);
        Self { out, head, fields: 0 }
    }

    /// Continues a message that was begun elsewhere, and has at most 15 fields so far: its bytes.
    pub fn resume(part: &[u8], out: &'o mut Vec<u8>) -> Self {
        let head = out.len();
        out.extend_from_slice(part);
        Self { out, head, fields: part.first().map_or(0, |head| u16::from(head & 0x0f)) }
    }

    /// Adds a field whose value the caller writes into the buffer: exactly one.
    #[inline]
    pub fn key(&mut self, key: &'static str) -> &mut Vec<u8> {
        if self.fields < SHORT_MAP_MAX {
            self.fields += 1;
            if let Some(head) = self.out.get_mut(self.head) {
                *head = 0x80 | self.fields as u8;
            }
        } else {
            self.lengthen();
        }
        write_str(key, self.out);
        self.out
    }

    /// One more field than fits into a short head. The first time, what there is of the message moves for a longer one.
    #[cold]
    fn lengthen(&mut self) {
        if self.fields == SHORT_MAP_MAX {
            self.out.splice(self.head..=self.head, [LONG_MAP, 0, 0]);
        }
        // Each field is a name in the code.
        invariant!(self.fields < u16::MAX, "a message has fewer than 65,536 fields");
        self.fields += 1;
        if let Some(count) = self.out.get_mut(self.head + 1..self.head + 3) {
            count.copy_from_slice(&self.fields.to_be_bytes());
        }
    }

    /// Adds nil.
    #[inline]
    pub fn nil(&mut self, key: &'static str) -> &mut Self {
        write_nil(self.key(key));
        self
    }

    /// Adds a boolean.
    #[inline]
    pub fn bool(&mut self, key: &'static str, value: bool) -> &mut Self {
        write_bool(value, self.key(key));
        self
    }

    /// Adds an integer.
    #[inline]
    pub fn u64(&mut self, key: &'static str, value: u64) -> &mut Self {
        write_u64(value, self.key(key));
        self
    }

    /// Adds a string.
    pub fn str(&mut self, key: &'static str, value: &str) -> &mut Self {
        write_str(value, self.key(key));
        self
    }

    /// Adds a byte string.
    pub fn bin(&mut self, key: &'static str, value: &[u8]) -> &mut Self {
        write_bin(value, self.key(key));
        self
    }

    /// Adds a value that is MessagePack already.
    #[inline]
    pub fn raw(&mut self, key: &'static str, value: &[u8]) -> &mut Self {
        self.key(key).extend_from_slice(value);
        self
    }

    /// Adds `seq`; nothing in a result within a batch's reply, which has none.
    #[inline]
    pub fn seq(&mut self, seq: Option<u64>) -> &mut Self {
        match seq {
            Some(seq) => self.u64("seq", seq),
            None => self,
        }
    }

    /// Adds `tock`.
    #[inline]
    pub fn tock(&mut self, tock: Tock) -> &mut Self {
        self.u64("tock", tock.get())
    }

    /// Adds an entry's `value`, `chain`, `tock` and `time`: without `value` for a tombstone, without
    /// `chain` and `time` where they are not wanted. At the entry's whole path (canonical bytes), secrets are left out.
    pub fn entry(
        &mut self,
        path: &[u8],
        entry: &Entry,
        length: ChainLength,
        names: Names<'_>,
    ) -> &mut Self {
        if let Some(value) = entry.value() {
            self.raw("value", shown(path, value));
        }
        self.version(entry, length, names)
    }

    /// The same without `value`.
    pub fn version(&mut self, entry: &Entry, length: ChainLength, names: Names<'_>) -> &mut Self {
        if !length.is_none() {
            names.write_chain(entry, length, self.key("chain"));
        }
        self.tock(entry.tock()).change_time(entry, length)
    }

    /// Adds when an entry was changed, if that is wanted and known.
    #[inline]
    pub fn change_time(&mut self, entry: &Entry, length: ChainLength) -> &mut Self {
        match length.with_time.then(|| entry.time()).flatten() {
            Some(time) => self.u64("time", time.ms()),
            None => self,
        }
    }
}

/// The stream that a message belongs to, and its number there under flow control.
#[derive(Clone, Copy, Debug)]
pub struct StreamTag {
    /// The request.
    pub seq: u64,
    /// The message's number within the stream, from 1.
    pub wseq: Option<u64>,
}

impl MessageWriter<'_> {
    /// Adds `seq` and, under flow control, `wseq`.
    pub fn tag(&mut self, tag: StreamTag) -> &mut Self {
        self.u64("seq", tag.seq);
        if let Some(wseq) = tag.wseq {
            self.u64("wseq", wseq);
        }
        self
    }
}

/// How clients log in, as the greeting says it.
#[derive(Clone, Debug, Default)]
pub struct LoginOffer {
    /// Methods. The first is the one that must be used, and that unmodified clients use; none in its place: no
    /// login is needed. The list is left out if it is empty.
    pub methods: Vec<Option<Box<str>>>,
    /// The node's part of the challenge for a login with the cluster's key.
    pub nonce: Option<[u8; 32]>,
    /// The method by which clients must log in soon: those who can do it now already.
    pub soon: Option<Box<str>>,
}

/// What a node says of itself when a client comes.
#[derive(Clone, Copy, Debug)]
pub struct Greeting<'a> {
    /// Its name.
    pub node: &'a str,
    /// That of its network, by which clients leave one of another network before they send anything; left out if it is empty.
    pub network: &'a str,
    /// None on a node that cannot work yet.
    pub tick: Option<Tick>,
    /// The network's tock, as it knows it.
    pub tock: Tock,
    /// The greatest window of streams.
    pub qlen: u64,
    /// Its own clock, by which requests say until when they count.
    pub clock: Millis,
}

/// The server's first message.
pub fn write_greeting(greeting: &Greeting<'_>, login: &LoginOffer, out: &mut Vec<u8>) {
    let Greeting { node, network, tick, tock, qlen, clock } = *greeting;
    let mut message = MessageWriter::new(out);
    message.u64("seq", 0);
    let version = message.key("version");
    write_array_len(PROTOCOL_VERSION.len(), version);
    PROTOCOL_VERSION.iter().for_each(|part| write_u64(*part, version));
    message.str("node", node);
    match tick {
        Some(tick) => message.u64("tick", tick.get()),
        None => message.nil("tick"),
    };
    message.tock(tock).u64("qlen", qlen).u64("clock", clock);
    if !network.is_empty() {
        message.str("network", network);
    }
    if !login.methods.is_empty() {
        let methods = message.key("auth");
        write_array_len(login.methods.len(), methods);
        for method in &login.methods {
            match method {
                Some(method) => write_str(method, methods),
                None => write_nil(methods),
            }
        }
    }
    if let Some(nonce) = &login.nonce {
        message.bin("nonce", nonce);
    }
    if let Some(soon) = &login.soon {
        message.str("auth_soon", soon);
    }
}

/// An error outside of a stream; of a message that no request's number was found in, without
/// `seq`.
pub fn write_error(error: &ClientError, seq: Option<u64>, tock: Tock, out: &mut Vec<u8>) {
    let mut message = MessageWriter::new(out);
    write_what(error, &mut message);
    if let Some(seq) = seq {
        message.u64("seq", seq);
    }
    message.tock(tock);
}

/// An error as a result within a batch's reply.
pub fn write_error_result(error: &ClientError, out: &mut Vec<u8>) {
    write_what(error, &mut MessageWriter::new(out));
}

/// What of an error is the same wherever it stands.
pub fn write_what(error: &ClientError, message: &mut MessageWriter<'_>) {
    message.str("error", &error.text).str("code", error.code.word());
    if error.is_made {
        message.bool("made", true);
    }
    if let Some(changed) = error.changed {
        message.u64("changed", changed);
    }
    if let Some(clock) = error.clock {
        message.u64("clock", clock);
    }
    if let Some(Explain { user, path }) = error.explain.as_deref() {
        let out = message.key("explain");
        write_array_len(2, out);
        write_str(user, out);
        write_str(path, out);
    }
}

/// An error within a stream.
pub fn write_stream_error(error: &ClientError, tag: StreamTag, tock: Tock, out: &mut Vec<u8>) {
    let mut message = MessageWriter::new(out);
    write_what(error, &mut message);
    message.tag(tag).tock(tock);
}

/// A stream's `start`, `uptodate`, `restart` or `end`.
pub fn write_state(state: &str, tag: StreamTag, tock: Tock, out: &mut Vec<u8>) {
    MessageWriter::new(out).str("state", state).tag(tag).tock(tock);
}

/// A reply that is only a `result`: one value, which the caller has written.
pub fn write_result(result: &[u8], seq: u64, tock: Tock, out: &mut Vec<u8>) {
    MessageWriter::new(out).raw("result", result).u64("seq", seq).tock(tock);
}

/// Ticks: an array of ranges `[from, to)`, where a single tick is a bare integer.
pub fn write_ticks(ticks: &TickSet, out: &mut Vec<u8>) {
    write_array_len(ticks.range_count(), out);
    for (from, to) in ticks.ranges() {
        if from + 1 == to {
            write_u64(from, out);
        } else {
            write_array_len(2, out);
            write_u64(from, out);
            write_u64(to, out);
        }
    }
}
