//! Key files on disk: reading one that nobody else can read, and replacing one so that it is whole at
//! any time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};

use crate::error::{CliError, looks_secret};
use crate::output::shell_file;
use crate::plain_file;

use distkv_secure::key_file::{FILE_BYTES_MAX, KeyFile, KeyFileError};

/// The mode of a key file: its owner may read and write it, and nobody else anything.
const MODE: u32 = 0o600;
/// The permissions that others must not have.
const OTHERS: u32 = 0o077;

/// Why a key file cannot be used, and what to do. No text shows a secret.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileTrouble {
    /// It cannot be read.
    #[error("the key file {}: {source}{}", path.display(), hint(path, source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others than its owner can read it, or write to it.
    #[error(
        "the key file {} is open to other users (mode {mode:04o}); type: chmod 600 {}",
        path.display(), shell_file(path)
    )]
    Loose {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It does not contain what a key file does.
    #[error("{}{}{}", path.display(), place(why.line), why.problem)]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, and what is wrong there.
        why: KeyFileError,
    },
    /// There is a file already, which may be the only copy of a key.
    #[error(
        "{} exists already; take another name, or replace it with --force: whoever has only its keys is \
         shut out",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It is a link to another file, which is not the one that was named. Nothing was written.
    #[error(
        "{} is a symbolic link, and no new key is written through one; name the file itself, or remove the link",
        path.display()
    )]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// It cannot be written. What was there is as it was.
    #[error("the key file {} cannot be written: {source}{}", path.display(), write_hint(path, source))]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A file that cannot be used is a mistake of whoever names it, also if it is not there; one that cannot be written is not.
impl From<KeyFileTrouble> for CliError {
    fn from(trouble: KeyFileTrouble) -> Self {
        let text = trouble.to_string();
        match trouble {
            KeyFileTrouble::Unreadable { .. }
            | KeyFileTrouble::Loose { .. }
            | KeyFileTrouble::Damaged { .. } => Self::Usage(text),
            KeyFileTrouble::Exists { .. }
            | KeyFileTrouble::Link { .. }
            | KeyFileTrouble::Unwritable { .. } => Self::Failure(text),
        }
    }
}

fn hint(path: &Path, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if path.to_str().is_some_and(looks_secret) => {
            "; give the name of the key file, and not what is in it"
        }
        io::ErrorKind::NotFound => {
            "; copy it from another node, or make one for a new network with `distkv-node key new --network NAME --to FILE`"
        }
        io::ErrorKind::PermissionDenied => "; it must belong to the user that runs the node",
        _ => "",
    }
}

/// What to do about a new file that cannot be written; empty where that is not known.
fn write_hint(path: &Path, error: &io::Error) -> &'static str {
    let has_directory = path.parent().is_some_and(Path::is_dir);
    match error.kind() {
        // It takes no files: /proc, say.
        io::ErrorKind::NotFound if has_directory => "; name another place",
        io::ErrorKind::NotFound => "; make its directory first",
        _ => "",
    }
}

fn place(line: usize) -> String {
    if line == 0 { String::from(": ") } else { format!(", line {line}: ") }
}

/// Reads a key file that only its owner can read.
///
/// # Errors
/// [`KeyFileTrouble`] names the file, the line, and what to do.
pub fn read(path: &Path) -> Result<KeyFile, KeyFileTrouble> {
    let unreadable = |source| KeyFileTrouble::Unreadable { path: path.to_owned(), source };
    let file = plain_file::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(KeyFileTrouble::Loose { path: path.to_owned(), mode });
    }
    let mut text = zeroize::Zeroizing::new(String::new());
    let room = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
    file.take(room).read_to_string(&mut text).map_err(unreadable)?;
    KeyFile::parse(&text).map_err(|why| KeyFileTrouble::Damaged { path: path.to_owned(), why })
}

/// Makes a new key file.
///
/// # Errors
/// [`KeyFileTrouble::Exists`], [`KeyFileTrouble::Link`], [`KeyFileTrouble::Unwritable`].
pub fn create(path: &Path, file: &KeyFile) -> Result<(), KeyFileTrouble> {
    refuse_link(path)?;
    let made = write_new(path, file).and_then(|()| sync_folder(path));
    made.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileTrouble::Exists { path: path.to_owned() },
        _ => KeyFileTrouble::Unwritable { path: path.to_owned(), source },
    })
}

/// Makes a new key file, also in the place of any file that has the name: not while another process changes that one.
///
/// # Errors
/// [`KeyFileTrouble::Link`], [`KeyFileTrouble::Unwritable`]; what was there is as it was.
pub fn create_or_replace(path: &Path, file: &KeyFile) -> Result<(), KeyFileTrouble> {
    let _locked = lock_folder(path);
    refuse_link(path)?;
    // If a link gets the name now, it is the link that is replaced.
    put(path, file).map_err(|source| KeyFileTrouble::Unwritable { path: path.to_owned(), source })
}

