//! Numbers of things in messages for people: one is not many.

/// A number of things: `1 entry`, `2 entries`. What follows may differ, too: `1 entry was`, `2 entries were`.
#[must_use]
pub fn count_of(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(count_of(1, "entry", "entries"), "1 entry");
        assert_eq!(count_of(0, "entry", "entries"), "0 entries");
    }
}
