//! `auth_set`, `auth_disconnect`, `auth_delete`, `auth_get` and `set_auth_typ`: users, and how they log in. Of what is secret, a
//! reply has a token that was made just now, and nothing else.

use distkv_access::secret::{PasswordHash, Secret, Sent, TOKEN_BYTES, TokenHash, token_text};
use distkv_access::users::{
    DISCONNECT_BYTES, Disconnect, GRACE_MS_MAX, NO_LIST, OneUser, Place, REMOVAL_BYTES, Record,
    Removal, Role, User, acl_name_value, is_list_name, revoked_path, user_acl_path, user_path,
};

use crate::model::entry::Entry;
use crate::model::invariant::OrBroken;
use crate::model::meta::{AUTH_PATH, Family, GRACE, METHODS};
use crate::model::path::Path;
use crate::model::value::{write_map_len, write_nil, write_str, write_u64};
use crate::protocol::client::auth::UserChange;
use crate::protocol::client::chain::ChainField;
use crate::protocol::client::reply::StreamTag;
use crate::protocol::client::request::ChainLength;
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::replica::write::{ChainCondition, Precondition, Write};
use crate::rt;
use crate::server::access::authorise::Target;
use crate::server::access::guest::Made;
use crate::server::access::methods::{self, PASSWORD, TOKEN};
use crate::server::connections::session::{Context, NodeNames, Session, Then};

use super::change::{ANY, Change, There, Wanted, has_list, held, make, take_list, too_long};
use super::entries::path_of_access;
use super::last_admin::{keep_with_method, keep_without};
use super::login::random;
use super::own::{check_own, take_own};
use super::removal::{write_removal, write_removal_for_record};

/// Why nobody is made an admin who has a list: it makes an admin a user.
const LISTED_ADMIN: &str = "who has an access list is no admin; nothing was changed. Give no list, or take it away \
                            first (`distkv-node user acl NAME -`)";
/// Least characters of a token that a client chose: it is not hashed slowly.
const TOKEN_CHARS_MIN: usize = 32;

