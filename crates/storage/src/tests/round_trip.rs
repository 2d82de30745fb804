//! What is written comes back as it was.

use std::io::Cursor;

use proptest::prelude::*;

use super::node::{TestNode, header};
use super::random::{batch, image_of, knowledge, parts, table};
use crate::batch::{Batch, Op};
use crate::disk::{Disk, FileId};
use crate::engine::{Image, Knowledge};
use crate::frame::FRAME_BYTES_MAX;
use crate::header::LogStart;
use crate::listing::{list_entry, list_image};
use crate::log::{LogReader, LogWriter};
use crate::memory_disk::MemoryDisk;
use crate::model::ids::{NodeIndex, NodeTable};
use crate::model::seen::Seen;
use crate::model::tick_set::TickSet;
use crate::snapshot::{
    read_snapshot, snapshot_name, verify_snapshot, write_snapshot, write_snapshot_to,
};

fn saved(image: &Image) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = FileId::default();
    write_snapshot_to(&mut bytes, &header(3, 7), file, image, &mut |_| {}).unwrap();
    bytes
}

fn loaded(bytes: &[u8]) -> Image {
    let source = Box::new(Cursor::new(bytes.to_vec()));
    let (read_header, image) = read_snapshot("file", source, 5, &mut |_| {}).unwrap();
    assert_eq!(read_header, header(3, 7));
    image
}

/// An operation as text, whatever the table's indices.
fn op_text(op: &Op, table: &NodeTable) -> String {
    match op {
        Op::Put(change) => list_entry(&change.path, &change.entry, table),
        Op::Gone { path, newest } => {
            format!("gone {path} {:?} {}", table.get(newest.node), newest.tick)
        }
    }
}

