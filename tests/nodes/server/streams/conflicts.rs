//! Conflicts as clients see them: the recent ones, those that come, their counts.

use distkv::engine::conflicts::CONFLICTS_MAX;
use distkv::engine::{Input, LinkId};
use distkv::model::ids::{Incarnation, NodeId, NodeName, Tick, Tock};
use distkv::model::seen::Mark;
use distkv::protocol::peer::{ChangeMessage, PeerMessage};
use distkv::protocol::record::{EventRef, Record};

use crate::harness::{Client, Node, Value, array, fields, has, path, text};

/// A peer that was cut off, and now sends what it did meanwhile.
pub(in crate::server) struct Peer<'n> {
    node: &'n Node,
    link: LinkId,
    tick: u64,
}

impl<'n> Peer<'n> {
    pub(in crate::server) fn new(node: &'n Node) -> Self {
        let (link, _) = node.hub.add_link();
        let peer = NodeId { name: NodeName::new("peer").unwrap(), incarnation: Incarnation(1) };
        node.hub.handle(Input::LinkUp { link, peer }, 0);
        Peer { node, link, tick: 0 }
    }

    fn change<'a>(&mut self, at: &str, value: Option<&'a [u8]>, tock: u64) -> PeerMessage<'a> {
        self.tick += 1;
        let tick = Tick::new(self.tick).unwrap();
        let event = EventRef { name: "peer", incarnation: Incarnation(1), tick };
        let record = Record {
            path: at.parse().unwrap(),
            tock: Tock::new(tock).unwrap(),
            events: [event].into_iter().collect(),
            chain_cut: false,
            time: None,
            value,
            origin: None,
            extra: Default::default(),
        };
        PeerMessage::Change(ChangeMessage { mark: Mark::default(), ack_wanted: false, record })
    }

    /// A change that knows nothing of what the node has.
    pub(in crate::server) fn push(&mut self, at: &str, value: Option<&[u8]>, tock: u64) {
        let messages = vec![self.change(at, value, tock)];
        self.node.hub.handle(Input::Messages { link: self.link, messages }, 0);
    }
}

/// Changes at `a.x` (which the peer wins), `a.y` (which it loses) and `b` (which it wins).
fn three(node: &Node, client: &mut Client) {
    let mut peer = Peer::new(node);
    for at in ["a.x", "a.y", "b"] {
        client.set(at, "ours");
    }
    peer.push("a.x", Some(&[5]), 100);
    peer.push("a.y", None, 1);
    peer.push("b", Some(&[6]), 200);
}

fn number(message: &Value) -> u64 {
    message["conflict"]["number"].as_u64().unwrap()
}

fn numbers(messages: &[Value]) -> Vec<u64> {
    messages.iter().map(number).collect()
}

#[test]
fn recent_conflicts_are_told_with_both_versions() {
    let node = Node::found("n1");
    let mut client = node.connect();
    three(&node, &mut client);
    let told = client.stream(map! {"action": "conflicts", "path": path("a")});
    assert_eq!(told.len(), 2);
    assert_eq!(fields(&told[0]), ["conflict", "path", "depth", "seq", "tock"]);
    let first = &told[0]["conflict"];
    assert_eq!(fields(first), ["number", "changed", "winner", "loser"]);
    assert_eq!((&told[0]["path"], told[0]["depth"].as_u64()), (&array(["x"]), Some(0)));
    let peer = map! {"node": "peer~1", "tick": 1, "prev": Value::Nil};
    assert_eq!(first["winner"], map! {"value": 5, "chain": peer, "tock": 100});
    let own = map! {"node": "n1~1", "tick": 1, "prev": Value::Nil};
    assert_eq!(first["loser"], map! {"value": "ours", "chain": own, "tock": 1});
    assert_eq!((first["number"].as_u64(), first["changed"].as_bool()), (Some(1), Some(true)));

    let second = &told[1]["conflict"];
    assert_eq!(told[1]["path"], array(["y"]));
    assert_eq!(text(&second["winner"], "value"), "ours");
    assert!(!has(&second["loser"], "value"), "it was a deletion: {second}");
    assert_eq!(second["changed"].as_bool(), Some(false));
}

