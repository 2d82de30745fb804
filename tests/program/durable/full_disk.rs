//! A real disk that fills up: a small tmpfs, in a mount namespace of the test's own, which the kernel
//! takes away with the test.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rmpv::Value;

use super::place::{Place, code, new_network, status, storage};
use crate::http::asking;
use crate::processes::{NodeProcess, PROGRAM, array, field, wait_until};

/// Tells a test program that it runs inside of the test's own namespace, and where the disk is.
const INSIDE: &str = "DISTKV_TEST_SMALL_DISK";
/// The disk's size.
const DISK_BYTES: u64 = 8 << 20;

/// Runs `test`, which is the body of the test function named `name`, with a small disk.
fn with_small_disk(name: &str, test: impl FnOnce(&Path)) {
    if let Some(disk) = std::env::var_os(INSIDE) {
        return test(&PathBuf::from(disk));
    }
    let folder = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let (disk, program) = (folder.path().to_str().unwrap(), program.to_str().unwrap());
    let name = crate::name_of(module_path!(), name);
    // Mounts of the namespace are its own; when its last process ends they are gone.
    let script = "mount -t tmpfs -o size=$1 none \"$2\" && exec \"$3\" --exact \"$4\" --nocapture";
    let size = DISK_BYTES.to_string();
    let mut complaints = Vec::new();
    for way in [&["--mount"][..], &["--user", "--map-root-user", "--mount"]] {
        let tried = Command::new("unshare")
            .args(way)
            .args(["sh", "-c", "mount -t tmpfs none /mnt"])
            .output();
        match tried {
            Ok(output) if output.status.success() => {
                let output = Command::new("unshare")
                    .args(way)
                    .args(["sh", "-c", script, "sh", &size, disk, program, &name])
                    .env(INSIDE, disk)
                    .stdin(Stdio::null())
                    .stderr(Stdio::inherit())
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&output.stdout);
                println!("{said}");
                assert!(output.status.success(), "failed with its own small disk");
                assert!(said.contains("1 passed"), "there is no test {name}");
                return;
            }
            Ok(output) => complaints.push(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => complaints.push(error.to_string()),
        }
    }
    panic!(
        "this test mounts a small disk in a namespace of its own, and cannot: {complaints:?}. It \
         needs `unshare` (util-linux) and either root or a kernel that lets users make namespaces \
         (`sysctl kernel.unprivileged_userns_clone=1`, on Ubuntu \
         `sysctl kernel.apparmor_restrict_unprivileged_userns=0`); in a container \
         `--cap-add SYS_ADMIN --security-opt seccomp=unconfined`"
    );
}

/// Leaves little room.
fn fill(disk: &Path, leave: u64) -> PathBuf {
    let ballast = disk.join("ballast");
    File::create(&ballast).unwrap().write_all(&vec![0; (DISK_BYTES - leave) as usize]).unwrap();
    ballast
}

fn set(client: &mut crate::processes::Client, key: u64) -> Value {
    client.set(&["k", &key.to_string()], Value::Binary(vec![key as u8; 10_000]))
}

fn is_failing(client: &mut crate::processes::Client) -> bool {
    !storage(client, "failed").is_nil()
}

fn warnings(client: &mut crate::processes::Client) -> String {
    status(client, "warnings").to_string()
}

/// What `/readyz?write` answers, and its line about the disk.
fn readiness(node: &NodeProcess) -> (u16, String) {
    let answer = asking::get(node.http.unwrap(), "/readyz?write");
    let line = answer.text().lines().find(|line| line.starts_with("disk: "));
    (answer.status, line.unwrap().to_owned())
}

/// A node's place on this disk, with an HTTP port.
fn place_on(disk: &Path, sync: &'static str) -> Place {
    let mut place = Place::at(disk.join("data"), &new_network(), "n1", sync);
    place.options.extend(["--http", "127.0.0.1:0"].map(str::to_owned));
    place
}

/// A line of the node's log has all of these words, soon.
fn says(node: &NodeProcess, words: &[&str]) {
    wait_until("it is in the log", || {
        let is_it = |line: &String| words.iter().all(|word| line.contains(word));
        node.log().iter().any(is_it).then_some(())
    });
}

fn kill_and_look(place: &Place, mut node: NodeProcess, keys: impl Iterator<Item = u64>) {
    node.kill();
    let alone = place.run_alone();
    let mut client = alone.connect();
    for key in keys {
        let value = client.get(&["k", &key.to_string()]);
        let expected = Value::Binary(vec![key as u8; 10_000]);
        assert_eq!(value, Some(expected), "{key}: {:#?}", alone.log());
    }
}

