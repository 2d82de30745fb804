//! `batch`: each operation is carried out and answered as if it had been sent alone, in order; only
//! the answers go out together. Some take the engine's guard together, so no others come between
//! them; that is no promise, and what fails does not keep the rest from being done.
//!
//! A long batch has several turns ([`LongBatch`]): between two of them other clients have theirs. What is behind it on its
//! connection waits until it is answered.

use super::value::{Job, Lookup};
use super::write_reply::write_refused;
use crate::engine::{BatchDone, BatchTerms, Engine, Operation, Outcome, Policies};
use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::invariant::OrBroken;
use crate::model::value::{Reader, write_array_len};
use crate::protocol::client::batch::{BatchOp, BatchRequest};
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::change_time;
use crate::server::connections::session::{Context, NodeNames, Session, Then, not_ready};
use crate::server::shards::Sample;

/// Operations that take the guard together: as many as messages that arrive together.
const GUARD_OPS: usize = 256;
/// Bytes of operations, and of their answers, after which a batch's turn ends: paths of many elements cost most, about
/// 5 us per 1,000 bytes, so that a turn of them takes a third of a millisecond. One operation may have more.
const TURN_BYTES: usize = 64 << 10;
/// Bytes of values in a reply, after which further operations are refused: as many as a request may
/// have. So the reply has one greatest value more at most.
const REPLY_BYTES_MAX: usize = 8 << 20;

/// An operation on its way.
enum Op<'a> {
    Read { lookup: Lookup<'a>, ready: bool },
    Write { job: Job<'a>, number: u64 },
    Refused(ClientError),
}

impl<'a> Op<'a> {
    fn new(session: &Session, cx: &Context<'_>, op: &'a Result<BatchOp<'a>, ClientError>) -> Self {
        match op {
            Err(error) => Self::Refused(error.clone()),
            Ok(BatchOp::Get { path, chain }) => {
                let action = if path.internal { Action::GetInternal } else { Action::GetValue };
                let path = session.resolve(cx, action, path);
                let seq = 0; // that of the batch is not its own
                let lookup = Lookup { seq, chain: *chain, path, found: None };
                Self::Read { lookup, ready: false }
            }
            Ok(BatchOp::Write(write)) => {
                let permit = session.resolve_write(cx, write).map(Some);
                let job = Job { seq: None, write: Some(write), permit, outcome: None };
                Self::Write { job, number: 0 }
            }
        }
    }

    /// Whether the reply has room for its answer. If not, it is refused.
    fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = bytes <= REPLY_BYTES_MAX;
        if !has_room {
            self.refuse_for_room();
        }
        has_room
    }

    /// The reply has no room for its answer.
    fn refuse_for_room(&mut self) {
        if !matches!(self, Self::Refused(_)) {
            *self = Self::Refused(no_room());
        }
    }

    /// Looks up what is to be read; tells how many bytes of the reply that is.
    fn read(&mut self, engine: &Engine) -> usize {
        let Self::Read { lookup, ready } = self else { return 0 };
        *ready = engine.is_ready();
        lookup.find(engine)
    }

    /// What the engine is to do.
    fn op(&self) -> Operation<'_> {
        match self {
            Self::Read { lookup, .. } => match &lookup.path {
                Ok(path) => Operation::Get(path.as_bytes()),
                Err(_) => Operation::Nothing,
            },
            Self::Write { job, .. } => job.op(),
            Self::Refused(_) => Operation::Nothing,
        }
    }

    /// Takes what came of it. `logged`: the number of the log's batch.
    fn take(&mut self, result: Option<Outcome>, is_ready: bool, logged: u64) {
        match self {
            Self::Read { lookup, ready } => {
                *ready = is_ready;
                if let Some(Outcome::Found(found)) = result {
                    lookup.found = found;
                }
            }
            Self::Write { job, number } => {
                job.outcome = result;
                *number = logged;
            }
            Self::Refused(_) => {}
        }
    }
}

/// What the answers are written with.
struct Moment {
    tock: Tock,
    names: NodeNames,
}

impl Moment {
    fn of(engine: &Engine) -> Self {
        Self { tock: engine.tock(), names: NodeNames::of(engine) }
    }
}

/// What has come of a batch so far.
struct Progress {
    seq: u64,
    /// How many operations are answered.
    done: usize,
    /// Of how many.
    all: usize,
    sample: Sample,
    /// About how many bytes of values there are in the answers.
    value_bytes: usize,
    /// The answers, encoded.
    results: Vec<u8>,
    /// Those of changes: where they are, and the number of the log's batch.
    changes: Vec<(usize, usize, u64)>,
    /// When the last of them was made.
    tock: Option<Tock>,
}

impl Progress {
    fn new(seq: u64, all: usize) -> Self {
        Self {
            seq,
            done: 0,
            sample: Sample::new(all),
            all,
            value_bytes: 0,
            results: Vec::new(),
            changes: Vec::new(),
            tock: None,
        }
    }

