//! The load generator against real nodes, in `distkv-node bench` and in `distkv-bench`: that it measures,
//! counts, and says what went wrong.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use distkv::testing::free_addrs;
use rmpv::Value;
use serde_json::Value as Json;

use super::command::{Done, bench, bench_program, cli};
use crate::processes::{NodeProcess, field, wait_until};

/// A node on any free ports.
const ANY: [&str; 4] = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];

fn node() -> NodeProcess {
    NodeProcess::start("n1", &[&["run"][..], &ANY].concat())
}

fn json(done: &Done) -> Json {
    assert_eq!(done.code, 0, "{}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn so_many_requests_are_made_and_counted() {
    let node = node();
    let address = node.client.to_string();
    let load = ["--keys", "500", "-c", "3", "-d", "4", "--warm-up", "0s", "--connect", &address];
    let all = ["--count", "2000", "--json", "--keep"];
    let all = json(&cli(&[&["bench"], &load[..], &all].concat()));
    assert_eq!((all["requests"].as_u64(), all["errors"].as_u64()), (Some(2_000), Some(0)));
    let (reads, writes) = (&all["reads"]["count"], &all["writes"]["count"]);
    assert_eq!(reads.as_u64().unwrap() + writes.as_u64().unwrap(), 2_000);
    assert!(reads.as_u64() > Some(1_600), "{all}");
    assert!(all["server_resident_bytes"].as_u64() > Some(1 << 20), "{all}");
    // All keys are there, of 16 bytes, with values of 100.
    let tree = cli(&["tree", "--json", "--connect", &address]);
    assert_eq!(tree.stdout.lines().count(), 500);
    assert!(tree.stdout.contains("\"distkv-bench.key-000000000499\""));

    let skewed = ["--no-fill", "--distribution", "zipf", "--reads", "0", "--count", "500"];
    let shown = bench(&[&load[..], &skewed].concat());
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for part in ["writes  500", "errors  0", "PER SECOND", "P99.9", "latencies of writes", "server"]
    {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    assert!(!shown.stdout.contains("latencies of reads"), "{}", shown.stdout);
}

#[test]
fn changes_are_timed_from_node_to_node_and_to_many_watchers() {
    let first = node();
    let gossip = first.gossip.to_string();
    let join = [&["join", &gossip][..], &ANY].concat();
    let second = NodeProcess::start_in(&first.network, "n2", &join);
    let (a, b) = (first.client.to_string(), second.client.to_string());
    let between = ["propagation", "--connect", &a, "--watch", &b, "--changes", "50", "--json"];
    let found = json(&bench(&between));
    assert_eq!(found["latency"]["count"], 50);
    assert!(found["latency"]["p50_us"].as_f64() > Some(1.0), "{found}");

    let watch = ["watchers", "--count", "3", "--connect", &a, "--watch", &b];
    let short = ["--duration", "500ms", "--warm-up", "100ms", "--json"];
    let found = json(&bench(&[&watch[..], &short].concat()));
    assert!(found["deliveries_per_second"].as_f64() > Some(1.0), "{found}");

    let caught = bench(&["catch-up", &gossip, "--runs", "1", "--connect", &a]);
    assert_eq!(caught.code, 0, "{}", caught.stderr);
    assert!(
        caught.stdout.contains(" of ") && caught.stdout.contains("median"),
        "{}",
        caught.stdout
    );
}

#[test]
fn the_client_s_own_cost_is_measured_beside_the_generator_s() {
    let node = node();
    let address = node.client.to_string();
    let few = ["client", "--calls", "200", "--runs", "1", "--connect", &address];
    let shown = bench(&few);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let done = bench(&[&few[..], &["--json"]].concat());
    let rows: Vec<Json> =
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 10, "{}", done.stdout);
    for row in rows {
        assert!(row["cpu_us"].as_f64() > Some(0.0) && row["wall_us"].as_f64() > Some(0.0), "{row}");
        assert!(shown.stdout.contains(row["reader"].as_str().unwrap()), "{row}: {}", shown.stdout);
    }
    // What was written is deleted.
    let tree = cli(&["tree", "--json", "--connect", &address]);
    assert_eq!(tree.stdout, "", "{}", tree.stderr);
}

#[test]
fn a_fresh_node_that_cannot_catch_up_says_why() {
    let node = node();
    let connect = node.client.to_string();
    // A client port is no place to join at.
    let done = bench(&["catch-up", &connect, "--runs", "1", "--connect", &connect]);
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(done.stderr.contains("client port"), "{}", done.stderr);
    assert!(done.stderr.contains("distkv-node: it does not get ready"), "{}", done.stderr);
}

/// Whether a process runs that has this word on its command line.
fn runs_with(word: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let words = processes.map(|process| fs::read(process.path().join("cmdline")));
    words
        .flatten()
        .any(|words| words.split(|byte| *byte == 0).any(|found| found == word.as_bytes()))
}

#[test]
fn a_peer_that_is_not_there_is_told_and_nothing_is_left_running() {
    let node = node();
    let connect = node.client.to_string();
    let [nobody] = free_addrs();
    let nobody = nobody.to_string();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (silent, address.to_string())).unwrap();
    let refused = format!("cannot connect to {nobody}: Connection refused");
    for (peer, timeout, code, why) in [
        // Long before the time is over.
        (&*nobody, "10m", 1, &[&*refused][..]),
        ("nowhere.invalid", "10m", 1, &["cannot look up nowhere.invalid:27587"]),
        ("a b", "10m", 2, &["PEER"]),
        // Somebody listens and says nothing: the node's own words are told, which it has after five seconds.
        (&*silent.1, "15s", 1, &["within 15s", "it did not say who it is", &*silent.1]),
    ] {
        let catch_up = ["catch-up", peer, "--runs", "1", "--timeout", timeout];
        let done = bench(&[&catch_up[..], &["--connect", &connect]].concat());
        assert_eq!(done.code, code, "{peer}: {}", done.stderr);
        assert!(why.iter().all(|why| done.stderr.contains(why)), "{peer}: {}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        assert!(!runs_with(peer), "{peer}: something runs on");
    }
}

#[test]
fn a_fresh_node_leaves_its_network_also_when_it_is_interrupted() {
    let node = node();
    let (connect, gossip) = (node.client.to_string(), node.gossip.to_string());
    let fill = ["--keys", "50000", "--reads", "1", "--count", "1", "--warm-up", "0s", "--keep"];
    assert_eq!(bench(&[&fill[..], &["--connect", &connect]].concat()).code, 0);
    let member = |wanted: &dyn Fn(&str, &str) -> bool| -> Option<(String, String)> {
        let members = field(&node.connect().call("members", &[]), "result").unwrap();
        let text = |member: &Value, key| field(member, key).unwrap().as_str().unwrap().to_owned();
        let told = |member| (text(member, "name"), text(member, "state"));
        let mut members = members.as_array().unwrap().iter().map(told);
        members.find(|(name, state)| name.starts_with("bench-") && wanted(name, state))
    };
    let mut running =
        bench_program(&["catch-up", &gossip, "--runs", "1000", "--connect", &connect]);
    // As a terminal does it: Ctrl-C is for the whole group.
    running.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = running.spawn().unwrap();
    let (name, _) = wait_until("a fresh node is a member", || member(&|_, state| state == "up"));
    let group = format!("-{}", running.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    assert_eq!(running.wait().unwrap().code(), Some(130));
    assert!(!runs_with(&name), "{name} runs on");
    // Where the machine stands still, it may be suspected meanwhile.
    let is_gone = |other: &str, state: &str| other == name && !["up", "suspect"].contains(&state);
    let (_, state) = wait_until("it is gone", || member(&is_gone));
    assert_eq!(state, "left", "{:#?}", node.log());
}

#[test]
fn other_stores_are_measured_and_not_by_a_node_s_program() {
    let node = node();
    let address = node.client.to_string();
    let load = ["--keys", "50", "--warm-up", "0s", "--count", "100", "--target", &address];
    let wrong = bench(&[&load[..], &["--protocol", "redis"]].concat());
    assert_eq!(wrong.code, 1, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("the answer is not of Redis's protocol"), "{}", wrong.stderr);
    let refused = cli(&[&["bench"], &load[..], &["--protocol", "redis"]].concat());
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    let program = fs::read(crate::processes::PROGRAM).unwrap();
    for of_others in [&b"redis-server"[..], b"etcdserverpb", b"$JS.API."] {
        let bench = fs::read(crate::processes::bench_program()).unwrap();
        assert!(bench.windows(of_others.len()).any(|part| part == of_others));
        assert!(!program.windows(of_others.len()).any(|part| part == of_others));
    }
}

#[test]
fn the_generator_is_measured_without_a_server() {
    let echo = json(&bench(&["echo", "--count", "1000", "--warm-up", "0s", "--json"]));
    assert_eq!((echo["requests"].as_u64(), echo["errors"].as_u64()), (Some(1_000), Some(0)));
}

#[test]
fn measurements_without_a_login_say_so_where_a_node_asks_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (key, ticket) = (path("key"), path("ticket"));
    assert_eq!(cli(&["key", "new", "--network", "plant", "--to", &key]).code, 0);
    let own = ["run", "--peer-wait", "0s", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let node = NodeProcess::start_in("plant", "n1", &[&own[..], &["--key", &key]].concat());
    let at = node.client.to_string();
    for made in [
        &["user", "add", "robot", "--method", "token", "--acl", "*"][..],
        &["user", "ticket", "robot", "--to", &ticket],
    ] {
        let done = cli(&[made, &["--connect", &at, "--key", &key]].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
    }
    let ticket = format!("@{ticket}");
    for measurement in
        [&["watchers", "--count", "2"][..], &["tree"], &["propagation", "--watch", &at]]
    {
        let done = bench(&[measurement, &["--ticket", &ticket]].concat());
        let says = "speaks the plain protocol without either, also with --ticket";
        assert_eq!(done.code, 3, "{measurement:?}: {}", done.stderr);
        assert!(done.stderr.contains(says), "{measurement:?}: {}", done.stderr);
    }
}

/// Few and short: what counts is that each figure is there.
const SHORT: [&str; 7] =
    ["compare", "--rounds", "1", "--duration=400ms", "--warm-up=100ms", "--keys", "3000"];

#[test]
fn every_figure_of_a_comparison_is_measured_for_this_program() {
    let done = bench(&[&SHORT[..], &["--with", "redis,echo", "--json"]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    let all: Vec<Json> =
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (all[0]["program"].as_str(), all[0]["keys"].as_u64()),
        (Some("distkv-node"), Some(3_000))
    );
    let ours = all[0]["figures"].as_object().unwrap();
    assert_eq!(ours.len(), 28, "{ours:#?}");
    for (name, figure) in ours {
        let (min, median) = (figure["min"].as_f64().unwrap(), figure["median"].as_f64().unwrap());
        // A short time may be less than what the system counts.
        assert!(median >= min && (median > 0.0 || name.contains("CPU")), "{name}: {figure}");
    }
    let figures_of = |program: &str| {
        all.iter().find(|line| line["program"] == program).map(|line| line["figures"].clone())
    };
    // All of WORK, each with three figures.
    assert_eq!(figures_of("echo").unwrap().as_object().unwrap().len(), 18);
    // Where it is installed.
    match figures_of("redis-server") {
        Some(figures) => assert_eq!(figures.as_object().unwrap().len(), 27, "{}", done.stderr),
        None => assert!(done.stderr.contains("redis-server is not installed"), "{}", done.stderr),
    }
}

#[test]
fn a_comparison_s_table_can_be_pasted() {
    let done = bench(&[&SHORT[..], &["--alone", "--only", "listing,fresh", "--markdown"]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", done.stdout);
    assert_eq!(lines[..2], ["| FIGURE | distkv-node |", "| --- | --- |"]);
    assert!(lines[2].starts_with("| fresh node"), "{}", lines[2]);
}

#[test]
fn an_interrupted_comparison_leaves_nothing_behind() {
    let mut command =
        bench_program(&["compare", "--alone", "--only", "requests", "--duration", "60s"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    let pid = running.id();
    let children = || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")));
        let lists: Vec<String> = lists.map(Result::unwrap_or_default).collect();
        lists.concat().split_whitespace().map(str::to_owned).collect::<Vec<String>>()
    };
    // The network that a node's command line names: read once, for a process may end at any time.
    let network_of = |pid: &String| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let network = words.split('\0').find(|word| word.starts_with("distkv-bench-"));
        network.map(str::to_owned)
    };
    let (node, network) = loop {
        assert!(running.try_wait().unwrap().is_none());
        let found = children().into_iter().find_map(|pid| Some((network_of(&pid)?, pid)));
        if let Some((network, node)) = found {
            break (node, network);
        }
        std::thread::yield_now();
    };
    let sent = Command::new("kill").arg(pid.to_string()).status().unwrap();
    assert!(sent.success());
    assert_eq!(running.wait().unwrap().code(), Some(130));
    assert_eq!(network_of(&node), None, "{node} runs on");
    for parent in [Path::new("/dev/shm"), &std::env::temp_dir()] {
        assert!(!parent.join(&network).exists());
    }
}

#[test]
fn what_cannot_be_measured_is_told() {
    // Both programs have the same load generator.
    let load = &["bench", "--depth", "2000"][..];
    assert_eq!(cli(load).stderr, "error: --depth must be from 1 to 1024\n");
    assert_eq!(bench(&load[1..]).stderr, cli(load).stderr);
    for (arguments, code, advice) in [
        (&["--connections", "0"][..], 2, "--connections must be from 1"),
        (&["--reads", "90"], 2, "from 0 to 1"),
        (&["--value", "1G"], 2, "--value must be"),
        (&["--target", "a b"], 2, "--target"),
        (&["--target", "127.0.0.1:1"], 6, "cannot connect to 127.0.0.1:1"),
        (&["watchers", "--count", "0"], 2, "--count must be"),
        (&["--duration", "0s"], 2, "'--duration <DURATION>': it must be longer than nothing"),
        (&["--count", "0"], 2, "'--count <REQUESTS>': 0 is not in 1.."),
        (&["watchers", "--duration", "0s"], 2, "longer than nothing"),
        (&["propagation", "--watch", "a", "--value", "1G"], 2, "--value must be"),
        (&["watchers", "--value", "1G"], 2, "--value must be"),
        (&["compare", "--duration", "0s"], 2, "longer than nothing"),
        (&["secured", "--duration", "0s"], 2, "longer than nothing"),
        (&["propagation", "--watch", "x y"], 2, "--watch"),
    ] {
        let done = bench(arguments);
        assert_eq!(done.code, code, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(advice), "{arguments:?}: {}", done.stderr);
    }
    // Something else listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let talker = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        stream
    });
    let done = bench(&["--no-fill", "-c", "1", "--target", &address]);
    assert_eq!(done.code, 1, "{}", done.stdout);
    assert!(done.stderr.contains("does not speak the client protocol"), "{}", done.stderr);
    drop(talker.join());
}

#[test]
fn a_node_that_is_silent_is_waited_for_as_long_as_timeout_says() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    for run in [cli, |arguments: &[&str]| bench(&arguments[1..])] {
        let began = Instant::now();
        let done = run(&["bench", "--connect", &address, "--timeout", "300ms"]);
        assert_eq!(done.code, 6, "{}", done.stderr);
        // Without it, it is 10 s.
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
}
