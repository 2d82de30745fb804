//! Which files there are in a data directory.

use std::collections::BTreeMap;

use crate::disk::{Disk, DiskEntry};
use crate::error::StorageError;
use crate::identity::IDENTITY_NAME;

/// The end of a temporary file's name.
const TEMPORARY: &str = ".tmp";
/// The end of the name of a file that was set aside because it is damaged.
pub(super) const SET_ASIDE: &str = ".bad";

/// The files of a data directory, by number.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// The snapshots.
    pub snapshots: BTreeMap<u64, DiskEntry>,
    /// The event logs.
    pub logs: BTreeMap<u64, DiskEntry>,
    /// Damaged ones of either kind that were set aside: number and name.
    pub set_aside: Vec<(u64, String)>,
    /// Left over from an interrupted write.
    pub(crate) temporary: Vec<String>,
    /// The file `identity`.
    pub identity: Option<DiskEntry>,
}

impl Files {
    /// Lists them. Files with other names are ignored.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn list(disk: &dyn Disk) -> Result<Self, StorageError> {
        Ok(Self::of(disk.list().map_err(StorageError::io("the data directory", "list"))?))
    }

    /// Those in a list of the directory.
    #[must_use]
    pub fn of(entries: Vec<DiskEntry>) -> Self {
        let mut files = Self::default();
        for entry in entries {
            let name = entry.name.as_str();
            if name == IDENTITY_NAME {
                files.identity = Some(entry);
            } else if let Some(number) = number_in(name, "snapshot-", ".dkv") {
                files.snapshots.insert(number, entry);
            } else if let Some(number) = number_in(name, "log-", ".dkv") {
                files.logs.insert(number, entry);
            } else if let Some((plain, _)) = name.split_once(TEMPORARY)
                && is_ours(plain)
            {
                files.temporary.push(entry.name);
            } else if let Some((plain, _)) = name.split_once(SET_ASIDE)
                && let Some(number) = number_of(plain)
            {
                files.set_aside.push((number, entry.name));
            }
        }
        files
    }

    /// Whether a file with this name is one of those.
    #[must_use]
    pub(crate) fn knows(name: &str) -> bool {
        let plain = [TEMPORARY, SET_ASIDE].iter().find_map(|end| name.split_once(end));
        is_ours(plain.map_or(name, |(plain, _)| plain))
    }

    /// The greatest number that was used.
    #[must_use]
    pub(crate) fn newest(&self) -> Option<u64> {
        let (snapshots, logs) = (self.snapshots.keys(), self.logs.keys());
        snapshots.chain(logs).chain(self.set_aside.iter().map(|(number, _)| number)).copied().max()
    }

    /// What there is of a first snapshot in a directory with nothing else of a node: a state was being put there. The first
    /// number that a node uses is that of a log. Where it could not begin that (the disk was full), its snapshot is the second.
    pub(crate) fn unfinished(&self) -> Option<&str> {
        if self.identity.is_some() || self.newest().is_some() {
            return None;
        }
        let first = format!("snapshot-1.dkv{TEMPORARY}");
        self.temporary.iter().map(String::as_str).find(|name| name.starts_with(&first))
    }

    /// The names of all snapshots and logs.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.snapshots.values().chain(self.logs.values()).map(|entry| entry.name.as_str())
    }
}

fn is_ours(name: &str) -> bool {
    name == IDENTITY_NAME || number_of(name).is_some()
}

fn number_of(name: &str) -> Option<u64> {
    number_in(name, "snapshot-", ".dkv").or_else(|| number_in(name, "log-", ".dkv"))
}

/// The number in a name; only in the form in which names are written, so that no two names have the
/// same number.
fn number_in(name: &str, before: &str, behind: &str) -> Option<u64> {
    let digits = name.strip_prefix(before)?.strip_suffix(behind)?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits && number < u64::MAX).then_some(number)
}

#[cfg(test)]
mod tests {
    use crate::memory_disk::MemoryDisk;
    use crate::recover::files::*;

    #[test]
    fn files_are_known_by_their_names() {
        let disk = MemoryDisk::new();
        for name in [
            "snapshot-7.dkv",
            "snapshot-07.dkv",
            "snapshot-8.dkv.tmp",
            "log-12.dkv",
            "log-.dkv",
            "log-13.dkv.bad",
            "identity",
            "identity.tmp",
            "lock",
            "notes.tmp",
            "log--1.dkv",
            "log-18446744073709551615.dkv",
        ] {
            disk.put(name, b"");
        }
        let files = Files::list(&disk).unwrap();
        assert_eq!(files.snapshots.keys().collect::<Vec<_>>(), [&7]);
        assert_eq!(files.logs.keys().collect::<Vec<_>>(), [&12]);
        assert_eq!(files.set_aside, [(13, "log-13.dkv.bad".to_owned())]);
        assert_eq!(files.temporary, ["identity.tmp", "snapshot-8.dkv.tmp"]);
        assert!(files.identity.is_some());
        assert_eq!(files.newest(), Some(13));
    }
}
