//! The streams of one connection: produced lazily, as its output's room and each stream's window
//! permit, and in turns, so that none keeps the others waiting.
//!
//! What a stream sends comes from its [`Source`]; what all have in common (start and end, the
//! counted messages and the window of flow control, errors) is here.

mod cluster;
mod conflicts;
mod delete;
mod failed;
mod growth;
mod message;
mod snapshot;
mod tree;
pub(super) mod walk;
mod watch;
mod withheld;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

use distkv_access::users::Role;

pub(super) use cluster::ClusterSource;
pub(super) use conflicts::{ConflictFeed, ConflictsSource};
pub(super) use delete::DeleteSource;
pub(super) use failed::{FailedSource, write_failed_stream};
pub(super) use message::MonitorSource;
pub(super) use snapshot::{DownloadSlot, SnapshotSource, StateOfMoment};
pub(super) use tree::{EntryStyle, TreeSource};
pub(super) use watch::WatchSource;

use super::connections::session::Context;
use super::connections::unsynced_replies::UnsyncedReplies;
use crate::engine::Policies;
use crate::hub::inbox::{Inbox, QueueId, Ready};
use crate::model::ids::{Millis, Tock};
use crate::protocol::client::reply::{StreamTag, write_error, write_state, write_stream_error};
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::access::Access;
use crate::server::access::authorise::Target;
use crate::server::access::sight::authorise_still;

/// Most messages of one stream before it is another's turn.
const TURN_MESSAGES: usize = 512;
/// Most bytes of one stream before it is another's turn (one message may exceed it alone).
const TURN_BYTES: usize = 64 << 10;

/// Something big whose dropping takes time: it is dropped where no task waits for it.
pub(super) type Garbage = Box<dyn Any + Send>;

/// How a stream's start and end look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Framing {
    /// `state`, then `seq`.
    Usual,
    /// `seq`, then `state`: `delete_tree` alone.
    SeqFirst,
    /// None: the source writes one reply when it is done.
    Single,
}

/// What became of asking a source for its next message.
pub(super) enum Progress {
    /// It wrote one.
    Wrote,
    /// It worked, but has nothing to write yet; ask again soon.
    Busy,
    /// The same, and it has looked at as much as it may before others have their turn.
    Searched,
    /// There is nothing until the connection's inbox changes.
    Idle,
    /// There will be nothing more.
    Finished,
    /// It cannot go on.
    Failed(ClientError),
}

/// Where a stream's messages come from.
pub(super) trait Source: Send {
    /// What its client has asked for, if it needs a right: that is looked up again before each message, and the stream
    /// ends if the client has lost it. None where there is nothing left that it must not be told.
    fn asks(&self) -> Option<(Action, Target<'_>)>;

    /// The error with which it ends, if it cannot go on for this reason.
    fn broken_off(&self, why: ClientError) -> ClientError {
        why
    }

    /// Writes the next message, if there is one.
    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress;

    /// How the stream's start and end look.
    fn framing(&self) -> Framing {
        Framing::Usual
    }

    /// Whether it ends only on request.
    fn is_endless(&self) -> bool {
        false
    }

    /// Whether it keeps a snapshot, and so whatever was overwritten since, in memory.
    fn holds_snapshot(&self) -> bool {
        false
    }

    /// Whether it makes changes as it continues.
    fn makes_changes(&self) -> bool {
        false
    }

    /// How many changes it has made, if it makes many for one reply.
    fn changed(&self) -> Option<u64> {
        None
    }

    /// It will not be asked for a while: what it can make again it need not keep.
    fn rest(&mut self) {}

    /// The queue of the connection's inbox that it waits for when it is idle; none if it has to be
    /// asked whenever something has happened.
    fn queue(&self) -> Option<QueueId> {
        None
    }

    /// Removes its registrations in the hub, and releases big memory.
    fn close(self: Box<Self>, cx: &Context<'_>) -> Option<Garbage>;
}

/// The window of flow control: how many messages may be under way.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Most messages that are not acknowledged; none without flow control.
    size: Option<u64>,
    sent: u64,
    /// Invariant: at most `sent`.
    acked: u64,
}

impl Window {
    fn has_room(&self) -> bool {
        self.size.is_none_or(|size| self.sent - self.acked < size)
    }

