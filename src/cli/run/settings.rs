//! What a node is started with, as options and the configuration file say it, and how both
//! become a [`Config`]. Options win over the file, setting by setting.

pub(super) mod http_token;

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use distkv_command::key_file;
use distkv_tls::Ca;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};

use super::logging::LogFormat;
use super::scheduled_args;
use crate::cli::data::value_input::read_input;
use crate::cli::error::CliError;
use crate::cli::terminal::units::{parse_bytes, parse_duration};
use crate::client::HostPort;
use crate::model::ids::NodeName;
use crate::model::value::Value;
use crate::node::config::{
    CLIENT_MEMORY, CLIENT_PORT, Config, DataConfig, FORGET_DOWN_AFTER, GOSSIP_PORT, HttpConfig,
    IpNetwork, KeyConfig, KeyStore, NETWORK, NetworkError, OPEN_REQUESTS, PURGE_GRACE, READY_WAIT,
    Start, SyncPolicy, TlsConfig,
};
use crate::protocol::json::value_from_json;
use crate::secure::key_ring::handed::Handed;

/// Longest configuration file. A peer takes some 30 bytes, all else a few hundred.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Most client connections unless told otherwise.
const CONNECTIONS: usize = 10_000;
/// The longest that requests may wait for the node to be ready: it is no use to keep clients in the dark.
const READY_WAIT_MAX: Duration = Duration::from_secs(3600);

/// A message takes up to twice its 8 MiB while it arrives; with less than this, one would be too much.
const CLIENT_MEMORY_MIN: usize = 32 << 20;
/// Programs may count on so many requests being open on one connection.
const REQUESTS_MIN: usize = 4 << 10;
/// More watches than that a node does not have.
const REQUESTS_MAX: usize = 64 << 10;

/// Most further names by which HTTP requests may call the node.
const HTTP_NAMES_MAX: usize = 64;
/// Networks whose clients may use plain text.
const PLAIN_NETWORKS_MAX: usize = 64;

/// Most threads for tasks: more than the cores that there may be.
const THREADS_MAX: usize = 1024;

/// Smaller files would be all headers.
const LOG_BYTES_MIN: u64 = 64 << 10;
/// Each file costs some syncs.
const ROTATE_AFTER_MIN: Duration = Duration::from_secs(1);
/// The names of so many files are read at a start.
const KEEP_SNAPSHOTS_MAX: usize = 1000;

/// Rumours of a member that is down should have ended before it is forgotten.
const FORGET_DOWN_MIN: Duration = Duration::from_secs(3);

