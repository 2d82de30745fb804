//! `auth_set` and `auth_disconnect`: makes a user, changes one, or ends its connections. Of what is secret, the reply has a
//! token that was made just now, and nothing else.

use std::ops::ControlFlow;

use distkv_access::secret::{PasswordHash, Secret, Sent, TOKEN_BYTES, TokenHash, token_text};
use distkv_access::users::{
    DISCONNECT_BYTES, Disconnect, NO_LIST, OneUser, REMOVAL_BYTES, Record, Removal, Role,
    acl_name_value, revoked_path, user_acl_path, user_path,
};

use crate::model::entry::Entry;
use crate::model::path::Path;
use crate::model::value::Value;
use crate::protocol::client::auth::UserChange;
use crate::protocol::client::chain::ChainField;
use crate::protocol::client::reply::StreamTag;
use crate::protocol::client::{ClientError, ErrorCode, MessageWriter};
use crate::server::access::guest::Made;
use crate::server::access::methods::{PASSWORD, TOKEN};
use crate::server::connections::session::{Context, Session, Then};

use super::change::{ANY, Change, Held, There, Wanted, has_list, held, make, take_list, too_long};
use super::last_admin::keep_without;
use super::login::random;
use super::own::{By, check_own, take_own};
use super::removal::Known;
use super::users::{check_method, is_named, no_user};

/// Why nobody is made an admin who has a list: it makes an admin a user.
const LISTED_ADMIN: &str = "who has an access list is no admin; nothing was changed. Give no list, or take it away \
                            first (`distkv-node user acl NAME -`)";
/// Least characters of a token that a client chose: it is not hashed slowly.
const TOKEN_CHARS_MIN: usize = 32;

/// The secret that a user gets; none: the one that it has stays, or its method asks for none.
#[derive(Default)]
struct NewSecret {
    secret: Option<Secret>,
    /// The text of a token that this node has made: it is told once.
    token: Option<String>,
}

