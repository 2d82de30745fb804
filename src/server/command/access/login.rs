//! `diffie_hellman` and `auth`: clients say who they are, and show it.
//!
//! What takes computing is done elsewhere, and the request comes again then ([`Session::compute`]): so it is
//! carried out by what holds at that moment.

use std::sync::Arc;

use distkv_access::dh::{self, Group};
use distkv_access::secret::cache::Login as CachedLogin;
use distkv_access::secret::guesses::Outcome;
use distkv_access::secret::key::{self, Nonces, Side};
use distkv_access::secret::wrong::Attempt;
use distkv_access::secret::{PasswordHash, Secret, Sent, check};
use distkv_access::users::{Directory, Record, User, user_path};

use crate::model::entry::Entry;
use crate::protocol::client::auth::{AuthRequest, Login};
use crate::protocol::client::reply::{StreamTag, write_error, write_state};
use crate::protocol::client::{ClientError, ErrorCode, MessageWriter};
use crate::replica::write::{ChainCondition, Precondition, Write};
use crate::rt;
use crate::server::access::Identity;
use crate::server::access::guest::Made;
use crate::server::access::methods::{self, KEY, PASSWORD, TOKEN};
use crate::server::access::throttle::{Verdict, Waiting};
use crate::server::change_time;
use crate::server::connections::session::{Context, Needs, Session, Then};

impl Session {
    /// Requests about logins and users.
    pub(in crate::server) fn auth(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        request: &AuthRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        match request {
            AuthRequest::Exchange { public, bits } => self.exchange(cx, seq, public, *bits, out),
            AuthRequest::Login(login) => self.log_in(cx, seq, login, out),
            AuthRequest::List { method, user, chain, is_stream } => {
                self.list_users(cx, seq, (*method, *user), *chain, *is_stream, out)
            }
            AuthRequest::Get { method, user, chain } => {
                self.get_user(cx, seq, (*method, *user), *chain, out)
            }
            AuthRequest::Set(change) => self.set_user(cx, seq, change, out),
            AuthRequest::Delete { method, user, force } => {
                self.delete_user(cx, seq, (method, user), *force, out)
            }
            AuthRequest::SetMethod { method, grace_ms, force } => {
                self.set_method(cx, seq, (*method, *grace_ms), *force, out)
            }
        }
    }

    /// Has something computed for a request, which comes again when that is done.
    ///
    /// # Errors
    /// Too much is computed already.
    pub(super) fn compute(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        work: impl FnOnce() -> Made + Send + 'static,
    ) -> Result<Then, ClientError> {
        let Some(turn) = cx.shared.logins.turn() else {
            let text =
                "this node checks as many logins as it can; nothing was changed; try again later";
            return Err(ClientError::new(ErrorCode::TooMany, text));
        };
        let slot = self.guest.begin(seq);
        let work = move || *slot.lock() = Some(work());
        Ok(Then::Aside(Needs::Computation(cx.shared.logins.compute(turn, work))))
    }

    /// `diffie_hellman`, once on each connection.
    fn exchange(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        public: &[u8],
        bits: u64,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        if self.guest.box_key.is_some() {
            return Err(ClientError::bad_request("Can't call dh twice"));
        }
        let made = match self.guest.made(seq).transpose()? {
            Some(made) => made,
            None => {
                let takes_five = !cx.shared.logins.is_secured();
                let group = Group::of_length(bits, takes_five)
                    .map_err(|error| ClientError::bad_request(error.to_string()))?;
                let private = random()?;
                let public = public.to_vec();
                return self.compute(cx, seq, move || {
                    Made::Exchanged(dh::exchange(group, &public, &private))
                });
            }
        };
        match made {
            Made::Exchanged(Ok(exchange)) => {
                MessageWriter::new(out)
                    .bin("pubkey", &exchange.public)
                    .u64("seq", seq)
                    .tock(cx.tock());
                self.guest.box_key = Some(exchange.key);
                Ok(Then::Continue)
            }
            Made::Exchanged(Err(error)) => {
                // As the original: without the request's number, and that is the end.
                let error = ClientError::bad_request(error.to_string());
                cx.shared.counts.note_error(&error);
                write_error(&error, None, cx.tock(), out);
                Ok(Then::Close)
            }
            Made::Checked { .. } | Made::Hashed(_) => Err(reused()),
        }
    }

