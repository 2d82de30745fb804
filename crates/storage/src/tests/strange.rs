//! Snapshots that are another node's, or links that lead nowhere: a start goes without them where older ones and the logs have
//! everything, as without damaged ones, and is refused where they do not.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path as FilePath;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::damage::{OPTIONS, OWNER};
use super::holes::{Unreadable, directory, directory_of, value_at};
use super::node::{NAME, NETWORK};
use crate::data_dir::DataDir;
use crate::directory::Directory;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::log::log_name;
use crate::memory_disk::MemoryDisk;
use crate::model::path::Path;
use crate::past::{Keep, reach};
use crate::recover::{RecoverOptions, Recovered, Warning, recover};
use crate::snapshot::snapshot_name;

/// What `k` is after a start.
fn value_of(recovered: &Recovered) -> u8 {
    let path = Path::root().push("k").unwrap();
    let tree = &recovered.image.as_ref().unwrap().replica.tree;
    tree.get(path.as_bytes()).unwrap().value().unwrap()[0]
}

fn start(disk: &dyn Disk) -> Result<Recovered, StorageError> {
    recover(disk, NETWORK, NAME, &OPTIONS, &mut |_, _| {})
}

fn bad_snapshots(recovered: &Recovered) -> Vec<String> {
    let is_bad = |warning: &&Warning| matches!(warning, Warning::BadSnapshot(_));
    recovered.warnings.iter().filter(is_bad).map(ToString::to_string).collect()
}

fn foreign(number: u64) -> Vec<u8> {
    directory_of("b", 100, &[number]).content(&snapshot_name(number)).unwrap()
}

#[test]
fn a_newest_snapshot_of_another_node_is_set_aside_where_older_ones_have_everything() {
    // In the place of the node's own one; and of a number that the node had none of.
    for (own, number) in [(&[3, 5][..], 5), (&[3], 6), (&[], 5)] {
        let disk = directory(own);
        let name = snapshot_name(number);
        disk.put(&name, &foreign(number));
        let recovered = start(&disk).unwrap();
        assert_eq!(value_of(&recovered), 7, "{number}");
        let [text] = &bad_snapshots(&recovered)[..] else { panic!("{:?}", recovered.warnings) };
        let aside = format!("set aside as {name}.bad: move it to where node b has its files");
        for part in [&name, "it belongs to node \"b\"", "nothing is lost", &aside] {
            assert!(text.contains(part), "{part}: {text}");
        }
        recovered.repair(&disk).unwrap();
        assert_eq!(disk.content(&format!("{name}.bad")), Some(foreign(number)));
        let again = start(&disk).unwrap();
        assert_eq!((value_of(&again), bad_snapshots(&again).len()), (7, 0));
    }
}

/// Nobody knows whether the directory is the wrong one, or the file.
#[test]
fn a_snapshot_of_another_node_without_anything_to_go_on_from_is_refused_with_what_to_do() {
    for discard_damaged in [false, true] {
        for damaged in [false, true] {
            let disk = directory(&[4]);
            for number in 1..=3 {
                disk.remove(&log_name(number)).unwrap();
            }
            let name = snapshot_name(4);
            disk.put(&name, &foreign(4));
            if damaged {
                disk.put(&snapshot_name(6), b"rubbish");
            }
            let options = RecoverOptions { discard_damaged, ..OPTIONS };
            let error = recover(&disk, NETWORK, NAME, &options, &mut |_, _| {}).err().unwrap();
            assert!(matches!(error, StorageError::OtherOwner { .. }), "{error}");
            let text = error.to_string();
            assert!(text.starts_with(&name) && text.contains("move it away (`mv`)"), "{text}");
        }
    }
}