/// What a request writes.
struct UserWrite<'a> {
    method: &'a str,
    user: &'a str,
    path: &'a Path,
    record: Record,
    /// The record, as it is stored.
    value: Value,
    held: Held<'a>,
    /// The access list's name; none: the request says nothing of it; none in that: it is taken away.
    list: Option<Option<Vec<u8>>>,
    /// The list that is there is taken away first: somebody gave it who did not know of a removal.
    clears_list: bool,
    /// The user was removed, and is made again: the removals that are known are taken back by this.
    again: Option<Removal>,
    known: &'a Known,
}

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
        let (method, user) = (change.method, change.user);
        check_name(cx, method, user)?;
        let role = change.role.map(read_role).transpose()?;
        let path = user_path(method, user).map_err(too_long)?;
        let there = There::look_up(cx, method, user, &path)?;
        let (entry, known) = (there.entry.as_ref(), &there.known);
        let present = entry.and_then(Entry::value).and_then(|v| Record::read(v).ok());
        // A record of somebody who did not know of the removal gives a new one nothing: neither secret nor role.
        let present = present.filter(|record| record.is_in_force(&known.removals));
        if change.disconnects && present.is_none() {
            return Err(no_user(method, user));
        }
        // Its own changes are counted for this one of that name: what it changes of itself is never that.
        let after = present.as_ref().and_then(|record| record.after);
        let one = OneUser { method, ident: user, after };
        let held = held(&change.chain, entry.filter(|_| present.is_none()))?;
        let again = match known.removals.is_any() && present.is_none() {
            true => Some(Removal(random::<REMOVAL_BYTES>()?)),
            false => None,
        };
        let keeps_list = again.is_none() && change.acl.is_none();
        if role == Some(Role::Admin)
            && (change.acl.is_some_and(|list| list != NO_LIST)
                || (keeps_list && has_list(cx, method, user)?))
        {
            there.check(held)?;
            return Err(ClientError::bad_request(LISTED_ADMIN));
        }
        let keeps_secret =
            present.is_some() && (change.acl.is_some() || role.is_some() || change.disconnects);
        let NewSecret { secret, token } =
            match self.new_secret(cx, seq, change, (by, one), keeps_secret)? {
                ControlFlow::Continue(secret) => secret,
                ControlFlow::Break(then) => return Ok(then),
            };
        let asked = meant_anew(change, present.as_ref(), secret.as_ref(), role);
        // Nor does a list that somebody gave who did not know of the removal. A list makes who is made without a role, an
        // admin otherwise, a user: there it stays.
        let clears_list = again.is_some() && change.acl.is_none() && role.is_some();
        let mut record = new_record(present, secret, role, change.acl.is_some());
        record.after = again.or(record.after);
        if change.disconnects {
            record.disconnect = Some(Disconnect(random::<DISCONNECT_BYTES>()?));
        }
        let value = stored(&record)?;
        let list = change.acl.map(|list| (list != NO_LIST).then(|| acl_name_value(list)));
        // What is so already is no change: so a client that does not know whether it arrived can send it again.
        let is_so = match (&change.chain, asked) {
            (ChainField::New, None) => false,
            (ChainField::New, Some(asked)) => {
                let list = list.as_ref().and_then(Option::as_deref);
                there.is(stored(&asked)?.as_bytes(), Some(list))
            }
            _ => there.is(value.as_bytes(), list.as_ref().map(Option::as_deref)),
        };
        if !is_so {
            there.check(held)?;
            take_own(cx, by, one)?;
        }
        if record.role != Some(Role::Admin) && !change.force {
            keep_without(cx, self.writer(cx), is_named(method, user))?;
        }
        let disconnect = record.disconnect.filter(|_| change.disconnects);
        let path = &path;
        let write =
            UserWrite { method, user, path, record, value, held, list, clears_list, again, known };
        let made = self.write_user(cx, write)?;
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

    /// The secret that a request gives a user, or asks for. A password is hashed aside, which takes long: then the request comes
    /// again. `keeps`: without a secret, the present one stays.
    fn new_secret(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        change: &UserChange<'_>,
        (by, one): (By, OneUser<'_>),
        keeps: bool,
    ) -> Result<ControlFlow<Then, NewSecret>, ClientError> {
        let sent = self.sent_secret(change.secret, change.sealed)?;
        let new = match (change.method, sent) {
            (PASSWORD, Some(sent)) => match self.guest.made(seq).transpose()? {
                None => {
                    check_own(cx, by, one)?;
                    let salt = random()?;
                    let work = move || Made::Hashed(PasswordHash::new(&sent, salt));
                    return self.compute(cx, seq, work).map(ControlFlow::Break);
                }
                Some(Made::Hashed(Ok(hash))) => {
                    NewSecret { secret: Some(Secret::Password(hash)), token: None }
                }
                Some(_) => {
                    let text = "the password could not be hashed; nothing was changed";
                    return Err(ClientError::new(ErrorCode::Internal, text));
                }
            },
            (TOKEN, Some(sent)) => {
                check_token(change)?;
                NewSecret { secret: Some(Secret::Token(TokenHash::of(&sent))), token: None }
            }
            (PASSWORD | TOKEN, None) if keeps => NewSecret::default(),
            (PASSWORD, None) => {
                let text = "the field 'password' (or 'secret') is missing; nothing was changed";
                return Err(ClientError::bad_request(text));
            }
            (TOKEN, None) => {
                let text = token_text(&random::<TOKEN_BYTES>()?);
                let hash = TokenHash::of(&Sent::of_text(&text));
                NewSecret { secret: Some(Secret::Token(hash)), token: Some(text) }
            }
            _ => NewSecret::default(),
        };
        Ok(ControlFlow::Continue(new))
    }

    /// Writes the record first: each of the others, too, gives less than all together.
    fn write_user(
        &mut self,
        cx: &Context<'_>,
        write: UserWrite<'_>,
    ) -> Result<Change, ClientError> {
        let UserWrite { method, user, .. } = write;
        let is_cleared = write.clears_list && take_list(cx, method, user)?;
        let wanted = Wanted {
            path: write.path,
            value: Some(write.value.as_bytes()),
            held: write.held,
            // What was cleared was checked, and is a change of the policies itself.
            is_checked: !is_cleared,
        };
        let mut made = make(cx, wanted)?;
        if self.identity.is_named(method, user) {
            self.guest.secret = Some(write.record.secret);
        }
        if let Some(value) = write.list {
            let acl_path = user_acl_path(method, user).map_err(too_long)?;
            // A record that was written is a change of the policies itself. Of one that stayed, what was checked holds
            // only while nothing else has come in between.
            let is_checked = !made.written.is_made;
            let value = value.as_deref();
            let list = make(cx, Wanted { path: &acl_path, value, held: ANY, is_checked })?;
            made.written.changed |= list.written.changed;
            made.number = made.number.max(list.number);
        }
        if let Some(removal) = write.again {
            let revoked = revoked_path(method, user).map_err(too_long)?;
            let value = Some(&removal.made_again()[..]);
            let wanted = Wanted { path: &revoked, value, held: ANY, is_checked: false };
            made.number = made.number.max(make(cx, wanted)?.number).max(write.known.take_open(cx)?);
            made.written.changed = true;
        }
        Ok(made)
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
}

/// The record of somebody new as a request asks for it, if it may mean one who is there: whoever asks for somebody new means
/// just this one, with no list, and as an admin, unless the request says more.
fn meant_anew(
    change: &UserChange<'_>,
    present: Option<&Record>,
    secret: Option<&Secret>,
    role: Option<Role>,
) -> Option<Record> {
    let present = present.filter(|_| matches!(change.chain, ChainField::New))?;
    // Without a secret, one that is made is wanted: the present one is not it.
    if secret.is_none() && matches!(change.method, PASSWORD | TOKEN) {
        return None;
    }
    let mut asked = new_record(None, secret.cloned(), role, change.acl.is_some());
    (asked.after, asked.disconnect) = (present.after, present.disconnect);
    Some(asked)
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

fn stored(record: &Record) -> Result<Value, ClientError> {
    record.write().map_err(|error| ClientError::bad_request(error.to_string()))
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