impl Session {
    /// `auth_set`: makes a user, or changes one. `auth_disconnect`: ends the connections of one who is there.
    pub(super) fn set_user(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        change: &UserChange<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        let by = self.check_may_set(cx, change)?;
        if change.confirm_ms.is_some() {
            self.check_count(cx, 1)?;
        }
        Self::check_ready(cx)?;
        cx.check_storage()?;
        check_name(cx, change.method, change.user)?;
        let role = change.role.map(read_role).transpose()?;
        let path = user_path(change.method, change.user).map_err(too_long)?;
        let there = There::look_up(cx, change.method, change.user, &path)?;
        let (entry, known) = (there.entry.as_ref(), &there.known);
        let record = entry.and_then(Entry::value).and_then(|v| Record::read(v).ok());
        // A record of somebody who did not know of the removal gives a new one nothing: neither secret nor role.
        let record = record.filter(|record| record.is_in_force(&known.removals));
        if change.disconnects && record.is_none() {
            return Err(no_user(change.method, change.user));
        }
        // Its own changes are counted for this one of that name: what it changes of itself is never that.
        let after = record.as_ref().and_then(|record| record.after);
        let one = OneUser { method: change.method, ident: change.user, after };
        let held = held(&change.chain, entry.filter(|_| record.is_none()))?;
        let again = match known.removals.is_any() && record.is_none() {
            true => Some(Removal(random::<REMOVAL_BYTES>()?)),
            false => None,
        };
        let keeps_list = again.is_none() && change.acl.is_none();
        if role == Some(Role::Admin)
            && (change.acl.is_some_and(|list| list != NO_LIST)
                || (keeps_list && has_list(cx, change.method, change.user)?))
        {
            there.check(held)?;
            return Err(ClientError::bad_request(LISTED_ADMIN));
        }
        let mut token = None;
        let changes_more = change.acl.is_some() || role.is_some();
        let sent = self.sent_secret(change.secret, change.sealed)?;
        let secret = match (&record, change.method, sent) {
            (_, PASSWORD, Some(sent)) => match self.guest.made(seq).transpose()? {
                None => {
                    check_own(cx, by, one)?;
                    let salt = random()?;
                    let work = move || Made::Hashed(PasswordHash::new(&sent, salt));
                    return self.compute(cx, seq, work);
                }
                Some(Made::Hashed(Ok(hash))) => Some(Secret::Password(hash)),
                Some(_) => {
                    let text = "the password could not be hashed; nothing was changed";
                    return Err(ClientError::new(ErrorCode::Internal, text));
                }
            },
            (_, TOKEN, Some(sent)) => {
                check_token(change)?;
                Some(Secret::Token(TokenHash::of(&sent)))
            }
            // The secret stays.
            (Some(_), PASSWORD | TOKEN, None) if changes_more || change.disconnects => None,
            (_, PASSWORD, None) => {
                let text = "the field 'password' (or 'secret') is missing; nothing was changed";
                return Err(ClientError::bad_request(text));
            }
            (_, TOKEN, None) => {
                let text = token_text(&random::<TOKEN_BYTES>()?);
                let hash = TokenHash::of(&Sent::of_text(&text));
                token = Some(text);
                Some(Secret::Token(hash))
            }
            _ => None,
        };
        // Whoever asks for somebody new means just this one: with no list, and as an admin, unless the request says more.
        let new = match (&change.chain, &record, &secret) {
            // Without a secret, one that is made is wanted: the present one is not it.
            (ChainField::New, Some(_), None) if matches!(change.method, PASSWORD | TOKEN) => None,
            (ChainField::New, Some(present), secret) => {
                let mut new = new_record(None, (*secret).clone(), role, change.acl.is_some());
                (new.after, new.disconnect) = (present.after, present.disconnect);
                Some(new)
            }
            _ => None,
        };
        let asks_for_new = matches!(change.chain, ChainField::New);
        // Nor does a list that somebody gave who did not know of the removal. A list makes who is made without a role, an
        // admin otherwise, a user: there it stays.
        let is_listless = again.is_some() && change.acl.is_none() && role.is_some();
        let mut record = new_record(record, secret, role, change.acl.is_some());
        record.after = again.or(record.after);
        if change.disconnects {
            record.disconnect = Some(Disconnect(random::<DISCONNECT_BYTES>()?));
        }
        let value = record.write().map_err(|e| ClientError::bad_request(e.to_string()))?;
        let list = change.acl.map(|list| (list != NO_LIST).then(|| acl_name_value(list)));
        // What is so already is no change: so a client that does not know whether it arrived can send it again.
        let is_so = match (asks_for_new, new) {
            (false, _) => there.is(value.as_bytes(), list.as_ref().map(Option::as_deref)),
            (true, None) => false,
            (true, Some(new)) => {
                let new = new.write().map_err(|e| ClientError::bad_request(e.to_string()))?;
                there.is(new.as_bytes(), Some(list.as_ref().and_then(Option::as_deref)))
            }
        };
        if !is_so {
            there.check(held)?;
            take_own(cx, by, one)?;
        }
        if record.role != Some(Role::Admin) && !change.force {
            keep_without(cx, self.writer(cx), is_named(change.method, change.user))?;
        }
        let is_cleared = is_listless && take_list(cx, change.method, change.user)?;
        let wanted = Wanted {
            path: &path,
            value: Some(value.as_bytes()),
            held,
            // What was cleared was checked, and is a change of the policies itself.
            is_checked: !is_cleared,
        };
        let mut made = make(cx, wanted)?;
        let disconnect = record.disconnect.filter(|_| change.disconnects);
        if self.identity.is_named(change.method, change.user) {
            self.guest.secret = Some(record.secret);
        }
        // Each of these alone, too, gives less than all together.
        if let Some(value) = list {
            let acl_path = user_acl_path(change.method, change.user).map_err(too_long)?;
            // A record that was written is a change of the policies itself. Of one that stayed, what was checked holds
            // only while nothing else has come in between.
            let is_checked = !made.written.is_made;
            let value = value.as_deref();
            let list = make(cx, Wanted { path: &acl_path, value, held: ANY, is_checked })?;
            made.written.changed |= list.written.changed;
            made.number = made.number.max(list.number);
        }
        if let Some(removal) = again {
            let revoked = revoked_path(change.method, change.user).map_err(too_long)?;
            let value = Some(&removal.made_again()[..]);
            let wanted = Wanted { path: &revoked, value, held: ANY, is_checked: false };
            made.number = made.number.max(make(cx, wanted)?.number).max(known.take_open(cx)?);
            made.written.changed = true;
        }
        let (method, user) = (change.method, change.user);
        if let Some(disconnect) = disconnect {
            tracing::info!(method, user, "the connections of a user are ended");
            self.answer_disconnect(cx, seq, (&made, disconnect), change.confirm_ms, out);
            return Ok(Then::Continue);
        }
        tracing::info!(method, user, "a user was set");
        let extra = token.as_deref().map(|token| ("token", token));
        if change.is_dialogue {
            self.end_dialogue(cx, seq, &made, out);
        } else {
            self.answer_change(cx, StreamTag { seq, wseq: None }, &made, (None, extra), out);
        }
        Ok(Then::Continue)
    }

