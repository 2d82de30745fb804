//! Patterns of paths, compiled: which of them match a path, and which of these decides.
//!
//! In a pattern `+` stands for one element and `#` for one or more; all other elements stand for themselves,
//! with their types (`1` is neither `true` nor `1.0`). Depth first, exact before `+` before `#`: of all
//! patterns that match, the first in that order decides.

use std::collections::BTreeMap;

use distkv_model::path::bytes::element_ends;
use distkv_model::path::{Element, Path};
use smallvec::SmallVec;

/// Most patterns in one table.
pub(crate) const PATTERNS_MAX: usize = 1_024;
/// Most patterns that one path may be on the way to; each takes a look-up. Above that nothing matches any more.
pub(crate) const ACTIVE_MAX: usize = 256;

/// The element that stands for one element, in canonical bytes.
pub(crate) const ONE: &[u8] = b"\xa1+";
/// The element that stands for one or more elements.
pub(crate) const MANY: &[u8] = b"\xa1#";

/// A tree of patterns; each may have a value.
#[derive(PartialEq, Debug)]
pub(crate) struct Patterns<V> {
    /// Invariant: never empty; the first is the root.
    nodes: Vec<Node<V>>,
    /// How many have a value.
    count: usize,
}

#[derive(PartialEq, Debug)]
struct Node<V> {
    exact: BTreeMap<Box<[u8]>, u32>,
    one: Option<u32>,
    many: Option<u32>,
    value: Option<V>,
}

impl<V> Default for Node<V> {
    fn default() -> Self {
        Self { exact: BTreeMap::new(), one: None, many: None, value: None }
    }
}

impl<V> Default for Patterns<V> {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], count: 0 }
    }
}

/// A node that the elements so far lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    node: u32,
    /// It was reached as a `#`, which may stand for the next element, too.
    keeps: bool,
}

/// Where the elements so far lead to, in the order in which patterns decide.
#[derive(Clone, Debug)]
pub(crate) struct States {
    /// Invariant: no two are the same; at most [`ACTIVE_MAX`].
    states: SmallVec<[State; 6]>,
    /// There were more than [`ACTIVE_MAX`] once: none are kept.
    is_over: bool,
}

impl States {
    /// Whether no pattern matches, or leads on from here.
    pub(crate) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Whether there were too many; then nothing matches.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}

impl<V> Patterns<V> {
    /// Adds a pattern; a value that it has already is replaced.
    ///
    /// # Errors
    /// There are [`PATTERNS_MAX`] patterns already. Nothing was added.
    pub(crate) fn insert(&mut self, pattern: &Path, value: V) -> Result<(), TooManyPatterns> {
        if self.count >= PATTERNS_MAX {
            return Err(TooManyPatterns);
        }
        let mut at = 0_u32;
        let mut start = 0;
        for end in pattern.element_ends() {
            let element = pattern.as_bytes().get(start..end).unwrap_or_default();
            start = end;
            at = self.child_or_new(at, element);
        }
        if let Some(node) = self.nodes.get_mut(at as usize) {
            self.count += usize::from(node.value.is_none());
            node.value = Some(value);
        }
        Ok(())
    }

    /// Whether no pattern can be added.
    #[cfg(feature = "types")]
    pub(crate) fn is_full(&self) -> bool {
        self.count >= PATTERNS_MAX
    }

    fn child_or_new(&mut self, parent: u32, element: &[u8]) -> u32 {
        // At most PATTERNS_MAX times the elements of a path, so it fits.
        let new = self.nodes.len() as u32;
        let Some(node) = self.nodes.get_mut(parent as usize) else { return 0 };
        let child = match element {
            ONE => *node.one.get_or_insert(new),
            MANY => *node.many.get_or_insert(new),
            _ => *node.exact.entry(element.into()).or_insert(new),
        };
        if child == new {
            self.nodes.push(Node::default());
        }
        child
    }

    /// Whether no pattern has a value.
    #[cfg(feature = "types")]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Before the first element.
    pub(crate) fn start(&self) -> States {
        let root = (self.count > 0).then_some(State { node: 0, keeps: false });
        States { states: root.into_iter().collect(), is_over: false }
    }

    /// Behind one more element, in canonical bytes.
    pub(crate) fn step(&self, before: &States, element: &[u8]) -> States {
        let mut after = States { states: SmallVec::new(), is_over: before.is_over };
        for state in &before.states {
            let Some(node) = self.nodes.get(state.node as usize) else { continue };
            let exact = match element {
                ONE => node.one,
                MANY => node.many,
                _ if node.exact.is_empty() => None,
                _ => node.exact.get(element).copied(),
            };
            for (child, keeps) in [(exact, false), (node.one, false), (node.many, true)] {
                if let Some(node) = child {
                    add(&mut after.states, State { node, keeps });
                }
            }
            if state.keeps {
                add(&mut after.states, *state);
            }
            if after.states.len() > ACTIVE_MAX {
                return States { states: SmallVec::new(), is_over: true };
            }
        }
        after
    }

    /// The value of the pattern that decides.
    pub(crate) fn decides<'v>(&'v self, states: &States) -> Option<&'v V> {
        let mut nodes = states.states.iter().filter_map(|s| self.nodes.get(s.node as usize));
        nodes.find_map(|node| node.value.as_ref())
    }

    /// Whether a path could be on the way to more of them than are followed.
    pub(crate) fn may_be_over(&self) -> bool {
        // Each may be reached in two ways.
        2 * self.nodes.len() > ACTIVE_MAX
    }

    /// The values of all patterns, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.nodes.iter().filter_map(|node| node.value.as_ref())
    }

    /// The value of exactly this pattern.
    pub(crate) fn get(&self, pattern: &[Element<'_>]) -> Option<&V> {
        let mut node = self.nodes.first()?;
        let mut bytes = Vec::new();
        for element in pattern {
            bytes.clear();
            element.encode(&mut bytes);
            let child = match bytes.as_slice() {
                ONE => node.one,
                MANY => node.many,
                element => node.exact.get(element).copied(),
            };
            node = self.nodes.get(child? as usize)?;
        }
        node.value.as_ref()
    }
}

/// What is reached twice counts where it was reached first: behind that, nothing would change.
fn add(states: &mut SmallVec<[State; 6]>, state: State) {
    if !states.contains(&state) {
        states.push(state);
    }
}

/// The elements of a path (canonical bytes), each in its bytes.
pub(crate) fn element_slices(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    element_ends(path).map(move |end| {
        let element = path.get(start..end).unwrap_or_default();
        start = end;
        element
    })
}

/// A table takes no more patterns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("more than {PATTERNS_MAX} patterns")]
pub struct TooManyPatterns;
