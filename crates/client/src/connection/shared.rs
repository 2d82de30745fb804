//! What the tasks and the handles of one connection share: which task waits for which reply.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_channel::{Receiver, Sender};
use event_listener::Event;
use parking_lot::Mutex;

use crate::connection::answer::{self, Answer, Giver, Slot};
use crate::connection::clock::Clock;
use crate::connection::group::Group;
use crate::connection::line::Arrival;
use crate::connection::node_clock::NodeClock;
use crate::connection::shut_out::ShutOut;
use crate::error::{ClientError, ServerError};
use crate::message::{Greeting, Message};
use crate::model::ids::Millis;
use crate::rt::{self, TcpStream};

/// Open requests and streams on one connection. A program that needs more answers at once should
/// use more connections.
const OPEN_MAX: usize = 4096;
/// Places of these that no stream of a caller takes, so that calls go on however many watches are open.
const CALLS_KEPT: usize = 256;
/// Streams that are open on one connection when a caller's may begin. That of the client's view is one of them.
pub(crate) const STREAMS_MAX: usize = OPEN_MAX - CALLS_KEPT;
/// Further places, for questions whether the node is alive: those must get through where all others are taken.
const QUESTIONS_KEPT: usize = 64;

/// For what a place on a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// A request with one reply, or a stream that the client needs for itself.
    Call,
    /// A stream of a caller, which leaves room for calls.
    Stream,
    /// The question whether the node is alive.
    Question,
}

/// The shared part.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: String,
    pub(super) greeting: Greeting,
    /// The window of flow control, if that is on.
    pub(super) window: Option<u64>,
    state: Mutex<State>,
    /// To end it from outside.
    stream: TcpStream,
    /// Its tasks are of this group.
    pub(super) tasks: Group,
    /// Hears what the node says of the network's clock, once it counts: the node may be of another network.
    pub(super) clock: OnceLock<Clock>,
    /// The node's own.
    pub(super) node_clock: NodeClock,
    /// Whether a message is arriving.
    pub(super) arrival: Arc<Arrival>,
    /// When something came last.
    heard: AtomicU64,
    /// What the node has said as it closed the connection.
    pub(super) last_words: OnceLock<ServerError>,
    /// Hears that, too, if it is against the client.
    shut_out: ShutOut,
    /// Whether secrets come to nobody else on the way, or that does not matter.
    pub(super) may_send_secrets: bool,
    /// Notified when the connection ends.
    ended: Event,
}

#[derive(Debug, Default)]
struct State {
    last_seq: u64,
    /// Where the messages with this `seq` go. Empty once the connection has ended.
    open: HashMap<u64, Waiting, BuildHasherDefault<SeqHasher>>,
    /// Those of them that have one reply.
    requests: usize,
    /// How many bytes these have sent.
    unanswered_bytes: usize,
    /// How the connection ended, if it has.
    ended: Option<ClientError>,
}

impl State {
    fn streams(&self) -> usize {
        self.open.len().saturating_sub(self.requests)
    }

    fn has_room(&self, wanted: Use) -> bool {
        let open = self.open.len();
        match wanted {
            Use::Call => open < OPEN_MAX,
            Use::Stream => open < OPEN_MAX && self.streams() < STREAMS_MAX,
            Use::Question => open < OPEN_MAX + QUESTIONS_KEPT,
        }
    }
}

/// Where messages of a request go.
#[derive(Debug)]
enum Waiting {
    /// One is the answer to so many bytes.
    Once(Giver, usize),
    /// They are a stream.
    Stream {
        messages: Sender<Message>,
        /// It does not end by itself.
        is_endless: bool,
    },
}

impl Waiting {
    fn is_request(&self) -> bool {
        matches!(self, Waiting::Once(..))
    }

    /// So many bytes wait for their answer.
    fn bytes(&self) -> usize {
        match self {
            Waiting::Once(_, bytes) => *bytes,
            Waiting::Stream { .. } => 0,
        }
    }

