//! The HTTP port of real nodes: what it tells, whom it refuses, and that a split is loud: in the status, the log
//! and the metrics of each side.

mod alerts;
mod api;
pub mod asking;
mod children;
mod crowds;
mod cut;
mod encrypted;
mod long_values;
mod missed;
mod tickets;
mod warned;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use crate::cli::command::ok;
use crate::hosts::{Hosts, client_addr, gossip_addr, inside_own_network};
use crate::processes::{NodeProcess, PATIENCE, PROGRAM, array, field, wait_until};
use rmpv::Value;

/// The status and the text of what a node answers.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn http(node: &NodeProcess) -> SocketAddr {
    node.http.expect("the node has an HTTP port")
}

/// A series' number, with its labels as they are told.
fn metric(node: &NodeProcess, series: &str) -> f64 {
    let (status, text) = get(http(node), "/metrics");
    assert_eq!(status, 200, "{text}");
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{series} is not in {text}")).parse().unwrap()
}

fn status(node: &NodeProcess) -> Value {
    node.connect().call("status", &[])
}

/// The warnings of `status`, and what it says of silent members: names, and with whom the node goes on.
fn silent(node: &NodeProcess) -> Option<(Vec<String>, Vec<String>, String)> {
    let status = status(node);
    let silent = field(&status, "silent").filter(|silent| !silent.is_nil())?;
    let names = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let together = field(&silent, "together").unwrap();
    let groups = together.as_array().unwrap().iter();
    let members = groups.flat_map(|group| names(&field(group, "names").unwrap())).collect();
    let warnings = names(&field(&status, "warnings").unwrap()).join("\n");
    Some((members, names(&field(&silent, "with").unwrap()), warnings))
}

