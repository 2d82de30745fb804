//! Changes of users: who may make them, and how often users change themselves.

use crate::model::ids::Millis;
use crate::protocol::client::auth::UserChange;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::server::access::authorise::{Denied, Target};
use crate::server::access::methods::{PASSWORD, TOKEN};
use crate::server::access::mistakes::Mistake;
use crate::server::connections::session::{Context, Session};

use distkv_access::users::{OneUser, Role};

/// Who makes a change of a user.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Somebody who may change everybody.
    Admin,
    /// The user itself.
    Own,
}

impl Session {
    /// Whether the client may make this change: an admin each, and a user a new secret of its own, or the end of its own
    /// connections.
    pub(super) fn check_may_set(
        &self,
        cx: &Context<'_>,
        change: &UserChange<'_>,
    ) -> Result<By, ClientError> {
        let action = change.action();
        self.authorise(cx, action, Target::Node)?;
        let is_planted = cx.access.makes(Mistake::Action(action));
        if cx.access.role == Some(Role::Admin) || is_planted {
            return Ok(By::Admin);
        }
        let is_own = self.identity.is_named(change.method, change.user);
        let sets_secret = change.secret.is_some()
            || change.sealed.is_some()
            // The node makes one.
            || (change.method == TOKEN && !change.disconnects);
        // Users without a secret are all the same to a node: none of them ends the others.
        let has_secret = matches!(change.method, PASSWORD | TOKEN);
        let is_permitted = sets_secret || (change.disconnects && has_secret);
        if !(is_own && change.acl.is_none() && change.role.is_none() && is_permitted) {
            let denied = Denied::Role { action, needed: Role::Admin };
            return Err(denied.error(Target::Node, &cx.access));
        }
        if sets_secret && self.shown_identity().is_none() {
            let text = "this connection is logged in by a certificate only, which sets no secret: log in with the present \
                        one, or have an admin set another one; nothing was changed";
            return Err(ClientError::new(ErrorCode::Denied, text));
        }
        self.check_knows_secret(cx)?;
        Ok(By::Own)
    }

    /// Whether the secret that the client logged in with is still the user's: whoever has an old one must not replace the new
    /// one by it, over a connection of before. A change of the record at this moment is one of the policies, after which
    /// nothing that was checked before is done.
    fn check_knows_secret(&self, cx: &Context<'_>) -> Result<(), ClientError> {
        let directory = cx.shared.policy_data.directory(cx.hub);
        let present = self.identity.user(&directory).map(|user| &user.secret);
        let known = self.guest.secret.as_ref();
        if known.zip(present).is_some_and(|(known, present)| known.is_that_of(present)) {
            return Ok(());
        }
        let text = "the secret was replaced since this connection logged in; log in with the new one; nothing was changed";
        Err(ClientError::new(ErrorCode::Denied, text))
    }
}

/// Whether a change that a user wants to make of itself would be taken now: to be asked before much is computed for it.
///
/// # Errors
/// It has made too many.
pub(super) fn check_own(cx: &Context<'_>, by: By, user: OneUser<'_>) -> Result<(), ClientError> {
    if by == By::Admin {
        return Ok(());
    }
    match cx.shared.logins.own_changes.lock().wait(user, cx.now) {
        0 => Ok(()),
        wait => Err(too_often(wait)),
    }
}

/// A user is about to change itself: counts that.
///
/// # Errors
/// It has done so too often. Nothing was changed.
pub(super) fn take_own(cx: &Context<'_>, by: By, user: OneUser<'_>) -> Result<(), ClientError> {
    if by == By::Admin {
        return Ok(());
    }
    let taken = cx.shared.logins.own_changes.lock().take(user, cx.now);
    taken.map_err(too_often)
}

fn too_often(wait: Millis) -> ClientError {
    let text = format!(
        "this user has set its secret, or ended its connections, too often at this node; nothing was changed; try again in \
         {} s, or have an admin do it, who need not wait",
        wait.div_ceil(1_000)
    );
    ClientError::new(ErrorCode::TooMany, text)
}