    fn is_endless(&self) -> bool {
        matches!(self, Waiting::Stream { is_endless: true, .. })
    }

    /// A stream takes no more messages. The task that reads the connection may have a handle of it just now, and wait for
    /// room that nobody makes.
    fn end(&self) {
        if let Waiting::Stream { messages, .. } = self {
            messages.close();
        }
    }
}

/// Who waits for a message that has come.
#[derive(Debug)]
pub(super) enum Waiter {
    /// A request.
    Once(Slot),
    /// A stream.
    Stream(Sender<Message>),
}

/// Spreads numbers that this side gives out one after the other: nobody else chooses them, so a hash that cannot be
/// foreseen is not needed.
#[derive(Debug, Default)]
struct SeqHasher(u64);

impl Hasher for SeqHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, seq: u64) {
        self.0 = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A request that waits for its reply, or for the messages of its stream. Dropping it gives it up.
#[derive(Debug)]
pub(super) struct OpenRequest<M> {
    pub(super) seq: u64,
    pub(super) messages: M,
    /// Whether no other one with one reply was open when it began.
    pub(super) is_alone: bool,
    shared: Arc<Shared>,
}

impl<M> Drop for OpenRequest<M> {
    fn drop(&mut self) {
        self.shared.forget(self.seq);
    }
}

impl Shared {
    pub(super) fn new(
        address: String,
        greeting: Greeting,
        window: Option<u64>,
        stream: TcpStream,
        tasks: Group,
        shut_out: ShutOut,
        may_send_secrets: bool,
    ) -> Shared {
        Shared {
            address,
            node_clock: NodeClock::new(greeting.clock),
            greeting,
            arrival: Arc::default(),
            window,
            state: Mutex::default(),
            stream,
            tasks,
            clock: OnceLock::new(),
            heard: AtomicU64::new(rt::now()),
            last_words: OnceLock::new(),
            shut_out,
            may_send_secrets,
            ended: Event::new(),
        }
    }

    /// The same; this knows whether a message is arriving.
    pub(super) fn hearing(self, arrival: Arc<Arrival>) -> Shared {
        Shared { arrival, ..self }
    }

    /// The node says this, and closes the connection.
    pub(super) fn on_last_words(&self, error: &ServerError) {
        self.shut_out.on_last_words(&self.address, error, &self.last_words);
    }

    /// Something has come.
    pub(super) fn on_heard(&self) {
        self.heard.store(rt::now(), Ordering::Relaxed);
    }

    pub(super) fn heard_at(&self) -> Millis {
        self.heard.load(Ordering::Relaxed)
    }

