//! The load generator: some connections on one thread, each with some requests in flight.
//!
//! A new request goes out when an answer has come (a closed loop), in the slot that became free. A
//! slot's requests are numbered `slot + 1`, `slot + 1 + depth`, …, so an answer's number tells its slot.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};

use crate::command::error::CliError;
use crate::keys::{Ops, Values};
use crate::place::is_interrupted;
use crate::rt;
use crate::sockets::{Secure, Stream};
use crate::wire::{Protocol, Tag, WireError, connection_number};

/// Longest latency that is told apart: a minute, in nanoseconds.
pub const LATENCY_MAX: u64 = 60_000_000_000;
/// So much room is made for each read.
const READ_BYTES: usize = 64 << 10;
/// Connections with readiness that are asked for at once.
const EVENTS: usize = 256;
/// How long nothing may come before that is an error.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How often the clock is looked at while nothing comes.
const LOOK: Duration = Duration::from_millis(20);
/// How long what is under way when the load ends may take; then it is left to itself.
const DRAIN: Duration = Duration::from_secs(5);
/// The rate over time is kept in so many pieces.
pub(crate) const PIECES: usize = 60;

/// What one thread is to do.
pub struct Work<P> {
    /// What the servers speak.
    pub protocol: P,
    /// One connection for each.
    pub targets: Vec<SocketAddr>,
    /// How they get in; none: by plain text, without a login.
    pub secure: Option<Secure>,
    /// How long each may take for that.
    pub timeout: Duration,
    /// Requests in flight on each.
    pub depth: usize,
    /// What is done, one after the other.
    pub ops: Ops,
    /// What is written.
    pub values: Values,
    /// Times as [`rt::now_ns`] gives them: what is answered before is not counted.
    pub counted_from: u64,
    /// When it ends; with a count, or with all keys set, sooner.
    pub end: u64,
    /// So many answers are waited for, at most.
    pub count: Option<u64>,
}

/// What came of it.
pub struct Tally {
    /// How long each read took, in nanoseconds.
    pub reads: Histogram<u64>,
    /// How long each write took, in nanoseconds.
    pub writes: Histogram<u64>,
    /// Answers that were errors. They are among the reads and writes, too.
    pub errors: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Answers in each of [`PIECES`] equal pieces of the time.
    pub pieces: Vec<u64>,
    /// How long it was counted, nanoseconds.
    pub(crate) spent: u64,
}

/// Why it ended early.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A server does not take connections.
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    /// A connection ended.
    #[error("the connection to {0} is lost: {1}")]
    Lost(SocketAddr, io::Error),
    /// What a server answers is of another protocol.
    #[error("{0}: {1}")]
    Wire(SocketAddr, WireError),
    /// Nothing came for too long.
    #[error("no answer came for {} s", SILENCE_MAX.as_secs())]
    Silence,
    /// The system refuses to wait for sockets, or a thread.
    #[error("cannot wait for sockets: {0}")]
    Poll(io::Error),
    /// A latency cannot be counted.
    #[error("cannot count: {0}")]
    Histogram(String),
    /// So many writes were refused.
    #[error(
        "{0} requests were refused while the keys were set; is the node ready, and is there room?"
    )]
    Refused(u64),
    /// There is nothing to tell.
    #[error("no request was answered while it was measured; measure for longer (--duration)")]
    Nothing,
    /// A thread panicked.
    #[error("a thread of the load generator failed")]
    Thread,
}

impl From<LoadError> for CliError {
    fn from(error: LoadError) -> Self {
        CliError::Failure(error.to_string())
    }
}

impl Tally {
    /// Nothing yet.
    ///
    /// # Errors
    /// [`LoadError::Histogram`]: never, with these bounds.
    pub(crate) fn new() -> Result<Self, LoadError> {
        let histogram = || {
            Histogram::new_with_bounds(1, LATENCY_MAX, 3)
                .map_err(|error| LoadError::Histogram(error.to_string()))
        };
        let (reads, writes) = (histogram()?, histogram()?);
        let pieces = vec![0; PIECES];
        Ok(Self { reads, writes, errors: 0, bytes_in: 0, bytes_out: 0, pieces, spent: 0 })
    }

