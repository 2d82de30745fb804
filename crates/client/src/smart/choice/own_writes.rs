//! The writes of this client, so that it reads them back.
//!
//! There are three tables, all bounded. The first says per shard which life of which node acknowledged the
//! last write: reads of the shard go there first while that node lives, because it has what it
//! acknowledged. The second says per path (for the newest paths) which tock the last own write got:
//! another node's answer must have at least that tock at the path; otherwise it is stale, and
//! another node is asked, for a short while. If the node that took a write is gone before another
//! node has received it, the write may be lost: so after that while the available answer counts.
//!
//! The third is about writes with a condition: which node the last answer about a path came from, where that node
//! is not live. It is cut off from the node that tells which ones are, and clients reach it. What it has, the others may
//! not have heard of, and so would refuse each change of it until the split is over.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::model::ids::Millis;
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::pool::NodeIdentity;
use crate::retry::deviations::{Rule, is_broken};

/// See the module.
#[derive(Debug)]
pub(in crate::smart) struct OwnWrites {
    max: usize,
    /// Something was written or changed. Many clients only read.
    is_used: AtomicBool,
    /// The third table has something. It rarely does.
    has_apart: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// With the turn at which it became the home.
    homes: HashMap<u16, (NodeIdentity, u64)>,
    tocks: HashMap<Path, OwnWrite>,
    /// Oldest first; paths that were written again since are skipped. Invariant: at most twice
    /// `max`.
    order: VecDeque<(Path, u64)>,
    turn: u64,
    /// By path the name of the node that is not live. Invariant: at most `max`.
    apart: HashMap<Path, String>,
}

/// The last own write of a path.
#[derive(Debug, Default)]
struct OwnWrite {
    tock: u64,
    /// Its turn in `order`.
    turn: u64,
    /// Since when no answer has had it, over all reads: else one that gives up early would look for it for ever.
    missed_since: Option<Millis>,
}

/// How an answer compares with what this client wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::smart) enum Freshness {
    /// It has it, or something newer, or nothing was written.
    Enough,
    /// It is older. The own write has been looked for since then.
    Stale(Millis),
}

impl State {
    /// A node has taken a write of a shard; it takes a turn if another one was its home.
    fn set_home(&mut self, shard: u16, node: &NodeIdentity) {
        if self.homes.get(&shard).is_none_or(|(home, _)| home != node) {
            self.turn += 1;
            self.homes.insert(shard, (node.clone(), self.turn));
        }
    }
}