/// Settings; what is `None` was not set here. The names are those of the options, and the keys
/// of the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::cli) struct Settings {
    pub(in crate::cli) name: Option<String>,
    pub(in crate::cli) network: Option<String>,
    pub(in crate::cli) client: Option<String>,
    pub(in crate::cli) gossip: Option<String>,
    pub(in crate::cli) advertise: Option<String>,
    pub(in crate::cli) http: Option<String>,
    pub(in crate::cli) http_names: Option<Vec<String>>,
    pub(in crate::cli) http_write: Option<bool>,
    pub(in crate::cli) http_token_file: Option<PathBuf>,
    pub(in crate::cli) peers: Option<Vec<String>>,
    pub(in crate::cli) peer_file: Option<PathBuf>,
    #[serde(deserialize_with = "duration")]
    pub(in crate::cli) peer_wait: Option<Duration>,
    #[serde(deserialize_with = "size")]
    pub(in crate::cli) max_memory: Option<usize>,
    #[serde(deserialize_with = "size")]
    pub(in crate::cli) max_client_memory: Option<usize>,
    pub(in crate::cli) read_only: Option<bool>,
    pub(in crate::cli) ignore_auth: Option<bool>,
    pub(in crate::cli) audit: Option<PathBuf>,
    #[serde(deserialize_with = "duration")]
    pub(in crate::cli) isolated_logins: Option<Duration>,
    pub(in crate::cli) key: Option<PathBuf>,
    pub(in crate::cli) insecure: Option<bool>,
    pub(in crate::cli) plaintext_peers: Option<bool>,
    pub(in crate::cli) cert: Option<PathBuf>,
    pub(in crate::cli) cert_key: Option<PathBuf>,
    pub(in crate::cli) client_ca: Option<PathBuf>,
    pub(in crate::cli) cert_names: Option<Vec<String>>,
    pub(in crate::cli) client_plaintext: Option<Vec<String>>,
    pub(in crate::cli) max_connections: Option<usize>,
    pub(in crate::cli) max_requests: Option<usize>,
    #[serde(deserialize_with = "duration")]
    pub(in crate::cli) ready_wait: Option<Duration>,
    pub(in crate::cli) threads: Option<usize>,
    #[serde(deserialize_with = "duration")]
    pub(in crate::cli) forget_down_after: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    pub(in crate::cli) purge_grace: Option<Duration>,
    pub(in crate::cli) data_dir: Option<PathBuf>,
    #[serde(deserialize_with = "sync_policy")]
    pub(in crate::cli) sync: Option<SyncPolicy>,
    #[serde(deserialize_with = "size")]
    pub(in crate::cli) log_rotate_bytes: Option<usize>,
    #[serde(deserialize_with = "duration")]
    pub(in crate::cli) log_rotate_after: Option<Duration>,
    #[serde(deserialize_with = "size")]
    pub(in crate::cli) snapshot_after: Option<usize>,
    pub(in crate::cli) keep_snapshots: Option<usize>,
    #[serde(deserialize_with = "duration")]
    pub(in crate::cli) keep_for: Option<Duration>,
    #[serde(deserialize_with = "size")]
    pub(in crate::cli) keep_size: Option<usize>,
    /// An option only: whoever loses data should have looked at what is lost.
    #[serde(skip)]
    pub(in crate::cli) discard_damaged: bool,
    pub(in crate::cli) found: Option<bool>,
    pub(in crate::cli) snapshot_schedule: Option<String>,
    pub(in crate::cli) snapshot_dir: Option<PathBuf>,
    pub(in crate::cli) snapshot_keep: Option<usize>,
    #[serde(deserialize_with = "duration")]
    pub(in crate::cli) snapshot_keep_for: Option<Duration>,
    pub(in crate::cli) client_files: Option<PathBuf>,
    pub(in crate::cli) remote_restore: Option<bool>,
    #[serde(deserialize_with = "value")]
    pub(in crate::cli) init: Option<Value>,
    pub(in crate::cli) load: Option<PathBuf>,
    pub(in crate::cli) log: Option<String>,
    pub(in crate::cli) log_format: Option<LogFormat>,
    pub(in crate::cli) json: Option<bool>,
}

/// How the node starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum StartKind {
    /// The first node of a network.
    Run,
    /// One more.
    Join,
    /// By what there is: see [`Start::ByWhatThereIs`].
    Start,
}

impl Settings {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// It cannot be read, or says something that makes no sense: then with file and line.
    pub(in crate::cli) fn load(file: &FilePath) -> Result<Settings, CliError> {
        Settings::parse(&Settings::read(file)?).map_err(|(line, problem)| {
            CliError::Usage(format!("{}, line {line}: {problem}", file.display()))
        })
    }

    /// A configuration file's text.
    ///
    /// # Errors
    /// It cannot be read, is too long, or is no text.
    pub(in crate::cli) fn read(file: &FilePath) -> Result<String, CliError> {
        let bytes = read_input(file, FILE_BYTES_MAX)?;
        String::from_utf8(bytes)
            .map_err(|_| CliError::Usage(format!("{}: not UTF-8 text", file.display())))
    }

