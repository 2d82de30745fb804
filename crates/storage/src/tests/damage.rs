//! Every byte of every file changed in turn, every file cut at every length, and what a start
//! makes of it: the state that it was, an older one with a warning where only the end of the last
//! log can be missing, or an error. Never another state.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::Arc;

use super::node::{NAME, NETWORK, STORE, TestNode, header};
use crate::batch::{Batch, Op};
use crate::data_dir::DataDir;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::header::LogStart;
use crate::identity::IDENTITY_NAME;
use crate::listing::list_image;
use crate::log::{LogWriter, log_name};
use crate::memory_disk::MemoryDisk;
use crate::recover::{Owner, RecoverOptions, Recovered, Warning, recover};
use crate::snapshot::{snapshot_name, verify_snapshot};

pub(super) const OPTIONS: RecoverOptions = RecoverOptions {
    discard_damaged: false,
    hash_seed: 4,
    new_store: 99,
    until: None,
    below: None,
    puts_state: false,
};

pub(super) const OWNER: Owner<'_> = Owner { network: NETWORK, name: NAME };

pub(super) fn start(
    disk: &MemoryDisk,
    options: &RecoverOptions,
) -> Result<Recovered, StorageError> {
    recover(disk, NETWORK, NAME, options, &mut |_, _| {})
}

pub(super) fn listing(recovered: &Recovered) -> String {
    recovered.image.as_ref().map(list_image).unwrap_or_default()
}

/// A node that ran for a while: log 1, then log 2 and its snapshot, then log 3.
struct Life {
    disk: MemoryDisk,
    dir: DataDir,
    node: TestNode,
    log: Option<LogWriter>,
    /// The listing after each batch, the oldest first.
    history: Vec<String>,
    /// Where batches of the last log end.
    ends: Vec<u64>,
}

impl Life {
    fn new() -> Self {
        let disk = MemoryDisk::new();
        let dir = DataDir::on(Arc::new(disk.clone()));
        let node = TestNode::new(7);
        let knowledge = node.engine.knowledge();
        let table = node.engine.table();
        let log = dir.begin_log(&header(1, 7), LogStart::Empty, &knowledge, table).unwrap();
        let history = vec![node.listing()];
        let mut life = Self { disk, dir, node, log: Some(log), history, ends: Vec::new() };
        life.work(0..4);
        life.rotate(2);
        life.dir.save(&header(2, 7), &life.node.image(), &mut |_| {}).unwrap();
        life.work(2..6);
        life.rotate(3);
        life.work(5..9);
        life
    }

    fn work(&mut self, range: std::ops::Range<u64>) {
        for n in range {
            let batch = match n % 3 {
                2 => self.node.set(&format!("k.{}", n - 1), None),
                _ => self.node.set(&format!("k.{n}"), Some(n * 1000)),
            };
            self.append(&batch);
        }
        let later = self.node.wait(500);
        // The deleted entries are purged.
        assert!(later.iter().any(|b| b.ops.iter().any(|op| matches!(op, Op::Gone { .. }))));
        for batch in later {
            self.append(&batch);
        }
    }

    fn append(&mut self, batch: &Batch) {
        let log = self.log.as_mut().unwrap();
        log.append(batch).unwrap();
        log.sync().unwrap();
        self.ends.push(log.len());
        self.history.push(self.node.listing());
    }

    fn rotate(&mut self, number: u64) {
        let knowledge = self.node.engine.knowledge();
        let log = self.log.take().unwrap();
        let next = self.dir.rotate(log, &header(number, 7), &knowledge, self.node.engine.table());
        self.log = Some(next.unwrap());
        self.ends = self.log.iter().map(LogWriter::len).collect();
    }

    fn stop(&mut self) {
        let knowledge = self.node.engine.knowledge();
        let log = self.log.take().unwrap();
        self.dir.stop(log, 5, &knowledge, self.node.engine.table()).unwrap();
    }
}

/// Tries a damaged file; returns whether the start was refused. Otherwise the state is one that the
/// node had, and if it is not the last one, the start says that something is missing.
fn judge(life: &Life, name: &str, content: &[u8], what: &str) -> Result<Recovered, StorageError> {
    let disk = life.disk.fork();
    disk.put(name, content);
    let recovered = start(&disk, &OPTIONS)?;
    let found = listing(&recovered);
    assert!(life.history.contains(&found), "{what}: a state that never was:\n{found}");
    let is_newest = life.history.last() == Some(&found);
    // A file that ends with a batch looks like one that was not written further.
    let is_told = !recovered.warnings.is_empty() || life.ends.contains(&(content.len() as u64));
    assert!(is_newest || is_told, "{what}: older without a warning");
    assert!(!recovered.stopped_cleanly, "{what}: seems to have stopped cleanly");
    // The damage is repaired in one go, and then there is nothing left to report.
    recovered.repair(&disk).unwrap();
    let again = start(&disk, &OPTIONS).unwrap();
    assert_eq!(listing(&again), found, "{what}");
    let is_mended = |w: &Warning| {
        !matches!(w, Warning::TornTail { .. } | Warning::Unborn { .. } | Warning::BadSnapshot(_))
    };
    assert!(again.warnings.iter().all(is_mended), "{what}: {:?}", again.warnings);
    Ok(recovered)
}

