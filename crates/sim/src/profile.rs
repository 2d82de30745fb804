//! The kind of a run: its family, what it looks for, and the plan that each seed draws for itself.
//! No two seeds have the same weights; that is how rare cases are found.

use super::engines::steps::Step;
use super::rng::Rng;
use crate::engine::delete::DeleteSettings;
use crate::engine::lists::ListCaps;
use crate::model::chain::ChainBound;
use crate::model::defects::Defects;
use crate::model::ids::Millis;
use crate::model::seen_list::ListMax;
use crate::replica::across::NamesMax;

/// In so many of a hundred runs there is membership, and networks above some size are not linked all
/// with all.
const TREES_PERCENT: u32 = 25;

/// What to simulate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Small networks, or whole ones.
    pub family: Family,
    /// What happens more often than otherwise.
    pub focus: Focus,
    /// Defects that are to be found.
    pub defects: Defects,
}

/// How big a simulated network is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Family {
    /// 3 to 5 nodes, 1 to 3 paths, chains cut at 2, 30 to 80 steps: the size at
    /// which the rules were checked with a model. A million of them take minutes.
    #[default]
    Small,
    /// 2 to 50 nodes, 3 to 3,000 paths, chains as long as the protocol has them, up to 400 steps.
    Whole,
    /// Whole nodes, 1 to 7: hub, log, disk, membership and clients, of which the others have engines and
    /// links alone ([`super::whole`]). The focus is of no matter.
    Nodes,
}

/// What a run seeks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Focus {
    /// Everything, in proportions that each seed draws.
    #[default]
    Any,
    /// Few faults: mostly writes and deletions.
    Calm,
    /// Splits, broken links and one-way links.
    Splits,
    /// Crashes, restarts and copied disks.
    Crashes,
    /// Queues that overflow, stalled links and frozen nodes.
    Overflows,
    /// Members of the Delete group that are cut off and forgotten on both sides, which purge on.
    Forks,
    /// A Delete group of one member that comes back older than it was.
    Coordinators,
    /// Nodes come back as the very life that an old state names, and copies of disks are used at
    /// once: events are used twice. What must hold then is replication rule 10: nodes end with the
    /// same entries, and report where they had others.
    Rollbacks,
}

impl Focus {
    /// All of them, with their names.
    pub const ALL: &[(&str, Self)] = &[
        ("any", Self::Any),
        ("calm", Self::Calm),
        ("splits", Self::Splits),
        ("crashes", Self::Crashes),
        ("overflows", Self::Overflows),
        ("forks", Self::Forks),
        ("coordinators", Self::Coordinators),
        ("rollbacks", Self::Rollbacks),
    ];

    /// By how much a kind of step is more frequent.
    fn factor(self, step: Step) -> u32 {
        use Step::{
            Back, Break, Burst, Crash, Delete, Disturb, Forget, Freeze, Mend, OneWay, Pause,
            Snapshot, Split, Stall, Twin, Write,
        };
        match (self, step) {
            (Self::Any, _) => 1,
            (Self::Calm, Write | Delete | Pause) => 30,
            (Self::Splits, Split | Mend | OneWay | Break | Disturb) => 5,
            (Self::Crashes, Crash | Back | Twin) => 5,
            (Self::Overflows, Burst | Stall | Freeze) => 5,
            (Self::Forks, Delete | Split | Pause) | (Self::Coordinators, Delete | Snapshot) => 4,
            (Self::Forks, Forget) => 30,
            (Self::Coordinators, Crash | Back | Pause) => 8,
            (Self::Rollbacks, Crash | Back | Snapshot | Split | Twin) => 4,
            _ => 1,
        }
    }
}

/// What one seed does.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    pub(super) paths: usize,
    pub(super) steps: usize,
    pub(super) weights: [u32; Step::ALL.len()],
    pub(super) chain_bound: ChainBound,
    /// All nodes start on their own; else the first founds and the others join.
    pub(super) all_found: bool,
    /// The usual time between two steps.
    pub(super) gap_ms: Millis,
    /// How long a frame is under way, at least and at most; each link draws its own bounds in it.
    pub(super) delay_ms: (Millis, Millis),
    /// How many frames a connection takes before its writer has to wait.
    pub(super) window: usize,
    /// Bytes that may wait for a peer.
    pub(super) queue_bytes: usize,
    /// How often an engine is told that time has passed.
    pub(super) tick_ms: Millis,
    /// The time between two pieces of a catch-up.
    pub(super) piece_ms: Millis,
    /// The size of a piece.
    pub(super) piece_bytes: usize,
    /// How many catch-ups a node answers at once.
    pub(super) serves_max: usize,
    /// How many of a hundred pushes may be fed in again later.
    pub(super) echo_percent: u32,
    /// How long it takes until a broken link is dialled again.
    pub(super) redial_ms: Millis,
    /// After this time without a sign of life a link is closed.
    pub(super) silence_ms: Millis,
    /// How many of a hundred nodes that come back do so on their own.
    pub(super) founds_percent: u32,
    /// Incarnations are any numbers; else each is above the one before.
    pub(super) any_incarnation: bool,
    pub(super) hash_seed: u64,
    /// How the Delete group works, but for the node's store.
    pub(super) delete: DeleteSettings,
    /// Which of the first nodes have a data directory.
    pub(super) has_disk: Vec<bool>,
    /// Whether in the end operators take members that are gone off the Delete group's list.
    pub(super) operator_forgets: bool,
    /// How long lists to peers are.
    pub(super) lists: ListCaps,
    /// Up to how many nodes all are linked with all; none: there is no membership, and all are.
    pub(super) full_mesh_max: Option<usize>,
}

