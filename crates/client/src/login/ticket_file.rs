//! A login that a ticket in a file says. The file may get another secret while the client runs: it is read again when a node does
//! not take the secret that it had before, and only then. So a secret is replaced without a restart of the program.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{self, Path, PathBuf};
use std::sync::Arc;

use distkv_tls::ticket::{TICKET_BYTES_MAX, TicketError};
use distkv_tls::{CaHash, Ticket};
use futures::lock::Mutex as WaitingMutex;
use parking_lot::Mutex;

use super::Login;
use crate::model::ids::Millis;
use crate::rt;

/// The file is read no sooner again.
const READ_EVERY_MS: Millis = 1_000;

/// See the module.
#[derive(Debug)]
pub(super) struct TicketFile {
    name: PathBuf,
    /// Only a ticket of the same network, CA and user is for this client.
    network: String,
    ca: Option<CaHash>,
    /// The program has said itself which CA counts, so that of the ticket does not matter.
    is_of_any_ca: bool,
    user: String,
    current: Mutex<Current>,
    /// When it was read last; who reads it holds it, so that others that were refused meanwhile get the same.
    read_at: WaitingMutex<Option<Millis>>,
    /// Held by the thread that reads. It may hang longer than anybody waits.
    reading: Mutex<()>,
}

#[derive(Debug)]
struct Current {
    login: Login,
    /// Since when.
    since: Millis,
}

/// Two are the same if they are of one file, for the same.
impl PartialEq for TicketFile {
    fn eq(&self, other: &Self) -> bool {
        let of =
            |file: &Self| (file.name.clone(), file.network.clone(), file.ca, file.user.clone());
        of(self) == of(other) && self.is_of_any_ca == other.is_of_any_ca
    }
}

impl Eq for TicketFile {}

impl TicketFile {
    /// A ticket that was read from this file; none if it has no login. `is_of_any_ca`: another CA counts instead of its own.
    pub(super) fn new(ticket: &Ticket, name: &Path, is_of_any_ca: bool) -> Option<TicketFile> {
        let login = Login::of_ticket(ticket)?;
        // The program may change its working directory.
        let name = path::absolute(name).unwrap_or_else(|_| name.to_owned());
        Some(TicketFile {
            name,
            network: ticket.network.clone(),
            ca: ticket.ca,
            is_of_any_ca,
            user: ticket.login.as_ref()?.user.clone(),
            current: Mutex::new(Current { login, since: 0 }),
            read_at: WaitingMutex::new(None),
            reading: Mutex::new(()),
        })
    }

    /// The login that the file said last.
    pub(super) fn login(&self) -> Login {
        self.current.lock().login.clone()
    }

    /// Since when it is that one; 0: from the beginning.
    pub(super) fn since(&self) -> Millis {
        self.current.lock().since
    }

    /// What to log in with instead, where a node has not taken this login; none if there is nothing else.
    pub(super) async fn other_than(self: &Arc<Self>, refused: &Login) -> Option<Login> {
        if let Some(other) = self.known_other_than(refused) {
            return Some(other);
        }
        let mut read_at = self.read_at.lock().await;
        let now = rt::now();
        if read_at.is_none_or(|at| now.saturating_sub(at) >= READ_EVERY_MS) {
            *read_at = Some(now);
            let file = Arc::clone(self);
            rt::spawn_blocking(move || file.read_again()).await;
        }
        self.known_other_than(refused)
    }

    /// Another one than this, which others may have found.
    fn known_other_than(&self, refused: &Login) -> Option<Login> {
        Some(self.login()).filter(|login| login != refused)
    }

    /// Reads it, and takes the login in it. A file that is gone, is being written, or is for something else changes nothing.
    fn read_again(&self) {
        // Else an earlier one hangs: there is at most one such thread.
        let Some(_reading) = self.reading.try_lock() else { return };
        // Nobody may write into a pipe any more.
        let is_file = fs::metadata(&self.name).is_ok_and(|found| found.is_file());
        let Some(ticket) = is_file.then(|| read_ticket_file(&self.name).ok()).flatten() else {
            return;
        };
        let is_ours = ticket.network == self.network
            && (self.is_of_any_ca || ticket.ca == self.ca)
            && ticket.login.as_ref().is_some_and(|login| login.user == self.user);
        let Some(login) =
            Login::of_ticket(&ticket).filter(|login| is_ours && login.check().is_ok())
        else {
            return;
        };
        let mut current = self.current.lock();
        if current.login != login {
            *current = Current { login, since: rt::now() };
        }
    }
}

