//! Moments as people write them: in UTC, after ISO 8601.

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;
/// Days from the first of March of year 0 to 1970, in the calendar as it is counted backwards.
const DAYS_TO_1970: i64 = 719_468;
/// Days of 400 years.
const ERA_DAYS: i64 = 146_097;

/// A moment, in milliseconds since 1970, for people: `2026-11-21T09:14:42.123Z`.
#[must_use]
pub(super) fn show_time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let (days, of_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let (year, month, day) = date_of(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, millis) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Reads a moment: `2026-11-21`, `2026-11-21T09:14`, `2026-11-21 09:14:42.5`, with `Z`, `+02:00`
/// or nothing (then UTC) behind it; or `@` and seconds since 1970. Milliseconds since 1970.
///
/// # Errors
/// The text says what is accepted.
pub(super) fn parse_time(text: &str) -> Result<u64, String> {
    const EXPECTED: &str = "a time looks like 2026-11-21T09:14:42Z (UTC, or with +02:00 behind it), \
        or @1795000000 (seconds since 1970)";
    parse(text).ok_or_else(|| EXPECTED.to_owned())
}

fn parse(text: &str) -> Option<u64> {
    if let Some(seconds) = text.strip_prefix('@') {
        return u64::try_from(parse_millis(seconds)?).ok();
    }
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, time),
        None => (text, "00:00"),
    };
    let mut parts = date.split('-');
    let (year, month, day) = (number(parts.next()?, 4)?, number(parts.next()?, 2)?, parts.next()?);
    let day = number(day, 2)?;
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_of(year, month, day);
    // The 30th of February is none.
    if date_of(days) != (year, month, day) {
        return None;
    }
    let (time, offset) = split_offset(time)?;
    let mut parts = time.split(':');
    let (hour, minute) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let millis = parts.next().map_or(Some(0), parse_millis)?;
    if parts.next().is_some() || hour > 23 || minute > 59 || millis >= 60_000 {
        return None;
    }
    let ms = days * DAY_MS + (hour * 60 + minute - offset) * 60_000 + millis;
    u64::try_from(ms).ok()
}

/// A time of day, and its offset from UTC in minutes.
fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let (time, offset) = time.split_at_checked(at)?;
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    Some((time, sign * (number(hours, 2)? * 60 + number(minutes, 2)?)))
}

/// Seconds with up to three decimals, as milliseconds.
fn parse_millis(text: &str) -> Option<i64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let millis: i64 = format!("{decimals:0<3}").parse().ok()?;
    number(seconds, 18)?.checked_mul(1000)?.checked_add(millis)
}

fn number(text: &str, digits_max: usize) -> Option<i64> {
    let is_number =
        (1..=digits_max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// The date so many days after 1970 began: years are counted from March, so that the day that is
/// not in each of them is the last.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_1970;
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / (ERA_DAYS - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + next, month, day)
}

fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_TO_1970
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
