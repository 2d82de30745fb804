//! The mark: how far a node has applied purges (docs/replication-rules.md, "State"). Per lineage it names
//! the last purge, by its tock and its [`PurgeId`]. Tocks order purges of one lineage; two purges are the
//! same only if their ids are.
//!
//! A purge stands on a *base*: the components of other lineages that all members had applied when
//! they agreed to it. A node that has applied the purge has applied its base, so those components
//! are left out of marks from then on. [`Implied`] facts say which components are implied. They are
//! hints only: a node that lacks one sees a component that the other side does not name, takes the
//! two for two lineages (replication rule 8), and is safe.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{NodeId, Tick, Tock};

/// A line of succession of the Delete group's decisions. The first one has no name; a forced
/// change of the member list starts another, named by the event id of that change (replication rule 7).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Lineage(pub Option<(NodeId, Tick)>);

/// The spelling of its event, as clients and operators see it; `first` for the one without a name.
impl std::fmt::Display for Lineage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            None => f.write_str("first"),
            Some((id, tick)) => id.as_life().event(tick.get()).fmt(f),
        }
    }
}

/// Names one purge: a hash of the round that agreed on it, never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PurgeId(u64);

impl PurgeId {
    /// The id with that number; none for 0.
    #[must_use]
    pub fn new(raw: u64) -> Option<Self> {
        (raw != 0).then_some(Self(raw))
    }

    /// Its number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Most ids in one component. An honest mark has one; two coordinators that decide from the same
/// mark, which replication rule 7 excludes, would make it two.
pub const PURGE_IDS_MAX: usize = 8;

/// How far one lineage was applied: the tock of its last purge, and which purge that was.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Component {
    /// The tock; 0 if no purge was applied.
    tock: Tock,
    /// The purges of that tock that were applied, sorted, each once, at most [`PURGE_IDS_MAX`].
    /// Empty in marks from before purges had ids. The first is outside of the list: usually it is
    /// the only one, and marks travel with every change.
    first: Option<PurgeId>,
    more: Vec<PurgeId>,
}

impl Component {
    /// After one purge; without an id it is one from before purges had ids.
    #[must_use]
    pub fn new(tock: Tock, id: Option<PurgeId>) -> Self {
        Self { tock, first: id, more: Vec::new() }
    }

    /// After several purges of the same tock; further ones than [`PURGE_IDS_MAX`] are dropped.
    #[must_use]
    pub fn with_ids(tock: Tock, ids: impl IntoIterator<Item = PurgeId>) -> Self {
        let mut ids = ids.into_iter();
        let first = ids.next();
        let mut more: Vec<PurgeId> = ids.collect();
        if more.is_empty() {
            return Self { tock, first, more };
        }
        more.extend(first);
        more.sort_unstable();
        more.dedup();
        more.truncate(PURGE_IDS_MAX);
        let first = more.first().copied();
        more.remove(0);
        Self { tock, first, more }
    }

    /// The tock of the last purge.
    #[must_use]
    pub fn tock(&self) -> Tock {
        self.tock
    }

    /// The purges with that tock.
    pub fn ids(&self) -> impl Iterator<Item = PurgeId> + '_ {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// Whether a node with this mark has applied everything that the other one has. Later purges of
    /// one lineage include the earlier ones: by tock. Two purges with the same tock must be the
    /// same purge.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        self.tock > other.tock
            || (self.tock == other.tock && other.ids().all(|id| self.ids().any(|own| own == id)))
    }

    fn join(&mut self, other: &Self) {
        if other.includes(self) {
            *self = other.clone();
        } else if !self.includes(other) {
            *self = Self::with_ids(self.tock, self.ids().chain(other.ids()));
        }
    }
}

/// A node that has reached `at` in the lineage `by` has applied `component` of `lineage`. This is
/// true for ever, everywhere: all members had applied it when they agreed to the purge `at`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Implied {
    /// The lineage that is left out of marks.
    pub lineage: Lineage,
    /// How far it was applied.
    pub component: Component,
    /// The lineage that implies it.
    pub by: Lineage,
    /// From which of its purges on; its tock is greater than that of `component`.
    pub at: Component,
}

