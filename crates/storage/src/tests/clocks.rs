//! Directories of a node whose clock was wrong for a while: which state is that of a moment, and when that is in doubt.

use std::sync::Arc;

use super::damage::{OPTIONS, OWNER, start};
use super::node::{TestNode, header};
use crate::Until;
use crate::batch::Batch;
use crate::data_dir::DataDir;
use crate::disk::Disk;
use crate::header::{FileHeader, LogStart};
use crate::history::history;
use crate::log::log_name;
use crate::memory_disk::MemoryDisk;
use crate::model::path::Path;
use crate::moment::Doubt;
use crate::past::reach_after;
use crate::recover::{RecoverOptions, Warning};
use crate::snapshot::snapshot_name;

const MINUTE_MS: u64 = 60_000;

/// A log: the life in which it was written, when it was begun, and when k was set in it, all times in minutes.
type Log = (u64, u64, Vec<u64>);

/// A directory with these logs, and with a snapshot at the beginning of each but the first of all. k is set to 1, 2, 3 …
fn directory(logs: &[Log]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let dir = DataDir::on(Arc::new(disk.clone()));
    let mut node = TestNode::new(logs[0].0);
    let mut value = 0;
    let mut before = None;
    for (number, (life, begun, changes)) in (1..).zip(logs) {
        let header = FileHeader { time_ms: begun * MINUTE_MS, ..header(number, *life) };
        let is_new = node.incarnation() != *life;
        if is_new {
            node = TestNode::restored(&node.image(), *life);
        }
        let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
        let mut log = match before {
            None => dir.begin_log(&header, LogStart::Empty, &knowledge, &table).unwrap(),
            Some(log) if !is_new => dir.rotate(log, &header, &knowledge, &table).unwrap(),
            Some(log) => {
                let start = LogStart::After { number: number - 1, bytes: log.len() };
                dir.begin_log(&header, start, &knowledge, &table).unwrap()
            }
        };
        if number > 1 {
            dir.save(&header, &node.image(), &mut |_| {}).unwrap();
        }
        for minute in changes {
            value += 1;
            let batch = node.set("k", Some(value));
            log.append(&Batch { time_ms: minute * MINUTE_MS, ..batch }).unwrap();
        }
        log.sync().unwrap();
        before = Some(log);
    }
    disk
}

/// The value of `k` at a minute, and why that is in doubt; nothing else is told.
fn at(disk: &MemoryDisk, minute: u64) -> (u8, Option<Doubt>) {
    let until = Until::Time(minute * MINUTE_MS);
    assert_eq!(reach_after(disk, OWNER, until).unwrap(), None, "{minute}");
    let found = start(disk, &RecoverOptions { until: Some(until), ..OPTIONS }).unwrap();
    let doubt = match &found.warnings[..] {
        [] => None,
        [Warning::Unclear(doubt)] => Some(*doubt),
        other => panic!("{minute}: {other:?}"),
    };
    let image = found.image.unwrap();
    let value = image.replica.tree.get(b"\xa1k").and_then(|entry| entry.value()).unwrap();
    // MessagePack has a byte more for those above 127.
    (*value.last().unwrap(), doubt)
}

/// The changes since a minute: what there was before them, and what each has set.
fn changes_since(disk: &MemoryDisk, minute: u64) -> (Option<u8>, Vec<u8>) {
    let path = Path::root().push("k").unwrap();
    let found = history(disk, OWNER, &path, minute * MINUTE_MS, 1_000).unwrap().unwrap();
    let value = |value: Option<&Vec<u8>>| *value.unwrap().last().unwrap();
    let set = |step: &crate::history::Step| value(step.after.as_ref().unwrap().value.as_ref());
    let before = found.before.as_ref().map(|version| value(version.value.as_ref()));
    (before, found.steps.iter().map(set).collect())
}

fn set_back(to: u64, until: u64) -> Option<Doubt> {
    Some(Doubt::SetBack { to_ms: to * MINUTE_MS, until_ms: until * MINUTE_MS })
}

