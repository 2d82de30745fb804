//! The file `identity` in a data directory: whose the directory is, its id as a member of the
//! Delete group, and how the node's last life ended.
//!
//! It is written anew at every start, for every new log and at a clean stop, always as another
//! file. So it shows whether a directory was copied or restored from a backup: the file's own id is
//! not the one that it contains, or a log is missing that it names.
//!
//! One frame ([`crate::frame`]): magic text, version, network, name, store, the file's own id
//! (device, inode, birth), then `[0, log]` while the node runs, `[1, log, bytes, changed]` after a
//! clean stop, `[2, log]` when the node has left its network for good ([`super::left_network`]).

use std::io::Write;

use crate::disk::{Disk, DiskEntry, FileId};
use crate::error::absent::remove_if_there;
use crate::error::{FileKind, FormatError, StorageError};
use crate::format::framing::Framing;
use crate::frame::{FrameReader, Step};
use crate::header::{FORMAT_VERSION, NETWORK_BYTES_MAX, magic, read_file_id, write_file_id};
use crate::model::ids::NodeName;
use crate::model::value::{Reader, write_array_len, write_str, write_u64};

/// The file's name.
pub const IDENTITY_NAME: &str = "identity";
const TEMPORARY_NAME: &str = "identity.tmp";
const RUNNING: u64 = 0;
const STOPPED: u64 = 1;
const LEFT: u64 = 2;

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The network's name.
    pub network: String,
    /// The node's name.
    pub name: NodeName,
    /// The directory's id: what makes it a certain member of the Delete group.
    pub(crate) store: u64,
    /// How the last life ended.
    pub life: Life,
}

/// How a node's last life ended, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It may run still, or it crashed.
    Running {
        /// Its newest log then.
        log: u64,
    },
    /// It stopped, and nothing came after this.
    Stopped {
        /// Its last log.
        log: u64,
        /// The length of that.
        bytes: u64,
        /// When that was last changed ([`DiskEntry::changed_ns`]).
        changed_ns: u64,
    },
    /// It stopped, and does not come back: the others have agreed to go on without it.
    Left {
        /// Its last log.
        log: u64,
    },
}

impl Life {
    /// The newest log that is known to have been safe.
    #[must_use]
    pub fn log(self) -> u64 {
        match self {
            Self::Running { log } | Self::Stopped { log, .. } | Self::Left { log } => log,
        }
    }

    /// Up to where a log is known to have been safe.
    pub(crate) fn synced(self, number: u64) -> u64 {
        match self {
            Self::Stopped { log, bytes, .. } if log == number => bytes,
            // Its first frames.
            Self::Running { log } | Self::Stopped { log, .. } | Self::Left { log }
                if log >= number =>
            {
                1
            }
            _ => 0,
        }
    }
}

impl Identity {
    /// Writes the file anew, and makes it safe.
    ///
    /// # Errors
    /// [`StorageError`]; the file is as it was, or new and whole.
    pub fn store(&self, disk: &dyn Disk) -> Result<(), StorageError> {
        remove_if_there(disk, TEMPORARY_NAME)?;
        let write = || {
            let mut file = disk.create(TEMPORARY_NAME)?;
            let mut framing = Framing::new();
            let id = file.id()?;
            framing.frame(|out| self.write(id, out));
            file.write_all(framing.bytes())?;
            file.sync()
        };
        write().map_err(StorageError::io(TEMPORARY_NAME, "write"))?;
        disk.rename(TEMPORARY_NAME, IDENTITY_NAME)
            .map_err(StorageError::io(IDENTITY_NAME, "rename"))?;
        disk.sync_dir().map_err(StorageError::io(IDENTITY_NAME, "sync the directory of"))
    }

    fn write(&self, id: FileId, out: &mut Vec<u8>) {
        write_str(magic(FileKind::Identity), out);
        write_u64(FORMAT_VERSION, out);
        write_str(&self.network, out);
        write_str(self.name.as_str(), out);
        write_u64(self.store, out);
        write_file_id(id, out);
        match self.life {
            Life::Running { log } | Life::Left { log } => {
                let is_left = matches!(self.life, Life::Left { .. });
                write_array_len(2, out);
                write_u64(if is_left { LEFT } else { RUNNING }, out);
                write_u64(log, out);
            }
            Life::Stopped { log, bytes, changed_ns } => {
                write_array_len(4, out);
                for number in [STOPPED, log, bytes, changed_ns] {
                    write_u64(number, out);
                }
            }
        }
    }

