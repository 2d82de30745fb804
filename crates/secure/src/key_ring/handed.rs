//! What nodes hand each other of their rings: what was ordered over the network, and nothing else.
//!
//! [`KeyRing::merge`] is what a node takes of it. Merging is commutative and idempotent, so it does not
//! matter in which order nodes meet:
//!
//! 1. A removed key stays removed: its id is remembered, and no merge brings it back. Of more than 16, the oldest are
//!    forgotten.
//! 2. Keys are united. If there would be more than 4, nothing is taken.
//! 3. Of two orders to use a key, the later one counts, on every node that has the key; of two that were given on two sides of a
//!    split, the one with the greater count of such orders, or of equal counts the greater id. A primary that is removed is
//!    replaced by the key of that order, or else by the one with the smallest id.
//! 4. What was added over the network, and is not in use when another key is ordered to be, is older than that key from then on.

use distkv_core::membership::NetworkName;

use super::{Applied, KeyRing, REMOVED_MAX, RingError, Used};
use crate::key::{Key, KeyId};

/// What a node hands to others of its ring. Holds secrets: for sealed links only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// The network whose keys these are.
    pub(crate) network: NetworkName,
    /// Keys that were added, in the ring's order; at most [`super::KEYS_MAX`].
    pub keys: Vec<Key>,
    /// The last order to use a key.
    pub used: Option<Used>,
    /// Ids of keys that were removed; at most [`super::REMOVED_MAX`].
    pub removed: Vec<KeyId>,
}

impl Handed {
    /// Whether it says nothing.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.used.is_none() && self.removed.is_empty()
    }
}

/// What a merge did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Merged {
    /// Keys that were taken from the other ring.
    pub added: Vec<KeyId>,
    /// Keys that the other ring knew to be removed.
    pub removed: Vec<KeyId>,
    /// The new primary, if it is another one.
    pub primary: Option<KeyId>,
}

impl KeyRing {
    /// As [`Self::add`], at every node: the key is handed to those that are met.
    ///
    /// # Errors
    /// [`RingError::Full`], [`RingError::Removed`], [`RingError::SameId`].
    pub fn order_add(&mut self, key: Key) -> Result<Applied, RingError> {
        let id = key.id();
        let (added, is_new) = (self.add(key)?, !self.shared.contains(&id));
        self.share(id);
        Ok(if is_new { Applied::Changed } else { added })
    }

    /// As [`Self::make_primary`], at every node that has the key.
    ///
    /// # Errors
    /// [`RingError::Unknown`]: it must be added first.
    pub fn order_use(&mut self, id: KeyId) -> Result<Applied, RingError> {
        let changed = self.supersede(id)?;
        if changed == Applied::Already && self.used.is_some_and(|used| used.id == id) {
            return Ok(Applied::Already);
        }
        let count = self.used.map_or(0, |used| used.count).saturating_add(1);
        self.used = Some(Used { count, id });
        Ok(Applied::Changed)
    }

    /// As [`Self::remove`], at every node.
    ///
    /// # Errors
    /// [`RingError::Last`], [`RingError::Primary`], [`RingError::Unknown`].
    pub fn order_remove(&mut self, id: KeyId) -> Result<Applied, RingError> {
        let (removed, is_new) = (self.take_out(id)?, !self.shared.contains(&id));
        self.share(id);
        Ok(if is_new { Applied::Changed } else { removed })
    }

    /// As [`Self::order_remove`], also of a key that this ring does not have, because somebody has added it at another
    /// node by hand. For ids that a node says it has, and no others: few are remembered.
    ///
    /// # Errors
    /// [`RingError::Last`], [`RingError::Primary`].
    pub fn order_remove_elsewhere(&mut self, id: KeyId) -> Result<Applied, RingError> {
        self.remember_removed(id);
        self.order_remove(id)
    }

    /// What is handed to other nodes.
    #[must_use]
    pub fn handed(&self) -> Handed {
        let is_shared = |id: &KeyId| self.shared.contains(id);
        Handed {
            network: self.network.clone(),
            keys: self.keys.iter().filter(|key| is_shared(&key.id())).cloned().collect(),
            used: self.used,
            removed: self.removed.iter().copied().filter(is_shared).collect(),
        }
    }

