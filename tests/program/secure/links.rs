//! Who gets in at the gossip port of a secured network, and what both sides say otherwise.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Keys, counter, links, wait_for_links, wait_for_log};
use crate::processes::{PATIENCE, array, field, wait_until};

/// The exit code of a node that its network refuses.
const REFUSED: Option<i32> = Some(3);

#[test]
fn three_nodes_with_the_key_form_a_network_of_sealed_links_and_datagrams() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let a = keys.run("a", &["--key", &key]);
    let b = keys.join("b", &a, &["--key", &key]);
    let c = keys.join("c", &b, &["--key", &key]);
    wait_for_links(&[&a, &b, &c], true);
    a.connect().set(&["lamp"], "bright".into());
    for node in [&b, &c] {
        wait_until("it has come", || {
            node.connect().get(&["lamp"]).filter(|v| v.as_str() == Some("bright"))
        });
        for name in ["datagrams_plaintext", "datagrams_unknown_key", "datagrams_forged"] {
            assert_eq!(counter(node, name), 0, "{name}");
        }
    }
}

#[test]
fn another_key_is_refused_and_both_sides_name_the_ids() {
    let keys = Keys::new();
    let ((key, id), (other, other_id)) = (keys.make("key"), keys.make("other"));
    let a = keys.run("a", &["--key", &key]);
    let (code, said) = keys.refused(&a, &["--key", &other]);
    assert_eq!(code, REFUSED, "{said}");
    assert!(said.contains("does not have this node's primary key") && said.contains(&id), "{said}");
    wait_for_log(&a, &["WARN", &format!("the peer has key {other_id}"), "key list"]);
    assert!(links(&a).is_empty());
    wait_until("its datagrams came", || (counter(&a, "datagrams_unknown_key") > 0).then_some(()));
}

#[test]
fn a_node_without_a_key_is_refused_and_both_sides_say_what_to_do() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let a = keys.run("a", &["--key", &key]);
    let (code, said) = keys.refused(&a, &["--network", &keys.network]);
    assert_eq!(code, REFUSED, "{said}");
    assert!(
        said.contains("this network is secured with a key; start this node with `--key FILE`"),
        "{said}"
    );
    wait_for_log(&a, &["WARN", "the peer uses no key, and this node does"]);
    assert!(links(&a).is_empty());
    wait_until("its datagrams came", || (counter(&a, "datagrams_plaintext") > 0).then_some(()));
}

#[test]
fn a_node_with_a_key_does_not_speak_plaintext_to_an_open_network() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let a = keys.run("a", &[]);
    let (code, said) = keys.refused(&a, &["--key", &key]);
    assert_eq!(code, REFUSED, "{said}");
    assert!(said.contains("the peer uses no key, and this node does"), "{said}");
    wait_for_log(&a, &["WARN", "the peer uses a key, and this node does not"]);
    assert!(links(&a).is_empty());
}

#[test]
fn another_network_with_the_same_key_is_refused() {
    let keys = Keys::new();
    let (key, id) = keys.make("key");
    let a = keys.run("a", &["--key", &key]);
    let (other, _) = keys.make("other");
    let text = fs::read_to_string(&key).unwrap();
    // Without the CA, which names the network, too.
    let lines = text.lines().filter(|line| !line.starts_with("ca "));
    let text = lines.collect::<Vec<_>>().join("\n");
    fs::write(&other, text.replace(&keys.network, "another")).unwrap();
    let (code, said) = keys.refused(&a, &["--key", &other]);
    assert_eq!(code, REFUSED, "{said}");
    assert!(said.contains("is of another network; compare the `network` lines"), "{said}");
    wait_for_log(&a, &["WARN", &format!("does not prove that it has key {id}")]);
    assert!(links(&a).is_empty());
}