    fn next_tag(&mut self, seq: u64) -> StreamTag {
        self.sent += 1;
        StreamTag { seq, wseq: self.size.map(|_| self.sent) }
    }
}

/// Where a source writes to.
pub(super) struct Emit<'e> {
    out: &'e mut Vec<u8>,
    window: &'e mut Window,
    seq: u64,
    tock: Tock,
    garbage: &'e mut Vec<Garbage>,
    unsynced: &'e mut UnsyncedReplies,
    /// Where the output ends when it is another's turn.
    until: usize,
}

impl Emit<'_> {
    /// Whether another message may be written in this turn.
    pub(super) fn has_room(&self) -> bool {
        self.window.has_room() && self.out.len() < self.until
    }

    /// Begins a message; its tag goes wherever that kind of message has it.
    pub(super) fn begin(&mut self) -> (MessageWriter<'_>, StreamTag) {
        let tag = self.window.next_tag(self.seq);
        (MessageWriter::new(self.out), tag)
    }

    /// Writes messages that were encoded elsewhere and lack only their tag, as many as there is
    /// room for; returns how many.
    pub(super) fn finish<'p>(&mut self, parts: impl Iterator<Item = &'p [u8]>) -> usize {
        let mut written = 0;
        if self.window.size.is_some() {
            for part in parts {
                if !self.has_room() {
                    break;
                }
                let tag = self.window.next_tag(self.seq);
                MessageWriter::resume(part, self.out).tag(tag);
                written += 1;
            }
            return written;
        }
        // The tag is the same in all of them.
        let mut tag = Vec::new();
        MessageWriter::new(&mut tag).tag(self.window.next_tag(self.seq));
        let Some((head, tag)) = tag.split_first() else { return 0 };
        for part in parts {
            if self.out.len() >= self.until {
                break;
            }
            let at = self.out.len();
            self.out.extend_from_slice(part);
            if let Some(first) = self.out.get_mut(at) {
                *first += head & 0x0f;
            }
            self.out.extend_from_slice(tag);
            written += 1;
        }
        written
    }

    /// Makes room for this many bytes at once.
    pub(super) fn expect(&mut self, bytes: usize) {
        self.out.reserve(bytes.min(TURN_BYTES));
    }

    /// Begins the only reply of a [`Framing::Single`] source.
    pub(super) fn begin_single(&mut self) -> (MessageWriter<'_>, u64) {
        (MessageWriter::new(self.out), self.seq)
    }

    /// Where the output ends.
    pub(super) fn position(&self) -> usize {
        self.out.len()
    }

    /// The message that began at this place goes out only when that batch of the log is on disk.
    pub(super) fn note_unsynced(&mut self, from: usize, number: u64, tag: StreamTag) {
        self.unsynced.note(from, self.out.len(), number, tag);
    }

    /// Writes a state's change.
    pub(super) fn state(&mut self, state: &str) {
        let tag = self.window.next_tag(self.seq);
        write_state(state, tag, self.tock, self.out);
    }

    /// The tock of messages that have none of their own.
    pub(super) fn tock(&self) -> Tock {
        self.tock
    }

    /// Gives up something that is perhaps big.
    pub(super) fn discard(&mut self, garbage: Option<Garbage>) {
        self.garbage.extend(garbage);
    }
}

/// Where a turn's messages and leftovers go.
struct Outlet<'o> {
    out: &'o mut Vec<u8>,
    garbage: &'o mut Vec<Garbage>,
    unsynced: &'o mut UnsyncedReplies,
}

struct Stream {
    window: Window,
    started: bool,
    source: Box<dyn Source>,
    /// When something was acknowledged or the stream could go on for other reasons.
    moved_at: Millis,
    /// When its client had the right to it last: the policies, and the client's role, which a login can change.
    allowed: Option<(Policies, Option<Role>)>,
}

/// What a stream did in its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// There is more to do at once.
    More,
    /// The same, but it has looked for long and found nothing that it may send.
    Searching,
    /// Nothing until the inbox changes.
    Idle,
    /// Nothing until the client acknowledges.
    Paused,
    /// It has ended, and its end is written.
    Done,
}

/// What [`Streams::produce`] could do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Produced {
    /// There is more to do at once, or when the output has been written.
    More,
    /// The same, but the last stream that had a turn has looked for long and found nothing that it may send: others wait
    /// for as long as this, so there is no further turn before they had theirs.
    Searching,
    /// Nothing until something happens.
    Idle,
}