    /// Reads the file; also whether it is the very file that was written.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn load(disk: &dyn Disk, entry: &DiskEntry) -> Result<(Self, bool), StorageError> {
        let (file, kind) = (entry.name.clone(), FileKind::Identity);
        let source = disk.open(&entry.name).map_err(StorageError::io(&entry.name, "open"))?;
        let mut frames = FrameReader::new(&entry.name, source);
        match frames.next()? {
            Step::Frame { .. } => {}
            Step::End | Step::Incomplete => {
                return Err(StorageError::Incomplete { file, kind, offset: 0 });
            }
            Step::Bad(problem) => {
                return Err(StorageError::Damaged { file, kind, offset: 0, problem });
            }
        }
        let mut reader = Reader::new(frames.payload());
        if reader.read_str() != Ok(magic(kind)) {
            return Err(StorageError::NotOne { file, kind });
        }
        let damaged = |problem| StorageError::in_frame(&file, kind, 0, problem);
        let found = match reader.read_u64() {
            Ok(found) => found,
            Err(error) => return Err(damaged(error.into())),
        };
        if found != FORMAT_VERSION {
            let (file, known) = (entry.name.clone(), FORMAT_VERSION);
            return Err(StorageError::FutureVersion { file, kind, found, known });
        }
        let (identity, id) = read_fields(reader).map_err(damaged)?;
        Ok((identity, id.is_same(&entry.id)))
    }
}

fn read_fields(mut r: Reader<'_>) -> Result<(Identity, FileId), FormatError> {
    let network = r.read_str()?;
    if network.len() > NETWORK_BYTES_MAX {
        return Err(FormatError::TooMany(network.len(), "bytes of a network's name"));
    }
    let (network, name) = (network.to_owned(), NodeName::new(r.read_str()?)?);
    let store = r.read_u64()?;
    let id = read_file_id(&mut r)?;
    let fields = r.read_array_len()?;
    let life = match (r.read_u64()?, fields) {
        (RUNNING, 2) => Life::Running { log: r.read_u64()? },
        (LEFT, 2) => Life::Left { log: r.read_u64()? },
        (STOPPED, 4) => {
            Life::Stopped { log: r.read_u64()?, bytes: r.read_u64()?, changed_ns: r.read_u64()? }
        }
        (known @ (RUNNING | LEFT | STOPPED), _) => {
            return Err(FormatError::Kind("an end of a life", known));
        }
        (other, _) => return Err(FormatError::Unknown("an end of a life", other)),
    };
    r.finish()?;
    Ok((Identity { network, name, store, life }, id))
}

#[cfg(test)]
mod tests {
    use crate::identity::*;
    use crate::memory_disk::MemoryDisk;

    fn identity(life: Life) -> Identity {
        Identity { network: "plant".into(), name: NodeName::new("a").unwrap(), store: 7, life }
    }

    fn entry(disk: &MemoryDisk) -> DiskEntry {
        disk.list().unwrap().into_iter().find(|e| e.name == IDENTITY_NAME).unwrap()
    }

    #[test]
    fn an_identity_comes_back_and_knows_a_copy_of_itself() {
        let disk = MemoryDisk::new();
        for life in [
            Life::Running { log: 3 },
            Life::Stopped { log: 9, bytes: 1 << 40, changed_ns: u64::MAX },
            Life::Left { log: 9 },
        ] {
            identity(life).store(&disk).unwrap();
            let loaded = Identity::load(&disk, &entry(&disk)).unwrap();
            assert_eq!(loaded, (identity(life), true));
            let copy = disk.copy();
            assert_eq!(Identity::load(&copy, &entry(&copy)).unwrap(), (identity(life), false));
        }
    }

    #[test]
    fn a_life_of_an_unknown_kind_is_no_damage() {
        let disk = MemoryDisk::new();
        identity(Life::Running { log: 3 }).store(&disk).unwrap();
        let good = disk.content(IDENTITY_NAME).unwrap();
        let mut payload = good[8..good.len() - 8].to_vec();
        let kind = payload.len() - 2;
        payload[kind] = 65;
        let mut framing = Framing::new();
        framing.frame(|out| out.extend_from_slice(&payload));
        disk.put(IDENTITY_NAME, framing.bytes());
        let error = Identity::load(&disk, &entry(&disk)).unwrap_err();
        assert!(!error.is_damage() && error.to_string().contains("kind 65"), "{error}");
    }

    #[test]
    fn a_damaged_identity_is_refused_at_every_byte() {
        let disk = MemoryDisk::new();
        identity(Life::Running { log: 3 }).store(&disk).unwrap();
        let good = disk.content(IDENTITY_NAME).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            disk.put(IDENTITY_NAME, &bad);
            assert!(Identity::load(&disk, &entry(&disk)).is_err(), "{at}");
            disk.put(IDENTITY_NAME, &good[..at]);
            assert!(Identity::load(&disk, &entry(&disk)).is_err(), "{at}");
        }
    }
}
