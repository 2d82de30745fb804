//! The metrics of one moment, put together when somebody asks. The guard of the engine is held for what is cheap
//! to take; everything is computed behind it.

use std::collections::BTreeMap;

use distkv_metrics::{Name, Numbers};

use crate::engine::delete::GroupView;
use crate::engine::view::PeerView;
use crate::engine::{Engine, EngineCounters};
use crate::membership::MemberState;
use crate::model::ids::{Incarnation, Millis, NodeId, Tick};
use crate::model::seen::Seen;
use crate::node::Inner;
use crate::node::membership::identity::SOFTWARE;
use crate::rt;
use crate::server::counts::RequestKind;
use crate::server::{PurgeBlock, WarningKind};

/// What is taken of the engine, at one moment.
struct Moment {
    is_ready: bool,
    entries: usize,
    live: usize,
    bytes: usize,
    tock: u64,
    watches: usize,
    counters: EngineCounters,
    peers: Vec<PeerView>,
    seen: Seen,
    group: GroupView,
    resync_ms: Option<Millis>,
}

impl Moment {
    fn of(engine: &Engine, now: Millis) -> Self {
        let tree = engine.tree();
        Self {
            is_ready: engine.is_ready(),
            entries: tree.len(),
            live: tree.live_len(),
            bytes: tree.memory_bytes(),
            tock: engine.tock().get(),
            watches: engine.watch_count(),
            counters: engine.counters(),
            peers: engine.peer_views(),
            seen: engine.seen().clone(),
            group: engine.group_view(now),
            resync_ms: engine.resync_lasts_ms(now),
        }
    }
}

impl Inner {
    /// All metrics but those of the HTTP port itself.
    pub(super) fn numbers(&self, is_writable: bool) -> Numbers {
        let now = rt::now();
        let moment = self.hub.read(|engine| Moment::of(engine, now));
        let mut numbers = Numbers::default();
        let storage = self.durable.as_ref().map(|durable| durable.status(now));
        let sync = storage.as_ref().map_or("memory", |storage| storage.sync);
        let (me, network) = (self.me.name.as_str(), self.me.network.as_str());
        numbers.set(Name::BuildInfo, &[SOFTWARE], 1_u64);
        numbers.set(Name::NodeInfo, &[me, network, sync], 1_u64);
        numbers.set(Name::Ready, &[], moment.is_ready && !self.stop.is_requested());
        numbers.set(Name::Writable, &[], is_writable);
        self.add_warnings(&mut numbers, now);
        add_entries(&moment, &mut numbers);
        numbers.set(Name::MemoryMaxBytes, &[], self.memory_max.unwrap_or(0));
        self.add_clients(&moment, &mut numbers);
        self.add_members(&moment, &mut numbers, now);
        self.add_links(&moment, &mut numbers, now);
        self.add_disk(&mut numbers, now);
        numbers.set(Name::TickDelaySeconds, &[], self.links.observed.tick_delay());
        super::process::add(&mut numbers);
        let up_ms = now.saturating_sub(self.started);
        let started_ms = rt::wall_clock_ms().saturating_sub(up_ms);
        numbers.set(Name::ProcessStartTimeSeconds, &[], seconds(started_ms));
        numbers
    }

    fn add_warnings(&self, numbers: &mut Numbers, now: Millis) {
        let warnings = self.server.warnings(now);
        for kind in WarningKind::ALL {
            let is = warnings.iter().any(|warning| warning.kind == *kind);
            numbers.set(Name::Warnings, &[kind.word()], is);
        }
    }

    fn add_clients(&self, moment: &Moment, numbers: &mut Numbers) {
        let counts = self.server.counts();
        let memory = self.hub.client_memory().view();
        numbers.set(Name::ClientConnections, &[], counts.connections);
        numbers.set(Name::ClientConnectionsOpened, &["accepted"], counts.accepted);
        numbers.set(Name::ClientConnectionsOpened, &["refused"], counts.refused);
        numbers.set(Name::ClientConnectionsRelieved, &[], memory.closed);
        for (kind, count) in RequestKind::ALL.iter().zip(counts.all.requests()) {
            numbers.set(Name::ClientRequests, &[kind.word()], count);
        }
        for (code, count) in counts.all.errors() {
            numbers.set(Name::ClientErrors, &[code], count);
        }
        for (kind, times) in counts.all.times() {
            numbers.set(Name::ClientRequestSeconds, &[kind], times);
        }
        let (received, sent) = counts.all.bytes();
        numbers.set(Name::ClientBytes, &["received"], received);
        numbers.set(Name::ClientBytes, &["sent"], sent);
        numbers.set(Name::ClientStalled, &[], counts.all.stalled());
        let (running, waiting) = counts.all.heavy();
        numbers.set(Name::HeavyJobs, &["running"], running);
        numbers.set(Name::HeavyJobs, &["waiting"], waiting);
        numbers.set(Name::ShardBusiestRatio, &[], counts.shard_busiest_ratio);
        let (restarts, dropped) = self.hub.missed();
        numbers.set(Name::WatchRestarts, &[], restarts);
        numbers.set(Name::MessagesDropped, &[], dropped);
        numbers.set(Name::ClientWaitingBytes, &[], self.hub.waiting_bytes());
        numbers.set(Name::ClientMemoryBytes, &["used"], memory.used);
        numbers.set(Name::ClientMemoryBytes, &["pinned"], memory.pinned);
        numbers.set(Name::ClientMemoryBytes, &["max"], memory.max);
        numbers.set(Name::Watches, &[], moment.watches);
    }

