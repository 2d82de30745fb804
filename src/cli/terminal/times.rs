//! Moments as people write them: in UTC, after ISO 8601, or counted back from now. The calendar is jiff's.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use crate::cli::error::CliError;
use crate::cli::remote::Remote;
use crate::cli::say;
use crate::cli::terminal::units::show_millis;
use crate::client::Fields;
use crate::rt;

/// Clocks that are further apart than this are told of, in milliseconds.
const CLOCKS_APART_MS: u64 = 60_000;

/// A moment of a node's past. One that is counted back from now is counted by the node's clock, not by the one of this
/// machine: "10m" must not be an hour ago because one of the two is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Moment {
    text: String,
    /// By this machine's clock, in milliseconds since 1970.
    here_ms: u64,
}

impl Moment {
    /// When that was by the node's clock, in milliseconds since 1970. People hear of clocks that are far apart.
    ///
    /// # Errors
    /// The node cannot be asked for its time, or the moment is before 1970.
    pub(in crate::cli) async fn of_node(&self, remote: &Remote) -> Result<u64, CliError> {
        if absolute(&self.text).is_some() {
            return Ok(self.here_ms);
        }
        let status = remote.request("status", &Fields::new()).await?;
        // Nodes from before this question do not tell it.
        let Some(there) = status.u64("time") else { return Ok(self.here_ms) };
        if let Some(apart) = tell_apart(rt::wall_clock_ms(), there) {
            say::note(&format!("the node's clock is {apart}; '{}' is counted by it", self.text));
        }
        parse(&self.text, there).ok_or_else(|| {
            CliError::Usage(format!("'{}' is before 1970 by the node's clock", self.text))
        })
    }
}

/// How far the node's clock is from this machine's, if that is worth telling.
fn tell_apart(here_ms: u64, there_ms: u64) -> Option<String> {
    let apart = here_ms.abs_diff(there_ms);
    let side = if there_ms > here_ms { "ahead of" } else { "behind" };
    (apart >= CLOCKS_APART_MS).then(|| format!("{} {side} this machine's", show_millis(apart)))
}

/// A moment, in milliseconds since 1970, for people: `2026-11-21T09:14:42.123Z`.
#[must_use]
pub(in crate::cli) fn show_time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let moment = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{moment:.3}")
}

/// Reads a moment: `2026-11-21`, `2026-11-21T09:14`, `2026-11-21 09:14:42.5`, with `Z`, `+02:00`
/// or nothing (then UTC) after it; or `@` and seconds since 1970. Milliseconds since 1970.
///
/// # Errors
/// The text says what is accepted.
pub(in crate::cli) fn parse_time(text: &str) -> Result<u64, String> {
    const EXPECTED: &str = "a time looks like 2026-11-21T09:14:42Z (UTC, or with +02:00 behind it), \
        @1795000000 (seconds since 1970), 10m or '2 days ago', or 'yesterday 14:00'";
    parse(text, rt::wall_clock_ms()).ok_or_else(|| EXPECTED.to_owned())
}

/// The same for a moment of a node's past.
///
/// # Errors
/// Those of [`parse_time`].
pub(in crate::cli) fn parse_moment(text: &str) -> Result<Moment, String> {
    Ok(Moment { text: text.to_owned(), here_ms: parse_time(text)? })
}

fn parse(text: &str, now: u64) -> Option<u64> {
    // The calendar takes a second 60 for the one before it; here it is more likely a slip.
    if text.contains(":60") {
        return None;
    }
    absolute(text).or_else(|| u64::try_from(relative(text, now)?.as_millisecond()).ok())
}

/// A moment that does not depend on when it is read.
fn absolute(text: &str) -> Option<u64> {
    if let Some(seconds) = text.strip_prefix('@') {
        return parse_seconds(seconds);
    }
    let moment = text.parse::<Timestamp>().ok().or_else(|| {
        let civil: DateTime = text.parse().ok()?;
        TimeZone::UTC.to_timestamp(civil).ok()
    });
    u64::try_from(moment?.as_millisecond()).ok()
}

