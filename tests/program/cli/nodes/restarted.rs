//! Commands that take long, while the node that they talk to is restarted: `watch` and `monitor` go on, and `edit` loses no text.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdout};
use std::thread;

use serde_json::Value as Json;

use crate::cli::command::{note, ok, program, run};
use crate::processes::{NodeProcess, wait_until};

/// A watch, line by line. It is killed when this is dropped.
pub(super) struct Watch {
    pub(super) child: Child,
    lines: BufReader<ChildStdout>,
    said: BufReader<ChildStderr>,
}

impl Watch {
    pub(super) fn start(node: &NodeProcess, more: &[&str]) -> Watch {
        let at = node.client.to_string();
        Self::of("watching", &[&["watch", "a", "--json", "--connect", &at], more].concat())
    }

    /// Of messages.
    fn of_monitor(nodes: &[&NodeProcess], more: &[&str]) -> Watch {
        let at: Vec<String> = nodes.iter().map(|node| node.client.to_string()).collect();
        Self::of(
            "monitoring",
            &[&["monitor", "a", "--json", "--connect", &at.join(",")], more].concat(),
        )
    }

    /// Of conflicts.
    fn of_conflicts(node: &NodeProcess, more: &[&str]) -> Watch {
        let at = node.client.to_string();
        let arguments = ["conflicts", "a", "--follow", "--json", "--connect", &at];
        Self::of("following conflicts below", &[&arguments, more].concat())
    }

