//! The log's thread, step by step, on a disk in memory that fails and forgets on request.

use std::sync::Arc;
use std::time::Duration;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::state::LogView;
use super::{LogSettings, Logger, Opened, SaveJob, SyncPolicy, System};
use crate::engine::{self, Input, Output};
use crate::hub::Hub;
use crate::hub::log_queue::{CutPurpose, LogQueue};
use crate::model::defects::Defects;
use crate::model::ids::{Event, Incarnation, NodeId, NodeName, Tick};
use crate::model::path::Path;
use crate::replica::write::Write;
use crate::storage::memory_disk::{Fault, MemoryDisk};
use crate::storage::{DataDir, Disk, RecoverOptions, Until, recover};

mod ages;
mod idle;
mod room;

/// A node on a disk, whose log is written when the test says so.
struct World {
    hub: Arc<Hub>,
    queue: Arc<LogQueue>,
    logger: Logger,
    system: Arc<TestSystem>,
}

/// A clock that stands where it is put, and snapshots that are made at once, if there is a thread for
/// them.
#[derive(Default)]
struct TestSystem {
    now: AtomicU64,
    /// What the clock for people is ahead.
    ahead_ms: AtomicU64,
    has_no_thread: AtomicBool,
}

impl TestSystem {
    fn set_clock(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    fn refuse_threads(&self, refuse: bool) {
        self.has_no_thread.store(refuse, Ordering::Relaxed);
    }
}

impl System for TestSystem {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn wall_clock_ms(&self) -> u64 {
        (1_700_000_000_000 + self.now()).wrapping_add(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Other numbers for each life.
    fn random(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn save(&self, job: SaveJob) {
        if self.has_no_thread.load(Ordering::Relaxed) {
            job.spawn_by(|_| Err(std::io::ErrorKind::WouldBlock.into()));
        } else {
            job.run();
        }
    }
}

fn config(sync: SyncPolicy) -> LogSettings {
    LogSettings {
        sync,
        rotate_bytes: 64 << 20,
        rotate_after_ms: 24 * 3_600_000,
        snapshot_after: 256 << 20,
        keep_snapshots: 2,
        keep_for_ms: 7 * 86_400_000,
        keep_bytes: 1 << 30,
        discard_damaged: false,
        queue_bytes: 64 << 20,
        defects: Defects::default(),
    }
}

impl World {
    fn start(disk: &MemoryDisk, config: &LogSettings) -> Option<Self> {
        Self::start_at(disk, config, 0)
    }

    /// With a clock that stands there.
    fn start_at(disk: &MemoryDisk, config: &LogSettings, now: u64) -> Option<Self> {
        let dir = DataDir::on(Arc::new(disk.clone()));
        let name = NodeName::new("n1").unwrap();
        let system = Arc::new(TestSystem::default());
        system.set_clock(now);
        let asked: Arc<dyn System> = Arc::<TestSystem>::clone(&system);
        let opened = Opened::read(dir, *config, ("net", &name), asked).ok()?;
        let prepared = opened.prepare(&name, |id| engine::Config::new(id, 1)).ok()?;
        let (hub, logger) = prepared.into_logger();
        hub.handle(Input::Found, 0);
        Some(Self { queue: logger.queue(), hub, logger, system })
    }

    fn must_start(disk: &MemoryDisk, sync: SyncPolicy) -> Self {
        Self::start(disk, &config(sync)).unwrap()
    }

    /// Sets a small number; gives the number of the log's batch.
    fn set(&self, path: &str, value: u8) -> u64 {
        let path: Path = path.parse().unwrap();
        let value = [value];
        let write = Write::new(path, Some(&value));
        let (written, number) = self.hub.write(write, false);
        written.unwrap();
        number
    }

    /// Lets the thread do all its work, also what it would wait for after a failure.
    fn step(&mut self) -> bool {
        self.logger.retry_now();
        self.logger.step(Duration::ZERO)
    }

    fn stop(mut self) {
        self.hub.stop_log();
        while self.step() {}
    }

    /// The same, with no time for another look at a disk that has failed.
    fn stop_at_once(mut self) {
        self.hub.stop_log();
        while self.logger.step(Duration::ZERO) {}
    }

    fn value(&self, path: &str) -> Option<u8> {
        let path: Path = path.parse().unwrap();
        self.hub.read(|e| e.get(path.as_bytes()).and_then(|e| e.value()?.first().copied()))
    }

    fn id(&self) -> NodeId {
        self.hub.read(|e| e.id().clone())
    }

    fn tick(&self) -> u64 {
        self.hub.read(|e| e.tick().map_or(0, Tick::get))
    }

    fn store(&self) -> u64 {
        self.hub.read(|engine| engine.store().unwrap())
    }

    fn view(&self) -> LogView {
        self.logger.state().view()
    }

    fn is_synced(&self, number: u64) -> bool {
        self.queue.synced() >= number
    }
}

const POLICIES: [SyncPolicy; 3] = SyncPolicy::ALL;

#[test]
fn after_a_clean_stop_the_node_has_what_it_had_in_a_new_life() {
    for sync in POLICIES {
        let disk = MemoryDisk::new();
        let mut world = World::must_start(&disk, sync);
        let first = world.id();
        for n in 1..=20 {
            world.set(&format!("k:{n}"), n);
            world.step();
        }
        let store = world.store();
        world.set("k:21", 21);
        world.stop();
        disk.crash(&mut || false);
        let world = World::must_start(&disk, sync);
        assert_ne!(world.id(), first, "nothing proves that the directory was not set back");
        assert_eq!((world.tick(), world.store()), (0, store));
        assert!((1..=21).all(|n| world.value(&format!("k:{n}")) == Some(n)));
        world.set("k:22", 22);
        drop(world);
        let world = World::must_start(&disk, sync);
        assert_ne!(world.id(), first);
        assert_eq!((world.tick(), world.store()), (0, store));
    }
}

#[test]
fn what_a_start_has_read_is_safe_although_the_process_that_wrote_it_was_killed_before_it_synced() {
    for sync in POLICIES {
        let disk = MemoryDisk::new();
        let mut killed = World::must_start(&disk, SyncPolicy::Never);
        killed.set("a", 1);
        killed.step();
        drop(killed);
        // The system still has it, and so has the next process; which then says how long that log is.
        let mut world = World::must_start(&disk, sync);
        assert_eq!(world.value("a"), Some(1));
        world.step();
        drop(world);
        disk.crash(&mut || false);
        let world = World::start(&disk, &config(sync));
        assert_eq!(world.expect("its own directory can be read").value("a"), Some(1));
    }
}

/// An event of a node, wherever it is known.
fn is_known(world: &World, id: &NodeId, tick: u64) -> bool {
    world.hub.read(|engine| {
        let node = engine.table().find(id.name.as_str(), id.incarnation);
        let tick = Tick::new(tick).unwrap();
        node.is_some_and(|node| engine.seen().contains(Event { node, tick }))
    })
}

#[test]
fn a_directory_that_was_set_back_makes_no_tick_twice() {
    for sync in POLICIES {
        let disk = MemoryDisk::new();
        let world = World::must_start(&disk, sync);
        world.set("a", 1);
        world.stop();
        let image = disk.fork();
        // The life that continues makes further ticks, and others may have heard of them.
        let mut lives = Vec::new();
        for (disk, value) in [(&disk, 2), (&image, 3), (&image.fork(), 4)] {
            let world = World::must_start(disk, sync);
            world.set("b", value);
            assert_eq!(world.tick(), 1);
            lives.push(world.id());
            world.stop();
        }
        lives.sort();
        lives.dedup();
        assert_eq!(lives.len(), 3, "{sync:?}: two of them made the same tick");
    }
}

#[test]
fn nothing_is_made_after_the_last_record() {
    let disk = MemoryDisk::new();
    let world = World::must_start(&disk, SyncPolicy::Never);
    let hub = Arc::clone(&world.hub);
    world.stop();
    let write = Write::new(Path::root(), Some(&[1]));
    assert!(hub.write(write, false).0.is_err());
}

#[test]
fn each_policy_syncs_when_it_should() {
    let disk = MemoryDisk::new();
    let mut never = World::must_start(&disk, SyncPolicy::Never);
    let number = never.set("a", 1);
    never.step();
    assert!(!never.is_synced(number) && never.queue.written() == number);
    // Whoever agrees to something is told only when it is safe, whatever the policy is.
    never.hub.queue(Output::Persist { token: 7 });
    never.step();
    assert!(never.is_synced(number + 1));

    let mut batch = World::must_start(&MemoryDisk::new(), SyncPolicy::EveryBatch);
    let numbers: Vec<u64> = (0..5).map(|n| batch.set("a", n)).collect();
    let before = batch.view();
    batch.step();
    assert!(batch.is_synced(numbers[4]) && before.failures == 0);

    let mut second = World::must_start(&MemoryDisk::new(), SyncPolicy::EverySecond);
    second.system.set_clock(1_000);
    let number = second.set("a", 1);
    second.step();
    assert!(!second.is_synced(number));
    second.system.set_clock(1_499);
    second.step();
    assert!(!second.is_synced(number));
    second.system.set_clock(1_500);
    second.step();
    assert!(second.is_synced(number));
}

#[test]
fn logs_and_snapshots_follow_each_other_and_old_ones_go() {
    let disk = MemoryDisk::new();
    let config = LogSettings {
        rotate_bytes: 500,
        snapshot_after: 1_200,
        keep_snapshots: 2,
        keep_for_ms: 0,
        ..config(SyncPolicy::Never)
    };
    let mut world = World::start(&disk, &config).unwrap();
    for n in 0..=255 {
        world.set(&format!("k:{n}"), n % 128);
        world.step();
    }
    let names: Vec<String> = disk.list().unwrap().into_iter().map(|e| e.name).collect();
    let count = |start: &str| names.iter().filter(|n| n.starts_with(start)).count();
    // And what leads from the one before them to these.
    assert_eq!(count("snapshot-"), 3, "{names:?}");
    assert!((2..16).contains(&count("log-")), "{names:?}");
    let view = world.view();
    assert!(view.snapshot.is_some() && view.log.unwrap().0 > 5 && view.older_bytes > Some(0));
    drop(world);
    let world = World::start(&disk, &config).unwrap();
    assert!((0..=255).all(|n| world.value(&format!("k:{n}")) == Some(n % 128)));
}

/// With a disk that stands still, what is asked for "as of half past" must not be what was there before it.
#[test]
fn a_change_has_the_time_when_it_was_made_however_late_the_disk_gets_it() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::Never);
    let set_at = |world: &World, ms: u64, value: u8| {
        world.system.now.store(ms, Ordering::Relaxed);
        world.set("a", value);
    };
    set_at(&world, 1_000, 1);
    set_at(&world, 2_000, 2);
    // The same for a snapshot, and for the log that begins there.
    world.system.now.store(3_000, Ordering::Relaxed);
    world.hub.cut_log(CutPurpose::Snapshot);
    set_at(&world, 4_000, 3);
    world.system.now.store(60_000, Ordering::Relaxed);
    (0..3).for_each(|_| assert!(world.step()));
    world.stop();
    for (ms, expected) in [(1_500, 1), (2_500, 2), (3_500, 2), (4_500, 3), (61_000, 3)] {
        let until = Some(Until::Time(TestSystem::default().wall_clock_ms() + ms));
        let options = RecoverOptions { until, ..RecoverOptions::default() };
        let found = recover(&disk, "net", "n1", &options, &mut |_, _| {}).unwrap();
        let image = found.image.unwrap();
        let value = image.replica.tree.get(b"\xa1a").and_then(|entry| entry.value()).unwrap()[0];
        assert_eq!(value, expected, "after {ms} ms");
    }
}

#[test]
fn many_small_logs_end_in_a_snapshot_and_an_empty_one_in_nothing() {
    let disk = MemoryDisk::new();
    let config = LogSettings { rotate_after_ms: 10_000, ..config(SyncPolicy::Never) };
    let mut world = World::start(&disk, &config).unwrap();
    world.system.set_clock(1_000);
    world.step();
    world.system.set_clock(1_000_000);
    (0..5).for_each(|_| assert!(world.step()));
    assert_eq!(world.view().log.unwrap().0, 1, "there is nothing in it");
    world.set("a", 1);
    (0..3).for_each(|_| assert!(world.step()));
    assert_eq!(world.view().log.unwrap().0, 2);
    drop(world);
    for _ in 0..70 {
        let mut world = World::start(&disk, &config).unwrap();
        (0..3).for_each(|_| assert!(world.step()));
    }
    let names = disk.list().unwrap().into_iter().map(|e| e.name);
    assert_eq!(names.filter(|n| n.starts_with("snapshot-")).count(), 1);
    let world = World::start(&disk, &config).unwrap();
    assert_eq!(world.value("a"), Some(1));
}

#[test]
fn a_wish_is_told_that_there_was_no_thread_for_the_snapshot() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::EverySecond);
    world.system.refuse_threads(true);
    let (wish, answer) = std::sync::mpsc::sync_channel(1);
    assert!(world.logger.state().wish(wish));
    while world.step() && world.view().save_failure.is_none() {}
    // Before, the wish was dropped, which its owner took for the node's end.
    let why = answer.try_recv().unwrap().unwrap_err();
    assert!(why.contains("no thread"), "{why}");
    assert!(!world.view().is_saving);
    world.system.refuse_threads(false);
    let (wish, answer) = std::sync::mpsc::sync_channel(1);
    assert!(world.logger.state().wish(wish));
    while answer.try_recv().is_err() {
        assert!(world.step());
    }
}

