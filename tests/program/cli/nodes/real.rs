//! Real nodes as processes: how they start, what they say, how they end; and all commands
//! against them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command};
use std::time::Instant;

use distkv::client::{Connection, Fields, HostPort, Options};
use distkv::model::path::Path;
use distkv::rt;
use serde_json::Value as Json;

use crate::cli::command::{at, cli, note, ok, program, run, until_met};
use crate::processes::{GOODBYE, NodeProcess, wait_until};

/// Ports that nobody else has.
const ANY: [&str; 4] = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];

/// A command that goes on for longer, line by line. It is killed when this is dropped.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Running {
        let mut child = program(arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }

    /// Starts it, and waits for its first line on standard error.
    fn start_and_hear(arguments: &[&str]) -> Running {
        let mut running = Running::start(arguments);
        let mut first = String::new();
        let mut stderr = BufReader::new(running.child.stderr.take().unwrap());
        stderr.read_line(&mut first).unwrap();
        assert!(first.contains(" at 127.0.0.1:"), "{first}");
        running
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn json(&mut self) -> Json {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args(["-s", name, &pid]).status().unwrap().success());
    }

    /// What it still prints, and its exit code.
    fn finish(mut self) -> (String, Option<i32>) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn three() -> [NodeProcess; 3] {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    let n3 = NodeProcess::join("n3", &[&n1, &n2]);
    for node in [&n1, &n2, &n3] {
        ok(node, &["wait", "--members", "3"]);
    }
    [n1, n2, n3]
}

#[test]
fn a_node_says_where_it_is_and_ends_in_time() {
    for signal in ["TERM", "INT"] {
        let mut node = Running::start(&[&["run", "--name", "n1"][..], &ANY].concat());
        let line = node.line();
        assert!(line.starts_with("node n1 of network distkv: clients at 127.0.0.1:"), "{line}");
        assert!(line.contains(", peers at 127.0.0.1:") && !line.contains(":0"), "{line}");
        let asked = Instant::now();
        node.signal(signal);
        assert_eq!(node.finish(), (String::new(), Some(0)));
        assert!(asked.elapsed() < GOODBYE);
    }
}

#[test]
fn a_second_signal_ends_a_node_at_once() {
    let peer = NodeProcess::run("n1");
    let mut node = NodeProcess::join("n2", &[&peer]);
    ok(&node, &["wait", "--members", "2"]);
    // Its goodbye takes a while when the other one does not take it.
    peer.freeze();
    node.signal("TERM");
    wait_until("it takes leave", || {
        node.log().iter().any(|line| line.contains("stopping")).then_some(())
    });
    // One that comes at once is no second one.
    wait_until("a second signal is heard", || {
        node.signal("TERM");
        node.log().iter().any(|line| line.contains("by a second signal")).then_some(())
    });
    assert_eq!(node.wait().code(), Some(128 + 15));
}

#[test]
fn a_node_that_still_looks_for_its_network_ends_in_time_too() {
    let mut node = program(&[&["join", "127.0.0.1:1", "--name", "n1"][..], &ANY].concat());
    let mut child = node.spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    // It logs once it runs.
    log.next().unwrap().unwrap();
    let asked = Instant::now();
    let running = Running { lines: BufReader::new(child.stdout.take().unwrap()), child };
    running.signal("TERM");
    assert_eq!(running.finish(), (String::new(), Some(0)));
    assert!(asked.elapsed() < GOODBYE);
}

#[test]
fn options_win_over_the_configuration_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let text = "name = \"file\"\nnetwork = \"plant\"\njson = true\n\
                client = \"[::1]:0\"\ngossip = \"127.0.0.1:0\"\nlog = \"error\"\n";
    std::fs::write(&file, text).unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let arguments = [&["run", "--name", "option"][..], &config].concat();
    let mut node = Running::start(&arguments);
    let said = node.json();
    assert_eq!((said["name"].as_str(), said["network"].as_str()), (Some("option"), Some("plant")));
    assert!(said["client"].as_str().unwrap().starts_with("[::1]:"), "{said}");
    node.signal("TERM");
    assert_eq!(node.finish().1, Some(0));
}

