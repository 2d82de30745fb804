//! Scripts that read like the protocol: `tests/pure/interaction/*.txt`. Each block is some commands,
//! a line `----`, and what they print, up to an empty line. The commands are in
//! `interaction/driver.rs`.
//!
//! `DISTKV_REWRITE=1 cargo test --test pure interaction` writes what is printed into the scripts; each
//! line of the difference must be explained.

mod driver;
mod show;

use std::fs;
use std::path::{Path, PathBuf};

use driver::Cluster;

/// Where the scripts are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pure/interaction")
}

/// Runs a script and gives it back with what is really printed.
fn run(text: &str, file: &str) -> String {
    let mut cluster = Cluster::default();
    let mut result = String::new();
    let mut commands: Vec<&str> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line != "----" {
            result.push_str(line);
            result.push('\n');
            if !line.is_empty() && !line.starts_with('#') {
                commands.push(line);
            }
            continue;
        }
        result.push_str("----\n");
        for command in commands.drain(..) {
            for printed in cluster.run(command, file) {
                result.push_str(&printed);
                result.push('\n');
            }
        }
        for old in lines.by_ref() {
            if old.is_empty() {
                result.push('\n');
                break;
            }
        }
    }
    assert!(commands.is_empty(), "{file}: commands without ---- behind them: {commands:?}");
    result
}

/// Runs the script of that name, and compares.
fn check(name: &str) {
    let file = folder().join(format!("{name}.txt"));
    let expected = fs::read_to_string(&file).unwrap();
    let printed = run(&expected, name);
    if printed == expected {
        return;
    }
    if std::env::var_os("DISTKV_REWRITE").is_some() {
        fs::write(&file, printed).unwrap();
        return;
    }
    let first = expected.lines().zip(printed.lines()).find(|(a, b)| a != b);
    panic!("{name}: expected and printed differ first at {first:?}");
}

/// A test for each script, and one that no script is without.
macro_rules! scripts {
    ($($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                check(&stringify!($name).replace('_', "-"));
            }
        )+

        #[test]
        fn every_script_has_a_test() {
            let known = [$(stringify!($name)),+].map(|name| name.replace('_', "-"));
            let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
            let mut files: Vec<String> = entries
                .filter(|path| path.extension().is_some_and(|e| e == "txt"))
                .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
                .collect();
            files.sort();
            assert_eq!(files, known);
        }
    };
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
