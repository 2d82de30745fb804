//! Logs that only the history needs, and that are missing, cut or damaged: a start goes without them and says so, and a
//! history tells what it knows, and where it knows nothing.

use std::io::{self, Read};
use std::sync::Arc;

use super::damage::{OPTIONS, OWNER, start};
use super::node::{NAME, NETWORK, TestNode, header, node_id};
use crate::batch::Batch;
use crate::data_dir::DataDir;
use crate::disk::{Disk, DiskEntry, DiskFile};
use crate::error::StorageError;
use crate::header::{FileHeader, LogStart};
use crate::history::{History, history};
use crate::log::log_name;
use crate::memory_disk::MemoryDisk;
use crate::model::path::Path;
use crate::recover::{RecoverOptions, Until, Warning, recover};
use crate::snapshot::snapshot_name;

/// A directory with logs 1 to 7. In log n, `k` was set to n at n·10 s; `rare` was set to 1 in log 1, and to 2 in log 2. Only
/// these snapshots are left.
pub(super) fn directory(snapshots: &[u64]) -> MemoryDisk {
    directory_of(NAME, 0, snapshots)
}

/// The same of a node of that name, with values that are greater by so much.
pub(super) fn directory_of(name: &str, more: u64, snapshots: &[u64]) -> MemoryDisk {
    let header = |number, incarnation| FileHeader {
        id: node_id(name, incarnation),
        time_ms: number * 10_000 - 5_000,
        ..header(number, incarnation)
    };
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
            log.append(&Batch { time_ms, ..node.set("rare", Some(number + more)) }).unwrap();
        }
        log.append(&Batch { time_ms, ..node.set("k", Some(number + more)) }).unwrap();
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

fn told(disk: &dyn Disk, name: &str) -> Result<History, StorageError> {
    told_since(disk, name, 0)
}

fn told_since(disk: &dyn Disk, name: &str, since_ms: u64) -> Result<History, StorageError> {
    let path = Path::root().push(name).unwrap();
    Ok(history(disk, OWNER, &path, since_ms, 100)?.unwrap())
}

/// What is wrong, of each hole that a history names.
fn holes(history: &History) -> Vec<String> {
    history.holes.clone()
}

/// When each change came, in units of 10 s, what it set, and whether what was before it is not known.
fn steps(history: &History) -> Vec<(Option<u64>, u8, bool)> {
    let value =
        |step: &crate::history::Step| step.after.as_ref().unwrap().value.as_ref().unwrap()[0];
    let steps = history.steps.iter();
    steps.map(|s| (s.time_ms.map(|ms| ms / 10_000), value(s), s.is_before_unknown)).collect()
}

/// What a start says of holes.
fn warned(disk: &dyn Disk) -> Vec<String> {
    let warnings = recover(disk, NETWORK, NAME, &OPTIONS, &mut |_, _| {}).unwrap().warnings;
    let holes = warnings.iter().filter(|warning| matches!(warning, Warning::Hole(_)));
    holes.map(ToString::to_string).collect()
}

#[test]
fn a_history_without_holes_is_whole() {
    let disk = directory(&[5]);
    assert_eq!(warned(&disk), Vec::<String>::new());
    let all = told(&disk, "k").unwrap();
    assert_eq!((holes(&all).len(), all.has_gaps), (0, false));
    assert_eq!(all.steps.len(), 7);
}

