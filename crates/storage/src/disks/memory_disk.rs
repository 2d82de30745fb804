//! A disk in memory, for tests: it counts operations, fails or fills at any of them, and a crash
//! forgets what was not synced, or some of it.
//!
//! What it models: written bytes are safe after the file's sync; names (created, renamed, removed)
//! after the directory's. At a crash each page that was not synced is there or reads as zeros, and
//! of the changes of names that were not synced the first few are kept. A write that fails may
//! have written half.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{Disk, DiskEntry, DiskFile, FileId, Room};

/// As real disks lose writes.
const PAGE_BYTES: usize = 4096;

/// The disk. A clone is the same disk.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

/// How operations fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// One operation fails, the next ones do not.
    Once,
    /// All operations fail from then on.
    Broken,
    /// There is no room: creating and writing fail from then on; the rest works.
    Full,
}

#[derive(Default, Clone)]
struct State {
    /// By number. Kept when no name is left: it may still be open.
    files: BTreeMap<u64, FileState>,
    names: BTreeMap<String, u64>,
    /// The names as of the last sync of the directory, and the changes since then.
    safe_names: BTreeMap<String, u64>,
    unsafe_changes: Vec<NameChange>,
    next_file: u64,
    /// Operations that change something.
    operations: u64,
    fault: Option<(u64, Fault)>,
    /// What it says of its room, whatever is written.
    room: Option<Room>,
}

#[derive(Default, Clone)]
struct FileState {
    content: Vec<u8>,
    /// The content as of the last sync.
    safe: Vec<u8>,
    /// The count of operations at its last change, in place of a time.
    changed: u64,
    born: u64,
}

#[derive(Clone)]
enum NameChange {
    Add(String, u64),
    Remove(String),
    Rename(String, String),
}

impl MemoryDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many operations that change something there were.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// The operation of that number, counted from 1, fails; `None`: from now on all work.
    pub fn set_fault(&self, fault: Option<(u64, Fault)>) {
        self.state.lock().fault = fault;
    }

    /// From now on it says that it has this room; `None`, as at first: it says nothing. What is written changes nothing
    /// of that.
    pub fn set_room(&self, room: Option<Room>) {
        self.state.lock().room = room;
    }

    /// The power fails and comes back. `luck` gives bits: whether an unsynced page, or change of
    /// a name, was written after all.
    pub fn crash(&self, luck: &mut dyn FnMut() -> bool) {
        let mut state = self.state.lock();
        let mut names = std::mem::take(&mut state.safe_names);
        for change in std::mem::take(&mut state.unsafe_changes) {
            if !luck() {
                break;
            }
            apply(&mut names, change);
        }
        state.names.clone_from(&names);
        state.safe_names = names;
        for file in state.files.values_mut() {
            file.crash(luck);
        }
    }

    /// A copy of everything, as made by `cp`: the same names and contents, other files.
    #[must_use]
    pub fn copy(&self) -> Self {
        let state = self.state.lock();
        let mut copy = State { next_file: state.next_file + 1_000, ..State::default() };
        for (name, number) in &state.names {
            let Some(file) = state.files.get(number) else { continue };
            let number = copy.next_file;
            copy.next_file += 1;
            copy.files.insert(
                number,
                FileState {
                    content: file.content.clone(),
                    safe: file.content.clone(),
                    changed: number,
                    born: number,
                },
            );
            copy.names.insert(name.clone(), number);
        }
        copy.safe_names = copy.names.clone();
        Self { state: Arc::new(Mutex::new(copy)) }
    }

    /// A disk whose files are these very ones, which goes its own way: as a virtual machine's disk
    /// is set back.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { state: Arc::new(Mutex::new(self.state.lock().clone())) }
    }

    /// A file's content.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        Some(state.files.get(state.names.get(name)?)?.content.clone())
    }

    /// Puts a file there, safely, or gives the one of that name another content; it stays the same
    /// file then. Counts as nothing.
    pub fn put(&self, name: &str, content: &[u8]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let next = state.next_file;
        let number = *state.names.entry(name.to_owned()).or_insert(next);
        if number == next {
            state.next_file += 1;
        }
        state.safe_names.insert(name.to_owned(), number);
        // After whatever happened to that name and is not safe yet.
        state.unsafe_changes.push(NameChange::Add(name.to_owned(), number));
        let (content, operations) = (content.to_vec(), state.operations);
        let file = state.files.entry(number).or_default();
        (file.content, file.safe, file.changed) = (content.clone(), content, operations);
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: NameChange) {
    match change {
        NameChange::Add(name, number) => {
            names.insert(name, number);
        }
        NameChange::Remove(name) => {
            names.remove(&name);
        }
        NameChange::Rename(from, to) => {
            if let Some(number) = names.remove(&from) {
                names.insert(to, number);
            }
        }
    }
}

