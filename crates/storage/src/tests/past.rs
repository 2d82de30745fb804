//! How far back a directory reaches, and which files are removed when it should reach back less
//! far.

use std::sync::Arc;

use super::damage::{OPTIONS, OWNER, start};
use super::node::{TestNode, header, write};
use crate::Until;
use crate::batch::Batch;
use crate::data_dir::DataDir;
use crate::disk::Disk;
use crate::engine::{Input, Knowledge};
use crate::error::StorageError;
use crate::header::{FileHeader, LogStart};
use crate::history::{Step, Version, history};
use crate::log::{LogWriter, log_name};
use crate::memory_disk::MemoryDisk;
use crate::model::ids::{Incarnation, NodeTable, Tock};
use crate::model::path::Path;
use crate::past::{Keep, reach, reach_after, read_past};
use crate::recover::{Files, RecoverOptions, Recovered, never_begun};
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
    assert_eq!(reach(disk, OWNER).unwrap().unwrap().tock.get(), least, "it is as it is said");
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
fn of_changes_made_together_those_up_to_a_tock_are_found() {
    let disk = MemoryDisk::new();
    let dir = DataDir::on(Arc::new(disk.clone()));
    let mut node = TestNode::new(7);
    let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
    let mut log = dir.begin_log(&header(1, 7), LogStart::Empty, &knowledge, &table).unwrap();
    let names = ["a", "b", "c", "d"];
    let batch = node.batch(|engine, out| {
        for name in names {
            write(engine, name, Some(&[1]), out);
        }
    });
    assert_eq!(batch.ops.len(), names.len());
    let first = knowledge.tock.get();
    log.append(&batch).unwrap();
    log.append(&node.set("e", Some(2))).unwrap();
    log.sync().unwrap();
    for (made, tock) in (first..=first + 5).enumerate() {
        let until = Some(Until::Tock(Tock::new(tock).unwrap()));
        let found = start(&disk, &RecoverOptions { until, ..OPTIONS }).unwrap().image.unwrap();
        assert_eq!(found.replica.tree.len(), made, "up to tock {tock}");
        assert!(found.replica.tock.get() <= tock, "{:?}", found.replica.tock);
    }
}

#[test]
fn a_damaged_snapshot_is_no_base() {
    let (disk, dir) = directory();
    dir.prune(6, &Keep::snapshots(3)).unwrap();
    let mut bad = disk.content(&snapshot_name(3)).unwrap();
    bad[20] ^= 1;
    disk.put(&snapshot_name(3), &bad);
    assert_eq!(reach(&disk, OWNER).unwrap().unwrap().tock.get(), 3);
}

/// The head of a file of one of the node's lives, begun at this time.
fn at(number: u64, life: u64, time_ms: u64) -> FileHeader {
    FileHeader { time_ms, ..header(number, life) }
}

/// What a log begins with.
fn state(node: &TestNode) -> (Knowledge, Arc<NodeTable>) {
    (node.engine.knowledge(), Arc::clone(node.engine.table()))
}

/// A directory whose log 1 was begun at 10 s and is still open, in which k was set to 1 at 20 s.
fn directory_with_one_change() -> (MemoryDisk, DataDir, TestNode, LogWriter) {
    let disk = MemoryDisk::new();
    let dir = DataDir::on(Arc::new(disk.clone()));
    let mut node = TestNode::new(7);
    let (knowledge, table) = state(&node);
    let mut log = dir.begin_log(&at(1, 7, 10_000), LogStart::Empty, &knowledge, &table).unwrap();
    log.append(&Batch { time_ms: 20_000, ..node.set("k", Some(1)) }).unwrap();
    (disk, dir, node, log)
}

/// A directory whose log 1 was cut off by a disk that failed, and whose log 2 begins with a snapshot, a
/// minute after that. What is at the end of log 1 may be anything.
fn directory_with_a_gap(tail: &[u8]) -> MemoryDisk {
    directory_with_logs_never_begun(tail, &[])
}