    /// All that the server says in the original's dialogue about a new user. Its questions are for a name that was in the
    /// request; so nothing waits for the client's part.
    fn end_dialogue(&mut self, cx: &Context<'_>, seq: u64, made: &Change, out: &mut Vec<u8>) {
        let is_counted = self.window.is_some();
        let tag = |n: u64| StreamTag { seq, wseq: is_counted.then_some(n) };
        let say = |n, key, text, out: &mut Vec<u8>| {
            MessageWriter::new(out).str(key, text).tag(tag(n)).tock(cx.tock());
        };
        say(1, "state", "start", out);
        say(2, "step", "GiveName", out);
        self.answer_change(cx, tag(3), made, (None, None), out);
        say(4, "state", "end", out);
    }

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
    fn answer_change(
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

/// What the record says from now on.
fn new_record(
    old: Option<Record>,
    secret: Option<Secret>,
    role: Option<Role>,
    has_list: bool,
) -> Record {
    let mut record = match (old, secret) {
        (Some(old), Some(secret)) => old.with_secret(secret),
        (Some(old), None) => old,
        (None, secret) => Record::of_auth_set(secret.unwrap_or_default()),
    };
    if has_list && let Some(user) = record.before_acl() {
        record = user;
    }
    if role.is_some() {
        record.role = role;
    }
    record
}

/// Whether a user is the one of this name.
fn is_named(method: &str, ident: &str) -> impl Fn(&User) -> bool {
    move |user| *user.method == *method && *user.ident == *ident
}

fn check_name(cx: &Context<'_>, method: &str, user: &str) -> Result<(), ClientError> {
    check_method(cx, method)?;
    if method == "root" && user != "*" {
        return Err(ClientError::bad_request(
            "the method 'root' has one user, '*'; nothing was changed",
        ));
    }
    Ok(())
}

fn check_method(cx: &Context<'_>, method: &str) -> Result<(), ClientError> {
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

fn check_token(change: &UserChange<'_>) -> Result<(), ClientError> {
    // In a box is the hash of a text, of which nothing can be told; and guesses at a token are not slowed down.
    if change.secret.is_none_or(|secret| secret.len() < TOKEN_CHARS_MIN) {
        let text = format!(
            "a token has at least {TOKEN_CHARS_MIN} random characters, and comes as 'secret'; leave that out, and the \
             node makes one"
        );
        return Err(ClientError::bad_request(text));
    }
    Ok(())
}

fn read_role(name: &str) -> Result<Role, ClientError> {
    let text = "bad field 'role': there are 'user', 'operator' and 'admin'";
    Role::of(name).ok_or_else(|| ClientError::bad_request(text))
}

pub(super) fn no_user(method: &str, name: &str) -> ClientError {
    let text = format!("there is no user {name:?} of the method {method:?}");
    ClientError::new(ErrorCode::NotFound, text)
}