impl FileState {
    fn crash(&mut self, luck: &mut dyn FnMut() -> bool) {
        let mut content = self.safe.clone();
        let mut length = content.len();
        for (page, new) in self.content.chunks(PAGE_BYTES).enumerate() {
            let from = page * PAGE_BYTES;
            let old = self.safe.get(from..self.safe.len().min(from + new.len()));
            if old == Some(new) || !luck() {
                continue;
            }
            content.resize(content.len().max(from + new.len()), 0);
            if let Some(slot) = content.get_mut(from..from + new.len()) {
                slot.copy_from_slice(new);
            }
            length = length.max(from + new.len());
        }
        content.truncate(length);
        self.content.clone_from(&content);
        self.safe = content;
    }
}

impl State {
    /// Counts an operation; an error if it must fail.
    fn count(&mut self, needs_room: bool) -> io::Result<()> {
        self.operations += 1;
        let failed = match self.fault {
            Some((at, Fault::Once)) if self.operations == at => io::ErrorKind::Other,
            Some((at, Fault::Broken)) if self.operations >= at => io::ErrorKind::Other,
            Some((at, Fault::Full)) if self.operations >= at && needs_room => {
                io::ErrorKind::StorageFull
            }
            _ => return Ok(()),
        };
        Err(io::Error::new(failed, "the disk was told to fail"))
    }

    fn number(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&mut self, change: NameChange) {
        apply(&mut self.names, change.clone());
        self.unsafe_changes.push(change);
    }
}

