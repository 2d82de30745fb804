//! Tick sets, and what is seen of many incarnations, against sets of numbers: long histories in which
//! ranges come, melt, and are so many that they are kept in a tree, and few again.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::ids::{Event, NodeIndex};
use crate::seen::Seen;
use crate::tick_set::*;

type Model = BTreeSet<u64>;

fn tick(number: u64) -> Tick {
    Tick::new(number).unwrap()
}

/// The ranges that a set of numbers needs.
fn ranges_of(model: &Model) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in model {
        match ranges.last_mut() {
            Some((_, to)) if to == number => *to += 1,
            _ => ranges.push((*number, number + 1)),
        }
    }
    ranges
}

fn assert_same(set: &TickSet, model: &Model) {
    let ranges = ranges_of(model);
    assert!(set.ranges().eq(ranges.iter().copied()), "{set:?}");
    assert_eq!((set.range_count(), set.count()), (ranges.len(), model.len() as u64));
    assert!(set.iter().eq(model.iter().copied()));
    assert_eq!((set.max(), set.is_empty()), (model.last().copied().unwrap_or(0), model.is_empty()));
    let contiguous = (1..).zip(model).take_while(|(at, number)| at == *number).count() as u64;
    assert_eq!(set.contiguous(), contiguous);
    assert_eq!(TickSet::from_ranges(ranges).as_ref(), Some(set));
}

#[derive(Clone, Debug)]
enum Op {
    Tick(u64),
    Range(u64, u64),
    /// From a number on, so many ticks, each so far from the one before it.
    Scattered(u64, u64, u64),
    Union(u64, u64, u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1u64..3000).prop_map(Op::Tick),
        3 => (1u64..3000, 0u64..300).prop_map(|(from, length)| Op::Range(from, length)),
        1 => (1u64..50, 0u64..900, 1u64..4).prop_map(|(f, c, s)| Op::Scattered(f, c, s)),
        1 => (1u64..50, 0u64..900, 1u64..4).prop_map(|(f, c, s)| Op::Union(f, c, s)),
    ]
}

fn scattered(from: u64, count: u64, step: u64) -> Model {
    (0..count).map(|at| from + at * step).collect()
}

fn carry_out(set: &mut TickSet, model: &mut Model, op: &Op) {
    match *op {
        Op::Tick(number) => assert_eq!(set.insert(tick(number)), model.insert(number)),
        Op::Range(from, length) => {
            assert!(set.insert_range(from, from + length));
            model.extend(from..from + length);
        }
        Op::Scattered(from, count, step) => {
            for number in scattered(from, count, step) {
                assert_eq!(set.insert(tick(number)), model.insert(number));
            }
        }
        Op::Union(from, count, step) => {
            let other = scattered(from, count, step);
            let more = TickSet::from_ranges(ranges_of(&other)).unwrap();
            assert_eq!(set.contains_all(&more), other.is_subset(model));
            assert_eq!(set.union_with(&more), !other.is_subset(model));
            model.extend(other);
        }
    }
}

