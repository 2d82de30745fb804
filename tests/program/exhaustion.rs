//! Real nodes that are given too little of something, with clients that take all they can get of
//! it: descriptors, memory, threads. The node goes on, says what is wrong, and serves whoever behaves.

use crate::processes;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::cli::command::at;
use processes::{Client, NodeProcess, PROGRAM, array, field, wait_until};
use rmpv::Value;

/// Arguments of a first node of a network of its own.
fn first(network: &str) -> Vec<String> {
    let arguments =
        ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--network", network];
    arguments.map(String::from).to_vec()
}

fn network(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

fn strs(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

fn text(message: &Value, key: &str) -> String {
    field(message, key).and_then(|v| v.as_str().map(String::from)).unwrap_or_default()
}

fn number(message: &Value, key: &str) -> u64 {
    field(message, key).and_then(|v| v.as_u64()).unwrap_or_default()
}

/// The lines of a node's log that have all of these words.
fn logged(node: &NodeProcess, words: &[&str]) -> Vec<String> {
    let has_all = |line: &String| words.iter().all(|word| line.contains(word));
    node.log().into_iter().filter(has_all).collect()
}

/// A node that may open so many files and begins a new log often, in a network of its own.
fn with_few_descriptors(limit: u32, network: &str, data: &Path, more: &[&str]) -> NodeProcess {
    let mut arguments = first(network);
    arguments.extend(["--data-dir".into(), data.display().to_string()]);
    arguments.extend(["--log-rotate-bytes", "64KiB", "--sync", "every-batch"].map(String::from));
    arguments.extend(more.iter().map(ToString::to_string));
    let script = format!("ulimit -n {limit}; exec \"$@\"");
    let shell = ["sh", "-c", &script, "sh"].map(String::from);
    NodeProcess::start_by(&shell, "n1", &strs(&arguments))
}

/// Makes the node begin several logs, and write a snapshot.
fn fill_logs(client: &mut Client) {
    let log_number = |client: &mut Client| {
        number(&field(&client.call("status", &[]), "storage").unwrap(), "log")
    };
    let before = log_number(client);
    for i in 0..100 {
        let reply = client.set(&["fill"], Value::from("x".repeat(4_000 + i)));
        assert_eq!(field(&reply, "error"), None, "{reply}");
    }
    wait_until("the log goes on in another file", || {
        (log_number(client) > before + 2).then_some(())
    });
    let snapshot = client.call("snapshot", &[]);
    assert_eq!(field(&snapshot, "error"), None, "{snapshot}");
}

#[test]
fn clients_and_http_together_cannot_take_the_descriptors_that_the_node_needs() {
    let dir = tempfile::tempdir().unwrap();
    let http = ["--http", "127.0.0.1:0"];
    let node = with_few_descriptors(100, &network("http-descriptors"), dir.path(), &http);
    let mut client = node.connect();
    let clients: Vec<Client> =
        (0..200).filter_map(|_| Client::try_connect(node.client).ok()).collect();
    // As many streams as there may be, and connections that wait for a request.
    let http = node.http.unwrap();
    let request = format!("GET /v1/kv/?watch HTTP/1.1\r\nHost: {http}\r\n\r\n");
    let pages: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut page = TcpStream::connect(http).unwrap();
            if number % 2 == 0 {
                // It may be closed already, because there are too many.
                let _ = page.write_all(request.as_bytes());
            }
            page
        })
        .collect();
    fill_logs(&mut client);
    // Streams leave room for who asks; those of its own machine that have just come and say nothing, a moment later.
    wait_until("the node answers", || {
        let mut probe = TcpStream::connect(http).ok()?;
        probe.write_all(format!("GET /livez HTTP/1.1\r\nHost: {http}\r\n\r\n").as_bytes()).ok()?;
        let mut line = [0; 15];
        probe.read_exact(&mut line).ok()?;
        (&line == b"HTTP/1.1 200 OK").then_some(())
    });
    assert_eq!(logged(&node, &["cannot be written"]), [""; 0]);
    assert_eq!(logged(&node, &["HTTP connections", "ulimit -n"]).len(), 1);
    drop((clients, pages));
}

