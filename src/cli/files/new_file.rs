//! A new file. It is written under another name, synced and then renamed: whoever looks sees the old one or the new
//! one, whole. A file that is there already is replaced only if that was asked for. One that is given up or interrupted
//! goes; what a command left that was killed goes when the next one writes the same file.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path as FilePath, PathBuf};
use std::process;

use distkv_command::signals::on_ends;
use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::cannot;
use crate::cli::error::CliError;
use crate::rt;
use crate::storage::data_dir::LOCK_NAME;
use crate::storage::snapshot::temporary_name;

/// Files can hold all that a node holds, and secrets: they are for their user only.
const FILE_MODE: u32 = 0o600;
/// What is no secret is for all whom the umask lets read it.
const PUBLIC_MODE: u32 = 0o644;

/// What becomes of a file that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Existing {
    /// It stays, and nothing is written.
    Keep,
    /// It is replaced (`--force`).
    Replace,
}

impl Existing {
    /// As `--force` says.
    pub(in crate::cli) fn of_force(force: bool) -> Existing {
        if force { Existing::Replace } else { Existing::Keep }
    }

    /// Checks that a file may get this name, before anything is done for it; `-` is standard output.
    pub(in crate::cli) fn check(self, to: &FilePath) -> Result<(), CliError> {
        if to == FilePath::new("-") {
            return Ok(());
        }
        if to.is_dir() || to.as_os_str().as_encoded_bytes().ends_with(b"/") {
            let text = format!("{} is a directory; name a file in it", to.display());
            return Err(CliError::Failure(text));
        }
        if is_special(to) {
            let text = format!("{} is no plain file; `-` is standard output", to.display());
            return Err(CliError::Failure(text));
        }
        // A link is there, too, also one that leads nowhere.
        match fs::symlink_metadata(to) {
            Ok(_) if self != Existing::Replace => Err(Self::exists(to)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn exists(to: &FilePath) -> CliError {
        CliError::Failure(format!(
            "{} exists already; take another name, or replace it with --force",
            to.display()
        ))
    }
}

/// What is not whole yet.
struct Unfinished {
    /// Where the files are: one or two.
    files: Vec<PathBuf>,
    /// What this command has put into a data directory, or will.
    state: Option<UnfinishedState>,
    /// A file that may be the only one with a secret that is in force.
    doubt: Option<Doubt>,
    /// What there is of what was to be written, for people; nothing where that is all.
    written: &'static str,
}

/// A file that is written, and whose secret a node has been sent: nobody knows yet whether it is in force.
struct Doubt {
    temporary: PathBuf,
    to: PathBuf,
    /// What people are told of it, by the name that it gets.
    told: Box<dyn Fn(&FilePath) -> String + Send>,
}

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished {
    files: Vec::new(),
    state: None,
    doubt: None,
    written: "nothing was written",
});

/// From now on, a signal that ends this command removes what it has not finished. For commands that write files, and
/// change nothing where a signal may come; others look at an [`Interrupt`](crate::cli::terminal::interrupt::Interrupt).
///
/// # Errors
/// The system has no room for it.
pub(in crate::cli) fn tidy_when_interrupted(json: bool) -> Result<(), CliError> {
    on_ends(move |_| {
        let unfinished = UNFINISHED.lock();
        let kept =
            unfinished.doubt.as_ref().map(|doubt| match name_beside(&doubt.temporary, &doubt.to) {
                Ok(kept) => (doubt.told)(&kept),
                Err(error) => lost_in_doubt(&doubt.to, &error),
            });
        for file in &unfinished.files {
            let _ = fs::remove_file(file);
        }
        let what = match (&unfinished.state, kept) {
            (Some(state), _) => state.take_away().to_owned(),
            (None, Some(kept)) => kept,
            (None, None) => unfinished.written.to_owned(),
        };
        process::exit(i32::from(CliError::Interrupted(what).tell(json)));
    })
}

fn lost_in_doubt(to: &FilePath, error: &io::Error) -> String {
    format!(
        "the new secret may be in force already, and is lost, since no file could be kept beside {} ({error}): type the \
         command again",
        to.display()
    )
}

/// Writes to standard output, where what was written stays.
pub(in crate::cli) fn write_to_stdout<T>(write: impl FnOnce() -> T) -> T {
    UNFINISHED.lock().written = "what standard output has is not whole";
    let done = write();
    UNFINISHED.lock().written = "";
    done
}

/// What goes if a state does not get into a data directory as a whole: else a node would take the directory for a new one,
/// and begin with nothing.
#[derive(Default)]
struct UnfinishedState {
    files: Vec<PathBuf>,
    /// Those that were not there before, from the bottom up.
    folders: Vec<PathBuf>,
    /// Whether the file that it is written to takes the place of another one, and may have done so.
    replaces: bool,
}

impl UnfinishedState {
    /// Removes it all; says what is left.
    fn take_away(&self) -> &'static str {
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
        for folder in &self.folders {
            // Only if it is empty: what somebody else has put there stays.
            let _ = fs::remove_dir(folder);
        }
        if self.replaces { "all was restored, or nothing" } else { "nothing was restored" }
    }
}

/// A data directory that gets a state, until it has it ([`Self::is_done`]): an interruption leaves it as it was, and so does
/// an error. For after [`tidy_when_interrupted`].
pub(in crate::cli) struct StateInto<'a> {
    pub(in crate::cli) directory: &'a FilePath,
    /// Whether the file that is locked was there before.
    had_lock: bool,
}

