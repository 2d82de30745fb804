//! Layering and hygiene, as an ordinary test: who may import whom, who may name the runtime and
//! the clock, what every file must have, and what documents may say. `ARCHITECTURE.md` explains the
//! layers.

mod bounds;
mod documents;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Who may import what of ours; whatever is not listed here is an error. Between crates the compiler
/// sees to it; this is for the modules within `crates/core` and within the program.
const LAYERS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("tree", &["model"]),
    ("protocol", &["model", "tree"]),
    ("access", &["model", "protocol"]),
    ("actor", &["model"]),
    ("replica", &["model", "tree"]),
    ("membership", &["model", "protocol"]),
    ("engine", &["model", "tree", "protocol", "actor", "replica"]),
    ("virtual_net", &[]),
    (
        "sim",
        &[
            "model",
            "tree",
            "protocol",
            "replica",
            "engine",
            "hub",
            "membership",
            "virtual_net",
            "storage",
            "durable",
        ],
    ),
    ("metrics", &[]),
    ("http", &["rt"]),
    ("durable", &["model", "engine", "hub", "storage"]),
    ("hub", &["model", "tree", "protocol", "replica", "engine", "storage"]),
    ("storage", &["model", "tree", "protocol", "replica", "engine", "rt"]),
    ("rt", &["model"]),
    ("secure", &["model", "protocol", "membership"]),
    ("crowd", &["model"]),
    (
        "server",
        &["crowd", "model", "tree", "protocol", "replica", "engine", "storage", "hub", "rt", "tls"],
    ),
    ("client", &["model", "rt", "tls"]),
    ("api", &["model", "protocol", "client", "server", "rt"]),
    ("tls", &[]),
    ("command", &["protocol", "client", "model", "rt"]),
    ("bench", &["command", "client", "model", "rt"]),
    (
        "node",
        &[
            "crowd",
            "model",
            "tree",
            "protocol",
            "membership",
            "replica",
            "engine",
            "storage",
            "hub",
            "durable",
            "secure",
            "server",
            "api",
            "rt",
        ],
    ),
    ("testing", &["node", "client", "secure", "membership", "model", "rt"]),
    (
        "cli",
        &[
            "node",
            "client",
            "secure",
            "membership",
            "storage",
            "engine",
            "replica",
            "protocol",
            "tree",
            "model",
            "rt",
        ],
    ),
];

/// Modules without a clock, randomness, sockets, files or the environment.
const PURE: &[&str] = &[
    "model",
    "tree",
    "protocol",
    "access",
    "actor",
    "replica",
    "membership",
    "engine",
    "virtual_net",
    "metrics",
    "durable",
    "secure",
    "crowd",
    "sim",
];

/// What a pure module must not name outside of its tests.
const IMPURE: &[&str] = &[
    "std::net::Tcp",
    "std::net::Udp",
    "std::fs",
    "std::env",
    "std::thread",
    "Instant::now",
    "SystemTime",
    "rand::rng()",
    "rand::random",
    "thread_rng",
    "async_executor",
    "async_io",
    "blocking::",
    "distkv_runtime",
    "socket2",
    "println!",
    "eprintln!",
];

/// What only `crates/runtime/src/lib.rs` may name.
const RUNTIME: &[&str] =
    &["async_executor", "async_io", "blocking::", "Instant::now", "SystemTime::now"];

/// What a node is made of: these refuse what comes from outside, and never work around a defect of their own.
const OF_A_NODE: &[&str] = &[
    "model",
    "protocol",
    "access",
    "actor",
    "replica",
    "membership",
    "engine",
    "storage",
    "hub",
    "crowd",
    "server",
    "node",
];

/// How a defect ends a thread, or is passed over, other than by `crates/model/src/invariant.rs`.
const PANICS: &[&str] =
    &["panic!(", "unreachable!(", "unimplemented!(", "debug_assert", "PoisonError", "catch_unwind"];

