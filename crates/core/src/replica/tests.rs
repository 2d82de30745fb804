//! The promise that everything rests on: any set of changes, applied in any order, with
//! duplicates, gives the same tree on every node.

mod beside;
mod crossing;
mod given_up;
mod parts;
mod reissue;
mod settled;
mod times;
mod usurped;
mod verdicts;
mod whole_file;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::across::{Across, AcrossFailure, Knowledge, Names, NamesMax};
use super::apply::Applied;
use super::purge::{PurgeDecision, TockPair};
use super::write::{ChainCondition, Precondition, Write, WriteError, Written};
use super::{Committed, Replica};
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Incarnation, NodeId, NodeIndex, NodeName, Tick, Tock};
use crate::model::mark::{Component, PurgeId};
use crate::model::path::Path;
use crate::model::seen::{Lineage, Mark, Seen, SeenById, export_seen};
use crate::model::write_id::WriteId;

fn id(name: &str) -> NodeId {
    NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(5) }
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn write(replica: &mut Replica, at: &str, value: Option<&[u8]>) -> Option<Committed> {
    let mut write = Write::new(path(at), value);
    replica.write(&mut write).unwrap().committed
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
        time: entry.time(),
        extra: entry.extra(),
    })
}

fn take(from: &Replica, to: &mut Replica, change: &Committed) -> Applied {
    let entry = translate(from, to, &change.entry);
    to.apply(&change.path, &entry, &Mark::default())
}

