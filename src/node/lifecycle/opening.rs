//! What a node opens of its own before it starts: files and directories. (What it opens to others is in
//! [`ports`](super::ports).)

use std::path::Path;
use std::sync::Arc;

use crate::engine::delete::DeleteSettings;
use crate::model::ids::NodeId;
use crate::node::clients::certificates::Certificates;
use crate::node::clients::files::ClientFiles;
use crate::node::config::{Config, Start};
use crate::node::durable::{self, Opened, Prepared};
use crate::node::error::NodeError;
use crate::node::membership;
use crate::node::membership::identity::Myself;
use crate::node::membership::peer_file::{self, Stored};
use crate::node::monitoring::audit::AuditLog;
use crate::rt::{self, millis};

/// Opens the audit log, if there is to be one.
pub(in crate::node) fn open_audit(config: &Config) -> Result<Option<AuditLog>, NodeError> {
    config.audit.as_deref().map(|path| AuditLog::open(path, config.name.as_str())).transpose()
}

/// Opens and reads the data directory, if there is one.
pub(in crate::node) async fn open_data(config: &Config) -> Result<Option<Opened>, NodeError> {
    let Some(data) = config.data.clone() else { return Ok(None) };
    config.phase.note("reading its data directory");
    let (network, name) = (config.network.clone(), config.name.clone());
    rt::spawn_blocking(move || durable::open(&data, &network, &name).map(Some)).await
}

/// Whether two names are of one directory.
pub(in crate::node) fn is_same_directory(a: &Path, b: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| std::fs::metadata(path).map(|of| (of.dev(), of.ino()));
    Ok(id(a)? == id(b)?)
}

/// Opens the directory for clients' files, if there is one.
pub(in crate::node) fn open_client_files(
    config: &Config,
) -> Result<Option<ClientFiles>, NodeError> {
    let Some(path) = &config.client_files else { return Ok(None) };
    let failed = |source| NodeError::ClientFiles { path: path.clone(), source };
    if let Some(data) = &config.data
        && is_same_directory(path, &data.dir).map_err(failed)?
    {
        // A client could make what the next start takes for the node's own.
        let why = "it is the data directory; choose another one";
        return Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, why)));
    }
    ClientFiles::open(path).map(Some).map_err(failed)
}

/// The certificate for clients, if they are to use TLS.
pub(in crate::node) fn tls_of(
    config: &Config,
    me: &Arc<Myself>,
) -> Result<Option<Arc<Certificates>>, NodeError> {
    let http = config.http.as_ref();
    config.tls.as_ref().map(|tls| Certificates::open(tls, http, me)).transpose()
}

/// Begins with the state that was read. From then on the directory records what leaves the node.
pub(in crate::node) async fn prepare(
    config: &Config,
    opened: Opened,
) -> Result<Prepared, NodeError> {
    config.phase.note("beginning a new log in its data directory");
    let (name, config) = (config.name.clone(), config.clone());
    let prepare = move || opened.prepare(&name, |id| engine_config(&config, id));
    rt::spawn_blocking(prepare).await.map_err(|_| NodeError::TableFull)
}

pub(in crate::node) fn engine_config(config: &Config, id: NodeId) -> crate::engine::Config {
    crate::engine::Config {
        read_only: config.read_only,
        ignore_auth: config.ignore_auth,
        memory_max: config.memory_max,
        delete: DeleteSettings {
            say_for_ms: millis(config.purge_grace),
            ..DeleteSettings::default()
        },
        ..crate::engine::Config::new(id, rt::random_u64())
    }
}

/// The peers of the peer file, after a look at those of the options.
pub(in crate::node) fn known_peers(config: &Config, has_data: bool) -> Result<Stored, NodeError> {
    for peer in &config.peers {
        membership::address::parse_peer(peer)?;
    }
    let stored = peer_file::stored(config, has_data)?;
    if let Some(damage) = &stored.damage {
        tracing::warn!("{damage}; this node goes on with what is good in it");
    }
    let knows_nobody = config.peers.is_empty() && stored.peers.is_empty();
    if knows_nobody && !has_data {
        match config.start {
            Start::Join => return Err(NodeError::NoPeers),
            Start::ByWhatThereIs { found: false, .. } => return Err(NodeError::NothingToStartWith),
            Start::Run { .. } | Start::ByWhatThereIs { .. } => {}
        }
    }
    Ok(stored)
}
