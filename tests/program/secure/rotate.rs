//! Another key for a running network, by `key rotate`: under load, with nodes that are away, cut off, stopped
//! between two steps, or unable to write their files; and who is shut out.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value as Json;

use super::{Keys, copy, links, program, wait_for_links, wait_for_log};
use crate::processes::{NodeProcess, field, wait_until};

mod left_behind;
mod reader_gone;
mod replaced_file;
mod stolen_ca;
mod stray_keys;
mod two_at_once;

/// Runs `key …` as who has this key file, at a node: the exit code, and all that it said.
fn key(node: &NodeProcess, file: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let client = node.client.to_string();
    program(&[&["key"], arguments, &["--key", file, "--connect", &client]].concat())
}

/// What `key list` says of each node.
fn listed(node: &NodeProcess, file: &str) -> BTreeMap<String, Json> {
    let (code, said) = key(node, file, &["list", "--json"]);
    assert_eq!(code, Some(0), "{said}");
    let rows = said.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row)).collect()
}

/// Waits until a node says that all of these have these keys, the first of them as primary.
fn wait_for_keys(node: &NodeProcess, file: &str, names: &[&str], keys: &[&str]) {
    wait_until(&format!("{names:?} have {keys:?}"), || {
        let rows = listed(node, file);
        let is_so = |name: &&str| {
            rows.get(*name).is_some_and(|row| {
                let mut has: Vec<&str> =
                    row["keys"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
                let mut wanted = keys.to_vec();
                has.sort_unstable();
                wanted.sort_unstable();
                row["primary"].as_str() == Some(keys[0]) && has == wanted
            })
        };
        names.iter().all(is_so).then_some(())
    });
}

/// The lines of a key file that name keys, without the secrets: the id, and what follows the secret.
fn lines(file: &str) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let of_keys =
        text.lines().filter(|line| line.starts_with("key ") || line.starts_with("removed "));
    of_keys
        .map(|line| line.split(' ').filter(|word| word.len() < 64).collect::<Vec<_>>().join(" "))
        .collect()
}

/// All secrets that are in some key files.
fn secrets(files: &[&str]) -> Vec<String> {
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect::<Vec<_>>();
    let words = texts.iter().flat_map(|text| text.split_whitespace());
    words.filter(|word| word.len() == 64).map(str::to_owned).collect()
}

/// Three nodes, each with a file of its own, and a copy of the file that nobody changes.
struct Network {
    keys: Keys,
    old: String,
    files: [String; 3],
    stale: String,
    nodes: [NodeProcess; 3],
}

impl Network {
    fn start() -> Self {
        let keys = Keys::new();
        let (file, old) = keys.make("a");
        // Each in a folder of its own, as on machines of their own.
        let files = [file, keys.path("b"), keys.path("of-c/key")];
        fs::create_dir(keys.path("of-c")).unwrap();
        let stale = keys.path("stale");
        files[1..].iter().chain([&stale]).for_each(|to| copy(&files[0], to));
        let a = keys.run("a", &["--key", &files[0]]);
        let b = keys.join("b", &a, &["--key", &files[1]]);
        let c = keys.join("c", &a, &["--key", &files[2]]);
        let nodes = [a, b, c];
        wait_for_links(&nodes.each_ref(), true);
        Self { keys, old, files, stale, nodes }
    }

    fn rotate(&self, options: &[&str]) -> (Option<i32>, String) {
        key(&self.nodes[0], &self.files[0], &[&["rotate"], options].concat())
    }

    /// The id of the key that a file has and the stale one has not.
    fn new_key(&self) -> String {
        let new = lines(&self.files[0]).into_iter().find(|line| !line.contains(&self.old)).unwrap();
        new.split(' ').nth(1).unwrap().to_owned()
    }

