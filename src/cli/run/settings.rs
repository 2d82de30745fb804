//! What a node is started with, as options and the configuration file say it ([`listed`]), and how both become a
//! [`Config`]. Options win over the file, setting by setting.

pub(super) mod apart;
mod forms;
pub(in crate::cli) mod host;
pub(super) mod http_token;
mod listed;
pub(super) mod problem;
mod scheduled;
mod values;

pub(in crate::cli) use listed::Settings;

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cli::data::value_input::{read_bounded, read_input};
use crate::cli::error::CliError;
use crate::client::{AddressError, HostPort};
use crate::model::ids::NodeName;
use crate::node::config::{
    CLIENT_MEMORY, CLIENT_PORT, Config, DataConfig, FORGET_DOWN_AFTER, GOSSIP_PORT, HttpConfig,
    IpNetwork, KeyConfig, KeyStore, NETWORK, OPEN_REQUESTS, PURGE_GRACE, READY_WAIT, Start,
    StartPhase, TlsConfig, Token,
};
use crate::rt;
use crate::secure::key_ring::KeyRing;
use distkv_command::{key_file, plain_file};
use distkv_tls::Ca;

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

/// Most threads for tasks: more than the cores that there may be.
const THREADS_MAX: usize = 1024;

/// Rumours of a member that is down should have ended before it is forgotten.
const FORGET_DOWN_MIN: Duration = Duration::from_secs(3);

/// How the node starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum StartKind {
    /// The first node of a network.
    Run,
    /// One more.
    Join,
    /// By what there is: see [`Start::ByWhatThereIs`].
    Start,
    /// Not at all: whether [`StartKind::Start`] would do is to be told, and nothing is made.
    Check,
}

/// What was read of a configuration file, as text.
fn as_text(file: &FilePath, read: Result<Vec<u8>, CliError>) -> Result<String, CliError> {
    String::from_utf8(read.map_err(CliError::of_setting)?)
        .map_err(|_| CliError::Usage(format!("{}: not UTF-8 text", file.display())))
}

impl Settings {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`CliError::Usage`]: it cannot be read, or says something that makes no sense: then with file and line.
    pub(in crate::cli) fn load(file: &FilePath) -> Result<Settings, CliError> {
        Settings::of_text(file, &Settings::read(file)?)
    }

    /// The same of a file that was read at the start. It may be another one by now; nobody waits for a pipe.
    ///
    /// # Errors
    /// As above, or it is not a file.
    pub(in crate::cli) fn load_again(file: &FilePath) -> Result<Settings, CliError> {
        let place = file.display().to_string();
        let bytes = read_bounded(&place, plain_file::open(file), FILE_BYTES_MAX);
        Settings::of_text(file, &as_text(file, bytes)?)
    }

    fn of_text(file: &FilePath, text: &str) -> Result<Settings, CliError> {
        Settings::parse(text).map_err(|(line, problem)| {
            CliError::Usage(format!("{}, line {line}: {problem}", file.display()))
        })
    }

    /// A configuration file's text.
    ///
    /// # Errors
    /// It cannot be read, is too long, or is no text.
    pub(in crate::cli) fn read(file: &FilePath) -> Result<String, CliError> {
        as_text(file, read_input(file, FILE_BYTES_MAX))
    }

    /// Reads a configuration file's text; on failure, the line and what is wrong there.
    fn parse(text: &str) -> Result<Settings, (usize, String)> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = 1 + before.matches('\n').count();
            (line, problem::problem_of(&error))
        })
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
        values::check(&self)?;
        apart::check_audit(&self)?;
        let data = self.data_config()?;
        let scheduled = scheduled::config_of(&self)?;
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
        let token =
            if kind == StartKind::Check { http_token::look } else { http_token::read_or_make };
        let http = http_config(self.http, self.http_names, writes, key.is_some(), token)?;
        if let (Some(TlsConfig { own: None, names, .. }), Some(http)) = (&mut tls, &http) {
            // By these names browsers come.
            names.extend(http.names.iter().cloned());
        }
        let advertise = self.advertise;
        if let Some(advertise) = &advertise {
            check_address("--advertise", HostPort::parse(advertise, Some(GOSSIP_PORT)))?;
        }
        let advertise_client = self.advertise_client;
        if let Some(told) = &advertise_client {
            check_address("--advertise-client", HostPort::parse(told, Some(CLIENT_PORT)))?;
        }
        let peers = self.peers.unwrap_or_default();
        let peer = |text: &String| HostPort::parse_remote(text, Some(GOSSIP_PORT));
        let peers = peers.iter().map(|text| check_address("peer", peer(text)));
        let peers = values::each(peers)?;
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
            StartKind::Start | StartKind::Check => {
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
            client: check_address("--client", HostPort::parse_local(&client, None))?,
            gossip: check_address("--gossip", HostPort::parse_local(&gossip, None))?,
            advertise,
            advertise_client,
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
            phase: StartPhase::default(),
        })
    }

    /// Threads for tasks.
    ///
    /// # Errors
    /// None, or more than any machine has use for.
    pub(in crate::cli) fn threads(&self) -> Result<usize, CliError> {
        match self.threads.unwrap_or_else(rt::node_threads) {
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
                let file = key_file::read(path)?;
                let (path, place) = (Some(path.clone()), path.clone());
                let store = KeyStore::new(move |ring| keep_keys(&place, ring));
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
        let (mut plain, is_none) = values::plain_networks(self)?;
        if key.is_some_and(|key| key.plaintext_peers) {
            // While a network moves to a key, clients go on as before.
            plain.extend(
                ["0.0.0.0/0", "::/0"].into_iter().filter_map(|all| all.parse::<IpNetwork>().ok()),
            );
        }
        let client_ca = self.client_ca.clone();
        Ok(Some(TlsConfig { ca, own, client_ca, names, is_plain_at_home: !is_none, plain }))
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
                ("--discard-damaged", self.discard_damaged == Some(true)),
            ];
            return match others.iter().find(|(_, is_set)| *is_set) {
                None => Ok(None),
                Some((name, _)) => usage(&format!("{name} needs --data-dir")),
            };
        };
        check_dir("--data-dir", &dir)?;
        let mut data = DataConfig::new(dir);
        data.sync = self.sync.unwrap_or(data.sync);
        let bytes = |set: Option<usize>, default| set.map_or(default, |bytes| bytes as u64);
        data.rotate_bytes = bytes(self.log_rotate_bytes, data.rotate_bytes);
        data.snapshot_after = bytes(self.snapshot_after, data.snapshot_after);
        data.rotate_after = self.log_rotate_after.unwrap_or(data.rotate_after);
        data.keep_snapshots = self.keep_snapshots.unwrap_or(data.keep_snapshots);
        data.keep_for = self.keep_for.unwrap_or(data.keep_for);
        data.keep_bytes = bytes(self.keep_size, data.keep_bytes);
        data.discard_damaged = self.discard_damaged.unwrap_or(false);
        Ok(Some(data))
    }
}

