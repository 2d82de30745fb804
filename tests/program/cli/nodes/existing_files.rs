//! Commands that write a file, where there is one with that name: it stays unless `--force` is given, and is never
//! half of what it was.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::cli::command::{at, cli, ok};
use crate::processes::{NodeProcess, SAVED_STATE, file_names};

const PRECIOUS: &[u8] = b"precious\n";

/// The command must leave the file alone, say so, and replace it with `--force`.
fn keeps(file: &Path, command: &mut dyn FnMut(&[&str]) -> (i32, String)) {
    let before = fs::read(file).unwrap();
    let (code, said) = command(&[]);
    assert_eq!(code, 1, "{said}");
    let expected = format!("{} exists already", file.display());
    assert!(said.contains(&expected) && said.contains("--force"), "{said}");
    assert_eq!(fs::read(file).unwrap(), before);
    let (code, said) = command(&["--force"]);
    assert_eq!(code, 0, "{said}");
    assert_ne!(fs::read(file).unwrap(), before);
}

#[test]
fn no_command_replaces_a_file_unless_it_is_forced() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let file = folder.path().join("precious");
    let (data, to) = (data.to_str().unwrap(), file.to_str().unwrap());
    let ports = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--data-dir", data];
    let node = NodeProcess::start("n1", &ports);
    ok(&node, &["set", "a", "1"]);
    let commands: [(&[&str], bool); 6] = [
        (&["snapshot", "save", "--to", to], true),
        (&["snapshot", "save", "--to", to, "--format", "jsonl"], true),
        (&["get", "a", "--msgpack", to], true),
        (&["snapshot", "convert", SAVED_STATE, "--to", to], false),
        (&["snapshot", "convert", SAVED_STATE, "--to", to, "--format", "jsonl"], false),
        (&["log", "replay", data, "--to", to], false),
    ];
    for (arguments, asks_a_node) in commands {
        fs::write(&file, PRECIOUS).unwrap();
        keeps(&file, &mut |more| {
            let all = [arguments, more].concat();
            let done = if asks_a_node { at(&node, &all) } else { cli(&all) };
            (done.code, done.stderr)
        });
        assert_eq!(
            file_names(folder.path()),
            ["data", "precious"],
            "{arguments:?} leaves something"
        );
    }
}

#[test]
fn a_file_that_is_converted_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.bin");
    fs::copy(SAVED_STATE, &file).unwrap();
    let path = file.to_str().unwrap();
    keeps(&file, &mut |more| {
        let done = cli(&[&["snapshot", "convert", path, "--to", path], more].concat());
        (done.code, done.stderr)
    });
    assert_eq!(cli(&["snapshot", "verify", path]).code, 0);

    // What cannot be written leaves what is there, forced or not.
    fs::write(&file, PRECIOUS).unwrap();
    let done = cli(&["snapshot", "convert", path, "--to", path, "--force"]);
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert_eq!(fs::read(&file).unwrap(), PRECIOUS);
}

#[test]
fn links_directories_and_pipes_are_no_new_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    symlink(path("nowhere"), path("link")).unwrap();
    fs::create_dir(path("dir")).unwrap();
    assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    let convert = |name: &str, more: &[&str]| {
        let to = path(name);
        let done = cli(&[&["snapshot", "convert", SAVED_STATE, "--to", &to], more].concat());
        assert_eq!(done.code, 1, "{name}: {}", done.stderr);
        done.stderr
    };
    assert!(convert("link", &[]).contains("exists already"));
    for more in [&[][..], &["--force"]] {
        assert!(convert("dir", more).contains("is a directory"));
        assert!(convert("pipe", more).contains("no plain file"));
    }
    assert!(fs::metadata(path("pipe")).unwrap().file_type().is_fifo());
    assert_eq!(file_names(folder.path()), ["dir", "link", "pipe"]);
}
