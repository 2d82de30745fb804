//! Numbers in messages for people: one thing is not many, and bytes have units.

/// A number of things: `1 entry`, `2 entries`. What follows may differ, too: `1 entry was`, `2 entries were`.
#[must_use]
pub fn count_of(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Bytes for people: `1.5 GiB`.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64;
    let mut shown = "B";
    for unit in UNITS {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        shown = unit;
    }
    format!("{size:.1} {shown}")
}

/// Names that are shown to people, of many.
const NAMES_SHOWN: usize = 12;

/// Names for people: some of them, and how many more there are. `more`: how many there are besides these.
#[must_use]
pub fn names_text(names: &[String], more: u64) -> String {
    let (shown, rest) = names.split_at(names.len().min(NAMES_SHOWN));
    match (shown, more.saturating_add(rest.len() as u64)) {
        ([one], 0) => one.clone(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
        (shown, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(count_of(1, "entry", "entries"), "1 entry");
        assert_eq!(count_of(0, "entry", "entries"), "0 entries");
    }

    #[test]
    fn bytes_are_shown_short() {
        assert_eq!(show_bytes(5), "5 B");
        assert_eq!(show_bytes(1536), "1.5 KiB");
        assert_eq!(show_bytes(3 << 30), "3.0 GiB");
    }
}