impl Disk for MemoryDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.count(true)?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = state.next_file;
        state.next_file += 1;
        let born = state.operations;
        state.files.insert(number, FileState { born, changed: born, ..FileState::default() });
        state.change(NameChange::Add(name.to_owned(), number));
        Ok(Box::new(MemoryFile { disk: self.clone(), number }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let state = self.state.lock();
        let number = state.number(name)?;
        let content = state.files.get(&number).map(|f| f.content.clone()).unwrap_or_default();
        Ok(Box::new(Cursor::new(content)))
    }

    fn list(&self) -> io::Result<Vec<DiskEntry>> {
        let state = self.state.lock();
        let entry = |(name, number): (&String, &u64)| {
            let file = state.files.get(number)?;
            let (bytes, changed_ns) = (file.content.len() as u64, file.changed);
            let id = FileId { device: 1, inode: *number, born_ns: file.born };
            Some(DiskEntry { name: name.clone(), bytes, id, changed_ns })
        };
        Ok(state.names.iter().filter_map(entry).collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.count(false)?;
        state.number(from)?;
        state.change(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.number(name)?;
        state.count(false)?;
        state.change(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.count(false)?;
        let number = state.number(name)?;
        let operations = state.operations;
        if let Some(file) = state.files.get_mut(&number) {
            file.content.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
            file.safe.clone_from(&file.content);
            file.changed = operations;
        }
        Ok(())
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.count(false)?;
        let number = state.number(name)?;
        if let Some(file) = state.files.get_mut(&number) {
            file.safe.clone_from(&file.content);
        }
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.count(false)?;
        let state = &mut *state;
        for change in state.unsafe_changes.drain(..) {
            apply(&mut state.safe_names, change);
        }
        Ok(())
    }

    fn room(&self) -> io::Result<Room> {
        self.state.lock().room.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    number: u64,
}

impl Write for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state.lock();
        let counted = state.count(true);
        // Half of a failed write is there all the same.
        let written = if counted.is_ok() { bytes.len() } else { bytes.len() / 2 };
        let operations = state.operations;
        if let Some(file) = state.files.get_mut(&self.number) {
            file.content.extend_from_slice(bytes.get(..written).unwrap_or_default());
            file.changed = operations;
        }
        counted.map(|()| written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.count(false)?;
        if let Some(file) = state.files.get_mut(&self.number) {
            file.safe.clone_from(&file.content);
        }
        Ok(())
    }

    fn id(&self) -> io::Result<FileId> {
        let state = self.disk.state.lock();
        let born_ns = state.files.get(&self.number).map_or(0, |f| f.born);
        Ok(FileId { device: 1, inode: self.number, born_ns })
    }
}

#[cfg(test)]
mod tests {
    use crate::memory_disk::*;

    fn write(disk: &MemoryDisk, name: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
        let mut file = disk.create(name).unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn names(disk: &MemoryDisk) -> Vec<String> {
        disk.list().unwrap().into_iter().map(|e| e.name).collect()
    }

    #[test]
    fn a_crash_forgets_what_was_not_synced() {
        let disk = MemoryDisk::new();
        let mut file = write(&disk, "a", b"one");
        file.sync().unwrap();
        disk.sync_dir().unwrap();
        file.write_all(b"two").unwrap();
        write(&disk, "b", b"new").sync().unwrap();
        disk.crash(&mut || false);
        assert_eq!((names(&disk), disk.content("a").unwrap()), (vec!["a".into()], b"one".into()));
    }

    #[test]
    fn a_lucky_crash_forgets_nothing_and_a_page_in_between_may_be_lost() {
        let disk = MemoryDisk::new();
        let mut file = write(&disk, "a", &[7; 3 * PAGE_BYTES]);
        disk.crash(&mut || true);
        assert_eq!(disk.content("a").unwrap(), [7; 3 * PAGE_BYTES]);
        file.write_all(&[8; 3 * PAGE_BYTES]).unwrap();
        let mut bits = [false, true, false].into_iter();
        disk.crash(&mut || bits.next().unwrap_or(false));
        let content = disk.content("a").unwrap();
        assert_eq!(content.len(), 5 * PAGE_BYTES);
        assert_eq!(content[3 * PAGE_BYTES..4 * PAGE_BYTES], [0; PAGE_BYTES]);
        assert_eq!(content[4 * PAGE_BYTES..], [8; PAGE_BYTES]);
    }

    #[test]
    fn an_operation_fails_once_or_the_disk_is_full_for_good() {
        let disk = MemoryDisk::new();
        disk.set_fault(Some((2, Fault::Once)));
        let mut file = disk.create("a").unwrap();
        assert!(file.write_all(b"half").is_err());
        file.write_all(b"!").unwrap();
        assert_eq!(disk.content("a").unwrap(), b"ha!");
        disk.set_fault(Some((1, Fault::Full)));
        let error = file.write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(disk.create("b").is_err());
        disk.remove("a").unwrap();
    }

    #[test]
    fn a_copy_has_other_files_and_a_fork_the_same() {
        let disk = MemoryDisk::new();
        let id = write(&disk, "a", b"x").id().unwrap();
        assert!(!disk.copy().list().unwrap()[0].id.is_same(&id));
        assert!(disk.fork().list().unwrap()[0].id.is_same(&id));
    }
}
