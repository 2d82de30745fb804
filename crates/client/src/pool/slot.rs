//! What the pool knows of one node, and the attempts that callers share.

use std::sync::{Arc, OnceLock};

use event_listener::Event;

use super::{NodeIdentity, PoolConfig, PooledConnection};
use crate::connection::{STREAMS_MAX, ShutOut, Use};
use crate::error::ClientError;
use crate::model::host_port::HostPort;
use crate::model::ids::Millis;
use crate::rt;

/// Doublings of the time for which a failure is remembered; beyond, the cap counts anyway.
const DOUBLINGS_MAX: u32 = 16;

/// One node.
#[derive(Debug, Default)]
pub(super) struct NodeSlot {
    /// Invariant: at most as many as the configuration says, and one more that was under way.
    pub(super) connections: Vec<Arc<PooledConnection>>,
    /// The attempt that is under way.
    pub(super) attempt: Option<Arc<Attempt>>,
    /// How the last attempt failed, if it did.
    pub(super) failure: Option<Failure>,
    /// The node that was there last.
    pub(super) identity: Option<NodeIdentity>,
    /// What it has said last against this client.
    pub(super) shut_out: ShutOut,
}

/// A failure that is remembered.
#[derive(Debug)]
pub(super) struct Failure {
    error: ClientError,
    /// Until when it is given to all callers.
    until: Millis,
    /// Failures one after the other.
    count: u32,
}

impl NodeSlot {
    /// Drops connections that ended; returns how many.
    pub(super) fn drop_closed(&mut self) -> u64 {
        let before = self.connections.len();
        self.connections.retain(|used| !used.connection.is_closed());
        (before - self.connections.len()) as u64
    }

    /// The connection with the fewest open requests, if those are fewer than `busy_at` and it has a place for this; none as
    /// well where one has ended, which is to be dropped first.
    pub(super) fn ready(&self, busy_at: usize, wanted: Use) -> Option<&Arc<PooledConnection>> {
        let mut best: Option<(&Arc<PooledConnection>, usize)> = None;
        for used in &self.connections {
            let load = used.connection.load()?;
            if best.is_none_or(|(_, least)| load < least) {
                best = Some((used, load));
            }
        }
        let best = best.filter(|(_, load)| *load < busy_at).map(|(used, _)| used)?;
        best.connection.has_room(wanted).then_some(best)
    }

    /// The node that is there instead of the one that is meant, while its connection lasts.
    pub(super) fn other_than(&self, name: &str) -> Option<&str> {
        let mut lasting = self.connections.iter().filter(|used| !used.connection.is_closed());
        let first = lasting.next()?;
        let is_there = first.is(Some(name)) || lasting.any(|used| used.is(Some(name)));
        (!is_there).then_some(first.identity.name.as_str())
    }

    /// The connection to the node that is meant with the fewest open requests, of those that have a place for this, if one
    /// has; and how many requests those are: none where there is no place.
    pub(super) fn least_busy(
        &self,
        name: Option<&str>,
        wanted: Use,
    ) -> Option<(Arc<PooledConnection>, Option<usize>)> {
        let usable = self.connections.iter().filter(|used| used.is(name));
        let rank = |used: &&Arc<PooledConnection>| {
            (!used.connection.has_room(wanted), used.connection.open_requests())
        };
        let ranked = usable.map(|used| (rank(&used), used));
        let ((is_full, load), used) = ranked.min_by_key(|(rank, _)| *rank)?;
        Some((Arc::clone(used), (!is_full).then_some(load)))
    }

    /// Why there is no place for another stream, where no further connection is under way; none: for calls, there is none
    /// either.
    pub(super) fn too_many_streams(
        &self,
        to: &HostPort,
        config: &PoolConfig,
    ) -> Option<ClientError> {
        let open = self.connections.iter().map(|used| used.connection.stream_count());
        let (streams, least) = open.fold((0_usize, usize::MAX), |(sum, least), count| {
            (sum.saturating_add(count), least.min(count))
        });
        if least < STREAMS_MAX {
            return None;
        }
        let (connections, connections_per_node) =
            (self.connections.len(), config.connections_per_node);
        match &self.failure {
            Some(failure) if connections < connections_per_node => Some(failure.error.clone()),
            _ => Some(ClientError::TooManyStreams {
                address: to.to_string(),
                streams,
                connections,
                connections_per_node,
            }),
        }
    }

    pub(super) fn is_in_use(&self) -> bool {
        !self.connections.is_empty() || self.attempt.is_some()
    }

    pub(super) fn is_failing(&self, now: Millis) -> bool {
        self.failure.as_ref().is_some_and(|failure| now < failure.until)
    }

    pub(super) fn remembered_failure(&self, now: Millis) -> Option<ClientError> {
        self.failure.as_ref().filter(|failure| now < failure.until).map(|f| f.error.clone())
    }

    /// Says until when it is remembered.
    pub(super) fn note_failure(
        &mut self,
        error: ClientError,
        now: Millis,
        config: &PoolConfig,
    ) -> Millis {
        let count = self.failure.as_ref().map_or(0, |failure| failure.count);
        let factor = 1_u32 << count.min(DOUBLINGS_MAX);
        let memory = config.failure_memory.saturating_mul(factor).min(config.failure_memory_max);
        let until = now.saturating_add(rt::millis(memory));
        self.failure = Some(Failure { error, until, count: count.saturating_add(1) });
        until
    }

    pub(super) fn close(self, reason: &str) {
        for used in self.connections {
            used.connection.close(reason);
        }
    }
}

/// One attempt to connect, for which any number of callers wait.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    result: OnceLock<Result<Arc<PooledConnection>, ClientError>>,
    done: Event,
}

impl Attempt {
    /// How it ended, once it has.
    pub(crate) async fn result(&self) -> Result<Arc<PooledConnection>, ClientError> {
        loop {
            let listener = self.done.listen();
            if let Some(result) = self.result.get() {
                return result.clone();
            }
            listener.await;
        }
    }

    /// Wakes all waiting calls.
    pub(super) fn finish(&self, result: Result<Arc<PooledConnection>, ClientError>) {
        let _ = self.result.set(result);
        self.done.notify(usize::MAX);
    }
}
