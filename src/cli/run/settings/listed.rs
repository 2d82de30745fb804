//! Every setting of a node, once: the option, its help, and how the configuration file says it. [`settings!`] makes
//! of them the options of `run`, `join` and `start`, the keys of the file, and the rule by which options win.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::StringValueParser;
use serde::Deserialize;

use super::forms::{duration, parse_sync, path, size, sync_policy, value};
use crate::cli::run::logging::LogFormat;
use crate::cli::terminal::units::{parse_bytes, parse_duration};
use crate::cli::terminal::words::completed;
use crate::model::value::Value;
use crate::node::config::SyncPolicy;

/// What `--sync` is completed with.
const POLICIES: [&str; 3] = ["never", "every-second", "every-batch"];
/// What `--log` is completed with; it takes directives, too.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Makes the struct, and [`Settings::or`], which must leave no field out.
macro_rules! settings {
    ($(#[$of_all:meta])* struct Settings { $($(#[$of_one:meta])* $name:ident: $type:ty,)* }) => {
        $(#[$of_all])*
        pub(in crate::cli) struct Settings {
            $($(#[$of_one])* pub(in crate::cli) $name: $type,)*
        }

        impl Settings {
            /// These settings, and those of `other` where these say nothing.
            pub(in crate::cli) fn or(self, other: Settings) -> Settings {
                Settings { $($name: self.$name.or(other.$name),)* }
            }
        }
    };
}

settings! {
    /// Settings; what is `None` was not set here. The names are those of the options, and the keys of the
    /// configuration file.
    #[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
    #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
    struct Settings {
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

        /// Where clients reach this node, if that is not what --client says, as behind port forwarding
        /// [default: the address of --client; of a wildcard address, the host that other nodes are told]
        ///
        /// Smart clients and some commands learn from one node where all others are, and connect there. Without a port,
        /// it is that of --client. A name is told as it is: the clients look it up. The node does not check that the
        /// address leads to it: `distkv-node status --connect ADDR:PORT`, where the clients are, says which node
        /// answers there.
        #[arg(long, value_name = "ADDR[:PORT]")]
        advertise_client: Option<String>,

        /// Answer HTTP: a page, the data at /v1/kv/, metrics and health; without an address at
        /// 127.0.0.1:27585 [default: not at all]
        ///
        /// Where clients must log in, requests for data need a ticket (Authorization: Bearer). Elsewhere everybody who
        /// reaches the port reads, and nobody changes anything without --http-write. A request must name the node in its
        /// Host field by the address at which it comes in, `localhost`, the host of --advertise or --advertise-client, a
        /// --cert-name or a --http-name. A node with --key or --cert speaks TLS at this port, with the certificate that
        /// it shows its clients; plain text it takes at loopback addresses only (with --client-plaintext none: nowhere).
        /// Without a certificate, a port that other machines reach needs --insecure, and takes no secrets and no changes
        /// from them.
        #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:27585")]
        http: Option<String>,

        /// Another name by which HTTP requests may call the node; may be repeated. A certificate that the node makes is
        /// for this name, too
        #[arg(long = "http-name", value_name = "HOST")]
        http_names: Option<Vec<String>>,

        /// Also accept changes by HTTP, from whoever has the token in --http-token-file
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        http_write: Option<bool>,

        /// The file with that token; it is made if it is not there, for its owner only
        #[arg(long, value_name = "FILE")]
        #[serde(deserialize_with = "path")]
        http_token_file: Option<PathBuf>,

        /// Keep the known nodes in this file, and try them after a restart
        #[arg(long, value_name = "FILE")]
        #[serde(deserialize_with = "path")]
        peer_file: Option<PathBuf>,

        /// How long to look for the network before the node goes on alone, like 30s [default: 10s, or
        /// 2s where no peer is known]
        ///
        /// Until then it carries out no requests (see --ready-wait), so that no client mistakes a node that
        /// lacks the data for an empty network. A node that knows of no peer and has no data waits for nodes
        /// that call it. One that knows of no peer and has data waits for nobody; one that joins and has no
        /// data waits until it has joined.
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        #[serde(deserialize_with = "duration")]
        peer_wait: Option<Duration>,

        /// Refuse clients' writes that need more memory when entries take this much, like 512MiB or 2GB;
        /// other nodes' changes are always taken, with a warning
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        #[serde(deserialize_with = "size")]
        max_memory: Option<usize>,

        /// Close the clients that read slowest when what is kept for all clients takes more memory than
        /// this, at least 32MiB [default: 256MiB]
        ///
        /// What is kept: what they were not sent yet (buffers and queues), their open requests, what a watch
        /// that has fallen behind needs to start over, a snapshot that is being restored, and old versions
        /// of entries that only a listing under way still needs. A connection that waits counts 12 KiB (by
        /// TLS 20), so 32MiB are enough for 2,700 of them. A snapshot that does not fit is refused;
        /// nobody else is disconnected for it. What the operating system keeps for connections is not
        /// counted.
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        #[serde(deserialize_with = "size")]
        max_client_memory: Option<usize>,

        /// Refuse clients' writes
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        read_only: Option<bool>,

        /// Serve every client without a login, although the data says that clients must log in
        ///
        /// Where the entry `:n.auth` names a login method, clients must log in. With this option,
        /// everybody who reaches the client port can read and change everything: use it with a --client address
        /// on loopback. It is the way back in where nobody knows an admin's secret any more: run `distkv-node
        /// user add`, or `distkv-node auth off`, on the machine of such a node. A node with a key file asks for a
        /// login all the same: whoever has the key is an admin.
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        ignore_auth: Option<bool>,

        /// Record logins, refusals, and changes of users, access lists and keys in this file, one JSON object
        /// per line
        ///
        /// The file is only appended to, and readable by its owner only. Move it and send SIGHUP to begin another
        /// one. It has no secrets and no values. If the disk does not take it, clients are served all the same:
        /// what could not be written is counted, and the count is in the log and in the file. docs/security.md
        /// explains the fields.
        #[arg(long, value_name = "FILE")]
        #[serde(deserialize_with = "path")]
        audit: Option<PathBuf>,

        /// Let no user log in while this node has had no link to any other for so long, like 10m [default:
        /// always]
        ///
        /// A node that is cut off does not hear that a user was removed. With this option it lets nobody in
        /// anew after that time, but the holder of the key; who is logged in already goes on. A node that knows
        /// of no other is not cut off.
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        #[serde(deserialize_with = "duration")]
        isolated_logins: Option<Duration>,

        /// The network's key file: links and datagrams between nodes are encrypted, and nodes without the
        /// key shut out; see `distkv-node key new --help`
        #[arg(long, value_name = "FILE")]
        #[serde(deserialize_with = "path")]
        key: Option<PathBuf>,

        /// Without --key: open ports that other machines reach, although nothing protects them
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        insecure: Option<bool>,

        /// With --key: also link to nodes without a key, while a running network moves to one
        ///
        /// Restart one node after the other with --key and this option. Once `distkv-node members` shows
        /// `secured` for every link, restart them without it. Until then whoever reaches the gossip port can
        /// read and change everything, as before.
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        plaintext_peers: Option<bool>,

        /// Serve clients of other machines by TLS, with the certificate in this PEM file, and those that lead
        /// to its CA behind it; it is read again when it changes, and at SIGHUP
        #[arg(long, value_name = "FILE")]
        #[serde(deserialize_with = "path")]
        cert: Option<PathBuf>,

        /// The private key of --cert, as a PEM file
        #[arg(long, value_name = "FILE")]
        #[serde(deserialize_with = "path")]
        cert_key: Option<PathBuf>,

        /// Certificates that a CA in this PEM file has issued log clients in, as the user that the subject's
        /// common name says
        #[arg(long, value_name = "FILE")]
        #[serde(deserialize_with = "path")]
        client_ca: Option<PathBuf>,

        /// Another name or address for the certificate that the node makes from its key file; may be
        /// repeated
        #[arg(long = "cert-name", value_name = "NAME")]
        cert_names: Option<Vec<String>>,

        /// Also serve clients of this network without TLS, like 10.1.0.0/16; `none`: not even those on this
        /// machine; may be repeated
        ///
        /// Whoever can listen on the way reads what such clients send, secrets included. A client that cannot do
        /// TLS is better served by `distkv-node tunnel` on its machine.
        #[arg(long, value_name = "NETWORK")]
        client_plaintext: Option<Vec<String>>,

        /// Maximum number of client connections; fewer if the limit on open files is small, so that
        /// the node can always log and link [default: 10000]
        #[arg(long, value_name = "N")]
        max_connections: Option<usize>,

        /// Maximum number of open requests per client connection: watches, listings, writes that wait
        /// for copies; from 4096 to 65536 [default: 16384]
        #[arg(long, value_name = "N")]
        max_requests: Option<usize>,

        /// How long requests of clients wait while the node catches up with its network, like 5s or 1m;
        /// then, or at once with 0s, they are refused [default: 30s]
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        #[serde(deserialize_with = "duration")]
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
        #[serde(deserialize_with = "duration")]
        forget_down_after: Option<Duration>,

        /// How long a node without a data directory may be away before deleted entries are purged
        /// without it, like 90s or 1h [default: 5m]
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        #[serde(deserialize_with = "duration")]
        purge_grace: Option<Duration>,

        /// Keep the data in this directory, and start with what is there
        #[arg(long, value_name = "DIR")]
        #[serde(deserialize_with = "path")]
        data_dir: Option<PathBuf>,

        /// When changes are made safe: never, every-second or every-batch [default: every-second]
        #[arg(
            long,
            value_name = "POLICY",
            value_parser = completed(parse_sync, &POLICIES),
            hide_possible_values = true
        )]
        #[serde(deserialize_with = "sync_policy")]
        sync: Option<SyncPolicy>,

        /// Begin a new log file after this many bytes [default: 64MiB]
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        #[serde(deserialize_with = "size")]
        log_rotate_bytes: Option<usize>,

        /// Begin a new log file after this time [default: 1d]
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        #[serde(deserialize_with = "duration")]
        log_rotate_after: Option<Duration>,

        /// Make a snapshot after this many bytes of log, but not before the log is as long as the last
        /// snapshot [default: 256MiB]
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        #[serde(deserialize_with = "size")]
        snapshot_after: Option<usize>,

        /// Keep this many snapshots, and the past back to the one before them [default: 2]
        #[arg(long, value_name = "N")]
        keep_snapshots: Option<usize>,

        /// Keep older snapshots and logs for this long, so that `log replay` reaches back [default: 7d]
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        #[serde(deserialize_with = "duration")]
        keep_for: Option<Duration>,

        /// Delete the oldest of these once all files in the directory take more than this [default: 1GiB]
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        #[serde(deserialize_with = "size")]
        keep_size: Option<usize>,

        /// Truncate damaged files at the first corruption, and start with what is left
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        // Not in the file: whoever loses data should have looked at what is lost.
        #[serde(skip)]
        discard_damaged: Option<bool>,

        /// Let clients have files written into this directory (actions save, log, snapshot)
        #[arg(long, value_name = "DIR")]
        #[serde(deserialize_with = "path")]
        client_files: Option<PathBuf>,

        /// Also accept snapshots to restore from other machines; their contents are trusted
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        remote_restore: Option<bool>,

        /// Save a snapshot of all data like "every 6h" or "daily 03:00" (UTC), into --snapshot-dir
        ///
        /// One is made at a time, read again after it was written, and only then given its name,
        /// NODE-20261123T030000Z.dkv. One that was missed is made as soon as the node serves. `status`, the metrics and
        /// the log warn if the last one has failed, or if one has been due for 10 minutes. After a failure the node tries
        /// again within 10 minutes.
        #[arg(long, value_name = "SCHEDULE")]
        snapshot_schedule: Option<String>,

        /// The directory for scheduled snapshots; best on another disk
        #[arg(long, value_name = "DIR")]
        #[serde(deserialize_with = "path")]
        snapshot_dir: Option<PathBuf>,

        /// Keep the newest N scheduled snapshots [default: 7]
        #[arg(long, value_name = "N")]
        snapshot_keep: Option<usize>,

        /// Besides, keep scheduled snapshots that are younger than this, like 30d [default: 0s]
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        #[serde(deserialize_with = "duration")]
        snapshot_keep_for: Option<Duration>,

        /// off, error, warn, info, debug, trace, or directives like info,distkv::node=debug
        /// [default: info]
        #[arg(
            long,
            value_name = "LEVEL",
            env = "DISTKV_LOG",
            value_parser = completed(StringValueParser::new(), &LEVELS),
            hide_possible_values = true
        )]
        log: Option<String>,

        /// How the log's lines look: as text, as JSON, one object per line, or for systemd's journal [default:
        /// text; journald where standard error is the journal]
        #[arg(long, value_name = "FORMAT", value_enum)]
        log_format: Option<LogFormat>,

        /// Print the line that says where the node is as JSON
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        json: Option<bool>,

        // What the commands that start a node take each in their own way, as arguments or options.

        /// Nodes of the network.
        #[arg(skip)]
        peers: Option<Vec<String>>,

        /// Whether to found the network where there is none.
        #[arg(skip)]
        found: Option<bool>,

        /// The root's first value.
        #[arg(skip)]
        #[serde(deserialize_with = "value")]
        init: Option<Value>,

        /// A saved state or a change log to begin with.
        #[arg(skip)]
        #[serde(deserialize_with = "path")]
        load: Option<PathBuf>,
    }
}
