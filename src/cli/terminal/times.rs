//! Moments as people write them: in UTC, after ISO 8601. The calendar is jiff's.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use crate::rt;

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

fn parse(text: &str, now: u64) -> Option<u64> {
    if let Some(seconds) = text.strip_prefix('@') {
        return parse_seconds(seconds);
    }
    // The calendar takes a second 60 for the one before it; here it is more likely a slip.
    if text.contains(":60") {
        return None;
    }
    let moment = text.parse::<Timestamp>().ok().or_else(|| {
        let civil: DateTime = text.parse().ok()?;
        TimeZone::UTC.to_timestamp(civil).ok()
    });
    let moment = moment.or_else(|| relative(text, now))?;
    u64::try_from(moment.as_millisecond()).ok()
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