#[test]
fn the_host_s_name_is_the_node_s_unless_told_otherwise() {
    let host = std::process::Command::new("uname").arg("-n").output().unwrap().stdout;
    let host = String::from_utf8(host).unwrap();
    let mut node = Running::start(&[&["run", "--json"][..], &ANY].concat());
    assert_eq!(node.json()["name"].as_str(), Some(host.trim()));
}

#[test]
fn a_port_in_use_is_told_in_one_line() {
    let node = NodeProcess::run("n1");
    let (client, gossip) = (node.client.to_string(), node.gossip.to_string());
    for arguments in [
        ["run", "--name", "n2", "--client", &client, "--gossip", "127.0.0.1:0"],
        ["run", "--name", "n2", "--client", "127.0.0.1:0", "--gossip", &gossip],
    ] {
        let second = cli(&arguments);
        assert_eq!((second.code, second.stdout.as_str()), (1, ""));
        assert_eq!(second.stderr.lines().count(), 1, "{}", second.stderr);
        assert!(second.stderr.contains("in use"), "{}", second.stderr);
    }
}

#[test]
fn a_peer_that_cannot_be_looked_up_is_told_and_tried_again() {
    let join = [&["join", "no..such..host", "--name", "n1"][..], &ANY].concat();
    let mut child = program(&join).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_told = |line: &str| line.contains("no peer has answered") && line.contains("no..such");
    assert!(log.any(|line| is_told(&line.unwrap())));
    let running = Running { lines: BufReader::new(child.stdout.take().unwrap()), child };
    running.signal("TERM");
    assert_eq!(running.finish().1, Some(0));
}

#[test]
fn sighup_changes_the_log_level() {
    let said = |node: &NodeProcess, text: &str| {
        wait_until(text, || node.log().iter().any(|line| line.contains(text)).then_some(()));
    };
    let plain = NodeProcess::run("n1");
    plain.signal("HUP");
    said(&plain, "the log level is debug now");
    plain.signal("HUP");
    said(&plain, "the log level is info now");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    std::fs::write(&file, "log = \"warn\"\n").unwrap();
    let arguments = [&["run", "--config", file.to_str().unwrap()][..], &ANY].concat();
    let configured = NodeProcess::start("n2", &arguments);
    std::fs::write(&file, "log = \"info,distkv::node=trace\"\n").unwrap();
    configured.signal("HUP");
    said(&configured, "the log level is info,distkv::node=trace now");
    std::fs::write(&file, "log = \"loud\"\n").unwrap();
    configured.signal("HUP");
    said(&configured, "stays as it is: \"loud\" is no level");
    assert!(configured.log().iter().all(|line| !line.contains('\u{1b}')), "no colours in files");
}

/// Whatever has come to stand in the file's place: signals do not wait for it.
#[test]
fn a_node_ends_although_its_configuration_file_cannot_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    std::fs::write(&file, "log = \"info\"\n").unwrap();
    let arguments = [&["run", "--config", file.to_str().unwrap()][..], &ANY].concat();
    let mut node = NodeProcess::start("n1", &arguments);
    std::fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    node.signal("HUP");
    wait_until("it says so", || {
        let is_told =
            |line: &String| line.contains("stays as it is") && line.contains("not a file");
        node.log().iter().any(is_told).then_some(())
    });
    node.signal("TERM");
    assert_eq!(node.wait().code(), Some(0));
    // A pipe that is given at the start is read.
    let pipe = folder.path().join("pipe").to_str().unwrap().to_owned();
    let script = "mkfifo \"$0\"; echo 'log = \"warn\"' > \"$0\" & exec \"$@\" --config \"$0\"";
    let by = ["sh", "-c", script, &pipe].map(str::to_owned);
    let node = NodeProcess::start_by(&by, "n2", &[&["run"][..], &ANY].concat());
    assert!(node.log().iter().all(|line| !line.contains("INFO")), "{:?}", node.log());
}

