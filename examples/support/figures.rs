//! Medians, percentiles, and numbers as people read them.

/// The value below which that share of the values lies; 0 where there are none.
pub fn percentile(values: &mut [u64], share: f64) -> u64 {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(last)).copied().unwrap_or(0)
}

/// The one in the middle; 0 where there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// With separators: `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes as KiB or MiB.
pub fn bytes(count: u64) -> String {
    match count as f64 / 1024.0 {
        kib if kib < 10.0 => format!("{count} B"),
        kib if kib < 10_240.0 => format!("{kib:.1} KiB"),
        kib => format!("{:.1} MiB", kib / 1024.0),
    }
}

/// Microseconds as ms or s.
pub fn time(us: u64) -> String {
    match us as f64 / 1000.0 {
        ms if ms < 10_000.0 => format!("{ms:.1} ms"),
        ms => format!("{:.2} s", ms / 1000.0),
    }
}