#[test]
fn a_wish_for_a_snapshot_is_granted_or_refused_at_once() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::Never);
    world.set("a", 1);
    let wish = |world: &World| {
        let (wish, answer) = std::sync::mpsc::sync_channel(1);
        assert!(world.logger.state().wish(wish));
        answer
    };
    let answer = wish(&world);
    (0..3).for_each(|_| assert!(world.step()));
    assert_eq!(answer.try_recv().unwrap().unwrap().entries, 1);
    disk.set_fault(Some((1, Fault::Full)));
    world.set("a", 2);
    let answer = wish(&world);
    (0..3).for_each(|_| assert!(world.step()));
    assert!(answer.try_recv().unwrap().unwrap_err().contains("told to fail"));
    world.logger.state().note_end();
    assert!(!world.logger.state().wish(std::sync::mpsc::sync_channel(1).0));
}

#[test]
fn a_snapshot_that_fails_does_not_end_the_log() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::EveryBatch);
    world.set("a", 1);
    world.step();
    let before = disk.operations();
    world.hub.cut_log(crate::hub::log_queue::CutPurpose::Snapshot);
    // The new log and its note take some operations, the snapshot the next ones.
    disk.set_fault(Some((before + 13, Fault::Once)));
    world.step();
    let view = world.view();
    assert!(view.save_failure.is_some() && view.failing_since.is_none(), "{view:?}");
    let number = world.set("a", 2);
    world.step();
    assert!(world.is_synced(number));
}

