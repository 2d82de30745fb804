//! Data directories that no node uses: whether a node would start with one, and what an interrupted command leaves.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::cli::command::{Done, at_with, cli, program};
use crate::processes::{NodeProcess, file_names, freeze, signal, wait_until};

const PORTS: [&str; 4] = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];

/// The directory of a node that was stopped, with three logs that go on from each other.
struct Stopped {
    folder: TempDir,
    network: String,
    name: String,
}

impl Stopped {
    fn new() -> Stopped {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let run = ["run", "--data-dir", data.to_str().unwrap(), "--log-rotate-bytes", "64KiB"];
        let mut node = NodeProcess::start("n1", &[&run[..], &PORTS].concat());
        let value = "v".repeat(100);
        for (round, entries) in [(1, 600), (2, 600), (3, 5)] {
            let log = data.join(format!("log-{round}.dkv"));
            wait_until("the log goes on in the next file", || log.exists().then_some(()));
            let mut lines = String::new();
            for number in 0..entries {
                writeln!(lines, "{{\"path\": \"r{round}.k{number}\", \"value\": \"{value}\"}}")
                    .unwrap();
            }
            let imported = at_with(&node, &["import", "-"], lines.as_bytes());
            assert_eq!(imported.code, 0, "{}", imported.stderr);
        }
        node.signal("TERM");
        node.wait();
        let logs = ["log-1.dkv", "log-2.dkv", "log-3.dkv"];
        assert_eq!(file_names(&data), [&["identity", "lock"][..], &logs].concat());
        Stopped { folder, network: node.network.clone(), name: node.name.clone() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A copy of it, in the place of the last one.
    fn copy(&self) -> PathBuf {
        let copy = self.path("copy");
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir(&copy).unwrap();
        for name in file_names(&self.path("data")) {
            fs::copy(self.path("data").join(&name), copy.join(&name)).unwrap();
        }
        copy
    }

    /// What a node says that does not start with a directory.
    fn refusal(&self, data: &Path) -> String {
        let run = ["run", "--name", &self.name, "--network", &self.network];
        let data = ["--data-dir", data.to_str().unwrap()];
        let refused = cli(&[&run[..], &data, &PORTS].concat());
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        refused.stderr
    }

    /// Whether `config check` finds nothing wrong with it; and what it says.
    fn config_check(&self, data: &Path) -> (i32, String) {
        let file = self.path("node.toml");
        let (name, network) = (&self.name, &self.network);
        let text = format!(
            "name = {name:?}\nnetwork = {network:?}\ndata-dir = {data:?}\nclient = \"127.0.0.1:0\"\n\
             gossip = \"127.0.0.1:0\"\n"
        );
        fs::write(&file, text).unwrap();
        let done = cli(&["config", "check", file.to_str().unwrap()]);
        (done.code, done.stdout)
    }
}

fn cut(file: &Path, by: impl Fn(u64) -> u64) {
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(by(bytes)).unwrap();
}

/// It was told what a node would be in the Delete group that starts with the directory, which none does.
#[test]
fn what_is_restored_from_a_copied_directory_says_only_what_is_missing_in_it() {
    let stopped = Stopped::new();
    let copy = stopped.copy();
    let restored = |into: &str| {
        let into = stopped.path(into);
        let words =
            ["snapshot", "restore", copy.to_str().unwrap(), "--into", into.to_str().unwrap()];
        let done = cli(&words);
        assert_eq!(done.code, 0, "{}", done.stderr);
        done
    };
    let all = restored("all");
    assert_eq!(all.stderr, "");
    assert!(all.stdout.contains(": 1205 entries; start a node"), "{}", all.stdout);
    fs::remove_file(copy.join("log-3.dkv")).unwrap();
    assert_eq!(
        restored("older").stderr,
        "note: the directory had a log 3 once, which is not there now: this is an older state, without what was in that log\n"
    );
    fs::remove_file(copy.join("identity")).unwrap();
    assert_eq!(restored("nameless").stderr, "");
}

#[test]
fn a_directory_that_a_node_refuses_is_bad_in_the_node_s_own_words() {
    let stopped = Stopped::new();
    let verify = |data: &Path| cli(&["snapshot", "verify", data.to_str().unwrap(), "--json"]);
    let last = |text: &str| -> Json { serde_json::from_str(text.lines().last().unwrap()).unwrap() };
    let good = verify(&stopped.path("data"));
    assert_eq!(good.code, 0, "{}", good.stdout);
    let line = last(&good.stdout);
    assert_eq!(line["file"], stopped.path("data").to_str().unwrap());
    assert_eq!((&line["good"], &line["kind"]), (&true.into(), &"data directory".into()));
    assert_eq!(line["notes"], Json::Array(vec![]));
    // Where only the last log is gone, a node starts, and warns.
    let copy = stopped.copy();
    fs::remove_file(copy.join("log-3.dkv")).unwrap();
    let older = verify(&copy);
    assert_eq!(older.code, 0, "{}", older.stdout);
    let notes = last(&older.stdout)["notes"].to_string();
    assert!(notes.contains("log 3 once") && notes.contains("was copied"), "{notes}");
    assert!(notes.contains("counts as a new member of the Delete group (the nodes"), "{notes}");

    // A node that is killed while it begins a log leaves an empty one, or half of its head.
    for bytes in [0, 30] {
        let copy = stopped.copy();
        let killed = ["run", "--data-dir", copy.to_str().unwrap()];
        NodeProcess::start(&stopped.name, &[&killed[..], &PORTS].concat()).kill();
        let head = fs::read(copy.join("log-1.dkv")).unwrap();
        fs::write(copy.join("log-9.dkv"), &head[..bytes]).unwrap();
        let begun = verify(&copy);
        assert_eq!(begun.code, 0, "{}", begun.stdout);
        let lines: Vec<Json> =
            begun.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let file = copy.join("log-9.dkv");
        let line = lines.iter().find(|line| line["file"] == file.to_str().unwrap()).unwrap();
        assert_eq!((&line["good"], &line["entries"]), (&true.into(), &0.into()));
        assert!(line["notes"].to_string().contains("being begun"), "{line}");
    }
    // Behind the last whole change a crash leaves zeros, or rubbish; its start cuts that off. Where the log is named by
    // itself, nothing shows that it is the last.
    for tail in [&[0; 5_000][..], b"\x10\0\0\0rubbish rubbish rubbish rubbish"] {
        let copy = stopped.copy();
        let killed = ["run", "--data-dir", copy.to_str().unwrap()];
        NodeProcess::start(&stopped.name, &[&killed[..], &PORTS].concat()).kill();
        let file = copy.join("log-4.dkv");
        let end = fs::metadata(&file).unwrap().len();
        let whole = fs::read(&file).unwrap();
        fs::write(&file, [&whole[..], tail].concat()).unwrap();
        let torn = verify(&copy);
        assert_eq!(torn.code, 0, "{}", torn.stdout);
        let lines: Vec<Json> =
            torn.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let line = lines.iter().find(|line| line["file"] == file.to_str().unwrap()).unwrap();
        let note = line["notes"].to_string();
        assert!(note.contains(&format!("cut off behind byte {end}")), "{line}");
        assert_eq!(verify(&file).code, 1);
        // One that ends within a change is good, also by itself; that it does is said.
        let log = stopped.path("data/log-3.dkv");
        let begun = fs::read(log).unwrap();
        fs::write(&file, &begun[..begun.len() - 1]).unwrap();
        let begun = verify(&file);
        assert_eq!(begun.code, 0, "{}", begun.stdout);
        assert!(begun.stdout.contains("a change without its end"), "{}", begun.stdout);
    }
    // A node starts without any, too, but with nothing of what there was.
    let copy = stopped.copy();
    (1..=3).for_each(|log| fs::remove_file(copy.join(format!("log-{log}.dkv"))).unwrap());
    let gone = verify(&copy);
    assert_eq!(gone.code, 1, "{}", gone.stdout);
    let error = last(&gone.stdout)["error"].to_string();
    assert!(error.contains("a log 3 once") && error.contains("with nothing"), "{error}");

    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("log-2.dkv is missing", |data| fs::remove_file(data.join("log-2.dkv")).unwrap()),
        ("log-2.dkv: ", |data| cut(&data.join("log-2.dkv"), |_| 5_000)),
        ("log-3.dkv: ", |data| cut(&data.join("log-3.dkv"), |bytes| bytes - 8)),
        ("identity: ", |data| {
            let mut bytes = fs::read(data.join("identity")).unwrap();
            bytes[40] ^= 1;
            fs::write(data.join("identity"), bytes).unwrap();
        }),
    ];
    for (says, damage) in damages {
        let copy = stopped.copy();
        damage(&copy);
        let before: Vec<_> =
            file_names(&copy).iter().map(|name| fs::read(copy.join(name)).unwrap()).collect();
        let verified = verify(&copy);
        assert_eq!(verified.code, 1, "{says}: {}", verified.stdout);
        let line = last(&verified.stdout);
        assert_eq!((&line["file"], &line["good"]), (&copy.to_str().unwrap().into(), &false.into()));
        let error = line["error"].as_str().unwrap();
        assert!(error.starts_with(says), "{says}: {error}");
        let after: Vec<_> =
            file_names(&copy).iter().map(|name| fs::read(copy.join(name)).unwrap()).collect();
        assert!(before == after, "{says}: it only reads");
        let (code, told) = stopped.config_check(&copy);
        assert_eq!(code, 2, "{says}: {told}");
        assert!(told.contains(error), "{told}");
        let is_identity = says.starts_with("identity");
        let inspected = cli(&["log", "inspect", copy.to_str().unwrap()]);
        assert_eq!(inspected.code, i32::from(is_identity), "{says}: {}", inspected.stderr);
        assert!(inspected.stdout.contains("past since"), "{}", inspected.stdout);
        let refusal = stopped.refusal(&copy);
        assert!(refusal.contains(error), "{says}: {refusal}");
    }
}

/// Whether a process has a file open.
fn has_open(process: &Child, file: &Path) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{}/fd", process.id())) else { return false };
    open.flatten().any(|link| fs::read_link(link.path()).is_ok_and(|to| to == file))
}

