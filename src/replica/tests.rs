//! The promise that everything rests on: any set of changes, applied in any order, with
//! duplicates, gives the same tree on every node.

use proptest::prelude::*;

use super::apply::Applied;
use super::write::{ChainCondition, Precondition, Write, WriteError};
use super::{Committed, Replica};
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Incarnation, NodeId, NodeName, Tick};
use crate::model::path::Path;
use crate::model::seen::{Mark, SeenById, export_seen};

fn id(name: &str) -> NodeId {
    NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(5) }
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn write(replica: &mut Replica, at: &str, value: Option<&[u8]>) -> Option<Committed> {
    let precondition = Precondition::default();
    let write = Write { path: path(at), value, precondition, idempotent: false };
    replica.write(write).unwrap().committed
}

/// A version moved from one node's table to another's.
fn translate(from: &Replica, to: &mut Replica, entry: &Entry) -> Entry {
    let mut event = |e: Event| {
        let id = from.table().get(e.node).unwrap();
        Event { node: to.intern(id).unwrap(), tick: e.tick }
    };
    let chain = crate::model::chain::Chain::from_events(
        entry.events().map(&mut event),
        entry.is_chain_cut(),
    );
    Entry::new(&EntryParts {
        value: entry.value(),
        chain: &chain.unwrap(),
        tock: entry.tock(),
        origin: entry.reissue_of().map(event),
        extra: entry.extra(),
    })
}

fn take(from: &Replica, to: &mut Replica, change: &Committed) -> Applied {
    let entry = translate(from, to, &change.entry);
    to.apply(&change.path, &entry, &Mark::default())
}

/// All that is visible of a node, in a form that does not depend on local indices.
fn content(replica: &Replica) -> (Vec<(Path, String)>, SeenById) {
    let label = |e: Event| format!("{}.{}", replica.table().label(e.node), e.tick);
    let tree = replica
        .tree()
        .subtree(&Path::root())
        .map(|(path, entry)| {
            let chain: Vec<String> = entry.events().map(label).collect();
            (path.clone(), format!("{:?} {} {chain:?}", entry.value(), entry.tock()))
        })
        .collect();
    (tree, export_seen(replica.table(), replica.seen()))
}

#[test]
fn a_write_takes_a_greater_tock_and_puts_its_event_in_front() {
    let (mut a, mut b) = (Replica::new(&id("a"), 1), Replica::new(&id("b"), 1));
    let first = write(&mut a, "k", Some(&[1])).unwrap();
    assert!(matches!(take(&a, &mut b, &first), Applied::Taken(_)));
    let second = write(&mut b, "k", Some(&[2])).unwrap();
    assert!(second.entry.tock() > first.entry.tock());
    assert_eq!(second.entry.events().len(), 2);
    assert!(matches!(take(&b, &mut a, &second), Applied::Taken(_)));
    assert_eq!(content(&a), content(&b));
    assert!(matches!(take(&b, &mut a, &second), Applied::AlreadyKnown));
}

#[test]
fn changes_that_do_not_know_each_other_are_reported_on_both_sides() {
    let (mut a, mut b) = (Replica::new(&id("a"), 1), Replica::new(&id("b"), 1));
    let of_a = write(&mut a, "k", Some(&[1])).unwrap();
    let of_b = write(&mut b, "k", Some(&[2])).unwrap();
    let Applied::Conflict(at_b) = take(&a, &mut b, &of_a) else { panic!("no conflict") };
    let Applied::Conflict(at_a) = take(&b, &mut a, &of_b) else { panic!("no conflict") };
    assert!(at_a.took_theirs && !at_b.took_theirs);
    assert_eq!((at_a.winner.value(), at_a.loser.value()), (Some(&[2][..]), Some(&[1][..])));
    assert_eq!(content(&a), content(&b));
}

