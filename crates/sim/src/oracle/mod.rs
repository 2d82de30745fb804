//! The judge: records what really happened ([`history`]), and what each node should hold
//! ([`shadow`]), and reports what is wrong, after every step ([`step`]) and in the end ([`end`]).
//! It sees what a shell sees: what is committed, which records arrive, which conflicts are
//! It sees what a shell sees: commits, arriving records, reported conflicts; and it reads the
//! engines' trees, tick sets and marks. It knows the rules only as properties that must hold, never
//! as an implementation.

mod end;
pub(super) mod history;
pub(super) mod shadow;
pub(super) mod step;

use smallvec::SmallVec;
use std::any::Any;

use super::bits::Bits;
use crate::model::chain::ChainBound;
use crate::model::seen::Lineage;
pub(super) use end::Survivor;
use history::{EventNo, History};

/// What went wrong, first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The check that found it; the same for the same kind of failure.
    pub check: &'static str,
    /// Where and with what.
    pub detail: String,
}

impl Failure {
    /// A node panicked: most likely it found an invariant broken.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let detail = panic.downcast_ref::<String>().cloned();
        let detail = detail.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into()));
        Self { check: "a node panicked", detail: detail.unwrap_or_default() }
    }
}

/// The judge of one run.
pub(super) struct Oracle {
    pub(super) history: History,
    /// Events are used twice on purpose, so it is unknown what one stands for: only the end is
    /// judged.
    pub(super) only_end: bool,
    chain_bound: ChainBound,
    /// Losers of conflicts that were reported.
    reported: Bits,
    /// Versions that were reported to undo a deletion which had been purged.
    undone: Bits,
    purges: Vec<Purge>,
    /// What stands in the message that is being handled.
    arriving: SmallVec<[EventNo; 4]>,
    /// Paths that have to be looked at.
    dirty: Vec<u32>,
    failure: Option<Failure>,
    /// How often versions lost that the winner had replaced, by history, but not by its chain.
    pub(super) needless_reports: u64,
    pub(super) reissues: u64,
}

/// Tombstones that were agreed away.
struct Purge {
    lineage: Lineage,
    from: u64,
    to: u64,
    /// What V is, in short.
    seen: u64,
    tombstones: Vec<EventNo>,
    /// The events of V.
    covered: Bits,
}

impl Oracle {
    pub(super) fn new(chain_bound: ChainBound, only_end: bool) -> Self {
        Self {
            history: History::new(),
            only_end,
            chain_bound,
            reported: Bits::default(),
            undone: Bits::default(),
            purges: Vec::new(),
            arriving: SmallVec::new(),
            dirty: Vec::new(),
            failure: None,
            needless_reports: 0,
            reissues: 0,
        }
    }

    /// The first thing that was wrong.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Notes that something is wrong; only the first counts, because the rest may follow from it.
    pub(super) fn fail(&mut self, check: &'static str, detail: String) {
        self.failure.get_or_insert(Failure { check, detail });
    }
}
