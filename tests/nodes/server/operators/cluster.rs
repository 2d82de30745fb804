//! Who is there, told once and whenever it changes.

use distkv::server::{MemberInfo, MemberState};

use crate::harness::{Client, Node, Value, fields, member, text};

/// Other members than before, and the node says so.
fn change(node: &Node, others: Vec<MemberInfo>) {
    *node.info.others.lock().unwrap() = others;
    node.hub.cluster_changed.notify(usize::MAX);
}

fn names(view: &Value) -> Vec<&str> {
    view["nodes"].as_array().unwrap().iter().map(|node| text(node, "name")).collect()
}

fn epoch(client: &mut Client) -> u64 {
    client.ok(map! {"action": "cluster"})["epoch"].as_u64().unwrap()
}

#[test]
fn the_cluster_is_told_with_its_epoch_and_whose_that_is() {
    let node = Node::waiting("n1", distkv::server::ServerConfig::default());
    let other = MemberInfo {
        client: Some("127.0.0.1:2".into()),
        ready: false,
        ..member("a", MemberState::Suspect)
    };
    let gone = MemberInfo { ready: true, ..member("z", MemberState::Left) };
    *node.info.others.lock().unwrap() = vec![gone, other];
    let view = node.connect().ok(map! {"action": "cluster"});
    assert_eq!(fields(&view), ["epoch", "nodes", "id", "seq", "tock"]);
    assert_eq!(names(&view), ["a", "n1", "z"], "in the order of names");
    let order = ["name", "incarnation", "gossip", "client", "state", "ready", "housekeeper"];
    assert_eq!(fields(&view["nodes"][0]), order);
    let shown = |at: usize| {
        let node = &view["nodes"][at];
        (text(node, "state"), node["ready"].as_bool().unwrap(), node["client"].as_str())
    };
    assert_eq!(shown(0), ("suspect", false, Some("127.0.0.1:2")));
    assert_eq!(shown(1), ("self", true, None));
    assert_eq!(shown(2), ("left", false, None), "nobody who has gone serves clients");
    assert_eq!(fields(&view["id"]), ["name", "incarnation"]);
    assert_eq!((text(&view["id"], "name"), view["id"]["incarnation"].as_u64()), ("n1", Some(1)));
}

#[test]
fn the_epoch_rises_only_when_what_is_shown_differs() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let first = epoch(&mut client);
    assert!(first >= 1);
    assert_eq!(epoch(&mut client), first, "asking changes nothing");
    *node.info.others.lock().unwrap() = vec![member("a", MemberState::Up)];
    assert_eq!(epoch(&mut client), first + 1);
    // What is not shown to clients does not count.
    let later = MemberInfo { since_ms: 99, lagging: true, ..member("a", MemberState::Up) };
    change(&node, vec![later.clone()]);
    assert_eq!(epoch(&mut client), first + 1);
    change(&node, vec![MemberInfo { state: MemberState::Down, ..later }]);
    assert_eq!(epoch(&mut client), first + 2);
    change(&node, Vec::new());
    assert_eq!(epoch(&mut client), first + 3);
}

#[test]
fn a_client_address_stays_known_while_the_link_is_away() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let address = Some(String::from("10.0.0.1:7"));
    let linked = MemberInfo { client: address, ..member("a", MemberState::Up) };
    let unlinked = MemberInfo { client: None, ready: false, ..linked.clone() };
    let restarted =
        MemberInfo { incarnation: distkv::model::ids::Incarnation(2), ..unlinked.clone() };
    for (members, expected) in [
        (vec![linked], Some("10.0.0.1:7")),
        (vec![unlinked], Some("10.0.0.1:7")),
        (vec![restarted], None),
    ] {
        *node.info.others.lock().unwrap() = members;
        let view = client.ok(map! {"action": "cluster"});
        assert_eq!(view["nodes"][0]["client"].as_str(), expected, "{view}");
    }
}

#[test]
fn a_watcher_gets_the_whole_view_first_and_then_only_what_differs() {
    let node = Node::found("n1");
    let (mut client, mut other) = (node.connect(), node.connect_with_qlen(9));
    let (seq, again) = (
        client.start(map! {"action": "watch_cluster"}),
        other.start(map! {"action": "watch_cluster"}),
    );
    assert_eq!(text(&client.reply(seq), "state"), "start");
    let first = client.reply(seq);
    assert_eq!(fields(&first), ["cluster", "seq", "tock"]);
    assert_eq!(fields(&first["cluster"]), ["epoch", "nodes", "id"]);
    assert_eq!(names(&first["cluster"]), ["n1"]);
    other.reply(again);
    assert_eq!(fields(&other.reply(again)), ["cluster", "seq", "wseq", "tock"]);
    let begun = first["cluster"]["epoch"].as_u64().unwrap();
    let states = [MemberState::Joining, MemberState::Up, MemberState::Left];
    for (state, epoch) in states.into_iter().zip(begun + 1..) {
        // Nothing new, then something.
        node.hub.cluster_changed.notify(usize::MAX);
        change(&node, vec![member("a", state)]);
        for message in [client.reply(seq), other.reply(again)] {
            let view = &message["cluster"];
            assert_eq!(view["epoch"].as_u64(), Some(epoch));
            assert_eq!(text(&view["nodes"][0], "state"), state.word());
        }
    }
    client.silence(seq);
    assert_eq!(client.ok(map! {"action": "stop", "task": seq})["result"].as_bool(), Some(true));
    assert!(client.rest(seq).is_empty());
}

#[test]
fn a_watcher_that_does_not_acknowledge_gets_the_latest_when_it_does() {
    let node = Node::found("n1");
    // A window of two messages: the start and the first view.
    let mut client = node.connect_with_qlen(3);
    let seq = client.start(map! {"action": "watch_cluster"});
    client.reply(seq);
    client.reply(seq);
    let mut asking = node.connect();
    for at in 0..20 {
        *node.info.others.lock().unwrap() = vec![member(&format!("a{at}"), MemberState::Up)];
        epoch(&mut asking);
    }
    client.silence(seq);
    client.ack(seq, 2);
    assert_eq!(names(&client.reply(seq)["cluster"]), ["a19", "n1"]);
    client.silence(seq);
}

#[test]
fn watchers_count_as_open_requests_and_leave_nothing_behind() {
    let config = distkv::server::ServerConfig { open_requests_max: 2, ..Default::default() };
    let node = Node::found_with("n1", config);
    let mut client = node.connect();
    for _ in 0..2 {
        client.start(map! {"action": "watch_cluster"});
    }
    assert_eq!(client.code(map! {"action": "watch_cluster"}), "too_many");
    drop(client);
    let mut other = node.connect();
    change(&node, vec![member("a", MemberState::Up)]);
    assert_eq!(names(&other.ok(map! {"action": "cluster"})), ["a", "n1"]);
}
