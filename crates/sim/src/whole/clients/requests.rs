//! Clients that read and write at any node: each request may be refused, answered late, or not at all;
//! then it is sent again, to the same node or another one, under the same write id. An answer goes out
//! as a server's connection lets it: when everything that it could tell of is safe, or as an error when
//! that cannot be made safe.

use std::collections::BTreeMap;
use std::fmt;

use crate::engine::{BatchTerms, Engine, Operation, Outcome, WriteOp};
use crate::hub::Hub;
use crate::model::ids::{Millis, Tock};
use crate::model::path::Path;
use crate::model::write_id::{WriteId, WritePlace};
use crate::replica::write::{ChainCondition, Precondition, Write, Written};
use crate::whole::judging::judge::Acked;
use crate::whole::judging::view::{self, EventId};
use crate::whole::node::Told;
use crate::whole::{Happening, Whole, note};

/// A client that was refused, or got no answer, tries again after about this time.
const RETRY_MS: Millis = 60;
/// For an answer that waits for the disk a client waits so long.
const PATIENCE_MS: Millis = 2_500;
/// Whoever waits looks this often.
const LOOK_MS: Millis = 5;
/// Most tries of one request; then the client gives up, and does not know what became of it.
const TRIES_MAX: u32 = 8;

/// A change that a client wants, as each try says it.
#[derive(Clone, Debug)]
pub(in crate::whole) struct Wish {
    /// Another one for each request; also the value that it writes.
    pub(super) number: u32,
    pub(super) path: Path,
    /// None deletes.
    value: Option<u32>,
    condition: Condition,
    /// Of a write that is sent again if need be.
    pub(super) id: Option<WriteId>,
    /// The greatest tock that its client knew when it thought of it.
    above: u64,
    /// That of the client's last change of the path.
    own: u64,
}

/// What a client is doing.
struct Request {
    wish: Wish,
    tries: u32,
    waiting: Option<Waiting>,
    /// The events that it has made.
    made: Vec<EventId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    Any,
    /// There must be nothing.
    New,
    /// The value must be this one.
    Value(u32),
    /// No event if it is there already.
    Idempotent,
}

/// An answer that waits to go out.
struct Waiting {
    slot: usize,
    process: u64,
    since: Millis,
    /// Everything up to this batch must be safe.
    gate: u64,
    /// The batch of the change, or a later one; 0 if nothing was made.
    number: u64,
    done: Option<Done>,
    is_lost: bool,
}

/// What the answer says.
#[derive(Clone)]
pub(super) struct Done {
    pub(super) event: EventId,
    tock: u64,
    /// The value that was there before.
    old: Option<u32>,
}

/// What a client knows of its last change.
struct OwnWrite {
    slot: usize,
    process: u64,
    path: Path,
    tock: u64,
}

/// One client.
pub(in crate::whole) struct Client {
    number: usize,
    request: Option<Request>,
    own: Option<OwnWrite>,
    /// The greatest tock that it was told.
    heard: u64,
    /// The tock of its last change of each path.
    tocks: BTreeMap<Path, u64>,
    /// How many writes it has begun.
    writes: u32,
}

/// A value as it is stored: a number in MessagePack, in five bytes.
fn stored(number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [0xce, a, b, c, d]
}

/// The number that a stored value is; 0 for any other.
pub(in crate::whole) fn number_of(value: &[u8]) -> u32 {
    match value {
        [0xce, number @ ..] => number.try_into().map_or(0, u32::from_be_bytes),
        _ => 0,
    }
}

impl Client {
    pub(in crate::whole) fn new(number: usize) -> Self {
        Self { number, request: None, own: None, heard: 0, tocks: BTreeMap::new(), writes: 0 }
    }

    /// Whether it wants something still.
    pub(in crate::whole) fn is_busy(&self) -> bool {
        self.request.is_some()
    }
}

impl Wish {
    /// Makes the change at a hub; tells what became of it, and the number of the log's batch.
    pub(super) fn make_at(&self, hub: &Hub) -> (Option<Outcome>, u64) {
        let value = self.value.map(stored);
        let expected = match self.condition {
            Condition::Value(number) => Some(stored(number)),
            _ => None,
        };
        let chain = match self.condition {
            Condition::New => ChainCondition::MustBeNew,
            _ => ChainCondition::Any,
        };
        let write = Write {
            precondition: Precondition {
                value: expected.as_ref().map(<[u8; 5]>::as_slice),
                ..Precondition::chain(chain)
            },
            idempotent: self.condition == Condition::Idempotent,
            write_id: self.id,
            above: Tock::new(self.above).unwrap_or_default(),
            own: Tock::new(self.own).unwrap_or_default(),
            ..Write::new(self.path.clone(), value.as_ref().map(<[u8; 5]>::as_slice))
        };
        let op = Operation::Write(WriteOp::new(write));
        let (done, number) = hub.write_batch([op], BatchTerms::WHOLE);
        (done.outcomes.into_iter().next().flatten(), number)
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wish { number, path, value, condition, .. } = self;
        let id = if self.id.is_some() { "with an id" } else { "without an id" };
        write!(f, "request {number}, {path} = {value:?} {condition:?} {id}")
    }
}

