//! A directory that is not a node's: it is refused, and nothing is written into it. One that is empty but for what file
//! systems put there, or that has a node's files, is taken.

use std::fs;
use std::path::Path;

use super::place::{Place, new_network};
use crate::cli::command::{at, cli, ok};
use crate::processes::{SAVED_STATE, file_names, wait_until};

fn place(folder: &Path) -> Place {
    Place::at(folder.to_owned(), &new_network(), "n1", "every-batch")
}

#[test]
fn a_directory_with_files_of_something_else_is_refused_and_stays_as_it_is() {
    for foreign in [&["hosts", "passwd"][..], &[".bashrc"], &["monday.dkv", "lost+found"]] {
        let folder = tempfile::tempdir().unwrap();
        for name in foreign {
            fs::write(folder.path().join(name), "precious").unwrap();
        }
        let dir = folder.path().to_str().unwrap();
        let is_refused = |said: &str| {
            assert!(said.contains("this is not the data directory of a node"), "{said}");
            assert!(
                said.contains(foreign[0]) && said.contains("name an empty directory"),
                "{said}"
            );
            let mut expected = foreign.to_vec();
            expected.sort_unstable();
            assert_eq!(file_names(folder.path()), expected);
        };
        let place = place(folder.path());
        for how in [&["run"][..], &["join", "127.0.0.1:1"], &["start", "--found"]] {
            is_refused(&place.refusal_with(2, how));
        }
        for command in [
            &["snapshot", "restore", SAVED_STATE, "--into", dir, "--name", "n1"][..],
            &["log", "replay", SAVED_STATE, "--into", dir, "--name", "n1"],
        ] {
            let done = cli(command);
            assert_eq!(done.code, 1, "{command:?}: {}", done.stderr);
            is_refused(&done.stderr);
        }
        let settings = tempfile::tempdir().unwrap();
        let file = settings.path().join("node.toml");
        let ports = "client = \"127.0.0.1:0\"\ngossip = \"127.0.0.1:0\"";
        let text = format!("name = \"n1\"\nfound = true\n{ports}\ndata-dir = {dir:?}\n");
        fs::write(&file, text).unwrap();
        let check = cli(&["config", "check", file.to_str().unwrap()]);
        assert_ne!(check.code, 0, "{}", check.stdout);
        is_refused(&format!("{}{}", check.stdout, check.stderr));
    }
}

#[test]
fn what_file_systems_put_into_a_directory_does_not_count_and_a_node_s_own_files_do() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    let mut node = place(folder.path()).run_alone();
    node.signal("TERM");
    assert!(node.wait().success());
    assert!(file_names(folder.path()).contains(&"log-1.dkv".to_owned()));

    // As a directory is that an earlier version has taken.
    fs::write(folder.path().join("notes"), "precious").unwrap();
    let again = Place::at(folder.path().to_owned(), &node.network, "n1", "every-batch");
    let mut node = again.run_alone();
    node.kill();
}

#[test]
fn a_directory_that_is_replaced_under_a_running_node_is_left_alone() {
    let place = Place::new("n1", "every-batch");
    let node = place.run_alone();
    ok(&node, &["set", "a", "1"]);
    let away = place.dir.with_extension("away");
    fs::rename(&place.dir, &away).unwrap();
    fs::create_dir(&place.dir).unwrap();
    let refused = wait_until("the node refuses changes", || {
        let set = at(&node, &["set", "a", "2"]);
        (set.code != 0).then_some(set.stderr)
    });
    assert!(refused.contains("(storage_failed)") && refused.contains("moved away"), "{refused}");
    let status = at(&node, &["status"]);
    assert!(format!("{}{}", status.stdout, status.stderr).contains("moved away"), "{status:?}");
    // It keeps trying, and never there.
    assert!(at(&node, &["snapshot", "save"]).stderr.contains("moved away"));
    assert_eq!(file_names(&place.dir), Vec::<String>::new());

    fs::remove_dir(&place.dir).unwrap();
    fs::rename(&away, &place.dir).unwrap();
    wait_until("it goes on when its directory is back", || {
        (at(&node, &["set", "a", "3"]).code == 0).then_some(())
    });
    drop(node);
    let again = place.run_alone();
    assert_eq!(ok(&again, &["get", "a"]), "3\n");
}

#[test]
fn a_log_that_is_removed_or_truncated_under_a_running_node_is_begun_anew() {
    let place = Place::new("n1", "every-batch");
    let mut node = place.run_alone();
    ok(&node, &["set", "a", "1"]);
    fs::remove_file(place.dir.join("log-1.dkv")).unwrap();
    let refused = wait_until("the node refuses changes", || {
        let set = at(&node, &["set", "b", "1"]);
        (set.code != 0).then_some(set.stderr)
    });
    assert!(refused.contains("(storage_failed)") && refused.contains("removed"), "{refused}");
    let goes_on = |path: &str| {
        wait_until("it goes on with a new log", || {
            (at(&node, &["set", path, "2"]).code == 0).then_some(())
        });
    };
    goes_on("b");
    let logs: Vec<_> =
        file_names(&place.dir).into_iter().filter(|name| name.starts_with("log-")).collect();
    let newest = logs.iter().max_by_key(|name| (name.len(), *name)).unwrap();
    fs::OpenOptions::new().write(true).open(place.dir.join(newest)).unwrap().set_len(0).unwrap();
    wait_until("the node says so", || {
        let status = at(&node, &["status"]);
        format!("{}{}", status.stdout, status.stderr).contains("truncated").then_some(())
    });
    goes_on("c");
    node.kill();
    let again = place.run_alone();
    for (path, value) in [("a", "1\n"), ("b", "2\n"), ("c", "2\n")] {
        assert_eq!(ok(&again, &["get", path]), value);
    }
}
