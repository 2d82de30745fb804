//! The maker of a change, as a file names it.

use std::fmt;

use crate::model::ids::{Incarnation, NodeId, NodeName};
use crate::model::spelling::SpellingError;

/// A node of a file: a name, as the Python DistKV writes it, or one life of a node, in its
/// spelling, in files that were written here. DistKV takes both for names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SavedNode {
    name: NodeName,
    life: Option<Incarnation>,
}

impl SavedNode {
    /// From the name in a file.
    ///
    /// # Errors
    /// It is none that a node, or one life of it, can have here.
    pub(crate) fn new(text: &str) -> Result<Self, SpellingError> {
        if !text.contains('~') {
            return Ok(Self { name: NodeName::new(text)?, life: None });
        }
        let NodeId { name, incarnation } = text.parse()?;
        Ok(Self { name, life: Some(incarnation) })
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Which of its lives, if the file says so.
    #[must_use]
    pub(crate) fn life(&self) -> Option<Incarnation> {
        self.life
    }
}

impl From<NodeName> for SavedNode {
    fn from(name: NodeName) -> Self {
        Self { name, life: None }
    }
}

impl fmt::Display for SavedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.life {
            None => self.name.fmt(f),
            Some(incarnation) => NodeId { name: self.name.clone(), incarnation }.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_s_nodes_are_names_or_lives() {
        for text in ["n1", "n1~5678", "n1~e9001b2c3d4e", "n1~123456789abcdef0"] {
            assert_eq!(SavedNode::new(text).unwrap().to_string(), text);
        }
        let node = SavedNode::new("n1~5678").unwrap();
        assert_eq!((node.name().as_str(), node.life()), ("n1", Some(Incarnation(0x5678))));
        for text in ["", "~5678", "n1~", "n1~xyz", "n1~AB", "n1~1~2", "n1~00000000000000000"] {
            assert!(SavedNode::new(text).is_err(), "{text}");
        }
    }
}