    /// Starts a node again, where it was.
    fn restart(&mut self, place: usize) {
        let (client, gossip) = {
            let node = &self.nodes[place];
            (node.client.to_string(), node.gossip.to_string())
        };
        let peer = self.nodes[(place + 1) % 3].gossip.to_string();
        let name = self.nodes[place].name.clone();
        let at =
            ["join", &peer, "--client", &client, "--gossip", &gossip, "--key", &self.files[place]];
        self.nodes[place] = NodeProcess::start_in(&self.keys.network, &name, &at);
    }
}

/// Writes at some nodes until it is told to stop: each change is to be acknowledged.
struct Load<'s> {
    stop: &'s AtomicBool,
    writers: Vec<(String, std::thread::ScopedJoinHandle<'s, (i64, u64)>)>,
}

impl<'s> Load<'s> {
    fn begin<'e>(
        scope: &'s std::thread::Scope<'s, 'e>,
        stop: &'s AtomicBool,
        nodes: &[&NodeProcess],
    ) -> Self {
        let writers = nodes.iter().map(|node| {
            let (name, mut client) = (node.name.clone(), node.connect());
            let writer = scope.spawn(move || {
                let (mut number, mut failed) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let reply = client.set(&["of", &name, &number.to_string()], number.into());
                    failed += u64::from(field(&reply, "error").is_some());
                    number += 1;
                }
                (number, failed)
            });
            (node.name.clone(), writer)
        });
        Self { stop, writers: writers.collect() }
    }

    /// How many each has written, and how many requests failed.
    fn end(mut self) -> (BTreeMap<String, i64>, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let mut failures = 0;
        let writers = std::mem::take(&mut self.writers).into_iter();
        let written = writers.map(|(name, writer)| {
            let (count, failed) = writer.join().unwrap();
            failures += failed;
            (name, count)
        });
        (written.collect(), failures)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Waits until each node has all that was written: what is missing at last is lost.
fn check_all_there(nodes: &[&NodeProcess], written: &BTreeMap<String, i64>) {
    for node in nodes {
        wait_until(&format!("{} has all", node.name), || {
            let mut client = node.connect();
            let has = |(writer, count): (&String, &i64)| {
                let tree = client.tree(&["of", writer]);
                let values =
                    tree.iter().filter(|(_, v)| field(v, "value").is_some_and(|v| v.is_i64()));
                values.count() as i64 == *count
            };
            written.iter().all(has).then_some(())
        });
    }
    let total: i64 = written.values().sum();
    assert!(total > 0);
    println!("{total} writes, 0 failed, 0 lost");
}

#[test]
fn a_rotation_under_load_fails_no_request_and_loses_no_write() {
    let mut network = Network::start();
    let stop = AtomicBool::new(false);
    let (written, failed, said) = std::thread::scope(|scope| {
        let load = Load::begin(scope, &stop, &network.nodes.each_ref());
        let (code, said) = network.rotate(&["--remove-old"]);
        assert_eq!(code, Some(0), "{said}");
        wait_for_links(&network.nodes.each_ref(), true);
        let (written, failed) = load.end();
        (written, failed, said)
    });
    assert_eq!(failed, 0);
    check_all_there(&network.nodes.each_ref(), &written);

    let (old, new) = (network.old.clone(), network.new_key());
    wait_for_keys(&network.nodes[1], &network.files[1], &["a", "b", "c"], &[&new]);
    for file in &network.files {
        assert_eq!(
            lines(file),
            [format!("key {new} primary shared"), format!("removed {old} shared")]
        );
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(file).unwrap());
        assert_eq!(mode & 0o7777, 0o600);
    }
    // The old key is worth nothing any more, neither to a node nor to an admin.
    let (code, said_to) = network.keys.refused(&network.nodes[0], &["--key", &network.stale]);
    assert_eq!(code, Some(3), "{said_to}");
    let (code, said_to) = key(&network.nodes[0], &network.stale, &["list"]);
    assert!(code == Some(3) && said_to.contains("another one than this node's"), "{said_to}");
    // It is so after a restart, too.
    network.nodes[2].signal("TERM");
    assert!(network.nodes[2].wait().success());
    network.restart(2);
    wait_for_links(&network.nodes.each_ref(), true);
    // Nobody has told a secret.
    let logs = network.nodes.iter().flat_map(NodeProcess::log).collect::<Vec<_>>().join("\n");
    for secret in secrets(&[&network.files[0], &network.stale]) {
        assert!(!said.contains(&secret) && !logs.contains(&secret));
    }
}

