//! Connecting to a node, and learning which one it is, and of which network.

use super::{Inner, NodeIdentity, PoolConfig};
use crate::connection::{Connection, Options, OwnNetwork, ShutOut};
use crate::error::ClientError;
use crate::message::{Fields, Message, as_str, as_u64, map_items};
use crate::model::host_port::HostPort;
use crate::rt;

/// Connects, and learns the node's identity. A node of another network is left. `shut_out`: what the node has said before.
pub(super) async fn connect(
    pool: &Inner,
    to: &HostPort,
    shut_out: &ShutOut,
) -> Result<(Connection, NodeIdentity), ClientError> {
    let PoolConfig { connect_timeout, window, nowait, .. } = pool.config;
    let access = pool.access.clone().to_network(pool.network.get().cloned());
    let options = Options { connect_timeout, window, nowait, access };
    let connection = Connection::connect_in(&pool.tasks, to, options, shut_out).await?;
    let fields = Fields::new();
    let asking = connection.request("cluster", &fields);
    let identity = match rt::timeout(connect_timeout, asking).await {
        Some(Ok(reply)) => identity_of(&reply),
        Some(Err(ClientError::Server(error))) if error.shuts_out() => {
            let (address, reason) = (to.to_string(), error.to_string());
            let code = error.code.map(Into::into);
            let refusal = ClientError::NoAccess { address, reason, code, greeted: true };
            return Err(shut_out.meaning_of(refusal, rt::now()));
        }
        // It is an old node, or cannot answer at present.
        Some(Err(ClientError::Server(_))) => None,
        Some(Err(error)) => {
            let (address, reason) = (to.to_string(), error.to_string());
            let failed = ClientError::Connect { address, reason };
            return Err(connection.said_full().unwrap_or(failed));
        }
        None => {
            connection.close("it does not answer");
            let reason = String::from("it greets, but does not answer");
            return Err(ClientError::Connect { address: to.to_string(), reason });
        }
    };
    let greeting = connection.greeting();
    if let Some(theirs) = greeting.network.as_deref()
        && let Some(its) = OwnNetwork::of_node(theirs)
    {
        // Only who lets the client in says of which network it is: a stray address must not decide that.
        let ours = pool.network.get_or_init(|| its);
        // Another node may have been faster.
        if let Err(error) = ours.check(to, theirs) {
            connection.close("it is of another network");
            return Err(error);
        }
    }
    connection.count_for(&pool.clock);
    let identity =
        identity.unwrap_or_else(|| NodeIdentity { name: greeting.node.clone(), incarnation: None });
    Ok((connection, identity))
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
