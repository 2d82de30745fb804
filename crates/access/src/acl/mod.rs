//! Access lists: patterns of paths, and the letters that say what is allowed there.
//!
//! A list is the subtree `:n.acl.NAME`. Its patterns are what stands below that; their values are strings of
//! letters. In a pattern `+` stands for one element and `#` for one or more; all others stand for themselves,
//! with their types (`1` is neither `true` nor `1.0`). Depth first, exact before `+` before `#`, the first
//! pattern *that has a value* decides.
//!
//! [`Rights`] is how this node uses a list: where no pattern decides, nothing is allowed but passing the way
//! to a pattern, and reading `.distkv.config`. The original allows everything there, and that is what
//! `test_acl` tells clients that need not log in.

mod growth;
mod letters;
mod rights;
mod walk;

#[cfg(test)]
mod tests;

use distkv_model::path::{Element, Path};
use distkv_model::value::Reader;

pub use crate::patterns::TooManyPatterns;
use crate::patterns::{Patterns, States};
pub use letters::Letters;
pub use rights::{Because, Cursor, Explained, Missing, Rights};
pub use walk::Walk;

/// An access list, compiled.
#[derive(Debug, Default)]
pub struct Acl {
    patterns: Patterns<Flags>,
}

/// The value of a pattern.
#[derive(PartialEq, Debug)]
struct Flags {
    pattern: Path,
    letters: Letters,
}

impl Acl {
    /// Compiles a list from its patterns (whole, without `:n.acl.NAME`) and their values, one MessagePack
    /// value each. Letters that are not known, and values that are no strings, allow nothing.
    ///
    /// # Errors
    /// There are too many patterns.
    pub fn build<'v>(
        entries: impl IntoIterator<Item = (Path, &'v [u8])>,
    ) -> Result<Self, TooManyPatterns> {
        let mut acl = Self::default();
        for (pattern, value) in entries {
            acl.insert(pattern, value)?;
        }
        Ok(acl)
    }

    /// Adds a pattern, or replaces its value.
    ///
    /// # Errors
    /// There are too many patterns. Nothing was added.
    pub fn insert(&mut self, pattern: Path, value: &[u8]) -> Result<(), TooManyPatterns> {
        let letters = Reader::new(value).read_str().map_or(Letters::NONE, Letters::read);
        let flags = Flags { pattern: pattern.clone(), letters };
        self.patterns.insert(&pattern, flags)
    }

    /// Whether a pattern `#` says what holds where no other one matches. Lists of the original without
    /// one allowed everything there, and allow nothing now: operators should be told.
    #[must_use]
    pub(crate) fn has_default(&self) -> bool {
        self.patterns.get(&[Element::Str("#")]).is_some()
    }

    fn decides(&self, states: &States) -> Option<&Flags> {
        self.patterns.decides(states)
    }
}
