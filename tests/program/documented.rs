//! Every command of README, of the guides for operators in docs/ and of the examples in each `--help` is run as it is printed, on hosts that
//! have the names and addresses that are printed there (network namespaces, see [`hosts`]): what a
//! newcomer types works, and says what the text around it promises. A command that no test runs fails
//! [`every_printed_command_is_run`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

use crate::hosts;
mod printed;
use crate::processes;
mod stage;

/// The program that README has in full.
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "../../examples/lamp.rs"]
mod lamp;

mod access;
mod bench;
mod cluster;
mod demo;
mod files;
mod http;
mod keys;
mod operate;
mod security;
mod service;
mod starts;
mod tls;

use std::collections::BTreeSet;

use hosts::inside_own_network;
use stage::{Row, play};

/// All scenes: rows of commands, in the order in which they are run.
const SCENES: [&[Row]; 13] = [
    access::ROWS,
    cluster::ROWS,
    demo::ROWS,
    files::README,
    files::HELP,
    http::ROWS,
    keys::ROWS,
    operate::ROWS,
    service::ROWS,
    starts::ROWS,
    bench::ROWS,
    tls::ROWS,
    security::ROWS,
];

#[test]
fn users_lists_and_types_do_what_the_help_says() {
    let name = test_name!("users_lists_and_types_do_what_the_help_says");
    inside_own_network(name, || play(access::ROWS));
}

#[test]
fn every_printed_command_is_run() {
    let printed = printed::commands();
    assert!(printed.len() > 150, "{}: where are they?", printed.len());
    let rows = SCENES.iter().flat_map(|rows| rows.iter()).filter(|row| !row.is_hidden());
    let run: BTreeSet<String> = rows.map(|row| row.command.to_owned()).collect();
    let not_run: Vec<_> = printed.iter().filter(|command| !run.contains(*command)).collect();
    assert!(not_run.is_empty(), "printed, and run by no scene: {not_run:#?}");
    let not_printed: Vec<_> = run.iter().filter(|command| !printed.contains(*command)).collect();
    assert!(not_printed.is_empty(), "run as if they were printed: {not_printed:#?}");
}

#[test]
fn the_tests_that_the_guide_to_security_names_exist() {
    let guide = include_str!("../../docs/security.md");
    let names: Vec<&str> = guide.split('`').filter(|word| word.matches('_').count() > 5).collect();
    assert!(names.len() > 5, "{names:?}");
    let missing: Vec<_> = names.into_iter().filter(|name| !printed::is_test(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_program_in_readme_is_the_example_that_is_compiled() {
    let example = include_str!("../../examples/lamp.rs");
    let (_, program) = example.split_once("//! ```\n\n").unwrap();
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("```rust\n").unwrap();
    let (block, _) = rest.split_once("```\n").unwrap();
    assert_eq!(block, program);
    assert!(!readme.contains("```rust,"), "all Rust in README is compiled");
}

#[test]
fn the_program_in_readme_runs() {
    let n1 = processes::NodeProcess::run("n1");
    let n2 = processes::NodeProcess::join("n2", &[&n1]);
    let nodes = [&n1, &n2].map(|node| node.client.to_string()).to_vec();
    distkv_client::block_on(lamp::run(nodes)).unwrap();
}

#[test]
fn other_commands_of_readme_name_what_is_there() {
    for (command, problem) in printed::cargo_problems() {
        assert_eq!(problem, None, "{command}");
    }
}

#[test]
fn readme_s_cluster_does_what_it_says() {
    inside_own_network(test_name!("readme_s_cluster_does_what_it_says"), || play(cluster::ROWS));
}

#[test]
fn the_demo_does_what_it_says() {
    inside_own_network(test_name!("the_demo_does_what_it_says"), || play(demo::ROWS));
}

#[test]
fn readme_s_files_are_what_it_says() {
    inside_own_network(test_name!("readme_s_files_are_what_it_says"), || play(files::README));
}

#[test]
fn the_files_of_the_help_are_what_it_says() {
    inside_own_network(test_name!("the_files_of_the_help_are_what_it_says"), || play(files::HELP));
}

#[test]
fn nodes_start_as_the_help_says() {
    inside_own_network(test_name!("nodes_start_as_the_help_says"), || play(starts::ROWS));
}

#[test]
fn keys_change_as_the_help_says() {
    inside_own_network(test_name!("keys_change_as_the_help_says"), || play(keys::ROWS));
}

#[test]
fn the_guide_to_security_does_what_it_says() {
    let name = test_name!("the_guide_to_security_does_what_it_says");
    inside_own_network(name, || play(security::ROWS));
}

#[test]
fn metrics_and_health_are_told_as_readme_says() {
    let name = test_name!("metrics_and_health_are_told_as_readme_says");
    inside_own_network(name, || play(operate::ROWS));
}

#[test]
fn the_http_api_does_what_its_page_says() {
    let name = test_name!("the_http_api_does_what_its_page_says");
    inside_own_network(name, || play(http::ROWS));
}

#[test]
fn services_start_and_save_as_it_says() {
    inside_own_network(test_name!("services_start_and_save_as_it_says"), || play(service::ROWS));
}

#[test]
fn clients_use_tls_as_it_says() {
    inside_own_network(test_name!("clients_use_tls_as_it_says"), || play(tls::ROWS));
}

#[test]
fn measurements_are_made_as_the_help_says() {
    inside_own_network(test_name!("measurements_are_made_as_the_help_says"), || play(bench::ROWS));
}