    /// Reads a configuration file's text; on failure, the line and what is wrong there.
    fn parse(text: &str) -> Result<Settings, (usize, String)> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = 1 + before.matches('\n').count();
            (line, error.message().trim().replace('\n', "; "))
        })
    }

    /// These settings, and those of `other` where these say nothing.
    pub(in crate::cli) fn or(self, other: Settings) -> Settings {
        Settings {
            name: self.name.or(other.name),
            network: self.network.or(other.network),
            client: self.client.or(other.client),
            gossip: self.gossip.or(other.gossip),
            advertise: self.advertise.or(other.advertise),
            http: self.http.or(other.http),
            http_names: self.http_names.or(other.http_names),
            http_write: self.http_write.or(other.http_write),
            http_token_file: self.http_token_file.or(other.http_token_file),
            peers: self.peers.or(other.peers),
            peer_file: self.peer_file.or(other.peer_file),
            peer_wait: self.peer_wait.or(other.peer_wait),
            max_memory: self.max_memory.or(other.max_memory),
            max_client_memory: self.max_client_memory.or(other.max_client_memory),
            read_only: self.read_only.or(other.read_only),
            ignore_auth: self.ignore_auth.or(other.ignore_auth),
            audit: self.audit.or(other.audit),
            isolated_logins: self.isolated_logins.or(other.isolated_logins),
            key: self.key.or(other.key),
            insecure: self.insecure.or(other.insecure),
            plaintext_peers: self.plaintext_peers.or(other.plaintext_peers),
            cert: self.cert.or(other.cert),
            cert_key: self.cert_key.or(other.cert_key),
            client_ca: self.client_ca.or(other.client_ca),
            cert_names: self.cert_names.or(other.cert_names),
            client_plaintext: self.client_plaintext.or(other.client_plaintext),
            max_connections: self.max_connections.or(other.max_connections),
            max_requests: self.max_requests.or(other.max_requests),
            ready_wait: self.ready_wait.or(other.ready_wait),
            threads: self.threads.or(other.threads),
            forget_down_after: self.forget_down_after.or(other.forget_down_after),
            purge_grace: self.purge_grace.or(other.purge_grace),
            data_dir: self.data_dir.or(other.data_dir),
            sync: self.sync.or(other.sync),
            log_rotate_bytes: self.log_rotate_bytes.or(other.log_rotate_bytes),
            log_rotate_after: self.log_rotate_after.or(other.log_rotate_after),
            snapshot_after: self.snapshot_after.or(other.snapshot_after),
            keep_snapshots: self.keep_snapshots.or(other.keep_snapshots),
            keep_for: self.keep_for.or(other.keep_for),
            keep_size: self.keep_size.or(other.keep_size),
            discard_damaged: self.discard_damaged || other.discard_damaged,
            found: self.found.or(other.found),
            snapshot_schedule: self.snapshot_schedule.or(other.snapshot_schedule),
            snapshot_dir: self.snapshot_dir.or(other.snapshot_dir),
            snapshot_keep: self.snapshot_keep.or(other.snapshot_keep),
            snapshot_keep_for: self.snapshot_keep_for.or(other.snapshot_keep_for),
            client_files: self.client_files.or(other.client_files),
            remote_restore: self.remote_restore.or(other.remote_restore),
            init: self.init.or(other.init),
            load: self.load.or(other.load),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
            json: self.json.or(other.json),
        }
    }

    /// The node's configuration; what was not set takes its default. `host_name` is asked for a
    /// name where there is none.
    ///
    /// # Errors
    /// What makes no sense, and what would.
    pub(in crate::cli) fn into_config(
        self,
        kind: StartKind,
        host_name: impl FnOnce() -> String,
    ) -> Result<Config, CliError> {
        let data = self.data_config()?;
        let scheduled = scheduled_args::config_of(&self)?;
        let key = self.key_config()?;
        let mut tls = self.tls_config(key.as_ref())?;
        // The file's network, unless another one is said: then the node refuses to start.
        let of_key = key.as_ref().map(|key| key.file.ring.network().as_str().to_owned());
        let network = self.network.or(of_key).unwrap_or_else(|| NETWORK.to_owned());
        let name = match &self.name {
            Some(name) => NodeName::new(name)
                .map_err(|error| CliError::Usage(format!("--name {name:?}: {error}")))?,
            None => name_of_host(&host_name())?,
        };
        let default = |port| format!("127.0.0.1:{port}");
        let client = self.client.unwrap_or_else(|| default(CLIENT_PORT));
        let gossip = self.gossip.unwrap_or_else(|| default(GOSSIP_PORT));
        let writes = (self.http_write.unwrap_or(false), self.http_token_file);
        let http = http_config(self.http, self.http_names, writes, key.is_some())?;
        if let (Some(TlsConfig { own: None, names, .. }), Some(http)) = (&mut tls, &http) {
            // By these names browsers come.
            names.extend(http.names.iter().cloned());
        }
        let advertise = self.advertise;
        if let Some(advertise) = &advertise {
            check_address("--advertise", advertise, Some(GOSSIP_PORT))?;
        }
        let peers = self.peers.unwrap_or_default();
        let peers: Vec<String> = peers
            .iter()
            .map(|peer| check_address("peer", peer, Some(GOSSIP_PORT)))
            .collect::<Result<_, _>>()?;
        let start = match kind {
            StartKind::Run => Start::Run { init: self.init, load: self.load },
            StartKind::Join => {
                refuse_with_join("init", self.init.is_some())?;
                refuse_with_join("load", self.load.is_some())?;
                refuse_with_join("found", self.found == Some(true))?;
                if peers.is_empty() && self.peer_file.is_none() && data.is_none() {
                    let text = "join needs the address of a node of the network, like \
                                `join 10.0.0.1:27587`; the first node starts with `run`";
                    return Err(CliError::Usage(text.to_owned()));
                }
                Start::Join
            }
            StartKind::Start => {
                let found = self.found.unwrap_or(false);
                for (name, is_set) in [("init", self.init.is_some()), ("load", self.load.is_some())]
                {
                    if is_set && !found {
                        return Err(CliError::Usage(format!(
                            "{name} is for the node that founds the network: give it with `found = true`, or \
                             leave it out"
                        )));
                    }
                }
                Start::ByWhatThereIs { found, init: self.init, load: self.load }
            }
        };
        Ok(Config {
            name,
            network,
            key,
            insecure: self.insecure.unwrap_or(false),
            client: check_address("--client", &client, None)?,
            gossip: check_address("--gossip", &gossip, None)?,
            advertise,
            start,
            peers,
            peer_file: self.peer_file,
            peer_wait: self.peer_wait,
            called_wait: self.peer_wait,
            read_only: self.read_only.unwrap_or(false),
            ignore_auth: self.ignore_auth.unwrap_or(false),
            audit: self.audit,
            isolated_logins: self.isolated_logins,
            tls,
            http,
            memory_max: self.max_memory,
            client_memory_max: check_client_memory(self.max_client_memory)?,
            open_requests_max: check_requests(self.max_requests)?,
            connections_max: check_connections(self.max_connections.unwrap_or(CONNECTIONS))?,
            ready_wait: check_ready_wait(self.ready_wait)?,
            forget_down_after: check_forget(self.forget_down_after.unwrap_or(FORGET_DOWN_AFTER))?,
            purge_grace: self.purge_grace.unwrap_or(PURGE_GRACE),
            data,
            client_files: self.client_files,
            scheduled,
            remote_restore: self.remote_restore.unwrap_or(false),
        })
    }

    /// Threads for tasks.
    ///
    /// # Errors
    /// None, or more than any machine has use for.
    pub(in crate::cli) fn threads(&self) -> Result<usize, CliError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self.threads.unwrap_or(cores.div_ceil(2)) {
            threads @ 1..=THREADS_MAX => Ok(threads),
            _ => Err(CliError::Usage(format!("--threads must be from 1 to {THREADS_MAX}"))),
        }
    }

    /// The cluster key, if there is one.
    fn key_config(&self) -> Result<Option<KeyConfig>, CliError> {
        let usage = |text: &str| Err(CliError::Usage(text.to_owned()));
        let plaintext_peers = self.plaintext_peers.unwrap_or(false);
        match &self.key {
            None if plaintext_peers => usage("--plaintext-peers needs --key"),
            None => Ok(None),
            Some(_) if self.insecure == Some(true) => {
                usage("--insecure is for nodes without --key; leave one of them out")
            }
            Some(path) => {
                let file = key_file::read(path).map_err(|why| CliError::Usage(why.to_string()))?;
                let (path, place) = (Some(path.clone()), path.clone());
                let store = KeyStore::new(move |handed| keep_keys(&place, handed));
                Ok(Some(KeyConfig { file, path, store: Some(store), plaintext_peers }))
            }
        }
    }

    /// How clients use TLS, if they do.
    fn tls_config(&self, key: Option<&KeyConfig>) -> Result<Option<TlsConfig>, CliError> {
        let usage = |text: &str| Err(CliError::Usage(text.to_owned()));
        let own = match (self.cert.clone(), self.cert_key.clone()) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) => {
                return usage("--cert needs --cert-key, the file of its private key");
            }
            (None, Some(_)) => {
                return usage("--cert-key needs --cert, the file of its certificate");
            }
        };
        let ca = key.and_then(|key| Some((key.file.ring.network(), key.file.ca.as_ref()?)));
        let ca = ca.map(|(network, ca)| {
            Ca::load(network.as_str(), &ca.key, &ca.certificate)
                .map(Arc::new)
                .map_err(|error| CliError::Usage(format!("the CA in the key file: {error}")))
        });
        let ca: Option<Arc<Ca>> = ca.transpose()?;
        let names = self.cert_names.clone().unwrap_or_default();
        if own.is_none() && ca.is_none() {
            let others = [
                ("--client-ca", self.client_ca.is_some()),
                ("--cert-name", !names.is_empty()),
                ("--client-plaintext", self.client_plaintext.is_some()),
            ];
            return match others.iter().find(|(_, is_set)| *is_set) {
                None => Ok(None),
                Some((name, _)) => usage(&format!(
                    "{name} is for a node that uses TLS: give --cert, or --key with a CA in it"
                )),
            };
        }
        if own.is_some() && !names.is_empty() {
            return usage(
                "--cert-name is for certificates that a node makes; --cert has its names in it",
            );
        }
        let (mut is_plain_at_home, mut plain) = (true, Vec::new());
        if key.is_some_and(|key| key.plaintext_peers) {
            // While a network moves to a key, clients go on as before.
            plain.extend(
                ["0.0.0.0/0", "::/0"].into_iter().filter_map(|all| all.parse::<IpNetwork>().ok()),
            );
        }
        for text in self.client_plaintext.iter().flatten() {
            match text.as_str() {
                "none" => is_plain_at_home = false,
                text => plain.push(text.parse().map_err(|error: NetworkError| {
                    CliError::Usage(format!(
                        "--client-plaintext: {error}; `none` is for no client at all"
                    ))
                })?),
            }
        }
        if plain.len() > PLAIN_NETWORKS_MAX {
            return usage(&format!("--client-plaintext: at most {PLAIN_NETWORKS_MAX} networks"));
        }
        let client_ca = self.client_ca.clone();
        Ok(Some(TlsConfig { ca, own, client_ca, names, is_plain_at_home, plain }))
    }

    /// How data is kept, if it is.
    fn data_config(&self) -> Result<Option<DataConfig>, CliError> {
        let usage = |text: &str| Err(CliError::Usage(text.to_owned()));
        let Some(dir) = self.data_dir.clone() else {
            let others = [
                ("--sync", self.sync.is_some()),
                ("--log-rotate-bytes", self.log_rotate_bytes.is_some()),
                ("--log-rotate-after", self.log_rotate_after.is_some()),
                ("--snapshot-after", self.snapshot_after.is_some()),
                ("--keep-snapshots", self.keep_snapshots.is_some()),
                ("--keep-for", self.keep_for.is_some()),
                ("--keep-size", self.keep_size.is_some()),
                ("--discard-damaged", self.discard_damaged),
            ];
            return match others.iter().find(|(_, is_set)| *is_set) {
                None => Ok(None),
                Some((name, _)) => usage(&format!("{name} needs --data-dir")),
            };
        };
        let mut data = DataConfig::new(dir);
        data.sync = self.sync.unwrap_or(data.sync);
        let bytes = |set: Option<usize>, default| set.map_or(default, |bytes| bytes as u64);
        data.rotate_bytes = bytes(self.log_rotate_bytes, data.rotate_bytes);
        data.snapshot_after = bytes(self.snapshot_after, data.snapshot_after);
        data.rotate_after = self.log_rotate_after.unwrap_or(data.rotate_after);
        data.keep_snapshots = self.keep_snapshots.unwrap_or(data.keep_snapshots);
        data.keep_for = self.keep_for.unwrap_or(data.keep_for);
        data.keep_bytes = bytes(self.keep_size, data.keep_bytes);
        data.discard_damaged = self.discard_damaged;
        if data.rotate_bytes < LOG_BYTES_MIN || data.snapshot_after < LOG_BYTES_MIN {
            return usage("--log-rotate-bytes and --snapshot-after must be at least 64KiB");
        }
        if data.rotate_after < ROTATE_AFTER_MIN {
            return usage("--log-rotate-after must be at least 1s");
        }
        if !(1..=KEEP_SNAPSHOTS_MAX).contains(&data.keep_snapshots) {
            return usage("--keep-snapshots must be 1 to 1000");
        }
        Ok(Some(data))
    }
}

