//! The same tests on a real file system: only there are the identities of files and their times of
//! change real.

use std::path::Path;

use super::node::{NAME, NETWORK, STORE, TestNode, header};
use crate::data_dir::DataDir;
use crate::header::LogStart;
use crate::listing::list_image;
use crate::past::Keep;
use crate::recover::{RecoverOptions, Recovered, Warning};

/// A node that works in a directory and stops.
fn work_and_stop(path: &Path) -> TestNode {
    let dir = DataDir::open(path).unwrap();
    let mut node = TestNode::new(7);
    let (knowledge, table) = (node.engine.knowledge(), node.engine.table());
    let mut log = dir.begin_log(&header(1, 7), LogStart::Empty, &knowledge, table).unwrap();
    for n in 0..10 {
        log.append(&node.set(&format!("k{n}"), Some(n))).unwrap();
    }
    let (knowledge, table) = (node.engine.knowledge(), node.engine.table());
    let log = dir.rotate(log, &header(2, 7), &knowledge, table).unwrap();
    dir.save(&header(2, 7), &node.image(), &mut |_| {}).unwrap();
    dir.prune(2, &Keep::snapshots(1)).unwrap();
    dir.stop(log, 9, &node.engine.knowledge(), node.engine.table()).unwrap();
    node
}

fn start(path: &Path) -> Recovered {
    let options = RecoverOptions { hash_seed: 1, new_store: 99, ..RecoverOptions::default() };
    DataDir::open(path).unwrap().recover(NETWORK, NAME, &options, &mut |_, _| {}).unwrap()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_node_comes_back_as_itself_from_its_own_directory_only() {
    let folder = tempfile::tempdir().unwrap();
    let (own, moved, copied) =
        (folder.path().join("own"), folder.path().join("moved"), folder.path().join("copied"));
    let node = work_and_stop(&own);
    let found = start(&own);
    assert!(found.stopped_cleanly && found.keeps_store && found.warnings.is_empty());
    assert_eq!(found.store, STORE);
    assert_eq!(list_image(&found.image.unwrap()), node.listing());

    // To move it on the same file system changes nothing.
    std::fs::rename(&own, &moved).unwrap();
    assert!(start(&moved).stopped_cleanly);

    copy(&moved, &copied);
    let found = start(&copied);
    assert!(!found.stopped_cleanly && !found.keeps_store);
    assert_eq!(found.store, 99);
    assert_eq!(list_image(&found.image.unwrap()), node.listing());
    assert!(matches!(found.warnings[..], [Warning::Copied]), "{:?}", found.warnings);

    // A copy without the newest log is an older state, too.
    std::fs::remove_file(copied.join("log-2.dkv")).unwrap();
    let found = start(&copied);
    assert!(!found.stopped_cleanly && !found.keeps_store);
    let told = &found.warnings[..];
    assert!(matches!(told, [Warning::Copied, Warning::Older { log: 2 }]), "{told:?}");

    // A file put back over itself: the same file, but it has been changed.
    let log = moved.join("log-2.dkv");
    let content = std::fs::read(&log).unwrap();
    let before = std::fs::metadata(&log).unwrap();
    while std::os::unix::fs::MetadataExt::ctime_nsec(&std::fs::metadata(&log).unwrap())
        == std::os::unix::fs::MetadataExt::ctime_nsec(&before)
    {
        std::fs::write(&log, &content).unwrap();
    }
    let found = start(&moved);
    assert!(!found.stopped_cleanly && found.keeps_store);
}

#[test]
fn files_are_for_their_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    work_and_stop(&own);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&own), 0o700);
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(&own).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(mode(&entry.path()), 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["identity", "lock", "log-1.dkv", "log-2.dkv", "snapshot-2.dkv"]);
}
