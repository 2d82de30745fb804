//! What operators ask about members, the Delete group and the healing of a split, against a scripted
//! node.

use std::sync::atomic::{AtomicUsize, Ordering};

use distkv::client::{Fields, Message};

use crate::cli::command::{cli, cli_with, cli_with_input};
use crate::cli::fake::{FakeNode, error};

/// What a node says while n3 is missed.
const WARNING: &str = "n3 (for 5 min) of the Delete group is away";

fn array(items: &[Vec<u8>]) -> Vec<u8> {
    [vec![0x90 | items.len() as u8], items.concat()].concat()
}

fn text(text: &str) -> Vec<u8> {
    let mut fields = Fields::new();
    let encoded = fields.str("", text).encode();
    // Behind the map's head and the empty key.
    encoded[2..].to_vec()
}

fn members(_: &Message) -> Vec<Fields> {
    let member = |name: &str, state: &str| {
        let mut fields = Fields::new();
        fields.str("name", name).str("state", state).u64("since_ms", 5_000);
        fields
    };
    let first = member("n1", "self").u64("housekeeper", 2).bool("delete_member", true).encode();
    let second = member("n2", "up").nil("housekeeper").bool("delete_member", false).encode();
    let third = member("n3", "away").bool("delete_member", true).u64("away_ms", 310_000).encode();
    let mut reply = Fields::new();
    reply.raw("result", &array(&[first, second, third]));
    reply.raw("warnings", &array(&[text(WARNING)]));
    vec![reply]
}

#[test]
fn members_show_their_roles_and_who_is_missed() {
    for arguments in [&["members"][..], &["members", "list"]] {
        let done = cli_with(&FakeNode::start(members), arguments);
        let lines: Vec<Vec<&str>> =
            done.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][6..8], ["KEEPER", "DELETE"], "{}", done.stdout);
        assert_eq!(lines[1][7..9], ["2", "yes"], "{}", done.stdout);
        assert_eq!(lines[2][7..9], ["-", "-"], "{}", done.stdout);
        assert_eq!((lines[3][1], &lines[3][8..13]), ("away", &["missed", "5", "m", "10", "s"][..]));
        assert_eq!(done.stdout.lines().last(), Some(&*format!("warning: {WARNING}")));
    }
    for arguments in [&["members", "--json"][..], &["members", "list", "--json"]] {
        let done = cli_with(&FakeNode::start(members), arguments);
        assert_eq!((done.code, done.stdout.lines().count()), (0, 3), "{}", done.stderr);
        assert!(done.stdout.contains("\"away_ms\":310000"), "{}", done.stdout);
        let told: serde_json::Value = serde_json::from_str(&done.stderr).expect("one line of JSON");
        assert_eq!(told, serde_json::json!({ "warning": WARNING }));
    }
}

#[test]
fn status_ends_with_what_everybody_should_know() {
    let node = FakeNode::start(|_| {
        let mut reply = Fields::new();
        reply.str("name", "n1").bool("ready", true);
        reply.raw("housekeepers", &array(&[text("n2"), text("n1")]));
        reply.raw("warnings", &array(&[text(WARNING)]));
        vec![reply]
    });
    let done = cli_with(&node, &["status"]);
    assert_eq!(done.code, 0);
    assert!(done.stdout.contains("housekeepers  n2 n1\n"), "{}", done.stdout);
    assert!(done.stdout.ends_with(&format!("warning: {WARNING}\n")), "{}", done.stdout);
    let json = cli_with(&node, &["status", "--json"]).stdout;
    assert!(json.contains("\"warnings\":[\"n3 (for 5 min)"), "{json}");
}

#[test]
fn a_node_whose_disk_fails_is_not_shown_as_if_all_were_well() {
    let status = |sync: &'static str| {
        let node = FakeNode::start(move |_| {
            let mut storage = Fields::new();
            storage.str("directory", "/data").str("sync", sync).u64("log", 0).u64("bytes", 0);
            storage.str("failed", "log-1.dkv: cannot create: no room");
            let mut reply = Fields::new();
            reply.bool("ready", true).raw("storage", &storage.encode());
            vec![reply]
        });
        cli_with(&node, &["status"]).stdout
    };
    let shown = status("every-batch");
    assert!(shown.contains("changes are refused"), "{shown}");
    assert!(shown.contains("FAILING: log-1.dkv: cannot create: no room"), "{shown}");
    assert!(!shown.contains("0 B;"), "{shown}");
    assert!(!status("every-second").contains("refused"));

    // Whoever waits for the node hears of it, too.
    let node = FakeNode::start(|_| {
        let mut reply = Fields::new();
        reply.str("name", "n1").bool("ready", true).u64("members", 1);
        reply.raw("warnings", &array(&[text("the disk of this node fails")]));
        vec![reply]
    });
    let waited = cli_with(&node, &["wait"]).stdout;
    assert_eq!(waited, "n1 is ready and sees 1 member\nwarning: the disk of this node fails\n");
}

