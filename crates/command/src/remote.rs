//! What all commands against a running node have in common: where it is, and how it is asked.

use std::env;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use distkv_client::{
    Access, Client, ClientConfig, ClientError, Connection, Fields, HostPort, Login, Message,
    Options, OwnNetwork, ReplyStream, RetryPolicy, ServerError, ShutOut, StreamEvent,
};
use distkv_core::protocol::client::Action;
use distkv_model::host_port::CLIENT_PORT;
use distkv_model::ids::Millis;
use distkv_model::path::Path;
use distkv_runtime as rt;
use distkv_secure::key::{Key, Purpose};
use distkv_secure::key_file::KeyFile;
use distkv_tls::{CaHash, Ticket};

use crate::error::{CliError, Outcome, note_node};
use crate::following::Following;
use crate::key_file;
use crate::login::LoginArgs;
use crate::node_ca;
use crate::ticket::{TicketRead, TicketText};
use crate::units::parse_some_time;

pub use reach::{Reach, RequestKind};

mod reach;

/// The environment's variable for `--connect`.
const CONNECT: &str = "DISTKV_CONNECT";
/// The environment's variable for `--ticket`.
const TICKET: &str = "DISTKV_TICKET";
/// The environment's variable for `--key`.
pub const KEY: &str = "DISTKV_KEY";
/// How long a node may take for an answer unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How much longer is waited where the node itself keeps to the time, so that it is the node that
/// tells what came of the request.
const NODE_TELLS: Duration = Duration::from_secs(5);

/// Messages of a stream that may be under way where a command has several.
const WINDOW: u64 = 8;

/// Where the node is, and how it is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Connection")]
pub struct RemoteArgs {
    /// The node's client port; of several, separated by commas, the first one that is up
    /// [env: DISTKV_CONNECT] [default: 127.0.0.1:27586]
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    connect: Vec<String>,

    /// Where the nodes are, how they are known (TLS), and who you are: a ticket, or @FILE with one
    /// in it ('@-': standard input), which hides it from `ps` [env: DISTKV_TICKET]
    #[arg(long, value_name = "TICKET|@FILE")]
    ticket: Option<TicketText>,

    /// What the ticket says, once it was read.
    #[arg(skip)]
    ticket_read: TicketRead,

    /// The network that was reached first, of all clones.
    #[arg(skip)]
    met: Arc<OnceLock<OwnNetwork>>,

    /// What nodes have said last against this client, of all clones.
    #[arg(skip)]
    shut_out: ShutOut,

    /// The network's key file: whoever has it is an admin [env: DISTKV_KEY]
    #[arg(long, value_name = "FILE", conflicts_with = "ticket")]
    key: Option<PathBuf>,

    /// The CA of the nodes' certificates, where they have a --cert of their own: a PEM file; of
    /// several in it, the last [env: DISTKV_NODE_CA] [default: the key file's]
    #[arg(long, value_name = "FILE")]
    node_ca: Option<PathBuf>,

    /// How long the node may take, connecting included, like 500ms, 10s, 2m; where much is asked
    /// for or sent, each time [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_some_time)]
    pub timeout: Option<Duration>,

    /// Print JSON, for programs: one object, or one per line
    #[arg(long)]
    pub json: bool,

    /// How long an answer may take unless `--timeout` says so: for requests that do much. Connecting is
    /// not part of it.
    #[arg(skip)]
    pub answer: Option<Duration>,

    /// As whom.
    #[command(flatten)]
    pub(crate) login: LoginArgs,
}

/// A connection to the node, and how long it may take.
pub struct Remote {
    /// To the node.
    pub connection: Connection,
    /// How long an answer may take.
    timeout: Duration,
    /// Within what time what is asked for must begin, however long it may take then.
    begins: Duration,
    /// When all answers must be there, if they have their time together.
    until: Option<Millis>,
}

impl RemoteArgs {
    /// What was said after the command, and what was said before it where that says nothing.
    pub fn or(self, before: RemoteArgs) -> RemoteArgs {
        RemoteArgs {
            connect: if self.connect.is_empty() { before.connect } else { self.connect },
            ticket_read: match self.ticket {
                Some(_) => self.ticket_read,
                None => before.ticket_read,
            },
            met: self.met,
            shut_out: self.shut_out,
            ticket: self.ticket.or(before.ticket),
            key: self.key.or(before.key),
            node_ca: self.node_ca.or(before.node_ca),
            timeout: self.timeout.or(before.timeout),
            json: self.json || before.json,
            answer: self.answer.or(before.answer),
            login: self.login.or(before.login),
        }
    }

