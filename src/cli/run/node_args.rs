//! The options of `run` and `join`, and those that `start` shares with them.

use std::path::PathBuf;

use clap::Args;

use super::logging::{self, LogFormat, Logging};
use super::settings::{Settings, StartKind, apart};
use crate::cli::data::value_input::parse_json_option;
use crate::cli::error::CliError;
use crate::cli::remote::KEY;
use crate::model::value::Value;
use crate::node::config::Config;

/// What `run -h` ends with.
macro_rules! run_help {
    () => {
        "\
Examples:
  distkv-node run --name n1
  distkv-node run --key key --name n1 --gossip 0.0.0.0:27587
  distkv-node run --insecure --name n1 --gossip 0.0.0.0:27587  # no protection
  distkv-node run --name n1 --init '{\"site\": \"main\"}' --load saved-state.bin
  distkv-node run --name n1 --peer n2.example.org --peer-file peers.txt
  distkv-node run --name n1 --data-dir /var/lib/distkv/n1

A port that other machines reach needs --key FILE (see `distkv-node key new --help`) or \
--insecure.

The node first looks for its network: it asks the nodes of --peer and --peer-file, and those \
that its data directory names, and serves once it has caught up with them. If none answers \
within --peer-wait, it goes on alone. Give a first node --peer when you restart it, so that \
it does not found a second network."
    };
}

/// What `join -h` ends with.
macro_rules! join_help {
    () => {
        "\
Examples:
  distkv-node join 10.0.0.1 --key key --name n2 --gossip 0.0.0.0:27587
  distkv-node join n1.example.org n3.example.org:27587 --key key \\
    --gossip 0.0.0.0:27587
  distkv-node join 127.0.0.1 --name n2 \\
    --client 127.0.0.1:27596 --gossip 127.0.0.1:27597
  distkv-node join n1.example.org --key key --name n2 --gossip 0.0.0.0:27587 \\
    --data-dir /var/lib/distkv/n2

It keeps trying until one of the peers answers, and serves clients once it has all the data. \
A peer is given with its gossip port (27587 unless you say another one), not with its client \
port."
    };
}

