//! Three nodes with data directories: the Delete group, what it agrees to, and its members' restarts.

use rmpv::Value;

use super::place::{Place, incarnation, new_network, status, storage};
use crate::processes::{Client, NodeProcess, array, field, wait_until};

/// The names of the Delete group's members, as a node sees it.
fn group(client: &mut Client) -> Vec<String> {
    let reply = client.call("members", &[]);
    let members = field(&reply, "result").unwrap();
    let is_member = |m: &&Value| field(m, "delete_member") == Some(Value::from(true));
    let name = |m: &Value| field(m, "name").unwrap().as_str().unwrap().to_owned();
    let mut names: Vec<String> =
        members.as_array().unwrap().iter().filter(is_member).map(name).collect();
    names.sort();
    names
}

fn tombstones(client: &mut Client) -> u64 {
    status(client, "tombstones").as_u64().unwrap()
}

fn delete(client: &mut Client, path: &[&str]) {
    let reply = client.call("delete_value", &[("path", array(path))]);
    assert_eq!(field(&reply, "changed"), Some(Value::from(true)), "{reply}");
}

/// Deletes something at one node, and waits until nobody keeps a tombstone any more.
fn delete_and_wait(nodes: &[&NodeProcess], key: &str) {
    let mut clients: Vec<Client> = nodes.iter().map(|node| node.connect()).collect();
    clients[0].set(&["gone", key], Value::from(1));
    delete(&mut clients[0], &["gone", key]);
    for (client, node) in clients.iter_mut().zip(nodes) {
        wait_until(&format!("{} has purged {key}", node.name), || {
            (client.get(&["gone", key]).is_none() && tombstones(client) == 0).then_some(())
        });
    }
}

#[test]
fn members_come_back_as_members_and_purging_goes_on() {
    let network = new_network();
    let places: Vec<Place> =
        ["n1", "n2", "n3"].map(|name| Place::in_network(&network, name, "every-second")).into();
    let mut n1 = places[0].run();
    let n2 = places[1].join(&[&n1]);
    let mut n3 = places[2].join(&[&n1]);
    let mut clients = [n1.connect(), n2.connect(), n3.connect()];
    for client in &mut clients {
        wait_until("all three are members", || (group(client) == ["n1", "n2", "n3"]).then_some(()));
    }
    delete_and_wait(&[&n1, &n2, &n3], "first");

    // Killed, and away while something is deleted: nothing is purged without it.
    let (store, life) = (storage(&mut clients[2], "store"), incarnation(&mut clients[2]));
    n3.kill();
    clients[0].set(&["gone", "second"], Value::from(1));
    delete(&mut clients[0], &["gone", "second"]);
    wait_until("the other has heard of it", || (tombstones(&mut clients[1]) > 0).then_some(()));
    let n3 = places[2].run();
    clients[2] = n3.connect();
    assert_eq!(storage(&mut clients[2], "store"), store, "it is the member that it was");
    assert_ne!(incarnation(&mut clients[2]), life);
    for client in &mut clients {
        wait_until("it is purged", || (tombstones(client) == 0).then_some(()));
        assert_eq!(group(client), ["n1", "n2", "n3"], "nobody was forgotten for that");
    }

    // Stopped in an orderly way: another life all the same, and the same member.
    let life = incarnation(&mut clients[0]);
    n1.signal("TERM");
    assert!(n1.wait().success());
    let n1 = places[0].start(&["run"]);
    assert_ne!(incarnation(&mut n1.connect()), life);
    delete_and_wait(&[&n1, &n2, &n3], "third");

    // All at once, and in any order.
    let mark = |node: &NodeProcess| {
        let state = node.connect().call("get_state", &[("delete_group", Value::from(true))]);
        field(&field(&state, "delete_group").unwrap(), "mark").unwrap()
    };
    let marks = mark(&n1);
    let mut all = [n1, n2, n3];
    for node in &mut all {
        node.signal("TERM");
    }
    for node in &mut all {
        assert!(node.wait().success());
    }
    for (place, node) in places.iter().zip(&all) {
        place.gossip.set(Some(node.gossip));
    }
    let starts: Vec<_> =
        places.into_iter().map(|place| std::thread::spawn(move || (place.run(), place))).collect();
    let started = starts.into_iter().map(|start| start.join().unwrap());
    // The directories must outlive the nodes.
    let (nodes, _places): (Vec<NodeProcess>, Vec<Place>) = started.unzip();
    let nodes: Vec<&NodeProcess> = nodes.iter().collect();
    for node in &nodes {
        let mut client = node.connect();
        assert_eq!(group(&mut client), ["n1", "n2", "n3"]);
        assert_eq!(mark(node), marks, "how far was purged is not forgotten");
    }
    delete_and_wait(&nodes, "fourth");
}
