//! Sizes and durations as people write them.

pub use distkv_model::count::show_bytes;

use std::time::Duration;

/// Reads a size in bytes: `1048576`, `512K`, `512MiB`, `2GB`, `1.5G`. `K`, `M`, `G`, `T` and
/// `KiB`… count by 1024, `kB`, `MB`… by 1000.
///
/// # Errors
/// The text says what is accepted.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = split_unit(text);
    let factor: f64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(format!("{unit:?} is no unit of size; use KiB, MiB, GiB, kB, MB or GB")),
    };
    let number = parse_number(number).ok_or("a size is a number and a unit, like 512MiB or 2GB")?;
    let bytes = number * factor;
    // Exact up to 2^53 bytes, which is far above any machine's memory.
    if bytes < 1.0 || bytes > (1_u64 << 53) as f64 {
        return Err(String::from("a size must be between 1 byte and 8192 TiB"));
    }
    Ok(bytes as usize)
}

/// Reads a duration: `500ms`, `10s`, `1.5m`, `2h`, `1d`; without a unit, seconds.
///
/// # Errors
/// The text says what is accepted.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const MAX_SECONDS: f64 = 366.0 * 86400.0;
    let (number, unit) = split_unit(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(format!("{unit:?} is no unit of time; use ms, s, m, h or d")),
    };
    let number =
        parse_number(number).ok_or("a duration is a number and a unit, like 500ms or 10s")?;
    let seconds = number * factor;
    if seconds > MAX_SECONDS {
        return Err(String::from("a duration must be at most a year (366d)"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads a duration of something that takes some time at least: as [`parse_duration`], without 0.
///
/// # Errors
/// The text says what is accepted.
pub fn parse_some_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err(String::from("it must be longer than nothing")),
        some => Ok(some),
    }
}

/// The text in front, and the unit that it ends with.
fn split_unit(text: &str) -> (&str, &str) {
    let number = text.trim_end_matches(|c: char| c.is_alphabetic());
    let unit = text.get(number.len()..).unwrap_or_default();
    (number.trim_end(), unit)
}

/// A number from 0, of digits and at most a dot.
fn parse_number(text: &str) -> Option<f64> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    is_plain.then(|| text.parse().ok()).flatten()
}

/// Milliseconds for people: `850 ms`, `12 s`, `3 m 20 s`, `2 d 4 h`.
#[must_use]
pub fn show_millis(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis} ms"),
        1..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} m {} s", seconds / 60, seconds % 60),
        3600..=86399 => format!("{} h {} m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("512K", 512 << 10),
            ("512 KiB", 512 << 10),
            ("2g", 2 << 30),
            ("1.5M", 3 << 19),
            ("2GB", 2_000_000_000),
            ("100kB", 100_000),
            ("7b", 7),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "M", "-1M", "1e9", "0", "1Q", "1.2.3", "99999999T", "0x10", "inf"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_take_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        for text in ["", "s", "-1s", "1y", "nan", "400d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(parse_some_time("1ms"), Ok(Duration::from_millis(1)));
        assert!(parse_some_time("0").is_err() && parse_some_time("0.0m").is_err());
    }

    #[test]
    fn numbers_are_shown_short() {
        assert_eq!(show_millis(850), "850 ms");
        assert_eq!(show_millis(200_000), "3 m 20 s");
        assert_eq!(show_millis(187_200_000), "2 d 4 h");
    }
}
