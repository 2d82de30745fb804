//! `get_value`, `set_value`, `delete_value`, their internal forms, and `get_tock`: the hot path.
//! Runs of them take the guard once.

use distkv_access::acl::Letters;
use smallvec::SmallVec;

use super::copies::{CopiesWait, Wanted};
use super::recycled_entry;
pub(in crate::server) use super::write_reply::engine_error;
use super::write_reply::{write_refusal, write_refused, write_reply};
use crate::engine::{BatchDone, BatchTerms, Engine, EngineWriteError, Operation, Outcome, WriteOp};
use crate::model::entry::Entry;
use crate::model::ids::{Millis, Tock};
use crate::model::invariant::OrBroken;
use crate::model::meta::{Family, is_secret, shown};
use crate::model::value::Value;
use crate::protocol::client::chain::ChainField;
use crate::protocol::client::reply::write_error;
use crate::protocol::client::request::{ChainLength, RequestPath, WriteRequest};
use crate::protocol::client::{Action, ClientError, ClientMessage, MessageWriter, Request};
use crate::replica::write::{ChainCondition, Hints, Precondition, Write};
use crate::server::access::authorise::{Denied, Lack, SET_LETTERS, Target};
use crate::server::access::mistakes::Mistake;
use crate::server::access::types::TypeChecks;
use crate::server::change_time;
use crate::server::command::access::entries::check_entry;
use crate::server::command::access::{check_list_name, demote_for_list, remove_for_record};
use crate::server::connections::session::{
    Context, Decoded, NodeNames, Session, WholePath, check_time, not_ready,
};
use crate::server::local_client::Apart;
use crate::server::shards::Sample;

/// This many reads or writes are looked up together, before the room left for answers is checked.
const LOOKED_UP_AT_ONCE: usize = 16;

/// A value of more bytes is taken [apart](Apart) from its reply.
const APART_BYTES: usize = 4 << 10;

/// Of a change by a client that may only change what is there, or only make what is not. What is there, it is told if it
/// may read it.
fn not_permitted(cx: &Context<'_>, action: Action, permit: &Permit<'_>) -> ClientError {
    let lack = match permit.over_value {
        _ if permit.hides_old => Lack::Letters(SET_LETTERS),
        Some(true) => Lack::Creation,
        Some(false) | None => Lack::Change,
    };
    Denied::Path { action, lack }.error(Target::Path(permit.path.as_bytes()), &cx.access)
}

/// A read on its way.
pub(in crate::server::command) struct Lookup<'a> {
    pub(in crate::server::command) seq: u64,
    pub(in crate::server::command) chain: ChainLength,
    pub(in crate::server::command) path: Result<WholePath<'a>, ClientError>,
    pub(in crate::server::command) found: Option<Entry>,
}