#[test]
fn under_every_batch_changes_are_refused_while_reads_and_peers_go_on() {
    with_small_disk("under_every_batch_changes_are_refused_while_reads_and_peers_go_on", |disk| {
        let place = place_on(disk, "every-batch");
        let arguments = ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
        let peer = NodeProcess::start_in(&place.network, "n2", &arguments);
        let node = place.join(&[&peer]);
        let (mut client, mut other) = (node.connect(), peer.connect());
        let ballast = fill(disk, 1 << 20);
        let mut acked = Vec::new();
        let error = (0..1_000).find_map(|key| {
            let reply = set(&mut client, key);
            if code(&reply).is_none() {
                acked.push(key);
            }
            code(&reply).map(|code| (key, code, reply))
        });
        let (key, error, reply) = error.expect("the disk is full");
        assert_eq!(error, "storage_failed");
        assert!(field(&reply, "error").unwrap().to_string().contains("made in memory"), "{reply}");
        assert!(acked.len() > 20, "{}", acked.len());
        // Refused before anything is changed, from now on.
        let reply = set(&mut client, 5_000);
        assert_eq!(code(&reply).as_deref(), Some("storage_failed"));
        assert!(field(&reply, "error").unwrap().to_string().contains("nothing was changed"));
        assert_eq!(client.get(&["k", "5000"]), None);
        assert!(client.get(&["k", &key.to_string()]).is_some(), "reads go on");
        let peers = other.set(&["peers"], Value::from(1));
        assert_eq!(code(&peers), None);
        wait_until("peers' changes go on", || client.get(&["peers"]));
        assert!(is_failing(&mut client) && warnings(&mut client).contains("refused"));
        says(&node, &["ERROR", "the log cannot be written"]);
        let (status, line) = readiness(&node);
        assert!(status == 503 && line.contains("the log cannot be written"), "{line}");

        std::fs::remove_file(ballast).unwrap();
        wait_until("it works again", || (!is_failing(&mut client)).then_some(()));
        assert!(!warnings(&mut client).contains("cannot be written"));
        let reply = set(&mut client, 6_000);
        assert_eq!(code(&reply), None, "{reply}");
        acked.extend([key, 6_000]);
        kill_and_look(&place, node, acked.into_iter());
    });
}

/// A node's number at `/metrics`.
fn metric(node: &NodeProcess, series: &str) -> u64 {
    let answer = asking::get(node.http.unwrap(), "/metrics");
    let number =
        answer.text().lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    number.unwrap_or_else(|| panic!("{series} is not in {}", answer.text()))
}

#[test]
fn a_disk_that_gets_full_is_warned_of_while_all_still_works() {
    with_small_disk("a_disk_that_gets_full_is_warned_of_while_all_still_works", |disk| {
        let mut place = place_on(disk, "every-batch");
        place.options.extend(["--snapshot-after", "1MiB"].map(str::to_owned));
        let node = place.run();
        let mut client = node.connect();
        let (free, size) = ("distkv_disk_free_bytes", "distkv_disk_size_bytes");
        let kind = "distkv_warnings{kind=\"disk_room\"}";
        wait_until("it has looked", || (metric(&node, size) == DISK_BYTES).then_some(()));
        assert!((4 << 20..DISK_BYTES).contains(&metric(&node, free)), "{}", metric(&node, free));
        assert!(!warnings(&mut client).contains("nearly full") && metric(&node, kind) == 0);

        let ballast = fill(disk, 600 << 10);
        let warning = wait_until("it warns", || {
            let warnings = warnings(&mut client);
            warnings.contains("nearly full").then_some(warnings)
        });
        for part in [disk.to_str().unwrap(), "of 8.0 MiB are free", "may need 1.0 MiB", "make room"]
        {
            assert!(warning.contains(part), "{part}: {warning}");
        }
        assert_eq!((metric(&node, kind), metric(&node, "distkv_warnings{kind=\"disk\"}")), (1, 0));
        assert!(metric(&node, free) < 600 << 10);
        says(&node, &["WARN", "nearly full"]);
        // It is no reason to send clients elsewhere.
        assert_eq!(readiness(&node), (200, String::from("disk: ok")));
        assert_eq!(code(&set(&mut client, 1)), None);

        std::fs::remove_file(ballast).unwrap();
        wait_until("it is over", || (!warnings(&mut client).contains("nearly full")).then_some(()));
        says(&node, &["INFO", "has room again"]);
        assert!(storage(&mut client, "disk_free_bytes").as_u64() > Some(4 << 20));
    });
}

