//! How a connection logs in, right after the node's greeting: as a user, or with the cluster's key.

use std::fmt;
use std::ops::RangeInclusive;
#[cfg(feature = "tls")]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use distkv_model::value::Reader;
#[cfg(feature = "tls")]
use distkv_tls::Ticket;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::connection::{Connection, StreamEvent};
use crate::error::ClientError;
use crate::message::{Fields, Greeting};
use crate::model::ids::Millis;
use crate::rt;
#[cfg(feature = "tls")]
use ticket_file::TicketFile;
#[cfg(feature = "tls")]
pub use ticket_file::read_ticket_file;

#[cfg(feature = "tls")]
mod ticket_file;

/// Bytes of a nonce.
const NONCE_BYTES: usize = 32;
/// Bytes that the name of a user, or of a method, may have, as nodes take it.
const NAME_BYTES: RangeInclusive<usize> = 1..=256;
/// Bytes that a password or token may have.
const SECRET_BYTES: RangeInclusive<usize> = 0..=4096;
/// The code with which a node refuses a user's secret.
const REFUSED: &str = "auth_failed";
/// Most keys that one login tries: as many as a cluster has at a time.
const KEYS_MAX: usize = 4;

/// The code of a client that refuses by itself to send its secret: see
/// [`Access::plaintext_login`](crate::Access::plaintext_login).
pub const PLAINTEXT_LOGIN: &str = "plaintext_login";

/// A user and its secret, or the cluster's key. Shown without anything secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    kind: Arc<Kind>,
    /// Where another secret may be found.
    #[cfg(feature = "tls")]
    file: Option<Arc<TicketFile>>,
}

#[derive(PartialEq, Eq)]
enum Kind {
    User {
        method: Option<String>,
        user: String,
        secret: Option<String>,
    },
    /// At least one; they are tried in this order.
    Keys(Vec<[u8; 32]>),
}

impl Login {
    /// A user with its password or token, which is sent as it is: only within TLS, or to a node of the same machine,
    /// unless [`Access::plaintext_login`](crate::Access::plaintext_login) says otherwise. None for methods without a
    /// secret, which never get one. `method`: none takes what the node asks for.
    #[must_use]
    pub fn user(method: Option<&str>, user: &str, secret: Option<&str>) -> Login {
        let [method, secret] = [method, secret].map(|text| text.map(str::to_owned));
        Login::of(Kind::User { method, user: user.to_owned(), secret })
    }

    /// The cluster's key, as far as it is for logins. It is not sent: both sides prove that they have it.
    #[must_use]
    pub fn key(key: [u8; 32]) -> Login {
        Login::of(Kind::Keys(vec![key]))
    }

    /// With one of the cluster's keys, of which there are several while one is exchanged for another: the first, or,
    /// where the node does not have that one, the next that it has. Only four are tried: a cluster has no more.
    #[must_use]
    pub fn keys(first: [u8; 32], others: impl IntoIterator<Item = [u8; 32]>) -> Login {
        let keys = std::iter::once(first).chain(others).take(KEYS_MAX).collect();
        Login::of(Kind::Keys(keys))
    }