#[test]
fn preconditions_hold_or_nothing_changes() {
    let mut a = Replica::new(&id("a"), 1);
    let mut attempt = |chain, value: Option<&[u8]>, new: Option<&[u8]>| {
        let precondition = Precondition { chain, value };
        a.write(Write { path: path("k"), value: new, precondition, idempotent: false })
    };
    let event =
        |tick| Event { node: crate::model::ids::NodeIndex(0), tick: Tick::new(tick).unwrap() };
    let newest = |tick| ChainCondition::Newest(event(tick));
    assert_eq!(attempt(newest(1), None, Some(&[1])).unwrap_err(), WriteError::IsNew);
    assert_eq!(
        attempt(ChainCondition::Any, Some(&[1]), Some(&[1])).unwrap_err(),
        WriteError::ValueMismatch
    );
    assert!(attempt(ChainCondition::MustBeNew, None, Some(&[1])).unwrap().changed);
    let exists = attempt(ChainCondition::MustBeNew, None, Some(&[1]));
    assert_eq!(exists.unwrap_err(), WriteError::AlreadyExists);
    let mismatch = WriteError::ChainMismatch { newest: event(1) };
    assert_eq!(attempt(newest(2), None, Some(&[1])).unwrap_err(), mismatch);
    assert_eq!(attempt(ChainCondition::Unknown, None, None).unwrap_err(), mismatch);
    let other = attempt(ChainCondition::Any, Some(&[2]), Some(&[3]));
    assert_eq!(other.unwrap_err(), WriteError::ValueMismatch);
    assert!(attempt(newest(1), Some(&[0xcc, 1]), Some(&[3])).unwrap().changed);
    assert!(attempt(newest(2), None, None).unwrap().changed, "deleted");
    // A deleted entry is new again, also for who still knows its chain.
    assert_eq!(attempt(newest(3), None, Some(&[4])).unwrap_err(), WriteError::IsNew);
    assert!(attempt(ChainCondition::MustBeNew, None, Some(&[4])).unwrap().changed);
}

#[test]
fn writing_the_same_value_makes_an_event_unless_told_otherwise() {
    let mut a = Replica::new(&id("a"), 1);
    write(&mut a, "k", Some(&[1]));
    let mut again = |idempotent| {
        let precondition = Precondition::default();
        a.write(Write { path: path("k"), value: Some(&[1]), precondition, idempotent }).unwrap()
    };
    let same = again(false);
    assert!(!same.changed && same.committed.is_some());
    let idempotent = again(true);
    assert!(!idempotent.changed && idempotent.committed.is_none());
    assert_eq!(idempotent.entry.map(|e| e.tock()), same.entry.map(|e| e.tock()));
}

#[test]
fn an_idempotent_change_that_is_made_already_asks_for_nothing() {
    let mut a = Replica::new(&id("a"), 1);
    let mut set = |value: &[u8]| {
        let precondition = Precondition { chain: ChainCondition::MustBeNew, value: None };
        let write = Write { path: path("k"), value: Some(value), precondition, idempotent: true };
        a.write(write).map(|w| w.changed)
    };
    assert_eq!(set(&[1]), Ok(true));
    assert_eq!(set(&[1]), Ok(false), "the same request again");
    assert_eq!(set(&[2]), Err(WriteError::AlreadyExists));
}

#[test]
fn deleting_what_is_not_there_makes_no_tombstone() {
    let mut a = Replica::new(&id("a"), 1);
    assert!(write(&mut a, "k", None).is_none());
    write(&mut a, "k", Some(&[1]));
    assert!(write(&mut a, "k", None).is_some());
    assert!(write(&mut a, "k", None).is_none());
    assert_eq!((a.tree().len(), a.tree().live_len(), a.tick().get()), (1, 0, 2));
}

#[test]
fn a_clone_of_this_identity_stops_its_writes_until_it_renews() {
    let (mut a, mut twin) = (Replica::new(&id("a"), 1), Replica::new(&id("a"), 1));
    let change = write(&mut twin, "k", Some(&[1])).unwrap();
    let _ = take(&twin, &mut a, &change);
    assert!(a.is_usurped());
    let precondition = Precondition::default();
    let attempt = Write { path: path("x"), value: Some(&[1]), precondition, idempotent: false };
    assert_eq!(a.write(attempt).unwrap_err(), WriteError::NoEvent);
    assert!(!a.renew(&id("a")), "the same incarnation again is no renewal");
    assert!(a.renew(&NodeId { incarnation: Incarnation(6), ..id("a") }));
    assert!(write(&mut a, "x", Some(&[1])).is_some());
}