const LINES_MAX: usize = 700;

/// Most Rust files side by side: what a person takes in at a glance, and a few.
const FILES_MAX: usize = 14;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(below: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![below.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The folders of sources: the program's and each crate's.
fn source_folders() -> Vec<PathBuf> {
    let mut folders = vec![root().join("src")];
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        folders.push(entry.unwrap().path().join("src"));
    }
    folders.sort();
    folders
}

/// All Rust files of the program and its crates.
fn source_files() -> Vec<PathBuf> {
    source_folders().iter().flat_map(|folder| rust_files(folder)).collect()
}

/// The layer that a source file belongs to: the folder below src/ in the program and in
/// `crates/core`, else the crate.
fn module_of(file: &Path) -> String {
    let relative = file.strip_prefix(root()).unwrap();
    let parts: Vec<_> =
        relative.components().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect();
    let first = match &parts[..] {
        [crates, name, src, module, ..] if crates == "crates" && src == "src" => {
            match name.as_str() {
                "core" => module.as_str(),
                // As everybody calls it.
                "runtime" => "rt",
                _ => name.as_str(),
            }
        }
        [_, module, ..] => module.as_str(),
        _ => panic!("{} is no source file", file.display()),
    };
    first.trim_end_matches(".rs").to_owned()
}

fn is_test_file(file: &Path) -> bool {
    file.components().any(|c| {
        let c = c.as_os_str().to_string_lossy();
        c == "tests" || c == "tests.rs" || c.ends_with("_tests.rs") || c.starts_with("tests_")
    })
}

/// The lines of a file with their numbers, without comments and without its test module.
fn code_lines(file: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(file).unwrap();
    let mut lines = Vec::new();
    let mut previous = String::new();
    for (number, line) in text.lines().enumerate() {
        if previous.trim() == "#[cfg(test)]" && line.trim_end().ends_with('{') {
            break;
        }
        previous = line.to_owned();
        if !line.trim_start().starts_with("//") {
            lines.push((number + 1, line.to_owned()));
        }
    }
    lines
}

#[test]
fn layers_import_only_what_lies_below_them() {
    let mut wrong = Vec::new();
    for file in source_files() {
        let module = module_of(&file);
        if module == "lib" || module == "bin" || is_test_file(&file) {
            continue;
        }
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!("{}: {module} is in no layer; add it to LAYERS", file.display()));
            continue;
        };
        for (number, line) in code_lines(&file) {
            for found in line.match_indices("crate::").map(|(at, _)| &line[at + 7..]) {
                let name: String =
                    found.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let is_layer = LAYERS.iter().any(|(layer, _)| *layer == name);
                if is_layer && name != module && !allowed.contains(&name.as_str()) {
                    let place = format!("{}:{number}", file.display());
                    wrong.push(format!("{place}: {module} must not import {name}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_core_is_pure() {
    let mut wrong = Vec::new();
    for file in source_files() {
        if !PURE.contains(&module_of(&file).as_str()) || is_test_file(&file) {
            continue;
        }
        for (number, line) in code_lines(&file) {
            for word in IMPURE.iter().filter(|w| line.contains(**w)) {
                wrong.push(format!("{}:{number}: a pure module names {word}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_one_file_names_the_runtime_and_the_clock() {
    let mut wrong = Vec::new();
    for file in source_files() {
        if file.ends_with("crates/runtime/src/lib.rs") {
            continue;
        }
        for (number, line) in code_lines(&file) {
            for word in RUNTIME.iter().filter(|w| line.contains(**w)) {
                wrong.push(format!(
                    "{}:{number}: only crates/runtime/src/lib.rs may name {word}",
                    file.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_one_file_panics_on_purpose_and_none_goes_on_after_a_panic() {
    let mut wrong = Vec::new();
    for file in rust_files(&root().join("src")) {
        let is_of_a_node = OF_A_NODE.contains(&module_of(&file).as_str());
        if !is_of_a_node || is_test_file(&file) || file.ends_with("model/invariant.rs") {
            continue;
        }
        for (number, line) in code_lines(&file) {
            for word in PANICS.iter().filter(|w| line.contains(**w)) {
                wrong.push(format!("{}:{number}: {word}; use model::invariant", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_write_to_standard_error_in_one_place() {
    let folders = ["src/cli", "crates/command/src", "crates/bench/src"];
    let mut wrong = Vec::new();
    for file in folders.iter().flat_map(|folder| rust_files(&root().join(folder))) {
        for (number, line) in code_lines(&file) {
            if line.contains("eprintln!") {
                let file = file.display();
                wrong.push(format!("{file}:{number}: use distkv_command::say, for --json"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for_and_is_one_thing() {
    let mut wrong = Vec::new();
    let others = ["tests", "examples"].iter().flat_map(|f| rust_files(&root().join(f)));
    for file in source_files().into_iter().chain(others) {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.display();
        if !text.starts_with("//!") {
            wrong.push(format!("{name}: does not open with //! that says what it is for"));
        }
        if text.lines().count() > LINES_MAX {
            wrong.push(format!("{name}: more than {LINES_MAX} lines; split it"));
        }
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        if ["utils", "util", "helpers", "helper", "common", "misc"].contains(&stem.as_str()) {
            wrong.push(format!("{name}: call it what it is"));
        }
        // Written apart, so that this file does not find itself.
        for word in [
            concat!("FIX", "ME"),
            concat!("XX", "X"),
            concat!("todo", "!("),
            concat!("(being", " built)"),
        ] {
            if text.contains(word) {
                wrong.push(format!("{name}: has {word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The folders below these that have more files side by side than may be, with how many they have.
fn crowded_folders(files: &[PathBuf], max: usize) -> Vec<(PathBuf, usize)> {
    let mut counts: BTreeMap<&Path, usize> = BTreeMap::new();
    for folder in files.iter().filter_map(|file| file.parent()) {
        *counts.entry(folder).or_default() += 1;
    }
    let crowded = counts.into_iter().filter(|(_, count)| *count > max);
    crowded.map(|(folder, count)| (folder.to_path_buf(), count)).collect()
}

#[test]
fn no_folder_has_more_files_than_one_sees_at_a_glance() {
    let mut files = source_files();
    files.extend(rust_files(&root().join("tests")));
    assert_eq!(crowded_folders(&files, FILES_MAX), []);
    let three = ["a/b/x.rs", "a/b/y.rs", "a/c/z.rs"].map(PathBuf::from);
    assert_eq!(crowded_folders(&three, 1), [(PathBuf::from("a/b"), 2)]);
}

#[test]
fn every_rust_file_is_reached_from_its_parent() {
    let mut wrong = Vec::new();
    let sources = source_folders();
    for file in source_files() {
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        let folder = file.parent().unwrap();
        let is_program = folder == root().join("src/bin")
            || (stem == "main" && folder.parent().unwrap().ends_with("src/bin"));
        if is_program || (stem == "lib" && sources.contains(&folder.to_path_buf())) {
            continue;
        }
        let (name, parents) = if stem == "mod" {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            (name, candidates(folder.parent().unwrap()))
        } else {
            (stem, candidates(folder))
        };
        let declared = parents.iter().any(|parent| {
            fs::read_to_string(parent).is_ok_and(|text| {
                text.lines().any(|l| l.trim_end().ends_with(&format!("mod {name};")))
            })
        });
        if !declared {
            wrong.push(format!("{}: no parent declares it", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files that may declare a module whose file lies in this folder.
fn candidates(folder: &Path) -> Vec<PathBuf> {
    let mut files = ["mod.rs", "lib.rs", "main.rs"].map(|name| folder.join(name)).to_vec();
    files.push(folder.with_extension("rs"));
    files
}