    /// Whether a key was added, or removed, over the network.
    #[must_use]
    pub fn is_shared(&self, id: KeyId) -> bool {
        self.shared.contains(&id)
    }

    /// The last order to use a key.
    #[must_use]
    pub(crate) fn used(&self) -> Option<Used> {
        self.used
    }

    /// What a key file says of that.
    pub(crate) fn restore(&mut self, shared: &[KeyId], used: Option<Used>) {
        shared.iter().for_each(|id| self.share(*id));
        self.used = used;
    }

    /// Notes an id that the ring knows as one of the network's.
    fn share(&mut self, id: KeyId) {
        let is_known = self.lookup(id).is_some() || self.removed.contains(&id);
        if is_known {
            self.shared.insert(id);
        }
    }

    /// Takes over what another member hands over; the module's documentation has the rules. Only for what
    /// came over a sealed link: whoever has an old key thereby gets the new one, so after a theft a new key
    /// has to be carried by hand instead.
    ///
    /// # Errors
    /// [`RingError::OtherNetwork`], [`RingError::Full`], [`RingError::SameId`], [`RingError::Disjoint`]: the ring
    /// is as it was.
    pub fn merge(&mut self, theirs: &Handed) -> Result<Merged, RingError> {
        if self.network != theirs.network {
            return Err(RingError::OtherNetwork);
        }
        let mut after = self.clone();
        let removed = after.learn_removed(&theirs.removed);
        let mut merged = Merged { removed, ..Merged::default() };
        for key in &theirs.keys {
            match after.add(key.clone()) {
                Ok(applied) => {
                    if applied == Applied::Changed {
                        merged.added.push(key.id());
                    }
                    after.share(key.id());
                }
                Err(RingError::Removed(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(used) = theirs.used.filter(|used| after.used < Some(*used)) {
            let _ = after.supersede(used.id).map(|_| after.used = Some(used));
        }
        if after.lookup(after.primary).is_none() {
            // The smallest id: all nodes that lose their primary choose the same one.
            let smallest = after.keys.iter().map(Key::id).min().ok_or(RingError::Disjoint)?;
            let mut ordered = [after.used, theirs.used].into_iter().flatten().map(|used| used.id);
            let known = ordered.rfind(|id| after.lookup(*id).is_some());
            after.primary = known.unwrap_or(smallest);
        }
        merged.primary = Some(after.primary).filter(|primary| *primary != self.primary);
        *self = after;
        Ok(merged)
    }

    /// Takes what was ordered over the network from the ring of the node whose key file this ring is of.
    ///
    /// # Errors
    /// [`RingError::Replaced`], and those of [`Self::merge`]: the ring is as it was.
    pub fn keep(&mut self, of_node: &KeyRing) -> Result<Merged, RingError> {
        if !self.is_related_to(of_node) {
            return Err(RingError::Replaced);
        }
        self.merge(&of_node.handed())
    }

    /// Takes out what another ring remembers as removed, oldest first, and remembers it; what was taken out.
    ///
    /// What is unknown here and stands before something that is known is older than that. It never displaces what is
    /// remembered here: a ring that has not heard of the last removal yet would have it forgotten, by handing over
    /// what had been forgotten here for it, and its key would come back.
    fn learn_removed(&mut self, theirs: &[KeyId]) -> Vec<KeyId> {
        let is_known = |id: &KeyId| self.removed.contains(id) || self.lookup(*id).is_some();
        let last_known = theirs.iter().rposition(is_known);
        let (not_newer, newer) = theirs.split_at(last_known.map_or(0, |at| at + 1));
        let older: Vec<KeyId> = not_newer.iter().copied().filter(|id| !is_known(id)).collect();
        let has_key = |id: &KeyId| self.lookup(*id).is_some();
        let taken_out: Vec<KeyId> = theirs.iter().copied().filter(has_key).collect();
        self.keys.retain(|key| !taken_out.contains(&key.id()));
        taken_out.iter().chain(newer).for_each(|id| self.remember_removed(*id));
        let room = REMOVED_MAX.saturating_sub(self.removed.len());
        self.removed.splice(..0, older.into_iter().rev().take(room).rev());
        theirs.iter().for_each(|id| self.share(*id));
        taken_out
    }
}
