//! `delete_tree`: deletes all values of a subtree as it was when the request came, some at a time,
//! so that others get the guard in between. With a chain requested, it is a stream of the deleted
//! entries; else one reply with their number.

use std::collections::VecDeque;

use distkv_access::acl::Rights;

use super::walk::{Look, ScopeWalk};
use super::{Emit, Framing, Garbage, Progress, Source};
use crate::engine::{BatchTerms, Operation, WriteOp};
use crate::model::count::count_of;
use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::meta::shown;
use crate::model::path::Path;
use crate::model::value::write_array_len;
use crate::protocol::client::reply::StreamTag;
use crate::protocol::client::request::ChainLength;
use crate::protocol::client::shorten::Shortener;
use crate::protocol::client::{Action, ClientError, ErrorCode};
use crate::replica::write::{Write, Written};
use crate::server::access::authorise::Target;
use crate::server::access::denial::words;
use crate::server::access::sight::{Sight, reads_at};
use crate::server::change_time;
use crate::server::command::access::entries::check_some;
use crate::server::command::access::remove_for_record;
use crate::server::command::access::unenforced::Writer;
use crate::server::command::data::value::engine_error;
use crate::server::connections::session::{Context, NodeNames};

/// Entries deleted under one guard.
const BATCH: usize = 64;
/// Batches deleted before the connection's next request is looked at.
const BATCHES_AT_ONCE: usize = 4;
/// Entries passed over before the connection's next request is looked at.
const LOOK_AT_ONCE: usize = 512;

/// One entry that was deleted.
struct Deleted {
    path: Path,
    old: Option<Entry>,
    tombstone: Entry,
    /// Of the log's batch with the change.
    number: u64,
}

/// See the module.
pub(in crate::server) struct DeleteSource {
    walk: ScopeWalk,
    /// None to count only.
    chain: ChainLength,
    /// All deletions come after it.
    above: Tock,
    shortener: Shortener,
    names: NodeNames,
    /// Deleted, and not sent yet.
    queue: VecDeque<Deleted>,
    sight: Sight,
    writer: Writer,
    /// To be deleted; not done yet, because the policies changed meanwhile.
    again: Vec<Path>,
    /// There was something that the client may not delete.
    withheld: bool,
    count: u64,
    /// Of the log's last batch with one of the changes.
    number: u64,
    finished: bool,
    /// It has looked at as much as it may before others have their turn.
    searched: bool,
    /// There was nothing to delete, and the stream has said so.
    told_nothing: bool,
}

impl DeleteSource {
    /// For a walk over the values of a subtree.
    pub(in crate::server) fn new(
        walk: ScopeWalk,
        (sight, writer): (Sight, Writer),
        chain: ChainLength,
        shortener: Shortener,
        names: NodeNames,
        above: Tock,
    ) -> Self {
        let queue = VecDeque::new();
        Self {
            walk,
            sight,
            writer,
            again: Vec::new(),
            withheld: false,
            chain,
            above,
            shortener,
            names,
            queue,
            count: 0,
            number: 0,
            finished: false,
            searched: false,
            told_nothing: false,
        }
    }

