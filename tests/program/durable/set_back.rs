//! Directories that are set back, copied, or that hold another content of an event than a peer: no
//! tick is made twice, and where one event has two contents all the same, nodes find out, say so, and
//! end with the same (replication rules 9 and 10).

use std::process::{Command, Output};

use distkv::engine::batch::write_one;
use distkv::engine::changes::LoadImage;
use distkv::engine::{Config, Engine, Image, Input, Outbox};
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::path::Path;
use distkv::replica::write::Write;
use distkv::storage::identity::{IDENTITY_NAME, Identity, Life};
use distkv::storage::{DataDir, Directory, Disk, FileHeader};
use rmpv::Value;

use super::place::{Place, new_network, status};
use crate::processes::{NodeProcess, PROGRAM, array, wait_until};

/// What a client does: a path, and the value or a deletion.
type Changes = &'static [(&'static str, Option<u8>)];

fn stop(node: &mut NodeProcess) {
    node.signal("TERM");
    assert!(node.wait().success(), "{:#?}", node.log());
}

fn make(node: &NodeProcess, changes: Changes) {
    let mut client = node.connect();
    for (path, value) in changes {
        match value {
            Some(value) => drop(client.set(&[path], Value::from(*value))),
            None => drop(client.call("delete_value", &[("path", array(&[path]))])),
        }
    }
}

fn verify(a: &NodeProcess, b: &NodeProcess) -> Output {
    let addresses = [a, b].map(|node| node.client.to_string());
    let mut command = Command::new(PROGRAM);
    command.args(["verify", &addresses[0], &addresses[1], "--patience", "2s"]);
    command.output().unwrap()
}

/// Until `verify` finds nothing that differs.
fn wait_until_equal(a: &NodeProcess, b: &NodeProcess) {
    wait_until("the two nodes hold the same", || verify(a, b).status.success().then_some(()));
}

/// Sets a directory back to what it was: the files that have come since go, and the identity is
/// again what it was, as the very file that it names. So does a snapshot of a virtual machine or of
/// a file system, and nothing in the directory tells.
fn set_back(place: &Place, identity: &Identity) {
    let log = identity.life.log();
    let disk = Directory::new(&place.dir);
    for entry in disk.list().unwrap() {
        let number = entry.name.trim_end_matches(".dkv").rsplit('-').next().unwrap().parse::<u64>();
        if number.is_ok_and(|number| number > log) {
            std::fs::remove_file(place.dir.join(&entry.name)).unwrap();
        }
    }
    identity.store(&disk).unwrap();
}

fn identity(place: &Place) -> Identity {
    let disk = Directory::new(&place.dir);
    let entry = disk.list().unwrap().into_iter().find(|e| e.name == IDENTITY_NAME).unwrap();
    let (identity, is_same) = Identity::load(&disk, &entry).unwrap();
    assert!(is_same && matches!(identity.life, Life::Stopped { .. }));
    identity
}

/// What is made before the directory is set back and spread, and what after that while cut off.
const SET_BACK: &[(Changes, Changes)] = &[
    (&[("k", Some(1))], &[("k", Some(2))]),
    (&[("k", Some(1))], &[("l", Some(2))]),
    (&[("k", Some(1)), ("l", Some(2))], &[("l", Some(3)), ("k", Some(4))]),
    (&[("base", None)], &[("base", Some(5))]),
    (&[("base", Some(6))], &[("base", None)]),
    (&[("k", Some(1)), ("k", None), ("m", Some(1))], &[("m", Some(2)), ("k", Some(3))]),
    (&[("a", Some(1)), ("b", Some(1)), ("c", Some(1))], &[("c", Some(2))]),
    (&[("c", Some(2))], &[("a", Some(1)), ("b", Some(1)), ("c", Some(1))]),
];

#[test]
fn a_node_whose_directory_was_set_back_while_it_is_cut_off_differs_from_nobody_in_the_end() {
    for (at, (before, after)) in SET_BACK.iter().enumerate() {
        let network = new_network();
        let place = Place::in_network(&network, "n1", "every-second");
        let mut n1 = place.run();
        let elsewhere = Place::in_network(&network, "n2", "never");
        let n2 = elsewhere.join(&[&n1]);
        make(&n1, &[("base", Some(1))]);
        stop(&mut n1);
        let image = identity(&place);

        let peer = n2.gossip.to_string();
        let mut n1 = place.start(&["run", "--peer", &peer]);
        make(&n1, before);
        wait_until_equal(&n1, &n2);
        stop(&mut n1);
        set_back(&place, &image);

        let mut n1 = place.run_alone();
        let mut client = n1.connect();
        assert_eq!(client.get(&["base"]), Some(Value::from(1)), "it is what it was");
        make(&n1, after);
        stop(&mut n1);
        let n1 = place.start(&["run", "--peer", &peer]);
        wait_until("they have met", || {
            (status(&mut n1.connect(), "links").as_u64() == Some(1)).then_some(())
        });
        wait_until_equal(&n1, &n2);
        let differed = [&n1, &n2].map(|node| counter(node, "contents_differed"));
        assert_eq!(differed, [0, 0], "variation {at}: no event had two contents");
    }
}

