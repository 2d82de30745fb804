//! Scripts that read like the protocol: `tests/interaction/*.txt`. Each block is some commands,
//! a line `----`, and what they print, up to an empty line. The commands are in
//! `interaction/driver.rs`.
//!
//! `DISTKV_REWRITE=1 cargo test --test interaction` writes what is printed into the scripts; each
//! line of the difference must be explained.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails should say so at once"
)]

#[path = "interaction/driver.rs"]
mod driver;
#[path = "interaction/show.rs"]
mod show;

use std::fs;
use std::path::{Path, PathBuf};

use driver::Cluster;

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interaction");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    files
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

#[test]
fn scripts_print_what_they_should() {
    let rewrite = std::env::var_os("DISTKV_REWRITE").is_some();
    let files = scripts();
    let (count, mut wrong) = (files.len(), Vec::new());
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let expected = fs::read_to_string(&file).unwrap();
        let printed = run(&expected, &name);
        if printed == expected {
            continue;
        }
        if rewrite {
            fs::write(&file, printed).unwrap();
        } else {
            let first = expected.lines().zip(printed.lines()).find(|(a, b)| a != b);
            wrong.push(format!("{name}: expected and printed differ first at {first:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 20, "only {count} scripts are left");
}