    fn of(begins: &str, arguments: &[&str]) -> Watch {
        let mut child = program(arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let said = BufReader::new(child.stderr.take().unwrap());
        let mut watch = Watch { child, lines, said };
        let said = watch.heard();
        assert!(said.contains(&format!("{begins} a at ")), "{said}");
        watch
    }

    /// The next line on standard output.
    pub(super) fn line(&mut self) -> Json {
        let mut line = String::new();
        assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it has ended");
        serde_json::from_str(&line).unwrap()
    }

    /// How it ends, and the rest of what it says until then.
    fn ended(&mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }

    /// The next line on standard error.
    pub(super) fn heard(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        note(&line)
    }

    /// The next changes, as `path=value`, in the order of paths.
    fn changes(&mut self, count: usize) -> Vec<String> {
        let mut told = Vec::new();
        while told.len() < count {
            let line = self.line();
            if let Some(path) = line["path"].as_str() {
                told.push(format!("{path}={}", line["value"]));
            }
        }
        told.sort();
        told
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a node again where it was.
fn again(node: &NodeProcess, peer: &NodeProcess) -> NodeProcess {
    NodeProcess::join_at(&node.name, &[peer], node.client, node.gossip)
}

#[test]
fn a_watch_goes_on_when_its_node_is_restarted_and_tells_what_changed_meanwhile() {
    let mut n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    ok(&n1, &["wait", "--members", "2"]);
    for path in ["a.gone", "a.same", "a.old"] {
        ok(&n1, &["set", path, "1", "--copies", "1"]);
    }
    let mut whole = Watch::start(&n1, &["--fetch"]);
    let mut plain = Watch::start(&n1, &[]);
    ok(&n1, &["set", "a.last", "1", "--copies", "1"]);
    assert_eq!(whole.changes(4), ["a.gone=1", "a.last=1", "a.old=1", "a.same=1"]);
    assert_eq!(plain.changes(1), ["a.last=1"]);

    for round in 2..4 {
        if round == 2 {
            n1.kill();
        } else {
            n1.signal("TERM");
            assert!(n1.wait().success());
        }
        let value = round.to_string();
        for path in ["a.old", "a.new"] {
            ok(&n2, &["set", path, &value]);
        }
        ok(&n2, &["delete", "a.gone"]);
        for watch in [&mut whole, &mut plain] {
            assert!(watch.heard().contains("connecting again"));
        }
        n1 = again(&n1, &n2);
        for watch in [&mut whole, &mut plain] {
            assert!(watch.heard().contains(" again: what changed meanwhile follows"));
        }
        ok(&n1, &["set", "a.last", &value, "--copies", "1"]);
        let mut expected =
            vec![format!("a.last={value}"), format!("a.new={value}"), format!("a.old={value}")];
        assert_eq!(plain.changes(3), expected);
        if round == 2 {
            expected.insert(0, String::from("a.gone=null"));
        }
        assert_eq!(whole.changes(expected.len()), expected);
    }
    // Nothing was told twice.
    ok(&n1, &["set", "a.last", "4"]);
    for watch in [&mut whole, &mut plain] {
        assert_eq!(watch.changes(1), ["a.last=4"]);
    }
}

#[test]
fn a_script_can_have_its_watch_end_with_the_connection() {
    let mut node = NodeProcess::run("n1");
    let mut watch = Watch::start(&node, &["--no-reconnect"]);
    let mut monitor = Watch::of_monitor(&[&node], &["--no-reconnect"]);
    node.kill();
    for (code, rest) in [watch.ended(), monitor.ended()] {
        assert_eq!(code, Some(6), "{rest}");
        assert!(rest.contains("\"unreachable\""), "{rest}");
    }
}

#[test]
fn a_monitor_goes_on_at_whichever_of_its_nodes_is_up() {
    let mut n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    ok(&n1, &["wait", "--members", "2"]);
    let mut monitor = Watch::of_monitor(&[&n1, &n2], &["--count", "3"]);
    let mut of_one = Watch::of_monitor(&[&n1], &[]);
    ok(&n2, &["send", "a", "1"]);
    for monitor in [&mut monitor, &mut of_one] {
        assert_eq!(monitor.line()["data"], 1);
    }
    n1.kill();
    for monitor in [&mut monitor, &mut of_one] {
        assert!(monitor.heard().contains("messages are missed until it is connected again"));
    }
    assert!(monitor.heard().contains(&format!("at {} (node n2) again", n2.client)));
    ok(&n2, &["send", "a", "2"]);
    assert_eq!(monitor.line()["data"], 2);

    let n1 = again(&n1, &n2);
    assert!(of_one.heard().contains(&format!("at {} (node n1) again", n1.client)));
    ok(&n1, &["send", "a", "3"]);
    for monitor in [&mut monitor, &mut of_one] {
        assert_eq!(monitor.line()["data"], 3);
    }
    assert_eq!(monitor.ended(), (Some(0), String::new()));
}

/// Longer than a machine stands still. Who hears nothing for so long asks whether the node is there.
const SOON: [&str; 2] = ["--timeout", "5s"];

/// What the node tells of each client that has one stream, a watch.
fn watches(node: &NodeProcess) -> Vec<Json> {
    let clients = ok(node, &["clients", "--json"]);
    let rows = clients.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    rows.filter(|row| row["watches"] == 1 && row["streams"] == 1).collect()
}

#[test]
fn who_follows_a_node_that_does_not_answer_any_more_learns_of_it() {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    ok(&n1, &["wait", "--members", "2"]);
    let mut monitor = Watch::of_monitor(&[&n1, &n2], &SOON);
    let mut watch = Watch::start(&n1, &SOON);
    let mut conflicts = Watch::of_conflicts(&n1, &[&SOON[..], &["--no-reconnect"]].concat());
    wait_until("the conflicts are listed", || {
        // Nobody else asks who the node is, and for the list.
        watches(&n1).iter().any(|row| row["requests"]["state"] == 2).then_some(())
    });
    n1.freeze();
    let lost = format!("{} is lost: the node does not answer", n1.client);
    let said = monitor.heard();
    assert!(said.contains(&lost), "{said}");
    let said = watch.heard();
    assert!(said.contains(&lost), "{said}");
    let (code, said) = conflicts.ended();
    assert!(code == Some(6) && said.contains(&lost), "{code:?} {said}");

    assert!(monitor.heard().contains(&format!("at {} (node n2) again", n2.client)));
    ok(&n2, &["send", "a", "1"]);
    assert_eq!(monitor.line()["data"], 1);
    ok(&n2, &["set", "a", "2"]);
    n1.signal("CONT");
    assert!(watch.heard().contains("(node n1) again"));
    assert_eq!(watch.line()["value"], 2);
}

#[test]
fn a_watch_at_which_nothing_comes_is_not_lost_as_long_as_its_node_answers() {
    let n1 = NodeProcess::run("n1");
    let mut watch = Watch::start(&n1, &[&SOON[..], &["--no-reconnect"]].concat());
    let requests_of_watch =
        || watches(&n1).iter().map(|row| row["asked"].as_u64().unwrap()).max().unwrap();
    let before = requests_of_watch();
    wait_until("the node was asked twice whether it is there", || {
        (requests_of_watch() >= before + 2).then_some(())
    });
    ok(&n1, &["set", "a", "1"]);
    assert_eq!(watch.line()["value"], 1);
}

#[test]
fn what_was_edited_is_set_when_the_node_was_restarted_meanwhile_and_else_kept() {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    ok(&n1, &["set", "a", "1", "--copies", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("editor");
    let edit = |node: &NodeProcess, value: &str, timeout: &str| {
        fs::write(&script, format!("kill -9 {}; echo '{value}' > \"$1\"\n", node.pid())).unwrap();
        let editor = format!("sh {}", script.display());
        let at = node.client.to_string();
        let arguments = ["edit", "a", "--connect", &at, "--timeout", timeout];
        let temporary = folder.path().to_str().unwrap();
        run(&arguments, &[("EDITOR", &editor), ("VISUAL", ""), ("TMPDIR", temporary)], b"")
    };

    let restarted = thread::scope(|scope| {
        let editing = scope.spawn(|| edit(&n1, "2", "60s"));
        wait_until("the editor has killed the node", || {
            TcpStream::connect(n1.client).is_err().then_some(())
        });
        let restarted = again(&n1, &n2);
        let done = editing.join().unwrap();
        assert_eq!(done.code, 0, "{}", done.stderr);
        assert!(done.stdout.starts_with("a: set ("), "{}", done.stdout);
        restarted
    });
    assert_eq!(ok(&restarted, &["get", "a"]), "2\n");

    // The editor may not be begun in time. Then it has not killed the node.
    let done = wait_until("the editor is begun in time", || {
        let done = edit(&restarted, "3", "500ms");
        let is_begun = done.stderr.contains("your text is in");
        (is_begun || TcpStream::connect(restarted.client).is_err()).then_some(done)
    });
    assert_eq!(done.code, 6, "{}", done.stderr);
    let kept = done.stderr.split("your text is in ").nth(1).unwrap().split(':').next().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "3\n");
    assert_eq!(ok(&n2, &["get", "a"]), "2\n");
}