/// A moment before now: `10m`, `2 days ago`, `yesterday 14:00`, `today 09:30`.
fn relative(text: &str, now: u64) -> Option<Timestamp> {
    let now = Timestamp::from_millisecond(i64::try_from(now).ok()?).ok()?.to_zoned(TimeZone::UTC);
    let (word, time) = text.split_once(' ').unwrap_or((text, ""));
    let days = match word {
        "today" => Some(0),
        "yesterday" => Some(1),
        _ => None,
    };
    if let Some(days) = days {
        let time: Time = if time.is_empty() { Time::midnight() } else { time.parse().ok()? };
        let date = now.date().checked_sub(Span::new().days(days)).ok()?;
        return Some(
            date.to_zoned(TimeZone::UTC).ok()?.with().time(time).build().ok()?.timestamp(),
        );
    }
    let span: Span = text.strip_suffix(" ago").unwrap_or(text).parse().ok()?;
    (!span.is_negative()).then(|| now.checked_sub(span).ok())?.map(|moment| moment.timestamp())
}

/// Seconds since 1970 with up to three decimals, as milliseconds.
fn parse_seconds(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if decimals.len() > 3 || seconds.is_empty() || !is_number(seconds) || !is_number(decimals) {
        return None;
    }
    let millis: u64 = format!("{decimals:0<3}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_are_shown_in_utc() {
        assert_eq!(show_time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(show_time(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(show_time(1_795_252_482_123), "2026-11-21T09:14:42.123Z");
    }

    #[test]
    fn people_write_moments_in_many_ways() {
        let at = 1_795_252_482_000;
        for text in [
            "2026-11-21T09:14:42Z",
            "2026-11-21T09:14:42",
            "2026-11-21 09:14:42.000z",
            "2026-11-21T11:14:42+02:00",
            "2026-11-20T23:44:42-09:30",
            "@1795252482",
        ] {
            assert_eq!(parse_time(text), Ok(at), "{text}");
        }
        for (text, seconds) in [
            ("10m", 600),
            ("10m ago", 600),
            ("1h 30m", 5_400),
            ("2 days ago", 172_800),
            ("1w", 604_800),
            ("today", 33_282),
            ("today 09:14", 42),
            ("yesterday 14:00", 33_282 + 36_000),
        ] {
            assert_eq!(parse(text, at), Some(at - seconds * 1_000), "{text}");
        }
        for text in
            ["-10m", "10", "ago", "yesterday 25:00", "tomorrow", "yesterday 10m", "9999999y"]
        {
            assert_eq!(parse(text, at), None, "{text}");
        }
        assert_eq!(parse_time("2026-11-21"), Ok(at - 33_282_000));
        assert_eq!(parse_time("@1.5"), Ok(1500));
    }

    #[test]
    fn clocks_that_are_far_apart_are_told_of() {
        assert_eq!(tell_apart(1_000_000, 1_059_999), None);
        assert_eq!(tell_apart(1_059_999, 1_000_000), None);
        let ahead = tell_apart(0, 3_600_000);
        assert_eq!(ahead.as_deref(), Some("1 h 0 m ahead of this machine's"));
        let behind = tell_apart(3_600_000, 0);
        assert_eq!(behind.as_deref(), Some("1 h 0 m behind this machine's"));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "@",
            "@-1",
            "now",
            "2026",
            "2026-13-01",
            "2026-02-30",
            "2026-11-21T",
            "2026-11-21T9",
            "2026-11-21T24:00",
            "2026-11-21T09:60",
            "2026-11-21T09:14:60",
            "1969-12-31",
            "2026-11-21T09:14+2",
            "2026-11-21-1",
            "@1.2345",
            "2026-11-21T09:14:42:00",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read(ms in 0_u64..253_402_300_800_000) {
            prop_assert_eq!(parse_time(&show_time(ms)), Ok(ms));
        }
    }
}
