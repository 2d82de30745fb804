//! Looks after a pool: closes unused connections, asks silent nodes whether they are alive.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Inner, PooledConnection, count};
use crate::error::ClientError;
use crate::model::host_port::HostPort;
use crate::rt;

/// How often the pool is looked at, at most and at least.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// The longest time between two looks.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Runs until the pool is closed or gone.
pub(super) async fn keep(pool: Weak<Inner>) {
    loop {
        let Some(inner) = pool.upgrade() else { return };
        let shortest = inner.config.idle_close.min(inner.config.probe_after);
        let interval = (shortest / 4).clamp(LOOK_MIN, LOOK_MAX);
        let closed = inner.closed.listen();
        if inner.is_closed.load(Ordering::SeqCst) {
            return;
        }
        look(&inner);
        drop(inner);
        if rt::timeout(interval, closed).await.is_some() {
            return;
        }
    }
}

/// One look.
fn look(inner: &Arc<Inner>) {
    let now = rt::now();
    let (idle, silence) =
        (rt::millis(inner.config.idle_close), rt::millis(inner.config.probe_after));
    let mut silent = Vec::new();
    let mut nodes = inner.nodes.lock();
    for (address, slot) in nodes.iter_mut() {
        let lost = slot.drop_closed();
        inner.counts.lost.fetch_add(lost, Ordering::Relaxed);
        slot.connections.retain(|used| {
            let is_used = used.connection.open_requests() > 0
                || now.saturating_sub(used.used.load(Ordering::Relaxed)) < idle;
            if !is_used {
                count(&inner.counts.idle_closed);
            }
            is_used
        });
        for used in &slot.connections {
            let since_heard = now.saturating_sub(used.connection.heard_at());
            if used.connection.open_requests() > 0 && since_heard >= silence {
                silent.push((address.clone(), Arc::clone(used)));
            }
        }
    }
    drop(nodes);
    for (address, used) in silent {
        start_probe(inner, &address, &used);
    }
}

/// Asks a node whether it is alive, unless that is under way. Without an answer its connection
/// ends.
pub(super) fn start_probe(inner: &Arc<Inner>, node: &HostPort, used: &Arc<PooledConnection>) {
    if used.is_probed.swap(true, Ordering::SeqCst) {
        return;
    }
    count(&inner.counts.probes);
    let timeout = inner.config.probe_timeout;
    let tasks = inner.tasks.clone();
    let (inner, node, used) = (Arc::downgrade(inner), node.clone(), Arc::clone(used));
    tasks.spawn(async move {
        let is_alive = used.connection.is_alive(timeout).await;
        used.is_probed.store(false, Ordering::SeqCst);
        let Some(inner) = inner.upgrade() else { return };
        if used.connection.is_closed() {
            return;
        }
        if !is_alive {
            count(&inner.counts.silent_closed);
            // First, so that the calls that lose it do not come back at once.
            let reason = String::from("it does not answer");
            let error = ClientError::Connect { address: node.to_string(), reason };
            inner.note_failure(&node, error, rt::now());
            used.connection.close("the node does not answer");
        } else if let Some(slot) = inner.nodes.lock().get_mut(&node) {
            slot.failure = None;
        }
    });
}