/// Whether a process does something itself when it is interrupted.
fn heeds_interrupts(process: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
}

/// Interrupts a process in the middle of its work. It stands still while somebody looks at it, so that the work is not over
/// when the signal comes.
fn interrupt_while_it_has_open(process: &Child, file: &Path) {
    wait_until("it is at work", || {
        freeze(process.id());
        let is_at_work = heeds_interrupts(process) && has_open(process, file);
        if is_at_work {
            signal(process.id(), "INT");
        }
        signal(process.id(), "CONT");
        is_at_work.then_some(())
    });
}

/// A state as lines of JSON and as a snapshot, of which no step is over before a signal comes.
fn big_state(folder: &Path) -> (String, String) {
    let (lines, state) = (folder.join("lines"), folder.join("state.dkv"));
    let mut text = String::new();
    for number in 1..=200_000 {
        writeln!(
            text,
            "{{\"path\":\"x.k{number}\",\"value\":{number},\"chain\":[\"a~7:{number}\"],\"tock\":{number}}}"
        )
        .unwrap();
    }
    fs::write(&lines, text).unwrap();
    let (lines, state) = (lines.to_str().unwrap(), state.to_str().unwrap());
    let converted = cli(&["snapshot", "convert", lines, "--to", state]);
    assert_eq!(converted.code, 0, "{}", converted.stderr);
    (lines.to_owned(), state.to_owned())
}