/// Looks some reads up together.
fn find_all(lookups: &mut [Lookup<'_>], engine: &Engine) {
    if let [lookup] = lookups {
        if let Ok(path) = &lookup.path {
            lookup.found = engine.get(path.as_bytes()).cloned();
        }
        return;
    }
    let mut found: SmallVec<[Option<Entry>; LOOKED_UP_AT_ONCE]> = SmallVec::new();
    // The result for one without a path is not used.
    let paths = lookups.iter().map(|l| l.path.as_ref().map_or(&[][..], WholePath::as_bytes));
    engine.tree().get_many(paths, |entry| found.push(entry.cloned()));
    lookups.iter_mut().zip(found).for_each(|(lookup, found)| lookup.found = found);
}

impl Session {
    /// Carries out the reads at the start of a batch: looks all up under one shared guard, then
    /// encodes. Returns how many: fewer if there is no room for more, or the policies are others by now.
    pub(in crate::server) fn run_reads(
        &mut self,
        cx: &Context<'_>,
        batch: &[Decoded<'_>],
        out: &mut Vec<u8>,
    ) -> usize {
        let gets = batch.iter().map_while(as_get);
        let mut lookups: SmallVec<[Lookup<'_>; 2]> = gets
            .map(|(seq, path, chain)| {
                let action = if path.internal { Action::GetInternal } else { Action::GetValue };
                Lookup { seq, chain, path: self.resolve(cx, action, path), found: None }
            })
            .collect();
        let room = cx.shared.output_limit().saturating_sub(out.len());
        let with_names = lookups.iter().any(|l| !l.chain.is_none());
        let (ready, tock, names, done) = cx.hub.read(|engine| {
            let (mut bytes, mut done) = (0, 0);
            // What is looked up must not be of later policies than what allows it.
            let is_current = engine.policies() == cx.access.policies;
            'all: for lookups in lookups.chunks_mut(LOOKED_UP_AT_ONCE) {
                find_all(lookups, engine);
                for lookup in lookups {
                    // One may exceed the room, so that there is always progress.
                    if !is_current || bytes > room {
                        break 'all;
                    }
                    bytes += lookup.found.as_ref().map_or(0, Entry::memory_bytes);
                    done += 1;
                }
            }
            let names = with_names.then(|| NodeNames::of(engine));
            (engine.is_ready(), engine.tock(), names, done)
        });
        let sample = Sample::new(done);
        for (at, lookup) in lookups.iter().take(done).enumerate() {
            match &lookup.path {
                Err(error) => {
                    cx.shared.counts.note_error(error);
                    write_error(error, Some(lookup.seq), tock, out);
                }
                Ok(_) if !ready => {
                    let error = not_ready();
                    cx.shared.counts.note_error(&error);
                    write_error(&error, Some(lookup.seq), tock, out);
                }
                Ok(path) => {
                    cx.shared.shards.note_reads(path.as_bytes(), sample.weight(at));
                    if let Some(names) = names.as_ref()
                        && let Some(own) = self.in_process.as_mut().filter(|own| own.wants_apart())
                        && let Some(entry) = lookup.long_value(path.as_bytes())
                    {
                        own.apart = Apart::Is(entry.clone());
                        lookup.write_without_value(entry, names, out);
                        continue;
                    }
                    lookup.write(Some(lookup.seq), names.as_ref(), tock, out);
                }
            }
        }
        done
    }

    /// Carries out the writes (and requests for a tock) at the start of a batch, under one
    /// exclusive guard. Returns how many, as [`Self::run_reads`].
    pub(in crate::server) fn run_writes(
        &mut self,
        cx: &Context<'_>,
        batch: &[Decoded<'_>],
        out: &mut Vec<u8>,
    ) -> usize {
        let mut waiting = 0;
        let mut jobs: SmallVec<[Job<'_>; 2]> = batch
            .iter()
            .map_while(as_write)
            .map(|(seq, write, by)| {
                let permit = write.map(|write| {
                    check_time(by)?;
                    let permit = self.resolve_write(cx, write)?;
                    if write.copies > 0 {
                        waiting += 1;
                        self.check_count(cx, waiting)?;
                    }
                    Ok(permit)
                });
                Job { seq: Some(seq), write, permit: permit.transpose(), outcome: None }
            })
            .collect();
        let room = cx.shared.output_limit().saturating_sub(out.len());
        if let Err(error) = cx.check_storage() {
            jobs.iter_mut().for_each(|job| job.refuse(&error));
        }
        let with_names = jobs.iter().any(|job| job.write.is_some_and(|w| !w.reply_chain.is_none()));
        let time = jobs.iter().any(|job| job.write.is_some()).then(change_time).flatten();
        let terms = BatchTerms { room, with_names, checked: Some(cx.access.policies), time };
        let (done, number) = cx.hub.write_batch(jobs.iter().map(Job::op), terms);
        let BatchDone { outcomes, tock, names, .. } = done;
        let done = outcomes.len();
        let sample = Sample::new(done);
        for (at, (mut job, outcome)) in jobs.into_iter().zip(outcomes).enumerate() {
            job.outcome = outcome;
            let (from, seq) = (out.len(), job.seq);
            let number = job.logged_as(cx, number);
            job.count(cx, sample.weight(at));
            match job.write(cx, names.as_ref(), tock, out) {
                Some(wait) => self.copies.push(CopiesWait { number, ..wait }),
                None => self.unsynced.note_reply(from, out.len(), number, seq),
            }
        }
        done
    }

    /// A write's whole path, if the write is allowed, and on which terms.
    pub(super) fn resolve_write<'a>(
        &self,
        cx: &Context<'_>,
        write: &'a WriteRequest<'a>,
    ) -> Result<Permit<'a>, ClientError> {
        let path = self.resolve(cx, write.action, &write.path)?;
        if cx.access.is_unchecked(path.as_bytes()) {
            return Ok(Permit { path, stored: None, over_value: None, hides_old: false });
        }
        let writer = self.writer(cx);
        writer.check(path.as_bytes(), write.value.is_some())?;
        check_entry(cx, writer, path.as_bytes(), write.value)?;
        match write.value {
            Some(_) => check_list_name(path.as_bytes())?,
            None => demote_for_list(cx, path.as_bytes()),
        }
        let stored = match write.value {
            Some(value) => check_type(cx, &path, value)?,
            None => None,
        };
        let has_secret = is_secret(path.as_bytes());
        if cx.access.rights.is_everything() && !has_secret {
            return Ok(Permit { path, stored, over_value: None, hides_old: false });
        }
        let letters = cx.access.rights.letters(path.as_bytes());
        let hides_old =
            has_secret || !(letters.has(Letters::READ) || cx.access.makes(Mistake::OldValue));
        if hides_old && (write.prev.is_some() || write.idempotent) {
            // Its outcome would tell what is there.
            if let Some(witness) = &cx.witness {
                witness.refused_at(write.action, &path.to_path());
            }
            let denied = Denied::Path { action: write.action, lack: Lack::OldValue };
            return Err(denied.error(Target::Path(path.as_bytes()), &cx.access));
        }
        let over_value = match (letters.has(Letters::WRITE), letters.has(Letters::CREATE)) {
            _ if write.value.is_none() || cx.access.makes(Mistake::WriteOrCreate) => None,
            (true, true) => None,
            (may_change, _) => Some(may_change),
        };
        Ok(Permit { path, stored, over_value, hides_old })
    }
}

fn as_get<'a>(message: &'a Decoded<'a>) -> Option<(u64, &'a RequestPath<'a>, ChainLength)> {
    match message {
        Ok(ClientMessage::Request { seq, request: Request::Get { path, chain }, .. }) => {
            Some((*seq, path, *chain))
        }
        _ => None,
    }
}

/// What there is to write, and until when that counts; a request for a tock writes nothing.
type Asked<'a> = (u64, Option<&'a WriteRequest<'a>>, Millis);

fn as_write<'a>(message: &'a Decoded<'a>) -> Option<Asked<'a>> {
    let Ok(ClientMessage::Request { seq, request, by, .. }) = message else { return None };
    match request {
        Request::Write(write) => Some((*seq, Some(write), *by)),
        Request::GetTock => Some((*seq, None, *by)),
        _ => None,
    }
}

impl Lookup<'_> {
    /// The entry that was found, if its value is a long one and is shown as it is.
    fn long_value(&self, path: &[u8]) -> Option<&Entry> {
        let long = |entry: &&Entry| entry.value().is_some_and(|value| value.len() > APART_BYTES);
        self.found.as_ref().filter(long).filter(|_| !is_secret(path))
    }

    /// Writes the reply to a request, without the value.
    fn write_without_value(&self, entry: &Entry, names: &NodeNames, out: &mut Vec<u8>) {
        let mut message = MessageWriter::new(out);
        message.version(entry, self.chain, names.names()).seq(Some(self.seq));
    }

    /// Writes the reply to a request, or a result within a batch's.
    pub(in crate::server::command) fn write(
        &self,
        seq: Option<u64>,
        names: Option<&NodeNames>,
        tock: Tock,
        out: &mut Vec<u8>,
    ) {
        let mut message = MessageWriter::new(out);
        // Without one, nothing was found.
        let path = self.path.as_ref().map_or(&[][..], WholePath::as_bytes);
        match (&self.found, names) {
            (Some(entry), Some(names)) => message.entry(path, entry, self.chain, names.names()),
            (Some(entry), None) => {
                if let Some(value) = entry.value() {
                    message.raw("value", shown(path, value));
                }
                message.tock(entry.tock()).change_time(entry, self.chain)
            }
            (None, _) => {
                if !self.chain.is_none() {
                    message.nil("chain");
                }
                message.seq(seq).tock(tock);
                return;
            }
        };
        message.seq(seq);
    }
}

