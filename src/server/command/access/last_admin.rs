//! Whether an admin is left who can log in. Without one, nobody could change users or switch logins off any more. All that a
//! client can do to users and logins is asked here, by whichever action: nothing else decides it.
//!
//! The key's holders are admins without a record, and whoever runs a node with --ignore-auth can make another admin: so in a
//! network with a key, and of an operator, nothing is asked. What comes from peers is taken as it is.

use distkv_access::users::{Directory, Role, User};

use crate::model::meta::Login;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::server::connections::session::Context;

use super::unenforced::Writer;

/// What to do where there would be none.
const MAKE_ONE: &str =
    "(`distkv-node user add NAME --role admin`, `distkv-node user role NAME admin`)";

/// Whether an admin is left without the users of whom `goes` says that they are none any more.
///
/// # Errors
/// The last one would go; nothing was changed.
pub(in crate::server) fn keep_without(
    cx: &Context<'_>,
    writer: Writer,
    goes: impl Fn(&User) -> bool,
) -> Result<(), ClientError> {
    if is_never_shut_out(cx, writer) {
        return Ok(());
    }
    let directory = cx.shared.policy_data.directory(cx.hub);
    let Some(lost) = lost(&directory, directory.login(), |user| !goes(user)) else { return Ok(()) };
    Err(ClientError::bad_request(format!(
        "{}: without one, nobody could change users or switch logins off any more. Make another admin first {MAKE_ONE}, or \
         add --force to `distkv-node user remove`, `user role` or `user acl` ('force'); nothing was changed",
        lost.text()
    )))
}

/// Whether an admin can log in by this method; none: nobody needs to log in.
///
/// # Errors
/// None could, and one can now; nothing was changed.
pub(super) fn keep_with_method(
    cx: &Context<'_>,
    writer: Writer,
    method: Option<&str>,
) -> Result<(), ClientError> {
    if is_never_shut_out(cx, writer) {
        return Ok(());
    }
    let directory = cx.shared.policy_data.directory(cx.hub);
    let login = method.map(|method| Login::Method(method.into()));
    if lost(&directory, login.as_ref(), |_| true).is_none() {
        return Ok(());
    }
    Err(ClientError::bad_request(format!(
        "no admin can log in by the method {}, so nobody could change users or switch logins off any more. Make one first \
         {MAKE_ONE}, or add --force ('force'); nothing was changed",
        method.unwrap_or_default()
    )))
}

/// Whether an admin is left after a snapshot has been taken in.
///
/// # Errors
/// One can log in now, and none could then; nothing was taken in.
pub(in crate::server) fn keep_after(
    before: &Directory,
    after: &Directory,
) -> Result<(), ClientError> {
    let login = after.login();
    if after.users().any(|user| is_admin(user, login)) {
        return Ok(());
    }
    let Some(lost) = lost(before, login, |_| false) else { return Ok(()) };
    Err(ClientError::new(
        ErrorCode::Denied,
        format!(
            "{}, and is none any more by the snapshot, which makes nobody else one: nobody could change users or switch logins \
             off any more; nothing was taken in. --with-auth takes it in all the same",
            lost.text()
        ),
    ))
}

/// Whether there is always somebody who may change users.
pub(in crate::server) fn is_never_shut_out(cx: &Context<'_>, writer: Writer) -> bool {
    writer.is_operator || has_key(cx)
}

/// Whether the network has a key, also while it is being moved to it and asks for no login yet.
pub(in crate::server) fn has_key(cx: &Context<'_>) -> bool {
    cx.shared.logins.is_secured() || cx.shared.info.keys().is_some()
}

/// Who could be an admin before, where nobody can be one any more.
enum Lost<'d> {
    /// Everybody, because nobody needed to log in.
    Everybody,
    /// One who can log in, the last one by name.
    Last(&'d User),
}

impl Lost<'_> {
    fn text(&self) -> String {
        match self {
            Self::Everybody => String::from("nobody needs to log in now, so everybody is an admin"),
            Self::Last(User { ident, method, .. }) => {
                format!("{ident:?} (method {method:?}) is the last admin who can log in")
            }
        }
    }
}

/// The one decision. None: an admin is left, or there is none to lose. `login`: how clients log in afterwards; `stays`: of
/// the users who are admins now, who is one then.
fn lost<'d>(
    before: &'d Directory,
    login: Option<&Login>,
    stays: impl Fn(&User) -> bool,
) -> Option<Lost<'d>> {
    login?;
    if before.users().any(|user| is_admin(user, login) && stays(user)) {
        return None;
    }
    let Some(present) = before.login() else { return Some(Lost::Everybody) };
    before.users().filter(|user| is_admin(user, Some(present))).last().map(Lost::Last)
}

/// Whether this user can log in as an admin.
fn is_admin(user: &User, login: Option<&Login>) -> bool {
    user.role == Role::Admin && login.is_some_and(|login| login.admits(&user.method))
}