#[test]
fn a_newest_snapshot_that_is_a_link_to_nowhere_is_set_aside_like_a_damaged_one() {
    for kind in [None, Some(io::ErrorKind::PermissionDenied), Some(io::ErrorKind::NotFound)] {
        let name = snapshot_name(5);
        let disk = Unreadable { disk: directory(&[3, 5]), name: name.clone(), at_once: kind };
        let found = start(&disk);
        if kind != Some(io::ErrorKind::NotFound) {
            // It may be readable again.
            assert!(matches!(found, Err(StorageError::Io { .. })));
            continue;
        }
        let recovered = found.unwrap();
        assert_eq!(value_of(&recovered), 7);
        let [text] = &bad_snapshots(&recovered)[..] else { panic!("{:?}", recovered.warnings) };
        assert!(
            text.contains(&name) && text.contains("a symbolic link that leads nowhere"),
            "{text}"
        );
        // With nothing older, its data may only not be mounted.
        let disk = Unreadable { disk: directory(&[5]), name: name.clone(), at_once: kind };
        for number in 1..=4 {
            disk.remove(&log_name(number)).unwrap();
        }
        let error = start(&disk).err().unwrap();
        assert!(matches!(error, StorageError::Io { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&name) && text.contains("is the disk mounted?"), "{text}");
        assert!(!text.contains("--discard-damaged"), "{text}");
    }
}

/// A directory of the file system with the files of a disk.
fn real(disk: &MemoryDisk) -> (tempfile::TempDir, Directory) {
    let folder = tempfile::tempdir().unwrap();
    for entry in disk.list().unwrap() {
        std::fs::write(folder.path().join(&entry.name), disk.content(&entry.name).unwrap())
            .unwrap();
    }
    let directory = Directory::new(folder.path());
    (folder, directory)
}

#[test]
fn a_link_to_itself_counts_as_one_to_nowhere() {
    for to in ["nowhere", "snapshot-5.dkv"] {
        let (folder, disk) = real(&directory(&[3, 5]));
        let file = folder.path().join("snapshot-5.dkv");
        std::fs::remove_file(&file).unwrap();
        symlink(to, &file).unwrap();
        let recovered = start(&disk).unwrap();
        assert_eq!((value_of(&recovered), bad_snapshots(&recovered).len()), (7, 1), "{to}");
        recovered.repair(&disk).unwrap();
        assert_eq!(bad_snapshots(&start(&disk).unwrap()).len(), 0, "{to}");
    }
    // A log that a start needs is refused, as another one that cannot be read.
    let (folder, disk) = real(&directory(&[3]));
    let file = folder.path().join(log_name(5));
    std::fs::remove_file(&file).unwrap();
    symlink(log_name(5), &file).unwrap();
    let text = start(&disk).err().unwrap().to_string();
    assert!(text.starts_with("log-5.dkv: cannot open") && text.contains("symbolic link"), "{text}");
    // One that only the history needs is a hole in it.
    let (folder, disk) = real(&directory(&[5]));
    let file = folder.path().join(log_name(2));
    std::fs::remove_file(&file).unwrap();
    symlink(log_name(2), &file).unwrap();
    let warnings = start(&disk).unwrap().warnings;
    let is_hole = |warning: &Warning| {
        matches!(warning, Warning::Hole(_))
            && warning.to_string().contains("log-2.dkv: cannot open")
    };
    assert!(warnings.iter().any(is_hole), "{warnings:?}");
}

/// Puts something at a path.
type Put = fn(&FilePath);

/// What is no file and has a file's name: a folder with something in it, and a socket, which blocks nobody who opens it.
const NO_FILES: [(&str, Put); 3] = [
    ("a folder", |path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("of somebody"), "kept").unwrap();
    }),
    ("a socket", |path| drop(UnixListener::bind(path).unwrap())),
    ("a pipe", |path| {
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }),
];

