//! The one table of all metrics: what `/metrics` tells and what `docs/metrics.md` says.

/// How a metric behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only rises, from 0 at the node's start; `_total` is added to its name.
    Counter,
    /// A value of the moment.
    Gauge,
    /// Durations by size, with these upper bounds in microseconds.
    Histogram(&'static [u64]),
}

/// A label of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Label {
    /// One series for each of these values, from the first scrape on.
    Fixed(&'static str, &'static [&'static str]),
    /// Whatever values there are.
    Free(&'static str),
}

impl Label {
    /// The label's name.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fixed(name, _) | Self::Free(name) => name,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Which it is.
    pub name: Name,
    /// Its name as scrapers know it, without a counter's `_total`.
    pub text: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [Label],
    /// What it tells.
    pub help: &'static str,
}

/// Upper bounds for writes and syncs of the log: 0.1 ms to 30 s.
const SYNC_US: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
];
/// Upper bounds for how late a timer is: 1 ms to 5 s.
const DELAY_US: &[u64] = &[
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000,
];

/// Upper bounds for how long clients wait for an answer: 50 µs to 10 s.
const ANSWER_US: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];
/// What clients ask for.
const KINDS: &[&str] = &[
    "get", "set", "delete", "batch", "list", "watch", "message", "state", "shards", "file",
    "admin", "other",
];
/// What clients are refused with, in the order of the protocol's codes.
const CODES: &[&str] = &[
    "bad_request",
    "bad_message",
    "unknown_action",
    "not_implemented",
    "not_found",
    "already_exists",
    "is_new",
    "chain_mismatch",
    "data_mismatch",
    "type_mismatch",
    "wid_reused",
    "given_up",
    "too_late",
    "is_root",
    "in_use",
    "not_ready",
    "read_only",
    "memory_full",
    "no_event",
    "too_large",
    "too_many",
    "too_slow",
    "unknown_fate",
    "storage_failed",
    "denied",
    "auth_required",
    "auth_failed",
    "internal",
];

use Label::{Fixed, Free};

/// Makes [`Name`] and [`METRICS`] of the same rows.
macro_rules! metrics {
    ($($name:ident: $kind:expr, $text:literal, [$($label:expr),*], $help:literal;)*) => {
        /// A metric's place in the table.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[allow(missing_docs, reason = "the table has the help of each")]
        pub enum Name { $($name,)* }

        /// All metrics, in the order in which they are told.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: Name::$name,
            text: $text,
            kind: $kind,
            labels: &[$($label),*],
            help: $help,
        },)*];
    };
}

