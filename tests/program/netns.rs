//! Real nodes on several hosts, cut off from each other and joined again. The hosts are network
//! namespaces inside of one of the test's own: see [`hosts`] for what that needs.
//!
//! What takes too long for every day is done on request:
//!
//! ```sh
//! # Five nodes cut for a minute instead of 12 s:
//! DISTKV_TEST_CUT_SECONDS=60 cargo test --test program netns::five_nodes -- --nocapture
//! # Two nodes cut off for longer than members are really remembered (10 minutes), not than 3 s:
//! DISTKV_TEST_FORGET_SECONDS=600 cargo test --test program netns::two_nodes -- --nocapture
//! # The same with the housekeeper killed that drives the resync:
//! DISTKV_TEST_CUT_SECONDS=60 cargo test --test program netns::five_nodes_heal -- --nocapture
//! # Links cut in each way for each of these times:
//! DISTKV_TEST_SWEEP=0.5,1,2,3,4,5,7,9,12,17,25 cargo test --test program netns::links -- --nocapture
//! ```
//!
//! Then it must also be as soon as promised; else the times are only printed, because a busy machine
//! has times of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

use crate::processes;

mod addresses;
mod capture;
mod cluster;
mod flood;
mod rotation;
use crate::hosts;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cluster::{Cluster, check_own_paths, start_node};
use hosts::{Hosts, client_addr, inside_own_network};

/// How soon all must be equal once the cable is back.
const EQUAL_WITHIN: Duration = Duration::from_secs(5);
/// How soon a link must carry changes again, both ways, once nothing is in its way any more.
const LINKED_WITHIN: Duration = Duration::from_millis(1_500);
/// Entries that only one side has, where the resync must take a while.
const BULK: u64 = 30_000;
/// How long a member that does not answer is suspected before it is down, with all that comes
/// before.
const DOWN_WITHIN: Duration = Duration::from_secs(8);

fn seconds(variable: &str, default: f64) -> Duration {
    let set = std::env::var(variable).ok();
    Duration::from_secs_f64(set.map_or(default, |s| s.parse().expect("a number of seconds")))
}

/// Whether times are asserted: where somebody asked for one of the long runs.
fn is_timed() -> bool {
    let asked = ["DISTKV_TEST_CUT_SECONDS", "DISTKV_TEST_FORGET_SECONDS", "DISTKV_TEST_SWEEP"];
    asked.iter().any(|variable| std::env::var_os(variable).is_some())
}

/// Cuts the cable for a while, with writes on both sides, some of them to the same paths; then
/// waits until all are equal, and checks that they are soon enough.
fn cut_and_heal(
    cluster: &mut Cluster,
    meanwhile: impl FnOnce(&mut Cluster),
    while_healing: impl FnOnce(&mut Cluster),
) {
    let writers = cluster.write_everywhere();
    cluster.hosts.cut();
    meanwhile(cluster);
    let (written, count) = writers.stop();
    assert!(!cluster.is_equal(), "they were cut off from each other");
    let mended = Instant::now();
    cluster.hosts.mend();
    while_healing(cluster);
    let equal = cluster.wait("all are equal", Cluster::is_equal).duration_since(mended);
    let tree = cluster.equal_tree();
    let conflicts = cluster.conflicts();
    println!(
        "{count} writes, {} entries, {conflicts} conflicts; all equal {equal:?} after the cable \
         was back",
        tree.len(),
    );
    check_own_paths(&tree, &written);
    assert!(conflicts > 0, "both sides wrote to the same paths");
    // Whoever had the losing version lists it.
    let nodes = 0..cluster.nodes.len();
    let shown: Vec<String> = nodes.flat_map(|n| cluster.shown_conflicts(n)).collect();
    assert!(shown.iter().any(|line| line.contains("shared")), "{shown:#?}");
    if is_timed() && equal > EQUAL_WITHIN {
        cluster.show_logs(Some(mended));
        panic!("equal only after {equal:?}");
    }
}

