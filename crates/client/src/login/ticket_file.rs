//! A login that a ticket in a file says. The file may get another secret while the client runs: it is read again when a node does
//! not take the secret that it had before, and only then. So a secret is replaced without a restart of the program.
//!
//! Whoever replaces a secret may end the user's connections first, and put the ticket in its place a moment later. So where a node
//! had taken the secret before, the file is read several times before the client counts as refused.

use std::fs::{self, File};
use std::io::{self, Read};
use std::iter::once;
use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use distkv_tls::ticket::{TICKET_BYTES_MAX, TicketError};
use distkv_tls::{CaHash, Ticket};
use futures::lock::Mutex as WaitingMutex;
use parking_lot::Mutex;

use super::Login;
use crate::model::ids::Millis;
use crate::rt;

/// Behind the last read for one refusal, the file is read no sooner again.
const READ_EVERY_MS: Millis = 1_000;
/// How long it is waited before each further read for one refusal, where a node had taken the secret before: a second in all.
const PAUSES_MS: [Millis; 4] = [100, 200, 300, 400];

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
    /// [`PAUSES_MS`]; tests have others.
    pauses: &'static [Millis],
}

#[derive(Debug)]
struct Current {
    login: Login,
    /// Since when.
    since: Millis,
    /// A node has taken it, and the file was not read in vain since then.
    is_good: bool,
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
            current: Mutex::new(Current { login, since: 0, is_good: false }),
            read_at: WaitingMutex::new(None),
            reading: Mutex::new(()),
            pauses: &PAUSES_MS,
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

    /// A node has taken this login.
    pub(super) fn on_taken(&self, login: &Login) {
        let mut current = self.current.lock();
        current.is_good |= current.login == *login;
    }

    /// What to log in with instead, where a node has not taken this login; none if there is nothing else. `time`: what is left
    /// for the login. At most half of it is spent on that: the rest is for a login with what is found.
    pub(super) async fn other_than(
        self: &Arc<Self>,
        refused: &Login,
        time: Duration,
    ) -> Option<Login> {
        let read = || {
            let file = Arc::clone(self);
            rt::spawn_blocking(move || file.read_again())
        };
        self.look_for_other(refused, time / 2, read).await
    }

    /// The same within this time; `read` reads the file once.
    async fn look_for_other<F: Future<Output = ()>>(
        &self,
        refused: &Login,
        patience: Duration,
        read: impl Fn() -> F,
    ) -> Option<Login> {
        if self.login() == *refused {
            // The file may be on a disk that does not answer.
            rt::timeout(patience, self.read_for(refused, patience, read)).await;
        }
        let mut current = self.current.lock();
        if current.login != *refused {
            return Some(current.login.clone());
        }
        // So whoever is refused next is told at once.
        current.is_good = false;
        None
    }

    /// Reads it for one refusal, and for all that wait for their turn meanwhile.
    async fn read_for<F: Future<Output = ()>>(
        &self,
        refused: &Login,
        patience: Duration,
        read: impl Fn() -> F,
    ) {
        let until = rt::now().saturating_add(rt::millis(patience));
        let mut read_at = self.read_at.lock().await;
        let before = *read_at;
        let pauses = if self.current.lock().is_good { self.pauses } else { &[] };
        for pause in once(&0).chain(pauses) {
            if self.login() != *refused {
                return;
            }
            if *pause > 0 {
                if rt::now().saturating_add(*pause) > until {
                    return;
                }
                rt::sleep(Duration::from_millis(*pause)).await;
            }
            let now = rt::now();
            if before.is_none_or(|at| now.saturating_sub(at) >= READ_EVERY_MS) {
                *read_at = Some(now);
                read().await;
            }
        }
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
            *current = Current { login, since: rt::now(), is_good: false };
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
mod tests;