#[test]
fn a_catch_up_brings_the_data_and_only_then_the_knowledge() {
    let (mut a, mut b) = (Replica::new(&id("a"), 1), Replica::new(&id("b"), 1));
    for i in 0..100u8 {
        write(&mut a, &format!("k{}", i % 10), Some(&[i]));
    }
    write(&mut a, "k3", None);
    let mut stream = a.answer_catch_up(b.seen(), b.mark()).unwrap();
    write(&mut a, "later", Some(&[1]));
    let mut entries = 0;
    loop {
        let batch = stream.next_batch(100);
        for (path, entry) in &batch.entries {
            let entry = translate(&a, &mut b, entry);
            let _ = b.apply(path, &entry, &Mark::default());
            entries += 1;
        }
        if batch.last {
            break;
        }
        assert!(stream.knowledge().is_none(), "data before knowledge");
    }
    assert_eq!(entries, 10);
    let a_at_b = b.intern(&id("a")).unwrap();
    assert_eq!(b.seen().get(a_at_b).unwrap().count(), 10);
    let (seen, mark, tock) = stream.knowledge().unwrap();
    let seen = b.intern_seen(&export_seen(stream.table(), seen)).unwrap();
    assert!(b.adopt(&seen, mark, tock));
    assert_eq!(b.seen().contiguous(a_at_b).get(), 101);
    // What came after the snapshot is still missing; the next catch-up brings just that.
    let theirs = a.intern_seen(&export_seen(b.table(), b.seen())).unwrap();
    let mut stream = a.answer_catch_up(&theirs, b.mark()).unwrap();
    let batch = stream.next_batch(1 << 20);
    assert_eq!(batch.entries.iter().map(|(p, _)| p.to_string()).collect::<Vec<_>>(), ["later"]);
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize, Option<u8>),
    Deliver(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (0usize..4, 0usize..3, proptest::option::weighted(0.75, 0u8..100))
        .prop_map(|(n, p, v)| Step::Write(n, p, v));
    let deliver = (0usize..4, 0usize..100).prop_map(|(n, c)| Step::Deliver(n, c));
    proptest::collection::vec(prop_oneof![write, deliver], 1..60)
}

proptest! {
    #[test]
    fn any_order_of_the_same_changes_gives_the_same_tree(
        steps in steps(), seed in any::<u64>(),
    ) {
        let names = ["d", "a", "c", "b"];
        let mut nodes: Vec<Replica> = names.iter().map(|n| Replica::new(&id(n), 1)).collect();
        // Changes as their makers committed them, with the maker.
        let mut changes: Vec<(usize, Committed)> = Vec::new();
        for step in steps {
            match step {
                Step::Write(node, at, value) => {
                    let value = value.map(|v| [v & 0x7f]);
                    let at = ["x", "y", "x.y"][at];
                    let value = value.as_ref().map(|v| &v[..]);
                    if let Some(change) = write(&mut nodes[node], at, value) {
                        changes.push((node, change));
                    }
                }
                Step::Deliver(to, which) => {
                    if changes.is_empty() { continue }
                    let (from, change) = changes[which % changes.len()].clone();
                    if from != to {
                        let mut receiver =
                            std::mem::replace(&mut nodes[to], Replica::new(&id("z"), 1));
                        let _ = take(&nodes[from], &mut receiver, &change);
                        nodes[to] = receiver;
                    }
                }
            }
        }
        // Everybody, and two fresh nodes, get all changes in orders of their own, some twice.
        let makers = std::mem::take(&mut nodes);
        let mut readers: Vec<Replica> =
            ["e", "f"].iter().map(|n| Replica::new(&id(n), 1)).collect();
        let mut rng = seed;
        let mut contents = Vec::new();
        for reader in &mut readers {
            let mut order: Vec<usize> = (0..changes.len()).chain(0..changes.len() / 2).collect();
            for i in (1..order.len()).rev() {
                rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(i, (rng >> 33) as usize % (i + 1));
            }
            for at in order {
                let (from, change) = &changes[at];
                let _ = take(&makers[*from], reader, change);
            }
            contents.push(content(reader));
        }
        prop_assert_eq!(&contents[0], &contents[1]);
        // The makers too, given what they lack.
        let mut makers = makers;
        for to in 0..makers.len() {
            let mut receiver = std::mem::replace(&mut makers[to], Replica::new(&id("z"), 1));
            for (from, change) in &changes {
                if *from != to {
                    let _ = take(&makers[*from], &mut receiver, change);
                }
            }
            prop_assert_eq!(&content(&receiver), &contents[0], "at {}", names[to]);
            makers[to] = receiver;
        }
    }
}
