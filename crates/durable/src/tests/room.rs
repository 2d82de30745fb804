//! A node whose disk gets full notices before a write fails.

use super::{World, config};
use crate::storage::Room;
use crate::storage::memory_disk::{Fault, MemoryDisk};
use crate::{LittleRoom, LogSettings, SyncPolicy};

const LOOK_MS: u64 = 2_000;

fn settings() -> LogSettings {
    LogSettings { snapshot_after: 1_000, keep_for_ms: 0, ..config(SyncPolicy::EverySecond) }
}

/// Lets it look again.
fn look(world: &mut World) -> Option<LittleRoom> {
    use crate::System;
    let now = world.system.now();
    world.system.set_clock(now + LOOK_MS);
    assert!(world.step());
    world.view().little_room
}

fn room(free: u64) -> Option<Room> {
    Some(Room { free, size: 10_000 })
}

#[test]
fn a_disk_that_has_no_room_for_the_next_snapshot_is_told_before_it_fails() {
    let disk = MemoryDisk::new();
    let mut world = World::start(&disk, &settings()).unwrap();
    assert_eq!(look(&mut world), None, "the disk tells nothing");
    assert_eq!(world.view().room, None);
    disk.set_room(room(1_000));
    assert_eq!(look(&mut world), None);
    assert_eq!(world.view().room, room(1_000));
    disk.set_room(room(999));
    let little = look(&mut world).unwrap();
    assert_eq!((little.room.free, little.needed), (999, 1_000));
    assert!(world.view().failing_since.is_none(), "it works");

    // Now there is a snapshot, beside which the next one is written.
    for n in 0..60 {
        world.set(&format!("k:{n}"), 1);
        assert!(world.step());
    }
    while world.view().snapshot.is_none() {
        assert!(world.step());
    }
    disk.set_room(room(1_200));
    let needed = look(&mut world).unwrap().needed;
    let (snapshot, _) = world.view().snapshot.unwrap();
    assert_eq!(needed, 1_000.max(snapshot.bytes) + snapshot.bytes);
    disk.set_room(room(needed + needed / 8));
    assert_eq!(look(&mut world), None);

    // And a node that is started looks how long the last one is.
    disk.set_room(room(1_000));
    drop(world);
    let mut world = World::start(&disk, &settings()).unwrap();
    assert!(look(&mut world).is_some_and(|little| little.needed > 1_000));
}

#[test]
fn while_the_disk_fails_its_room_is_looked_at_all_the_same() {
    let disk = MemoryDisk::new();
    let mut world = World::start(&disk, &settings()).unwrap();
    disk.set_fault(Some((1, Fault::Full)));
    disk.set_room(room(0));
    world.set("a", 1);
    assert!(world.step());
    assert!(look(&mut world).is_some() && world.view().failing_since.is_some());
    disk.set_fault(None);
    disk.set_room(room(5_000));
    assert!(look(&mut world).is_none());
}