impl Plan {
    /// Draws the plan of a seed.
    pub(super) fn draw(options: &Options, rng: &mut Rng) -> Self {
        let is_small = options.family == Family::Small;
        let mut weights = [0; Step::ALL.len()];
        for (weight, (step, usual)) in weights.iter_mut().zip(Step::ALL) {
            *weight = usual * rng.pick(&[1, 3, 10, 10, 30]) * options.focus.factor(step);
            if rng.percent(8) && step != Step::Write {
                *weight = 0;
            }
        }
        let nodes = if is_small {
            3 + rng.below(3)
        } else {
            // Big networks are rarer: a seed costs the square of the nodes.
            match rng.below(100) {
                0 => 21 + rng.below(30),
                1..=5 => 11 + rng.below(10),
                6..=30 => 6 + rng.below(5),
                _ => 2 + rng.below(5),
            }
        };
        let mut has_disk = vec![false; nodes];
        has_disk[..match options.focus {
            Focus::Forks => rng.pick(&[2, 2, 3]),
            Focus::Coordinators => 1,
            _ => rng.pick(&[0, 1, 1, 2, 2, 3]),
        }
        .min(nodes)]
            .fill(true);
        // Lists are changed and rounds held between the steps.
        let seeks_rounds = matches!(options.focus, Focus::Forks | Focus::Coordinators);
        rng.shuffle(&mut has_disk);
        let overflows = rng.percent(if options.focus == Focus::Overflows { 90 } else { 25 });
        Self {
            nodes,
            paths: if options.focus == Focus::Rollbacks {
                // Enough that what differs is not overwritten before it is found.
                rng.pick(&[3, 10, 30])
            } else if options.focus == Focus::Coordinators {
                rng.pick(&[2, 3])
            } else if is_small {
                rng.pick(&[1, 1, 2, 3])
            } else {
                rng.pick(&[3, 10, 100, 1_000, 3_000])
            },
            steps: if is_small { 30 + rng.below(51) } else { 50 + rng.below(351) },
            weights,
            chain_bound: if is_small { ChainBound::shorter(2) } else { ChainBound::default() },
            all_found: rng.percent(50),
            gap_ms: if seeks_rounds {
                rng.pick(&[100, 300])
            } else {
                rng.pick(&[1, 5, 20, 100, 300])
            },
            delay_ms: rng.pick(&[(0, 1), (1, 5), (5, 50), (20, 300), (0, 1_000)]),
            window: if overflows { 1 + rng.below(4) } else { 64 },
            // The messages after an overflow must fit: a digest of a bigger network is longer.
            queue_bytes: match (overflows, is_small) {
                (false, _) => 1 << 22,
                (true, true) => rng.pick(&[800, 1_200, 2_000]),
                (true, false) => rng.pick(&[16_000, 30_000, 100_000]),
            },
            tick_ms: rng.pick(&[50, 100, 200]),
            piece_ms: rng.pick(&[0, 1, 10, 100]),
            piece_bytes: rng.pick(&[1, 1, 200]),
            serves_max: rng.pick(&[1, 4, 4]),
            echo_percent: rng.pick(&[0, 10, 50]),
            redial_ms: rng.pick(&[1, 50, 200, 1_000]),
            silence_ms: if seeks_rounds { 500 } else { rng.pick(&[500, 2_000, 6_000, 15_000]) },
            founds_percent: match options.focus {
                Focus::Coordinators => 50,
                Focus::Rollbacks => 80,
                _ => 10,
            },
            any_incarnation: rng.percent(50),
            hash_seed: rng.next(),
            delete: DeleteSettings {
                store: None,
                cycle_ms: rng.pick(&[1_500, 2_000, 3_000]),
                interval_ms: rng.pick(&[100, 500, 2_000]),
                batch_max: rng.pick(&[1, 2, 4_096]),
                kept_max: rng.pick(&[1, 2, 16]),
                found_after_ms: rng.pick(&[50, 200, 1_000]),
                takeover_after_ms: rng.pick(&[1_000, 4_000, 3_600_000]),
                lost_after_ms: rng.pick(&[500, 2_000]),
                say_for_ms: rng.pick(&[0, 500, 3_000]),
            },
            has_disk,
            operator_forgets: rng.percent(75),
            // Drawn last, so that plans are otherwise as they were before these existed.
            lists: draw_lists(is_small, rng),
            full_mesh_max: rng
                .percent(TREES_PERCENT)
                .then(|| rng.pick(if is_small { &[1, 2, 3] } else { &[1, 4, 9] })),
        }
    }
}

/// Lists that are as long as real ones, or so short that each is sent in several parts. Each part
/// is a round trip, so a large state needs longer ones to be done in time.
fn draw_lists(is_small: bool, rng: &mut Rng) -> ListCaps {
    if rng.percent(30) {
        return ListCaps::default();
    }
    let (ranges, incarnations, paths) = if is_small {
        (rng.pick(&[2, 4, 8]), rng.pick(&[2, 3, 5]), rng.pick(&[1, 2, 3]))
    } else {
        (rng.pick(&[200, 1_000]), rng.pick(&[4, 16, 64]), rng.pick(&[100, 1_000]))
    };
    let events = rng.within(1, ranges as u64);
    ListCaps {
        list: ListMax { incarnations, ranges },
        counters: rng.pick(&[0, 1, 3, 100]),
        names: NamesMax { events, paths, bytes: 1 << 20 },
        verdict_ranges: events as usize,
        digest_message: rng.pick(&[2, 3, 100]),
        digest: rng.pick(&[0, 2, 3, 5, 100]),
        ..ListCaps::default()
    }
}