impl<'a> StateInto<'a> {
    /// Before anything is read or made.
    pub(in crate::cli) fn begin(directory: &'a FilePath) -> Self {
        let folders = directory.ancestors().take_while(|folder| {
            !folder.as_os_str().is_empty() && fs::symlink_metadata(folder).is_err()
        });
        let folders = folders.map(FilePath::to_owned).collect();
        UNFINISHED.lock().state = Some(UnfinishedState { folders, ..UnfinishedState::default() });
        Self { directory, had_lock: directory.join(LOCK_NAME).exists() }
    }

    /// The directory is there, and locked: before that, the lock may be another's.
    pub(in crate::cli) fn is_locked(&self) {
        if !self.had_lock {
            let mut unfinished = UNFINISHED.lock();
            unfinished.state.get_or_insert_default().files.push(self.directory.join(LOCK_NAME));
        }
    }

    /// From now on, it is written to this file.
    pub(in crate::cli) fn is_written_to(&self, name: &str) {
        let file = self.directory.join(name);
        let mut unfinished = UNFINISHED.lock();
        let state = unfinished.state.get_or_insert_default();
        state.files.push(self.directory.join(temporary_name(name)));
        if file.exists() {
            state.replaces = true;
        } else {
            state.files.push(file);
        }
    }

    /// The directory has it.
    pub(in crate::cli) fn is_done(&self) {
        UNFINISHED.lock().state = None;
    }

    /// It does not get it: what was made for it goes. While the directory is locked; afterwards a node may use it.
    pub(in crate::cli) fn give_up(&self) {
        let unfinished = UNFINISHED.lock().state.take();
        if let Some(state) = unfinished {
            state.take_away();
        }
    }
}

impl Drop for StateInto<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Whether it is a pipe, a device or the like: it cannot be replaced, and has nothing that is lost.
pub(in crate::cli) fn is_special(path: &FilePath) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// What is said of a link, behind its name.
pub(super) const LINK_ADVICE: &str = " is a symbolic link, and no secret is written through one; name the file itself, or remove the link";

/// Whether it is a symbolic link, wherever that leads.
pub(super) fn is_link(path: &FilePath) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

/// A file that is being written next to the one that it will be.
pub(in crate::cli) struct NewFile {
    to: PathBuf,
    existing: Existing,
    /// Where it is until then.
    temporary: PathBuf,
    /// What is written to. It is locked, so that others see that somebody writes it.
    pub(in crate::cli) file: File,
    is_done: bool,
}

impl NewFile {
    /// Begins one. Behind a symbolic link, it is the file that the link leads to that is replaced, and not the link:
    /// that may be anybody's, like /dev/stdout.
    pub(in crate::cli) fn create(to: &FilePath, existing: Existing) -> Result<NewFile, CliError> {
        Self::create_as(to, existing, FILE_MODE)
    }

    /// The same for what is no secret.
    pub(in crate::cli) fn create_public(
        to: &FilePath,
        existing: Existing,
    ) -> Result<NewFile, CliError> {
        Self::create_as(to, existing, PUBLIC_MODE)
    }

    /// The same for a ticket or a private key, which is not written through a symbolic link: what that leads to is not the
    /// file that was named, and others may have made the link.
    pub(in crate::cli) fn create_secret(
        to: &FilePath,
        existing: Existing,
    ) -> Result<NewFile, CliError> {
        if is_link(to) {
            return Err(CliError::Failure(format!("{}{LINK_ADVICE}", to.display())));
        }
        existing.check(to)?;
        // If a link gets the name now, it is the link that is replaced.
        Self::begin(to, existing, FILE_MODE)
    }

    fn create_as(to: &FilePath, existing: Existing, mode: u32) -> Result<NewFile, CliError> {
        existing.check(to)?;
        let real = if is_link(to) { Some(fs::canonicalize(to)) } else { None };
        let real = real.transpose().map_err(|error| cannot("follow the link", to, error))?;
        Self::begin(real.as_deref().unwrap_or(to), existing, mode)
    }

