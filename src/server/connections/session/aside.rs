//! The request about logins that is under way on a connection: it waits for logins of others to end, or what it needs is
//! computed. Meanwhile it is put aside, and comes again then, so that the connection's streams go on, and replies too.
//!
//! There is one at a time. The next one waits for it in the connection's input, because what it means may depend on this one
//! (who the client is, the key of its boxes); it is not refused, as clients may send several at once and get all replies.
//! With it waits what is behind it. A client that has shown who it is stays that one whatever becomes of its login, so all else that it
//! sends is carried out meanwhile. What others send behind a login they send as who they are then: that waits, too, and only
//! acknowledgements go on.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};

use super::{Context, Decoded, Session, Then};
use crate::model::ids::Millis;
use crate::protocol::client::auth::AuthRequest;
use crate::protocol::client::{ClientMessage, Request, decode};
use crate::rt;
use crate::server::access::throttle::Waiting;

/// What a request about logins needs before it can be carried out.
pub(in crate::server) enum Needs {
    /// Another login must end.
    Others(Waiting),
    /// Something must have been computed.
    Computation(rt::Task<()>),
}

/// See the module.
pub(super) struct Aside {
    /// The whole message.
    message: Vec<u8>,
    /// The window of streams when it came.
    window: Option<u64>,
    /// Whether it is a login.
    is_login: bool,
    /// None once it has been handed on.
    needs: Option<Needs>,
    /// There is what it needs, or it has waited for long enough.
    is_due: bool,
}

impl Aside {
    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        self.message.len() + size_of::<Self>()
    }

    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.is_due = self.is_due
            || match &mut self.needs {
                Some(Needs::Others(waiting)) => Pin::new(waiting.ended()).poll(cx).is_ready(),
                Some(Needs::Computation(task)) => Pin::new(task).poll(cx).is_ready(),
                None => true,
            };
        if self.is_due { Poll::Ready(()) } else { Poll::Pending }
    }

    fn deadline(&self) -> Option<Millis> {
        match &self.needs {
            Some(Needs::Others(waiting)) => Some(waiting.deadline()),
            Some(Needs::Computation(_)) | None => None,
        }
    }

    /// Whether it should come again. A connection with much to do asks that, and never waits.
    fn is_due(&mut self, now: Millis) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
            || self.poll(&mut TaskContext::from_waker(Waker::noop())).is_ready()
    }
}

impl Session {
    /// Of these messages the first ones that do not have to wait for the request that was put aside; none if the first one
    /// must.
    pub(super) fn not_behind<'b, 'm>(&self, batch: &'b [Decoded<'m>]) -> Option<&'b [Decoded<'m>]> {
        if self.aside.is_none() {
            return Some(batch);
        }
        let all = self.holds_all_back();
        let waits = |message: &Decoded<'_>| match message {
            Ok(ClientMessage::Request { request, .. }) => all || is_exclusive(request),
            // The last word comes behind the reply.
            Err(bad) => all || bad.is_fatal,
            Ok(_) => false,
        };
        match batch.iter().position(waits) {
            None => Some(batch),
            Some(0) => None,
            Some(at) => batch.get(..at),
        }
    }

    /// Whether all requests must wait for the one that was put aside.
    pub(in crate::server) fn holds_all_back(&self) -> bool {
        let is_known = self.shown_identity().is_some();
        self.aside.as_ref().is_some_and(|aside| !(aside.is_login && is_known))
    }

    /// Puts the request aside that ended a run of messages, if that is why it ended. `message`: the bytes of one of them.
    pub(super) fn put_aside<'m>(
        &mut self,
        (done, then): (usize, Then),
        window: Option<u64>,
        message: impl FnOnce(usize) -> &'m [u8],
    ) -> (usize, Then) {
        let Then::Aside(needs) = then else { return (done, then) };
        let message = message(done).to_vec();
        let login = |request: &Request<'_>| matches!(request, Request::Auth(AuthRequest::Login(_)));
        let is_login = matches!(decode(&message), Ok(ClientMessage::Request { request, .. }) if login(&request));
        self.guest.set_busy(matches!(needs, Needs::Computation(_)));
        self.aside = Some(Aside { message, window, is_login, needs: Some(needs), is_due: false });
        (done + 1, Then::Continue)
    }

    /// Carries out the request that was put aside, if it need not wait any longer.
    pub(in crate::server) fn resume_aside(
        &mut self,
        cx: &Context<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Then> {
        let mut aside = self.aside.take_if(|aside| aside.is_due(cx.now))?;
        self.guest.set_busy(false);
        if let Some(Needs::Others(waiting)) = aside.needs.take() {
            self.guest.waited = Some(waiting);
        }
        let batch = [decode(&aside.message)];
        let ran = self.run_waited(cx, &batch, aside.window, out);
        drop(batch);
        let (done, then) = self.put_aside(ran, aside.window, |_| &aside.message);
        if done == 0 {
            // The output had no room.
            self.aside = Some(Aside { is_due: true, ..aside });
        }
        Some(then)
    }

    /// Until when it waits at most.
    pub(super) fn aside_deadline(&self) -> Option<Millis> {
        self.aside.as_ref()?.deadline()
    }

    /// Whether it need not wait any longer.
    pub(in crate::server) fn poll_aside(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.aside.as_mut().map_or(Poll::Pending, |aside| aside.poll(cx))
    }
}

/// Whether only one such request may be under way: those that something is computed for.
fn is_exclusive(request: &Request<'_>) -> bool {
    use AuthRequest::{Exchange, Login, Set};
    matches!(request, Request::Auth(Exchange { .. } | Login(_) | Set(_)))
}
