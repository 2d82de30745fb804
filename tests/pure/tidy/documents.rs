//! What people read: documents link to what exists, name files that exist, and are no longer than
//! they should be; no file names a document that is not part of the project.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use distkv::model::defects::Defect;

use super::source::is_name;
use super::{other_files, root, rust_files, source_files};

/// `ARCHITECTURE.md` can be read in one go.
const ARCHITECTURE_BYTES_MAX: usize = 14_336;

/// Where a word that names a file begins, seen from the root.
const FOLDERS: &[&str] =
    &["src/", "crates/", "tests/", "docs/", "examples/", "fuzz/", "benches/", ".ci/", "snapshots/"];

/// Documents that were never part of the project, as references called them. Written apart, so that
/// this file does not find itself.
const FOREIGN: &[&str] = &[concat!("DES", "IGN"), concat!("RU", "LES"), concat!("PROTO", "COL")];

/// Whether tools made this folder, which may have documents of others.
fn is_foreign(folder: &Path) -> bool {
    let name = folder.file_name().unwrap().to_string_lossy();
    name.starts_with('.') || ["target", "node_modules", "build", "dist"].contains(&&*name)
}

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.extend((!is_foreign(&path)).then_some(path));
            } else if path.extension().is_some_and(|e| e == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// All documents.
fn documents() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    for folder in ["docs", "tests", "snapshots", "crates", "clients"] {
        files.extend(files_below(&root().join(folder), "md"));
    }
    assert!(files.len() > 20, "only {} documents were found", files.len());
    files
}

/// All files in which a reference may stand.
fn texts() -> Vec<PathBuf> {
    let mut files = documents();
    files.extend(source_files());
    for folder in ["tests", "examples", "benches", "fuzz/fuzz_targets"] {
        files.extend(rust_files(&root().join(folder)));
    }
    files.extend(files_below(&root().join("tests"), "txt"));
    // Its own test names what does not exist.
    files.retain(|file| !file.ends_with("tests/pure/tidy/documents.rs"));
    files
}

fn name_of(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

/// Runs a check over files and fails with all that it finds.
fn check(files: Vec<PathBuf>, find: impl Fn(&Path, &str) -> Vec<String>) {
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let found = find(&file, &text);
        wrong.extend(found.iter().map(|problem| format!("{}: {problem}", name_of(&file))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The headings of a document, as they are read: without marks of code.
fn headings(text: &str) -> Vec<String> {
    let mut is_code = false;
    let titles = text.lines().filter(|line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    });
    let titles = titles.filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    titles.map(|title| title.replace('`', "")).collect()
}

/// Where links lead to a heading: what web pages of documents make of them.
fn anchors(text: &str) -> BTreeSet<String> {
    let of_title = |title: &String| -> String {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings(text).iter().map(of_title).collect()
}

/// Links of a document whose target does not exist, or has no such heading.
fn dead_links(file: &Path, text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2).flat_map(|part| part.split('`').step_by(2));
    let prose = prose.collect::<Vec<_>>().concat();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(t, _)| t);
    let targets = targets.filter(|t| !t.starts_with("http") && !t.contains(char::is_whitespace));
    let is_dead = |target: &&str| {
        let (name, anchor) = target.split_once('#').unwrap_or((target, ""));
        let place = file.parent().unwrap().join(name);
        if anchor.is_empty() || !name.is_empty() && !name.ends_with(".md") {
            return !place.exists();
        }
        let other = match name {
            "" => Ok(text.to_owned()),
            _ => fs::read_to_string(place),
        };
        !other.is_ok_and(|other| anchors(&other).contains(anchor))
    };
    targets.filter(is_dead).map(|target| format!("the link to {target} leads nowhere")).collect()
}

/// Paths that a document names, seen from the root or from its own folder, and that do not exist.
fn dead_paths(file: &Path, text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || "`()[],;|\"'#".contains(c));
    let paths = words.filter(|word| FOLDERS.iter().any(|start| word.starts_with(start)));
    let paths = paths.map(|word| word.trim_end_matches(['.', ':']));
    let places = [root(), file.parent().unwrap().to_path_buf()];
    let exists = |path: &str| places.iter().any(|place| place.join(path).exists());
    let dead = paths.filter(|path| !path.contains('*') && !exists(path));
    dead.map(|path| format!("{path} does not exist")).collect()
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || "_-./".contains(c)
}

/// References to documents that do not exist.
fn dead_references(file: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in line.split(|c: char| !is_word_char(c)) {
            let bare = word.trim_matches(['.', '/', '-']);
            if FOREIGN.contains(&bare) || FOREIGN.contains(&bare.trim_end_matches(".md")) {
                wrong.push(format!("line {}: {bare} is no document of this project", number + 1));
            }
        }
        for (at, _) in line.match_indices(".md") {
            let (before, behind) = line.split_at(at + 3);
            let start = before.rfind(|c: char| !is_word_char(c)).map_or(0, |at| at + 1);
            let name = &before[start..];
            if behind.starts_with(is_word_char) && !behind.starts_with('.') || name.contains("//") {
                continue;
            }
            let places = [root(), root().join("docs"), file.parent().unwrap().to_path_buf()];
            if !places.iter().any(|place| place.join(name).is_file()) {
                wrong.push(format!("line {}: {name} does not exist", number + 1));
            }
        }
    }
    wrong
}