/// Under the policies that do not promise so much the node goes on without a log, and says so.
fn goes_on(disk: &Path, sync: &'static str) {
    let place = place_on(disk, sync);
    let node = place.run();
    let mut client = node.connect();
    assert_eq!(readiness(&node), (200, String::from("disk: ok")));
    let ballast = fill(disk, 1 << 20);
    let mut last = 0;
    while !is_failing(&mut client) {
        assert_eq!(code(&set(&mut client, last)), None);
        last += 1;
        assert!(last < 1_000, "the disk is full");
    }
    for _ in 0..20 {
        assert_eq!(code(&set(&mut client, last)), None, "the node goes on");
        last += 1;
    }
    assert!(warnings(&mut client).contains("nothing is logged"), "{}", warnings(&mut client));
    says(&node, &["ERROR", "nothing is logged"]);
    let (status, line) = readiness(&node);
    assert!(status == 200 && line.contains("nothing is logged"), "it takes changes: {line}");
    std::fs::remove_file(ballast).unwrap();
    wait_until("it works again", || (!is_failing(&mut client)).then_some(()));
    assert_eq!(code(&set(&mut client, last)), None);
    // What was not logged meanwhile is in the snapshot with which the log began anew.
    let appended = storage(&mut client, "appended").as_u64();
    wait_until("it is written", || {
        (storage(&mut client, "written").as_u64() >= appended).then_some(())
    });
    // The history says so, and has what was set meanwhile.
    let lost = crate::cli::command::at(&node, &["history", &format!("k.{}", last - 3)]);
    assert_eq!(lost.code, 0, "{}", lost.stderr);
    assert!(lost.stdout.starts_with("(not logged) "), "{}", lost.stdout);
    assert!(lost.stderr.contains("for some time nothing was logged"), "{}", lost.stderr);
    kill_and_look(&place, node, 0..=last);
}

#[test]
fn under_every_second_the_node_goes_on_without_a_log_and_begins_a_new_one() {
    let name = "under_every_second_the_node_goes_on_without_a_log_and_begins_a_new_one";
    with_small_disk(name, |disk| goes_on(disk, "every-second"));
}

#[test]
fn under_never_the_node_goes_on_without_a_log_and_begins_a_new_one() {
    let name = "under_never_the_node_goes_on_without_a_log_and_begins_a_new_one";
    with_small_disk(name, |disk| goes_on(disk, "never"));
}