    /// `auth`.
    fn log_in(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        login: &Login<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        // Whatever becomes of it: it does not wait any more unless it is told to.
        let waited = self.guest.waited.take();
        if login.method == KEY {
            self.check_stays(login, Some(&Identity::KeyHolder))?;
            return self.log_in_by_key(cx, seq, login, out);
        }
        if let Some(error) = cx.shared.knows_no_users() {
            return Err(error);
        }
        let directory = cx.shared.policy_data.directory(cx.hub);
        self.check_method(cx, &directory, login)?;
        if methods::asks_for_nothing(login.method) {
            let user = directory.user(login.method, login.user);
            let user = user.ok_or_else(|| failed(login.user))?;
            return self.is_user(cx, seq, user, out);
        }
        let sent = self.sent_secret(login.secret, login.sealed)?.ok_or_else(|| {
            ClientError::bad_request("the field 'password' (or 'secret') is missing")
        })?;
        let user = self.candidate(cx, &directory, login, &sent);
        self.check_stays(login, user.map(Identity::of).as_ref())?;
        let Some(made) = self.guest.made(seq).transpose()? else {
            return self.look_at_secret(cx, seq, (login, user, waited), sent, out);
        };
        let Made::Checked { is_good, event, converted } = made else { return Err(reused()) };
        // The user may have been changed, or removed, meanwhile.
        let Some(user) = user.filter(|user| Some(user.event) == event && is_good) else {
            return Err(failed(login.user));
        };
        match converted {
            // It makes the record anew, so there is nothing yet to remember the login with.
            Some(hash) => {
                if replace_hash(cx, user, hash.clone()) {
                    let user = User { secret: Secret::Password(hash), ..user.clone() };
                    return self.is_user(cx, seq, &user, out);
                }
            }
            None => {
                if let Some(cache) = &cx.shared.logins.cache {
                    cache.lock().remember(cached(user), &sent);
                }
            }
        }
        self.is_user(cx, seq, user, out)
    }

    /// A connection keeps its user: a client that logged in as another one on it would go on with the first one's rights, and
    /// not know that. `wanted`: who would be logged in; none if there is no such user.
    ///
    /// A login in the original's form (a box, or a method without a secret) is let through and has no effect: the command
    /// `auth user auth` of the original's client tries passwords like that, on a connection that is logged in.
    ///
    /// # Errors
    /// The connection is logged in as another user. The secret was not looked at, so nobody learns whether it is right.
    fn check_stays(&self, login: &Login<'_>, wanted: Option<&Identity>) -> Result<(), ClientError> {
        let is_by_key = login.method == KEY;
        let Some(identity) = self.shown_identity().filter(|_| is_by_key || login.secret.is_some())
        else {
            return Ok(());
        };
        if wanted == Some(identity) {
            return Ok(());
        }
        let told = |user: Option<&str>| match user {
            Some(user) => format!("as the user '{}'", user.escape_debug()),
            None => String::from("with the cluster's key"),
        };
        let text = format!(
            "nothing was changed: this connection is logged in {}, and stays so; open a new connection to log in {}",
            told(identity.name()),
            told(Some(login.user).filter(|_| !is_by_key)),
        );
        Err(ClientError::bad_request(text))
    }

