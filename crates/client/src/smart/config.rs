//! How a client behaves. The defaults are for a program that would rather wait some seconds than
//! get an error.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::connection::{OwnNetwork, WINDOW_MAX, WINDOW_MIN};
use crate::credentials::Access;
use crate::login::Login;
use crate::pool::{CONNECTIONS_PER_NODE_MAX, PoolConfig};
use crate::retry::RetryPolicy;
use crate::smart::error::CallError;
use crate::smart::observer::{Observer, Observing};
use crate::topology::TopologyConfig;

/// The shortest time after which the table of overrides is fetched again: it is the same for all clients of a network.
const SHARD_TABLE_AGE_MIN: Duration = Duration::from_millis(100);

/// Which node's answer a read takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadMode {
    /// That of the node which acknowledged this client's last write of the same shard; without
    /// one, of the node that is preferred for the path; else of the next that answers.
    #[default]
    Preferred,
    /// That of any node. A write of one's own may not be seen yet.
    Any,
    /// The newest version of a majority of the nodes in the view: greatest by (tock, node name,
    /// incarnation, tick). Newer than one node's version while the network is slow to spread it,
    /// and no more than that: see [`ReadModeError::Linearizable`].
    Freshest,
}

/// Why there is no such read mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadModeError {
    /// It is not offered, on purpose.
    #[error(
        "linearizable reads are refused: a node acknowledges a write alone, before any other node \
         has it, and while the network is split both sides take writes, so no number of nodes \
         can tell whether there is a newer one; 'freshest' asks a majority for the newest that they \
         have, and a put with a chain precondition finds out whether what it read was current"
    )]
    Linearizable,
    /// The word is unknown.
    #[error(
        "there is no read mode {0:?}; there are preferred, any (what etcd calls serializable), freshest"
    )]
    Unknown(String),
}

impl FromStr for ReadMode {
    type Err = ReadModeError;

    fn from_str(text: &str) -> Result<ReadMode, ReadModeError> {
        match text.to_ascii_lowercase().as_str() {
            "preferred" => Ok(ReadMode::Preferred),
            "any" => Ok(ReadMode::Any),
            "freshest" => Ok(ReadMode::Freshest),
            "linearizable" | "linearisable" | "strong" => Err(ReadModeError::Linearizable),
            _ => Err(ReadModeError::Unknown(text.to_owned())),
        }
    }
}

/// What a client does. Made with [`ClientConfig::new`] and the methods that follow. [`Client::connect`] refuses numbers that
/// are out of their range, and times of zero where nothing could be done in them, or where it would try again without a pause.
///
/// [`Client::connect`]: super::Client::connect
#[derive(Debug, Clone, PartialEq)]
pub struct ClientConfig {
    pub(super) pool: PoolConfig,
    /// What single settings say of access. It counts more than `access`, whichever was given first.
    own_access: OwnAccess,
    access: Access,
    pub(super) topology: TopologyConfig,
    pub(super) retry: RetryPolicy,
    pub(super) read_mode: ReadMode,
    pub(super) writes_ids: bool,
    pub(super) connect_deadline: Duration,
    pub(super) own_write_patience: Duration,
    pub(super) own_writes_max: usize,
    pub(super) watch_paths_max: usize,
    pub(super) watch_bytes_max: usize,
    pub(super) watch_patience: Duration,
    pub(super) shard_table_age: Duration,
    pub(super) close_grace: Duration,
    pub(super) observer: Observing,
}

/// See [`ClientConfig`].
#[derive(Debug, Clone, Default, PartialEq)]
struct OwnAccess {
    login: Option<Login>,
    plaintext_login: Option<bool>,
    network: Option<OwnNetwork>,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            pool: PoolConfig::default(),
            own_access: OwnAccess::default(),
            access: Access::default(),
            topology: TopologyConfig::default(),
            retry: RetryPolicy::default(),
            read_mode: ReadMode::Preferred,
            writes_ids: true,
            connect_deadline: Duration::from_secs(10),
            own_write_patience: Duration::from_secs(1),
            own_writes_max: 16_384,
            watch_paths_max: 65_536,
            watch_bytes_max: 16 << 20,
            watch_patience: Duration::from_secs(2),
            shard_table_age: Duration::from_secs(30),
            close_grace: Duration::from_secs(1),
            observer: Observing::default(),
        }
    }
}

