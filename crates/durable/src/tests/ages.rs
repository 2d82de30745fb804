//! What a machine's clock that is wrong for a moment costs of the past: nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{World, config};
use crate::model::ids::Millis;
use crate::storage::Disk;
use crate::storage::memory_disk::MemoryDisk;
use crate::{LogSettings, SyncPolicy, System};

const SECOND_MS: Millis = 1_000;
const HOUR_MS: Millis = 3_600_000;
const DAY_MS: Millis = 24 * HOUR_MS;
const YEAR_MS: Millis = 365 * DAY_MS;

/// Sets the clock for people to so far ahead of what is right.
fn set_ahead(world: &World, ms: u64) {
    world.system.ahead_ms.store(ms, Ordering::Relaxed);
}

/// Lets time pass, as the log's thread sees it.
fn pass(world: &mut World, ms: Millis) {
    let until = world.system.now() + ms;
    while world.system.now() < until {
        let next = world.system.now() + world.logger.patience().max(1);
        world.system.set_clock(next.min(until));
        assert!(world.logger.step(Duration::ZERO));
    }
}

/// Changes something, and has a snapshot made.
fn save(world: &mut World, value: u8) {
    world.set("k", value);
    let (wish, answer) = std::sync::mpsc::sync_channel(1);
    assert!(world.logger.state().wish(wish));
    (0..3).for_each(|_| assert!(world.step()));
    answer.try_recv().unwrap().unwrap();
}

/// The numbers of the logs.
fn logs(disk: &MemoryDisk) -> Vec<u64> {
    let files = disk.list().unwrap();
    let number = |name: &str| name.strip_prefix("log-")?.strip_suffix(".dkv")?.parse().ok();
    let mut numbers: Vec<u64> = files.iter().filter_map(|file| number(&file.name)).collect();
    numbers.sort_unstable();
    numbers
}

/// Whether the past of [`world_with_a_past`] is still there.
fn has_all(disk: &MemoryDisk) -> bool {
    logs(disk).starts_with(&[1, 2, 3, 4, 5])
}

/// Four snapshots, a second apart.
fn world_with_a_past(disk: &MemoryDisk, settings: &LogSettings) -> World {
    let mut world = World::start(disk, settings).unwrap();
    for value in 1..=4 {
        save(&mut world, value);
        pass(&mut world, SECOND_MS);
    }
    assert_eq!(logs(disk), [1, 2, 3, 4, 5]);
    world
}

#[test]
fn a_moment_with_the_clock_ahead_removes_nothing() {
    for sync in SyncPolicy::ALL {
        let disk = MemoryDisk::new();
        let mut world = world_with_a_past(&disk, &config(sync));
        set_ahead(&world, YEAR_MS);
        save(&mut world, 5);
        pass(&mut world, HOUR_MS - 5 * SECOND_MS);
        save(&mut world, 6);
        assert!(has_all(&disk), "while it is ahead");
        set_ahead(&world, 0);
        pass(&mut world, SECOND_MS);
        set_ahead(&world, YEAR_MS);
        pass(&mut world, HOUR_MS / 2);
        save(&mut world, 7);
        set_ahead(&world, 0);
        save(&mut world, 8);
        assert!(has_all(&disk), "afterwards");
    }
}

#[test]
fn a_clock_that_stays_ahead_for_an_hour_is_believed() {
    let disk = MemoryDisk::new();
    let mut world = world_with_a_past(&disk, &config(SyncPolicy::Never));
    set_ahead(&world, YEAR_MS);
    pass(&mut world, HOUR_MS + 2 * SECOND_MS);
    save(&mut world, 5);
    let left = logs(&disk);
    assert_eq!(left[0], 4, "two snapshots and the one before them: {left:?}");
}

#[test]
fn a_node_that_was_off_for_ten_days_removes_what_is_old_an_hour_later() {
    let disk = MemoryDisk::new();
    world_with_a_past(&disk, &config(SyncPolicy::Never)).stop();
    let mut world = World::start_at(&disk, &config(SyncPolicy::Never), 10 * DAY_MS).unwrap();
    (5..=7).for_each(|value| save(&mut world, value));
    assert!(has_all(&disk), "it may be the clock that is wrong");
    pass(&mut world, HOUR_MS + 2 * SECOND_MS);
    save(&mut world, 8);
    let left = logs(&disk);
    assert_eq!(left[0], 5, "which leads to the state of a week ago: {left:?}");
}

/// As of a machine that has no clock while it is off.
#[test]
fn a_clock_that_begins_in_1970_and_is_corrected_removes_nothing_for_an_hour() {
    let disk = MemoryDisk::new();
    world_with_a_past(&disk, &config(SyncPolicy::Never)).stop();
    let mut world = World::start_at(&disk, &config(SyncPolicy::Never), 10 * DAY_MS).unwrap();
    set_ahead(&world, world.system.wall_clock_ms().wrapping_neg());
    pass(&mut world, 20 * SECOND_MS);
    set_ahead(&world, 0);
    pass(&mut world, SECOND_MS);
    (5..=7).for_each(|value| save(&mut world, value));
    assert!(has_all(&disk));
    pass(&mut world, HOUR_MS + 2 * SECOND_MS);
    save(&mut world, 8);
    assert!(!has_all(&disk));
}

#[test]
fn a_restart_while_the_clock_is_ahead_makes_it_no_more_certain() {
    for right_for_ms in [0, 2 * HOUR_MS] {
        let disk = MemoryDisk::new();
        let mut world = world_with_a_past(&disk, &config(SyncPolicy::Never));
        pass(&mut world, right_for_ms);
        set_ahead(&world, YEAR_MS);
        save(&mut world, 5);
        pass(&mut world, HOUR_MS / 2);
        let now = world.system.now();
        world.stop();
        // The end of its log is of a time that is still to come.
        let mut world = World::start_at(&disk, &config(SyncPolicy::Never), now + YEAR_MS).unwrap();
        (6..=8).for_each(|value| save(&mut world, value));
        assert!(has_all(&disk), "{right_for_ms}");
        pass(&mut world, HOUR_MS + 2 * SECOND_MS);
        save(&mut world, 9);
        assert!(!has_all(&disk), "then it is believed");
    }
}
