//! Connecting to a node, and learning which one it is.

use super::NodeIdentity;
use crate::connection::clock::Clock;
use crate::connection::group::Group;
use crate::connection::{Connection, Options};
use crate::error::{ClientError, ServerError};
use crate::message::{Fields, Message, as_str, as_u64, map_items};
use crate::model::host_port::HostPort;
use crate::rt;

/// Connects, and learns the node's identity.
pub(super) async fn connect(
    tasks: &Group,
    clock: &Clock,
    to: &HostPort,
    options: Options,
) -> Result<(Connection, NodeIdentity), ClientError> {
    let patience = options.connect_timeout;
    let connection = Connection::connect_in(tasks, clock, to, options).await?;
    let fields = Fields::new();
    let asking = connection.request("cluster", &fields);
    let identity = match rt::timeout(patience, asking).await {
        Some(Ok(reply)) => identity_of(&reply),
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
    let identity = identity.unwrap_or_else(|| NodeIdentity {
        name: connection.greeting().node.clone(),
        incarnation: None,
    });
    Ok((connection, identity))
}

/// Whether a node does not let this client in.
fn is_refusal(error: &ServerError) -> bool {
    ["auth_required", "auth_failed", "denied"].iter().any(|code| error.has_code(code))
}

/// The node that answered `cluster`.
fn identity_of(reply: &Message) -> Option<NodeIdentity> {
    let (mut name, mut incarnation) = (None, None);
    for (key, value) in map_items(reply.get("id")?) {
        match as_str(key) {
            Some("name") => name = as_str(value).map(str::to_owned),
            Some("incarnation") => incarnation = as_u64(value),
            _ => {}
        }
    }
    Some(NodeIdentity { name: name?, incarnation })
}