    /// Connects to the node; of several, to the first that answers.
    pub async fn connect(&self) -> Result<Remote, CliError> {
        // One command, one stream: that the socket is not read is all the flow control it needs.
        self.connect_with(None).await
    }

    /// The same for a command that asks a few times, and waits for nobody else in between: connecting and all answers
    /// together take no longer than one answer may.
    ///
    /// # Errors
    /// No node can be reached, or none lets this client in.
    pub async fn connect_in_time(&self) -> Result<Remote, CliError> {
        let began = rt::now();
        let remote = self.connect().await?;
        let until = began.saturating_add(rt::millis(remote.timeout));
        Ok(Remote { until: Some(until), ..remote })
    }

    /// The same for a command that has several streams open at once: one that is not read does not hold up the
    /// others, and of one that is dropped little was sent.
    ///
    /// # Errors
    /// No node can be reached, or none lets this client in.
    pub async fn connect_for_streams(&self) -> Result<Remote, CliError> {
        self.connect_with(Some(WINDOW)).await
    }

    async fn connect_with(&self, window: Option<u64>) -> Result<Remote, CliError> {
        let timeout = self.timeout_or_default();
        let (addresses, access) = (self.addresses()?, self.access()?);
        // One that is silent must leave time for the others.
        let share = timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut failed = None;
        for address in &addresses {
            // Who waits at a terminal wants to know why.
            let options =
                Options { connect_timeout: share, window, nowait: true, access: access.clone() };
            match Connection::connect_again(address, options, &self.shut_out).await {
                Ok(connection) => {
                    note_node(connection.greeting().nonce.is_some());
                    let network = connection.greeting().network.as_deref();
                    if let Some(network) = network.and_then(OwnNetwork::of_node) {
                        // Whoever connects again means the same one.
                        let _ = self.met.set(network);
                    }
                    let begins = self.timeout_or_default();
                    return Ok(Remote {
                        begins,
                        ..Remote::over(connection, self.answer_timeout())
                    });
                }
                // A refusal says more than that another one cannot be reached, and so does another network.
                Err(error) if tells(Some(&error)) >= tells(failed.as_ref()) => failed = Some(error),
                Err(_) => {}
            }
        }
        Err(failed.map_or_else(|| CliError::Usage("--connect is empty".to_owned()), no_greeting))
    }

    /// Connects to the node, or, where there are several addresses, to their cluster.
    pub async fn reach(&self) -> Result<Reach, CliError> {
        if self.addresses()?.len() < 2 {
            return Ok(Reach::Node(self.connect_in_time().await?));
        }
        Ok(Reach::Cluster(self.client().await?, self.answer_timeout()))
    }

    /// A client of the cluster that the addresses are of.
    pub async fn client(&self) -> Result<Client, CliError> {
        // With less, the client would refuse to begin; with hardly any, it is told that no node was reached.
        let hardly_any = Duration::from_millis(1);
        let timeout = self.timeout_or_default().max(hardly_any);
        let total_deadline = self.answer_timeout().max(hardly_any);
        let retry = RetryPolicy { total_deadline, ..RetryPolicy::default() };
        let config = ClientConfig::new().retry(retry).connect_deadline(timeout);
        let config = config.access(self.access()?);
        Ok(Client::connect(self.addresses()?, config).await?)
    }

    /// The same, with the node first that clients prefer for this path, where several were named: so that all who change
    /// something there meet. Where it cannot be found out, or does not answer, it is one that was named.
    ///
    /// # Errors
    /// No node can be reached, or none lets this client in.
    pub async fn toward(&self, path: &Path) -> Result<RemoteArgs, CliError> {
        let named = self.addresses()?;
        if named.len() < 2 {
            return Ok(self.clone());
        }
        let client = self.client().await?;
        // Where a node is set as preferred, all must know it.
        let _in_vain = rt::timeout(self.timeout_or_default(), client.refresh_shards()).await;
        let preferred = client.preferred(path);
        let view = client.cluster_view();
        let first = view.nodes.iter().find(|node| Some(&node.name) == preferred.as_ref());
        let first = first.and_then(|node| node.client.clone());
        let connect = first.into_iter().chain(named).map(|address| address.to_string()).collect();
        Ok(RemoteArgs { connect, ..self.clone() })
    }

