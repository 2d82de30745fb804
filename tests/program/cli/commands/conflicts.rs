//! `conflicts`: what it asks for, how it prints what one node or several tell.

use std::io::{BufRead as _, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};

use distkv::client::{Fields, Message};
use distkv::model::path::Path;

use crate::cli::command::{at, cli_with, note, program, run};
use crate::cli::fake::{FakeNode, error, state};
use crate::processes::{NodeProcess, wait_until};

/// One version: its value, the nodes of its chain (ticks count up from 5), its tock.
fn version(value: Option<&[u8]>, chain: &[u8], tock: u64) -> Vec<u8> {
    let mut fields = Fields::new();
    if let Some(value) = value {
        fields.raw("value", value);
    }
    fields.raw("chain", chain).u64("tock", tock).encode()
}

const N2_N1: &[u8] =
    b"\x83\xa4node\xa2n2\xa4tick\x05\xa4prev\x83\xa4node\xa2n1\xa4tick\x03\xa4prev\xc0";
const N3: &[u8] = b"\x83\xa4node\xa2n3\xa4tick\x02\xa4prev\xc0";

fn conflict(number: u64, path: &str, winner: &[u8], loser: &[u8]) -> Fields {
    let mut inner = Fields::new();
    inner.u64("number", number).bool("changed", true).raw("winner", winner).raw("loser", loser);
    let mut fields = Fields::new();
    fields.raw("conflict", &inner.encode()).path("path", &path.parse().unwrap()).u64("depth", 0);
    fields
}

/// Two conflicts, at a.x and a.y.
fn two(first: u64) -> Vec<Fields> {
    let (on, off) = (version(Some(b"\x81\xa2on\xc3"), N2_N1, 17), version(None, N3, 16));
    let text = version(Some(b"\xa3a\x1bb"), N3, 9);
    vec![conflict(first, "x", &on, &off), conflict(first + 1, "y", &text, &off)]
}

fn stream(items: Vec<Fields>) -> Vec<Fields> {
    [vec![state("start")], items, vec![state("end")]].concat()
}