impl ClientConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> ClientConfig {
        ClientConfig::default()
    }

    /// Refuses what makes no sense, and logins that no node takes.
    ///
    /// # Errors
    /// [`CallError::Usage`] names the first of them.
    pub(super) fn check(&self) -> Result<(), CallError> {
        self.check_times()?;
        if self.shard_table_age < SHARD_TABLE_AGE_MIN {
            let (least, age) = (SHARD_TABLE_AGE_MIN.as_millis(), self.shard_table_age.as_millis());
            let text = format!("shard_table_age must be at least {least} ms, not {age} ms");
            return Err(CallError::Usage(text));
        }
        let window = self.pool.window.unwrap_or(WINDOW_MIN);
        let attempts = self.retry.attempts_max.unwrap_or(1);
        for (name, number, range) in [
            (
                "connections_per_node",
                self.pool.connections_per_node as u64,
                1..=CONNECTIONS_PER_NODE_MAX as u64,
            ),
            ("busy_at", self.pool.busy_at as u64, 1..=u64::MAX),
            ("window", window, WINDOW_MIN..=WINDOW_MAX),
            ("factor", self.retry.factor.into(), 1..=u64::MAX),
            ("attempts_max", attempts.into(), 1..=u64::MAX),
        ] {
            check_number(name, number, range)?;
        }
        if self.read_mode == ReadMode::Freshest && self.topology.only_seeds {
            let text = "read_mode cannot be Freshest with only_seeds: the client then does not know which nodes there are, \
                        so not what a majority of them is";
            return Err(CallError::Usage(String::from(text)));
        }
        let access = self.access_in_all();
        access.login().map_or(Ok(()), Login::check).map_err(CallError::Usage)
    }

    fn check_times(&self) -> Result<(), CallError> {
        let times = [
            ("connect_deadline", self.connect_deadline),
            ("try_deadline", self.retry.try_deadline),
            ("total_deadline", self.retry.total_deadline),
            ("initial_delay", self.retry.initial_delay),
            ("delay_max", self.retry.delay_max),
            ("connect_timeout", self.pool.connect_timeout),
            ("probe_timeout", self.pool.probe_timeout),
            ("first_view_timeout", self.topology.first_view_timeout),
            ("retry_delay", self.topology.retry_delay),
            ("retry_delay_max", self.topology.retry_delay_max),
            ("old_nodes_delay", self.topology.old_nodes_delay),
        ];
        match times.into_iter().find(|(_, time)| time.is_zero()) {
            Some((name, _)) => Err(CallError::Usage(format!("{name} must be longer than zero"))),
            None => Ok(()),
        }
    }

    /// How connections are kept.
    #[must_use]
    pub fn pool(self, pool: PoolConfig) -> ClientConfig {
        ClientConfig { pool, ..self }
    }

    /// As whom the nodes are used, where they ask for a login. It counts instead of that of [`ClientConfig::access`], and of a
    /// ticket.
    #[must_use]
    pub fn login(mut self, login: Login) -> ClientConfig {
        self.own_access.login = Some(login);
        self
    }

    /// Whether a user's password or token is also sent without TLS to another machine, where whoever is in between can
    /// read it (no): see [`Access::plaintext_login`], instead of which this counts.
    #[must_use]
    pub fn plaintext_login(mut self, plaintext_login: bool) -> ClientConfig {
        self.own_access.plaintext_login = Some(plaintext_login);
        self
    }

    /// To which network, whether by TLS, and as whom: at each node. What [`ClientConfig::login`], [`ClientConfig::network`] and
    /// [`ClientConfig::plaintext_login`] say counts more, in whatever order they are given. It replaces another [`Access`] that
    /// was given before.
    #[must_use]
    pub fn access(self, access: Access) -> ClientConfig {
        ClientConfig { access, ..self }
    }

    /// All that is said of access, in whatever order it was.
    pub(super) fn access_in_all(&self) -> Access {
        let OwnAccess { login, plaintext_login, network } = self.own_access.clone();
        let access = self.access.clone();
        let plaintext_login = plaintext_login.unwrap_or(access.has_plaintext_login());
        let network = network.or_else(|| access.network().cloned());
        let access = access.to_network(network).plaintext_login(plaintext_login);
        match login {
            Some(login) => access.log_in(login),
            None => access,
        }
    }

    /// Whether it says itself how nodes are known, so that a ticket does not.
    pub(super) fn has_own_tls(&self) -> bool {
        self.access.is_secured()
    }

    /// With what a ticket says, where nothing is said of it here.
    pub(super) fn beside_ticket(self, ticket: Access) -> ClientConfig {
        ClientConfig { access: self.access.or(ticket), ..self }
    }

    /// The network's name: nodes of another one are not used. Unless it is given, here or by a ticket, the first node
    /// that lets the client in says which network it is. An empty name is none.
    #[must_use]
    pub fn network(mut self, network: impl Into<String>) -> ClientConfig {
        self.own_access.network = OwnNetwork::named(network);
        self
    }

    /// How the cluster is watched.
    #[must_use]
    pub fn topology(self, topology: TopologyConfig) -> ClientConfig {
        ClientConfig { topology, ..self }
    }

    /// What is retried, when, and for how long.
    #[must_use]
    pub fn retry(self, retry: RetryPolicy) -> ClientConfig {
        ClientConfig { retry, ..self }
    }

    /// Which node's answer reads take that do not say it themselves.
    #[must_use]
    pub fn read_mode(self, read_mode: ReadMode) -> ClientConfig {
        ClientConfig { read_mode, ..self }
    }

    /// Whether each write carries an id, by which nodes know it again when it is retried (on).
    /// Without, a write that may have been made is not retried, unless
    /// [`PutOptions::chain`](super::PutOptions::chain), [`must_be_new`](super::PutOptions::must_be_new) or
    /// [`idempotent`](super::PutOptions::idempotent) keeps it from being made twice.
    #[must_use]
    pub fn write_ids(self, writes_ids: bool) -> ClientConfig {
        ClientConfig { writes_ids, ..self }
    }

    /// How long [`connect`](super::Client::connect) tries to reach a seed (10 s).
    #[must_use]
    pub fn connect_deadline(self, connect_deadline: Duration) -> ClientConfig {
        ClientConfig { connect_deadline, ..self }
    }

    /// How long a read looks for a node that has this client's own last write of a path, once the
    /// one that took it is gone (1 s); then it takes the answer that there is.
    #[must_use]
    pub fn own_write_patience(self, own_write_patience: Duration) -> ClientConfig {
        ClientConfig { own_write_patience, ..self }
    }

    /// For how many paths the own last write is remembered (16,384). The oldest is forgotten.
    #[must_use]
    pub fn own_writes_max(self, own_writes_max: usize) -> ClientConfig {
        ClientConfig { own_writes_max, ..self }
    }

    /// How many paths (65,536), and bytes of them (16 MiB), each watch remembers in order to
    /// continue at another node. With more, it starts over there.
    #[must_use]
    pub fn watch_memory(self, paths: usize, bytes: usize) -> ClientConfig {
        ClientConfig { watch_paths_max: paths, watch_bytes_max: bytes, ..self }
    }

    /// How long a watch that continues at another node waits there for versions that it has already
    /// delivered and that have not arrived there yet (2 s); then it starts over.
    #[must_use]
    pub fn watch_patience(self, watch_patience: Duration) -> ClientConfig {
        ClientConfig { watch_patience, ..self }
    }

    /// How old the table of overrides of preferred nodes gets before it is fetched again (30 s; at least 100 ms).
    #[must_use]
    pub fn shard_table_age(self, shard_table_age: Duration) -> ClientConfig {
        ClientConfig { shard_table_age, ..self }
    }

    /// How long open calls may go on when the client is closed (1 s).
    #[must_use]
    pub fn close_grace(self, close_grace: Duration) -> ClientConfig {
        ClientConfig { close_grace, ..self }
    }

    /// Who is told of calls and tries (nobody).
    #[must_use]
    pub fn observer(self, observer: impl Observer + 'static) -> ClientConfig {
        ClientConfig { observer: Observing::by(observer), ..self }
    }
}