/// Most facts that are kept. Those of the oldest purges are dropped first: a node that was away for
/// this many lineages comes back as if on another lineage, which costs a longer catch-up.
pub const IMPLIED_MAX: usize = 256;

/// How far purges were applied. Nearly always empty or one component.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    components: BTreeMap<Lineage, Component>,
    /// The latest purges first. Hints, not part of the mark itself. Invariant: no component is
    /// implied by another one with one of these.
    implied: Arc<Vec<Implied>>,
}

/// Facts that one side knows and the other does not make no difference.
impl PartialEq for Mark {
    fn eq(&self, other: &Self) -> bool {
        self.components == other.components
    }
}

impl Eq for Mark {}

impl Mark {
    /// A mark of purges without ids. Zero tocks are left out: they say nothing.
    pub fn from_components(components: impl IntoIterator<Item = (Lineage, Tock)>) -> Self {
        Self::from_parts(components.into_iter().map(|(l, tock)| (l, Component::new(tock, None))))
    }

    /// A mark from its components. Zero tocks are left out: they say nothing.
    pub fn from_parts(components: impl IntoIterator<Item = (Lineage, Component)>) -> Self {
        let components = components.into_iter().filter(|(_, c)| c.tock > Tock::default()).collect();
        Self { components, implied: Arc::default() }
    }

    /// Whether no purge was ever applied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    /// How many components are named.
    #[must_use]
    pub fn len(&self) -> usize {
        self.components.len()
    }

    /// The tocks of the components that are named, by lineage.
    pub fn iter(&self) -> impl Iterator<Item = (&Lineage, Tock)> {
        self.components.iter().map(|(l, c)| (l, c.tock))
    }

    /// The components that are named, by lineage.
    pub fn components(&self) -> impl Iterator<Item = (&Lineage, &Component)> {
        self.components.iter()
    }

    /// How far purges of one lineage were applied; 0 if never, as far as is known.
    #[must_use]
    pub fn get(&self, lineage: &Lineage) -> Tock {
        self.component(lineage).tock
    }

    /// How far purges of one lineage were applied, even if that is only implied.
    #[must_use]
    pub fn component(&self, lineage: &Lineage) -> Component {
        match self.components.get(lineage) {
            Some(component) => component.clone(),
            None if self.implied.is_empty() => Component::default(),
            None => self.whole(&[]).remove(lineage).unwrap_or_default(),
        }
    }

    /// The greatest component; 0 if no purge was ever applied.
    #[must_use]
    pub fn top(&self) -> Tock {
        self.iter().map(|(_, tock)| tock).max().unwrap_or_default()
    }

    /// Raises one component; never lowers it.
    pub fn raise(&mut self, lineage: &Lineage, to: &Component) {
        if to.tock > Tock::default() && !self.component(lineage).includes(to) {
            self.components.entry(lineage.clone()).or_default().join(to);
            self.leave_out_implied();
        }
    }

    /// Takes the pointwise greatest (replication rule 4c), and all facts.
    pub fn raise_all(&mut self, other: &Self) {
        self.learn(&other.implied);
        for (lineage, component) in other.components() {
            self.raise(lineage, component);
        }
    }

    /// `hi(self, other)` of docs/replication-rules.md, "State": the greatest component in which this mark
    /// is ahead of the other, 0 if there is none.
    #[must_use]
    pub fn ahead_of(&self, other: &Self) -> Tock {
        let lacks = |(lineage, component): &(&Lineage, &Component)| {
            !other.components.get(*lineage).is_some_and(|theirs| theirs.includes(component))
        };
        let mut ahead = self.components().filter(lacks).peekable();
        if ahead.peek().is_some() && !(self.implied.is_empty() && other.implied.is_empty()) {
            let whole = other.whole(&self.implied);
            let lacks = |(lineage, component): &(&Lineage, &Component)| {
                !whole.get(*lineage).is_some_and(|theirs| theirs.includes(component))
            };
            return ahead.filter(lacks).map(|(_, c)| c.tock).max().unwrap_or_default();
        }
        ahead.map(|(_, component)| component.tock).max().unwrap_or_default()
    }

