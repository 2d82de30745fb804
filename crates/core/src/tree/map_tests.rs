//! The tree and its parts against simple models: a `BTreeMap`, a `Vec`. Long histories, so that buckets split
//! and melt, nodes come and go, and snapshots that are held while all that happens stay what they were.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::directory::Directory;
use super::*;
use crate::model::chain::Chain;
use crate::model::entry::EntryParts;
use crate::model::ids::{Event, NodeIndex, Tick};

type Model = BTreeMap<Path, Entry>;

/// One entry of many: its tock is in few places of the index of tombstones.
fn entry(value: Option<u8>, tock: u64) -> Entry {
    let chain = Chain::first(Event { node: NodeIndex(0), tick: Tick::new(1).unwrap() });
    let value = value.map(|value| [value & 0x7f]);
    let (value, tock) = (value.as_ref().map(|value| &value[..]), Tock::new(tock).unwrap());
    Entry::new(&EntryParts { value, chain: &chain, tock, origin: None, time: None, extra: &[] })
}

/// Paths that lie below and beside each other, in an order that is not that of their numbers.
fn path(number: u16) -> Path {
    let (top, middle, low) = (number % 7, number / 7 % 11, number / 77);
    let text = match number % 3 {
        0 => format!("t{top}.m{middle}.{low}"),
        1 => format!("t{top}:{middle}.l{low}"),
        _ => format!("t{top}.m{middle}:{low}"),
    };
    text.parse().unwrap()
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, Option<u8>, u64),
    /// At a place that was looked for a while ago.
    PutAgain(u16, Option<u8>, u64),
    Remove(u16),
    /// So many of them, from a number on.
    InsertMany(u16, u16),
    RemoveMany(u16, u16),
    Snapshot,
    DropSnapshot,
}

/// Of these numbers are paths made.
const NUMBERS: u16 = 900;

fn op() -> impl Strategy<Value = Op> {
    let number = 0..NUMBERS;
    let value = proptest::option::weighted(0.7, 0u8..100);
    prop_oneof![
        8 => (number.clone(), value.clone(), 1u64..9).prop_map(|(n, v, t)| Op::Insert(n, v, t)),
        4 => (number.clone(), value, 1u64..9).prop_map(|(n, v, t)| Op::PutAgain(n, v, t)),
        6 => number.clone().prop_map(Op::Remove),
        1 => (number.clone(), 0u16..400).prop_map(|(n, c)| Op::InsertMany(n, c)),
        1 => (number, 0u16..400).prop_map(|(n, c)| Op::RemoveMany(n, c)),
        1 => Just(Op::Snapshot),
        1 => Just(Op::DropSnapshot),
    ]
}

/// Everything that a tree tells is what the model says.
fn assert_same(tree: &Tree, model: &Model) {
    tree.check();
    assert_eq!((tree.len(), tree.is_empty()), (model.len(), model.is_empty()));
    let tombstones = model.values().filter(|entry| entry.is_tombstone()).count();
    assert_eq!((tree.live_len(), tree.tombstone_len()), (model.len() - tombstones, tombstones));
    let memory: usize = model.iter().map(|(path, entry)| Tree::cost(path, entry)).sum();
    assert_eq!(tree.memory_bytes(), memory);
    let root = Path::root();
    assert!(tree.subtree(&root).eq(model), "in the order of paths");
    let mut unordered: Vec<_> = tree.all().collect();
    unordered.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(unordered.iter().map(|(path, entry)| (path, entry)).eq(model), "in no order");
    for number in (0..NUMBERS).step_by(7) {
        let path = path(number);
        assert_eq!(tree.get(path.as_bytes()), model.get(&path));
        let found = tree.get_with_path(path.as_bytes());
        assert_eq!(found, model.get_key_value(&path));
    }
    for to in 0..9 {
        let to = Tock::new(to).unwrap();
        let mut up_to: Vec<_> = tree.tombstones_up_to(to).collect();
        assert!(up_to.is_sorted_by_key(|(path, entry)| (entry.tock(), Path::clone(path))));
        up_to.sort_by_key(|(path, _)| Path::clone(path));
        let is_up_to = |(_, e): &(&Path, &Entry)| e.is_tombstone() && e.tock() <= to;
        assert!(up_to.into_iter().eq(model.iter().filter(is_up_to)));
    }
    for top in ["t3", "t3.m1", "nothing"] {
        let top: Path = top.parse().unwrap();
        let below = model.iter().filter(|(path, _)| path.starts_with(&top));
        let mut walk = tree.walk(&top);
        let mut walked = Vec::new();
        while let batch = walk.next_batch(5)
            && !batch.is_empty()
        {
            walked.extend(batch);
        }
        assert!(walked.iter().map(|(path, entry)| (path, entry)).eq(below), "a walk in batches");
    }
    assert_children(tree, model);
}

