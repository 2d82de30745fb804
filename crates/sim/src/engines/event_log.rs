//! A simulated node's event log: what the hub writes into a real one, and the state that a restart
//! builds from it. A log may end early: what was not synced when the machine stopped is lost, but
//! nothing from before a sync (replication rule 9).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::{Engine, Image, Outbox};
use crate::hub::batch_of;
use crate::oracle::shadow::Shadow;
use crate::storage::{Batch, LogBatch, Replay};

/// With more batches than this, the older half is put together.
const BATCHES_MAX: usize = 256;
/// The judge's knowledge is kept for one in this many places at which the log may end.
const PLACES_EVERY: u64 = 4;
/// Most of these places.
const PLACES_MAX: usize = 8;

/// The log of one process.
#[derive(Default)]
pub(crate) struct EventLog {
    /// The state before the first of `batches`; none before the process has begun, and for a node
    /// without a data directory.
    base: Option<Image>,
    batches: VecDeque<Batch>,
    /// How many batches there were before them.
    before: u64,
    /// Where the log may end, and what the judge knew there.
    places: VecDeque<(u64, Shadow)>,
    /// Requests to make a state safe, and how long the log was then.
    asked: Vec<(u64, u64)>,
    /// This much of it is synced.
    safe: u64,
    hash_seed: u64,
}

impl EventLog {
    /// Of a process that begins with this state.
    pub(crate) fn begin(base: Image, hash_seed: u64) -> Self {
        Self { base: Some(base), hash_seed, ..Self::default() }
    }

    /// Takes what an engine did; before anything is done with it.
    pub(crate) fn push(&mut self, engine: &Engine, out: &Outbox) {
        if self.base.is_none() {
            return;
        }
        if let Some((batch, _)) = batch_of(engine, out) {
            self.batches.push_back(batch);
            if self.batches.len() > BATCHES_MAX {
                self.put_together(BATCHES_MAX / 2);
            }
        }
    }

    /// The judge has looked at all that was pushed.
    pub(super) fn note_place(&mut self, shadow: &Shadow) {
        let length = self.length();
        let is_new = self.places.back().is_none_or(|(at, _)| *at < length);
        if self.base.is_none()
            || !length.is_multiple_of(PLACES_EVERY)
            || !is_new
            || length <= self.before
        {
            return;
        }
        self.places.push_back((length, shadow.clone()));
        if self.places.len() > PLACES_MAX {
            self.places.pop_front();
        }
    }

    /// The present state must be synced.
    pub(super) fn note_asked(&mut self, token: u64) {
        self.asked.push((token, self.length()));
    }

    /// It is.
    pub(super) fn note_safe(&mut self, token: u64) {
        if let Some(at) = self.asked.iter().position(|(t, _)| *t == token) {
            let (_, length) = self.asked.swap_remove(at);
            self.safe = self.safe.max(length);
        }
    }

    /// How many batches there were in all.
    fn length(&self) -> u64 {
        self.before + self.batches.len() as u64
    }

    /// The state that all of it gives.
    pub(crate) fn whole(&self) -> Option<Image> {
        self.image(self.batches.len())
    }

    /// What is left of it if it ends at one of the possible places, which `choice` picks; and the
    /// judge's knowledge there.
    pub(crate) fn part(&self, choice: u64) -> Option<(Image, Shadow)> {
        let may_end = |(at, _): &&(u64, Shadow)| *at >= self.safe;
        let places: Vec<&(u64, Shadow)> = self.places.iter().filter(may_end).collect();
        let (at, shadow) = places.get((choice % places.len().max(1) as u64) as usize)?;
        Some((self.image((at - self.before) as usize)?, shadow.clone()))
    }

    /// The state after the given number of kept batches.
    fn image(&self, count: usize) -> Option<Image> {
        let mut replay = Replay::from_image(self.base.clone()?, self.hash_seed);
        let mut table = Arc::new(replay.lend_table());
        for batch in self.batches.iter().take(count) {
            table = Arc::clone(&batch.table);
            let (ops, knowledge) = (batch.ops.clone(), batch.knowledge.clone());
            replay.apply(LogBatch { ops, knowledge, ..LogBatch::default() }, &table);
        }
        replay.take_table(Arc::unwrap_or_clone(table));
        replay.into_image()
    }

    fn put_together(&mut self, count: usize) {
        let Some(image) = self.image(count) else { return };
        self.base = Some(image);
        self.batches.drain(..count);
        self.before += count as u64;
        let before = self.before;
        self.places.retain(|(at, _)| *at > before);
    }
}
