//! Deletion from end to end: the Delete group agrees, tombstones go everywhere, who was away
//! comes back across the purge.

use super::net::Net;
use crate::engine::delete::{DeleteSettings, ForgetError};
use crate::engine::lists::ListCaps;
use crate::engine::{Input, Report};
use crate::model::group::Member;
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

/// Members with data directories, in a network that is too large for a full mesh.
fn tree(durable: bool) -> Net {
    let mut net = Net::purging(2, durable);
    for node in 0..2 {
        net.engine_mut(node).config.full_mesh_max = 1;
        for other in 0..2 {
            let member = net.engine(other).id().clone();
            net.handle(node, Input::MemberUp { member });
        }
    }
    net.connect_all();
    net.settle();
    net
}

#[test]
fn in_a_large_network_a_member_is_away_when_it_has_no_link_to_members_though_it_is_up() {
    let mut net = tree(true);
    assert_eq!(net.group(0), ["n0", "n1"]);
    net.disconnect(0, 1);
    net.pass(1_000);
    let away = net.engine(0).group_view(net.now()).away;
    assert_eq!(away.iter().map(|(m, _)| m.name.as_str()).collect::<Vec<_>>(), ["n1"]);
}

#[test]
fn in_a_large_network_linked_neighbours_have_a_say() {
    let mut net = tree(false);
    assert_eq!(net.group(0), ["n0"]);
    net.write(0, "k", Some(&[1])).unwrap();
    net.settle();
    net.lose_queued(1, 0, true);
    net.write(0, "k", None).unwrap();
    net.pass(25_000);
    assert_eq!(net.engine(0).tree().tombstone_len(), 1, "its agreement did not come");
    net.lose_queued(1, 0, false);
    net.pass(25_000);
    assert_eq!(tombstones(&net), [0, 0]);
}

#[test]
fn a_node_that_has_not_caught_up_founds_no_list_and_has_no_part_in_one() {
    let mut net = Net::purging(1, true);
    net.settle();
    let late = net.join_durable(1)[0];
    net.pass(30_000);
    assert_eq!(net.group(late), [""; 0]);
    net.connect(0, late);
    net.lose_queued(0, late, true);
    net.pass(4_000);
    assert!(!net.engine(late).is_ready());
    let view = net.engine(0).group_view(net.now());
    assert_eq!((net.group(0), view.left_out), (vec!["n0".to_owned()], vec![]));
    net.disconnect(0, late);
    net.pass(1_000);
    assert_eq!(net.engine(0).group_view(net.now()).awaited, [], "nobody waits for it");
}

#[test]
fn who_comes_back_with_another_directory_takes_only_what_it_was_off_the_list() {
    let mut net = Net::purging(3, true);
    net.connect_all();
    net.settle();
    assert_eq!(net.group(1).len(), 3);
    net.restart_with(1, 11, None);
    net.reports.clear();
    net.connect_all();
    net.settle();
    let mut lists = net.reports.iter().filter_map(|(node, report)| match report {
        Report::GroupChanged { config } if *node == 1 => Some(config.members()),
        _ => None,
    });
    let names = |members: &[Member]| members.iter().map(|m| m.name.to_string()).collect::<Vec<_>>();
    assert_eq!(lists.next().map(names), Some(vec!["n0".into(), "n1".into(), "n2".into()]));
    assert_eq!(lists.next().map(names), Some(vec!["n0".into(), "n2".into()]));
    assert_eq!(lists.next().map(names), Some(vec!["n0".into(), "n1".into(), "n2".into()]));
}

#[test]
fn how_long_a_node_has_been_left_out_is_counted_from_when_it_came() {
    let mut net = Net::purging(2, true);
    net.connect_all();
    net.settle();
    let new = net.join_durable(1)[0];
    net.disconnect(0, 1);
    net.connect(0, new);
    net.pass_until(|net| net.engine(new).is_ready());
    net.pass(1_000);
    net.disconnect(0, new);
    net.pass(5_000);
    net.connect(0, new);
    net.pass(1_000);
    let left_out = net.engine(0).group_view(net.now()).left_out;
    assert!(matches!(left_out.as_slice(), [(_, lasts)] if *lasts <= 1_000), "{left_out:?}");
}

#[test]
fn in_memory_the_one_member_is_replaced_when_it_was_away_for_long_enough() {
    let delete = DeleteSettings { takeover_after_ms: 20_000, ..DeleteSettings::default() };
    let mut net = Net::with(2, delete, ListCaps::default());
    net.connect_all();
    net.settle();
    net.disconnect(0, 1);
    net.pass(19_000);
    assert_eq!(net.group(1), ["n0"]);
    net.pass(2_000);
    assert_eq!(net.group(1), ["n1"]);
}

#[test]
fn a_new_list_waits_anew_for_members_that_are_away() {
    let mut net = Net::purging(3, true);
    net.connect_all();
    net.settle();
    net.disconnect(0, 1);
    net.disconnect(0, 2);
    net.pass(10_000);
    net.forget(0, "n1").unwrap();
    net.pass(1_000);
    let away = net.engine(0).group_view(net.now()).away;
    assert!(matches!(away.as_slice(), [(_, lasts)] if *lasts <= 1_000), "{away:?}");
}

#[test]
fn what_is_more_than_one_round_drops_is_dropped_in_rounds_that_follow_at_once() {
    let delete = DeleteSettings { batch_max: 1, ..DeleteSettings::default() };
    let mut net = Net::with(1, delete, ListCaps::default());
    for n in 0..5 {
        net.write(0, &format!("k{n}"), Some(&[1])).unwrap();
        net.write(0, &format!("k{n}"), None).unwrap();
    }
    net.pass_until(|net| net.engine(0).tree().tombstone_len() < 5);
    net.pass(2_000);
    assert_eq!(net.engine(0).tree().tombstone_len(), 0);
}
