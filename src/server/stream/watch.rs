//! `watch`: the changes of a subtree, after its present state if requested, and with conflicts if
//! requested. A watch whose queue overflowed starts over from a snapshot: it sends the latest
//! version of everything that the client has not had, deletions included, and continues from there.
//! Clients notice nothing, unless they asked for it (`restart`), and memory stays bounded.
//!
//! A watch whose client may read more than before sends that, too ([`super::growth`]).

use std::collections::VecDeque;
use std::sync::Arc;

use super::conflicts::ConflictFeed;
use super::growth::{Growth, Shown};
use super::tree::EntryStyle;
use super::walk::{Include, Look, ScopeWalk};
use super::withheld::Withheld;
use super::{Emit, Garbage, Progress, Source};
use crate::hub::Resumption;
use crate::hub::bundle::Bundle;
use crate::hub::client_memory::{Account, Pin};
use crate::hub::gone::{GoneLook, GoneWalk};
use crate::hub::inbox::{Inbox, QueueId, Waiting, WatchContent, WatchItem};
use crate::protocol::client::{Action, ClientError, ErrorCode};
use crate::replica::watch::{WatchId, WatchScope};
use crate::server::access::authorise::Target;
use crate::server::access::sight::Sight;
use crate::server::connections::session::{Context, NodeNames};

/// Entries of the log of gone entries, or changes that are not shown, that one call looks at, so that others get
/// their turn.
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
    /// What the client may read now and could not before.
    Show(Shown),
}

impl Phase {
    fn discard(self) -> Option<Garbage> {
        match self {
            Phase::Fetch(walk) | Phase::Resume(walk) => walk.discard(),
            Phase::Gone { walk, .. } => Some(walk),
            Phase::Show(shown) => shown.discard(),
            Phase::Live => None,
        }
    }
}

/// The bundle being sent.
struct Telling {
    bundle: Arc<Bundle>,
    /// The place of its next change.
    place: usize,
    /// Its messages may be those that other watches send, too: none was left out so far.
    is_shared: bool,
}

