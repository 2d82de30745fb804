//! The time that ages are counted by, where age decides what is removed for good.
//!
//! A machine's clock may show anything for a moment: at the start of a board that has no clock of its own, after somebody's
//! slip, in a virtual machine that comes back. A clock that is behind makes files look too young, and they stay. One that is ahead
//! makes them look too old, and no correction brings back what was removed then. So a leap ahead has to last before it counts.

use std::fmt;

use crate::model::ids::Millis;
pub use crate::storage::recover::passed_time::BELIEVED_AFTER_MS;
use crate::storage::recover::passed_time::is_ahead;

/// Between two looks, no more than this counts: what the clock has shown meanwhile nobody has seen.
const LOOK_COUNTS_MS: Millis = 60_000;
/// Of clocks that leap again and again, it is told this often.
const TELL_INTERVAL_MS: Millis = 3_600_000;

/// The time that ages are counted by: that of the machine's clock, but for leaps ahead that have not lasted an hour yet.
#[derive(Debug)]
pub struct AgeClock {
    /// That time, at the last look; milliseconds since 1970.
    time_ms: u64,
    /// When that was, by the clock that never goes back.
    looked_at: Millis,
    is_first_look: bool,
    /// Nobody was told of the doubt that there is: it is the usual one after a start.
    is_quiet: bool,
    doubt: Option<Doubt>,
    /// When a leap was told last.
    told_at: Option<Millis>,
}

/// A clock that is ahead, and not believed yet.
#[derive(Debug)]
struct Doubt {
    /// The least that it has shown, and what time has passed since: it has been ahead as far as this all the time.
    claimed_ms: u64,
    lasted_ms: Millis,
}

impl Doubt {
    fn of(claimed_ms: u64) -> Self {
        Self { claimed_ms, lasted_ms: 0 }
    }
}

/// What is known of the time when a node starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Known {
    /// Nothing is there yet whose age could count.
    #[default]
    Nothing,
    /// What is there may all be of a clock that was ahead.
    Doubtful,
    /// This time has certainly passed, milliseconds since 1970.
    Since(u64),
}

/// What an operator should hear of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockNews {
    /// At the first look it was ahead of the last time that is certain, by so many milliseconds.
    LaterAtStart(u64),
    /// It was ahead by so many milliseconds more than a look before.
    LeaptAhead(u64),
    /// It has been ahead for long enough, and ages are counted by it.
    Believed,
}

impl AgeClock {
    /// `wall_clock_ms` and `now` as for [`Self::look`].
    #[must_use]
    pub fn new(known: Known, wall_clock_ms: u64, now: Millis) -> Self {
        let time_ms = match known {
            Known::Nothing => wall_clock_ms,
            // Everything is young, until the clock has been seen for long enough.
            Known::Doubtful => 0,
            Known::Since(known_ms) => known_ms.min(wall_clock_ms),
        };
        Self {
            time_ms,
            looked_at: now,
            is_first_look: true,
            is_quiet: known == Known::Doubtful,
            doubt: None,
            told_at: None,
        }
    }

    /// The time that ages are counted by, as of the last look; milliseconds since 1970.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Takes what the machine's clock shows, milliseconds since 1970, at a moment of a clock that never goes back. To be called
    /// every few seconds, so that a leap is seen, and its end.
    pub fn look(&mut self, wall_clock_ms: u64, now: Millis) -> Option<ClockNews> {
        let passed_ms = now.saturating_sub(self.looked_at);
        self.looked_at = self.looked_at.max(now);
        self.time_ms = self.time_ms.saturating_add(passed_ms);
        let is_first = std::mem::take(&mut self.is_first_look);
        let doubt = self.doubt.take();
        if !is_ahead(wall_clock_ms, self.time_ms) {
            self.time_ms = wall_clock_ms;
            return None;
        }
        let ahead_ms = wall_clock_ms - self.time_ms;
        let Some(Doubt { claimed_ms, lasted_ms }) = doubt else {
            self.doubt = Some(Doubt::of(wall_clock_ms));
            return match is_first {
                true if self.is_quiet => None,
                true => Some(ClockNews::LaterAtStart(ahead_ms)),
                false => self.tell(ahead_ms, now),
            };
        };
        let expected_ms = claimed_ms.saturating_add(passed_ms);
        let claimed_ms = expected_ms.min(wall_clock_ms);
        let lasted_ms = lasted_ms.saturating_add(passed_ms.min(LOOK_COUNTS_MS));
        let has_leapt_again = is_ahead(wall_clock_ms, expected_ms);
        if lasted_ms < BELIEVED_AFTER_MS {
            self.doubt = Some(Doubt { claimed_ms, lasted_ms });
            return has_leapt_again.then(|| self.tell(wall_clock_ms - expected_ms, now)).flatten();
        }
        if has_leapt_again {
            self.time_ms = claimed_ms;
            self.doubt = Some(Doubt::of(wall_clock_ms));
        } else {
            self.time_ms = wall_clock_ms;
        }
        let is_quiet = std::mem::take(&mut self.is_quiet);
        (!is_quiet).then_some(ClockNews::Believed)
    }