#[test]
fn a_crowd_that_says_nothing_is_closed_in_time_and_keeps_no_member_out() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let a = keys.run("a", &["--key", &key]);
    // Each has begun a handshake: the header of a frame of kind 0x46, byte for byte.
    let began = Instant::now();
    let mut crowd: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(a.gossip).unwrap()).collect();
    for byte in [0, 0, 0, 80] {
        for stranger in &mut crowd {
            stranger.write_all(&[byte]).unwrap();
        }
    }
    let b = keys.join("b", &a, &["--key", &key]);
    wait_for_links(&[&a, &b], true);
    for stranger in &mut crowd {
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // Closed, perhaps with a reset: nothing was answered.
        let _ = stranger.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{rest:?}");
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn who_begins_a_handshake_and_goes_on_byte_by_byte_is_closed_all_the_same() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let a = keys.run("a", &["--key", &key]);
    let began = Instant::now();
    let mut stranger = TcpStream::connect(a.gossip).unwrap();
    stranger.write_all(&[0, 0, 0, 80, 0x46, 1, 1]).unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(250))).unwrap();
    // Never silent for long, and never done.
    let mut sent = 0;
    let is_closed = |stranger: &mut TcpStream| match stranger.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    while !is_closed(&mut stranger) {
        assert!(sent < 72, "it would have been a whole one");
        if stranger.write_all(&[7]).is_err() {
            break;
        }
        sent += 1;
    }
    let lasted = began.elapsed();
    assert!(sent > 4 && lasted < Duration::from_secs(15), "{sent} bytes, {lasted:?}");
    wait_for_log(&a, &["handshake"]);
}

/// How long the members' writes take meanwhile is measured by `distkv-bench secured --only strangers`.
#[test]
fn ten_thousand_half_open_connections_keep_no_member_out_and_writes_go_on() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let a = keys.run("a", &["--key", &key, "--log", "info"]);
    let member = keys.join("m", &a, &["--key", &key]);
    wait_for_links(&[&a, &member], true);
    let mut crowd = std::collections::VecDeque::new();
    let knock = |crowd: &mut std::collections::VecDeque<TcpStream>| {
        // The node closes the oldest of its side; here the last 512 are kept.
        if crowd.len() >= 512 {
            crowd.pop_front();
        }
        if let Ok(stream) = TcpStream::connect(a.gossip) {
            let _ = (&stream).write_all(&[0, 0, 0, 80]);
            crowd.push_back(stream);
        }
    };
    for _ in 0..5_000 {
        knock(&mut crowd);
    }
    let (key, network, gossip) = (key.clone(), &keys, &a);
    let is_over = AtomicBool::new(false);
    let (b, written) = std::thread::scope(|scope| {
        let joined = scope.spawn(move || network.join("b", gossip, &["--key", &key]));
        let writing = scope.spawn(|| {
            let (mut client, mut written) = (a.connect(), 0_u64);
            while !is_over.load(Ordering::Relaxed) {
                // Another member has it before the answer comes.
                let fields =
                    [("path", array(&["lamp"])), ("value", written.into()), ("copies", 1.into())];
                let reply = client.call("set_value", &fields);
                assert_eq!(field(&reply, "error"), None, "{reply}");
                written += 1;
            }
            written
        });
        for _ in 0..5_000 {
            knock(&mut crowd);
        }
        is_over.store(true, Ordering::Relaxed);
        (joined.join().unwrap(), writing.join().unwrap())
    });
    assert!(written > 0);
    wait_for_links(&[&a, &member, &b], true);
    wait_for_log(&a, &["WARN", "too many connections that have not greeted; closing the oldest"]);
}

#[test]
fn datagrams_of_strangers_are_dropped_and_counted() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let a = keys.run("a", &["--key", &key]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    // Sealed with an unknown key; in plaintext, as an open node's; noise.
    let sealed = [b"dkvS\x01\x01".as_slice(), &[7; 60]].concat();
    let plain = [b"dkvS\x01\x00\x01".as_slice(), &[9; 40]].concat();
    for datagram in [sealed.as_slice(), &plain, b"noise"] {
        socket.send_to(datagram, a.gossip).unwrap();
    }
    wait_until("all are counted", || {
        let names = ["datagrams_unknown_key", "datagrams_plaintext", "datagrams_not_taken"];
        names.iter().all(|name| counter(&a, name) == 1).then_some(())
    });
    assert!(socket.recv_from(&mut [0; 2_048]).is_err(), "strangers get no answer");
}