/// All open streams of a connection.
#[derive(Default)]
pub(super) struct Streams {
    open: BTreeMap<u64, Stream>,
    /// Those that may have something to send. The others wait for their queue or for an
    /// acknowledgement, and cost nothing meanwhile, however many they are.
    runnable: BTreeSet<u64>,
    /// Those whose window is full.
    paused: BTreeSet<u64>,
    /// Whose queue is whose.
    queues: BTreeMap<QueueId, u64>,
    /// Those without one: they are asked whenever something has happened.
    unqueued: BTreeSet<u64>,
    /// When they had their last turns: others may end those that wait.
    policies: Policies,
    /// Whose turn was last.
    last: u64,
    garbage: Vec<Garbage>,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many watch or monitor.
    pub(super) fn queued_len(&self) -> usize {
        self.queues.len()
    }

    pub(super) fn contains(&self, seq: u64) -> bool {
        self.open.contains_key(&seq)
    }

    /// Adds a stream; the caller has checked that its number is free.
    pub(super) fn open(
        &mut self,
        seq: u64,
        window: Option<u64>,
        source: Box<dyn Source>,
        now: Millis,
    ) {
        let window = Window { size: window, sent: 0, acked: 0 };
        let started = source.framing() == Framing::Single;
        match source.queue() {
            Some(queue) => drop(self.queues.insert(queue, seq)),
            None => drop(self.unqueued.insert(seq)),
        }
        self.runnable.insert(seq);
        self.open.insert(seq, Stream { window, started, source, moved_at: now, allowed: None });
    }

    fn remove(&mut self, seq: u64) -> Option<Stream> {
        let stream = self.open.remove(&seq)?;
        self.runnable.remove(&seq);
        self.paused.remove(&seq);
        match stream.source.queue() {
            Some(queue) => drop(self.queues.remove(&queue)),
            None => drop(self.unqueued.remove(&seq)),
        }
        Some(stream)
    }

    /// Takes an acknowledgement in. One of a stream that has ended, or never was, is ignored:
    /// clients acknowledge late.
    pub(super) fn acknowledge(&mut self, seq: u64, ack: u64, now: Millis) {
        if let Some(stream) = self.open.get_mut(&seq)
            && ack > stream.window.acked
        {
            stream.window.acked = ack.min(stream.window.sent);
            stream.moved_at = now;
            self.paused.remove(&seq);
            self.runnable.insert(seq);
        }
    }

    /// Ends a stream as its client has asked for, with its end written at once; returns whether it was open.
    pub(super) fn end(
        &mut self,
        seq: u64,
        cx: &Context<'_>,
        tock: Tock,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(mut stream) = self.remove(seq) else { return false };
        stream.write_stop(seq, tock, out);
        self.garbage.extend(stream.source.close(cx));
        true
    }