metrics! {
    BuildInfo: Kind::Gauge, "distkv_build_info", [Free("version")], "Always 1; the label tells the software's version.";
    NodeInfo: Kind::Gauge, "distkv_node_info", [Free("node"), Free("network"), Free("sync")], "Always 1; the labels tell the node's name, its network's, and the sync policy of its log (`memory` without a data directory).";
    Ready: Kind::Gauge, "distkv_ready", [], "1 while the node serves clients, else 0.";
    Writable: Kind::Gauge, "distkv_writable", [], "1 while clients can change data: the node is ready, not read-only, its disk works where changes wait for it, memory is left, and no counter is at its end; else 0.";
    Warnings: Kind::Gauge, "distkv_warnings", [Fixed("kind", &["disk", "snapshot", "purge", "memory", "client_log", "split", "scheduled_snapshot", "certificate", "counter", "clients", "link", "datagrams", "logins", "access", "contents", "audit", "grace", "unenforced", "disk_room"])], "1 while `status` warns of it, else 0; each warning of `status` has one of these kinds.";
    Entries: Kind::Gauge, "distkv_entries", [Fixed("kind", &["live", "deleted"])], "Entries with a value, and tombstones of deleted ones.";
    EntriesBytes: Kind::Gauge, "distkv_entries_bytes", [], "Memory that entries take, bytes.";
    MemoryMaxBytes: Kind::Gauge, "distkv_memory_max_bytes", [], "The limit of --max-memory, bytes; 0 for none.";
    Tock: Kind::Gauge, "distkv_tock", [], "The network's counter of changes, as far as this node knows it.";
    Writes: Kind::Counter, "distkv_writes", [], "Changes that this node made for clients.";
    Applied: Kind::Counter, "distkv_applied", [], "Changes of other nodes that changed an entry here.";
    Conflicts: Kind::Counter, "distkv_conflicts", [], "Conflicts that this node found: a change was lost.";
    ClientConnections: Kind::Gauge, "distkv_client_connections", [], "Open connections of clients.";
    ClientConnectionsOpened: Kind::Counter, "distkv_client_connections_opened", [Fixed("result", &["accepted", "refused"])], "Connections of clients that were accepted, and those refused because there were too many.";
    ClientConnectionsRelieved: Kind::Counter, "distkv_client_connections_relieved", [], "Connections of slow readers that were closed because clients' memory was used up.";
    ClientRequests: Kind::Counter, "distkv_client_requests", [Fixed("kind", KINDS)], "Requests of clients that were taken, by what they ask for; of a batch of many reads and writes, one.";
    ClientErrors: Kind::Counter, "distkv_client_errors", [Fixed("code", CODES)], "Requests, parts of batches and connections that were answered with an error, by the error's code.";
    ClientRequestSeconds: Kind::Histogram(ANSWER_US), "distkv_client_request_seconds", [Fixed("kind", &["read", "write", "copies", "list", "other"])], "How long it took from reading requests that came together to having written their answers, seconds; one in 16 times, by the first request. `copies`: writes that wait until other nodes have them. Of lists and watches, up to the first part of the answer.";
    ClientBytes: Kind::Counter, "distkv_client_bytes", [Fixed("direction", &["received", "sent"])], "Bytes received from clients and sent to them, as they pass the network.";
    ClientStalled: Kind::Counter, "distkv_client_stalled", [], "Connections that were given up because the client read nothing.";
    ClientWaitingBytes: Kind::Gauge, "distkv_client_waiting_bytes", [], "Changes and messages that wait for watchers and monitors, bytes.";
    ClientMemoryBytes: Kind::Gauge, "distkv_client_memory_bytes", [Fixed("kind", &["used", "pinned", "max"])], "Memory that clients cost, what of it only their snapshots hold, and the limit of --max-client-memory, bytes.";
    Watches: Kind::Gauge, "distkv_watches", [], "Open watches.";
    WatchRestarts: Kind::Counter, "distkv_watch_restarts", [], "Times that a watch began again from the present state, because its client did not keep up.";
    MessagesDropped: Kind::Counter, "distkv_messages_dropped", [], "Messages that monitors did not get, because their clients did not keep up.";
    HeavyJobs: Kind::Gauge, "distkv_heavy_jobs", [Fixed("state", &["running", "waiting"])], "Requests that walk the whole tree or wait for the disk: those that run, and those that wait for their turn.";
    ShardBusiestRatio: Kind::Gauge, "distkv_shard_busiest_ratio", [], "The share of the busiest virtual shard in what clients read and wrote during the last minute; 0 if that was nothing.";
    Members: Kind::Gauge, "distkv_members", [Fixed("state", &["up", "suspect", "down", "left", "joining", "away"])], "The network's members by state, as this node sees them; it counts itself as up.";
    Links: Kind::Gauge, "distkv_links", [], "Links to other nodes that stand.";
    LinkEnds: Kind::Counter, "distkv_link_ends", [Fixed("reason", &["gone", "broken", "left", "replaced", "malformed", "table_full", "clock_too_far", "silent", "stuck", "renewed", "moved", "unneeded", "key_removed", "too_old"])], "Links that ended, by reason.";
    LinkBehindChanges: Kind::Gauge, "distkv_link_behind_changes", [Free("peer")], "Changes that this node knows and was not yet told that the peer has.";
    LinkBehindSeconds: Kind::Gauge, "distkv_link_behind_seconds", [Free("peer")], "Age of the oldest change of this node that the peer has not confirmed, seconds, to within one; 0 if it has confirmed all.";
    LinkQueueBytes: Kind::Gauge, "distkv_link_queue_bytes", [Free("peer")], "What waits to be sent to the peer, bytes.";
    LinkBytes: Kind::Counter, "distkv_link_bytes", [Fixed("direction", &["received", "sent"])], "Bytes received from other nodes and sent to them over links, as they pass the network.";
    LinkOverflows: Kind::Counter, "distkv_link_overflows", [], "Times that a link's queue was emptied because the peer did not keep up; it fetches what it missed.";
    LinkSentFrames: Kind::Counter, "distkv_link_sent_frames", [], "Messages that were queued for other nodes, without answers to catch-ups.";
    LinkSentBytes: Kind::Counter, "distkv_link_sent_bytes", [], "Their bytes.";
    SplitMembers: Kind::Gauge, "distkv_split_members", [], "Members that were here, in this life of the node or before it, and do not answer, without having left.";
    SplitSeconds: Kind::Gauge, "distkv_split_seconds", [], "For how long the first of them has been silent, seconds, at most since the node's start; 0 if there is none.";
    SplitChanges: Kind::Gauge, "distkv_split_changes", [], "Changes that came to be known here since something last came from them.";
    Splits: Kind::Counter, "distkv_splits", [], "Times that members have gone silent, or were found to be at the node's start.";
    SplitsHealed: Kind::Counter, "distkv_splits_healed", [], "Times that two lists of housekeepers met: after a split, and also after a link was made anew.";
    ResyncSeconds: Kind::Gauge, "distkv_resync_seconds", [], "For how long the present healing of a split has been going on, seconds; 0 if there is none.";
    DeleteMembers: Kind::Gauge, "distkv_delete_members", [Fixed("state", &["here", "away"])], "Members of the Delete group.";
    PurgeBlockedSeconds: Kind::Gauge, "distkv_purge_blocked_seconds", [], "For how long a member that is missing, or does not agree, has kept deleted entries from being purged, seconds; 0 if none does. Of one that is here, members know that have proposed a purge to it.";
    Purged: Kind::Counter, "distkv_purged", [], "Tombstones that were purged.";
    AcrossPurge: Kind::Counter, "distkv_across_purge", [Fixed("what", &["dropped", "reissued"])], "Entries that met a purge that had not seen them: dropped because they were purged elsewhere, or made anew because they were changed here.";
    MissingChanges: Kind::Gauge, "distkv_missing_changes", [], "Changes that this node has heard of and does not have.";
    MissingSeconds: Kind::Gauge, "distkv_missing_seconds", [], "For how long without pause such changes have been missing, seconds; 0 if none are.";
    CatchUps: Kind::Counter, "distkv_catch_ups", [Fixed("result", &["done", "failed"])], "Catch-ups that this node asked for.";
    CatchUpsServed: Kind::Counter, "distkv_catch_ups_served", [], "Catch-ups that this node answered.";
    CatchUpEntries: Kind::Counter, "distkv_catch_up_entries", [], "Entries that came in answers to catch-ups.";
    DigestDifferences: Kind::Counter, "distkv_digest_differences", [], "Times that this node asked a peer for its whole list of known changes, because its digest differed.";
    Relayed: Kind::Counter, "distkv_relayed", [Fixed("what", &["passed_on", "second_copy", "prune", "graft"])], "Changes that were passed on, that came a second time, and links that were taken out of the spreading and into it again; in networks of more than 48 nodes.";
    ContentsDiffered: Kind::Counter, "distkv_contents_differed", [], "Times that a peer held something else although it had accounted for the same changes.";
    ContentsMended: Kind::Counter, "distkv_contents_mended", [], "Entries that were repaired here because of that.";
    MembershipDatagrams: Kind::Counter, "distkv_membership_datagrams", [Fixed("what", &["received", "sent", "dropped"])], "Datagrams of membership; dropped: not of this network, or not understood.";
    LogSyncSeconds: Kind::Histogram(SYNC_US), "distkv_log_sync_seconds", [], "How long writing and syncing the log took, seconds.";
    LogUnsyncedSeconds: Kind::Gauge, "distkv_log_unsynced_seconds", [], "Age of the oldest change that a power cut would lose, seconds, to within one; 0 if there is none.";
    LogWaitingBytes: Kind::Gauge, "distkv_log_waiting_bytes", [], "Changes that wait to be written to the log, bytes.";
    LogFailures: Kind::Counter, "distkv_log_failures", [], "Times that the log could not be written.";
    SinceSnapshotBytes: Kind::Gauge, "distkv_since_snapshot_bytes", [], "What was logged since the last snapshot, bytes: a start has to read it.";
    DataBytes: Kind::Gauge, "distkv_data_bytes", [Fixed("kind", &["log", "snapshot"])], "Length of all logs, and of all snapshots, bytes.";
    DiskFreeBytes: Kind::Gauge, "distkv_disk_free_bytes", [], "What this node may still write to the file system of its data directory, bytes, looked at every 2 s; 0 where the system does not tell, and without a data directory.";
    DiskSizeBytes: Kind::Gauge, "distkv_disk_size_bytes", [], "Size of that file system, bytes; 0 where the system does not tell, and without a data directory.";
    SnapshotTimestampSeconds: Kind::Gauge, "distkv_snapshot_timestamp_seconds", [], "When the newest snapshot since the start was made, seconds since 1970; 0 for none.";
    ScheduledSnapshotTimestampSeconds: Kind::Gauge, "distkv_scheduled_snapshot_timestamp_seconds", [], "When the newest snapshot of --snapshot-schedule was made, seconds since 1970; 0 for none.";
    TickDelaySeconds: Kind::Histogram(DELAY_US), "distkv_tick_delay_seconds", [], "How late the node's timer of 50 ms was, seconds: long on a machine that has too much to do.";
    HttpConnections: Kind::Gauge, "distkv_http_connections", [], "Open HTTP connections.";
    HttpRequests: Kind::Counter, "distkv_http_requests", [Fixed("result", &["ok", "refused", "failed"])], "HTTP requests by the class of the answer: 2xx and 3xx, 4xx, 5xx.";
    ProcessCpuSeconds: Kind::Counter, "process_cpu_seconds", [], "Processor time of the process, seconds.";
    ProcessResidentMemoryBytes: Kind::Gauge, "process_resident_memory_bytes", [], "Resident memory of the process, bytes; 0 where the system does not tell.";
    ProcessOpenFds: Kind::Gauge, "process_open_fds", [], "Open file descriptors of the process; 0 where the system does not tell.";
    ProcessMaxFds: Kind::Gauge, "process_max_fds", [], "How many file descriptors the process may have open.";
    ProcessStartTimeSeconds: Kind::Gauge, "process_start_time_seconds", [], "When the node started, seconds since 1970.";
}