/// A new secret does not belong where somebody else's link leads to.
fn refuse_link(path: &Path) -> Result<(), KeyFileTrouble> {
    match fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        true => Err(KeyFileTrouble::Link { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Puts a key file in the place of the one that was read there. Behind a symbolic link, that is the file that it names.
///
/// # Errors
/// [`KeyFileTrouble::Unwritable`]; what was there is as it was.
fn replace(path: &Path, file: &KeyFile) -> Result<(), KeyFileTrouble> {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    put(&real, file).map_err(|source| KeyFileTrouble::Unwritable { path: path.to_owned(), source })
}

/// Puts a key file in the place of the one that is there, if any: beside it first, then in its place. It belongs to
/// the same user, and to the same group if that can be: the node that runs as that user must be able to read it, also
/// if an administrator (root) has changed it.
fn put(real: &Path, file: &KeyFile) -> io::Result<()> {
    let mut name = real.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = real.with_file_name(name);
    // Of a replacement that was interrupted.
    let _ = fs::remove_file(&beside);
    let written = write_new(&beside, file)
        .and_then(|()| match fs::symlink_metadata(real) {
            Ok(before) => {
                let chown = |at: &Path, uid, gid| chown(at, uid, gid);
                keep_owner((before.uid(), before.gid()), &beside, chown)
            }
            // There is none that it replaces.
            Err(_) => Ok(()),
        })
        .and_then(|()| fs::rename(&beside, real));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.and_then(|()| sync_folder(real))
}

/// Changes a key file, and replaces it if the change makes a difference. While that lasts, no other process
/// changes a file in the same folder: a node, and a command, may have the same one.
///
/// The result is that of the change; if it is an error, the file is as it was.
///
/// # Errors
/// The file cannot be read, or [`KeyFileTrouble::Unwritable`]; it is as it was.
pub fn update<E>(
    path: &Path,
    change: impl FnOnce(&mut KeyFile) -> Result<(), E>,
) -> Result<Result<(), E>, KeyFileTrouble> {
    let _locked = lock_folder(&fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
    let before = read(path)?;
    let mut after = before.clone();
    if let Err(error) = change(&mut after) {
        return Ok(Err(error));
    }
    if after != before {
        replace(path, &after)?;
    }
    Ok(Ok(()))
}

/// No other process changes a file in this one's folder as long as the result is kept. None: where folders cannot be locked,
/// it goes without.
fn lock_folder(path: &Path) -> Option<File> {
    let folder = File::open(folder_of(path)).ok()?;
    folder.lock().is_ok().then_some(folder)
}

/// Writes a file that is not there yet, down to the disk.
fn write_new(path: &Path, file: &KeyFile) -> io::Result<()> {
    let mut made = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    made.write_all(file.to_text().as_bytes()).and_then(|()| made.sync_all()).inspect_err(|_| {
        // Half of a key file is none.
        let _ = fs::remove_file(path);
    })
}

/// Gives a new file to the owner (user and group) of the one that it replaces. Who is not root can give it to groups of its own
/// only: then it keeps the group that it has. Nobody gets anything by that, for the file is its owner's alone ([`MODE`]).
fn keep_owner(
    before: (u32, u32),
    new: &Path,
    chown: impl Fn(&Path, Option<u32>, Option<u32>) -> io::Result<()>,
) -> io::Result<()> {
    let after = fs::metadata(new)?;
    if before == (after.uid(), after.gid()) {
        return Ok(());
    }
    let (user, group) = before;
    match chown(new, Some(user), Some(group)) {
        Err(_) if user == after.uid() => Ok(()),
        Err(error) => chown(new, Some(user), None).map_err(|_| error),
        Ok(()) => Ok(()),
    }
}

/// So that the name survives a power cut as well.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path)).and_then(|folder| folder.sync_all())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use distkv_core::membership::NetworkName;
    use distkv_secure::key::Key;
    use distkv_secure::key_ring::KeyRing;

    fn file(secret: u8) -> KeyFile {
        let ring = KeyRing::new(NetworkName::new("plant").unwrap(), Key::new([secret; 32]));
        KeyFile { ring, ca: None }
    }

    #[test]
    fn a_file_is_read_back_as_it_was_written_and_only_its_owner_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        create(&path, &file(1)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(read(&path).unwrap(), file(1));
        replace(&path, &file(2)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(read(&path).unwrap(), file(2));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_root_replaces_stays_its_owner_s() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        create(&path, &file(1)).unwrap();
        // Only root can give a file away; for others, nothing is to change.
        let _ = chown(&path, Some(65_534), Some(65_534));
        let owner = |path: &Path| fs::metadata(path).map(|meta| (meta.uid(), meta.gid())).unwrap();
        let before = owner(&path);
        update(&path, |file| file.ring.order_add(Key::new([2; 32])).map(|_| ())).unwrap().unwrap();
        assert_eq!(owner(&path), before);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(read(&path).unwrap().ring.keys().len(), 2);
    }

    #[test]
    fn a_group_that_is_none_of_the_process_s_own_is_left_and_a_user_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("key.new");
        write_new(&new, &file(1)).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o7777, 0o600, "no group may read it");
        let own = fs::metadata(&new).unwrap();
        let (uid, gid) = (own.uid(), own.gid());
        let denied = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
        keep_owner((uid, gid + 1), &new, |_, _, _| denied()).unwrap();
        // Whoever runs the node could not read its file any more.
        keep_owner((uid + 1, gid), &new, |_, _, _| denied()).unwrap_err();
        // As where one has the right to do so, and the system does not know the group.
        let no_group = |_: &Path, _, group: Option<u32>| group.map_or(Ok(()), |_| denied());
        keep_owner((uid + 1, gid + 1), &new, no_group).unwrap();
    }

    #[test]
    fn a_file_that_was_open_to_its_group_is_not_open_to_any_when_it_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        create(&path, &file(1)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, &file(2)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn no_file_is_made_over_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        create(&path, &file(1)).unwrap();
        let again = create(&path, &file(2));
        assert!(matches!(again, Err(KeyFileTrouble::Exists { .. })), "{again:?}");
        assert_eq!(read(&path).unwrap(), file(1));
    }

    #[test]
    fn a_file_that_others_can_read_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a key");
        create(&path, &file(1)).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let text = read(&path).unwrap_err().to_string();
            let told = format!("type: chmod 600 '{}'", path.display());
            assert!(text.contains(&told) && text.contains(&format!("{mode:04o}")), "{text}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(read(&path).unwrap(), file(1));
    }

    #[test]
    fn a_damaged_file_is_an_error_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        create(&path, &file(1)).unwrap();
        fs::write(&path, "network plant\n\nkey 1f0c3a77\n").unwrap();
        let text = read(&path).unwrap_err().to_string();
        assert!(text.starts_with(&format!("{}, line 3: ", path.display())), "{text}");
        fs::write(&path, vec![b'#'; FILE_BYTES_MAX + 9]).unwrap();
        let text = read(&path).unwrap_err().to_string();
        assert!(text.contains("is this the right file?"), "{text}");
        let text = read(dir.path()).unwrap_err().to_string();
        assert!(text.contains("not a file") || text.contains("directory"), "{text}");
        let text = read(&dir.path().join("none")).unwrap_err().to_string();
        assert!(text.contains("key new --network NAME --to FILE"), "{text}");
    }

    #[test]
    fn updates_at_once_are_one_after_the_other_and_none_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        create(&path, &file(1)).unwrap();
        std::thread::scope(|scope| {
            for secret in 2..=4 {
                let path = &path;
                scope.spawn(move || {
                    let add = |file: &mut KeyFile| file.ring.order_add(Key::new([secret; 32]));
                    update(path, |file| add(file).map(|_| ())).unwrap().unwrap();
                });
            }
        });
        assert_eq!(read(&path).unwrap().ring.keys().len(), 4);
        let written = fs::metadata(&path).unwrap().ino();
        let full = update(&path, |file| file.ring.add(Key::new([9; 32])).map(|_| ()));
        assert!(full.unwrap().is_err());
        update(&path, |_| Ok::<(), ()>(())).unwrap().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), written, "it was not replaced");
    }

    #[test]
    fn a_file_is_not_replaced_while_another_process_changes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        create(&path, &file(1)).unwrap();
        let (begins, begun) = std::sync::mpsc::channel();
        let (ends, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let add = |changed: &mut KeyFile| {
                scope.spawn(|| {
                    begins.send(()).unwrap();
                    create_or_replace(&path, &file(9)).unwrap();
                    ends.send(()).unwrap();
                });
                begun.recv().unwrap();
                // It would be done long before.
                let is_done = ended.recv_timeout(std::time::Duration::from_millis(500));
                assert!(is_done.is_err(), "it was replaced meanwhile");
                changed.ring.order_add(Key::new([2; 32])).map(|_| ())
            };
            update(&path, add).unwrap().unwrap();
            ended.recv().unwrap();
        });
        assert_eq!(read(&path).unwrap(), file(9), "it came behind the change");
    }

    #[test]
    fn behind_a_symbolic_link_a_file_is_changed_and_no_new_one_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("key"), dir.path().join("link"));
        create(&path, &file(1)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace(&link, &file(2)).unwrap();
        assert_eq!(read(&path).unwrap(), file(2));
        for make in [create, create_or_replace] {
            let refused = make(&link, &file(3));
            assert!(matches!(refused, Err(KeyFileTrouble::Link { .. })), "{refused:?}");
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read(&path).unwrap(), file(2));
        // Where it got the name only after the look, it goes, and what it leads to stays.
        put(&link, &file(4)).unwrap();
        assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((read(&path).unwrap(), read(&link).unwrap()), (file(2), file(4)));
    }
}
