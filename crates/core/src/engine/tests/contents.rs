//! Replication rule 10 between engines: two contents for one event, however they came about, are found,
//! told and repaired to one version everywhere.

use super::net::Net;
use crate::engine::Report;

/// Nodes 1 to 4, of which two have heard of other changes of one life of `n0` than the other two:
/// its disk was copied, or set back. Both of `n0` are gone.
fn forked(first: &[(&str, Option<u8>)], second: &[(&str, Option<u8>)]) -> Net {
    let mut net = Net::new(5);
    let twin = net.clone_identity(0);
    for (maker, changes, sides) in [(0, first, [1, 2]), (twin, second, [3, 4])] {
        net.connect(maker, sides[0]);
        net.connect(maker, sides[1]);
        for (path, value) in changes {
            let value = value.map(|value| [value]);
            net.write(maker, path, value.as_ref().map(|value| &value[..])).unwrap();
        }
        net.settle();
        sides.iter().for_each(|side| net.disconnect(maker, *side));
    }
    net
}

fn mesh(net: &mut Net) {
    for a in 1..5 {
        (1..a).for_each(|b| net.connect(a, b));
    }
    net.settle();
    net.settle();
}

fn assert_equal(net: &Net) {
    for node in 2..5 {
        assert_eq!(net.content(node), net.content(1), "node {node}");
        let sums = [node, 1].map(|node| net.engine(node).replica.contents().total());
        assert_eq!(sums[0], sums[1]);
    }
    assert!((1..5).all(|node| net.engine(node).contents_differ().is_empty()));
}

fn differed(net: &Net) -> u64 {
    (1..5).map(|node| net.engine(node).counters().contents_differed).sum()
}

#[test]
fn two_values_of_one_event_are_told_and_become_one_everywhere() {
    let mut net = forked(&[("k", Some(1))], &[("k", Some(2))]);
    mesh(&mut net);
    assert_equal(&net);
    assert!(differed(&net) > 0 && net.conflicts() > 0);
}

#[test]
fn of_an_event_that_names_two_paths_both_entries_stay() {
    let mut net = forked(&[("k", Some(1))], &[("l", Some(2))]);
    mesh(&mut net);
    assert_equal(&net);
    assert_eq!((net.value(1, "k"), net.value(1, "l")), (Some(vec![1]), Some(vec![2])));
    // Who comes later is given both without any comparison.
    let late = net.join();
    let before = differed(&net);
    net.connect(late, 4);
    net.settle();
    assert_eq!(net.content(late).0, net.content(1).0);
    assert_eq!(differed(&net), before);
}

#[test]
fn a_value_and_a_deletion_with_one_event_become_one() {
    let mut net = forked(&[("k", Some(1)), ("k", None)], &[("k", Some(1)), ("k", Some(3))]);
    mesh(&mut net);
    assert_equal(&net);
    assert!(net.conflicts() > 0);
}

#[test]
fn many_differences_in_long_histories_are_all_repaired() {
    let changes = |seed: u8| {
        let change = move |at: u8| {
            let value = (at % 5 != seed % 5).then_some((at ^ seed) & 0x7f);
            (format!("p{}", u16::from(at) * u16::from(seed) % 251), value)
        };
        (0u8..200).map(change).collect::<Vec<_>>()
    };
    let (first, second) = (changes(3), changes(7));
    let borrow = |list: &'_ [(String, Option<u8>)]| -> Vec<(&'static str, Option<u8>)> {
        list.iter().map(|(p, v)| (&*p.clone().leak(), *v)).collect()
    };
    let mut net = forked(&borrow(&first), &borrow(&second));
    mesh(&mut net);
    // Each comparison takes some of the buckets.
    for _ in 0..40 {
        net.settle();
    }
    assert_equal(&net);
}

#[test]
fn a_difference_is_repaired_although_the_two_never_know_the_same() {
    let mut net = forked(&[("k", Some(1))], &[("l", Some(2))]);
    net.connect(1, 3);
    // Each digest meets a node that has just made a change which is still under way.
    let mut quiet = 0;
    for round in 0..2_000u16 {
        let path = format!("busy{}", round % 3);
        net.write(1, &path, Some(&[(round % 128) as u8])).unwrap();
        net.write(3, &path, Some(&[(round % 127) as u8])).unwrap();
        net.tick();
        net.deliver_in_turn();
        quiet += u32::from(net.content(1) == net.content(3));
    }
    assert_eq!(quiet, 0, "they knew the same for a moment");
    for node in [1, 3] {
        assert_eq!((net.value(node, "k"), net.value(node, "l")), (Some(vec![1]), Some(vec![2])));
    }
}

#[test]
fn peers_that_hold_the_same_never_compare() {
    let mut net = Net::new(5);
    net.connect_all();
    for at in 0..50u8 {
        net.write(usize::from(at % 5), &format!("p{}", at % 7), Some(&[at])).unwrap();
        net.deliver_some(3);
    }
    net.settle();
    assert_eq!(differed(&net), 0);
    assert!((1..5).all(|node| net.content(node) == net.content(0)));
}

#[test]
fn a_running_copy_whose_tick_never_falls_behind_is_found() {
    let mut net = Net::new(2);
    let twin = net.clone_identity(0);
    // Both make as many changes, so neither meets a tick above its own.
    net.write(0, "k", Some(&[1])).unwrap();
    net.write(twin, "l", Some(&[2])).unwrap();
    net.connect(twin, 1);
    net.settle();
    net.disconnect(twin, 1);
    net.connect(0, 1);
    net.settle();
    net.settle();
    assert!(net.renewals() > 0);
    assert_eq!(net.content(0), net.content(1));
    assert_eq!((net.value(0, "k"), net.value(0, "l")), (Some(vec![1]), Some(vec![2])));
}

#[test]
fn a_difference_is_told_once_at_each_of_the_two_nodes() {
    let mut net = forked(&[("k", Some(1)), ("m", Some(1))], &[("k", Some(2)), ("m", Some(2))]);
    net.connect(1, 3);
    net.settle();
    net.settle();
    let told = net.reports.iter().filter_map(|(node, report)| match report {
        Report::ContentsDiffer { peer } => Some((*node, peer.to_string())),
        _ => None,
    });
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    assert_eq!(told, [(1, "n3".to_owned()), (3, "n1".to_owned())]);
    assert_eq!(differed(&net), 2);
    assert_eq!(net.content(1), net.content(3));
}
