//! What is told of addresses at which no link comes about.

use std::fmt;
use std::sync::Arc;

use crate::model::ids::Millis;

/// Every address that this node was given belongs to a node that refuses it for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::node) struct Refused {
    /// Since when.
    pub(in crate::node) since: Millis,
    /// One of them.
    pub(in crate::node) address: String,
    /// In its words, or, if it is not a node of another network, what it is instead.
    pub(in crate::node) why: Arc<str>,
}

/// One address as the log shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::node) struct Trouble {
    pub(in crate::node) address: String,
    pub(in crate::node) why: Arc<str>,
    /// Somebody is there, and it stays so for as long as neither side is configured otherwise.
    pub(in crate::node) is_lasting: bool,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.why)
    }
}
