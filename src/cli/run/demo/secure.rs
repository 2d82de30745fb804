//! `demo --secure`: a key file for the nodes of a demo, a user with a ticket, and commands that show what each of them
//! may do. All of it is in a folder of its own, which goes when the demo ends.

use std::env;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use distkv_command::key_file;
use distkv_tls::{Ca, Login as TicketLogin, Ticket};

use crate::cli::error::CliError;
use crate::cli::terminal::output::{shell_file, shell_word};
use crate::client::{Access, Connection, Fields, HostPort, Login, Message, Options};
use crate::membership::NetworkName;
use crate::node::Node;
use crate::rt;
use crate::secure::key::{Key, Purpose};
use crate::secure::key_file::{CertificateAuthority, KeyFile};
use crate::secure::key_ring::KeyRing;

/// The user that a demo has.
const USER: &str = "joe";
/// What the user's access list is called, and allows. That the root may be listed tells no name that is not allowed.
const LIST: &str = "site-only";
const PATTERNS: [(&str, &str); 3] = [("", "xen"), (".site", "rxen"), (".site.#", "rwcdxen")];
/// How long a node may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The files of a secured demo. Dropped, they are gone.
pub(super) struct Folder {
    at: PathBuf,
    file: KeyFile,
}

impl Folder {
    /// Makes a folder that only this user can read, with a key file for a network.
    pub(super) fn make(network: &str) -> Result<Self, CliError> {
        let name = NetworkName::new(network)
            .map_err(|error| CliError::Usage(format!("--network {network:?}: {error}")))?;
        let ca = Ca::make(network, rt::wall_clock_ms() / 1_000)
            .map_err(|error| CliError::Failure(format!("no CA could be made: {error}")))?;
        let ca = CertificateAuthority {
            key: ca.key().to_vec().into(),
            certificate: ca.certificate().to_vec(),
        };
        let secret = rt::random_bytes().map_err(|error| {
            CliError::Failure(format!("the system gives no random numbers for a key: {error}"))
        })?;
        let file = KeyFile { ring: KeyRing::new(name, Key::new(secret)), ca: Some(ca) };
        let at = env::temp_dir().join(format!("distkv-demo-{:016x}", rt::random_u64()));
        DirBuilder::new().mode(0o700).create(&at).map_err(|error| unwritable(&at, &error))?;
        let folder = Self { at, file };
        key_file::create(&folder.key(), &folder.file)?;
        Ok(folder)
    }

    pub(super) fn key(&self) -> PathBuf {
        self.at.join("key")
    }

    pub(super) fn ticket(&self) -> PathBuf {
        self.at.join(format!("{USER}.ticket"))
    }

    /// Makes the user and its access list, as an admin, and the ticket for all nodes.
    pub(super) async fn add_user(&self, nodes: &[Node]) -> Result<(), CliError> {
        let addresses: Vec<String> =
            nodes.iter().map(|node| node.client_addr().to_string()).collect();
        let first = addresses.first().cloned().unwrap_or_default();
        let to =
            HostPort::parse(&first, None).map_err(|error| CliError::Failure(error.to_string()))?;
        let key = *self.file.ring.primary().derive(Purpose::AdminLogin);
        let options = Options {
            connect_timeout: TIMEOUT,
            window: None,
            nowait: true,
            access: Access::default().log_in(Login::key(key)),
        };
        let connection = Connection::connect(&to, options).await?;
        for (pattern, letters) in PATTERNS {
            let path = format!("acl.{LIST}{pattern}").parse();
            let path = path.map_err(|_| CliError::Failure(format!("{pattern} is no path")))?;
            let mut fields = Fields::at(&path);
            fields.str("value", letters);
            ask(&connection, "set_internal", &fields).await?;
        }
        let mut fields = Fields::new();
        fields.str("typ", "token").str("kind", "user").str("ident", USER).str("acl", LIST);
        let reply = ask(&connection, "auth_set", &fields).await?;
        let login = TicketLogin {
            method: "token".to_owned(),
            user: USER.to_owned(),
            secret: reply.str("token").map(str::to_owned),
        };
        let ca = self.file.ca.as_ref().map(|ca| distkv_tls::CaHash::of(&ca.certificate));
        let network = self.file.ring.network().as_str().to_owned();
        let ticket = Ticket { addresses, network, login: Some(login), ca, certificate: None };
        let text = ticket.to_text().map_err(|error| CliError::Failure(error.to_string()))?;
        write(&self.ticket(), &text).map_err(|error| unwritable(&self.ticket(), &error))
    }

    /// Commands to copy. `first`: a node's address.
    pub(super) fn lines(&self, program: &str, first: &str) -> Vec<String> {
        let key = shell_file(&self.key());
        let ticket = shell_word(&format!("@{}", self.ticket().display()));
        vec![
            String::new(),
            format!("{key}: the key file; whoever has it is an admin"),
            format!(
                "{}: the ticket of {USER}, who may do everything below `site`",
                shell_file(&self.ticket())
            ),
            String::new(),
            String::from("In other terminals, as that user, with TLS; the last one is refused:"),
            String::new(),
            format!("  {program} watch site --ticket {ticket}"),
            format!("  {program} set site.lamp '{{\"on\": true}}' --ticket {ticket}"),
            format!("  {program} get site.lamp --ticket {ticket}"),
            format!("  {program} tree --ticket {ticket}"),
            format!("  {program} whoami --ticket {ticket}"),
            format!("  {program} set private.plans 5 --ticket {ticket}"),
            String::new(),
            String::from("What a stranger gets:"),
            String::new(),
            format!("  {program} tree --connect {first}"),
            String::new(),
            String::from("What an admin sees:"),
            String::new(),
            format!("  {program} members --key {key} --connect {first}"),
            format!("  {program} acl explain {USER} private.plans --key {key} --connect {first}"),
            String::new(),
            String::from("Ctrl-C stops all nodes, and removes these files."),
        ]
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.at) {
            tracing::warn!(path = %self.at.display(), %error, "the demo's files are left behind");
        }
    }
}

async fn ask(connection: &Connection, action: &str, fields: &Fields) -> Result<Message, CliError> {
    match rt::timeout(TIMEOUT, connection.request(action, fields)).await {
        Some(reply) => Ok(reply?),
        None => {
            Err(CliError::Failure(format!("the demo's node did not answer within {TIMEOUT:?}")))
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{text}")
}

fn unwritable(path: &Path, error: &io::Error) -> CliError {
    CliError::Failure(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_files_are_for_their_owner_only_and_go_with_the_demo() {
        let folder = Folder::make("demo").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&folder.at), 0o700);
        assert_eq!(mode(&folder.key()), 0o600);
        let at = folder.at.clone();
        drop(folder);
        assert!(!at.exists());
    }
}