/// A text on one line, without what comments begin with.
fn on_one_line(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim().trim_start_matches(['/', '!', '#']).trim());
    lines.collect::<Vec<_>>().join(" ")
}

/// The parts of documents that a text names, with the documents: `x.md, "Part" and "Part"` and
/// `"Part" in [x](x.md)`, with a link or without.
fn named_parts(text: &str) -> Vec<(String, String)> {
    let text = on_one_line(text);
    let mut found = Vec::new();
    for (at, _) in text.match_indices(".md") {
        let (before, mut behind) = text.split_at(at + 3);
        let start = before.rfind(|c: char| !is_word_char(c)).map_or(0, |at| at + 1);
        let (before, name) = before.split_at(start);
        if let Some(anchor) = behind.strip_prefix('#') {
            behind = &anchor[anchor.find([')', ' ']).unwrap_or(anchor.len())..];
        }
        behind = behind.trim_start_matches(['`', ')']);
        while let Some(rest) = behind.strip_prefix(", \"").or(behind.strip_prefix(" and \""))
            && let Some((part, rest)) = rest.split_once('"')
        {
            found.push((name.to_owned(), part.to_owned()));
            behind = rest;
        }
        let link = before.strip_suffix("](").and_then(|link| link.rsplit_once('['));
        let before = link.map_or(before, |(before, _)| before);
        if let Some(quoted) = before.strip_suffix("\" in ")
            && let Some((_, part)) = quoted.rsplit_once('"')
        {
            found.push((name.to_owned(), part.to_owned()));
        }
    }
    found
}

/// Whether a document has a heading, or a paragraph or item with a title, that begins like that.
fn has_part(text: &str, part: &str) -> bool {
    headings(text).iter().any(|title| title.starts_with(part)) || text.contains(&format!("*{part}"))
}

/// Parts that texts name and that their documents do not have.
fn dead_parts(file: &Path, text: &str) -> Vec<String> {
    let places = [root(), root().join("docs"), file.parent().unwrap().to_path_buf()];
    let mut wrong = Vec::new();
    for (name, part) in named_parts(text) {
        let document = places.iter().map(|place| place.join(&name)).find(|path| path.is_file());
        if document.is_some_and(|path| !has_part(&fs::read_to_string(path).unwrap(), &part)) {
            wrong.push(format!("{name} has no part called {part:?}"));
        }
    }
    wrong
}

#[test]
fn links_lead_somewhere() {
    check(documents(), dead_links);
}

#[test]
fn documents_name_only_files_that_exist() {
    check(documents(), dead_paths);
}

#[test]
fn references_name_documents_that_exist() {
    check(texts(), dead_references);
}

#[test]
fn references_name_parts_that_exist() {
    let mut files = texts();
    for folder in ["clients", "tests"] {
        files.extend(
            ["go", "py"].iter().flat_map(|ending| files_below(&root().join(folder), ending)),
        );
    }
    check(files, dead_parts);
}

/// Where names of code must be those of something: their tables and texts name tests and functions.
const NAME_CODE: &[&str] = &["ARCHITECTURE.md", "docs/simulator.md"];