    fn add_members(&self, moment: &Moment, numbers: &mut Numbers, now: Millis) {
        // Of several lives of one node, the one that is most here counts.
        let mut states: BTreeMap<String, (u8, &str)> = BTreeMap::new();
        let mut note = |name: &str, state| match states.get_mut(name) {
            Some(known) => *known = (*known).min(state),
            None => drop(states.insert(name.to_owned(), state)),
        };
        note(self.me.name.as_str(), (0, "up"));
        let roster = self.swim.roster();
        for member in &roster.members {
            let state = match member.state {
                MemberState::Up => (0, "up"),
                MemberState::Suspect => (1, "suspect"),
                MemberState::Down => (3, "down"),
                MemberState::Left => (3, "left"),
            };
            note(member.name.as_str(), state);
        }
        // A link says nothing of a life that membership has heard of.
        let is_heard_of = |id: &NodeId| {
            roster.members.iter().any(|m| m.name == id.name && m.incarnation == id.incarnation)
        };
        for peer in moment.peers.iter().filter(|peer| !is_heard_of(&peer.id)) {
            note(peer.id.name.as_str(), (2, "joining"));
        }
        let listed = moment.group.config.as_ref().map_or(&[][..], |config| config.members());
        for member in listed {
            note(member.name.as_str(), (4, "away"));
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, state) in states.values() {
            *counts.entry(state).or_default() += 1;
        }
        for (state, count) in counts {
            numbers.set(Name::Members, &[state], count);
        }
        let away = moment.group.away.len();
        numbers.set(Name::DeleteMembers, &["away"], away);
        numbers.set(Name::DeleteMembers, &["here"], listed.len().saturating_sub(away));
        let blocked_ms = PurgeBlock::of(&moment.group).map_or(0, |block| block.longest_ms());
        numbers.set(Name::PurgeBlockedSeconds, &[], seconds(blocked_ms));
        let observed = &self.links.observed;
        numbers.set(Name::Splits, &[], observed.splits());
        if let Some(silent) = observed.silent(now) {
            let together = &silent.together;
            let members: usize = together.iter().map(|members| members.names.len()).sum();
            let longest = together.iter().map(|members| members.since_ms).max().unwrap_or(0);
            let changes = together.iter().map(|members| members.changes).max().unwrap_or(0);
            numbers.set(Name::SplitMembers, &[], members);
            numbers.set(Name::SplitSeconds, &[], seconds(longest));
            numbers.set(Name::SplitChanges, &[], changes);
        }
        let datagrams = self.swim.counters();
        let of_network = datagrams.malformed
            + datagrams.other_network
            + datagrams.other_version
            + datagrams.misdirected
            + datagrams.conflicts
            + datagrams.table_full;
        let sealed: u64 = self.swim.dropped().counters().iter().map(|(_, count)| count).sum();
        numbers.set(Name::MembershipDatagrams, &["received"], datagrams.received);
        numbers.set(Name::MembershipDatagrams, &["sent"], self.swim.sent().0);
        numbers.set(Name::MembershipDatagrams, &["dropped"], of_network + sealed);
    }

    fn add_links(&self, moment: &Moment, numbers: &mut Numbers, now: Millis) {
        let links = self.links.infos();
        numbers.set(Name::Links, &[], links.len());
        for link in &links {
            let peer = link.peer.name.as_str();
            numbers.set(Name::LinkQueueBytes, &[peer], link.queue_bytes);
        }
        let observed = &self.links.observed;
        for (reason, count) in observed.link_ends() {
            numbers.set(Name::LinkEnds, &[reason], count);
        }
        let mut heard = moment.seen.clone();
        let lag = observed.lag();
        for peer in &moment.peers {
            let name = peer.id.name.as_str();
            let behind = moment.seen.difference(&peer.seen).count();
            numbers.set(Name::LinkBehindChanges, &[name], behind);
            let behind_ms = lag.behind_ms(peer.acked, now);
            numbers.set(Name::LinkBehindSeconds, &[name], seconds(behind_ms));
            heard.union_with(&peer.seen);
        }
        numbers.set(Name::MissingSeconds, &[], seconds(lag.missing_ms(now)));
        drop(lag);
        numbers.set(Name::MissingChanges, &[], missing(&heard, &moment.seen));
        let queued = self.hub.queued();
        let (received, sent) = observed.link_traffic.bytes();
        numbers.set(Name::LinkBytes, &["received"], received);
        numbers.set(Name::LinkBytes, &["sent"], sent);
        numbers.set(Name::LinkOverflows, &[], queued.overflows);
        numbers.set(Name::LinkSentFrames, &[], queued.frames);
        numbers.set(Name::LinkSentBytes, &[], queued.bytes);
        let resync_ms = moment.resync_ms.unwrap_or(0);
        numbers.set(Name::ResyncSeconds, &[], seconds(resync_ms));
        numbers.set(Name::CatchUps, &["failed"], observed.failed_catch_ups());
    }

