//! That a rotation is in its last step, the removal of the old key. Where a rotation stands is read from the nodes, but when
//! the old key is gone they look like nodes with which nobody has begun one. So that a command that was broken off
//! then makes no further key when it is repeated, a file beside that of `--key` says so until it has told the end.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::secure::key::KeyId;

/// The file, which holds the new key's id: no secret.
pub(super) struct LastStep(PathBuf);

impl LastStep {
    /// Beside this key file.
    pub(super) fn of(key_file: &Path) -> Self {
        let mut path = key_file.as_os_str().to_owned();
        path.push(".last-step");
        Self(path.into())
    }

    /// The new key of a rotation that has begun its last step, and has not told its end.
    pub(super) fn begun(&self) -> Option<KeyId> {
        fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }

    /// The step begins.
    pub(super) fn begin(&self, new: KeyId) -> io::Result<()> {
        let mut file = File::create(&self.0)?;
        writeln!(file, "{new}").and_then(|()| file.sync_all())
    }

    /// The end was told.
    pub(super) fn end(&self) {
        // If it stays, the next rotation says that this one has ended, and to type the command again.
        let _ = fs::remove_file(&self.0);
    }
}
