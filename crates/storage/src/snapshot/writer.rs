//! Writes a snapshot, below the live traffic: from a state that was taken in O(1).

use std::io::{self, Write};

use xxhash_rust::xxh64::Xxh64;

use super::{END, ENTRIES, KNOWLEDGE, Progress, snapshot_name, temporary_name};
use crate::disk::{Disk, FileId};
use crate::engine::Image;
use crate::error::StorageError;
use crate::error::absent::remove_if_there;
use crate::format::framing::Framing;
use crate::format::knowledge::write_knowledge;
use crate::format::record::{write_entry, write_node};
use crate::header::{Content, FileHeader, write_header};
use crate::model::path::Path;
use crate::model::value::write_u64;

/// Bytes that are handed to the system at once.
const WRITE_BYTES: usize = 256 << 10;

/// A snapshot that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its file's name.
    pub name: String,
    /// Its number.
    pub number: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its entries, tombstones included.
    pub entries: u64,
    /// The tombstones among them.
    pub(crate) tombstones: u64,
}

/// Writes a snapshot under its number's name: to a temporary file, which is synced, renamed, and
/// then safe. A snapshot of that number is replaced.
///
/// # Errors
/// [`StorageError`]; there is no new snapshot (or, if the last step failed, perhaps one, which is
/// whole). A temporary file is removed if the disk lets it be.
pub fn write_snapshot(
    disk: &dyn Disk,
    header: &FileHeader,
    image: &Image,
    progress: &mut dyn FnMut(Progress),
) -> Result<SnapshotInfo, StorageError> {
    write_snapshot_as(&snapshot_name(header.number), disk, header, image, progress)
}

/// The same under any name: for a snapshot that is no data directory's.
///
/// # Errors
/// As [`write_snapshot`].
fn write_snapshot_as(
    name: &str,
    disk: &dyn Disk,
    header: &FileHeader,
    image: &Image,
    progress: &mut dyn FnMut(Progress),
) -> Result<SnapshotInfo, StorageError> {
    let temporary = temporary_name(name);
    remove_if_there(disk, &temporary)?;
    let mut file = disk.create(&temporary).map_err(StorageError::io(&temporary, "create"))?;
    let written = file
        .id()
        .and_then(|id| {
            let info = write_snapshot_to(&mut *file, header, id, image, progress)?;
            file.sync()?;
            Ok(info)
        })
        .map_err(StorageError::io(&temporary, "write"));
    drop(file);
    let info = match written {
        Ok(info) => SnapshotInfo { name: name.to_owned(), ..info },
        Err(error) => {
            // It takes room and is of no use. The first error is the one to report.
            let _ = disk.remove(&temporary);
            return Err(error);
        }
    };
    disk.rename(&temporary, name).map_err(StorageError::io(&temporary, "rename"))?;
    disk.sync_dir().map_err(StorageError::io(name, "sync the directory of"))?;
    Ok(info)
}

/// Writes a snapshot anywhere. `file` is the file that it is written to, if it is one.
///
/// # Errors
/// Those of the writer.
pub fn write_snapshot_to(
    out: &mut dyn Write,
    header: &FileHeader,
    file: FileId,
    image: &Image,
    progress: &mut dyn FnMut(Progress),
) -> io::Result<SnapshotInfo> {
    let tree = &image.replica.tree;
    let (entries, tombstones) = (tree.len() as u64, tree.tombstone_len() as u64);
    let mut frames = SnapshotFrames { out, framing: Framing::new(), hash: Xxh64::new(0) };
    frames.framing.frame(|out| write_header(header, file, Content::Snapshot(entries), out));
    frames.begin(KNOWLEDGE);
    let table = &image.replica.table;
    for (_, id) in table.iter() {
        frames.record(KNOWLEDGE, |out| write_node(id, out))?;
    }
    let mut failed = Ok(());
    write_knowledge(&image.knowledge(), table, |write| {
        if failed.is_ok() {
            failed = frames.record(KNOWLEDGE, write).map(|_| ());
        }
    });
    failed?;
    frames.end()?;
    if entries > 0 {
        frames.begin(ENTRIES);
    }
    let mut done = 0;
    for (path, entry) in tree.subtree(&Path::root()) {
        if frames.record(ENTRIES, |out| write_entry(path.as_bytes(), entry, out))? {
            progress(Progress { entries: done, total: entries, bytes: frames.framing.position() });
        }
        done += 1;
    }
    frames.end()?;
    frames.write()?;
    let hash = frames.hash.digest();
    frames.framing.frame(|out| {
        for number in [END, entries, tombstones, table.len() as u64, hash] {
            write_u64(number, out);
        }
    });
    frames.write()?;
    let bytes = frames.framing.position();
    progress(Progress { entries: done, total: entries, bytes });
    Ok(SnapshotInfo {
        name: snapshot_name(header.number),
        number: header.number,
        bytes,
        entries,
        tombstones,
    })
}

/// Records on their way into frames and out.
struct SnapshotFrames<'a> {
    out: &'a mut dyn Write,
    framing: Framing,
    /// Over all that was written.
    hash: Xxh64,
}

impl SnapshotFrames<'_> {
    fn begin(&mut self, kind: u64) {
        self.framing.begin();
        write_u64(kind, self.framing.payload());
    }

    /// Adds a record, in a new frame if the open one is long enough; returns whether it was.
    fn record(&mut self, kind: u64, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<bool> {
        let is_full = self.framing.is_full();
        if is_full {
            self.end()?;
            self.begin(kind);
        }
        write(self.framing.payload());
        Ok(is_full)
    }

    fn end(&mut self) -> io::Result<()> {
        self.framing.end();
        if self.framing.bytes().len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        self.hash.update(self.framing.bytes());
        self.out.write_all(self.framing.bytes())?;
        self.framing.clear();
        Ok(())
    }
}