/// A walk that skips what is below each path that it meets finds the first path of each such part.
fn assert_children(tree: &Tree, model: &Model) {
    let mut walk = tree.walk(&Path::root());
    let mut met = Vec::new();
    while let Some((path, _)) = walk.next_batch(1).pop() {
        let top = path.prefix(2);
        walk.skip_subtree(&top);
        met.push(path);
        assert!(met.len() <= model.len(), "a walk that goes round and round");
    }
    let mut firsts: Vec<&Path> = model.keys().collect();
    firsts.dedup_by_key(|path| path.prefix(2));
    assert!(met.iter().eq(firsts));
}

fn carry_out(tree: &mut Tree, model: &mut Model, op: &Op, before: &BTreeMap<u16, Spot>) {
    let mut insert = |number, value, tock| {
        let (path, entry) = (path(number), entry(value, tock));
        assert_eq!(tree.insert(&path, entry.clone()), model.insert(path, entry));
    };
    match *op {
        Op::Insert(number, value, tock) => insert(number, value, tock),
        Op::InsertMany(from, count) => {
            for number in from..NUMBERS.min(from + count) {
                insert(number, (number % 4 > 0).then_some(1), u64::from(number % 8 + 1));
            }
        }
        Op::PutAgain(number, value, tock) => {
            let (path, entry) = (path(number), entry(value, tock));
            let spot = tree.find(path.as_bytes(), before.get(&number).copied());
            assert_eq!(tree.get_at(&spot), model.get_key_value(&path));
            assert_eq!(tree.put(&spot, &path, entry.clone()), model.insert(path, entry));
        }
        Op::Remove(number) => {
            let path = path(number);
            assert_eq!(tree.remove(&path), model.remove(&path));
        }
        Op::RemoveMany(from, count) => {
            for number in from..NUMBERS.min(from + count) {
                let path = path(number);
                assert_eq!(tree.remove(&path), model.remove(&path));
            }
        }
        Op::Snapshot | Op::DropSnapshot => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_and_its_snapshots_are_ordered_maps_whatever_happens_to_others(
        ops in proptest::collection::vec(op(), 1..120), seed: u64,
    ) {
        let (mut tree, mut model) = (Tree::new(seed), Model::new());
        let mut snapshots: Vec<(Tree, Model)> = Vec::new();
        let mut spots: BTreeMap<u16, Spot> = BTreeMap::new();
        for op in &ops {
            match op {
                Op::Snapshot => snapshots.push((tree.clone(), model.clone())),
                Op::DropSnapshot => drop(snapshots.pop()),
                op => carry_out(&mut tree, &mut model, op, &spots),
            }
            if let Op::Insert(number, ..) | Op::Remove(number) = op {
                spots.insert(*number, tree.find(path(*number).as_bytes(), None));
            }
        }
        snapshots.push((tree, model));
        for (tree, model) in &snapshots {
            assert_same(tree, model);
        }
        // A snapshot can be changed, too, and that changes no other.
        let (mut changed, mut its_model) = snapshots.first().cloned().unwrap();
        carry_out(&mut changed, &mut its_model, &Op::InsertMany(0, 300), &BTreeMap::new());
        carry_out(&mut changed, &mut its_model, &Op::RemoveMany(200, 500), &BTreeMap::new());
        assert_same(&changed, &its_model);
        for (tree, model) in &snapshots {
            assert!(tree.subtree(&Path::root()).eq(model));
        }
    }

    #[test]
    fn a_directory_and_its_snapshots_are_lists(
        ops in proptest::collection::vec((0usize..5, 0usize..5000), 1..60),
    ) {
        let (mut directory, mut model) = (Directory::default(), Vec::new());
        let mut snapshots: Vec<(Directory<usize>, Vec<usize>)> = Vec::new();
        for (op, number) in ops {
            match op {
                0 => for at in 0..number {
                    directory.push(at);
                    model.push(at);
                },
                1 => for _ in 0..number {
                    prop_assert_eq!(directory.pop().map(|item| *item), model.pop());
                },
                2 => snapshots.push((directory.clone(), model.clone())),
                3 => drop(snapshots.pop()),
                _ => for at in (number % 7..model.len()).step_by(7) {
                    *directory.get_mut(at).unwrap() += 1;
                    model[at] += 1;
                },
            }
            prop_assert!(directory.get_mut(model.len()).is_none());
        }
        snapshots.push((directory, model));
        for (directory, model) in &snapshots {
            prop_assert_eq!(directory.len(), model.len());
            let all = (0..=model.len()).map(|at| directory.get(at));
            prop_assert!(all.eq(model.iter().map(Some).chain([None])));
        }
    }
}
