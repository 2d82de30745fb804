//! Logs that only the history needs, and that are missing, cut or damaged: a start goes without them and says so, and a
//! history tells what it knows, and where it knows nothing.

use std::sync::Arc;

use super::damage::{OPTIONS, start};
use super::node::{TestNode, header};
use crate::batch::Batch;
use crate::data_dir::DataDir;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::header::LogStart;
use crate::history::{History, history};
use crate::log::log_name;
use crate::memory_disk::MemoryDisk;
use crate::model::path::Path;
use crate::recover::Warning;
use crate::snapshot::snapshot_name;

/// A directory with logs 1 to 7. In log n, `k` was set to n at n·10 s; `rare` was set to 1 in log 1, and to 2 in log 2. Only
/// these snapshots are left.
fn directory(snapshots: &[u64]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let dir = DataDir::on(Arc::new(disk.clone()));
    let mut node = TestNode::new(7);
    let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
    let mut log = dir.begin_log(&header(1, 7), LogStart::Empty, &knowledge, &table).unwrap();
    for number in 1..=7 {
        if number > 1 {
            let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
            log = dir.rotate(log, &header(number, 7), &knowledge, &table).unwrap();
            if snapshots.contains(&number) {
                dir.save(&header(number, 7), &node.image(), &mut |_| {}).unwrap();
            }
        }
        let time_ms = number * 10_000;
        if number < 3 {
            log.append(&Batch { time_ms, ..node.set("rare", Some(number)) }).unwrap();
        }
        log.append(&Batch { time_ms, ..node.set("k", Some(number)) }).unwrap();
        log.sync().unwrap();
    }
    disk
}

fn cut(disk: &MemoryDisk, number: u64, bytes: impl Fn(usize) -> usize) {
    let whole = disk.content(&log_name(number)).unwrap();
    disk.put(&log_name(number), &whole[..bytes(whole.len())]);
}

fn flip(disk: &MemoryDisk, number: u64, at: impl Fn(usize) -> usize) {
    let mut bytes = disk.content(&log_name(number)).unwrap();
    let at = at(bytes.len());
    bytes[at] ^= 1;
    disk.put(&log_name(number), &bytes);
}

type Damage = fn(&MemoryDisk, u64);

/// Ways to lose what a log has of `k`; the last two leave its head, and so its length.
const DAMAGES: [Damage; 7] = [
    |disk, number| disk.remove(&log_name(number)).unwrap(),
    |disk, number| disk.put(&log_name(number), b""),
    |disk, number| cut(disk, number, |bytes| bytes / 2),
    |disk, number| cut(disk, number, |bytes| bytes - 1),
    |disk, number| flip(disk, number, |_| 20),
    |disk, number| flip(disk, number, |bytes| bytes * 2 / 3),
    |disk, number| flip(disk, number, |bytes| bytes - 3),
];

fn told(disk: &MemoryDisk, name: &str) -> Result<History, StorageError> {
    let path = Path::root().push(name).unwrap();
    Ok(history(disk, &path, 0, 10)?.unwrap())
}

/// When each change came, in units of 10 s, what it set, and whether what was before it is not known.
fn steps(history: &History) -> Vec<(Option<u64>, u8, bool)> {
    let value =
        |step: &crate::history::Step| step.after.as_ref().unwrap().value.as_ref().unwrap()[0];
    let steps = history.steps.iter();
    steps.map(|s| (s.time_ms.map(|ms| ms / 10_000), value(s), s.is_before_unknown)).collect()
}

/// What a start says of holes.
fn warned(disk: &MemoryDisk) -> Vec<String> {
    let warnings = start(disk, &OPTIONS).unwrap().warnings;
    let holes = warnings.iter().filter(|warning| matches!(warning, Warning::Hole(_)));
    holes.map(ToString::to_string).collect()
}

#[test]
fn a_history_without_holes_is_whole() {
    let disk = directory(&[5]);
    assert_eq!(warned(&disk), Vec::<String>::new());
    let all = told(&disk, "k").unwrap();
    assert_eq!((all.hole, all.has_gaps), (None, false));
    assert_eq!(all.steps.len(), 7);
}

#[test]
fn a_history_across_a_hole_joins_nothing_and_names_the_log() {
    for (which, damage) in DAMAGES.into_iter().enumerate() {
        let disk = directory(&[5]);
        damage(&disk, 3);
        let all = told(&disk, "k").unwrap();
        assert!(all.hole.as_ref().unwrap().contains("log-3.dkv"), "{which}: {:?}", all.hole);
        let mut expected: Vec<_> = (1..=7).map(|n| (Some(n), n as u8, n == 4)).collect();
        expected.remove(2);
        assert_eq!(steps(&all), expected, "{which}");
        // It is not known that it was the same all the time, so that is told; and it was.
        let rare = told(&disk, "rare").unwrap();
        assert_eq!(steps(&rare), [(Some(1), 1, false), (Some(2), 2, false)], "{which}");
        assert!(rare.hole.is_some());
    }
}

