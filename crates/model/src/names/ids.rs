//! Who made a change and when: node names, incarnations, ticks, tocks, event ids, and the
//! table that gives each known incarnation a small local index.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::invariant::OrBroken;
use crate::limits::{COUNTER_LIMIT, NAME_BYTES_MAX};

/// Most incarnations that a node's table holds. 65,536 at about 100 bytes each; beyond it a
/// peer's records are refused rather than letting the table grow without end.
pub const NODE_TABLE_MAX: usize = 1 << 16;

/// Milliseconds on a monotonic clock that was passed in from outside. Only differences mean
/// anything.
pub type Millis = u64;

/// Why a name was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("the name is empty; give 1 to {NAME_BYTES_MAX} bytes of text")]
    Empty,
    /// The name is longer than [`NAME_BYTES_MAX`] bytes.
    #[error("the name has {0} bytes; at most {NAME_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// The name has a character that is reserved or invisible.
    #[error("the name contains {0:?}; '~', control characters and white space are not allowed")]
    Character(char),
}

/// A node's name, unique in its network: 1 to [`NAME_BYTES_MAX`] bytes of UTF-8 without `~`,
/// control characters and white space. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Checks a name and makes it a [`NodeName`].
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with it.
    pub fn new(name: &str) -> Result<Self, NameError> {
        Self::check(name)?;
        Ok(Self(Arc::from(name)))
    }

    /// Whether a text could be a name; no allocation.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with it.
    pub fn check(name: &str) -> Result<(), NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong(name.len()));
        }
        // '~' sets a name apart from its incarnation (`model::spelling`).
        match name.chars().find(|c| *c == '~' || c.is_control() || c.is_whitespace()) {
            Some(c) => Err(NameError::Character(c)),
            None => Ok(()),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl std::str::FromStr for NodeName {
    type Err = NameError;

    fn from_str(s: &str) -> Result<Self, NameError> {
        Self::new(s)
    }
}

/// One life of a node. Every start of a node begins a new one (ARCHITECTURE.md, invariant 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Incarnation(pub u64);

/// Bits of a newly drawn incarnation: few enough to read, and enough that two lives of one node
/// never draw the same one.
const INCARNATION_BITS: u32 = 48;

impl Incarnation {
    /// A new incarnation from a random number: 48 bits, the highest of them set, so
    /// that its spelling always has twelve digits.
    #[must_use]
    pub fn of_random(random: u64) -> Self {
        let top = 1 << (INCARNATION_BITS - 1);
        Self(random & (top - 1) | top)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
        pub struct $name(u64);

        impl $name {
            /// The greatest one: 2^62 - 1.
            pub const MAX: Self = Self(COUNTER_LIMIT - 1);

            /// Takes a counter that came from outside; `None` at and above 2^62.
            #[must_use]
            pub fn new(value: u64) -> Option<Self> {
                (value < COUNTER_LIMIT).then_some(Self(value))
            }

            /// The number.
            #[must_use]
            pub fn get(self) -> u64 {
                self.0
            }

            /// The next one; `None` when the counter is used up (2^62).
            #[must_use]
            pub fn next(self) -> Option<Self> {
                Self::new(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// A node's own counter of the changes that it made: 1, 2, 3 … without holes; 0 is none
    /// yet. Below 2^62.
    Tick
}
counter! {
    /// The counter shared by the whole network, Lamport style: never goes back, every change
    /// carries one. Below 2^62.
    Tock
}

/// One life of one node: name and incarnation. Ordered by name, then incarnation, which is
/// the order that decides between versions of equal tock (replication rule 1).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId {
    /// The node's name.
    pub name: NodeName,
    /// Which of its lives.
    pub incarnation: Incarnation,
}

/// A node's place in the local [`NodeTable`]. It means nothing outside this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// For use as an index into a dense list.
    #[must_use]
    pub fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// One change made at one node, in local form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Event {
    /// Which incarnation made it.
    pub node: NodeIndex,
    /// Its number there, from 1.
    pub tick: Tick,
}

/// The incarnations that this process knows, each with a dense index. None is ever forgotten:
/// retired incarnations must stay recognisable (ARCHITECTURE.md, invariant 2).
#[derive(Clone, Default)]
pub struct NodeTable {
    ids: Vec<NodeId>,
    by_name: HashMap<NodeName, Lives>,
}

/// The incarnations of one name.
#[derive(Clone, Default)]
struct Lives {
    by_arrival: Vec<NodeIndex>,
    /// The same, for finding one among many; empty up to [`LIVES_SCANNED`] of them.
    by_incarnation: BTreeMap<Incarnation, NodeIndex>,
}

/// Up to this many incarnations of a name are searched one by one. More exist only for a node that
/// restarts very often, or if a peer invents them.
const LIVES_SCANNED: usize = 16;

impl NodeTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many incarnations are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The index of an incarnation, if it is known. No allocation.
    #[must_use]
    pub fn find(&self, name: &str, incarnation: Incarnation) -> Option<NodeIndex> {
        let lives = self.by_name.get(name)?;
        if lives.by_arrival.len() > LIVES_SCANNED {
            return lives.by_incarnation.get(&incarnation).copied();
        }
        let is_it = |i: &NodeIndex| self.get(*i).is_some_and(|id| id.incarnation == incarnation);
        lives.by_arrival.iter().copied().find(is_it)
    }

    /// The index of an incarnation, which is added when it is new. `None` when the table is
    /// full ([`NODE_TABLE_MAX`]); then nothing was changed.
    pub fn intern(&mut self, id: &NodeId) -> Option<NodeIndex> {
        if let Some(index) = self.find(id.name.as_str(), id.incarnation) {
            return Some(index);
        }
        if self.ids.len() >= NODE_TABLE_MAX {
            return None;
        }
        let index = NodeIndex(self.ids.len() as u32);
        self.ids.push(id.clone());
        let lives = self.by_name.entry(id.name.clone()).or_default();
        lives.by_arrival.push(index);
        match lives.by_arrival.len() {
            ..=LIVES_SCANNED => {}
            count if count == LIVES_SCANNED + 1 => {
                let all = lives.by_arrival.iter();
                let incarnation = |i: &NodeIndex| {
                    let id = self.ids.get(i.as_usize());
                    id.or_broken("a life by name is in the node table").incarnation
                };
                lives.by_incarnation = all.map(|i| (incarnation(i), *i)).collect();
            }
            _ => drop(lives.by_incarnation.insert(id.incarnation, index)),
        }
        Some(index)
    }

    /// Who an index of this table, or of one that it was cloned from, stands for. To be asked where an
    /// index from elsewhere would be a defect: it ends the thread (see [`mod@crate::invariant`]).
    #[must_use]
    #[track_caller]
    pub fn id(&self, index: NodeIndex) -> &NodeId {
        self.get(index).or_broken("an index stands for an incarnation of its own node table")
    }

    /// The incarnation that an index stands for. An index from another table gives `None`.
    #[must_use]
    pub fn get(&self, index: NodeIndex) -> Option<&NodeId> {
        self.ids.get(index.as_usize())
    }

    /// All known incarnations of a name, in the order in which they became known.
    #[must_use]
    pub fn incarnations(&self, name: &str) -> &[NodeIndex] {
        self.by_name.get(name).map_or(&[], |lives| lives.by_arrival.as_slice())
    }

    /// All known incarnations with their indices, in the order in which they became known.
    pub fn iter(&self) -> impl Iterator<Item = (NodeIndex, &NodeId)> {
        self.ids.iter().enumerate().map(|(i, id)| (NodeIndex(i as u32), id))
    }

    /// Compares two events as versions of equal tock are compared: by name, incarnation, tick
    /// (replication rule 1).
    #[must_use]
    pub fn compare_events(&self, a: Event, b: Event) -> std::cmp::Ordering {
        if a.node == b.node {
            return a.tick.cmp(&b.tick);
        }
        self.id(a.node).cmp(self.id(b.node)).then(a.tick.cmp(&b.tick))
    }

    /// The spelling of an incarnation of this table.
    #[must_use]
    pub fn spell(&self, index: NodeIndex) -> String {
        self.id(index).to_string()
    }

    /// The spelling of an event of an incarnation of this table.
    #[must_use]
    pub fn spell_event(&self, event: Event) -> String {
        self.id(event.node).as_life().event(event.tick.get()).to_string()
    }
}

impl std::borrow::Borrow<str> for NodeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::*;

    fn id(name: &str, incarnation: u64) -> NodeId {
        NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn names_with_reserved_characters_are_refused() {
        assert_eq!(NodeName::new(""), Err(NameError::Empty));
        assert_eq!(NodeName::new("a~b"), Err(NameError::Character('~')));
        assert_eq!(NodeName::new("a b"), Err(NameError::Character(' ')));
        assert_eq!(NodeName::new(&"x".repeat(65)), Err(NameError::TooLong(65)));
        assert!(NodeName::new(&"x".repeat(64)).is_ok());
    }

    #[test]
    fn counters_stop_at_two_to_the_62() {
        assert!(Tick::new((1 << 62) - 1).is_some());
        assert!(Tick::new(1 << 62).is_none());
        assert_eq!(Tock::new((1 << 62) - 1).unwrap().next(), None);
    }

    #[test]
    fn interning_gives_one_index_per_incarnation() {
        let mut table = NodeTable::new();
        let a = table.intern(&id("a", 1)).unwrap();
        let b = table.intern(&id("b", 1)).unwrap();
        assert_ne!(a, b);
        assert_eq!(table.intern(&id("a", 1)), Some(a));
        assert_eq!(table.find("b", Incarnation(1)), Some(b));
        assert_eq!(table.find("b", Incarnation(2)), None);
    }

    #[test]
    fn many_incarnations_of_one_name_are_told_apart() {
        let mut table = NodeTable::new();
        let indices: Vec<_> = (0..200).map(|i| table.intern(&id("a", i * 7)).unwrap()).collect();
        for (i, index) in indices.iter().enumerate() {
            assert_eq!(table.find("a", Incarnation(i as u64 * 7)), Some(*index));
            assert_eq!(table.intern(&id("a", i as u64 * 7)), Some(*index));
        }
        assert_eq!(table.find("a", Incarnation(1)), None);
        assert_eq!(table.incarnations("a"), indices);
        assert_eq!(table.len(), 200);
    }

    #[test]
    fn a_life_is_spelled_the_same_whatever_else_is_known() {
        let mut table = NodeTable::new();
        let a = table.intern(&id("a", 0x1234_5678)).unwrap();
        assert_eq!(table.spell(a), "a~12345678");
        for other in [0x5678, 0x1_5678, 9] {
            table.intern(&id("a", other)).unwrap();
        }
        assert_eq!(table.spell(a), "a~12345678");
        let event = Event { node: a, tick: Tick::new(43).unwrap() };
        assert_eq!(table.spell_event(event), "a~12345678:43");
    }

    #[test]
    fn new_incarnations_have_twelve_digits() {
        for random in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let id = NodeId {
                name: NodeName::new("a").unwrap(),
                incarnation: Incarnation::of_random(random),
            };
            assert_eq!(id.to_string().len(), "a~".len() + 12, "{id}");
        }
        assert_ne!(Incarnation::of_random(1), Incarnation::of_random(2));
    }

    #[test]
    fn events_of_equal_tock_are_ordered_by_name_not_by_arrival() {
        let mut table = NodeTable::new();
        let b = table.intern(&id("b", 1)).unwrap();
        let a = table.intern(&id("a", 9)).unwrap();
        let event = |node, tick| Event { node, tick: Tick::new(tick).unwrap() };
        assert!(table.compare_events(event(a, 7), event(b, 1)).is_lt());
        assert!(table.compare_events(event(b, 1), event(b, 2)).is_lt());
    }
}
