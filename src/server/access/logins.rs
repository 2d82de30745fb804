//! What all logins at a node share: how they, and changes that users make of themselves, are slowed down, and who is present.
//!
//! A hash of a password takes some 30 ms of one core and 19 MiB, an exchange of keys some ms: half the cores
//! compute them at once, a few wait, and the others are told to come again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_lock::Semaphore;
use distkv_access::secret::{LoginCache, WrongSecrets};
use distkv_access::users::OwnChanges;
use parking_lot::Mutex;

use super::cluster_key::ClusterKeys;
use super::present::Present;
use super::strangers::{GRACE_MS, STRANGERS_MAX};
use super::throttle::Throttle;
use crate::crowd::Crowd;
use crate::rt;
use crate::server::connections::throttled_warning::Tally;

/// Most computations of secrets that wait for a core.
pub(crate) const COMPUTATIONS_WAITING_MAX: usize = 64;

/// See the module.
pub(in crate::server) struct Logins {
    /// Those who have it are admins; none on an open node.
    pub(in crate::server) key: Option<ClusterKeys>,
    pub(in crate::server) throttle: Throttle,
    /// None if the system had no random key for it: then each login is computed.
    pub(in crate::server) cache: Option<Mutex<LoginCache>>,
    /// None for the same reason: then the same wrong secret again is one more guess.
    pub(in crate::server) wrong: Option<Arc<Mutex<WrongSecrets>>>,
    /// How often users have changed themselves here.
    pub(in crate::server) own_changes: Mutex<OwnChanges>,
    /// Those who have not logged in, where they must.
    pub(in crate::server) strangers: Arc<Crowd>,
    /// For the log: those for whom there was no place, or not any more.
    pub(in crate::server) crowded: Tally,
    pub(in crate::server) present: Arc<Present>,
    cores: Arc<Semaphore>,
    cores_max: usize,
    /// Computations that run or wait.
    begun: Arc<AtomicUsize>,
}

impl Logins {
    /// `connections_max`: as many clients may connect.
    pub(in crate::server) fn new(key: Option<ClusterKeys>, connections_max: usize) -> Self {
        let cores_max = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        Self {
            key,
            throttle: Throttle::default(),
            cache: rt::random_bytes().ok().map(|key| Mutex::new(LoginCache::new(key))),
            wrong: rt::random_bytes().ok().map(|key| Arc::new(Mutex::new(WrongSecrets::new(key)))),
            own_changes: Mutex::default(),
            strangers: Crowd::new(STRANGERS_MAX.min(connections_max), GRACE_MS),
            crowded: Tally::default(),
            present: Arc::new(Present::new(connections_max)),
            cores: Arc::new(Semaphore::new(cores_max)),
            cores_max,
            begun: Arc::default(),
        }
    }

    /// Whether every client must log in, whatever the data says.
    pub(in crate::server) fn is_secured(&self) -> bool {
        self.key.is_some()
    }

    /// The right to compute something, now or soon; none if too many wait.
    pub(in crate::server) fn turn(&self) -> Option<Turn> {
        let max = self.cores_max + COMPUTATIONS_WAITING_MAX;
        let turn = Turn(Arc::clone(&self.begun));
        // Dropped, it takes its count back.
        (self.begun.fetch_add(1, Ordering::AcqRel) < max).then_some(turn)
    }

    /// Computes something as soon as a core is free. It is a task of its own, which goes on if nobody waits for it any
    /// more: the core is taken until the computation ends.
    pub(in crate::server) fn compute(
        &self,
        turn: Turn,
        work: impl FnOnce() + Send + 'static,
    ) -> rt::Task<()> {
        let cores = Arc::clone(&self.cores);
        rt::spawn(async move {
            let _turn = turn;
            let _core = cores.acquire_arc().await;
            // Without a thread nothing is computed, which whoever waits for it finds.
            if let Ok(work) = rt::spawn_work("request", work) {
                work.done().await;
            }
        })
    }
}

/// See [`Logins::turn`].
pub(in crate::server) struct Turn(Arc<AtomicUsize>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_computations_wait_as_may() {
        let logins = Logins::new(None, 1);
        let mut turns: Vec<Turn> = std::iter::from_fn(|| logins.turn()).collect();
        assert_eq!(turns.len(), logins.cores_max + COMPUTATIONS_WAITING_MAX);
        assert!(logins.turn().is_none());
        turns.pop();
        assert!(logins.turn().is_some());
        drop(turns);
        assert_eq!(logins.begun.load(Ordering::Relaxed), 0);
    }
}