/// See the module.
pub(in crate::server) struct WatchSource {
    id: WatchId,
    scope: WatchScope,
    inbox: Arc<Inbox>,
    account: Arc<Account>,
    style: EntryStyle,
    sight: Sight,
    /// The client asked to be told when the watch starts over.
    tells_restart: bool,
    /// The client wants changes, not only conflicts.
    tells_changes: bool,
    /// It had a turn.
    has_begun: bool,
    growth: Growth,
    phase: Phase,
    queue: VecDeque<WatchItem>,
    telling: Option<Telling>,
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
        Self {
            id,
            sight: Sight::new(Action::Watch, scope.top.clone()),
            scope,
            inbox,
            account,
            style,
            tells_restart: false,
            tells_changes: true,
            has_begun: false,
            growth: Growth::default(),
            phase: fetch.map_or(Phase::Live, Phase::Fetch),
            queue: VecDeque::new(),
            telling: None,
            conflicts: None,
        }
    }

    /// The client asked to be told when the watch starts over.
    pub(in crate::server) fn telling_restarts(self, tells_restart: bool) -> Self {
        Self { tells_restart, ..self }
    }

    /// The client asked for this; `conflicts`: for those, too.
    pub(in crate::server) fn about(
        self,
        content: WatchContent,
        conflicts: Option<ConflictFeed>,
    ) -> Self {
        Self { tells_changes: content.has_changes(), conflicts, ..self }
    }

    /// The client's rights are others than before.
    fn on_rights(&mut self, before: Sight) {
        match &mut self.phase {
            Phase::Fetch(walk) | Phase::Resume(walk) => walk.check_again(&mut self.sight),
            Phase::Show(shown) => shown.check_again(&mut self.sight),
            Phase::Gone { .. } | Phase::Live => {}
        }
        if self.has_begun && self.tells_changes {
            let starts_over = matches!(self.phase, Phase::Gone { .. } | Phase::Resume(_));
            let withheld = || Withheld::new(self.id, &self.inbox);
            self.growth.on_rights((before, &self.sight), starts_over, withheld);
        }
    }

    fn next_live(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        let mut looked_at = 0;
        loop {
            if let Some(feed) = &mut self.conflicts {
                match feed.next(cx, &self.scope, (&mut self.style, &mut self.sight), emit) {
                    Progress::Idle => {}
                    progress => return progress,
                }
            }
            if self.tell(emit) {
                return Progress::Wrote;
            }
            if looked_at > LOOK_MAX {
                return Progress::Searched;
            }
            match self.queue.pop_front() {
                Some(WatchItem::Changes(bundle)) => {
                    looked_at += bundle.changes().len();
                    let is_shared = self.conflicts.is_none();
                    self.telling = Some(Telling { bundle, place: 0, is_shared });
                }
                Some(WatchItem::ConflictsUpTo(number)) => {
                    if let Some(feed) = &mut self.conflicts {
                        feed.allow(number);
                    }
                }
                None => {
                    if let Some(progress) = self.take_more(cx, emit) {
                        return progress;
                    }
                }
            }
        }
    }

    /// All that was taken is told: takes more.
    fn take_more(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Option<Progress> {
        let watch = (self.id, &*self.inbox);
        let shown = (&self.scope, &mut self.sight);
        let older = match self.growth.look(cx.hub, watch, shown, &self.account) {
            Ok(older) => older,
            Err(error) => return Some(Progress::Failed(error)),
        };
        if let Some(shown) = self.growth.take() {
            self.phase = Phase::Show(shown);
            return Some(Progress::Busy);
        }
        match self.inbox.take_first(self.id, older.unwrap_or(usize::MAX)) {
            Waiting::Items(items) if items.is_empty() => Some(Progress::Idle),
            Waiting::Items(items) => {
                self.growth.note_taken(items.len());
                self.refill(items, cx);
                // They may be of after a change of the client's rights, which come first.
                (!cx.is_current()).then_some(Progress::Busy)
            }
            Waiting::Overflowed => Some(self.start_over(cx, emit)),
        }
    }

    /// Writes the next change of the present bundle, or some, if there is one that is shown.
    fn tell(&mut self, emit: &mut Emit<'_>) -> bool {
        let Some(telling) = &mut self.telling else { return false };
        if !self.sight.is_everything() {
            return self.tell_shown(emit);
        }
        let Telling { bundle, place, is_shared } = telling;
        let changes = bundle.changes();
        let Some(change) = changes.get(*place) else {
            self.telling = None;
            return false;
        };
        // Conflicts may be sent in between, and have paths that are shortened, too.
        let encoded = if *is_shared {
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

    /// Writes the next change of the present bundle that the client's rights show, if there is one.
    fn tell_shown(&mut self, emit: &mut Emit<'_>) -> bool {
        let Some(Telling { bundle, place, is_shared }) = &mut self.telling else { return false };
        let changes = bundle.changes();
        // What other watches' messages are shortened by is not what this one sends from here on.
        if std::mem::take(is_shared)
            && let Some(last) = place.checked_sub(1).and_then(|last| changes.get(last))
        {
            self.style.shortener.pass(&last.path);
        }
        while let Some(change) = changes.get(*place) {
            *place += 1;
            if self.sight.shows(&change.path) {
                self.style.write_change(change, emit);
                return true;
            }
            self.growth.note_passed_over(change);
        }
        self.telling = None;
        false
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
        emit.discard(self.growth.on_overflow());
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
                GoneLook::Tell(deletion) if !self.sight.shows(&deletion.path) => {}
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
        Progress::Searched
    }

    fn next_shown(&mut self, emit: &mut Emit<'_>) -> Progress {
        let Phase::Show(shown) = &mut self.phase else { return Progress::Busy };
        match shown.next(self.tells_restart, (&mut self.style, &mut self.sight), emit) {
            Progress::Finished => {
                self.growth.on_told(&mut self.sight);
                self.go_live(emit);
                Progress::Busy
            }
            progress => progress,
        }
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
    fn asks(&self) -> Option<(Action, Target<'_>)> {
        Some(self.sight.asks())
    }

    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        let before = match self.sight.refresh(&cx.access) {
            Ok(before) => before,
            Err(error) => return Progress::Failed(error),
        };
        if let Some(before) = before {
            self.on_rights(before);
        }
        self.has_begun = true;
        let (walk, is_first) = match &mut self.phase {
            Phase::Live => return self.next_live(cx, emit),
            Phase::Gone { .. } => return self.next_gone(emit),
            Phase::Show(_) => return self.next_shown(emit),
            Phase::Fetch(walk) => (walk, true),
            Phase::Resume(walk) => (walk, false),
        };
        match walk.next(&mut self.sight) {
            Look::Item(item) => {
                self.style.write(&item, emit);
                Progress::Wrote
            }
            Look::Busy => Progress::Searched,
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
        !matches!(self.phase, Phase::Live) || self.growth.holds_snapshot()
    }

    fn rest(&mut self) {
        self.sight.rest();
    }

    fn close(self: Box<Self>, cx: &Context<'_>) -> Option<Garbage> {
        cx.hub.unwatch(self.id);
        // Of two, one is there.
        self.growth.discard().or(self.phase.discard())
    }
}