/// Whether a value fits the types that are asked for at a whole path; what is to be stored instead, if that is
/// something else. Both cost next to nothing where there are no types.
pub(in crate::server) fn check_type(
    cx: &Context<'_>,
    path: &WholePath<'_>,
    value: &[u8],
) -> Result<Option<Value>, ClientError> {
    if let Some(types) = &cx.access.types {
        types.check(path.as_bytes(), value)?;
    }
    match Family::of(path.as_bytes()) {
        Some(Family::Type | Family::Match) => {
            let none = TypeChecks::default();
            cx.access.types.as_deref().unwrap_or(&none).check_change(&path.to_path(), value)
        }
        _ => Ok(None),
    }
}

/// A write that is allowed.
pub(in crate::server::command) struct Permit<'a> {
    /// The whole path.
    pub(in crate::server::command) path: WholePath<'a>,
    /// What is stored instead of the value that was sent.
    pub(in crate::server::command) stored: Option<Value>,
    /// Only where there is a value, or else only where there is none.
    pub(in crate::server::command) over_value: Option<bool>,
    /// The reply must not tell what was there.
    pub(in crate::server::command) hides_old: bool,
}

/// A write, or a request for a tock, on its way.
pub(in crate::server::command) struct Job<'a> {
    /// None for one of a batch.
    pub(in crate::server::command) seq: Option<u64>,
    pub(in crate::server::command) write: Option<&'a WriteRequest<'a>>,
    pub(in crate::server::command) permit: Result<Option<Permit<'a>>, ClientError>,
    pub(in crate::server::command) outcome: Option<Outcome>,
}