#[test]
fn what_only_the_snapshot_behind_a_hole_knows_is_told_without_a_time() {
    for (which, damage) in DAMAGES.into_iter().enumerate() {
        // No log between the hole and the snapshot has the entry.
        let disk = directory(&[5]);
        damage(&disk, 2);
        let rare = told(&disk, "rare").unwrap();
        let [first, (time, value, is_unknown)] = steps(&rare)[..] else { panic!("{rare:?}") };
        assert_eq!((first, value), ((Some(1), 1, false), 2), "{which}");
        // Damaged in its last change only, the log has this one.
        assert_eq!(time.is_none(), is_unknown, "{which}");
        assert_eq!(time.is_none(), which < 3 || which == 4 || which == 5, "{which}: {time:?}");
        // The snapshot follows at once.
        let disk = directory(&[5]);
        damage(&disk, 4);
        let all = told(&disk, "k").unwrap();
        let mut expected: Vec<_> = (1..=7).map(|n| (Some(n), n as u8, false)).collect();
        expected[3] = (None, 4, true);
        assert_eq!(steps(&all), expected, "{which}");
    }
}

/// What it is now is in the log that is damaged.
#[test]
fn what_a_start_needs_is_no_hole_but_damage() {
    for (which, damage) in DAMAGES.into_iter().enumerate() {
        let disk = directory(&[5]);
        damage(&disk, 6);
        let error = told(&disk, "k").unwrap_err().to_string();
        assert!(error.contains("log-6.dkv"), "{which}: {error}");
        assert!(start(&disk, &OPTIONS).is_err(), "{which}");
    }
}

#[test]
fn a_start_says_that_the_history_has_a_hole_and_where_it_is_whole_again() {
    for damage in &DAMAGES[..4] {
        let disk = directory(&[4, 6]);
        damage(&disk, 2);
        let [text] = &warned(&disk)[..] else { panic!("{:?}", warned(&disk)) };
        for part in ["log-2.dkv", "all data is there", "from snapshot-4.dkv on", "less than 4"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // Another one: the history is whole behind both.
        damage(&disk, 4);
        let [text] = &warned(&disk)[..] else { panic!("{:?}", warned(&disk)) };
        for part in ["log-2.dkv", "more hole", "from snapshot-6.dkv on"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // What it advises.
        for number in 1..6 {
            let _ = disk.remove(&log_name(number));
        }
        disk.remove(&snapshot_name(4)).unwrap();
        assert_eq!(warned(&disk), Vec::<String>::new());
        let all = told(&disk, "k").unwrap();
        assert_eq!((all.hole, all.steps.len()), (None, 2));
    }
}

/// Files go with the oldest first; what is left of the past begins with a snapshot.
#[test]
fn a_log_whose_head_cannot_be_read_is_part_of_the_hole() {
    let disk = directory(&[3, 5]);
    flip(&disk, 3, |_| 20);
    let [warning] = &warned(&disk)[..] else { panic!("{:?}", warned(&disk)) };
    assert!(warning.contains("log-3.dkv") && warning.contains("less than 5"), "{warning}");
    // With what the warning says, it is over.
    for number in 1..5 {
        disk.remove(&log_name(number)).unwrap();
    }
    disk.remove(&snapshot_name(3)).unwrap();
    assert_eq!(warned(&disk), Vec::<String>::new());
}

#[test]
fn a_past_that_was_shortened_has_no_hole() {
    let disk = directory(&[3, 5]);
    for number in 1..=4 {
        disk.remove(&log_name(number)).unwrap();
        if number == 2 {
            disk.remove(&snapshot_name(3)).unwrap();
        }
        assert_eq!(warned(&disk), Vec::<String>::new(), "{number}");
    }
}

#[test]
fn a_hole_before_all_that_is_told_is_none() {
    let disk = directory(&[5]);
    disk.remove(&log_name(2)).unwrap();
    let path = Path::root().push("k").unwrap();
    for (limit, expected) in [(4, false), (5, true), (6, true)] {
        let all = history(&disk, &path, 0, limit).unwrap().unwrap();
        assert_eq!(all.hole.is_some(), expected, "{limit}");
    }
    let all = history(&disk, &path, 60_000, 10).unwrap().unwrap();
    assert_eq!((all.hole, all.steps.len()), (None, 2));
}