#[test]
fn clients_cannot_take_the_descriptors_that_the_node_needs() {
    let dir = tempfile::tempdir().unwrap();
    let network = network("descriptors");
    let node = with_few_descriptors(128, &network, dir.path(), &[]);
    let mut client = node.connect();

    // Many more than there are descriptors. Who is not served is told so, or closed, at once.
    let (mut served, mut refused) = (Vec::new(), 0);
    for _ in 0..300 {
        match Client::try_connect(node.client) {
            Ok(other) if field(&other.greeting, "error").is_none() => served.push(other),
            Ok(other) => {
                assert_eq!(text(&other.greeting, "code"), "too_many");
                refused += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!((32..100).contains(&served.len()), "{} were served", served.len());
    assert_eq!(served.len() + refused, 300);

    // The node logs, in one file after the other, makes a snapshot, and links.
    fill_logs(&mut client);
    let gossip = node.gossip.to_string();
    let join = ["join", &gossip, "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let second = NodeProcess::start_in(&network, "n2", &join);
    assert!(second.connect().get(&["fill"]).is_some());
    drop(second);
    // And says what is wrong, but not three hundred times.
    let lines = logged(&node, &["refused clients"]);
    assert!((1..10).contains(&lines.len()), "{lines:#?}");
    assert_eq!(logged(&node, &["ulimit -n"]).len(), 1);
    assert_eq!(logged(&node, &["cannot be written"]), [""; 0]);
    drop(served);
    wait_until("there is room for clients again", || Client::try_connect(node.client).ok());
}

/// Lets the node have so many threads, by all processes of its user together.
fn limit_threads(node: &NodeProcess, limit: &str) {
    let mut command = as_ordinary_user();
    command.extend(["prlimit".into(), "--pid".into(), node.pid().to_string(), limit.into()]);
    let status = Command::new(&command[0]).args(&command[1..]).status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// A user whose threads the system limits, which it does not do for root.
const USER: u32 = 54_321;

/// What runs a command as that user, if we are root.
fn as_ordinary_user() -> Vec<String> {
    if !rustix::process::getuid().is_root() {
        return Vec::new();
    }
    let user = USER.to_string();
    ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"].map(String::from).to_vec()
}

/// Starts a node as an ordinary user.
fn start_as_ordinary_user(dir: &Path, arguments: &[String]) -> NodeProcess {
    let mut prefix = as_ordinary_user();
    if prefix.is_empty() {
        return NodeProcess::start("n1", &strs(arguments));
    }
    // The program may lie where only root can go.
    let program = dir.join("program");
    std::fs::copy(PROGRAM, &program).unwrap();
    for path in [dir, &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
    // The harness adds its own program; ours is run instead.
    let script = "program=$1; shift 2; exec \"$program\" \"$@\"";
    prefix.extend(["sh", "-c", script, "sh"].map(String::from));
    prefix.push(program.display().to_string());
    NodeProcess::start_by(&prefix, "n1", &strs(arguments))
}

#[test]
fn a_node_without_threads_says_so_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = first(&network("threads"));
    arguments.extend(["--data-dir".into(), dir.path().join("data").display().to_string()]);
    let node = start_as_ordinary_user(dir.path(), &arguments);
    let mut client = node.connect();
    client.set(&["a"], Value::from(1));
    limit_threads(&node, "--nproc=1:");

    let says_so = |reply: &Value| {
        let error = text(reply, "error");
        assert!(error.contains("no thread") && error.contains("os error 11"), "{reply}");
        assert_eq!(text(reply, "code"), "too_many", "{reply}");
    };
    says_so(&client.call("snapshot", &[]));
    says_so(&client.call("get_state", &[("present", Value::from(true))]));
    says_so(&client.call("get_snapshot", &[]));
    let start = [("start", Value::from(true)), ("data", Value::Binary(vec![1]))];
    says_so(&client.call("restore", &start));
    // All else goes on.
    for i in 0..100 {
        assert_eq!(field(&client.set(&["a"], Value::from(i)), "error"), None);
        assert_eq!(client.get(&["a"]), Some(Value::from(i)));
    }
    assert!(node.connect().get(&["a"]).is_some());

    limit_threads(&node, "--nproc=1000:");
    let snapshot = client.call("snapshot", &[]);
    assert_eq!(field(&snapshot, "error"), None, "{snapshot}");
    let state = client.call("get_state", &[("present", Value::from(true))]);
    assert!(field(&state, "present").is_some(), "{state}");
}

/// Without the buffers that grow where a client sends or does not read: what a connection costs that waits.
#[test]
fn a_connection_that_waits_counts_as_much_as_it_takes() {
    const CONNECTIONS: u64 = 50;
    /// Measured (docs/memory.md).
    const EACH: u64 = 12 << 10;
    let node = NodeProcess::run("n1");
    let mut client = node.connect();
    let mut used = || number(&field(&client.call("status", &[]), "client_memory").unwrap(), "used");
    let before =
        wait_until("its own connection is counted", || Some(used()).filter(|used| *used >= EACH));
    let waiting: Vec<Client> = (0..CONNECTIONS).map(|_| node.connect()).collect();
    let counted = wait_until("they are counted", || {
        let more = used().saturating_sub(before);
        (more >= CONNECTIONS * EACH).then_some(more)
    });
    assert!(counted < CONNECTIONS * EACH * 3 / 2, "{counted}");
    drop(waiting);
    wait_until("nothing is counted for those that are gone", || (used() <= before).then_some(()));
}

#[test]
fn unread_streams_of_many_clients_stay_within_the_bound() {
    const BOUND: usize = 64 << 20;
    const CONNECTIONS: usize = 300;
    const STREAMS: usize = 100;
    let mut arguments = first(&network("memory"));
    arguments.extend(["--max-client-memory".into(), "64MiB".into()]);
    let node = NodeProcess::start("n1", &strs(&arguments));
    let mut good = node.connect();
    for i in 0..200 {
        let key = format!("k{i}");
        good.set(&["tree", &key], Value::from("x".repeat(50_000)));
    }
    let before = node.resident_bytes();
    let mut deaf: Vec<Client> = Vec::new();
    for _ in 0..CONNECTIONS {
        let Ok(mut client) = Client::try_connect(node.client) else { continue };
        for _ in 0..STREAMS {
            // It may be closed already.
            if client.send("get_tree", &[("path", array(&["tree"]))]).is_err() {
                break;
            }
        }
        deaf.push(client);
    }
    // What is written meanwhile replaces what their snapshots hold, many times.
    let mut most = 0;
    for round in 0..40 {
        for i in 0..200 {
            let key = format!("k{i}");
            let value = Value::from("y".repeat(50_000 + round));
            assert_eq!(field(&good.set(&["tree", &key], value), "error"), None);
        }
        most = most.max(node.resident_bytes().saturating_sub(before));
    }
    // Connections are closed when the bound is exceeded, so for a moment there may be more.
    let memory = wait_until("what is kept is within the bound", || {
        let memory = field(&good.call("status", &[]), "client_memory").unwrap();
        (number(&memory, "used") <= BOUND as u64).then_some(memory)
    });
    assert_eq!(number(&memory, "max"), BOUND as u64);
    // What the allocator keeps of what was freed is not known to the node.
    assert!(most < BOUND + (64 << 20), "{} MiB more", most >> 20);
    // The one that reads is never closed.
    assert_eq!(good.get(&["tree", "k7"]).unwrap().as_str().map(str::len), Some(50_039));
    drop(deaf);
}

#[test]
fn changes_of_other_nodes_beyond_the_memory_limit_are_taken_with_a_warning() {
    let first = NodeProcess::run("n1");
    let gossip = first.gossip.to_string();
    let join = ["join", &gossip, "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let arguments = [&join[..], &["--max-memory", "1MiB"]].concat();
    let second = NodeProcess::start_in(&first.network, "n2", &arguments);
    let (mut a, mut b) = (first.connect(), second.connect());
    for i in 0..30 {
        a.set(&["k", &i.to_string()], Value::from("x".repeat(50_000)));
    }
    wait_until("the second node has all of it", || b.get(&["k", "29"]));
    wait_until("it warns", || {
        (logged(&second, &["WARN", "--max-memory is 1.0 MiB"]).len() == 1).then_some(())
    });
    let warnings = field(&b.call("status", &[]), "warnings").unwrap();
    assert!(warnings[0].as_str().unwrap().contains("other nodes' changes are taken"), "{warnings}");
    let refused = b.set(&["new"], Value::from(1));
    assert_eq!(text(&refused, "code"), "memory_full");
    let smaller = b.set(&["k", "3"], Value::from("y".repeat(40_000)));
    assert_eq!(field(&smaller, "error"), None, "{smaller}");
    for i in 0..30 {
        a.call("delete_value", &[("path", array(&["k", &i.to_string()]))]);
    }
    wait_until("it says that it is over", || {
        (logged(&second, &["below --max-memory"]).len() == 1).then_some(())
    });
}

#[test]
fn who_is_refused_is_not_left_waiting() {
    let mut arguments = first(&network("refused"));
    arguments.extend(["--max-connections".into(), "3".into()]);
    let node = NodeProcess::start("n1", &strs(&arguments));
    let held: Vec<Client> = (0..3).map(|_| node.connect()).collect();
    let others: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(node.client).unwrap()).collect();
    for other in others {
        let mut other = other;
        // An error, or nothing; in any case the end.
        let _ = std::io::copy(&mut other, &mut std::io::sink());
    }
    drop(held);
}

#[test]
fn a_full_node_can_be_looked_at_from_its_own_machine() {
    let mut arguments = first(&network("looked-at"));
    arguments.extend(["--max-connections".into(), "2".into()]);
    let by_few_descriptors = ["sh", "-c", "ulimit -n 40; exec \"$@\"", "sh"].map(String::from);
    for shell in [&[][..], &by_few_descriptors] {
        let arguments = if shell.is_empty() { arguments.clone() } else { first(&network("few")) };
        let node = NodeProcess::start_by(shell, "n1", &strs(&arguments));
        let is_served = |client: &Client| field(&client.greeting, "error").is_none();
        let mut held = Vec::new();
        let refused = loop {
            let client = Client::try_connect(node.client).unwrap();
            if !is_served(&client) {
                break field(&client.greeting, "error").unwrap().to_string();
            }
            held.push(client);
            assert!(held.len() < 64);
        };
        // Silent ones take those places, too, and who comes then is told when there is one again.
        for said in ["as many as it allows", "for clients of its own machine", "try again in 5 s"] {
            assert!(refused.contains(said), "{refused}");
        }
        // Those that only look go when they have said nothing for a while.
        let looked = |command: &[&str]| {
            wait_until("there is a place to look from", || {
                let done = at(&node, command);
                (done.code == 0).then_some(done.stdout)
            })
        };
        assert!(looked(&["status"]).contains(" from its own machine to look"));
        assert!(looked(&["clients"]).contains("127.0.0.1:"));
        let top = ["top", "--once", "--every", "100ms", "--timeout", "60s"];
        assert!(looked(&top).contains(" ok "));
        let refused = at(&node, &["get", "a"]);
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert!(refused.stderr.contains("as many as it allows"), "{}", refused.stderr);
    }
}

#[test]
fn a_limit_for_files_is_like_a_full_disk_and_not_the_node_s_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = first(&network("file-limit"));
    arguments.extend(["--data-dir".into(), dir.path().display().to_string()]);
    arguments.extend(["--sync", "every-batch"].map(String::from));
    // In units of 512 bytes.
    let shell = ["sh", "-c", "ulimit -f 256; exec \"$@\"", "sh"].map(String::from);
    let mut node = NodeProcess::start_by(&shell, "n1", &strs(&arguments));
    let mut client = node.connect();
    let value = Value::from("x".repeat(60_000));
    let mut made = 0;
    let refusal = wait_until("a write is refused", || {
        let reply = client.set(&["a", &made.to_string()], value.clone());
        made += 1;
        assert!(made < 100, "no write is refused");
        field(&reply, "code")
    });
    assert_eq!(refusal, Value::from("storage_failed"));
    assert!(client.get(&["a", "0"]).is_some(), "it serves what it has");
    wait_until("the node says so", || logged(&node, &["File too large"]).pop());
    node.signal("TERM");
    // It ends as it should, and says that there is something that it could not write.
    assert_eq!(node.wait().code(), Some(1), "{:?}", node.log());
}
