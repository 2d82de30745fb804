//! The end of a user's open connections, by commands: made again until it counts, and said only then.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use distkv::client::{Fields, Message};
use serde_json::Value as Json;

use super::Machine;
use crate::cli::command::{Done, cli};
use crate::cli::fake::FakeNode;
use crate::processes::{NodeProcess, wait_until};

/// What counts after the n-th time that the connections were ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wins {
    /// What the command has written.
    Command,
    /// A change of the user that did not know of it.
    Thief,
    /// The same by somebody else, who knew of it.
    OtherAdmin,
}

/// The record's newest event, and before it another one.
fn chain(node: u8, tick: u8, before: Option<u8>) -> Vec<u8> {
    let mut chain = vec![0x83, 0xa4];
    chain.extend(b"node\xa4n");
    chain.push(b'0' + node);
    chain.extend(b"~1\xa4tick");
    chain.push(tick);
    chain.extend(b"\xa4prev");
    match before {
        Some(tick) => chain.extend(self::chain(1, tick, None)),
        None => chain.push(0xc0),
    }
    chain
}

/// A node at which joe's connections are ended, with what counts then each time; the last one goes on for ever. Whether its
/// peers confirm that.
fn node(wins: &'static [Wins], is_confirmed: bool) -> FakeNode {
    node_with(wins, if is_confirmed { &Peers::Confirmed } else { &Peers::Late })
}

/// The peers of a node.
enum Peers {
    Confirmed,
    Late,
    /// Some are not linked.
    Unreached {
        names: &'static [&'static str],
        more: u64,
        unconfirmed: u64,
    },
}

impl Peers {
    fn confirmed(&self) -> bool {
        matches!(self, Peers::Confirmed)
    }
}

/// The same, with peers of which more is told.
fn node_with(wins: &'static [Wins], peers: &'static Peers) -> FakeNode {
    let ended = AtomicU64::new(0);
    let record = Mutex::new((chain(2, 1, None), None));
    FakeNode::start(move |request: &Message| match request.str("action") {
        Some("auth_get") => {
            let mut told = Fields::new();
            let (chain, id) = record.lock().unwrap().clone();
            told.str("name", "joe").str("role", "operator").raw("chain", &chain);
            if let Some(id) = id {
                told.bin("disconnect", &[id; 16]);
            }
            vec![told]
        }
        Some("auth_disconnect") => {
            assert!(request.get("chain").is_none(), "nobody who changes the user is in its way");
            assert!(request.get("timeout").is_some(), "it waits for the peers");
            let n = ended.fetch_add(1, Ordering::Relaxed);
            let tick = u8::try_from(n).unwrap() + 10;
            let who = wins.get(usize::try_from(n).unwrap()).or(wins.last()).unwrap();
            *record.lock().unwrap() = match who {
                Wins::Command => (chain(1, tick, None), Some(tick)),
                Wins::Thief => (chain(2, tick, None), None),
                Wins::OtherAdmin => (chain(3, tick, Some(tick)), Some(99)),
            };
            let mut reply = Fields::new();
            reply.bool("changed", true).bool("confirmed", peers.confirmed()).u64("tock", 9);
            if let Peers::Unreached { names, more, unconfirmed } = peers {
                // Names of fewer than 16 characters, fewer than 16 of them.
                let mut list = vec![0x90 | u8::try_from(names.len()).unwrap()];
                for name in *names {
                    list.push(0xa0 | u8::try_from(name.len()).unwrap());
                    list.extend(name.bytes());
                }
                reply.raw("unreached", &list);
                if *more > 0 {
                    reply.u64("unreached_more", *more);
                }
                if *unconfirmed > 0 {
                    reply.u64("unconfirmed", *unconfirmed);
                }
            }
            reply.raw("chain", &chain(1, tick, None)).bin("disconnect", &[tick; 16]);
            vec![reply]
        }
        _ => vec![Fields::new().str("network", "plant").clone()],
    })
}

fn run(node: &FakeNode, words: &[&str]) -> Done {
    let connect = node.address.to_string();
    cli(&[&["user"], words, &["--connect", &connect]].concat())
}

