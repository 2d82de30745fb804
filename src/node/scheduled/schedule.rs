//! When a scheduled snapshot is due. Pure: the time comes in.

use std::time::Duration;

use crate::rt;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, Timestamp, ToSpan as _};

/// Snapshots follow each other at least this far apart.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// And at most this far.
const EVERY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// When snapshots are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// So long after the one before; 1 s to 366 days.
    Every(Duration),
    /// Once a day, at this time in UTC.
    Daily(Time),
}

impl Schedule {
    /// Reads one: `every 6h`, or `daily 03:00` (UTC).
    ///
    /// # Errors
    /// The text says what is accepted.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "{text:?} is no schedule; write one like \"every 6h\" or \"daily 03:00\" (UTC), with 1s to 366d"
            )
        };
        let (word, rest) = text.trim().split_once(' ').ok_or_else(expected)?;
        let rest = rest.trim();
        let schedule = match word {
            "every" => rest.parse().ok().and_then(length_of).map(Self::Every),
            "daily" => rest.parse().ok().map(Self::Daily),
            _ => None,
        };
        schedule.ok_or_else(expected)
    }

    /// When the next one is due, if the last one was made at `last_ms`: milliseconds since 1970, both.
    pub(super) fn due_ms(self, last_ms: u64) -> u64 {
        let due = match self {
            Self::Every(length) => {
                let length = rt::millis(length);
                return last_ms.saturating_add(length);
            }
            Self::Daily(time) => next_at(time, last_ms),
        };
        due.unwrap_or(u64::MAX)
    }

    /// The time from one to the next.
    pub(super) fn length(self) -> Duration {
        match self {
            Self::Every(length) => length,
            Self::Daily(_) => Duration::from_secs(86_400),
        }
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Every(length) => write!(f, "every {}", in_largest_unit(length.as_secs())),
            Self::Daily(time) => write!(f, "daily {:02}:{:02} UTC", time.hour(), time.minute()),
        }
    }
}

/// Seconds as one number that can be read again: `6h`, `90m`.
fn in_largest_unit(seconds: u64) -> String {
    const UNITS: [(u64, char); 3] = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
    let whole = UNITS.iter().find(|(length, _)| seconds.is_multiple_of(*length));
    let (length, unit) = whole.unwrap_or(&(1, 's'));
    format!("{}{unit}", seconds / length)
}

fn length_of(span: Span) -> Option<Duration> {
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    let length = Duration::try_from(length).ok()?;
    (EVERY_MIN..=EVERY_MAX).contains(&length).then_some(length)
}

/// The first moment of that time of day after another moment.
fn next_at(time: Time, after_ms: u64) -> Option<u64> {
    let after = Timestamp::from_millisecond(i64::try_from(after_ms).ok()?).ok()?;
    let date = after.to_zoned(TimeZone::UTC).date();
    let at = |date: jiff::civil::Date| TimeZone::UTC.to_timestamp(date.to_datetime(time)).ok();
    let today = at(date)?;
    let next = if today > after { today } else { at(date.checked_add(1.day()).ok()?)? };
    u64::try_from(next.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    /// 2026-11-21T00:00:00Z.
    const DAY_MS: u64 = 1_795_219_200_000;

    #[test]
    fn schedules_are_read_as_people_write_them() {
        let every = |secs| Ok(Schedule::Every(Duration::from_secs(secs)));
        assert_eq!(Schedule::parse("every 6h"), every(6 * 3_600));
        assert_eq!(Schedule::parse("every  1h 30m"), every(5_400));
        assert_eq!(Schedule::parse("every 2d"), every(2 * 86_400));
        for text in ["every 6h", "every 90m", "every 7d", "every 25h", "every 61s"] {
            assert_eq!(
                Schedule::parse(text).map(|schedule| schedule.to_string()),
                Ok(text.to_owned())
            );
        }
        assert!(matches!(Schedule::parse("daily 03:00"), Ok(Schedule::Daily(_))));
        for text in [
            "",
            "6h",
            "every",
            "every day",
            "every 0s",
            "every -6h",
            "every 500d",
            "daily",
            "daily 25:00",
        ] {
            assert!(Schedule::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_daily_one_is_due_at_the_next_such_time() {
        let daily = Schedule::parse("daily 03:00").unwrap();
        let three = DAY_MS + 3 * HOUR_MS;
        assert_eq!(daily.due_ms(DAY_MS), three);
        assert_eq!(daily.due_ms(three - 1), three);
        assert_eq!(daily.due_ms(three), three + 24 * HOUR_MS);
        assert_eq!(daily.due_ms(three + 5 * HOUR_MS), three + 24 * HOUR_MS);
    }

    #[test]
    fn any_other_is_due_after_its_time() {
        let every = Schedule::parse("every 6h").unwrap();
        assert_eq!(every.due_ms(DAY_MS), DAY_MS + 6 * HOUR_MS);
        assert_eq!(every.due_ms(u64::MAX), u64::MAX);
    }
}
