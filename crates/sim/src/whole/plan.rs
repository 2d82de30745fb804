//! What a run of whole nodes is like: drawn by each seed for itself.

use crate::durable::{LogSettings, SyncPolicy};
use crate::engine::delete::DeleteSettings;
use crate::model::defects::Defects;
use crate::model::ids::Millis;
use crate::rng::Rng;

/// Of nodes with data directories, so many of a hundred have each sync policy.
const POLICIES: [(SyncPolicy, u32); 3] =
    [(SyncPolicy::EveryBatch, 50), (SyncPolicy::EverySecond, 35), (SyncPolicy::Never, 15)];

/// What can be done to the network, besides what clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A node's power fails: what was not synced is lost, in part.
    PowerCut,
    /// A node's process is killed: what it has written stays.
    Kill,
    /// A node ends in an orderly way.
    Stop,
    /// A node's disk fails at one of its next operations, and so its power does.
    CutWhileWriting,
    /// A node's disk refuses everything, or all that needs room, for a while; or one operation.
    DiskFails,
    /// A node's disk does nothing for a while.
    DiskStalls,
    /// A copy is made of a node's directory.
    BackUp,
    /// An old copy is put back.
    SetBack,
    /// A copy of a directory is taken into use somewhere else.
    Copy,
    /// A running node takes in the state of an old copy.
    Restore,
    /// A node is lost, with its disk.
    Lose,
    /// An operator takes a node that is away off the Delete group's list.
    Forget,
    /// Two sides hear nothing of each other.
    Split,
    /// A connection breaks.
    Break,
    /// A link's writer gets nothing out for a while.
    Stall,
    /// A process stands still.
    Freeze,
    /// A clock for people jumps.
    Jump,
    /// What is cut off is joined again.
    Mend,
    /// A watch's client reads nothing for a while.
    SlowWatch,
}

/// All of them, and how often each is drawn in a calm mixture.
pub(super) const FAULTS: [(Fault, u32); 19] = [
    (Fault::PowerCut, 6),
    (Fault::Kill, 4),
    (Fault::Stop, 3),
    (Fault::CutWhileWriting, 4),
    (Fault::DiskFails, 5),
    (Fault::DiskStalls, 3),
    (Fault::BackUp, 3),
    (Fault::SetBack, 2),
    (Fault::Copy, 1),
    (Fault::Lose, 1),
    (Fault::Forget, 1),
    (Fault::Split, 5),
    (Fault::Break, 6),
    (Fault::Stall, 6),
    (Fault::Freeze, 4),
    (Fault::Jump, 1),
    (Fault::Mend, 6),
    (Fault::SlowWatch, 8),
    (Fault::Restore, 2),
];

/// The plan of a run.
pub(super) struct Plan {
    /// Per node, its sync policy; none for one that keeps its data in memory.
    pub(super) nodes: Vec<Option<SyncPolicy>>,
    pub(super) paths: usize,
    pub(super) clients: usize,
    pub(super) watches: usize,
    pub(super) steps: usize,
    /// About so long between two faults.
    pub(super) gap_ms: Millis,
    /// About so long between two requests of a client.
    pub(super) think_ms: Millis,
    pub(super) weights: Vec<u32>,
    pub(super) delay_ms: (Millis, Millis),
    /// Of a thousand datagrams so many are lost.
    pub(super) loss_permille: u32,
    /// Bytes that wait for one peer.
    pub(super) link_bytes: usize,
    /// Changes that wait for one watch.
    pub(super) watch_changes: usize,
    pub(super) full_mesh_max: usize,
    pub(super) log: LogSettings,
    /// What is given to the log's thread is carried out so much later.
    pub(super) disk_ms: (Millis, Millis),
    pub(super) delete: DeleteSettings,
    pub(super) silence_ms: Millis,
    /// After so many of a hundred snapshots the power fails, before anything else is written.
    pub(super) cuts_after_save: u32,
    /// Of a hundred answers to clients so many are lost.
    pub(super) lost_answers: u32,
    /// Of a hundred tries of writes with an id so many lie in a buffer for a while.
    pub(super) held_up: u32,
    /// Of a hundred writes so many are deletions.
    pub(super) deletions: u32,
    pub(super) hash_seed: u64,
    /// Clients say what they have heard of with what they write; others are like those of the original.
    pub(super) clients_remember: bool,
}