#[test]
fn a_node_says_that_the_variable_for_keys_is_not_for_nodes() {
    let by = ["env", "DISTKV_KEY=/nowhere/key"].map(str::to_owned);
    let node = NodeProcess::start_by(&by, "n1", &[&["run"][..], &ANY].concat());
    wait_until("it says so", || {
        let is_told = |line: &String| {
            ["WARN", "DISTKV_KEY", "--key FILE"].iter().all(|word| line.contains(word))
        };
        node.log().iter().any(is_told).then_some(())
    });
}

#[test]
fn the_demo_s_own_words_work() {
    let mut demo = Running::start(&["demo", "--port", "0"]);
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| !line.contains("Ctrl-C")) {
        lines.push(demo.line());
    }
    let page = lines[0].strip_prefix("page: ").expect("where to look comes first");
    assert!(lines[1].starts_with("to change data on it, log in with this token: "), "{lines:?}");
    for (number, line) in lines.iter().skip(2).take(3).enumerate() {
        assert!(line.starts_with(&format!("node n{} of network demo: ", number + 1)), "{line}");
    }
    let curl = ["-s", "-H", "Accept: text/html", page];
    let shown = std::process::Command::new("curl").args(curl).output().unwrap();
    assert!(String::from_utf8(shown.stdout).unwrap().contains("<main id=\"view\""));
    let command = |word: &str| {
        // Behind the program's name there is a quote where its path has spaces.
        let said = [format!("distkv-node {word} "), format!("distkv-node' {word} ")];
        let line = lines.iter().find(|line| said.iter().any(|words| line.contains(words)));
        let line = line.unwrap_or_else(|| panic!("{word} is not in {lines:#?}"));
        std::process::Command::new("sh").args(["-c", line]).output().unwrap()
    };
    let set = command("set");
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let get = wait_until("the value on the other node", || {
        let get = command("get");
        get.status.success().then_some(get)
    });
    assert_eq!(String::from_utf8(get.stdout).unwrap(), "{\n  \"on\": true\n}\n");
    assert!(command("members").status.success());
    let asked = Instant::now();
    demo.signal("INT");
    assert_eq!(demo.finish(), (String::new(), Some(0)));
    assert!(asked.elapsed() < GOODBYE);
}

#[test]
fn the_secured_demo_s_own_words_show_what_each_may_do() {
    let mut demo = Running::start(&["demo", "--secure", "--port", "0"]);
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| !line.contains("Ctrl-C")) {
        lines.push(demo.line());
    }
    let typed = |words: &str| {
        let said = [format!("distkv-node {words}"), format!("distkv-node' {words}")];
        let line = lines.iter().find(|line| said.iter().any(|words| line.contains(words)));
        let line = line.unwrap_or_else(|| panic!("{words} is not in {lines:#?}"));
        let output = std::process::Command::new("sh").args(["-c", line]).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), said)
    };
    let (code, said) = typed("set site.lamp");
    assert_eq!(code, 0, "{said}");
    wait_until("the user reads it", || {
        let (code, said) = typed("get site.lamp");
        (code == 0 && said == "{\n  \"on\": true\n}\n").then_some(())
    });
    let (code, said) = typed("whoami");
    assert!(code == 0 && said.contains("joe (token), role user"), "{said}");
    let (code, said) = typed("set private.plans");
    assert!(code == 3 && said.contains("(denied)"), "{said}");
    let (code, said) = typed("tree --connect");
    assert!(code == 3 && said.contains("log in"), "{said}");
    let (code, said) = typed("tree --ticket");
    assert!(code == 0 && said.contains("site.lamp"), "{said}");
    let (code, said) = typed("members");
    assert!(code == 0 && said.contains("secured"), "{said}");
    let (code, said) = typed("acl explain joe");
    assert!(code == 0 && said.contains("joe at private.plans: nothing"), "{said}");
    let key = lines.iter().find(|line| line.contains(": the key file")).unwrap();
    let folder = std::path::Path::new(key.split(": ").next().unwrap()).parent().unwrap();
    assert!(folder.exists());
    demo.signal("INT");
    assert_eq!(demo.finish(), (String::new(), Some(0)));
    assert!(!folder.exists(), "it is left behind");
}

