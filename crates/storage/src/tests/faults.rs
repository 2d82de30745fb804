//! A disk that fails, or fills, at any of its operations, and then loses its power. Everything that
//! was synced is there afterwards, the rest in whole batches or not at all, and no tick is ever
//! used twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::damage::{OPTIONS, listing, start};
use super::node::{NAME, NETWORK, TestNode, header};
use crate::batch::Batch;
use crate::data_dir::DataDir;
use crate::engine::Image;
use crate::error::StorageError;
use crate::header::LogStart;
use crate::log::{LogWriter, log_name};
use crate::memory_disk::{Fault, MemoryDisk};
use crate::model::entry::Entry;
use crate::model::path::Path;
use crate::past::Keep;
use crate::recover::{RecoverOptions, Recovered};

/// So many entries are made together.
const MANY: u64 = 300;

/// A node and its data directory, which work until something fails.
struct Run {
    disk: MemoryDisk,
    dir: DataDir,
    node: Option<TestNode>,
    log: Option<LogWriter>,
    number: u64,
    /// What the state was after each batch of all lives.
    history: Vec<String>,
    /// How many of them are certain to be safe.
    safe: usize,
    /// Whether the last node was about to stop, or had stopped.
    stopped: bool,
}

impl Run {
    fn new(disk: MemoryDisk) -> Self {
        let dir = DataDir::on(Arc::new(disk.clone()));
        let history = vec![String::new()];
        Self { disk, dir, node: None, log: None, number: 0, history, safe: 1, stopped: false }
    }

    /// What a node does, from its start on. `Err` if it must give up.
    fn work(&mut self) -> Result<(), StorageError> {
        self.start(7)?;
        for n in 0..3 {
            self.set(n, false)?;
        }
        self.set(3, true)?;
        // Synced only by the close of the log.
        self.set(10, false)?;
        self.rotate()?;
        let saved = self.image();
        self.set(4, false)?;
        self.save(&saved, self.number)?;
        self.delete_and_purge()?;
        self.set(5, true)?;
        self.rotate()?;
        let saved = self.image();
        self.save(&saved, self.number)?;
        self.dir.prune(self.number, &Keep::snapshots(1))?;
        self.set(6, true)?;
        self.set(7, false)?;
        self.stop()?;
        self.start(8)?;
        self.set(8, true)?;
        // A long one, over several pages and frames, that is not synced.
        self.set_many(MANY)?;
        self.set(9, false)
    }

    /// What a node does that comes back to what there is.
    fn come_back(&mut self) -> Result<(), StorageError> {
        self.start(9)?;
        self.set(20, true)?;
        self.rotate()?;
        let image = self.image();
        self.save(&image, self.number)?;
        self.dir.prune(self.number, &Keep::snapshots(1))?;
        self.set(21, true)
    }

    fn image(&self) -> Image {
        self.node.as_ref().unwrap().image()
    }

    fn start(&mut self, incarnation: u64) -> Result<(), StorageError> {
        let recovered = self.dir.recover(NETWORK, NAME, &OPTIONS, &mut |_, _| {})?;
        assert!(!recovered.next.needs_snapshot);
        self.number = recovered.next.number;
        let node = match &recovered.image {
            None => TestNode::new(incarnation),
            Some(image) if recovered.stopped_cleanly => {
                TestNode::restored(image, image.id().incarnation.0)
            }
            Some(image) => TestNode::restored(image, incarnation),
        };
        let (knowledge, table) = (node.engine.knowledge(), node.engine.table());
        let header = header(self.number, node.incarnation());
        let log = self.dir.begin_log(&header, recovered.next.start, &knowledge, table);
        // Its first frame may be safe even if the rest of the start failed.
        self.history.push(node.listing());
        self.log = Some(log?);
        self.stopped = false;
        self.safe = self.history.len();
        self.node = Some(node);
        Ok(())
    }

    fn log(&mut self) -> &mut LogWriter {
        self.log.as_mut().unwrap()
    }

