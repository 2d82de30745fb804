//! What the tree says of a user's removals, and how one is written.
//!
//! Each has an entry of its own, so that whoever makes the user again takes away those that are known there, and no
//! other: a removal that was made elsewhere at the same time counts.

use distkv_access::users::{Place, Removal, Removals, removal_path, revoked_path};

use crate::model::path::{Path, PathError};
use crate::protocol::client::ClientError;
use crate::replica::write::Write;
use crate::rt;
use crate::server::connections::session::Context;
use crate::tree::Tree;

use super::change::{ANY, Change, Wanted, make, too_long};
use super::login::random;

/// See the module.
#[derive(Default)]
pub(super) struct Known {
    pub(super) removals: Removals,
    /// Where those are that nobody has known of who made the user again.
    open: Vec<Path>,
}

impl Known {
    pub(super) fn of(tree: &Tree, method: &str, user: &str) -> Result<Self, ClientError> {
        let revoked = revoked_path(method, user).map_err(too_long)?;
        let mut known = Self::default();
        for (path, entry) in tree.subtree(&revoked) {
            let Some(value) = entry.value() else { continue };
            match Place::of(path) {
                Some(Place::Revoked { .. }) => known.removals.last = Some(value.into()),
                Some(Place::Removal { .. }) => known.open.push(path.clone()),
                _ => {}
            }
        }
        known.removals.is_open = !known.open.is_empty();
        Ok(known)
    }

    /// Takes the open ones away: there is another one, or the user was made again. Returns the log's batch with the last.
    pub(super) fn take_open(&self, cx: &Context<'_>) -> Result<u64, ClientError> {
        let mut number = 0;
        for path in &self.open {
            let wanted = Wanted { path, value: None, held: ANY, is_checked: false };
            number = make(cx, wanted)?.number.max(number);
        }
        Ok(number)
    }
}

/// Writes that a user is no more. Returns the first change, with the number of the last.
///
/// # Errors
/// Nothing was changed, or not all of it: then it can be done again.
pub(super) fn write_removal(
    cx: &Context<'_>,
    method: &str,
    user: &str,
) -> Result<Change, ClientError> {
    let [last, own] = places(method, user, Removal(random()?)).map_err(too_long)?;
    let value = Removal::removed();
    let wanted = |path| Wanted { path, value: Some(&value[..]), held: ANY, is_checked: true };
    let mut first = make(cx, wanted(&last))?;
    // The first is a change of the policies itself.
    let second = make(cx, Wanted { is_checked: false, ..wanted(&own) })?;
    first.number = first.number.max(second.number);
    Ok(first)
}

/// The same of a user whose record was deleted by a change of the entry itself, as the original's tools do it.
pub(super) fn write_removal_for_record(cx: &Context<'_>, method: &str, user: &str) {
    let Ok(id) = rt::random_bytes() else { return };
    let Ok(places) = places(method, user, Removal(id)) else { return };
    let value = Removal::removed();
    for path in &places {
        let write = Write { idempotent: true, ..Write::new(path, Some(&value)) };
        if let (Err(error), _) = cx.hub.write(write, false) {
            tracing::warn!(%error, user, "a change of this user that is made elsewhere could bring it back");
        }
    }
}

/// Where it is written that a user is no more: where each such entry is overwritten by the next, which is all that older
/// nodes look at, and where this one is.
fn places(method: &str, user: &str, removal: Removal) -> Result<[Path; 2], PathError> {
    Ok([revoked_path(method, user)?, removal_path(method, user, removal)?])
}