    /// A leap, if none was told lately.
    fn tell(&mut self, ahead_ms: u64, now: Millis) -> Option<ClockNews> {
        if self.told_at.is_some_and(|at| now.saturating_sub(at) < TELL_INTERVAL_MS) {
            return None;
        }
        (self.told_at, self.is_quiet) = (Some(now), false);
        Some(ClockNews::LeaptAhead(ahead_ms))
    }
}

impl ClockNews {
    /// Writes it to the log; `files` are those that are removed for their age, in the plural.
    pub fn tell(self, files: &str) {
        match self {
            Self::LaterAtStart(ahead_ms) => tracing::info!(
                "this machine's clock is {} ahead of the last time that is certain to have passed: either the node was off \
                 for that long, or the clock is wrong, or was when the log ended; for an hour, no {files} are removed \
                 because of it",
                Span(ahead_ms)
            ),
            Self::LeaptAhead(ahead_ms) => tracing::warn!(
                "this machine's clock has leapt ahead by {}: set it right if it is wrong; until it has stayed ahead for an \
                 hour, no {files} are removed because of it",
                Span(ahead_ms)
            ),
            Self::Believed => tracing::info!(
                "this machine's clock has stayed ahead for an hour, so it counts again for when {files} are removed"
            ),
        }
    }
}

/// What is rounded.
const HALF_AN_HOUR_MS: u64 = 1_800_000;