/// The same, and between the two logs that is left of which there was no room to begin them: the last log has a greater
/// number by theirs.
fn directory_with_logs_never_begun(tail: &[u8], left: &[&[u8]]) -> MemoryDisk {
    let (disk, dir, mut node, mut log) = directory_with_one_change();
    log.sync().unwrap();
    drop(log);
    let name = log_name(1);
    let whole = disk.content(&name).unwrap();
    disk.put(&name, &[&whole[..], tail].concat());
    for (number, left) in (2..).zip(left) {
        disk.put(&log_name(number), left);
    }
    // This was not logged.
    let _lost = node.set("k", Some(2));
    let header = at(2 + left.len() as u64, 7, 80_000);
    dir.save(&header, &node.image(), &mut |_| {}).unwrap();
    let (knowledge, table) = state(&node);
    let mut log = dir.begin_log(&header, LogStart::Snapshot, &knowledge, &table).unwrap();
    log.append(&Batch { time_ms: 90_000, ..node.set("k", Some(3)) }).unwrap();
    log.sync().unwrap();
    disk
}

/// What there is of a moment.
fn start_until(disk: &MemoryDisk, until: Until) -> Recovered {
    start(disk, &RecoverOptions { until: Some(until), ..OPTIONS }).unwrap()
}

/// The value of `k` at a time, and what an operator is told.
fn replayed(disk: &MemoryDisk, time_ms: u64) -> Result<(u8, Vec<String>), StorageError> {
    let until = Some(Until::Time(time_ms));
    let found = start(disk, &RecoverOptions { until, ..OPTIONS })?;
    let image = found.image.unwrap();
    let value = image.replica.tree.get(b"\xa1k").and_then(|entry| entry.value()).unwrap()[0];
    Ok((value, found.warnings.iter().map(ToString::to_string).collect()))
}