    /// Ends streams that their client still wants.
    fn cut(
        &mut self,
        ending: &[u64],
        why: &ClientError,
        (cx, tock): (&Context<'_>, Tock),
        out: &mut Vec<u8>,
    ) {
        for &seq in ending {
            let Some(mut stream) = self.remove(seq) else { continue };
            stream.write_cut(why, seq, tock, out);
            self.garbage.extend(stream.source.close(cx));
        }
    }

    /// The client sends nothing any more: streams that end by themselves may do so, if they
    /// need no acknowledgements for it; all others end now.
    pub(super) fn end_endless(&mut self, cx: &Context<'_>, tock: Tock, out: &mut Vec<u8>) {
        let ending: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, s)| s.source.is_endless() || !s.window.has_room())
            .map(|(seq, _)| *seq)
            .collect();
        let text =
            "this is not all: the client sends nothing any more, so it cannot acknowledge the rest";
        let why = ClientError::new(ErrorCode::TooSlow, text);
        self.cut(&ending, &why, (cx, tock), out);
    }

    /// The node ends the connection: ends all streams.
    pub(super) fn end_all(&mut self, cx: &Context<'_>, tock: Tock, out: &mut Vec<u8>) {
        let ending: Vec<u64> = self.open.keys().copied().collect();
        let text = "this is not all: the node ends the connection; ask again, or another node";
        let why = ClientError::new(ErrorCode::NotReady, text);
        self.cut(&ending, &why, (cx, tock), out);
    }

    /// Closes all streams without a word: the connection is gone.
    pub(super) fn abandon(&mut self, cx: &Context<'_>) {
        for (_, stream) in std::mem::take(&mut self.open) {
            self.garbage.extend(stream.source.close(cx));
        }
        let garbage = std::mem::take(&mut self.garbage);
        *self = Self { garbage, ..Self::default() };
    }

    /// Memory that should be dropped where no task waits for it.
    pub(super) fn take_garbage(&mut self) -> Vec<Garbage> {
        std::mem::take(&mut self.garbage)
    }

    /// Finds the streams that something has happened to.
    fn wake(&mut self, cx: &Context<'_>, inbox: &Inbox) {
        match inbox.take_ready() {
            Ready::These(queues) => {
                self.runnable.extend(queues.iter().filter_map(|queue| self.queues.get(queue)));
            }
            Ready::All => self.runnable.extend(self.queues.values()),
        }
        self.runnable.extend(&self.unqueued);
        if self.policies != cx.access.policies {
            // The client may have lost the right to what they are about.
            self.policies = cx.access.policies;
            self.runnable.extend(self.open.keys());
        }
        // A stream that keeps a snapshot does not wait without limit.
        let stall = cx.shared.config.snapshot_stall_ms;
        let is_over = |seq: &&u64| {
            self.open.get(seq).and_then(|s| s.deadline(stall)).is_some_and(|at| cx.now >= at)
        };
        self.runnable.extend(self.paused.iter().filter(is_over));
    }

    /// Gives each stream to which something has happened one turn, while the output has room, and until one has looked for
    /// something in vain.
    pub(super) fn produce(
        &mut self,
        cx: &Context<'_>,
        tock: Tock,
        out: &mut Vec<u8>,
        unsynced: &mut UnsyncedReplies,
        inbox: &Inbox,
    ) -> Produced {
        // However many streams there are: other connections have their turn as soon as with one.
        let limit = cx.shared.output_limit().min(out.len() + TURN_BYTES);
        self.wake(cx, inbox);
        let behind = self.runnable.range(self.last.saturating_add(1)..);
        let turns: Vec<u64> = behind.chain(self.runnable.range(..=self.last)).copied().collect();
        let mut produced = Produced::Idle;
        for seq in turns {
            if out.len() >= limit {
                return Produced::More;
            }
            let Some(stream) = self.open.get_mut(&seq) else { continue };
            self.last = seq;
            let mut outlet =
                Outlet { out: &mut *out, garbage: &mut self.garbage, unsynced: &mut *unsynced };
            match stream.take_turn(seq, cx, tock, &mut outlet) {
                Turn::More => produced = Produced::More,
                Turn::Searching => return Produced::Searching,
                Turn::Idle => {
                    stream.source.rest();
                    self.runnable.remove(&seq);
                }
                Turn::Paused => {
                    stream.source.rest();
                    self.runnable.remove(&seq);
                    self.paused.insert(seq);
                }
                Turn::Done => {
                    if let Some(stream) = self.remove(seq) {
                        self.garbage.extend(stream.source.close(cx));
                    }
                }
            }
        }
        produced
    }

    /// Whether one makes changes as it continues.
    pub(super) fn make_changes(&self) -> bool {
        let mut streams = self.unqueued.iter().filter_map(|seq| self.open.get(seq));
        streams.any(|stream| stream.source.makes_changes())
    }

    /// When a stream that keeps a snapshot has waited too long for its client, if nothing
    /// happens before.
    pub(super) fn next_deadline(&self, snapshot_stall_ms: u64) -> Option<Millis> {
        let paused = self.paused.iter().filter_map(|seq| self.open.get(seq));
        paused.filter_map(|stream| stream.deadline(snapshot_stall_ms)).min()
    }
}

impl Stream {
    /// Until when it waits for its client, if it keeps a snapshot.
    fn deadline(&self, snapshot_stall_ms: u64) -> Option<Millis> {
        let waits = !self.window.has_room() && self.source.holds_snapshot();
        waits.then(|| self.moved_at.saturating_add(snapshot_stall_ms))
    }

    fn take_turn(&mut self, seq: u64, cx: &Context<'_>, tock: Tock, to: &mut Outlet<'_>) -> Turn {
        let from = to.out.len();
        for _ in 0..TURN_MESSAGES {
            if !cx.is_current() {
                // Between two messages: the next one is sent by the rights of its own moment.
                return Turn::More;
            }
            if !self.window.has_room() {
                return self.pause(seq, cx, tock, to.out);
            }
            if !self.started {
                self.write_start(seq, tock, to.out);
                continue;
            }
            let is_allowed = self.check_allowed(&cx.access);
            let mut emit = Emit {
                out: &mut *to.out,
                window: &mut self.window,
                seq,
                tock,
                garbage: &mut *to.garbage,
                unsynced: &mut *to.unsynced,
                until: from + TURN_BYTES,
            };
            let next = match is_allowed {
                Ok(()) => self.source.next(cx, &mut emit),
                Err(error) => Progress::Failed(error),
            };
            match next {
                Progress::Wrote => {}
                Progress::Busy => return Turn::More,
                Progress::Searched => return Turn::Searching,
                Progress::Idle => return Turn::Idle,
                Progress::Finished => {
                    if !self.window.has_room() {
                        // The last message filled the window; the end waits its turn.
                        return self.pause(seq, cx, tock, to.out);
                    }
                    self.write_end(seq, tock, to.out);
                    return Turn::Done;
                }
                Progress::Failed(error) => {
                    if let Some(witness) =
                        cx.witness.as_ref().filter(|_| error.code == ErrorCode::Denied)
                    {
                        witness.cut_short();
                    }
                    cx.shared.counts.note_error(&error);
                    self.write_failure(&error, seq, tock, to.out);
                    return Turn::Done;
                }
            }
            self.moved_at = cx.now;
            if to.out.len() - from >= TURN_BYTES {
                break;
            }
        }
        Turn::More
    }