#[test]
fn requests_for_a_safe_state_wait_for_the_disk_to_come_back() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::Never);
    disk.set_fault(Some((1, Fault::Full)));
    world.hub.queue(Output::Persist { token: 1 });
    world.step();
    world.hub.queue(Output::Persist { token: 2 });
    world.step();
    assert!(world.queue.failure().is_some());
    assert!(world.logger.open_requests().len() <= 2);
    disk.set_fault(None);
    (0..3).for_each(|_| assert!(world.step()));
    assert!(world.queue.failure().is_none());
    assert!(world.logger.open_requests().is_empty());
    assert_eq!(world.queue.synced(), world.queue.appended());
}

#[test]
fn while_the_disk_fails_what_is_on_it_is_told_and_no_log() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::EveryBatch);
    world.set("a", 1);
    world.step();
    let on_disk = || {
        let files = disk.list().unwrap();
        let data =
            files.iter().filter(|f| f.name.starts_with("log-") || f.name.starts_with("snap"));
        Some(data.map(|file| file.bytes).sum::<u64>())
    };
    let (_, logged) = world.view().log.unwrap();
    assert!(logged > 0);
    disk.set_fault(Some((1, Fault::Full)));
    world.set("b", 2);
    world.step();
    assert!(world.queue.failure().is_some());
    assert_eq!((world.view().log, world.view().older_bytes), (None, on_disk()));
    assert!(on_disk() >= Some(logged), "what was written is there");
    disk.set_fault(None);
    (0..3).for_each(|_| assert!(world.step()));
    assert!(world.queue.failure().is_none() && world.view().log.is_some());
}

