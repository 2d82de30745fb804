//! The directory in which clients may write files, and nothing else.
//!
//! A client names a file by a plain name: no separators, no leading dot. It is first written under
//! another name, chosen by us, and then renamed: to a name that is free, or to that of a file that
//! was made this way before. Any other file is left alone, whatever it is: a list beside the files
//! ([`LIST_NAME`]) says which are ours, by inode. Everything goes through one descriptor of the
//! directory, so that nobody can put another directory in its place, and no symbolic link is
//! followed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::rt;
use crate::storage::{Disk, DiskEntry, DiskFile, FileId};

/// Longest name of a client's file.
const NAME_BYTES_MAX: usize = 100;
/// Most files of clients at once: one more needs the operator.
const FILES_MAX: usize = 64;
/// The list of the files that clients had made.
const LIST_NAME: &str = ".made-by-clients";
/// Most bytes of the list that are read: this many names fit, each with the ids of two files.
const LIST_BYTES_MAX: u64 = 64 << 10;

/// Why a client's file is not written. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(in crate::node) enum ClientFileError {
    /// The name is none that a client may give.
    #[error(
        "{0:?} cannot be a file's name here: give 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or \
         '-', with a letter or digit first; files are written into the directory that this node's \
         operator chose"
    )]
    Name(String),
    /// There is something else of that name.
    #[error("{0:?} is there already, and was not made by a client; choose another name")]
    Exists(String),
    /// There are too many.
    #[error(
        "clients have had {FILES_MAX} files made, as many as may be; this node's operator can \
             remove some"
    )]
    TooMany,
    /// The system refused.
    #[error("{name:?} cannot be written: {source}")]
    Io {
        /// The file.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

/// The directory.
pub(in crate::node) struct ClientFiles {
    directory: OwnedFd,
    /// Held while names are given.
    names: Mutex<()>,
}

/// A file that has no name yet. Dropped without one, it is removed.
pub(in crate::node) struct NewFile<'a> {
    files: &'a ClientFiles,
    name: String,
    temporary: String,
    file: File,
    is_named: bool,
}

/// A file as the whole disk of a writer of one file: any name stands for it.
pub(in crate::node) struct OneFile {
    file: Mutex<Option<File>>,
}

impl OneFile {
    /// For a file that is open and empty.
    pub(in crate::node) fn new(file: File) -> Self {
        Self { file: Mutex::new(Some(file)) }
    }
}

impl Disk for OneFile {
    fn create(&self, _: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.file.lock().take().ok_or(io::ErrorKind::AlreadyExists)?;
        Ok(Box::new(OpenFile(file)))
    }