/// Refuses a number that is not within the range of its setting.
fn check_number(name: &str, number: u64, range: RangeInclusive<u64>) -> Result<(), CallError> {
    if range.contains(&number) {
        return Ok(());
    }
    let range = match (range.start(), range.end()) {
        (least, &u64::MAX) => format!("at least {least}"),
        (least, most) => format!("from {least} to {most}"),
    };
    Err(CallError::Usage(format!("{name} must be {range}, not {number}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let login = Login::user(Some("password"), "ann", Some("hunter2"));
        for config in [
            ClientConfig::new().login(login.clone()),
            ClientConfig::new().access(Access::default().log_in(login)),
            ClientConfig::new().login(Login::key(*b"hunter2 hunter2 hunter2 hunter2!")),
        ] {
            let shown = format!("{config:?} {config:#?}");
            let bytes = format!("{:?}", b"hunter2");
            assert!(!shown.contains("hunter2") && !shown.contains(bytes.trim_matches(['[', ']'])));
            assert!(shown.contains("Login("), "{shown}");
        }
    }

    #[test]
    fn what_is_said_of_access_counts_in_whatever_order_it_is_given() {
        let login = || Login::user(None, "ann", Some("hunter2"));
        let other = || Access::default().log_in(Login::user(None, "joe", None));
        let named = |name: &str| Access::default().to_network(OwnNetwork::named(name));
        let steps: [fn(ClientConfig) -> ClientConfig; 3] = [
            |config| config.pool(PoolConfig { busy_at: 9, ..PoolConfig::default() }),
            |config| config.topology(TopologyConfig::default()),
            |config| config.retry(RetryPolicy::default()),
        ];
        let said = || ClientConfig::new().login(login()).network("shop").plaintext_login(false);
        let all = said().access_in_all();
        assert_eq!((all.login(), all.network()), (Some(&login()), named("shop").network()));
        for step in steps {
            assert_eq!(step(said()).access_in_all(), all);
            assert_eq!(step(ClientConfig::new().access(other())).access_in_all(), other());
        }
        let first = ClientConfig::new().access(other().plaintext_login(true));
        let first = first.login(login()).network("shop").plaintext_login(false);
        assert_eq!(first.access_in_all(), all);
        assert_eq!(said().access(other().plaintext_login(true)).access_in_all(), all);
        // So it is beside a ticket.
        assert_eq!(said().beside_ticket(other()).access_in_all(), all);
        let ticket = other().to_network(OwnNetwork::named("shop"));
        assert_eq!(ClientConfig::new().beside_ticket(ticket.clone()).access_in_all(), ticket);
        let both = ClientConfig::new().access(named("test")).beside_ticket(ticket).access_in_all();
        assert_eq!((both.login(), both.network()), (other().login(), named("test").network()));
    }

    #[test]
    fn linearizable_reads_are_refused_with_the_reason() {
        let error = "linearizable".parse::<ReadMode>().unwrap_err();
        assert_eq!(error, ReadModeError::Linearizable);
        assert!(error.to_string().contains("acknowledges a write alone"));
        assert_eq!("Freshest".parse(), Ok(ReadMode::Freshest));
        assert!("best".parse::<ReadMode>().unwrap_err().to_string().contains("\"best\""));
    }
}
