//! Why a node did not start: what, where, and what to do about it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::model::ids::NameError;
use crate::storage::StorageError;

/// Why a node did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A setting's text is no address.
    #[error("the {what} address {text:?} cannot be used: {why}")]
    Address {
        /// Which setting.
        what: &'static str,
        /// The given text.
        text: String,
        /// What is wrong and what it should be.
        why: String,
    },
    /// An address that this node needs for itself is not known by the system's name service.
    #[error(
        "the {what} address {text:?} cannot be resolved ({source}); check the name, or give an IP \
         address"
    )]
    Resolve {
        /// Which setting.
        what: &'static str,
        /// The given text.
        text: String,
        /// What the system said.
        source: io::Error,
    },
    /// The port is in use.
    #[error(
        "the {what} port {addr} is in use by another program, perhaps another node; stop that \
         one, or choose another port with --{what} (port 0 takes a free one)"
    )]
    InUse {
        /// Which port.
        what: &'static str,
        /// Where.
        addr: SocketAddr,
    },
    /// The port cannot be bound for another reason.
    #[error("the {what} port {addr} cannot be opened: {source}{}", advice_of_bind(source))]
    Bind {
        /// Which port.
        what: &'static str,
        /// Where.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The network's name is none.
    #[error("the network name {name:?} cannot be used: {why}")]
    Network {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: NameError,
    },
    /// A port that other machines reach, and no key.
    #[error(
        "the {what} port {addr} is open to other machines, and nothing protects it: everybody who reaches \
         it could read and change all data. Make a key with `distkv-node key new --network {network} --to \
         FILE`, copy the file to every node, and start with --key FILE; or say --insecure where nobody else \
         is in the network"
    )]
    Unprotected {
        /// Which port.
        what: &'static str,
        /// Where.
        addr: SocketAddr,
        /// The network's name.
        network: String,
    },
    /// An HTTP port that other machines reach, and nothing that says that this is wanted.
    #[error(
        "the http port {addr} is open to other machines, and everybody who reaches it could read all data \
         and metrics; choose one on loopback, or say --insecure where nobody else is in the network"
    )]
    HttpUnprotected {
        /// Where.
        addr: SocketAddr,
    },
    /// An HTTP port of a secured node that other machines reach, and no certificate for it.
    #[error(
        "the http port {addr} is open to other machines, which must use TLS there, and this node has no certificate: \
         the key file has no CA (`key new` makes one). Give it --cert and --cert-key, or take the port on 127.0.0.1"
    )]
    HttpSecured {
        /// Where.
        addr: SocketAddr,
    },
    /// The key is of another network.
    #[error(
        "the key file is of network {file:?}, and --network says {network:?}; leave --network out, or take \
         the other file"
    )]
    KeyNetwork {
        /// What the file says.
        file: String,
        /// What the settings say.
        network: String,
    },
    /// The list of peers exists and cannot be read.
    #[error("the peer file {path:?} cannot be read{}: {why}", at(*line))]
    PeerFile {
        /// Which file.
        path: PathBuf,
        /// Which of its lines, from 1; none for the file as a whole.
        line: Option<usize>,
        /// What is wrong and what to do.
        why: String,
    },
    /// The saved state to start with cannot be read.
    #[error("{0}")]
    Load(String),
    /// The data directory cannot be used.
    #[error("data directory {dir:?}: {source}")]
    Storage {
        /// Which.
        dir: PathBuf,
        /// What is wrong with it, and what to do.
        source: Box<StorageError>,
    },
    /// More incarnations than a node keeps track of.
    #[error("the data directory names more incarnations than a node keeps track of")]
    TableFull,
    /// The directory for clients' files cannot be used.
    #[error(
        "the directory for clients' files {path:?} cannot be used: {source}; name one that is there and that this \
         user can write to"
    )]
    ClientFiles {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory for scheduled snapshots cannot be used.
    #[error(
        "the directory for scheduled snapshots {path:?} cannot be used: {source}; name one that this user can write to"
    )]
    SnapshotDir {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The audit log cannot be written.
    #[error(
        "the audit log {path:?} cannot be used: {source}; name a file that this user can write to, in a directory that \
         is there"
    )]
    Audit {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The certificate for clients, or its key, cannot be used.
    #[error("the certificate for clients: {0}")]
    Certificate(String),
    /// A joiner was given no peer.
    #[error("a node that joins needs the address of at least one node of the network")]
    NoPeers,
    /// A node that starts by what there is has nothing to start with.
    #[error(
        "this node has no data and knows no other node, so it cannot tell whether its network exists already; name \
         its peers (`peers` in the configuration file, or --peer), or say `found = true` (or --found) on the one \
         node that founds the network"
    )]
    NothingToStartWith,
    /// The membership machine does not take its settings.
    #[error("membership cannot start: {0}")]
    Membership(String),
    /// The system has no thread or socket to give.
    #[error("the system refused {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn at(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

/// What to do where a port cannot be opened.
fn advice_of_bind(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrNotAvailable => {
            "; give an address of this machine, or 0.0.0.0 for all that it has"
        }
        _ => "",
    }
}