#[test]
fn a_demo_ends_with_its_terminal_and_leaves_nothing_behind() {
    let mut demo = Running::start(&["demo", "--secure", "--nodes", "2", "--port", "0", "--json"]);
    assert!(demo.json()["client"].is_string() && demo.json()["client"].is_string());
    let files = demo.json();
    let key = std::path::Path::new(files["key_file"].as_str().unwrap());
    assert!(key.exists());
    // The shell sends it, and so does the system when the shell has ended.
    demo.signal("HUP");
    demo.signal("HUP");
    wait_until("its folder is gone", || (!key.parent().unwrap().exists()).then_some(()));
    assert_eq!(demo.finish(), (String::new(), Some(0)));
}

#[test]
fn what_one_node_takes_all_give() {
    let [n1, n2, n3] = three();
    let n3_at = n3.client.to_string();
    let mut watch = Running::start_and_hear(&["watch", "a", "--json", "--connect", &n3_at]);
    assert!(
        ok(&n1, &["set", "a.b", "{\"x\": [1, 2.5]}", "--copies", "2"]).contains("a.b: set (n1~")
    );
    assert_eq!(ok(&n2, &["get", "a.b"]), "{\n  \"x\": [\n    1,\n    2.5\n  ]\n}\n");
    let seen = watch.json();
    assert_eq!((seen["path"].as_str(), &seen["value"]["x"][1]), (Some("a.b"), &Json::from(2.5)));

    // Preconditions, as `get` shows them.
    let got: Json = serde_json::from_str(&ok(&n2, &["get", "a.b", "--json", "--chain"])).unwrap();
    let newest = got["chain"][0].as_str().unwrap();
    ok(&n2, &["set", "a.b", "1", "--chain", newest, "--copies", "2"]);
    let stale = at(&n1, &["set", "a.b", "2", "--chain", newest]);
    assert_eq!(stale.code, 5);
    assert!(stale.stderr.contains("(chain_mismatch)"), "{}", stale.stderr);
    assert!(at(&n1, &["set", "a.b", "2", "--if-new"]).stderr.contains("(already_exists)"));
    assert!(at(&n1, &["set", "a.b", "2", "--if-value", "5"]).stderr.contains("(data_mismatch)"));
    ok(&n1, &["set", "a.b", "2", "--if-value", "1", "--copies", "2"]);
    assert!(ok(&n3, &["set", "a.b", "2", "--idem"]).contains("the same value"));
    let more = until_met(|| at(&n1, &["set", "a.b", "3", "--copies", "5", "--timeout", "300ms"]));
    assert_eq!(more.code, 7);
    assert!(more.stderr.contains("(unknown_fate)"), "{}", more.stderr);

    ok(&n1, &["set", "a.c.d", "\"deep\"", "--copies", "2"]);
    let tree = ok(&n3, &["tree", "a"]);
    assert_eq!(tree, "a.b    3\na.c.d  \"deep\"\n");
    assert_eq!(ok(&n3, &["tree", "a", "--depth", "1"]), "a.b  3\n");
    assert!(ok(&n2, &["delete", "a.b"]).contains("a.b: deleted (n2~"));
    assert_eq!(ok(&n2, &["delete", "a.b"]), "a.b: nothing to delete\n");
    assert_eq!(ok(&n2, &["delete", "a", "--recursive"]), "a: 1 deleted\n");
    let gone = at(&n2, &["get", "a.c.d"]);
    assert_eq!((gone.code, gone.stderr.as_str()), (1, "error: a.c.d has no value\n"));
    assert_eq!(ok(&n2, &["tree", "nowhere"]), "");
    let mut last = Json::Null;
    while last["path"] != "a.c.d" || last["deleted"] != true {
        last = watch.json();
    }
}

