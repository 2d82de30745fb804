//! `get_tree`, `enum`, `delete_tree` and their internal forms: what concerns whole subtrees. All
//! of it works on snapshots, outside of the guard.

use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::path::{Path, bytes};
use crate::model::value::{write_array_len, write_map_len, write_nil};
use crate::protocol::client::reply::{write_error, write_result};
use crate::protocol::client::request::{ChainLength, RequestPath, TreeScope};
use crate::protocol::client::shorten::Shortener;
use crate::protocol::client::{Action, ClientError, ErrorCode};
use crate::replica::watch::WatchScope;
use crate::server::connections::session::{Context, NodeNames, Session, Then};
use crate::server::stream::walk::{Include, ScopeWalk};
use crate::server::stream::{DeleteSource, EntryStyle, TreeSource};
use crate::tree::Tree;

/// Entries that `enum` looks at at once, between jumps over the entries below a child.
const BATCH: usize = 64;
/// Batches that `enum` looks at before it continues as a job of its own.
const BATCHES_AT_ONCE: usize = 16;
/// Most bytes of an `enum`'s reply, which is one message: two greatest values.
const LIST_BYTES_MAX: usize = 8 << 20;

impl Session {
    /// `get_tree`: an empty stream if there is no entry.
    pub(in crate::server) fn get_tree(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        scope: &TreeScope<'_>,
        empty: bool,
    ) -> Result<Then, ClientError> {
        let action = if scope.path.internal { Action::GetTreeInternal } else { Action::GetTree };
        let scope_of = self.watch_scope(cx, action, scope)?;
        Self::check_ready(cx)?;
        self.check_room(cx, seq)?;
        let (tree, names) = cx.hub.read(|engine| (engine.tree().clone(), NodeNames::of(engine)));
        let shortener = Shortener::new(&scope_of.top);
        let include = if empty { Include::Empty } else { Include::Values };
        let style = EntryStyle { shortener, chain: scope.chain, names };
        let walk = self.pinned_walk(&tree, scope_of, include);
        self.open_stream(cx, seq, Box::new(TreeSource { walk, style }));
        Ok(Then::Continue)
    }

    /// A walk over a snapshot, which this connection is charged for.
    pub(super) fn pinned_walk(
        &self,
        tree: &Tree,
        scope: WatchScope,
        include: Include,
    ) -> ScopeWalk {
        ScopeWalk::new(tree, scope, include).pinned_by(self.account.pin(tree.memory_bytes()))
    }

    /// The part of the tree that a request means.
    pub(super) fn watch_scope(
        &self,
        cx: &Context<'_>,
        action: Action,
        scope: &TreeScope<'_>,
    ) -> Result<WatchScope, ClientError> {
        Ok(WatchScope {
            top: self.resolve(cx, action, &scope.path)?.to_path(),
            depth_min: scope.depth_min,
            depth_max: scope.depth_max,
        })
    }

    /// `enum`: an empty list if there is no entry.
    pub(in crate::server) fn enumerate(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        path: &RequestPath<'_>,
        with_data: bool,
        empty: bool,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        let action = if path.internal { Action::EnumInternal } else { Action::Enum };
        let top = self.resolve(cx, action, path)?.to_path();
        Self::check_ready(cx)?;
        let (tree, tock) = cx.hub.read(|engine| (engine.tree().clone(), engine.tock()));
        let list = move |batches| list_children(&tree, &top, with_data, empty, batches);
        if let Some(result) = list(BATCHES_AT_ONCE) {
            write_list(result, seq, tock, out);
            return Ok(Then::Continue);
        }
        Ok(Then::heavy(seq, move || {
            let mut reply = Vec::new();
            if let Some(result) = list(usize::MAX) {
                write_list(result, seq, tock, &mut reply);
            }
            reply
        }))
    }

    /// `delete_tree`.
    pub(in crate::server) fn delete_tree(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        path: &RequestPath<'_>,
        chain: ChainLength,
    ) -> Result<Then, ClientError> {
        let top = self.resolve(cx, Action::DeleteTree, path)?.to_path();
        if path.path.is_root() || top == Path::system_root() {
            return Err(ClientError::new(ErrorCode::IsRoot, "You can't delete the root node"));
        }
        self.writer(cx).check(top.as_bytes(), false)?;
        Self::check_ready(cx)?;
        self.check_room(cx, seq)?;
        let (tree, names) = cx.hub.read(|engine| (engine.tree().clone(), NodeNames::of(engine)));
        let shortener = Shortener::new(&top);
        let scope = WatchScope { top, depth_min: 0, depth_max: None };
        let walk = self.pinned_walk(&tree, scope, Include::Values);
        let mut source = DeleteSource::new(walk, chain, shortener, names);
        source.begin(cx)?;
        self.open_stream(cx, seq, Box::new(source));
        Ok(Then::Continue)
    }
}

fn write_list(result: Result<Vec<u8>, ClientError>, seq: u64, tock: Tock, out: &mut Vec<u8>) {
    match result {
        Ok(list) => write_result(&list, seq, tock, out),
        Err(error) => write_error(&error, Some(seq), tock, out),
    }
}

/// A list of children as it is built.
struct Children {
    with_data: bool,
    empty: bool,
    count: usize,
    items: Vec<u8>,
}

/// The children of a path, as an array of names or a map of names and values. None if it takes more
/// than the given number of batches.
fn list_children(
    tree: &Tree,
    top: &Path,
    with_data: bool,
    empty: bool,
    batches_max: usize,
) -> Option<Result<Vec<u8>, ClientError>> {
    let mut children = Children { with_data, empty, count: 0, items: Vec::new() };
    let top_len = top.len();
    let mut walk = tree.walk(top);
    if top.is_root() {
        // The root itself is no child, and the system's tree, which comes next, is hidden.
        walk.skip_subtree(&Path::system_root());
    }
    let mut last: Option<Path> = None;
    for _ in 0..batches_max {
        let batch = walk.next_batch(BATCH);
        for (path, entry) in &batch {
            let is_known = last.as_ref().is_some_and(|child| path.starts_with(child));
            if is_known || path == top {
                continue;
            }
            let child = path.prefix(top_len + 1);
            children.add(&child, top_len, (child == *path).then_some(entry));
            last = Some(child);
            if children.items.len() > LIST_BYTES_MAX {
                let text = "the list is too long for one reply; use 'get_tree' with 'max_depth' 1";
                return Some(Err(ClientError::new(ErrorCode::TooLarge, text)));
            }
        }
        match (batch.last(), &last) {
            (None, _) => return Some(Ok(children.finish())),
            (Some((path, _)), Some(child)) if path.len() > top_len + 1 => walk.skip_subtree(child),
            _ => {}
        }
    }
    None
}

impl Children {
    fn add(&mut self, child: &Path, top_len: usize, entry: Option<&Entry>) {
        let value = entry.and_then(Entry::value);
        if value.is_none() && !self.empty {
            return;
        }
        let Some(name) = bytes::raw_elements(child.as_bytes()).nth(top_len) else { return };
        self.count += 1;
        self.items.extend_from_slice(name);
        match (self.with_data, value) {
            (true, Some(value)) => self.items.extend_from_slice(value),
            (true, None) => write_nil(&mut self.items),
            (false, _) => {}
        }
    }

    fn finish(self) -> Vec<u8> {
        let mut list = Vec::with_capacity(self.items.len() + 5);
        if self.with_data {
            write_map_len(self.count, &mut list);
        } else {
            write_array_len(self.count, &mut list);
        }
        list.extend_from_slice(&self.items);
        list
    }
}
