//! Closes connections while the memory that the node keeps for its clients exceeds the bound. The
//! worst goes first: the one that keeps most alive and has not read for longest. One at a time,
//! because each releases what nobody else needs.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};

use crate::hub::client_memory::Holding;
use crate::rt;
use crate::server::Shared;

/// How long a connection may take to release its memory, before the next one is chosen.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
/// How often to look for lines of the log that are due, and for an excess for which no connection
/// could be closed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Closes connections when that is needed, until the server stops.
pub(in crate::server) async fn relieve(shared: Arc<Shared>) {
    let memory = Arc::clone(shared.hub.client_memory());
    let mut stopping = shared.stopping.listen();
    loop {
        let pressure = memory.pressure.listen();
        if shared.is_stopping() {
            return;
        }
        while memory.is_exceeded() {
            let relief = memory.relief.listen();
            let Some((worst, holding)) = memory.worst(rt::now()) else { break };
            worst.close();
            memory.note_closed();
            drop(worst);
            complain(&shared, shared.closed_tally.note(rt::now()), Some(holding));
            let _ = rt::timeout(CLOSE_PATIENCE, relief).await;
        }
        memory.note_relieved();
        complain(&shared, shared.closed_tally.due(rt::now()), None);
        let next = rt::timeout(INTERVAL, pressure);
        if let Either::Right(_) = select(std::pin::pin!(next), &mut stopping).await {
            return;
        }
    }
}

/// Closes all connections when no client is served any more, until the server stops. Later ones get
/// the error with each request.
pub(in crate::server) async fn shut_out(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.listen();
    loop {
        let changed = shared.hub.closing.changed.listen();
        if shared.is_stopping() {
            return;
        }
        if shared.hub.closing.is_closed() {
            shared.hub.client_memory().close_all();
        }
        if let Either::Right(_) = select(changed, &mut stopping).await {
            return;
        }
    }
}

fn complain(shared: &Shared, connections: Option<u64>, last: Option<Holding>) {
    let Some(connections) = connections else { return };
    let view = shared.hub.client_memory().view();
    let (max, used, pinned) = (view.max, view.used, view.pinned);
    let (held, silent_ms) = last.map(|holding| (holding.bytes, holding.silent_ms)).unzip();
    tracing::warn!(
        connections,
        held,
        silent_ms,
        used,
        pinned,
        max,
        "closed clients that read too slowly: what is kept for clients exceeds --max-client-memory"
    );
}
