//! The order of turns: how long a member waits for others before it claims the next turn.
//!
//! Measured from the last claim, in the order in which members get their chance:
//!
//! | who | when |
//! |---|---|
//! | ready ones, if the turn's holder is not ready | within a gap, at once |
//! | those not on the list, if it has room | within a gap after the cycle |
//! | those on the list, oldest first | a gap after each other, from the cycle on (two gaps later if the list has room) |
//! | those not on a full list | after [`STRANGER_CYCLES`] cycles, and a gap for each on the list |
//! | not ready ones, if the holder is ready | after [`NOT_READY_CYCLES`] cycles, likewise |

use rand::RngExt;
use rand::rngs::SmallRng;

use crate::model::ids::Millis;
use crate::model::ping::ConfigVersion;

/// A member that is not on a full list waits for this many cycles: it must have missed several
/// pings in a row by then, so that a few lost ones do not change the list.
const STRANGER_CYCLES: Millis = 3;
/// A member that is not ready waits longer than all ready ones.
const NOT_READY_CYCLES: Millis = 4;
/// Without a claim for this many turns, a passive member forgets the history.
const FORGET_TURNS: Millis = 8;
/// Members of a list that has room leave this many gaps to newcomers, which heard of the last turn
/// late and whose ping takes time again: with less, one that is far away would never get in.
const NEWCOMER_GAPS: usize = 2;
/// Members whose order is not known spread over this many gaps.
const SPREAD_GAPS: Millis = 2;

/// What the wait depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) is_ready: bool,
    /// Of the last claim's holder; `None` if there is no claim.
    pub(crate) is_holder_ready: Option<bool>,
    /// This member's place on the list, 0 for the turn's holder.
    pub(crate) place: Option<usize>,
    /// How many are on the list.
    pub(crate) listed: usize,
}

/// How long after the last claim (or after the start) to claim the next turn, in milliseconds.
pub(crate) fn wait_ms(standing: Standing, config: &ConfigVersion, rng: &mut SmallRng) -> Millis {
    let ConfigVersion { cycle_ms, gap_ms, list_len, version: _ } = *config;
    let gaps = |count: usize| gap_ms.saturating_mul(count as Millis);
    let late = |cycles: Millis, spread: Millis| cycle_ms * cycles + gaps(list_len) + spread;
    match (standing.is_ready, standing.is_holder_ready) {
        // Listen first: a whole cycle must have been heard.
        (true, None) => cycle_ms + rng.random_range(0..cycle_ms),
        (true, Some(false)) => rng.random_range(0..gap_ms),
        (false, None | Some(true)) => {
            late(NOT_READY_CYCLES, gaps(2) + rng.random_range(0..gap_ms * SPREAD_GAPS))
        }
        (true, Some(true)) | (false, Some(false)) => {
            let has_room = standing.listed < list_len;
            match standing.place {
                Some(place) => {
                    let before = standing.listed.saturating_sub(place + 1);
                    cycle_ms + gaps(before + if has_room { NEWCOMER_GAPS } else { 0 })
                }
                None if has_room => cycle_ms + rng.random_range(0..gap_ms),
                None => late(STRANGER_CYCLES, rng.random_range(0..gap_ms * SPREAD_GAPS)),
            }
        }
    }
}

/// How long after the last claim a passive member forgets the history, in milliseconds.
pub(crate) fn forget_ms(config: &ConfigVersion) -> Millis {
    turn_ms_max(config) * FORGET_TURNS
}

/// How long a turn takes if all on the list but one are silent, in milliseconds.
pub(crate) fn turn_ms_max(config: &ConfigVersion) -> Millis {
    config.cycle_ms + config.gap_ms * (config.list_len + NEWCOMER_GAPS) as Millis
}

/// How long after a claim of its own a member holds the tag, if no other contests it: all had the
/// time to. One that is not ready waits for all ready ones.
pub(crate) fn tag_ms(is_ready: bool, config: &ConfigVersion) -> Millis {
    if is_ready { config.gap_ms } else { config.gap_ms * SPREAD_GAPS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const CONFIG: ConfigVersion = ConfigVersion::DEFAULT;

    /// The least and the greatest wait of many.
    fn range(standing: Standing) -> (Millis, Millis) {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut found: Vec<_> = (0..2_000).map(|_| wait_ms(standing, &CONFIG, &mut rng)).collect();
        found.sort_unstable();
        (found[0], found[found.len() - 1])
    }

    fn standing(place: Option<usize>, listed: usize) -> Standing {
        Standing { is_ready: true, is_holder_ready: Some(true), place, listed }
    }

    #[test]
    fn a_full_list_takes_turns_oldest_first_a_gap_apart() {
        let waits: Vec<_> = (0..4).map(|place| range(standing(Some(place), 4))).collect();
        assert_eq!(waits, [(1_600, 1_600), (1_400, 1_400), (1_200, 1_200), (1_000, 1_000)]);
    }

    #[test]
    fn while_there_is_room_newcomers_come_first() {
        let (least, greatest) = range(standing(None, 3));
        assert!(least >= 1_000 && greatest < 1_200);
        assert_eq!(range(standing(Some(2), 3)), (1_400, 1_400));
        assert_eq!(range(standing(Some(0), 1)), (1_400, 1_400), "alone, it follows itself");
    }

    #[test]
    fn strangers_come_after_the_whole_list_and_those_not_ready_last() {
        let stranger = range(standing(None, 4));
        assert!(stranger.0 > 1_600 + 2_000 && stranger.1 < 4_200);
        for place in [None, Some(3)] {
            let waiting = Standing { is_ready: false, ..standing(place, 4) };
            assert!(range(waiting).0 > stranger.1);
        }
    }

    #[test]
    fn who_is_ready_follows_one_that_is_not_at_once() {
        let ready = Standing { is_holder_ready: Some(false), ..standing(None, 4) };
        assert!(range(ready).1 < tag_ms(false, &CONFIG));
        let alike = Standing { is_ready: false, ..ready };
        assert!(range(alike).0 > 3_000);
    }

    #[test]
    fn at_the_start_each_listens_for_a_cycle() {
        let start = Standing { is_ready: true, is_holder_ready: None, place: None, listed: 0 };
        let (least, greatest) = range(start);
        assert!((1_000..1_100).contains(&least) && (1_900..2_000).contains(&greatest));
        assert!(range(Standing { is_ready: false, ..start }).0 > greatest);
    }
}