impl<'a> Job<'a> {
    /// Its whole path, if it is one that may be made.
    fn path(&self) -> Option<&WholePath<'a>> {
        self.permit.as_ref().ok()?.as_ref().map(|permit| &permit.path)
    }

    /// It is not to be made, unless it only asks for a tock.
    pub(in crate::server::command) fn refuse(&mut self, error: &ClientError) {
        if self.write.is_some() && self.permit.is_ok() {
            self.permit = Err(error.clone());
        }
    }

    /// The batch of the log that its reply depends on; 0 for none. `number`: the one with the
    /// present changes.
    pub(super) fn logged_as(&self, cx: &Context<'_>, number: u64) -> u64 {
        match &self.outcome {
            Some(Outcome::Written(written)) if written.is_made => number,
            // Its change is in an earlier one; it is not known in which.
            Some(Outcome::Written(written)) if written.repeated.is_some() => {
                cx.hub.log().map_or(0, |log| log.appended())
            }
            _ => 0,
        }
    }

    /// What the engine is to do.
    pub(in crate::server::command) fn op(&self) -> Operation<'_> {
        let (write, permit) = match (self.write, &self.permit) {
            (None, _) => return Operation::MintTock,
            (Some(write), Ok(Some(permit))) => (write, permit),
            (Some(_), _) => return Operation::Nothing,
        };
        let (chain, newest) = match &write.chain {
            ChainField::Any => (ChainCondition::Any, None),
            ChainField::New => (ChainCondition::MustBeNew, None),
            ChainField::Newest { life, tick } => (ChainCondition::Any, Some((*life, *tick))),
        };
        Operation::Write(WriteOp {
            write: Write {
                path: permit.path.to_bytes(),
                value: permit.stored.as_ref().map(Value::as_bytes).or(write.value),
                precondition: Precondition {
                    chain,
                    of_deletion: write.of_deletion,
                    value: write.prev,
                },
                idempotent: write.idempotent,
                write_id: write.write_id,
                above: write.above,
                own: write.own,
                // The batch has one for all.
                time: None,
                hints: Hints::with_room(recycled_entry::take()),
            },
            newest,
            copies: write.copies,
            over_value: permit.over_value,
            tock: None,
        })
    }

    /// Does what follows from it if it was carried out, and counts it as this many changes in its shard.
    pub(in crate::server::command) fn count(&self, cx: &Context<'_>, weight: u64) {
        if let (Some(path), Some(Outcome::Written(written))) = (self.path(), &self.outcome) {
            demote_for_list(cx, path.as_bytes());
            let is_deletion = self.write.is_some_and(|write| write.value.is_none());
            if is_deletion && written.is_made {
                remove_for_record(cx, path.as_bytes());
            }
            self.tell(cx, path);
            cx.shared.shards.note_writes(path.as_bytes(), weight);
        }
    }

    /// Tells the audit log of it, if it has changed something there.
    fn tell(&self, cx: &Context<'_>, path: &WholePath<'_>) {
        if let (Some(witness), Some(Outcome::Written(written)), Some(write)) =
            (&cx.witness, &self.outcome, self.write)
            && written.is_made
        {
            witness.changed(write.action, path.as_bytes());
        }
    }

    /// Writes the reply (or a result within a batch's), or prepares it if it has to wait for
    /// copies. `names`: may be left out if no chain is asked for.
    pub(in crate::server::command) fn write(
        self,
        cx: &Context<'_>,
        names: Option<&NodeNames>,
        tock: Tock,
        out: &mut Vec<u8>,
    ) -> Option<CopiesWait> {
        let permit = match self.permit {
            Err(error) => {
                write_refused(cx, &error, self.seq, tock, out);
                return None;
            }
            Ok(permit) => permit,
        };
        let hides_old = permit.as_ref().is_some_and(|permit| permit.hides_old);
        match (self.outcome, self.write) {
            (Some(Outcome::Tock(tock)), _) => {
                MessageWriter::new(out).tock(tock).seq(self.seq);
                None
            }
            (Some(Outcome::Refused(error)), Some(write)) => {
                let permit = permit.or_broken("a write that was refused was permitted");
                let path = permit.path.to_path();
                if error == EngineWriteError::NotPermitted {
                    if let Some(witness) = &cx.witness {
                        witness.refused_at(write.action, &path);
                    }
                    let error = not_permitted(cx, write.action, &permit);
                    write_refused(cx, &error, self.seq, tock, out);
                    return None;
                }
                let looked_up = names.is_none().then(|| cx.hub.read(NodeNames::of));
                let names = names.or(looked_up.as_ref())?;
                let error = write_refusal(&error, write, hides_old, &path, names);
                write_refused(cx, &error, self.seq, tock, out);
                None
            }
            (Some(Outcome::Written(written)), Some(write)) => {
                let newest = written.entry.as_ref().map(Entry::newest);
                let event = written.repeated.map(|made| made.event).or(newest);
                match event.filter(|_| write.copies > 0).zip(self.seq) {
                    None => {
                        write_reply(self.seq, write, hides_old, &written, names, tock, out);
                        recycled_entry::give(written.old);
                        None
                    }
                    Some((event, seq)) => {
                        let mut reply = Vec::new();
                        write_reply(self.seq, write, hides_old, &written, names, tock, &mut reply);
                        let deadline = cx.now.saturating_add(write.copies_timeout);
                        let wanted = Wanted::Peers(write.copies);
                        let number = 0; // the caller knows it
                        Some(CopiesWait { seq, event, wanted, deadline, reply, number })
                    }
                }
            }
            (_, _) => None,
        }
    }
}
