//! `batch`: each operation is carried out and answered as if it had been sent alone, in order; only
//! the answers go out together. Some take the engine's guard together, so no others come between
//! them; that is no promise, and what fails does not keep the rest from being done.

use super::value::{Job, Lookup};
use super::write_reply::write_refused;
use crate::engine::{BatchDone, BatchTerms, Engine, Operation, Outcome};
use crate::model::entry::Entry;
use crate::model::ids::Tock;
use crate::model::invariant::OrBroken;
use crate::model::value::write_array_len;
use crate::protocol::client::batch::{BatchOp, BatchRequest};
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::change_time;
use crate::server::connections::session::{Context, NodeNames, Session, Then, not_ready};
use crate::server::shards::Sample;

/// Operations that take the guard together: as many as messages that arrive together.
const GUARD_OPS: usize = 256;
/// Bytes of paths and of values to compare that operations have which take the guard together: what looking up a path, or
/// comparing, costs grows with them, and meanwhile nobody else is served. One operation may have more.
const GUARD_BYTES: usize = 16 << 10;
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

impl Session {
    /// `batch`. Without room for its changes nothing is done; it must be handed in again.
    pub(in crate::server) fn batch(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        batch: &BatchRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Then {
        let ops = batch.ops();
        let has_writes = ops.iter().any(|op| matches!(op, Ok(BatchOp::Write(_))));
        if has_writes && !cx.has_room() {
            return Then::NeedsRoom;
        }
        let (mut bytes, mut done, mut moment) = (0, Vec::with_capacity(ops.len()), None);
        let mut current = cx.clone();
        while let Some(rest) = ops.get(done.len()..).filter(|rest| !rest.is_empty()) {
            let mut part = self.begin(&current, rest.get(..together(rest)).unwrap_or(rest));
            let carried_out = carry_out_part(&current, &mut part, &mut bytes);
            done.extend(part.into_iter().take(carried_out.done));
            moment = Some(carried_out.moment);
            if carried_out.is_outdated {
                // Users or access lists have changed, perhaps by this very batch: the rest is checked anew.
                current = self.context(cx.shared, cx.now);
            }
        }
        let moment = moment.unwrap_or_else(|| cx.hub.read(Moment::of));
        let mut message = MessageWriter::new(out);
        let results = message.key("results");
        write_array_len(done.len(), results);
        let sample = Sample::new(done.len());
        for (at, op) in done.into_iter().enumerate() {
            self.write_result(cx, op, sample.weight(at), &moment, results);
        }
        message.u64("seq", seq).tock(moment.tock);
        Then::Continue
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

    /// `weight`: as how many requests it counts.
    fn write_result(
        &mut self,
        cx: &Context<'_>,
        op: Op<'_>,
        weight: u64,
        moment: &Moment,
        out: &mut Vec<u8>,
    ) {
        let tock = moment.tock;
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
                self.unsynced.note_reply(from, out.len(), number, None);
            }
        }
    }
}

/// How many of these operations, from the first on, take the guard together: at least one, if there is one.
fn together(ops: &[Result<BatchOp<'_>, ClientError>]) -> usize {
    let costs = ops.iter().map(|op| match op {
        Ok(BatchOp::Get { path, .. }) => path.path.as_bytes().len(),
        Ok(BatchOp::Write(write)) => {
            write.path.path.as_bytes().len() + write.prev.map_or(0, <[u8]>::len)
        }
        Err(_) => 0,
    });
    let sums = costs.scan(0, |sum: &mut usize, cost| {
        *sum = sum.saturating_add(cost);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= GUARD_BYTES).count().clamp(1, GUARD_OPS)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::path::Path;
    use crate::protocol::client::request::{ChainLength, RequestPath};

    fn get(path: &Path) -> Result<BatchOp<'_>, ClientError> {
        let path = RequestPath { path: path.into(), internal: false };
        Ok(BatchOp::Get { path, chain: ChainLength::WHOLE })
    }

    #[test]
    fn who_waits_for_the_guard_waits_for_few_costly_operations_only() {
        let of = |bytes: usize| "x".repeat(bytes).parse::<Path>().unwrap();
        let (short, long) = (of(20), of(1_000));
        let many = |path, count| (0..count).map(|_| get(path)).collect::<Vec<_>>();
        assert_eq!(together(&many(&short, 1_000)), GUARD_OPS);
        assert_eq!(together(&many(&short, 7)), 7);
        assert_eq!(together(&many(&long, 1_000)), GUARD_BYTES / long.as_bytes().len());
        let refused = || Err(ClientError::bad_request("no"));
        assert_eq!(together(&[refused(), get(&long), refused()]), 3);
    }
}