    fn add_disk(&self, numbers: &mut Numbers, now: Millis) {
        let scheduled = self.scheduled.as_ref().and_then(|scheduled| scheduled.status().time_ms);
        numbers.set(Name::ScheduledSnapshotTimestampSeconds, &[], seconds(scheduled.unwrap_or(0)));
        let Some(durable) = &self.durable else { return };
        let status = durable.status(now);
        numbers.set(Name::LogSyncSeconds, &[], durable.sync_times());
        numbers.set(Name::LogWaitingBytes, &[], status.waiting_bytes);
        numbers.set(Name::LogFailures, &[], status.failures);
        numbers.set(Name::SinceSnapshotBytes, &[], status.since_snapshot_bytes);
        numbers.set(Name::LogUnsyncedSeconds, &[], seconds(durable.unsynced_ms(now)));
        let (logs, snapshots) = durable.lengths().unwrap_or_default();
        numbers.set(Name::DataBytes, &["log"], logs);
        numbers.set(Name::DataBytes, &["snapshot"], snapshots);
        if let Some((free, size)) = status.room {
            numbers.set(Name::DiskFreeBytes, &[], free);
            numbers.set(Name::DiskSizeBytes, &[], size);
        }
        if let Some(snapshot) = &status.snapshot {
            numbers.set(Name::SnapshotTimestampSeconds, &[], seconds(snapshot.time_ms));
        }
    }

    /// Notes when own changes are made and since when changes are missing; to be called every second.
    pub(super) fn sample_lag(&self) {
        let now = rt::now();
        let (own, tick, peers, seen) = self.hub.read(|engine| {
            let own = engine.id().incarnation;
            (own, engine.tick().unwrap_or_default(), engine.peer_views(), engine.seen().clone())
        });
        let (own, tick): (Incarnation, Tick) = (own, tick);
        let is_missing = peers.iter().any(|peer| !seen.contains_all(&peer.seen));
        self.links.observed.lag().sample(own, tick, is_missing, now);
    }
}

fn add_entries(moment: &Moment, numbers: &mut Numbers) {
    numbers.set(Name::Entries, &["live"], moment.live);
    numbers.set(Name::Entries, &["deleted"], moment.entries.saturating_sub(moment.live));
    numbers.set(Name::EntriesBytes, &[], moment.bytes);
    numbers.set(Name::Tock, &[], moment.tock);
    let counters = &moment.counters;
    for (name, labels, count) in [
        (Name::Writes, &[][..], counters.writes),
        (Name::Applied, &[], counters.applied),
        (Name::Conflicts, &[], counters.conflicts),
        (Name::SplitsHealed, &[], counters.resyncs),
        (Name::Purged, &[], counters.purged),
        (Name::AcrossPurge, &["dropped"], counters.dropped),
        (Name::AcrossPurge, &["reissued"], counters.reissued),
        (Name::CatchUps, &["done"], counters.catch_ups),
        (Name::CatchUpsServed, &[], counters.catch_ups_served),
        (Name::CatchUpEntries, &[], counters.catch_up_entries),
        (Name::DigestDifferences, &[], counters.digest_differences),
        (Name::Relayed, &["passed_on"], counters.relayed),
        (Name::Relayed, &["second_copy"], counters.duplicates),
        (Name::Relayed, &["prune"], counters.prunes),
        (Name::Relayed, &["graft"], counters.grafts),
        (Name::ContentsDiffered, &[], counters.contents_differed),
        (Name::ContentsMended, &[], counters.contents_mended),
    ] {
        numbers.set(name, labels, count);
    }
}

/// How many events were heard of and are not accounted for; those below one that was heard of, too.
fn missing(heard: &Seen, seen: &Seen) -> u64 {
    let nothing = crate::model::tick_set::TickSet::new();
    let of = |(node, heard): (_, &crate::model::tick_set::TickSet)| {
        seen.get(node).unwrap_or(&nothing).missing_below(heard.max()).count()
    };
    heard.iter().map(of).sum()
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds of centuries are exact")]
fn seconds(ms: Millis) -> f64 {
    ms as f64 / 1e3
}
