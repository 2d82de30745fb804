//! The last so many of some keyed hashes. They are of use to nobody without the key, which is never stored.

use std::collections::{HashSet, VecDeque};

use distkv_model::ids::Event;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// A keyed hash.
pub(super) type Digest = [u8; 32];

/// A hash of these parts, each of which is told from the next one. Keys of any length are taken, so there always is one.
pub(super) fn keyed_hash<'a>(
    key: &[u8; 32],
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> Option<Digest> {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key).ok()?;
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    Some(mac.finalize().into_bytes().into())
}

/// An event as a part of a hash.
pub(super) fn bytes_of(event: Event) -> Vec<u8> {
    [&event.node.0.to_be_bytes()[..], &event.tick.get().to_be_bytes()].concat()
}

/// See the module. The oldest goes first.
pub(super) struct Recent {
    known: HashSet<Digest>,
    /// The same, oldest first. Invariant: at most `max`.
    order: VecDeque<Digest>,
    max: usize,
}

impl Recent {
    pub(super) fn new(max: usize) -> Self {
        Self { known: HashSet::new(), order: VecDeque::new(), max }
    }

    pub(super) fn contains(&self, hash: &Digest) -> bool {
        self.known.contains(hash)
    }

    /// Returns whether it is new.
    pub(super) fn insert(&mut self, hash: Digest) -> bool {
        if !self.known.insert(hash) {
            return false;
        }
        self.order.push_back(hash);
        if self.order.len() > self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}
