//! Real nodes on several hosts, cut off from each other and joined again. The hosts are network
//! namespaces inside of one of the test's own; see [`hosts`] for what that needs.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

mod processes;

#[path = "netns/cluster.rs"]
mod cluster;
#[path = "netns/hosts.rs"]
mod hosts;

use std::time::{Duration, Instant};

use cluster::{Cluster, check_own_paths};
use hosts::inside_own_network;

fn seconds(variable: &str, default: u64) -> Duration {
    let set = std::env::var(variable).ok();
    Duration::from_secs(set.map_or(default, |s| s.parse().expect("a number of seconds")))
}

#[test]
fn five_nodes_cut_in_two_are_equal_soon_after_the_cable_is_back() {
    inside_own_network("five_nodes_cut_in_two_are_equal_soon_after_the_cable_is_back", || {
        let mut cluster = Cluster::start(&[0, 0, 0, 1, 1], &[]);
        let writers = cluster.write_everywhere();
        cluster.hosts.cut();
        std::thread::sleep(seconds("DISTKV_TEST_CUT_SECONDS", 12));
        let (written, count) = writers.stop();
        assert!(!cluster.is_equal(), "they were cut off from each other");
        cluster.hosts.mend();
        let mended = Instant::now();
        let equal =
            cluster.wait("all are equal", |cluster| cluster.is_equal()).duration_since(mended);
        cluster.show_logs(Some(mended));
        let tree = cluster.equal_tree();
        println!(
            "{count} writes, {} entries; equal {equal:?} after the cable was back",
            tree.len()
        );
        check_own_paths(&tree, &written);
        assert!(equal <= Duration::from_secs(5), "{equal:?}");
    });
}

/// How long a cut lasts in [`links_carry_changes_again_soon_after_any_cut`].
fn sweep() -> Vec<Duration> {
    let set = std::env::var("DISTKV_TEST_SWEEP").unwrap_or_else(|_| "2,5".to_owned());
    set.split(',').map(|s| Duration::from_secs_f64(s.parse().expect("seconds"))).collect()
}

#[test]
fn links_carry_changes_again_soon_after_any_cut() {
    type Act = fn(&hosts::Hosts);
    let kinds: [(&str, Act, Act); 5] = [
        ("cable", |h| h.cut(), |h| h.mend()),
        ("unplug", |h| h.unplug(0), |h| h.plug_in(0)),
        ("card down", |h| h.card_down(0), |h| h.card_up(0)),
        ("one way 0-2", |h| h.cut_one_way(0, 2), |h| h.mend_one_way(0, 2)),
        ("one way 2-0", |h| h.cut_one_way(2, 0), |h| h.mend_one_way(2, 0)),
    ];
    let only = std::env::var("DISTKV_TEST_KINDS").ok();
    inside_own_network("links_carry_changes_again_soon_after_any_cut", || {
        let mut slow = Vec::new();
        let nodes: &[usize] =
            if std::env::var_os("DISTKV_TEST_TWO").is_some() { &[0, 1] } else { &[0, 0, 1] };
        let mut cluster = Cluster::start(nodes, &[]);
        let last = nodes.len() - 1;
        for (kind, cut, mend) in kinds {
            if only.as_ref().is_some_and(|o| !kind.starts_with(o)) {
                continue;
            }
            for length in sweep() {
                for busy in [false, true] {
                    cluster.wait_for_link(0, last);
                    let start = Instant::now();
                    cut(&cluster.hosts);
                    while start.elapsed() < length {
                        if busy {
                            cluster.touch(0);
                            cluster.touch(last);
                        }
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    mend(&cluster.hosts);
                    let mended = Instant::now();
                    let took = cluster.wait_for_link(0, last).duration_since(mended);
                    println!("{kind}, {length:?} {}: {took:?}", if busy { "busy" } else { "idle" });
                    if took > Duration::from_millis(1500) {
                        slow.push((kind, length, busy, took));
                        if std::env::var_os("DISTKV_TEST_LOGS").is_some() {
                            cluster.show_logs(Some(mended));
                        }
                    }
                }
            }
        }
        assert!(slow.is_empty(), "{slow:?}");
    });
}
