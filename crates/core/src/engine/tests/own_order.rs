//! A client's newer change comes after its older one, also where the newer one is made at a node that has not heard of
//! the older.

use super::hand::Hand;
use super::net::Net;
use super::write;
use crate::engine::clients::lead::CLOCK_LEAD_MAX;
use crate::engine::*;
use crate::model::write_id::WriteId;
use crate::replica::write::{Write, Written};

fn tock(number: u64) -> Tock {
    Tock::new(number).unwrap()
}

/// What a client remembers goes with its change.
fn made(engine: &mut Engine, write: Write<'_>) -> Written {
    batch::write_one(engine, write, false, &mut Outbox::new()).unwrap()
}

fn heard(above: u64, path: &str, value: Option<&'static [u8]>) -> Write<'static> {
    Write { above: tock(above), ..write(path, value) }
}

fn entry_tock(net: &Net, node: usize, path: &str) -> u64 {
    let path: Path = path.parse().unwrap();
    net.engine(node).get(path.as_bytes()).unwrap().tock().get()
}

/// Two nodes, cut off from each other, of which the second one's clock is far ahead; the client's change there is 59.
fn cut_off() -> (Net, u64) {
    let mut net = Net::new(2);
    net.connect_all();
    net.settle();
    net.write(0, "k", Some(&[58])).unwrap();
    net.settle();
    net.disconnect(0, 1);
    for _ in 0..100 {
        net.write(1, "other", Some(&[1])).unwrap();
    }
    net.write(1, "k", Some(&[59])).unwrap();
    let older = entry_tock(&net, 1, "k");
    assert!(net.engine(0).tock().get() < older);
    (net, older)
}

fn all_have(net: &mut Net, path: &str, value: Option<Vec<u8>>) {
    net.heal();
    assert_eq!(net.value(0, path), value);
    assert_eq!(net.value(1, path), value);
}

#[test]
fn what_a_client_writes_later_wins_over_what_it_wrote_at_a_node_that_is_cut_off() {
    let (mut net, older) = cut_off();
    net.write_as(0, "k", heard(older, "k", Some(&[60])), false).unwrap();
    assert_eq!(entry_tock(&net, 0, "k"), older + 1);
    all_have(&mut net, "k", Some(vec![60]));
}

#[test]
fn so_does_what_it_deletes_later() {
    let (mut net, older) = cut_off();
    net.write_as(0, "k", heard(older, "k", None), false).unwrap();
    all_have(&mut net, "k", None);
}

#[test]
fn without_what_the_client_has_heard_the_older_change_wins() {
    let (mut net, _) = cut_off();
    net.write(0, "k", Some(&[60])).unwrap();
    all_have(&mut net, "k", Some(vec![59]));
}

#[test]
fn what_seems_to_be_there_already_is_written_where_the_own_change_is_not_known() {
    let (mut net, older) = cut_off();
    let there = heard(older, "k", Some(&[58]));
    let again = |own| Write { idempotent: true, own: tock(own), ..there.clone() };
    for known in [0, entry_tock(&net, 0, "k")] {
        assert!(!made(net.engine_mut(0), again(known)).is_made);
    }
    net.write_as(0, "k", again(older), false).unwrap();
    assert_eq!(entry_tock(&net, 0, "k"), older + 1);
    assert!(!made(net.engine_mut(0), again(older)).is_made, "it is done now");
    all_have(&mut net, "k", Some(vec![58]));
}

#[test]
fn what_seems_to_be_gone_already_is_deleted_where_the_own_change_is_not_known() {
    let (mut net, _) = cut_off();
    net.write(1, "new", Some(&[1])).unwrap();
    let older = entry_tock(&net, 1, "new");
    let again = |own| Write { own: tock(own), ..heard(older, "new", None) };
    assert!(!made(net.engine_mut(0), again(0)).is_made);
    net.write_as(0, "new", again(older), false).unwrap();
    assert!(!made(net.engine_mut(0), again(older)).is_made, "it is done now");
    all_have(&mut net, "new", None);
}

#[test]
fn a_precondition_counts_where_the_own_change_is_not_known() {
    let (mut net, older) = cut_off();
    let mut condition = Write { own: tock(older), idempotent: true, ..write("k", Some(&[58])) };
    condition.precondition.value = Some(&[7]);
    let refused = batch::write_one(net.engine_mut(0), condition, false, &mut Outbox::new());
    assert!(matches!(refused, Err(EngineWriteError::Write(_))), "{refused:?}");
}

#[test]
fn a_write_that_comes_again_is_not_moved_by_what_the_client_has_heard_since() {
    let mut hand = Hand::with_peers(0);
    let again = |above| Write { write_id: Some(WriteId([7; 16])), ..heard(above, "k", Some(&[1])) };
    assert_eq!(made(&mut hand.engine, again(5)).entry.unwrap().tock(), tock(6));
    let repeated = made(&mut hand.engine, again(1_000));
    assert_eq!(repeated.repeated.unwrap().tock, tock(6));
    assert_eq!(hand.engine.tock(), tock(6), "nothing was made");
    let refused = Write { idempotent: true, ..heard(1_000, "k", Some(&[1])) };
    assert!(!made(&mut hand.engine, refused).is_made);
    assert_eq!(hand.engine.tock(), tock(6), "nor here");
}

#[test]
fn clients_cannot_move_the_clock_to_its_end() {
    let mut hand = Hand::with_peers(0);
    let mut at = |now, above: u64| {
        hand.tick_at(now);
        made(&mut hand.engine, heard(above, "k", Some(&[1]))).entry.unwrap().tock().get()
    };
    // It is a change all the same, as by a client that says nothing.
    assert_eq!(at(1, (1 << 62) - 1), 1);
    assert_eq!(at(1, CLOCK_LEAD_MAX + 2), 2, "one more than may be");
    assert_eq!(at(1, CLOCK_LEAD_MAX + 2), CLOCK_LEAD_MAX + 3);
    // What is left of it is used up, and comes back with time.
    let clock = CLOCK_LEAD_MAX + 3;
    assert_eq!(at(1, clock + 1), clock + 1);
    assert_eq!(at(2, clock + 1_000), clock + 1_001);
    assert_eq!(at(2, clock + 1_001 + 30), clock + 1_002, "more than is left");
    assert_eq!(at(2, clock + 1_002 + 24), clock + 1_002 + 25);
    // However long nobody has used it.
    let (clock, later) = (clock + 1_027, 1 << 40);
    assert_eq!(at(later, clock + CLOCK_LEAD_MAX + 1), clock + 1);
    assert_eq!(at(later, clock + 1 + CLOCK_LEAD_MAX), clock + 1 + CLOCK_LEAD_MAX + 1);
}