#[test]
fn the_list_is_narrowed_by_number_count_path_and_depth() {
    let node = Node::found("n1");
    let mut client = node.connect();
    three(&node, &mut client);
    for (request, expected) in [
        (map! {"action": "conflicts"}, &[1, 2, 3][..]),
        (map! {"action": "conflicts", "limit": 2}, &[2, 3]),
        (map! {"action": "conflicts", "limit": 0}, &[]),
        (map! {"action": "conflicts", "limit": 9, "since": Value::Nil}, &[1, 2, 3]),
        (map! {"action": "conflicts", "since": 1}, &[2, 3]),
        (map! {"action": "conflicts", "since": 3}, &[]),
        (map! {"action": "conflicts", "since": 1, "limit": 1}, &[3]),
        (map! {"action": "conflicts", "path": path("a"), "limit": 1}, &[2]),
        (map! {"action": "conflicts", "path": path("b")}, &[3]),
        (map! {"action": "conflicts", "max_depth": 1}, &[3]),
        (map! {"action": "conflicts", "path": path(":n")}, &[]),
        // From before a restart: its numbers mean nothing any more.
        (map! {"action": "conflicts", "since": 17}, &[1, 2, 3]),
    ] {
        assert_eq!(numbers(&client.stream(request.clone())), expected, "{request}");
    }
    let bare = client.stream(map! {"action": "conflicts", "nchain": 0, "limit": 1});
    assert_eq!(fields(&bare[0]["conflict"]["winner"]), ["value", "tock"]);
    for bad in [
        map! {"action": "conflicts", "path": 5},
        map! {"action": "conflicts", "since": "x"},
        map! {"action": "conflicts", "limit": 1.5},
    ] {
        assert_eq!(client.code(bad), "bad_request");
    }
}

#[test]
fn the_sessions_root_holds_for_conflicts_too() {
    let node = Node::found("n1");
    let mut client = node.connect();
    three(&node, &mut client);
    client.ok(map! {"action": "root", "path": path("a")});
    let told = client.stream(map! {"action": "conflicts"});
    assert_eq!(numbers(&told), [1, 2]);
    assert_eq!(told[0]["path"], array(["x"]));
}

#[test]
fn a_watch_tells_of_conflicts_only_if_it_is_asked_to() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut watch = |conflicts: Value| {
        let seq = client.start(map! {
            "action": "watch", "path": path("a"), "conflicts": conflicts
        });
        assert_eq!(text(&client.reply(seq), "state"), "start");
        seq
    };
    let (without, with, only) = (watch(false.into()), watch(true.into()), watch("only".into()));
    three(&node, &mut node.connect());

    for seq in [without, with] {
        for (key, value) in [("x", "ours".into()), ("y", "ours".into()), ("x", Value::from(5))] {
            let change = client.reply(seq);
            assert_eq!((&change["path"], &change["value"]), (&array([key]), &value));
        }
    }
    // The change first, then what it has done.
    for seq in [with, only] {
        let told = [client.reply(seq), client.reply(seq)];
        assert_eq!(numbers(&told), [1, 2]);
        assert!(!has(&told[0], "value"));
        assert_eq!(fields(&told[0]["conflict"]["winner"]), ["value", "tock"], "nchain is 0");
        assert_eq!(told[1]["path"], array(["y"]));
    }
    for seq in [without, with, only] {
        client.silence(seq);
    }
}

#[test]
fn a_watch_tells_what_is_found_after_its_start_and_not_before() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut peer = Peer::new(&node);
    client.set("a", 1);
    peer.push("a", Some(&[2]), 100);
    let seq = client.start(map! {
        "action": "watch", "path": path(":"), "fetch": true, "conflicts": true
    });
    assert_eq!(text(&client.reply(seq), "state"), "start");
    assert_eq!(client.reply(seq)["value"].as_i64(), Some(2));
    assert_eq!(text(&client.reply(seq), "state"), "uptodate");
    client.silence(seq);
    client.set("a", 3);
    peer.push("a", Some(&[4]), 200);
    for value in [3, 4] {
        assert_eq!(client.reply(seq)["value"].as_i64(), Some(value));
    }
    let told = client.reply(seq);
    assert_eq!((number(&told), has(&told, "dropped")), (2, false));
}

