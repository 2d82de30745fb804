//! Mistakes in what clients may do that tests plant, to see that a test finds them. A node as it is built for use makes
//! none: what asks for one is a constant there.

use super::Access;
use crate::protocol::client::Action;

/// A check that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// Of whether the action is permitted at all.
    Action(Action),
    /// Of each entry, or message, that the action tells, or deletes.
    Each(Action),
    /// Of the places that lead to a path.
    Way,
    /// Of whether a writer may know what was there.
    OldValue,
    /// Of whether a writer may change, or create.
    WriteOrCreate,
}

impl Access {
    /// Whether this node makes a mistake.
    #[cfg(any(test, feature = "planted-defects"))]
    #[inline]
    pub(in crate::server) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Whether this node makes a mistake.
    #[cfg(not(any(test, feature = "planted-defects")))]
    #[inline]
    pub(in crate::server) const fn makes(&self, _: Mistake) -> bool {
        false
    }
}