const DISCONNECT: [&str; 4] = ["disconnect", "joe", "--method", "token"];

#[test]
fn a_change_elsewhere_that_has_won_is_followed_by_the_same_command_s_again() {
    for wins in [&[Wins::Command][..], &[Wins::Thief, Wins::Thief, Wins::Command]] {
        let node = node(wins, true);
        let done = run(&node, &DISCONNECT);
        assert_eq!(
            (done.code, &*done.stdout),
            (0, "joe (token): its open connections are ended\n")
        );
        assert_eq!(node.count("auth_disconnect"), wins.len());
    }
}

#[test]
fn one_that_wins_each_time_makes_the_command_end_with_what_always_works() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("joe.token").to_str().unwrap().to_owned();
    fs::write(&file, "the one before").unwrap();
    for words in [&DISCONNECT[..], &["token", "joe", "--to", &file, "--force", "--disconnect"]] {
        let node = node(&[Wins::Thief], true);
        let done = run(&node, words);
        assert_eq!((done.code, &*done.stdout), (5, ""), "{words:?}: {done:?}");
        let [remove, add] =
            ["user remove joe --method token", "user add joe --method token --role operator"];
        let at = |says: &str| done.stderr.find(says).unwrap_or_else(|| panic!("{says}: {done:?}"));
        assert!(at(remove) < at(add), "{done:?}");
        let tries = node.count("auth_disconnect");
        assert!((2..=20).contains(&tries), "{tries}");
        // Nobody has the new token.
        assert_eq!(fs::read_to_string(&file).unwrap(), "the one before");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn of_two_admins_the_later_one_s_secret_counts_and_the_other_one_is_told() {
    let both = node(&[Wins::OtherAdmin], true);
    let done = run(&both, &DISCONNECT);
    assert_eq!((done.code, &*done.stdout), (0, "joe (token): its open connections are ended\n"));
    let done = run(&both, &["token", "joe", "--disconnect"]);
    assert_eq!((done.code, &*done.stdout), (5, ""), "{done:?}");
    assert!(done.stderr.contains("somebody else") && done.stderr.contains("again"), "{done:?}");
    // They do not go on replacing each other's.
    assert_eq!(both.count("auth_disconnect"), 2);
}

#[test]
fn where_not_all_peers_have_confirmed_it_that_is_said() {
    let node = node(&[Wins::Command], false);
    let done = run(&node, &DISCONNECT);
    assert_eq!(done.code, 0, "{done:?}");
    let says = "are ended at fake, and end at the others as this change arrives; not all that are linked have confirmed it";
    assert!(done.stdout.contains(says), "{done:?}");
    let done = run(&node, &[&DISCONNECT[..], &["--json"]].concat());
    let told: Json = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&told["disconnected"], &told["confirmed"]), (&true.into(), &false.into()));
    assert!(told["note"].as_str().unwrap().contains("not all"), "{told}");
}

#[test]
fn members_that_the_node_has_no_link_to_are_named_with_what_to_do() {
    const ONE: Peers = Peers::Unreached { names: &["n2"], more: 0, unconfirmed: 0 };
    const MANY: Peers = Peers::Unreached { names: &["n2", "n3"], more: 7, unconfirmed: 1 };
    let one = node_with(&[Wins::Command], &ONE);
    let done = run(&one, &DISCONNECT);
    assert_eq!(done.code, 0, "{done:?}");
    let says = [
        "are ended at fake, and at all that are linked with it; but fake has no link to n2 (it is cut off or down)",
        "connections there go on until it is back",
        "whoever has the secret can set another one there",
        "Type the command again when it is back; if it is gone for good, `distkv-node members forget NAME`",
    ];
    assert!(says.iter().all(|says| done.stdout.contains(says)), "{done:?}");
    let token = run(&one, &["token", "joe", "--disconnect"]);
    assert!(token.code == 0 && token.stdout.contains(says[0]), "{token:?}");
    let many = node_with(&[Wins::Command], &MANY);
    let done = run(&many, &DISCONNECT);
    let says =
        ["not all that are linked have confirmed it", "no link to n2, n3 and 7 more (they are"];
    assert!(says.iter().all(|says| done.stdout.contains(says)), "{done:?}");
    let done = run(&many, &[&DISCONNECT[..], &["--json"]].concat());
    let told: Json = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&told["disconnected"], &told["confirmed"]), (&true.into(), &false.into()));
    assert_eq!((&told["unreached"][1], &told["unreached_more"]), (&"n3".into(), &7.into()));
    assert!(told["note"].as_str().unwrap().contains("n2, n3 and 7 more"), "{told}");
}