    /// The facts that are known, the latest purges first.
    #[must_use]
    pub fn implied(&self) -> &Arc<Vec<Implied>> {
        &self.implied
    }

    /// Another node's mark, read with the facts known here.
    #[must_use]
    pub fn read_with(&self, facts: &Arc<Vec<Implied>>) -> Self {
        let mut mark = self.clone();
        mark.learn(facts);
        mark
    }

    /// Adds facts and returns whether one was new. A fact that no honest node makes is left out.
    pub fn learn(&mut self, facts: &[Implied]) -> bool {
        if facts == self.implied.as_slice() {
            return false;
        }
        let makes_sense =
            |fact: &Implied| fact.at.tock > fact.component.tock && fact.by != fact.lineage;
        let new: Vec<Implied> = facts
            .iter()
            .filter(|fact| makes_sense(fact) && !self.implied.contains(fact))
            .cloned()
            .collect();
        if new.is_empty() {
            return false;
        }
        let before = Arc::clone(&self.implied);
        let known = Arc::make_mut(&mut self.implied);
        known.extend(new);
        let key = |f: &Implied| (f.at.tock, f.by.clone(), f.lineage.clone(), f.component.tock);
        known.sort_by_cached_key(|fact| std::cmp::Reverse(key(fact)));
        known.dedup();
        known.truncate(IMPLIED_MAX);
        let changed = *before != **known;
        self.leave_out_implied();
        changed
    }

    /// All components, with those that are implied by facts known here or given.
    fn whole(&self, more: &[Implied]) -> BTreeMap<Lineage, Component> {
        let mut whole = self.components.clone();
        let mut facts: Vec<&Implied> = self.implied.iter().chain(more).collect();
        // A component implies only lesser ones, so the greatest go first.
        facts.sort_by_key(|fact| std::cmp::Reverse(fact.at.tock));
        for fact in facts {
            if whole.get(&fact.by).is_some_and(|by| by.includes(&fact.at)) {
                whole.entry(fact.lineage.clone()).or_default().join(&fact.component);
            }
        }
        whole
    }

