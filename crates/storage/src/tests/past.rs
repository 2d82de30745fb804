//! How far back a directory reaches, and which files are removed when it should reach back less
//! far.

use std::sync::Arc;

use super::damage::{OPTIONS, start};
use super::node::{TestNode, header};
use crate::Until;
use crate::data_dir::DataDir;
use crate::disk::Disk;
use crate::header::LogStart;
use crate::memory_disk::MemoryDisk;
use crate::model::ids::Tock;
use crate::past::{Keep, reach};
use crate::recover::RecoverOptions;
use crate::snapshot::snapshot_name;

/// A directory with logs 1 to 6 and snapshots 2 to 6. In log n, k was set to n.
fn directory() -> (MemoryDisk, DataDir) {
    let disk = MemoryDisk::new();
    let dir = DataDir::on(Arc::new(disk.clone()));
    let mut node = TestNode::new(7);
    let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
    let mut log = dir.begin_log(&header(1, 7), LogStart::Empty, &knowledge, &table).unwrap();
    for number in 1..=6 {
        if number > 1 {
            let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
            log = dir.rotate(log, &header(number, 7), &knowledge, &table).unwrap();
            dir.save(&header(number, 7), &node.image(), &mut |_| {}).unwrap();
        }
        log.append(&node.set("k", Some(number))).unwrap();
        log.sync().unwrap();
    }
    (disk, dir)
}

/// The least tock whose state can be replayed, and the oldest of all numbers.
fn reaches(disk: &MemoryDisk) -> (u64, u64) {
    let replayed = |tock: &u64| {
        let until = Some(Until::Tock(Tock::new(*tock).unwrap()));
        let found = start(disk, &RecoverOptions { until, ..OPTIONS });
        found.is_ok_and(|found| found.image.is_some())
    };
    let least = (0..10).find(replayed).unwrap();
    assert_eq!(reach(disk).unwrap().unwrap().tock.get(), least, "it is as it is said");
    let names = disk.list().unwrap().into_iter().filter_map(|entry| {
        let (_, rest) = entry.name.split_once('-')?;
        rest.strip_suffix(".dkv")?.parse().ok()
    });
    (least, names.min().unwrap())
}

#[test]
fn the_past_is_kept_by_number_by_age_and_within_a_size() {
    let all = Keep { snapshots: 1, since_ms: 0, bytes: u64::MAX };
    let kept = |keep: Keep| {
        let (disk, dir) = directory();
        dir.prune(6, &keep).unwrap();
        reaches(&disk)
    };
    let nothing = kept(all);
    assert_eq!(nothing, (0, 1));
    // Snapshot n has what log n - 1 did, and was made at 1000 + n.
    assert_eq!(kept(Keep { since_ms: 1_003, ..all }), (2, 3));
    assert_eq!(kept(Keep { since_ms: 1_004, ..all }), (3, 4));
    assert_eq!(kept(Keep { since_ms: 1_001, ..all }), nothing, "no snapshot is so old");
    // The base before the newest one stays, whatever its age and size are.
    assert_eq!(kept(Keep::snapshots(1)), (4, 5));
    assert_eq!(kept(Keep { bytes: 0, ..all }), (4, 5));
    assert_eq!(kept(Keep::snapshots(3)), (2, 3));
    assert_eq!(kept(Keep::snapshots(5)), nothing, "nothing is the base before the first");
    // Only a snapshot that is known to be valid makes anything else unnecessary.
    let (disk, dir) = directory();
    dir.prune(4, &Keep::snapshots(1)).unwrap();
    assert_eq!(reaches(&disk), (2, 3));
}

#[test]
fn a_damaged_snapshot_is_no_base() {
    let (disk, dir) = directory();
    dir.prune(6, &Keep::snapshots(3)).unwrap();
    let mut bad = disk.content(&snapshot_name(3)).unwrap();
    bad[20] ^= 1;
    disk.put(&snapshot_name(3), &bad);
    assert_eq!(reach(&disk).unwrap().unwrap().tock.get(), 3);
}