fn flips(content: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> + '_ {
    (0..content.len()).map(|at| {
        let mut bad = content.to_vec();
        bad[at] ^= 1 << (at % 8);
        (at, bad)
    })
}

#[test]
fn a_node_that_was_killed_has_everything_that_was_synced() {
    let life = Life::new();
    let recovered = start(&life.disk, &OPTIONS).unwrap();
    assert_eq!(listing(&recovered), life.node.listing());
    assert!(recovered.warnings.is_empty(), "{:?}", recovered.warnings);
    assert!(!recovered.stopped_cleanly && recovered.keeps_store);
    assert_eq!(recovered.store, STORE);
    assert_eq!(recovered.next.number, 4);
}

#[test]
fn any_flipped_byte_of_an_older_log_or_of_the_last_one_before_its_end_is_refused() {
    let life = Life::new();
    for number in [2, 3] {
        let content = life.disk.content(&log_name(number)).unwrap();
        let mut torn = 0;
        for (at, bad) in flips(&content) {
            let what = format!("log {number}, byte {at}");
            match judge(&life, &log_name(number), &bad, &what) {
                Ok(recovered) => {
                    torn += 1;
                    assert!(matches!(recovered.warnings[..], [Warning::TornTail { .. }]), "{what}");
                }
                Err(StorageError::Damaged { file, offset, .. }) => {
                    assert_eq!(file, log_name(number));
                    assert!(offset <= at as u64, "{what}: said to be at {offset}");
                }
                Err(StorageError::Incomplete { file, .. } | StorageError::NotOne { file, .. }) => {
                    assert_eq!(file, log_name(number));
                }
                Err(other) => panic!("{what}: {other}"),
            }
        }
        // Only for the last frame of the last log is it unknown whether it had been synced.
        assert!(if number == 3 { torn > 16 && torn < 300 } else { torn == 0 }, "{number}: {torn}");
    }
    // Nothing depends on a log that is older than the snapshot.
    for (at, bad) in flips(&life.disk.content(&log_name(1)).unwrap()) {
        let recovered = judge(&life, &log_name(1), &bad, &format!("log 1, byte {at}")).unwrap();
        assert_eq!(listing(&recovered), life.node.listing());
    }
}

#[test]
fn any_flipped_byte_of_a_snapshot_is_noticed_and_nothing_is_lost_if_the_logs_reach_back() {
    let life = Life::new();
    let name = snapshot_name(2);
    for (at, bad) in flips(&life.disk.content(&name).unwrap()) {
        let source = Box::new(Cursor::new(bad.clone()));
        assert!(verify_snapshot(&name, source, &mut |_| {}).is_err(), "byte {at}");
        let recovered = judge(&life, &name, &bad, &format!("snapshot, byte {at}")).unwrap();
        assert_eq!(listing(&recovered), life.node.listing());
        assert!(matches!(recovered.warnings[..], [Warning::BadSnapshot(_)]));
    }
}

#[test]
fn without_older_logs_a_flipped_byte_of_the_only_snapshot_is_an_error() {
    let life = Life::new();
    Disk::remove(&life.disk, &log_name(1)).unwrap();
    let name = snapshot_name(2);
    for (at, bad) in flips(&life.disk.content(&name).unwrap()) {
        let error = judge(&life, &name, &bad, "").err();
        let is_refused =
            matches!(&error, Some(StorageError::NoGoodSnapshot { file, .. }) if *file == name);
        assert!(is_refused, "byte {at}: {error:?}");
    }
}

#[test]
fn any_flipped_byte_of_a_log_that_was_closed_by_a_stop_is_refused() {
    let mut life = Life::new();
    life.stop();
    let recovered = start(&life.disk, &OPTIONS).unwrap();
    assert!(recovered.stopped_cleanly && recovered.warnings.is_empty());
    for (at, bad) in flips(&life.disk.content(&log_name(3)).unwrap()) {
        assert!(judge(&life, &log_name(3), &bad, "").is_err(), "byte {at}");
    }
    for (at, bad) in flips(&life.disk.content(IDENTITY_NAME).unwrap()) {
        assert!(judge(&life, IDENTITY_NAME, &bad, "").is_err(), "byte {at}");
    }
}