#[test]
fn a_node_tells_its_metrics_and_health_and_nobody_what_is_not_meant_for_it() {
    let options = ["--http", "127.0.0.1:0", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().to_str().unwrap();
    let more = ["run", "--peer-wait", "0s", "--data-dir", dir, "--sync", "every-batch"];
    let node = NodeProcess::start("n1", &[&more[..], &options].concat());
    for path in ["/livez", "/readyz", "/readyz?write"] {
        let (status, text) = get(http(&node), path);
        assert_eq!(status, 200, "{path}: {text}");
        assert!(text.lines().all(|line| line.ends_with(": ok")), "{path}: {text}");
    }
    assert_eq!(metric(&node, "distkv_writes_total"), 0.0);
    let mut client = node.connect();
    client.set(&["secret path"], Value::from("secret value"));
    client.set(&["b"], Value::from(2));
    client.call("delete_value", &[("path", array(&["b"]))]);
    assert_eq!(metric(&node, "distkv_writes_total"), 3.0);
    assert_eq!(metric(&node, "distkv_entries{kind=\"live\"}"), 1.0);
    assert_eq!(metric(&node, "distkv_entries{kind=\"deleted\"}"), 1.0);
    assert_eq!(metric(&node, "distkv_members{state=\"up\"}"), 1.0);
    assert_eq!(metric(&node, "distkv_ready"), 1.0);
    assert_eq!(metric(&node, "distkv_writable"), 1.0);
    assert!(metric(&node, "distkv_log_sync_seconds_count") >= 3.0);
    let requests =
        |kind: &str| metric(&node, &format!("distkv_client_requests_total{{kind=\"{kind}\"}}"));
    assert_eq!((requests("set"), requests("delete"), requests("get")), (2.0, 1.0, 0.0));
    let errors =
        |code: &str| metric(&node, &format!("distkv_client_errors_total{{code=\"{code}\"}}"));
    assert_eq!((errors("chain_mismatch"), errors("unknown_action")), (0.0, 0.0));
    let chain =
        ("chain", Value::Map(vec![("node".into(), "n1~e0".into()), ("tick".into(), 1.into())]));
    let refused = client.call("set_value", &[("path", array(&["b"])), ("value", 1.into()), chain]);
    let code = field(&refused, "code").unwrap();
    client.call("nonsense", &[]);
    assert_eq!((errors(code.as_str().unwrap()), errors("unknown_action")), (1.0, 1.0), "{refused}");
    // The first batch of a connection is timed.
    assert_eq!(metric(&node, "distkv_client_request_seconds_count{kind=\"write\"}"), 1.0);
    for direction in ["received", "sent"] {
        let bytes =
            metric(&node, &format!("distkv_client_bytes_total{{direction=\"{direction}\"}}"));
        assert!(bytes > 100.0, "{direction}: {bytes}");
    }
    assert!(metric(&node, "distkv_data_bytes{kind=\"log\"}") > 100.0);
    assert_eq!(metric(&node, "distkv_data_bytes{kind=\"snapshot\"}"), 0.0);
    client.call("snapshot", &[]);
    wait_until("the snapshot counts", || {
        (metric(&node, "distkv_data_bytes{kind=\"snapshot\"}") > 100.0).then_some(())
    });
    assert!(metric(&node, "distkv_shard_busiest_ratio") >= 0.5);
    assert_eq!(metric(&node, "distkv_log_unsynced_seconds"), 0.0);
    assert_eq!(metric(&node, "distkv_heavy_jobs{state=\"running\"}"), 0.0);
    assert_eq!(metric(&node, "distkv_link_bytes_total{direction=\"sent\"}"), 0.0);
    let _second = NodeProcess::join("n2", &[&node]);
    for direction in ["received", "sent"] {
        let bytes = metric(&node, &format!("distkv_link_bytes_total{{direction=\"{direction}\"}}"));
        assert!(bytes > 100.0, "{direction}: {bytes}");
    }
    assert_eq!(metric(&node, "distkv_link_overflows_total"), 0.0);
    assert!(metric(&node, "process_resident_memory_bytes") > 1e6);
    let (_, text) = get(http(&node), "/metrics");
    assert!(text.contains("sync=\"every-batch\""), "{text}");
    assert!(!text.contains("secret"), "it tells what clients have: {text}");
    // Prometheus' own tool finds nothing to say about it.
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool: apt-get install --no-install-recommends prometheus");
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = check.wait_with_output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    assert_eq!(get(http(&node), "/v1/kv/b").0, 404, "it was deleted");
}

#[test]
fn a_port_that_other_machines_reach_is_refused_before_anything_is_answered() {
    let refused = |arguments: &[&str]| {
        let common = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--name", "n1"];
        let output = Command::new(PROGRAM).args(common).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        said
    };
    let open = refused(&["--http", "0.0.0.0:0"]);
    assert!(open.contains("--insecure") && open.contains("metrics"), "{open}");
    assert!(refused(&["--http-name", "a"]).contains("--http"));
    assert!(refused(&["--http", "nonsense"]).contains("--http"));
    for name in ["n1:80", "http://n1", "", "[::1]", "n1/"] {
        let said = refused(&["--http", "127.0.0.1:0", "--http-name", name]);
        assert!(said.contains("--http-name") && said.contains("without scheme and port"), "{said}");
        let said = refused(&["--cert-name", name]);
        assert!(said.contains("--cert-name") && said.contains("is no host"), "{said}");
    }
}

#[test]
fn who_is_killed_is_missed_until_it_is_back_and_who_leaves_is_not() {
    let first = NodeProcess::run("n1");
    let mut second = NodeProcess::join("n2", &[&first]);
    let mut third = NodeProcess::join("n3", &[&first]);
    let sees = |members: u64| {
        let count = field(&status(&first), "members").and_then(|count| count.as_u64());
        (count == Some(members)).then_some(())
    };
    wait_until("all are up", || sees(3));
    third.signal("TERM");
    assert!(third.wait().success());
    wait_until("n3 has left", || sees(2));
    assert_eq!(silent(&first), None, "it has said so");
    // It has said that it has these.
    for path in ["a", "b"] {
        ok(&first, &["set", path, "1", "--copies", "1"]);
    }
    second.kill();
    let is_closed = |line: &String| line.contains("link closed") && line.contains("peer=n2");
    wait_until("its link is gone", || first.log().iter().any(is_closed).then_some(()));
    // Long before anybody takes it for silent.
    for path in ["c", "d", "e"] {
        first.connect().set(&[path], 1.into());
    }
    let (names, with, warnings) = wait_until("n2 is missed", || silent(&first));
    assert_eq!((names, with), (vec![String::from("n2")], Vec::new()));
    assert!(warnings.contains("n2 has been silent for "), "{warnings}");
    assert!(warnings.contains("this node goes on alone, 3 changes since"), "{warnings}");
    let command = |name: &str| {
        let address = first.client.to_string();
        let output = Command::new(PROGRAM).args([name, "--connect", &address]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for name in ["status", "members"] {
        let said = command(name);
        assert!(said.contains("warning: n2 has been silent"), "{name}: {said}");
    }
    let _again = NodeProcess::join("n2", &[&first]);
    wait_until("nobody is missed", || silent(&first).is_none().then_some(()));
    let is_over = |line: &String| line.contains("the member that was silent is back");
    let over = wait_until("the log says so", || first.log().into_iter().find(is_over));
    assert!(over.contains(" s; 3 changes came to be known here meanwhile"), "{over}");
}

#[test]
fn a_split_is_loud_on_both_sides_and_so_is_its_end() {
    inside_own_network(test_name!("a_split_is_loud_on_both_sides_and_so_is_its_end"), || {
        let hosts = Hosts::new(&[0, 0, 1]);
        let start = |host: usize| {
            let (client, gossip) = (client_addr(host), gossip_addr(host).to_string());
            let http = SocketAddr::new(client.ip(), 27585).to_string();
            let client = client.to_string();
            let first = gossip_addr(0).to_string();
            let mut arguments = if host == 0 { vec!["run"] } else { vec!["join", &first] };
            arguments.extend(["--client", &client, "--gossip", &gossip, "--http", &http]);
            arguments.push("--insecure");
            NodeProcess::start_by(&hosts.prefix(host), &format!("n{host}"), &arguments)
        };
        let nodes: Vec<NodeProcess> = (0..3).map(start).collect();
        wait_until("all see all", || {
            let sees = |node| metric(node, "distkv_members{state=\"up\"}") == 3.0;
            nodes.iter().all(sees).then_some(())
        });
        assert_eq!(metric(&nodes[0], "distkv_split_members"), 0.0);
        hosts.cut();
        let expected =
            [(vec!["n2"], vec!["n1"]), (vec!["n2"], vec!["n0"]), (vec!["n0", "n1"], vec![])];
        for (node, (names, with)) in nodes.iter().zip(&expected) {
            // Both may go at moments that differ by seconds.
            let found = wait_until("the others are missed", || {
                silent(node).filter(|(found, ..)| found.len() == names.len())
            });
            assert_eq!((&found.0, &found.1), (&to_owned(names), &to_owned(with)), "{}", node.name);
        }
        // Both sides go on.
        for (number, node) in nodes.iter().enumerate() {
            node.connect().set(&["side", &number.to_string()], Value::from(number as u64));
        }
        for (node, (names, with)) in nodes.iter().zip(&expected) {
            // One of each node of this side.
            let changes = 1.0 + with.len() as f64;
            wait_until("the changes are counted", || {
                (metric(node, "distkv_split_changes") >= changes).then_some(())
            });
            let known = || {
                node.connect().call("get_state", &[("known", true.into()), ("nodes", true.into())])
            };
            assert_eq!(metric(node, "distkv_split_changes"), changes, "{}: {}", node.name, known());
            assert_eq!(metric(node, "distkv_split_members"), names.len() as f64);
            assert!(metric(node, "distkv_split_seconds") > 0.0);
            assert_eq!(metric(node, "distkv_splits_total"), 1.0, "one split, one count");
            assert_eq!(metric(node, "distkv_warnings{kind=\"split\"}"), 1.0);
            assert_eq!(get(http(node), "/livez").0, 200, "a restart would not help");
            assert_eq!(get(http(node), "/readyz?write").0, 200, "it serves all the same");
            let goes_on = match with.first() {
                None => String::from("this node goes on alone"),
                Some(other) => format!("this node goes on with {other}"),
            };
            let says = |line: &String| line.contains("WARN") && line.contains(&goes_on);
            assert!(node.log().iter().any(says), "{:#?}", node.log());
        }
        hosts.mend();
        for node in &nodes {
            wait_until("nobody is missed", || silent(node).is_none().then_some(()));
            assert_eq!(metric(node, "distkv_split_members"), 0.0);
            let is_over = |line: &String| line.contains("silent") && line.contains("back");
            wait_until("the log says so", || node.log().iter().any(is_over).then_some(()));
            wait_until("it has all", || node.connect().get(&["side", "2"]));
            wait_until("it has all", || node.connect().get(&["side", "0"]));
        }
    });
}

#[test]
fn two_members_that_cannot_reach_each_other_say_so_and_the_metrics_with_them() {
    let test =
        test_name!("two_members_that_cannot_reach_each_other_say_so_and_the_metrics_with_them");
    inside_own_network(test, || {
        let hosts = Hosts::new(&[0, 0, 0]);
        let start = |host: usize| {
            let (client, gossip) = (client_addr(host), gossip_addr(host).to_string());
            let http = SocketAddr::new(client.ip(), 27585).to_string();
            let client = client.to_string();
            let first = gossip_addr(0).to_string();
            let mut arguments = if host == 0 { vec!["run"] } else { vec!["join", &first] };
            arguments.extend(["--client", &client, "--gossip", &gossip, "--http", &http]);
            arguments.push("--insecure");
            NodeProcess::start_by(&hosts.prefix(host), &format!("n{host}"), &arguments)
        };
        let nodes: Vec<NodeProcess> = (0..3).map(start).collect();
        let warning = |node: &NodeProcess| {
            let warnings = field(&status(node), "warnings").unwrap();
            let mut warnings = warnings.as_array().unwrap().iter().filter_map(Value::as_str);
            warnings.find(|text| text.contains("no link to")).map(str::to_owned)
        };
        let links = |node| metric(node, "distkv_links");
        wait_until("all are linked", || nodes.iter().all(|n| links(n) == 2.0).then_some(()));
        hosts.cut_one_way(1, 2);
        hosts.cut_one_way(2, 1);
        for (at, other) in [(1, 2), (2, 1)] {
            let node = &nodes[at];
            let text = wait_until("it is told of", || warning(node));
            assert!(
                text.starts_with(&format!("there has been no link to n{other} for ")),
                "{text}"
            );
            assert!(text.contains("--advertise"), "{text}");
            assert!(text.contains(&gossip_addr(other).to_string()), "{text}");
            assert_eq!(metric(node, "distkv_members{state=\"up\"}"), 3.0, "others see it");
            assert_eq!(metric(node, "distkv_warnings{kind=\"link\"}"), 1.0);
            let says = |line: &String| line.contains("WARN") && line.contains(&text[..28]);
            wait_until("so does the log", || node.log().iter().any(says).then_some(()));
        }
        assert_eq!((warning(&nodes[0]), silent(&nodes[0])), (None, None));
        // It is no dead end: what one of them changes comes to the other by way of n0.
        nodes[1].connect().set(&["a"], Value::from(1));
        wait_until("it has come", || nodes[2].connect().get(&["a"]));
        hosts.mend_one_way(1, 2);
        hosts.mend_one_way(2, 1);
        for node in &nodes[1..] {
            wait_until("it is over", || warning(node).is_none().then_some(()));
            assert_eq!(metric(node, "distkv_warnings{kind=\"link\"}"), 0.0);
        }
    });
}

fn to_owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The log as JSON, for programs.
#[test]
fn the_log_is_json_if_that_is_asked_for_and_begins_with_what_the_node_is() {
    let options = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--peer-wait", "0s"];
    let more = ["run", "--log-format", "json", "--http", "127.0.0.1:0"];
    let node = NodeProcess::start("n1", &[&more[..], &options].concat());
    let lines = wait_until("it logs", || Some(node.log()).filter(|log| !log.is_empty()));
    let parsed: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    let started = parsed.iter().find(|line| line["message"] == "started").expect("a first line");
    assert_eq!(started["level"], "INFO");
    assert_eq!(started["name"], "n1");
    assert_eq!(started["network"], "distkv");
    assert_eq!(started["client"], node.client.to_string());
    assert_eq!(started["gossip"], node.gossip.to_string());
    assert_eq!(started["http"], http(&node).to_string());
    assert_eq!(started["data"], "in memory");
    assert_eq!(started["security"], "open");
    assert!(started["version"].is_string() && started["timestamp"].is_string(), "{started}");
}