    pub(super) fn open_count(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Requests and streams that are open; none once the connection has ended.
    pub(super) fn load(&self) -> Option<usize> {
        let state = self.state.lock();
        state.ended.is_none().then(|| state.open.len())
    }

    /// Streams that are open.
    pub(super) fn stream_count(&self) -> usize {
        self.state.lock().streams()
    }

    /// Whether there is a place for this.
    pub(super) fn has_room(&self, wanted: Use) -> bool {
        self.state.lock().has_room(wanted)
    }

    /// Ends the connection from this side.
    pub(super) fn close(&self, reason: &str) {
        self.end(self.lost_because(reason.to_owned()));
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// So many bytes of requests have no answer yet; none once the connection has ended.
    pub(super) fn unanswered_bytes(&self) -> Option<usize> {
        let state = self.state.lock();
        state.ended.is_none().then_some(state.unanswered_bytes)
    }

    /// A new request with one reply, of about so many bytes.
    pub(super) fn open(
        shared: &Arc<Shared>,
        bytes: usize,
        place: Use,
    ) -> Result<OpenRequest<Answer>, ClientError> {
        let (giver, answer) = answer::place();
        Shared::enter(shared, Waiting::Once(giver, bytes), answer, place)
    }

    /// A new request with a stream of replies, of which `capacity` are kept until they are taken.
    pub(super) fn open_stream(
        shared: &Arc<Shared>,
        capacity: usize,
        is_endless: bool,
        place: Use,
    ) -> Result<OpenRequest<Receiver<Message>>, ClientError> {
        let (messages, receiver) = async_channel::bounded(capacity.max(1));
        Shared::enter(shared, Waiting::Stream { messages, is_endless }, receiver, place)
    }

    fn enter<M>(
        shared: &Arc<Shared>,
        waiting: Waiting,
        messages: M,
        place: Use,
    ) -> Result<OpenRequest<M>, ClientError> {
        let mut state = shared.state.lock();
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        if !state.has_room(place) {
            return Err(ClientError::Busy(state.open.len()));
        }
        state.last_seq += 1;
        let seq = state.last_seq;
        let is_alone = state.requests == 0;
        state.requests += usize::from(waiting.is_request());
        state.unanswered_bytes += waiting.bytes();
        state.open.insert(seq, waiting);
        drop(state);
        Ok(OpenRequest { seq, messages, is_alone, shared: Arc::clone(shared) })
    }

    /// A number for a request whose reply is ignored; `None` once the connection has ended.
    pub(super) fn next_seq(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return None;
        }
        state.last_seq += 1;
        Some(state.last_seq)
    }

    /// Who waits for messages of this number.
    pub(super) fn waiting(&self, seq: u64) -> Option<Waiter> {
        self.state.lock().open.get(&seq).map(|waiting| match waiting {
            Waiting::Once(giver, _) => Waiter::Once(giver.slot()),
            Waiting::Stream { messages, .. } => Waiter::Stream(messages.clone()),
        })
    }

    /// Nothing more comes to streams that do not end by themselves.
    pub(super) fn end_endless(&self) {
        let mut state = self.state.lock();
        let ended: Vec<Waiting> = state
            .open
            .extract_if(|_, waiting| waiting.is_endless())
            .map(|(_, open)| open)
            .collect();
        drop(state);
        ended.iter().for_each(Waiting::end);
    }

    /// No more messages go to this number.
    pub(super) fn forget(&self, seq: u64) {
        let mut state = self.state.lock();
        let removed = state.open.remove(&seq);
        state.requests -= usize::from(removed.as_ref().is_some_and(Waiting::is_request));
        state.unanswered_bytes -= removed.as_ref().map_or(0, Waiting::bytes);
        drop(state);
        drop(removed);
    }

    /// The connection has ended, and this is how; only the first reason counts.
    pub(super) fn end(&self, reason: ClientError) {
        let mut state = self.state.lock();
        state.ended.get_or_insert(reason);
        // Their messages that are here already can still be taken.
        let open = std::mem::take(&mut state.open);
        state.requests = 0;
        state.unanswered_bytes = 0;
        drop(state);
        open.values().for_each(Waiting::end);
        drop(open);
        self.ended.notify(usize::MAX);
    }

    /// How the connection ended, if it has.
    pub(super) fn end_reason(&self) -> Option<ClientError> {
        self.state.lock().ended.clone()
    }

    /// Waits until the connection has ended.
    pub(super) async fn closed(&self) -> ClientError {
        loop {
            let listener = self.ended.listen();
            if let Some(reason) = self.end_reason() {
                return reason;
            }
            listener.await;
        }
    }

    /// How the connection ended.
    pub(super) fn lost(&self) -> ClientError {
        let no_reason = || self.lost_because(String::from("it was closed"));
        self.end_reason().unwrap_or_else(no_reason)
    }

    pub(super) fn lost_because(&self, reason: String) -> ClientError {
        ClientError::Lost { address: self.address.clone(), reason }
    }

    pub(super) fn protocol_error(&self, reason: String) -> ClientError {
        ClientError::Protocol { address: self.address.clone(), reason }
    }
}