/// The HTTP port, if there is to be one. `writes`: whether it takes changes, and the file with the token for that.
fn http_config(
    address: Option<String>,
    names: Option<Vec<String>>,
    writes: (bool, Option<PathBuf>),
    is_secured: bool,
) -> Result<Option<HttpConfig>, CliError> {
    let names = names.unwrap_or_default();
    let usage = |text: &str| Err(CliError::Usage(String::from(text)));
    match address {
        None if writes != (false, None) => {
            usage("--http-write and --http-token-file are for a node with --http")
        }
        None if names.is_empty() => Ok(None),
        None => Err(CliError::Usage(String::from("--http-name is for a node with --http"))),
        Some(_) if names.len() > HTTP_NAMES_MAX => {
            Err(CliError::Usage(format!("--http-name: at most {HTTP_NAMES_MAX} names")))
        }
        Some(address) => {
            let address = check_address("--http", &address, None)?;
            let write_token = match writes {
                (false, None) => None,
                _ if is_secured => {
                    return usage(
                        "--http-write is for a node without --key; with one, tickets and access lists say who \
                         changes what",
                    );
                }
                (true, Some(file)) => Some(http_token::read_or_make(&file)?),
                _ => return usage("--http-write and --http-token-file go together"),
            };
            Ok(Some(HttpConfig { address, names, write_token }))
        }
    }
}

