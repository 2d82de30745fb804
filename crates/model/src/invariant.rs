//! What must hold whatever peers, clients, files and users send: our own invariants, checked where state
//! changes. One that does not hold is a defect of this program, and is never worked around: the
//! thread panics with the invariant's name, and the program of a node ends (`cli/run/fail_stop.rs`), because
//! its log and the other nodes have everything, and what it would go on from is wrong.
//!
//! What comes from outside is never asserted: it is refused, with an error of its own.
//!
//! Three forms: [`invariant!`] costs a comparison and is always on; [`costly_invariant!`] is on in builds with
//! debug assertions, which are those of the tests and of the simulator (the profiles `dev` and `sim`);
//! [`OrBroken::or_broken`] is for what is there if an invariant holds. This is the only file that may
//! panic on purpose; `tests/pure/tidy.rs` looks for others.

use std::fmt;

/// Whether costly invariants are checked in this build.
pub const COSTLY: bool = cfg!(debug_assertions);

/// What the message of a broken invariant begins with.
pub const BROKEN: &str = "broken invariant: ";

/// Ends what this thread does, because an invariant does not hold. `invariant` says what would have to hold.
#[cold]
#[inline(never)]
#[track_caller]
#[expect(clippy::panic, reason = "this is the place")]
pub fn broken(invariant: &str, details: fmt::Arguments<'_>) -> ! {
    match details.as_str() {
        Some("") => panic!("{BROKEN}{invariant}"),
        _ => panic!("{BROKEN}{invariant} ({details})"),
    }
}

/// `invariant!(holds, "what must hold", "details {}", …)`: always checked. One condition each; it must
/// cost no more than a comparison or two.
#[macro_export]
macro_rules! invariant {
    ($holds:expr, $name:literal $(,)?) => {
        if !$holds {
            $crate::invariant::broken($name, ::std::format_args!(""));
        }
    };
    ($holds:expr, $name:literal, $($details:tt)+) => {
        if !$holds {
            $crate::invariant::broken($name, ::std::format_args!($($details)+));
        }
    };
}

/// The same for what takes longer; checked with debug assertions only. The condition must have no effect.
#[macro_export]
macro_rules! costly_invariant {
    ($holds:expr, $($rest:tt)+) => {
        if $crate::invariant::COSTLY {
            $crate::invariant::invariant!($holds, $($rest)+);
        }
    };
}

pub use crate::{costly_invariant, invariant};

/// For what is there, or went well, unless an invariant is broken.
pub trait OrBroken {
    /// What is there.
    type Value;

    /// The value; where there is none, `invariant` is broken.
    fn or_broken(self, invariant: &str) -> Self::Value;
}

impl<T> OrBroken for Option<T> {
    type Value = T;

    #[inline]
    #[track_caller]
    fn or_broken(self, invariant: &str) -> T {
        match self {
            Some(value) => value,
            None => broken(invariant, format_args!("")),
        }
    }
}

impl<T, E: fmt::Debug> OrBroken for Result<T, E> {
    type Value = T;

    #[inline]
    #[track_caller]
    fn or_broken(self, invariant: &str) -> T {
        match self {
            Ok(value) => value,
            Err(error) => broken(invariant, format_args!("{error:?}")),
        }
    }
}

/// Invariants that the program's own tests have it break, to see it end (`tests/program/fail_stop.rs`). Nothing
/// can be planted in a real node (feature `planted-defects`), where all of this is compiled to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The tree forgets to put the path `planted` into its order.
    Order,
    /// The log's thread miscounts a batch with the path `planted`.
    LogNumber,
}

/// By the words that tests use.
#[cfg(any(test, feature = "planted-defects"))]
const PLANTED: [(&str, Planted); 2] = [("order", Planted::Order), ("log", Planted::LogNumber)];

#[cfg(any(test, feature = "planted-defects"))]
static PLANTS: std::sync::OnceLock<Planted> = std::sync::OnceLock::new();

/// Plants one for the rest of the process; tells whether the word names one.
#[cfg(any(test, feature = "planted-defects"))]
pub fn plant(word: &str) -> bool {
    let found = PLANTED.iter().find(|(name, _)| *name == word);
    found.is_some_and(|(_, planted)| PLANTS.set(*planted).is_ok())
}

/// Whether that one is planted.
#[inline]
#[cfg_attr(
    not(any(test, feature = "planted-defects")),
    allow(unused_variables, reason = "nothing can be planted")
)]
pub fn is_planted(planted: Planted) -> bool {
    #[cfg(any(test, feature = "planted-defects"))]
    return PLANTS.get() == Some(&planted);
    #[cfg(not(any(test, feature = "planted-defects")))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(work: impl FnOnce() + std::panic::UnwindSafe) -> String {
        let panic = std::panic::catch_unwind(work).unwrap_err();
        *panic.downcast::<String>().unwrap()
    }

    #[test]
    fn a_broken_invariant_says_which_one() {
        invariant!(true, "one is one");
        let (one, two) = (1, 2);
        assert_eq!(text_of(|| invariant!(one == two, "equal")), "broken invariant: equal");
        let text = text_of(|| invariant!(one == two, "equal", "{one} and {}", two));
        assert_eq!(text, "broken invariant: equal (1 and 2)");
        assert_eq!(
            text_of(|| _ = None::<u8>.or_broken("it is there")),
            "broken invariant: it is there"
        );
        let text = text_of(|| _ = Err::<u8, _>(7).or_broken("it went well"));
        assert_eq!(text, "broken invariant: it went well (7)");
        assert_eq!((Some(1).or_broken("there"), Ok::<_, u8>(2).or_broken("well")), (1, 2));
    }

    #[test]
    fn a_costly_invariant_is_checked_in_builds_with_debug_assertions_and_nowhere_else() {
        let checked = std::panic::catch_unwind(|| costly_invariant!(false, "never"));
        assert_eq!(checked.is_err(), cfg!(debug_assertions));
    }
}