#[test]
fn a_request_behind_what_the_disk_refused_is_not_forgotten() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::Never);
    disk.set_fault(Some((1, Fault::Full)));
    // The next log cannot be begun, and the request was taken from the queue together with that.
    world.hub.cut_log(crate::hub::log_queue::CutPurpose::Rotate);
    world.hub.queue(Output::Persist { token: 7 });
    world.step();
    assert!(world.queue.failure().is_some());
    assert_eq!(world.logger.open_requests(), [7]);
    disk.set_fault(None);
    (0..3).for_each(|_| assert!(world.step()));
    assert!(world.queue.failure().is_none() && world.logger.open_requests().is_empty());
}

/// The snapshot with which logging begins anew makes room, where there is something to remove.
#[test]
fn a_full_disk_is_tried_again_at_once() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::EveryBatch);
    world.set("a", 1);
    world.step();
    disk.set_fault(Some((1, Fault::Full)));
    let number = world.set("a", 2);
    assert!(world.logger.step(Duration::ZERO));
    assert!(world.queue.failure().is_some());
    disk.set_fault(None);
    // With no time between them.
    (0..3).for_each(|_| assert!(world.logger.step(Duration::ZERO)));
    assert!(world.queue.failure().is_none() && world.is_synced(number));
}

/// Whoever frees a disk that was full stops the node next, and loses nothing by that.
#[test]
fn a_stop_tries_the_disk_once_more_before_it_gives_up_what_is_not_logged() {
    for policy in [SyncPolicy::EverySecond, SyncPolicy::EveryBatch, SyncPolicy::Never] {
        let disk = MemoryDisk::new();
        let mut world = World::must_start(&disk, policy);
        world.set("a", 1);
        world.step();
        let life = world.id();
        disk.set_fault(Some((1, Fault::Full)));
        world.set("a", 2);
        world.step();
        world.set("a", 3);
        assert!(world.queue.failure().is_some());
        // There is room again, and the next look at it is not due yet.
        disk.set_fault(None);
        world.stop_at_once();
        let world = World::must_start(&disk, policy);
        assert_eq!(world.value("a"), Some(3), "{policy:?}");
        assert!(is_known(&world, &life, 3), "{policy:?}");
        drop(world);
        // Where there is none, what was logged is there.
        let mut world = World::must_start(&disk, policy);
        disk.set_fault(Some((1, Fault::Full)));
        world.set("a", 4);
        world.step();
        world.stop_at_once();
        disk.set_fault(None);
        let world = World::must_start(&disk, policy);
        assert_eq!(world.value("a"), Some(3), "{policy:?}");
    }
}