/// While nothing is logged, "now" is no moment of a node's past; nor is, later, what was then.
#[test]
fn a_moment_at_which_the_disk_had_failed_is_told_and_nothing_is_set_back_to_it() {
    let name = "a_moment_at_which_the_disk_had_failed_is_told_and_nothing_is_set_back_to_it";
    with_small_disk(name, |disk| {
        let place = place_on(disk, "every-second");
        let node = place.run();
        let at = |arguments: &[&str]| crate::cli::command::at(&node, arguments);
        let get = |path: &str| at(&["get", path]).stdout;
        assert_eq!(at(&["set", "cfg.a", "1"]).code, 0);
        assert_eq!(at(&["set", "cfg.b", "1"]).code, 0);
        let mut client = node.connect();
        let ballast = fill(disk, 1 << 20);
        let mut key = 0;
        wait_until("the log fails", || {
            key += 1;
            set(&mut client, key);
            is_failing(&mut client).then_some(())
        });
        assert_eq!(at(&["set", "cfg.a", "2"]).code, 0);
        assert_eq!(at(&["delete", "cfg.b"]).code, 0);
        let undo = ["undo", "--below", "cfg", "--overwrite", "--at"];
        let refused = at(&[&undo[..], &["0s"]].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
        for part in ["could not log", "still", "--allow-gap"] {
            assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
        }
        let shown = at(&[&undo[..], &["0s", "--dry-run"]].concat());
        assert!(shown.code == 0 && shown.stderr.contains("could not log"), "{}", shown.stderr);
        let told = at(&["history", "cfg.a"]);
        assert!(told.stderr.contains("for some time nothing was logged"), "{}", told.stderr);
        let ms = distkv::rt::wall_clock_ms();
        let then = format!("@{}.{:03}", ms / 1_000, ms % 1_000);
        wait_until("it is later", || (distkv::rt::wall_clock_ms() > ms + 1).then_some(()));

        std::fs::remove_file(ballast).unwrap();
        wait_until("it works again", || (!is_failing(&mut client)).then_some(()));
        let refused = at(&[&undo[..], &[&then]].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
        for part in ["could not log", "from 20", " to 20"] {
            assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
        }
        assert_eq!((get("cfg.a"), get("cfg.b")), ("2\n".into(), String::new()));
        // Now it knows its state again.
        let done = at(&[&undo[..], &["0s"]].concat());
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{}", done.stdout);
        assert_eq!((get("cfg.a"), get("cfg.b")), ("2\n".into(), String::new()));
    });
}

/// Nobody wrote to it, so nothing is lost with it: its own list of one member is nothing that anybody lacks.
#[test]
fn a_node_that_nobody_wrote_to_stops_on_a_full_disk_without_a_complaint() {
    let name = "a_node_that_nobody_wrote_to_stops_on_a_full_disk_without_a_complaint";
    with_small_disk(name, |disk| {
        let place = place_on(disk, "every-second");
        let mut node = place.run();
        let mut client = node.connect();
        let ballast = disk.join("ballast");
        let mut filler = File::create(&ballast).unwrap();
        // To the last byte.
        for piece in [64 << 10, 1] {
            while filler.write_all(&vec![0; piece]).is_ok() {}
        }
        wait_until("it has founded its list", || {
            let state = client.call("get_state", &[("delete_group", Value::from(true))]);
            state.to_string().contains("lineage").then_some(())
        });
        node.signal("TERM");
        assert_eq!(node.wait().code(), Some(0), "{:#?}", node.log());
        let said = node.log().join("\n");
        assert!(!said.contains("on no other node"), "{said}");
    });
}

#[test]
fn a_node_starts_on_a_full_disk_and_is_whole_when_there_is_room() {
    with_small_disk("a_node_starts_on_a_full_disk_and_is_whole_when_there_is_room", |disk| {
        let place = Place::at(disk.join("data"), &new_network(), "n1", "every-batch");
        let mut node = place.run();
        let mut client = node.connect();
        (0..20).for_each(|key| assert_eq!(code(&set(&mut client, key)), None));
        node.signal("TERM");
        assert!(node.wait().success());
        let ballast = disk.join("ballast");
        let mut file = File::create(&ballast).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        drop(file);
        let node = place.run_alone();
        let mut client = node.connect();
        assert!(is_failing(&mut client));
        assert!(client.get(&["k", "19"]).is_some());
        assert_eq!(code(&set(&mut client, 20)).as_deref(), Some("storage_failed"));
        std::fs::remove_file(ballast).unwrap();
        wait_until("it works again", || (!is_failing(&mut client)).then_some(()));
        assert_eq!(code(&set(&mut client, 20)), None);
        let deleted = client.call("delete_value", &[("path", array(&["k", "0"]))]);
        assert_eq!(code(&deleted), None);
        kill_and_look(&place, node, 1..=20);
    });
}

#[test]
fn on_a_full_disk_the_past_goes_before_anything_is_refused_for_long() {
    let name = "on_a_full_disk_the_past_goes_before_anything_is_refused_for_long";
    with_small_disk(name, |disk| {
        let place = Place::at(disk.join("data"), &new_network(), "n1", "every-batch");
        let node = place.run();
        let mut client = node.connect();
        // Each snapshot has 200 kB; all of them are kept, because they are young.
        for _ in 0..8 {
            (0..20).for_each(|key| assert_eq!(code(&set(&mut client, key)), None));
            assert_eq!(code(&client.call("snapshot", &[])), None);
        }
        let snapshots = || {
            let names = std::fs::read_dir(disk.join("data")).unwrap();
            let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.starts_with("snapshot-")).count()
        };
        assert_eq!(snapshots(), 8);
        let free =
            |disk: &Path| rustix::fs::statvfs(disk).map(|s| s.f_bavail * s.f_frsize).unwrap();
        // Again where the node has removed a log meanwhile that the last snapshot had made needless.
        let mut rounds = 0;
        wait_until("the disk is full", || {
            rounds += 1;
            let ballast = vec![0; free(disk).saturating_sub(100_000) as usize];
            std::fs::write(disk.join(format!("ballast-{rounds}")), ballast).unwrap();
            (0..100).any(|key| code(&set(&mut client, key % 20)).is_some()).then_some(())
        });
        wait_until("it works again", || (!is_failing(&mut client)).then_some(()));
        says(&node, &["the disk is full: old snapshots and logs were removed"]);
        // The newest two, the one before them, and the one with which the log begins anew.
        assert!((2..=4).contains(&snapshots()), "{}", snapshots());
        assert_eq!(code(&set(&mut client, 3)), None);
        kill_and_look(&place, node, 0..20);
    });
}

#[test]
fn the_audit_log_has_whole_lines_only_and_begins_again_with_what_is_missing() {
    with_small_disk(
        "the_audit_log_has_whole_lines_only_and_begins_again_with_what_is_missing",
        |disk| {
            let audit = disk.join("audit");
            let network = new_network();
            let arguments =
                ["run", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--audit"];
            let arguments = [&arguments[..], &[audit.to_str().unwrap()]].concat();
            let node = NodeProcess::start_in(&network, "n1", &arguments);
            let mut client = node.connect();
            let mut number = 0;
            let mut list = || {
                number += 1;
                let path =
                    Value::Array(vec!["acl".into(), "lamps".into(), format!("a{number}").into()]);
                let reply = client.call("set_internal", &[("path", path), ("value", "r".into())]);
                assert_eq!(code(&reply), None, "{reply}");
            };
            // The last page of the file is all that there is room for.
            let ballast = fill(disk, 64 << 10);
            wait_until("the disk is full", || {
                (0..100).for_each(|_| list());
                node.log()
                    .iter()
                    .any(|line| line.contains("the audit log cannot be written"))
                    .then_some(())
            });
            let lines = || std::fs::read_to_string(&audit).unwrap();
            let count = |text: &str| text.lines().count();
            wait_until("the last line is whole", || lines().ends_with('\n').then_some(()));
            let before = count(&lines());
            std::fs::remove_file(ballast).unwrap();
            list();
            wait_until("the log is written again", || (count(&lines()) > before).then_some(()));
            for line in lines().lines() {
                serde_json::from_str::<serde_json::Value>(line).expect("no line is a half");
            }
            let text = lines();
            let first: serde_json::Value =
                serde_json::from_str(text.lines().nth(before).unwrap()).unwrap();
            assert_eq!(first["outcome"], "dropped", "{first}");
        },
    );
}

#[test]
fn who_ends_a_log_is_told_that_a_full_disk_ended_it_before() {
    with_small_disk("who_ends_a_log_is_told_that_a_full_disk_ended_it_before", |disk| {
        let files = ["--client-files", disk.to_str().unwrap()];
        let base =
            ["run", "--peer-wait", "0s", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0"];
        let node = NodeProcess::start_in(&new_network(), "n1", &[&base[..], &files].concat());
        let at = ["--connect", &node.client.to_string()].map(str::to_owned);
        let command = |arguments: &[&str]| {
            let done = Command::new(PROGRAM).args(arguments).args(&at).output().unwrap();
            let said = String::from_utf8(done.stderr).unwrap();
            (done.status.code().unwrap(), String::from_utf8(done.stdout).unwrap(), said)
        };
        assert_eq!(command(&["log", "start", "changes.dkv"]).0, 0);
        let _ballast = fill(disk, 1 << 20);
        let mut client = node.connect();
        let mut key = 0;
        wait_until("the log fails", || {
            key += 1;
            set(&mut client, key);
            warnings(&mut client).contains("changes.dkv").then_some(())
        });
        let (code, _, said) = command(&["log", "stop"]);
        assert_eq!(code, 1, "{said}");
        let says = ["had failed before", "changes.dkv: cannot write", "No space"];
        assert!(says.iter().all(|what| said.contains(what)), "{said}");
        let (code, _, said) = command(&["log", "start", "other.dkv", "--fetch"]);
        assert!(code == 1 && said.contains("other.dkv: cannot write"), "{said}");
        // Once is enough.
        assert_eq!(command(&["log", "stop"]), (0, "no log was running\n".into(), String::new()));
    });
}

/// A state is put into a directory as a whole or not at all.
#[test]
fn a_state_for_which_there_is_no_room_changes_nothing_and_that_is_said() {
    let name = "a_state_for_which_there_is_no_room_changes_nothing_and_that_is_said";
    with_small_disk(name, |disk| {
        let place = Place::new("n1", "never");
        let node = place.run();
        let file = place.dir.with_extension("dkv");
        let file = file.to_str().unwrap();
        let mut client = node.connect();
        let command = crate::cli::command::cli;
        set(&mut client, 0);
        crate::cli::command::ok(&node, &["snapshot", "save", "--to", file]);
        let into = disk.join("data");
        let restore = ["snapshot", "restore", file, "--into", into.to_str().unwrap()];
        assert_eq!(command(&restore).code, 0);
        (1..300).for_each(|key| drop(set(&mut client, key)));
        crate::cli::command::ok(&node, &["snapshot", "save", "--to", file, "--force"]);
        let all = || crate::processes::file_names(&into);
        let before = all();
        let _ballast = fill(disk, 1 << 20);
        let failed = command(&restore);
        assert_eq!(failed.code, 1, "{}", failed.stderr);
        for part in ["No space left", "nothing was restored", "the directory is what it was"] {
            assert!(failed.stderr.contains(part), "{part}: {}", failed.stderr);
        }
        assert_eq!(all(), before);
    });
}
