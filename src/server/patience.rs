//! Requests that arrive while the node is still catching up with its network: they wait for it, for
//! the configured time, and are refused then.
//!
//! The original opens its client port only when it is ready, and its clients know no error that
//! says "later". The input of a connection waits together and in order, so waiting takes no more
//! memory than that, and nothing is kept for a client that hangs up. A client that can go to other
//! nodes asks not to wait (`nowait` in its settings).

use super::session::Context;
use crate::engine::Engine;
use crate::model::ids::Millis;
use crate::protocol::client::Request;

/// One connection's patience with its node.
#[derive(Default)]
pub(super) struct Patience {
    /// The node has been ready; from then on it is not asked again.
    saw_ready: bool,
    /// The client wants to be refused at once.
    nowait: bool,
    /// The oldest request that waits does so until then; none if none waits.
    deadline: Option<Millis>,
}

impl Patience {
    /// Whether a request may be carried out, or refused, now. If not, it begins to wait.
    pub(super) fn lets_through(&mut self, cx: &Context<'_>, request: &Request<'_>) -> bool {
        if self.saw_ready || self.nowait || !request.needs_ready() {
            return true;
        }
        if cx.hub.read(Engine::is_ready) {
            self.saw_ready = true;
            return true;
        }
        let wait = cx.shared.config.ready_wait_ms;
        let deadline = *self.deadline.get_or_insert(cx.now.saturating_add(wait));
        cx.now >= deadline
    }

    /// Whether no request can be held back any more, so that many may be carried out together.
    pub(super) fn is_needless(&self) -> bool {
        self.saw_ready || self.nowait
    }

    /// The client's wish, from now on.
    pub(super) fn set_nowait(&mut self, nowait: bool) {
        self.nowait = nowait;
    }

    /// Whether requests wait.
    pub(super) fn is_waiting(&self) -> bool {
        self.deadline.is_some()
    }

    /// Until when the requests that wait do so.
    pub(super) fn deadline(&self) -> Option<Millis> {
        self.deadline
    }

    /// What waits is not to wait any longer.
    pub(super) fn give_up(&mut self) {
        if self.deadline.is_some() {
            self.deadline = Some(0);
        }
    }

    /// All input is answered: the next request may wait anew.
    pub(super) fn renew(&mut self) {
        self.deadline = None;
    }
}