    /// Whether the client may still be told what it has asked for.
    fn check_allowed(&mut self, access: &Access) -> Result<(), ClientError> {
        let present = Some((access.policies, access.role));
        if self.allowed != present
            && let Some((action, target)) = self.source.asks()
        {
            authorise_still(access, action, target)
                .map_err(|error| self.source.broken_off(error))?;
            self.allowed = present;
        }
        Ok(())
    }

    /// The window is full. A stream that keeps a snapshot does not wait without limit.
    fn pause(&mut self, seq: u64, cx: &Context<'_>, tock: Tock, out: &mut Vec<u8>) -> Turn {
        let waited = cx.now.saturating_sub(self.moved_at);
        let stall = cx.shared.config.snapshot_stall_ms;
        if waited < stall || !self.source.holds_snapshot() {
            return Turn::Paused;
        }
        let text = format!("nothing was acknowledged for {} s", stall / 1000);
        let error = ClientError::new(ErrorCode::TooSlow, text);
        cx.shared.counts.note_error(&error);
        self.write_failure(&error, seq, tock, out);
        Turn::Done
    }

    fn write_failure(&mut self, error: &ClientError, seq: u64, tock: Tock, out: &mut Vec<u8>) {
        if self.source.framing() == Framing::Single {
            write_error(error, Some(seq), tock, out);
            return;
        }
        self.write_start(seq, tock, out);
        write_stream_error(error, self.window.next_tag(seq), tock, out);
        self.write_end(seq, tock, out);
    }

    /// Writes the start, if that was not done.
    fn write_start(&mut self, seq: u64, tock: Tock, out: &mut Vec<u8>) {
        if !self.started {
            self.started = true;
            self.write_state("start", seq, tock, out);
        }
    }

    fn write_end(&mut self, seq: u64, tock: Tock, out: &mut Vec<u8>) {
        self.write_start(seq, tock, out);
        self.write_state("end", seq, tock, out);
    }

    /// Ends the stream before its time, as its client has asked for.
    fn write_stop(&mut self, seq: u64, tock: Tock, out: &mut Vec<u8>) {
        if self.source.framing() == Framing::Single {
            let error = self.source.changed().map_or_else(stopped, ClientError::stopped_after);
            write_error(&error, Some(seq), tock, out);
        } else {
            self.write_end(seq, tock, out);
        }
    }

    /// Ends the stream although its client wants the rest. One that ends by itself has an error before its end: else what
    /// has come would look like all.
    fn write_cut(&mut self, why: &ClientError, seq: u64, tock: Tock, out: &mut Vec<u8>) {
        match self.source.framing() {
            _ if self.source.is_endless() => self.write_end(seq, tock, out),
            Framing::Usual => self.write_failure(why, seq, tock, out),
            // Some of the tree may be deleted.
            Framing::SeqFirst | Framing::Single => self.write_failure(&stopped(), seq, tock, out),
        }
    }

    fn write_state(&mut self, state: &str, seq: u64, tock: Tock, out: &mut Vec<u8>) {
        match self.source.framing() {
            Framing::Usual => write_state(state, self.window.next_tag(seq), tock, out),
            Framing::SeqFirst => {
                let tag = self.window.next_tag(seq);
                let mut message = MessageWriter::new(out);
                message.u64("seq", seq).str("state", state);
                if let Some(wseq) = tag.wseq {
                    message.u64("wseq", wseq);
                }
                message.tock(tock);
            }
            Framing::Single => {}
        }
    }
}

/// What a request gets that has one reply and was stopped before it.
fn stopped() -> ClientError {
    ClientError::new(ErrorCode::UnknownFate, "stopped before its end; some of it is done")
}
