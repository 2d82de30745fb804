//! The ticket that a command was given. It is read once, however often it is asked for: it may come out of a pipe.

use std::convert::Infallible;
use std::fmt;
use std::io::ErrorKind;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use distkv_client::read_ticket_file;
use distkv_tls::Ticket;

use crate::error::CliError;

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
    /// What it says; `what` is the option, or so, that it stands behind.
    ///
    /// # Errors
    /// As [`read_ticket`].
    pub(crate) fn read(&self, what: &str) -> Result<Ticket, CliError> {
        read_ticket(what, &self.0)
    }
}

/// What was read, for all clones. A ticket that cannot be read is not kept: that ends the command.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct TicketRead(Arc<OnceLock<Option<Ticket>>>);

impl fmt::Debug for TicketRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketRead")
    }
}

impl TicketRead {
    /// What was read, or else what this reads.
    ///
    /// # Errors
    /// Of `read`.
    pub(crate) fn or_read(
        &self,
        read: impl FnOnce() -> Result<Option<Ticket>, CliError>,
    ) -> Result<Option<Ticket>, CliError> {
        if let Some(ticket) = self.0.get() {
            return Ok(ticket.clone());
        }
        let ticket = read()?;
        Ok(self.0.get_or_init(|| ticket).clone())
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
    read_ticket_file(file).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => CliError::Usage(format!("{what} {file}: {error}")),
        _ => CliError::Usage(format!("cannot read {file}: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_read_once_for_all_clones_and_shows_nothing() {
        let login = distkv_tls::Login {
            method: "token".into(),
            user: "joe".into(),
            secret: Some("geheim12".into()),
        };
        let ticket = Ticket {
            addresses: vec![String::from("n1:27586")],
            network: String::new(),
            login: Some(login),
            ca: None,
            certificate: None,
        };
        let read = TicketRead::default();
        let bad = read.or_read(|| Err(CliError::Usage(String::from("bad"))));
        assert!(bad.is_err());
        let again = read.clone();
        assert_eq!(read.or_read(|| Ok(Some(ticket.clone()))).unwrap(), Some(ticket.clone()));
        assert_eq!(again.or_read(|| panic!("it is read again")).unwrap(), Some(ticket.clone()));
        let text: TicketText = ticket.to_text().unwrap().parse().unwrap();
        assert_eq!(format!("{again:?} {text:?}"), "TicketRead TicketText");
        assert_eq!(text.read("--ticket").unwrap(), ticket);
    }
}
