//! The client certificate of a ticket in a file. The file may get another one while the client runs: before each new connection
//! the client looks whether it has changed, and only then reads it again. Connections that are open stay as they are.

use std::fs::{self, Metadata};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use distkv_tls::{CaHash, ClientTls, Clock, Ticket};
use parking_lot::Mutex;

use crate::login::read_ticket_file;
use crate::rt;

/// See the module.
#[derive(Debug)]
pub(super) struct CertificateFile {
    name: PathBuf,
    /// Only a ticket of the same network and CA is for this client.
    network: String,
    ca: Option<CaHash>,
    /// What the file said last that could be used.
    current: Mutex<ClientTls>,
    /// How the file was when it was read last. Held by the thread that reads: it may hang longer than anybody waits.
    seen: Mutex<Option<Stamp>>,
}

/// What differs where a file has been written again, or replaced.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    /// Device and number.
    #[cfg(unix)]
    place: (u64, u64),
}

impl Stamp {
    fn of(found: &Metadata) -> Stamp {
        Stamp {
            bytes: found.len(),
            modified: found.modified().ok(),
            #[cfg(unix)]
            place: (found.dev(), found.ino()),
        }
    }
}

/// Two are the same if they are of one file, for the same.
impl PartialEq for CertificateFile {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.network, self.ca) == (&other.name, &other.network, other.ca)
    }
}

impl Eq for CertificateFile {}

impl CertificateFile {
    /// A ticket that was read from this file; none if it has no certificate. `tls`: what follows from it.
    pub(super) fn new(ticket: &Ticket, name: &Path, tls: &ClientTls) -> Option<CertificateFile> {
        ticket.certificate.as_ref()?;
        Some(CertificateFile {
            // The program may change its working directory.
            name: path::absolute(name).unwrap_or_else(|_| name.to_owned()),
            network: ticket.network.clone(),
            ca: ticket.ca,
            current: Mutex::new(tls.clone()),
            // It may have changed since it was read, so it is read once more.
            seen: Mutex::new(None),
        })
    }

    /// What the next connection is made with.
    pub(super) async fn now(self: &Arc<Self>) -> ClientTls {
        let file = Arc::clone(self);
        rt::spawn_blocking(move || file.look()).await;
        self.current.lock().clone()
    }

    /// Reads it, if it has changed, and takes the certificate in it. A file that is gone, is being written, or is for something
    /// else changes nothing.
    fn look(&self) {
        // Else an earlier one hangs: there is at most one such thread.
        let Some(mut seen) = self.seen.try_lock() else { return };
        // Nobody may write into a pipe any more.
        let Some(found) = fs::metadata(&self.name).ok().filter(Metadata::is_file) else { return };
        // Before it is read: what is written meanwhile is seen next time.
        let stamp = Stamp::of(&found);
        if seen.as_ref() == Some(&stamp) {
            return;
        }
        let ticket = match read_ticket_file(&self.name) {
            Ok(ticket) => ticket,
            Err(error) => {
                // One that could not even be read may be readable next time, though nothing in it changes.
                if error.kind() == std::io::ErrorKind::InvalidData {
                    *seen = Some(stamp);
                }
                return;
            }
        };
        *seen = Some(stamp);
        let is_ours = ticket.network == self.network && ticket.ca == self.ca;
        if !is_ours || ticket.certificate.is_none() {
            return;
        }
        if let Ok(Some(tls)) = ticket.tls(Clock::new(|| rt::wall_clock_ms() / 1_000)) {
            *self.current.lock() = tls;
        }
    }
}

#[cfg(test)]
mod tests {
    use distkv_tls::Ca;
    use distkv_tls::ticket::ClientCertificate;

    use super::*;

    fn clock() -> Clock {
        Clock::new(|| rt::wall_clock_ms() / 1_000)
    }

    fn ticket(ca: &Ca) -> Ticket {
        let now = rt::wall_clock_ms() / 1_000;
        Ticket {
            addresses: vec![String::from("n1:1")],
            network: String::from("shop"),
            login: None,
            ca: Some(ca.hash()),
            certificate: Some(ClientCertificate::from(&ca.issue_user("joe", 1, now).unwrap())),
        }
    }

    #[test]
    fn another_certificate_for_the_same_is_taken_and_a_file_that_has_not_changed_is_not_read() {
        let ca = Ca::make("shop", rt::wall_clock_ms() / 1_000).unwrap();
        let name = std::env::temp_dir().join(format!("distkv-certificate-{}", std::process::id()));
        let old = ticket(&ca);
        let first = old.tls(clock()).unwrap().unwrap();
        let file = Arc::new(CertificateFile::new(&old, &name, &first).unwrap());
        let now = || rt::block_on(file.now());
        assert_eq!(now(), first, "there is no file");
        let new = ticket(&ca);
        let whole = new.to_text().unwrap();
        let other_network = Ticket { network: String::from("lab"), ..new.clone() };
        let other_ca = Ticket { ca: Some(CaHash([1; 32])), ..new.clone() };
        let nobody = Ticket { certificate: None, ..new.clone() };
        let others = [other_network, other_ca, nobody].map(|other| other.to_text().unwrap());
        let half = whole[..whole.len() / 2].to_owned();
        for wrong in others.iter().chain([&half, &String::new()]) {
            // Replaced as a whole, so that it differs whatever the clock of the file system says.
            replace(&name, wrong);
            assert_eq!(now(), first, "{wrong}");
        }
        replace(&name, &whole);
        let second = now();
        assert_ne!(second, first);
        assert_eq!(now(), second, "it is as it was");
        replace(&name, &whole);
        assert_ne!(now(), second, "it was read again");
        fs::remove_file(&name).unwrap();
        assert_ne!(now(), first, "it is gone");
        assert!(
            CertificateFile::new(&Ticket { certificate: None, ..old }, &name, &first).is_none()
        );
    }

    fn replace(name: &Path, text: &str) {
        let beside = name.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, name).unwrap();
    }
}
