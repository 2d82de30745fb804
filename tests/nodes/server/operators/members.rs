//! What operators see and do: the Delete group, the healing of a split, nodes that come and go.

use std::sync::Arc;

use distkv::engine::batch::write_one;
use distkv::engine::{Config, Engine, Input, LinkId, Outbox, Output};
use distkv::hub::link_queue::{LinkQueue, LinkWork};
use distkv::model::group::{GroupConfig, Member};
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::seen::Lineage;
use distkv::protocol::frame::{BODY_BYTES_MAX, split_frame};
use distkv::protocol::peer::{GroupHello, PeerMessage};
use distkv::replica::write::Write;
use distkv::rt;

use crate::harness::{Client, Node, Value, array, fields, has, path, refusing, text};

/// A peer without a socket: an engine whose frames a test carries over.
struct Peer {
    engine: Engine,
    link: LinkId,
    queue: Arc<LinkQueue>,
}

fn id(name: &str, incarnation: u64) -> NodeId {
    NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(incarnation) }
}

impl Peer {
    /// A peer that serves clients, linked to the node.
    fn link(node: &Node, name: &str, incarnation: u64) -> Peer {
        let mut engine = Engine::new(Config::new(id(name, incarnation), 1));
        engine.handle(Input::Found, 0, &mut Outbox::new());
        let up = Input::LinkUp { link: LinkId(1), peer: id("n1", 1) };
        engine.handle(up, 0, &mut Outbox::new());
        let (link, queue) = node.hub.add_link();
        node.hub.handle(Input::LinkUp { link, peer: id(name, incarnation) }, rt::now());
        Peer { engine, link, queue }
    }

    fn unlink(&self, node: &Node) {
        node.hub.handle(Input::LinkDown { link: self.link }, rt::now());
        node.hub.remove_link(self.link);
    }

    fn say(&self, node: &Node, message: PeerMessage<'_>) {
        let messages = vec![message];
        node.hub.handle(Input::Messages { link: self.link, messages }, rt::now());
    }

    /// Changes an entry, and pushes that to the node.
    fn write(&mut self, node: &Node, at: &str, value: &[u8]) {
        let mut out = Outbox::new();
        let path: distkv::model::path::Path = at.parse().unwrap();
        let write = Write::new(path, Some(value));
        write_one(&mut self.engine, write, false, &mut out).unwrap();
        for output in out.drain() {
            if let Output::Broadcast { frame } = output {
                let frame = split_frame(&frame, BODY_BYTES_MAX).unwrap().unwrap();
                self.say(node, PeerMessage::decode(&frame).unwrap().unwrap());
            }
        }
    }

    /// The names of killed nodes that the node tells this peer of.
    fn killed(&self) -> Vec<String> {
        let mut names = Vec::new();
        while let LinkWork::Frames(frames) = self.queue.next(1 << 20) {
            for bytes in frames {
                let frame = split_frame(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
                if let Ok(Some(PeerMessage::KillNode(name))) = PeerMessage::decode(&frame) {
                    names.push(name.to_string());
                }
            }
        }
        names
    }
}

fn member(name: &str, store: u64, durable: bool) -> Member {
    Member { name: NodeName::new(name).unwrap(), store, durable }
}

/// A node in a Delete group with n2, which is linked, and n3, which is away.
fn with_group() -> (Node, Peer) {
    let node = Node::found("n1");
    let n2 = Peer::link(&node, "n2", 2);
    let members = vec![member("n1", 1, false), member("n2", 22, true), member("n3", 33, true)];
    let config = GroupConfig::new(5, Lineage(None), members);
    n2.say(
        &node,
        PeerMessage::Group(GroupHello {
            member: member("n2", 22, true),
            config,
            implied: Vec::new(),
        }),
    );
    node.hub.handle(Input::Tick, rt::now());
    (node, n2)
}

fn nodes(client: &mut Client) -> Value {
    client.ok(map! {"action": "get_state", "nodes": true})["nodes"].clone()
}

fn names(rows: &Value) -> Vec<(&str, &str, bool)> {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| (text(row, "name"), text(row, "state"), row["delete_member"].as_bool().unwrap()))
        .collect()
}

