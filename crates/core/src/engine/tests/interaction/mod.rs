//! Scripts that read like the protocol: the files `*.txt` in this folder. Each block is some commands,
//! a line `----`, and what they print, up to an empty line. The commands are in `driver.rs`; the nodes
//! are those of [`super::net`].
//!
//! `DISTKV_REWRITE=1 cargo test -p distkv-core --lib interaction` writes what is printed into the scripts;
//! each line of the difference must be explained.

mod driver;
#[macro_use]
mod script;

use std::path::{Path, PathBuf};

use driver::Cluster;

/// Where the scripts are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine/tests/interaction")
}

/// Runs the script of that name, and compares.
fn check(name: &str) {
    let mut cluster = Cluster::new();
    script::check(&folder(), name, |command| cluster.run(command, name));
}

scripts! {
    resync_driver_dies
    resync_one_asks_for_its_side
    resync_two_nodes
    rule_1_write
    rule_10_contents
    rule_10_one_version
    rule_2_deletion_undone
    rule_2_greater_wins
    rule_2_refused
    rule_2_superseded
    rule_2_undone_over_a_re_issue
    rule_3_catch_up
    rule_3_cut
    rule_3_digest
    rule_4_dropped
    rule_4_reissued
    rule_4_unseen_tombstone
    rule_5_offered
    rule_5_purge
    rule_6_reissue_of_a_reissue
    rule_7_away_for_a_moment
    rule_7_hole
    rule_7_leaves_for_good
    rule_7_one_member_away
    rule_7_round
    rule_7_two_coordinators
    rule_8_two_lineages
    rule_9_clean_stop
    rule_9_cloned_disk
    rule_9_file
    rule_9_old_state
    times_of_changes
    times_of_re_issues
    trap_2_tombstone_not_in_v
    trap_3_reissue_over_newer
    trap_8_ties
}