#[test]
fn both_versions_are_shown_with_who_made_them() {
    let node = FakeNode::start(|_| stream(two(3)));
    let done = cli_with(&node, &["conflicts", "a", "--limit", "2"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    assert_eq!(
        done.stdout,
        "3  a.x\n   kept  {\"on\":true}  n2:5 n1:3  tock 17\n   lost  (deleted)    n3:2       tock 16\n\
         4  a.y\n   kept  \"a\\u001bb\"  n3:2  tock 9\n   lost  (deleted)   n3:2  tock 16\n"
    );
    let asked = node.asked("conflicts");
    assert_eq!((asked.get("path").unwrap(), asked.u64("limit")), (&b"\xd5\x03\xa1a"[..], Some(2)));
    assert_eq!(asked.u64("nchain"), Some(8));
}

#[test]
fn a_time_is_shown_where_it_is_known_and_a_purged_deletion_has_no_tock() {
    let node = FakeNode::start(|_| {
        let mut winner = Fields::new();
        winner.raw("value", b"\x01").raw("chain", N3).u64("tock", 9);
        let winner = winner.u64("time", 1_700_000_000_000).encode();
        stream(vec![conflict(3, "x", &winner, &version(None, N3, 0))])
    });
    let done = cli_with(&node, &["conflicts", "a"]);
    assert_eq!(
        done.stdout,
        "3  a.x\n   kept  1          n3:2  tock 9  2023-11-14T22:13:20.000Z\n   lost  (deleted)  n3:2\n"
    );
    let done = cli_with(&node, &["conflicts", "a", "--json"]);
    assert!(done.stdout.contains("\"tock\":9,\"time\":\"2023-11-14T22:13:20.000Z\""), "{done:?}");
    assert!(done.stdout.contains("\"deleted\":true,\"chain\":[\"n3:2\"],\"tock\":0"), "{done:?}");
}

#[test]
fn programs_get_an_object_a_line() {
    let node = FakeNode::start(|_| stream(two(3)));
    let done = cli_with(&node, &["conflicts", "a", "--json"]);
    assert_eq!(
        done.stdout.lines().next(),
        Some(
            "{\"node\":\"fake\",\"number\":3,\"path\":\"a.x\",\"changed\":true,\
             \"winner\":{\"value\":{\"on\":true},\"chain\":[\"n2:5\",\"n1:3\"],\"tock\":17},\
             \"loser\":{\"deleted\":true,\"chain\":[\"n3:2\"],\"tock\":16}}"
        )
    );
    assert_eq!(done.stdout.lines().count(), 2);
}

#[test]
fn no_conflicts_and_dropped_ones_are_told_beside_the_output() {
    let none = cli_with(&FakeNode::start(|_| stream(Vec::new())), &["conflicts"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
    // Those of users are not told to everybody, so it must not seem that there are none.
    let own = "(those of users and access lists, below :n, are told to admins only)";
    let found = "no conflicts were found at fake since the start";
    assert_eq!(none.stderr, format!("{found} {own}\n"));
    for (place, told) in [(":n", own), (":n.acl.lamps", own), ("site", "")] {
        let none = cli_with(&FakeNode::start(|_| stream(Vec::new())), &["conflicts", place]);
        let told = if told.is_empty() { String::new() } else { format!(" {told}") };
        assert_eq!(none.stderr, format!("{found} below {place}{told}\n"));
        let none = FakeNode::start_for_admins(|_| stream(Vec::new()));
        let none = cli_with(&none, &["conflicts", place]);
        assert_eq!(none.stderr, format!("{found} below {place}\n"));
    }
    let node = FakeNode::start(|_| {
        let mut items = two(7);
        items[0].u64("dropped", 6);
        stream(items)
    });
    let done = cli_with(&node, &["conflicts", "a"]);
    assert!(done.stderr.starts_with("(6 before this are not listed at fake any more"), "{done:?}");
    let refusing = FakeNode::start(|_| vec![error("there is no action 'conflicts'", "x")]);
    assert_eq!(cli_with(&refusing, &["conflicts"]).code, 3);
}

/// A node that lists two conflicts, and tells the last of them again as one that comes.
fn followed(request: &Message) -> Vec<Fields> {
    match request.str("action") {
        Some("watch") => {
            assert_eq!(request.str("conflicts"), Some("only"));
            let (winner, loser) = (version(Some(b"\x01"), N3, 30), version(None, N2_N1, 29));
            let mut items = vec![state("start"), two(1).remove(1)];
            items.push(conflict(3, "z", &winner, &loser));
            items
        }
        Some("conflicts") => stream(two(1)),
        _ => vec![error("there is no such action", "unknown_action")],
    }
}

#[test]
fn following_prints_what_was_found_and_then_what_comes_each_once() {
    let node = FakeNode::start(followed);
    let done = cli_with(&node, &["conflicts", "a", "--follow", "--count", "3", "--json"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(
        note(&done.stderr).starts_with("following conflicts below a at 127.0.0.1:"),
        "{done:?}"
    );
    let number =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["number"].as_u64();
    let numbers: Vec<_> = done.stdout.lines().map(number).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3)]);

    let ending = FakeNode::start(|request| match request.str("action") {
        Some("watch") => vec![state("start"), state("end")],
        Some("conflicts") => stream(Vec::new()),
        _ => vec![error("there is no such action", "unknown_action")],
    });
    let done = cli_with(&ending, &["conflicts", "--follow", "--no-reconnect"]);
    assert_eq!(done.code, 1);
    assert!(done.stderr.contains("the node ended the watch"), "{}", done.stderr);
}

/// A node that ends each watch but the third at once. `lives` are those of its starts.
fn ending(lives: [u64; 3]) -> FakeNode {
    let watches = AtomicUsize::new(0);
    FakeNode::start(move |request| {
        let began = watches.load(Ordering::SeqCst);
        match request.str("action") {
            Some("watch") => match watches.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => vec![state("start"), state("end")],
                _ => vec![state("start")],
            },
            Some("cluster") => {
                let id =
                    Fields::new().str("name", "fake").u64("incarnation", lives[began - 1]).encode();
                vec![Fields::new().raw("id", &id).clone()]
            }
            // Each time there is one more.
            _ => {
                let (winner, loser) = (version(Some(b"\x01"), N3, 30), version(None, N2_N1, 29));
                let more =
                    (1..began as u64).map(|n| conflict(n + 2, &format!("z{n}"), &winner, &loser));
                let mut all: Vec<_> = two(1).into_iter().chain(more).collect();
                let limit = request.u64("limit").map_or(all.len(), |limit| limit as usize);
                stream(all.split_off(all.len() - limit))
            }
        }
    })
}

#[test]
fn following_goes_on_at_a_node_that_was_lost_with_what_it_found_meanwhile() {
    // The first one is not printed: the limit. Of the same life, it is not printed later either; a list of another life
    // is printed whole, but for what was printed.
    for (lives, expected) in [([7, 7, 7], "a.y a.z1 a.z2"), ([7, 8, 8], "a.y a.x a.z1 a.z2")] {
        let node = ending(lives);
        let count = expected.split(' ').count().to_string();
        let arguments = ["conflicts", "a", "--follow", "--limit", "1", "--count", &count, "--json"];
        let done = cli_with(&node, &arguments);
        assert_eq!(done.code, 0, "{done:?}");
        let path =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["path"].clone();
        let paths: Vec<_> =
            done.stdout.lines().map(|line| path(line).as_str().unwrap().to_owned()).collect();
        assert_eq!(paths.join(" "), expected, "{done:?}");
        let again = format!("at {} (node fake) again", node.address);
        assert_eq!(done.stderr.matches(&again).count(), 2, "{done:?}");
        assert_eq!(done.stderr.matches("ended the watch; connecting again").count(), 2, "{done:?}");
    }
}

/// The reply to `members`: this node, and others with state and client address.
fn members(others: &[(&str, &str, Option<&str>)]) -> Fields {
    let mut list = vec![0x90 | (others.len() as u8 + 1)];
    list.extend(Fields::new().str("name", "fake").str("state", "self").encode());
    for (name, state, client) in others {
        let mut member = Fields::new();
        member.str("name", name).str("state", state);
        match client {
            Some(client) => member.str("client", client),
            None => member.nil("client"),
        };
        list.extend(member.encode());
    }
    Fields::new().raw("result", &list).clone()
}

#[test]
fn all_nodes_tell_each_conflict_once_and_who_is_left_out_is_said() {
    let other = FakeNode::start_as("other", |request| match request.str("action") {
        Some("members") => vec![Fields::new().raw("result", b"\x90").clone()],
        _ => {
            // One that the first node has too, and one more between its two.
            let (winner, loser) =
                (version(Some(b"\x01"), N3, 12), version(Some(b"\x02"), N2_N1, 11));
            stream(vec![two(8).remove(0), conflict(9, "z", &winner, &loser)])
        }
    });
    let address = other.address.to_string();
    let node = FakeNode::start(move |request| match request.str("action") {
        Some("members") => vec![members(&[
            ("other", "up", Some(&address)),
            ("n2", "up", Some(&address)),
            ("n3", "down", Some(&address)),
            ("n4", "joining", None),
            ("n5", "left", None),
        ])],
        _ => stream(two(1)),
    });
    let done = cli_with(&node, &["conflicts", "a", "--all"]);
    assert_eq!(done.code, 1, "not all could be asked");
    let heads: Vec<_> = done.stdout.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(heads, ["fake 2  a.y", "other 9  a.z", "fake 1  a.x"], "by the winners' tocks");
    for words in
        ["n2 is left out: at its client address", "n3 is left out: it is down", "n4 is left"]
    {
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    }
    assert!(!done.stderr.contains("n5"), "{}", done.stderr);
    let last = cli_with(&node, &["conflicts", "a", "--all", "--limit", "1", "--json"]);
    assert_eq!(last.stdout.lines().count(), 1);
    assert!(last.stdout.contains("\"a.x\""), "{}", last.stdout);
}

/// Writes at two real nodes at once until some of them have met.
#[test]
fn real_nodes_find_conflicts_and_tell_them() {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    let at = |node: &NodeProcess, arguments: &[&str]| {
        let address = node.client.to_string();
        run(&[arguments, &["--connect", &address]].concat(), &[], b"")
    };
    assert_eq!(at(&n1, &["wait", "--members", "2"]).code, 0);
    let (mut one, mut two) = (n1.connect(), n2.connect());
    wait_until("two changes meet", || {
        for number in 0..200_u64 {
            let path = crate::processes::array(&["both", &format!("k{number}")]);
            for client in [&mut one, &mut two] {
                let fields = [("path", path.clone()), ("value", number.into())];
                client.send("set_value", &fields).unwrap();
            }
        }
        for _ in 0..200 {
            one.receive().unwrap();
            two.receive().unwrap();
        }
        let found = at(&n1, &["conflicts", "both", "--limit", "1"]);
        (found.code == 0 && found.stdout.contains("kept  ")).then_some(())
    });
    let both = at(&n1, &["conflicts", "--all", "--json"]);
    assert_eq!(both.code, 0, "{}", both.stderr);
    // The first one: of many, not all have a line in the log.
    let told: serde_json::Value =
        serde_json::from_str(both.stdout.lines().next().unwrap()).unwrap();
    assert!(told["path"].as_str().unwrap().starts_with("both.k"), "{told}");
    let (winner, loser) = (&told["winner"], &told["loser"]);
    assert_ne!(winner["chain"][0], loser["chain"][0]);
    assert!(winner["tock"].as_u64() >= loser["tock"].as_u64());
    // The log line has all of it.
    let line = wait_until("the log has it", || {
        let path = format!("path={} ", told["path"].as_str().unwrap());
        let logs = [n1.log(), n2.log()].concat();
        logs.into_iter().find(|line| line.contains("conflict") && line.contains(&path))
    });
    for field in [
        "kept=",
        "kept_chain=",
        "kept_tock=",
        "kept_value=",
        "lost=",
        "lost_chain=",
        "lost_tock=",
        "lost_value=",
    ] {
        assert!(line.contains(field), "{field}: {line}");
    }
}

/// Of two admins' changes of one list only one counts, and which one must not be hidden among what nobody asks for.
#[test]
fn an_admin_is_shown_conflicts_of_access_lists_with_the_others() {
    let n1 = NodeProcess::run("n1");
    let n2 = NodeProcess::join("n2", &[&n1]);
    assert_eq!(at(&n1, &["wait", "--members", "2"]).code, 0);
    let (mut one, mut two) = (n1.connect(), n2.connect());
    let mut meet = || {
        for number in 0..100_u64 {
            let path = crate::processes::array(&["acl", "lamps", &format!("k{number}")]);
            for (client, letters) in [(&mut one, "r"), (&mut two, "rw")] {
                let fields = [("path", path.clone()), ("value", letters.into())];
                client.send("set_internal", &fields).unwrap();
            }
        }
        for _ in 0..100 {
            one.receive().unwrap();
            two.receive().unwrap();
        }
    };
    let address = n1.client.to_string();
    let arguments = ["conflicts", "--follow", "--limit", "0", "--count", "1", "--json"];
    let mut following = program(&[&arguments[..], &["--connect", &address]].concat());
    let mut following = following.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(following.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(note(&said).starts_with("following conflicts below : at "), "{said}");
    wait_until("two changes meet", || {
        meet();
        following.try_wait().unwrap()
    });
    let path = |line: &str| {
        let told: serde_json::Value = serde_json::from_str(line).unwrap();
        told["path"].as_str().unwrap().to_owned()
    };
    let followed = following.wait_with_output().unwrap();
    let followed = String::from_utf8(followed.stdout).unwrap();
    assert!(path(followed.trim_end()).starts_with(":n.acl.lamps.k"), "{followed}");
    one.set(&["data"], 1.into());
    for all in [&[][..], &["--all"]] {
        let listed = at(&n1, &[&["conflicts", "--json"], all].concat());
        assert_eq!(listed.code, 0, "{listed:?}");
        let paths: Vec<String> = listed.stdout.lines().map(path).collect();
        assert!(paths.iter().any(|path| path.starts_with(":n.acl.lamps.k")), "{listed:?}");
    }
    let last = at(&n1, &["conflicts", "--limit", "1"]);
    assert_eq!(last.stdout.lines().count(), 3, "{last:?}");
}

/// Where there are conflicts of both, all are there, in the order in which the node has found them, each once.
#[test]
fn the_systems_own_conflicts_are_told_in_order_with_those_of_the_data() {
    let found = |number, dropped: u64| {
        let (winner, loser) = (version(Some(b"\x01"), N3, 30), version(None, N2_N1, 29));
        let mut found = conflict(number, &format!("k{number}"), &winner, &loser);
        if dropped > 0 {
            found.u64("dropped", dropped);
        }
        found
    };
    let node = FakeNode::start_for_admins(move |request| {
        let path = request.get("path").map(|path| Path::from_msgpack_value(path).unwrap());
        match (request.str("action"), path) {
            // Each of the lists tells of all that left them.
            (Some("conflicts"), Some(path)) if path == Path::system_root() => {
                stream(vec![found(7, 5), found(9, 0)])
            }
            (Some("conflicts"), Some(_)) => stream(vec![found(6, 5), found(10, 0)]),
            _ => vec![error("there is no such action", "unknown_action")],
        }
    });
    let done = cli_with(&node, &["conflicts", "--json"]);
    let number =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["number"].as_u64();
    let numbers: Vec<_> = done.stdout.lines().filter_map(number).collect();
    assert_eq!(numbers, [6, 7, 9, 10], "{done:?}");
    assert_eq!(
        note(done.stderr.trim_end()),
        "(5 before this are not listed at fake any more; see its log)"
    );
    let last = cli_with(&node, &["conflicts", "--json", "--limit", "2"]);
    let numbers: Vec<_> = last.stdout.lines().filter_map(number).collect();
    assert_eq!(numbers, [9, 10], "{last:?}");
}