    /// Refuses, before anything is sent, what no node takes. The error says what, and nothing secret.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Kind::User { method, user, secret } = &*self.kind else { return Ok(()) };
        for (what, text, range) in [
            ("a user's name", Some(user), NAME_BYTES),
            ("a login's method", method.as_ref(), NAME_BYTES),
            ("a user's secret", secret.as_ref(), SECRET_BYTES),
        ] {
            if let Some(bytes) = text.map(String::len).filter(|bytes| !range.contains(bytes)) {
                let (least, most) = (range.start(), range.end());
                return Err(format!("{what} must have {least} to {most} bytes, not {bytes}"));
            }
        }
        Ok(())
    }

    /// Whether a node must be asked: a node that asks for no login takes users' requests without one.
    fn is_needed(&self, greeting: &Greeting) -> bool {
        matches!(&*self.kind, Kind::Keys(_))
            || greeting.auth.is_some()
            || greeting.auth_soon.is_some()
    }

    fn of(kind: Kind) -> Login {
        Login {
            kind: Arc::new(kind),
            #[cfg(feature = "tls")]
            file: None,
        }
    }

    /// As a ticket says; none if it says nothing of that.
    #[cfg(feature = "tls")]
    pub(crate) fn of_ticket(ticket: &Ticket) -> Option<Login> {
        let login = ticket.login.as_ref()?;
        Some(Login::user(Some(&login.method), &login.user, login.secret.as_deref()))
    }

    /// The same, of a ticket that was read from this file: see [`ticket_file`].
    #[cfg(feature = "tls")]
    pub(crate) fn of_ticket_file(
        ticket: &Ticket,
        file: &Path,
        is_of_any_ca: bool,
    ) -> Option<Login> {
        let file = TicketFile::new(ticket, file, is_of_any_ca)?;
        Some(Login { file: Some(Arc::new(file)), ..Login::of_ticket(ticket)? })
    }

    /// What it is now, without a file.
    pub(crate) fn current(&self) -> Login {
        #[cfg(feature = "tls")]
        if let Some(file) = &self.file {
            return file.login();
        }
        self.clone()
    }

    /// Since when it has the secret that it has now; 0: from the beginning.
    pub(crate) fn since(&self) -> Millis {
        #[cfg(feature = "tls")]
        return self.file.as_ref().map_or(0, |file| file.since());
        #[cfg(not(feature = "tls"))]
        return 0;
    }

    /// Logs in. `may_send_secrets`: whether what is sent comes to nobody else, or that does not matter. `time`: how long it may
    /// take. Where the node does not take the secret of a ticket in a file, and that has another one now, or gets one soon after
    /// a node had taken the old one, it logs in with that.
    ///
    /// # Errors
    /// [`ClientError::NoAccess`], [`ClientError::LoginWaits`], and whatever can happen to a connection.
    pub(crate) async fn run(
        &self,
        connection: &Connection,
        may_send_secrets: bool,
        time: Duration,
    ) -> Result<(), ClientError> {
        #[cfg(feature = "tls")]
        if let Some(file) = &self.file {
            let began = rt::now();
            let left =
                || time.saturating_sub(Duration::from_millis(rt::now().saturating_sub(began)));
            let mut login = file.login();
            let mut ended = login.run_once(connection, may_send_secrets).await;
            if ended.as_ref().is_err_and(is_of_secret)
                && let Some(other) = file.other_than(&login, left()).await
            {
                ended = other.run_once(connection, may_send_secrets).await;
                login = other;
            }
            if ended.is_ok() && login.is_needed(connection.greeting()) {
                file.on_taken(&login);
            }
            return ended;
        }
        #[cfg(not(feature = "tls"))]
        let _ = time;
        self.run_once(connection, may_send_secrets).await
    }

    async fn run_once(
        &self,
        connection: &Connection,
        may_send_secrets: bool,
    ) -> Result<(), ClientError> {
        let greeting = connection.greeting();
        if !self.is_needed(greeting) {
            return Ok(());
        }
        match &*self.kind {
            Kind::User { method, user, secret } => {
                let by = method_of(greeting, method.as_deref());
                if secret.is_none() && matches!(by, "password" | "token") {
                    return Err(ClientError::NoAccess {
                        address: connection.address().to_owned(),
                        reason: format!(
                            "who logs in as {user:?} needs the user's secret, and none was given (commands: \
                             --secret-file FILE, or DISTKV_SECRET)"
                        ),
                        code: None,
                        greeted: true,
                    });
                }
                let asked = (method.as_deref(), &**user, secret.as_deref());
                let fields = ask_as_user(greeting, asked, connection.address(), may_send_secrets)?;
                self.ask(connection, &fields).await.map(|_| ())
            }
            Kind::Keys(keys) => {
                let mut refused = Ok(());
                for key in keys {
                    refused = self.prove(connection, key).await;
                    // It may have another key of these.
                    if !matches!(&refused, Err(ClientError::NoAccess { .. })) {
                        break;
                    }
                }
                refused
            }
        }
    }

    /// For load generators, which speak the protocol by themselves at a node that a [`Connection`] has logged in at before:
    /// what `auth` is asked with, one after the other until the node agrees. `client`: random bytes. `may_send_secrets`: what
    /// [`Access::may_send_secrets`](crate::Access::may_send_secrets) says of the node at `address`. None: the node asks for no
    /// login. Nobody looks whether the node proves that it has the key.
    ///
    /// # Errors
    /// [`ClientError::NoAccess`]: a secret would be sent that may not.
    pub fn attempts(
        &self,
        greeting: &Greeting,
        client: &[u8; 32],
        address: &str,
        may_send_secrets: bool,
    ) -> Result<Vec<Fields>, ClientError> {
        let login = self.current();
        Ok(match (&*login.kind, &greeting.nonce) {
            _ if !self.is_needed(greeting) => Vec::new(),
            (Kind::User { method, user, secret }, _) => {
                let asked = (method.as_deref(), &**user, secret.as_deref());
                vec![ask_as_user(greeting, asked, address, may_send_secrets)?]
            }
            (Kind::Keys(keys), Some(node)) => {
                keys.iter().map(|key| ask_by_key(key, client, node)).collect()
            }
            (Kind::Keys(_), None) => Vec::new(),
        })
    }

    async fn prove(&self, connection: &Connection, key: &[u8; 32]) -> Result<(), ClientError> {
        let refused = |reason: &str| ClientError::NoAccess {
            address: connection.address().to_owned(),
            reason: reason.to_owned(),
            code: None,
            greeted: true,
        };
        let Some(node) = connection.greeting().nonce else {
            return Err(refused(
                "nobody logs in with the cluster's key there: it has none (--key), or its network is still moving \
                 to one (--plaintext-peers); ask without the key",
            ));
        };
        let client: [u8; NONCE_BYTES] = rt::random_bytes()
            .map_err(|_| refused("this system has no random bytes for a login"))?;
        let fields = ask_by_key(key, &client, &node);
        let theirs = self.ask(connection, &fields).await?;
        if theirs.as_deref() != Some(&proof(key, b"distkv login node 1", &client, &node)[..]) {
            return Err(refused("it does not prove that it has the cluster's key"));
        }
        Ok(())
    }

    /// Asks; the node's proof, if it sends one.
    async fn ask(
        &self,
        connection: &Connection,
        fields: &Fields,
    ) -> Result<Option<Vec<u8>>, ClientError> {
        let asked = async {
            let mut stream = connection.own_stream("auth", fields).await?;
            let mut proof = None;
            while let Some(event) = stream.next().await? {
                if let StreamEvent::Item { message, .. } = event {
                    let raw = message.get("proof").map(Reader::new);
                    proof = raw.and_then(|mut raw| raw.read_bin().ok().map(<[u8]>::to_vec));
                }
            }
            Ok::<_, ClientError>(proof)
        };
        let address = || connection.address().to_owned();
        asked.await.map_err(|error| match error {
            ClientError::Server(server) if server.has_code(REFUSED) => ClientError::NoAccess {
                address: address(),
                reason: format!("{}: {server}", self.blame()),
                code: server.code.map(Into::into),
                greeted: true,
            },
            ClientError::Server(server) if server.has_code("too_many") => {
                ClientError::LoginWaits { address: address(), error: Box::new(server) }
            }
            error => connection.said_full().unwrap_or(error),
        })
    }

    /// What may be wrong.
    fn blame(&self) -> String {
        match &*self.kind {
            Kind::Keys(_) => String::from("wrong cluster key"),
            Kind::User { user, secret: None, .. } => {
                format!("there is no user {user:?}, or it needs a secret")
            }
            Kind::User { user, .. } => {
                format!("there is no user {user:?}, or its secret is another one")
            }
        }
    }
}

