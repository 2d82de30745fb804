//! Which of the times in a log have certainly passed. A machine's clock may have leapt ahead while the log was written; what
//! was logged meanwhile has times that are still to come, and so has the end of the log if the node was stopped then.

use crate::model::ids::Millis;

/// A clock that is no further ahead of the expected time is followed at once. Corrections of a running clock are far smaller,
/// and a node that runs logs something each minute.
const SLACK_MS: u64 = 3_600_000;
/// One that is further ahead is believed when it has been so for so long.
pub const BELIEVED_AFTER_MS: Millis = 3_600_000;

/// Of the times that it was given, in the order of the log, the last one that is certain to have passed.
#[derive(Debug, Default)]
pub(super) struct PassedTime {
    certain_ms: Option<u64>,
    claim: Option<Claim>,
}

/// The log has gone on from `first_ms` to `last_ms` since a leap, or since its beginning.
#[derive(Debug)]
struct Claim {
    first_ms: u64,
    last_ms: u64,
}

impl PassedTime {
    /// The time of the next batch, milliseconds since 1970.
    pub(super) fn note(&mut self, time_ms: u64) {
        if self.certain_ms.is_some_and(|certain| !is_ahead(time_ms, certain)) {
            (self.certain_ms, self.claim) = (Some(time_ms), None);
            return;
        }
        let first_ms = match &self.claim {
            Some(claim) if !is_ahead(time_ms, claim.last_ms) => claim.first_ms.min(time_ms),
            _ => time_ms,
        };
        if time_ms - first_ms >= BELIEVED_AFTER_MS {
            (self.certain_ms, self.claim) = (Some(time_ms), None);
        } else {
            self.claim = Some(Claim { first_ms, last_ms: time_ms });
        }
    }

    /// None: the log goes on for less than an hour, so all of it may be of a clock that was ahead.
    pub(super) fn certain_ms(&self) -> Option<u64> {
        self.certain_ms
    }
}

/// Whether a clock shows a time, `clock_ms`, that is too far ahead of the expected one to be believed at once. Both are
/// milliseconds since 1970.
#[must_use]
pub fn is_ahead(clock_ms: u64, expected_ms: u64) -> bool {
    clock_ms > expected_ms.saturating_add(SLACK_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;
    const DAY_MS: u64 = 24 * HOUR_MS;
    const START_MS: u64 = 20_000 * DAY_MS;

    /// After batches each minute of these spans, `(from, to)` in milliseconds after the start.
    fn after(spans: &[(u64, u64)]) -> Option<u64> {
        let mut passed = PassedTime::default();
        for (from, to) in spans {
            (*from..=*to).step_by(MINUTE_MS as usize).for_each(|at| passed.note(START_MS + at));
        }
        passed.certain_ms().map(|certain| certain - START_MS)
    }

    #[test]
    fn a_leap_at_the_end_of_a_log_is_not_certain() {
        let day = (0, DAY_MS);
        assert_eq!(after(&[day]), Some(DAY_MS));
        let ahead = |for_ms| (60 * DAY_MS, 60 * DAY_MS + for_ms);
        assert_eq!(after(&[day, ahead(0)]), Some(DAY_MS));
        assert_eq!(after(&[day, ahead(HOUR_MS - MINUTE_MS)]), Some(DAY_MS));
        assert_eq!(after(&[day, ahead(HOUR_MS)]), Some(60 * DAY_MS + HOUR_MS));
        // It leaps again: neither counts.
        let further = (90 * DAY_MS, 90 * DAY_MS + HOUR_MS / 2);
        assert_eq!(after(&[day, ahead(HOUR_MS / 2), further]), Some(DAY_MS));
        // It is set right.
        let right = (DAY_MS + HOUR_MS / 2, 2 * DAY_MS);
        assert_eq!(after(&[day, ahead(HOUR_MS / 2), right]), Some(2 * DAY_MS));
    }

    #[test]
    fn a_log_of_less_than_an_hour_may_be_of_a_wrong_clock_as_a_whole() {
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[(0, HOUR_MS - MINUTE_MS)]), None);
        assert_eq!(after(&[(0, HOUR_MS)]), Some(HOUR_MS));
        assert_eq!(after(&[(0, HOUR_MS / 2), (DAY_MS, DAY_MS + HOUR_MS / 2)]), None);
    }

    #[test]
    fn a_clock_that_was_set_back_is_followed() {
        assert_eq!(after(&[(0, DAY_MS), (HOUR_MS, HOUR_MS)]), Some(HOUR_MS));
        assert_eq!(after(&[(DAY_MS, DAY_MS + HOUR_MS / 2), (0, HOUR_MS)]), Some(HOUR_MS));
    }
}