#[test]
fn a_restore_into_a_directory_that_is_interrupted_leaves_it_as_it_was() {
    let kept = tempfile::tempdir().unwrap();
    let folder = fs::canonicalize(kept.path()).unwrap();
    let (_, state) = big_state(&folder);
    let into = folder.join("new/data");
    let restore = ["snapshot", "restore", &state, "--into", into.to_str().unwrap(), "--name", "n1"];
    let replay = ["log", "replay", &state, "--into", into.to_str().unwrap(), "--name", "n1"];
    let written = into.join("snapshot-1.dkv.tmp");
    for (command, is_json, is_there, waits_for) in [
        (restore, false, false, Path::new(&state)),
        (restore, true, false, &written),
        (restore, false, true, &written),
        (replay, false, false, &written),
    ] {
        if is_there {
            fs::create_dir_all(&into).unwrap();
        }
        let form: &[&str] = if is_json { &["--json"] } else { &[] };
        let running = program(&[&command[..], form].concat()).spawn().unwrap();
        interrupt_while_it_has_open(&running, waits_for);
        let done = running.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(130), "{waits_for:?}: {said}");
        if is_json {
            let error: Json = serde_json::from_str(&said).unwrap();
            assert_eq!(
                (&error["outcome"], &error["exit_code"]),
                (&"interrupted".into(), &130.into())
            );
        } else {
            assert_eq!(said, "interrupted: nothing was restored\n");
        }
        if is_there {
            assert_eq!(file_names(&into), [] as [&str; 0]);
            fs::remove_dir_all(folder.join("new")).unwrap();
        }
        assert!(!folder.join("new").exists(), "{waits_for:?}");
    }
    let done = cli(&restore);
    assert_eq!(done.code, 0, "{}", done.stderr);
}