#[test]
fn a_file_that_is_cut_anywhere_is_noticed() {
    let life = Life::new();
    for name in [snapshot_name(2), log_name(2), log_name(3)] {
        let content = life.disk.content(&name).unwrap();
        let mut kept = BTreeSet::new();
        for length in 0..content.len() {
            let what = format!("{name} cut to {length}");
            match judge(&life, &name, &content[..length], &what) {
                Ok(recovered) => {
                    kept.insert(listing(&recovered));
                    assert!(name != log_name(2), "{what}");
                }
                Err(error) => assert!(error.to_string().contains(&name), "{what}: {error}"),
            }
        }
        // The last log can be cut after each of its batches.
        assert!(
            if name == log_name(3) { kept.len() == 4 } else { kept.len() < 2 },
            "{name} {kept:?}"
        );
    }
}

#[test]
fn a_file_that_is_missing_is_noticed() {
    for (name, is_refused) in
        [(snapshot_name(2), false), (log_name(1), false), (log_name(2), true), (log_name(3), false)]
    {
        let life = Life::new();
        Disk::remove(&life.disk, &name).unwrap();
        match start(&life.disk, &OPTIONS) {
            Err(error) => assert!(is_refused && error.to_string().contains(&name), "{error}"),
            Ok(recovered) => {
                assert!(!is_refused, "{name}");
                assert!(life.history.contains(&listing(&recovered)));
                // The last log is the only one whose loss makes this an older state.
                assert_eq!(recovered.keeps_store, name != log_name(3), "{name}");
                assert_eq!(recovered.warnings.len(), usize::from(name == log_name(3)));
            }
        }
    }
}

#[test]
fn what_is_before_damage_can_be_gone_on_from_as_somebody_else() {
    let life = Life::new();
    let options = RecoverOptions { discard_damaged: true, ..OPTIONS };
    for number in [2, 3] {
        let mut bad = life.disk.content(&log_name(number)).unwrap();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        let disk = life.disk.fork();
        disk.put(&log_name(number), &bad);
        assert!(start(&disk, &OPTIONS).is_err());
        let recovered = start(&disk, &options).unwrap();
        assert!(life.history.contains(&listing(&recovered)));
        assert!(matches!(recovered.warnings[..], [Warning::Discarded(_)]));
        assert!(!recovered.keeps_store && !recovered.stopped_cleanly);
        assert_eq!(recovered.store, 99);
        assert_eq!((recovered.next.number, recovered.next.start), (4, LogStart::Snapshot));
        assert!(recovered.next.needs_snapshot);

        // With the snapshot that it asks for, everything is well again.
        let dir = DataDir::on(Arc::new(disk.clone()));
        recovered.repair(&disk).unwrap();
        let image = recovered.image.unwrap();
        dir.save(&header(4, 8), &image, &mut |_| {}).unwrap();
        let (knowledge, table) = (image.knowledge(), &image.replica.table);
        dir.begin_log(&header(4, 8), LogStart::Snapshot, &knowledge, table).unwrap();
        let again = start(&disk, &OPTIONS).unwrap();
        assert_eq!(listing(&again), list_image(&image));
        assert!(again.warnings.is_empty() && again.keeps_store);
        // And nothing leads from the old log to the new one.
        let without = disk.fork();
        Disk::remove(&without, &snapshot_name(4)).unwrap();
        assert!(start(&without, &OPTIONS).is_err());
    }
}

#[test]
fn a_directory_of_which_nothing_is_good_is_begun_anew_only_if_told() {
    let life = Life::new();
    Disk::remove(&life.disk, &log_name(1)).unwrap();
    let mut bad = life.disk.content(&snapshot_name(2)).unwrap();
    bad[20] ^= 1;
    life.disk.put(&snapshot_name(2), &bad);
    assert!(matches!(start(&life.disk, &OPTIONS), Err(StorageError::NoGoodSnapshot { .. })));
    let options = RecoverOptions { discard_damaged: true, ..OPTIONS };
    let recovered = start(&life.disk, &options).unwrap();
    assert!(recovered.image.is_none() && !recovered.keeps_store);
    assert_eq!((recovered.next.number, recovered.next.start), (4, LogStart::Empty));
    recovered.repair(&life.disk).unwrap();
    let node = TestNode::new(9);
    let (knowledge, table) = (node.engine.knowledge(), node.engine.table());
    life.dir.begin_log(&header(4, 9), LogStart::Empty, &knowledge, table).unwrap();
    let again = start(&life.disk, &OPTIONS).unwrap();
    assert_eq!(listing(&again), node.listing());
    assert!(again.warnings.is_empty() && again.keeps_store);
}
