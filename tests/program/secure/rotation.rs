//! Another key for a running network, by hand: files are changed, and SIGHUP makes nodes read them.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Keys, copy, links, program, wait_for_links, wait_for_log};
use crate::processes::{NodeProcess, field, wait_until};

/// Makes the nodes read their files, and waits until they have.
fn hang_up(nodes: &[NodeProcess], primary: &str) {
    for node in nodes {
        let has_read = || {
            let is_it =
                |line: &&String| line.contains("the key file was read again; it has changed");
            node.log().iter().filter(is_it).count()
        };
        let before = has_read();
        node.signal("HUP");
        wait_until("it has read the file", || (has_read() > before).then_some(()));
        let last = node.log().into_iter().rfind(|line| line.contains("was read again")).unwrap();
        assert!(last.contains(&format!("primary={primary}")), "{last}");
    }
}

fn key(arguments: &[&str]) -> String {
    let (code, said) = program(&[&["key"], arguments].concat());
    assert_eq!(code, Some(0), "{said}");
    said
}

#[test]
fn a_key_is_replaced_under_load_and_no_request_fails_and_no_write_is_lost() {
    let keys = Keys::new();
    let (file, old) = keys.make("a");
    let files = [file.clone(), keys.path("b"), keys.path("c")];
    files[1..].iter().for_each(|to| copy(&file, to));
    let stale = keys.path("stale");
    copy(&file, &stale);
    let a = keys.run("a", &["--key", &files[0]]);
    let b = keys.join("b", &a, &["--key", &files[1]]);
    let c = keys.join("c", &a, &["--key", &files[2]]);
    let nodes = [a, b, c];
    wait_for_links(&nodes.each_ref(), true);

    let stop = AtomicBool::new(false);
    let written: Vec<i64> = std::thread::scope(|scope| {
        let writers = nodes.each_ref().map(|node| {
            let (name, stop) = (node.name.clone(), &stop);
            let mut client = node.connect();
            scope.spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    let reply = client.set(&["of", &name, &number.to_string()], number.into());
                    assert!(field(&reply, "error").is_none(), "{reply}");
                    number += 1;
                }
                number
            })
        });
        let end = Stop(&stop);
        // Add: all have it before anybody uses it.
        let said = key(&["add", &files[0]]);
        let new = said.split_whitespace().nth(1).unwrap().to_owned();
        files[1..].iter().for_each(|to| copy(&files[0], to));
        hang_up(&nodes, &old);
        // Use, one after the other: links made meanwhile are of either key.
        for (place, file) in files.iter().enumerate() {
            key(&["use", &new, file]);
            hang_up(&nodes[place..=place], &new);
        }
        // A node with both keys gets in, whichever it uses, and so does one that only has the new one.
        let (both, only) = (keys.path("both"), keys.path("only"));
        copy(&files[0], &both);
        key(&["use", &old, &both]);
        let d = keys.join("d", &nodes[0], &["--key", &both]);
        wait_until("d is linked to all", || (links(&d).len() == 3).then_some(()));
        drop(d);
        files.iter().for_each(|file| drop(key(&["remove", &old, file])));
        hang_up(&nodes, &new);
        copy(&files[0], &only);
        let e = keys.join("e", &nodes[1], &["--key", &only]);
        wait_until("e is linked to all", || (links(&e).len() >= 3).then_some(()));
        drop(end);
        writers.map(|writer| writer.join().unwrap()).to_vec()
    });
    assert!(written.iter().all(|count| *count > 0), "{written:?}");

    for node in &nodes {
        wait_until(&format!("{} has all", node.name), || {
            let mut client = node.connect();
            let has_all = nodes.iter().zip(&written).all(|(writer, count)| {
                let tree = client.tree(&["of", &writer.name]);
                let values =
                    tree.iter().filter(|(_, v)| field(v, "value").is_some_and(|v| v.is_i64()));
                values.count() as i64 == *count
            });
            has_all.then_some(())
        });
    }
    // Who has only the old one is shut out.
    let (code, said) = keys.refused(&nodes[0], &["--key", &stale]);
    assert_eq!(code, Some(3), "{said}");
}

#[test]
fn a_node_that_missed_a_rotation_is_back_as_soon_as_it_has_read_the_new_file() {
    let keys = Keys::new();
    let (file, old) = keys.make("a");
    let missed = keys.path("b");
    copy(&file, &missed);
    let mut a = keys.run("a", &["--key", &file]);
    let b = keys.join("b", &a, &["--key", &missed]);
    wait_for_links(&[&a, &b], true);
    // All three steps, at one node only, which then begins anew.
    let said = key(&["add", &file]);
    let new = said.split_whitespace().nth(1).unwrap().to_owned();
    key(&["use", &new, &file]);
    key(&["remove", &old, &file]);
    let (client, gossip, peer) = (a.client.to_string(), a.gossip.to_string(), b.gossip.to_string());
    a.signal("TERM");
    assert!(a.wait().success());
    let at =
        ["run", "--peer-wait", "0s", "--peer", &peer, "--client", &client, "--gossip", &gossip];
    let a = NodeProcess::start_in(&keys.network, "a", &[&at[..], &["--key", &file]].concat());
    wait_for_log(&b, &["WARN", "does not have this node's primary key", &new]);
    wait_for_log(&a, &["WARN", &format!("the peer has key {old}, which this node does not have")]);
    assert!(links(&a).is_empty() && links(&b).is_empty());
    copy(&file, &missed);
    b.signal("HUP");
    wait_for_links(&[&a, &b], true);
    wait_for_log(&b, &["linked", &format!("key={new}")]);
}

/// Stops the writers, also when a test fails meanwhile.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