    /// All answers.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.reads.len() + self.writes.len()
    }

    /// Adds what another thread did meanwhile.
    ///
    /// # Errors
    /// [`LoadError::Histogram`]: never, since all have the same bounds.
    pub(crate) fn add(&mut self, other: &Self) -> Result<(), LoadError> {
        let failed = |error: hdrhistogram::AdditionError| LoadError::Histogram(error.to_string());
        self.reads.add(&other.reads).map_err(failed)?;
        self.writes.add(&other.writes).map_err(failed)?;
        self.errors += other.errors;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.pieces.iter_mut().zip(&other.pieces).for_each(|(a, b)| *a += b);
        self.spent = self.spent.max(other.spent);
        Ok(())
    }
}

/// A request in flight.
#[derive(Clone, Copy, Default)]
struct Slot {
    seq: u64,
    sent: u64,
    is_write: bool,
    is_open: bool,
}

/// A request that was answered.
#[derive(Clone, Copy)]
struct Request {
    /// Its slot.
    index: usize,
    sent: u64,
    is_write: bool,
}

struct Connection {
    target: SocketAddr,
    /// No other one's.
    number: u64,
    stream: Stream,
    input: Vec<u8>,
    /// How much of `input` is filled, and where the first answer that was not taken begins.
    filled: usize,
    start: usize,
    output: Vec<u8>,
    written: usize,
    slots: Vec<Slot>,
    /// The slot whose answer comes next, where answers have no number.
    turn: usize,
    open: usize,
    /// Requests so far.
    sent: u64,
}

/// Does the work, on this thread.
///
/// # Errors
/// [`LoadError`]: what was measured is of no use then.
pub fn run<P: Protocol>(work: Work<P>) -> Result<Tally, LoadError> {
    let mut generator = Generator::connect(work)?;
    generator.begin()?;
    generator.go_on()?;
    generator.drain();
    Ok(generator.tally)
}

struct Generator<P> {
    work: Work<P>,
    poll: Poll,
    connections: Vec<Connection>,
    tally: Tally,
    /// Requests that may still be sent after the warm-up, where they are counted.
    left: Option<u64>,
    /// Nothing is sent any more.
    is_over: bool,
}

impl<P: Protocol> Generator<P> {
    fn connect(work: Work<P>) -> Result<Self, LoadError> {
        let poll = Poll::new().map_err(LoadError::Poll)?;
        let mut connections = Vec::new();
        for (index, target) in work.targets.iter().enumerate() {
            let connect = || {
                let mut stream = Stream::connect(*target, work.secure.as_ref(), work.timeout)?;
                let interest = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut stream.socket, Token(index), interest)?;
                io::Result::Ok(stream)
            };
            let stream = connect().map_err(|error| LoadError::Connect(*target, error))?;
            let (number, mut output) = (connection_number(), Vec::new());
            work.protocol.hello(number, &mut output);
            connections.push(Connection {
                target: *target,
                number,
                stream,
                input: vec![0; READ_BYTES],
                filled: 0,
                start: 0,
                output,
                written: 0,
                slots: vec![Slot::default(); work.depth.max(1)],
                turn: 0,
                open: 0,
                sent: 0,
            });
        }
        let left = work.count;
        Ok(Self { work, poll, connections, tally: Tally::new()?, left, is_over: false })
    }

    fn begin(&mut self) -> Result<(), LoadError> {
        let now = rt::now_ns();
        let Self { work, connections, tally, left, .. } = self;
        for connection in connections {
            for slot in 0..connection.slots.len() {
                connection.send(slot, now, work, left);
            }
            connection.flush(tally, work.counted_from)?;
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<(), LoadError> {
        let mut events = Events::with_capacity(EVENTS);
        let mut heard = rt::now_ns();
        while self.connections.iter().any(|connection| connection.open > 0) {
            match self.poll.poll(&mut events, Some(LOOK)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(LoadError::Poll(error));
                }
                _ => {}
            }
            let now = rt::now_ns();
            if !events.is_empty() {
                heard = now;
            } else if Duration::from_nanos(now.saturating_sub(heard)) > SILENCE_MAX {
                return Err(LoadError::Silence);
            }
            if now >= self.work.end || is_interrupted() {
                break;
            }
            for event in &events {
                self.serve(event.token().0, event.is_readable(), event.is_read_closed())?;
            }
        }
        let until = rt::now_ns().min(self.work.end);
        self.tally.spent = until.saturating_sub(self.work.counted_from);
        Ok(())
    }

    /// Waits for the answers that are still to come, and counts none of them. A write that a node took only behind the
    /// deletion of what was written would stay there. Whatever fails is no matter any more.
    fn drain(&mut self) {
        let Self { work, poll, connections, tally, .. } = self;
        let mut events = Events::with_capacity(EVENTS);
        let until = rt::now_ns().saturating_add(DRAIN.as_nanos() as u64);
        let mut drained = |connection: &mut Connection| -> Result<(), LoadError> {
            connection.flush(tally, u64::MAX)?;
            while connection.read(tally, u64::MAX)? {}
            while connection.take(work.protocol)?.is_some() {}
            Ok(())
        };
        while rt::now_ns() < until && connections.iter().any(|connection| connection.open > 0) {
            // What has come before this is in no event.
            for connection in connections.iter_mut().filter(|connection| connection.open > 0) {
                if drained(connection).is_err() {
                    connection.open = 0;
                }
            }
            let _interrupted = poll.poll(&mut events, Some(LOOK));
        }
    }

    /// `is_closed`: the server sends nothing more, which no other event tells.
    fn serve(&mut self, index: usize, is_readable: bool, is_closed: bool) -> Result<(), LoadError> {
        let Self { work, connections, tally, left, is_over, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return Ok(()) };
        let mut is_more = is_readable || is_closed;
        while is_more {
            // Behind what has come stands its end.
            is_more = connection.read(tally, work.counted_from)? || is_closed;
            // One look at the clock for all that has come at once.
            let now = rt::now_ns();
            *is_over |= now >= work.end;
            while let Some((request, is_error)) = connection.take(work.protocol)? {
                count(request, is_error, now, work, tally);
                if !*is_over {
                    connection.send(request.index, now, work, left);
                }
            }
        }
        connection.flush(tally, work.counted_from)
    }
}