fn name_of_host(host: &str) -> Result<NodeName, CliError> {
    NodeName::new(host).map_err(|error| {
        CliError::Usage(format!(
            "the host name {host:?} cannot be the node's name: {error}; give another with --name"
        ))
    })
}

/// The address with its port.
fn check_address(what: &str, text: &str, port: Option<u16>) -> Result<String, CliError> {
    match HostPort::parse(text, port) {
        Ok(address) => Ok(address.to_string()),
        Err(error) => Err(CliError::Usage(format!("{what}: {error}"))),
    }
}

fn check_connections(count: usize) -> Result<usize, CliError> {
    match count {
        0 => Err(CliError::Usage(String::from("--max-connections must be at least 1"))),
        count => Ok(count),
    }
}

fn check_client_memory(bytes: Option<usize>) -> Result<usize, CliError> {
    match bytes.unwrap_or(CLIENT_MEMORY) {
        bytes @ CLIENT_MEMORY_MIN.. => Ok(bytes),
        _ => Err(CliError::Usage(String::from("--max-client-memory must be at least 32MiB"))),
    }
}

fn check_requests(count: Option<usize>) -> Result<usize, CliError> {
    match count.unwrap_or(OPEN_REQUESTS) {
        count @ REQUESTS_MIN..=REQUESTS_MAX => Ok(count),
        _ => Err(CliError::Usage(format!(
            "--max-requests must be from {REQUESTS_MIN} to {REQUESTS_MAX}"
        ))),
    }
}