    fn leave_out_implied(&mut self) {
        if self.implied.is_empty() || self.components.len() < 2 {
            return;
        }
        let whole = self.whole(&[]);
        for fact in self.implied.iter() {
            if whole.get(&fact.by).is_some_and(|by| by.includes(&fact.at))
                && self.components.get(&fact.lineage).is_some_and(|c| fact.component.includes(c))
            {
                self.components.remove(&fact.lineage);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::{Incarnation, NodeName};
    use crate::mark::*;
    use proptest::prelude::*;

    fn lineage(number: u64) -> Lineage {
        let id = NodeId { name: NodeName::new("x").unwrap(), incarnation: Incarnation(number) };
        Lineage(Some((id, Tick::new(1).unwrap())))
    }

    fn at(tock: u64, id: u64) -> Component {
        Component::new(Tock::new(tock).unwrap(), PurgeId::new(id))
    }

    fn mark(parts: &[(u64, u64, u64)]) -> Mark {
        Mark::from_parts(parts.iter().map(|(l, tock, id)| (lineage(*l), at(*tock, *id))))
    }

    fn ahead(a: &Mark, b: &Mark) -> u64 {
        a.ahead_of(b).get()
    }

    #[test]
    fn a_mark_is_ahead_only_in_lineages_where_it_is_greater() {
        let a = mark(&[(0, 5, 1), (1, 2, 1)]);
        let b = mark(&[(0, 9, 1)]);
        assert_eq!((ahead(&a, &b), ahead(&b, &a), ahead(&a, &a)), (2, 9, 0));
    }

    #[test]
    fn two_purges_of_one_tock_are_each_ahead_of_the_other() {
        let (a, b) = (mark(&[(0, 5, 1)]), mark(&[(0, 5, 2)]));
        assert_ne!(a, b);
        assert_eq!((ahead(&a, &b), ahead(&b, &a)), (5, 5));
        let (mut x, mut y) = (a.clone(), b.clone());
        x.raise_all(&b);
        y.raise_all(&a);
        assert_eq!(x, y);
        assert_eq!((ahead(&x, &a), ahead(&a, &x), ahead(&x, &y)), (5, 0, 0));
        // A mark from before purges had ids is behind one of the same tock, and not ahead.
        let old = mark(&[(0, 5, 0)]);
        assert_eq!((ahead(&a, &old), ahead(&old, &a)), (5, 0));
    }

    fn fact(lineage_left_out: u64, up_to: Component, by: u64, from: Component) -> Implied {
        let (lineage, by) = (lineage(lineage_left_out), lineage(by));
        Implied { lineage, component: up_to, by, at: from }
    }

    #[test]
    fn what_a_purge_stands_on_is_left_out_and_still_known() {
        let mut x = mark(&[(0, 5, 1), (1, 7, 2)]);
        let old = x.clone();
        x.learn(&[fact(0, at(5, 1), 1, at(7, 2))]);
        assert_eq!((x.len(), x.get(&lineage(0)).get()), (1, 5));
        assert_eq!((ahead(&x, &old), ahead(&old, &x)), (0, 0));
        // A node that was away since before that purge is behind, and has nothing that is missing
        // here.
        let away = mark(&[(0, 4, 9)]);
        assert_eq!((ahead(&x, &away), ahead(&away, &x)), (7, 0));
        // A node that continued in the old lineage has something that is missing here.
        let went_on = mark(&[(0, 6, 9)]);
        assert_eq!((ahead(&x, &went_on), ahead(&went_on, &x)), (7, 6));
        // A node that does not know the fact takes them for two lineages: each is behind the other.
        let forgetful = mark(&[(1, 7, 2)]);
        assert_eq!((ahead(&forgetful, &away), ahead(&away, &forgetful)), (7, 4));
    }

    #[test]
    fn facts_that_make_no_sense_are_left_out_and_the_rest_are_bounded() {
        let mut x = mark(&[(0, 5, 1)]);
        assert!(!x.learn(&[fact(0, at(5, 1), 0, at(7, 1)), fact(1, at(5, 1), 0, at(5, 1))]));
        for n in 0..2 * IMPLIED_MAX as u64 {
            x.raise(&lineage(n + 1), &at(n + 10, 1));
            x.learn(&[fact(n, x.component(&lineage(n)), n + 1, at(n + 10, 1))]);
            assert_eq!(x.len(), 1);
        }
        assert_eq!(x.implied().len(), IMPLIED_MAX);
    }

    proptest! {
        #[test]
        fn a_mark_that_leaves_components_out_compares_as_one_that_does_not(
            purges in proptest::collection::vec((0u64..4, 1u64..3), 1..12),
            stops in (0usize..12, 0usize..12),
        ) {
            // One succession of purges, each in some lineage, each on all that was before it.
            let (mut plain, mut short) = (vec![Mark::default()], vec![Mark::default()]);
            for (step, (in_lineage, id)) in purges.iter().enumerate() {
                let (last, to) = (plain.last().unwrap(), at(step as u64 + 1, *id));
                let base: Vec<_> = last
                    .components()
                    .filter(|(l, _)| **l != lineage(*in_lineage))
                    .map(|(l, c)| (l.clone(), c.clone()))
                    .collect();
                let (mut next, mut next_short) = (last.clone(), short.last().unwrap().clone());
                next.raise(&lineage(*in_lineage), &to);
                next_short.raise(&lineage(*in_lineage), &to);
                for (left_out, component) in base {
                    let by = lineage(*in_lineage);
                    next_short.learn(&[Implied { lineage: left_out, component, by, at: to.clone() }]);
                }
                prop_assert_eq!(next_short.len(), 1);
                plain.push(next);
                short.push(next_short);
            }
            let (a, b) = (stops.0.min(purges.len()), stops.1.min(purges.len()));
            prop_assert_eq!(short[a].ahead_of(&short[b]), plain[a].ahead_of(&plain[b]));
        }
    }
}