#[test]
fn five_nodes_cut_in_two_are_equal_soon_after_the_cable_is_back() {
    inside_own_network(
        test_name!("five_nodes_cut_in_two_are_equal_soon_after_the_cable_is_back"),
        || {
            let mut cluster = Cluster::start(&[0, 0, 0, 1, 1], &[]);
            let cut = seconds("DISTKV_TEST_CUT_SECONDS", 12.0);
            // Somebody begins to look before the cable is back.
            let mut follow = None;
            let meanwhile = |cluster: &mut Cluster| {
                std::thread::sleep(cut);
                cluster.wait("the other side is down", |cluster| {
                    let states = cluster.members(0);
                    ["n3", "n4"].iter().all(|n| states.get(*n).is_some_and(|s| s == "down"))
                });
                let client = client_addr(0).to_string();
                let mut command = Command::new(processes::PROGRAM);
                command.args(["state", "--resync", "--follow", "--connect", &client]);
                let mut command = command.stdout(Stdio::piped()).spawn().unwrap();
                let mut told = BufReader::new(command.stdout.take().unwrap());
                let mut first = String::new();
                told.read_line(&mut first).unwrap();
                assert!(first.contains("waiting for n3, n4 (Ctrl-C ends)"), "{first}");
                follow = Some((command, told));
            };
            cut_and_heal(&mut cluster, meanwhile, |_| ());
            let (mut command, mut rest) = follow.unwrap();
            let mut told = String::new();
            rest.read_to_string(&mut told).unwrap();
            assert!(command.wait().unwrap().success(), "{told}");
            assert!(told.contains("n0: healed after "), "it does not end before: {told}");
        },
    );
}

#[test]
fn five_nodes_heal_when_the_driving_housekeeper_is_killed() {
    inside_own_network(
        test_name!("five_nodes_heal_when_the_driving_housekeeper_is_killed"),
        || {
            let mut cluster = Cluster::start(&[0, 0, 0, 1, 1], &[]);
            let cut = seconds("DISTKV_TEST_CUT_SECONDS", 12.0);
            let until_cut = |cluster: &mut Cluster| {
                let began = Instant::now();
                // So much that the resync is not over before its driver can be told and killed.
                cluster.write_many(3, BULK);
                std::thread::sleep(cut.saturating_sub(began.elapsed()));
            };
            cut_and_heal(&mut cluster, until_cut, |cluster| {
                let mut driver = None;
                cluster.wait("a housekeeper drives", |cluster| {
                    driver = (0..3).find_map(|node| cluster.driver(node));
                    driver.is_some()
                });
                let driver = driver.expect("waited for");
                let remaining = cluster.resync_remaining(driver);
                cluster.kill(driver);
                println!("the driver n{driver} was killed with {remaining:?} entries to go");
            });
        },
    );
}

#[test]
fn two_nodes_that_have_forgotten_each_other_meet_again() {
    inside_own_network(test_name!("two_nodes_that_have_forgotten_each_other_meet_again"), || {
        let forget = seconds("DISTKV_TEST_FORGET_SECONDS", 3.0);
        let option = format!("{}s", forget.as_secs_f64());
        let mut cluster = Cluster::start(&[0, 1], &["--forget-down-after", &option]);
        let until_forgotten = |cluster: &mut Cluster| {
            std::thread::sleep(forget.saturating_sub(DOWN_WITHIN));
            cluster.wait("they have forgotten each other", |cluster| {
                cluster.members(0).is_empty() && cluster.members(1).is_empty()
            });
        };
        cut_and_heal(&mut cluster, until_forgotten, |_| ());
    });
}

/// A way to cut two nodes off from each other, and how it is undone.
struct Cut {
    what: &'static str,
    cut: fn(&Hosts),
    mend: fn(&Hosts),
    /// How long, in seconds, unless told otherwise.
    seconds: f64,
}

/// Between hosts 0 and 2. The lengths are those that were the worst for TCP, SWIM or timeouts.
const CUTS: [Cut; 5] = [
    Cut { what: "the cable", cut: Hosts::cut, mend: Hosts::mend, seconds: 1.6 },
    Cut { what: "0's plug", cut: |h| h.unplug(0), mend: |h| h.plug_in(0), seconds: 4.0 },
    Cut { what: "0's card", cut: |h| h.card_down(0), mend: |h| h.card_up(0), seconds: 3.0 },
    Cut {
        what: "0 to 2 only",
        cut: |h| h.cut_one_way(0, 2),
        mend: |h| h.mend_one_way(0, 2),
        seconds: 5.0,
    },
    Cut {
        what: "2 to 0 only",
        cut: |h| h.cut_one_way(2, 0),
        mend: |h| h.mend_one_way(2, 0),
        seconds: 9.0,
    },
];