/// Nobody tidies up after what is killed.
#[test]
fn a_node_does_not_begin_with_nothing_where_a_restore_into_the_directory_was_killed() {
    let kept = tempfile::tempdir().unwrap();
    let folder = fs::canonicalize(kept.path()).unwrap();
    let (_, state) = big_state(&folder);
    let into = folder.join("data");
    fs::create_dir(&into).unwrap();
    fs::write(into.join("lock"), "").unwrap();
    fs::write(into.join("snapshot-1.dkv.tmp"), "the beginning").unwrap();
    let data = into.to_str().unwrap();
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
    let refused = cli(&[&["run", "--name", "n1", "--data-dir", data][..], &any].concat());
    assert_eq!(refused.code, 1, "{refused:?}");
    for word in ["snapshot-1.dkv.tmp", "snapshot restore --into", "type that command again"] {
        assert!(refused.stderr.contains(word), "{refused:?}");
    }
    assert_eq!(file_names(&into), ["lock", "snapshot-1.dkv.tmp"]);
    let again = cli(&["snapshot", "restore", &state, "--into", data, "--name", "n1"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert_eq!(file_names(&into), ["lock", "snapshot-1.dkv"]);
}

#[test]
fn a_restore_into_a_directory_that_has_no_room_leaves_it_as_it_was() {
    let kept = tempfile::tempdir().unwrap();
    let folder = fs::canonicalize(kept.path()).unwrap();
    let (_, state) = big_state(&folder);
    let (new, there) = (folder.join("new/data"), folder.join("there"));
    fs::create_dir(&there).unwrap();
    for (words, into) in
        [("snapshot restore", &new), ("snapshot restore", &there), ("log replay", &new)]
    {
        // As on a disk that is full: no file may get so long.
        let script = format!(
            "trap '' XFSZ; ulimit -f 64; exec {} {words} {state} --into {} --name n1",
            env!("CARGO_BIN_EXE_distkv-node"),
            into.display()
        );
        let done = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{words}: {said}");
        assert!(said.contains("cannot write"), "{words}: {said}");
        assert!(!folder.join("new").exists(), "{words}");
        assert_eq!(file_names(&there), [] as [&str; 0]);
    }
    // Nothing of it keeps the next one from its work, and that stays.
    let done =
        cli(&["snapshot", "restore", &state, "--into", there.to_str().unwrap(), "--name", "n1"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(file_names(&there), ["lock", "snapshot-1.dkv"]);
    // Nor does an error take away what was there before.
    let to_another = ["--into", there.to_str().unwrap(), "--name", "n2"];
    let done = cli(&[&["snapshot", "restore", &state], &to_another[..]].concat());
    assert_eq!(done.code, 2, "{}", done.stderr);
    assert_eq!(file_names(&there), ["lock", "snapshot-1.dkv"]);
}

#[test]
fn states_of_two_networks_come_together_in_a_directory_only_if_that_is_asked_for() {
    let kept = tempfile::tempdir().unwrap();
    let at = |name: &str| kept.path().join(name).to_str().unwrap().to_owned();
    let lines = at("lines.jsonl");
    let saved = |network: &str, path: &str| {
        let line = format!(r#"{{"path":"{path}","value":1,"chain":["n1~7:1"],"tock":1}}"#);
        fs::write(&lines, line).unwrap();
        let (data, file) = (at(&format!("of-{network}")), at(&format!("{network}.dkv")));
        let owner = ["--into", &data, "--name", "n1", "--network", network];
        assert_eq!(cli(&[&["snapshot", "restore", &lines], &owner[..]].concat()).code, 0);
        assert_eq!(cli(&["log", "replay", &data, "--to", &file]).code, 0);
        (file, data)
    };
    let ((plant, _), (other, of_other)) = (saved("plant", "a"), saved("other", "b"));
    let restore = |from: &[&str], into: &str, more: &[&str]| {
        cli(&[&["snapshot", "restore"], from, &["--into", into], more].concat())
    };
    let done = |done: Done| {
        assert_eq!(done.code, 0, "{}", done.stderr);
        done.stdout
    };
    let paths = |data: &str| {
        let lines = done(cli(&["snapshot", "convert", data, "--format", "jsonl", "--to", "-"]));
        let path = |line: &str| serde_json::from_str::<Json>(line).unwrap()["path"].to_string();
        lines.lines().map(path).collect::<Vec<_>>()
    };
    let refused = |done: Done, names: [&str; 2]| {
        assert_eq!(done.code, 3, "{}", done.stderr);
        let [file, in_the_way] = names;
        for part in [file, in_the_way, "\"plant\"", "\"other\"", "--any-network"] {
            assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
        }
    };
    // Into one that is there, whether its network is named or not.
    let there = at("over there");
    let put = done(restore(&[&plant], &there, &[]));
    // That can be pasted.
    assert!(put.contains(&format!("distkv-node run --data-dir '{there}' --name ")), "{put}");
    for more in [&[][..], &["--network", "plant"]] {
        refused(restore(&[&other], &there, more), [&other, &there]);
        refused(restore(&[&plant, &other], &there, more), [&other, &there]);
    }
    let replay = ["log", "replay", &of_other, "--into", &there];
    refused(cli(&replay), [&of_other, &there]);
    assert_eq!(paths(&there), ["\"a\""]);
    // Two files into a new one, which is not made then.
    let new = at("new");
    refused(restore(&[&plant, &other], &new, &[]), [&other, &plant]);
    refused(restore(&[&plant, &other], &new, &["--network", "next"]), [&other, &plant]);
    // Lines of JSON are of no network: the first file that is of one decides.
    refused(restore(&[&lines, &plant, &other], &new, &[]), [&other, &plant]);
    assert!(!Path::new(&new).exists());
    let put = done(restore(&[&lines, &plant], &new, &["--json"]));
    assert_eq!(serde_json::from_str::<Json>(&put).unwrap()["network"], "plant");
    // A network that moves gets another name.
    done(restore(&[&plant, &plant], &at("moved"), &["--network", "next"]));
    // What was asked for.
    done(cli(&[&replay[..], &["--any-network"]].concat()));
    done(restore(&[&other], &there, &["--any-network"]));
    assert_eq!(paths(&there), ["\"a\"", "\"b\""]);
    done(restore(&[&plant, &other], &at("both"), &["--any-network"]));
    assert_eq!(paths(&at("both")), ["\"a\"", "\"b\""]);
}

#[test]
fn a_command_that_is_interrupted_while_it_reads_its_file_says_that_nothing_was_written() {
    let kept = tempfile::tempdir().unwrap();
    let folder = fs::canonicalize(kept.path()).unwrap();
    let (lines, state) = big_state(&folder);
    let to = folder.join("to").to_str().unwrap().to_owned();
    for (command, reads) in [
        (["snapshot", "convert", &lines, "--to", &to], &lines),
        (["snapshot", "convert", &lines, "--to", "-"], &lines),
        (["log", "replay", &state, "--to", &to], &state),
    ] {
        let running = program(&command).spawn().unwrap();
        interrupt_while_it_has_open(&running, Path::new(reads));
        let done = running.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(130), "{command:?}: {said}");
        assert_eq!(said, "interrupted: nothing was written\n", "{command:?}");
        assert_eq!(file_names(&folder), ["lines", "state.dkv"]);
    }
}