/// Says nothing of what is secret.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.kind {
            Kind::User { method, user, .. } => write!(f, "Login({method:?}, {user:?})"),
            Kind::Keys(_) => f.write_str("Login(key)"),
        }
    }
}

/// Whether a node may not have taken the secret. It makes those wait who come with one that was replaced, too, and need not have
/// looked at it.
#[cfg(feature = "tls")]
fn is_of_secret(error: &ClientError) -> bool {
    match error {
        ClientError::NoAccess { code, .. } => code.as_deref() == Some(REFUSED),
        error => matches!(error, ClientError::LoginWaits { .. }),
    }
}

/// The method of a user's login: as was said, or as the node asks.
fn method_of<'a>(greeting: &'a Greeting, said: Option<&'a str>) -> &'a str {
    let asked = greeting.auth.as_deref().or(greeting.auth_soon.as_deref());
    said.or(asked).unwrap_or("password")
}

/// Whether a method has a secret, as far as is known: `root` and `_test` have none, and whoever asks for them gets none.
fn takes_secret(method: &str) -> bool {
    !matches!(method, "root" | "_test")
}

/// That the client does not log in, because its secret would go to another machine in plain text.
fn in_plaintext(address: &str, method: &str) -> ClientError {
    let what = if matches!(method, "password" | "token") { method } else { "secret" };
    ClientError::NoAccess {
        address: address.to_owned(),
        reason: format!(
            "it asks for a login, and the {what} would go there in plain text: use TLS (a ticket, or a CA), a tunnel \
             on this machine, or plaintext_login"
        ),
        code: Some(PLAINTEXT_LOGIN.into()),
        greeted: true,
    }
}