#[test]
fn links_carry_changes_again_soon_after_any_cut() {
    inside_own_network(test_name!("links_carry_changes_again_soon_after_any_cut"), || {
        let mut cluster = Cluster::start(&[0, 0, 1], &[]);
        let sweep = std::env::var("DISTKV_TEST_SWEEP").ok();
        let mut slow = Vec::new();
        for cut in CUTS {
            let lengths: Vec<f64> = match &sweep {
                None => vec![cut.seconds],
                Some(list) => list.split(',').map(|s| s.parse().expect("seconds")).collect(),
            };
            for length in lengths {
                let length = Duration::from_secs_f64(length);
                for busy in [true, false].into_iter().take(if sweep.is_some() { 2 } else { 1 }) {
                    let took = time_to_link(&mut cluster, &cut, length, busy);
                    let what = format!("{} for {length:?}, busy {busy}: {took:?}", cut.what);
                    println!("{what}");
                    if is_timed() && took > LINKED_WITHIN {
                        slow.push(what);
                    }
                }
            }
        }
        assert!(slow.is_empty(), "{slow:#?}");
    });
}

/// Cuts, mends, and tells after what time nodes 0 and 2 got each other's changes over a link of
/// their own again.
fn time_to_link(cluster: &mut Cluster, cut: &Cut, length: Duration, busy: bool) -> Duration {
    cluster.wait_for_link(0, 2);
    let start = Instant::now();
    (cut.cut)(&cluster.hosts);
    while start.elapsed() < length {
        if busy {
            cluster.touch(0);
            cluster.touch(2);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    (cut.mend)(&cluster.hosts);
    let mended = Instant::now();
    cluster.wait_for_link(0, 2).duration_since(mended)
}

/// Runs a command against a node of another host; gives its exit code and what it says.
fn command(arguments: &[&str]) -> (Option<i32>, String) {
    let output = std::process::Command::new(processes::PROGRAM).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_snapshot_is_restored_from_another_machine_only_where_that_is_allowed() {
    let name = "a_snapshot_is_restored_from_another_machine_only_where_that_is_allowed";
    inside_own_network(test_name!(name), || {
        let file =
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/distkv-files/saved-state.bin");
        let hosts = Hosts::new(&[0, 0]);
        let closed = start_node(&hosts, 0, &[]);
        let open = start_node(&hosts, 1, &["--remote-restore"]);
        let restore = |node: &processes::NodeProcess| {
            let address = node.client.to_string();
            command(&["snapshot", "restore", file, "--connect", &address])
        };
        let (code, said) = restore(&closed);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("(denied)") && said.contains("--remote-restore"), "{said}");
        assert!(closed.connect().tree(&[]).is_empty());
        let (code, said) = restore(&open);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(open.connect().tree(&[]).len(), 1306);
    });
}

#[test]
fn a_node_that_other_machines_cannot_call_says_so_and_so_do_they() {
    inside_own_network(
        test_name!("a_node_that_other_machines_cannot_call_says_so_and_so_do_they"),
        || {
            let hosts = Hosts::new(&[0, 0]);
            let first = start_node(&hosts, 0, &[]);
            let (peer, client) = (hosts::gossip_addr(0).to_string(), client_addr(1).to_string());
            // Without --gossip it listens on loopback.
            let arguments = ["join", &peer, "--client", &client, "--insecure"];
            let second = processes::NodeProcess::start_by(&hosts.prefix(1), "n1", &arguments);
            for node in [&first, &second] {
                let warns = |line: &String| {
                    ["WARN", "127.0.0.1:27587", "--gossip 0.0.0.0:27587"]
                        .iter()
                        .all(|w| line.contains(w))
                };
                processes::wait_until("it warns", || node.log().iter().any(warns).then_some(()));
            }
            second.connect().set(&["a"], 1.into());
            processes::wait_until("it takes part", || first.connect().get(&["a"]));
        },
    );
}

/// Such a node is no member for the others, so its link alone can tell that it leaves.
#[test]
fn a_node_that_other_machines_cannot_call_is_not_missed_when_it_has_left() {
    let name = "a_node_that_other_machines_cannot_call_is_not_missed_when_it_has_left";
    inside_own_network(test_name!(name), || {
        let hosts = Hosts::new(&[0, 0, 0]);
        let first = start_node(&hosts, 0, &[]);
        let mut third = start_node(&hosts, 2, &[]);
        let (peer, client) = (hosts::gossip_addr(0).to_string(), client_addr(1).to_string());
        // Without --gossip it listens on loopback.
        let arguments = ["join", &peer, "--client", &client, "--insecure"];
        let mut second = processes::NodeProcess::start_by(&hosts.prefix(1), "n1", &arguments);
        let said = |parts: &[&str]| {
            let is_it = |line: &String| parts.iter().all(|part| line.contains(part));
            first.log().into_iter().find(is_it)
        };
        processes::wait_until("all are linked", || {
            said(&["linked peer=n1"]).and_then(|_| said(&["linked peer=n2"]))
        });
        // It is here for those who look.
        third.kill();
        processes::wait_until("it is here", || said(&["n2 has been silent", "goes on with n1"]));
        second.signal("TERM");
        assert!(second.wait().success());
        processes::wait_until("it says farewell", || said(&["peer=n1", "a farewell"]));
        // Who has seen this one come back has looked at the other.
        let _third = start_node(&hosts, 2, &[]);
        let missed = || {
            let is_it = |line: &String| {
                line.split_once(" been silent").is_some_and(|(who, _)| who.contains("n1"))
            };
            first.log().into_iter().find(is_it)
        };
        processes::wait_until("the other is back", || said(&["silent is back"]).or_else(missed));
        assert_eq!(missed(), None);
        let (code, status) =
            command(&["status", "--json", "--connect", &client_addr(0).to_string()]);
        assert_eq!(code, Some(0), "{status}");
    });
}

#[test]
fn a_node_whose_address_changes_while_it_runs_is_a_member_at_the_new_one() {
    inside_own_network(
        test_name!("a_node_whose_address_changes_while_it_runs_is_a_member_at_the_new_one"),
        || {
            let hosts = Hosts::new(&[0, 0]);
            let first = start_node(&hosts, 0, &[]);
            let (peer, client) = (hosts::gossip_addr(0).to_string(), client_addr(1).to_string());
            // It listens on all addresses, and advertises the one that its peers see.
            let gossip = format!("0.0.0.0:{}", hosts::gossip_addr(1).port());
            let arguments = ["join", &peer, "--client", &client, "--gossip", &gossip, "--insecure"];
            let second = processes::NodeProcess::start_by(&hosts.prefix(1), "n1", &arguments);
            let (mut here, mut there) = (first.connect(), second.connect());
            let mut is_up_at = |ip: &str| {
                let sees = |client: &mut processes::Client, name: &str, ip: &str| {
                    let reply = client.call("members", &[]);
                    let members = processes::field(&reply, "result").unwrap();
                    let has = |member: &rmpv::Value, key: &str, text: &str| {
                        let value = processes::field(member, key).unwrap();
                        value.as_str().is_some_and(|value| value.starts_with(text))
                    };
                    let is_it = |m: &rmpv::Value| {
                        has(m, "name", name) && has(m, "state", "up") && has(m, "gossip", ip)
                    };
                    members.as_array().unwrap().iter().any(is_it)
                };
                sees(&mut here, "n1", ip) && sees(&mut there, "n0", "10.77.0.1:")
            };
            processes::wait_until("they are up", || is_up_at("10.77.0.2:").then_some(()));
            hosts.readdress(1, "10.77.0.99".parse().unwrap());
            processes::wait_until("it has moved", || is_up_at("10.77.0.99:").then_some(()));
            second.connect().set(&["a"], 1.into());
            processes::wait_until("it takes part", || first.connect().get(&["a"]));
        },
    );
}