fn check_ready_wait(wait: Option<Duration>) -> Result<Duration, CliError> {
    match wait.unwrap_or(READY_WAIT) {
        wait if wait <= READY_WAIT_MAX => Ok(wait),
        _ => Err(CliError::Usage("--ready-wait must be at most 1h".to_owned())),
    }
}

fn check_forget(after: Duration) -> Result<Duration, CliError> {
    if after < FORGET_DOWN_MIN {
        let text = format!("--forget-down-after must be at least {}s", FORGET_DOWN_MIN.as_secs());
        return Err(CliError::Usage(text));
    }
    Ok(after)
}

fn refuse_with_join(name: &str, is_set: bool) -> Result<(), CliError> {
    if !is_set {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "{name} is for `run` only: a node that joins takes its data from the network"
    )))
}

/// A size, as a number of bytes or as text with a unit.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    struct Size;
    impl Visitor<'_> for Size {
        type Value = usize;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a size, as a number of bytes or text like \"512MiB\"")
        }

        fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<usize, E> {
            self.visit_str(&bytes.to_string())
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<usize, E> {
            parse_bytes(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Size).map(Some)
}

/// A duration, as a number of seconds or as text with a unit.
fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    struct Time;
    impl Visitor<'_> for Time {
        type Value = Duration;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a duration, as a number of seconds or text like \"10m\"")
        }

        fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<Duration, E> {
            self.visit_str(&seconds.to_string())
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
            parse_duration(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Time).map(Some)
}

