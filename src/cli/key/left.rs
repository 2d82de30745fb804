//! Which keys the nodes have besides the one in use. Somebody may have added one by hand, at a node that is not the one that
//! was asked: so all of them are looked at.

use super::network::{NodeKeys, View};
use crate::secure::key::KeyId;
use crate::secure::key_ring::RingSummary;
use crate::secure::rotation::Plan;

/// A key that is behind the one in use, so somebody may be about to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unused {
    pub(super) id: KeyId,
    /// The nodes that have it, where the one that was asked has not.
    pub(super) at: Vec<String>,
}

/// The node that was asked.
pub(super) fn own(view: &View) -> Option<&NodeKeys> {
    view.nodes.iter().find(|node| node.state == "self")
}

fn ring(node: &NodeKeys) -> Option<RingSummary> {
    Some(RingSummary { ids: node.keys.clone()?, primary: node.primary? })
}

/// The key that is in use at the node that was asked in the place of one that was in use there: somebody else has changed
/// it since. The others follow.
pub(super) fn overtaken(view: &View, used: KeyId) -> Option<KeyId> {
    own(view)?.primary.filter(|primary| *primary != used)
}

/// The keys that are older than those in use: first those of the node that was asked, then those that only others have.
pub(super) fn old_keys(view: &View) -> Vec<KeyId> {
    let Some(own) = own(view).and_then(ring) else { return Vec::new() };
    let mut old = Plan::of(&own).old;
    for id in view.nodes.iter().filter_map(ring).flat_map(|ring| Plan::of(&ring).old) {
        let in_use = view.nodes.iter().any(|node| node.primary == Some(id));
        if !in_use && !own.ids.contains(&id) && !old.contains(&id) {
            old.push(id);
        }
    }
    old
}

/// The keys that only other nodes than the one that was asked have, but for these.
pub(super) fn elsewhere(view: &View, but: &[KeyId]) -> Vec<Unused> {
    let known = own(view).and_then(|own| own.keys.clone()).unwrap_or_default();
    let mut found: Vec<Unused> = Vec::new();
    for node in &view.nodes {
        for id in node.keys.iter().flatten() {
            if known.contains(id) || but.contains(id) {
                continue;
            }
            match found.iter_mut().find(|unused| unused.id == *id) {
                Some(unused) => unused.at.push(node.name.clone()),
                None => found.push(Unused { id: *id, at: vec![node.name.clone()] }),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> KeyId {
        KeyId([byte; 4])
    }

    fn node(name: &str, state: &str, ids: &[u8], primary: u8) -> NodeKeys {
        NodeKeys {
            name: name.to_owned(),
            state: state.to_owned(),
            keys: Some(ids.iter().copied().map(id).collect()),
            primary: Some(id(primary)),
            trouble: None,
        }
    }

    #[test]
    fn keys_of_all_nodes_are_told_apart_by_their_place() {
        let unheard = NodeKeys { keys: None, primary: None, ..node("d", "away", &[], 0) };
        let nodes = vec![
            node("b", "up", &[1, 7, 2, 8], 2),
            node("a", "self", &[1, 2], 2),
            node("c", "up", &[2, 8], 2),
            unheard,
        ];
        let view = View { nodes, shared: Vec::new() };
        assert_eq!(own(&view).map(|own| own.name.as_str()), Some("a"));
        let old = old_keys(&view);
        assert_eq!(old, [id(1), id(7)], "those of the node that was asked come first");
        let at = vec![String::from("b"), String::from("c")];
        assert_eq!(elsewhere(&view, &old), [Unused { id: id(8), at }]);
    }

    #[test]
    fn a_rotation_is_overtaken_when_the_node_that_was_asked_uses_another_key_again() {
        let view = |primary| {
            let nodes =
                vec![node("b", "up", &[1, 2, 3], 2), node("a", "self", &[1, 2, 3], primary)];
            View { nodes, shared: Vec::new() }
        };
        assert_eq!(overtaken(&view(2), id(2)), None, "others may be slow");
        assert_eq!(overtaken(&view(3), id(2)), Some(id(3)));
        let mut unknown = view(3);
        unknown.nodes[1].primary = None;
        assert_eq!(overtaken(&unknown, id(2)), None);
    }

    #[test]
    fn what_the_node_that_was_asked_has_is_judged_by_its_keys_and_what_others_use_is_not_old() {
        let nodes = vec![
            node("a", "self", &[1, 2, 3], 2),
            node("b", "away", &[1, 2], 1),
            node("c", "away", &[2, 3, 9], 9),
            node("d", "away", &[9, 4], 4),
        ];
        assert_eq!(old_keys(&View { nodes, shared: Vec::new() }), [id(1)]);
    }
}
