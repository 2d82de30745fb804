//! How a client comes in and is let go: what it may do before it has logged in, who it turns out to be, and what of
//! this the audit log is told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use distkv_access::users::is_before_login;

use super::{Certified, Context, Decoded, Session, Then};
use crate::crowd::group_of;
use crate::engine::Engine;
use crate::hub::shares::{Holder, Refusal};
use crate::model::ids::Millis;
use crate::protocol::client::error::ErrorCode;
use crate::protocol::client::reply::write_error;
use crate::protocol::client::request::KeyChange;
use crate::protocol::client::{Action, ClientError, ClientMessage, Request};
use crate::rt;
use crate::server::Shared;
use crate::server::access::audit::witness::Witness;
use crate::server::access::methods::{PASSWORD, TOKEN};
use crate::server::access::present::{About, CONNECTIONS};
use crate::server::access::strangers::too_many;
use crate::server::access::{Access, Identity};
use crate::server::connections::accept::no_memory;
use crate::server::stream::write_failed_stream;

impl Session {
    /// The client must log in first: it may do that, and nothing else. Returns how many messages are done.
    pub(super) fn meet_stranger(
        &mut self,
        cx: &Context<'_>,
        batch: &[Decoded<'_>],
        out: &mut Vec<u8>,
    ) -> (usize, Then) {
        for (at, message) in batch.iter().enumerate() {
            let done = at + 1;
            match message {
                Ok(ClientMessage::Request { seq, action, request, .. })
                    if is_before_login(*action) =>
                {
                    match self.run_one(cx, *seq, *action, request, out) {
                        // Not done: it comes again.
                        then @ Then::Aside(_) => return (done - 1, then),
                        then @ (Then::Heavy(_) | Then::Close) => return (done, then),
                        // What comes behind it is looked at as who the client is then.
                        _ => return (done, Then::Continue),
                    }
                }
                Ok(ClientMessage::Request { seq, action, .. }) => {
                    if let Some(witness) = &cx.witness {
                        witness.turned_away(*action);
                    }
                    let in_stream = action.errs_in_stream();
                    let error = self.login_needed(cx);
                    self.refuse_at_once(cx, (Some(*seq), in_stream), &error, out);
                    return (done, Then::Close);
                }
                Ok(ClientMessage::Settings { qlen, nowait }) => self.set_up(*qlen, *nowait),
                Ok(ClientMessage::Ack { seq, ack }) => {
                    self.streams.acknowledge(*seq, *ack, cx.now);
                }
                Ok(ClientMessage::StreamEnd) => {}
                Err(bad) => {
                    // Whatever is wrong with another one, it would be refused.
                    let tells = bad.is_fatal || bad.is_login;
                    let error = if tells { bad.error.clone() } else { self.login_needed(cx) };
                    self.refuse_at_once(cx, (bad.seq, bad.in_stream), &error, out);
                    return (done, Then::Close);
                }
            }
        }
        (batch.len(), Then::Continue)
    }

    /// Answers with an error, within a stream or not, when the connection closes behind it.
    pub(super) fn refuse_at_once(
        &self,
        cx: &Context<'_>,
        (seq, in_stream): (Option<u64>, bool),
        error: &ClientError,
        out: &mut Vec<u8>,
    ) {
        cx.shared.counts.note_error(error);
        match seq {
            Some(seq) if in_stream => {
                write_failed_stream(error, seq, self.window.is_some(), cx.tock(), out);
            }
            _ => write_error(error, seq, cx.tock(), out),
        }
    }

    /// The client's connection begins.
    ///
    /// # Errors
    /// It must log in, and too many must already.
    pub(in crate::server) fn enter(
        &mut self,
        shared: &Shared,
        address: SocketAddr,
        now: Millis,
    ) -> Result<(), ClientError> {
        let about = About {
            account: Arc::clone(&self.account),
            traffic: Arc::clone(&self.traffic),
            address,
            since: now,
        };
        let address = address.ip();
        self.guest.enter(address, shared.logins.present.add(about));
        self.account.set_owner(self.holder());
        let audit = shared.config.audit.clone();
        self.witness = audit.map(|audit| Witness::new(audit, self.identity.clone(), address));
        if self.identity != Identity::Unknown {
            // Only tests know it before.
            let holder = holder_of(&self.identity).filter(|_| self.has_place);
            self.guest
                .is(self.identity.clone(), holder.as_ref())
                .map_err(|why| share_taken(&why))?;
        }
        if shared.logins.is_secured() {
            let failed =
                |_| ClientError::new(ErrorCode::Internal, "the system has no random bytes");
            self.guest.nonce = Some(rt::random_bytes().map_err(failed)?);
        }
        if self.context(shared, now).access.is_stranger() {
            let account = Arc::clone(&self.account);
            let from = self.host();
            let place = shared.logins.strangers.enter(from, now, move || account.close());
            self.guest.keep_waiting(place.ok_or_else(|| self.crowded_out(shared))?, now);
        }
        Ok(())
    }

    /// Where the client has come from. This machine has other addresses besides those of the loopback.
    fn host(&self) -> IpAddr {
        if self.is_local { Ipv4Addr::LOCALHOST.into() } else { self.guest.address }
    }

    /// Whose share of the node's watches and monitors the client takes from.
    pub(in crate::server) fn holder(&self) -> Holder {
        holder_of(&self.identity).unwrap_or_else(|| Holder::Host(group_of(self.host())))
    }

    /// The error of a client for whom there is no place among those that have not logged in.
    fn crowded_out(&self, shared: &Shared) -> ClientError {
        let error = too_many();
        if let Some(clients) = shared.logins.crowded.note(rt::now()) {
            let (from, most) = (self.guest.address.to_canonical(), shared.logins.strangers.most());
            let text = "too many clients are connected without having logged in; closing some of the address with most";
            tracing::warn!(clients, %from, most, "{text}");
        }
        if let Some(witness) = &self.witness {
            witness.crowded_out(&error);
        }
        error
    }

    /// Why the connection of a client that has not logged in must end. `bytes`: all that has come from it.
    pub(in crate::server) fn overstays(&self, shared: &Shared, bytes: u64) -> Option<ClientError> {
        if self.guest.gave_way() {
            return Some(self.crowded_out(shared));
        }
        self.guest.overstays(rt::now, bytes)
    }

    /// Who the client has shown itself to be, for good; none of one that has not, or by a certificate only: who logs in by a
    /// secret means that, whatever certificate there is.
    pub(in crate::server) fn shown_identity(&self) -> Option<&Identity> {
        Some(&self.identity)
            .filter(|identity| **identity != Identity::Unknown && !self.is_by_certificate)
    }

    /// The client has shown who it is. From then on it is that one.
    ///
    /// # Errors
    /// That one has as many connections as it may have, or has filled the clients' memory; nothing has changed.
    pub(in crate::server) fn identify(&mut self, identity: Identity) -> Result<(), ClientError> {
        if self.shown_identity().is_none() {
            let owner = holder_of(&identity);
            if owner.as_ref().is_some_and(|owner| self.account.is_filled_by(owner)) {
                return Err(no_memory());
            }
            let holder = owner.clone().filter(|_| self.has_place);
            self.guest.is(identity.clone(), holder.as_ref()).map_err(|why| share_taken(&why))?;
            if let Some(owner) = owner {
                self.account.set_owner(owner);
            }
            self.is_by_certificate = false;
            self.expired = None;
            self.guest.is_until(None);
            self.witness = self.witness.as_ref().map(|witness| witness.of(identity.clone()));
            self.identity = identity;
            self.access = Access::unknown();
        }
        Ok(())
    }

    /// Whether this client may do something, whatever the time is, by policies that are still those of the moment.
    pub(in crate::server) fn is_welcome(&self, shared: &Shared) -> bool {
        !self.is_certificate_over()
            && self.access.until.is_none()
            && !self.access.is_stranger()
            && self.access.policies == shared.hub.policies.now()
    }

    /// Whether this client could do something, and may not do anything any more: its connection ends, and
    /// what waits for it is not sent.
    pub(in crate::server) fn is_shut_out(&self, cx: &Context<'_>) -> bool {
        cx.access.is_stranger() && self.guest.was_admitted()
    }

    /// The client has a certificate with this name, of a CA that this node takes. `end_ms`: when it is over, by the wall
    /// clock.
    pub(in crate::server) fn certify(&mut self, user: &str, end_ms: u64) {
        self.certified = Some(Certified { user: user.into(), end_ms });
        self.access = Access::unknown();
    }

    fn is_certificate_over(&self) -> bool {
        self.certified.as_ref().is_some_and(|certified| rt::wall_clock_ms() >= certified.end_ms)
    }

    /// From the end of its certificate on, the client is who it were without one.
    pub(super) fn drop_expired_certificate(&mut self) {
        if !self.is_certificate_over() {
            return;
        }
        self.certified = None;
        if self.is_by_certificate {
            let identity = self.identity.clone();
            // Nobody needs no share.
            let _ = self.identify(Identity::Unknown);
            self.expired = Some(identity);
        }
    }

    /// The user that it was until its certificate was over, if it is nobody since.
    pub(in crate::server) fn expired_user(&self) -> Option<&str> {
        self.expired.as_ref().and_then(Identity::name)
    }

    /// The user whom the client's certificate names, if it has not shown otherwise who it is.
    pub(super) fn certified_user(&self) -> Option<&Arc<str>> {
        let certified = self.certified.as_ref().filter(|_| self.identity == Identity::Unknown)?;
        Some(&certified.user)
    }

    /// Logs the client in as the user whom its certificate names, as soon as there is one and unless it has shown
    /// otherwise who it is.
    pub(super) fn log_in_by_certificate(&mut self, shared: &Shared) {
        let Some(name) = self.certified_user().cloned() else { return };
        if shared.knows_no_users().is_some() {
            return;
        }
        let directory = shared.policy_data.directory(&shared.hub);
        // Nobody logs in by a certificate in the place of those who need no secret.
        let mut methods = [PASSWORD, TOKEN].into_iter();
        let Some(user) = methods.find_map(|method| directory.user(method, &name)) else { return };
        self.crowded_out = self.identify(Identity::of(user)).err();
        if self.crowded_out.is_some() {
            return;
        }
        self.guest.secret = Some(user.secret.clone());
        if let Some(witness) = &self.witness {
            witness.certified(&name);
        }
        self.is_by_certificate = true;
        self.guest.is_until(self.certified.as_ref().map(|certified| certified.end_ms));
    }

    /// The error for a client that must log in first. Where it would have, by its certificate, it is not its fault.
    fn login_needed(&self, cx: &Context<'_>) -> ClientError {
        if let Some(error) = self.certified_user().and_then(|_| cx.shared.knows_no_users()) {
            return error;
        }
        if let Some(error) = &self.crowded_out {
            return error.clone();
        }
        let why = match cx.hub.read(Engine::closed) {
            Some(closed) => closed.to_string(),
            None => String::from("clients of this node must log in"),
        };
        ClientError::new(ErrorCode::AuthRequired, format!("nothing was done: {why}"))
    }

    /// Tells the audit log that the connection ends because of that.
    pub(in crate::server) fn tell_shut_out(&self) {
        let Some(witness) = &self.witness else { return };
        match &self.expired {
            Some(identity) => witness.of(identity.clone()).shut_out(),
            None => witness.shut_out(),
        }
    }
}

/// Whose shares somebody's are who has logged in.
fn holder_of(identity: &Identity) -> Option<Holder> {
    match identity {
        Identity::User { method, name, .. } => {
            Some(Holder::User { method: Arc::clone(method), name: Arc::clone(name) })
        }
        Identity::KeyHolder => Some(Holder::KeyHolder),
        Identity::Unknown => None,
    }
}

/// The error of a client that would have been one more of a user who has as many connections as it may have.
fn share_taken(why: &Refusal) -> ClientError {
    ClientError::new(ErrorCode::TooMany, why.text(CONNECTIONS))
}

/// Tells the audit log what has become of a request.
pub(super) fn tell(
    cx: &Context<'_>,
    action: Action,
    request: &Request<'_>,
    result: &Result<Then, ClientError>,
) {
    let Some(witness) = &cx.witness else { return };
    let key = match request {
        Request::ChangeKeys(KeyChange::Add { secret }) => cx.shared.info.key_id(secret),
        _ => None,
    };
    let key = key.as_deref();
    match result {
        // The request comes again.
        Ok(Then::NeedsRoom | Then::NeedsReady | Then::Aside(_)) => {}
        Ok(then) => {
            let is_begun = matches!(then, Then::Heavy(_)) || action == Action::Leave;
            witness.answered(action, request, key, Ok(is_begun));
        }
        Err(error) => witness.answered(action, request, key, Err(error)),
    }
}
