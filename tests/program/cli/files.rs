//! Files that are not there, cannot be read or hold something else: the same exit code for the same mistake, whichever
//! command is given the file, and a line that names it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use distkv::client::Fields;
use tempfile::TempDir;

use super::command::{Done, cli};
use super::fake::FakeNode;
use crate::processes::SAVED_STATE;

/// A folder with one file for each mistake; none of them is a file of ours.
struct Mistakes {
    folder: TempDir,
    node: String,
}

/// What a file may be instead of what it should.
const UNREADABLE: [&str; 3] = ["none", "dir", "plain/below"];
const WRONG: [&str; 2] = ["empty", "garbage"];

impl Mistakes {
    fn new() -> Mistakes {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("dir")).unwrap();
        for (name, text) in [("plain", "x"), ("empty", ""), ("garbage", "garbage !!\n")] {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        }
        // Reading may need a node to be there.
        let node =
            FakeNode::start(|_| vec![Fields::new().u64("value", 1).clone()]).address.to_string();
        Mistakes { folder, node }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The command with this file in the place of `@`, and the node in that of `NODE`.
    fn run(&self, command: &str, name: &str) -> Done {
        let (file, out) = (self.path(name), self.path("out"));
        let word = |word: &str| match word {
            "NODE" => self.node.clone(),
            "OUT" => out.clone(),
            "STATE" => SAVED_STATE.to_owned(),
            word => word.replace("@", &file).replace("%", "@"),
        };
        let words: Vec<String> = command.split(' ').map(word).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let done = cli(&words);
        assert!(done.stderr.contains(&file), "{command}, {name}: {}", done.stderr);
        let errors = done.stderr.lines().filter(|line| line.starts_with("error: ")).count();
        assert_eq!(errors, 1, "{command}, {name}: {}", done.stderr);
        done
    }

    fn expect(&self, code: i32, commands: &[&str], names: &[&str]) {
        for (command, name) in commands.iter().flat_map(|c| names.iter().map(move |name| (c, name)))
        {
            let done = self.run(command, name);
            assert_eq!(done.code, code, "{command}, {name}: {}", done.stderr);
        }
    }
}

/// Of a node that has nothing to do with any other.
const RUN: &str = "run --name n1 --client 127.0.0.1:0 --gossip 127.0.0.1:0";

#[test]
fn a_file_that_says_how_to_work_is_a_usage_error_whether_it_is_missing_or_wrong() {
    let mistakes = Mistakes::new();
    let run = |more: &str| format!("{RUN} {more}");
    let of_nodes = [
        run("--key @"),
        run("--cert @ --cert-key @"),
        run("--http 127.0.0.1:0 --http-write --http-token-file @"),
    ];
    let of_nodes = of_nodes.each_ref().map(String::as_str);
    let others = [
        "key list @",
        "key add @",
        "key use 00000000 @",
        "key remove 00000000 @",
        "key cert joe --to OUT --key @",
        "key rotate --connect NODE --key @",
        "get a --connect NODE --key @",
        "get a --ticket %@",
        "ticket show %@",
        "ticket new n1 --key @",
        "ticket new n1 --ca @",
    ];
    let both = [&UNREADABLE[..], &WRONG].concat();
    mistakes.expect(2, &others, &both);
    // A token is made where there is none.
    mistakes.expect(2, &of_nodes, &["dir", "plain/below", "empty", "garbage"]);
    mistakes.expect(2, &of_nodes[..2], &["none"]);
    let secret = "get a --connect NODE --user joe --login password --secret-file @";
    mistakes.expect(2, &[secret], &UNREADABLE);
    mistakes.expect(2, &[secret], &["empty"]);
    // It is named by whoever starts the node, as the others.
    let load = run("--load @");
    mistakes.expect(2, &[&load], &both);
    let configuration = ["run --config @", "start --config @"];
    mistakes.expect(2, &configuration, &UNREADABLE);
    mistakes.expect(2, &configuration, &["garbage"]);
    mistakes.expect(2, &["config check @"], &UNREADABLE);
}

#[test]
fn a_file_to_work_on_that_is_missing_or_damaged_is_a_failure() {
    let mistakes = Mistakes::new();
    let all =
        ["snapshot restore @ --connect NODE", "snapshot convert @ --to OUT", "snapshot inspect @"];
    let all = [&all[..], &["log inspect @", "log replay @ --to OUT", "log follow @"]].concat();
    let both = [&UNREADABLE[..], &WRONG].concat();
    mistakes.expect(1, &all, &both);
    mistakes.expect(1, &["snapshot diff @ STATE", "snapshot diff STATE @"], &both);
    let node = ["import @ --connect NODE", "diff @ --below a --connect NODE"];
    let node = [&node[..], &["apply @ --below a --connect NODE"]].concat();
    mistakes.expect(1, &node, &UNREADABLE);
    mistakes.expect(1, &node, &["garbage"]);
    let values = ["set a --connect NODE --raw-file @", "set a --connect NODE --msgpack @"];
    mistakes.expect(1, &values, &UNREADABLE);
    let empty = mistakes.run("snapshot inspect @", "empty").stderr;
    assert!(empty.contains("the file is empty"), "{empty}");
}

#[test]
fn a_file_of_another_kind_is_a_usage_error_that_names_the_command() {
    let mistakes = Mistakes::new();
    let lines = mistakes.path("lines");
    fs::write(&lines, "{\"path\": \"a\", \"value\": 1}\n").unwrap();
    for command in ["log inspect @", "log follow @"] {
        let done = mistakes.run(command, "lines");
        assert!(done.code == 2 && done.stderr.contains("`snapshot inspect`"), "{}", done.stderr);
    }
}

#[test]
fn a_file_whose_directory_is_not_there_is_not_written_and_the_directory_is_named() {
    let mistakes = Mistakes::new();
    let commands = [
        "snapshot convert STATE --to @",
        "key new --network plant --to @",
        "get a --connect NODE --msgpack @",
    ];
    for command in commands {
        let done = mistakes.run(command, "none/file");
        assert_eq!(done.code, 1, "{command}: {}", done.stderr);
        assert!(done.stderr.contains("first"), "{command}: {}", done.stderr);
    }
    let run = format!("{RUN} --data-dir @");
    for (command, code) in [(&*run, 2), ("snapshot restore STATE --into @", 1)] {
        let done = mistakes.run(command, "plain");
        assert!(done.code == code && done.stderr.contains("it is a file"), "{}", done.stderr);
    }
}

#[test]
fn a_data_directory_that_is_a_link_to_nowhere_is_called_that() {
    let mistakes = Mistakes::new();
    let to = mistakes.path("disk/n1");
    symlink(&to, mistakes.path("link")).unwrap();
    let says = format!("is a symbolic link to {to}, which does not exist (is the disk mounted?)");
    for command in [format!("{RUN} --data-dir @"), String::from("snapshot restore STATE --into @")]
    {
        for name in ["link", "link/below"] {
            let done = mistakes.run(&command, name);
            assert!(done.code == 1 && done.stderr.contains(&says), "{}", done.stderr);
        }
    }
    let config = mistakes.path("node.toml");
    let text = format!("name = \"n1\"\nfound = true\ndata-dir = {:?}\n", mistakes.path("link"));
    fs::write(&config, text).unwrap();
    let done = cli(&["config", "check", &config]);
    assert!(done.code != 0 && (done.stdout + &done.stderr).contains(&says));
}