    fn open(&self, _: &str) -> io::Result<Box<dyn Read + Send>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn list(&self) -> io::Result<Vec<DiskEntry>> {
        Ok(Vec::new())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&self, _: &str, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_file(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

struct OpenFile(File);

impl Write for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl DiskFile for OpenFile {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn id(&self) -> io::Result<FileId> {
        let metadata = self.0.metadata()?;
        let Id { inode, born_ns } = Id::of(&metadata);
        Ok(FileId { device: metadata.dev(), inode, born_ns })
    }
}

/// The identity of a file, besides its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Id {
    inode: u64,
    born_ns: u64,
}

impl ClientFiles {
    /// Opens the directory.
    ///
    /// # Errors
    /// It is none, or may not be used.
    pub(in crate::node) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let files = Self { directory, names: Mutex::new(()) };
        // A directory that cannot be written to should be known at the start.
        let probe = files.create(&temporary_name())?;
        drop(probe);
        files.remove_leftovers()?;
        Ok(files)
    }

    /// Removes what a node that crashed was writing.
    fn remove_leftovers(&self) -> io::Result<()> {
        for entry in rustix::fs::Dir::read_from(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if is_temporary(&name) {
                rustix::fs::unlinkat(&self.directory, &*name, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Begins a file that is to have this name.
    ///
    /// # Errors
    /// [`ClientFileError`].
    pub(in crate::node) fn begin(&self, name: &str) -> Result<NewFile<'_>, ClientFileError> {
        check_name(name)?;
        // Once now, so that nothing is written in vain, and again when it gets its name.
        self.check_place(name).map(drop)?;
        let temporary = temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = self.open_at(&temporary, flags).map_err(failed(name))?;
        Ok(NewFile { files: self, name: name.to_owned(), temporary, file, is_named: false })
    }

    /// Whether there is anything of this name.
    pub(in crate::node) fn has(&self, name: &str) -> bool {
        let is_none = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        check_name(name).is_ok() && !self.open_at(name, OFlags::RDONLY).as_ref().is_err_and(is_none)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let file = self.open_at(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?;
        Ok(file)
    }

    fn open_at(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // Neither links nor whatever would have to be waited for.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(File::from(rustix::fs::openat(&self.directory, name, flags, mode)?))
    }

    /// Whether a file may be put at a name: the name is free, or its file was made by a client.
    /// Returns the list of those.
    fn check_place(&self, name: &str) -> Result<List, ClientFileError> {
        let list = self.load_list().map_err(failed(LIST_NAME))?;
        let is_new = match self.open_at(name, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            // A link, or what may not be read.
            Err(_) => return Err(ClientFileError::Exists(name.to_owned())),
            Ok(file) => {
                let metadata = file.metadata().map_err(failed(name))?;
                let is_ours = list.has(name, Id::of(&metadata));
                if !metadata.is_file() || metadata.nlink() != 1 || !is_ours {
                    return Err(ClientFileError::Exists(name.to_owned()));
                }
                false
            }
        };
        if is_new && list.count_without(name) >= FILES_MAX {
            return Err(ClientFileError::TooMany);
        }
        Ok(list)
    }

    fn load_list(&self) -> io::Result<List> {
        let mut text = String::new();
        match self.open_at(LIST_NAME, OFlags::RDONLY) {
            Ok(file) => drop(file.take(LIST_BYTES_MAX).read_to_string(&mut text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(List::parse(&text))
    }

    fn store_list(&self, list: &List) -> io::Result<()> {
        let temporary = temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = self.open_at(&temporary, flags)?;
        let written = file.write_all(list.text().as_bytes()).and_then(|()| file.sync_all());
        let moved = written.and_then(|()| self.rename(&temporary, LIST_NAME));
        if moved.is_err() {
            let _ = rustix::fs::unlinkat(&self.directory, &temporary, AtFlags::empty());
        }
        moved
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.directory, from, &self.directory, to)?)
    }

    /// Gives a file a name if it is free, and fails otherwise.
    fn link_new(&self, from: &str, to: &str) -> io::Result<()> {
        let directory = &self.directory;
        rustix::fs::linkat(directory, from, directory, to, AtFlags::empty())?;
        Ok(rustix::fs::unlinkat(directory, from, AtFlags::empty())?)
    }

    /// The files that exist and were made by clients; others are not theirs any more.
    fn forget_gone(&self, list: &mut List) {
        list.files.retain(|(name, id)| {
            let metadata = self.open_at(name, OFlags::RDONLY).and_then(|file| file.metadata());
            metadata.is_ok_and(|metadata| Id::of(&metadata) == *id)
        });
    }
}

impl NewFile<'_> {
    /// To write to.
    pub(in crate::node) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// To read the written file, from its beginning.
    pub(in crate::node) fn reader(&self) -> Result<File, ClientFileError> {
        let file = self.files.open_at(&self.temporary, OFlags::RDONLY);
        file.map_err(failed(&self.name))
    }

    /// Another handle of the same file, to go on writing when it has its name.
    pub(in crate::node) fn handle(&self) -> Result<File, ClientFileError> {
        self.file.try_clone().map_err(failed(&self.name))
    }

    /// Syncs the written file, and gives it its name.
    ///
    /// # Errors
    /// [`ClientFileError`]; then nothing of it stays.
    pub(in crate::node) fn finish(mut self) -> Result<(), ClientFileError> {
        let (files, name) = (self.files, self.name.clone());
        self.file.sync_all().map_err(failed(&name))?;
        let metadata = self.file.metadata().map_err(failed(&name))?;
        let _turn = files.names.lock();
        let mut list = files.check_place(&name)?;
        files.forget_gone(&mut list);
        let is_new = !list.files.iter().any(|(known, _)| *known == name);
        // The list first: a listed file that does not exist does no harm, but a file that is not
        // listed could never be replaced.
        list.files.push((name.clone(), Id::of(&metadata)));
        files.store_list(&list).map_err(failed(LIST_NAME))?;
        let moved = match is_new {
            true => files.link_new(&self.temporary, &name),
            false => files.rename(&self.temporary, &name),
        };
        moved.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ClientFileError::Exists(name.clone()),
            _ => ClientFileError::Io { name: name.clone(), source: error },
        })?;
        self.is_named = true;
        rustix::fs::fsync(&files.directory).map_err(io::Error::from).map_err(failed(&name))
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.is_named {
            let _ = rustix::fs::unlinkat(&self.files.directory, &self.temporary, AtFlags::empty());
        }
    }
}

impl Id {
    fn of(metadata: &std::fs::Metadata) -> Self {
        let born = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or(0);
        Self { inode: metadata.ino(), born_ns }
    }
}

/// The files made by clients. A name may be there twice: for the old file and for the new one.
#[derive(Default)]
struct List {
    files: Vec<(String, Id)>,
}

impl List {
    /// Malformed lines name nothing.
    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split(' ');
            let name = words.next().filter(|name| check_name(name).is_ok())?;
            let inode = words.next()?.parse().ok()?;
            let born_ns = words.next()?.parse().ok()?;
            Some((name.to_owned(), Id { inode, born_ns }))
        };
        Self { files: text.lines().filter_map(line).collect() }
    }

    fn text(&self) -> String {
        let line = |(name, id): &(String, Id)| format!("{name} {} {}\n", id.inode, id.born_ns);
        self.files.iter().map(line).collect()
    }

    fn has(&self, name: &str, id: Id) -> bool {
        self.files.iter().any(|(known, its)| known == name && *its == id)
    }

    fn count_without(&self, name: &str) -> usize {
        let mut others: Vec<&str> =
            self.files.iter().map(|(known, _)| known.as_str()).filter(|k| *k != name).collect();
        others.sort_unstable();
        others.dedup();
        others.len()
    }
}

/// A name that cannot be guessed, for a file being written.
fn temporary_name() -> String {
    format!(".{:016x}{:016x}.tmp", rt::random_u64(), rt::random_u64())
}

/// Whether a name is one of ours for files on their way.
fn is_temporary(name: &str) -> bool {
    let digits = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".tmp"));
    digits.is_some_and(|d| d.len() == 32 && d.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// A client's name for a file: nothing that means something to a file system or a shell.
fn check_name(name: &str) -> Result<(), ClientFileError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(ClientFileError::Name(name.chars().take(NAME_BYTES_MAX).collect()))
}

