//! Catch-ups have a lower priority than live traffic: while clients write at this node, a node that
//! answers one or takes one in rests after each piece, for a few times as long as the piece took.
//! Pure; time comes in.
//!
//! If no client writes, and for a node that is not ready yet, there are no rests.

use std::time::Duration;

use crate::model::ids::{Millis, Tick};

/// A rest lasts this many times as long as the work before it.
const REST_FACTOR: u32 = 3;
/// The longest rest: work takes longer than usual where the machine is busy with other things.
const REST_MAX: Duration = Duration::from_millis(20);
/// Clients count as writing for this long after their last change.
const BUSY_MS: Millis = 100;

/// One task's.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// This node's last tick, and when it was seen to be another one than before.
    seen: Option<(Tick, Millis)>,
    changed: Option<Millis>,
}

impl Pace {
    /// How long to rest after a piece that took `worked`; `tick` is this node's last one, none
    /// while it is not ready. `None`: not at all.
    pub(super) fn rest(
        &mut self,
        tick: Option<Tick>,
        now: Millis,
        worked: Duration,
    ) -> Option<Duration> {
        let tick = tick?;
        if let Some((before, at)) = self.seen.replace((tick, now))
            && before != tick
            && now.saturating_sub(at) < BUSY_MS
        {
            self.changed = Some(now);
        }
        let is_busy = self.changed.is_some_and(|at| now.saturating_sub(at) < BUSY_MS);
        is_busy.then(|| (worked * REST_FACTOR).min(REST_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKED: Duration = Duration::from_micros(200);

    fn tick(number: u64) -> Option<Tick> {
        Tick::new(number)
    }

    #[test]
    fn it_rests_only_while_changes_are_made_here() {
        let mut pace = Pace::default();
        assert_eq!(pace.rest(tick(7), 0, WORKED), None, "nothing is known yet");
        assert_eq!(pace.rest(tick(7), 1, WORKED), None);
        let rest = Some(WORKED * REST_FACTOR);
        assert_eq!(pace.rest(tick(8), 2, WORKED), rest);
        assert_eq!(pace.rest(tick(8), 1 + BUSY_MS, WORKED), rest);
        assert_eq!(pace.rest(tick(8), 2 + BUSY_MS, WORKED), None);
        assert_eq!(pace.rest(None, 3 + BUSY_MS, WORKED), None, "not ready");
    }

    #[test]
    fn changes_between_two_catch_ups_say_nothing() {
        let mut pace = Pace::default();
        assert_eq!(pace.rest(tick(7), 0, WORKED), None);
        assert_eq!(pace.rest(tick(900), BUSY_MS, WORKED), None);
    }

    #[test]
    fn no_rest_is_longer_than_the_longest() {
        let mut pace = Pace::default();
        assert_eq!(pace.rest(tick(1), 0, WORKED), None);
        assert_eq!(pace.rest(tick(2), 0, Duration::from_secs(9)), Some(REST_MAX));
    }
}
