//! Which lines of an input set an entry that an earlier line of it had set: of all but the last one, the value is lost. Keys of
//! another store can be like that: `user:16` and `user:x10` are two keys of Redis, and one path.
//!
//! Lines are read as they come, so a file may be meant as a sequence, and it may be longer than memory. So paths are
//! remembered by a hash, and only so many.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_128;

use crate::cli::terminal::output::{count_of, shown_path};
use crate::model::path::Path;

/// Most paths that are remembered, by 16 bytes each. A table of so many has 2^22 places, so 71 MB.
const PATHS_MAX: usize = 3_500_000;

/// Finds them.
#[derive(Debug)]
pub(super) struct Repeated {
    /// Hashes of the paths that a line has set. Two paths that have one are so improbable that a wrong count, which would be
    /// all that comes of it, does not matter.
    set: HashSet<u128>,
    /// Invariant: `set` has no more than so many.
    paths_max: usize,
    /// How many lines were found.
    pub(super) count: u64,
    /// The number and the path of the first one.
    first: Option<(u64, String)>,
    /// How many lines set an entry and were not compared with those before, because no more paths are remembered.
    pub(super) unchecked: u64,
    /// The number of the first of those.
    unchecked_from: u64,
}

impl Default for Repeated {
    fn default() -> Repeated {
        Repeated::of(PATHS_MAX)
    }
}

impl Repeated {
    fn of(paths_max: usize) -> Repeated {
        Repeated {
            set: HashSet::new(),
            paths_max,
            count: 0,
            first: None,
            unchecked: 0,
            unchecked_from: 0,
        }
    }

    /// A line sets this entry. Whether an earlier one does, too.
    pub(super) fn sets(&mut self, line: u64, path: &Path) -> bool {
        let hash = xxh3_128(path.as_bytes());
        if self.set.contains(&hash) {
            return true;
        }
        if self.set.len() < self.paths_max {
            self.set.insert(hash);
        } else {
            if self.unchecked == 0 {
                self.unchecked_from = line;
            }
            self.unchecked += 1;
        }
        false
    }

    /// A line deletes this entry: what was set before, nobody misses.
    pub(super) fn deletes(&mut self, path: &Path) {
        self.set.remove(&xxh3_128(path.as_bytes()));
    }

    /// Of a line that sets an entry that an earlier one does, too, one of the two values is lost.
    pub(super) fn found(&mut self, line: u64, path: &Path) {
        self.count += 1;
        if self.first.is_none() {
            self.first = Some((line, shown_path(path)));
        }
    }

    /// What there is to say of it. `if_new`: the earlier values are those that stay.
    pub(super) fn notes(&self, if_new: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some((line, path)) = &self.first {
            let (what, whose) = match (if_new, self.count) {
                (false, 1) => ("replaced what an earlier line of this input had set", "it is"),
                (false, _) => ("replaced what earlier lines of this input had set", "the first is"),
                (true, 1) => ("left out: an earlier line of this input had set the entry", "it is"),
                (true, _) => {
                    ("left out: earlier lines of this input had set the entries", "the first is")
                }
            };
            let count = count_of(self.count, "line", "lines");
            notes.push(format!("{count} {what}; {whose} line {line} ({path})"));
        }
        if self.unchecked > 0 {
            notes.push(format!(
                "from line {} on, it was not looked whether lines set an entry that an earlier line had set: only {} \
                 paths are remembered",
                self.unchecked_from, self.paths_max
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn two_spellings_of_one_path_are_one_entry() {
        let mut repeated = Repeated::default();
        assert!(!repeated.sets(1, &path("user:16")));
        assert!(!repeated.sets(2, &path("user:17")));
        assert!(repeated.sets(3, &path("user:x10")));
        repeated.deletes(&path("user:17"));
        assert!(!repeated.sets(4, &path("user:17")), "it was deleted in between");
        assert!(repeated.notes(false).is_empty());
        repeated.found(3, &path("user:x10"));
        let said =
            "1 line replaced what an earlier line of this input had set; it is line 3 (user:16)";
        assert_eq!(repeated.notes(false), [said]);
    }

    #[test]
    fn behind_the_bound_lines_are_not_looked_at_and_that_is_said() {
        let mut repeated = Repeated::of(2);
        for (line, text) in [(1, "a"), (2, "b"), (3, "c"), (4, "c")] {
            assert!(!repeated.sets(line, &path(text)), "{text}");
        }
        assert!(repeated.sets(5, &path("a")), "the first ones are still known");
        repeated.found(5, &path("a"));
        repeated.found(6, &path("b"));
        assert_eq!((repeated.count, repeated.unchecked), (2, 2));
        let [said, unchecked] = &*repeated.notes(true) else { panic!("{repeated:?}") };
        assert_eq!(
            said,
            "2 lines left out: earlier lines of this input had set the entries; the first is line 5 (a)"
        );
        assert!(unchecked.starts_with("from line 3 on, "), "{unchecked}");
        assert!(unchecked.ends_with("only 2 paths are remembered"), "{unchecked}");
    }
}
