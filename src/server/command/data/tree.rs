//! `get_tree`, `enum`, `delete_tree` and their internal forms: what concerns whole subtrees. All
//! of it works on snapshots, outside of the guard.

use std::sync::Arc;

use distkv_access::acl::{Cursor, Letters, Rights};

use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::meta::shown;
use crate::model::path::{Path, PathBytes, bytes};
use crate::model::value::{write_array_len, write_map_len, write_nil};
use crate::protocol::client::reply::{write_error, write_result};
use crate::protocol::client::request::{ChainLength, RequestPath, TreeScope};
use crate::protocol::client::shorten::Shortener;
use crate::protocol::client::{Action, ClientError, ErrorCode};
use crate::replica::watch::WatchScope;
use crate::server::access::mistakes::Mistake;
use crate::server::access::sight::Sight;
use crate::server::command::access::entries::check_tree;
use crate::server::connections::session::{Context, NodeNames, Purpose, Session, Then};
use crate::server::counts::Counts;
use crate::server::stream::walk::{Include, ScopeWalk};
use crate::server::stream::{DeleteSource, EntryStyle, TreeSource};
use crate::tree::Tree;

/// Entries that `enum` looks at at once, between jumps over the entries below a child.
const BATCH: usize = 64;
/// Batches that `enum` looks at before it continues as a job of its own.
const BATCHES_AT_ONCE: usize = 16;
/// Entries below a child that are looked at for one with a value, if the client may not see the child's own.
const LOOKED_AT_MAX: usize = 1_024;
/// Most bytes of an `enum`'s reply, which is one message: two greatest values.
const LIST_BYTES_MAX: usize = 8 << 20;