#[test]
fn a_moment_at_which_nothing_was_logged_is_no_damage() {
    for tail in [&b""[..], b"\x30\x00\x00\x00\x01\x02", &[0; 5_000]] {
        let disk = directory_with_a_gap(tail);
        assert_eq!(replayed(&disk, 80_000).unwrap(), (2, vec![]), "that is the snapshot");
        assert_eq!(replayed(&disk, 95_000).unwrap(), (3, vec![]));
        for time_ms in [20_001, 50_000, 79_999] {
            let (value, told) = replayed(&disk, time_ms).unwrap();
            assert_eq!(value, 1);
            let [told] = told.as_slice() else { panic!("{told:?}") };
            for part in ["log-1.dkv", "log-2.dkv", "60 s", "nothing was logged"] {
                assert!(told.contains(part), "{part}: {told}");
            }
        }
    }
    // What is damaged before the gap is damage; so is a log that another one goes on from.
    let disk = directory_with_a_gap(b"");
    let mut bytes = disk.content(&log_name(1)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    disk.put(&log_name(1), &bytes);
    assert!(replayed(&disk, 50_000).is_err());
}

/// The disk was full when the node was started, and had room again later.
#[test]
fn a_log_that_was_never_begun_is_a_part_of_the_gap_that_it_is_in() {
    let whole = directory_with_a_gap(b"").content(&log_name(1)).unwrap();
    let steps = vec![(Some(20_000), 1), (None, 2), (Some(90_000), 3)];
    for left in [&[&b""[..]][..], &[&whole[..10]], &[&[0; 4_096]], &[b"", &whole[..60], b""]] {
        for tail in [&b""[..], b"\x30\x00\x00\x00\x01\x02"] {
            let disk = directory_with_logs_never_begun(tail, left);
            let (first, last) = (log_name(1), log_name(2 + left.len() as u64));
            assert_eq!(replayed(&disk, 95_000).unwrap(), (3, vec![]));
            let (value, lines) = replayed(&disk, 50_000).unwrap();
            assert!(value == 1 && lines.len() == 1, "{lines:?}");
            assert!(lines[0].contains(&first) && lines[0].contains(&last), "{lines:?}");
            let until = Some(Until::Tock(Tock::new(1).unwrap()));
            start(&disk, &RecoverOptions { until, ..OPTIONS }).unwrap();
            assert_eq!(told(&disk, "k", 0), (None, steps.clone(), true));
            let names: Vec<String> = (2..2 + left.len() as u64).rev().map(log_name).collect();
            assert_eq!(never_begun(&disk).unwrap(), names);
        }
    }
}

/// A log that another one goes on from was there, and so was one that the identity names.
#[test]
fn an_empty_log_that_was_begun_once_is_damage() {
    let empty = |disk: &MemoryDisk, hole: Option<&str>| {
        disk.put(&log_name(2), b"");
        let path = Path::root().push("k").unwrap();
        let error = replayed(disk, 95_000).unwrap_err();
        assert!(error.to_string().contains("log-2.dkv"), "{error}");
        match (history(disk, OWNER, &path, 0, 10), hole) {
            (Ok(told), Some(hole)) => assert!(told.unwrap().holes.remove(0).starts_with(hole)),
            (told, hole) => assert!(told.is_err() && hole.is_none(), "{told:?}"),
        }
        assert_eq!(never_begun(disk).unwrap(), Vec::<String>::new());
    };
    let rotated = || {
        let (disk, dir, mut node, log) = directory_with_one_change();
        let (knowledge, table) = state(&node);
        let mut log = dir.rotate(log, &at(2, 7, 30_000), &knowledge, &table).unwrap();
        log.append(&Batch { time_ms: 40_000, ..node.set("k", Some(2)) }).unwrap();
        (disk, dir, node, log)
    };
    let (disk, dir, mut node, log) = rotated();
    let (knowledge, table) = state(&node);
    let mut log = dir.rotate(log, &at(3, 7, 50_000), &knowledge, &table).unwrap();
    log.append(&Batch { time_ms: 90_000, ..node.set("k", Some(3)) }).unwrap();
    log.sync().unwrap();
    empty(&disk, None);
    // The next one begins anew, but the identity is of before it.
    let (disk, dir, node, mut log) = rotated();
    log.sync().unwrap();
    dir.save(&at(3, 7, 99_000), &node.image(), &mut |_| {}).unwrap();
    let (knowledge, table) = state(&node);
    let header = at(3, 7, 99_000);
    LogWriter::create(&disk, &header, LogStart::Snapshot, &knowledge, &table).unwrap();
    empty(&disk, Some("log-2.dkv: "));
}

/// There was room for a snapshot, and none for its log.
#[test]
fn behind_a_snapshot_whose_log_was_never_begun_is_a_gap() {
    for left in [None, Some(&b""[..])] {
        let (disk, dir, mut node, mut log) = directory_with_one_change();
        log.sync().unwrap();
        let _lost = node.set("k", Some(2));
        dir.save(&at(2, 7, 50_000), &node.image(), &mut |_| {}).unwrap();
        if let Some(left) = left {
            disk.put(&log_name(2), left);
        }
        let _lost = node.set("k", Some(3));
        dir.save(&at(3, 7, 80_000), &node.image(), &mut |_| {}).unwrap();
        let (knowledge, table) = state(&node);
        dir.begin_log(&at(3, 7, 80_000), LogStart::Snapshot, &knowledge, &table).unwrap();
        assert_eq!(replayed(&disk, 80_000).unwrap(), (3, vec![]));
        let (value, lines) = replayed(&disk, 60_000).unwrap();
        assert!(value == 2 && lines.len() == 1, "{lines:?}");
        for part in ["snapshot-2.dkv", "log-3.dkv", "30 s"] {
            assert!(lines[0].contains(part), "{part}: {lines:?}");
        }
        assert_eq!(told(&disk, "k", 60_000), (Some(2), vec![(None, 3)], true));
    }
}

/// A directory whose node set k to 1, rotated its log, stopped or was killed, and was started again two minutes later as
/// the given life.
fn directory_of_a_node_that_was_off(stops: bool, next_life: u64) -> MemoryDisk {
    let (disk, dir, mut node, log) = directory_with_one_change();
    let (knowledge, table) = state(&node);
    let mut log = dir.rotate(log, &at(2, 7, 30_000), &knowledge, &table).unwrap();
    let bytes = if stops {
        dir.stop(log, 40_000, &knowledge, &table).unwrap();
        disk.content(&log_name(2)).unwrap().len() as u64
    } else {
        log.append(&Batch { time_ms: 40_000, ..node.set("other", Some(1)) }).unwrap();
        log.sync().unwrap();
        log.len()
    };
    let mut node = TestNode::restored(&node.image(), next_life);
    let (knowledge, table) = state(&node);
    let start = LogStart::After { number: 2, bytes };
    let mut log = dir.begin_log(&at(3, next_life, 160_000), start, &knowledge, &table).unwrap();
    log.append(&Batch { time_ms: 170_000, ..node.set("k", Some(3)) }).unwrap();
    log.sync().unwrap();
    disk
}

#[test]
fn a_moment_at_which_a_node_was_off_is_told() {
    for stops in [true, false] {
        let disk = directory_of_a_node_that_was_off(stops, 8);
        for time_ms in [20_000, 25_000, 30_000, 39_999] {
            assert_eq!(replayed(&disk, time_ms).unwrap(), (1, vec![]), "it ran, {time_ms}");
        }
        assert_eq!(replayed(&disk, 165_000).unwrap(), (1, vec![]));
        assert_eq!(replayed(&disk, 170_000).unwrap(), (3, vec![]));
        for time_ms in [40_001, 100_000, 159_999] {
            let (value, told) = replayed(&disk, time_ms).unwrap();
            let [told] = told.as_slice() else { panic!("stops: {stops}, {time_ms}: {told:?}") };
            assert_eq!(value, 1);
            for part in ["log-2.dkv", "log-3.dkv", "120 s", "nothing was logged"] {
                assert!(told.contains(part), "{part}: {told}");
            }
        }
        // Tocks are the network's: a node that was off has missed none of them in the end.
        let until = Some(Until::Tock(Tock::new(2).unwrap()));
        let found = start(&disk, &RecoverOptions { until, ..OPTIONS }).unwrap();
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    }
}

/// What is told of an idle node that was killed goes by what it said last, however it was killed.
#[test]
fn a_batch_of_nothing_says_until_when_nothing_was_missed() {
    let (disk, dir, node, mut log) = directory_with_one_change();
    for time_ms in [80_000, 140_000] {
        log.append(&Batch::nothing(time_ms)).unwrap();
    }
    log.sync().unwrap();
    let start = LogStart::After { number: 1, bytes: log.len() };
    let mut node = TestNode::restored(&node.image(), 8);
    let (knowledge, table) = state(&node);
    let mut log = dir.begin_log(&at(2, 8, 160_000), start, &knowledge, &table).unwrap();
    log.append(&Batch { time_ms: 170_000, ..node.set("k", Some(2)) }).unwrap();
    log.sync().unwrap();
    for time_ms in [20_000, 20_001, 79_999, 80_000, 139_999, 160_000] {
        assert_eq!(replayed(&disk, time_ms).unwrap(), (1, vec![]), "{time_ms}");
    }
    for time_ms in [140_001, 159_999] {
        let (value, told) = replayed(&disk, time_ms).unwrap();
        let [told] = told.as_slice() else { panic!("{time_ms}: {told:?}") };
        assert!(value == 1 && told.contains("in the 20 s between"), "{told}");
    }
    let (steps, end) = (vec![(Some(20_000), 1), (Some(170_000), 2)], Until::Time(u64::MAX));
    assert_eq!(told(&disk, "k", 0), (None, steps, true));
    let found = start_until(&disk, end);
    assert_eq!((found.last_logged_ms, found.warnings.len()), (Some(170_000), 0));
}

/// A gap begins where the clock stood at its beginning, not where it has stood once.
#[test]
fn a_gap_behind_a_clock_that_was_set_back_begins_with_what_the_clock_said_then() {
    let (disk, dir, node, mut log) = directory_with_one_change();
    for time_ms in [3_600_000, 60_000] {
        log.append(&Batch::nothing(time_ms)).unwrap();
    }
    log.sync().unwrap();
    let start = LogStart::After { number: 1, bytes: log.len() };
    let node = TestNode::restored(&node.image(), 8);
    let (knowledge, table) = state(&node);
    dir.begin_log(&at(2, 8, 160_000), start, &knowledge, &table).unwrap();
    assert_eq!(
        start_until(&disk, Until::Time(59_999)).warnings.len(),
        1,
        "the clock leapt over it"
    );
    let (value, told) = replayed(&disk, 100_000).unwrap();
    assert!(value == 1 && told[0].contains("in the 100 s between"), "{told:?}");
}

/// A life that begins while the node runs has not been off.
#[test]
fn a_node_that_renewed_itself_was_not_off() {
    let (disk, dir, mut node, mut log) = directory_with_one_change();
    let incarnation = Incarnation(8);
    let renewed = node.batch(|engine, out| engine.handle(Input::Renewed { incarnation }, 0, out));
    assert_eq!(renewed.knowledge.as_ref().map(|knowledge| knowledge.id.incarnation.0), Some(8));
    log.append(&Batch { time_ms: 20_000, ..renewed }).unwrap();
    let (knowledge, table) = state(&node);
    let mut log = dir.rotate(log, &at(2, 8, 30_000), &knowledge, &table).unwrap();
    log.append(&Batch { time_ms: 40_000, ..node.set("k", Some(2)) }).unwrap();
    log.sync().unwrap();
    assert_eq!(replayed(&disk, 25_000).unwrap(), (1, vec![]));
    let steps = vec![(Some(20_000), 1), (Some(40_000), 2)];
    assert_eq!(told(&disk, "k", 0), (None, steps, false));
}

#[test]
fn where_the_logs_end_is_told_of_a_moment_that_is_not_before_it() {
    let disk = directory_with_a_gap(b"");
    let end = |until| start_until(&disk, until).last_logged_ms;
    assert_eq!(end(Until::Time(90_000)), Some(90_000));
    assert_eq!(end(Until::Time(u64::MAX)), Some(90_000));
    assert_eq!(end(Until::Tock(Tock::new(1_000).unwrap())), Some(90_000));
    for before in [Until::Time(89_999), Until::Time(50_000), Until::Tock(Tock::new(1).unwrap())] {
        assert_eq!(end(before), None, "{before:?}");
    }
}

/// A directory whose clock was an hour ahead while k was set to 3 and 4, and in whose log of that time it was set back. In
/// log n, k was set to 2n - 1 and to 2n; snapshot n is of the beginning of log n.
fn directory_of_a_clock_ahead() -> MemoryDisk {
    const HOUR_MS: u64 = 3_600_000;
    let disk = MemoryDisk::new();
    let dir = DataDir::on(Arc::new(disk.clone()));
    let mut node = TestNode::new(7);
    let at = |number, time_ms| at(number, 7, time_ms);
    let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
    let mut log = dir.begin_log(&at(1, 10_000), LogStart::Empty, &knowledge, &table).unwrap();
    let times = [
        (10_000, [20_000, 30_000]),
        (HOUR_MS + 40_000, [HOUR_MS + 50_000, 60_000]),
        (70_000, [80_000, 90_000]),
    ];
    for (number, (begun, changes)) in (1..).zip(times) {
        if number > 1 {
            let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
            log = dir.rotate(log, &at(number, begun), &knowledge, &table).unwrap();
            dir.save(&at(number, begun), &node.image(), &mut |_| {}).unwrap();
        }
        for (value, time_ms) in (2 * number - 1..).zip(changes) {
            log.append(&Batch { time_ms, ..node.set("k", Some(value)) }).unwrap();
        }
        log.sync().unwrap();
    }
    disk
}

#[test]
fn a_clock_that_was_ahead_hides_nothing_that_came_after_it_was_set_back() {
    let disk = directory_of_a_clock_ahead();
    let value = |time_ms| {
        assert_eq!(reach_after(&disk, OWNER, Until::Time(time_ms)).unwrap(), None);
        replayed(&disk, time_ms).unwrap()
    };
    assert_eq!(value(20_000), (1, vec![]));
    // What has a later time was made before what has an earlier one. What the clock never showed is in doubt.
    let (two, told) = value(59_999);
    assert!(two == 2 && told.len() == 1 && told[0].contains("leapt over the moment"), "{told:?}");
    assert_eq!(value(60_000), (4, vec![]), "in the middle of the log");
    assert_eq!(value(79_999), (4, vec![]));
    assert_eq!(value(85_000), (5, vec![]));
    assert_eq!(value(3_650_000), (6, vec![]), "all is at most an hour ahead");
    // Without the files before: the first that is left was begun while the clock was ahead.
    for name in [log_name(1), snapshot_name(3)] {
        disk.remove(&name).unwrap();
    }
    assert_eq!(value(60_000), (4, vec![]));
    assert_eq!(value(95_000), (6, vec![]));
    assert!(reach_after(&disk, OWNER, Until::Time(59_999)).unwrap().is_some());
    assert!(reach_after(&disk, OWNER, Until::Tock(Tock::new(1).unwrap())).unwrap().is_some());
}

/// What is told of an entry: its value before the changes, when each came and what it set, and whether there are gaps.
type Told = (Option<u8>, Vec<(Option<u64>, u8)>, bool);

/// The changes of an entry since a moment.
fn told(disk: &MemoryDisk, name: &str, since_ms: u64) -> Told {
    let path = Path::root().push(name).unwrap();
    let told = history(disk, OWNER, &path, since_ms, 10).unwrap().unwrap();
    let value = |version: &Version| version.value.as_ref().unwrap()[0];
    let step = |step: &Step| (step.time_ms, value(step.after.as_ref().unwrap()));
    (told.before.as_ref().map(value), told.steps.iter().map(step).collect(), told.has_gaps)
}

#[test]
fn a_history_goes_by_the_log_where_a_clock_was_set_back() {
    let disk = directory_of_a_clock_ahead();
    let (ahead, back) = ((Some(3_650_000), 3), (Some(60_000), 4));
    let later = [(Some(80_000), 5), (Some(90_000), 6)];
    // Behind the change that was made with the clock ahead follows what came behind it.
    let steps = [&[ahead, back][..], &later].concat();
    assert_eq!(told(&disk, "k", 65_000), (Some(2), steps, false));
    let steps = [&[(Some(30_000), 2), ahead, back][..], &later].concat();
    assert_eq!(told(&disk, "k", 30_000), (Some(1), steps, false));
    // A snapshot has all that came before it, whatever their times.
    assert_eq!(told(&disk, "k", 75_000), (Some(4), later.to_vec(), false));
}

#[test]
fn a_history_has_what_a_gap_has_ended_with_and_says_that_there_is_one() {
    let (one, lost, three) = ((Some(20_000), 1), (None, 2), (Some(90_000), 3));
    // What the disk has left at the end of the log before it means nothing.
    for tail in [&b""[..], b"\x30\x00\x00\x00\x01\x02", &[0; 5_000]] {
        let disk = directory_with_a_gap(tail);
        assert_eq!(told(&disk, "k", 0), (None, vec![one, lost, three], true));
        // It may have been made since then, or before.
        assert_eq!(told(&disk, "k", 30_000), (Some(1), vec![lost, three], true));
        // The snapshot behind the gap has all that is needed.
        assert_eq!(told(&disk, "k", 80_000), (Some(2), vec![three], false));
        assert_eq!(told(&disk, "k", 95_000), (Some(3), vec![], false));
        assert_eq!(told(&disk, "other", 0), (None, vec![], true));
    }
}

/// What came while a node was off comes to it when it is on again, and only what has become of it.
#[test]
fn a_history_says_that_the_node_was_off() {
    let (one, three) = ((Some(20_000), 1), (Some(170_000), 3));
    for stops in [true, false] {
        let disk = directory_of_a_node_that_was_off(stops, 8);
        assert_eq!(told(&disk, "k", 0), (None, vec![one, three], true));
        assert_eq!(told(&disk, "k", 50_000), (Some(1), vec![three], true));
        assert_eq!(told(&disk, "k", 159_999), (Some(1), vec![three], true));
        // It was on again.
        assert_eq!(told(&disk, "k", 160_001), (Some(1), vec![three], false));
        assert_eq!(told(&disk, "k", 175_000), (Some(3), vec![], false));
    }
}

/// Only the last changes are asked for, and it was off before what was there before them.
#[test]
fn a_history_that_is_cut_says_nothing_of_gaps_before_it() {
    let (disk, dir, mut node, mut log) = directory_with_one_change();
    log.sync().unwrap();
    for (number, value) in [(2, 2), (3, 4)] {
        let start = LogStart::After { number: number - 1, bytes: log.len() };
        node = TestNode::restored(&node.image(), 6 + number);
        let (knowledge, table) = state(&node);
        let header = at(number, 6 + number, number * 100_000);
        log = dir.begin_log(&header, start, &knowledge, &table).unwrap();
        for (value, later_ms) in [(value, 10_000), (value + 1, 20_000)] {
            let time_ms = header.time_ms + later_ms;
            log.append(&Batch { time_ms, ..node.set("k", Some(value)) }).unwrap();
        }
        log.sync().unwrap();
    }
    let path = Path::root().push("k").unwrap();
    for (limit, expected) in [(1, false), (2, true), (3, true), (5, true)] {
        let told = history(&disk, OWNER, &path, 0, limit).unwrap().unwrap();
        assert_eq!((told.steps.len(), told.has_gaps), (limit, expected), "{limit}");
        assert_eq!(told.is_cut, limit < 5);
    }
}

#[test]
fn a_history_goes_on_behind_a_gap_whose_snapshot_is_gone_or_damaged() {
    let disk = directory_with_a_gap(b"");
    let expected = (None, vec![(Some(20_000), 1), (Some(90_000), 3)], true);
    let mut bad = disk.content(&snapshot_name(2)).unwrap();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    disk.put(&snapshot_name(2), &bad);
    assert_eq!(told(&disk, "k", 0), expected);
    disk.remove(&snapshot_name(2)).unwrap();
    assert_eq!(told(&disk, "k", 0), expected);
}

#[test]
fn a_log_that_is_just_being_begun_says_nothing_yet_and_is_no_damage() {
    let path = Path::root().push("k").unwrap();
    let (disk, dir) = directory();
    let expected = history(&disk, OWNER, &path, 0, 10).unwrap();
    let begun = disk.content(&log_name(6)).unwrap();
    for left in [&b""[..], &begun[..10], &[0; 4_096]] {
        disk.put(&log_name(7), left);
        assert_eq!(history(&disk, OWNER, &path, 0, 10).unwrap(), expected, "{} bytes", left.len());
    }
    // The disk was full, and has room again: the next one begins anew.
    disk.put(&log_name(7), b"");
    let node = TestNode::new(7);
    let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
    dir.begin_log(&header(8, 7), LogStart::Snapshot, &knowledge, &table).unwrap();
    let told = history(&disk, OWNER, &path, 0, 10).unwrap().unwrap();
    assert_eq!((told.steps, told.has_gaps), (expected.unwrap().steps, true));
    // What the identity says was safe is not being begun.
    let (disk, _) = directory();
    disk.put(&log_name(6), b"");
    assert!(history(&disk, OWNER, &path, 0, 10).is_err());
}

#[test]
fn a_history_says_what_is_damaged() {
    let disk = directory_with_a_gap(b"");
    let mut bytes = disk.content(&log_name(1)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    disk.put(&log_name(1), &bytes);
    let path = Path::root().push("k").unwrap();
    // The snapshot behind the gap has what the log has lost.
    let hole = history(&disk, OWNER, &path, 0, 10).unwrap().unwrap().holes.remove(0);
    assert!(hole.contains("log-1.dkv"), "{hole}");
    // The log that a start needs.
    let mut bytes = disk.content(&log_name(2)).unwrap();
    bytes[60] ^= 1;
    disk.put(&log_name(2), &bytes);
    let error = history(&disk, OWNER, &path, 0, 10).unwrap_err();
    assert!(error.to_string().contains("log-2.dkv"), "{error}");
}

#[test]
fn where_a_node_removes_files_the_past_is_read_anew_and_not_for_ever() {
    let (disk, _) = directory();
    let error = || StorageError::Misnamed { file: String::from("x"), found: 1 };
    let mut reads = 0;
    let found = read_past(&disk, || {
        reads += 1;
        if reads < 3 {
            disk.remove(&snapshot_name(1 + reads)).unwrap();
            return Err(error());
        }
        Ok(reads)
    });
    assert_eq!(found.unwrap(), 3);
    // Nothing went: it is the file's own fault.
    let mut reads = 0;
    let failed: Result<(), _> = read_past(&disk, || {
        reads += 1;
        Err(error())
    });
    assert!(failed.is_err() && reads == 1);
    let mut reads = 0;
    disk.create(&log_name(100)).unwrap();
    let failed: Result<(), _> = read_past(&disk, || {
        reads += 1;
        disk.create(&log_name(100 + reads)).unwrap();
        disk.remove(&log_name(99 + reads)).unwrap();
        Err(error())
    });
    assert!(failed.is_err() && reads == 8, "{reads}");
}

/// A node that removes hundreds of old files takes longer for it than a few readings.
#[test]
fn the_past_is_read_anew_as_long_as_the_oldest_files_go() {
    let (disk, _) = directory();
    let gone = || StorageError::Io {
        file: log_name(1_000),
        action: "open",
        source: std::io::ErrorKind::NotFound.into(),
    };
    let names = |from: u64, to: u64| (from..to).map(|n| format!("log-{n}.dkv"));
    Files::list(&disk).unwrap().all().for_each(|name| disk.remove(name).unwrap());
    names(1_000, 1_300).for_each(|name| drop(disk.create(&name).unwrap()));
    let mut oldest = names(1_000, 1_290);
    let found = read_past(&disk, || match oldest.next() {
        Some(name) => {
            disk.remove(&name).unwrap();
            Err(gone())
        }
        None => Ok(()),
    });
    assert!(found.is_ok(), "{found:?}");
    // One that makes and removes files all the time.
    let mut reads = 0_u64;
    let failed: Result<(), _> = read_past(&disk, || {
        reads += 1;
        drop(disk.create(&log_name(1_299 + reads)).unwrap());
        disk.remove(&log_name(1_289 + reads)).unwrap();
        Err(gone())
    });
    assert_eq!(reads, 1_024);
    let text = failed.unwrap_err().for_reader();
    for part in ["log-1000.dkv", "old files are being removed", "try again"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("check that the disk"), "{text}");
}