/// A sync policy's word.
fn sync_policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SyncPolicy>, D::Error> {
    let word = String::deserialize(deserializer)?;
    parse_sync(&word).map(Some).map_err(D::Error::custom)
}

/// Reads a sync policy.
pub(super) fn parse_sync(word: &str) -> Result<SyncPolicy, String> {
    SyncPolicy::of(word).ok_or_else(|| {
        format!("{word:?} is no sync policy; use never, every-second or every-batch")
    })
}

/// The root's value, as TOML.
fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let json = json_of_toml(toml::Value::deserialize(deserializer)?).map_err(D::Error::custom)?;
    value_from_json(&json).map(Some).map_err(D::Error::custom)
}

/// TOML as JSON. The recursion is bounded: TOML's parser takes no more than 80 levels.
fn json_of_toml(value: toml::Value) -> Result<serde_json::Value, &'static str> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => {
            let number = serde_json::Number::from_f64(number);
            serde_json::Value::Number(number.ok_or("a float that is no number cannot be a value")?)
        }
        toml::Value::Boolean(value) => value.into(),
        toml::Value::Datetime(_) => return Err("a date cannot be a value; write it as a string"),
        toml::Value::Array(items) => {
            items.into_iter().map(json_of_toml).collect::<Result<Vec<_>, _>>()?.into()
        }
        toml::Value::Table(table) => table
            .into_iter()
            .map(|(key, value)| Ok((key, json_of_toml(value)?)))
            .collect::<Result<serde_json::Map<_, _>, &'static str>>()?
            .into(),
    })
}

/// Puts what was ordered over the network into a key file.
fn keep_keys(path: &FilePath, handed: &Handed) -> Result<(), String> {
    let merged = key_file::update(path, |file| file.ring.merge(handed).map(|_| ()));
    match merged {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("{}: {error}", path.display())),
        Err(trouble) => Err(trouble.to_string()),
    }
}

#[cfg(test)]
mod tests;
