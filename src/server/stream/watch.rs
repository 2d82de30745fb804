//! `watch`: the changes of a subtree, perhaps after its state as it is. A watch whose queue
//! overflowed starts over from a snapshot: it sends the latest version of whatever the client
//! has not had, deletions included, and goes on from there. Clients notice nothing, unless they
//! asked for it (`restart`), and memory stays bounded.

use std::collections::VecDeque;
use std::sync::Arc;

use super::tree::EntryStyle;
use super::walk::{Include, Item, Look, ScopeWalk};
use super::{Emit, Garbage, Progress, Source};
use crate::hub::inbox::{Inbox, Waiting};
use crate::replica::Committed;
use crate::replica::watch::{WatchId, WatchScope};
use crate::server::session::{Context, NodeNames};

/// Changes taken from the inbox at once.
const TAKE: usize = 64;

enum Phase {
    /// The state as it was when the watch began.
    Fetch(ScopeWalk),
    /// What comes.
    Live,
    /// After an overflow: what the client has not had. A second overflow meanwhile waits until
    /// this is through: what it then counts as had includes all of this snapshot.
    Resume(ScopeWalk),
}

/// See the module.
pub(in crate::server) struct WatchSource {
    id: WatchId,
    scope: WatchScope,
    inbox: Arc<Inbox>,
    style: EntryStyle,
    /// The client wants to be told when the watch starts over.
    tells_restart: bool,
    phase: Phase,
    queue: VecDeque<Committed>,
}

impl WatchSource {
    /// A watch that is registered with the hub already; `fetch`: the walk of its first state.
    pub(in crate::server) fn new(
        id: WatchId,
        scope: WatchScope,
        inbox: Arc<Inbox>,
        style: EntryStyle,
        fetch: Option<ScopeWalk>,
        tells_restart: bool,
    ) -> Self {
        let phase = fetch.map_or(Phase::Live, Phase::Fetch);
        Self { id, scope, inbox, style, tells_restart, phase, queue: VecDeque::new() }
    }

    fn next_live(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        if self.queue.is_empty() {
            match self.inbox.take_changes(self.id, TAKE) {
                Waiting::Changes(changes) if changes.is_empty() => return Progress::Idle,
                Waiting::Changes(changes) => self.queue = changes.into(),
                Waiting::Overflowed => return self.start_over(cx, emit),
            }
            if !self.style.chain.is_none() {
                // The changes may be of nodes that were not known when the last ones came.
                self.style.names = cx.hub.read(NodeNames::of);
            }
        }
        let Some(change) = self.queue.pop_front() else { return Progress::Idle };
        let tock = change.entry.tock();
        let item = Item { path: change.path, entry: Some(change.entry), tock };
        self.style.write(&item, emit);
        Progress::Wrote
    }

    fn start_over(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        let Some((had, tree)) = cx.hub.resume_watch(self.id, &self.inbox) else {
            return Progress::Idle;
        };
        self.style.names = cx.hub.read(NodeNames::of);
        let walk = ScopeWalk::new(&tree, self.scope.clone(), Include::Lacking(had));
        self.phase = Phase::Resume(walk);
        if self.tells_restart {
            emit.state("restart");
            return Progress::Wrote;
        }
        Progress::Busy
    }

    fn go_live(&mut self, emit: &mut Emit<'_>) {
        match std::mem::replace(&mut self.phase, Phase::Live) {
            Phase::Fetch(walk) | Phase::Resume(walk) => emit.discard(walk.discard()),
            Phase::Live => {}
        }
    }
}

impl Source for WatchSource {
    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        let (walk, is_first) = match &mut self.phase {
            Phase::Live => return self.next_live(cx, emit),
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

    fn holds_snapshot(&self) -> bool {
        !matches!(self.phase, Phase::Live)
    }

    fn close(self: Box<Self>, cx: &Context<'_>) -> Option<Garbage> {
        cx.hub.unwatch(self.id);
        match self.phase {
            Phase::Fetch(walk) | Phase::Resume(walk) => walk.discard(),
            Phase::Live => None,
        }
    }
}