fn failed(name: &str) -> impl FnOnce(io::Error) -> ClientFileError {
    let name = name.to_owned();
    move |source| ClientFileError::Io { name, source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(files: &ClientFiles, name: &str, content: &str) -> Result<(), ClientFileError> {
        let mut new = files.begin(name)?;
        new.file().write_all(content.as_bytes()).unwrap();
        new.finish()
    }

    fn refusal(files: &ClientFiles, name: &str) -> &'static str {
        match write(files, name, "evil") {
            Ok(()) => "written",
            Err(ClientFileError::Name(_)) => "name",
            Err(ClientFileError::Exists(_)) => "exists",
            Err(ClientFileError::TooMany) => "too many",
            Err(ClientFileError::Io { .. }) => "io",
        }
    }

    /// All files, without the list.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
        let mut names: Vec<String> = entries.map(|e| name(e).unwrap()).collect();
        names.retain(|name| name != LIST_NAME);
        names.sort_unstable();
        names
    }

    #[test]
    fn a_file_is_there_when_it_is_whole_and_can_be_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = ClientFiles::open(folder.path()).unwrap();
        write(&files, "state.1", "one").unwrap();
        let begun = files.begin("state.2").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("state.1")).unwrap(), "one");
        assert_eq!(names(folder.path()).len(), 2, "one without its name");
        drop(begun);
        assert_eq!(names(folder.path()), ["state.1"]);
        write(&files, "state.1", "two").unwrap();
        std::mem::forget(files.begin("state.2").unwrap());
        drop(files);
        // Also by the next life of the node, which finds what the one before left.
        let files = ClientFiles::open(folder.path()).unwrap();
        write(&files, "state.1", "three").unwrap();
        assert_eq!(names(folder.path()), ["state.1"]);
        assert_eq!(fs::read_to_string(folder.path().join("state.1")).unwrap(), "three");
        let mode = fs::metadata(folder.path().join("state.1")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("files");
        fs::create_dir(&folder).unwrap();
        fs::create_dir(folder.join("sub")).unwrap();
        let files = ClientFiles::open(&folder).unwrap();
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for name in [
            "",
            ".",
            "..",
            "/etc/passwd",
            "../evil",
            "sub/evil",
            "sub/../../evil",
            "./evil",
            ".hidden",
            LIST_NAME,
            "-rf",
            "a\0b",
            "a\nb",
            "a b",
            "ä",
            "a\\b",
            "~",
            "$HOME",
            &long,
        ] {
            assert_eq!(refusal(&files, name), "name", "{name:?}");
        }
        assert_eq!(names(&folder), ["sub"]);
        assert_eq!(names(outer.path()), ["files"]);
    }

    #[test]
    fn what_no_client_had_made_is_left_alone() {
        let outer = tempfile::tempdir().unwrap();
        let (folder, victim) = (outer.path().join("files"), outer.path().join("victim"));
        fs::create_dir(&folder).unwrap();
        fs::write(&victim, "precious").unwrap();
        fs::write(folder.join("operators"), "precious").unwrap();
        fs::write(folder.join("linked"), "precious").unwrap();
        fs::hard_link(folder.join("linked"), outer.path().join("elsewhere")).unwrap();
        symlink(&victim, folder.join("link")).unwrap();
        symlink(outer.path().join("new"), folder.join("dangling")).unwrap();
        symlink("..", folder.join("up")).unwrap();
        fs::create_dir(folder.join("directory")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        let files = ClientFiles::open(&folder).unwrap();
        for name in ["operators", "linked", "link", "dangling", "up", "directory", "pipe"] {
            assert_eq!(refusal(&files, name), "exists", "{name}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(folder.join("operators")).unwrap(), "precious");
        assert_eq!(names(outer.path()), ["elsewhere", "files", "victim"]);
    }

    #[test]
    fn what_takes_the_place_of_a_clients_file_is_not_a_clients() {
        let folder = tempfile::tempdir().unwrap();
        let files = ClientFiles::open(folder.path()).unwrap();
        let path = folder.path().join("a");
        write(&files, "a", "clients").unwrap();
        fs::write(folder.path().join("b"), "operators").unwrap();
        fs::rename(folder.path().join("b"), &path).unwrap();
        assert_eq!(refusal(&files, "a"), "exists");
        assert_eq!(fs::read_to_string(&path).unwrap(), "operators");
        // Also between the beginning and the end.
        let begun = files.begin("c").unwrap();
        fs::write(folder.path().join("c"), "operators").unwrap();
        assert!(matches!(begun.finish(), Err(ClientFileError::Exists(_))));
        assert_eq!(fs::read_to_string(folder.path().join("c")).unwrap(), "operators");
        assert_eq!(names(folder.path()), ["a", "c"]);
    }

    #[test]
    fn another_directory_in_its_place_changes_nothing() {
        let outer = tempfile::tempdir().unwrap();
        let (folder, other) = (outer.path().join("files"), outer.path().join("other"));
        fs::create_dir(&folder).unwrap();
        let files = ClientFiles::open(&folder).unwrap();
        fs::rename(&folder, outer.path().join("moved")).unwrap();
        fs::create_dir(&other).unwrap();
        symlink(&other, &folder).unwrap();
        write(&files, "a", "x").unwrap();
        assert!(names(&other).is_empty());
        assert_eq!(names(&outer.path().join("moved")), ["a"]);
    }

    #[test]
    fn clients_cannot_have_any_number_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let files = ClientFiles::open(folder.path()).unwrap();
        for n in 0..FILES_MAX {
            write(&files, &format!("f{n}"), "x").unwrap();
        }
        assert_eq!(refusal(&files, "one-more"), "too many");
        write(&files, "f0", "again").unwrap();
        fs::remove_file(folder.path().join("f1")).unwrap();
        write(&files, "f0", "which looks what is gone").unwrap();
        write(&files, "one-more", "x").unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_known_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ClientFiles::open(&folder.path().join("missing")).is_err());
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(ClientFiles::open(&folder.path().join("file")).is_err());
    }

    #[test]
    fn a_list_that_somebody_wrote_names_only_what_it_can() {
        let list = List::parse("a 1 2\n../b 1 2\nc x y\n\nd 1\ne 3 4 more\n");
        let names: Vec<&str> = list.files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "e"]);
        assert_eq!(List::parse(&list.text()).files, list.files);
    }
}