impl OwnWrites {
    pub(in crate::smart) fn new(max: usize) -> OwnWrites {
        let (is_used, has_apart) = (AtomicBool::new(false), AtomicBool::new(false));
        OwnWrites { max, is_used, has_apart, state: Mutex::default() }
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// A node acknowledged a write.
    pub(in crate::smart) fn on_written(&self, path: &Path, tock: u64, node: &NodeIdentity) {
        let mut state = self.state.lock();
        self.is_used.store(true, Ordering::Release);
        let state = &mut *state;
        let shard = shard_of(path);
        state.set_home(shard, node);
        if self.max == 0 {
            return;
        }
        state.turn += 1;
        let turn = state.turn;
        let known = state.tocks.entry(path.clone()).or_default();
        // Two writes at once are acknowledged in any order.
        if tock < known.tock {
            return;
        }
        *known = OwnWrite { tock, turn, missed_since: None };
        state.order.push_back((path.clone(), turn));
        while state.tocks.len() > self.max || state.order.len() > self.max.saturating_mul(2) {
            let Some((path, turn)) = state.order.pop_front() else { break };
            if state.tocks.get(&path).is_some_and(|known| known.turn == turn) {
                state.tocks.remove(&path);
            }
        }
    }

    /// A node changed something in a shard without reporting the entries.
    pub(in crate::smart) fn on_changed(&self, shard: u16, node: &NodeIdentity) {
        let mut state = self.state.lock();
        self.is_used.store(true, Ordering::Release);
        state.set_home(shard, node);
    }

    /// The life of the node that acknowledged the last write of a shard.
    pub(in crate::smart) fn home(&self, shard: u16) -> Option<NodeIdentity> {
        if !self.is_used() {
            return None;
        }
        self.state.lock().homes.get(&shard).map(|(node, _)| node.clone())
    }

    /// The tock of the last own write of a path, as far as it is remembered.
    pub(in crate::smart) fn tock(&self, path: &Path) -> Option<u64> {
        if !self.is_used() {
            return None;
        }
        self.state.lock().tocks.get(path).map(|own| own.tock)
    }

    /// Whether there is something to compare answers about this path with.
    pub(in crate::smart) fn knows(&self, path: &Path) -> bool {
        self.tock(path).is_some()
    }

    /// Whether an answer is good enough for a read that looks for the own write with the tock `sought`: the last one
    /// that was acknowledged before the read began. Of what is written meanwhile, each answer may lack some, so a read
    /// that looked for that as well might never end. `tock` is that of the entry, none if the node has none.
    pub(super) fn judge(
        &self,
        path: &Path,
        sought: Option<u64>,
        tock: Option<u64>,
        node: &NodeIdentity,
        now: Millis,
    ) -> Freshness {
        let mut state = self.state.lock();
        if is_broken(Rule::OwnWrites) {
            return Freshness::Enough;
        }
        let State { homes, tocks, .. } = &mut *state;
        let (Some(own), Some(sought)) = (tocks.get_mut(path), sought) else {
            return Freshness::Enough;
        };
        let home = homes.get(&shard_of(path));
        // Another one may have made it before this one became the home.
        let has_made_it = node.incarnation.is_some()
            && home.is_some_and(|(home, since)| home == node && *since <= own.turn);
        let is_there = match tock {
            Some(tock) => tock >= sought,
            // It was deleted and purged since.
            None => has_made_it,
        };
        if is_there {
            if own.tock == sought {
                own.missed_since = None;
            }
            return Freshness::Enough;
        }
        Freshness::Stale(*own.missed_since.get_or_insert(now))
    }

    /// Whether any path has an answer of a node that is not live.
    pub(super) fn has_apart(&self) -> bool {
        self.has_apart.load(Ordering::Acquire)
    }

    /// An answer about a path counts: of this node, which is not live, or of a live one.
    pub(super) fn on_answer(&self, path: &Path, apart: Option<&str>) {
        let mut state = self.state.lock();
        match apart {
            Some(_) if self.max == 0 => {}
            Some(name) => {
                if state.apart.len() >= self.max && !state.apart.contains_key(path) {
                    // Nothing is lost but a try: who is refused reads again.
                    state.apart.clear();
                }
                state.apart.insert(path.clone(), name.to_owned());
            }
            None => drop(state.apart.remove(path)),
        }
        self.has_apart.store(!state.apart.is_empty(), Ordering::Release);
    }

    /// The node that the last answer about a path came from, if it was not live then.
    pub(super) fn apart(&self, path: &Path) -> Option<String> {
        if !self.has_apart() {
            return None;
        }
        self.state.lock().apart.get(path).cloned()
    }

    /// The write that has been looked for since then is nowhere to be found: it is not looked for again.
    pub(in crate::smart) fn give_up(&self, path: &Path, missed_since: Millis) {
        let mut state = self.state.lock();
        if state.tocks.get(path).is_some_and(|own| own.missed_since == Some(missed_since)) {
            state.tocks.remove(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, incarnation: u64) -> NodeIdentity {
        NodeIdentity { name: name.into(), incarnation: Some(incarnation) }
    }

    /// Since when the last own write of a path has been looked for; none: not at all, or the last answer had it.
    fn missed_since(own: &OwnWrites, path: &Path) -> Option<Millis> {
        own.state.lock().tocks.get(path)?.missed_since
    }

    /// For a read that begins now.
    fn judge(
        own: &OwnWrites,
        path: &Path,
        tock: Option<u64>,
        node: &NodeIdentity,
        now: Millis,
    ) -> Freshness {
        own.judge(path, own.tock(path), tock, node, now)
    }

    #[test]
    fn an_older_answer_from_elsewhere_is_stale() {
        let (own, path) = (OwnWrites::new(10), "a.b".parse().unwrap());
        assert_eq!(judge(&own, &path, None, &node("n1", 1), 0), Freshness::Enough);
        own.on_written(&path, 7, &node("n1", 1));
        assert_eq!(own.home(shard_of(&path)), Some(node("n1", 1)));
        assert_eq!(judge(&own, &path, Some(6), &node("n2", 1), 0), Freshness::Stale(0));
        assert_eq!(judge(&own, &path, None, &node("n2", 1), 0), Freshness::Stale(0));
        assert_eq!(judge(&own, &path, Some(7), &node("n2", 1), 0), Freshness::Enough);
        assert_eq!(judge(&own, &path, None, &node("n1", 1), 0), Freshness::Enough);
        // Another life of it is another node.
        assert_eq!(judge(&own, &path, None, &node("n1", 2), 0), Freshness::Stale(0));
        own.give_up(&path, 5);
        assert!(own.knows(&path), "another write");
        own.give_up(&path, 0);
        assert_eq!(judge(&own, &path, None, &node("n2", 1), 0), Freshness::Enough);
    }

    #[test]
    fn a_home_says_that_something_is_gone_only_of_what_it_has_made_itself() {
        let own = OwnWrites::new(10);
        // One shard.
        let (first, second): (Path, Path) = ("a.b".parse().unwrap(), "a.c".parse().unwrap());
        own.on_written(&first, 7, &node("n2", 1));
        own.on_written(&second, 8, &node("n1", 1));
        assert_eq!(judge(&own, &second, None, &node("n1", 1), 0), Freshness::Enough);
        assert_eq!(
            judge(&own, &first, None, &node("n1", 1), 0),
            Freshness::Stale(0),
            "it may be on its way"
        );
        // An older one, of which it is heard later.
        own.on_written(&first, 6, &node("n1", 1));
        assert_eq!(judge(&own, &first, None, &node("n1", 1), 0), Freshness::Stale(0));
        own.on_written(&first, 9, &node("n1", 1));
        assert_eq!(judge(&own, &first, None, &node("n1", 1), 0), Freshness::Enough);
    }

    /// However short the single reads are.
    #[test]
    fn it_has_been_looked_for_since_the_first_answer_without_it() {
        let (own, path) = (OwnWrites::new(10), "a".parse().unwrap());
        let (home, other) = (node("n1", 1), node("n2", 1));
        own.on_written(&path, 7, &home);
        assert_eq!(missed_since(&own, &path), None);
        assert_eq!(judge(&own, &path, Some(6), &other, 100), Freshness::Stale(100));
        assert_eq!(judge(&own, &path, None, &other, 900), Freshness::Stale(100));
        assert_eq!(missed_since(&own, &path), Some(100));
        // An answer that has it, or another write, begins anew.
        assert_eq!(judge(&own, &path, Some(7), &home, 950), Freshness::Enough);
        assert_eq!(judge(&own, &path, Some(6), &other, 1_000), Freshness::Stale(1_000));
        own.on_written(&path, 8, &home);
        assert_eq!(judge(&own, &path, Some(7), &other, 3_000), Freshness::Stale(3_000));
    }

    #[test]
    fn a_read_looks_for_what_was_acknowledged_before_it_began() {
        let (own, path) = (OwnWrites::new(10), "a".parse().unwrap());
        let (home, other) = (node("n1", 1), node("n2", 1));
        own.on_written(&path, 7, &home);
        let sought = own.tock(&path);
        own.on_written(&path, 9, &home);
        assert_eq!(judge(&own, &path, Some(8), &other, 100), Freshness::Stale(100));
        assert_eq!(own.judge(&path, sought, Some(8), &other, 200), Freshness::Enough);
        assert_eq!(missed_since(&own, &path), Some(100), "that is no answer that has the last one");
        assert_eq!(own.judge(&path, sought, Some(6), &other, 300), Freshness::Stale(100));
        assert_eq!(own.judge(&path, None, Some(6), &other, 300), Freshness::Enough);
    }

    #[test]
    fn an_older_acknowledgement_does_not_take_back_a_newer_one() {
        let (own, path) = (OwnWrites::new(10), "a".parse().unwrap());
        own.on_written(&path, 9, &node("n1", 1));
        own.on_written(&path, 8, &node("n1", 1));
        assert_eq!(judge(&own, &path, Some(8), &node("n2", 1), 0), Freshness::Stale(0));
    }

    #[test]
    fn the_node_of_the_last_answer_is_remembered_while_it_is_not_live() {
        let own = OwnWrites::new(2);
        let paths: Vec<Path> = ["a", "b", "c"].map(|text| text.parse().unwrap()).to_vec();
        assert_eq!(own.apart(&paths[0]), None);
        own.on_answer(&paths[0], Some("n1"));
        own.on_answer(&paths[1], Some("n2"));
        own.on_answer(&paths[0], Some("n3"));
        assert_eq!(own.apart(&paths[0]).as_deref(), Some("n3"));
        own.on_answer(&paths[0], None);
        assert_eq!((own.apart(&paths[0]), own.has_apart()), (None, true));
        own.on_answer(&paths[1], None);
        assert!(!own.has_apart());
        for path in &paths {
            own.on_answer(path, Some("n1"));
        }
        assert!(own.state.lock().apart.len() <= 2);
    }

    #[test]
    fn the_oldest_are_forgotten_and_nothing_grows() {
        let own = OwnWrites::new(4);
        let path = |i: usize| Path::root().push(i as i64).unwrap();
        for i in 0..1000 {
            own.on_written(&path(i % 8), i as u64, &node("n1", 1));
            own.on_written(&path(9), i as u64, &node("n1", 1));
        }
        let state = own.state.lock();
        assert!(state.tocks.len() <= 4 && state.order.len() <= 8);
        drop(state);
        assert!(own.knows(&path(9)));
        assert!(!own.knows(&path(0)));
    }
}