    /// Whether several nodes were named.
    pub fn names_several(&self) -> Result<bool, CliError> {
        Ok(self.addresses()?.len() > 1)
    }

    /// What nodes have said last against this client: for those who connect to them again.
    pub fn shut_out(&self) -> &ShutOut {
        &self.shut_out
    }

    /// How long the node may take.
    pub fn timeout_or_default(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT)
    }

    /// How long an answer may take.
    fn answer_timeout(&self) -> Duration {
        self.timeout.or(self.answer).unwrap_or(TIMEOUT)
    }

    /// Whether an address was typed.
    pub fn has_address(&self) -> bool {
        !self.connect.is_empty()
    }

    /// Where to connect; the first, if there are several.
    pub fn address(&self) -> Result<HostPort, CliError> {
        let first = self.addresses()?.into_iter().next();
        first.ok_or_else(|| CliError::Usage("--connect is empty".to_owned()))
    }

    /// Where to connect, in the order given; at least one.
    pub fn addresses(&self) -> Result<Vec<HostPort>, CliError> {
        let (what, texts) = if !self.connect.is_empty() {
            ("--connect", self.connect.clone())
        } else if self.ticket.is_none()
            && let Some(text) = set_in_environment(CONNECT)?
        {
            (CONNECT, text.split(',').map(str::to_owned).collect())
        } else if let Some(ticket) = self.ticket()? {
            ("the ticket", ticket.addresses)
        } else {
            ("", vec![format!("127.0.0.1:{CLIENT_PORT}")])
        };
        texts.iter().map(|text| parse_address(what, text.trim())).collect()
    }

    /// The ticket that was given, if one was.
    fn ticket(&self) -> Result<Option<Ticket>, CliError> {
        self.ticket_read.or_read(|| match &self.ticket {
            Some(text) => Ok(Some(("--ticket", text.as_str().to_owned()))),
            None => Ok(set_in_environment(TICKET)?.map(|text| (TICKET, text))),
        })
    }

    /// The key file that access is by, if it is.
    ///
    /// # Errors
    /// The ticket that was given cannot be used.
    pub fn key_file(&self) -> Result<Option<PathBuf>, CliError> {
        if self.key.is_some() || self.ticket()?.is_some() {
            return Ok(self.key.clone());
        }
        Ok(file_in_environment(KEY))
    }

    /// The key file that access is by. Where it was not typed, an error says who names it.
    fn read_key(&self, file: &FilePath) -> Result<KeyFile, CliError> {
        let read = key_file::read(file);
        read.map_err(|trouble| match &self.key {
            Some(_) => trouble.into(),
            None => CliError::Usage(format!("{KEY}: {trouble}")),
        })
    }

    /// By what the nodes are known: the CA that was named, or else that of the key file, or of the ticket; none where it is
    /// neither.
    ///
    /// # Errors
    /// The key file, the ticket or the CA's file cannot be used.
    pub fn ca(&self) -> Result<Option<CaHash>, CliError> {
        if let Some(path) = self.key_file()? {
            let file = self.read_key(&path)?;
            let of_key = file.ca.as_ref().map(|ca| CaHash::of(&ca.certificate));
            return Ok(node_ca::named(self.node_ca.as_ref())?.or(of_key));
        }
        match self.ticket()? {
            Some(ticket) => Ok(ticket.ca),
            None => node_ca::named(self.node_ca.as_ref()),
        }
    }

    /// To which network, whether by TLS, and as whom: as the options and the environment say, and what was reached before.
    ///
    /// # Errors
    /// The key file, the ticket or the user's secret cannot be used.
    pub fn access(&self) -> Result<Access, CliError> {
        let node_ca = || node_ca::named(self.node_ca.as_ref());
        let access = if let Some(file) = &self.key {
            access_by(&self.read_key(file)?, node_ca()?)?
        } else if let Some(ticket) = self.ticket()? {
            if self.node_ca.is_some() {
                let text = "--node-ca goes with --key or --user, and not with --ticket: a ticket says itself by which CA \
                            the nodes are known; one with another CA is made by `distkv-node ticket new --ca FILE`";
                return Err(CliError::Usage(text.to_owned()));
            }
            let access = self.ticket_read.access(&ticket);
            access.map_err(|error| CliError::Usage(format!("the ticket: {error}")))?
        } else if let Some(file) = file_in_environment(KEY) {
            access_by(&self.read_key(&file)?, node_ca()?)?
        } else if let Some(ca) = node_ca()? {
            Access::default().by_tls(node_ca::tls(ca)?)
        } else {
            Access::default()
        };
        // A user that was named counts more.
        let access = match self.login.read()? {
            None => access,
            Some(login) => access.log_in(login),
        };
        let network = match (access.network(), self.met.get()) {
            // What was known of the one network says nothing of the other.
            (Some(named), Some(met)) if named.name() != met.name() => {
                return Err(CliError::Usage(format!(
                    "the ticket is of the network {:?} by now, and this command began in {:?}: type it again",
                    named.name(),
                    met.name()
                )));
            }
            (named, met) => named.or(met).cloned(),
        };
        Ok(access.to_network(network).plaintext_login(self.login.plaintext_login()?))
    }
}

