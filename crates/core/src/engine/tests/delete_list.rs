//! The list of the Delete group's members in networks in memory: restarts, handing over, nodes that come
//! with data.

use super::net::{Net, SAY_FOR_MS};
use crate::engine::Input;

/// The only member, in memory, is restarted again and again; each of its lives is a lineage of its own.
#[test]
fn restarts_of_the_only_member_do_not_make_the_mark_grow() {
    let mut net = Net::purging_fast(2);
    net.connect_all();
    net.settle();
    let mut lineages = std::collections::BTreeSet::new();
    for n in (0..260u32).map(|n| (n % 100) as u8) {
        let member = net.group(1).first().unwrap() == "n1";
        net.restart_empty(usize::from(member));
        net.connect_all();
        net.pass_until(|net| net.engine(0).is_ready() && net.engine(1).is_ready());
        net.write(1, "k", Some(&[n])).unwrap();
        net.write(1, "k", None).unwrap();
        net.pass_until(|net| (0..2).all(|node| net.engine(node).tree().tombstone_len() == 0));
        lineages.insert(net.engine(0).group().unwrap().lineage.clone());
        assert!(net.engine(0).mark().len() <= 1, "{n}: {:?}", net.engine(0).mark());
        assert_eq!(net.engine(0).mark(), net.engine(1).mark());
    }
    assert!(lineages.len() > 250, "each life made one: {}", lineages.len());
}

#[test]
fn a_node_that_was_away_for_many_lineages_is_simply_behind() {
    let mut net = Net::purging(3, false);
    net.connect_all();
    net.settle();
    for path in ["old", "changed"] {
        net.write(0, path, Some(&[1])).unwrap();
    }
    net.settle();
    net.disconnect(0, 2);
    net.disconnect(1, 2);
    net.write(1, "old", None).unwrap();
    net.write(1, "changed", None).unwrap();
    net.write(2, "changed", Some(&[2])).unwrap();
    for n in 0..5 {
        net.settle();
        net.settle();
        net.restart_empty(0);
        net.connect(0, 1);
        net.settle();
        net.write(1, "k", Some(&[n])).unwrap();
        net.write(1, "k", None).unwrap();
    }
    net.settle();
    assert_eq!(net.engine(1).tree().tombstone_len(), 0);
    net.heal();
    net.settle();
    let values = ["old", "changed", "k"].map(|path| net.value(0, path));
    assert_eq!(values, [None, Some(vec![2]), None]);
    for node in 1..3 {
        assert_eq!(net.content(node), net.content(0));
        assert_eq!(net.engine(node).mark(), net.engine(0).mark());
    }
}

#[test]
fn who_stops_hands_over_in_the_same_lineage() {
    let mut net = Net::purging(3, false);
    net.connect_all();
    net.settle();
    net.write(1, "k", Some(&[1])).unwrap();
    net.write(1, "k", None).unwrap();
    net.settle();
    let before = net.engine(0).group().unwrap().clone();
    assert_eq!(net.group(0), ["n0"]);
    assert!(!net.engine(0).has_handed_over() && net.engine(1).has_handed_over());
    net.begin_hand_over(0);
    net.pass(200);
    assert!(net.engine(0).has_handed_over());
    let after = net.engine(2).group().unwrap().clone();
    assert_eq!((net.group(2), after.lineage), (vec!["n1".into()], before.lineage.clone()));
    net.restart_empty(0);
    net.connect_all();
    net.settle();
    net.write(1, "j", Some(&[1])).unwrap();
    net.write(2, "j", None).unwrap();
    net.settle();
    assert_eq!(net.engine(2).tree().tombstone_len(), 0);
    let mark = net.engine(2).mark().clone();
    assert_eq!(mark.iter().map(|(l, _)| l).collect::<Vec<_>>(), [&before.lineage]);
}

#[test]
fn a_node_in_memory_that_was_here_lately_has_a_say() {
    let mut net = Net::purging(3, false);
    net.connect_all();
    net.settle();
    net.write(0, "k", Some(&[1])).unwrap();
    net.settle();
    net.disconnect(0, 2);
    net.disconnect(1, 2);
    net.write(0, "k", None).unwrap();
    net.pass(SAY_FOR_MS - 1_000);
    let view = net.engine(0).group_view(net.now());
    assert_eq!((view.tombstones, view.awaited[0].0.as_str()), (1, "n2"));
    net.connect_all();
    net.settle();
    assert_eq!((0..3).map(|n| net.engine(n).tree().tombstone_len()).sum::<usize>(), 0);
    assert_eq!(net.engine(2).counters().dropped, 0, "it took part in the purge");
    // Whoever is away for longer is not waited for, nor is who said that it leaves.
    net.write(0, "k", Some(&[1])).unwrap();
    net.settle();
    net.disconnect(0, 2);
    net.disconnect(1, 2);
    net.write(0, "k", None).unwrap();
    net.pass(SAY_FOR_MS + 15_000);
    assert_eq!(net.engine(0).tree().tombstone_len(), 0);
    net.heal();
    net.leave(2);
    net.write(0, "k", Some(&[1])).unwrap();
    net.write(0, "k", None).unwrap();
    net.pass(13_000);
    assert_eq!(net.engine(0).tree().tombstone_len(), 0);
}