    /// Deletes the first entries at once, so that a small tree is gone before the connection's
    /// next request is looked at.
    pub(in crate::server) fn begin(&mut self, cx: &Context<'_>) -> Result<(), ClientError> {
        self.walk.give_way_after(LOOK_AT_ONCE);
        for _ in 0..BATCHES_AT_ONCE {
            self.delete_some(cx).map_err(|error| self.broken_off(error))?;
            if self.finished || !self.again.is_empty() || self.searched {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next entries that the client may delete, [`BATCH`] at most.
    fn next_paths(&mut self) -> Vec<Path> {
        let mut paths = std::mem::take(&mut self.again);
        let before = paths.len();
        paths.retain(|path| self.sight.shows(path));
        self.withheld |= paths.len() < before;
        while paths.len() < BATCH {
            match self.walk.next(&mut self.sight) {
                Look::Item(item) => paths.push(item.path),
                Look::Busy => {
                    self.searched = true;
                    break;
                }
                Look::End => {
                    self.finished = paths.is_empty();
                    break;
                }
            }
        }
        self.withheld |= self.walk.has_withheld();
        paths
    }

    /// Deletes the next entries that still have a value.
    ///
    /// # Errors
    /// The node cannot make changes (any more), or the client has lost the right to. Those that are deleted
    /// stay deleted, and are counted.
    fn delete_some(&mut self, cx: &Context<'_>) -> Result<(), ClientError> {
        if self.sight.refresh(&cx.access)?.is_some() {
            self.walk.check_again(&mut self.sight);
        }
        let paths = self.next_paths();
        if self.finished {
            return Ok(());
        }
        cx.check_storage_after(match self.count {
            0 => "nothing was changed",
            _ => "nothing more was changed",
        })?;
        check_some(cx, self.writer, &paths)?;
        let mut deleted = Vec::with_capacity(paths.len());
        let above = self.above;
        let write =
            |path| Operation::Write(WriteOp::new(Write { above, ..Write::new(path, None) }));
        let (checked, time) = (Some(cx.access.policies), change_time());
        let terms = BatchTerms { checked, time, ..BatchTerms::WHOLE };
        let (done, number) = cx.hub.write_batch(paths.iter().map(write), terms);
        let mut paths = paths.into_iter();
        let mut result = Ok(());
        for (outcome, path) in done.outcomes.into_iter().flatten().zip(paths.by_ref()) {
            match outcome.into_written() {
                Ok(Written { entry: Some(tombstone), is_made: true, old, .. }) => {
                    cx.shared.shards.note_writes(path.as_bytes(), 1);
                    remove_for_record(cx, path.as_bytes());
                    if let Some(witness) = &cx.witness {
                        witness.changed(Action::DeleteTree, path.as_bytes());
                    }
                    deleted.push(Deleted { path, old, tombstone, number });
                }
                Ok(_) => {}
                Err(error) => result = Err(engine_error(&error)),
            }
        }
        // Users or access lists have changed: the rest is checked anew.
        self.again = paths.collect();
        self.take(deleted);
        result
    }

    fn take(&mut self, deleted: Vec<Deleted>) {
        self.count += deleted.len() as u64;
        self.number = deleted.last().map_or(self.number, |last| last.number);
        if !self.chain.is_none() {
            self.queue.extend(deleted);
        }
    }

    /// `rights`: without the letter for reading, nothing tells of what was there before.
    fn write(&mut self, deleted: &Deleted, rights: &Rights, emit: &mut Emit<'_>) {
        let reads = reads_at(rights, &deleted.path);
        let chain = if reads { self.chain } else { ChainLength::of(1) };
        let from = emit.position();
        let (mut message, tag) = emit.begin();
        self.names.names().add_event_fields(&deleted.tombstone, chain, &mut message);
        let depth = self.shortener.write_path(&deleted.path, &mut message);
        if let Some(value) = deleted.old.as_ref().filter(|_| reads).and_then(Entry::value) {
            message.raw("old_value", shown(deleted.path.as_bytes(), value));
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

    /// What is left was not the client's to delete; which entries, it is not told.
    fn withheld_error(&self, cx: &Context<'_>) -> ClientError {
        let text = format!(
            "{} may not {}: {}; {} deleted, the others are left",
            cx.access.who(),
            words(Action::DeleteTree, self.sight.top()),
            cx.access.without("d at all of it"),
            count_of(self.count, "was", "were")
        );
        match self.count {
            0 => ClientError::new(ErrorCode::Denied, text),
            _ => ClientError::of_made(ErrorCode::Denied, text),
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
    fn asks(&self) -> Option<(Action, Target<'_>)> {
        // Once all is deleted, only that is told.
        let is_done = self.finished && self.queue.is_empty();
        (!is_done).then(|| self.sight.asks())
    }

    /// The rest is not deleted.
    fn broken_off(&self, error: ClientError) -> ClientError {
        let text =
            format!("{} ({} deleted before)", error.text, count_of(self.count, "was", "were"));
        match self.count {
            0 => error,
            _ => ClientError::of_made(error.code, text),
        }
    }

    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        if let Some(deleted) = self.queue.pop_front() {
            self.write(&deleted, &cx.access.rights, emit);
            return Progress::Wrote;
        }
        if self.finished {
            if self.withheld {
                return Progress::Failed(self.withheld_error(cx));
            }
            if self.chain.is_none() {
                self.write_count(emit, cx);
            } else if self.count == 0 && !self.told_nothing {
                self.told_nothing = true;
                Self::write_nothing(emit);
                return Progress::Wrote;
            }
            return Progress::Finished;
        }
        match self.delete_some(cx) {
            Ok(()) if std::mem::take(&mut self.searched) => Progress::Searched,
            Ok(()) => Progress::Busy,
            Err(error) => Progress::Failed(self.broken_off(error)),
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

    fn changed(&self) -> Option<u64> {
        Some(self.count)
    }

    fn rest(&mut self) {
        self.sight.rest();
    }

    fn close(self: Box<Self>, _: &Context<'_>) -> Option<Garbage> {
        self.walk.discard()
    }
}
