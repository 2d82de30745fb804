//! The keys that a network uses at one time: one of them primary, the others for as long as a rotation
//! takes. A receiver takes any key of its ring; a sender uses its primary.
//!
//! A rotation is three steps, each of which may be repeated: *add* the new key at every node, *use* it
//! once every member has it, *remove* the old one once every member uses the new one. At any moment of
//! it any two nodes have the other's primary, so nobody is locked out.
//!
//! A step comes from an operator's hand or over the network. What a hand changes ([`KeyRing::add`],
//! [`KeyRing::make_primary`], [`KeyRing::remove`]) stays in this ring: an operator who carries a new key by
//! hand, because the old one was stolen, does not want it to be sent to whoever has the old one. What is
//! ordered over the network (`order_…`) is handed to every node that is met: see [`handed`].

pub mod handed;

use std::collections::BTreeSet;

use distkv_core::membership::NetworkName;

use crate::key::{Key, KeyId};

/// Most keys of a ring: the one in use, its successor, and room for a rotation that was broken off.
pub(crate) const KEYS_MAX: usize = 4;
/// Most ids of removed keys that a ring remembers; the oldest are forgotten.
pub(crate) const REMOVED_MAX: usize = 16;

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
    /// The file's ring has none of the keys of the node's: somebody has put it in place of the file that the node read.
    #[error(
        "it has none of the keys that the node uses, so it is another one than the node has read; have the node read it \
         (SIGHUP, or a restart)"
    )]
    Replaced,
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

/// The last order to use a key. The greater one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Used {
    /// Counts such orders, from 1.
    pub count: u64,
    /// The key to use.
    pub id: KeyId,
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
    /// Of `keys` and `removed` those that were added or removed over the network.
    shared: BTreeSet<KeyId>,
    /// The last order to use a key that came over the network.
    used: Option<Used>,
}

impl KeyRing {
    /// A ring of one key.
    #[must_use]
    pub fn new(network: NetworkName, key: Key) -> Self {
        let primary = key.id();
        let (removed, shared) = (Vec::new(), BTreeSet::new());
        Self { network, keys: vec![key], primary, removed, shared, used: None }
    }

    /// The network whose keys these are.
    #[must_use]
    pub fn network(&self) -> &NetworkName {
        &self.network
    }

    /// The keys, in the order in which they were added; but those that were superseded stand before the primary.
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

    /// Whether this ring has, or remembers as removed, a key that another one has or remembers. If it does not, it was made
    /// anew, in place of the other: after a theft, say. Then nothing of the other may be merged into it.
    #[must_use]
    pub fn is_related_to(&self, other: &KeyRing) -> bool {
        let knows = |id: &KeyId| self.lookup(*id).is_some() || self.removed.contains(id);
        other.keys.iter().any(|key| knows(&key.id())) || other.removed.iter().any(knows)
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

    /// As [`Self::make_primary`], by an order over the network. Whatever was added over the network before is older than this key
    /// from then on, also if it was never in use: two sides of a split get their keys in different orders, and without that, each
    /// side's next rotation would put the other key to use, in turn, for ever. What a hand has added stays newer.
    fn supersede(&mut self, id: KeyId) -> Result<Applied, RingError> {
        let before = self.primary;
        let applied = self.make_primary(id)?;
        if applied == Applied::Changed {
            let (mut older, mut newer, mut is_behind) = (Vec::new(), Vec::new(), false);
            for key in std::mem::take(&mut self.keys) {
                let is_superseded = key.id() == before || self.shared.contains(&key.id());
                if key.id() == id || (is_behind && !is_superseded) {
                    is_behind = true;
                    newer.push(key);
                } else {
                    older.push(key);
                }
            }
            // Their order says nothing, so it is the same one in all rings.
            older.sort_unstable_by_key(Key::id);
            older.append(&mut newer);
            self.keys = older;
        }
        Ok(applied)
    }

    /// Removes a key and remembers that it was, for this ring alone. Removing a key again does nothing.
    ///
    /// # Errors
    /// [`RingError::Last`], [`RingError::Primary`], [`RingError::Unknown`].
    pub fn remove(&mut self, id: KeyId) -> Result<Applied, RingError> {
        let applied = self.take_out(id)?;
        if applied == Applied::Changed {
            self.shared.remove(&id);
        }
        Ok(applied)
    }

    fn take_out(&mut self, id: KeyId) -> Result<Applied, RingError> {
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
            let forgotten = self.removed.remove(0);
            self.shared.remove(&forgotten);
        }
        self.removed.push(id);
    }
}

impl RingSummary {
    /// Whether this ring's node could not take what is sealed with a key.
    #[must_use]
    fn lacks(&self, id: KeyId) -> bool {
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