#[test]
fn a_delete_member_that_is_away_is_told_to_everybody_while_something_waits() {
    let (node, _n2) = with_group();
    let mut client = node.connect();
    let quiet = client.ok(map! {"action": "status"});
    assert_eq!((&quiet["warnings"], &quiet["purge_blocked"]), (&array::<Value>([]), &Value::Nil));
    client.set("a", 1);
    client.ok(map! {"action": "delete_value", "path": path("a")});
    for action in ["status", "members"] {
        let reply = client.ok(map! {"action": action});
        let warning = reply["warnings"][0].as_str().unwrap();
        for part in ["n3 (for 0 s)", "1 deleted entry waits", "`distkv-node members forget n3`"] {
            assert!(warning.contains(part), "{action}: {warning}");
        }
        let blocked = &reply["purge_blocked"];
        assert_eq!(
            (fields(blocked), blocked["tombstones"].as_u64()),
            (vec!["tombstones", "members", "unanswered"], Some(1))
        );
        assert_eq!(text(&blocked["members"][0], "name"), "n3");
        assert!(blocked["members"][0]["away_ms"].is_u64());
    }
    let members = client.ok(map! {"action": "members"})["result"].clone();
    // The node of this test knows no peers.
    assert_eq!(names(&members), [("n1", "self", true), ("n2", "away", true), ("n3", "away", true)]);
    assert!(members[2]["away_ms"].is_u64() && members[0]["away_ms"].is_nil());
    assert!(members[0]["housekeeper"].is_nil());
}

#[test]
fn a_member_is_forgotten_and_purging_goes_on_without_it() {
    let (node, n2) = with_group();
    let mut client = node.connect();
    client.set("a", 1);
    client.ok(map! {"action": "delete_value", "path": path("a")});
    let group = |client: &mut Client| {
        client.ok(map! {"action": "get_state", "delete_group": true})["delete_group"].clone()
    };
    let before = group(&mut client);
    let parts = ["version", "lineage", "members", "tombstones", "awaited", "left_out", "mark"];
    assert_eq!(fields(&before), parts);
    assert_eq!((before["version"].as_u64(), text(&before, "lineage")), (Some(5), "first"));
    assert_eq!(before["members"][1], map! {"name": "n2", "durable": true, "away_ms": Value::Nil});

    let forget = |name: &str| map! {"action": "forget_member", "node": name};
    let here = client.error(forget("n2"));
    assert_eq!(text(&here, "code"), "in_use");
    assert!(text(&here, "error").contains("n2: that node is up and linked"), "{here}");
    assert_eq!(client.code(forget("n4")), "not_found");
    assert_eq!(client.code(forget("n 4")), "bad_request");
    assert_eq!(client.code(map! {"action": "forget_member"}), "bad_request");
    let reply = client.ok(forget("n3"));
    assert_eq!(
        (fields(&reply), reply["result"].as_bool()),
        (vec!["result", "seq", "tock"], Some(true))
    );
    let only_keys = client.ok(forget("only-keys"));
    assert_eq!(fields(&only_keys), ["result", "was_listed", "seq", "tock"]);
    assert_eq!(only_keys["was_listed"], Value::from(false));
    let after = group(&mut client);
    assert_eq!(after["version"].as_u64(), Some(6));
    assert!(text(&after, "lineage").starts_with("n1~1:"), "{after}");
    assert_eq!(after["members"].as_array().unwrap().len(), 2);
    assert_eq!(client.ok(map! {"action": "status"})["warnings"], array::<Value>([]));
    // The same again, as often as it is asked: it is not there any more.
    for _ in 0..2 {
        let again = client.ok(forget("n3"));
        assert_eq!(fields(&again), ["result", "was_listed", "seq", "tock"]);
        assert_eq!(again["result"], Value::from(false));
    }
    // One that is here and was never on the list.
    let n5 = Peer::link(&node, "n5", 5);
    let here = client.error(forget("n5"));
    assert_eq!(text(&here, "code"), "in_use");
    assert!(text(&here, "error").contains("is up, and not in the Delete group"), "{here}");
    // It is gone, and there is nothing to be done.
    n5.unlink(&node);
    let gone = client.ok(forget("n5"));
    assert_eq!(gone["result"], Value::from(false));
    n2.unlink(&node);
}

#[test]
fn a_node_that_is_not_ready_forgets_nobody() {
    let node = Node::waiting("n1", refusing());
    let mut client = node.connect();
    assert_eq!(client.code(map! {"action": "forget_member", "node": "n3"}), "not_ready");
    let reply = client.ok(map! {
        "action": "get_state", "housekeepers": true, "resync": true, "delete_group": true
    });
    assert_eq!(fields(&reply), ["housekeepers", "resync", "delete_group", "node", "tock", "seq"]);
    assert_eq!(reply["housekeepers"], array::<Value>([]));
    assert!(reply["resync"].is_nil() && reply["delete_group"].is_nil());
}

