//! What happened in runs, by count.

use crate::model::ids::Millis;

macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $how:ident;)*) => {
        /// What happened in runs, by count.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Stats {
            /// Adds what happened in other runs.
            pub fn add(&mut self, other: &Self) {
                $(stats!(@$how self.$field, other.$field);)*
            }

            /// The names of all counts, and the counts.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }
        }
    };
    (@sum $into:expr, $from:expr) => { $into += $from };
    (@max $into:expr, $from:expr) => { $into = $into.max($from) };
}

stats! {
    /// Runs.
    seeds: u64, sum;
    /// Time on the virtual clocks.
    virtual_ms: Millis, sum;
    /// The longest healing.
    healing_ms_max: Millis, max;
    /// Changes that nodes made.
    events: u64, sum;
    /// Re-issues among them.
    reissues: u64, sum;
    /// Frames that arrived.
    delivered: u64, sum;
    /// The most that arrived while the virtual clock stood still.
    moment_messages_max: u64, max;
    /// The most that arrived over a link, one way, per second at the end, when nothing changed.
    calm_messages_max: u64, max;
    /// Frames that came for nobody.
    dropped: u64, sum;
    /// Queues that overflowed.
    overflows: u64, sum;
    /// Restarts from a log whose end was lost.
    logs_cut: u64, sum;
    /// Crashes between the moment at which a state was safe and the one at which its node heard so.
    stopped_when_safe: u64, sum;
    /// Catch-ups that were finished.
    catch_ups: u64, sum;
    /// Catch-ups that came to nothing.
    catch_ups_failed: u64, sum;
    /// Conflicts that were reported.
    conflicts: u64, sum;
    /// Those where the winner was made on top of the loser, which its cut chain does not show.
    needless_reports: u64, sum;
    /// Tombstones that were purged, by node.
    purged: u64, sum;
    /// Entries that were dropped because they had been purged elsewhere.
    dropped_entries: u64, sum;
    /// Member lists of the Delete group that nodes took up.
    group_changes: u64, sum;
    /// Members that operators took off the list.
    forgotten: u64, sum;
    /// Nodes that came back with a state of their own.
    restored: u64, sum;
    /// Files that were fed in.
    files_loaded: u64, sum;
    /// Runs that ended with tombstones, because a member of the Delete group is gone.
    blocked: u64, sum;
    /// Runs in which a copied disk was used for an event before its node met itself.
    undecided: u64, sum;
    /// Times that a peer was found to hold other contents although it had accounted for the same.
    contents_differed: u64, sum;
    /// Entries that were repaired because of that.
    contents_mended: u64, sum;
    /// Nodes that continued under a new incarnation.
    renewals: u64, sum;
    /// Of whole nodes: requests that wrote.
    client_writes: u64, sum;
    /// Requests that were sent again, and those of them that the node knew.
    retried: u64, sum;
    /// See above.
    repeated: u64, sum;
    /// Tries that arrived late, and those of them that their clients had given up.
    late: u64, sum;
    /// See above.
    given_up: u64, sum;
    /// Requests that were refused before anything was done.
    refused: u64, sum;
    /// Changes that clients were told of.
    acknowledged: u64, sum;
    /// Versions that watches were told.
    watch_items: u64, sum;
    /// Watches that overflowed and started over, and those that went on at another node.
    watch_restarts: u64, sum;
    /// See above.
    watches_moved: u64, sum;
    /// Times that logging failed.
    disk_failures: u64, sum;
    /// Snapshots that were written.
    snapshots: u64, sum;
    /// Disks that were read at the end, as a start would after a power cut, and held the same as their
    /// node.
    disks_compared: u64, sum;
}