#[test]
fn a_tree_of_many_entries_comes_whole() {
    const ENTRIES: usize = 3000;
    let node = NodeProcess::run("n1");
    let to = HostPort::parse(&node.client.to_string(), None).unwrap();
    rt::block_on(async {
        let connection = Connection::connect(&to, Options::default()).await.unwrap();
        let writes = (0..ENTRIES).map(|number| {
            let path: Path = format!("many.of.them:{number}").parse().unwrap();
            let mut fields = Fields::at(&path);
            fields.u64("value", number as u64);
            let connection = &connection;
            async move { connection.request("set_value", &fields).await.unwrap() }
        });
        futures::future::join_all(writes).await;
    });
    let tree = ok(&node, &["tree", "many", "--json"]);
    let numbers: Vec<u64> = tree
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).unwrap()["value"].as_u64().unwrap())
        .collect();
    assert!(numbers.iter().copied().eq(0..ENTRIES as u64));
    let shown = ok(&node, &["tree"]);
    assert!(shown.starts_with("many.of.them:0    0\nmany.of.them:1    1\n"), "{shown}");
}

#[test]
fn messages_go_to_all_who_listen() {
    let [n1, _n2, n3] = three();
    let n3_at = n3.client.to_string();
    let arguments = ["monitor", "alarm.#", "--count", "2", "--json", "--connect", &n3_at];
    let mut monitor = Running::start_and_hear(&arguments);
    ok(&n1, &["send", "alarm.door", "{\"open\": true}"]);
    let expected = serde_json::json!({"topic": "alarm.door", "data": {"open": true}});
    assert_eq!(monitor.json(), expected);
    ok(&n3, &["send", "alarm.text", "-s", "hello"]);
    assert_eq!(monitor.json()["data"], "hello");
    assert_eq!(monitor.finish(), (String::new(), Some(0)));
}