#[test]
fn a_history_across_a_hole_joins_nothing_and_names_the_log() {
    for (which, damage) in DAMAGES.into_iter().enumerate() {
        let disk = directory(&[5]);
        damage(&disk, 3);
        let all = told(&disk, "k").unwrap();
        assert!(holes(&all)[0].contains("log-3.dkv"), "{which}: {:?}", all.holes);
        let mut expected: Vec<_> = (1..=7).map(|n| (Some(n), n as u8, n == 4)).collect();
        expected.remove(2);
        assert_eq!(steps(&all), expected, "{which}");
        // It is not known that it was the same all the time, so that is told; and it was.
        let rare = told(&disk, "rare").unwrap();
        assert_eq!(steps(&rare), [(Some(1), 1, false), (Some(2), 2, false)], "{which}");
        assert_eq!(holes(&rare).len(), 1);
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
        for part in ["2 holes: log-2.dkv", "log-4.dkv", "from snapshot-6.dkv on"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // What it advises.
        for number in 1..6 {
            let _ = disk.remove(&log_name(number));
        }
        disk.remove(&snapshot_name(4)).unwrap();
        assert_eq!(warned(&disk), Vec::<String>::new());
        let all = told(&disk, "k").unwrap();
        assert_eq!((holes(&all).len(), all.steps.len()), (0, 2));
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
        let all = history(&disk, OWNER, &path, 0, limit).unwrap().unwrap();
        assert_eq!(all.holes.len() == 1, expected, "{limit}");
    }
    let all = history(&disk, OWNER, &path, 60_000, 10).unwrap().unwrap();
    assert_eq!((holes(&all).len(), all.steps.len()), (0, 2));
}

/// The steps of `k` where log 3 is lost.
fn without_log_3() -> Vec<(Option<u64>, u8, bool)> {
    (1..=7).filter(|n| *n != 3).map(|n| (Some(n), n as u8, n == 4)).collect()
}

#[test]
fn a_log_of_another_node_or_number_is_a_hole_and_nothing_of_it_is_told() {
    let others = directory_of("b", 100, &[5]).content(&log_name(3)).unwrap();
    for (which, strange) in [
        others,
        directory(&[]).content(&log_name(2)).unwrap(),
        directory(&[]).content(&log_name(6)).unwrap(),
        // It begins with nothing, as if the past began there.
        directory(&[]).content(&log_name(1)).unwrap(),
    ]
    .into_iter()
    .enumerate()
    {
        let disk = directory(&[5]);
        disk.put(&log_name(3), &strange);
        let all = told(&disk, "k").unwrap();
        assert_eq!(steps(&all), without_log_3(), "{which}");
        let [hole] = &holes(&all)[..] else { panic!("{which}: {:?}", holes(&all)) };
        assert!(hole.starts_with("log-3.dkv: it "), "{which}: {hole}");
        let [text] = &warned(&disk)[..] else { panic!("{which}: {:?}", warned(&disk)) };
        assert!(text.contains("a hole: log-3.dkv: it "), "{which}: {text}");
        for other in ["log-1", "log-2", "log-4", "log-6", "more"] {
            assert!(!text.contains(other), "{which}: {text}");
        }
        // Where a start needs it, nobody knows what the entry is now.
        let disk = directory(&[2]);
        disk.put(&log_name(3), &strange);
        let error = told(&disk, "k").unwrap_err().to_string();
        assert!(error.starts_with("log-3.dkv: it "), "{which}: {error}");
    }
}

#[test]
fn a_first_log_of_another_node_makes_the_past_shorter() {
    let disk = directory(&[5]);
    disk.put(&log_name(1), &directory_of("b", 100, &[]).content(&log_name(1)).unwrap());
    let all = told(&disk, "k").unwrap();
    let expected: Vec<_> = (5..=7).map(|n| (Some(n), n as u8, false)).collect();
    assert_eq!((steps(&all), holes(&all).len()), (expected, 0));
    assert_eq!(all.before.unwrap().value, Some(vec![4]));
}

#[test]
fn a_snapshot_of_another_node_or_number_is_not_told_of() {
    let others = directory_of("b", 100, &[3, 5]).content(&snapshot_name(3)).unwrap();
    for strange in [others, directory(&[5]).content(&snapshot_name(5)).unwrap()] {
        let disk = directory(&[3, 5]);
        disk.put(&snapshot_name(3), &strange);
        let all = told_since(&disk, "k", 35_000).unwrap();
        let expected: Vec<_> = (4..=7).map(|n| (Some(n), n as u8, false)).collect();
        assert_eq!(steps(&all), expected);
        assert_eq!(all.before.unwrap().value, Some(vec![3]));
        // And a hole is not filled with it.
        disk.remove(&log_name(2)).unwrap();
        assert_eq!(
            steps(&told(&disk, "k").unwrap())[1..3],
            [(Some(3), 3, true), (Some(4), 4, false)]
        );
    }
}

#[test]
fn a_log_without_a_byte_is_one_hole() {
    let disk = directory(&[5]);
    disk.put(&log_name(3), b"");
    let [text] = &warned(&disk)[..] else { panic!("{:?}", warned(&disk)) };
    assert!(text.contains("a hole: log-3.dkv") && !text.contains("more"), "{text}");
    assert_eq!(holes(&told(&disk, "k").unwrap()).len(), 1);
}

/// A disk that refuses to open one file, if `at_once` says how; else to read it, as if it were a directory.
pub(super) struct Unreadable {
    pub(super) disk: MemoryDisk,
    pub(super) name: String,
    pub(super) at_once: Option<io::ErrorKind>,
}

struct Refuses;

impl Read for Refuses {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::IsADirectory.into())
    }
}

