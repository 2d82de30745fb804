//! `watch`: the changes of a subtree, after its present state if requested, and with conflicts if
//! requested. A watch whose queue overflowed starts over from a snapshot: it sends the latest
//! version of everything that the client has not had, deletions included, and continues from there.
//! Clients notice nothing, unless they asked for it (`restart`), and memory stays bounded.

use std::collections::VecDeque;
use std::sync::Arc;

use super::conflicts::ConflictFeed;
use super::tree::EntryStyle;
use super::walk::{Include, Look, ScopeWalk};
use super::{Emit, Garbage, Progress, Source};
use crate::hub::Resumption;
use crate::hub::bundle::Bundle;
use crate::hub::client_memory::{Account, Pin};
use crate::hub::gone::{GoneLook, GoneWalk};
use crate::hub::inbox::{Inbox, QueueId, Waiting, WatchItem};
use crate::protocol::client::{ClientError, ErrorCode};
use crate::replica::watch::{WatchId, WatchScope};
use crate::server::connections::session::{Context, NodeNames};

/// Entries of the log of gone entries that one call looks at, so that others get their turn.
const LOOK_MAX: usize = 4096;

enum Phase {
    /// The state as it was when the watch began.
    Fetch(ScopeWalk),
    /// The next messages.
    Live,
    /// After an overflow: entries that are gone, and in no snapshot; then [`Phase::Resume`].
    Gone {
        walk: Box<GoneWalk>,
        /// Charges the connection with what the walk's snapshot holds.
        _pin: Pin,
    },
    /// After an overflow: what the client has not had. A second overflow meanwhile waits until this
    /// is done: what it then counts as had includes all of this snapshot.
    Resume(ScopeWalk),
}

impl Phase {
    fn discard(self) -> Option<Garbage> {
        match self {
            Phase::Fetch(walk) | Phase::Resume(walk) => walk.discard(),
            Phase::Gone { walk, .. } => Some(walk),
            Phase::Live => None,
        }
    }
}

/// See the module.
pub(in crate::server) struct WatchSource {
    id: WatchId,
    scope: WatchScope,
    inbox: Arc<Inbox>,
    account: Arc<Account>,
    style: EntryStyle,
    /// The client asked to be told when the watch starts over.
    tells_restart: bool,
    phase: Phase,
    queue: VecDeque<WatchItem>,
    /// The bundle being sent, and the place of its next change.
    telling: Option<(Arc<Bundle>, usize)>,
    conflicts: Option<ConflictFeed>,
}

impl WatchSource {
    /// A watch that is registered with the hub already; `fetch`: the walk of its first state.
    pub(in crate::server) fn new(
        id: WatchId,
        scope: WatchScope,
        (inbox, account): (Arc<Inbox>, Arc<Account>),
        style: EntryStyle,
        fetch: Option<ScopeWalk>,
    ) -> Self {
        let phase = fetch.map_or(Phase::Live, Phase::Fetch);
        let queue = VecDeque::new();
        let (tells_restart, telling, conflicts) = (false, None, None);
        Self { id, scope, inbox, account, style, tells_restart, phase, queue, telling, conflicts }
    }

    /// The client asked to be told when the watch starts over.
    pub(in crate::server) fn telling_restarts(self, tells_restart: bool) -> Self {
        Self { tells_restart, ..self }
    }

    /// The client asked for conflicts.
    pub(in crate::server) fn with_conflicts(self, conflicts: Option<ConflictFeed>) -> Self {
        Self { conflicts, ..self }
    }

    fn next_live(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        loop {
            if let Some(feed) = &mut self.conflicts
                && feed.next(cx, &self.scope, &mut self.style, emit)
            {
                return Progress::Wrote;
            }
            if self.tell(emit) {
                return Progress::Wrote;
            }
            match self.queue.pop_front() {
                Some(WatchItem::Changes(bundle)) => self.telling = Some((bundle, 0)),
                Some(WatchItem::ConflictsUpTo(number)) => {
                    if let Some(feed) = &mut self.conflicts {
                        feed.allow(number);
                    }
                }
                None => match self.inbox.take_items(self.id) {
                    Waiting::Items(items) if items.is_empty() => return Progress::Idle,
                    Waiting::Items(items) => self.refill(items, cx),
                    Waiting::Overflowed => return self.start_over(cx, emit),
                },
            }
        }
    }

