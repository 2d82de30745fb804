//! Commands that write a file, where there is one with that name: it stays unless `--force` is given, and is never
//! half of what it was. No secret is written through a symbolic link.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
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

#[test]
fn a_certificate_and_its_key_are_replaced_together_and_only_if_that_is_forced() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (key, stem) = (path("key"), path("joe"));
    assert_eq!(cli(&["key", "new", "--network", "plant", "--to", &key]).code, 0);
    let cert = |more: &[&str]| {
        let done = cli(&[&["key", "cert", "joe", "--key", &key, "--to", &stem], more].concat());
        (done.code, done.stderr)
    };
    let ends = [".pem", ".key"];
    let files = || ends.map(|end| fs::read(format!("{stem}{end}")).ok());
    assert_eq!(cert(&[]), (0, String::new()));
    let first = files();
    // One of the two keeps the other from being written.
    for end in ends {
        let (there, other) = (format!("{stem}{end}"), path("aside"));
        fs::rename(&there, &other).unwrap();
        let before = files();
        let (code, said) = cert(&[]);
        assert!(code == 1 && said.contains("exists already") && said.contains("--force"), "{said}");
        assert_eq!(files(), before);
        fs::rename(&other, &there).unwrap();
    }
    assert_eq!(cert(&["--force"]), (0, String::new()));
    let second = files();
    assert!(first.iter().zip(&second).all(|(first, second)| first != second));
    assert_eq!(fs::metadata(format!("{stem}.key")).unwrap().mode() & 0o777, 0o600);
    // Where the one cannot be written, the other stays.
    let certificate = format!("{stem}.pem");
    fs::remove_file(&certificate).unwrap();
    fs::create_dir(&certificate).unwrap();
    let (code, said) = cert(&["--force"]);
    assert!(code == 1 && said.contains("is a directory"), "{said}");
    assert_eq!(fs::read(format!("{stem}.key")).ok(), second[1]);
    assert_eq!(file_names(folder.path()), ["joe.key", "joe.pem", "key"]);
    // The CA's own has no key.
    let ca = path("ca");
    let again = |force: &[&str]| {
        cli(&[&["key", "cert", "--ca", "--key", &key, "--to", &ca], force].concat()).code
    };
    assert_eq!((again(&[]), again(&[]), again(&["--force"])), (0, 1, 0));
}

/// What a link of somebody else's leads to is not the file that was named, and a secret does not belong there.
#[test]
fn no_secret_is_written_through_a_symbolic_link() {
    let node = NodeProcess::run("n1");
    ok(&node, &["user", "add", "robot", "--method", "token", "--role", "operator"]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("victim"), PRECIOUS).unwrap();
    symlink(path("victim"), path("link")).unwrap();
    symlink(path("nowhere"), path("dangling")).unwrap();
    let key = path("key");
    assert_eq!(cli(&["key", "new", "--network", "plant", "--to", &key]).code, 0);
    let names = file_names(folder.path());
    for link in ["link", "dangling"] {
        let to = path(link);
        let commands: [(&[&str], bool); 6] = [
            (&["ticket", "new", "n1", "--to", &to], true),
            (&["user", "ticket", "robot", "--to", &to], true),
            (&["user", "token", "robot", "--to", &to], true),
            (&["key", "new", "--network", "plant", "--to", &to], true),
            // Its files are NAME.pem and NAME.key.
            (&["key", "cert", "joe", "--key", &key, "--to", &to], true),
            (&["user", "add", "joe", "--new-secret-file", &to], false),
        ];
        for (arguments, has_force) in commands {
            let is_at_node = arguments[0] == "user";
            if arguments[1] == "cert" {
                symlink(path("victim"), format!("{to}.key")).unwrap();
            }
            // An existing file with a secret is read, and not written.
            if arguments[1] == "add" && link == "link" {
                continue;
            }
            for force in [&["--force"][..], &[]].into_iter().skip(usize::from(!has_force)) {
                let all = [arguments, force].concat();
                let done = if is_at_node { at(&node, &all) } else { cli(&all) };
                let victim = fs::read_to_string(path("victim")).unwrap();
                assert_eq!(victim.as_bytes(), PRECIOUS, "{all:?}: {}", done.stdout);
                assert_eq!(done.code, 1, "{all:?}: {} {}", done.stdout, done.stderr);
                assert!(done.stderr.contains("is a symbolic link"), "{all:?}: {}", done.stderr);
            }
            if arguments[1] == "cert" {
                fs::remove_file(format!("{to}.key")).unwrap();
            }
            assert_eq!(file_names(folder.path()), names, "{arguments:?} leaves something");
            assert_eq!(fs::read_link(&to).unwrap().file_name(), {
                let target = if link == "link" { "victim" } else { "nowhere" };
                Some(std::ffi::OsStr::new(target))
            });
        }
    }
    // Nobody has got a new secret.
    let told = ok(&node, &["user", "list", "--json"]);
    assert!(!told.contains("joe"), "{told}");
}
