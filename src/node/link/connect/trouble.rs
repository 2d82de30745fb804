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
        // An error of the connection names the address, too, which is another one only where the name of a host stands here.
        let why = self.why.strip_prefix(&*self.address).and_then(|why| why.strip_prefix(": "));
        write!(f, "{}: {}", self.address, why.unwrap_or(&self.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_the_error_names_as_well_stands_there_once() {
        let trouble = |why: &str| {
            let (address, why) = (String::from("10.0.0.5:7"), why.into());
            Trouble { address, why, is_lasting: false }.to_string()
        };
        assert_eq!(trouble("10.0.0.5:7: Invalid argument"), "10.0.0.5:7: Invalid argument");
        assert_eq!(trouble("10.0.0.50:7: refused"), "10.0.0.5:7: 10.0.0.50:7: refused");
        assert_eq!(trouble("it is a client port"), "10.0.0.5:7: it is a client port");
    }
}
