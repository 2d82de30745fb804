//! What a client may do to users and logins entry by entry, as to any data, and what only their own actions do. A user's
//! record is shown to nobody, so whoever stores one again wipes its secret and its role; and how clients log in is not to
//! change, nor is the last admin to go, by a request that does not look whether somebody can still log in then.
//!
//! What comes from peers and files is not asked.

use std::collections::BTreeSet;

use distkv_access::users::{Place, Removal, User, user_path};

use crate::model::meta::{AUTH_PATH, grace_end, login};
use crate::model::path::Path;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::server::connections::session::Context;

use super::last_admin::keep_without;
use super::unenforced::Writer;

/// Whether a client may change the entry at a whole path (canonical bytes) to this value; none: whether it may delete it.
///
/// # Errors
/// It may not; nothing was changed.
pub(in crate::server) fn check_entry(
    cx: &Context<'_>,
    writer: Writer,
    path: &[u8],
    value: Option<&[u8]>,
) -> Result<(), ClientError> {
    let Some(path) = path_of_access(path) else { return Ok(()) };
    let is = |user: &User, by: &str, name: &str| *user.method == *by && *user.ident == *name;
    match (Place::of(&path), value) {
        (Some(Place::User { method, ident }), Some(_)) => Err(stored_record(method, ident)),
        (Some(Place::User { method, ident }), None) => {
            keep_without(cx, writer, |user| is(user, method, ident))
        }
        // A list makes an admin a user, whatever it says.
        (Some(Place::UserAcl { method, ident } | Place::Removal { method, ident }), Some(_)) => {
            keep_without(cx, writer, |user| is(user, method, ident))
        }
        (Some(Place::Revoked { method, ident }), Some(value)) => {
            let again = Removal::read(value);
            keep_without(cx, writer, |user| {
                is(user, method, ident) && (again.is_none() || again != user.after)
            })
        }
        (Some(Place::Login), _) if value.is_some() || !writer.is_operator => check_login(cx, value),
        _ => Ok(()),
    }
}

/// Whether a client may delete all that is at a whole path and below.
///
/// # Errors
/// It may not; nothing was changed.
pub(in crate::server) fn check_tree(
    cx: &Context<'_>,
    writer: Writer,
    top: &Path,
) -> Result<(), ClientError> {
    if writer.is_operator || !top.as_bytes().starts_with(AUTH_PATH) {
        return Ok(());
    }
    if top.as_bytes() == AUTH_PATH {
        check_login(cx, None)?;
    }
    keep_without(cx, writer, |user| {
        user_path(&user.method, &user.ident).is_ok_and(|path| path.starts_with(top))
    })
}

/// Whether a client may delete the entries at these whole paths, some of those below a path that it may delete all of: in
/// between, others may have gone.
///
/// # Errors
/// It may not (any more); none of them was deleted.
pub(in crate::server) fn check_some(
    cx: &Context<'_>,
    writer: Writer,
    paths: &[Path],
) -> Result<(), ClientError> {
    let of_users = |path: &&Path| matches!(Place::of(path), Some(Place::User { .. }));
    let below = paths.iter().filter(|path| path.as_bytes().starts_with(AUTH_PATH));
    let records: BTreeSet<&Path> = below.filter(of_users).collect();
    if records.is_empty() {
        return Ok(());
    }
    keep_without(cx, writer, |user| {
        user_path(&user.method, &user.ident).is_ok_and(|path| records.contains(&path))
    })
}

/// A path below which users and lists are. Most changes are elsewhere, so its bytes are looked at first.
pub(super) fn path_of_access(path: &[u8]) -> Option<Path> {
    path.starts_with(AUTH_PATH).then(|| Path::from_canonical(path).ok())?
}

/// Why nobody stores a user's record.
fn stored_record(method: &str, ident: &str) -> ClientError {
    let text = format!(
        "the record of user {ident:?} (method {method:?}) is shown to nobody and not stored as an entry, which would wipe the \
         user's secret and role: use `distkv-node user add`, `user role`, `user password` or `user token` ('auth_set'); \
         nothing was changed"
    );
    ClientError::new(ErrorCode::Denied, text)
}

/// Whether the value leaves how clients log in as it is.
fn check_login(cx: &Context<'_>, value: Option<&[u8]>) -> Result<(), ClientError> {
    let directory = cx.shared.policy_data.directory(cx.hub);
    let (present, wanted) = (directory.login(), value.and_then(login));
    let is_same = present == wanted.as_ref()
        && (present.is_none() || directory.grace_end() == value.and_then(grace_end));
    if is_same && wanted.is_none_or(|login| login.is_known()) {
        return Ok(());
    }
    Err(ClientError::bad_request(
        "how clients log in is not changed by a change of the entry :n.auth: use `distkv-node auth on METHOD`, which looks \
         first whether somebody could still log in then, or `distkv-node auth off` ('set_auth_typ'); nothing was changed",
    ))
}