    /// Writes the next change of the present bundle, if there is one.
    fn tell(&mut self, emit: &mut Emit<'_>) -> bool {
        let Some((bundle, place)) = &mut self.telling else { return false };
        let changes = bundle.changes();
        let Some(change) = changes.get(*place) else {
            self.telling = None;
            return false;
        };
        // Conflicts may be sent in between, and have paths that are shortened, too.
        let encoded = if self.conflicts.is_none() {
            let style = &self.style;
            bundle.encoded(style.looks(), |encoded| style.encode(changes, encoded))
        } else {
            None
        };
        let mut told = *place;
        match encoded {
            Some(encoded) if told > 0 => told += emit.finish(encoded.messages(told)),
            _ => {
                if let Some(encoded) = encoded {
                    emit.expect(encoded.bytes());
                }
                self.style.write_change(change, emit);
                told += 1;
            }
        }
        if told == changes.len()
            && let Some(last) = changes.last()
        {
            self.style.shortener.pass(&last.path);
            self.telling = None;
        } else {
            *place = told;
        }
        true
    }

    fn refill(&mut self, items: Vec<WatchItem>, cx: &Context<'_>) {
        self.queue = items.into();
        if !self.style.chain.is_none() {
            // The changes may be of nodes that were not known when the last ones came.
            self.style.names = cx.hub.read(NodeNames::of);
        }
    }

    fn start_over(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        let walk = match cx.hub.resume_watch(self.id, &self.inbox) {
            None => return Progress::Busy,
            Some(Resumption::From(walk)) => walk,
            Some(Resumption::Lost) => return Progress::Failed(lost()),
        };
        self.style.names = cx.hub.read(NodeNames::of);
        let pin = self.account.pin(walk.tree().memory_bytes());
        self.phase = Phase::Gone { walk, _pin: pin };
        if self.tells_restart {
            emit.state("restart");
            return Progress::Wrote;
        }
        Progress::Busy
    }

    fn next_gone(&mut self, emit: &mut Emit<'_>) -> Progress {
        let Phase::Gone { walk, .. } = &mut self.phase else { return Progress::Busy };
        for _ in 0..LOOK_MAX {
            match walk.look(&self.scope) {
                GoneLook::Skip => {}
                GoneLook::Tell(deletion) => {
                    self.style.write_change(&deletion, emit);
                    return Progress::Wrote;
                }
                GoneLook::End => {
                    let include = Include::Lacking(walk.had().clone());
                    let pin = self.account.pin(walk.tree().memory_bytes());
                    let next = ScopeWalk::new(walk.tree(), self.scope.clone(), include);
                    let next = next.pinned_by(pin);
                    emit.discard(std::mem::replace(&mut self.phase, Phase::Resume(next)).discard());
                    return Progress::Busy;
                }
            }
        }
        Progress::Busy
    }

    fn go_live(&mut self, emit: &mut Emit<'_>) {
        emit.discard(std::mem::replace(&mut self.phase, Phase::Live).discard());
    }
}

/// What a client receives if its watch cannot start over.
fn lost() -> ClientError {
    let text = "this watch fell behind, and more entries vanished meanwhile than are remembered \
                for it; start the watch again, with 'fetch'";
    ClientError::new(ErrorCode::TooSlow, text)
}

impl Source for WatchSource {
    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        let (walk, is_first) = match &mut self.phase {
            Phase::Live => return self.next_live(cx, emit),
            Phase::Gone { .. } => return self.next_gone(emit),
            Phase::Fetch(walk) => (walk, true),
            Phase::Resume(walk) => (walk, false),
        };
        match walk.next() {
            Look::Item(item) => {
                self.style.write(&item, emit);
                Progress::Wrote
            }
            Look::Busy => Progress::Busy,
            Look::End => {
                self.go_live(emit);
                if is_first {
                    emit.state("uptodate");
                    Progress::Wrote
                } else {
                    Progress::Busy
                }
            }
        }
    }

    fn is_endless(&self) -> bool {
        true
    }

    fn queue(&self) -> Option<QueueId> {
        Some(QueueId::Watch(self.id))
    }

    fn holds_snapshot(&self) -> bool {
        !matches!(self.phase, Phase::Live)
    }

    fn close(self: Box<Self>, cx: &Context<'_>) -> Option<Garbage> {
        cx.hub.unwatch(self.id);
        self.phase.discard()
    }
}
