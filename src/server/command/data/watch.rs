//! `watch`, `conflicts` and `stop`.

use std::sync::Arc;

use crate::hub::inbox::WatchContent;
use crate::protocol::client::reply::{StreamTag, write_error, write_result, write_state};
use crate::protocol::client::request::{TreeScope, WatchConflicts};
use crate::protocol::client::shorten::Shortener;
use crate::protocol::client::{Action, ClientError, ErrorCode};
use crate::server::access::sight::Sight;
use crate::server::connections::session::{Context, NodeNames, Session, Then};
use crate::server::stream::walk::Include;
use crate::server::stream::{ConflictFeed, ConflictsSource, EntryStyle, WatchSource};

/// `true` in MessagePack.
const TRUE: &[u8] = &[0xc3];
/// `false` in MessagePack.
const FALSE: &[u8] = &[0xc2];

impl Session {
    /// `watch`. Registers and takes the snapshot under one guard, so that nothing older follows
    /// something newer.
    pub(in crate::server) fn watch(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        scope: &TreeScope<'_>,
        fetch: bool,
        restart: bool,
        conflicts: WatchConflicts,
    ) -> Result<Then, ClientError> {
        let content = match conflicts {
            WatchConflicts::Without => WatchContent::Changes,
            WatchConflicts::With => WatchContent::ChangesAndConflicts,
            WatchConflicts::Only => WatchContent::Conflicts,
        };
        let watched = self.watch_scope(cx, Action::Watch, scope)?;
        Self::check_ready(cx)?;
        self.check_room(cx, seq)?;
        // Before the watch begins: so the list has all that is found from then on.
        let feed = content
            .has_conflicts()
            .then(|| cx.hub.read(|engine| ConflictFeed::from_now_on(engine.conflicts())));
        let added = cx.hub.watch(watched.clone(), content, &self.inbox, &self.holder());
        let (id, tree) =
            added.map_err(|no| ClientError::new(ErrorCode::TooMany, no.text("watches")))?;
        let shortener = Shortener::new(&watched.top);
        let names = cx.hub.read(NodeNames::of);
        let style = EntryStyle { shortener, chain: scope.chain, names };
        let walk = fetch.then(|| self.pinned_walk(&tree, watched.clone(), Include::Values));
        let queues = (Arc::clone(&self.inbox), Arc::clone(&self.account));
        let source = WatchSource::new(id, watched, queues, style, walk)
            .telling_restarts(restart)
            .about(content, feed);
        self.open_stream(cx, seq, Box::new(source));
        Ok(Then::Continue)
    }

    /// `conflicts`: those that were found here lately. It needs no data, so a node that has not
    /// caught up yet answers too.
    pub(in crate::server) fn conflicts(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        scope: &TreeScope<'_>,
        since: u64,
        limit: Option<usize>,
    ) -> Result<Then, ClientError> {
        let watched = self.watch_scope(cx, Action::Conflicts, scope)?;
        self.check_room(cx, seq)?;
        let mut sight = Sight::new(Action::Conflicts, watched.top.clone());
        sight.refresh(&cx.access)?;
        let (feed, names) = cx.hub.read(|engine| {
            let wanted = (since, limit);
            let feed = ConflictFeed::recent(engine.conflicts(), &watched, &mut sight, wanted);
            (feed, NodeNames::of(engine))
        });
        let shortener = Shortener::new(&watched.top);
        let style = EntryStyle { shortener, chain: scope.chain, names };
        let source = ConflictsSource { feed, scope: watched, style, sight };
        self.open_stream(cx, seq, Box::new(source));
        Ok(Then::Continue)
    }

    /// `stop`: the answer comes before the stream's end. A request that still waits for the node to be ready
    /// does so no longer.
    pub(in crate::server) fn stop(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        task: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Then {
        let tock = cx.tock();
        let running = task.filter(|task| self.streams.contains(*task));
        let waiting = task.and_then(|task| self.patience.withdraw(task));
        let was_there = running.is_some() || waiting.is_some();
        write_result(if was_there { TRUE } else { FALSE }, seq, tock, out);
        if let Some(task) = running {
            self.streams.end(task, cx, tock, out);
        }
        if let Some(waiting) = waiting {
            if waiting.action.errs_in_stream() {
                let tag = |wseq| StreamTag { seq: waiting.seq, wseq: waiting.window.map(|_| wseq) };
                write_state("start", tag(1), tock, out);
                write_state("end", tag(2), tock, out);
            } else {
                let text = "stopped while it waited for this node to be ready; nothing was done";
                let error = ClientError::new(ErrorCode::NotReady, text);
                cx.shared.counts.note_error(&error);
                write_error(&error, Some(waiting.seq), tock, out);
            }
        }
        Then::Continue
    }
}
