//! Defects that can be planted, so that the simulator shows that it would find them: each is a
//! rule left out or a step taken too early, one line at the place that the rule is in. Only
//! tests and the simulator can plant any (feature `planted-defects`); in a real node
//! [`Defects`] takes no room and [`Defects::has`] is false.

/// One defect that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Defect {
    /// What a digest says is taken as seen, before the data has come.
    KnowledgeBeforeData,
    /// Of two versions with the same tock the one that came last stays.
    TiesByArrival,
    /// A node that lost its state continues under the incarnation that it had.
    TickReused,
    /// A catch-up ends with what its answerer knows by then, instead of what it knew when it took
    /// its snapshot.
    KnowledgeAfterSnapshot,
    /// A link's queue that overflows is emptied, and the link is not marked as lagging.
    LagNotMarked,
    /// Replication rule 4a left out: entries that were purged elsewhere stay.
    NoDrop,
    /// Replication rule 4a taken too far: what the other side has never seen is dropped as well.
    DropUnseen,
    /// Replication rule 4b left out: changes made while cut off are not re-issued.
    NoReissue,
    /// The list of known ticks is clipped one tick too high.
    ListOffByOne,
    /// A resync does not go on when the housekeeper that drives it dies.
    ResyncStops,
    /// Replication rule 2: a change at or below the mark that is pushed is not refused.
    PushNotRefused,
    /// Replication rule 5: an announcement is applied although V was not all seen.
    PurgeUnseen,
    /// The own tock is not raised to the mark.
    TockNotRaised,
    /// Replication rule 3: the mark is taken over when the stream begins, not when all of it is in.
    MarkBeforeEnd,
    /// Replication rule 7: a forced change of the member list continues in the same lineage.
    OneLineage,
    /// Replication rule 7: a coordinator announces a decision that it has not synced.
    CoordinatorOlder,
    /// Replication rule 9: a node that comes back keeps the incarnation that its directory names, which may
    /// have been set back.
    IncarnationKept,
    /// Replication rule 10 left out: contents are not compared.
    ContentsNotCompared,
    /// Replication rule 4: across a purge only the first part of the known ticks is sent, as if it
    /// were complete.
    KnownClipped,
    /// Sums cover which incarnations there are, and not their ticks.
    SumsWithoutTicks,
    /// Replication rule 4: a path with a tombstone is reported as empty.
    TombstoneIsEmpty,
    /// Replication rules 2 and 4b: a purged deletion is undone without a report.
    UndoneInSilence,
    /// Replication rule 6: a re-issue does not name the event that it re-issues.
    ReissueWithoutOrigin,
    /// Replication rule 6: a re-issue of a re-issue that had been deleted keeps its value.
    ReissueOutlivesDeletion,
    /// Replication rule 7: a member agrees before it has synced what it agrees to.
    AgreeBeforePersist,
    /// Replication rule 7: a member agrees whatever mark the purge begins at.
    FromNotAsked,
    /// Replication rule 7: a proposal of another member list is agreed to, and decided.
    ListVersionUnchecked,
    /// Replication rule 7: the coordinator does not ask itself whether it agrees.
    CoordinatorUnchecked,
    /// Replication rules 7 and 9: a restart forgets what the coordinator had decided.
    DecisionForgotten,
    /// Replication rule 9: a copied directory stays the same member of the Delete group.
    StoreKept,
    /// A batch of the log is said to be safe when it is written and not synced.
    BatchBeforeSync,
    /// A snapshot's seen is that of a later moment than its entries.
    SnapshotKnowsMore,
    /// What a snapshot makes unnecessary is removed before the snapshot is made.
    PruneBeforeSnapshot,
    /// A start goes on as the life that its data directory names.
    LifeReused,
    /// A log's queue that is full drops what waits, and logging goes on as if nothing were missing.
    LogQueueDrops,
    /// A watch's queue that overflows is emptied, and the watch does not start over.
    WatchNotLapsed,
    /// A watch that starts over is not told what has left the tree meanwhile.
    ResumeSkipsGone,
    /// A watch that starts over is taken to have had what its queue dropped.
    ResumeSkipsLost,
    /// In a network that is not linked all with all, no links are wanted between two halves of it.
    OverlayLosesWay,
    /// A log that begins anew after a failure of the disk does so without a snapshot's data.
    AnewWithoutData,
    /// Replication rule 1: what a client has heard of does not count for its change.
    DeafToClients,
    /// Replication rule 1: a write that its client has given up is made when it comes.
    GivenUpIsMade,
}

impl Defect {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::KnowledgeBeforeData,
        Self::TiesByArrival,
        Self::TickReused,
        Self::KnowledgeAfterSnapshot,
        Self::LagNotMarked,
        Self::NoDrop,
        Self::DropUnseen,
        Self::NoReissue,
        Self::ListOffByOne,
        Self::ResyncStops,
        Self::PushNotRefused,
        Self::PurgeUnseen,
        Self::TockNotRaised,
        Self::MarkBeforeEnd,
        Self::OneLineage,
        Self::CoordinatorOlder,
        Self::IncarnationKept,
        Self::ContentsNotCompared,
        Self::KnownClipped,
        Self::SumsWithoutTicks,
        Self::TombstoneIsEmpty,
        Self::UndoneInSilence,
        Self::ReissueWithoutOrigin,
        Self::ReissueOutlivesDeletion,
        Self::AgreeBeforePersist,
        Self::FromNotAsked,
        Self::ListVersionUnchecked,
        Self::CoordinatorUnchecked,
        Self::DecisionForgotten,
        Self::StoreKept,
        Self::BatchBeforeSync,
        Self::SnapshotKnowsMore,
        Self::PruneBeforeSnapshot,
        Self::LifeReused,
        Self::LogQueueDrops,
        Self::WatchNotLapsed,
        Self::ResumeSkipsGone,
        Self::ResumeSkipsLost,
        Self::OverlayLosesWay,
        Self::AnewWithoutData,
        Self::DeafToClients,
        Self::GivenUpIsMade,
    ];

    /// What it is called on command lines and in documents: `TiesByArrival` is `ties_by_arrival`.
    #[must_use]
    pub fn name(self) -> String {
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.extend(c.to_lowercase());
        }
        name
    }
}

/// The planted defects: none, unless a test or the simulator asked for some.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Defects {
    #[cfg(any(test, feature = "planted-defects"))]
    bits: u64,
}

impl Defects {
    /// Plants one more.
    #[cfg(any(test, feature = "planted-defects"))]
    #[must_use]
    pub fn with(self, defect: Defect) -> Self {
        Self { bits: self.bits | 1 << defect as u64 }
    }

    /// Whether a defect is planted.
    #[must_use]
    #[cfg_attr(
        not(any(test, feature = "planted-defects")),
        allow(unused_variables, clippy::unused_self, reason = "nothing can be planted")
    )]
    pub fn has(self, defect: Defect) -> bool {
        #[cfg(any(test, feature = "planted-defects"))]
        return self.bits & 1 << defect as u64 != 0;
        #[cfg(not(any(test, feature = "planted-defects")))]
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_defect_is_planted_by_itself() {
        for planted in Defect::ALL {
            let defects = Defects::default().with(*planted);
            let found: Vec<_> = Defect::ALL.iter().filter(|d| defects.has(**d)).collect();
            assert_eq!(found, [planted]);
        }
    }
}
