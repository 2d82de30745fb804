//! The ticket that a command was given. A file is read anew whenever it is asked for, because the ticket in it may have been
//! replaced; what may come out of a pipe is read once. As long as the file says the same, it is one `Access`. That remembers
//! whether a node has taken the secret, so a client that is refused later waits for another one in the file.

use std::convert::Infallible;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distkv_client::{Access, read_ticket_file};
use distkv_tls::{Ticket, TlsError};

use crate::error::CliError;
use crate::given;

/// A ticket as it was typed: a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TicketText(String);

impl fmt::Debug for TicketText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketText")
    }
}

impl FromStr for TicketText {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl TicketText {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What was read, for all clones.
#[derive(Clone, Default)]
pub(crate) struct TicketRead {
    last: Arc<Mutex<Last>>,
    /// What was made of the ticket in a file, and of which one: that without its login, which holds a secret.
    access: Arc<Mutex<Option<(Ticket, Access)>>>,
}

#[derive(Default, Clone, PartialEq, Eq)]
enum Last {
    /// Nothing was read yet.
    #[default]
    None,
    /// There is no ticket, or it stays what it is.
    Final(Option<Ticket>),
    /// It came out of this file, which may have another one now.
    Of(String, Ticket),
}

impl PartialEq for TicketRead {
    fn eq(&self, other: &Self) -> bool {
        let of = |read: &Self| read.last().clone();
        of(self) == of(other)
    }
}

impl Eq for TicketRead {}

impl fmt::Debug for TicketRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketRead")
    }
}

impl TicketRead {
    fn last(&self) -> MutexGuard<'_, Last> {
        // Nothing that holds it leaves half of anything.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How to connect as this ticket says, which was read here.
    ///
    /// # Errors
    /// The client certificate in it cannot be used.
    pub(crate) fn access(&self, ticket: &Ticket) -> Result<Access, TlsError> {
        let Some(file) = self.file() else { return Access::of_ticket(ticket) };
        let mut known = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        let but_for_the_login = Ticket { login: None, ..ticket.clone() };
        if let Some((before, access)) = &*known
            && *before == but_for_the_login
            && access.logs_in_as(ticket)
        {
            return Ok(access.clone());
        }
        // A command that lasts may outlive its secret.
        let access = Access::of_ticket_file(ticket, &file)?;
        *known = Some((but_for_the_login, access.clone()));
        Ok(access)
    }

    /// The file that the ticket came out of, if that may have another one now.
    fn file(&self) -> Option<PathBuf> {
        match &*self.last() {
            Last::Of(file, _) => Some(PathBuf::from(file)),
            _ => None,
        }
    }

    /// The ticket that this text is, or that is in the file which it names; `what` is the option, or so, that it stands
    /// behind. `text`: asked for the first time only.
    ///
    /// # Errors
    /// There was none before, and it is no ticket, or the file cannot be read.
    pub(crate) fn or_read(
        &self,
        text: impl FnOnce() -> Result<Option<(&'static str, String)>, CliError>,
    ) -> Result<Option<Ticket>, CliError> {
        let mut last = self.last();
        match &mut *last {
            Last::Final(ticket) => return Ok(ticket.clone()),
            Last::Of(file, ticket) => {
                // A file that is gone, or is being written, says nothing new.
                if given::can_be_read_again(Path::new(file))
                    && let Ok(new) = read_ticket_file(&*file)
                {
                    *ticket = new;
                }
                return Ok(Some(ticket.clone()));
            }
            Last::None => {}
        }
        let Some((what, text)) = text()? else {
            *last = Last::Final(None);
            return Ok(None);
        };
        let file = text.strip_prefix('@');
        if let Some(file) = file {
            given::take_stdin(what, Path::new(file))
                .map_err(|error| CliError::Usage(format!("{what}: {error}")))?;
        }
        let ticket = read_ticket(what, &text)?;
        *last = match file.filter(|file| given::can_be_read_again(Path::new(file))) {
            Some(file) => Last::Of(file.to_owned(), ticket.clone()),
            None => Last::Final(Some(ticket.clone())),
        };
        Ok(Some(ticket))
    }
}

/// Reads a ticket, or the file with one that `@` stands before; `what` is the option, or so, that it stands behind.
///
/// # Errors
/// It is no ticket, or the file cannot be read.
pub fn read_ticket(what: &str, text: &str) -> Result<Ticket, CliError> {
    let Some(file) = text.strip_prefix('@') else {
        return text.parse().map_err(|error| CliError::Usage(format!("{what}: {error}")));
    };
    // As with other options that name a file.
    let file = if file == "-" { "/dev/stdin" } else { file };
    read_ticket_file(file).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => CliError::Usage(format!("{what} {file}: {error}")),
        _ => CliError::Usage(format!("{what}: cannot read {file}: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(secret: &str) -> Ticket {
        let login = distkv_tls::Login {
            method: "token".into(),
            user: "joe".into(),
            secret: Some(secret.into()),
        };
        Ticket {
            addresses: vec![String::from("n1:27586")],
            network: String::new(),
            login: Some(login),
            ca: None,
            certificate: None,
        }
    }

    #[test]
    fn a_ticket_is_asked_for_once_by_all_clones_and_shows_nothing() {
        let read = TicketRead::default();
        let bad = read.or_read(|| Ok(Some(("--ticket", String::from("bad")))));
        assert!(bad.unwrap_err().to_string().contains("--ticket"));
        let (again, text) = (read.clone(), ticket("geheim12").to_text().unwrap());
        let first = read.or_read(|| Ok(Some(("--ticket", text.clone())))).unwrap();
        assert_eq!(first, Some(ticket("geheim12")));
        assert_eq!(again.or_read(|| panic!("it is asked for again")).unwrap(), first);
        let text: TicketText = text.parse().unwrap();
        assert_eq!(format!("{again:?} {text:?}"), "TicketRead TicketText");
    }

    #[test]
    fn a_file_s_ticket_is_the_one_that_is_in_it_now_or_was_there_last() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |text: &str| std::fs::write(file.path(), text).unwrap();
        let read = TicketRead::default();
        let secret = || {
            let given = format!("@{}", file.path().display());
            let ticket = read.or_read(|| Ok(Some(("--ticket", given)))).unwrap().unwrap();
            ticket.login.unwrap().secret.unwrap()
        };
        for new in ["geheim12", "geheim13"] {
            write(&ticket(new).to_text().unwrap());
            assert_eq!(secret(), new);
        }
        write("half of a tick");
        assert_eq!(secret(), "geheim13");
        std::fs::remove_file(file.path()).unwrap();
        assert_eq!(secret(), "geheim13");
        write(&ticket("geheim14").to_text().unwrap());
        assert_eq!(secret(), "geheim14");
    }
}