fn leapt(from: u64, to: u64) -> Option<Doubt> {
    Some(Doubt::Leap { from_ms: from * MINUTE_MS, to_ms: to * MINUTE_MS })
}

/// What a node logs whose clock is set back by an hour, and right again two minutes later: in one log, and with others, and
/// snapshots, begun while it is wrong.
fn directories_of_a_clock_that_was_behind() -> [MemoryDisk; 2] {
    let right: Vec<u64> = (1..=120).collect();
    let again: Vec<u64> = (123..=130).collect();
    let one = [&right[..], &[60, 61, 62], &again].concat();
    let many = [(7, 0, right), (7, 60, vec![60, 61]), (7, 62, [&[62][..], &again].concat())];
    [directory(&[(7, 0, one)]), directory(&many)]
}

#[test]
fn the_hour_before_a_clock_was_set_back_is_where_the_clock_showed_it() {
    for disk in directories_of_a_clock_that_was_behind() {
        for minute in (1..60).chain(62..120) {
            assert_eq!(at(&disk, minute), (minute as u8, None), "{minute}");
        }
        assert_eq!(at(&disk, 60), (121, set_back(60, 120)));
        assert_eq!(at(&disk, 61), (122, set_back(60, 120)));
        for minute in 120..123 {
            assert_eq!(at(&disk, minute), (123, leapt(62, 123)), "{minute}");
        }
        assert_eq!(at(&disk, 123), (124, None));
        assert_eq!(at(&disk, 1_000), (131, None));
    }
}

#[test]
fn a_history_since_the_hour_before_a_clock_was_set_back_lacks_nothing_of_it() {
    for disk in directories_of_a_clock_that_was_behind() {
        for minute in [30, 60, 90] {
            let expected = (Some(minute as u8 - 1), (minute as u8..=131).collect());
            assert_eq!(changes_since(&disk, minute), expected, "{minute}");
        }
        assert_eq!(changes_since(&disk, 125), (Some(125), (126..=131).collect()));
    }
}

/// A snapshot that was made while the clock was ahead is what a later state begins with, as any other.
#[test]
fn a_clock_that_was_ahead_leaves_in_doubt_what_it_showed_and_no_more() {
    let disk = directory(&[
        (7, 0, (1..=60).collect()),
        (7, 121, vec![122]),
        (7, 63, (64..=180).collect()),
    ]);
    for minute in 63..121 {
        assert_eq!(at(&disk, minute), (minute as u8 - 2, None), "{minute}");
    }
    assert_eq!(at(&disk, 61), (60, leapt(60, 121)));
    assert_eq!(at(&disk, 121), (119, set_back(63, 122)));
    assert_eq!(at(&disk, 122), (120, None));
}

/// It was started with a clock that was an hour behind, for want of a battery, and learnt the time two minutes later.
#[test]
fn a_clock_that_was_behind_after_a_start_hides_nothing_of_the_time_before() {
    let disk = directory(&[(7, 0, (1..=120).collect()), (8, 60, vec![61, 62, 180, 181])]);
    for minute in (1..60).chain(62..120) {
        assert_eq!(at(&disk, minute), (minute as u8, None), "{minute}");
    }
    assert_eq!(at(&disk, 60), (120, set_back(60, 120)));
    for minute in 120..180 {
        assert_eq!(at(&disk, minute), (122, leapt(62, 180)), "{minute}");
    }
}

/// Of what was removed for its age, logs may be left for which there is no base any more.
#[test]
fn where_the_past_has_no_base_no_moment_is_looked_for() {
    let right: Vec<u64> = (1..=120).collect();
    let disk = directory(&[(7, 0, right), (7, 60, vec![61]), (7, 62, vec![63, 64, 124])]);
    assert_eq!(at(&disk, 90), (90, None));
    disk.remove(&snapshot_name(2)).unwrap();
    disk.remove(&log_name(1)).unwrap();
    assert_eq!(at(&disk, 63), (122, None));
    assert_eq!(at(&disk, 90), (123, leapt(64, 124)));
    assert!(reach_after(&disk, OWNER, Until::Time(61 * MINUTE_MS)).unwrap().is_some());
}