#[test]
fn what_is_purged_at_a_start_is_purged_in_the_log_too() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::EveryBatch);
    world.set("a", 1);
    let path: Path = "a".parse().unwrap();
    let delete = Write::new(path, None);
    world.hub.write(delete, false).0.unwrap();
    let is_decided = |world: &World| world.hub.read(|engine| engine.knowledge().decided.is_some());
    for now in (1..1_000).map(|n| n * 100) {
        world.hub.handle(Input::Tick, now);
        if is_decided(&world) {
            break;
        }
        world.step();
    }
    assert!(is_decided(&world));
    // The decision is synced, and its effect is not in the log yet.
    world.step();
    let purged = |world: &World| {
        world.hub.read(|engine| (engine.tree().tombstone_len(), engine.mark().top().get()))
    };
    let (tombstones, mark) = purged(&world);
    assert!(tombstones == 0 && mark > 0);
    drop(world);
    for restart in 1..=3 {
        let world = World::must_start(&disk, SyncPolicy::EveryBatch);
        assert_eq!(purged(&world), (0, mark), "restart {restart}");
        assert!(!is_decided(&world), "restart {restart}");
    }
}

#[test]
fn a_node_that_renews_itself_comes_back_as_what_it_became() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::EveryBatch);
    world.set("a", 1);
    let before = (world.id(), world.store());
    world.hub.handle(Input::Renewed { incarnation: Incarnation(77) }, 1);
    world.set("a", 2);
    world.step();
    assert_eq!((world.store(), world.view().store), (77, 77));
    world.stop();
    let world = World::must_start(&disk, SyncPolicy::EveryBatch);
    assert_eq!(world.store(), 77);
    assert_ne!((world.id(), world.store()), before);
    let became = NodeId { incarnation: Incarnation(77), ..before.0 };
    assert!(is_known(&world, &became, 1) && !is_known(&world, &became, 2));
}

