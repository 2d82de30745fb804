//! `auth_delete`, `auth_get` and `set_auth_typ`: users who go, what one may do, and how they log in; and what a change of a
//! user's entries by other actions brings with it.

use distkv_access::users::{
    Disconnect, GRACE_MS_MAX, Place, Record, User, is_list_name, user_acl_path, user_path,
};

use crate::model::entry::Entry;
use crate::model::invariant::OrBroken;
use crate::model::meta::{AUTH_PATH, Family, GRACE, METHODS};
use crate::model::path::Path;
use crate::model::value::{write_map_len, write_nil, write_str, write_u64};
use crate::protocol::client::reply::StreamTag;
use crate::protocol::client::request::ChainLength;
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::replica::write::{ChainCondition, Precondition, Write};
use crate::rt;
use crate::server::access::authorise::Target;
use crate::server::access::methods;
use crate::server::connections::session::{Context, NodeNames, Session, Then};

use super::change::{ANY, Change, There, Wanted, make, too_long};
use super::entries::path_of_access;
use super::last_admin::{keep_with_method, keep_without};
use super::removal::{write_removal, write_removal_for_record};

impl Session {
    /// `auth_delete`: the user is no more. That is an entry of its own, so no change of the user that others make
    /// at the same time brings it back; `auth_set` does.
    pub(super) fn delete_user(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        (method, user): (&str, &str),
        force: bool,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::AuthDelete, Target::Node)?;
        Self::check_ready(cx)?;
        cx.check_storage()?;
        let path = user_path(method, user).map_err(too_long)?;
        let There { entry, known, .. } = There::look_up(cx, method, user, &path)?;
        if entry.as_ref().is_none_or(Entry::is_tombstone) {
            return Err(no_user(method, user));
        }
        if !force {
            keep_without(cx, self.writer(cx), is_named(method, user))?;
        }
        let acl_path = user_acl_path(method, user).map_err(too_long)?;
        let mut made = write_removal(cx, method, user)?;
        // Of the same user, one is enough.
        made.number = made.number.max(known.take_open(cx)?);
        for path in [&acl_path, &path] {
            let wanted = Wanted { path, value: None, held: ANY, is_checked: false };
            made.number = made.number.max(make(cx, wanted)?.number);
        }
        made.written.changed = true;
        tracing::info!(method, user, "a user was removed");
        self.answer_change(cx, StreamTag { seq, wseq: None }, &made, (None, None), out);
        Ok(Then::Continue)
    }

    /// `auth_get`: whether there is a user, and what it may do.
    pub(super) fn get_user(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        (method, name): (&str, &str),
        chain: ChainLength,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::AuthGet, Target::Node)?;
        Self::check_ready(cx)?;
        let directory = cx.shared.policy_data.directory(cx.hub);
        let user = directory.user(method, name).ok_or_else(|| no_user(method, name))?;
        let path = user_path(method, name).map_err(too_long)?;
        let (entry, names) =
            cx.hub.read(|engine| (engine.get(path.as_bytes()).cloned(), NodeNames::of(engine)));
        let mut message = MessageWriter::new(out);
        if let Some(entry) = entry.filter(|_| !chain.is_none()) {
            names.names().write_chain(&entry, chain, message.key("chain"));
        }
        // The original's command line asks for a name, which the original does not send.
        message.str("name", name).str("role", user.role.name());
        if let Some(acl) = &user.acl {
            message.str("acl", acl);
        }
        if let Some(Disconnect(id)) = &user.disconnect {
            message.bin("disconnect", id);
        }
        message.u64("seq", seq).tock(cx.tock());
        Ok(Then::Continue)
    }

    /// `set_auth_typ`: which method clients must use, or that they need not log in.
    pub(super) fn set_method(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        (method, grace_ms): (Option<&str>, Option<u64>),
        force: bool,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::SetAuthTyp, Target::Node)?;
        Self::check_ready(cx)?;
        cx.check_storage()?;
        if let Some(method) = method {
            check_method(cx, method)?;
            let directory = cx.shared.policy_data.directory(cx.hub);
            if !directory.users().any(|user| *user.method == *method) {
                let text = format!(
                    "You didn't configure this method yet: {method:?} has no users; nothing was changed"
                );
                return Err(ClientError::bad_request(text));
            }
        }
        // Whether there is such a time at all: it counts for those who have not logged in.
        let grace_ms = grace_ms.filter(|_| method.is_some());
        if grace_ms.is_some_and(|grace| grace > GRACE_MS_MAX) {
            let text = format!(
                "bad field 'grace_ms': at most {GRACE_MS_MAX} ms, a week; nothing was changed"
            );
            return Err(ClientError::bad_request(text));
        }
        if !force {
            keep_with_method(cx, self.writer(cx), method)?;
        }
        let mut value = Vec::new();
        write_map_len(1 + usize::from(grace_ms.is_some()), &mut value);
        write_str("current", &mut value);
        match method {
            Some(method) => write_str(method, &mut value),
            None => write_nil(&mut value),
        }
        if let Some(grace) = grace_ms {
            write_str(GRACE, &mut value);
            write_u64(rt::wall_clock_ms().saturating_add(grace), &mut value);
        }
        let path = Path::from_canonical(AUTH_PATH).or_broken("it is a path");
        let wanted = Wanted { path: &path, value: Some(&value), held: ANY, is_checked: true };
        let made = make(cx, wanted)?;
        tracing::info!(method, "how clients log in was set");
        let old = made.written.old.clone();
        let prev = old.as_ref().and_then(Entry::value).filter(|_| made.written.is_made);
        self.answer_change(cx, StreamTag { seq, wseq: None }, &made, (prev, None), out);
        Ok(Then::Continue)
    }

    /// Writes the reply to a change. If the client may do nothing any more because of it, that reply is its last.
    pub(super) fn answer_change(
        &mut self,
        cx: &Context<'_>,
        tag: StreamTag,
        made: &Change,
        (prev, extra): (Option<&[u8]>, Option<(&'static str, &str)>),
        out: &mut Vec<u8>,
    ) {
        let from = out.len();
        let mut message = MessageWriter::new(out);
        message.bool("changed", made.written.changed);
        if let Some(prev) = prev {
            message.raw("prev", prev);
        }
        let tock = match &made.written.entry {
            Some(entry) => {
                let chain = message.key("chain");
                made.names.names().write_chain(entry, ChainLength::WHOLE, chain);
                entry.tock()
            }
            None => cx.tock(),
        };
        message.tock(tock).tag(tag);
        if let Some((name, text)) = extra {
            message.str(name, text);
        }
        self.unsynced.note(from, out.len(), made.number, tag);
        self.part_if_shut_out(cx, out.get(from..).unwrap_or_default());
    }

    /// Keeps the reply as the last one that the client gets, if it may do nothing any more.
    pub(super) fn part_if_shut_out(&mut self, cx: &Context<'_>, reply: &[u8]) {
        if self.has_shut_itself_out(cx) {
            self.guest.parting = reply.to_vec();
        }
    }

    /// Whether the client may do nothing any more, as of now, after its own change.
    pub(super) fn has_shut_itself_out(&mut self, cx: &Context<'_>) -> bool {
        self.context(cx.shared, cx.now).access.is_stranger()
    }
}

/// An access list that is written to has a name that can be given to a user.
///
/// # Errors
/// `bad_request`: it has not; nothing was changed. What is there already can be read, and deleted.
pub(in crate::server) fn check_list_name(path: &[u8]) -> Result<(), ClientError> {
    if Family::of(path) != Some(Family::Acl) {
        return Ok(());
    }
    match Path::from_canonical(path).as_ref().ok().and_then(Place::of) {
        Some(Place::Pattern { name, .. }) if !is_list_name(name) => {
            Err(ClientError::bad_request(format!(
                "no access list can be named {name:?}: for a user, '*' is all data, and '-' no list; nothing was changed"
            )))
        }
        _ => Ok(()),
    }
}

/// The record of a user was deleted by a change of the entry itself, as the original's tools do it: that removes the
/// user as [`Session::delete_user`] does, so that no change made elsewhere at the same time brings it back.
pub(in crate::server) fn remove_for_record(cx: &Context<'_>, path: &[u8]) {
    let Some(path) = path_of_access(path) else { return };
    if let Some(Place::User { method, ident }) = Place::of(&path) {
        write_removal_for_record(cx, method, ident);
    }
}

/// An access list is set for a user, or taken away, by a change of the entry itself, as the original's tools
/// do it: an admin becomes a user, so that removing the list gives nothing back. To be called behind the former, where
/// the list makes it a user already, and before the latter.
pub(in crate::server) fn demote_for_list(cx: &Context<'_>, path: &[u8]) {
    let Some(path) = path_of_access(path) else { return };
    let Some(Place::UserAcl { method, ident }) = Place::of(&path) else { return };
    let Ok(path) = user_path(method, ident) else { return };
    let Some(entry) = cx.hub.read(|engine| engine.get(path.as_bytes()).cloned()) else { return };
    let record = entry.value().and_then(|value| Record::read(value).ok());
    // What is no record gives no rights. And a record that cannot be written again, because a role would be one field too many or
    // make the value too long, has none: its user is none of the admins, with the list and without it.
    let Some(value) = record.and_then(|record| record.before_acl()).and_then(|r| r.write().ok())
    else {
        return;
    };
    let precondition = Precondition::chain(ChainCondition::Newest(entry.newest()));
    let write = Write { precondition, ..Write::new(&path, Some(value.as_bytes())) };
    if let (Err(error), _) = cx.hub.write(write, false) {
        // With the list it is a user all the same; only without it, later, it would be an admin.
        tracing::warn!(%error, user = ident, "the record of a user still says that it is an admin");
    }
}

/// Whether a user is the one of this name.
pub(super) fn is_named(method: &str, ident: &str) -> impl Fn(&User) -> bool {
    move |user| *user.method == *method && *user.ident == *ident
}

pub(super) fn check_method(cx: &Context<'_>, method: &str) -> Result<(), ClientError> {
    if !METHODS.contains(&method) {
        let text = format!("there is no login method {method:?}; nothing was changed");
        return Err(ClientError::bad_request(text));
    }
    if methods::asks_for_nothing(method) && cx.shared.logins.is_secured() {
        let text = format!(
            "the method {method:?} asks for no secret, so this node, which has a key, does not take it; \
             nothing was changed"
        );
        return Err(ClientError::new(ErrorCode::Denied, text));
    }
    Ok(())
}

pub(super) fn no_user(method: &str, name: &str) -> ClientError {
    let text = format!("there is no user {name:?} of the method {method:?}");
    ClientError::new(ErrorCode::NotFound, text)
}
