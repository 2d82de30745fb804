//! The keys that a network uses at one time: one of them primary, the others for as long as a rotation
//! takes. A receiver takes any key of its ring; a sender uses its primary.
//!
//! A rotation is three steps, each of which may be repeated: *add* the new key at every node, *use* it
//! once every member has it, *remove* the old one once every member uses the new one. At any moment of
//! it any two nodes have the other's primary, so nobody is locked out.
//!
//! [`KeyRing::merge`] is what a node takes of another's ring. Merging is commutative and idempotent as
//! far as the set of keys goes, so it does not matter in which order nodes meet:
//!
//! 1. A removed key stays removed: its id is remembered, and no merge brings it back.
//! 2. Keys are united. If there would be more than 4, nothing is taken.
//! 3. The primary is each node's own affair, changed by [`KeyRing::make_primary`]. A merge changes it only if it
//!    removes the primary; then the other's primary is taken.

use distkv_core::membership::NetworkName;

use crate::key::{Key, KeyId};

/// Most keys of a ring: the one in use, its successor, and room for a rotation that was broken off.
pub const KEYS_MAX: usize = 4;
/// Most ids of removed keys that a ring remembers; the oldest are forgotten.
pub const REMOVED_MAX: usize = 16;

/// Why a ring was not changed. It is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// There are [`KEYS_MAX`] keys already.
    #[error("the ring has {KEYS_MAX} keys already; remove one that is not used any more")]
    Full,
    /// The last key cannot be removed.
    #[error("key {0} is the only one; add another and use it first")]
    Last(KeyId),
    /// The primary key cannot be removed.
    #[error("key {0} is the primary; use another one first")]
    Primary(KeyId),
    /// No such key.
    #[error("there is no key {0} in the ring")]
    Unknown(KeyId),
    /// A key of this id was removed here.
    #[error("key {0} was removed; make a new key instead")]
    Removed(KeyId),
    /// Two different secrets have one id. Make another key.
    #[error("another key has the id {0}, too; make a new key instead")]
    SameId(KeyId),
    /// The other ring is of another network.
    #[error("the other ring is of another network")]
    OtherNetwork,
    /// Nothing would be left after a merge: each ring has removed what the other has.
    #[error("the rings have no key in common that neither has removed")]
    Disjoint,
}

/// Whether a step that may be repeated changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The ring was changed, and should be stored.
    Changed,
    /// It was so already.
    Already,
}

/// What a merge did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Merged {
    /// Keys that were taken from the other ring.
    pub added: Vec<KeyId>,
    /// Keys that the other ring knew to be removed.
    pub removed: Vec<KeyId>,
    /// The new primary, if the old one was removed.
    pub primary: Option<KeyId>,
}

impl Merged {
    /// Whether the ring is another one than before, and should be stored.
    #[must_use]
    pub fn is_change(&self) -> bool {
        !self.added.is_empty() || !self.removed.is_empty() || self.primary.is_some()
    }
}

/// What others may be told of a ring: no secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingSummary {
    /// The ids of its keys, in the ring's order.
    pub ids: Vec<KeyId>,
    /// The one that its node seals with.
    pub primary: KeyId,
}

/// The keys of one network: 1 to [`KEYS_MAX`], one of them primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRing {
    network: NetworkName,
    /// Invariant: 1 to `KEYS_MAX`; no id twice; none of an id in `removed`.
    keys: Vec<Key>,
    /// Invariant: the id of one of `keys`.
    primary: KeyId,
    /// At most `REMOVED_MAX`, oldest first.
    removed: Vec<KeyId>,
}

impl KeyRing {
    /// A ring of one key.
    #[must_use]
    pub fn new(network: NetworkName, key: Key) -> Self {
        let primary = key.id();
        Self { network, keys: vec![key], primary, removed: Vec::new() }
    }

    /// The network whose keys these are.
    #[must_use]
    pub fn network(&self) -> &NetworkName {
        &self.network
    }

    /// The keys, in the order in which they were added.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The id of the key that this node seals with.
    #[must_use]
    pub fn primary_id(&self) -> KeyId {
        self.primary
    }

    /// The key that this node seals with.
    #[must_use]
    pub fn primary(&self) -> &Key {
        use distkv_model::invariant::OrBroken as _;
        self.lookup(self.primary).or_broken("a ring has its primary key")
    }

    /// The key of an id.
    #[must_use]
    pub fn lookup(&self, id: KeyId) -> Option<&Key> {
        self.keys.iter().find(|key| key.id() == id)
    }

    /// The ids of removed keys that are remembered, oldest first.
    #[must_use]
    pub fn removed(&self) -> &[KeyId] {
        &self.removed
    }

    /// What others may be told of it.
    #[must_use]
    pub fn summary(&self) -> RingSummary {
        RingSummary { ids: self.keys.iter().map(Key::id).collect(), primary: self.primary }
    }