/// Notes an answer.
fn count<P>(request: Request, is_error: bool, now: u64, work: &Work<P>, tally: &mut Tally) {
    let is_of_warm_up = work.count.is_some() && request.sent < work.counted_from;
    if now < work.counted_from || is_of_warm_up {
        return;
    }
    tally.errors += u64::from(is_error);
    let times = if request.is_write { &mut tally.writes } else { &mut tally.reads };
    times.saturating_record(now.saturating_sub(request.sent).max(1));
    let length = (work.end - work.counted_from).div_ceil(PIECES as u64).max(1);
    let piece = ((now - work.counted_from) / length) as usize;
    if let Some(piece) = tally.pieces.get_mut(piece) {
        *piece += 1;
    }
}

impl Connection {
    /// Sends the next request in a slot, if there is one to be sent.
    fn send<P: Protocol>(
        &mut self,
        index: usize,
        now: u64,
        work: &mut Work<P>,
        left: &mut Option<u64>,
    ) {
        // What warms up is not counted.
        let is_counted = now >= work.counted_from;
        if is_counted && *left == Some(0) {
            return;
        }
        let depth = self.slots.len() as u64;
        let Some(slot) = self.slots.get_mut(index) else { return };
        let Some(op) = work.ops.next() else { return };
        if let Some(left) = left.as_mut().filter(|_| is_counted) {
            *left -= 1;
        }
        slot.seq = match slot.seq {
            _ if work.protocol.numbers_rise() => self.sent * depth + index as u64 + 1,
            0 => index as u64 + 1,
            last => last + depth,
        };
        self.sent += 1;
        let tag = Tag { connection: self.number, seq: slot.seq };
        *slot = Slot { sent: now, is_write: op.is_write, is_open: true, ..*slot };
        if op.is_write {
            let value = work.values.at(work.ops.place(work.values.places()));
            work.protocol.set(op.key, value, tag, &mut self.output);
        } else {
            work.protocol.get(op.key, tag, &mut self.output);
        }
        self.open += 1;
    }

