//! Random states and batches.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::node::node_id;
use crate::batch::{Batch, Op};
use crate::engine::{Decided, Image, Knowledge};
use crate::model::chain::Chain;
use crate::model::change_time::ChangeTime;
use crate::model::entry::{Entry, EntryParts};
use crate::model::group::{GroupConfig, Member};
use crate::model::ids::{Event, NodeIndex, NodeTable, Tick, Tock};
use crate::model::limits::CHAIN_LEN_MAX;
use crate::model::mark::{Component, Lineage, Mark, PurgeId};
use crate::model::path::Path;
use crate::model::path::arbitrary::path;
use crate::model::seen::Seen;
use crate::model::value::arbitrary::any_rmpv;
use crate::replica::Committed;
use crate::replica::come_back::ReplicaImage;
use crate::replica::purge::TockPair;
use crate::tree::Tree;

/// How many incarnations there are.
pub(super) const NODES: u32 = 5;
const TOP: u64 = 1 << 62;

pub(super) fn table() -> NodeTable {
    let mut table = NodeTable::new();
    for n in 0..u64::from(NODES) {
        let name = ["a", "b", "long-name-of-a-node", "ü", "a"][n as usize];
        table.intern(&node_id(name, u64::MAX / (n + 1))).unwrap();
    }
    table
}

fn counter() -> impl Strategy<Value = u64> {
    prop_oneof![1_u64..200, 1_u64..70_000, 1..TOP, Just(TOP - 1)]
}

fn event() -> impl Strategy<Value = Event> {
    (0..NODES, counter())
        .prop_map(|(node, tick)| Event { node: NodeIndex(node), tick: Tick::new(tick).unwrap() })
}

fn tock() -> impl Strategy<Value = Tock> {
    counter().prop_map(|tock| Tock::new(tock).unwrap())
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    any_rmpv().prop_map(|value| {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &value).unwrap();
        bytes
    })
}

/// Fields that this version does not know.
fn extra() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => Just(Vec::new()),
        1 => Just(vec![2, 5, 0xc4, 1, 9, 0x7f, 0x90]),
    ]
}

pub(super) fn entry() -> impl Strategy<Value = Entry> {
    let chain = vec(event(), 1..=CHAIN_LEN_MAX);
    let time = option::of((0_u64..1 << 48).prop_map(ChangeTime::new));
    let parts = (
        option::weighted(0.8, value()),
        chain,
        any::<bool>(),
        tock(),
        option::of(event()),
        extra(),
    );
    (parts, time).prop_map(|((value, events, is_cut, tock, origin, extra), time)| {
        let chain = Chain::from_events(events, is_cut).unwrap();
        let value = value.as_deref();
        Entry::new(&EntryParts {
            value,
            chain: &chain,
            tock,
            origin,
            time: time.flatten(),
            extra: &extra,
        })
    })
}

fn seen() -> impl Strategy<Value = Seen> {
    let ranges = vec((1_u64..100, 1_u64..100), 0..6);
    btree_map(0..NODES, (ranges, any::<bool>()), 0..4).prop_map(|sets| {
        let mut seen = Seen::new();
        for (node, (ranges, to_the_top)) in sets {
            let mut at = 1;
            for (gap, length) in ranges {
                let ticks = crate::model::tick_set::TickSet::range(at + gap, at + gap + length);
                seen.union_node(NodeIndex(node), &ticks.unwrap());
                at += gap + length + 1;
            }
            if to_the_top {
                let ticks = crate::model::tick_set::TickSet::range(TOP - 5, TOP).unwrap();
                seen.union_node(NodeIndex(node), &ticks);
            }
        }
        seen
    })
}

fn lineage() -> impl Strategy<Value = Lineage> {
    option::of(("[a-z]{1,9}", any::<u64>(), counter())).prop_map(|named| {
        Lineage(named.map(|(name, life, tick)| (node_id(&name, life), Tick::new(tick).unwrap())))
    })
}

fn group() -> impl Strategy<Value = GroupConfig> {
    let members = btree_map("[a-z]{1,9}", (any::<u64>(), any::<bool>()), 1..5);
    let group = (any::<u64>(), lineage(), members).prop_map(|(version, lineage, members)| {
        let member = |(name, (store, durable)): (String, (u64, bool))| Member {
            name: node_id(&name, 0).name,
            store,
            durable,
        };
        GroupConfig::new(version, lineage, members.into_iter().map(member).collect()).unwrap()
    });
    (group, component()).prop_map(|(group, since)| group.from_purge_on(since))
}

fn component() -> impl Strategy<Value = Component> {
    (tock(), vec(any::<u64>(), 0..4))
        .prop_map(|(tock, ids)| Component::with_ids(tock, ids.into_iter().filter_map(PurgeId::new)))
}

fn decided() -> impl Strategy<Value = Decided> {
    let base = vec((lineage(), component()), 0..3);
    let pair = (lineage(), component(), tock(), any::<u64>(), base, seen()).prop_map(
        |(lineage, from, to, id, base, seen)| {
            let id = PurgeId::new(id);
            TockPair { lineage, from, to, id, base, seen }
        },
    );
    (pair, option::of(group())).prop_map(|(pair, next)| Decided { pair, next })
}

pub(super) fn knowledge() -> impl Strategy<Value = Knowledge> {
    let mark = vec((lineage(), component()), 0..3).prop_map(Mark::from_parts);
    (0..NODES, counter(), tock(), seen(), mark, option::of(group()), option::of(decided()))
        .prop_map(|(own, tick, tock, seen, mark, group, decided)| Knowledge {
            id: table().get(NodeIndex(own)).unwrap().clone(),
            tick: Tick::new(tick).unwrap(),
            tock,
            seen,
            mark,
            group,
            decided,
        })
}

/// What an image is made of ([`image_of`]).
pub(super) type Parts = (Knowledge, BTreeMap<Path, Entry>);

pub(super) fn parts() -> impl Strategy<Value = Parts> {
    (knowledge(), btree_map(path(), entry(), 0..40))
}

pub(super) fn image_of((knowledge, entries): Parts) -> Image {
    let Knowledge { id, tick, tock, seen, mark, group, decided } = knowledge;
    let mut tree = Tree::new(9);
    let mut tock = tock.max(mark.top());
    for (path, entry) in entries {
        tock = tock.max(entry.tock());
        tree.insert(&path, entry);
    }
    let table = Arc::new(table());
    Image { replica: ReplicaImage { id, table, tree, seen, mark, tick, tock }, group, decided }
}

pub(super) fn batch() -> impl Strategy<Value = Batch> {
    let put = (path(), entry()).prop_map(|(path, entry)| Op::Put(Committed { path, entry }));
    let gone = (path(), event()).prop_map(|(path, newest)| Op::Gone { path, newest });
    let ops = vec(prop_oneof![3 => put, 1 => gone], 0..30);
    (any::<u32>(), ops, option::of(knowledge())).prop_map(|(time, ops, knowledge)| Batch {
        time_ms: u64::from(time),
        table: Arc::new(table()),
        ops,
        knowledge,
    })
}