/// A module of the project.
struct Module {
    /// Like `crates::core::engine::tests`.
    name: String,
    /// All names that it gives to something.
    defines: BTreeSet<String>,
    /// The types that it has methods of.
    implements: BTreeSet<String>,
}

impl Module {
    fn of(name: &str, text: &str) -> Self {
        let (mut defines, mut implements) = (BTreeSet::new(), BTreeSet::new());
        for line in text.lines() {
            let words: Vec<&str> = line.split(|c: char| !is_name(c)).collect();
            for pair in words.windows(2).filter(|pair| KEYWORDS.contains(&pair[0])) {
                defines.insert(pair[1].to_owned());
            }
            // One of an `enum`.
            let first = first_word(line);
            let behind = &line.trim_start()[first.len()..];
            let is_variant = behind.starts_with([',', '(']) || behind.starts_with(" {");
            if is_variant && first.starts_with(|c: char| c.is_ascii_uppercase()) {
                defines.insert(first.to_owned());
            }
            if words[0] == "impl" {
                implements.extend(words.iter().map(|word| (*word).to_owned()));
            }
        }
        Self { name: format!("::{name}::"), defines, implements }
    }

    /// Whether this name of code is one of this module's.
    fn has(&self, word: &str) -> bool {
        let Some((above, name)) = word.rsplit_once("::") else {
            return self.defines.contains(word);
        };
        let owner = above.rsplit("::").next().unwrap();
        let is_here = if owner.starts_with(|c: char| c.is_ascii_uppercase()) {
            self.defines.contains(owner) || self.implements.contains(owner)
        } else {
            self.name.contains(&format!("::{above}::"))
        };
        self.name.ends_with(&format!("::{word}::")) || is_here && self.defines.contains(name)
    }
}

/// What a name stands behind that it is given to.
const KEYWORDS: &[&str] = &["fn", "struct", "enum", "trait", "mod", "const", "static", "type"];

/// The word that a line begins with.
fn first_word(line: &str) -> &str {
    let line = line.trim_start();
    &line[..line.find(|c: char| !is_name(c)).unwrap_or(line.len())]
}

fn modules() -> Vec<Module> {
    let mut files = source_files();
    files.extend(other_files());
    let named = files.into_iter().map(|file| {
        let name = name_of(&file.with_extension(""));
        let parts: Vec<&str> = name.split('/').filter(|p| !["mod", "src"].contains(p)).collect();
        Module::of(&parts.join("::"), &fs::read_to_string(file).unwrap())
    });
    named.collect()
}

/// Names of code in a document that nothing in the code has.
fn dead_names(text: &str, modules: &[Module]) -> Vec<String> {
    let spans = text.split("```").step_by(2).flat_map(|part| part.split('`').skip(1).step_by(2));
    let words = spans.flat_map(|span| span.split(", ")).map(|word| word.trim_end_matches("()"));
    let is_part = |part: &str| {
        part.chars().all(is_name) && part.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    let names = words.filter(|word| word.contains("::") || word.contains('_'));
    let names = names.filter(|word| word.split("::").all(is_part));
    let dead = names.filter(|word| !modules.iter().any(|module| module.has(word)));
    dead.map(|word| format!("no code has {word}")).collect()
}

#[test]
fn documents_name_only_code_that_exists() {
    let mut modules = modules();
    // Defects are called in documents as on the command line.
    let called = Defect::ALL.iter().map(|defect| defect.name()).collect();
    modules.push(Module { name: String::new(), defines: called, implements: BTreeSet::new() });
    check(NAME_CODE.iter().map(|name| root().join(name)).collect(), |_, text| {
        dead_names(text, &modules)
    });
    let good = "`Engine::handle` `engine::tests::delete_group, replica::tests` `Output::NeedIncarnation` \
                `(name, incarnation)` `--a_b` `documents_name_only_code_that_exists`\n```\na::b\n```\n";
    assert_eq!(dead_names(good, &modules), Vec::<String>::new());
    for bad in
        ["Engine::gone", "engine::tests::gone", "Output::Vanished", "gone_test", "Vanished::handle"]
    {
        assert_eq!(dead_names(&format!("a `{bad}` b"), &modules).len(), 1, "{bad}");
    }
}

#[test]
fn architecture_is_short() {
    let bytes = fs::metadata(root().join("ARCHITECTURE.md")).unwrap().len();
    assert!(bytes <= ARCHITECTURE_BYTES_MAX as u64, "{bytes} bytes: move something to docs/");
}

#[test]
fn decisions_are_numbered_and_listed() {
    let folder = root().join("docs/decisions");
    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name != "README.md");
    names.sort();
    for (at, name) in names.iter().enumerate() {
        let number = format!("{:04}", at + 1);
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let (title, _) = text.split_once('\n').unwrap();
        let title = title.strip_prefix(&format!("# {number} "));
        let row = title.map(|title| format!("| [{number}]({name}) | {title} |"));
        assert!(row.is_some_and(|row| index.contains(&row)), "{name}: number, title or index");
        for part in ["\n## Context\n", "\n## Decision\n", "\n## Consequences\n"] {
            assert!(text.contains(part), "{name}: has no{part}");
        }
    }
}

