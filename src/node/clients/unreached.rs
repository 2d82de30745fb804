//! Members that this node has no link to although it should, so that nobody says of them that they have confirmed something.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::ids::NodeName;
use crate::server::{MemberInfo, MemberState, SilentInfo};

/// What else is known of members, by name.
pub(super) struct Known {
    /// Those to which a link stands.
    pub(super) linked: BTreeSet<NodeName>,
    /// Those that this node is to be linked with; none: with all, as everywhere but in large networks.
    pub(super) wanted: Option<Arc<BTreeSet<NodeName>>>,
    /// Those that have said farewell, or are forgotten, and are not back.
    pub(super) gone: BTreeSet<NodeName>,
    /// Those that this node knew when it was started, and has not met since.
    pub(super) unmet: BTreeSet<NodeName>,
}

/// Their names: those that are silent or down, those that are up and to which a link is missing, and those that were not met. Not
/// those that have left or are forgotten, nor those that are up and that this node is linked with by way of others.
pub(super) fn unreached(
    members: &[MemberInfo],
    silent: Option<&SilentInfo>,
    known: &Known,
) -> BTreeSet<String> {
    let is_unreached = |member: &&MemberInfo| {
        let name = NodeName::new(&member.name).ok();
        name.is_some_and(|name| match member.state {
            // Of who is away, nobody knows more than the split monitoring: it may have left.
            MemberState::Myself | MemberState::Joining | MemberState::Left | MemberState::Away => {
                false
            }
            MemberState::Up | MemberState::Suspect => {
                let is_wanted = known.wanted.as_ref().is_none_or(|wanted| wanted.contains(&name));
                is_wanted && !known.linked.contains(&name)
            }
            MemberState::Down => !known.gone.contains(&name) && !known.linked.contains(&name),
        })
    };
    let down = members.iter().filter(is_unreached).map(|member| member.name.clone());
    let silent = silent.into_iter().flat_map(SilentInfo::names);
    let is_unmet = |name: &&NodeName| !known.linked.contains(*name) && !known.gone.contains(*name);
    let unmet = known.unmet.iter().filter(is_unmet).map(ToString::to_string);
    let is_still =
        |name: &&str| NodeName::new(name).is_ok_and(|name| !known.linked.contains(&name));
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
        let names = |names: &[&str]| -> BTreeSet<NodeName> {
            names.iter().map(|name| NodeName::new(name).unwrap()).collect()
        };
        let near = states.map(|(name, _)| name).into_iter().filter(|name| !name.starts_with("far"));
        let mut known = Known {
            linked: names(&["linked", "new"]),
            wanted: Some(Arc::new(names(&near.collect::<Vec<_>>()))),
            gone: names(&["farewell"]),
            unmet: BTreeSet::new(),
        };
        let told = unreached(&members, None, &known);
        assert!(told.iter().eq(["cut", "doubtful", "down"]), "{told:?}");
        // One that is linked again is not silent any more.
        let silent = silent(&["unseen", "down", "linked"]);
        let told = unreached(&members, Some(&silent), &known);
        assert!(told.iter().eq(["cut", "doubtful", "down", "unseen"]), "{told:?}");
        // A node that has just been started misses nobody yet.
        known.unmet = names(&["before", "linked", "farewell"]);
        let told = unreached(&members, None, &known);
        assert!(told.iter().eq(["before", "cut", "doubtful", "down"]), "{told:?}");
    }
}
