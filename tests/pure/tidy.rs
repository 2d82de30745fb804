//! Layering and hygiene, as an ordinary test: who may import whom, who may name the runtime and
//! the clock, what every file must have, and what documents may say. `ARCHITECTURE.md` explains the
//! layers.

mod bounds;
mod documents;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// Which layer imports what of ours, no more and no less: crates, and the modules within `crates/core`
/// and within the program.
const LAYERS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("tree", &["model"]),
    ("protocol", &["model", "tree"]),
    ("access", &["model", "protocol"]),
    ("actor", &["model"]),
    ("replica", &["model", "tree"]),
    ("membership", &["model"]),
    ("engine", &["model", "tree", "protocol", "actor", "replica"]),
    ("crowd", &["model"]),
    ("virtual_net", &[]),
    ("rt", &["model"]),
    ("storage", &["model", "tree", "replica", "engine", "rt"]),
    ("hub", &["model", "tree", "protocol", "replica", "engine", "storage", "crowd"]),
    ("metrics", &[]),
    ("durable", &["model", "engine", "hub", "storage", "metrics"]),
    ("secure", &["model", "protocol", "membership"]),
    ("tls", &[]),
    ("http", &["rt", "metrics", "tls", "crowd"]),
    ("client", &["model", "rt", "tls"]),
    ("command", &["model", "protocol", "rt", "client", "secure", "tls"]),
    ("bench", &["model", "rt", "client", "command", "tls"]),
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
    (
        "server",
        &[
            "crowd", "model", "tree", "protocol", "access", "replica", "engine", "storage", "hub",
            "metrics", "rt", "tls",
        ],
    ),
    ("api", &["crowd", "model", "protocol", "access", "client", "server", "http", "tls"]),
    // Of `command`, a node takes what opens plain files, and what makes a text safe to look at.
    (
        "node",
        &[
            "crowd",
            "model",
            "tree",
            "protocol",
            "access",
            "membership",
            "replica",
            "engine",
            "storage",
            "hub",
            "durable",
            "metrics",
            "http",
            "secure",
            "tls",
            "command",
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
            "command",
            "bench",
            "secure",
            "tls",
            "membership",
            "storage",
            "engine",
            "protocol",
            "access",
            "model",
            "rt",
        ],
    ),
];

/// Modules without a clock, randomness, sockets, files or the environment; some have locks.
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
    "hub",
    "durable",
    "secure",
    "crowd",
    "api",
    "sim",
];

/// Modules that are pure, but for what they make at random.
const PURE_BUT_RANDOM: &[&str] = &["tls"];

/// What a pure module must not name outside of its tests.
const IMPURE: &[&str] = &[
    "std::net::Tcp",
    "std::net::Udp",
    "std::fs",
    "std::env",
    "std::thread",
    "Instant::now",
    "SystemTime",
    "std::process",
    "std::os",
    "std::io::std",
    "async_executor",
    "async_io",
    "blocking::",
    "distkv_runtime",
    "socket2",
    "rustix",
    "print!",
    "println!",
    "dbg!",
];

/// What a module that is pure in all respects must not name, either.
const RANDOM: &[&str] = &[
    "rand::rng()",
    "rand::random",
    "thread_rng",
    "OsRng",
    "SysRng",
    "getrandom",
    "SystemRandom",
    "KeyPair::generate",
    "default_provider",
    "RandomState::new",
];

/// What only `crates/runtime/src/lib.rs` may name.
const RUNTIME: &[&str] =
    &["async_executor", "async_io", "blocking::", "Instant::now", "SystemTime::now"];

/// What a node is made of: these refuse what comes from outside, and never work around a defect of their own.
/// Without `rt`: its threads go on after a panic of the libraries that it wraps.
const OF_A_NODE: &[&str] = &[
    "model",
    "tree",
    "protocol",
    "access",
    "actor",
    "replica",
    "membership",
    "engine",
    "storage",
    "hub",
    "metrics",
    "durable",
    "secure",
    "tls",
    "http",
    "crowd",
    "server",
    "api",
    "node",
];

