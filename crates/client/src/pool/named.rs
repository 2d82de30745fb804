//! Connections to a node that is meant by its name. Where another one answers at its address, it is as if it could not be
//! reached: the connection stays, for those who mean that one, or whichever is there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Attempt, ConnectionPool, Plan, PooledConnection};
use crate::connection::Use;
use crate::error::ClientError;
use crate::model::host_port::HostPort;

/// Is told the name of a node at whose address another one answers.
type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// Which nodes are not where they are said to be.
#[derive(Default)]
pub(super) struct Misplaced {
    /// One was found: mostly none ever is, and then nobody needs to look.
    is_any: AtomicBool,
    listener: OnceLock<Listener>,
}

impl std::fmt::Debug for Misplaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Misplaced").field("is_any", &self.is_any).finish_non_exhaustive()
    }
}

impl Misplaced {
    /// Where this node should be, another one answers. The listener may use the pool, so none of its locks may be held.
    pub(super) fn note(&self, name: &str) {
        self.is_any.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.get() {
            listener(name);
        }
    }
}

impl ConnectionPool {
    /// Tells this one of each node that is not where it is said to be. There is one such listener.
    pub(crate) fn on_misplaced(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.inner.misplaced.listener.set(Box::new(listener));
    }

    /// As [`ConnectionPool::get`], to the node of this name only; none: to any. What is `wanted` there must have a place.
    pub(crate) async fn get_named(
        &self,
        to: &HostPort,
        name: Option<&str>,
        wanted: Use,
    ) -> Result<Arc<PooledConnection>, ClientError> {
        match self.plan(to, name, wanted) {
            Plan::Use(connection) => Ok(connection),
            Plan::Fail(error) => Err(error),
            Plan::Wait(attempt) => self.come_about(attempt, name, wanted).await,
        }
    }

    /// As [`ConnectionPool::get_named`], without waiting.
    pub(crate) fn plan(&self, to: &HostPort, name: Option<&str>, wanted: Use) -> Plan {
        self.inner.plan(to, name, wanted)
    }

    /// What comes of an attempt, for who means the node of this name.
    pub(crate) async fn come_about(
        &self,
        mut attempt: Arc<Attempt>,
        name: Option<&str>,
        wanted: Use,
    ) -> Result<Arc<PooledConnection>, ClientError> {
        loop {
            let used = attempt.result().await?;
            if let Some(name) = name.filter(|name| !used.is(Some(name))) {
                self.inner.misplaced.note(name);
                return Err(other_node(used.address(), &used.identity().name));
            }
            if used.connection().has_room(wanted) {
                return Ok(used);
            }
            // Others have waited for it, too, and have filled it: there may be a further one.
            match self.plan(used.address(), name, wanted) {
                Plan::Use(connection) => return Ok(connection),
                Plan::Fail(error) => return Err(error),
                Plan::Wait(next) => attempt = next,
            }
        }
    }

    /// As [`ConnectionPool::is_failing`], for who means the node of this name: so is an address where another one answers.
    pub(crate) fn is_failing_for(&self, node: &HostPort, name: Option<&str>) -> bool {
        self.is_failing(node) || name.is_some_and(|name| self.is_misplaced(node, name))
    }

    fn is_misplaced(&self, node: &HostPort, name: &str) -> bool {
        if !self.inner.misplaced.is_any.load(Ordering::Relaxed) {
            return false;
        }
        let nodes = self.inner.nodes.lock();
        let is_misplaced = nodes.get(node).is_some_and(|slot| slot.other_than(name).is_some());
        drop(nodes);
        if is_misplaced {
            self.inner.misplaced.note(name);
        }
        is_misplaced
    }
}

/// Its name may be any text, and is shown in one line.
pub(super) fn other_node(address: &HostPort, name: &str) -> ClientError {
    let reason = format!("another node answers there, {name:?}");
    ClientError::Connect { address: address.to_string(), reason }
}