/// Reads the ticket in a file; white space around it is ignored. Of a file that is too long to be a ticket, only so
/// much is read that this is seen. It blocks.
///
/// # Errors
/// The file cannot be read; of the kind [`io::ErrorKind::InvalidData`] if what it has is no ticket.
pub fn read_ticket_file(file: impl AsRef<Path>) -> io::Result<Ticket> {
    let mut bytes = Vec::new();
    // With the end of its line, and one byte that shows that there is too much.
    File::open(file)?.take(TICKET_BYTES_MAX as u64 + 3).read_to_end(&mut bytes)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| TicketError::NoTicket);
    text.and_then(str::parse).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(user: &str, secret: &str) -> Ticket {
        Ticket {
            addresses: vec![String::from("n1:1")],
            network: String::from("shop"),
            login: Some(distkv_tls::Login {
                method: String::from("token"),
                user: user.to_owned(),
                secret: Some(secret.to_owned()),
            }),
            ca: None,
            certificate: None,
        }
    }

    #[test]
    fn only_another_secret_for_the_same_is_taken_and_a_file_is_read_once_for_all() {
        let name = std::env::temp_dir().join(format!("distkv-secret-{}", std::process::id()));
        let write = |text: &str| fs::write(&name, text).unwrap();
        let old = ticket("ann", "the old one");
        let file = Arc::new(TicketFile::new(&old, &name, false).unwrap());
        let first = file.login();
        let read = || {
            // As if a second had passed.
            rt::block_on(async { *file.read_at.lock().await = None });
            rt::block_on(file.other_than(&first))
        };
        let new = ticket("ann", "the new one");
        let whole = new.to_text().unwrap();
        assert_eq!(read(), None, "there is no file");
        let other_network = Ticket { network: String::from("lab"), ..new.clone() };
        let other_ca = Ticket { ca: Some(CaHash([1; 32])), ..new.clone() };
        let nobody = Ticket { login: None, ..new.clone() };
        let others = [ticket("bob", "the new one"), other_network, other_ca, nobody, old];
        let others = others.map(|other| other.to_text().unwrap());
        let half = whole[..whole.len() / 2].to_owned();
        for wrong in others.iter().chain([&half, &String::new()]) {
            write(wrong);
            assert_eq!(read(), None, "{wrong}");
            assert_eq!(file.since(), 0);
        }
        write(&format!("{whole}\n"));
        // It was read just now: the next one has to wait.
        assert_eq!(rt::block_on(file.other_than(&first)), None);
        // Addresses are not taken over, and may differ.
        let moved = Ticket { addresses: vec![String::from("n7:1")], ..new.clone() };
        write(&moved.to_text().unwrap());
        assert_eq!(read(), Login::of_ticket(&new));
        fs::remove_file(&name).unwrap();
        // Who was refused with the old one gets the new one without reading.
        assert_eq!(rt::block_on(file.other_than(&first)), Login::of_ticket(&new));
        assert_eq!(rt::block_on(file.other_than(&file.login())), None);
        assert!(file.since() > 0);
    }

    #[test]
    fn where_the_program_has_said_which_ca_counts_that_of_the_file_may_be_another_one() {
        let name = std::env::temp_dir().join(format!("distkv-any-ca-{}", std::process::id()));
        let file = TicketFile::new(&ticket("ann", "the old one"), &name, true).unwrap();
        let new = Ticket { ca: Some(CaHash([1; 32])), ..ticket("ann", "the new one") };
        fs::write(&name, new.to_text().unwrap()).unwrap();
        file.read_again();
        fs::remove_file(&name).unwrap();
        assert_eq!(Some(file.login()), Login::of_ticket(&new));
    }
}
