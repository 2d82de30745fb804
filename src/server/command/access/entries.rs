//! What a client may do to users and logins entry by entry, as to any data, and what only their own actions do. A user's
//! record is shown to nobody, so whoever stores one again wipes its secret and its role; and how clients log in is not to
//! change, nor is the last admin to go, by a request that does not look whether somebody can still log in then.
//!
//! What comes from peers and files is not asked.

use distkv_access::users::{Place, Role, User, user_path};

use crate::model::meta::{AUTH_PATH, grace_end, login};
use crate::model::path::Path;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::server::connections::session::Context;

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
    match (Place::of(&path), value) {
        (Some(Place::User { method, ident }), Some(_)) => Err(stored_record(method, ident)),
        (Some(Place::User { method, ident }), None) if !writer.is_operator => {
            check_admins(cx, |user| *user.method == *method && *user.ident == *ident)
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
    check_admins(cx, |user| {
        user_path(&user.method, &user.ident).is_ok_and(|path| path.starts_with(top))
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

/// Whether an admin is left who can log in, where there is one. The key's holders are admins without a record, and where
/// nobody needs to log in, anybody makes another one.
fn check_admins(cx: &Context<'_>, goes: impl Fn(&User) -> bool) -> Result<(), ClientError> {
    let directory = cx.shared.policy_data.directory(cx.hub);
    let Some(login) = directory.login().filter(|_| !cx.shared.logins.is_secured()) else {
        return Ok(());
    };
    let is_admin = |user: &&User| user.role == Role::Admin && login.admits(&user.method);
    let mut last = None;
    for user in directory.users().filter(is_admin) {
        if !goes(user) {
            return Ok(());
        }
        last = Some(user);
    }
    let Some(User { method, ident, .. }) = last else { return Ok(()) };
    Err(ClientError::bad_request(format!(
        "{ident:?} (method {method:?}) is the last admin who can log in: without one, nobody could change users or switch \
         logins off any more. Make another admin first (`distkv-node user role NAME admin`), or use `distkv-node user remove`; \
         nothing was changed"
    )))
}
