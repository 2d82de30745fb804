//! What a node that nobody writes to leaves in its log, so that a gap behind it is no longer than it was.

use std::sync::Arc;
use std::time::Duration;

use super::{POLICIES, World, config};
use crate::hub::log_queue::CutPurpose;
use crate::model::ids::Millis;
use crate::storage::log::log_name;
use crate::storage::memory_disk::{Fault, MemoryDisk};
use crate::storage::recover::{Recovered, Until, Warning};
use crate::storage::{Disk, LogReader, RecoverOptions, recover};
use crate::{SyncPolicy, System};

/// What the test's clock shows at its beginning, milliseconds since 1970.
const START_MS: u64 = 1_700_000_000_000;
const HOUR_MS: Millis = 3_600_000;
/// A gap begins so long before the end at most: a mark a minute, and the thread's longest sleep.
const LATE_MS: Millis = 61_000;

/// Lets time pass, as the log's thread sees it.
fn pass(world: &mut World, until: Millis) {
    while world.system.now() < until {
        let next = world.system.now() + world.logger.patience().max(1);
        world.system.set_clock(next.min(until));
        assert!(world.logger.step(Duration::ZERO));
    }
}

/// The directory's state at a time of the test's clock.
fn found(disk: &MemoryDisk, ms: Millis) -> Recovered {
    let until = Some(Until::Time(START_MS + ms));
    let options = RecoverOptions { until, ..RecoverOptions::default() };
    recover(disk, "net", "n1", &options, &mut |_, _| {}).unwrap()
}

/// The gap that a time is in.
fn gap(disk: &MemoryDisk, ms: Millis) -> Option<(Millis, Millis)> {
    let of_test = |ms: &u64| ms - START_MS;
    found(disk, ms).warnings.iter().find_map(|warning| match warning {
        Warning::Gap { from_ms, to_ms, .. } => Some((of_test(from_ms), of_test(to_ms))),
        _ => None,
    })
}

/// The times of a log's batches, and its length.
fn batches(disk: &MemoryDisk, number: u64) -> (Vec<Millis>, u64) {
    let mut log = LogReader::open(disk, number).unwrap();
    let mut times = Vec::new();
    while let Some(batch) = log.next().unwrap() {
        times.push(batch.time_ms - START_MS);
    }
    (times, log.end())
}

#[test]
fn an_idle_node_that_is_killed_has_missed_nothing_until_a_minute_before() {
    for sync in POLICIES {
        let disk = MemoryDisk::new();
        let mut world = World::must_start(&disk, sync);
        pass(&mut world, 1_000);
        world.set("a", 1);
        pass(&mut world, 2_000);
        let before = world.view().log.unwrap().1;
        pass(&mut world, HOUR_MS);
        // What it costs is said in docs/storage-format.md.
        let cost = world.view().log.unwrap().1 - before;
        assert!((1..=1_700).contains(&cost), "{cost} bytes");
        drop(world);
        let mut world = World::start_at(&disk, &config(sync), 2 * HOUR_MS).unwrap();
        world.set("a", 2);
        world.step();
        for ms in [1_000, 1_001, HOUR_MS / 2, HOUR_MS - LATE_MS, 2 * HOUR_MS] {
            assert_eq!(gap(&disk, ms), None, "{sync:?} {ms}");
        }
        let (from, to) = gap(&disk, HOUR_MS + 1).unwrap();
        assert!((HOUR_MS - LATE_MS..=HOUR_MS).contains(&from), "{from}");
        assert_eq!(to, 2 * HOUR_MS);
        assert_eq!(world.value("a"), Some(2));
    }
}