impl Disk for Unreadable {
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        match (name == self.name, self.at_once) {
            (false, _) => self.disk.open(name),
            (true, None) => Ok(Box::new(Refuses)),
            (true, Some(kind)) => Err(kind.into()),
        }
    }

    fn list(&self) -> io::Result<Vec<DiskEntry>> {
        self.disk.list()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        self.disk.truncate(name, bytes)
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        self.disk.sync_file(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
}

/// What `k` was at a moment.
pub(super) fn value_at(disk: &dyn Disk, time_ms: u64) -> Result<u8, StorageError> {
    let options = RecoverOptions { until: Some(Until::Time(time_ms)), ..OPTIONS };
    let found = recover(disk, NETWORK, NAME, &options, &mut |_, _| {})?;
    let path = Path::root().push("k").unwrap();
    let image = found.image.unwrap();
    let value = image.replica.tree.get(path.as_bytes()).unwrap().value().unwrap();
    Ok(value[0])
}

#[test]
fn a_log_that_cannot_be_read_is_a_hole_with_the_system_s_error() {
    let refusals = [
        (Some(io::ErrorKind::PermissionDenied), "cannot open: permission"),
        // A link that leads nowhere.
        (Some(io::ErrorKind::NotFound), "cannot open: entity not found"),
        (None, "cannot read: is a dir"),
    ];
    for (at_once, expected) in refusals {
        let unreadable = |snapshots: &[u64], name: String| Unreadable {
            disk: directory(snapshots),
            name,
            at_once,
        };
        let disk = unreadable(&[5], log_name(3));
        let all = told(&disk, "k").unwrap();
        assert_eq!(steps(&all), without_log_3());
        let [hole] = &holes(&all)[..] else { panic!("{:?}", holes(&all)) };
        assert!(hole.starts_with(&format!("log-3.dkv: {expected}")), "{hole}");
        let [text] = &warned(&disk)[..] else { panic!("{:?}", warned(&disk)) };
        assert!(text.contains(expected) && !text.contains("more"), "{text}");
        // States of before it, and of after it.
        for (time_ms, value) in
            [(19_000, Some(1)), (20_000, None), (44_999, None), (45_000, Some(4))]
        {
            let found = value_at(&disk, time_ms);
            let is_lost = matches!(found, Err(StorageError::PastLost { .. }));
            assert_eq!((is_lost, found.ok()), (value.is_none(), value), "{time_ms}");
        }
        assert_eq!(value_at(&disk, 59_000).ok(), Some(5));
        // A start needs it.
        let disk = unreadable(&[2], log_name(3));
        let error = told(&disk, "k").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        // A snapshot: the logs have everything.
        let disk = unreadable(&[3, 5], snapshot_name(3));
        let all = told_since(&disk, "k", 35_000).unwrap();
        assert_eq!((steps(&all).len(), holes(&all).len()), (4, 0));
    }
}

#[test]
fn all_holes_are_named_up_to_a_bound_and_the_others_are_counted() {
    let disk = directory(&[6]);
    disk.put(&log_name(2), b"");
    disk.remove(&log_name(4)).unwrap();
    let all = told(&disk, "k").unwrap();
    let named = holes(&all);
    let [first, second] = &named[..] else { panic!("{named:?}") };
    assert!(first.contains("log-2.dkv") && second.contains("log-4.dkv"), "{named:?}");
    let [text] = &warned(&disk)[..] else { panic!("{:?}", warned(&disk)) };
    for part in ["2 holes", first, second, "from snapshot-6.dkv on"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Side by side, and only the second of those that are told.
    let disk = directory(&[6]);
    disk.put(&log_name(2), b"");
    disk.put(&log_name(3), b"");
    disk.remove(&log_name(4)).unwrap();
    assert_eq!(holes(&told(&disk, "k").unwrap()).len(), 3);
    let path = Path::root().push("k").unwrap();
    let all = history(&disk, OWNER, &path, 0, 2).unwrap().unwrap();
    assert_eq!(holes(&all), Vec::<String>::new());
}

#[test]
fn of_several_logs_that_are_missing_the_first_and_the_last_are_named() {
    let disk = directory(&[7]);
    for number in [3, 4, 5] {
        disk.remove(&log_name(number)).unwrap();
    }
    let named = holes(&told(&disk, "k").unwrap());
    let expected = "log-5.dkv is missing, all of it from byte 0: the next one goes on from it; any log from log-3.dkv up to it \
                    is missing, too";
    assert_eq!(named, [expected]);
    assert!(warned(&disk)[0].contains(expected), "{:?}", warned(&disk));
    let text = value_at(&disk, 40_000).unwrap_err().to_string();
    assert!(text.contains(expected), "{text}");
    // What is there is not named, whatever is wrong with it.
    disk.put(&log_name(4), b"");
    let named = holes(&told(&disk, "k").unwrap());
    let [first, second] = &named[..] else { panic!("{named:?}") };
    assert!(first.contains("log-4.dkv") && !second.contains("log-3.dkv"), "{named:?}");
    // All behind the snapshot that is begun with.
    let disk = directory(&[3, 7]);
    for number in 1..=5 {
        disk.remove(&log_name(number)).unwrap();
    }
    let named = holes(&told(&disk, "k").unwrap());
    assert!(named.len() == 1 && named[0].contains("any log from log-3.dkv up"), "{named:?}");
    assert!(warned(&disk)[0].contains(&named[0]), "{:?}", warned(&disk));
}

#[test]
fn a_start_and_a_history_name_the_same_end_of_a_log_that_was_cut() {
    let lengths: [fn(usize) -> usize; 3] =
        [|bytes| bytes / 2, |bytes| bytes - 1, |bytes| bytes - 9];
    for bytes in lengths {
        let disk = directory(&[5]);
        let whole = disk.content(&log_name(3)).unwrap().len();
        cut(&disk, 3, bytes);
        let [hole] = &holes(&told(&disk, "k").unwrap())[..] else { panic!() };
        let left = disk.content(&log_name(3)).unwrap().len();
        assert_eq!(*hole, format!("log-3.dkv: it ends at byte {left}, but had {whole} bytes"));
        assert!(warned(&disk)[0].contains(hole), "{:?}", warned(&disk));
        // Where a start needs it.
        let disk = directory(&[2]);
        cut(&disk, 3, bytes);
        let told = told(&disk, "k").unwrap_err().what();
        let started = start(&disk, &OPTIONS).map(|_| ()).unwrap_err().what();
        assert_eq!((told.as_str(), started.as_str()), (hole.as_str(), hole.as_str()));
    }
}

/// What can be told is told, up to the last change before the hole, and again from the next snapshot on.
#[test]
fn a_moment_that_is_lost_is_refused_with_where_the_states_before_and_behind_it_are() {
    // Each log begins with what the node knows, at n·10 - 5 s.
    for (which, damage) in DAMAGES.into_iter().enumerate() {
        let disk = directory(&[5]);
        damage(&disk, 3);
        // Where its head is left, the log says when it was begun, so the end of the one before is known to be the state.
        let (last_ms, value) =
            if [2, 3, 5, 6].contains(&which) { (25_000, 2) } else { (20_000, 1) };
        assert_eq!(value_at(&disk, last_ms - 1).ok(), Some(value), "{which}");
        for time_ms in [last_ms, 29_000, 30_000, 44_999] {
            let error = value_at(&disk, time_ms).unwrap_err();
            let StorageError::PastLost { before_ms, from_ms, .. } = &error else {
                panic!("{which}, {time_ms}: {error}")
            };
            assert_eq!((*before_ms, *from_ms), (Some(last_ms), Some(45_000)), "{which}: {error}");
            let text = error.for_past(&|ms| format!("{} s", ms / 1_000));
            assert!(text.contains("log-3.dkv"), "{which}: {text}");
            let expected =
                format!("States before {} s and from 45 s on are available", last_ms / 1_000);
            assert!(text.ends_with(&expected), "{which}: {text}");
        }
        assert_eq!(value_at(&disk, 45_000).ok(), Some(4), "{which}");
    }
    // With nothing before it, or nothing behind it.
    let disk = directory(&[2, 5]);
    disk.remove(&log_name(1)).unwrap();
    disk.put(&log_name(2), b"");
    let text = |time_ms| value_at(&disk, time_ms).unwrap_err().for_past(&|ms| ms.to_string());
    assert!(text(20_000).ends_with("States from 45000 on are available"), "{}", text(20_000));
    disk.put(&log_name(6), b"");
    assert!(text(60_000).ends_with("States before 50000 are available"), "{}", text(60_000));
}

/// The disk had failed, so the log behind the one that is lost does not go on from it.
#[test]
fn a_log_that_cannot_be_read_is_a_hole_before_one_that_begins_anew_too() {
    let disk = directory(&[4]);
    let node = TestNode::new(7);
    let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
    for number in 4..=7 {
        disk.remove(&log_name(number)).unwrap();
    }
    let dir = DataDir::on(Arc::new(disk.clone()));
    let header = FileHeader { time_ms: 35_000, ..header(4, 7) };
    dir.begin_log(&header, LogStart::Snapshot, &knowledge, &table).unwrap();
    let disk = Unreadable { disk, name: log_name(3), at_once: Some(io::ErrorKind::NotFound) };
    let all = told(&disk, "k").unwrap();
    assert_eq!(steps(&all), [(Some(1), 1, false), (Some(2), 2, false), (None, 3, true)]);
    assert!(holes(&all)[0].starts_with("log-3.dkv: cannot open"), "{:?}", all.holes);
    assert_eq!(warned(&disk).len(), 1);
}