    /// Begins one that never gets a name, and goes when it is dropped: beside this one, or as if it were.
    pub(in crate::cli) fn scratch(beside: &FilePath) -> Result<NewFile, CliError> {
        Self::begin(beside, Existing::Keep, FILE_MODE)
    }

    fn begin(to: &FilePath, existing: Existing, mode: u32) -> Result<NewFile, CliError> {
        let name = to
            .file_name()
            .ok_or_else(|| CliError::Usage(format!("{} is no name for a file", to.display())))?;
        let folder = folder_of(to);
        remove_abandoned(folder, name);
        let (temporary, file) =
            begin(folder, name, mode).map_err(|error| cannot("write", to, error))?;
        Ok(NewFile { to: to.to_owned(), existing, temporary, file, is_done: false })
    }

    /// Where it is while it is written.
    pub(in crate::cli) fn temporary(&self) -> PathBuf {
        self.temporary.clone()
    }

    /// What is written has a secret that a node is sent now. Until the file is finished, kept or dropped, an interruption
    /// keeps it as [`Self::keep_beside`] does. `told`: what people are told then, by the name that it gets.
    pub(in crate::cli) fn keep_when_interrupted(
        &self,
        told: impl Fn(&FilePath) -> String + Send + 'static,
    ) {
        let (temporary, to, told) = (self.temporary.clone(), self.to.clone(), Box::new(told));
        UNFINISHED.lock().doubt = Some(Doubt { temporary, to, told });
    }

    /// Nobody knows whether the secret in it is in force: it gets a name beside that which it was for, where a file stays
    /// that may be right. It replaces nothing. Gives that name.
    ///
    /// # Errors
    /// It cannot be kept, so the secret is lost. The text says so.
    pub(in crate::cli) fn keep_beside(mut self) -> Result<PathBuf, String> {
        let mut unfinished = UNFINISHED.lock();
        let kept = name_beside(&self.temporary, &self.to)
            .map_err(|error| lost_in_doubt(&self.to, &error))?;
        forget(&mut unfinished, &self.temporary);
        drop(unfinished);
        self.is_done = true;
        // The name is there; that a power cut may take it changes nothing that is told.
        let _ = File::open(folder_of(&kept)).and_then(|folder| folder.sync_all());
        Ok(kept)
    }

    /// All is written: makes it safe, and gives it its name.
    pub(in crate::cli) fn finish(mut self) -> Result<(), CliError> {
        let named = self.file.sync_all().and_then(|()| {
            // From here on, a signal finds it as it should be.
            let mut unfinished = UNFINISHED.lock();
            self.take_name()?;
            forget(&mut unfinished, &self.temporary);
            unfinished.written = "";
            Ok(())
        });
        match named.and_then(|()| File::open(folder_of(&self.to))?.sync_all()) {
            Ok(()) => {
                self.is_done = true;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Existing::exists(&self.to))
            }
            Err(error) => Err(self.give_up(&error)),
        }
    }

    /// Another file may have got the name meanwhile.
    fn take_name(&self) -> io::Result<()> {
        if self.existing != Existing::Replace {
            return name_new(&self.temporary, &self.to);
        }
        fs::rename(&self.temporary, &self.to)
    }

    /// The error for what could not be written. The file goes, too.
    pub(in crate::cli) fn give_up(&self, error: &io::Error) -> CliError {
        cannot("write", &self.to, error)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_done {
            // It takes room, and nobody needs it. What went wrong is told already.
            let _ = fs::remove_file(&self.temporary);
        }
        forget(&mut UNFINISHED.lock(), &self.temporary);
    }
}

/// Gives a file a name that no other one has.
fn name_new(from: &FilePath, to: &FilePath) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Not every file system has links.
        Err(_) if fs::symlink_metadata(to).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Gives a file a name beside `to`: `NAME.new`, or another one where that is taken.
fn name_beside(from: &FilePath, to: &FilePath) -> io::Result<PathBuf> {
    let named = |ending: &str| {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        let path = to.with_file_name(name);
        name_new(from, &path).map(|()| path)
    };
    match named(".new") {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            named(&format!(".new-{:08x}", rt::random_u64() as u32))
        }
        named => named,
    }
}

fn folder_of(to: &FilePath) -> &FilePath {
    to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(FilePath::new("."))
}

fn forget(unfinished: &mut Unfinished, temporary: &FilePath) {
    unfinished.files.retain(|file| file != temporary);
    unfinished.doubt.take_if(|doubt| doubt.temporary == temporary);
}