#[test]
fn what_may_pass_is_waited_for() {
    let asked = AtomicUsize::new(0);
    let node = FakeNode::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => vec![error("not yet", "not_ready")],
        1 => vec![error("too many of you", "too_many")],
        _ => vec![Fields::new().str("name", "n1").bool("ready", true).u64("members", 1).clone()],
    });
    let waited = cli_with(&node, &["wait"]);
    assert_eq!((waited.code, &*waited.stdout), (0, "n1 is ready and sees 1 member\n"));
}

#[test]
fn a_member_is_forgotten_without_a_question_where_nobody_can_answer() {
    let node = FakeNode::start(|_| vec![Fields::new().bool("result", true).clone()]);
    let done = cli_with_input(&node, &["members", "forget", "n3"], b"n\n");
    assert_eq!(done.stdout, "n3: forgotten; the Delete group goes on without it\n");
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    assert_eq!(node.asked("forget_member").str("node"), Some("n3"));

    let node = FakeNode::start(|_| vec![Fields::new().bool("result", true).clone()]);
    let address = node.address.to_string();
    let before = ["members", "--connect", &address, "--json", "forget", "n3", "--yes"];
    assert_eq!(cli(&before).stdout, "{\"name\":\"n3\",\"forgotten\":true}\n");

    // Only its keys were waited for.
    let node = FakeNode::start(|_| {
        vec![Fields::new().bool("result", true).bool("was_listed", false).clone()]
    });
    let done = cli_with(&node, &["members", "forget", "n3"]);
    let expected =
        "n3: forgotten; it was not in the Delete group, and its keys are waited for no more\n";
    assert_eq!((done.code, done.stdout.as_str()), (0, expected));

    // It was forgotten before.
    let node = FakeNode::start(|_| {
        vec![Fields::new().bool("result", false).bool("was_listed", false).clone()]
    });
    let done = cli_with(&node, &["members", "forget", "n3"]);
    let expected = "n3: not in the Delete group; this node does not miss it any more\n";
    assert_eq!((done.code, done.stdout.as_str()), (0, expected));

    let node = FakeNode::start(|_| vec![error("n3: that node is up and linked", "in_use")]);
    let refused = cli_with(&node, &["members", "forget", "n3"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (3, ""));
    assert_eq!(
        refused.stderr,
        "error: the node refuses: n3: that node is up and linked (in_use)\n"
    );
    assert_eq!(cli(&["members", "forget"]).code, 2);
    let help = cli(&["members", "forget", "--help"]);
    assert!(
        help.stdout.contains("Examples:") && help.stdout.contains("Exit code"),
        "{}",
        help.stdout
    );
}

/// The members of a node that sees these besides itself: name, state, and since when, milliseconds.
fn members_seen(members: &[(&str, &str, u64)]) -> Vec<Fields> {
    let members = members.iter().map(|(name, state, since_ms)| {
        let mut fields = Fields::new();
        fields.str("name", name).str("state", state).u64("since_ms", *since_ms).encode()
    });
    let mut reply = Fields::new();
    reply.raw("result", &array(&members.collect::<Vec<_>>()));
    vec![reply]
}

/// A node where a split heals with the third look at it.
fn healing() -> FakeNode {
    let looks = AtomicUsize::new(0);
    FakeNode::start(move |request| {
        if request.str("action") == Some("members") {
            return members_seen(&[("n2", "up", 60_000)]);
        }
        assert_eq!(request.bool("resync"), Some(true));
        let look = looks.fetch_add(1, Ordering::SeqCst) as u64;
        let mut reply = Fields::new();
        let life = "n1~e9001b2c3d4e";
        reply.str("node", life).raw("housekeepers", &array(&[text("n1"), text("n2")]));
        if look == 2 {
            return vec![reply.nil("resync").clone()];
        }
        let mut resync = Fields::new();
        resync.u64("lasts_ms", 1_000 + look * 2_000).raw("ours", &array(&[text("n1")]));
        resync.str("driver", "n1").u64("driver_remaining", 9 - look).u64("driver_entries", look);
        resync.u64("remaining", 9 - look).u64("entries", look);
        vec![reply.raw("resync", &resync.encode()).clone()]
    })
}

#[test]
fn the_healing_of_a_split_can_be_followed() {
    let once = cli_with(&healing(), &["state", "--resync"]);
    assert_eq!((once.code, once.stdout.lines().count()), (0, 1), "{}", once.stderr);
    assert!(once.stdout.starts_with("n1: healing for 1 s; n1 asks the other side (0 entries"));

    let followed = cli_with(&healing(), &["state", "--resync", "--follow"]);
    let lines: Vec<_> = followed.stdout.lines().collect();
    assert_eq!((followed.code, lines.len()), (0, 3), "{}{}", followed.stdout, followed.stderr);
    assert!(lines[1].contains("here 1 entry fetched, 8 events missing"), "{}", lines[1]);
    assert_eq!(lines[2], "n1: healed after 3 s; 1 entry was fetched here");

    let json = cli_with(&healing(), &["state", "--resync", "--follow", "--json"]);
    let lines: Vec<_> = json.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", json.stdout);
    assert!(lines[0].contains("\"driver_remaining\":9"), "{}", lines[0]);
    assert_eq!(
        lines[2],
        "{\"node\":\"n1~e9001b2c3d4e\",\"housekeepers\":[\"n1\",\"n2\"],\"resync\":null}"
    );
}

#[test]
fn where_no_split_is_healing_that_is_said_and_followed_no_further() {
    let node = || {
        FakeNode::start(|request| {
            if request.str("action") == Some("members") {
                return members_seen(&[("n2", "up", 60_000), ("n3", "left", 100)]);
            }
            let mut reply = Fields::new();
            reply.str("node", "n1").raw("housekeepers", &array(&[text("n2")])).nil("resync");
            vec![reply]
        })
    };
    for arguments in [&["state", "--resync"][..], &["state", "--resync", "--follow"]] {
        let done = cli_with(&node(), arguments);
        assert_eq!(done.stdout, "n1: no split is healing; housekeepers: n2\n", "{}", done.stderr);
    }
    assert_eq!(cli(&["state", "--follow"]).code, 2);
    assert_eq!(cli(&["state", "--resync", "--missing"]).code, 2);
}

#[test]
fn a_split_is_followed_from_before_it_heals_until_nothing_is_left_to_heal() {
    // Three members: one is cut off, comes back, and is healed with; then it is looked again for a
    // while, since another side may come.
    let looks = AtomicUsize::new(0);
    let node = FakeNode::start(move |request| {
        let look = looks.load(Ordering::SeqCst) as u64;
        if request.str("action") == Some("members") {
            looks.fetch_add(1, Ordering::SeqCst);
            let back = match look {
                0 => ("n3", "down", 20_000),
                1 => ("n3", "suspect", 100),
                2..5 => ("n3", "up", look * 100),
                _ => ("n3", "up", 10_000),
            };
            return members_seen(&[("n2", "up", 60_000), back]);
        }
        let mut reply = Fields::new();
        reply.str("node", "n1~e9001b2c3d4e").raw("housekeepers", &array(&[text("n2")]));
        if look != 3 {
            return vec![reply.nil("resync").clone()];
        }
        let mut resync = Fields::new();
        resync.u64("lasts_ms", 2_000).raw("ours", &array(&[text("n1")])).nil("driver");
        resync.u64("remaining", 1).u64("entries", 1);
        vec![reply.raw("resync", &resync.encode()).clone()]
    });
    let done = cli_with(&node, &["state", "--resync", "--follow"]);
    let lines: Vec<_> = done.stdout.lines().collect();
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let keepers = "n1: no split is healing; housekeepers: n2";
    let again = "; members came a moment ago, looking again";
    assert_eq!(
        lines,
        [
            &format!("{keepers}; waiting for n3 (Ctrl-C ends)"),
            &format!("{keepers}{again}"),
            "n1: healing for 2 s; here 1 entry fetched, 1 event missing; housekeepers of this \
             side: n1",
            &format!("n1: healed after 2 s; 1 entry was fetched here{again}"),
            keepers,
        ],
    );
}
