//! The commands that README, the guides for operators and each `--help` print.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::processes::{PROGRAM, bench_program};

/// What a newcomer reads, and the guides that it leads to.
const DOCUMENTS: [&str; 8] = [
    include_str!("../../../README.md"),
    include_str!("../../../docs/operating.md"),
    include_str!("../../../docs/monitoring.md"),
    include_str!("../../../docs/keys-and-users.md"),
    include_str!("../../../docs/data.md"),
    include_str!("../../../docs/coming-from-distkv.md"),
    include_str!("../../../docs/security.md"),
    include_str!("../../../docs/http-api.md"),
];
/// For those who change the program.
const TESTING: &str = include_str!("../../../docs/testing.md");

/// All commands of the programs that are printed, without the comments behind them, each once.
pub fn commands() -> BTreeSet<String> {
    let documents = DOCUMENTS.into_iter().flat_map(typed);
    let mut found: BTreeSet<String> = documents.filter(|c| is_ours(c)).collect();
    add_help(Path::new(PROGRAM), &[], &mut found);
    add_help(&bench_program(), &[], &mut found);
    found
}

fn is_ours(command: &str) -> bool {
    let ours = ["distkv-node ", "distkv-bench", "dk ", "alias dk=", "echo ", "curl ", "EDITOR="];
    ours.iter().any(|start| command.starts_with(start))
}

/// Those of a document's blocks of shell commands, and those that are shown with their output.
fn typed(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut blocks = document.split("```");
    blocks.next();
    while let (Some(block), Some(_)) = (blocks.next(), blocks.next()) {
        let (language, body) = block.split_once('\n').unwrap();
        let lines: Vec<&str> = body.lines().collect();
        match language {
            "sh" => found.extend(joined(&lines)),
            "" => {
                let typed = lines.iter().filter_map(|line| line.strip_prefix("$ "));
                found.extend(typed.map(str::to_owned));
            }
            _ => {}
        }
    }
    found
}

/// Those of a command's help, and of the commands below it.
fn add_help(program: &Path, command: &[&str], found: &mut BTreeSet<String>) {
    let output = Command::new(program).args(command).arg("--help").env("COLUMNS", "80").output();
    let help = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(
        !help.contains("///"),
        "{command:?}: the slashes of a comment are in the help:\n{help}"
    );
    // Before that, there are commands' names and options.
    let examples = match command {
        [] if program == Path::new(PROGRAM) => help.split_once("Begin with:\n").unwrap().1,
        _ => help.split_once("Examples:\n").map_or("", |(_, rest)| rest),
    };
    let lines: Vec<&str> = examples.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    found.extend(joined(&lines).into_iter().filter(|command| is_ours(command)));
    let Some((_, commands)) = help.split_once("\nCommands:\n") else { return };
    let (commands, _) = commands.split_once("\n\n").unwrap();
    for line in commands.lines().filter(|line| !line.starts_with("    ")) {
        let name = line.split_whitespace().next().unwrap();
        if name != "help" {
            add_help(program, &[command, &[name]].concat(), found);
        }
    }
}

/// Commands, of which one may take several lines; without comments.
fn joined(lines: &[&str]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in lines {
        let line = line.split(" # ").next().unwrap().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match found.last_mut().filter(|_| goes_on) {
            Some(command) => {
                let begun = command.trim_end_matches('\\').trim_end().to_owned();
                *command = format!("{begun} {line}");
            }
            None => found.push(line.to_owned()),
        }
        goes_on = line.ends_with('\\') || line.ends_with('|');
    }
    found
}

/// The commands of README and of the page on tests that are not this program's, and for each what is wrong
/// with it, if anything is: what `cargo` is told to run must be there.
pub fn cargo_problems() -> Vec<(String, Option<String>)> {
    let documents = [DOCUMENTS[0], TESTING].into_iter().flat_map(typed);
    let others = documents.filter(|command| !is_ours(command));
    others.map(|command| (command.clone(), problem_of(&command))).collect()
}

fn problem_of(command: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let words: Vec<&str> = command.split_whitespace().collect();
    let behind = |option: &str| {
        let at = words.iter().position(|word| *word == option)?;
        words.get(at + 1).copied()
    };
    let missing = |paths: &[PathBuf]| {
        let is_there = paths.iter().any(|path| path.exists());
        (!is_there).then(|| format!("there is none of {paths:?}"))
    };
    let script = words[0].trim_start_matches("./");
    if script.ends_with(".sh") {
        return missing(&[root.join(script)]);
    }
    if let Some(script) = words.last().filter(|word| word.ends_with(".py")) {
        return missing(&[root.join(script)]);
    }
    let package = behind("-p").map_or_else(
        || root.to_owned(),
        |name| root.join("crates").join(name.trim_start_matches("distkv-")),
    );
    if let Some(name) = behind("--example") {
        let folder = package.join("examples").join(name);
        return missing(&[folder.with_extension("rs"), folder.join("main.rs")]);
    }
    if let Some(name) = behind("--bench") {
        return missing(&[root.join("benches").join(name).with_extension("rs")]);
    }
    if let Some(name) = behind("--test") {
        let folder = package.join("tests").join(name);
        let filter = behind(name).filter(|word| !word.starts_with('-')).unwrap_or("");
        return missing(&[folder.join("main.rs")])
            .or_else(|| (!has_test(&folder, "", filter)).then(|| format!("no test {filter}")));
    }
    if command.contains("cargo fuzz run") {
        return missing(&[root
            .join("fuzz/fuzz_targets")
            .join(words.last().unwrap())
            .with_extension("rs")]);
    }
    let known = ["cargo run --release -- demo", "cargo deny check advisories"];
    (!known.contains(&command)).then(|| String::from("nobody knows what it is"))
}

/// Whether there is a test function of this name, in whatever test program.
pub fn is_test(name: &str) -> bool {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    has_test(&tests, "", &format!("::{name}"))
}

/// Whether a folder of modules has a test whose whole name (`module::function`) has that in it.
fn has_test(folder: &Path, module: &str, filter: &str) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let module = format!("{module}{stem}::");
        if path.is_dir() {
            return has_test(&path, &module, filter);
        }
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut names =
            text.split("#[test]\nfn ").skip(1).map(|rest| rest.split('(').next().unwrap());
        names.any(|name| format!("{module}{name}").contains(filter))
    })
}
