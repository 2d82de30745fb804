//! Accepting clients' connections, and refusing those beyond the limit: with an error, at once, and with an
//! occasional line in the log. A few clients of the node's own machine are let in all the same, to look what is wrong
//! (`session/looking.rs`).
//!
//! The limit leaves descriptors for the node itself (`node/lifecycle/file_descriptors.rs`). If there is none left
//! all the same, because other programs have used all that the system has, a spare one is given up
//! for a moment: so a client is told, and does not wait for an answer that never comes.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{Either, select};

use super::connection;
use super::session::LOOK_MS_MAX;
use super::socket::is_local;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::rt::{self, TcpListener, TcpStream};
use crate::server::Shared;

/// How long to wait after the system could not give another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// How long to wait for the connection that must be closed: it is there, unless it has gone.
const CLOSE_PATIENCE: Duration = Duration::from_millis(5);
/// What the spare descriptor is of.
const SPARE: &str = "/dev/null";

/// Takes connections until the server stops.
pub(in crate::server) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut stopping = shared.stopping.listen();
    let mut spare = File::open(SPARE).ok();
    loop {
        if shared.is_stopping() {
            return;
        }
        let accepted = {
            let next = std::pin::pin!(listener.accept());
            match select(next, &mut stopping).await {
                Either::Left((accepted, _)) => accepted,
                Either::Right(_) => return,
            }
        };
        match accepted {
            Ok((socket, _)) => take_in(socket, &shared),
            Err(error) => {
                // Nearly always that there are no file descriptors left; it passes.
                let refusal = no_room(&error);
                if spare.take().is_some() {
                    let next = rt::timeout(CLOSE_PATIENCE, listener.accept()).await;
                    if let Some(Ok((socket, _))) = next {
                        shared.refused.fetch_add(1, Ordering::Relaxed);
                        connection::refuse_and_close(&socket, &refusal, &shared);
                    }
                }
                complain(&shared, &refusal.text);
                rt::sleep(ACCEPT_PAUSE).await;
                spare = File::open(SPARE).ok();
            }
        }
    }
}

/// Counts a connection while it lives.
struct Counted {
    shared: Arc<Shared>,
    /// It has one of the places that are kept for the node's own machine.
    is_kept: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.is_kept {
            // First, so that it is never taken for one of the others.
            self.shared.kept.fetch_sub(1, Ordering::AcqRel);
        }
        self.shared.connections.fetch_sub(1, Ordering::AcqRel);
        self.shared.ended.notify(usize::MAX);
    }
}

fn take_in(socket: TcpStream, shared: &Arc<Shared>) {
    let max = shared.config.connections_max;
    let before = shared.connections.fetch_add(1, Ordering::AcqRel);
    let kept = shared.kept.load(Ordering::Acquire);
    let too_many_by = (before.saturating_sub(kept) + 1).saturating_sub(max);
    let refusal = if too_many_by > 0 && !makes_room(&socket, too_many_by, shared) {
        Some(too_many(max))
    } else if shared.hub.client_memory().is_exceeded() && !shared.must_log_in() {
        // Where it must log in, it is refused then if the memory is full because of its own user.
        Some(no_memory())
    } else {
        None
    };
    let refusal = match refusal {
        Some(refusal) if !is_local(&socket) => refusal,
        Some(refusal) if kept >= shared.config.kept_connections => {
            also_kept_places(refusal, shared.config.kept_connections)
        }
        refusal => return let_in(socket, refusal, shared),
    };
    shared.connections.fetch_sub(1, Ordering::AcqRel);
    shared.refused.fetch_add(1, Ordering::Relaxed);
    complain(shared, &refusal.text);
    if shared.refusals.fetch_add(1, Ordering::AcqRel) < shared.config.refusals_max {
        let shared = Arc::clone(shared);
        let _detached = rt::spawn(async move {
            connection::refuse(socket, &refusal, &shared).await;
            shared.refusals.fetch_sub(1, Ordering::AcqRel);
        });
        return;
    }
    shared.refusals.fetch_sub(1, Ordering::AcqRel);
    connection::refuse_and_close(&socket, &refusal, shared);
}

/// Whether somebody who has not logged in, and must, gives way to this client. `too_many_by`: how many more there are
/// with it than there may be, those included that give way already and have not gone yet.
///
/// Without this, whoever opens connections and says nothing keeps everybody else out, where there may be few.
fn makes_room(socket: &TcpStream, too_many_by: usize, shared: &Shared) -> bool {
    let Ok(peer) = socket.peer_addr() else { return false };
    if too_many_by > shared.config.refusals_max.max(1) {
        return false;
    }
    // Of a flood, nearly all are in the same one. In the other one, somebody would give way who is part of none.
    let crowds = [&shared.handshakes.crowd, &shared.logins.strangers];
    let greater = crowds.into_iter().max_by_key(|crowd| crowd.count());
    greater.is_some_and(|crowd| crowd.make_room(peer.ip(), rt::now()))
}

/// Serves a client; one that would have been refused may only look.
fn let_in(socket: TcpStream, refusal: Option<ClientError>, shared: &Arc<Shared>) {
    shared.accepted.fetch_add(1, Ordering::Relaxed);
    let is_kept = refusal.is_some();
    if is_kept {
        shared.kept.fetch_add(1, Ordering::AcqRel);
    }
    let counted = Counted { shared: Arc::clone(shared), is_kept };
    let _detached = rt::spawn(async move {
        connection::serve(socket, Arc::clone(&counted.shared), refusal).await;
        drop(counted);
    });
}

/// One line in the log now and then.
fn complain(shared: &Shared, why: &str) {
    if let Some(clients) = shared.refused_tally.note(rt::now()) {
        tracing::warn!(clients, "refused clients: {why}");
    }
}

/// The error for one connection too many.
fn too_many(max: usize) -> ClientError {
    let text = format!(
        "this node has {max} client connections, as many as it allows (--max-connections, and the \
         limit on open files)"
    );
    ClientError::new(ErrorCode::TooMany, text)
}

/// The same for a client of the node's own machine: its places are taken, too.
fn also_kept_places(refusal: ClientError, kept_connections: usize) -> ClientError {
    if kept_connections == 0 {
        return refusal;
    }
    let (text, seconds) = (&refusal.text, LOOK_MS_MAX / 1_000);
    let text = format!(
        "{text}; the {kept_connections} places for clients of its own machine are taken, too, and one that asks nothing \
         gives its place up after {seconds} s: try again in {seconds} s"
    );
    ClientError::new(refusal.code, text)
}

/// The error of a connection that the system gives no descriptor for, or so.
fn no_room(error: &io::Error) -> ClientError {
    let text = format!("the system has no room for another client of this node: {error}");
    ClientError::new(ErrorCode::TooMany, text)
}

/// The error of a connection for which there is no memory.
pub(in crate::server) fn no_memory() -> ClientError {
    let text = "what this node keeps for its clients exceeds --max-client-memory; try again later, \
                or another node";
    ClientError::new(ErrorCode::TooMany, text)
}