/// The tests that the table of the Rust client's proofs names, rule by rule.
fn proofs(text: &str) -> Vec<Vec<&str>> {
    let (_, table) = text.split_once("## The Rust client's proofs\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with('|') && line.contains('`'));
    rows.map(|row| row.split('`').skip(1).step_by(2).collect()).collect()
}

#[test]
fn each_rule_of_clients_names_a_proof_in_rust_that_exists() {
    let text = fs::read_to_string(root().join("docs/client-behaviour.md")).unwrap();
    let is_rule = |line: &&str| line.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok());
    let rows = proofs(&text);
    assert_eq!(rows.len(), text.lines().filter(is_rule).count());
    let mut sources = String::new();
    for folder in ["tests", "crates/client/src", "crates/model/src"] {
        for file in rust_files(&root().join(folder)) {
            sources.push_str(&fs::read_to_string(file).unwrap());
        }
    }
    let missing: Vec<_> = rows
        .concat()
        .into_iter()
        .filter(|name| !sources.contains(&format!("fn {name}()")))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn what_leads_nowhere_is_noticed() {
    let file = root().join("docs/x.md");
    assert_eq!(dead_links(&file, "[a](bounds.md) [b](../README.md#start)"), Vec::<String>::new());
    assert_eq!(dead_links(&file, "[a](gone.md)").len(), 1);
    assert_eq!(dead_paths(&file, "see `src/lib.rs`: there, or src/*.rs").len(), 0);
    assert_eq!(dead_paths(&file, "see `src/gone.rs`").len(), 1);
    let good = "bounds.md; docs/bounds.md), \"Links\"; PROTOCOL_VERSION";
    assert_eq!(dead_references(&file, good), Vec::<String>::new());
    for bad in ["gone.md", FOREIGN[0], &format!("({} 4)", FOREIGN[1])] {
        assert_eq!(dead_references(&file, bad).len(), 1, "{bad}");
    }
    assert_eq!(dead_links(&file, "# A b: `c_d`\n[a](#a-b-c_d) [b](bounds.md#membership)").len(), 0);
    for bad in ["[a](#gone)", "[a](bounds.md#gone)", "[a](gone.md#links)", "```\n# A\n```\n[a](#a)"]
    {
        assert_eq!(dead_links(&file, bad).len(), 1, "{bad}");
    }
    for good in [
        "bounds.md, \"Membership\"",
        "//! docs/bounds.md, \"Membership\n//! and\" that",
        "see \"Membership\" in [bounds.md](bounds.md#membership)",
        "([the way](bounds.md#membership), \"Membership\" and \"Membership\")",
    ] {
        assert!(!named_parts(good).is_empty(), "{good}");
    }
    for bad in [
        "bounds.md, \"Gone\"",
        "// docs/bounds.md, \"Membership\n    // gone\"",
        "see \"Gone\" in [bounds.md](bounds.md#membership)",
        "([the way](bounds.md#membership), \"Membership\" and \"Gone\")",
        // Its text has this, and no title.
        "bounds.md, \"The same on every node\"",
    ] {
        assert_eq!(dead_parts(&file, bad).len(), 1, "{bad}");
    }
}
