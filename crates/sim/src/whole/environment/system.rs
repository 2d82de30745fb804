//! The system that a simulated node runs on: a clock that the harness turns, a clock for people that
//! jumps, numbers from the seed, and snapshots that are made when the harness says so.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::durable::{SaveJob, System};
use crate::model::ids::Millis;
use crate::rng::Rng;

/// A snapshot that is to be made.
pub(in crate::whole) type Work = Box<dyn FnOnce() + Send>;

/// Milliseconds since 1970 when the virtual clock stands at 0.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// The system of one process.
pub(in crate::whole) struct SimSystem {
    now: AtomicU64,
    /// What the clock for people is ahead, modulo 2^64.
    skew: AtomicU64,
    rng: Mutex<Rng>,
    jobs: Mutex<Vec<Work>>,
}

impl SimSystem {
    pub(in crate::whole) fn new(now: Millis, skew: u64, seed: u64) -> Self {
        Self {
            now: AtomicU64::new(now),
            skew: AtomicU64::new(skew),
            rng: Mutex::new(Rng::new(seed, 0)),
            jobs: Mutex::default(),
        }
    }

    /// Turns both clocks.
    pub(in crate::whole) fn turn(&self, now: Millis) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// Sets the clock for people.
    pub(super) fn set_skew(&self, skew: u64) {
        self.skew.store(skew, Ordering::Relaxed);
    }

    /// The snapshots that are to be made.
    pub(super) fn take_jobs(&self) -> Vec<Work> {
        std::mem::take(&mut self.jobs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl System for SimSystem {
    fn now(&self) -> Millis {
        self.now.load(Ordering::Relaxed)
    }

    fn wall_clock_ms(&self) -> u64 {
        EPOCH_MS.wrapping_add(self.now()).wrapping_add(self.skew.load(Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    fn save(&self, job: SaveJob) {
        job.spawn_by(|work| {
            self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(work);
            Ok(())
        });
    }
}