impl Name {
    /// The metric's row.
    #[must_use]
    pub fn metric(self) -> Option<&'static Metric> {
        METRICS.get(self as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_different_end_as_they_should_and_have_their_own_rows() {
        let mut names = BTreeSet::new();
        for (place, metric) in METRICS.iter().enumerate() {
            assert!(names.insert(metric.text), "{} is there twice", metric.text);
            assert_eq!(metric.name as usize, place);
            assert_eq!(metric.name.metric(), Some(metric));
            assert!(!metric.text.ends_with("_total"), "{}: is added", metric.text);
            assert!(metric.text.starts_with("distkv_") || metric.text.starts_with("process_"));
            assert!(metric.help.ends_with('.') && !metric.help.contains('\n'), "{}", metric.help);
            if let Kind::Histogram(bounds) = metric.kind {
                assert!(bounds.is_sorted() && metric.text.ends_with("_seconds"));
            }
        }
    }

    #[test]
    fn only_peers_are_free_besides_what_a_node_says_of_itself() {
        let free = METRICS.iter().flat_map(|metric| {
            metric.labels.iter().filter(|label| matches!(label, Label::Free(_))).map(|l| l.name())
        });
        let free: BTreeSet<&str> = free.collect();
        assert_eq!(free, BTreeSet::from(["network", "node", "peer", "sync", "version"]));
    }
}
