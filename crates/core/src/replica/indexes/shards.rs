//! Sums over the entries of each virtual shard, kept up to date as the tree changes. No rule needs
//! them: they are for comparing nodes. So nothing is kept before the first request. From then on
//! changes are counted, the entries of that moment are counted on a snapshot, outside of the guard,
//! and both are joined: the sums are commutative.

use std::sync::Arc;

use crate::model::entry::Entry;
use crate::model::ids::NodeTable;
use crate::model::path::Path;
use crate::replica::Replica;
use crate::tree::Tree;
use crate::tree::content_sums::ReplacedHashes;
use crate::tree::shard_sums::ShardSums;

/// How far the sums are.
#[derive(Default)]
pub(in crate::replica) struct Upkeep {
    state: State,
    /// Of counts that were begun.
    tickets: u64,
}

#[derive(Default)]
enum State {
    /// There was no request.
    #[default]
    Off,
    /// Changes since the count with that ticket began.
    Counting(u64, ShardSums),
    /// Of all entries.
    Kept(ShardSums),
}

/// A snapshot whose entries are to be counted, outside of the guard.
#[must_use]
pub struct ShardCount {
    ticket: u64,
    tree: Tree,
    table: Arc<NodeTable>,
}

/// The sums that were counted.
#[must_use]
pub struct CountedShards {
    ticket: u64,
    sums: ShardSums,
}

impl ShardCount {
    /// Walks all entries: about half a second for a million.
    pub fn walk(self) -> CountedShards {
        CountedShards { ticket: self.ticket, sums: ShardSums::of(&self.tree, &self.table) }
    }
}

impl Upkeep {
    /// There was `old` at a path, and is `new` now; `hashes` are those of the two.
    pub(in crate::replica) fn note(
        &mut self,
        path: &Path,
        old: Option<&Entry>,
        new: Option<&Entry>,
        hashes: ReplacedHashes,
    ) {
        match &mut self.state {
            State::Off => {}
            State::Counting(_, sums) | State::Kept(sums) => sums.replace(path, old, new, hashes),
        }
    }
}

impl Replica {
    /// The sums of this moment; none before a count was made.
    #[must_use]
    pub(crate) fn shard_sums(&self) -> Option<&ShardSums> {
        match &self.shards.state {
            State::Kept(sums) => Some(sums),
            State::Off | State::Counting(..) => None,
        }
    }

    /// Begins to keep sums: O(1), and the walk is the caller's. A count that was begun before and
    /// has not ended is forgotten.
    pub fn begin_shard_count(&mut self) -> ShardCount {
        self.shards.tickets += 1;
        let ticket = self.shards.tickets;
        self.shards.state = State::Counting(ticket, ShardSums::default());
        ShardCount { ticket, tree: self.tree.clone(), table: Arc::clone(&self.table) }
    }