#[test]
fn while_something_is_logged_nothing_is_added() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::EverySecond);
    for n in 1..=120 {
        world.set("a", n);
        pass(&mut world, u64::from(n) * 30_000);
    }
    // The first batch of the log, and the changes.
    assert_eq!(batches(&disk, 1).0.len(), 1 + 120);
    // The next log begins with all that the node knows, at a time of its own.
    world.hub.cut_log(CutPurpose::Rotate);
    pass(&mut world, HOUR_MS + 59_000);
    assert_eq!(batches(&disk, 2).0.len(), 1);
    pass(&mut world, HOUR_MS + LATE_MS);
    assert_eq!(batches(&disk, 2).0.len(), 2);
}

/// An idle log is continued in no other file, and no snapshot is made of it.
#[test]
fn a_log_in_which_nothing_happens_does_not_get_old() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::EverySecond);
    pass(&mut world, 30 * HOUR_MS);
    assert_eq!(world.view().log.unwrap().0, 1);
    let count = batches(&disk, 1).0.len();
    assert!((30 * 58..=30 * 60 + 1).contains(&count), "{count}");
    let names: Vec<String> = disk.list().unwrap().into_iter().map(|file| file.name).collect();
    assert!(!names.iter().any(|name| name.starts_with("snapshot-")), "{names:?}");
}

#[test]
fn while_the_disk_fails_nothing_is_said_to_have_been_missed_or_not() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::EverySecond);
    world.set("a", 1);
    pass(&mut world, 100_000);
    disk.set_fault(Some((1, Fault::Broken)));
    // An idle node notices it, too.
    pass(&mut world, 100_000 + LATE_MS);
    assert!(world.queue.failure().is_some());
    world.set("a", 2);
    pass(&mut world, HOUR_MS);
    disk.set_fault(None);
    let ms = |found: &Recovered| found.last_logged_ms.unwrap() - START_MS;
    assert!(ms(&found(&disk, HOUR_MS)) <= 100_000, "{}", ms(&found(&disk, HOUR_MS)));
    pass(&mut world, HOUR_MS + 60_000);
    assert!(world.queue.failure().is_none());
    let (from, to) = gap(&disk, HOUR_MS / 2).unwrap();
    assert!(from <= 100_000 && to >= HOUR_MS, "{from} {to}");
}

/// What was never synced may be lost with a power cut; then what was said behind it is lost, too.
#[test]
fn nothing_is_said_of_a_time_whose_changes_a_power_cut_has_taken() {
    let whole = MemoryDisk::new();
    let mut world = World::must_start(&whole, SyncPolicy::Never);
    for n in 1..=200_u64 {
        pass(&mut world, n * 90_000);
        world.set(&format!("k:{n}"), 1);
    }
    world.step();
    drop(world);
    let (times, length) = batches(&whole, 1);
    assert_eq!(times.len(), 1 + 2 * 200);
    let mut shortest = length;
    for seed in 1..=100_u64 {
        let disk = whole.fork();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        disk.crash(&mut || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 63 == 1
        });
        let found = found(&disk, HOUR_MS * 10);
        let until = found.last_logged_ms.unwrap() - START_MS;
        let changes = found.image.unwrap().replica.tree.len() as u64;
        assert_eq!(changes, until / 90_000, "seed {seed}: until {until}");
        shortest = shortest.min(disk.content(&log_name(1)).unwrap().len() as u64);
    }
    assert!(shortest < length, "something was lost");
}

/// What came before a moment and waits for the log is not in it yet: of that moment nothing is said.
#[test]
fn what_waits_for_the_log_comes_before_what_is_said_of_its_time() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::Never);
    let queue = Arc::clone(&world.queue);
    world.system.set_clock(HOUR_MS);
    world.set("a", 1);
    assert_eq!(queue.caught_up_ms(), None);
    world.step();
    assert_eq!(queue.caught_up_ms(), Some(START_MS + HOUR_MS));
    // Written with the change, and not behind it.
    assert_eq!(batches(&disk, 1).0, [0, HOUR_MS]);
    queue.fail("the disk is full");
    assert_eq!(queue.caught_up_ms(), None);
}