/// A long time, for people.
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.saturating_add(HALF_AN_HOUR_MS) / 3_600_000 {
            hours @ 0..48 => write!(f, "{hours} h"),
            hours => write!(f, "{} days", hours / 24),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;
    const DAY_MS: u64 = 24 * HOUR_MS;
    const YEAR_MS: u64 = 365 * DAY_MS;
    /// What is right when the clock that never goes back stands at 0.
    const START_MS: u64 = 1_700_000_000_000;

    /// A machine, and what it has told.
    struct Machine {
        ages: AgeClock,
        now: Millis,
        told: Vec<ClockNews>,
    }

    impl Machine {
        fn start(known: Known, wall_clock_ms: u64) -> Self {
            let ages = AgeClock::new(known, wall_clock_ms, 0);
            let mut machine = Self { ages, now: 0, told: Vec::new() };
            machine.look(wall_clock_ms);
            machine
        }

        fn right() -> Self {
            Self::start(Known::Nothing, START_MS)
        }

        fn look(&mut self, wall_clock_ms: u64) {
            self.told.extend(self.ages.look(wall_clock_ms, self.now));
        }

        /// Looks each second while the clock is that far ahead of what is right.
        fn pass(&mut self, ms: u64, ahead_ms: i64) {
            for _ in 0..ms / 1_000 {
                self.now += 1_000;
                self.look((START_MS + self.now).saturating_add_signed(ahead_ms));
            }
        }

        /// How far the time for ages is ahead of what is right.
        fn ahead(&self) -> i64 {
            self.ages.time_ms().wrapping_sub(START_MS + self.now).cast_signed()
        }
    }

    #[test]
    fn a_leap_ahead_counts_when_it_has_lasted_an_hour() {
        let mut machine = Machine::right();
        machine.pass(5_000, YEAR_MS as i64);
        assert_eq!((machine.ahead(), &*machine.told), (0, &[ClockNews::LeaptAhead(YEAR_MS)][..]));
        machine.pass(HOUR_MS - 5_000, YEAR_MS as i64);
        assert_eq!((machine.ahead(), machine.told.len()), (0, 1));
        machine.pass(1_000, YEAR_MS as i64);
        assert_eq!((machine.ahead(), machine.told[1]), (YEAR_MS as i64, ClockNews::Believed));
        machine.pass(DAY_MS, YEAR_MS as i64);
        assert_eq!((machine.ahead(), machine.told.len()), (YEAR_MS as i64, 2));
    }

    #[test]
    fn an_hour_that_was_interrupted_begins_anew_and_is_told_once() {
        let mut machine = Machine::right();
        for _ in 0..10 {
            machine.pass(HOUR_MS / 4 - 1_000, YEAR_MS as i64);
            assert_eq!(machine.ahead(), 0);
            machine.pass(1_000, 0);
        }
        let leaps = machine.told.iter().filter(|news| **news == ClockNews::LeaptAhead(YEAR_MS));
        assert_eq!((leaps.count(), machine.told.len()), (3, 3), "once an hour");
    }

    #[test]
    fn a_clock_that_is_behind_is_followed_at_once_and_so_is_one_that_is_a_little_ahead() {
        let mut machine = Machine::right();
        for ahead in [HOUR_MS as i64, 0, -1, 0, -(YEAR_MS as i64), -(START_MS as i64)] {
            machine.pass(1_000, ahead);
            assert_eq!(machine.ahead(), ahead);
        }
        assert!(machine.told.is_empty());
    }

    #[test]
    fn a_board_without_a_clock_of_its_own_is_right_an_hour_after_it_was_corrected() {
        let mut machine = Machine::start(Known::Since(START_MS - DAY_MS), 0);
        assert_eq!(machine.ages.time_ms(), 0);
        machine.pass(30_000, -(START_MS as i64));
        machine.pass(HOUR_MS, 0);
        assert_eq!(machine.ages.time_ms(), 30_000 + HOUR_MS);
        machine.pass(1_000, 0);
        assert_eq!(machine.ahead(), 0);
        assert_eq!(machine.told, [ClockNews::LeaptAhead(START_MS), ClockNews::Believed]);
    }

    #[test]
    fn a_node_that_was_off_for_ten_days_goes_on_from_the_end_of_its_log() {
        let mut machine = Machine::start(Known::Since(START_MS - 10 * DAY_MS), START_MS);
        machine.pass(HOUR_MS - 1_000, 0);
        assert_eq!(machine.ahead(), -(10 * DAY_MS as i64));
        machine.pass(1_000, 0);
        assert_eq!(machine.ahead(), 0);
        assert_eq!(machine.told, [ClockNews::LaterAtStart(10 * DAY_MS), ClockNews::Believed]);
    }

    #[test]
    fn of_a_log_that_a_clock_wrote_that_was_ahead_nothing_is_believed() {
        let machine = Machine::start(Known::Since(START_MS + YEAR_MS), START_MS);
        assert_eq!((machine.ahead(), machine.told.len()), (0, 0));
    }

    #[test]
    fn only_what_lasted_is_believed_and_a_second_leap_has_to_last_too() {
        let mut machine = Machine::start(Known::Since(START_MS - DAY_MS), START_MS);
        machine.pass(HOUR_MS - 2_000, 0);
        machine.pass(4_000, YEAR_MS as i64);
        assert_eq!(machine.ahead(), 0, "that has lasted");
        let expected =
            [ClockNews::LaterAtStart(DAY_MS), ClockNews::LeaptAhead(YEAR_MS), ClockNews::Believed];
        assert_eq!(machine.told, expected);
        machine.pass(HOUR_MS, YEAR_MS as i64);
        assert_eq!(machine.ahead(), YEAR_MS as i64);
    }

    #[test]
    fn what_nobody_has_seen_does_not_count() {
        let mut machine = Machine::right();
        machine.pass(1_000, YEAR_MS as i64);
        machine.now += 5 * HOUR_MS;
        machine.pass(1_000, YEAR_MS as i64);
        assert_eq!(machine.ahead(), 0, "a process that stood still for hours");
    }

    #[test]
    fn no_clock_is_too_wrong() {
        let mut ages = AgeClock::new(Known::Since(u64::MAX), u64::MAX, Millis::MAX);
        assert_eq!(ages.look(0, 0), None);
        assert_eq!(ages.look(u64::MAX, Millis::MAX), Some(ClockNews::LeaptAhead(u64::MAX)));
        assert_eq!(ages.look(u64::MAX, Millis::MAX), None);
    }

    #[test]
    fn a_span_is_readable() {
        let shown = [HOUR_MS, 47 * HOUR_MS, YEAR_MS - 1].map(|ms| Span(ms).to_string());
        assert_eq!(shown, ["1 h", "47 h", "365 days"]);
    }
}
