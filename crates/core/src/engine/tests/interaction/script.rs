//! What scripts are, whatever their commands do: blocks of commands, each with a line `----` and what was printed
//! behind it, up to an empty line. Lines that begin with `#` say what it is about. Also used by the scripts of
//! `crates/secure`.

use std::fs;
use std::path::Path;

/// A test for each script, and one that no script is without. Where it is used there are `folder`, where the scripts are,
/// and `check`, which runs the one of that name.
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
            assert_eq!(script::names(&folder()), known);
        }
    };
}

/// Runs the script of that name in a folder, and compares. `command` carries one out and gives what it prints.
pub(crate) fn check(folder: &Path, name: &str, command: impl FnMut(&str) -> Vec<String>) {
    let file = folder.join(format!("{name}.txt"));
    let expected = fs::read_to_string(&file).unwrap();
    let printed = run(&expected, name, command);
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

/// The names of the scripts in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = entries
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Runs a script and gives it back with what is really printed.
fn run(text: &str, file: &str, mut carry_out: impl FnMut(&str) -> Vec<String>) -> String {
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
            for printed in carry_out(command) {
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