    /// Reads what is there; tells whether there may be more.
    fn read(&mut self, tally: &mut Tally, counted_from: u64) -> Result<bool, LoadError> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
        }
        if self.input.len() - self.filled < READ_BYTES / 2 {
            // Answers are at most as long as the longest value.
            self.input.resize(self.input.len() * 2, 0);
        }
        let room = self.input.get_mut(self.filled..).unwrap_or_default();
        let wanted = room.len();
        let lost = |error| LoadError::Lost(self.target, error);
        match self.stream.read(room) {
            Ok(0) => Err(lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(length) => {
                self.filled += length;
                if rt::now_ns() >= counted_from {
                    tally.bytes_in += length as u64;
                }
                Ok(length == wanted)
            }
            Err(error) if is_transient(&error) => Ok(false),
            Err(error) => Err(lost(error)),
        }
    }

    /// The next answer's request, and whether it is an error.
    fn take(&mut self, protocol: impl Protocol) -> Result<Option<(Request, bool)>, LoadError> {
        loop {
            let bytes = self.input.get(self.start..self.filled).unwrap_or_default();
            let answer = match protocol.answer(bytes) {
                Ok(Some(answer)) => answer,
                Ok(None) => return Ok(None),
                Err(error) => return Err(LoadError::Wire(self.target, error)),
            };
            self.start += answer.bytes;
            let depth = self.slots.len();
            let index = match answer.seq {
                // A greeting; or, from an echo, a wish.
                Some(0) => continue,
                Some(seq) => (seq - 1) as usize % depth,
                None => {
                    let turn = self.turn;
                    self.turn = (turn + 1) % depth;
                    turn
                }
            };
            let is_it = |slot: &&mut Slot| slot.is_open && seq_is(answer.seq, slot.seq);
            let Some(slot) = self.slots.get_mut(index).filter(is_it) else { continue };
            slot.is_open = false;
            self.open -= 1;
            let request = Request { index, sent: slot.sent, is_write: slot.is_write };
            return Ok(Some((request, answer.is_error)));
        }
    }

    /// Writes as much as the system takes.
    fn flush(&mut self, tally: &mut Tally, counted_from: u64) -> Result<(), LoadError> {
        while self.written < self.output.len() {
            let rest = self.output.get(self.written..).unwrap_or_default();
            match self.stream.write(rest) {
                Ok(length) => self.written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(LoadError::Lost(self.target, error)),
            }
        }
        if self.written > 0 {
            if rt::now_ns() >= counted_from {
                tally.bytes_out += self.written as u64;
            }
            self.output.clear();
            self.written = 0;
        }
        match self.stream.flush() {
            Err(error) if !is_transient(&error) => Err(LoadError::Lost(self.target, error)),
            _ => Ok(()),
        }
    }
}

/// Whether an answer's number is a request's; without one it is, by its place.
fn seq_is(answer: Option<u64>, request: u64) -> bool {
    answer.is_none_or(|seq| seq == request)
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::wire::{Answer, WireError};

    /// A byte for each request, and one for each answer.
    #[derive(Clone, Copy)]
    struct Bytes;

    impl Protocol for Bytes {
        fn hello(self, _connection: u64, _out: &mut Vec<u8>) {}

        fn numbers_rise(self) -> bool {
            false
        }

        fn get(self, _key: u64, _tag: Tag, out: &mut Vec<u8>) {
            out.push(b'r');
        }

        fn set(self, _key: u64, _value: &[u8], _tag: Tag, out: &mut Vec<u8>) {
            out.push(b'w');
        }

        fn answer(self, bytes: &[u8]) -> Result<Option<Answer>, WireError> {
            let answer = Answer { seq: None, bytes: 1, is_error: false };
            Ok((!bytes.is_empty()).then_some(answer))
        }
    }

    #[test]
    fn what_is_under_way_at_the_end_is_waited_for_and_not_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let now = rt::now_ns();
        let end = now + Duration::from_secs(2).as_nanos() as u64;
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.read_exact(&mut [0]).unwrap();
            while rt::now_ns() < end + 4 * LOOK.as_nanos() as u64 {
                std::thread::sleep(LOOK);
            }
            done.store(true, Ordering::SeqCst);
            socket.write_all(b".").unwrap();
        });
        let work = Work {
            protocol: Bytes,
            targets: vec![target],
            secure: None,
            timeout: Duration::from_secs(10),
            depth: 1,
            ops: Ops::fill(0, 100, 1),
            values: Values::new(1, 1),
            counted_from: now,
            end,
            count: None,
        };
        let Ok(tally) = run(work) else { panic!("it failed") };
        assert!(is_done.load(Ordering::SeqCst));
        assert_eq!((tally.answers(), tally.bytes_in), (0, 0));
        server.join().unwrap();
    }
}
