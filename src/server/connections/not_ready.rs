//! Requests that arrive while the node is still catching up with its network: they wait for it, for
//! the configured time, and are refused then.
//!
//! The original opens its client port only when it is ready, and its clients know no error that says
//! "later". Requests that wait are put aside, in order, so that those behind them that need no data are
//! answered meanwhile; in the original each request is a task of its own. When as many wait as may, the rest
//! stays in the connection's input. Whoever hangs up is gone. A client that has other nodes to go to asks
//! not to wait (`nowait` in its settings).

use std::collections::VecDeque;

use super::session::Context;
use crate::engine::Engine;
use crate::model::ids::Millis;
use crate::protocol::client::{Action, Request};

/// Most bytes of requests of one connection that wait; one may exceed it alone.
const WAITING_BYTES_MAX: usize = 64 << 10;
/// Most of them that are carried out together.
const TOGETHER_MAX: usize = 256;

/// One connection's patience with its node.
#[derive(Default)]
pub(in crate::server) struct Patience {
    /// The node has been ready; from then on it is not asked again.
    saw_ready: bool,
    /// The client wants to be refused at once.
    nowait: bool,
    /// Nothing waits any longer.
    gave_up: bool,
    /// Invariant: their deadlines rise.
    waiting: VecDeque<Waiting>,
    /// The length of all messages in `waiting`.
    bytes: usize,
}

/// A request that waits.
pub(in crate::server) struct Waiting {
    pub(in crate::server) seq: u64,
    pub(in crate::server) action: Action,
    /// The window of streams when it came.
    pub(in crate::server) window: Option<u64>,
    /// The whole message.
    pub(in crate::server) message: Vec<u8>,
    deadline: Millis,
}

impl Patience {
    /// Whether a request that has arrived must wait. If not, it may be carried out, or refused, now.
    pub(super) fn holds_back(&mut self, cx: &Context<'_>, request: &Request<'_>) -> bool {
        if self.nowait || self.gave_up || !self.needs_ready(request) {
            return false;
        }
        if !self.waiting.is_empty() {
            // Also if the node is ready by now: those before it come first.
            return true;
        }
        self.saw_ready = self.saw_ready || cx.hub.read(Engine::is_ready);
        !self.saw_ready && cx.shared.config.ready_wait_ms > 0
    }

    fn needs_ready(&self, request: &Request<'_>) -> bool {
        // Where its path begins is known when the session's root has moved.
        let moves_root = |waiting: &Waiting| waiting.action == Action::Root;
        request.needs_ready()
            || (matches!(request, Request::Conflicts { .. }) && self.waiting.iter().any(moves_root))
    }

    /// Puts a request aside. Tells whether there was room.
    pub(in crate::server) fn keep(
        &mut self,
        cx: &Context<'_>,
        (seq, action): (u64, Action),
        window: Option<u64>,
        message: &[u8],
    ) -> bool {
        if !self.waiting.is_empty() && self.bytes + message.len() > WAITING_BYTES_MAX {
            return false;
        }
        let deadline = cx.now.saturating_add(cx.shared.config.ready_wait_ms);
        self.bytes += message.len();
        self.waiting.push_back(Waiting {
            seq,
            action,
            window,
            message: message.to_vec(),
            deadline,
        });
        true
    }

    /// Takes the first of those that wait no longer: the node is ready, or they have waited long enough.
    /// What is not carried out after all is to be [put back](Self::put_back).
    pub(in crate::server) fn take_due(&mut self, cx: &Context<'_>) -> Vec<Waiting> {
        let Some(first) = self.waiting.front() else { return Vec::new() };
        self.saw_ready = self.saw_ready || cx.hub.read(Engine::is_ready);
        let all = self.saw_ready || self.gave_up || cx.access.is_stranger();
        let window = first.window;
        let is_due = |w: &&Waiting| w.window == window && (all || w.deadline <= cx.now);
        let count = self.waiting.iter().take(TOGETHER_MAX).take_while(is_due).count();
        let due: Vec<Waiting> = self.waiting.drain(..count).collect();
        self.bytes -= due.iter().map(|waiting| waiting.message.len()).sum::<usize>();
        due
    }

    /// These still wait, before all others.
    pub(in crate::server) fn put_back(&mut self, rest: impl DoubleEndedIterator<Item = Waiting>) {
        for waiting in rest.rev() {
            self.bytes += waiting.message.len();
            self.waiting.push_front(waiting);
        }
    }

    /// Takes a request that waits, because its client does not want it any more.
    pub(in crate::server) fn withdraw(&mut self, seq: u64) -> Option<Waiting> {
        let at = self.waiting.iter().position(|waiting| waiting.seq == seq)?;
        let waiting = self.waiting.remove(at)?;
        self.bytes -= waiting.message.len();
        Some(waiting)
    }

    /// Whether no request can be held back any more, so that many may be carried out together.
    pub(super) fn is_needless(&self) -> bool {
        (self.saw_ready && self.waiting.is_empty()) || self.nowait || self.gave_up
    }

    /// The client's wish, from now on.
    pub(super) fn set_nowait(&mut self, nowait: bool) {
        self.nowait = nowait;
    }

    /// Whether requests wait.
    pub(in crate::server) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Until when the first of them waits; none if none does.
    pub(in crate::server) fn deadline(&self) -> Option<Millis> {
        self.waiting.front().map(|waiting| waiting.deadline)
    }

    /// About how much memory they take.
    pub(in crate::server) fn bytes(&self) -> usize {
        self.bytes + self.waiting.len() * size_of::<Waiting>()
    }

    /// Nothing is to wait any longer.
    pub(in crate::server) fn give_up(&mut self) {
        self.gave_up = true;
    }
}
