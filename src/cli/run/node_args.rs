//! The options of `run` and `join`, and those that `start` shares with them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::logging::{self, LogFormat, Logging};
use super::scheduled_args::ScheduledArgs;
use super::settings::{Settings, StartKind, parse_sync};
use crate::cli::data::value_input::parse_json_option;
use crate::cli::error::CliError;
use crate::cli::terminal::units::{parse_bytes, parse_duration};
use crate::model::value::Value;
use crate::node::config::{Config, SyncPolicy};

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
  TOML, with the long options as keys. Options win over it. For example:

    name = \"n1\"
    key = \"/etc/distkv/key\"                        # its network is the node's
    client = \"0.0.0.0:27586\"
    gossip = \"0.0.0.0:27587\"
    advertise = \"n1.example.org\"
    http = \"127.0.0.1:27585\"
    http-names = [\"metrics.example.org\"]
    peers = [\"n2.example.org\", \"n3.example.org\"]   # --peer
    peer-file = \"/var/lib/distkv/peers\"
    peer-wait = \"10s\"                              # or a number of seconds
    max-memory = \"2GiB\"                            # or a number of bytes
    max-client-memory = \"256MiB\"
    max-connections = 10000
    max-requests = 16384
    ready-wait = \"30s\"                              # or a number of seconds
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
    snapshot-dir = \"/backup/distkv\"
    snapshot-keep = 7
    snapshot-keep-for = \"30d\"
    client-files = \"/var/lib/distkv/files\"
    remote-restore = false
    forget-down-after = \"10m\"                      # or a number of seconds
    purge-grace = \"5m\"                             # or a number of seconds
    read-only = false
    ignore-auth = false
    audit = \"/var/log/distkv/audit\"
    isolated-logins = \"10m\"                        # or a number of seconds
    insecure = false                               # without key only
    plaintext-peers = false                        # with key only
    cert = \"/etc/distkv/n1.pem\"                    # TLS for clients
    cert-key = \"/etc/distkv/n1.key\"
    client-ca = \"/etc/distkv/staff.pem\"
    client-plaintext = [\"10.1.0.0/16\"]
    log = \"info\"
    log-format = \"text\"                            # or \"json\", \"journald\"
    found = false                                  # `start` only
    init = { site = \"main\" }                       # not with `join`; as TOML
    load = \"saved-state.bin\"                       # not with `join`

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
                   it has none, switch debug logs on and off (without --key and
                   --audit only)

Exit code: 0 ended as asked, 1 could not start or failed, 2 usage, 3 the network refuses \
this node until something is changed: its name is taken, or no peer that was named is a node \
of this network. A service manager should not restart it after 2 or 3."
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
    /// The node's name, unique in its network [default: the host name]
    #[arg(long)]
    name: Option<String>,

    /// The network's name; nodes of another network are refused [default: the key file's, or distkv]
    #[arg(long, value_name = "NAME")]
    network: Option<String>,

    /// Where clients connect; port 0 takes a free one [default: 127.0.0.1:27586]
    #[arg(long, value_name = "ADDR:PORT")]
    client: Option<String>,

    /// Where other nodes connect, UDP and TCP [default: 127.0.0.1:27587]
    #[arg(long, value_name = "ADDR:PORT")]
    gossip: Option<String>,

    /// Where other nodes reach this one, if that is not what --gossip says [default: the address
    /// of the route to them]
    #[arg(long, value_name = "ADDR[:PORT]")]
    advertise: Option<String>,

    /// Answer HTTP: a page, the data at /v1/kv/, metrics and health; without an address at
    /// 127.0.0.1:27585 [default: not at all]
    ///
    /// Where clients must log in, requests for data need a ticket (Authorization: Bearer). Elsewhere everybody who
    /// reaches the port reads, and nobody changes anything without --http-write. A request must name the node in its
    /// Host field by the address at which it comes in, `localhost`, the host of --advertise, a --cert-name or a
    /// --http-name. A node with --key or --cert speaks TLS at this port, with the certificate that it shows its clients;
    /// plain text it takes at loopback addresses only (with --client-plaintext none: nowhere). Without a certificate, a
    /// port that other machines reach needs --insecure, and takes no secrets and no changes from them.
    #[arg(
        long,
        value_name = "ADDR:PORT",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:27585"
    )]
    http: Option<String>,

    /// Another name by which HTTP requests may call the node; may be repeated. A certificate that the node makes is for
    /// this name, too
    #[arg(long = "http-name", value_name = "HOST")]
    http_names: Vec<String>,

    /// Take changes by HTTP, too, from who has the token in --http-token-file
    #[arg(long)]
    http_write: bool,

    /// The file with that token; it is made if it is not there, for its owner only
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,

    /// Keep the known nodes in this file, and try them after a restart
    #[arg(long, value_name = "FILE")]
    peer_file: Option<PathBuf>,

    /// How long to look for the network before the node goes on alone, like 30s [default: 10s, or
    /// 2s where no peer is known]
    ///
    /// Until then it carries out no requests (see --ready-wait), so that nobody takes a node that lacks
    /// the data for a network that has none. A node that knows of no peer and has no data waits for nodes
    /// that call it. One that knows of no peer and has data waits for nobody; one that joins and has no
    /// data waits until it has joined.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    peer_wait: Option<Duration>,

    /// Refuse clients' writes that need more memory when entries take this much, like 512MiB or 2GB;
    /// other nodes' changes are always taken, with a warning
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_memory: Option<usize>,

    /// Close the clients that read slowest when what is kept for all clients takes more memory than
    /// this [default: 256MiB]
    ///
    /// What is kept: what they were not sent yet (buffers and queues), their open requests, what a watch
    /// that has fallen behind needs to start over, a snapshot that is being restored, and old versions
    /// of entries that only a listing under way still needs. A snapshot that does not fit is refused;
    /// nobody else is disconnected for it. What the operating system keeps for connections is not
    /// counted.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_client_memory: Option<usize>,

    /// Refuse clients' writes
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    read_only: Option<bool>,

    /// Serve every client without a login, although the data says that clients must log in
    ///
    /// Where the entry `:n.auth` names an authentication method, clients must log in. With this option,
    /// everybody who reaches the client port can read and change everything: use it with a --client address
    /// on loopback. It is the way back in where nobody knows an admin's secret any more: run `distkv-node
    /// user add`, or `distkv-node auth off`, on the machine of such a node.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    ignore_auth: Option<bool>,

    /// Record logins, refusals, and changes of users, access lists and keys in this file, one JSON object
    /// per line
    ///
    /// The file is only appended to, and readable by its owner only. Move it and send SIGHUP to begin another
    /// one. It has no secrets and no values. If the disk does not take it, clients are served all the same:
    /// what could not be written is counted, and the count is in the log and in the file. docs/security.md
    /// explains the fields.
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,

    /// Let no user log in while this node has had no link to any other for so long, like 10m [default:
    /// always]
    ///
    /// A node that is cut off does not hear that a user was removed. With this option it lets nobody in
    /// anew after that time, but the holder of the key; who is logged in already goes on. A node that knows
    /// of no other is not cut off.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    isolated_logins: Option<Duration>,

    /// The network's key file: links and datagrams between nodes are encrypted, and nodes without the
    /// key shut out; see `distkv-node key new --help`
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// Without --key: open ports that other machines reach, although nothing protects them
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    insecure: Option<bool>,

    /// With --key: also link to nodes without a key, while a running network moves to one
    ///
    /// Restart one node after the other with --key and this option. Once `distkv-node members` shows
    /// `secured` for every link, restart them without it. Until then whoever reaches the gossip port can
    /// read and change everything, as before.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    plaintext_peers: Option<bool>,
    #[command(flatten)]
    tls: TlsArgs,

    /// Maximum number of client connections; fewer if the limit on open files is small, so that
    /// the node can always log and link [default: 10000]
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,

    /// Maximum number of open requests per client connection: watches, listings, writes that wait
    /// for copies [default: 16384]
    #[arg(long, value_name = "N")]
    max_requests: Option<usize>,

    /// How long requests of clients wait while the node catches up with its network, like 5s or 1m;
    /// then, or at once with 0s, they are refused [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    ready_wait: Option<Duration>,

    /// Threads that serve clients and peers [default: half of the cores, at least one]
    ///
    /// One serves about a hundred thousand requests per second of clients that wait for each reply,
    /// and nearly a million of clients that do not. Two wake each other more often than that is worth
    /// unless one is not enough.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Stop listing members that have been down for this long, like 90s or 1h; the node still tries
    /// to reach them [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    forget_down_after: Option<Duration>,

    /// How long a node without a data directory may be away before deleted entries are purged
    /// without it, like 90s or 1h [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    purge_grace: Option<Duration>,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    scheduled: ScheduledArgs,

    /// Take settings from a TOML file; see --help
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// off, error, warn, info, debug, trace, or directives like info,distkv::node=debug
    /// [default: info]
    #[arg(long, value_name = "LEVEL", env = "DISTKV_LOG")]
    log: Option<String>,

    /// How the log's lines look: as text, as JSON, one object per line, or for systemd's journal [default:
    /// text; journald where standard error is the journal]
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<LogFormat>,

    /// Print the line that says where the node is as JSON
    #[arg(long)]
    json: bool,
}

/// How clients use TLS.
#[derive(Debug, Clone, Args)]
struct TlsArgs {
    /// Serve clients of other machines by TLS, with the certificate in this PEM file, and those that lead
    /// to its CA behind it; it is read again when it changes, and at SIGHUP
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,

    /// The private key of --cert, as a PEM file
    #[arg(long, value_name = "FILE")]
    cert_key: Option<PathBuf>,

    /// Certificates that a CA in this PEM file has issued log clients in, as the user that the subject's
    /// common name says
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,

    /// Another name or address for the certificate that the node makes from its key file; may be
    /// repeated
    #[arg(long = "cert-name", value_name = "NAME")]
    cert_names: Vec<String>,

    /// Also serve clients of this network without TLS, like 10.1.0.0/16; `none`: not even those on this
    /// machine; may be repeated
    ///
    /// Whoever can listen on the way reads what such clients send, secrets included. A client that cannot do
    /// TLS is better served by `distkv-node tunnel` on its machine.
    #[arg(long, value_name = "NETWORK")]
    client_plaintext: Vec<String>,
}

/// What a node keeps on disk.
#[derive(Debug, Clone, Args)]
struct DataArgs {
    /// Keep the data in this directory, and start with what is there
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// When changes are made safe: never, every-second or every-batch [default: every-second]
    #[arg(long, value_name = "POLICY", value_parser = parse_sync)]
    sync: Option<SyncPolicy>,

    /// Begin a new log file after this many bytes [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    log_rotate_bytes: Option<usize>,

    /// Begin a new log file after this time [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    log_rotate_after: Option<Duration>,

    /// Make a snapshot after this many bytes of log, but not before the log is as long as the last
    /// snapshot [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    snapshot_after: Option<usize>,

    /// Keep this many snapshots, and the past back to the one before them [default: 2]
    #[arg(long, value_name = "N")]
    keep_snapshots: Option<usize>,

    /// Keep older snapshots and logs for this long, so that `log replay` reaches back [default: 7d]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    keep_for: Option<Duration>,

    /// Keep no older ones once all files in the directory take more than this [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    keep_size: Option<usize>,

    /// Truncate damaged files at the first corruption, and start with what is left
    #[arg(long)]
    discard_damaged: bool,

    /// Let clients have files written into this directory (actions save, log, snapshot)
    #[arg(long, value_name = "DIR")]
    client_files: Option<PathBuf>,

    /// Also accept snapshots to restore from other machines; their contents are trusted
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    remote_restore: Option<bool>,
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
        let own = Settings { init: self.init, load: self.load, ..Settings::default() };
        self.node.prepare(StartKind::Run, own, self.peers)
    }
}