/// A node answers nothing more over it, and closes it seconds later only, for older clients.
#[test]
fn who_ends_its_own_connection_asks_nothing_more_over_it() {
    let node = FakeNode::start(|request: &Message| match request.str("action") {
        Some("auth_get") => {
            vec![
                Fields::new()
                    .str("name", "joe")
                    .str("role", "admin")
                    .raw("chain", &chain(2, 1, None))
                    .clone(),
            ]
        }
        Some("auth_disconnect") => {
            let mut reply = Fields::new();
            reply.bool("changed", true).bool("own", true).bool("confirmed", true).u64("tock", 9);
            reply.raw("chain", &chain(1, 10, None)).bin("disconnect", &[10; 16]);
            vec![reply]
        }
        _ => vec![Fields::new().str("network", "plant").clone()],
    });
    let done = run(&node, &DISCONNECT);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("are ended at fake, and end at the others"), "{done:?}");
    // It was looked up before.
    assert_eq!((node.count("auth_get"), node.count("auth_disconnect")), (1, 1));
}

/// The nodes themselves know it, from the moment at which the link is gone.
#[test]
fn connections_at_a_node_that_is_down_are_not_said_to_be_ended() {
    let machine = Machine::new();
    let (joe, boss) = (machine.secret("joe", "geheim12"), machine.secret("boss", "adminpw1"));
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    machine.ok(&["user", "add", "joe", "--acl", "l", "--new-secret-file", &joe]);
    machine.ok(&["auth", "on", "password"]);
    let mut other = NodeProcess::join("n2", &[&machine.node]);
    let disconnect =
        ["user", "disconnect", "joe", "--user", "boss", "--secret-file", &boss, "--json"];
    let told = || -> Json { serde_json::from_str(&machine.ok(&disconnect)).unwrap() };
    wait_until("all have confirmed it", || (told()["confirmed"] == true).then_some(()));
    other.kill();
    // Until the system has closed its sockets, it may be linked still, and it confirms nothing.
    let named = wait_until("it is named", || {
        let told = told();
        assert_eq!((&told["disconnected"], &told["confirmed"]), (&true.into(), &false.into()));
        told.get("unreached").is_some().then_some(told)
    });
    assert_eq!(named["unreached"], serde_json::json!(["n2"]));
    // It stays so when membership holds it for down.
    let as_boss = ["status", "--user", "boss", "--secret-file", &boss, "--json"];
    wait_until("it is missed", || {
        machine.ok(&as_boss).contains("n2 has been silent").then_some(())
    });
    assert_eq!(told()["unreached"], serde_json::json!(["n2"]));
    let said = machine.ok(&disconnect[..7]);
    assert!(said.contains("no link to n2 (it is cut off or down)"), "{said}");
}