    /// Adds what was counted; nothing of a count that was forgotten.
    pub fn end_shard_count(&mut self, counted: &CountedShards) {
        let state = std::mem::take(&mut self.shards.state);
        self.shards.state = match state {
            State::Counting(ticket, mut sums) if ticket == counted.ticket => {
                sums.merge(&counted.sums);
                State::Kept(sums)
            }
            state => state,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::model::ids::{Incarnation, NodeId, NodeName};
    use crate::model::mark::PurgeId;
    use crate::model::seen::{Lineage, Mark};
    use crate::replica::shards::*;
    use crate::replica::write::Write;
    use crate::tree::content_sums::ContentSums;
    use crate::tree::shard_sums::ShardSum;

    fn id(name: &str) -> NodeId {
        NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(5) }
    }

    fn write(replica: &mut Replica, at: &str, value: Option<&[u8]>) {
        let path: Path = at.parse().unwrap();
        let mut write = Write::new(path, value);
        let _ = replica.write(&mut write).unwrap();
    }

    fn count(replica: &mut Replica) {
        let counted = replica.begin_shard_count().walk();
        replica.end_shard_count(&counted);
    }

    /// All versions of one node, applied at another.
    fn push_all(from: &Replica, to: &mut Replica) {
        for (path, entry) in from.tree().subtree(&Path::root()) {
            let translated = entry.translated(|mut event| {
                event.node = to.intern(from.table().get(event.node)?)?;
                Some(event)
            });
            let _ = to.apply(path, &translated.unwrap(), &Mark::default());
        }
    }

    fn walked(replica: &Replica) -> Vec<ShardSum> {
        ShardSums::of(replica.tree(), replica.table()).as_slice().to_vec()
    }

    fn purge(replica: &mut Replica) {
        if let Some(pair) = replica.propose_pair(&Lineage(None), PurgeId::new(1), 100) {
            let _ = replica.apply_purge(&pair);
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Write(u8, Option<u8>),
        Purge,
        PushToOther,
        TakeInOther,
        ComeBack,
        Begin,
        End,
    }

    fn op() -> impl Strategy<Value = (usize, Op)> {
        let op = prop_oneof![
            6 => (0u8..6, proptest::option::of(0u8..9)).prop_map(|(k, v)| Op::Write(k, v)),
            1 => Just(Op::Purge),
            2 => Just(Op::PushToOther),
            1 => Just(Op::TakeInOther),
            1 => Just(Op::ComeBack),
            1 => Just(Op::Begin),
            2 => Just(Op::End),
        ];
        (0usize..2, op)
    }

    proptest! {
        #[test]
        fn sums_kept_up_to_date_are_those_of_a_walk(
            ops in proptest::collection::vec(op(), 0..60),
        ) {
            let ids = [id("a"), id("b")];
            let mut nodes = ids.clone().map(|id| Replica::new(&id, 1));
            let mut counts = [None, None];
            for (at, op) in ops {
                let [a, b] = &mut nodes;
                let (node, other) = if at == 0 { (a, b) } else { (b, a) };
                match op {
                    Op::Write(key, value) => {
                        let value = value.map(|v| [v]);
                        write(node, &format!("k{}.x", key), value.as_ref().map(|v| &v[..]));
                    }
                    Op::Purge => purge(node),
                    Op::PushToOther => push_all(node, other),
                    Op::TakeInOther => {
                        let _ = node.take_in_image(&other.image(&ids[1 - at]));
                    }
                    Op::ComeBack => {
                        *node = Replica::come_back(&node.image(&ids[at]), &ids[at]).unwrap();
                        counts[at] = None;
                    }
                    Op::Begin => counts[at] = Some(node.begin_shard_count().walk()),
                    Op::End => {
                        if let Some(counted) = counts[at].take() {
                            node.end_shard_count(&counted);
                        }
                    }
                }
                for node in &nodes {
                    let contents = ContentSums::of(node.tree(), node.table());
                    prop_assert_eq!(node.contents().buckets(), contents.buckets());
                    prop_assert_eq!(node.contents().total(), contents.total());
                    if let Some(sums) = node.shard_sums() {
                        prop_assert_eq!(sums.as_slice(), walked(node));
                    }
                }
            }
            for node in &mut nodes {
                if node.shard_sums().is_none() {
                    count(node);
                }
                let sums = node.shard_sums().unwrap();
                prop_assert_eq!(sums.as_slice(), walked(node));
                let bytes: u64 = sums.as_slice().iter().map(|sum| sum.bytes).sum();
                prop_assert_eq!(bytes, node.tree().memory_bytes() as u64);
            }
        }
    }

    #[test]
    fn a_count_that_another_one_followed_changes_nothing() {
        let mut a = Replica::new(&id("a"), 1);
        write(&mut a, "k", Some(&[1]));
        let first = a.begin_shard_count().walk();
        write(&mut a, "k", Some(&[2]));
        let second = a.begin_shard_count().walk();
        a.end_shard_count(&first);
        assert!(a.shard_sums().is_none());
        a.end_shard_count(&second);
        a.end_shard_count(&first);
        assert_eq!(a.shard_sums().unwrap().as_slice(), walked(&a));
    }

    #[test]
    fn two_values_of_one_event_have_different_sums() {
        let sums = [1, 2].map(|value| {
            let mut node = Replica::new(&id("a"), 1);
            write(&mut node, "k", Some(&[value]));
            count(&mut node);
            node.shard_sums().unwrap().as_slice().to_vec()
        });
        assert_ne!(sums[0], sums[1]);
    }

    #[test]
    fn nodes_that_hold_the_same_have_the_same_sums_whatever_came_first() {
        let (mut a, mut b) = (Replica::new(&id("a"), 1), Replica::new(&id("b"), 2));
        let mut c = Replica::new(&id("c"), 3);
        for k in 0..50 {
            write(&mut a, &format!("k{k}"), Some(&[1]));
            write(&mut b, &format!("k{}", k + 25), (k > 30).then_some(&[2]));
        }
        push_all(&a, &mut b);
        push_all(&b, &mut a);
        push_all(&b, &mut c);
        let sums = [&mut a, &mut b, &mut c].map(|node| {
            count(node);
            node.shard_sums().unwrap().as_slice().to_vec()
        });
        assert_eq!(sums[0], sums[1]);
        assert_eq!(sums[0], sums[2]);
        write(&mut a, "k0", Some(&[1]));
        let differing: Vec<usize> = (0..1024)
            .filter(|at| a.shard_sums().unwrap().as_slice()[*at] != sums[0][*at])
            .collect();
        assert_eq!(differing, [usize::from(crate::model::shard::shard_of(&"k0".parse().unwrap()))]);
    }
}