fn set_of(ops: &[Op]) -> (TickSet, Model) {
    let (mut set, mut model) = (TickSet::new(), Model::new());
    ops.iter().for_each(|op| carry_out(&mut set, &mut model, op));
    (set, model)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_tick_set_is_a_set_of_numbers_however_long_its_history(
        ops in proptest::collection::vec(op(), 1..50),
        others in proptest::collection::vec(op(), 1..30),
        at in 0u64..3500, parts in 1usize..200,
    ) {
        let (mut set, mut model) = (TickSet::new(), Model::new());
        let (mut before, mut model_before) = (set.clone(), model.clone());
        for (turn, op) in ops.iter().enumerate() {
            if turn == ops.len() / 2 {
                (before, model_before) = (set.clone(), model.clone());
            }
            carry_out(&mut set, &mut model, op);
        }
        assert_same(&set, &model);
        assert_same(&before, &model_before);
        let (other, its_model) = set_of(&others);
        assert_same(&set.difference(&other), &model.difference(&its_model).copied().collect());
        assert_same(&set.intersection(&other), &model.intersection(&its_model).copied().collect());
        let mut both = set.clone();
        prop_assert_eq!(both.union_with(&other), !its_model.is_subset(&model));
        assert_same(&both, &model.union(&its_model).copied().collect());
        prop_assert!(both.contains_all(&set) && both.contains_all(&other));
        prop_assert_eq!(set.contains_all(&both), its_model.is_subset(&model));
        assert_same(&set.above(at), &model.range(at + 1..).copied().collect());
        assert_same(&set.missing_below(at), &(1..=at).filter(|n| !model.contains(n)).collect());
        for number in (at..at + 40).filter(|number| *number > 0) {
            prop_assert_eq!(set.contains(tick(number)), model.contains(&number));
        }
        let (mut whole, mut from) = (TickSet::new(), Some(0));
        while let Some(start) = from {
            let (part, next) = set.part(start, parts);
            prop_assert!(part.range_count() <= parts && next.is_none_or(|next| next > start));
            prop_assert_eq!(part.count() + whole.count(), {
                whole.union_with(&part);
                whole.count()
            });
            from = next;
        }
        prop_assert_eq!(whole, set);
    }

    #[test]
    fn what_is_seen_is_a_set_of_numbers_for_each_incarnation(
        ops in proptest::collection::vec((0u32..6, op()), 1..60),
        others in proptest::collection::vec((0u32..8, op()), 1..40),
        counters in proptest::collection::vec((0u32..8, 0u64..1000, 0u64..4), 0..6),
    ) {
        let (seen, model) = seen_of(&ops);
        let (other, its_model) = seen_of(&others);
        assert_same_seen(&seen, &model);
        let nothing = Model::new();
        let with = |combine: &dyn Fn(&Model, &Model) -> Model| -> BTreeMap<u32, Model> {
            let nodes = model.keys().chain(its_model.keys());
            nodes.map(|node| {
                let of = |model: &BTreeMap<u32, Model>| model.get(node).unwrap_or(&nothing).clone();
                (*node, combine(&of(&model), &of(&its_model)))
            }).collect()
        };
        assert_same_seen(&seen.difference(&other), &with(&|a, b| a - b));
        assert_same_seen(&seen.intersection(&other), &with(&|a, b| a & b));
        let mut both = seen.clone();
        let is_new = with(&|a, b| b - a).values().any(|rest| !rest.is_empty());
        prop_assert_eq!(seen.contains_all(&other), !is_new);
        prop_assert_eq!(both.union_with(&other), is_new);
        assert_same_seen(&both, &with(&|a, b| a | b));
        assert_same_seen(&seen, &model);
        // Anywhere, or at or just below the greatest one.
        let near_end = |node: &u32| model.get(node).and_then(Model::last).copied().unwrap_or(0);
        let counter = |(node, at, below): (u32, u64, u64)| match below {
            3 => (node, at),
            below => (node, near_end(&node).saturating_sub(below)),
        };
        let counters: BTreeMap<u32, u64> = counters.into_iter().map(counter).collect();
        let known = counters.iter().map(|(node, at)| (NodeIndex(*node), tick(*at))).collect();
        let above = model.iter().map(|(node, numbers)| {
            let at = counters.get(node).copied().unwrap_or(0);
            (*node, numbers.range(at + 1..).copied().collect())
        });
        assert_same_seen(&seen.above(&known), &above.collect());
        let holes = model.iter().map(|(node, numbers)| {
            let below = 1..numbers.last().copied().unwrap_or(0);
            (*node, below.filter(|number| !numbers.contains(number)).collect())
        });
        assert_same_seen(&seen.holes(), &holes.collect());
    }
}

fn seen_of(ops: &[(u32, Op)]) -> (Seen, BTreeMap<u32, Model>) {
    let (mut seen, mut model) = (Seen::new(), BTreeMap::<u32, Model>::new());
    for (node, op) in ops {
        let numbers = model.entry(*node).or_default();
        if let Op::Tick(number) = op {
            let event = Event { node: NodeIndex(*node), tick: tick(*number) };
            assert_eq!(seen.contains(event), numbers.contains(number));
            assert_eq!(seen.insert(event), numbers.insert(*number));
            continue;
        }
        let (set, more) = set_of(std::slice::from_ref(op));
        assert_eq!(seen.union_node(NodeIndex(*node), &set), !more.is_subset(numbers));
        numbers.extend(more);
    }
    (seen, model)
}

fn assert_same_seen(seen: &Seen, model: &BTreeMap<u32, Model>) {
    let model = model.iter().filter(|(_, numbers)| !numbers.is_empty());
    let model: Vec<(u32, &Model)> = model.map(|(node, numbers)| (*node, numbers)).collect();
    assert_eq!(seen.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), nodes_of(&model));
    for (node, numbers) in &model {
        assert_same(seen.get(NodeIndex(*node)).unwrap(), numbers);
        let contiguous = seen.get(NodeIndex(*node)).unwrap().contiguous();
        assert_eq!(seen.contiguous(NodeIndex(*node)).get(), contiguous);
    }
    assert_eq!(seen.is_empty(), model.is_empty());
    assert_eq!(seen.count(), model.iter().map(|(_, numbers)| numbers.len() as u64).sum::<u64>());
    let ranges: usize = model.iter().map(|(_, numbers)| ranges_of(numbers).len()).sum();
    assert_eq!(seen.range_count(), ranges);
    let from = seen.iter_from(NodeIndex(3)).map(|(node, _)| node.0).collect::<Vec<_>>();
    assert_eq!(from, nodes_of(&model).into_iter().filter(|node| *node >= 3).collect::<Vec<_>>());
}

fn nodes_of(model: &[(u32, &Model)]) -> Vec<u32> {
    model.iter().map(|(node, _)| *node).collect()
}
