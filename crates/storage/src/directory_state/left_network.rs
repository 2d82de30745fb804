//! The data directory of a node that has left its network for good.
//!
//! The others have agreed to continue without it: they purge entries whose deletion it missed, and
//! do not wait for it. So its data must not come back as if it had been away for a while. A start
//! on such a directory sets all of it aside, in a separate folder that is never read automatically,
//! and begins empty.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::foreign::LEFT;
use crate::data_dir::DIRECTORY_MODE;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::identity::{IDENTITY_NAME, Identity, Life};
use crate::recover::Files;

/// Puts the files of a life that has left for good aside; gives the folder that they are in then. None if
/// the directory's node has not left. A crash in between is gone on from by the next start.
///
/// # Errors
/// [`StorageError`]; some files may be moved already.
pub(crate) fn set_aside(path: &Path, disk: &dyn Disk) -> Result<Option<PathBuf>, StorageError> {
    let files = Files::list(disk)?;
    let Some(entry) = &files.identity else { return Ok(None) };
    // One that cannot be read is for the start to complain of.
    let Ok((identity, _)) = Identity::load(disk, entry) else { return Ok(None) };
    let Life::Left { .. } = identity.life else { return Ok(None) };
    let folder = path.join(format!("{LEFT}{:016x}", identity.store));
    let shown = folder.display().to_string();
    make(&folder).map_err(StorageError::io(&shown, "make"))?;
    // The identity goes last: as long as it is there, the next start continues this.
    let damaged = files.set_aside.iter().map(|(_, name)| name.as_str());
    // Alone, it would look like a state that was not put there whole.
    let temporary = files.temporary.iter().map(String::as_str);
    for name in files.all().chain(damaged).chain(temporary).chain([IDENTITY_NAME]) {
        let moved = fs::rename(path.join(name), folder.join(name));
        moved.map_err(StorageError::io(name, "set aside"))?;
    }
    let synced = File::open(&folder).and_then(|folder| folder.sync_all());
    synced.map_err(StorageError::io(&shown, "sync"))?;
    disk.sync_dir().map_err(StorageError::io("the data directory", "sync"))?;
    Ok(Some(folder))
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Directory;
    use crate::data_dir::DataDir;
    use crate::model::ids::NodeName;
    use crate::recover::RecoverOptions;

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A directory with files and an identity that says how the last life ended.
    fn directory(life: Life) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let ours = ["log-1.dkv", "log-2.dkv", "snapshot-2.dkv", "log-1.dkv.bad"];
        for name in ours.into_iter().chain(["snapshot-3.dkv.tmp", "peers"]) {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let identity =
            Identity { network: "plant".into(), name: NodeName::new("a").unwrap(), store: 7, life };
        identity.store(&Directory::new(folder.path())).unwrap();
        folder
    }

    #[test]
    fn only_the_files_of_a_life_that_left_for_good_are_put_aside() {
        for life in [Life::Running { log: 2 }, Life::Stopped { log: 2, bytes: 1, changed_ns: 1 }] {
            let folder = directory(life);
            let before = names(folder.path());
            assert_eq!(set_aside(folder.path(), &Directory::new(folder.path())).unwrap(), None);
            assert_eq!(names(folder.path()), before);
        }
        let folder = directory(Life::Left { log: 2 });
        let aside = set_aside(folder.path(), &Directory::new(folder.path())).unwrap().unwrap();
        assert_eq!(names(folder.path()), ["left-0000000000000007", "peers"]);
        let (logs, snapshots) =
            (["log-1.dkv", "log-1.dkv.bad", "log-2.dkv"], ["snapshot-2.dkv", "snapshot-3.dkv.tmp"]);
        assert_eq!(names(&aside), [&["identity"], &logs[..], &snapshots].concat());
        assert_eq!(set_aside(folder.path(), &Directory::new(folder.path())).unwrap(), None);
    }

    /// It may have left while it wrote a snapshot.
    #[test]
    fn a_node_begins_anew_where_one_has_left() {
        let folder = directory(Life::Left { log: 2 });
        let dir = DataDir::open(folder.path()).unwrap();
        assert!(dir.left().is_some());
        let begun = dir.recover("plant", "a", &RecoverOptions::default(), &mut |_, _| {}).unwrap();
        assert!(begun.image.is_none() && begun.warnings.is_empty());
    }

    #[test]
    fn a_crash_half_way_is_gone_on_from() {
        let folder = directory(Life::Left { log: 2 });
        let aside = folder.path().join("left-0000000000000007");
        fs::create_dir(&aside).unwrap();
        fs::rename(folder.path().join("log-1.dkv"), aside.join("log-1.dkv")).unwrap();
        let disk = Directory::new(folder.path());
        assert_eq!(set_aside(folder.path(), &disk).unwrap(), Some(aside.clone()));
        assert_eq!(names(folder.path()), ["left-0000000000000007", "peers"]);
        assert_eq!(names(&aside).len(), 6);
    }
}