impl JoinArgs {
    /// Puts together what options, environment and file say, and starts logging.
    pub(in crate::cli) fn prepare(self) -> Result<Prepared, CliError> {
        let peers = self.join.into_iter().chain(self.peers).collect();
        self.node.prepare(StartKind::Join, Settings::default(), peers)
    }
}

impl NodeArgs {
    /// Puts together what options, environment and file say, and starts logging. `own`: what only this kind of
    /// start has.
    ///
    /// # Errors
    /// What makes no sense, and what would.
    pub(super) fn prepare(
        self,
        kind: StartKind,
        own: Settings,
        peers: Vec<String>,
    ) -> Result<Prepared, CliError> {
        let file = self.config.clone();
        let from_file = file.as_deref().map(Settings::load).transpose()?.unwrap_or_default();
        let mut settings = own.or(self.settings(peers)).or(from_file);
        let log = settings.log.take();
        let log_format = settings.log_format.take().unwrap_or_else(LogFormat::of_stderr);
        let json = settings.json.take().unwrap_or(false);
        let threads = settings.threads()?;
        let config = settings.into_config(kind, host_name)?;
        let logging = Logging::start(log.as_deref(), logging::default_level(), file, log_format)?;
        Ok(Prepared { config, logging, json, threads })
    }

    fn settings(self, peers: Vec<String>) -> Settings {
        Settings {
            name: self.name,
            network: self.network,
            client: self.client,
            gossip: self.gossip,
            advertise: self.advertise,
            http: self.http,
            http_write: self.http_write.then_some(true),
            http_token_file: self.http_token_file,
            http_names: Some(self.http_names).filter(|names| !names.is_empty()),
            peers: Some(peers).filter(|peers| !peers.is_empty()),
            peer_file: self.peer_file,
            peer_wait: self.peer_wait,
            max_memory: self.max_memory,
            max_client_memory: self.max_client_memory,
            read_only: self.read_only,
            ignore_auth: self.ignore_auth,
            audit: self.audit,
            isolated_logins: self.isolated_logins,
            key: self.key,
            insecure: self.insecure,
            plaintext_peers: self.plaintext_peers,
            cert: self.tls.cert,
            cert_key: self.tls.cert_key,
            client_ca: self.tls.client_ca,
            cert_names: Some(self.tls.cert_names).filter(|names| !names.is_empty()),
            client_plaintext: Some(self.tls.client_plaintext)
                .filter(|networks| !networks.is_empty()),
            max_connections: self.max_connections,
            max_requests: self.max_requests,
            ready_wait: self.ready_wait,
            threads: self.threads,
            forget_down_after: self.forget_down_after,
            purge_grace: self.purge_grace,
            data_dir: self.data.data_dir,
            sync: self.data.sync,
            log_rotate_bytes: self.data.log_rotate_bytes,
            log_rotate_after: self.data.log_rotate_after,
            snapshot_after: self.data.snapshot_after,
            keep_snapshots: self.data.keep_snapshots,
            keep_for: self.data.keep_for,
            keep_size: self.data.keep_size,
            discard_damaged: self.data.discard_damaged,
            client_files: self.data.client_files,
            remote_restore: self.data.remote_restore,
            log: self.log,
            log_format: self.log_format,
            json: self.json.then_some(true),
            ..self.scheduled.settings()
        }
    }
}

/// The host's name, as the system has it; empty if that is no text.
pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
