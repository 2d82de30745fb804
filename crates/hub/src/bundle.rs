//! Changes of one moment that go to the same watches: one allocation and one place in each watch's
//! queue for all of them, and one encoding for all watches whose messages look alike.
//!
//! A hundred watches of one subtree cost a hundred pushes per moment, not per change, while the
//! guard is held, and each change is encoded once.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::client_memory::{Charge, ClientMemory};
use crate::model::invariant::OrBroken;
use crate::protocol::client::request::ChainLength;
use crate::replica::Committed;
use crate::replica::watch::Watchers;

/// Most changes of one bundle: a watch's queue overflows by whole bundles.
pub(crate) const BUNDLE_MAX: usize = 256;
/// Most bytes of one bundle, but for one change.
pub(crate) const BUNDLE_BYTES_MAX: usize = 64 << 10;

/// What a queue's account adds for each item.
pub(super) const ITEM_COST: usize = 64;

/// About how many bytes a message's tag takes.
const TAG_BYTES: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct Bundle {
    changes: SmallVec<[Committed; 1]>,
    cost: usize,
    /// How many watches share it.
    watches: usize,
    encoded: OnceLock<Encoded>,
    charge: Charge,
}

/// What messages about the same change must have in common to be the same bytes but for their
/// stream's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// This many bytes are cut off the front of each path.
    pub cut: usize,
    /// How much of the chain is sent.
    pub chain: ChainLength,
}

/// A bundle's changes as messages that lack their tag, each with its path shortened by the one
/// before it.
#[derive(Debug)]
pub struct Encoded {
    style: Style,
    bytes: Vec<u8>,
    /// Where each message ends; the first one's is 0, because each stream encodes the first message
    /// itself.
    ends: SmallVec<[u32; 8]>,
}

impl Encoded {
    /// Nothing yet.
    #[must_use]
    pub(crate) fn new(style: Style) -> Self {
        Self { style, bytes: Vec::new(), ends: SmallVec::from_slice(&[0]) }
    }

    /// Adds the next change's message: what `write` puts at the buffer's end.
    pub fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        let end = u32::try_from(self.bytes.len());
        self.ends.push(end.or_broken("a bundle's messages take less than 4 GiB"));
    }

    /// The messages from a change on that is not the first one.
    pub fn messages(&self, from: usize) -> impl Iterator<Item = &[u8]> {
        let ends = self.ends.get(from.saturating_sub(1)..).unwrap_or_default();
        ends.iter().zip(ends.iter().skip(1)).map(|(from, to)| {
            let message = self.bytes.get(*from as usize..*to as usize);
            message.or_broken("a message ends within its bundle")
        })
    }

    /// About how many bytes all messages take, their tags included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let count = self.ends.len();
        self.bytes.len() / count.saturating_sub(1).max(1) * count + TAG_BYTES * count
    }
}

impl Bundle {
    /// The changes, in the order in which they were made.
    #[must_use]
    pub fn changes(&self) -> &[Committed] {
        &self.changes
    }

    /// Its share of a queue's account.
    pub(super) fn cost(&self) -> usize {
        self.cost
    }

    /// The messages in that style; made by the first connection that asks. None if others that
    /// share the bundle want another style, or nobody shares it: then it would only be one more
    /// copy.
    pub fn encoded(&self, style: Style, encode: impl FnOnce(&mut Encoded)) -> Option<&Encoded> {
        if self.watches < 2 || self.changes.len() < 2 {
            return None;
        }
        let encoded = self.encoded.get_or_init(|| {
            let mut encoded = Encoded::new(style);
            encode(&mut encoded);
            self.charge.add(encoded.bytes.capacity());
            encoded
        });
        (encoded.style == style).then_some(encoded)
    }
}

/// A bundle that grows, and whom it is for.
#[derive(Default)]
pub(super) struct Collecting {
    watchers: Watchers,
    changes: SmallVec<[Committed; 1]>,
    cost: usize,
}

impl Collecting {
    /// Whether a change for these watches can go into the bundle.
    pub(super) fn takes(&self, watchers: &Watchers) -> bool {
        self.changes.is_empty()
            || (self.watchers.is_same(watchers)
                && self.changes.len() < BUNDLE_MAX
                && self.cost < BUNDLE_BYTES_MAX)
    }

    /// Adds a change that it takes.
    pub(super) fn add(&mut self, watchers: Watchers, change: Committed) {
        self.watchers = watchers;
        self.cost += change.path.as_bytes().len() + change.entry.memory_bytes() + ITEM_COST;
        self.changes.push(change);
    }

    /// Takes the bundle out, if there is something in it.
    pub(super) fn finish(&mut self, memory: &Arc<ClientMemory>) -> Option<(Watchers, Arc<Bundle>)> {
        if self.changes.is_empty() {
            return None;
        }
        let Self { watchers, changes, cost } = std::mem::take(self);
        let watches = watchers.len();
        let (encoded, charge) = (OnceLock::new(), memory.charge(cost));
        Some((watchers, Arc::new(Bundle { changes, cost, watches, encoded, charge })))
    }
}
