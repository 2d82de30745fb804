//! Why a node did not start: what, where, and what to do about it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use distkv_command::output::shell_word;
use rustix::io::Errno;

use crate::model::ids::NameError;
use crate::storage::{StorageError, dangling_link};

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
    #[error("the {what} port {addr} cannot be opened: {source}{}", advice_of_bind(*addr, source))]
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
         it could read and change all data. Make a key with `distkv-node key new --network {} --to \
         FILE`, copy the file to every node, and start with --key FILE; or say --insecure where nobody else \
         is in the network",
        shell_word(network)
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
    /// The file to start with is no saved state.
    #[error("{0}")]
    Load(String),
    /// The file to start with cannot be read.
    #[error("the file {} cannot be loaded: {source}", path.display())]
    LoadFile {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
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
         user can write to{}",
        advice_of_writing(source)
    )]
    ClientFiles {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory for scheduled snapshots cannot be used.
    #[error(
        "the directory for scheduled snapshots {path:?} cannot be used: {source}; name one that this user can write to{}",
        advice_of_writing(source)
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
         is there{}",
        advice_of_writing(source)
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

impl NodeError {
    /// Whether somebody has to change the settings, or what they name, before the node can start: another start would find
    /// the same. All else may pass by itself: a disk that is full or not mounted yet, a port that is in use, an address that
    /// the machine does not have yet.
    pub(crate) fn is_of_settings(&self) -> bool {
        match self {
            Self::Address { .. }
            | Self::Network { .. }
            | Self::NoPeers
            | Self::NothingToStartWith
            | Self::Unprotected { .. }
            | Self::HttpUnprotected { .. }
            | Self::HttpSecured { .. }
            | Self::KeyNetwork { .. }
            | Self::PeerFile { .. }
            | Self::Load(_)
            | Self::Certificate(_) => true,
            Self::LoadFile { path, source }
            | Self::ClientFiles { path, source }
            | Self::SnapshotDir { path, source }
            | Self::Audit { path, source } => is_wrong_place(path, source),
            Self::Storage { dir, source } => is_wrong_directory(dir, source),
            Self::Resolve { .. }
            | Self::InUse { .. }
            | Self::Bind { .. }
            | Self::TableFull
            | Self::Membership(_)
            | Self::System { .. } => false,
        }
    }
}

/// Whether a file or directory that the settings name is the wrong one, as far as the system says so: it is not there, is
/// something else, or this user may not use it. Where a symbolic link leads nowhere, the disk may be mounted later.
pub(crate) fn is_wrong_place(path: &Path, error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::NotFound | Kind::AlreadyExists => dangling_link(path).is_none(),
        Kind::PermissionDenied
        | Kind::ReadOnlyFilesystem
        | Kind::NotADirectory
        | Kind::IsADirectory
        | Kind::InvalidInput
        | Kind::InvalidFilename => true,
        _ => Errno::from_io_error(error) == Some(Errno::LOOP),
    }
}

/// Whether the settings name a data directory that cannot be this node's.
fn is_wrong_directory(dir: &Path, error: &StorageError) -> bool {
    use StorageError::{Foreign, FutureVersion, Io, OtherOwner, UnknownKind};
    match error {
        OtherOwner { .. } | Foreign { .. } | FutureVersion { .. } | UnknownKind { .. } => true,
        // A file in it that was there a moment ago may be there again.
        Io { source, action, .. } if source.kind() == io::ErrorKind::NotFound => *action == "make",
        Io { source, .. } => is_wrong_place(dir, source),
        _ => false,
    }
}

/// What else to do where nothing can be written.
pub(crate) fn advice_of_writing(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            ", or, under systemd, let the service write there (`ReadWritePaths=`, by `systemctl edit distkv-node`)"
        }
        _ => "",
    }
}

fn at(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

/// What to do where a port cannot be opened.
fn advice_of_bind(addr: SocketAddr, source: &io::Error) -> &'static str {
    match (source.kind(), addr) {
        (io::ErrorKind::AddrNotAvailable, SocketAddr::V4(_)) => {
            "; give an address of this machine, or 0.0.0.0 for all that it has"
        }
        (io::ErrorKind::AddrNotAvailable, SocketAddr::V6(_)) => {
            "; give an address of this machine, or [::] for all that it has"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_has_to_change_is_told_from_what_may_pass() {
        let folder = tempfile::tempdir().unwrap();
        let audit = |source: io::Error| {
            let path = folder.path().join("audit");
            NodeError::Audit { path, source }.is_of_settings()
        };
        let of = |errno: Errno| audit(errno.into());
        for errno in [
            Errno::NOENT,
            Errno::ACCESS,
            Errno::PERM,
            Errno::ROFS,
            Errno::NOTDIR,
            Errno::ISDIR,
            Errno::LOOP,
            Errno::NAMETOOLONG,
        ] {
            assert!(of(errno), "{errno}");
        }
        for errno in
            [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::MFILE, Errno::STALE, Errno::NOMEM]
        {
            assert!(!of(errno), "{errno}");
        }
        assert!(audit(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")));
        // Another node of that name has the directory as long as it runs.
        assert!(!audit(io::Error::other("another node")));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_wrong_and_a_file_in_it_that_is_gone_is_not() {
        let of = |action, errno: Errno| {
            let source = StorageError::Io { file: String::from("x"), action, source: errno.into() };
            NodeError::Storage { dir: "/proc/x".into(), source: Box::new(source) }.is_of_settings()
        };
        assert!(of("make", Errno::NOENT) && of("lock", Errno::ACCESS) && of("lock", Errno::ROFS));
        assert!(!of("read", Errno::NOENT) && !of("lock", Errno::NOSPC));
    }

    #[test]
    fn where_a_service_may_not_write_its_unit_is_named() {
        let told = |errno: Errno| {
            let path = PathBuf::from("/var/log/distkv/audit");
            NodeError::Audit { path, source: errno.into() }.to_string()
        };
        assert!(told(Errno::ROFS).contains("`ReadWritePaths=`"), "{}", told(Errno::ROFS));
        assert!(!told(Errno::ACCESS).contains("systemd"), "{}", told(Errno::ACCESS));
    }
}