/// What `--help` has more.
macro_rules! long_help {
    () => {
        "

Configuration file (--config):
  TOML. A key is the name of a long option; an option that may be repeated is a
  list: peers, http-names, cert-names, client-plaintext. Options win over the
  file. --discard-damaged is an option only. All keys:

    name = \"n1\"
    network = \"plant\"                              # not needed with key
    key = \"/etc/distkv/key\"                        # its network is the node's
    client = \"0.0.0.0:27586\"
    gossip = \"0.0.0.0:27587\"
    advertise = \"n1.example.org\"                   # for other nodes, and
    advertise-client = \"n1.example.org:37586\"      # for clients
    http = \"127.0.0.1:27585\"
    http-names = [\"metrics.example.org\"]           # --http-name
    http-write = false                             # without key only, and with
    http-token-file = \"/var/lib/distkv/token\"      # this file
    peers = [\"n2.example.org\", \"n3.example.org\"]   # --peer
    peer-file = \"/var/lib/distkv/peers\"
    peer-wait = \"10s\"                              # or a number of seconds
    max-memory = \"2GiB\"                            # or a number of bytes
    max-client-memory = \"256MiB\"
    max-connections = 10000
    max-requests = 16384
    ready-wait = \"30s\"                             # or a number of seconds
    threads = 2
    data-dir = \"/var/lib/distkv/n1\"
    sync = \"every-second\"                          # or \"never\", \"every-batch\"
    log-rotate-bytes = \"64MiB\"
    log-rotate-after = \"1d\"
    snapshot-after = \"256MiB\"
    keep-snapshots = 2
    keep-for = \"7d\"
    keep-size = \"1GiB\"
    snapshot-schedule = \"daily 03:00\"              # UTC; or \"every 6h\"
    snapshot-dir = \"/var/lib/distkv/backup\"
    snapshot-keep = 7
    snapshot-keep-for = \"30d\"
    client-files = \"/var/lib/distkv/files\"
    remote-restore = false
    forget-down-after = \"10m\"                      # or a number of seconds
    purge-grace = \"5m\"                             # or a number of seconds
    read-only = false
    ignore-auth = false
    audit = \"/var/lib/distkv/audit\"
    isolated-logins = \"10m\"                        # or a number of seconds
    insecure = false                               # without key only
    plaintext-peers = false                        # with key only
    cert = \"/etc/distkv/n1.pem\"                    # TLS for clients
    cert-key = \"/etc/distkv/n1.key\"
    cert-names = [\"n1.example.org\"]                # without cert only
    client-ca = \"/etc/distkv/staff.pem\"
    client-plaintext = [\"10.1.0.0/16\"]
    log = \"info\"
    log-format = \"text\"                            # or \"json\", \"journald\"
    json = false
    found = false                                  # `start` only
    init = { site = \"main\" }                       # as TOML; not with `join`,
    load = \"saved-state.bin\"                       # with `start` if found

Data on disk (--data-dir):
  A node with a data directory survives restarts and power cuts: changes go
  into an event log, and snapshots keep it short. The node also becomes a
  member of the Delete group, which agrees when deleted entries may be purged.
  --sync says when a change is safe:
    never         when the system writes it; only for data that may be lost
    every-second  within a second: a power cut can lose the last second
    every-batch   before it is acknowledged or spread: no acknowledged change
                  is lost
  Under never and every-second, a node that is killed (kill -9) can lose the
  last milliseconds of what it acknowledged; what has reached another node
  comes back from there. SIGTERM and `leave` lose nothing.
  If the disk is full or fails, a node under every-batch refuses changes of
  clients until the disk works again; under the others it continues without a
  log. `status` and the log say so.

Signals:
  SIGTERM, SIGINT  leave the network and end, within 3 s; a second one ends the
                   process at once. The log says how many changes are on no
                   other node, if any
  SIGHUP           read the key file and the certificate for clients again; a
                   bad one is a warning, and the old one stays. Open the audit
                   log anew. Read the configuration file's log level again; if
                   it has none, switch debug logs on and off (without --key,
                   --cert and --audit only)

Exit code: 0 ended as asked, 1 could not start, for a reason that may pass (a full disk, a disk that \
is not mounted yet, a port in use), or failed; 2 usage: an option is not valid, or a file or directory that \
it names is not there, cannot be used by this user, or is something else, such as another node's data \
directory; 3 the network refuses this node until something is changed: its name is taken, \
or no peer that was named is a node of this network; 4 the node has found a defect of its own and \
ended at once: report what it has printed. A service manager should restart it after 1 and 4, and \
not after 2 or 3."
    };
}

/// Start the first node of a network
#[derive(Debug, Clone, Args)]
#[command(after_help = run_help!(), after_long_help = concat!(run_help!(), long_help!()))]
pub(in crate::cli) struct RunArgs {
    /// Set the root to this value, if it has none
    #[arg(long, value_name = "JSON", value_parser = parse_json_option, allow_hyphen_values = true)]
    init: Option<Value>,

    /// Read a saved state or a change log before serving
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,

    /// A node of the network, tried before a network is founded; may be repeated
    #[arg(long = "peer", value_name = "ADDR[:PORT]")]
    peers: Vec<String>,

    #[command(flatten)]
    node: NodeArgs,
}

/// Start a node that joins a network
#[derive(Debug, Clone, Args)]
#[command(after_help = join_help!(), after_long_help = concat!(join_help!(), long_help!()))]
pub(in crate::cli) struct JoinArgs {
    /// A node of the network: its --gossip address; several may be given
    #[arg(value_name = "ADDR[:PORT]")]
    join: Vec<String>,

    /// The same as an argument; may be repeated
    #[arg(long = "peer", value_name = "ADDR[:PORT]")]
    peers: Vec<String>,

    #[command(flatten)]
    node: NodeArgs,
}

pub(super) use long_help;

/// The options of all commands that start a node.
#[derive(Debug, Clone, Args)]
pub(super) struct NodeArgs {
    #[command(flatten)]
    settings: Settings,

    /// Take settings from a TOML file; see --help
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A node that is ready to be started.
pub(in crate::cli) struct Prepared {
    pub(in crate::cli) config: Config,
    pub(in crate::cli) logging: Logging,
    pub(in crate::cli) json: bool,
    /// Of the runtime.
    pub(in crate::cli) threads: usize,
}

impl RunArgs {
    /// Puts together what options, environment and file say, and starts logging.
    pub(in crate::cli) fn prepare(self) -> Result<Prepared, CliError> {
        let (init, load) = (self.init, self.load);
        let own = Settings { peers: some(self.peers), init, load, ..Settings::default() };
        self.node.prepare(StartKind::Run, own)
    }
}

impl JoinArgs {
    /// Puts together what options, environment and file say, and starts logging.
    pub(in crate::cli) fn prepare(self) -> Result<Prepared, CliError> {
        let peers = some(self.join.into_iter().chain(self.peers).collect());
        self.node.prepare(StartKind::Join, Settings { peers, ..Settings::default() })
    }
}

impl NodeArgs {
    /// Puts together what options, environment and file say, and starts logging. `own`: what only this kind of
    /// start has.
    ///
    /// # Errors
    /// What makes no sense, and what would.
    pub(super) fn prepare(self, kind: StartKind, own: Settings) -> Result<Prepared, CliError> {
        let file = self.config;
        let from_file = file.as_deref().map(Settings::load).transpose()?.unwrap_or_default();
        let typed = Settings { log: logging::level_given(self.settings.log), ..self.settings };
        let mut settings = own.or(typed).or(from_file);
        let log = settings.log.take();
        let log_format = settings.log_format.take().unwrap_or_else(LogFormat::of_stderr);
        let json = settings.json.take().unwrap_or(false);
        let threads = settings.threads()?;
        apart::is_apart(settings.audit.as_deref(), "--config", file.as_deref())?;
        let config = settings.into_config(kind, host_name)?;
        let logging = Logging::start(log.as_deref(), logging::default_level(), file, log_format)?;
        if config.key.is_none() && std::env::var_os(KEY).is_some_and(|key| !key.is_empty()) {
            tracing::warn!(
                "{KEY} is set, and is for commands only: this node has no key; give it with --key FILE"
            );
        }
        Ok(Prepared { config, logging, json, threads })
    }
}

/// A list that somebody gave; an empty one must not hide that of the file.
pub(super) fn some(list: Vec<String>) -> Option<Vec<String>> {
    Some(list).filter(|list| !list.is_empty())
}

/// The host's name, as the system has it; empty if that is no text.
pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
