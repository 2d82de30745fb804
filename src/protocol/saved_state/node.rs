//! Who made a change, as a file names it.

use std::fmt;

use crate::model::ids::{NameError, NodeName};

/// Most hexadecimal digits behind the `~`: a whole incarnation.
const LIFE_DIGITS_MAX: usize = 16;

/// A node of a file: a name and, in files that were written here, which of its lives, where
/// several are known (`n1~5678`, the label that clients see). DistKV takes both for names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SavedNode {
    name: NodeName,
    /// Invariant: 1 to 16 lower-case hexadecimal digits.
    life: Option<Box<str>>,
}

impl SavedNode {
    /// From the label in a file.
    ///
    /// # Errors
    /// It is none that a node can have here.
    pub fn new(label: &str) -> Result<Self, NameError> {
        let Some((name, life)) = label.split_once('~') else {
            return Ok(Self { name: NodeName::new(label)?, life: None });
        };
        let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        if !(1..=LIFE_DIGITS_MAX).contains(&life.len()) || !life.chars().all(is_digit) {
            return Err(NameError::Character('~'));
        }
        Ok(Self { name: NodeName::new(name)?, life: Some(life.into()) })
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Which of its lives: the hexadecimal digits behind the `~`.
    #[must_use]
    pub fn life(&self) -> Option<&str> {
        self.life.as_deref()
    }
}

impl From<NodeName> for SavedNode {
    fn from(name: NodeName) -> Self {
        Self { name, life: None }
    }
}

impl fmt::Display for SavedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.life {
            None => self.name.fmt(f),
            Some(life) => write!(f, "{}~{life}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_names_with_or_without_a_life() {
        for label in ["n1", "n1~5678", "n1~0123456789abcdef"] {
            assert_eq!(SavedNode::new(label).unwrap().to_string(), label);
        }
        let node = SavedNode::new("n1~5678").unwrap();
        assert_eq!((node.name().as_str(), node.life()), ("n1", Some("5678")));
        for label in ["", "~5678", "n1~", "n1~xyz", "n1~AB", "n1~1~2", "n1~00000000000000000"] {
            assert!(SavedNode::new(label).is_err(), "{label}");
        }
    }
}
