//! Counts the changes of the data that says who may do what, and what values are good, so that others
//! notice when what they have made of that data is out of date.

use crate::model::meta::Family;

/// How often this node has seen each kind of policy change. Two that are equal, of one run of a node, stand
/// for the same data. Nothing else can be read from the numbers, and other nodes have others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Policies {
    /// Changes below `:n.auth` and `:n.acl`: users and access lists.
    pub access: u64,
    /// Changes below `:n.type` and `:n.match`: type checks.
    pub types: u64,
}

impl Policies {
    /// Notes that the entry at a path (canonical bytes) is another one.
    pub(super) fn note_change(&mut self, path: &[u8]) {
        match Family::of(path) {
            Some(Family::Auth | Family::Acl) => self.access += 1,
            Some(Family::Type | Family::Match) => self.types += 1,
            Some(Family::Codec | Family::Conv) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::path::Path;

    #[test]
    fn each_change_of_a_policy_counts_for_its_kind_and_no_other_does() {
        let mut policies = Policies::default();
        let paths =
            [":n.auth", ":n.acl.x.+", ":n.type.int", ":n.match.a", ":n.conv.a", "auth.a", ":"];
        for path in paths {
            policies.note_change(path.parse::<Path>().unwrap().as_bytes());
        }
        assert_eq!(policies, Policies { access: 2, types: 2 });
    }
}