fn ops_text(ops: &[Op], table: &NodeTable) -> Vec<String> {
    ops.iter().map(|op| op_text(op, table)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_snapshot_comes_back_as_it_was(parts in parts()) {
        let image = image_of(parts);
        let bytes = saved(&image);
        let again = loaded(&bytes);
        prop_assert_eq!(list_image(&again), list_image(&image));
        prop_assert_eq!(again.knowledge(), image.knowledge());
        // The same state makes the same bytes.
        prop_assert_eq!(saved(&again), bytes);
    }

    #[test]
    fn a_log_comes_back_batch_by_batch(
        first in knowledge(), batches in proptest::collection::vec(batch(), 0..12),
    ) {
        let disk = MemoryDisk::new();
        let start = LogStart::After { number: 2, bytes: u64::MAX };
        let mut log = LogWriter::create(&disk, &header(3, 7), start, &first, &table()).unwrap();
        let mut ends = vec![log.len()];
        for batch in &batches {
            let bytes = log.append(batch).unwrap();
            ends.push(ends[ends.len() - 1] + bytes);
        }
        log.stop(77, &first, &table()).unwrap();

        let mut reader = LogReader::open(&disk, 3).unwrap();
        prop_assert_eq!((reader.header(), reader.start()), (&header(3, 7), start));
        // Others' incarnations come first in this table.
        let mut others = NodeTable::new();
        others.intern(&super::node::node_id("other", 1)).unwrap();
        reader.name_into(others);
        let begun = reader.next().unwrap().unwrap();
        prop_assert_eq!(begun.knowledge.unwrap().mark, first.mark.clone());
        for (batch, end) in batches.iter().zip(&ends[1..]) {
            let read = reader.next().unwrap().unwrap();
            prop_assert_eq!((read.time_ms, read.end), (batch.time_ms, *end));
            prop_assert_eq!(ops_text(&read.ops, reader.table()), ops_text(&batch.ops, &table()));
            let by_id = |k: &Knowledge, t: &NodeTable| {
                (k.id.clone(), k.tick, k.tock, k.mark.clone(), k.group.clone(),
                    crate::model::seen::export_seen(t, &k.seen),
                    k.decided.as_ref().map(|d| crate::model::seen::export_seen(t, &d.pair.seen)))
            };
            prop_assert_eq!(
                read.knowledge.as_ref().map(|k| by_id(k, reader.table())),
                batch.knowledge.as_ref().map(|k| by_id(k, &table()))
            );
        }
        let stopped = reader.next().unwrap().unwrap();
        prop_assert!(stopped.is_stop && reader.next().unwrap().is_none());
    }
}

/// More ranges than fit a record, a frame, and the list that a small set is.
fn fragmented() -> Seen {
    let mut seen = Seen::new();
    for node in 0..2 {
        let mut ticks = TickSet::new();
        for n in 1..20_000_u64 {
            ticks.insert_range(n * 1_000_003, n * 1_000_003 + n);
        }
        seen.union_node(NodeIndex(node), &ticks);
    }
    seen
}

#[test]
fn sets_of_very_many_ranges_come_back() {
    let disk = MemoryDisk::new();
    let mut knowledge = TestNode::new(7).engine.knowledge();
    knowledge.seen = fragmented();
    knowledge.id = table().get(NodeIndex(0)).unwrap().clone();
    let mut log =
        LogWriter::create(&disk, &header(1, 7), LogStart::Empty, &knowledge, &table()).unwrap();
    let table = std::sync::Arc::new(table());
    let batch = Batch { time_ms: 5, table, ops: Vec::new(), knowledge: Some(knowledge.clone()) };
    log.append(&batch).unwrap();
    log.sync().unwrap();
    let mut reader = LogReader::open(&disk, 1).unwrap();
    for _ in 0..2 {
        assert_eq!(reader.next().unwrap().unwrap().knowledge.as_ref(), Some(&knowledge));
    }
}

#[test]
fn the_longest_entries_fit_a_frame_and_a_batch_many() {
    let mut node = TestNode::new(7);
    let value = vec![0xc6]
        .into_iter()
        .chain((crate::model::limits::VALUE_BYTES_MAX as u32 - 5).to_be_bytes())
        .chain(std::iter::repeat_n(9, crate::model::limits::VALUE_BYTES_MAX - 5))
        .collect::<Vec<u8>>();
    assert!(value.len() < FRAME_BYTES_MAX);
    let batch = node.batch(|engine, out| {
        for n in 0..2 {
            super::node::write(engine, &format!("k{n}"), Some(&value), out);
        }
    });
    assert_eq!(batch.ops.len(), 2);
    let disk = MemoryDisk::new();
    let knowledge = TestNode::new(7).engine.knowledge();
    let start = LogStart::Empty;
    let mut log =
        LogWriter::create(&disk, &header(1, 7), start, &knowledge, node.engine.table()).unwrap();
    log.append(&batch).unwrap();
    log.sync().unwrap();
    let mut reader = LogReader::open(&disk, 1).unwrap();
    assert!(reader.next().unwrap().unwrap().ops.is_empty());
    let read = reader.next().unwrap().unwrap();
    assert_eq!(ops_text(&read.ops, reader.table()), ops_text(&batch.ops, node.engine.table()));
    assert!(reader.next().unwrap().is_none());
    assert_eq!(list_image(&loaded(&saved(&node.image()))), node.listing());
}

#[test]
fn a_log_that_is_being_written_is_followed() {
    let disk = MemoryDisk::new();
    let mut node = TestNode::new(7);
    let knowledge = node.engine.knowledge();
    let mut log =
        LogWriter::create(&disk, &header(1, 7), LogStart::Empty, &knowledge, node.engine.table())
            .unwrap();
    log.append(&node.set("x", Some(1))).unwrap();
    log.append(&node.set("y", Some(2))).unwrap();
    log.flush().unwrap();
    let bytes = disk.content("log-1.dkv").unwrap();
    let shared = Growing::default();
    let mut reader = None;
    let mut read = 0;
    for byte in bytes {
        shared.0.lock().push(byte);
        if reader.is_none() {
            // An incomplete header is an error; a follower tries again.
            let source = Box::new(GrowingReader { all: shared.clone(), at: 0 });
            reader = LogReader::new("log-1.dkv", source).ok();
        }
        while let Some(reader) = &mut reader
            && reader.next().unwrap().is_some()
        {
            read += 1;
        }
    }
    assert_eq!(read, 3);
}

#[derive(Clone, Default)]
struct Growing(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);

struct GrowingReader {
    all: Growing,
    at: usize,
}

impl std::io::Read for GrowingReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let all = self.all.0.lock();
        let read = all.get(self.at..).unwrap_or_default().len().min(buffer.len());
        buffer[..read].copy_from_slice(&all[self.at..self.at + read]);
        self.at += read;
        Ok(read)
    }
}

#[test]
fn a_snapshot_appears_under_its_name_when_it_is_whole() {
    let disk = MemoryDisk::new();
    let mut node = TestNode::new(7);
    for n in 0..5_000 {
        node.set(&format!("k.{n}"), (n % 7 != 0).then_some(n));
    }
    let mut reports = Vec::new();
    disk.put("snapshot-3.dkv.tmp", b"left over");
    let info =
        write_snapshot(&disk, &header(3, 7), &node.image(), &mut |p| reports.push(p)).unwrap();
    let names: Vec<String> = disk.list().unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, [snapshot_name(3)]);
    assert!(reports.len() > 1 && reports.iter().all(|p| p.total == info.entries));
    assert_eq!(reports.last().unwrap().bytes, info.bytes);
    let source = disk.open(&info.name).unwrap();
    let summary = verify_snapshot(&info.name, source, &mut |_| {}).unwrap();
    assert_eq!((summary.entries, summary.tombstones), (info.entries, info.tombstones));
    assert_eq!(summary.bytes, disk.content(&info.name).unwrap().len() as u64);
}
