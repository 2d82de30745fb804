//! Replication rule 7: a node with data that will not come back leaves the list while it is here.

use super::net::{Net, SAY_FOR_MS};
use crate::engine::delete::{DeleteSettings, ForgetError, RetireError, Retirement};
use crate::engine::*;

/// Nodes with data directories, all of them members.
fn members(count: usize) -> Net {
    let mut net = Net::purging(count, true);
    net.connect_all();
    net.settle();
    assert_eq!(net.group(0).len(), count);
    net
}

fn is_done(net: &Net, node: usize) -> bool {
    net.engine(node).retirement() == Some(Retirement::Done)
}

fn tombstones(net: &Net) -> Vec<usize> {
    (0..net.len()).map(|node| net.engine(node).tree().tombstone_len()).collect()
}

#[test]
fn who_leaves_for_good_is_missed_by_nobody_and_purging_goes_on() {
    // Whether it is the one that coordinates or not.
    for leaver in 0..3 {
        let mut net = members(3);
        let rest: Vec<String> = (0..3).filter(|n| *n != leaver).map(|n| format!("n{n}")).collect();
        let other = (leaver + 1) % 3;
        net.write(leaver, "k", Some(&[1])).unwrap();
        net.retire(leaver).unwrap();
        assert_eq!(net.write(leaver, "k", None), Err(EngineWriteError::Leaving));
        net.pass_until(|net| is_done(net, leaver));
        for node in 0..3 {
            assert_eq!(net.group(node), rest, "n{leaver}, at n{node}");
        }
        // While it is still here, nobody takes it in again.
        net.pass(15_000);
        assert_eq!(net.group(other), rest);
        assert!(is_done(&net, leaver));
        assert_eq!(net.engine(other).group_view(net.now()).left_out, []);
        net.leave(leaver);
        net.write(other, "k", None).unwrap();
        net.pass(25_000);
        let view = net.engine(other).group_view(net.now());
        assert!(view.away.is_empty() && view.awaited.is_empty(), "{view:?}");
        assert_eq!(net.engine(other).tree().tombstone_len(), 0, "nothing waits for it");
        assert!(net.value(other, "k").is_none());
    }
}

#[test]
fn who_is_killed_while_it_leaves_for_good_is_not_waited_for_either() {
    for leaver in 0..3 {
        let mut net = members(3);
        let (other, third) = ((leaver + 1) % 3, (leaver + 2) % 3);
        net.write(leaver, "k", Some(&[1])).unwrap();
        net.settle();
        net.retire(leaver).unwrap();
        net.pass_until(|net| is_done(net, leaver));
        // Long enough for the others to note who is here.
        net.pass(1_000);
        for peer in [other, third] {
            net.disconnect(leaver, peer);
        }
        net.write(other, "k", None).unwrap();
        net.pass(SAY_FOR_MS / 2);
        let view = net.engine(other).group_view(net.now());
        assert!(view.away.is_empty() && view.awaited.is_empty(), "{view:?}");
        for node in [other, third] {
            assert_eq!(net.engine(node).tree().tombstone_len(), 0, "n{leaver}, at n{node}");
        }
    }
}

#[test]
fn who_was_never_on_the_list_leaves_for_good_as_well() {
    for is_durable in [true, false] {
        let mut net = members(2);
        let newcomer = match is_durable {
            true => net.join_durable(1)[0],
            false => net.join_with(DeleteSettings::default()),
        };
        // The one that coordinates cannot take it in.
        net.connect(newcomer, 1);
        net.pass_until(|net| net.engine(newcomer).is_ready());
        assert_eq!(net.group(0), ["n0", "n1"]);
        net.retire(newcomer).unwrap();
        net.pass_until(|net| is_done(net, newcomer));
        net.leave(newcomer);
        net.write(0, "k", Some(&[1])).unwrap();
        net.write(0, "k", None).unwrap();
        net.pass(25_000);
        let view = net.engine(0).group_view(net.now());
        assert!(view.away.is_empty(), "{view:?}");
        assert_eq!(net.group(0), ["n0", "n1"]);
        assert_eq!(net.engine(0).tree().tombstone_len(), 0, "nothing waits for it");
    }
}