#[test]
fn operators_see_who_is_there_and_who_leaves() {
    let [n1, n2, mut n3] = three();
    let status: Json = serde_json::from_str(&ok(&n1, &["status", "--json"])).unwrap();
    assert_eq!((&status["ready"], &status["members"]), (&Json::from(true), &Json::from(3)));
    let shown = ok(&n1, &["status"]);
    let is_ready = |line: &str| line.split_whitespace().eq(["ready", "yes"]);
    assert!(shown.lines().any(is_ready), "{shown}");
    let members = ok(&n2, &["members", "--json"]);
    let members: Vec<Json> =
        members.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut names: Vec<_> = members.iter().map(|m| m["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["n1", "n2", "n3"]);
    assert!(ok(&n2, &["members"]).starts_with("NAME  STATE"));

    ok(&n1, &["set", "a", "1", "--copies", "2"]);
    let state = ok(&n2, &["state"]);
    let life = status["life"].as_str().unwrap();
    assert!(life.starts_with("n1~"), "{life}");
    assert!(state.lines().any(|line| line.starts_with(&format!("{life}  1     1"))), "{state}");
    let state: Json = serde_json::from_str(&ok(&n2, &["state", "--json"])).unwrap();
    assert_eq!(state["nodes"][life], 1);

    assert_eq!(ok(&n3, &["leave"]), "n3 has left\n");
    assert_eq!(n3.wait().code(), Some(0));
    wait_until("the others see that n3 has left", || {
        let members = ok(&n1, &["members", "--json"]);
        members
            .lines()
            .any(|line| line.contains("\"n3\"") && line.contains("\"left\""))
            .then_some(())
    });
    let alone = wait_until("it hears of the node in time", || {
        let alone = at(&n1, &["wait", "--members", "3", "--timeout", "300ms"]);
        assert_eq!(alone.code, 1, "{}", alone.stderr);
        (!alone.stderr.contains("no answer from")).then_some(alone)
    });
    assert!(alone.stderr.contains("sees 2 members"), "{}", alone.stderr);
}

#[test]
fn a_delete_member_that_is_gone_is_missed_and_forgotten() {
    let [mut n1, n2, n3] = three();
    let row = |name: &str, word: &str| {
        let members = ok(&n2, &["members", "--json"]);
        let row = members.lines().find(|line| line.contains(&format!("\"name\":\"{name}\"")));
        row.is_some_and(|row| row.contains(word)).then_some(())
    };
    // Without data directories one node purges for all: the first by name.
    wait_until("n1 is the Delete group", || row("n1", "\"delete_member\":true"));
    ok(&n2, &["set", "a", "1", "--copies", "2"]);
    n1.kill();
    let here = at(&n2, &["members", "forget", "n3"]);
    assert_eq!(here.code, 3);
    assert!(
        here.stderr.contains("n3: that node is up, and not in the Delete group"),
        "{}",
        here.stderr
    );
    assert!(at(&n2, &["members", "forget", "n9"]).stderr.contains("(not_found)"));
    ok(&n2, &["delete", "a"]);
    wait_until("n1 is missed", || row("n1", "\"away_ms\":"));
    for node in [&n2, &n3] {
        wait_until("everybody is warned", || {
            let status: Json = serde_json::from_str(&ok(node, &["status", "--json"])).unwrap();
            status["warnings"][0].as_str()?.contains("members forget n1").then_some(())
        });
    }
    let shown = ok(&n2, &["members"]);
    assert!(shown.contains("missed ") && shown.contains("warning: n1 (for "), "{shown}");
    ok(&n2, &["members", "forget", "n1"]);
    let again = ok(&n2, &["members", "forget", "n1"]);
    assert_eq!(again, "n1: not in the Delete group; this node does not miss it any more\n");
    wait_until("n1 is no member any more", || row("n1", "\"delete_member\":false"));
    wait_until("n1 is down", || row("n1", "\"state\":\"down\""));
    let again = ok(&n2, &["members", "forget", "n1"]);
    assert_eq!(again, "n1: not in the Delete group; this node does not miss it any more\n");
    for node in [&n2, &n3] {
        wait_until("the deleted entry is purged", || {
            let status: Json = serde_json::from_str(&ok(node, &["status", "--json"])).unwrap();
            (status["tombstones"] == 0 && status["warnings"] == Json::Array(Vec::new()))
                .then_some(())
        });
    }
    assert!(ok(&n3, &["state", "--resync"]).contains("no split is healing"));
    // It stands in no chain any more: once membership has given it up, it is not shown.
    let nodes = |arguments: &[&str]| {
        let state: Json = serde_json::from_str(&ok(&n3, arguments)).unwrap();
        let nodes = state["nodes"].as_object().unwrap().keys();
        let name = |life: &String| life.split('~').next().map(str::to_owned);
        nodes.filter_map(name).collect::<Vec<String>>()
    };
    wait_until("n1 is over", || (nodes(&["state", "--json"]) == ["n2", "n3"]).then_some(()));
    assert_eq!(nodes(&["state", "--json", "--over"]), ["n1", "n2", "n3"]);
}

#[test]
fn a_member_that_is_not_in_the_delete_group_is_not_missed_from_the_moment_on_in_which_it_is_forgotten()
 {
    let [_n1, n2, mut n3] = three();
    let missed = || {
        let status: Json = serde_json::from_str(&ok(&n2, &["status", "--json"])).unwrap();
        let warnings = status["warnings"].to_string();
        (status["silent"] != Json::Null, warnings.contains("n3"))
    };
    n3.kill();
    wait_until("n3 is missed", || (missed() == (true, true)).then_some(()));
    let told = ok(&n2, &["members", "forget", "n3"]);
    assert_eq!(told, "n3: not in the Delete group; this node does not miss it any more\n");
    assert_eq!(missed(), (false, false));
}

#[test]
fn a_read_only_node_refuses_writes_and_gives_reads() {
    let arguments = [&["run", "--init", "{\"site\": \"main\"}"][..], &ANY].concat();
    let first = NodeProcess::start("n1", &arguments);
    let gossip = first.gossip.to_string();
    let node = NodeProcess::start("n2", &[&["join", &gossip, "--read-only"][..], &ANY].concat());
    let set = at(&node, &["set", "a", "1"]);
    assert_eq!(set.code, 3);
    assert!(set.stderr.contains("(read_only)"), "{}", set.stderr);
    assert_eq!(ok(&node, &["get", ":"]), "{\n  \"site\": \"main\"\n}\n");
}

#[test]
fn a_node_keeps_its_peers_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("peers");
    let file = file.to_str().unwrap();
    let n1 = NodeProcess::run("n1");
    let gossip = n1.gossip.to_string();
    let mut n2 = NodeProcess::start_in(
        &n1.network,
        "n2",
        &[&["join", &gossip, "--peer-file", file][..], &ANY].concat(),
    );
    ok(&n2, &["wait", "--members", "2"]);
    wait_until("the file has the peer", || {
        std::fs::read_to_string(file).ok().filter(|text| text.contains(&gossip))
    });
    n2.signal("TERM");
    assert_eq!(n2.wait().code(), Some(0));
    let arguments = [&["run", "--peer-file", file][..], &ANY].concat();
    let again = NodeProcess::start_in(&n1.network, "n2", &arguments);
    ok(&again, &["wait", "--members", "2"]);
}

#[test]
fn with_several_addresses_commands_go_to_whichever_node_is_up() {
    let [mut n1, n2, n3] = three();
    let all = [&n1, &n2, &n3].map(|node| node.client.to_string()).join(",");
    let ask = |arguments: &[&str]| {
        let done = run(&[arguments, &["--connect", &all]].concat(), &[], b"");
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
        done.stdout
    };
    let watching = ["watch", "site", "--json", "--connect", all.as_str()];
    let mut watch = Running::start(&watching);
    let mut stderr = BufReader::new(watch.child.stderr.take().unwrap());
    let mut first = String::new();
    stderr.read_line(&mut first).unwrap();
    assert!(note(&first).starts_with("watching site at n"), "{first}");
    assert!(ask(&["set", "site.lamp", "1", "--copies", "2"]).contains("set (n"));
    assert_eq!(watch.json()["value"], 1);

    // Whichever it was, the watch and the commands go on without it.
    n1.kill();
    for number in 2..10 {
        let value = number.to_string();
        // Which of the two is asked next is up to the machine.
        ask(&["set", "site.lamp", &value, "--copies", "1"]);
        assert_eq!(ask(&["get", "site.lamp"]).trim(), value);
    }
    while watch.json()["value"] != 9 {}
    ask(&["status"]);
    assert!(ask(&["wait"]).contains(" is ready and sees "));
    ask(&["conflicts"]);
    assert!(ask(&["delete", "site.lamp", "--copies", "1"]).contains("deleted (n"));
    assert_eq!(watch.json()["deleted"], true);
    assert_eq!(ask(&["delete", "site", "--recursive"]), "site: nothing to delete\n");

    let refused = run(&["set", "site", "1", "--if-value", "5", "--connect", &all], &[], b"");
    assert_eq!(refused.code, 5);
    assert!(refused.stderr.contains("the node refuses: "), "{}", refused.stderr);
    for (timeout, code, said) in [("500ms", 6, "--connect"), ("0s", 2, "--timeout")] {
        let nobody = ["get", "site", "--connect", "127.0.0.1:1,127.0.0.1:2", "--timeout", timeout];
        let nobody = run(&nobody, &[], b"");
        assert_eq!(nobody.code, code, "{}", nobody.stderr);
        assert!(nobody.stderr.contains(said), "{}", nobody.stderr);
    }
    let waited = ["wait", "--connect", "127.0.0.1:1,127.0.0.1:2", "--timeout", "500ms"];
    let waited = run(&waited, &[], b"");
    assert_eq!(waited.code, 1);
    for address in ["127.0.0.1:1", "127.0.0.1:2"] {
        assert!(waited.stderr.contains(address), "{}", waited.stderr);
    }
}
