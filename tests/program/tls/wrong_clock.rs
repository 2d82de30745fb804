//! A node that is back with a clock that is wrong, as its certificate shows: whoever followed it goes on once that is right.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr};
use std::thread::{self, JoinHandle};

use super::{Authority, now};
use crate::cli::command::{ok, program};
use crate::processes::wait_until;

/// A command that follows what comes. It is killed when this is dropped.
struct Follower {
    child: Child,
    said: BufReader<ChildStderr>,
    first: JoinHandle<String>,
}

impl Follower {
    fn start(arguments: &[&str]) -> Follower {
        let mut child = program(arguments).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let said = BufReader::new(child.stderr.take().unwrap());
        let first = thread::spawn(move || {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            line
        });
        let mut follower = Follower { child, said, first };
        follower.hear(" a at ");
        follower
    }

    /// Reads what it says until these words come.
    fn hear(&mut self, words: &str) -> String {
        let mut said = String::new();
        while !said.contains(words) {
            let count = self.said.read_line(&mut said).unwrap();
            assert!(count > 0, "it has ended, and said: {said}");
        }
        said
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_node_that_is_back_with_a_wrong_clock_is_waited_for_and_the_reason_is_said_once() {
    const DAY: u64 = 86_400;
    let authority = Authority::new();
    let mut node = authority.start(&[]);
    let (at, address) = (node.client.to_string(), node.client);
    let ticket = authority.at_file(&[address]);
    let by_tls = ["--ticket", &ticket];
    let mut followers = [
        &["watch", "a", "--no-fetch", "--count", "1"][..],
        &["conflicts", "a", "--follow"],
        &["monitor", "a", "--count", "1"],
    ]
    .map(|command| Follower::start(&[command, &by_tls].concat()));
    for made in [now() + 300 * DAY, now() - 300 * DAY] {
        node.signal("TERM");
        node.wait();
        authority.write_as_of(&["127.0.0.1"], made);
        node = authority.start_at(&at, &[]);
        for follower in &mut followers {
            let said = follower.hear("wrong time: the node's certificate");
            assert!(
                said.ends_with("; connecting again until that works (Ctrl-C ends it)\n"),
                "{said}"
            );
        }
        // The clock is right: the certificate is another one.
        authority.write(&["127.0.0.1"]);
        node.signal("HUP");
        for follower in &mut followers {
            let said = follower.hear(" again");
            assert!(!said.contains("wrong time"), "{said}");
        }
    }
    ok(&node, &["set", "a", "1"]);
    ok(&node, &["send", "a", "2"]);
    let [watch, conflicts, monitor] = &mut followers;
    for follower in [watch, monitor] {
        let mut rest = String::new();
        follower.said.read_to_string(&mut rest).unwrap();
        assert_eq!(follower.child.wait().unwrap().code(), Some(0), "{rest}");
        wait_until("its line has come", || follower.first.is_finished().then_some(()));
    }
    assert!(conflicts.child.try_wait().unwrap().is_none());
}
