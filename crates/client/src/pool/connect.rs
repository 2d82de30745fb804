//! Connecting to a node, and learning which one it is, and of which network.

use std::sync::OnceLock;

use super::{Inner, NodeIdentity};
use crate::connection::Connection;
use crate::error::{ClientError, ServerError};
use crate::message::{Fields, Message, as_str, as_u64, map_items};
use crate::model::host_port::HostPort;
use crate::rt;

/// Connects, and learns the node's identity. A node of another network is left.
pub(super) async fn connect(
    pool: &Inner,
    to: &HostPort,
) -> Result<(Connection, NodeIdentity), ClientError> {
    let options = pool.config.options.clone();
    let patience = options.connect_timeout;
    let connection = Connection::connect_in(&pool.tasks, &pool.clock, to, options).await?;
    let fields = Fields::new();
    let asking = connection.request("cluster", &fields);
    let told = match rt::timeout(patience, asking).await {
        Some(Ok(reply)) => told_by(&reply),
        Some(Err(ClientError::Server(error))) if is_refusal(&error) => {
            let (address, reason) = (to.to_string(), error.to_string());
            return Err(ClientError::NoAccess { address, reason, code: error.code });
        }
        // It is an old node, or cannot answer at present.
        Some(Err(ClientError::Server(_))) => None,
        Some(Err(error)) => {
            let (address, reason) = (to.to_string(), error.to_string());
            return Err(ClientError::Connect { address, reason });
        }
        None => {
            connection.close("it does not answer");
            let reason = String::from("it greets, but does not answer");
            return Err(ClientError::Connect { address: to.to_string(), reason });
        }
    };
    let Some(Told { identity, network }) = told else {
        let name = connection.greeting().node.clone();
        return Ok((connection, NodeIdentity { name, incarnation: None }));
    };
    if let Err((ours, theirs)) = agree(&pool.network, network) {
        connection.close("it is of another network");
        return Err(ClientError::OtherNetwork { address: to.to_string(), ours, theirs });
    }
    Ok((connection, identity))
}

/// What a node tells of itself.
struct Told {
    identity: NodeIdentity,
    /// None from older nodes, and while one goes down.
    network: Option<String>,
}

/// Whether a node with this network's name may be used. The first name that is told is this client's, unless it was
/// configured; if not, both names.
fn agree(ours: &OnceLock<String>, theirs: Option<String>) -> Result<(), (String, String)> {
    let Some(theirs) = theirs.filter(|name| !name.is_empty()) else { return Ok(()) };
    let ours = ours.get_or_init(|| theirs.clone());
    match *ours == theirs {
        true => Ok(()),
        false => Err((ours.clone(), theirs)),
    }
}

/// Whether a node does not let this client in.
fn is_refusal(error: &ServerError) -> bool {
    ["auth_required", "auth_failed", "denied"].iter().any(|code| error.has_code(code))
}

/// The node that answered `cluster`.
fn told_by(reply: &Message) -> Option<Told> {
    let (mut name, mut incarnation, mut network) = (None, None, None);
    for (key, value) in map_items(reply.get("id")?) {
        match as_str(key) {
            Some("name") => name = as_str(value).map(str::to_owned),
            Some("incarnation") => incarnation = as_u64(value),
            Some("network") => network = as_str(value).map(str::to_owned),
            _ => {}
        }
    }
    Some(Told { identity: NodeIdentity { name: name?, incarnation }, network })
}
