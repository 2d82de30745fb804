//! A node's directory that is read while the node goes on writing there.

use std::io::{self, Read};
use std::sync::Arc;

use super::damage::OPTIONS;
use super::node::{NAME, NETWORK, TestNode, header};
use crate::data_dir::DataDir;
use crate::disk::{Disk, DiskEntry, DiskFile};
use crate::header::LogStart;
use crate::log::log_name;
use crate::memory_disk::MemoryDisk;
use crate::recover::{Warning, recover};

/// What lists a log as long as it was a moment ago. It is only read.
struct Earlier {
    disk: MemoryDisk,
    bytes: u64,
}

impl Disk for Earlier {
    fn create(&self, _: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.disk.open(name)
    }

    fn list(&self) -> io::Result<Vec<DiskEntry>> {
        let mut entries = self.disk.list()?;
        let log = entries.iter_mut().find(|entry| entry.name == log_name(1));
        log.unwrap().bytes = self.bytes;
        Ok(entries)
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn truncate(&self, _: &str, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_file(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

#[test]
fn what_has_come_since_a_log_was_listed_is_not_said_to_be_cut_off() {
    let disk = MemoryDisk::new();
    let dir = DataDir::on(Arc::new(disk.clone()));
    let mut node = TestNode::new(7);
    let (knowledge, table) = (node.engine.knowledge(), Arc::clone(node.engine.table()));
    let mut log = dir.begin_log(&header(1, 7), LogStart::Empty, &knowledge, &table).unwrap();
    let mut ends = Vec::new();
    for value in 0..3 {
        log.append(&node.set("k", Some(value))).unwrap();
        log.flush().unwrap();
        ends.push(log.len());
    }
    // Of the third change, only a part is there yet.
    let mut content = disk.content(&log_name(1)).unwrap();
    content.pop();
    disk.put(&log_name(1), &content);
    let torn = |listed: u64| {
        let disk = Earlier { disk: disk.clone(), bytes: listed };
        let found = recover(&disk, NETWORK, NAME, &OPTIONS, &mut |_, _| {}).unwrap();
        found.warnings.iter().find_map(|warning| match warning {
            Warning::TornTail { bytes, .. } => Some(*bytes),
            _ => None,
        })
    };
    assert_eq!(torn(content.len() as u64), Some(content.len() as u64 - ends[1]));
    // It was listed when the second change was its end, and when the first one was.
    assert_eq!([torn(ends[1]), torn(ends[0])], [None; 2]);
}