#[test]
fn a_rotation_without_removal_says_what_to_type_and_does_nothing_when_it_is_called_again() {
    let network = Network::start();
    let (code, said) = network.rotate(&[]);
    let (old, new) = (&network.old, network.new_key());
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("3 of 3 nodes have key") && said.contains("3 of 3 nodes use key"),
        "{said}"
    );
    assert!(said.contains(&format!("type:\n  distkv-node key remove {old} --connect ")), "{said}");
    let before = network.files.each_ref().map(|file| fs::read_to_string(file).unwrap());
    let (code, again) = network.rotate(&[]);
    assert!(code == Some(0) && again.contains(&format!("all nodes use key {new}")), "{again}");
    assert_eq!(network.files.each_ref().map(|file| fs::read_to_string(file).unwrap()), before);
    // Who has the old file gets in, and is handed the new key.
    let d = network.keys.join("d", &network.nodes[0], &["--key", &network.stale]);
    // The node that is asked below, too: it would wait for a `d` of which it knows the old key only.
    for (node, file) in [(&d, &network.stale), (&network.nodes[1], &network.files[1])] {
        wait_for_keys(node, file, &["a", "b", "c", "d"], &[&new, old]);
    }
    drop(d);
    // The step alone, from another node, by its own file.
    let (code, said) = key(&network.nodes[1], &network.files[1], &["remove", old]);
    assert_eq!(code, Some(0), "{said}");
    wait_for_keys(&network.nodes[2], &network.files[2], &["a", "b", "c"], &[&new]);
    let (code, said) = key(&network.nodes[1], &network.files[1], &["remove", &new]);
    assert!(code == Some(3) && said.contains(&new), "{said}");
}