    /// What can be said of a secret at once: that it is the user's token, or the password of a login that is remembered,
    /// or that it was wrong before. All else is computed. `user`: who is meant, of the name that the client said;
    /// `waited`: how the login has waited for others already.
    fn look_at_secret(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        (login, user, waited): (&Login<'_>, Option<&User>, Option<Waiting>),
        sent: Sent,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        // Nobody guesses a token: who has it waits for nobody who tries.
        if let Some(user) = user.filter(|user| user.secret.is_token(&sent)) {
            return self.is_user(cx, seq, user, out);
        }
        let (logins, address) = (&cx.shared.logins, self.guest.address);
        // First: what is remembered must tell nobody what is right, or what others have tried, faster than guesses do.
        let begun = match logins.throttle.begin(login.user, address, cx.now, waited) {
            Verdict::Begun(begun) => begun,
            Verdict::Waits(waiting) => return Ok(Then::Aside(Needs::Others(waiting))),
            Verdict::Refused(wait) => return Err(too_early(wait)),
            Verdict::Crowded => return Err(crowded()),
        };
        if let (Some(user), Some(cache)) = (user, &logins.cache)
            && cache.lock().knows(cached(user), &sent)
        {
            begun.end(Outcome::Right);
            return self.is_user(cx, seq, user, out);
        }
        let (secret, event) = (user.map(|user| user.secret.clone()), user.map(|user| user.event));
        let attempt = Attempt { method: login.method, ident: login.user, event, address };
        let marked = logins.wrong.as_ref().and_then(|wrong| {
            let mark = wrong.lock().mark(attempt, &sent)?;
            Some((Arc::clone(wrong), mark))
        });
        if let Some((wrong, mark)) = &marked
            && wrong.lock().knows(mark)
        {
            begun.end(Outcome::WrongAgain);
            return Err(failed(login.user));
        }
        // If this is refused, or never carried out, nothing was looked at, and nothing counts.
        self.compute(cx, seq, move || {
            let made = check_secret(secret.as_ref(), &sent, event);
            // Those that are looked at at once may all be the same.
            let is_new = || marked.is_none_or(|(wrong, mark)| wrong.lock().note(mark));
            begun.end(match made {
                Made::Checked { is_good: true, .. } => Outcome::Right,
                _ if is_new() => Outcome::Wrong,
                _ => Outcome::WrongAgain,
            });
            made
        })
    }

    /// The user who may be meant. Clients that were told no method log in by the one that the greeting names first, and old ones
    /// know passwords only: so a secret counts as what it is, by either method, where users of both are served. Where two
    /// users have the name, it is the one whose token was sent, else the one with a password.
    fn candidate<'d>(
        &self,
        cx: &Context<'_>,
        directory: &'d Directory,
        login: &Login<'_>,
        sent: &Sent,
    ) -> Option<&'d User> {
        let by = |method: &str| {
            let is_served = self.serves(cx, directory, method);
            directory.user(method, login.user).filter(|_| is_served)
        };
        let by_token = || by(TOKEN).filter(|user| user.secret.is_token(sent));
        by_token().or_else(|| by(PASSWORD)).or_else(|| by(TOKEN))
    }

    /// Whether users of a method may log in here.
    fn serves(&self, cx: &Context<'_>, directory: &Directory, method: &str) -> bool {
        // Who is logged in, or need not be, may try any.
        let in_force = directory.login().filter(|_| cx.access.is_stranger());
        methods::serves(in_force, cx.shared.logins.is_secured(), method)
    }

    /// Refuses a method of which no users may log in here.
    fn check_method(
        &self,
        cx: &Context<'_>,
        directory: &Directory,
        login: &Login<'_>,
    ) -> Result<(), ClientError> {
        if self.serves(cx, directory, login.method) {
            return Ok(());
        }
        let offer = methods::offer(directory, cx.shared.must_log_in(), self.guest.nonce);
        let first = offer.methods.into_iter().flatten().next().unwrap_or_else(|| "nil".into());
        let text = format!("RuntimeError('Wrong auth type', '{first}')");
        Err(ClientError::new(ErrorCode::AuthFailed, text))
    }

    /// What the client sent of a password or a token, itself or in the original's box.
    ///
    /// # Errors
    /// The box cannot be opened.
    pub(super) fn sent_secret(
        &self,
        secret: Option<&[u8]>,
        sealed: Option<&[u8]>,
    ) -> Result<Option<Sent>, ClientError> {
        if let Some(secret) = secret {
            let text = std::str::from_utf8(secret)
                .map_err(|_| ClientError::bad_request("bad field 'secret': it is no text"))?;
            return Ok(Some(Sent::of_text(text)));
        }
        let Some(sealed) = sealed else { return Ok(None) };
        let Some(key) = &self.guest.box_key else {
            let text = "RuntimeError('The client has not executed DH key exchange')";
            return Err(ClientError::bad_request(text));
        };
        let opened = key.open(sealed);
        let opened = opened.map_err(|e| ClientError::bad_request(format!("CryptoError('{e}')")))?;
        let sent = Sent::from_slice(&opened);
        let text = "bad field 'password': the box must have the SHA-256 of the password";
        sent.map(Some).ok_or_else(|| ClientError::bad_request(text))
    }

    /// Whoever has the cluster's key is an admin; it needs no data. Both sides prove that they have it.
    fn log_in_by_key(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        login: &Login<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        let (Some(cluster), Some(node)) = (&cx.shared.logins.key, self.guest.nonce) else {
            let text = "nobody logs in with the cluster's key here: this node has none (--key), or its network is still \
                        moving to one (--plaintext-peers)";
            return Err(ClientError::new(ErrorCode::AuthFailed, text));
        };
        let client = login.nonce.and_then(|nonce| nonce.try_into().ok());
        let (Some(client), Some(proof)) = (client, login.proof) else {
            let text = format!(
                "a login with the cluster's key needs the fields 'nonce' ({} bytes) and 'proof'",
                key::NONCE_BYTES
            );
            return Err(ClientError::bad_request(text));
        };
        let nonces = Nonces { client, node };
        let known = cluster.find(|known| key::is_proof(known, Side::Client, &nonces, proof));
        let Some(known) = known else {
            let text = "the cluster key is another one than this node's";
            return Err(ClientError::new(ErrorCode::AuthFailed, text));
        };
        let proof = key::prove(&known, Side::Node, &nonces);
        self.identify(Identity::KeyHolder)?;
        let tock = cx.tock();
        write_state("start", self.frame(seq, 1), tock, out);
        MessageWriter::new(out).bin("proof", &proof).tag(self.frame(seq, 2)).tock(tock);
        write_state("end", self.frame(seq, 3), tock, out);
        Ok(Then::Continue)
    }

    /// The login is good: says so. On a connection that was logged in before, that is all (see [`Session::check_stays`]).
    ///
    /// # Errors
    /// See [`Session::identify`].
    fn is_user(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        user: &User,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.identify(Identity::of(user))?;
        if self.identity == Identity::of(user) {
            self.guest.secret = Some(user.secret.clone());
        }
        let tock = cx.tock();
        write_state("start", self.frame(seq, 1), tock, out);
        write_state("end", self.frame(seq, 2), tock, out);
        Ok(Then::Continue)
    }

    fn frame(&self, seq: u64, number: u64) -> StreamTag {
        StreamTag { seq, wseq: self.window.map(|_| number) }
    }
}

