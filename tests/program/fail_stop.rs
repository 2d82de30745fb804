//! A node that finds one of its own invariants broken ends as a process, at once, with an exit code of its
//! own and a message that says which one; what it had acknowledged is there when it starts again. The
//! program under test has a defect planted (`model::invariant::Planted`).

use crate::processes;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use processes::{Client, NodeProcess, PROGRAM, array, field, wait_until};
use rmpv::Value;

/// The exit code of a node that has found a defect of its own.
const EXIT_BROKEN: i32 = 4;
const WRITERS: usize = 4;
/// So many writes are acknowledged before the defect is met.
const WRITES: usize = 200;

fn planted(word: &str) -> [String; 2] {
    ["env".into(), format!("DISTKV_TEST_PLANT={word}")]
}

/// Writes until the node is gone; tells how many writes were acknowledged.
fn write_on(writer: usize, address: SocketAddr, acknowledged: &AtomicUsize) -> usize {
    // Its thread may begin when the others' writes were enough.
    let Ok(mut client) = Client::try_connect(address) else { return 0 };
    for number in 0.. {
        let path = array(&["w", &writer.to_string(), &number.to_string()]);
        let fields = [("path", path), ("value", Value::from(number))];
        let reply = client.send("set_value", &fields).and_then(|_| client.receive());
        match reply {
            Ok(reply) => assert!(field(&reply, "error").is_none(), "{reply}"),
            Err(_) => return number,
        }
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("a node that never ends");
}

/// A node with that defect meets it while others write.
fn end_and_come_back(word: &str, invariant: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let arguments = [
        ["run", "--peer-wait", "0s", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"]
            .as_slice(),
        &["--data-dir", folder, "--sync", "every-batch", "--network", word],
    ]
    .concat();
    let mut node = NodeProcess::start_by(&planted(word), "n", &arguments);
    let acknowledged = AtomicUsize::new(0);
    let (address, done) = (node.client, &acknowledged);
    let (counts, lasted) = std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|w| scope.spawn(move || write_on(w, address, done))).collect();
        wait_until("some writes", || (done.load(Ordering::Relaxed) >= WRITES).then_some(()));
        let mut client = Client::connect(address);
        let fields = [("path", array(&["planted"])), ("value", Value::from(1))];
        let sent = Instant::now();
        let reply = client.send("set_value", &fields).and_then(|_| client.receive());
        assert!(reply.is_err(), "what was met with a broken invariant is not answered: {reply:?}");
        assert_eq!(node.wait().code(), Some(EXIT_BROKEN), "{:#?}", node.log());
        let lasted = sent.elapsed();
        (writers.into_iter().map(|w| w.join().unwrap()).collect::<Vec<_>>(), lasted)
    });
    println!("{word}: ended {lasted:?} after the write that met it");
    let named = format!("broken invariant: {invariant}");
    wait_until("the message", || {
        let is_it = |line: &String| line.contains(&named) && line.contains("; restart it: ");
        node.log().iter().any(is_it).then_some(())
    });
    let node = NodeProcess::start("n", &arguments);
    let mut client = node.connect();
    for (writer, count) in counts.into_iter().enumerate() {
        for number in 0..count {
            let found = client.get(&["w", &writer.to_string(), &number.to_string()]);
            assert_eq!(found, Some(Value::from(number)), "{word}: w.{writer}.{number} of {count}");
        }
    }
}

#[test]
fn a_task_that_meets_a_broken_invariant_under_the_guard_ends_the_node_and_nothing_acknowledged_is_lost()
 {
    end_and_come_back("order", "table and order hold the same paths");
}

#[test]
fn a_thread_that_meets_a_broken_invariant_ends_the_node_and_nothing_acknowledged_is_lost() {
    end_and_come_back("log", "a log's batches follow one another without a gap");
}

#[test]
fn a_node_ends_although_nobody_reads_what_it_says() {
    let (unread, mut full) = std::io::pipe().unwrap();
    // The other end is the node's, so it must be as usual for it.
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while full.write(&[b'\n'; 4096]).is_ok() {}
    while full.write(b"\n").is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let mut node = Command::new(PROGRAM)
        .env("DISTKV_TEST_PLANT", "order")
        .args(["run", "--name", "n", "--network", "unread", "--json", "--log", "off"])
        .args(["--peer-wait", "0s", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(full)
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&first).unwrap();
    let mut client = Client::connect(ready["client"].as_str().unwrap().parse().unwrap());
    let _ = client.send("set_value", &[("path", array(&["planted"])), ("value", Value::from(1))]);
    assert_eq!(node.wait().unwrap().code(), Some(EXIT_BROKEN));
    drop(unread);
}