/// Tries are held up from this seed on: there are tests of earlier ones, which have to stay what they were.
pub const HELD_UP_FROM: u64 = 44_000_000;

/// Of a hundred tries so many lie in a buffer for a while.
pub(super) fn held_up(seed: u64) -> u32 {
    if seed < HELD_UP_FROM { 0 } else { Rng::new(seed, 2).pick(&[0, 5, 25]) }
}

impl Plan {
    pub(super) fn draw(defects: Defects, rng: &mut Rng) -> Self {
        let count = rng.pick(&[1, 2, 3, 3, 3, 4, 5, 7]);
        let durable_percent = rng.pick(&[50, 80, 100]);
        let one_policy = rng.percent(50).then(|| draw_policy(rng));
        let nodes = (0..count)
            .map(|_| {
                let policy = one_policy.unwrap_or_else(|| draw_policy(rng));
                rng.percent(durable_percent).then_some(policy)
            })
            .collect();
        let weights = FAULTS
            .iter()
            .map(|(_, weight)| if rng.percent(30) { 0 } else { weight * rng.within(1, 4) as u32 })
            .collect();
        let is_small_log = rng.percent(60);
        let disk_ms = rng.pick(&[(0, 2), (1, 20), (5, 80)]);
        Self {
            nodes,
            paths: rng.pick(&[1, 3, 8, 30]),
            clients: rng.pick(&[1, 2, 4]),
            watches: rng.pick(&[1, 3, 5]),
            steps: 10 + rng.below(40),
            gap_ms: rng.pick(&[100, 400, 1_500]),
            think_ms: rng.pick(&[5, 20, 100]),
            weights,
            delay_ms: rng.pick(&[(0, 1), (1, 10), (5, 80)]),
            loss_permille: rng.pick(&[0, 0, 20, 100]),
            link_bytes: rng.pick(&[2_500, 6_000, 1 << 22, 1 << 22]),
            watch_changes: rng.pick(&[2, 8, 1 << 14]),
            full_mesh_max: rng.pick(&[3, 48, 48]),
            log: LogSettings {
                sync: SyncPolicy::default(),
                rotate_bytes: if is_small_log { rng.within(400, 4_000) } else { 64 << 20 },
                rotate_after_ms: rng.pick(&[1_000, 20_000, 86_400_000]),
                snapshot_after: if is_small_log { rng.within(600, 8_000) } else { 256 << 20 },
                keep_snapshots: rng.pick(&[1, 1, 2]),
                keep_for_ms: rng.pick(&[0, 0, 5_000, 604_800_000]),
                keep_bytes: rng.pick(&[0, 20_000, 1 << 30]),
                discard_damaged: false,
                queue_bytes: rng.pick(&[4_000, 30_000, 64 << 20]),
                defects,
            },
            disk_ms,
            delete: DeleteSettings {
                store: None,
                cycle_ms: rng.pick(&[1_500, 2_000]),
                interval_ms: rng.pick(&[100, 500, 2_000]),
                batch_max: rng.pick(&[2, 4_096]),
                kept_max: rng.pick(&[1, 16]),
                found_after_ms: rng.pick(&[50, 200, 1_000]),
                takeover_after_ms: 4_000,
                lost_after_ms: rng.pick(&[2_000, 10_000]),
                say_for_ms: rng.pick(&[0, 500, 3_000]),
            },
            silence_ms: rng.pick(&[2_000, 6_000, 15_000]),
            held_up: 0,
            cuts_after_save: rng.pick(&[0, 0, 5, 20]),
            lost_answers: rng.pick(&[0, 5, 20]),
            deletions: rng.pick(&[5, 20, 40]),
            hash_seed: rng.next(),
            // The last one that is drawn, so that all others are what they were before there was this; and not so in the
            // networks of seeds with tests of their own, which have to stay what they were, too.
            clients_remember: (20..50).contains(&rng.below(100)),
        }
    }
}

fn draw_policy(rng: &mut Rng) -> SyncPolicy {
    let weights = POLICIES.map(|(_, weight)| weight);
    POLICIES[rng.weighted(&weights)].0
}
