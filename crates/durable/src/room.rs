//! Early warning of a disk that is nearly full: looks how much room there is, and compares it with what the log and
//! snapshots need next.
//!
//! A snapshot is written beside the one before it, and only then is anything removed. So until the next one is there, the
//! log grows up to where that one is made (`--snapshot-after`, or the last snapshot's length if that is more), and then
//! comes the snapshot itself. That has at most what the last one has and what was logged since, and what of the log
//! is written already needs no more room: so both together are no more than that much log and one more snapshot.

use std::fmt;

use crate::model::count::show_bytes;
use crate::model::ids::Millis;
use crate::storage::{Disk, Room};

/// How often it is looked how much room there is.
const LOOK_INTERVAL_MS: Millis = 2_000;
/// The warning ends when there is more room than is needed, by this part of it: else it would come and go with every
/// file that somebody else writes.
const SPARE_PART: u64 = 8;

/// A disk that is nearly full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LittleRoom {
    /// What there is.
    pub room: Room,
    /// What the log and the next snapshot may need, bytes.
    pub needed: u64,
}

impl fmt::Display for LittleRoom {
    /// What follows "the disk of DIRECTORY".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [free, size, needed] = [self.room.free, self.room.size, self.needed].map(show_bytes);
        write!(
            f,
            "is nearly full: {free} of {size} are free, and this node may need {needed} for its log and its next snapshot; \
             make room there, or lower --keep-size or --snapshot-after"
        )
    }
}

/// What was seen of the disk's room.
#[derive(Default)]
pub(super) struct RoomWatch {
    look_at: Millis,
    seen: Option<Room>,
    little: Option<LittleRoom>,
}

impl RoomWatch {
    /// The room that there is, if the disk tells.
    pub(super) fn seen(&self) -> Option<Room> {
        self.seen
    }

    /// While there is little.
    pub(super) fn little(&self) -> Option<LittleRoom> {
        self.little
    }

    /// Looks, if it is time to; the log tells when little room is left, and when that is over. Takes as long as the disk
    /// does. `needed`: see [`needed`]; none while that is uncertain.
    pub(super) fn look(&mut self, disk: &dyn Disk, needed: Option<u64>, now: Millis) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_INTERVAL_MS;
        self.seen = disk.room().ok();
        let before = self.little;
        self.little = match (self.seen, needed) {
            (Some(room), Some(needed)) => judge(room, needed, before.is_some()),
            (Some(room), None) => before.map(|little| LittleRoom { room, ..little }),
            (None, _) => None,
        };
        match (before, self.little) {
            (None, Some(little)) => tracing::warn!("the disk of the data directory {little}"),
            (Some(_), None) => tracing::info!("the disk of the data directory has room again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
}

/// Whether there is too little, and was before.
fn judge(room: Room, needed: u64, was_little: bool) -> Option<LittleRoom> {
    let spare = if was_little { needed / SPARE_PART } else { 0 };
    (room.free < needed.saturating_add(spare)).then_some(LittleRoom { room, needed })
}

/// What will be written, at most, until the next snapshot is there. `snapshot_after`: how much log there is before a
/// snapshot, `since_snapshot`: how much of it there is already, `snapshot`: the last one's length; all in bytes.
pub(super) fn needed(snapshot_after: u64, since_snapshot: u64, snapshot: u64) -> u64 {
    // It is late if snapshots fail.
    let log = snapshot_after.max(snapshot).max(since_snapshot);
    log.saturating_add(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::memory_disk::MemoryDisk;

    const MIB: u64 = 1 << 20;

    fn room(free: u64) -> Room {
        Room { free: free * MIB, size: 1_000 * MIB }
    }

    #[test]
    fn what_is_needed_is_the_log_until_the_next_snapshot_and_that_snapshot() {
        assert_eq!(needed(256, 0, 0), 256);
        assert_eq!(needed(256, 100, 0), 256, "100 more in the snapshot, 100 less in the log");
        assert_eq!(needed(256, 0, 10), 266);
        assert_eq!(needed(256, 0, 1_000), 2_000);
        assert_eq!(needed(256, 5_000, 1_000), 6_000, "snapshots fail");
        assert_eq!(needed(256, u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn the_warning_begins_where_room_does_not_suffice_and_ends_only_with_some_to_spare() {
        let needed = 80 * MIB;
        assert_eq!(judge(room(80), needed, false), None);
        let little = judge(room(79), needed, false).unwrap();
        assert!(judge(room(89), needed, true).is_some());
        assert_eq!(judge(room(90), needed, true), None);
        let text = little.to_string();
        assert!(text.starts_with("is nearly full: 79.0 MiB of 1000.0 MiB are free"), "{text}");
        assert!(text.contains("may need 80.0 MiB") && text.contains("--keep-size"), "{text}");
    }

    #[test]
    fn it_is_looked_now_and_then_and_what_a_disk_does_not_tell_is_no_warning() {
        let disk = MemoryDisk::new();
        let mut watch = RoomWatch::default();
        watch.look(&disk, Some(80 * MIB), 0);
        assert_eq!((watch.seen(), watch.little()), (None, None));
        disk.set_room(Some(room(10)));
        watch.look(&disk, Some(80 * MIB), LOOK_INTERVAL_MS - 1);
        assert_eq!(watch.seen(), None);
        watch.look(&disk, Some(80 * MIB), LOOK_INTERVAL_MS);
        assert_eq!(watch.seen(), Some(room(10)));
        assert_eq!(watch.little(), Some(LittleRoom { room: room(10), needed: 80 * MIB }));
        // While it is uncertain what is needed, it stays as it is.
        disk.set_room(Some(room(500)));
        watch.look(&disk, None, 2 * LOOK_INTERVAL_MS);
        assert_eq!(watch.little().map(|little| little.room), Some(room(500)));
        watch.look(&disk, Some(80 * MIB), 3 * LOOK_INTERVAL_MS);
        assert_eq!(watch.little(), None);
        disk.set_room(Some(room(10)));
        watch.look(&disk, None, 4 * LOOK_INTERVAL_MS);
        assert_eq!(watch.little(), None, "a snapshot is being made, for which there was room");
    }
}