    fn append(&mut self, batch: &Batch, synced: bool) -> Result<(), StorageError> {
        let after = self.node.as_ref().unwrap().listing();
        self.history.push(after);
        self.log().append(batch)?;
        if synced {
            self.log().sync()?;
            self.safe = self.history.len();
            return Ok(());
        }
        self.log().flush()
    }

    fn set(&mut self, n: u64, synced: bool) -> Result<(), StorageError> {
        let batch = self.node.as_mut().unwrap().set(&format!("k.{n}"), Some(n));
        self.append(&batch, synced)
    }

    fn set_many(&mut self, count: u64) -> Result<(), StorageError> {
        let value = [&[0xc5, 4, 0][..], &[7; 1024]].concat();
        let batch = self.node.as_mut().unwrap().batch(|engine, out| {
            for n in 0..count {
                super::node::write(engine, &format!("many.{n}"), Some(&value), out);
            }
        });
        self.append(&batch, false)
    }

    fn delete_and_purge(&mut self) -> Result<(), StorageError> {
        let node = self.node.as_mut().unwrap();
        let deleted = node.set("k.1", None);
        self.append(&deleted, false)?;
        for _ in 0..20 {
            // One at a time: the state after each of them is noted.
            for batch in self.node.as_mut().unwrap().wait(50) {
                self.append(&batch, false)?;
            }
        }
        assert_eq!(self.node.as_ref().unwrap().engine.tree().tombstone_len(), 0);
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), StorageError> {
        let node = self.node.as_ref().unwrap();
        let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
        self.number += 1;
        let header = header(self.number, node.incarnation());
        let log = self.log.take().unwrap();
        self.log = Some(self.dir.rotate(log, &header, &knowledge, &table)?);
        self.safe = self.history.len();
        Ok(())
    }

    fn save(&mut self, image: &Image, number: u64) -> Result<(), StorageError> {
        let incarnation = self.node.as_ref().unwrap().incarnation();
        self.dir.save(&header(number, incarnation), image, &mut |_| {}).map(|_| ())
    }

    fn stop(&mut self) -> Result<(), StorageError> {
        let node = self.node.take().unwrap();
        let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
        let log = self.log.take().unwrap();
        // Whether or not it succeeds: nothing leaves the node any more.
        self.stopped = true;
        self.dir.stop(log, 9, &knowledge, &table)?;
        self.safe = self.history.len();
        Ok(())
    }

    /// What a start after the crash finds: a state that the node had, none older than what was
    /// synced.
    fn judge(&self, what: &str) -> Recovered {
        let recovered = start(&self.disk, &OPTIONS).unwrap_or_else(|e| panic!("{what}: {e}"));
        let found = listing(&recovered);
        let later = self.history.get(self.safe - 1..).unwrap();
        assert!(later.contains(&found), "{what}: not one of {} states:\n{found}", later.len());
        recovered
    }
}

#[test]
fn a_log_for_which_there_is_no_room_leaves_no_file() {
    let node = TestNode::new(7);
    let (knowledge, table) = (node.engine.knowledge(), node.engine.table());
    for operation in 1.. {
        let disk = MemoryDisk::new();
        disk.set_fault(Some((operation, Fault::Full)));
        let begun = LogWriter::create(&disk, &header(1, 7), LogStart::Empty, &knowledge, table);
        assert_eq!(disk.content(&log_name(1)).is_some(), begun.is_ok(), "operation {operation}");
        if begun.is_ok() {
            assert!(operation > 2, "it was made, and then nothing could be written");
            return;
        }
    }
}

/// Bits from a seed (SplitMix64).
struct Luck(u64);