/// The HTTP port, if there is to be one. `writes`: whether it takes changes, and the file with the token for that, which
/// `token` gives.
fn http_config(
    address: Option<String>,
    names: Option<Vec<String>>,
    writes: (bool, Option<PathBuf>),
    is_secured: bool,
    token: fn(&FilePath) -> Result<Token, CliError>,
) -> Result<Option<HttpConfig>, CliError> {
    let names = names.unwrap_or_default();
    let usage = |text: &str| Err(CliError::Usage(String::from(text)));
    match address {
        None if writes != (false, None) => {
            usage("--http-write and --http-token-file are for a node with --http")
        }
        None if names.is_empty() => Ok(None),
        None => Err(CliError::Usage(String::from("--http-name is for a node with --http"))),
        Some(address) => {
            let address = check_address("--http", HostPort::parse_local(&address, None))?;
            let write_token = match writes {
                (false, None) => None,
                given if is_secured => {
                    let given = match given {
                        (true, None) => "--http-write is",
                        (false, _) => "--http-token-file is",
                        (true, Some(_)) => "--http-write and --http-token-file are",
                    };
                    return usage(&format!(
                        "{given} for a node without --key; with one, tickets and access lists say who changes what"
                    ));
                }
                (true, Some(file)) => Some(token(&file).map_err(http_token::of_option)?),
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
fn check_address(what: &str, read: Result<HostPort, AddressError>) -> Result<String, CliError> {
    match read {
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

/// A directory that is made if it is not there.
///
/// # Errors
/// No system can have it.
fn check_dir(option: &str, dir: &FilePath) -> Result<(), CliError> {
    match dir.as_os_str().as_encoded_bytes().contains(&0) {
        true => Err(CliError::Usage(format!(
            "{option}: there is a null character in it, which no path has"
        ))),
        false => Ok(()),
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

/// Puts what was ordered over the network, of a node's ring, into its key file.
fn keep_keys(path: &FilePath, ring: &KeyRing) -> Result<(), String> {
    let merged = key_file::update(path, |file| file.ring.keep(ring).map(|_| ()));
    match merged {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("{}: {error}", path.display())),
        Err(trouble) => Err(trouble.to_string()),
    }
}

#[cfg(test)]
mod tests;
