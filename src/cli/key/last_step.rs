//! That a rotation is in its last step, the removal of the old key. Where a rotation stands is read from the nodes, but when
//! the old key is gone they look like nodes with which nobody has begun one. So that a command that is repeated then makes no
//! further key, a file beside that of `--key` says so until every member has removed the old key: while one still has it, and
//! where the command was interrupted. With `--force`, nobody is waited for, and the file goes at once.

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

    /// The new key of a rotation that has begun its last step, and has not ended it.
    pub(super) fn begun(&self) -> Option<KeyId> {
        fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }

    /// The step begins.
    pub(super) fn begin(&self, new: KeyId) -> io::Result<()> {
        let mut file = File::create(&self.0)?;
        writeln!(file, "{new}").and_then(|()| file.sync_all())
    }

    /// Every member has removed the old key, or is passed over by force.
    pub(super) fn end(&self) {
        // If it stays, the next rotation says that this one has ended, and to type the command again.
        let _ = fs::remove_file(&self.0);
    }
}