/// All that is visible of a node, in a form that does not depend on local indices.
fn content(replica: &Replica) -> (Vec<(Path, String)>, SeenById) {
    let spell = |e: Event| replica.table().spell_event(e);
    let tree = replica
        .tree()
        .subtree(&Path::root())
        .map(|(path, entry)| {
            let chain: Vec<String> = entry.events().map(spell).collect();
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

const ID: WriteId = WriteId(*b"sixteen bytes it");

/// A write with [`ID`] at `k`.
fn write_with_id(replica: &mut Replica, value: Option<&[u8]>) -> Result<Written, WriteError> {
    let mut write = Write { write_id: Some(ID), ..Write::new(path("k"), value) };
    replica.write(&mut write)
}

#[test]
fn a_write_that_comes_again_is_known_whatever_became_of_it_and_whatever_it_asks_for() {
    let mut a = node("a");
    let precondition = Precondition::chain(ChainCondition::MustBeNew);
    let (value, write_id) = (Some(&[1][..]), Some(ID));
    let write = Write { precondition, write_id, ..Write::new(path("k"), value) };
    let first = a.write(&mut write.clone()).unwrap();
    let event = first.committed.unwrap().entry.newest();
    let again = |a: &mut Replica| {
        let (tick, tock) = (a.tick(), a.tock());
        let written = a.write(&mut write.clone()).unwrap();
        assert!(written.committed.is_none() && written.changed);
        assert_eq!((a.tick(), a.tock()), (tick, tock), "no event, nothing else either");
        let made = written.repeated.unwrap();
        assert_eq!((made.event, made.tock), (event, Tock::new(1).unwrap()));
        written.entry.and_then(|entry| entry.value().map(<[u8]>::to_vec))
    };
    assert_eq!(again(&mut a), Some(vec![1]));
    self::write(&mut a, "k", Some(&[2]));
    assert_eq!(again(&mut a), Some(vec![2]));
    self::write(&mut a, "k", None);
    assert_eq!(again(&mut a), None);
    purge(&mut a);
    assert_eq!(again(&mut a), None);
    // Also where no event can be made.
    a.stop_making_events();
    assert_eq!(again(&mut a), None);
}

#[test]
fn an_id_that_another_write_had_changes_nothing() {
    let mut a = node("a");
    write_with_id(&mut a, Some(&[1])).unwrap();
    for value in [Some(&[2][..]), None] {
        assert_eq!(write_with_id(&mut a, value).unwrap_err(), WriteError::IdReused);
    }
    let mut write =
        Write { idempotent: true, write_id: Some(ID), ..Write::new(path("j"), Some(&[1])) };
    assert_eq!(a.write(&mut write).unwrap_err(), WriteError::IdReused);
    assert_eq!(a.tick().get(), 1);
}

#[test]
fn a_deletion_that_comes_again_is_known_and_one_of_nothing_leaves_no_id() {
    let mut a = node("a");
    assert!(write_with_id(&mut a, None).unwrap().repeated.is_none(), "nothing was there");
    write(&mut a, "k", Some(&[1]));
    assert!(write_with_id(&mut a, None).unwrap().committed.is_some());
    assert!(write_with_id(&mut a, None).unwrap().repeated.is_some());
    write(&mut a, "k", Some(&[2]));
    assert!(write_with_id(&mut a, None).unwrap().repeated.is_some(), "the new value stays");
    assert_eq!(a.tree().get(path("k").as_bytes()).unwrap().value(), Some(&[2][..]));
}

#[test]
fn whoever_has_a_write_knows_its_id_also_where_it_lost_a_conflict() {
    let (mut a, mut b, mut c) = (node("a"), node("b"), node("c"));
    let of_a = write_with_id(&mut a, Some(&[1])).unwrap().committed.unwrap();
    let of_b = write(&mut b, "k", Some(&[2])).unwrap();
    assert!(matches!(take(&b, &mut c, &of_b), Applied::Taken(_)));
    assert!(matches!(take(&a, &mut c, &of_a), Applied::Conflict(lost) if !lost.took_theirs));
    let made = write_with_id(&mut c, Some(&[1])).unwrap().repeated.unwrap();
    assert_eq!(c.table().get(made.event.node), Some(&id("a")));
    assert!(write_with_id(&mut c, Some(&[2])).is_err());
    assert!(write_with_id(&mut b, Some(&[1])).unwrap().committed.is_some(), "b has not heard");
}

#[test]
fn a_node_that_comes_back_knows_the_ids_of_its_entries() {
    let mut a = node("a");
    write_with_id(&mut a, Some(&[1])).unwrap();
    let mut back = Replica::come_back(&a.image(&id("a")), &id("a")).unwrap();
    assert!(write_with_id(&mut back, Some(&[1])).unwrap().repeated.is_some());
    assert!(write_with_id(&mut back, None).is_err());
    // A write that was overwritten before is not known any more: it is made again.
    write(&mut a, "k", Some(&[2]));
    let mut back = Replica::come_back(&a.image(&id("a")), &id("a")).unwrap();
    assert!(write_with_id(&mut back, Some(&[1])).unwrap().committed.is_some());
}

#[test]
fn a_re_issue_keeps_the_id_and_the_event_and_a_deletion_in_its_place_does_not() {
    let (mut a, mut b) = (node("a"), node("b"));
    write(&mut a, "j", Some(&[1]));
    for _ in 0..5 {
        write(&mut a, "j", None);
        write(&mut a, "j", Some(&[1]));
    }
    write(&mut a, "j", None);
    purge(&mut a);
    // b knows nothing of the purge: its writes are below it.
    let event = write_with_id(&mut b, Some(&[1])).unwrap().committed.unwrap().entry.newest();
    assert_eq!(catch_up(&mut b, &mut a).reissued.len(), 1);
    let entry = b.tree().get(path("k").as_bytes()).unwrap().clone();
    assert_eq!((entry.reissue_of(), WriteId::of_extra(entry.extra())), (Some(event), Some(ID)));
    catch_up(&mut a, &mut b);
    let made = write_with_id(&mut a, Some(&[1])).unwrap().repeated.unwrap();
    assert_eq!(moved_event(&b, &mut a, event), made.event, "that of the write itself");
    // A second re-issue where the first one's origin was seen is a deletion.
    let died = a.reissue(&path("k"), Tock::new(1 << 20).unwrap(), true);
    assert!(died.entry.is_tombstone() && WriteId::of_extra(died.entry.extra()).is_none());
}

fn moved_event(from: &Replica, to: &mut Replica, event: Event) -> Event {
    let node = to.intern(from.table().get(event.node).unwrap()).unwrap();
    Event { node, tick: event.tick }
}

#[test]
fn preconditions_hold_or_nothing_changes() {
    let mut a = Replica::new(&id("a"), 1);
    let mut attempt = |chain, value: Option<&[u8]>, new: Option<&[u8]>| {
        let precondition = Precondition { value, ..Precondition::chain(chain) };
        a.write(&mut Write { precondition, ..Write::new(path("k"), new) })
    };
    let event =
        |tick| Event { node: crate::model::ids::NodeIndex(0), tick: Tick::new(tick).unwrap() };
    let newest = |tick| ChainCondition::Newest(event(tick));
    assert_eq!(attempt(newest(1), None, Some(&[1])).unwrap_err(), WriteError::IsNew);
    assert_eq!(
        attempt(ChainCondition::Any, Some(&[1]), Some(&[1])).unwrap_err(),
        WriteError::ValueMismatch { current: None }
    );
    assert!(attempt(ChainCondition::MustBeNew, None, Some(&[1])).unwrap().changed);
    let exists = attempt(ChainCondition::MustBeNew, None, Some(&[1]));
    assert_eq!(exists.unwrap_err(), WriteError::AlreadyExists);
    let mismatch = WriteError::ChainMismatch { newest: event(1) };
    assert_eq!(attempt(newest(2), None, Some(&[1])).unwrap_err(), mismatch);
    assert_eq!(attempt(ChainCondition::Unknown, None, None).unwrap_err(), mismatch);
    let other = attempt(ChainCondition::Any, Some(&[2]), Some(&[3]));
    let WriteError::ValueMismatch { current } = other.unwrap_err() else { panic!("another error") };
    assert_eq!(current.unwrap().value(), Some(&[1][..]), "what is there is told");
    assert!(attempt(newest(1), Some(&[0xcc, 1]), Some(&[3])).unwrap().changed);
    assert!(attempt(newest(2), None, None).unwrap().changed, "deleted");
    // A deleted entry is new again, also for a client that still knows its chain.
    assert_eq!(attempt(newest(3), None, Some(&[4])).unwrap_err(), WriteError::IsNew);
    assert!(attempt(ChainCondition::MustBeNew, None, Some(&[4])).unwrap().changed);
}

#[test]
fn a_deletion_s_event_is_a_precondition_for_those_who_say_so() {
    let mut a = Replica::new(&id("a"), 1);
    write(&mut a, "k", Some(&[1]));
    let dead = write(&mut a, "k", None).unwrap().entry.newest();
    let mut attempt = |chain, of_deletion| {
        let precondition = Precondition { of_deletion, ..Precondition::chain(chain) };
        a.write(&mut Write { precondition, ..Write::new(path("k"), Some(&[2])) })
    };
    let older = ChainCondition::Newest(Event { tick: Tick::new(1).unwrap(), ..dead });
    let newest = ChainCondition::Newest(dead);
    assert_eq!(attempt(newest, false).unwrap_err(), WriteError::IsNew);
    for other in [older, ChainCondition::Unknown] {
        assert_eq!(attempt(other, true).unwrap_err(), WriteError::IsNew, "{other:?}");
    }
    assert!(attempt(newest, true).unwrap().changed);
    let again = attempt(newest, true).unwrap_err();
    assert!(matches!(again, WriteError::ChainMismatch { .. }), "{again:?}");
    assert_eq!(attempt(ChainCondition::MustBeNew, true).unwrap_err(), WriteError::AlreadyExists);
}

#[test]
fn writing_the_same_value_makes_an_event_unless_told_otherwise() {
    let mut a = Replica::new(&id("a"), 1);
    write(&mut a, "k", Some(&[1]));
    let mut again = |idempotent| {
        a.write(&mut Write { idempotent, ..Write::new(path("k"), Some(&[1])) }).unwrap()
    };
    let same = again(false);
    assert!(!same.changed && same.committed.is_some());
    let idempotent = again(true);
    assert!(!idempotent.changed && idempotent.committed.is_none());
    assert!(idempotent.made().is_none(), "no event was made");
    assert_eq!(idempotent.entry.map(|e| e.tock()), same.entry.map(|e| e.tock()));
}

#[test]
fn an_idempotent_change_that_is_made_already_asks_for_nothing() {
    let mut a = Replica::new(&id("a"), 1);
    let mut set = |value: &[u8]| {
        let precondition = Precondition::chain(ChainCondition::MustBeNew);
        let mut write =
            Write { precondition, idempotent: true, ..Write::new(path("k"), Some(value)) };
        a.write(&mut write).map(|w| w.changed)
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
    let mut attempt = Write::new(path("x"), Some(&[1]));
    assert_eq!(a.write(&mut attempt).unwrap_err(), WriteError::NoEvent);
    assert!(!a.renew(&id("a")), "the same incarnation again is no renewal");
    let mut known = Replica::new(&NodeId { incarnation: Incarnation(8), ..id("a") }, 1);
    let change = write(&mut known, "j", Some(&[1])).unwrap();
    let _ = take(&known, &mut a, &change);
    assert!(!a.renew(known.table().id(known.own())), "its ticks are somebody's");
    assert!(a.is_usurped());
    assert!(a.renew(&NodeId { incarnation: Incarnation(6), ..id("a") }));
    assert!(write(&mut a, "x", Some(&[1])).is_some());
}

fn counters(x: &Replica, s: &mut Replica) -> BTreeMap<NodeIndex, Tick> {
    let ids = x.seen().iter().map(|(node, ticks)| (x.table().get(node).unwrap(), ticks));
    ids.map(|(id, ticks)| (s.intern(id).unwrap(), Tick::new(ticks.contiguous()).unwrap())).collect()
}

fn moved(from: &Replica, to: &mut Replica, seen: &Seen) -> Seen {
    to.intern_seen(&export_seen(from.table(), seen)).unwrap()
}

/// Replication rules 3, 4 and 8 from end to end, with `meanwhile` before X takes the step.
fn catch_up_with(
    x: &mut Replica,
    s: &mut Replica,
    mut meanwhile: impl FnMut(&mut Replica, &mut Replica),
) -> Result<Across, AcrossFailure> {
    let max = NamesMax { events: 2, paths: 2, bytes: 100 };
    let counters = counters(x, s);
    let snapshot = Arc::new(s.begin_catch_up(&counters, x.mark()).expect("behind"));
    let Knowledge { seen, mark, tock } = snapshot.knowledge().clone();
    let their = Knowledge { seen: moved(s, x, &seen), mark, tock };
    let missing = their.seen.difference(x.seen());
    let mut stream = snapshot.stream(moved(x, s, &missing));
    loop {
        let batch = stream.next_batch(100);
        for (path, entry) in &batch.entries {
            let entry = translate(s, x, entry);
            let crossed = x.mark().ahead_of(&their.mark) > Tock::default();
            let applied = if crossed {
                x.apply_on_behalf(path, &entry, &their.mark)
            } else {
                x.apply(path, &entry, &their.mark)
            };
            assert!(!matches!(applied, Applied::Refused));
        }
        if batch.last {
            break;
        }
    }
    let mut crossing = x.begin_crossing(their);
    let mut meanwhile = Some(&mut meanwhile);
    loop {
        while let Some(paths) = x.next_names(&mut crossing, max) {
            let mut verdict = snapshot.verdict(Names { events: Seen::new(), paths });
            while !verdict.go_on() {}
            crossing.take(verdict.empty());
        }
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile(x, s);
        }
        match x.end_crossing(&mut crossing) {
            Err(AcrossFailure::Unanswered) => {}
            done => return done,
        }
    }
}

fn catch_up(x: &mut Replica, s: &mut Replica) -> Across {
    catch_up_with(x, s, |_, _| {}).unwrap()
}

/// One member agrees with itself: everything that it has deleted is purged.
fn purge(replica: &mut Replica) -> TockPair {
    let pair = replica.propose_pair(&Lineage(None), PurgeId::new(1), 100).unwrap();
    assert_eq!(replica.decide_agree(&pair), PurgeDecision::Apply);
    let _ = replica.apply_purge(&pair);
    pair
}

fn node(name: &str) -> Replica {
    Replica::new(&id(name), 1)
}

#[test]
fn a_catch_up_brings_the_data_and_only_then_the_knowledge() {
    let (mut a, mut b) = (node("a"), node("b"));
    for i in 0..100u8 {
        write(&mut a, &format!("k{}", i % 10), Some(&[i]));
    }
    write(&mut a, "k3", None);
    let a_at_b = b.intern(&id("a")).unwrap();
    catch_up_with(&mut b, &mut a, |b, a| {
        assert_eq!(b.tree().len(), 10);
        // Of each path the change that it has, and the first, which that one stands for.
        assert_eq!(b.seen().get(a_at_b).unwrap().count(), 20, "data before knowledge");
        write(a, "later", Some(&[1]));
    })
    .unwrap();
    assert_eq!(b.seen().contiguous(a_at_b).get(), 101);
    // Changes after the snapshot are still missing; the next catch-up brings just those.
    assert_eq!(b.tree().len(), 10);
    catch_up(&mut b, &mut a);
    assert_eq!(content(&a), content(&b));
}

#[test]
fn a_purge_drops_what_it_covers_and_nothing_else() {
    let mut a = node("a");
    write(&mut a, "kept", Some(&[1]));
    write(&mut a, "gone", Some(&[1]));
    write(&mut a, "gone", None);
    let pair = purge(&mut a);
    assert_eq!((a.tree().len(), a.tree().tombstone_len()), (1, 0));
    assert_eq!(a.mark().get(&Lineage(None)), pair.to);
    assert!(a.tock() >= pair.to);
    assert_eq!(a.decide_purge(&pair), PurgeDecision::Done);
    assert!(
        a.propose_pair(&Lineage(None), PurgeId::new(1), 100).is_none(),
        "nothing is left to drop"
    );
}

#[test]
fn an_announcement_is_taken_only_at_its_mark_and_with_all_of_v_seen() {
    let (mut a, mut b) = (node("a"), node("b"));
    write(&mut a, "k", Some(&[1]));
    catch_up(&mut b, &mut a);
    write(&mut a, "k", None);
    let pair = purge(&mut a);
    let at_b = |b: &mut Replica| TockPair { seen: moved(&a, b, &pair.seen), ..pair.clone() };
    let here = at_b(&mut b);
    assert_eq!(b.decide_purge(&here), PurgeDecision::NotSeen);
    let other = TockPair { from: Component::new(Tock::new(1).unwrap(), None), ..here };
    assert_eq!(b.decide_purge(&other), PurgeDecision::OtherMark);
}

#[test]
fn a_member_does_not_agree_while_it_holds_a_tombstone_that_is_not_in_v() {
    let (mut a, mut b) = (node("a"), node("b"));
    write(&mut a, "k", Some(&[1]));
    write(&mut b, "j", Some(&[1]));
    write(&mut b, "j", None);
    write(&mut a, "k", None);
    catch_up(&mut b, &mut a);
    let pair = a.propose_pair(&Lineage(None), PurgeId::new(1), 100).unwrap();
    let pair = TockPair { seen: moved(&a, &mut b, &pair.seen), ..pair };
    assert_eq!(b.decide_agree(&pair), PurgeDecision::OtherTombstone);
}

#[test]
fn what_was_purged_elsewhere_goes_and_what_was_changed_while_cut_off_survives() {
    let (mut a, mut b) = (node("a"), node("b"));
    for path in ["old", "changed", "kept"] {
        write(&mut a, path, Some(&[1]));
    }
    catch_up(&mut b, &mut a);
    for path in ["old", "changed"] {
        write(&mut a, path, None);
    }
    purge(&mut a);
    // Cut off: b changes one of them and makes another, and knows nothing of the purge.
    write(&mut b, "changed", Some(&[2]));
    write(&mut b, "new", Some(&[3]));
    let across = catch_up(&mut b, &mut a);
    assert_eq!(across.dropped.iter().map(|c| c.path.to_string()).collect::<Vec<_>>(), ["old"]);
    let reissued: Vec<String> = across.reissued.iter().map(|c| c.path.to_string()).collect();
    assert_eq!(reissued, ["changed", "new"]);
    assert!(across.reissued.iter().all(|c| c.entry.tock() > a.mark().top()));
    assert_eq!(a.mark(), b.mark());
    catch_up(&mut a, &mut b);
    assert_eq!(content(&a), content(&b));
    assert_eq!(a.tree().get(path("changed").as_bytes()).unwrap().value(), Some(&[2][..]));
    assert!(a.tree().get(path("old").as_bytes()).is_none());
}

#[test]
fn a_push_from_one_who_missed_a_purge_is_refused_below_the_mark() {
    let (mut a, mut b) = (node("a"), node("b"));
    write(&mut a, "k", Some(&[1]));
    catch_up(&mut b, &mut a);
    write(&mut a, "k", None);
    purge(&mut a);
    let late = write(&mut b, "k", Some(&[2])).unwrap();
    let entry = translate(&b, &mut a, &late.entry);
    assert!(late.entry.tock() <= a.mark().top());
    assert!(matches!(a.apply(&late.path, &entry, b.mark()), Applied::Refused));
    assert!(!a.seen().contains(entry.newest()), "refused is not seen");
    assert!(a.begin_catch_up(&BTreeMap::new(), b.mark()).is_ok());
    assert!(b.begin_catch_up(&BTreeMap::new(), a.mark()).is_err(), "b is behind");
}

#[test]
fn an_entry_that_came_after_the_names_is_asked_about_again() {
    let (mut a, mut b) = (node("a"), node("b"));
    write(&mut a, "k", Some(&[1]));
    for _ in 0..5 {
        write(&mut a, "k", None);
        write(&mut a, "k", Some(&[1]));
    }
    write(&mut a, "k", None);
    purge(&mut a);
    // b has not heard of a tock above the mark: its writes meanwhile are below it.
    let across = catch_up_with(&mut b, &mut a, |b, _| {
        write(b, "meanwhile", Some(&[7]));
    });
    assert_eq!(across.unwrap().reissued.len(), 1);
    catch_up(&mut a, &mut b);
    assert_eq!(content(&a), content(&b));
}

#[test]
fn naming_walks_a_big_tree_once_in_pieces_and_hears_of_what_changes_meanwhile() {
    let (mut a, mut b) = (node("a"), node("b"));
    let count = 40_000;
    for i in 0..count {
        write(&mut a, &format!("k{i}"), Some(&[1]));
    }
    catch_up(&mut b, &mut a);
    for i in 0..count {
        write(&mut a, &format!("k{i}"), None);
    }
    let pair = a.propose_pair(&Lineage(None), PurgeId::new(1), usize::MAX).unwrap();
    let _ = a.apply_purge(&pair);
    let a_has = moved(&a, &mut b, a.seen());
    let mut crossing =
        b.begin_crossing(Knowledge { seen: a_has, mark: a.mark().clone(), tock: a.tock() });
    let max = NamesMax { events: 0, paths: 1 << 20, bytes: 1 << 30 };
    let (mut pieces, mut named) = (0, 0);
    while let Some(paths) = b.next_names(&mut crossing, max) {
        (pieces, named) = (pieces + 1, named + paths.len());
        assert!(paths.len() <= 1 << 14, "a piece is short");
        crossing.take(&(0..paths.len()).collect::<Vec<_>>());
        // Named already, or not yet, or never to be.
        write(&mut b, &format!("k{pieces}"), Some(&[2]));
        write(&mut b, "new", Some(&[2]));
    }
    assert_eq!((named, pieces), (count, 3));
    assert_eq!(b.end_crossing(&mut crossing).unwrap_err(), AcrossFailure::Unanswered);
    let again = b.next_names(&mut crossing, max).unwrap();
    let mut again: Vec<String> = again.iter().map(ToString::to_string).collect();
    again.sort();
    assert_eq!(again, ["k1", "k2", "k3", "new"]);
    crossing.take(&[0, 1, 2, 3]);
    assert!(b.next_names(&mut crossing, max).is_none());
    let across = b.end_crossing(&mut crossing).unwrap();
    assert_eq!((across.dropped.len(), across.reissued.len()), (count - 3, 4));
    assert_eq!(across.conflicts.len(), 3, "their deletions are undone");
}

#[test]
fn a_state_file_brings_nothing_back_and_adds_what_is_missing() {
    let (mut a, mut b) = (node("a"), node("b"));
    write(&mut a, "deleted", Some(&[1]));
    catch_up(&mut b, &mut a);
    write(&mut b, "only in the file", Some(&[2]));
    let file = b.image(&id("b"));
    write(&mut a, "deleted", None);
    purge(&mut a);
    a.take_in_image(&file).unwrap();
    assert!(a.tree().get(path("deleted").as_bytes()).is_none());
    let added = a.tree().get(path("only in the file").as_bytes()).unwrap();
    assert_eq!(added.value(), Some(&[2][..]));
    assert!(added.reissue_of().is_some(), "it was below the mark");
}

#[test]
fn a_state_file_that_is_ahead_plays_the_answerer() {
    let (mut a, mut b) = (node("a"), node("b"));
    write(&mut a, "deleted", Some(&[1]));
    catch_up(&mut b, &mut a);
    write(&mut a, "deleted", None);
    purge(&mut a);
    write(&mut b, "mine", Some(&[2]));
    let restored = b.take_in_image(&a.image(&id("a"))).unwrap();
    assert_eq!(restored.dropped.len(), 1);
    assert_eq!((restored.made.len(), b.tree().len()), (1, 1));
    assert_eq!(a.mark(), b.mark());
}

#[test]
fn who_comes_back_under_a_new_incarnation_goes_on_where_its_state_was() {
    let mut a = node("a");
    write(&mut a, "k", Some(&[1]));
    write(&mut a, "j", None);
    write(&mut a, "k", None);
    purge(&mut a);
    write(&mut a, "k", Some(&[2]));
    let image = a.image(&id("a"));
    let again = Replica::come_back(&image, &id("a")).unwrap();
    assert_eq!((again.tick(), again.tock()), (a.tick(), a.tock()));
    let other = NodeId { incarnation: Incarnation(6), ..id("a") };
    let mut renewed = Replica::come_back(&image, &other).unwrap();
    assert_eq!(renewed.tick().get(), 0);
    assert!(renewed.tock() >= renewed.mark().top());
    assert_eq!(content(&renewed).1, content(&a).1);
    write(&mut renewed, "k", Some(&[3]));
    assert_eq!(renewed.seen().contiguous(renewed.own()).get(), 1);
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
        // All nodes, and two fresh ones, get all changes, each in an order of its own, some twice.
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
        // The makers too, given the changes that they lack.
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