#[test]
fn a_node_that_cannot_begin_its_log_begins_without_and_as_somebody_else() {
    let disk = MemoryDisk::new();
    let mut world = World::must_start(&disk, SyncPolicy::EveryBatch);
    world.set("a", 1);
    world.step();
    let (first, store) = (world.id(), world.store());
    world.stop();
    disk.set_fault(Some((1, Fault::Full)));
    let mut world = World::must_start(&disk, SyncPolicy::EveryBatch);
    assert_ne!(world.id(), first);
    assert_eq!((world.value("a"), world.store()), (Some(1), store));
    assert!(world.queue.refusal().is_some());
    world.step();
    world.set("a", 2);
    disk.set_fault(None);
    (0..3).for_each(|_| assert!(world.step()));
    assert!(world.queue.refusal().is_none());
    drop(world);
    disk.crash(&mut || false);
    let world = World::must_start(&disk, SyncPolicy::EveryBatch);
    assert_eq!((world.value("a"), world.store()), (Some(2), store));
}

/// What a run on a disk that fails did.
struct Run {
    /// By tick: whether it was said to be safe. Tick n set k:n to n.
    safe: Vec<bool>,
    id: NodeId,
    store: u64,
}

/// Writes, rotates and saves, on a disk that fails from the operation `at` on; comes back in the
/// middle if it does. `None`: it did not even start.
fn run(disk: &MemoryDisk, sync: SyncPolicy, at: u64, fault: Fault) -> Option<Run> {
    let config = LogSettings { rotate_bytes: 300, snapshot_after: 700, ..config(sync) };
    disk.set_fault(Some((at, fault)));
    let mut world = World::start(disk, &config)?;
    let mut safe = Vec::new();
    for n in 1..=24 {
        if n == 17 {
            disk.set_fault(None);
        }
        let number = world.set(&format!("k:{n}"), n);
        world.step();
        world.step();
        // What a client would be told; without gates it is told in any case.
        safe.push(world.is_synced(number) && world.queue.failure().is_none());
    }
    assert!(world.queue.failure().is_none(), "it works again");
    let last = world.set("k:25", 25);
    world.hub.queue(Output::Persist { token: 1 });
    world.step();
    assert!(world.is_synced(last));
    safe.push(true);
    Some(Run { safe, id: world.id(), store: world.store() })
}

/// A node restarts with the disk; its state must be complete, and contain what was reported as
/// synced.
fn check(disk: &MemoryDisk, sync: SyncPolicy, run: &Run, what: &str) {
    let Some(world) = World::start(disk, &config(sync)) else {
        panic!("{what}: it does not start");
    };
    assert_ne!(world.id(), run.id, "{what}: no proof that it had stopped");
    assert_eq!(world.store(), run.store, "{what}: nothing that was agreed to is missing");
    for (n, safe) in (1..).zip(&run.safe) {
        let value = world.value(&format!("k:{n}"));
        assert!(!safe || value == Some(n), "{what}: {n} was safe and is {value:?}");
        let is_seen = world.hub.read(|engine| {
            let old = engine.table().find(run.id.name.as_str(), run.id.incarnation);
            let tick = Tick::new(u64::from(n)).unwrap();
            old.is_some_and(|node| engine.seen().contains(Event { node, tick }))
        });
        assert_eq!(is_seen, value.is_some(), "{what}: {n} is known without its data, or unknown");
    }
}

#[test]
fn whatever_operation_of_the_disk_fails_nothing_that_was_safe_is_lost_and_nothing_is_half_there() {
    let mut started = 0;
    for sync in POLICIES {
        let whole = MemoryDisk::new();
        run(&whole, sync, u64::MAX, Fault::Once).unwrap();
        let operations = whole.operations();
        assert!(operations > 60, "{operations}");
        for fault in [Fault::Once, Fault::Broken, Fault::Full] {
            for at in 1..=operations {
                let disk = MemoryDisk::new();
                let Some(run) = run(&disk, sync, at, fault) else { continue };
                started += 1;
                disk.set_fault(None);
                for luck in 0..3 {
                    let what = format!("{sync:?}, {fault:?} at {at}, luck {luck}");
                    let after = disk.fork();
                    let mut random = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ luck;
                    after.crash(&mut || {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        luck == 1 || (luck == 2 && random >> 63 == 1)
                    });
                    check(&after, sync, &run, &what);
                }
            }
        }
    }
    assert!(started > 300, "{started}");
}
