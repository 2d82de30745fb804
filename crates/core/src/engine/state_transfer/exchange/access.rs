//! The part of a state that says who may use it: how clients log in, users, and access lists. It belongs to the network that
//! the state is of. In another network, the same names would be other people's, so a state can be taken in without it.

use std::collections::BTreeSet;

use super::entries_alone;
use crate::engine::Image;
use crate::model::entry::Entry;
use crate::model::meta::Family;
use crate::model::path::{Element, Path};
use crate::tree::Tree;

/// The families of entries that are about access.
const FAMILIES: [Family; 2] = [Family::Auth, Family::Acl];

/// How much of a state is about access. Deleted entries do not count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AccessPart {
    /// Users, of all methods.
    pub users: u64,
    /// Access lists.
    pub lists: u64,
}

impl AccessPart {
    /// Counts what is in a tree.
    #[must_use]
    pub fn of(tree: &Tree) -> Self {
        let valued = below(tree).filter(|(_, entry)| entry.value().is_some());
        Self::of_paths(valued.map(|(path, _)| path))
    }

    /// Counts what is at paths that have a value, each path once.
    pub(super) fn of_paths<'p>(paths: impl Iterator<Item = &'p Path>) -> Self {
        let (mut users, mut lists) = (0, BTreeSet::new());
        for path in paths.filter(|path| path.is_system()) {
            let elements: Vec<_> = path.elements().skip(1).collect();
            match *elements.as_slice() {
                [Element::Str("auth"), Element::Str(_), Element::Str("user"), Element::Str(_)] => {
                    users += 1
                }
                [Element::Str("acl"), Element::Str(name), ..] => {
                    lists.insert(name);
                }
                _ => {}
            }
        }
        Self { users, lists: lists.len() as u64 }
    }
}

/// The entries of a tree that are about access, deleted ones included.
fn below(tree: &Tree) -> impl Iterator<Item = (&Path, &Entry)> {
    let tops = FAMILIES.map(|family| Path::system_root().push(Element::Str(family.name())));
    tops.into_iter().flatten().flat_map(|top| tree.subtree(&top))
}

/// The image without what is about access; none if there is nothing of that in it. It does not claim to know what was
/// left out, so that can be taken in later.
#[must_use]
pub fn without_access(image: &Image) -> Option<Image> {
    let paths: Vec<Path> = below(&image.replica.tree).map(|(path, _)| path.clone()).collect();
    if paths.is_empty() {
        return None;
    }
    let mut rest = image.clone();
    for path in &paths {
        rest.replica.tree.remove(path);
    }
    Some(entries_alone(rest))
}
