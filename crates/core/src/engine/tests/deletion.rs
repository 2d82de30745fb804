//! Deletion from end to end: the Delete group agrees, tombstones go everywhere, who was away
//! comes back across the purge.

use super::net::Net;
use crate::engine::delete::ForgetError;
use crate::model::tick_set::TickSet;

fn tombstones(net: &Net) -> Vec<usize> {
    (0..net.len()).map(|n| net.engine(n).tree().tombstone_len()).collect()
}

fn assert_equal(net: &Net) {
    for node in 1..net.len() {
        assert_eq!(net.content(node), net.content(0), "n{node} and n0");
        assert_eq!(net.engine(node).mark(), net.engine(0).mark(), "n{node} and n0");
    }
}

/// Long enough for a list to be founded and rounds to be held.
fn wait(net: &mut Net) {
    for _ in 0..4 {
        net.settle();
    }
}

#[test]
fn without_data_directories_one_member_purges_for_all() {
    let mut net = Net::purging(3, false);
    net.connect_all();
    net.settle();
    for n in 0..20 {
        net.write(n % 3, &format!("k{n}"), Some(&[1])).unwrap();
    }
    net.settle();
    for n in 0..10 {
        net.write((n + 1) % 3, &format!("k{n}"), None).unwrap();
    }
    net.deliver_all();
    assert_eq!(tombstones(&net), [10, 10, 10]);
    wait(&mut net);
    assert_eq!(tombstones(&net), [0, 0, 0]);
    assert_eq!((net.group(2), net.engine(1).tree().len()), (vec!["n0".into()], 10));
    assert!(!net.engine(2).mark().is_empty());
    assert_equal(&net);
}

#[test]
fn who_was_away_during_the_purge_loses_what_was_deleted_and_keeps_what_it_changed() {
    let mut net = Net::purging(3, false);
    net.connect_all();
    wait(&mut net);
    for path in ["old", "changed", "kept"] {
        net.write(0, path, Some(&[1])).unwrap();
    }
    net.settle();
    net.disconnect(0, 2);
    net.disconnect(1, 2);
    net.write(0, "old", None).unwrap();
    net.write(1, "changed", None).unwrap();
    wait(&mut net);
    assert_eq!(tombstones(&net), [0, 0, 0]);
    net.write(2, "changed", Some(&[2])).unwrap();
    net.write(2, "new", Some(&[3])).unwrap();
    net.heal();
    assert_equal(&net);
    let values = ["old", "changed", "kept", "new"].map(|path| net.value(0, path));
    assert_eq!(values, [None, Some(vec![2]), Some(vec![1]), Some(vec![3])]);
    assert!(net.engine(2).counters().dropped > 0 && net.engine(2).counters().reissued > 0);
}

#[test]
fn nodes_with_data_directories_become_members_and_all_must_agree() {
    let mut net = Net::purging(3, true);
    net.connect_all();
    wait(&mut net);
    assert_eq!(net.group(1), ["n0", "n1", "n2"]);
    net.write(0, "k", Some(&[1])).unwrap();
    net.write(0, "k", None).unwrap();
    net.settle();
    net.disconnect(0, 2);
    net.disconnect(1, 2);
    net.write(0, "j", Some(&[1])).unwrap();
    net.deliver_all();
    net.write(1, "j", None).unwrap();
    wait(&mut net);
    let view = net.engine(0).group_view(net.now());
    let away: Vec<_> = view.away.iter().map(|(m, _)| m.name.to_string()).collect();
    assert_eq!(away, ["n2"], "and nothing is purged");
    assert!(tombstones(&net)[..2].iter().all(|n| *n > 0));
    net.heal();
    wait(&mut net);
    assert_eq!(tombstones(&net), [0, 0, 0]);
    assert_equal(&net);
}

#[test]
fn a_member_that_is_forgotten_no_longer_blocks_and_comes_back_as_it_should() {
    let mut net = Net::purging(3, true);
    net.connect_all();
    wait(&mut net);
    net.write(0, "k", Some(&[1])).unwrap();
    net.settle();
    assert_eq!(net.forget(0, "n2"), Err(ForgetError::IsHere));
    assert_eq!(net.forget(0, "nobody"), Err(ForgetError::NotAMember));
    net.disconnect(0, 2);
    net.disconnect(1, 2);
    net.write(0, "k", None).unwrap();
    net.write(2, "mine", Some(&[7])).unwrap();
    net.forget(0, "n2").unwrap();
    wait(&mut net);
    assert_eq!(tombstones(&net), [0, 0, 0]);
    assert_eq!(net.group(1), ["n0", "n1"]);
    net.heal();
    wait(&mut net);
    assert_eq!(net.group(0), ["n0", "n1", "n2"], "a planned change takes it in again");
    assert_eq!((net.value(2, "k"), net.value(0, "mine")), (None, Some(vec![7])));
    assert_equal(&net);
}

#[test]
fn both_sides_of_a_split_that_forgot_each_other_agree_again() {
    let mut net = Net::purging(4, true);
    net.connect_all();
    wait(&mut net);
    for path in ["a", "b", "c", "d"] {
        net.write(0, path, Some(&[1])).unwrap();
    }
    net.settle();
    for (a, b) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
        net.disconnect(a, b);
    }
    for (at, gone) in [(0, ["n2", "n3"]), (2, ["n0", "n1"])] {
        net.forget(at, gone[0]).unwrap();
        net.forget(at, gone[1]).unwrap();
    }
    net.write(0, "a", None).unwrap();
    net.write(0, "b", None).unwrap();
    net.write(1, "c", Some(&[2])).unwrap();
    net.write(2, "c", None).unwrap();
    net.write(2, "b", Some(&[3])).unwrap();
    wait(&mut net);
    assert_eq!(tombstones(&net), [0, 0, 0, 0]);
    net.heal();
    wait(&mut net);
    wait(&mut net);
    assert_equal(&net);
    assert_eq!((net.value(3, "a"), net.value(0, "d")), (None, Some(vec![1])));
    assert_eq!((net.value(0, "b"), net.value(3, "c")), (Some(vec![3]), Some(vec![2])));
    assert_eq!(net.group(0).len(), 4);
}

#[test]
fn a_hole_that_nobody_can_fill_is_given_up_and_does_not_block_for_ever() {
    let mut net = Net::purging(2, false);
    net.connect_all();
    wait(&mut net);
    // Of n9, only a change with tick 3 ever came.
    net.forge_change(1, 0, "n9", 3);
    net.write(0, "k", Some(&[1])).unwrap();
    net.write(0, "k", None).unwrap();
    wait(&mut net);
    assert_eq!(tombstones(&net), [0, 0]);
    let engine = net.engine(0);
    let n9 = engine.table().find("n9", crate::model::ids::Incarnation(1)).unwrap();
    // The third stands for the first one.
    assert_eq!(engine.seen().get(n9).map(TickSet::count), Some(2), "the second is still unseen");
    assert_equal(&net);
}