#[test]
fn a_copy_that_was_used_beside_its_original_differs_from_nobody_in_the_end() {
    for (original, copied) in &SET_BACK[..4] {
        let network = new_network();
        let place = Place::in_network(&network, "n1", "every-second");
        let mut n1 = place.run();
        make(&n1, &[("base", Some(1))]);
        stop(&mut n1);
        let copy = place.copy();

        let mut n1 = place.run_alone();
        let mut twin = copy.run_alone();
        let elsewhere = Place::in_network(&network, "n2", "never");
        let n2 = elsewhere.join(&[&n1]);
        make(&n1, original);
        make(&twin, copied);
        wait_until_equal(&n1, &n2);
        stop(&mut n1);
        stop(&mut twin);
        let twin = copy.start(&["run", "--peer", &n2.gossip.to_string()]);
        wait_until("they have met", || {
            (status(&mut twin.connect(), "links").as_u64() == Some(1)).then_some(())
        });
        wait_until_equal(&twin, &n2);
    }
}

fn counter(node: &NodeProcess, name: &str) -> u64 {
    let counters = status(&mut node.connect(), "counters");
    crate::processes::field(&counters, name).unwrap().as_u64().unwrap()
}

/// The state of a node that took in what one life of `m` made.
fn image(name: &str, changes: Changes) -> Image {
    let begin = |name: &str, life| {
        let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(life) };
        let mut engine = Engine::new(Config::new(id, 1));
        engine.handle(Input::Found, 0, &mut Outbox::new());
        engine
    };
    let mut maker = begin("m", 0x1234);
    for (path, value) in changes {
        let path: Path = path.parse().unwrap();
        let value = value.map(|value| [value]);
        let write = Write::new(path, value.as_ref().map(|value| &value[..]));
        write_one(&mut maker, write, false, &mut Outbox::new()).unwrap();
    }
    let mut observer = begin(name, 9);
    observer.handle(LoadImage(&maker.image()), 0, &mut Outbox::new()).unwrap();
    observer.image()
}

/// A directory of a node that knows this of `m`'s life.
fn crafted(network: &str, name: &str, changes: Changes) -> Place {
    let place = Place::in_network(network, name, "never");
    let image = image(name, changes);
    let header = FileHeader {
        number: 1,
        network: network.to_owned(),
        id: image.id().clone(),
        store: 0,
        time_ms: 0,
    };
    DataDir::open(&place.dir).unwrap().save(&header, &image, &mut |_| {}).unwrap();
    place
}

/// Two contents of one life's events, as many events in both. Without deletions: what each node
/// purges alone depends on the time; the simulator and the engine's tests have those.
const TWO_CONTENTS: &[(Changes, Changes)] = &[
    (&[("k", Some(1))], &[("k", Some(2))]),
    (&[("k", Some(2))], &[("k", Some(1))]),
    (&[("k", Some(1))], &[("l", Some(1))]),
    (&[("k", Some(1)), ("l", Some(1))], &[("k", Some(2)), ("l", Some(2))]),
    (&[("k", Some(1)), ("l", Some(2))], &[("l", Some(1)), ("k", Some(2))]),
    (&[("k", Some(1)), ("k", Some(2))], &[("k", Some(1)), ("l", Some(2))]),
    (&[("a", Some(1)), ("a", Some(2))], &[("b", Some(1)), ("b", Some(2))]),
    (
        &[("a", Some(1)), ("b", Some(1)), ("c", Some(1)), ("d", Some(1))],
        &[("a", Some(1)), ("b", Some(1)), ("c", Some(2)), ("e", Some(1))],
    ),
];

#[test]
fn two_contents_of_one_event_are_told_by_verify_found_by_the_nodes_and_repaired() {
    for (at, (first, second)) in TWO_CONTENTS.iter().enumerate() {
        let network = new_network();
        let places = [crafted(&network, "n1", first), crafted(&network, "n2", second)];
        let mut n1 = places[0].run_alone();
        let n2 = places[1].run_alone();
        // Both know the same changes; `verify` compares what they are.
        let told = verify(&n1, &n2);
        let text = String::from_utf8_lossy(&told.stdout);
        assert_eq!(told.status.code(), Some(1), "variation {at}: {text}");
        stop(&mut n1);

        let n1 = places[0].start(&["run", "--peer", &n2.gossip.to_string()]);
        wait_until("a node has found out", || {
            let found = [&n1, &n2].map(|node| counter(node, "contents_differed"));
            (found.iter().sum::<u64>() > 0).then_some(())
        });
        wait_until_equal(&n1, &n2);
        let mended: u64 = [&n1, &n2].map(|node| counter(node, "contents_mended")).iter().sum();
        assert!(mended > 0);
        let warned = |node: &NodeProcess| {
            let output = Command::new(PROGRAM)
                .args(["status", "--connect", &node.client.to_string()])
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).contains("one change had two contents")
        };
        assert!(warned(&n1) || warned(&n2), "variation {at}");
        let is_told = |node: &NodeProcess| {
            node.log().iter().any(|line| line.contains("ERROR") && line.contains("hold different"))
        };
        wait_until("it is in a log", || (is_told(&n1) || is_told(&n2)).then_some(()));
        // Whoever comes later gets the same.
        let n3 = Place::in_network(&network, "n3", "never");
        let n3 = n3.join(&[&n1]);
        wait_until_equal(&n1, &n3);
    }
}
