//! A file with a ticket, which is a secret: it is made for its owner only, and whole or not at all.

use std::io::{Seek as _, Write as _};
use std::path::{Path as FilePath, PathBuf};

use distkv_tls::ticket::TICKET_BYTES_MAX;

use super::new_file::{Existing, NewFile, is_special};
use crate::cli::error::CliError;

/// One that is begun, and goes again unless it is filled.
pub(in crate::cli) struct TicketFile(NewFile);

impl TicketFile {
    /// Begins it, and takes its room on the disk: before anybody is asked for a secret, or changes one.
    ///
    /// # Errors
    /// It cannot be written, is there already, or is a symbolic link.
    pub(in crate::cli) fn begin(to: &FilePath, existing: Existing) -> Result<TicketFile, CliError> {
        if to == FilePath::new("-") || is_special(to) {
            return Err(CliError::Failure(format!("{} is no plain file", to.display())));
        }
        let mut new = NewFile::create_secret(to, existing)?;
        let taken =
            new.file.write_all(&[b' '; TICKET_BYTES_MAX]).and_then(|()| new.file.sync_all());
        taken.map_err(|error| new.give_up(&error))?;
        Ok(TicketFile(new))
    }

    /// Puts the ticket into it, and gives it its name.
    ///
    /// # Errors
    /// It cannot be written, or another file has got the name meanwhile.
    pub(in crate::cli) fn fill(mut self, ticket: &str) -> Result<(), CliError> {
        self.write(ticket)?;
        self.finish()
    }

    /// Puts the ticket, or a token, into it, which is not in force yet; it has no name until [`Self::finish`].
    ///
    /// # Errors
    /// It cannot be written.
    pub(in crate::cli) fn write(&mut self, ticket: &str) -> Result<(), CliError> {
        let TicketFile(new) = self;
        let length = ticket.len() as u64 + 1;
        let written = new
            .file
            .rewind()
            .and_then(|()| writeln!(new.file, "{ticket}"))
            .and_then(|()| new.file.set_len(length))
            .and_then(|()| new.file.sync_all());
        written.map_err(|error| new.give_up(&error))
    }

    /// See [`NewFile::keep_when_interrupted`].
    pub(in crate::cli) fn keep_when_interrupted(
        &self,
        told: impl Fn(&FilePath) -> String + Send + 'static,
    ) {
        self.0.keep_when_interrupted(told);
    }

    /// See [`NewFile::keep_beside`].
    ///
    /// # Errors
    /// It cannot be kept: for people.
    pub(in crate::cli) fn keep_beside(self) -> Result<PathBuf, String> {
        self.0.keep_beside()
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// Another file has got the name meanwhile.
    pub(in crate::cli) fn finish(self) -> Result<(), CliError> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_ticket_s_file_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("robot.ticket");
        let begin = |existing| TicketFile::begin(&to, existing);
        // What was begun and not done leaves nothing.
        drop(begin(Existing::Keep).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        begin(Existing::Keep).unwrap().fill("one").unwrap();
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o600);
        assert!(begin(Existing::Keep).is_err());
        begin(Existing::Replace).unwrap().fill("two").unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "two\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