    /// Adds a key, which is not used for sealing until [`Self::make_primary`].
    ///
    /// # Errors
    /// [`RingError::Full`], [`RingError::Removed`], [`RingError::SameId`].
    pub fn add(&mut self, key: Key) -> Result<Applied, RingError> {
        let id = key.id();
        match self.lookup(id) {
            Some(known) if *known == key => return Ok(Applied::Already),
            Some(_) => return Err(RingError::SameId(id)),
            None if self.removed.contains(&id) => return Err(RingError::Removed(id)),
            None if self.keys.len() >= KEYS_MAX => return Err(RingError::Full),
            None => self.keys.push(key),
        }
        Ok(Applied::Changed)
    }

    /// Makes a key the one that this node seals with.
    ///
    /// # Errors
    /// [`RingError::Unknown`]: it must be added first.
    pub fn make_primary(&mut self, id: KeyId) -> Result<Applied, RingError> {
        if self.lookup(id).is_none() {
            return Err(RingError::Unknown(id));
        }
        let before = std::mem::replace(&mut self.primary, id);
        Ok(if before == id { Applied::Already } else { Applied::Changed })
    }

    /// Removes a key and remembers that it was. Removing a key again does nothing.
    ///
    /// # Errors
    /// [`RingError::Last`], [`RingError::Primary`], [`RingError::Unknown`].
    pub fn remove(&mut self, id: KeyId) -> Result<Applied, RingError> {
        if self.lookup(id).is_none() {
            let known = self.removed.contains(&id);
            return if known { Ok(Applied::Already) } else { Err(RingError::Unknown(id)) };
        }
        if self.keys.len() == 1 {
            return Err(RingError::Last(id));
        }
        if id == self.primary {
            return Err(RingError::Primary(id));
        }
        self.keys.retain(|key| key.id() != id);
        self.remember_removed(id);
        Ok(Applied::Changed)
    }

    /// Remembers an id as removed, as a key file tells it. Ignored if the ring has that key.
    pub(crate) fn remember_removed(&mut self, id: KeyId) {
        if self.removed.contains(&id) || self.lookup(id).is_some() {
            return;
        }
        if self.removed.len() >= REMOVED_MAX {
            self.removed.remove(0);
        }
        self.removed.push(id);
    }

    /// Takes over what another member's ring has or knows to be removed; the module's documentation has
    /// the rules. Only for rings that came over a sealed link: whoever has an old key thereby gets the
    /// new one, so after a theft a new key file has to be carried by hand instead.
    ///
    /// # Errors
    /// [`RingError::OtherNetwork`], [`RingError::Full`], [`RingError::SameId`], [`RingError::Disjoint`].
    pub fn merge(&mut self, theirs: &Self) -> Result<Merged, RingError> {
        if self.network != theirs.network {
            return Err(RingError::OtherNetwork);
        }
        let mut after = self.clone();
        let mut merged = Merged::default();
        for id in &theirs.removed {
            if after.lookup(*id).is_some() {
                merged.removed.push(*id);
                after.keys.retain(|key| key.id() != *id);
            }
            after.remember_removed(*id);
        }
        for key in &theirs.keys {
            match after.add(key.clone()) {
                Ok(Applied::Changed) => merged.added.push(key.id()),
                Ok(Applied::Already) | Err(RingError::Removed(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if after.lookup(after.primary).is_none() {
            // Theirs, or else the smallest id: all nodes that lose their primary choose the same one.
            let smallest = after.keys.iter().map(Key::id).min().ok_or(RingError::Disjoint)?;
            let theirs = after.lookup(theirs.primary).map(Key::id);
            after.primary = theirs.unwrap_or(smallest);
            merged.primary = Some(after.primary);
        }
        *self = after;
        Ok(merged)
    }
}

impl RingSummary {
    /// Whether this ring's node could not take what is sealed with a key.
    #[must_use]
    pub fn lacks(&self, id: KeyId) -> bool {
        !self.ids.contains(&id)
    }
}

/// The members that keep a key from being used everywhere: those that lack it. A member whose ring is
/// not known (away, never seen since) lacks it. Empty: the rotation may go on to `use`.
pub fn blocks_use<'a, M: Clone>(
    id: KeyId,
    members: impl IntoIterator<Item = (M, Option<&'a RingSummary>)>,
) -> Vec<M> {
    let lacks = |ring: Option<&RingSummary>| ring.is_none_or(|ring| ring.lacks(id));
    members.into_iter().filter(|(_, ring)| lacks(*ring)).map(|(member, _)| member).collect()
}

/// The members that keep a key from being removed: those that still seal with it, and those whose ring
/// is not known. Empty: it may be removed.
pub fn blocks_removal<'a, M: Clone>(
    id: KeyId,
    members: impl IntoIterator<Item = (M, Option<&'a RingSummary>)>,
) -> Vec<M> {
    let uses = |ring: Option<&RingSummary>| ring.is_none_or(|ring| ring.primary == id);
    members.into_iter().filter(|(_, ring)| uses(*ring)).map(|(member, _)| member).collect()
}

#[cfg(test)]
mod tests;
