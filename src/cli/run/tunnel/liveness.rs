//! Whether the nodes to which clients of a tunnel are connected still answer. A host that is cut off, or a process that is
//! frozen, ends no connection, and its clients may have nothing to send: without this, they would wait for ever.
//!
//! What passes through the tunnel is its clients' own, so nothing is asked there. A node that was silent on all connections
//! through the tunnel is asked by one more, which ends when TLS is set up: the node's process has answered then, whoever
//! may log in. That it refuses is an answer, too.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use parking_lot::Mutex;

use crate::cli::say;
use crate::cli::terminal::output::count_of;
use crate::client::wire::Wire;
use crate::client::{Access, HostPort};
use crate::model::ids::Millis;
use crate::rt::{self, TcpStream};

/// A node that was silent for this long is asked, as by our other clients.
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// How long it has to answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(4);

/// The nodes to which there are connections, by address: a host's name may have several, and other nodes there.
#[derive(Default)]
pub(super) struct Liveness {
    /// Never more than the nodes of the ticket have addresses: each is there once, and goes when its last connection has.
    nodes: Mutex<BTreeMap<SocketAddr, Arc<Node>>>,
}

/// A node, as long as clients are connected to it, and up to [`PROBE_AFTER`] longer.
struct Node {
    at: SocketAddr,
    /// What the ticket calls it, which its certificate must name.
    name: HostPort,
    /// When something last came from it, by [`rt::now`].
    heard: AtomicU64,
    connections: AtomicUsize,
    /// Closed when the node does not answer.
    end: Sender<()>,
    ended: Receiver<()>,
}

/// One connection to a node.
pub(super) struct Held(Arc<Node>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Held {
    /// Something has come from the node.
    pub(super) fn note_heard(&self) {
        self.0.heard.store(rt::now(), Ordering::Relaxed);
    }

    /// Waits until the node does not answer any more.
    pub(super) async fn ended(&self) {
        // Nothing is ever sent.
        while self.0.ended.recv().await.is_ok() {}
    }
}

impl Liveness {
    /// Counts a connection that was made to a node just now. `lost` is called if it does not answer any more.
    pub(super) fn hold(
        self: &Arc<Self>,
        at: SocketAddr,
        name: &HostPort,
        access: &Access,
        lost: impl FnOnce() + Send + 'static,
    ) -> Held {
        let mut nodes = self.nodes.lock();
        if let Some(node) = nodes.get(&at) {
            node.connections.fetch_add(1, Ordering::SeqCst);
            let held = Held(Arc::clone(node));
            held.note_heard();
            return held;
        }
        let (end, ended) = async_channel::bounded(1);
        let node = Arc::new(Node {
            at,
            name: name.clone(),
            heard: AtomicU64::new(rt::now()),
            connections: AtomicUsize::new(1),
            end,
            ended,
        });
        nodes.insert(at, Arc::clone(&node));
        drop(nodes);
        let (liveness, watched, access) = (Arc::clone(self), Arc::clone(&node), access.clone());
        let _detached = rt::spawn(async move {
            if let Some(reason) = liveness.watch(&watched, &access).await {
                lost();
                liveness.give_up(&watched, &reason);
            }
        });
        Held(node)
    }

    /// Asks a node whenever it was silent for too long. Returns why it counts as gone, or nothing when there are no more
    /// connections to it.
    async fn watch(&self, node: &Arc<Node>, access: &Access) -> Option<String> {
        loop {
            let silent = rt::now().saturating_sub(node.heard.load(Ordering::Relaxed));
            let left = rt::millis(PROBE_AFTER).saturating_sub(silent);
            if left > 0 {
                rt::sleep(Duration::from_millis(left)).await;
                if self.forget_unused(node) {
                    return None;
                }
                continue;
            }
            let asked: Millis = rt::now();
            match rt::timeout(PROBE_TIMEOUT, answer(node, access)).await {
                Some(Ok(())) => node.heard.store(rt::now(), Ordering::Relaxed),
                // A client has heard of it meanwhile.
                _ if node.heard.load(Ordering::Relaxed) >= asked => {}
                Some(Err(reason)) => return Some(reason),
                None => return Some(format!("nothing within {PROBE_TIMEOUT:?}")),
            }
        }
    }

    /// Removes a node to which there is no connection any more; whether it was one. New ones are counted under the same lock.
    fn forget_unused(&self, node: &Arc<Node>) -> bool {
        let mut nodes = self.nodes.lock();
        let is_unused = node.connections.load(Ordering::SeqCst) == 0;
        if is_unused {
            nodes.remove(&node.at);
        }
        is_unused
    }

    /// Ends all connections to a node.
    fn give_up(&self, node: &Arc<Node>, reason: &str) {
        let count = {
            let mut nodes = self.nodes.lock();
            nodes.remove(&node.at);
            node.connections.load(Ordering::SeqCst)
        };
        node.end.close();
        if count > 0 {
            let connections = count_of(count as u64, "connection", "connections");
            say::warning(&format!(
                "{} does not answer ({reason}); {connections} of clients to it ended, and they get another node when they \
                 connect again",
                node.name
            ));
        }
    }
}

/// Waits for a sign that the node's process is alive.
///
/// # Errors
/// Its host says that it is not, or cannot be reached.
async fn answer(node: &Node, access: &Access) -> Result<(), String> {
    let stream = match TcpStream::connect(node.at).await {
        Ok(stream) => stream,
        Err(error) => {
            // Of other errors, this machine may be the reason: then nothing can be said of the node.
            let is_theirs = matches!(
                error.kind(),
                ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::TimedOut
            );
            return if is_theirs { Err(error.to_string()) } else { Ok(()) };
        }
    };
    if let Ok(mut wire) = Wire::over(stream, node.at.ip(), &node.name, access).await {
        wire.close().await;
    }
    Ok(())
}