impl Session {
    /// `get_tree`: an empty stream if there is no entry. With `after`, it begins behind that child of the top.
    pub(in crate::server) fn get_tree(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        scope: &TreeScope<'_>,
        empty: bool,
        after: Option<&PathBytes<'_>>,
    ) -> Result<Then, ClientError> {
        let action = if scope.path.internal { Action::GetTreeInternal } else { Action::GetTree };
        let scope_of = self.watch_scope(cx, action, scope)?;
        Self::check_ready(cx)?;
        self.check_room(cx, seq)?;
        let (tree, names) = cx.hub.read(|engine| (engine.tree().clone(), NodeNames::of(engine)));
        let shortener = Shortener::new(&scope_of.top);
        let include = if empty { Include::Empty } else { Include::Values };
        let style = EntryStyle { shortener, chain: scope.chain, names };
        let sight = Sight::new(action, scope_of.top.clone());
        let child = match after {
            None => None,
            Some(after) if after.len() == 1 => {
                let child = scope_of.top.join(&after.to_path());
                Some(
                    child
                        .map_err(|e| ClientError::bad_request(format!("bad field 'after': {e}")))?,
                )
            }
            Some(_) => {
                let text = "bad field 'after': it must be one element";
                return Err(ClientError::bad_request(text));
            }
        };
        let mut walk = self.pinned_walk(&tree, scope_of, include);
        if let Some(child) = child {
            walk.begin_behind(&child);
        }
        // What asks by HTTP must not take a part for all.
        let is_cut = self.in_process.is_some();
        self.open_stream(cx, seq, Box::new(TreeSource::new(walk, style, sight, is_cut)));
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
        let (tree, tock) = cx.hub.read(|engine| (engine.tree().clone(), engine.tock()));
        // Of policies that are not older than the tree.
        let cx = &self.context(cx.shared, cx.now);
        let top = self.resolve(cx, action, path)?.to_path();
        Self::check_ready(cx)?;
        let rights = match cx.access.makes(Mistake::Each(action)) {
            true => Arc::new(Rights::everything()),
            false => Arc::clone(&cx.access.rights),
        };
        let purpose = Purpose::to_read_at(action, top.clone());
        // Whether there is something below a child may have to be searched for.
        let is_long = empty && !rights.is_everything();
        let list = move |batches| {
            let asked = Asked { with_data, empty, rights: &rights };
            list_children(&tree, &top, &asked, batches)
        };
        if let Some(result) = list(if is_long { 0 } else { BATCHES_AT_ONCE }) {
            write_list(result, seq, tock, &cx.shared.counts, out);
            return Ok(Then::Continue);
        }
        let counts = Arc::clone(&cx.shared.counts);
        Ok(Then::heavy(cx, seq, purpose, move || {
            let mut reply = Vec::new();
            if let Some(result) = list(usize::MAX) {
                write_list(result, seq, tock, &counts, &mut reply);
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
        above: Tock,
    ) -> Result<Then, ClientError> {
        let top = self.resolve(cx, Action::DeleteTree, path)?.to_path();
        if path.path.is_root() || top == Path::system_root() {
            return Err(ClientError::new(ErrorCode::IsRoot, "You can't delete the root node"));
        }
        let writer = self.writer(cx);
        writer.check(top.as_bytes(), false)?;
        Self::check_ready(cx)?;
        check_tree(cx, writer, &top)?;
        self.check_room(cx, seq)?;
        let (tree, names) = cx.hub.read(|engine| (engine.tree().clone(), NodeNames::of(engine)));
        let shortener = Shortener::new(&top);
        let sight = Sight::new(Action::DeleteTree, top.clone());
        let scope = WatchScope { top, depth_min: 0, depth_max: None };
        // What is only counted goes at the node's pace, and however slowly its client reads: what the snapshot keeps of it
        // until then was there before, so nobody is charged with it. Charged with it, the client would be closed half-way.
        let walk = match chain.is_none() {
            true => ScopeWalk::new(&tree, scope, Include::Values),
            false => self.pinned_walk(&tree, scope, Include::Values),
        };
        let mut source = DeleteSource::new(walk, (sight, writer), chain, shortener, names, above);
        source.begin(cx)?;
        self.open_stream(cx, seq, Box::new(source));
        Ok(Then::Continue)
    }
}

fn write_list(
    result: Result<Vec<u8>, ClientError>,
    seq: u64,
    tock: Tock,
    counts: &Counts,
    out: &mut Vec<u8>,
) {
    match result {
        Ok(list) => write_result(&list, seq, tock, out),
        Err(error) => {
            counts.note_error(&error);
            write_error(&error, Some(seq), tock, out);
        }
    }
}

/// What of a path's children is to be listed.
struct Asked<'r> {
    with_data: bool,
    /// Also those without a value.
    empty: bool,
    /// Those of the client, who may list the children.
    rights: &'r Rights,
}

/// Whether there is something below a path. Of what was deleted only so much is looked at: it goes soon.
fn has_below(tree: &Tree, path: &Path) -> bool {
    let mut entries = tree.subtree(path).take(LOOKED_AT_MAX);
    entries.any(|(at, entry)| at != path && entry.value().is_some())
}

/// A list of children as it is built.
struct Children<'t> {
    tree: &'t Tree,
    asked: &'t Asked<'t>,
    top: &'t Path,
    /// At the top; none if every child is shown.
    limits: Option<Cursor<'t>>,
    count: usize,
    items: Vec<u8>,
}

/// The children of a path, as an array of names or a map of names and values. None if it takes more
/// than the given number of batches.
fn list_children(
    tree: &Tree,
    top: &Path,
    asked: &Asked<'_>,
    batches_max: usize,
) -> Option<Result<Vec<u8>, ClientError>> {
    let mut children = Children::new(tree, top, asked);
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
            children.add(&child, (child == *path).then_some(entry));
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

impl<'t> Children<'t> {
    fn new(tree: &'t Tree, top: &'t Path, asked: &'t Asked<'t>) -> Self {
        let rights = asked.rights;
        let limits = (!rights.is_everything()).then(|| rights.at(top.as_bytes()));
        Self { tree, asked, top, limits, count: 0, items: Vec::new() }
    }

    fn add(&mut self, child: &Path, entry: Option<&Entry>) {
        let value = entry.and_then(Entry::value);
        let (is_shown, value) = match &self.limits {
            None => (value.is_some() || self.asked.empty, value),
            Some(top) => self.shown_to_user(top, child, entry),
        };
        if !is_shown {
            return;
        }
        let Some(name) = bytes::raw_elements(child.as_bytes()).nth(self.top.len()) else { return };
        self.count += 1;
        self.items.extend_from_slice(name);
        match (self.asked.with_data, value) {
            (true, Some(value)) => self.items.extend_from_slice(shown(child.as_bytes(), value)),
            (true, None) => write_nil(&mut self.items),
            (false, _) => {}
        }
    }

    /// Whether a child is shown to a client with limits, and its value if the client may see it. What the client
    /// may not read looks like a child without a value: it is shown if the client may pass it towards something.
    fn shown_to_user<'e>(
        &self,
        top: &Cursor<'_>,
        child: &Path,
        entry: Option<&'e Entry>,
    ) -> (bool, Option<&'e [u8]>) {
        let below = child.as_bytes().get(self.top.as_bytes().len()..).unwrap_or_default();
        let letters = top.descend_all(below).letters();
        let may = |letter| top.letters().has(Letters::PASS) && letters.has(letter);
        match entry.filter(|_| may(Letters::READ)) {
            Some(entry) => (entry.value().is_some() || self.asked.empty, entry.value()),
            None => {
                let leads = || may(Letters::PASS) && has_below(self.tree, child);
                (self.asked.empty && leads(), None)
            }
        }
    }

    fn finish(self) -> Vec<u8> {
        let mut list = Vec::with_capacity(self.items.len() + 5);
        if self.asked.with_data {
            write_map_len(self.count, &mut list);
        } else {
            write_array_len(self.count, &mut list);
        }
        list.extend_from_slice(&self.items);
        list
    }
}