#[test]
fn nothing_changes_while_somebody_who_must_agree_is_away() {
    let mut net = members(3);
    net.disconnect(0, 2);
    net.disconnect(1, 2);
    net.retire(0).unwrap();
    net.pass(10_000);
    let away = match net.engine(0).retirement() {
        Some(Retirement::Agreeing { away, is_decided: false }) => away,
        other => panic!("{other:?}"),
    };
    assert_eq!(away.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["n2"]);
    assert!(net.engine_mut(0).cancel_retirement());
    assert_eq!(net.engine(0).retirement(), None);
    net.write(0, "k", Some(&[1])).unwrap();
    net.connect_all();
    net.settle();
    for node in 0..3 {
        assert_eq!(net.group(node), ["n0", "n1", "n2"]);
    }
    // It stays what it was, and a later try succeeds.
    net.write(0, "k", None).unwrap();
    net.settle();
    net.pass(15_000);
    assert_eq!(tombstones(&net), [0, 0, 0]);
    net.retire(0).unwrap();
    net.pass_until(|net| is_done(net, 0));
    assert!(!net.engine_mut(0).cancel_retirement(), "what is agreed stays");
}

#[test]
fn the_last_node_of_all_does_not_leave_for_good() {
    let mut net = members(1);
    assert_eq!(net.retire(0), Err(RetireError::Alone));
    net.write(0, "k", Some(&[1])).unwrap();
    let waiting = net.join_durable(1)[0];
    assert_eq!(net.retire(waiting), Err(RetireError::NotReady));
}

#[test]
fn the_only_member_leaves_its_place_to_one_who_is_here() {
    let mut net = Net::purging(1, true);
    let settings = DeleteSettings { say_for_ms: SAY_FOR_MS, ..DeleteSettings::default() };
    let memory = net.join_with(settings);
    net.connect_all();
    net.pass_until(|net| net.engine(memory).is_ready() && net.group(0) == ["n0"]);
    net.retire(0).unwrap();
    net.pass_until(|net| is_done(net, 0));
    assert_eq!(net.group(memory), ["n1"]);
    net.leave(0);
    net.write(memory, "k", Some(&[1])).unwrap();
    net.write(memory, "k", None).unwrap();
    net.pass(25_000);
    assert_eq!(net.engine(memory).tree().tombstone_len(), 0);
}

#[test]
fn two_who_leave_at_once_both_go_and_everybody_ends_with_the_same_list() {
    let mut net = members(4);
    net.retire(0).unwrap();
    net.retire(3).unwrap();
    net.pass_until(|net| is_done(net, 0) && is_done(net, 3));
    for node in 0..4 {
        assert_eq!(net.group(node), ["n1", "n2"]);
    }
    net.leave(0);
    net.leave(3);
    net.write(1, "k", Some(&[1])).unwrap();
    net.write(1, "k", None).unwrap();
    net.pass(25_000);
    assert_eq!(net.engine(2).tree().tombstone_len(), 0);
}

#[test]
fn what_was_confirmed_over_a_link_that_is_gone_is_confirmed_again() {
    let mut net = members(3);
    net.retire(0).unwrap();
    net.pass_until(|net| is_done(net, 0));
    assert!(!net.engine_mut(0).cancel_retirement(), "what is agreed stays");
    assert!(is_done(&net, 0));
    net.retire(0).unwrap();
    assert!(is_done(&net, 0), "to ask for it again begins nothing anew");
    net.disconnect(0, 1);
    assert!(is_done(&net, 0), "all who are here have confirmed it");
    net.disconnect(0, 2);
    assert!(!is_done(&net, 0), "nobody who is here knows it");
    net.connect(0, 1);
    assert!(!is_done(&net, 0), "it has not said so over this link");
    net.pass_until(|net| is_done(net, 0));
}

#[test]
fn nobody_forgets_itself() {
    let mut net = members(2);
    net.disconnect(0, 1);
    net.pass(1_000);
    assert_eq!(net.forget(0, "n0"), Err(ForgetError::IsThis));
    assert_eq!(net.group(0), ["n0", "n1"]);
}