#[test]
fn a_newest_snapshot_that_is_no_file_is_set_aside_where_older_ones_have_everything() {
    for (what, put) in NO_FILES {
        let (folder, disk) = real(&directory(&[3, 5]));
        let file = folder.path().join("snapshot-5.dkv");
        fs::remove_file(&file).unwrap();
        put(&file);
        let recovered = start(&disk).unwrap();
        assert_eq!(value_of(&recovered), 7, "{what}");
        let [text] = &bad_snapshots(&recovered)[..] else { panic!("{:?}", recovered.warnings) };
        for part in [what, "nothing is lost", "set aside as snapshot-5.dkv.bad"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        recovered.repair(&disk).unwrap();
        assert!(fs::symlink_metadata(folder.path().join("snapshot-5.dkv.bad")).is_ok(), "{what}");
        assert_eq!(bad_snapshots(&start(&disk).unwrap()).len(), 0, "{what}");
    }
}

#[test]
fn what_is_no_file_and_stands_in_the_place_of_a_file_that_is_needed_is_named() {
    for (what, put) in NO_FILES {
        for (snapshot, name) in [(3, "log-5.dkv"), (5, "snapshot-5.dkv")] {
            let (folder, disk) = real(&directory(&[snapshot]));
            if snapshot == 5 {
                (1..=4).for_each(|number| disk.remove(&log_name(number)).unwrap());
            }
            let file = folder.path().join(name);
            fs::remove_file(&file).unwrap();
            put(&file);
            let text = start(&disk).err().unwrap().to_string();
            let begin = format!("{name}: cannot open: it is {what}, not a file; ");
            assert!(text.starts_with(&begin) && text.contains("move it away (`mv`)"), "{text}");
        }
    }
}

/// It may be somebody's, with everything that is in it.
#[test]
fn a_folder_is_never_removed_and_keeps_nothing_else_from_being_removed() {
    let (folder, disk) = real(&directory(&[3, 5, 6]));
    for name in ["snapshot-3.dkv", "snapshot-1.dkv.bad"] {
        let file = folder.path().join(name);
        let _ = fs::remove_file(&file);
        NO_FILES[0].1(&file);
    }
    let dir = DataDir::open(folder.path()).unwrap();
    let removed = dir.prune(6, &Keep::snapshots(1)).unwrap();
    assert!(removed.contains(&log_name(3)) && !disk.list().unwrap().is_empty(), "{removed:?}");
    for name in ["snapshot-3.dkv", "snapshot-1.dkv.bad"] {
        assert!(!removed.iter().any(|other| other == name), "{removed:?}");
        assert!(folder.path().join(name).join("of somebody").is_file(), "{name}");
    }
    assert_eq!(dir.prune(6, &Keep::snapshots(1)).unwrap(), Vec::<String>::new());
    // Where nothing else is old, the newest snapshot is not read to make room: it would be found damaged.
    fs::write(folder.path().join("snapshot-6.dkv"), "damaged").unwrap();
    assert!(!dir.make_room(1).unwrap());
}

#[test]
fn the_past_begins_with_what_is_the_node_s_own() {
    let tock = |disk: &MemoryDisk| reach(disk, OWNER).unwrap().unwrap().tock.get();
    let disk = directory(&[3, 5]);
    let of_snapshot = {
        let disk = directory(&[3, 5]);
        disk.remove(&log_name(1)).unwrap();
        tock(&disk)
    };
    disk.put(&log_name(1), &directory_of("b", 100, &[]).content(&log_name(1)).unwrap());
    assert_eq!(tock(&disk), of_snapshot);
    disk.put(&snapshot_name(3), &foreign(3));
    assert!(tock(&disk) > of_snapshot);
}

/// Log 3 was begun at 25 s, behind the last change of log 2, at 20 s.
#[test]
fn a_snapshot_says_when_a_log_was_begun_that_is_missing() {
    let disk = directory(&[3, 5]);
    disk.remove(&log_name(3)).unwrap();
    for (time_ms, value) in [(19_999, 1), (20_000, 2), (24_999, 2), (45_000, 4)] {
        assert_eq!(
            value_at(&disk, time_ms).map_err(|error| error.to_string()),
            Ok(value),
            "{time_ms}"
        );
    }
    for time_ms in [25_000, 44_999] {
        let error = value_at(&disk, time_ms).unwrap_err();
        let StorageError::PastLost { before_ms, from_ms, .. } = &error else { panic!("{error}") };
        assert_eq!((*before_ms, *from_ms), (Some(25_000), Some(45_000)), "{time_ms}");
    }
    // It knows more: what led to that is lost.
    disk.remove(&log_name(2)).unwrap();
    let error = value_at(&disk, 24_999).unwrap_err();
    assert!(matches!(error, StorageError::PastLost { before_ms: Some(10_000), .. }), "{error}");
}

/// As `snapshot restore --into` leaves it, before a node has begun with it.
#[test]
fn a_damaged_snapshot_that_no_log_was_begun_with_is_not_set_aside_unasked() {
    for content in [&b"rubbish"[..], b""] {
        let disk = directory(&[3]);
        let name = snapshot_name(8);
        disk.put(&name, content);
        let error = start(&disk).err().unwrap();
        assert!(matches!(error, StorageError::OnlyCopy { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with(&name) && text.contains("begins with what was there before it"),
            "{text}"
        );
        let options = RecoverOptions { discard_damaged: true, ..OPTIONS };
        let recovered = recover(&disk, NETWORK, NAME, &options, &mut |_, _| {}).unwrap();
        assert_eq!(value_of(&recovered), 7);
    }
}

#[test]
fn a_state_that_was_not_put_there_whole_is_not_taken_for_an_empty_directory() {
    let start = |disk: &MemoryDisk, puts_state| {
        let options = RecoverOptions { puts_state, ..OPTIONS };
        recover(disk, NETWORK, NAME, &options, &mut |_, _| {})
    };
    let disk = MemoryDisk::new();
    disk.put("lock", b"");
    disk.put("snapshot-1.dkv.tmp", b"the beginning");
    let error = start(&disk, false).err().unwrap().to_string();
    for word in ["snapshot-1.dkv.tmp", "snapshot restore --into", "type that command again"] {
        assert!(error.contains(word), "{error}");
    }
    assert!(disk.content("snapshot-1.dkv.tmp").is_some());
    let again = start(&disk, true).unwrap();
    again.repair(&disk).unwrap();
    assert!(start(&disk, false).unwrap().image.is_none());
    // What a node leaves of its own: its first start, the snapshot that it makes where it could not begin its first log (the
    // disk was full), and a snapshot of later.
    for (left, other) in [
        ("identity.tmp", "lock"),
        ("snapshot-2.dkv.tmp", "lock"),
        ("snapshot-3.dkv.tmp", "log-1.dkv.bad"),
    ] {
        let disk = MemoryDisk::new();
        disk.put(left, b"");
        disk.put(other, b"");
        assert!(start(&disk, false).is_ok(), "{left}");
    }
}