    /// Users or access lists have changed since the first of it was read: what the client may not read any more is not told.
    /// `raw`: all operations. What was changed is changed, and that is told.
    fn withhold(&mut self, session: &Session, cx: &Context<'_>, raw: &[u8]) {
        let tock = cx.tock();
        let mut ops = BatchRequest::of_parts(self.all, raw);
        let told = std::mem::take(&mut self.results);
        let mut rest = Reader::new(&told);
        let (mut from, mut changes) = (0, self.changes.iter_mut().peekable());
        while let Ok(result) = rest.read_raw() {
            let is_told = match ops.take(1, usize::MAX).pop() {
                Some(Ok(BatchOp::Get { path, .. })) => {
                    let action = if path.internal { Action::GetInternal } else { Action::GetValue };
                    session.resolve(cx, action, &path).map(drop)
                }
                Some(_) | None => Ok(()),
            };
            let begin = self.results.len();
            match is_told {
                Ok(()) => self.results.extend_from_slice(result),
                Err(error) => write_refused(cx, &error, None, tock, &mut self.results),
            }
            if let Some(change) = changes.next_if(|(at, ..)| *at == from) {
                (change.0, change.1) = (begin, self.results.len());
            }
            from += result.len();
        }
    }

    /// Writes the reply: all is done.
    fn write(self, session: &mut Session, cx: &Context<'_>, out: &mut Vec<u8>) {
        let tock = self.tock.unwrap_or_else(|| cx.tock());
        let mut message = MessageWriter::new(out);
        let results = message.key("results");
        write_array_len(self.done, results);
        let start = results.len();
        results.extend_from_slice(&self.results);
        for (from, to, number) in self.changes {
            session.unsynced.note_reply(start + from, start + to, number, None);
        }
        message.u64("seq", self.seq).tock(tock);
    }
}

/// A batch whose turn has ended before it did.
pub(in crate::server) struct LongBatch {
    progress: Progress,
    /// All operations; those that are left begin at `at`.
    raw: Vec<u8>,
    at: usize,
    /// What its first turn went by.
    policies: Policies,
}

impl LongBatch {
    /// About how much memory it takes.
    pub(in crate::server) fn bytes(&self) -> usize {
        let Self { progress, raw, at: _, policies: _ } = self;
        let changes = progress.changes.capacity() * size_of::<(usize, usize, u64)>();
        raw.capacity() + progress.results.capacity() + changes + size_of::<Self>()
    }
}

/// How a turn of a batch has ended.
enum Turn {
    /// There are no more operations.
    Whole,
    /// There are.
    Over,
    /// The next one changes something, and the disk does not keep up.
    NeedsRoom,
}

impl Session {
    /// `batch`. Without room for its first changes nothing is done; it must be handed in again.
    pub(in crate::server) fn batch(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        batch: &BatchRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Then {
        let mut rest = *batch;
        let mut progress = Progress::new(seq, rest.as_parts().0);
        match self.batch_turn(cx, &mut progress, &mut rest) {
            Turn::Whole => {
                progress.write(self, cx, out);
                return Then::Continue;
            }
            Turn::NeedsRoom if progress.done == 0 => return Then::NeedsRoom,
            Turn::Over | Turn::NeedsRoom => {}
        }
        let raw = batch.as_parts().1.to_vec();
        let (at, policies) = (raw.len() - rest.as_parts().1.len(), cx.access.policies);
        self.long_batch = Some(Box::new(LongBatch { progress, raw, at, policies }));
        Then::Unfinished
    }

    /// The next turn of the batch that is under way, if there is one.
    pub(in crate::server) fn resume_batch(
        &mut self,
        cx: &Context<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Then> {
        let mut long = self.long_batch.take()?;
        let LongBatch { progress, raw, at, policies: _ } = &mut *long;
        let left = raw.get(*at..).or_broken("the rest of a batch is within it");
        let mut rest = BatchRequest::of_parts(progress.all - progress.done, left);
        let turn = self.batch_turn(cx, progress, &mut rest);
        *at = raw.len() - rest.as_parts().1.len();
        if matches!(turn, Turn::Whole) {
            let LongBatch { mut progress, raw, policies, .. } = *long;
            let cx = &self.context(cx.shared, cx.now);
            if policies != cx.access.policies {
                progress.withhold(self, cx, &raw);
            }
            progress.write(self, cx, out);
            return Some(Then::Continue);
        }
        self.long_batch = Some(long);
        Some(if matches!(turn, Turn::NeedsRoom) { Then::NeedsRoom } else { Then::Unfinished })
    }

    /// Carries out operations, which are taken off `rest`, until the turn ends.
    fn batch_turn(
        &mut self,
        cx: &Context<'_>,
        progress: &mut Progress,
        rest: &mut BatchRequest<'_>,
    ) -> Turn {
        let mut current = cx.clone();
        let (left, answered) = (rest.as_parts().1.len(), progress.results.len());
        while progress.done < progress.all {
            let read = left - rest.as_parts().1.len();
            if read + (progress.results.len() - answered) >= TURN_BYTES {
                return Turn::Over;
            }
            let mut after = *rest;
            let ops = after.take(GUARD_OPS, TURN_BYTES);
            let has_writes = ops.iter().any(|op| matches!(op, Ok(BatchOp::Write(_))));
            if has_writes && !cx.has_room() {
                return Turn::NeedsRoom;
            }
            let mut part: &[_] = &ops;
            while !part.is_empty() {
                let mut begun = self.begin(&current, part);
                let CarriedOut { done, is_outdated, moment } =
                    carry_out_part(&current, &mut begun, &mut progress.value_bytes);
                for op in begun.into_iter().take(done) {
                    Self::write_result(cx, op, &moment, progress);
                }
                progress.tock = Some(moment.tock);
                part = part.get(done..).unwrap_or_default();
                if is_outdated {
                    // Users or access lists have changed, perhaps by this very batch: the rest is checked anew.
                    current = self.context(cx.shared, cx.now);
                }
            }
            *rest = after;
        }
        Turn::Whole
    }

    /// Operations before they are carried out: those that are not allowed are refused.
    fn begin<'a>(
        &self,
        cx: &Context<'_>,
        ops: &'a [Result<BatchOp<'a>, ClientError>],
    ) -> Vec<Op<'a>> {
        let mut ops: Vec<Op<'a>> = ops.iter().map(|op| Op::new(self, cx, op)).collect();
        if let Err(error) = cx.check_storage() {
            for op in &mut ops {
                if let Op::Write { job, .. } = op {
                    job.refuse(&error);
                }
            }
        }
        ops
    }

    /// The answer to one operation, behind those before it.
    fn write_result(cx: &Context<'_>, op: Op<'_>, moment: &Moment, progress: &mut Progress) {
        let (tock, out) = (moment.tock, &mut progress.results);
        let weight = progress.sample.weight(progress.done);
        progress.done += 1;
        match op {
            Op::Refused(error) => write_refused(cx, &error, None, tock, out),
            Op::Read { lookup, ready } => match &lookup.path {
                Err(error) => write_refused(cx, error, None, tock, out),
                Ok(_) if !ready => write_refused(cx, &not_ready(), None, tock, out),
                Ok(path) => {
                    cx.shared.shards.note_reads(path.as_bytes(), weight);
                    lookup.write(None, Some(&moment.names), tock, out);
                }
            },
            Op::Write { job, number } => {
                let from = out.len();
                let number = job.logged_as(cx, number);
                job.count(cx, weight);
                // Without copies there is nothing to wait for.
                let _none = job.write(cx, Some(&moment.names), tock, out);
                progress.changes.push((from, out.len(), number));
            }
        }
    }
}