#[test]
fn whoever_is_too_slow_for_the_list_is_told_how_many_it_missed() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut peer = Peer::new(&node);
    let seq = client.start(map! {"action": "watch", "path": path("a"), "conflicts": "only"});
    assert_eq!(text(&client.reply(seq), "state"), "start");
    // So that what comes later loses, each change for itself.
    peer.push("b", Some(&[1]), 1_000_000);
    client.set("a", 1);
    let count = CONFLICTS_MAX as u64 + 10;
    // Together, so that the list has dropped the first when anybody looks at it.
    let messages = (1..=count).map(|n| peer.change("a", Some(&[1]), 10 + n)).collect();
    node.hub.handle(Input::Messages { link: peer.link, messages }, 0);
    let first = client.reply(seq);
    assert_eq!((number(&first), first["dropped"].as_u64()), (11, Some(10)));
    for expected in 12..=count {
        let next = client.reply(seq);
        assert_eq!((number(&next), has(&next, "dropped")), (expected, false));
    }
    let told = client.stream(map! {"action": "conflicts", "since": 5});
    assert_eq!((told.len(), told[0]["dropped"].as_u64()), (CONFLICTS_MAX, Some(5)));
    let last = client.stream(map! {"action": "conflicts", "limit": 1});
    assert_eq!((numbers(&last), has(&last[0], "dropped")), (vec![count], false));

    let asked = map! {"action": "get_state", "conflicts": true};
    let state = client.ok(asked);
    assert_eq!(fields(&state), ["conflicts", "node", "tock", "seq"]);
    assert_eq!(state["conflicts"], map! {"found": count, "kept": CONFLICTS_MAX as u64});
}

#[test]
fn a_busy_subtree_leaves_the_others_conflicts_in_the_list() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut peer = Peer::new(&node);
    peer.push("c", Some(&[1]), 1_000_000);
    for path in ["b", "a"] {
        client.set(path, 1);
    }
    let count = CONFLICTS_MAX as u64 + 10;
    let mut messages = vec![peer.change("b", Some(&[1]), 10)];
    messages.extend((2..=count).map(|n| peer.change("a", Some(&[1]), 10 + n)));
    node.hub.handle(Input::Messages { link: peer.link, messages }, 0);
    let told = client.stream(map! {"action": "conflicts"});
    assert_eq!(told.len(), CONFLICTS_MAX);
    assert_eq!((numbers(&told[..2]), has(&told[0], "dropped")), (vec![1, 12], false));
    assert_eq!((told[0]["path"].clone(), told[1]["dropped"].as_u64()), (path("b"), Some(10)));
    // Whoever asks for the last ones has not missed what was dropped before them.
    let limit = CONFLICTS_MAX as u64 - 1;
    let last = client.stream(map! {"action": "conflicts", "limit": limit});
    assert_eq!((number(&last[0]), has(&last[0], "dropped")), (12, false));
    assert_eq!(client.stream(map! {"action": "conflicts", "limit": 0_u64}).len(), 0);
}

#[test]
fn conflicts_flow_as_the_window_permits() {
    let node = Node::found("n1");
    let mut client = node.connect_with_qlen(3);
    three(&node, &mut node.connect());
    let seq = client.start(map! {"action": "conflicts"});
    assert_eq!(text(&client.reply(seq), "state"), "start");
    let told = client.reply(seq);
    assert_eq!(fields(&told), ["conflict", "path", "depth", "seq", "wseq", "tock"]);
    client.silence(seq);
    client.ack(seq, 2);
    assert_eq!(numbers(&[client.reply(seq), client.reply(seq)]), [2, 3]);
    client.ack(seq, 4);
    assert_eq!(text(&client.reply(seq), "state"), "end");
}