/// What a login of this user is remembered by.
fn cached(user: &User) -> CachedLogin<'_> {
    CachedLogin { method: &user.method, ident: &user.ident, event: user.event }
}

/// Takes as long as one hash, whatever comes of it; and as long as another one if the record is the original's.
fn check_secret(
    secret: Option<&Secret>,
    sent: &Sent,
    event: Option<crate::model::ids::Event>,
) -> Made {
    let is_good = check(secret, sent);
    let converted = match secret {
        Some(Secret::Legacy(_)) if is_good => {
            rt::random_bytes().ok().and_then(|salt| PasswordHash::new(sent, salt).ok())
        }
        _ => None,
    };
    Made::Checked { is_good, event, converted }
}

/// Stores a password's hash in the present form, if the record is still the one that was looked at. If not, or
/// if this node makes no changes, the next login does it. Returns whether it is stored.
fn replace_hash(cx: &Context<'_>, user: &User, hash: PasswordHash) -> bool {
    let Ok(path) = user_path(&user.method, &user.ident) else { return false };
    let entry = cx.hub.read(|engine| engine.get(path.as_bytes()).cloned());
    let record = entry.as_ref().and_then(Entry::value).and_then(|value| Record::read(value).ok());
    let Some(record) = record else { return false };
    let Ok(value) = record.with_secret(Secret::Password(hash)).write() else { return false };
    let chain = ChainCondition::Newest(user.event);
    let precondition = Precondition::chain(chain);
    let time = change_time();
    let write = Write { precondition, time, ..Write::new(&path, Some(value.as_bytes())) };
    match cx.hub.write(write, false) {
        (Ok(_), _) => true,
        (Err(error), _) => {
            tracing::warn!(%error, user = &*user.ident, "a password's hash stays in its old form");
            false
        }
    }
}

/// One text for unknown users and wrong secrets: the original's of the latter.
fn failed(user: &str) -> ClientError {
    let user = Arc::<str>::from(user.escape_debug().to_string());
    let text = format!("AuthFailedError('Password hashes do not match', '{user}')");
    ClientError::new(ErrorCode::AuthFailed, text)
}

fn too_early(wait: crate::model::ids::Millis) -> ClientError {
    let text = format!(
        "too many logins have failed for this user, or from this address; try again in {} s",
        wait.div_ceil(1_000)
    );
    ClientError::new(ErrorCode::TooMany, text)
}

/// Nothing has failed too often: it is only too much at once.
fn crowded() -> ClientError {
    let text = "so many logins of this user, or from this address, come at once that this one would have to wait for \
                too long; nothing was looked at; try again later";
    ClientError::new(ErrorCode::TooMany, text)
}

fn reused() -> ClientError {
    ClientError::bad_request(
        "bad field 'seq': another request with this number was not answered yet",
    )
}

/// Random bytes.
///
/// # Errors
/// The system has none.
pub(super) fn random<const N: usize>() -> Result<[u8; N], ClientError> {
    let failed = "the system of this node has no random bytes to give; nothing was changed";
    rt::random_bytes().map_err(|_| ClientError::new(ErrorCode::Internal, failed))
}