/// What a user's login asks with.
fn ask_as_user(
    greeting: &Greeting,
    (method, user, secret): (Option<&str>, &str, Option<&str>),
    address: &str,
    may_send_secrets: bool,
) -> Result<Fields, ClientError> {
    let (by, mut fields) = (method_of(greeting, method), Fields::new());
    fields.str("typ", by).str("ident", user);
    if let Some(secret) = secret.filter(|_| takes_secret(by)) {
        // Whoever answers there chooses the method, so what counts is that the secret would be sent.
        if !may_send_secrets {
            return Err(in_plaintext(address, by));
        }
        fields.str("secret", secret);
    }
    Ok(fields)
}

/// What a login with the cluster's key asks with.
fn ask_by_key(key: &[u8; 32], client: &[u8; NONCE_BYTES], node: &[u8; NONCE_BYTES]) -> Fields {
    let mut fields = Fields::new();
    fields.str("typ", "key").str("ident", "*").bin("nonce", client);
    fields.bin("proof", &proof(key, b"distkv login client 1", client, node));
    fields
}

/// What a side sends to show that it has the key.
fn proof(
    key: &[u8; 32],
    label: &[u8],
    client: &[u8; NONCE_BYTES],
    node: &[u8; NONCE_BYTES],
) -> [u8; 32] {
    // Keys of any length are taken, so there always is one.
    let mac = <Hmac<Sha256> as Mac>::new_from_slice(key).map(|mac| {
        mac.chain_update(label).chain_update(client).chain_update(node).finalize().into_bytes()
    });
    mac.map_or([0; 32], Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_the_one_that_nodes_expect() {
        let proof = proof(&[2; 32], b"distkv login client 1", &[0; 32], &[1; 32]);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "a7cddc04e748ef3bcaac588d24fde3bd985d7933def912e0c14828fe5a9c5072");
    }

    #[test]
    fn no_more_keys_are_tried_than_a_cluster_has() {
        let login = Login::keys([0; 32], (1..=9).map(|number| [number; 32]));
        let expected = Kind::Keys((0..4).map(|number| [number; 32]).collect());
        assert!(*login.kind == expected);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let login = Login::user(Some("token"), "joe", Some("hunter2"));
        assert_eq!(format!("{login:?}"), "Login(Some(\"token\"), \"joe\")");
        assert_eq!(format!("{:?}", Login::key([7; 32])), "Login(key)");
    }
}