impl Luck {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn crash(disk: &MemoryDisk, seed: u64) {
    let mut luck = Luck(seed);
    match seed {
        0 => disk.crash(&mut || false),
        1 => disk.crash(&mut || true),
        _ => disk.crash(&mut || luck.next() & 1 == 1),
    }
}

const SEEDS: u64 = 8;

/// How many operations a run has that nothing disturbs.
fn operations() -> u64 {
    let mut run = Run::new(MemoryDisk::new());
    run.work().unwrap();
    run.disk.operations()
}

#[test]
fn a_run_that_nothing_disturbs_ends_with_its_last_state() {
    let mut run = Run::new(MemoryDisk::new());
    run.work().unwrap();
    let recovered = run.judge("undisturbed");
    assert_eq!(Some(&listing(&recovered)), run.history.last());
    assert_eq!(recovered.image.unwrap().id().incarnation.0, 7, "the stop was clean");
    assert!(run.disk.operations() > 50, "{}", run.disk.operations());
}

#[test]
fn after_a_failure_at_any_operation_and_a_crash_nothing_that_was_safe_is_missing() {
    for fault in [Fault::Once, Fault::Broken, Fault::Full] {
        for at in 1..=operations() {
            let disk = MemoryDisk::new();
            disk.set_fault(Some((at, fault)));
            let mut run = Run::new(disk.clone());
            let worked = run.work();
            // A full disk still renames and removes; every other failure is reported.
            assert!(worked.is_err() || fault == Fault::Full, "{fault:?} at {at}");
            disk.set_fault(None);
            for seed in 0..SEEDS {
                run.disk = disk.fork();
                crash(&run.disk, seed);
                let what = format!("{fault:?} at {at}, seed {seed}");
                let recovered = run.judge(&what);
                go_on(&run.disk, &recovered, &what);
            }
        }
    }
}

#[test]
fn a_crash_between_any_two_operations_loses_nothing_that_was_safe() {
    for at in 1..=operations() {
        for seed in 0..SEEDS {
            let disk = MemoryDisk::new();
            // From here on nothing happens: the power is off.
            disk.set_fault(Some((at, Fault::Broken)));
            let mut run = Run::new(disk.clone());
            let _ = run.work();
            disk.set_fault(None);
            crash(&disk, seed);
            let what = format!("crash at {at}, seed {seed}");
            let recovered = run.judge(&what);
            // A tick that may have left the node is never made again.
            if recovered.stopped_cleanly {
                assert!(run.stopped, "{what}");
            }
            go_on(&disk, &recovered, &what);
        }
    }
}

/// A node restarts with what was found, works, is killed, and restarts with what it did.
fn go_on(disk: &MemoryDisk, recovered: &Recovered, what: &str) {
    let mut run = Run::new(disk.clone());
    run.history = vec![listing(recovered)];
    run.come_back().unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = start(disk, &OPTIONS).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(Some(&listing(&found)), run.history.last(), "{what}");
    assert!(found.warnings.is_empty(), "{what}: {:?}", found.warnings);
}

#[test]
fn a_log_that_was_begun_is_safe_also_outside_of_a_data_directory() {
    let disk = MemoryDisk::new();
    let node = TestNode::new(7);
    let (knowledge, table) = (node.engine.knowledge(), node.engine.table());
    let start = crate::header::LogStart::Snapshot;
    let mut log =
        LogWriter::create_as("a.dkv", &disk, &header(1, 7), start, &knowledge, table).unwrap();
    let safe = disk.content("a.dkv").unwrap();
    assert_eq!(log.synced(), safe.len() as u64);
    log.append(&TestNode::new(7).set("x", Some(1))).unwrap();
    log.flush().unwrap();
    crash(&disk, 0);
    assert_eq!(disk.content("a.dkv"), Some(safe));
}

/// While a log cannot be written the node continues; when there is room again it begins with a
/// snapshot of its present state.
#[test]
fn logging_goes_on_with_a_snapshot_when_there_is_room_again() {
    for at in 1..=operations() {
        let disk = MemoryDisk::new();
        disk.set_fault(Some((at, Fault::Full)));
        let mut run = Run::new(disk.clone());
        let Err(error) = run.work() else { continue };
        let Some(node) = &mut run.node else { continue };
        assert!(error.is_full() || matches!(error, StorageError::Given { .. }), "{error}");
        // Not logged.
        node.set("missed", Some(1));
        let image = node.image();
        let (id, table) = (node.incarnation(), Arc::clone(node.engine.table()));
        let next = run.number + 1;
        assert!(run.dir.save(&header(next, id), &image, &mut |_| {}).is_err());
        disk.set_fault(None);
        run.dir.save(&header(next, id), &image, &mut |_| {}).unwrap();
        let start_from = crate::header::LogStart::Snapshot;
        let log = run.dir.begin_log(&header(next, id), start_from, &image.knowledge(), &table);
        run.log = Some(log.unwrap());
        run.set(30, true).unwrap();
        let recovered = start(&disk, &OPTIONS).unwrap();
        assert_eq!(Some(&listing(&recovered)), run.history.last(), "{at}");
    }
}

#[test]
fn an_incarnation_is_kept_after_a_proven_stop_only() {
    let mut run = Run::new(MemoryDisk::new());
    run.start(7).unwrap();
    run.set(1, true).unwrap();
    run.stop().unwrap();
    let keeps = |disk: &MemoryDisk| {
        let found = start(disk, &OPTIONS).unwrap();
        (found.stopped_cleanly, found.keeps_store)
    };
    assert_eq!(keeps(&run.disk), (true, true));
    // A copy of the whole directory; of one file; a file put back over itself.
    assert_eq!(keeps(&run.disk.copy()), (false, false));
    for name in ["identity", "log-1.dkv"] {
        let disk = run.disk.fork();
        let content = disk.content(name).unwrap();
        crate::disk::Disk::remove(&disk, name).unwrap();
        disk.put(name, &content);
        assert_eq!(keeps(&disk), (false, false), "{name}");
    }
    let disk = run.disk.fork();
    // Something happens elsewhere on the disk, so that its clock advances.
    crate::disk::Disk::create(&disk, "other").unwrap();
    disk.put("log-1.dkv", &disk.content("log-1.dkv").unwrap());
    assert_eq!(keeps(&disk), (false, true));
    // As soon as the node has started again, the proof is used up.
    let backup = run.disk.fork();
    run.start(8).unwrap();
    assert_eq!(run.node.as_ref().unwrap().incarnation(), 7);
    assert_eq!(keeps(&run.disk), (false, true));
    // Removing the later files does not bring the earlier state back.
    let disk = run.disk.fork();
    crate::disk::Disk::remove(&disk, "log-2.dkv").unwrap();
    assert_eq!(keeps(&disk), (false, false));
    disk.put("identity", &backup.content("identity").unwrap());
    assert_eq!(keeps(&disk), (false, false), "with the old identity");
}

#[test]
fn the_state_at_an_earlier_moment_can_be_looked_at() {
    let mut run = Run::new(MemoryDisk::new());
    run.work().unwrap();
    let mut moments = BTreeSet::new();
    let mut is_within = BTreeSet::new();
    for tock in 0..20 {
        let until = Some(crate::Until::Tock(crate::model::ids::Tock::new(tock).unwrap()));
        let Ok(found) = start(&run.disk, &RecoverOptions { until, ..OPTIONS }) else { continue };
        let Some(image) = &found.image else { continue };
        assert!(image.replica.tree.all().all(|(_, entry)| entry.tock().get() <= tock));
        // Those that were made together come one after the other, the last of them at this tock.
        let path = |n| format!("many.{n}").parse::<Path>().unwrap();
        let many = (0..MANY).map_while(|n| image.replica.tree.get(path(n).as_bytes()));
        let many: Vec<&Entry> = many.collect();
        let is_part = !many.is_empty() && many.len() < MANY as usize;
        if is_part {
            is_within.insert(many.len());
            assert!(many.last().is_some_and(|entry| entry.tock().get() == tock), "{tock}");
        }
        assert!(is_part || run.history.contains(&listing(&found)), "{tock}");
        assert!(!found.stopped_cleanly && !found.keeps_store);
        moments.insert(listing(&found));
    }
    assert!(moments.len() > 3, "{}", moments.len());
    assert!(is_within.len() > 3 && is_within.iter().eq(&(1..=is_within.len()).collect::<Vec<_>>()));
}
