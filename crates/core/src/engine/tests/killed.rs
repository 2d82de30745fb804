//! Names that clients remove from all nodes' views: who hears of it, and when a name is back.

use super::net::Net;
use crate::engine::{Input, KILLED_MAX};
use crate::model::ids::{Incarnation, NodeId, NodeName};

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn sees(net: &Net, node: usize, hidden: &str) -> bool {
    !net.engine(node).killed().contains(&name(hidden))
}

/// Three nodes, all linked, that have removed `old`.
fn without_old() -> Net {
    let mut net = Net::new(3);
    net.connect_all();
    net.settle();
    assert!(net.kill_node(0, "old"));
    net.deliver_all();
    net
}

#[test]
fn all_hear_of_a_removed_name_and_who_comes_later_does_too() {
    let mut net = without_old();
    assert!((0..3).all(|node| !sees(&net, node, "old")));
    let late = net.join();
    net.connect(late, 1);
    net.deliver_all();
    assert!(!sees(&net, late, "old"));
}

#[test]
fn who_is_linked_is_not_removed() {
    let mut net = Net::new(3);
    net.connect_all();
    net.settle();
    assert!(net.kill_node(0, "n1"));
    net.deliver_all();
    assert!(sees(&net, 1, "n1"), "nobody removes itself");
    assert!(sees(&net, 2, "n1"));
}

#[test]
fn a_removed_name_is_back_when_it_is_a_member_is_linked_or_has_made_a_change() {
    let mut net = without_old();
    let member = NodeId { name: name("old"), incarnation: Incarnation(9) };
    net.handle(0, Input::MemberUp { member });
    assert!(sees(&net, 0, "old") && !sees(&net, 1, "old"));
    net.forge_change(2, 1, "old", 1);
    assert!(sees(&net, 1, "old") && !sees(&net, 2, "old"));
    assert!(net.kill_node(2, "n3"));
    net.deliver_all();
    let late = net.join();
    net.connect(late, 2);
    assert!(sees(&net, 2, "n3") && !sees(&net, 1, "n3"));
}

#[test]
fn in_a_big_network_a_member_without_a_link_is_not_removed() {
    let mut net = Net::new(3);
    net.connect_all();
    for node in 0..3 {
        net.engine_mut(node).config.full_mesh_max = 1;
        for other in ["far", "n0", "n1", "n2"] {
            let member = NodeId { name: name(other), incarnation: Incarnation(1) };
            net.handle(node, Input::MemberUp { member });
        }
    }
    net.settle();
    assert!(net.kill_node(0, "far"));
    assert!(net.kill_node(0, "gone"));
    net.deliver_all();
    assert!(!sees(&net, 0, "far") && sees(&net, 1, "far") && sees(&net, 2, "far"));
    assert!((0..3).all(|node| !sees(&net, node, "gone")));
}

#[test]
fn the_removed_names_are_bounded() {
    let mut net = Net::new(1);
    for at in 0..KILLED_MAX {
        assert!(net.kill_node(0, &format!("old{at}")));
    }
    let late = net.join();
    net.connect(late, 0);
    net.deliver_all();
    net.engine_mut(late).killed = std::sync::Arc::default();
    assert!(!net.kill_node(0, "one-more"));
    net.deliver_all();
    assert!(sees(&net, late, "one-more"), "nor is it removed elsewhere");
    assert!(sees(&net, 0, "one-more"));
    assert!(net.kill_node(0, "old7"), "it is removed already");
}
