//! A node's data directory while the node runs: what it starts with ([`open`]), who writes the event
//! log and has snapshots made ([`logger`], [`saver`]), and what operators are told of it ([`state`]).
//!
//! The engine's changes come through the hub's queue ([`hub::log_queue`]); the files are
//! [`storage`]'s. There is no thread and no clock in here: whoever owns a [`Logger`] calls
//! [`Logger::step`] again and again, and [`System`] says what time it is. A node does that on a thread
//! of its own; the simulator does it when its virtual clock says so.

use distkv_core::engine;
#[cfg(test)]
use distkv_core::replica;
use distkv_hub as hub;
use distkv_model as model;
use distkv_storage as storage;

mod age_clock;
mod logger;
mod open;
mod room;
mod saver;
pub mod state;
#[cfg(test)]
mod tests;

pub use age_clock::{AgeClock, BELIEVED_AFTER_MS, ClockNews, Known};
pub use logger::Logger;
pub use open::{Opened, Prepared, TableFull};
pub use room::LittleRoom;
pub use saver::SaveJob;

use crate::model::defects::Defects;
use crate::model::ids::Millis;
use crate::storage::Keep;

/// When changes are made safe from a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// When the system likes.
    Never,
    /// Within a second.
    #[default]
    EverySecond,
    /// Before anybody hears of them.
    EveryBatch,
}

impl SyncPolicy {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Never, Self::EverySecond, Self::EveryBatch];

    /// The word that options, files and replies have for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::EverySecond => "every-second",
            Self::EveryBatch => "every-batch",
        }
    }

    /// The policy of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.word() == word)
    }
}

/// How a directory is read and its log written.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// When changes are made safe.
    pub sync: SyncPolicy,
    /// The log goes on in another file after so many bytes.
    pub rotate_bytes: u64,
    /// The same after so many milliseconds.
    pub rotate_after_ms: Millis,
    /// A snapshot is made after so many bytes of log, and at least as many as the last one has.
    pub snapshot_after: u64,
    /// So many snapshots are kept, and what leads from the one before them to these; at least 1.
    pub keep_snapshots: usize,
    /// Older snapshots and logs are kept for so many milliseconds,
    pub keep_for_ms: Millis,
    /// while all files together take no more than so many bytes.
    pub keep_bytes: u64,
    /// Damaged files are cut off at the first corruption, and the start goes on with what is left.
    pub discard_damaged: bool,
    /// While more bytes than this wait for the log, whoever makes changes waits; with four times as much
    /// logging stops.
    pub queue_bytes: usize,
    /// None, but in tests and simulations.
    pub defects: Defects,
}

impl LogSettings {
    /// What is to be kept of the past, as of this time of the [`AgeClock`].
    fn keep(&self, time_ms: u64) -> Keep {
        Keep {
            snapshots: self.keep_snapshots,
            since_ms: time_ms.saturating_sub(self.keep_for_ms),
            bytes: self.keep_bytes,
        }
    }
}

/// What is needed of the system around the log.
pub trait System: Send + Sync {
    /// Milliseconds of a clock that never goes back.
    fn now(&self) -> Millis;

    /// The same clock in microseconds, for measuring.
    fn now_us(&self) -> u64 {
        self.now().saturating_mul(1_000)
    }

    /// As [`Self::now`], but it also counts the time for which the machine was suspended, where the system tells it.
    fn awake_or_not(&self) -> Millis {
        self.now()
    }

    /// Milliseconds since 1970, as the system's clock has it.
    fn wall_clock_ms(&self) -> u64;

    /// A number that nobody can guess, and that is another one at each call.
    fn random(&self) -> u64;

    /// Has a snapshot made while the log goes on ([`SaveJob::spawn_by`]).
    fn save(&self, job: SaveJob);
}
