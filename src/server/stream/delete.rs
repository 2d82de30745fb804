//! `delete_tree`: deletes all values of a subtree as it was when the request came, some at a time,
//! so that others get the guard in between. With a chain requested, it is a stream of the deleted
//! entries; else one reply with their number.

use std::collections::VecDeque;

use super::walk::{Look, ScopeWalk};
use super::{Emit, Framing, Garbage, Progress, Source};
use crate::engine::{BatchTerms, Operation, Outcome, WriteOp};
use crate::model::entry::Entry;
use crate::model::path::Path;
use crate::model::value::write_array_len;
use crate::protocol::client::ClientError;
use crate::protocol::client::reply::StreamTag;
use crate::protocol::client::request::ChainLength;
use crate::protocol::client::shorten::Shortener;
use crate::replica::write::{Write, Written};
use crate::server::command::data::value::engine_error;
use crate::server::connections::session::{Context, NodeNames};

/// Entries deleted under one guard.
const BATCH: usize = 64;
/// Batches deleted before the connection's next request is looked at.
const BATCHES_AT_ONCE: usize = 4;

/// One entry that was deleted.
struct Deleted {
    path: Path,
    old: Option<Entry>,
    tombstone: Entry,
    /// Of the log's batch with the change.
    number: u64,
}

/// Deletes the next entries of a walk that still have a value. None at the walk's end.
///
/// # Errors
/// The node cannot make changes (any more). Those that are deleted stay deleted; their number
/// is the second part.
fn delete_batch(
    walk: &mut ScopeWalk,
    cx: &Context<'_>,
) -> Result<Option<Vec<Deleted>>, (ClientError, usize)> {
    let mut paths = Vec::new();
    let mut ended = false;
    while paths.len() < BATCH {
        match walk.next() {
            Look::Item(item) => paths.push(item.path),
            Look::Busy => break,
            Look::End => {
                ended = true;
                break;
            }
        }
    }
    if paths.is_empty() && ended {
        return Ok(None);
    }
    cx.check_storage().map_err(|error| (error, 0))?;
    let mut deleted = Vec::with_capacity(paths.len());
    let write = |path| Operation::Write(WriteOp::new(Write::new(path, None)));
    let (done, number) = cx.hub.write_batch(paths.iter().map(write), BatchTerms::WHOLE);
    let written = done.outcomes.into_iter().flatten().map(Outcome::into_written);
    let mut result = Ok(());
    for (path, written) in paths.into_iter().zip(written) {
        match written {
            Ok(Written { entry: Some(tombstone), is_made: true, old, .. }) => {
                deleted.push(Deleted { path, old, tombstone, number: 0 });
            }
            Ok(_) => {}
            Err(error) => result = Err(error),
        }
    }
    for deleted in &mut deleted {
        deleted.number = number;
        cx.shared.shards.note_writes(deleted.path.as_bytes(), 1);
    }
    match result {
        Ok(()) => Ok(Some(deleted)),
        Err(error) => Err((engine_error(&error), deleted.len())),
    }
}

/// See the module.
pub(in crate::server) struct DeleteSource {
    walk: ScopeWalk,
    /// None to count only.
    chain: ChainLength,
    shortener: Shortener,
    names: NodeNames,
    /// Deleted, and not sent yet.
    queue: VecDeque<Deleted>,
    count: u64,
    /// Of the log's last batch with one of the changes.
    number: u64,
    finished: bool,
    /// There was nothing to delete, and the stream has said so.
    told_nothing: bool,
}

impl DeleteSource {
    /// For a walk over the values of a subtree.
    pub(in crate::server) fn new(
        walk: ScopeWalk,
        chain: ChainLength,
        shortener: Shortener,
        names: NodeNames,
    ) -> Self {
        let queue = VecDeque::new();
        Self {
            walk,
            chain,
            shortener,
            names,
            queue,
            count: 0,
            number: 0,
            finished: false,
            told_nothing: false,
        }
    }

    /// Deletes the first entries at once, so that a small tree is gone before the connection's
    /// next request is looked at.
    pub(in crate::server) fn begin(&mut self, cx: &Context<'_>) -> Result<(), ClientError> {
        for _ in 0..BATCHES_AT_ONCE {
            match delete_batch(&mut self.walk, cx).map_err(|(error, _)| error)? {
                None => {
                    self.finished = true;
                    return Ok(());
                }
                Some(deleted) => self.take(deleted),
            }
        }
        Ok(())
    }

    fn take(&mut self, deleted: Vec<Deleted>) {
        self.count += deleted.len() as u64;
        self.number = deleted.last().map_or(self.number, |last| last.number);
        if !self.chain.is_none() {
            self.queue.extend(deleted);
        }
    }

    fn write(&mut self, deleted: &Deleted, emit: &mut Emit<'_>) {
        let from = emit.position();
        let (mut message, tag) = emit.begin();
        self.names.names().add_event_fields(&deleted.tombstone, self.chain, &mut message);
        let depth = self.shortener.write_path(&deleted.path, &mut message);
        if let Some(value) = deleted.old.as_ref().and_then(Entry::value) {
            message.raw("old_value", value);
        }
        message.tock(deleted.tombstone.tock()).u64("seq", tag.seq).u64("depth", depth as u64);
        if let Some(wseq) = tag.wseq {
            message.u64("wseq", wseq);
        }
        emit.note_unsynced(from, deleted.number, tag);
    }

    /// The only message of a stream that deleted nothing. The original makes an event for the top, be
    /// it there or not, and so its clients can count on a message: `Client.delete` fails without one.
    /// This one has the same fields; but there is no event.
    fn write_nothing(emit: &mut Emit<'_>) {
        let tock = emit.tock();
        let (mut message, tag) = emit.begin();
        message.nil("node").nil("tick").nil("prev");
        write_array_len(0, message.key("path"));
        message.tock(tock).u64("seq", tag.seq).u64("depth", 0);
        if let Some(wseq) = tag.wseq {
            message.u64("wseq", wseq);
        }
    }

    fn write_count(&self, emit: &mut Emit<'_>, cx: &Context<'_>) {
        let tock = cx.hub.read(|engine| engine.tock());
        let from = emit.position();
        let (mut message, seq) = emit.begin_single();
        message.u64("changed", self.count).u64("seq", seq).tock(tock);
        emit.note_unsynced(from, self.number, StreamTag { seq, wseq: None });
    }
}

impl Source for DeleteSource {
    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        if let Some(deleted) = self.queue.pop_front() {
            self.write(&deleted, emit);
            return Progress::Wrote;
        }
        if self.finished {
            if self.chain.is_none() {
                self.write_count(emit, cx);
            } else if self.count == 0 && !self.told_nothing {
                self.told_nothing = true;
                Self::write_nothing(emit);
                return Progress::Wrote;
            }
            return Progress::Finished;
        }
        match delete_batch(&mut self.walk, cx) {
            Ok(Some(deleted)) => {
                self.take(deleted);
                Progress::Busy
            }
            Ok(None) => {
                self.finished = true;
                Progress::Busy
            }
            Err((error, some)) => {
                let count = self.count + some as u64;
                let text = format!("{} ({count} were deleted before)", error.text);
                Progress::Failed(ClientError::new(error.code, text))
            }
        }
    }

    fn framing(&self) -> Framing {
        if self.chain.is_none() { Framing::Single } else { Framing::SeqFirst }
    }

    fn holds_snapshot(&self) -> bool {
        !self.finished
    }

    fn makes_changes(&self) -> bool {
        !self.finished
    }

    fn close(self: Box<Self>, _: &Context<'_>) -> Option<Garbage> {
        self.walk.discard()
    }
}