/// How much it tells of why no node answers.
fn tells(failure: Option<&ClientError>) -> u8 {
    match failure {
        Some(ClientError::NoAccess { .. }) => 3,
        Some(ClientError::OtherNetwork { .. }) => 2,
        Some(_) => 1,
        None => 0,
    }
}

/// What a variable of the environment says; an empty one says nothing.
///
/// # Errors
/// It is no UTF-8: to go on without it could be to go to another node, or as somebody else.
pub(crate) fn set_in_environment(name: &str) -> Result<Option<String>, CliError> {
    match env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(CliError::Usage(format!(
            "the variable {name} is no UTF-8; set it anew, or unset it"
        ))),
    }
}

/// The file that a variable of the environment names; an empty one names none.
pub(crate) fn file_in_environment(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// As an admin, by a key file, and by TLS if there is a CA in it.
///
/// # Errors
/// The file cannot be used.
pub fn access_by_key(path: &FilePath) -> Result<Access, CliError> {
    access_by(&key_file::read(path)?, None)
}

/// The same; `node_ca`: by which CA the nodes are known, if not by that in the key file. The login does not tell which
/// connection it is for, so what is connected to must be known before anything is sent.
fn access_by(file: &KeyFile, node_ca: Option<CaHash>) -> Result<Access, CliError> {
    let ring = &file.ring;
    let proof = |key: &Key| *key.derive(Purpose::AdminLogin);
    // In the middle of a rotation the node may not have the primary yet, or not any more.
    let others = ring.keys().iter().filter(|key| key.id() != ring.primary_id()).map(proof);
    let access = Access::default().log_in(Login::keys(proof(ring.primary()), others));
    Ok(match (node_ca, &file.ca) {
        (Some(ca), _) => access.by_tls(node_ca::tls(ca)?),
        (None, Some(ca)) => access.by_tls(node_ca::tls_of_key(CaHash::of(&ca.certificate))?),
        (None, None) => access,
    })
}

impl Remote {
    /// A connection that is there already.
    pub fn over(connection: Connection, timeout: Duration) -> Remote {
        Remote { connection, timeout, begins: timeout, until: None }
    }

    /// The same, with time for the node to say that its time is over.
    pub fn patient(self) -> Remote {
        let until = self.until.map(|until| until.saturating_add(rt::millis(NODE_TELLS)));
        Remote { timeout: self.timeout + NODE_TELLS, until, ..self }
    }

    /// The same, after it has waited for somebody else since that moment: that is not the node's time.
    #[must_use]
    pub fn waited_since(self, began: Millis) -> Remote {
        let waited = rt::now().saturating_sub(began);
        Remote { until: self.until.map(|until| until.saturating_add(waited)), ..self }
    }

    /// How long an answer may take.
    #[must_use]
    pub fn answer_time(&self) -> Duration {
        self.timeout
    }

    /// To be asked before a new secret is sent, or asked for.
    ///
    /// # Errors
    /// Others could read it on its way. Nothing was sent.
    pub fn require_private(&self) -> Result<(), CliError> {
        if self.connection.may_send_secrets() {
            return Ok(());
        }
        Err(CliError::plaintext_secret(self.connection.address()))
    }

    /// Asks, and waits for the one reply.
    pub async fn request(&self, action: &str, fields: &Fields) -> Result<Message, CliError> {
        let reply = self.try_request(action, fields).await?;
        let reply = reply.map_err(CliError::from);
        if only_reads(action) { reply.map_err(CliError::of_read) } else { reply }
    }

    /// The same, where the caller has something to say of the node's errors.
    pub async fn try_request(
        &self,
        action: &str,
        fields: &Fields,
    ) -> Result<Result<Message, ServerError>, CliError> {
        let asked = async {
            // What the node gets when nobody waits any more is not to be done.
            let time = (!only_reads(action)).then(|| self.time_left().min(self.begins));
            answered(self.connection.request_within(action, fields, time).await)
        };
        let reply = self.in_time(asked).await;
        if only_reads(action) { reply.map_err(CliError::of_read) } else { reply }
    }

    /// Asks for a change that takes long. When `stop` ends, the node is asked to stop, and its answer is waited for all the same.
    ///
    /// # Errors
    /// There is no answer. What the node refuses, or has stopped, is the inner error.
    pub async fn request_until(
        &self,
        action: &str,
        fields: &Fields,
        stop: impl Future<Output = ()>,
    ) -> Result<Result<Message, ServerError>, CliError> {
        let time = Some(self.time_left().min(self.begins));
        let asked =
            async { answered(self.connection.request_until(action, fields, time, stop).await) };
        self.in_time(asked).await
    }

    /// Asks for a stream, and waits for its start. No stream changes anything.
    pub async fn stream(&self, action: &str, fields: &Fields) -> Result<ReplyStream, CliError> {
        self.in_time(self.connection.stream(action, fields)).await.map_err(CliError::of_read)
    }

    /// The same for a stream of what comes in future. When this returns, the node has let it in.
    pub async fn follow(&self, action: &str, fields: &Fields) -> Result<Following, CliError> {
        let mut stream = self.stream(action, fields).await?;
        match rt::timeout(self.timeout, stream.let_in()).await {
            Some(Err(error)) => Err(CliError::of_stream(error)),
            // A node that does not say either in all that time has begun it.
            Some(Ok(())) | None => {
                Ok(Following::new(stream, self.connection.clone(), self.timeout))
            }
        }
    }

    /// The next of a stream that comes without pause.
    pub async fn next(&self, stream: &mut ReplyStream) -> Result<Option<StreamEvent>, CliError> {
        // Whoever reads what is printed may be slow: that is not the node's time.
        self.within(self.timeout, stream.next()).await.map_err(CliError::of_read)
    }

    /// Waits for an answer, as long as there is time. Where there is none left, nothing is sent any more.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, CliError> {
        let Some(until) = self.until else { return self.within(self.timeout, answer).await };
        match until.saturating_sub(rt::now()) {
            0 => Err(self.no_answer(Outcome::Unreachable)),
            _ => self.within(self.time_left(), answer).await,
        }
    }

    /// How long an answer may take that is asked for now.
    fn time_left(&self) -> Duration {
        let left = self.until.map(|until| until.saturating_sub(rt::now()));
        left.map_or(self.timeout, |left| Duration::from_millis(left).min(self.timeout))
    }

    async fn within<T>(
        &self,
        time: Duration,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, CliError> {
        match rt::timeout(time, answer).await {
            Some(answer) => Ok(answer?),
            None => Err(self.no_answer(Outcome::UnknownFate)),
        }
    }

    fn no_answer(&self, outcome: Outcome) -> CliError {
        let (address, time) = (self.connection.address(), self.timeout);
        let text =
            format!("{address} did not answer within {time:?}; use --timeout to wait longer");
        CliError::Request { outcome, code: None, text }
    }
}

fn only_reads(action: &str) -> bool {
    Action::of(action.as_bytes()).is_some_and(Action::only_reads)
}

/// What the node answers, if it does.
fn answered(
    reply: Result<Message, ClientError>,
) -> Result<Result<Message, ServerError>, ClientError> {
    match reply {
        Err(ClientError::Server(error)) => Ok(Err(error)),
        reply => reply.map(Ok),
    }
}

/// Why no connection came about.
pub fn no_greeting(error: ClientError) -> CliError {
    match &error {
        // Other nodes speak first at a gossip port, and clients at none.
        ClientError::Lost { address, .. } => CliError::Request {
            outcome: Outcome::Unreachable,
            code: None,
            text: format!(
                "{address} closed the connection without a greeting; if that is a node's gossip port, \
                 give its client port (default {CLIENT_PORT}) to --connect"
            ),
        },
        _ => error.into(),
    }
}

/// The same at an address that nodes tell of each other: nobody has typed it, so other advice is needed.
#[must_use]
pub fn no_greeting_as_told(error: ClientError) -> CliError {
    // TLS says first what is wrong.
    let is_name =
        matches!(&error, ClientError::NoAccess { reason, .. } if reason.starts_with("wrong name"));
    let told = no_greeting(error);
    if !is_name {
        return told;
    }
    told.said(|text| {
        format!("{text}. It is the address that the node advertises: with --advertise-client NAME, it is that name")
    })
}

/// Reads a node's client address; `what` is the option, or so, that it stands behind.
pub fn parse_address(what: &str, text: &str) -> Result<HostPort, CliError> {
    HostPort::parse_remote(text, Some(CLIENT_PORT))
        .map_err(|error| CliError::Usage(format!("{what}: {error}")))
}

/// Reads a path in DistKV's text form.
pub fn parse_path(text: &str) -> Result<Path, String> {
    text.parse::<Path>()
        .map_err(|error| format!("{error}; paths look like a.b:1.c, the root is ':'"))
}

/// A topic as messages carry it: an array of its parts.
pub fn topic_bytes(topic: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    topic.encode_array(&mut bytes);
    bytes
}

/// The action for a path, and the path that it takes: the system's own tree (below `:n`) has
/// actions of its own, whose paths begin below it.
pub fn address_entry<'a>(
    path: &Path,
    action: &'a str,
    internal_action: &'a str,
) -> Result<(&'a str, Path), CliError> {
    let Some(below) = path.strip_prefix(&Path::system_root()) else {
        return Ok((action, path.clone()));
    };
    let below = Path::from_canonical(below).map_err(|error| CliError::Usage(error.to_string()))?;
    Ok((internal_action, below))
}