/// Begins the file that will have this name. It is locked for as long as it is written.
fn begin(folder: &FilePath, name: &OsStr, mode: u32) -> io::Result<(PathBuf, File)> {
    loop {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{:08x}.tmp", rt::random_u64() as u32));
        let temporary = folder.join(hidden);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        // Before a signal is heard that would miss it.
        let mut unfinished = UNFINISHED.lock();
        let file = options.open(&temporary)?;
        let is_taken = match file.try_lock() {
            Ok(()) => file.metadata().is_ok_and(|metadata| metadata.nlink() == 0),
            Err(TryLockError::WouldBlock) => true,
            // Where files cannot be locked, nobody finds this one abandoned.
            Err(TryLockError::Error(_)) => false,
        };
        if is_taken {
            // Before it was locked, another command found it, and took it for abandoned.
            let _ = fs::remove_file(&temporary);
            continue;
        }
        unfinished.files.push(temporary.clone());
        return Ok((temporary, file));
    }
}

/// Whether a file is one that is, or was, being written, and will have this name.
fn is_temporary_of(name: &OsStr, found: &OsStr) -> bool {
    let (name, found) = (name.as_encoded_bytes(), found.as_encoded_bytes());
    let rest = found.strip_prefix(b".").and_then(|rest| rest.strip_prefix(name));
    let digits = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".tmp"));
    digits.is_some_and(|digits| digits.len() == 8 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Removes what commands have left that were killed while they wrote this file: nobody has it locked. What cannot be
/// removed stays.
fn remove_abandoned(folder: &FilePath, name: &OsStr) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if !is_temporary_of(name, &entry.file_name()) {
            continue;
        }
        // No link is followed, and no pipe is waited for.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let opened = OpenOptions::new().write(true).custom_flags(flags).open(entry.path());
        if let Ok(file) = opened
            && file.metadata().is_ok_and(|metadata| metadata.is_file())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_stays_and_the_file_behind_it_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |to: &FilePath| -> Result<(), CliError> {
            let mut new = NewFile::create(to, Existing::Replace)?;
            new.file.write_all(b"new").unwrap();
            new.finish()
        };
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/file"), "old").unwrap();
        symlink(at("elsewhere/file"), at("link")).unwrap();
        write(&at("link")).unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(at("elsewhere/file")).unwrap(), "new");
        // Where it would be written cannot be told.
        symlink(at("nowhere"), at("dangling")).unwrap();
        let error = write(&at("dangling")).unwrap_err().to_string();
        assert!(error.contains("cannot follow the link"), "{error}");
        let error = write(&at("none/")).unwrap_err().to_string();
        assert!(error.contains("is a directory; name a file in it"), "{error}");
        // Standard output is a pipe or a terminal in most cases, which cannot be replaced.
        symlink("/dev/null", at("device")).unwrap();
        let error = write(&at("device")).unwrap_err().to_string();
        assert!(error.contains("no plain file"), "{error}");
        assert!(fs::symlink_metadata(at("device")).unwrap().is_symlink());
    }

    #[test]
    fn a_name_need_not_be_text() {
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::from_bytes(b"a\xff");
        let abandoned = folder.path().join(OsStr::from_bytes(b".a\xff.0123abcd.tmp"));
        fs::write(&abandoned, "left").unwrap();
        let mut new = NewFile::create(&folder.path().join(name), Existing::Keep).unwrap();
        new.file.write_all(b"new").unwrap();
        new.finish().unwrap();
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), b"new");
        assert!(!abandoned.exists());
    }

    #[test]
    fn what_a_killed_command_left_goes_and_what_another_one_writes_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let names = || {
            let entries = fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        for left in [".a.0123abcd.tmp", ".b.0123abcd.tmp", ".a.123abcd.tmp", ".a.0123abcd", "a.tmp"]
        {
            fs::write(at(left), "left").unwrap();
        }
        fs::create_dir(at(".a.00000001.tmp")).unwrap();
        symlink(at("a.tmp"), at(".a.00000002.tmp")).unwrap();
        let others = names().len() - 1;
        let running = NewFile::create(&at("a"), Existing::Keep).unwrap();
        assert!(!at(".a.0123abcd.tmp").exists());
        let mut second = NewFile::create(&at("a"), Existing::Keep).unwrap();
        second.file.write_all(b"second").unwrap();
        assert_eq!(names().len(), others + 2, "both are being written: {:?}", names());
        second.finish().unwrap();
        assert!(running.finish().unwrap_err().to_string().contains("exists already"));
        assert_eq!(fs::read_to_string(at("a")).unwrap(), "second");
        assert_eq!(names().len(), others + 1, "{:?}", names());
    }
}