impl Whole<'_> {
    pub(in crate::whole) fn on_client(&mut self, client: usize) {
        if self.clients[client].request.is_none() {
            if self.is_healing() {
                return;
            }
            self.read_own(client);
            self.want(client);
        }
        let pause = match self.clients[client].request.as_ref().map(|r| r.waiting.is_some()) {
            Some(true) => self.on_waiting(client),
            Some(false) => self.try_request(client),
            None => RETRY_MS,
        };
        let at = self.now() + pause;
        self.schedule.plan(at, Happening::Client(client));
    }

    /// A client thinks of something.
    fn want(&mut self, client: usize) {
        let at = self.rng.below(self.plan.paths);
        let path: Path = format!("k:{}:{at}", at % 2).parse().expect("it is a path");
        self.requests += 1;
        let number = self.requests;
        let deletes = self.rng.percent(self.plan.deletions);
        let value = (!deletes).then_some(number);
        let condition = match self.rng.below(10) {
            0 if !deletes => Condition::New,
            1 => self.guess(&path).map_or(Condition::Any, Condition::Value),
            2 if !deletes => Condition::Idempotent,
            _ => Condition::Any,
        };
        let has_id = self.rng.percent(85);
        let Client { heard, tocks, writes, .. } = &mut self.clients[client];
        *writes += 1;
        // It does one thing after the other, so it waits for none of those before.
        let place = WritePlace { client: client as u64 + 1, number: *writes, settled: *writes };
        let id = has_id.then(|| place.to_id());
        let own = tocks.get(&path).copied().unwrap_or(0);
        let (above, own) = if self.plan.clients_remember { (*heard, own) } else { (0, 0) };
        let wish = Wish { number, path, value, condition, id, above, own };
        self.clients[client].request =
            Some(Request { wish, tries: 0, waiting: None, made: Vec::new() });
    }

    /// What some node has at a path.
    fn guess(&mut self, path: &Path) -> Option<u32> {
        let slot = self.rng.below(self.slots.len());
        let process = self.slots[slot].process.as_ref()?;
        process.hub.read(|engine| Some(number_of(engine.get(path.as_bytes())?.value()?)))
    }

    /// A client finds its own last change at the node that made it.
    fn read_own(&mut self, client: usize) {
        let Some(own) = &self.clients[client].own else { return };
        let Some(process) = self.slots[own.slot].running(own.process) else { return };
        let tock = process.hub.read(|engine| {
            let mark = engine.mark().top().get();
            engine.get(own.path.as_bytes()).map_or(mark, |entry| entry.tock().get())
        });
        if tock < own.tock {
            let detail = format!("{}: {} after {}", own.path, tock, own.tock);
            self.judge.fail("a client does not find its own change", detail);
        }
    }

    /// A client sends its request to some node; tells when it looks again.
    fn try_request(&mut self, client: usize) -> Millis {
        let now = self.now();
        let count = self.slots.len();
        let home = self.clients[client].number % count;
        let slot = if self.rng.percent(60) { home } else { self.rng.below(count) };
        let Some(request) = &mut self.clients[client].request else { return RETRY_MS };
        let may_repeat = request.wish.id.is_some() || request.tries == 0;
        if request.tries >= TRIES_MAX || !may_repeat {
            self.clients[client].request = None;
            return RETRY_MS;
        }
        if request.wish.id.is_some() && self.aside.percent(self.plan.held_up) {
            let wish = request.wish.clone();
            request.tries += 1;
            self.hold_up(slot, wish);
            return RETRY_MS;
        }
        let at = &self.slots[slot];
        let Some(process) = at.process.as_ref().filter(|process| !process.frozen) else {
            // Nobody is there, so nothing was done.
            request.tries += u32::from(self.rng.percent(30));
            return RETRY_MS;
        };
        let log = process.log.as_ref();
        let is_refused = !process.is_ready()
            || log.is_some_and(|log| log.refusal().is_some())
            || process.hub.closing.is_closed();
        if is_refused || log.is_some_and(|log| !log.has_room()) {
            self.stats.refused += 1;
            request.tries += u32::from(self.rng.percent(30));
            return RETRY_MS;
        }
        request.tries += 1;
        let is_retry = request.tries > 1;
        let known = request.made.iter().find(|event| process.committed.contains(*event)).cloned();
        let (outcome, number) = request.wish.make_at(&process.hub);
        self.stats.client_writes += 1;
        self.stats.retried += u64::from(is_retry);
        let written = match outcome {
            Some(Outcome::Written(written)) => Some(written),
            _ => None,
        };
        let is_repeat = written.as_ref().is_some_and(|written| written.repeated.is_some());
        if let Some((id, tick)) = known.filter(|_| !is_repeat) {
            let detail = format!(
                "{} has {}:{tick}, and the same write came again: {outcome_text}",
                at.label,
                id.name,
                outcome_text = if written.is_some() { "it was made" } else { "it was refused" }
            );
            return self.fail_client("a write is made twice where its id is known", detail);
        }
        self.stats.repeated += u64::from(is_repeat);
        let done = written
            .as_ref()
            .and_then(|written| process.hub.read(|engine| done_of(engine, written)));
        if let (Some(written), Some(done)) = (&written, &done)
            && written.is_made
        {
            request.made.push(done.event.clone());
            self.judge.note_made(request.wish.number, done.event.clone());
        }
        let appended = log.map_or(0, |log| log.appended());
        let number = if done.is_none() {
            0
        } else if is_repeat {
            appended
        } else {
            number
        };
        request.waiting = Some(Waiting {
            slot,
            process: process.number,
            since: now,
            gate: process.gate(),
            number,
            done,
            is_lost: self.rng.percent(self.plan.lost_answers),
        });
        if self.script.is_some() {
            let text = format!(
                "client {client} at {}: {}: {}",
                at.label,
                request.wish,
                if is_repeat {
                    "known"
                } else if written.is_some() {
                    "done"
                } else {
                    "refused"
                }
            );
            self.note(&text);
        }
        self.touch(slot);
        LOOK_MS
    }

    fn fail_client(&mut self, check: &'static str, detail: String) -> Millis {
        self.judge.fail(check, detail);
        RETRY_MS
    }

    /// A client waits for an answer; tells when it looks again.
    fn on_waiting(&mut self, client: usize) -> Millis {
        let now = self.now();
        let Some(request) = &mut self.clients[client].request else { return RETRY_MS };
        let Some(waiting) = &request.waiting else { return RETRY_MS };
        let is_over = now >= waiting.since + PATIENCE_MS;
        let Some(process) = self.slots[waiting.slot].running(waiting.process) else {
            // It is gone, and the client does not know what became of its request.
            request.waiting = None;
            return RETRY_MS;
        };
        if process.frozen || !process.is_safe(waiting.gate) {
            if is_over {
                request.waiting = None;
            }
            return LOOK_MS;
        }
        let failure = process.log.as_ref().filter(|log| log.gates()).and_then(|log| log.failure());
        let is_withdrawn = failure.is_some_and(|failure| waiting.number > failure.synced);
        if is_withdrawn || waiting.is_lost {
            request.waiting = None;
            return RETRY_MS;
        }
        let (slot, number) = (waiting.slot, waiting.number);
        let Some(done) = waiting.done.clone() else {
            self.clients[client].request = None;
            return self.plan.think_ms;
        };
        process.told.push(Told { number, at: now, event: done.event.clone() });
        let Wish { path, value, number: request, above, .. } = request.wish.clone();
        if done.tock <= above {
            let detail = format!("{path} = {value:?} tock {}; it knew {above}", done.tock);
            self.judge.fail("a client's change is older than what it knew", detail);
        }
        self.clients[client].heard = self.clients[client].heard.max(done.tock);
        self.clients[client].tocks.insert(path.clone(), done.tock);
        self.clients[client].own =
            Some(OwnWrite { slot, process: process.number, path: path.clone(), tock: done.tock });
        note!(self, "client {client} is told that {path} = {value:?}");
        let Done { event, tock, old } = done;
        self.judge.ack(event, Acked { request, path, tock, value, old, is_excused: false });
        self.stats.acknowledged += 1;
        self.clients[client].request = None;
        self.rng.within(1, self.plan.think_ms * 2)
    }
}

/// What an answer tells of the event that a write made, now or before.
pub(super) fn done_of(engine: &Engine, written: &Written) -> Option<Done> {
    let table = engine.table();
    if let Some(made) = &written.repeated {
        let event = view::event_id(table, made.event);
        return Some(Done { event, tock: made.tock.get(), old: None });
    }
    let entry = written.entry.as_ref().filter(|_| written.is_made)?;
    let old = written.old.as_ref().and_then(|old| Some(number_of(old.value()?)));
    Some(Done { event: view::event_id(table, entry.newest()), tock: entry.tock().get(), old })
}