/// It is not missed before it has had its time to show itself; until then nobody says that it has confirmed anything.
#[test]
fn a_member_that_a_node_has_not_met_since_its_start_is_not_said_to_have_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let [joe, boss] = [("joe", "geheim12"), ("boss", "adminpw1")].map(|(name, secret)| {
        let file = folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(&file, format!("{secret}\n")).unwrap();
        file
    });
    let start = |more: &[&str]| {
        let options = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
        NodeProcess::start("n1", &[&["run", "--data-dir", &data], &options[..], more].concat())
    };
    // A member without a data directory has no say in what is purged, and is a member.
    let mut first = start(&[]);
    let ok = |node: &NodeProcess, words: &[&str]| {
        let done = cli(&[words, &["--connect", &node.client.to_string()]].concat());
        assert_eq!(done.code, 0, "{words:?}: {done:?}");
        done.stdout
    };
    ok(&first, &["user", "add", "boss", "--new-secret-file", &boss]);
    ok(&first, &["user", "add", "joe", "--acl", "l", "--new-secret-file", &joe]);
    ok(&first, &["auth", "on", "password"]);
    let mut others = ["n2", "n3"].map(|name| NodeProcess::join(name, &[&first]));
    let as_boss = ["--user", "boss", "--secret-file", &boss, "--json"];
    let disconnect = [&["user", "disconnect", "joe"][..], &as_boss].concat();
    let told =
        |node: &NodeProcess| -> Json { serde_json::from_str(&ok(node, &disconnect)).unwrap() };
    wait_until("all have confirmed it", || (told(&first)["confirmed"] == true).then_some(()));
    let known = std::path::Path::new(&data).join("peers");
    let is_written = || {
        let text = fs::read_to_string(&known).unwrap_or_default();
        ["n2", "n3"].iter().all(|name| text.contains(&format!(" {name}\n")))
    };
    wait_until("it knows both over a restart", || is_written().then_some(()));
    others.iter_mut().for_each(NodeProcess::kill);
    first.kill();
    let again = start(&["--peer-wait", "0s"]);
    let told = told(&again);
    assert_eq!(
        (&told["confirmed"], &told["unreached"]),
        (&false.into(), &serde_json::json!(["n2", "n3"]))
    );
}

#[test]
fn where_nobody_must_log_in_it_is_not_said_that_connections_are_ended() {
    let machine = Machine::new();
    let (joe, boss) = (machine.secret("joe", "geheim12"), machine.secret("boss", "adminpw1"));
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    machine.ok(&["user", "add", "joe", "--role", "user", "--new-secret-file", &joe]);
    let password = ["user", "password", "joe", "--new-secret-file", &joe, "--disconnect"];
    for command in [&["user", "disconnect", "joe"][..], &password] {
        let said = machine.ok(command);
        assert!(said.contains("go on, since clients need not log in now"), "{said}");
        assert!(!said.contains("are ended"), "{said}");
        let told: Json =
            serde_json::from_str(&machine.ok(&[command, &["--json"]].concat())).unwrap();
        assert_eq!(told["disconnected"], false, "{told}");
        assert!(told["note"].as_str().unwrap().contains("need not log in"), "{told}");
    }
    machine.ok(&["auth", "on", "password"]);
    let as_boss = ["user", "disconnect", "joe", "--user", "boss", "--secret-file", &boss];
    assert_eq!(machine.ok(&as_boss), "joe (password): its open connections are ended\n");
    let told: Json =
        serde_json::from_str(&machine.ok(&[&as_boss[..], &["--json"]].concat())).unwrap();
    assert_eq!((&told["disconnected"], &told["confirmed"]), (&true.into(), &true.into()));
    assert!(told.get("note").is_none(), "{told}");
}

/// The clients of a network do not take it for one that is broken: it is a refusal, and says what to do.
#[test]
fn a_user_that_changes_itself_too_often_is_refused_and_told_so_by_the_command() {
    let machine = Machine::new();
    let (joe, boss) = (machine.secret("joe", "geheim12"), machine.secret("boss", "adminpw1"));
    machine.ok(&["user", "add", "boss", "--new-secret-file", &boss]);
    machine.ok(&["user", "add", "joe", "--acl", "l", "--new-secret-file", &joe]);
    machine.ok(&["auth", "on", "password"]);
    let own = ["--user", "joe", "--secret-file", &joe];
    let disconnect = [&["user", "disconnect", "joe"][..], &own].concat();
    let refused = (0..100).map(|_| machine.run(&disconnect)).find(|done| done.code != 0);
    let refused = refused.expect("it is refused");
    assert_eq!(refused.code, 3, "{refused:?}");
    let says = ["too often at this node", "nothing was changed", "try again in ", "(too_many)"];
    assert!(says.iter().all(|says| refused.stderr.contains(says)), "{refused:?}");
    machine.ok(&[&["whoami"][..], &own].concat());
}
