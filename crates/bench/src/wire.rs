//! What a load generator says, and how it knows an answer again: what a protocol must offer.
//!
//! For speed, not for all of a protocol: requests are bytes that are put together, and of an answer
//! only its length, its number and whether it is an error are looked at.

use std::sync::atomic::{AtomicU64, Ordering};

/// A key's length: `key-` and twelve digits.
pub const KEY_BYTES: usize = 16;

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The connection's number, as [`Protocol::hello`] got it.
    pub connection: u64,
    /// The request's, on its connection; from 1.
    pub seq: u64,
}

impl From<u64> for Tag {
    fn from(seq: u64) -> Self {
        Self { connection: 0, seq }
    }
}

/// An answer that is here wholly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// How many bytes it has.
    pub bytes: usize,
    /// The number of the request that it answers; none where answers come in the order of requests; 0 for
    /// what answers none.
    pub seq: Option<u64>,
    /// Whether the server refuses.
    pub is_error: bool,
}

/// What came is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not of {protocol}{}", .why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
pub struct WireError {
    /// What was expected: "the client protocol", "Redis's protocol".
    pub(crate) protocol: &'static str,
    /// What is wrong with it, if there is more to say.
    pub(crate) why: Option<String>,
}

impl WireError {
    /// The error that says no more than which protocol was expected.
    #[must_use]
    pub const fn not(protocol: &'static str) -> Self {
        Self { protocol, why: None }
    }
}

/// What the load generator needs of a protocol.
pub trait Protocol: Copy + Send + 'static {
    /// Appends what a connection begins with; `connection` is a number that no other has.
    fn hello(self, connection: u64, out: &mut Vec<u8>);

    /// Whether a connection's requests must have numbers that rise.
    fn numbers_rise(self) -> bool;

    /// Appends a read.
    fn get(self, key: u64, tag: Tag, out: &mut Vec<u8>);

    /// Appends a write.
    fn set(self, key: u64, value: &[u8], tag: Tag, out: &mut Vec<u8>);

    /// The answer that some bytes begin with, if all of it is here.
    ///
    /// # Errors
    /// They do not begin with one.
    fn answer(self, bytes: &[u8]) -> Result<Option<Answer>, WireError>;
}

/// A number for a connection that no other of this process has.
pub fn connection_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A key as it is in every protocol.
#[must_use]
pub fn key_bytes(mut key: u64) -> [u8; KEY_BYTES] {
    let mut bytes = *b"key-000000000000";
    for digit in bytes.iter_mut().rev().take(12) {
        *digit = b'0' + (key % 10) as u8;
        key /= 10;
    }
    bytes
}
