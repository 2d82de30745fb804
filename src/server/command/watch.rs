//! `watch` and `stop`.

use crate::protocol::client::reply::write_result;
use crate::protocol::client::request::TreeScope;
use crate::protocol::client::shorten::Shortener;
use crate::protocol::client::{Action, ClientError, ErrorCode};
use crate::server::session::{Context, NodeNames, Session, Then};
use crate::server::stream::walk::{Include, ScopeWalk};
use crate::server::stream::{EntryStyle, WatchSource};

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
    ) -> Result<Then, ClientError> {
        let watched = self.watch_scope(Action::Watch, scope)?;
        Self::check_ready(cx)?;
        self.check_room(cx, seq)?;
        let Some((id, tree)) = cx.hub.watch(watched.clone(), &self.inbox) else {
            let text = "this node has as many watches as it allows, all clients together";
            return Err(ClientError::new(ErrorCode::TooMany, text));
        };
        let shortener = Shortener::new(&watched.top);
        let names = cx.hub.read(NodeNames::of);
        let style = EntryStyle { shortener, chain: scope.chain, names };
        let walk = fetch.then(|| ScopeWalk::new(&tree, watched.clone(), Include::Values));
        let inbox = std::sync::Arc::clone(&self.inbox);
        let source = WatchSource::new(id, watched, inbox, style, walk, restart);
        self.open_stream(cx, seq, Box::new(source));
        Ok(Then::Continue)
    }

    /// `stop`: the answer comes before the stream's end.
    pub(in crate::server) fn stop(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        task: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Then {
        let tock = cx.tock();
        let running = task.filter(|task| self.streams.contains(*task));
        write_result(if running.is_some() { TRUE } else { FALSE }, seq, tock, out);
        if let Some(task) = running {
            self.streams.end(task, cx, tock, out);
        }
        Then::Continue
    }
}