/// How a defect ends a thread, or is passed over, other than by `crates/model/src/invariant.rs`.
const PANICS: &[&str] = &[
    "panic!",
    "unreachable!",
    "unimplemented!",
    "debug_assert",
    "PoisonError",
    "catch_unwind",
    "panic_any",
];

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

/// All other Rust files: tests, examples and measurements, of the program and of its crates.
fn other_files() -> Vec<PathBuf> {
    let mut folders = vec![root().join("fuzz/fuzz_targets")];
    for owner in source_folders() {
        folders.extend(["tests", "examples", "benches"].map(|name| owner.with_file_name(name)));
    }
    let folders = folders.iter().filter(|folder| folder.is_dir());
    folders.flat_map(|folder| rust_files(folder)).collect()
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

/// The layer that a path leads into, if it leads into one of ours. What takes all names of a crate
/// that has layers is one, `*`.
fn layer_of(names: &[String]) -> Option<&str> {
    match names[0].as_str() {
        "distkv" | "distkv_core" => {
            let name = names.get(1)?;
            let is_layer = name == "*" || LAYERS.iter().any(|(layer, _)| layer == name);
            is_layer.then_some(name)
        }
        "distkv_runtime" => Some("rt"),
        name => name.strip_prefix("distkv_"),
    }
}

/// The source files that a node or its tools are made of, with their layers.
fn layered_files() -> Vec<(PathBuf, String)> {
    let files = source_files().into_iter().filter(|file| !is_test_file(file));
    let files = files.map(|file| (module_of(&file), file));
    files.filter(|(name, _)| name != "lib" && name != "bin").map(|(name, f)| (f, name)).collect()
}

/// The layers that this code of a layer imports, with lines.
fn imports(layer: &str, source: &Source) -> Vec<(usize, String)> {
    let paths = source.paths().into_iter();
    let found = paths.filter_map(|(line, names)| Some((line, layer_of(&names)?.to_owned())));
    found.filter(|(_, name)| name != layer).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn layers_import_only_what_lies_below_them() {
    let mut wrong = Vec::new();
    let mut used = BTreeMap::<String, BTreeSet<String>>::new();
    for (file, layer) in layered_files() {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
            wrong.push(format!("{}: {layer} is in no layer; add it to LAYERS", file.display()));
            continue;
        };
        for (line, name) in imports(&layer, &Source::read(&file)) {
            if !allowed.contains(&name.as_str()) {
                wrong.push(format!("{}:{line}: {layer} must not import {name}", file.display()));
            }
            used.entry(layer.clone()).or_default().insert(name);
        }
    }
    for (layer, allowed) in LAYERS {
        let used = used.remove(*layer).unwrap_or_default();
        for name in allowed.iter().filter(|name| !used.contains(**name)) {
            wrong.push(format!("LAYERS: {layer} does not import {name}; take it out"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The layers that reach themselves through what they may import.
fn circular<'a>(layers: &[(&'a str, &[&'a str])]) -> Vec<&'a str> {
    let mut left = layers.to_vec();
    loop {
        let names: Vec<&str> = left.iter().map(|(name, _)| *name).collect();
        let before = left.len();
        left.retain(|(_, below)| below.iter().any(|name| names.contains(name)));
        if left.len() == before {
            return names;
        }
    }
}

#[test]
fn no_layer_lies_below_itself() {
    assert_eq!(circular(LAYERS), Vec::<&str>::new());
    assert_eq!(
        circular(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &[])]),
        ["a", "b", "c"]
    );
}

#[test]
fn what_a_layer_imports_is_seen_however_it_is_written() {
    for (file, text, expected) in [
        ("crates/core/src/replica/mod.rs", "use super::engine::Engine;", "engine"),
        ("crates/core/src/tree/sums.rs", "use super::super::engine::Engine;", "engine"),
        ("crates/core/src/tree.rs", "use crate::{\n    engine::Engine, tree};", "engine"),
        ("crates/core/src/tree.rs", "use crate as c;\nuse c::engine;", "engine"),
        ("crates/core/src/tree.rs", "use crate::*;", "*"),
        ("src/api/mod.rs", "use distkv_hub::Hub;", "hub"),
        ("src/api/mod.rs", "fn f() { distkv_runtime::now(); }", "rt"),
        ("src/api/mod.rs", "use distkv_core::{engine};", "engine"),
        ("src/api/mod.rs", "use super::node::{Node};", "node"),
        ("crates/durable/src/open.rs", "#[cfg(test)]\nfn f() {}\nuse distkv_tls::Ca;", "tls"),
    ] {
        let layer = module_of(&root().join(file));
        let found = imports(&layer, &Source::of(file, text));
        assert_eq!(found, [(text.lines().count(), expected.to_owned())], "{file}: {text}");
    }
    let own =
        "use super::sums::A;\nuse crate::tree::{B};\nuse std::engine::C;\n// use crate::engine;";
    assert_eq!(imports("tree", &Source::of("crates/core/src/tree/table.rs", own)), []);
}

/// The words of a list that code has, as it is written or as what its names stand for, with lines.
fn named<'a>(source: &Source, words: &[&'a str]) -> BTreeSet<(usize, &'a str)> {
    let paths = source.paths().into_iter().map(|(line, names)| (line, names.join("::")));
    let mut texts: Vec<(usize, String)> = paths.collect();
    texts.extend(source.lines().map(|(line, text)| (line, text.to_owned())));
    let found = texts.iter().flat_map(|(line, text)| {
        let is_named = move |word: &&&str| {
            // All names of a module are also those that must not be named.
            let all = text.strip_suffix('*').is_some_and(|module| word.starts_with(module));
            all && text.contains("::") || text.contains(**word)
        };
        words.iter().filter(is_named).map(|word| (*line, *word))
    });
    found.collect()
}

#[test]
fn the_core_is_pure() {
    let mut wrong = Vec::new();
    let mut random = BTreeSet::new();
    for (file, layer) in layered_files() {
        let is_pure = PURE.contains(&layer.as_str());
        if !is_pure && !PURE_BUT_RANDOM.contains(&layer.as_str()) {
            continue;
        }
        let source = Source::read(&file);
        let mut found = named(&source, IMPURE);
        if is_pure {
            found.extend(named(&source, RANDOM));
        } else if !named(&source, RANDOM).is_empty() {
            random.insert(layer);
        }
        for (line, word) in found {
            wrong.push(format!("{}:{line}: a pure module names {word}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(random.iter().eq(PURE_BUT_RANDOM), "of PURE_BUT_RANDOM, only {random:?} are random");
}

/// The rows of a document's table whose first cells name one of ours, with what stands in this cell.
fn rows_of_layers(table: &str, cell: usize) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let names = cells.iter().take(cell).map(|cell| cell.split('`').nth(1).unwrap_or(""));
        let names = names.map(|name| match name.strip_prefix("distkv-").unwrap_or(name) {
            "runtime" => "rt",
            name => name,
        });
        let layer = names.rev().find(|name| LAYERS.iter().any(|(layer, _)| layer == name));
        if let (Some(layer), Some(told)) = (layer, cells.get(cell)) {
            rows.push((layer.to_owned(), (*told).to_owned()));
        }
    }
    rows
}

#[test]
fn documents_call_pure_what_is_checked_to_be_pure() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, map) = text.split_once("\n## Code map\n").unwrap();
    let map = rows_of_layers(map.split("\n## ").next().unwrap(), 3);
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let modules = rows_of_layers(&lib.replace("//! ", ""), 2);
    let mut wrong = Vec::new();
    for (layer, told) in map.iter().chain(&modules) {
        let is_pure = ["none", "locks", "yes", "yes (it has locks)"].contains(&told.as_str());
        let is_random = ["randomness", "but for randomness"].contains(&told.as_str());
        if is_pure != PURE.contains(&layer.as_str())
            || is_random != PURE_BUT_RANDOM.contains(&layer.as_str())
        {
            wrong.push(format!("{layer} is called {told:?}; see PURE in tests/pure/tidy.rs"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (document, rows, without) in [
        ("ARCHITECTURE.md", map, &["virtual_net"][..]),
        ("src/lib.rs", modules, &["virtual_net", "sim"]),
    ] {
        let told: BTreeSet<&str> = rows.iter().map(|(layer, _)| layer.as_str()).collect();
        let layers = LAYERS.iter().map(|(layer, _)| *layer);
        let expected: BTreeSet<&str> = layers.filter(|layer| !without.contains(layer)).collect();
        assert_eq!(told, expected, "{document}");
    }
}

#[test]
fn what_is_impure_is_seen_however_it_is_written() {
    for (text, expected) in [
        ("use std::{env, fs};", &["std::env", "std::fs"][..]),
        (
            "use std::net::{self, IpAddr};\nfn f() { net::TcpStream::connect(a); }",
            &["std::net::Tcp"],
        ),
        ("use std::net::*;", &["std::net::Tcp", "std::net::Udp"]),
        ("use std::time::{Instant as I};\nfn f() { I::now() }", &["Instant::now"]),
        ("use std as s;\nfn f() { s::env::var(a) }", &["std::env"]),
        ("#[cfg(test)]\nfn a() {}\nfn b() { std::fs::read(c) }", &["std::fs"]),
        ("fn a() {} // std::fs\nfn b() { c(\"std::fs\") }\n#[cfg(test)]\nuse std::fs;", &[]),
    ] {
        let found = named(&Source::of("crates/core/src/tree.rs", text), IMPURE);
        let found: BTreeSet<&str> = found.into_iter().map(|(_, word)| word).collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn only_one_file_names_the_runtime_and_the_clock() {
    let mut wrong = Vec::new();
    for file in source_files() {
        if file.ends_with("crates/runtime/src/lib.rs") {
            continue;
        }
        for (line, word) in named(&Source::read(&file), RUNTIME) {
            wrong.push(format!(
                "{}:{line}: only crates/runtime/src/lib.rs may name {word}",
                file.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The files that a node is made of.
fn files_of_a_node() -> Vec<PathBuf> {
    let files = layered_files().into_iter();
    files.filter(|(_, layer)| OF_A_NODE.contains(&layer.as_str())).map(|(file, _)| file).collect()
}

#[test]
fn only_one_file_panics_on_purpose_and_none_goes_on_after_a_panic() {
    let mut wrong = Vec::new();
    let files = files_of_a_node();
    for file in files.iter().filter(|file| !file.ends_with("crates/model/src/invariant.rs")) {
        for (line, word) in named(&Source::read(file), PANICS) {
            wrong.push(format!("{}:{line}: {word}; use model::invariant", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for layer in OF_A_NODE {
        let has_files = files.iter().any(|file| module_of(file) == *layer);
        assert!(has_files, "OF_A_NODE: no file is of {layer}");
    }
}

#[test]
fn commands_write_to_standard_error_in_one_place() {
    let folders = ["src/cli", "crates/command/src", "crates/bench/src"];
    let mut wrong = Vec::new();
    for file in folders.iter().flat_map(|folder| rust_files(&root().join(folder))) {
        for (number, line) in Source::read(&file).lines() {
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
    for file in source_files().into_iter().chain(other_files()) {
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
    files.extend(other_files());
    files.retain(|file| file.parent() != Some(&root().join("examples")));
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
        let line = format!("mod {name};");
        let texts = parents.iter().filter_map(|parent| fs::read_to_string(parent).ok());
        let texts: Vec<String> = texts.collect();
        if !texts.iter().any(|text| text.lines().any(|l| l.trim_end().ends_with(&line))) {
            wrong.push(format!("{}: no parent declares it", file.display()));
        }
        // What is called a test is not looked at, so it must be one.
        let mut parents = parents.iter().filter(|parent| parent.is_file());
        if is_test_file(&file) && !parents.any(|parent| is_test_file(parent)) {
            let without = texts.iter().map(|text| source::without_tests(text));
            let mut lines = without.flat_map(|t| t.lines().map(str::to_owned).collect::<Vec<_>>());
            if lines.any(|l| l.trim_end().ends_with(&line)) {
                wrong.push(format!("{}: not only for tests; call it another name", file.display()));
            }
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