/// As an upgrade of one node after the other does it. Who was restarted does not know who was here; the other member does.
#[test]
fn who_was_here_lately_has_a_say_though_the_coordinator_is_restarted() {
    let mut net = Net::purging(1, false);
    net.join_durable(2);
    net.connect_all();
    net.settle();
    assert_eq!(net.group(0), ["n1", "n2"]);
    net.write(0, "k", Some(&[1])).unwrap();
    net.settle();
    net.disconnect(0, 1);
    net.disconnect(0, 2);
    net.write(1, "k", None).unwrap();
    let image = net.engine(1).image();
    net.restart_with(1, 1, Some(&image));
    net.connect(1, 2);
    net.pass(SAY_FOR_MS - 5_000);
    let left = [1, 2].map(|node| net.engine(node).tree().tombstone_len());
    assert_eq!(left, [1, 1], "the other member knows who was here");
    net.pass(20_000);
    let left = [1, 2].map(|node| net.engine(node).tree().tombstone_len());
    assert_eq!(left, [0, 0], "nobody is waited for for ever");
}

/// The only node with data goes before there is a list; the one that founds it waits for that node.
#[test]
fn who_was_here_before_there_was_a_list_has_a_say() {
    let mut net = Net::purging(2, false);
    net.connect_all();
    net.pass_until(|net| net.engine(0).is_ready() && net.engine(1).is_ready());
    net.write(0, "k", Some(&[1])).unwrap();
    net.pass(1_000);
    assert!(net.engine(1).group().is_none());
    net.disconnect(0, 1);
    net.write(1, "k", None).unwrap();
    net.pass(SAY_FOR_MS - 5_000);
    assert_eq!((net.group(1), net.engine(1).tree().tombstone_len()), (vec!["n1".into()], 1));
    net.pass(20_000);
    assert_eq!(net.engine(1).tree().tombstone_len(), 0, "nobody is waited for for ever");
}

#[test]
fn nodes_with_data_are_taken_in_at_once_and_together() {
    let mut net = Net::purging(2, false);
    net.connect_all();
    net.settle();
    assert_eq!(net.group(0), ["n0"]);
    let new = net.join_durable(2);
    // A node that is away does not keep them out.
    net.disconnect(0, 1);
    for node in &new {
        net.connect(0, *node);
    }
    net.connect(new[0], new[1]);
    net.pass_until(|net| new.iter().all(|node| net.engine(*node).is_ready()));
    net.pass(1_500);
    assert_eq!(net.group(0), ["n2", "n3"]);
    assert_eq!(net.engine(0).group_view(net.now()).left_out, []);
}

#[test]
fn nodes_with_data_that_cannot_be_taken_in_are_told_of() {
    let mut net = Net::purging(2, true);
    net.connect_all();
    net.settle();
    assert_eq!(net.group(0), ["n0", "n1"]);
    let new = net.join_durable(1);
    net.disconnect(0, 1);
    net.connect(0, new[0]);
    net.pass_until(|net| net.engine(2).is_ready());
    net.pass(1_500);
    let left_out = net.engine(0).group_view(net.now()).left_out;
    let [(name, lasts)] = left_out.as_slice() else { panic!("{left_out:?}") };
    assert_eq!(name.as_str(), "n2");
    assert!((500..=1_500).contains(lasts), "since it is here, not since there is a list: {lasts}");
    net.connect_all();
    net.pass(3_000);
    assert_eq!(net.group(2), ["n0", "n1", "n2"]);
}

/// Names and stores of the Delete group's members, as a node sees them.
fn stores(net: &Net, node: usize) -> Vec<u64> {
    net.engine(node).group().iter().flat_map(|c| c.members()).map(|m| m.store).collect()
}

/// The directory of a member is set aside, the node runs with another one, and then with the first one
/// again, which is still what made it that member. What was purged meanwhile was purged under lists
/// without it, in another lineage: so it is behind, decides nothing, and brings nothing back.
#[test]
fn a_directory_that_was_set_aside_and_is_set_back_missed_no_purge_of_its_lineage() {
    let mut net = Net::purging(3, true);
    net.connect_all();
    net.pass_until(|net| (0..3).all(|node| net.group(node).len() == 3));
    for path in ["gone", "changed", "kept"] {
        net.write(0, path, Some(&[1])).unwrap();
    }
    net.settle();
    let aside = net.engine(1).image();
    let lineage_before = net.engine(1).group().unwrap().lineage.clone();

    net.restart_with(1, 11, None);
    net.connect_all();
    net.pass_until(|net| (0..3).all(|node| stores(net, node) == [0, 11, 2]));
    net.write(1, "gone", None).unwrap();
    net.write(0, "changed", None).unwrap();
    net.pass_until(|net| (0..3).all(|node| net.engine(node).tree().tombstone_len() == 0));
    assert_ne!(net.engine(0).group().unwrap().lineage, lineage_before, "that one had agreed to");

    // Alone it is the member that it was, and purges nothing without the others.
    net.restart_with(1, 1, Some(&aside));
    net.handle(1, Input::Found);
    assert_eq!(stores(&net, 1), [0, 1, 2]);
    net.write(1, "kept", None).unwrap();
    net.write(1, "changed", Some(&[2])).unwrap();
    net.settle();
    assert_eq!((net.value(1, "gone"), net.value(1, "changed")), (Some(vec![1]), Some(vec![2])));
    assert_eq!(net.engine(1).tree().tombstone_len(), 1);

    net.connect_all();
    net.pass_until(|net| (0..3).all(|node| stores(net, node) == [0, 1, 2]));
    net.settle();
    for node in 0..3 {
        assert_eq!(net.value(node, "gone"), None, "n{node}: what was purged does not come back");
        assert_eq!(net.value(node, "changed"), Some(vec![2]), "n{node}: its own change does");
        assert_eq!(net.engine(node).tree().tombstone_len(), 0, "n{node}: all purge together again");
        assert_eq!(net.content(node), net.content(0));
        assert_eq!(net.engine(node).mark(), net.engine(0).mark());
    }
}
