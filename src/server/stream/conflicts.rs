//! Conflicts for clients: the recent ones (`conflicts`), and new ones (`watch`). Nothing is queued
//! for a client: the engine's list is the queue, and a client that is too slow for it is told how
//! many were dropped from it meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;

use super::tree::EntryStyle;
use super::{Emit, Garbage, Progress, Source};
use crate::engine::conflicts::{Conflicts, FoundConflict};
use crate::model::entry::Entry;
use crate::model::path::Path;
use crate::protocol::client::{Action, MessageWriter};
use crate::replica::watch::WatchScope;
use crate::server::access::authorise::Target;
use crate::server::access::sight::Sight;
use crate::server::connections::session::{Context, NodeNames};

/// Most conflicts, and about as many bytes of them (but for one), that are taken from the list at
/// once: what was taken stays in memory, whatever the list drops.
const TAKE: usize = 64;
const TAKE_BYTES: usize = 256 << 10;

/// A place in the engine's list.
pub(in crate::server) struct ConflictFeed {
    /// The number of the last one that was taken.
    taken: u64,
    /// The number of the last one that may be sent now.
    until: u64,
    /// Each with how many the list had dropped between it and the one before.
    queue: VecDeque<(u64, Arc<FoundConflict>)>,
    /// Conflicts, anywhere in the tree, that the list had dropped before they were taken: before those in `queue`,
    /// and not reported to the client yet; and behind them.
    dropped: u64,
    dropped_behind: u64,
}

impl ConflictFeed {
    /// For conflicts that will be found, each to be sent only when it is allowed.
    pub(in crate::server) fn from_now_on(conflicts: &Conflicts) -> Self {
        let last = conflicts.last();
        Self { taken: last, until: last, queue: VecDeque::new(), dropped: 0, dropped_behind: 0 }
    }

    /// For those in scope, and shown, that have been found after a number; only the last ones, up to the limit.
    pub(in crate::server) fn recent(
        conflicts: &Conflicts,
        scope: &WatchScope,
        sight: &mut Sight,
        (since, limit): (u64, Option<usize>),
    ) -> Self {
        let until = conflicts.last();
        // A number from before the node's last start means nothing now: all are new.
        let since = if since > until { 0 } else { since };
        let mut is_wanted = |path: &Path| scope.wants(path) && sight.shows(path);
        let wanted = conflicts.since(since).rev().filter(|f| is_wanted(&f.conflict.path));
        let mut numbers = wanted.map(|f| f.number);
        let begin = limit.and_then(|limit| {
            let oldest = limit.checked_sub(1).map_or(Some(until + 1), |n| numbers.nth(n))?;
            // Others are left out: what the list has dropped before these was not asked for either.
            numbers.next().map(|_| oldest - 1)
        });
        let taken = begin.unwrap_or(since);
        Self { taken, until, queue: VecDeque::new(), dropped: 0, dropped_behind: 0 }
    }

    /// Conflicts up to this number may be sent.
    pub(in crate::server) fn allow(&mut self, number: u64) {
        self.until = self.until.max(number);
    }

    /// Takes some that wait in the list; returns whether there were any, in scope or not.
    fn take(&mut self, conflicts: &Conflicts) -> bool {
        let mut bytes = 0;
        let before = self.taken;
        for found in conflicts.since(self.taken).take(TAKE) {
            let dropped_until = self.until.min(found.number - 1);
            self.dropped_behind += dropped_until - self.taken;
            self.taken = dropped_until;
            if found.number > self.until || bytes >= TAKE_BYTES {
                break;
            }
            let conflict = &found.conflict;
            bytes += conflict.winner.memory_bytes() + conflict.loser.memory_bytes();
            self.taken = found.number;
            self.queue.push_back((std::mem::take(&mut self.dropped_behind), Arc::clone(found)));
        }
        self.taken > before
    }

    /// Writes the next one in scope that may be sent and is shown. Idle if there is none.
    pub(in crate::server) fn next(
        &mut self,
        cx: &Context<'_>,
        scope: &WatchScope,
        (style, sight): (&mut EntryStyle, &mut Sight),
        emit: &mut Emit<'_>,
    ) -> Progress {
        loop {
            while let Some((dropped, found)) = self.queue.pop_front() {
                self.dropped += dropped;
                let path = &found.conflict.path;
                if scope.wants(path) && sight.shows(path) {
                    self.write(&found, style, sight.is_everything(), emit);
                    return Progress::Wrote;
                }
            }
            let names =
                cx.hub.read(|engine| self.take(engine.conflicts()).then(|| NodeNames::of(engine)));
            match names {
                Some(names) => style.names = names,
                None => return Progress::Idle,
            }
            if !cx.is_current() {
                // They may be of after a change of the client's rights, which come first.
                return Progress::Busy;
            }
        }
    }

    /// `counts`: how many were dropped is told.
    fn write(
        &mut self,
        found: &FoundConflict,
        style: &mut EntryStyle,
        counts: bool,
        emit: &mut Emit<'_>,
    ) {
        let tock = emit.tock();
        let (mut message, tag) = emit.begin();
        let mut conflict = MessageWriter::new(message.key("conflict"));
        conflict.u64("number", found.number).bool("changed", found.conflict.took_theirs);
        let mut version = |key, entry: &Entry| {
            let mut version = MessageWriter::new(conflict.key(key));
            let path = found.conflict.path.as_bytes();
            version.entry(path, entry, style.chain, style.names.names());
        };
        version("winner", &found.conflict.winner);
        version("loser", &found.conflict.loser);
        style.shortener.add_path(&found.conflict.path, &mut message);
        message.tag(tag).tock(tock);
        if self.dropped > 0 {
            // Of those that the client may not see, not even how many there were.
            let dropped = std::mem::take(&mut self.dropped);
            message.u64("dropped", if counts { dropped } else { 1 });
        }
    }
}

/// `conflicts`: the recent ones.
pub(in crate::server) struct ConflictsSource {
    pub(in crate::server) feed: ConflictFeed,
    pub(in crate::server) scope: WatchScope,
    pub(in crate::server) style: EntryStyle,
    pub(in crate::server) sight: Sight,
}

impl Source for ConflictsSource {
    fn asks(&self) -> Option<(Action, Target<'_>)> {
        Some(self.sight.asks())
    }

    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        if let Err(error) = self.sight.refresh(&cx.access) {
            return Progress::Failed(error);
        }
        match self.feed.next(cx, &self.scope, (&mut self.style, &mut self.sight), emit) {
            Progress::Idle => Progress::Finished,
            progress => progress,
        }
    }

    fn rest(&mut self) {
        self.sight.rest();
    }

    fn close(self: Box<Self>, _: &Context<'_>) -> Option<Garbage> {
        None
    }
}