/// What became of some operations.
struct CarriedOut {
    /// So many of them are done, or refused.
    done: usize,
    /// The rest is not, because the policies are others by now.
    is_outdated: bool,
    moment: Moment,
}

/// Carries out some operations under one guard: the exclusive one if there is a write among them.
fn carry_out_part(cx: &Context<'_>, part: &mut [Op<'_>], bytes: &mut usize) -> CarriedOut {
    let all = part.len();
    if !part.iter().any(|op| matches!(op, Op::Write { .. })) {
        return cx.hub.read(|engine| {
            let moment = Moment::of(engine);
            if engine.policies() != cx.access.policies {
                return CarriedOut { done: 0, is_outdated: true, moment };
            }
            for op in part {
                if op.has_room(*bytes) {
                    *bytes += op.read(engine);
                }
            }
            CarriedOut { done: all, is_outdated: false, moment }
        });
    }
    if *bytes > REPLY_BYTES_MAX {
        part.iter_mut().for_each(Op::refuse_for_room);
        return CarriedOut { done: all, is_outdated: false, moment: cx.hub.read(Moment::of) };
    }
    let terms = BatchTerms {
        room: REPLY_BYTES_MAX - *bytes,
        with_names: true,
        checked: Some(cx.access.policies),
        time: change_time(),
    };
    let (done, logged) = cx.hub.write_batch(part.iter().map(Op::op), terms);
    let BatchDone { outcomes, tock, is_ready, is_outdated, names } = done;
    let done = if is_outdated { outcomes.len() } else { all };
    let mut outcomes = outcomes.into_iter();
    for op in part.iter_mut().take(done) {
        let Some(outcome) = outcomes.next() else {
            op.refuse_for_room();
            continue;
        };
        *bytes += outcome.as_ref().map_or(0, Outcome::reply_bytes);
        op.take(outcome, is_ready, logged);
    }
    let moment = Moment { tock, names: names.or_broken("the names of nodes were wanted") };
    CarriedOut { done, is_outdated, moment }
}

fn no_room() -> ClientError {
    let text = format!(
        "the answers to the batch's operations before this one have more than {REPLY_BYTES_MAX} \
         bytes; nothing was done; send it in a batch of its own"
    );
    ClientError::new(ErrorCode::TooLarge, text)
}

impl Lookup<'_> {
    /// Looks up; returns about how much of the output the answer takes.
    fn find(&mut self, engine: &Engine) -> usize {
        if let Ok(path) = &self.path {
            self.found = engine.get(path.as_bytes()).cloned();
        }
        self.found.as_ref().map_or(0, Entry::memory_bytes)
    }
}
