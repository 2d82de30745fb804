//! Members that this node has no link to although it should, so that nobody says of them that they have confirmed something.

use std::collections::BTreeSet;

use crate::model::ids::NodeName;
use crate::server::{MemberInfo, MemberState, SilentInfo};

/// What else is known of members, by name.
pub(super) struct Known<L, W, G> {
    /// A link to it stands.
    pub(super) is_linked: L,
    /// This node is to be linked with it: with each, but in large networks.
    pub(super) is_wanted: W,
    /// It has said farewell, or is forgotten, and is not back.
    pub(super) is_gone: G,
}

/// Their names: those that are silent or down, those that are up and to which a link is missing, and those of `unmet`, whom this
/// node knew when it was started and has not met since. Not those that have left or are forgotten, nor those that are up and that this node is linked with by way of others.
pub(super) fn unreached<L, W, G>(
    members: &[MemberInfo],
    silent: Option<&SilentInfo>,
    unmet: &BTreeSet<NodeName>,
    known: &Known<L, W, G>,
) -> BTreeSet<String>
where
    L: Fn(&NodeName) -> bool,
    W: Fn(&NodeName) -> bool,
    G: Fn(&NodeName) -> bool,
{
    let is_unreached = |member: &&MemberInfo| {
        let name = NodeName::new(&member.name).ok();
        name.is_some_and(|name| match member.state {
            // Of who is away, nobody knows more than the split monitoring: it may have left.
            MemberState::Myself | MemberState::Joining | MemberState::Left | MemberState::Away => {
                false
            }
            MemberState::Up | MemberState::Suspect => {
                (known.is_wanted)(&name) && !(known.is_linked)(&name)
            }
            MemberState::Down => !(known.is_gone)(&name) && !(known.is_linked)(&name),
        })
    };
    let down = members.iter().filter(is_unreached).map(|member| member.name.clone());
    let silent = silent.into_iter().flat_map(SilentInfo::names);
    let is_unmet = |name: &&NodeName| !(known.is_linked)(name) && !(known.is_gone)(name);
    let unmet = unmet.iter().filter(is_unmet).map(ToString::to_string);
    let is_still = |name: &&str| NodeName::new(name).is_ok_and(|name| !(known.is_linked)(&name));
    down.chain(silent.filter(is_still).map(ToOwned::to_owned)).chain(unmet).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Incarnation, Tick};
    use crate::server::SilentMembers;

    fn member(name: &str, state: MemberState) -> MemberInfo {
        MemberInfo {
            name: name.to_owned(),
            incarnation: Incarnation(1),
            gossip: String::new(),
            client: None,
            state,
            linked: false,
            secured: false,
            ready: true,
            lagging: false,
            acked: Tick::default(),
            since_ms: 1,
            software: None,
        }
    }

    #[test]
    fn who_is_not_linked_is_unreached_unless_it_has_gone_or_hears_of_changes_by_others() {
        let states = [
            ("me", MemberState::Myself),
            ("linked", MemberState::Up),
            ("new", MemberState::Joining),
            ("cut", MemberState::Up),
            ("doubtful", MemberState::Suspect),
            ("far", MemberState::Up),
            ("far2", MemberState::Suspect),
            ("down", MemberState::Down),
            ("farewell", MemberState::Down),
            ("left", MemberState::Left),
            ("away", MemberState::Away),
        ];
        let members = states.map(|(name, state)| member(name, state));
        let silent = |names: &[&str]| SilentInfo {
            together: vec![SilentMembers {
                names: names.iter().map(ToString::to_string).collect(),
                since_ms: 1,
                changes: 0,
                is_from_start: true,
                refusing: None,
            }],
            with: Vec::new(),
        };
        let known = Known {
            is_linked: |name: &NodeName| ["linked", "new"].contains(&name.as_str()),
            is_wanted: |name: &NodeName| !name.as_str().starts_with("far"),
            is_gone: |name: &NodeName| name.as_str() == "farewell",
        };
        let nobody = BTreeSet::new();
        let told = unreached(&members, None, &nobody, &known);
        assert!(told.iter().eq(["cut", "doubtful", "down"]), "{told:?}");
        // One that is linked again is not silent any more.
        let silent = silent(&["unseen", "down", "linked"]);
        let told = unreached(&members, Some(&silent), &nobody, &known);
        assert!(told.iter().eq(["cut", "doubtful", "down", "unseen"]), "{told:?}");
        // A node that has just been started misses nobody yet.
        let unmet = ["before", "linked", "farewell"].map(|name| NodeName::new(name).unwrap());
        let told = unreached(&members, None, &BTreeSet::from(unmet), &known);
        assert!(told.iter().eq(["before", "cut", "doubtful", "down"]), "{told:?}");
    }
}
