//! The planted defects: which kind of run finds each, and within how many seeds; and those that no run has
//! found, which other tests find.
//!
//! `cargo run --profile sim -p distkv-sim --example simulate -- --defects` looks for the first seed of each;
//! the tests in `seeds.rs` only see that it is within the bound.

use crate::model::defects::Defect;
use crate::profile::{Family, Focus};
use crate::whole::HELD_UP_FROM;

/// Where a planted defect is sought.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// The defect.
    pub defect: Defect,
    /// The size of the networks.
    pub family: Family,
    /// What happens in them more often than otherwise.
    pub focus: Focus,
    /// One of the first so many seeds fails.
    pub seeds: u64,
    /// The tests leave out the seeds before this one: to run them takes minutes.
    pub from: u64,
}

/// All that are sought, those of the engine first.
pub const SOUGHT: &[Sought] = &[
    engine(Defect::KnowledgeBeforeData, Focus::Any, 2_000),
    engine(Defect::TiesByArrival, Focus::Any, 2_000),
    engine(Defect::TickReused, Focus::Any, 2_000),
    engine(Defect::KnowledgeAfterSnapshot, Focus::Any, 2_000),
    engine(Defect::NoDrop, Focus::Any, 2_000),
    engine(Defect::DropUnseen, Focus::Any, 2_000),
    engine(Defect::NoReissue, Focus::Any, 2_000),
    engine(Defect::ListOffByOne, Focus::Any, 2_000),
    engine(Defect::ResyncStops, Focus::Any, 2_000),
    engine(Defect::LagNotMarked, Focus::Any, 2_000),
    engine(Defect::PushNotRefused, Focus::Any, 200_000),
    engine(Defect::PurgeUnseen, Focus::Any, 200_000),
    engine(Defect::TockNotRaised, Focus::Any, 200_000),
    engine(Defect::MarkBeforeEnd, Focus::Any, 200_000),
    engine(Defect::OneLineage, Focus::Forks, 200_000),
    Sought { from: 21_840, ..engine(Defect::CoordinatorOlder, Focus::Coordinators, 200_000) },
    engine(Defect::IncarnationKept, Focus::Crashes, 5_000),
    engine(Defect::ContentsNotCompared, Focus::Rollbacks, 2_000),
    engine(Defect::KnownClipped, Focus::Any, 2_000),
    engine(Defect::SumsWithoutTicks, Focus::Any, 2_000),
    engine(Defect::UndoneInSilence, Focus::Any, 2_000),
    node(Defect::BatchBeforeSync, 100),
    node(Defect::SnapshotKnowsMore, 1_500),
    node(Defect::PruneBeforeSnapshot, 300),
    node(Defect::LifeReused, 100),
    node(Defect::LogQueueDrops, 1_500),
    node(Defect::WatchNotLapsed, 100),
    node(Defect::ResumeSkipsGone, 200),
    node(Defect::ResumeSkipsLost, 200),
    node(Defect::OverlayLosesWay, 400),
    node(Defect::AnewWithoutData, 200),
    node(Defect::DeafToClients, 100),
    Sought { from: HELD_UP_FROM, ..node(Defect::GivenUpIsMade, 300) },
];

/// A defect of the engine, sought in networks of 3 to 5 engines.
const fn engine(defect: Defect, focus: Focus, seeds: u64) -> Sought {
    Sought { defect, family: Family::Small, focus, seeds, from: 0 }
}

/// A defect outside of the engine, sought in whole nodes.
const fn node(defect: Defect, seeds: u64) -> Sought {
    Sought { defect, family: Family::Nodes, focus: Focus::Any, seeds, from: 0 }
}

/// What other tests find, and no seed that was run: 20,000 of any focus for all of them, and 8,000 that
/// seek coordinators for those of rules 6, 7 and 9. The first needs a tombstone at or below the mark that
/// is not in V, so one that its maker has hidden from every member and from every node that was here
/// lately; the others need a second fault at the very moment of the first one, or are caught by another
/// rule's condition in whole networks.
pub const FOUND_BY_OTHER_TESTS: &[(Defect, &str)] = &[
    (Defect::TombstoneIsEmpty, "replica::tests::verdicts"),
    (Defect::ReissueWithoutOrigin, "replica::tests, engine::tests::interaction"),
    (Defect::ReissueOutlivesDeletion, "replica::tests, engine::tests::interaction"),
    (Defect::AgreeBeforePersist, "engine::tests::delete_group, engine::tests::interaction"),
    (
        Defect::FromNotAsked,
        "engine::tests::delete_group, replica::tests, engine::tests::interaction",
    ),
    (Defect::ListVersionUnchecked, "engine::tests::delete_group"),
    (Defect::CoordinatorUnchecked, "engine::tests::delete_group"),
    (Defect::DecisionForgotten, "engine::tests::delete_group"),
    (Defect::StoreKept, "engine::tests::delete_group"),
];