#[test]
fn the_list_names_members_that_are_away_and_those_that_were_not_heard_of() {
    let keys = Keys::new();
    let (file, id) = keys.make("key");
    let data = [keys.path("data-a"), keys.path("data-b")];
    let mut a = keys.run("a", &["--key", &file, "--data-dir", &data[0]]);
    let mut b = keys.join("b", &a, &["--key", &file, "--data-dir", &data[1]]);
    wait_for_links(&[&a, &b], true);
    wait_for_keys(&a, &file, &["a", "b"], &[&id]);
    wait_until("both are in the Delete group", || {
        let members = field(&a.connect().call("members", &[]), "result").unwrap();
        let is_in = |member| field(member, "delete_member").and_then(|v| v.as_bool()) == Some(true);
        members.as_array().unwrap().iter().all(is_in).then_some(())
    });
    b.kill();
    wait_until("b is down", || {
        let rows = listed(&a, &file);
        (rows["b"]["state"] == "down" && rows["b"]["primary"] == id.as_str()).then_some(())
    });
    // After a restart, only the Delete group's list has it.
    let (client, gossip) = (a.client.to_string(), a.gossip.to_string());
    a.signal("TERM");
    assert!(a.wait().success());
    let at = ["run", "--peer-wait", "0s", "--client", &client, "--gossip", &gossip, "--key", &file];
    let a =
        NodeProcess::start_in(&keys.network, "a", &[&at[..], &["--data-dir", &data[0]]].concat());
    let rows = listed(&a, &file);
    assert!(rows["b"]["keys"].is_null() && rows["b"]["primary"].is_null(), "{rows:?}");
    let (_, said) = key(&a, &file, &["list"]);
    assert!(said.contains("not heard of"), "{said}");
    // It would be shut out, until it is forgotten.
    let (code, said) = key(&a, &file, &["rotate", "--wait", "0s"]);
    assert!(code == Some(1) && said.contains("was not heard of"), "{said}");
    let (code, said) =
        program(&["members", "forget", "b", "--yes", "--key", &file, "--connect", &client]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = key(&a, &file, &["rotate", "--remove-old"]);
    assert_eq!(code, Some(0), "{said}");
}

/// Membership still takes it for up, or suspects it: who forgets it knows better.
#[test]
fn one_that_is_forgotten_right_after_it_was_killed_is_waited_for_by_no_rotation() {
    let mut network = Network::start();
    network.nodes[2].kill();
    let client = network.nodes[0].client.to_string();
    let file = &network.files[0];
    let forget = ["members", "forget", "c", "--yes", "--key", file, "--connect", &client];
    // Its link ends with it, a moment later than this test knows of its end.
    wait_until("it can be forgotten", || (program(&forget).0 == Some(0)).then_some(()));
    let (code, said) = network.rotate(&["--remove-old"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        !lines(file).iter().any(|line| line.starts_with("key ") && line.contains(&network.old))
    );
}

#[test]
fn a_rotation_stops_while_a_member_is_away_and_the_same_command_goes_on_when_it_is_back() {
    let mut network = Network::start();
    network.nodes[2].kill();
    let stop = AtomicBool::new(false);
    let (written, failed) = std::thread::scope(|scope| {
        let [a, b, _] = &network.nodes;
        let load = Load::begin(scope, &stop, &[a, b]);
        let (code, said) = network.rotate(&["--wait", "1s", "--remove-old"]);
        assert_eq!(code, Some(1), "{said}");
        let words =
            ["stopped before key", "c (", "does not have it", "type the same command again"];
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        load.end()
    });
    assert_eq!(failed, 0);
    let (old, new) = (network.old.clone(), network.new_key());
    // The new one is where it can be, and nobody uses it.
    wait_for_keys(&network.nodes[1], &network.files[1], &["a", "b"], &[&old, &new]);
    let (code, said) = key(&network.nodes[1], &network.files[1], &["use", &new]);
    assert!(code == Some(3) && said.contains("c (") && said.contains("does not have it"), "{said}");
    // It comes back with its old file, and is handed the key.
    network.restart(2);
    wait_for_keys(&network.nodes[0], &network.files[0], &["a", "b", "c"], &[&old, &new]);
    assert!(lines(&network.files[2]).contains(&format!("key {new} shared")));
    let stop = AtomicBool::new(false);
    let (more, failed) = std::thread::scope(|scope| {
        let load = Load::begin(scope, &stop, &[&network.nodes[2]]);
        let (code, said) = network.rotate(&["--remove-old"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(&format!("key {new} was added before; going on with it")), "{said}");
        load.end()
    });
    assert_eq!(failed, 0);
    wait_for_keys(&network.nodes[2], &network.files[2], &["a", "b", "c"], &[&new]);
    wait_for_links(&network.nodes.each_ref(), true);
    check_all_there(&network.nodes.each_ref(), &written.into_iter().chain(more).collect());
}

#[test]
fn a_member_that_was_away_while_a_key_was_used_by_force_gets_it_over_the_key_that_all_still_have() {
    let mut network = Network::start();
    network.nodes[2].kill();
    let (code, said) = network.rotate(&["--force", "--wait", "3s"]);
    assert_eq!(code, Some(0), "{said}");
    let words = ["but not everywhere: c (", "is handed it when it is back"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    let (old, new) = (network.old.clone(), network.new_key());
    wait_for_keys(&network.nodes[1], &network.files[1], &["a", "b"], &[&new, &old]);
    // It dials with the old one, which the others still open.
    network.restart(2);
    wait_for_keys(&network.nodes[0], &network.files[0], &["a", "b", "c"], &[&new, &old]);
    wait_for_links(&network.nodes.each_ref(), true);
    assert!(lines(&network.files[2]).contains(&format!("key {new} primary shared")));
}

#[test]
fn a_member_that_was_away_when_its_only_key_was_removed_by_force_is_back_with_the_new_file() {
    let mut network = Network::start();
    network.nodes[2].kill();
    let (code, said) = network.rotate(&["--force", "--wait", "3s", "--remove-old"]);
    assert_eq!(code, Some(0), "{said}");
    let words = ["but not everywhere: c (", "shut out until it gets the new key file by hand"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    let new = network.new_key();
    let (code, said) = network.keys.refused(&network.nodes[0], &["--key", &network.files[2]]);
    assert!(code == Some(3) && said.contains(&new), "{said}");
    copy(&network.files[0], &network.files[2]);
    network.restart(2);
    wait_for_links(&network.nodes.each_ref(), true);
    wait_for_keys(&network.nodes[2], &network.files[2], &["a", "b", "c"], &[&new]);
}

#[test]
fn nodes_that_crash_between_two_steps_go_on_where_they_were() {
    let mut network = Network::start();
    let old = network.old.clone();
    let restart_all = |network: &mut Network| {
        network.nodes.iter_mut().for_each(NodeProcess::kill);
        let (client, gossip) =
            (network.nodes[0].client.to_string(), network.nodes[0].gossip.to_string());
        let at = ["run", "--peer-wait", "0s", "--client", &client, "--gossip", &gossip];
        let options = [&at[..], &["--key", &network.files[0]]].concat();
        network.nodes[0] = NodeProcess::start_in(&network.keys.network, "a", &options);
        for place in [2, 1] {
            network.restart(place);
        }
        wait_for_links(&network.nodes.each_ref(), true);
    };
    // Between add and use.
    let (code, said) = key(&network.nodes[0], &network.files[0], &["add"]);
    assert_eq!(code, Some(0), "{said}");
    let new = network.new_key();
    wait_for_keys(&network.nodes[0], &network.files[0], &["a", "b", "c"], &[&old, &new]);
    restart_all(&mut network);
    wait_for_keys(&network.nodes[1], &network.files[1], &["a", "b", "c"], &[&old, &new]);
    // Between use at one node and use at the others: they are cut off by their end.
    network.nodes[1].kill();
    network.nodes[2].kill();
    let (code, said) = key(&network.nodes[0], &network.files[0], &["use", &new]);
    assert_eq!(code, Some(0), "all have it: {said}");
    assert_eq!(lines(&network.files[1])[0], format!("key {old} primary"));
    restart_all(&mut network);
    wait_for_keys(&network.nodes[1], &network.files[1], &["a", "b", "c"], &[&new, &old]);
    // Between use and remove.
    restart_all(&mut network);
    let (code, said) = network.rotate(&["--remove-old"]);
    assert_eq!(code, Some(0), "{said}");
    wait_for_keys(&network.nodes[2], &network.files[2], &["a", "b", "c"], &[&new]);
}

#[test]
fn a_node_that_cannot_write_its_file_is_named_and_nothing_is_used_until_it_can() {
    let network = Network::start();
    let (old, c) = (&network.old, &network.files[2]);
    // Where the new file would be written lies something else. (Permissions do not stop who is root.)
    let in_the_way = format!("{c}.new");
    fs::create_dir(&in_the_way).unwrap();
    fs::write(format!("{in_the_way}/file"), "").unwrap();
    // Long enough for b to have it, and for c to say why not.
    let (code, said) = network.rotate(&["--wait", "5s"]);
    assert_eq!(code, Some(1), "{said}");
    let words = ["c (up) cannot keep it", c.as_str(), "cannot be written"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    wait_for_log(&network.nodes[2], &["WARN", "cannot be kept", "cannot be written"]);
    let (_, said) = key(&network.nodes[1], &network.files[1], &["list"]);
    assert!(said.contains("cannot keep its keys") && said.contains(c.as_str()), "{said}");
    // It is the node that is asked: it refuses at once.
    let new = network.new_key();
    let (code, said) = key(&network.nodes[2], &network.files[0], &["use", &new, "--force"]);
    assert!(code == Some(1) && said.contains("cannot keep it"), "{said}");
    assert_eq!(lines(c), [format!("key {old} primary")]);
    // It is mended, and goes on by itself.
    fs::remove_dir_all(&in_the_way).unwrap();
    let (code, said) = network.rotate(&["--remove-old"]);
    assert_eq!(code, Some(0), "{said}");
    wait_for_keys(&network.nodes[0], &network.files[0], &["a", "b", "c"], &[&new]);
    assert_eq!(lines(c), [format!("key {new} primary shared"), format!("removed {old} shared")]);
}

#[test]
fn a_rotation_that_is_killed_anywhere_is_finished_by_the_next_one() {
    let mut network = Network::start();
    network.nodes[2].freeze();
    // It has added the key, and waits for c.
    let client = network.nodes[0].client.to_string();
    let mut command = std::process::Command::new(crate::processes::PROGRAM);
    command.args([
        "key",
        "rotate",
        "--wait",
        "5m",
        "--key",
        &network.files[0],
        "--connect",
        &client,
    ]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_until("b has a second key", || (lines(&network.files[1]).len() == 2).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    network.nodes[2].signal("CONT");
    let (code, said) = network.rotate(&["--remove-old", "--wait", "60s"]);
    assert_eq!(code, Some(0), "{said}");
    let new = network.new_key();
    // Another one is a rotation of its own.
    let (code, said) = network.rotate(&["--remove-old"]);
    assert_eq!(code, Some(0), "{said}");
    let next = lines(&network.files[0])[0].clone();
    assert!(!next.contains(&new) && next.ends_with("primary shared"), "{next}");
    // A key that is in the file of who rotates, and that no node knows, is the one that is added.
    let (code, said) = program(&["key", "add", &network.files[1]]);
    assert_eq!(code, Some(0), "{said}");
    let prepared = said.split_whitespace().nth(1).unwrap().to_owned();
    let (code, said) = key(&network.nodes[0], &network.files[1], &["rotate", "--remove-old"]);
    assert_eq!(code, Some(0), "{said}");
    wait_for_keys(&network.nodes[0], &network.files[0], &["a", "b", "c"], &[&prepared]);
    network.nodes.iter_mut().for_each(NodeProcess::kill);
}

#[test]
fn a_rotation_that_is_killed_in_its_last_step_makes_no_other_key_when_it_is_repeated() {
    let network = Network::start();
    // An admin's own copy besides the nodes' files, and one of a time when the old key was not removed there.
    let (admin, before) = (network.keys.path("admin"), network.keys.path("before"));
    copy(&network.files[0], &admin);
    for (file, was_told) in [(admin.clone(), false), (network.files[0].clone(), true)] {
        let (code, said) = key(&network.nodes[0], &file, &["rotate"]);
        assert_eq!(code, Some(0), "{said}");
        copy(&file, &before);
        let both = lines(&network.files[0]);
        let old = both[0].split(' ').nth(1).unwrap().to_owned();
        let new = both[1].split(' ').nth(1).unwrap().to_owned();
        // It removes the old key, and waits for c.
        network.nodes[2].freeze();
        let client = network.nodes[0].client.to_string();
        let mut command = std::process::Command::new(crate::processes::PROGRAM);
        command.args(["key", "rotate", "--remove-old", "--wait", "5m"]);
        command.args(["--key", &file, "--connect", &client]);
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        let is_removed = |file: &str| {
            lines(file).iter().any(|line| line.starts_with("removed") && line.contains(&old))
        };
        wait_until("a and b have removed it", || {
            network.files[..2].iter().all(|file| is_removed(file)).then_some(())
        });
        wait_until("so has the file of --key", || is_removed(&file).then_some(()));
        child.kill().unwrap();
        child.wait().unwrap();
        network.nodes[2].signal("CONT");
        if !was_told {
            // As if it had been killed before that.
            copy(&before, &file);
        }
        let (code, said) =
            key(&network.nodes[0], &file, &["rotate", "--remove-old", "--wait", "60s"]);
        assert!(code == Some(0) && said.contains("no other key was made"), "{code:?} {said}");
        wait_for_keys(&network.nodes[0], &file, &["a", "b", "c"], &[&new]);
        assert!(is_removed(&file) && lines(&file)[0].contains(&new), "{:?}", lines(&file));
        // That was the end of it, so the next one is another one.
        let (code, said) = key(&network.nodes[0], &file, &["rotate", "--remove-old", "--json"]);
        let said: Json = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{code:?} {said}"));
        assert!(said["made"] == true && said["key"] != new.as_str(), "{said}");
        assert!(!std::path::Path::new(&format!("{file}.last-step")).exists());
    }
}

#[test]
fn after_a_theft_a_key_that_is_carried_by_hand_never_reaches_the_thief() {
    let network = Network::start();
    let (old, stale) = (&network.old, &network.stale);
    // Whoever has the key is a member, and an administrator.
    let thief = network.keys.join("thief", &network.nodes[0], &["--key", stale]);
    wait_until("the thief is linked to all", || (links(&thief).len() == 3).then_some(()));
    let by_hand = |step: &[&str]| {
        let (code, said) = program(&[&["key"], step, &[network.files[0].as_str()]].concat());
        assert_eq!(code, Some(0), "{said}");
        network.files[1..].iter().for_each(|to| copy(&network.files[0], to));
        for node in &network.nodes {
            let has_read =
                || node.log().iter().filter(|line| line.contains("it has changed")).count();
            let before = has_read();
            node.signal("HUP");
            wait_until("it has read the file", || (has_read() > before).then_some(()));
        }
        said
    };
    let said = by_hand(&["add"]);
    let new = said.split_whitespace().nth(1).unwrap().to_owned();
    by_hand(&["use", &new]);
    // The thief sees ids, and no more: it is still a member.
    wait_for_keys(&thief, stale, &["a", "b", "c"], &[&new, old]);
    by_hand(&["remove", old]);
    let nodes = network.nodes.each_ref();
    wait_until("the thief has no link", || {
        let is_out = |node: &&NodeProcess| !links(node).contains_key("thief");
        (links(&thief).is_empty() && nodes.iter().all(is_out)).then_some(())
    });
    wait_until("the others are linked", || {
        nodes.iter().all(|node| links(node).len() == 2).then_some(())
    });
    assert_eq!(lines(stale), [format!("key {old} primary")]);
    let rows = listed(&thief, stale);
    assert_eq!(rows["thief"]["keys"].as_array().map(Vec::len), Some(1), "{rows:?}");
    nodes[0].connect().set(&["after"], "secret".into());
    wait_until("b has it", || nodes[1].connect().get(&["after"]));
    assert!(thief.connect().get(&["after"]).is_none());
    let (code, said) = key(nodes[0], stale, &["list"]);
    assert!(code == Some(3) && said.contains("another one than this node's"), "{said}");
    // Once it is forgotten, what is ordered over the network does not wait for it, and does not reach it.
    let file = network.files[0].as_str();
    let client = nodes[0].client.to_string();
    wait_until("the thief is down", || {
        (listed(nodes[0], file)["thief"]["state"] == "down").then_some(())
    });
    let (code, said) =
        program(&["members", "forget", "thief", "--yes", "--key", file, "--connect", &client]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = network.rotate(&["--remove-old"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(lines(stale), [format!("key {old} primary")]);
}
