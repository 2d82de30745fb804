//! An access list as the original uses it: where no pattern decides, everything is allowed.

use super::Acl;
use crate::patterns::{TooManyPatterns, element_slices};

/// What a client that has no access list of its own may not do, and so no list that it tests: see flags.
const BLOCKED: &str = "a";

impl Acl {
    /// Whether the original would allow `mode` at a path (canonical bytes, without nil): letters side by side,
    /// or `W` for setting. `is_there` says whether there is something at, or below, the first so many elements
    /// of the path; `has_value` whether there is a value at the path itself.
    ///
    /// # Errors
    /// More patterns match than are followed.
    pub fn allows_as_original(
        &self,
        path: &[u8],
        mode: &str,
        has_value: bool,
        mut is_there: impl FnMut(usize) -> bool,
    ) -> Result<bool, TooManyPatterns> {
        let mut states = self.patterns.start();
        for (depth, element) in element_slices(path).enumerate() {
            // On the way: through what is there, making what is not.
            let letter = if is_there(depth + 1) { "x" } else { "n" };
            if !self.original_has(&states, letter) {
                return Ok(false);
            }
            states = self.patterns.step(&states, element);
            if states.is_over() {
                return Err(TooManyPatterns);
            }
        }
        let letter = match mode {
            "W" if has_value => "w",
            "W" => "c",
            mode => mode,
        };
        Ok(self.original_has(&states, letter)
            && mode != BLOCKED
            && self.original_has(&states, mode))
    }

    fn original_has(&self, states: &crate::patterns::States, letters: &str) -> bool {
        // The original takes only strings; what else was loaded allows nothing.
        let allows = |text: &Option<Box<str>>| text.as_ref().is_some_and(|t| t.contains(letters));
        self.decides(states).is_none_or(|flags| allows(&flags.text))
    }
}