/// The path of a stream's item as it is typed: below the path that was asked for.
pub fn whole_path(asked: &Path, below: Option<&Path>) -> String {
    match below.map(|below| asked.join(below)) {
        Some(Ok(path)) => path.to_string(),
        Some(Err(_)) => below.map(ToString::to_string).unwrap_or_default(),
        None => asked.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_system_s_tree_take_other_actions() {
        let path = |text: &str| text.parse::<Path>().unwrap();
        let of = |text| address_entry(&path(text), "get_value", "get_internal").unwrap();
        assert_eq!(of("a.b"), ("get_value", path("a.b")));
        assert_eq!(of(":n.a"), ("get_internal", path("a")));
        assert_eq!(of(":n"), ("get_internal", path(":")));
    }

    #[test]
    fn what_stands_after_the_command_wins() {
        let of = |connect: Option<&str>, json| RemoteArgs {
            connect: connect.map(str::to_owned).into_iter().collect(),
            ticket: None,
            met: Arc::default(),
            shut_out: ShutOut::default(),
            ticket_read: TicketRead::default(),
            key: None,
            node_ca: None,
            timeout: None,
            json,
            answer: None,
            login: LoginArgs::default(),
        };
        assert_eq!(of(Some("a"), false).or(of(Some("b"), true)), of(Some("a"), true));
        assert_eq!(of(None, true).or(of(Some("b"), false)), of(Some("b"), true));
    }

    #[test]
    fn paths_of_items_are_whole() {
        let path = |text: &str| text.parse::<Path>().unwrap();
        assert_eq!(whole_path(&path("a.b"), Some(&path("c"))), "a.b.c");
        assert_eq!(whole_path(&path(":"), Some(&path("c"))), "c");
        assert_eq!(whole_path(&path("a"), None), "a");
    }
}