#[test]
fn a_life_that_is_over_and_owns_nothing_leaves_the_list_of_nodes() {
    let node = Node::found("n1");
    let mut client = node.connect();
    for i in 0..3 {
        client.set("ours", i);
    }
    let mut n2 = Peer::link(&node, "n2", 2);
    // It loses the conflict, so this event stands in no chain.
    n2.write(&node, "ours", &[7]);
    let state = |over: bool| {
        map! {
            "action": "get_state", "nodes": true, "known": true, "over": over
        }
    };
    let linked = client.ok(state(false));
    assert_eq!(
        (&linked["nodes"], has(&linked["known"], "n2~2")),
        (&map! {"n1~1": 3, "n2~2": 1}, true)
    );
    n2.unlink(&node);
    let over = client.ok(state(false));
    assert_eq!((&over["nodes"], has(&over["known"], "n2~2")), (&map! {"n1~1": 3}, false));
    let asked_for = client.ok(state(true));
    for part in ["nodes", "known"] {
        assert_eq!(asked_for[part], linked[part]);
    }
    assert_eq!(nodes(&mut client), map! {"n1~1": 3});
    // It is not forgotten: an action about it is answered.
    assert_eq!(
        client.ok(map! {"action": "enum_node", "node": "n2~2"})["result"],
        array::<Value>([])
    );
    let _back = Peer::link(&node, "n2", 2);
    assert_eq!(nodes(&mut client), map! {"n1~1": 3, "n2~2": 1});
}

#[test]
fn a_life_that_is_over_stays_while_it_stands_in_a_chain_or_something_of_it_is_missing() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut n2 = Peer::link(&node, "n2", 2);
    n2.write(&node, "theirs", &[7]);
    client.set("theirs", 8);
    n2.unlink(&node);
    assert_eq!(nodes(&mut client), map! {"n1~1": 1, "n2~2": 1});
    let n3 = Peer::link(&node, "n3", 3);
    let mut other = Peer::link(&node, "n4", 4);
    // Its first change gets lost.
    let write = |peer: &mut Peer, at: &str| {
        let path: distkv::model::path::Path = at.parse().unwrap();
        let write = Write::new(path, Some(&[1]));
        write_one(&mut peer.engine, write, false, &mut Outbox::new()).unwrap();
    };
    write(&mut other, "lost");
    client.set("ours", 2);
    // Nor does it own anything, because this one loses.
    other.write(&node, "ours", &[1]);
    other.unlink(&node);
    n3.unlink(&node);
    assert_eq!(nodes(&mut client), map! {"n1~1": 2, "n2~2": 1, "n4~4": 2});
}

#[test]
fn a_killed_node_stays_away_from_newcomers_too_until_it_is_heard_of() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let mut n2 = Peer::link(&node, "n2", 2);
    n2.write(&node, "theirs", &[7]);
    let kill = map! {"action": "kill_node", "node": "n2"};
    n2.unlink(&node);
    assert_eq!(client.code(kill.clone()), "in_use", "it owns an entry");
    client.set("theirs", 8);
    client.ok(kill.clone());
    let chain = |client: &mut Client| {
        client.ok(map! {"action": "get_value", "path": path("theirs"), "nchain": -1})["chain"]
            .clone()
    };
    assert_eq!(nodes(&mut client), map! {"n1~1": 1});
    assert_eq!(chain(&mut client), map! {"node": "n1~1", "tick": 1, "prev": Value::Nil});
    let mut n3 = Peer::link(&node, "n3", 3);
    assert_eq!(n3.killed(), ["n2"]);
    // Somebody else brings a change that it made elsewhere meanwhile.
    std::mem::swap(&mut n3.engine, &mut n2.engine);
    n3.write(&node, "new", &[9]);
    assert_eq!(nodes(&mut client), map! {"n1~1": 1, "n2~2": 2, "n3~3": Value::Nil});
    assert_eq!(text(&chain(&mut client)["prev"], "node"), "n2~2");
    client.set("new", 10);
    client.ok(kill);
    assert_eq!(n3.killed(), ["n2"], "told at once");
    let back = Peer::link(&node, "n2", 2);
    assert!(has(&nodes(&mut client), "n2~2"));
    // What a peer says of a node that is here is old.
    n3.say(&node, PeerMessage::KillNode(NodeName::new("n2").unwrap()));
    n3.say(&node, PeerMessage::KillNode(NodeName::new("n1").unwrap()));
    assert_eq!(nodes(&mut client), map! {"n1~1": 2, "n2~2": 2, "n3~3": Value::Nil});
    assert_eq!(back.killed(), Vec::<String>::new());
}

#[test]
fn the_list_of_killed_nodes_has_an_end() {
    let node = Node::found("n1");
    let n2 = Peer::link(&node, "n2", 2);
    for i in 0..2_000 {
        n2.say(&node, PeerMessage::KillNode(NodeName::new(&format!("x{i}")).unwrap()));
    }
    let mut client = node.connect();
    let dropped = client.ok(map! {"action": "get_state", "node_drop": true})["node_drop"].clone();
    assert_eq!(dropped.as_array().unwrap().len(), 1_024);
    n2.unlink(&node);
    assert_eq!(client.code(map! {"action": "kill_node", "node": "n2"}), "too_many");
}
