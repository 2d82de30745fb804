//! What is between a client and its session whatever the bytes come through: a socket (`connection`), or calls in the
//! same process (`local_client`). Requests are taken from the input and carried out, streams get their turns, and
//! nothing of the output is seen before it may be.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use async_lock::SemaphoreGuardArc;
use event_listener::EventListener;

use super::input::Input;
use super::session::{Decoded, HeavyJob, Session, Then};
use crate::engine::Engine;
use crate::model::ids::Millis;
use crate::model::invariant::OrBroken;
use crate::protocol::client::reply::write_error;
use crate::protocol::client::{ClientError, ErrorCode, decode};
use crate::rt;
use crate::server::Shared;
use crate::server::access::Identity;
use crate::server::counts::Meter;
use crate::server::stream::Produced;

/// Bytes of output kept while nothing goes out.
pub(in crate::server) const IDLE_BYTES: usize = 4 << 10;

/// One client, without what carries its bytes.
pub(in crate::server) struct Exchange {
    pub(in crate::server) shared: Arc<Shared>,
    pub(in crate::server) session: Session,
    pub(in crate::server) input: Input,
    /// What the session has written; not to be seen before [`Self::until_safe`] has ended.
    pub(in crate::server) out: Vec<u8>,
    /// What goes out although clients are shut out.
    pub(in crate::server) last_word: Vec<u8>,
    pub(in crate::server) meter: Meter,
    /// The time when this round of the task began: to ask for it at each use costs more than looking up an entry.
    now: Millis,
    /// What had arrived in all when the last round began.
    total_before: u64,
    /// The streams look for something that they may send, and have found nothing for a while.
    is_searching: bool,
    wakes: Wakes,
    /// Fires when the server stops.
    stopping: EventListener,
    /// Fires when the client is ended for the memory of all.
    pub(in crate::server) closing: EventListener,
}

/// What is waited for besides bytes. Listeners are kept from one round to the next, because most rounds are about
/// bytes.
#[derive(Default)]
struct Wakes {
    inbox: Option<EventListener>,
    acknowledged: Option<EventListener>,
    ready: Option<EventListener>,
    /// The policies of a client that is a user: it may be removed, or lose the right to a stream.
    policies: Option<EventListener>,
}

impl Wakes {
    /// No stream and no write waits for anything.
    fn listen_to_nothing_of_streams(&mut self) {
        let Self { inbox, acknowledged, ready, .. } = self;
        for listener in [inbox, acknowledged, ready] {
            if listener.is_some() {
                *listener = None;
            }
        }
    }
}

/// What became of the requests that have arrived.
pub(in crate::server) enum Requests {
    /// All that are whole were carried out.
    Done,
    /// Some were carried out; there are more.
    More,
    /// The next one takes long.
    Heavy(HeavyJob),
    /// The next one changes something, and the disk does not keep up.
    NeedsRoom,
    /// The next one needs data that the node has not got yet, and so many wait for that already.
    NeedsReady,
    /// The next one waits until the login that is under way is answered.
    Behind,
    /// The client cannot be served any longer.
    Close,
}

impl Requests {
    /// What became of them after a batch; `has_more`: there may be others.
    fn after(then: Then, has_more: bool) -> Self {
        match then {
            Then::Continue | Then::Aside(_) if has_more => Self::More,
            Then::Continue | Then::Aside(_) => Self::Done,
            Then::Heavy(job) => Self::Heavy(job),
            Then::NeedsRoom => Self::NeedsRoom,
            Then::NeedsReady => Self::NeedsReady,
            Then::Behind => Self::Behind,
            Then::Unfinished => Self::More,
            Then::Close => Self::Close,
        }
    }
}

impl Exchange {
    /// A client that has just come. `is_local`: from this machine, so that it may do what only such clients may.
    pub(in crate::server) fn new(shared: Arc<Shared>, is_local: bool) -> Self {
        let mut session = Session::new(is_local, shared.hub.client_memory(), rt::now());
        session.identity = shared.first_identity();
        Self {
            input: Input::new(shared.config.message_limit()),
            out: Vec::new(),
            last_word: Vec::new(),
            meter: Meter::default(),
            now: rt::now(),
            total_before: 0,
            is_searching: false,
            wakes: Wakes::default(),
            stopping: shared.stopping.listen(),
            closing: session.account.closing.listen(),
            session,
            shared,
        }
    }

    /// See [`Session::enter`].
    pub(in crate::server) fn enter(&mut self, address: SocketAddr) -> Result<(), ClientError> {
        self.session.enter(&self.shared, address, rt::now())
    }

    /// The error of a client that has taken too long to log in, has sent too much, or had to give way to another one; or
    /// that has looked for long enough.
    pub(in crate::server) fn overstays(&mut self) -> Option<ClientError> {
        let stranger = self.session.overstays(&self.shared, self.input.total());
        stranger.or_else(|| self.session.looks_no_more(self.now))
    }

    /// A round of the client's task begins.
    pub(in crate::server) fn begin_round(&mut self) {
        self.ask_time();
        let total = self.input.total();
        if total != self.total_before {
            self.total_before = total;
            self.note_moved();
        }
    }

    /// The round goes on after it has waited.
    pub(in crate::server) fn ask_time(&mut self) {
        self.now = rt::now();
    }

    /// The client took or sent something.
    pub(in crate::server) fn note_moved(&self) {
        self.session.account.note_moved(self.now);
    }

    /// Carries out a batch of requests, or a part of it: first those that have waited. `began`: when that began,
    /// microseconds, if it is timed.
    pub(in crate::server) fn take_requests(&mut self, began: Option<u64>) -> Requests {
        let cx = self.session.context(&self.shared, self.now);
        if let Some(then) = self.session.resume_batch(&cx, &mut self.out) {
            // It came before all that has not been carried out, and what is behind it goes on then.
            return Requests::after(then, true);
        }
        if let Some(then) = self.session.resume_aside(&cx, &mut self.out) {
            // What is behind it goes on.
            return Requests::after(then, true);
        }
        let due = match self.session.holds_all_back() {
            true => Vec::new(),
            false => self.session.patience.take_due(&cx),
        };
        if let Some(first) = due.first() {
            let window = first.window;
            let batch: Vec<Decoded<'_>> = due.iter().map(|due| decode(&due.message)).collect();
            let (done, then) = self.session.run_waited(&cx, &batch, window, &mut self.out);
            drop(batch);
            self.session.patience.put_back(due.into_iter().skip(done));
            // There may be more of them, or something behind them.
            return Requests::after(then, true);
        }
        let Some(batch) = self.input.batch() else {
            // Perhaps it has only found that a message must be skipped.
            return if self.input.has_more() { Requests::More } else { Requests::Done };
        };
        let (done, then) = self.session.run(&cx, &batch, &mut self.out);
        let counts = (&*self.shared.counts, &*self.session.traffic);
        self.meter.count(&batch.messages, done, began, counts);
        let all = done == batch.messages.len();
        let end = match done.checked_sub(1) {
            None => 0,
            Some(last) => *batch.ends.get(last).or_broken("each message of a batch has its end"),
        };
        drop(batch);
        self.input.consume(end, all);
        Requests::after(then, self.input.has_more())
    }

    /// Runs a long job elsewhere; only a few at a time. What was written before it must have gone out.
    pub(in crate::server) async fn run_heavy(&mut self, job: HeavyJob) {
        let shared = Arc::clone(&self.shared);
        let HeavyJob { seq, work, is_innocuous, leave } = job;
        let waits = shared.counts.heavy_waits();
        let _permit = shared.heavy.acquire().await;
        drop(waits);
        let _runs = shared.counts.heavy_runs();
        let done = match self.session.may_begin(&shared, &leave) {
            Err(error) => Err(error),
            Ok(()) => match rt::spawn_work("request", work) {
                Ok(work) => work.done().await.ok_or_else(|| {
                    ClientError::new(ErrorCode::Internal, "the node failed at this request")
                }),
                Err(error) => Err(no_thread(&error)),
            },
        };
        let told = done.and_then(|reply| {
            self.session.may_be_told(&shared, &leave)?;
            Ok(reply)
        });
        let error = match told {
            Ok(reply) => {
                // Perhaps it is what has shut the clients out.
                let is_last = is_innocuous && self.is_shut_out();
                let to = if is_last { &mut self.last_word } else { &mut self.out };
                return to.extend_from_slice(&reply);
            }
            Err(error) => error,
        };
        shared.counts.note_error(&error);
        write_error(&error, Some(seq), shared.hub.read(Engine::tock), &mut self.out);
    }

    /// Whether more should be read from the client. While it is a stranger whose login is under way, what is behind that is
    /// left where it is: it counts as what came before the login.
    pub(in crate::server) fn wants_more(&self) -> bool {
        self.input.wants_more()
            && !(self.session.holds_all_back() && self.session.guest.deadline().is_some())
    }

    /// Waits for leave to call [`Self::produce`], which is given back after that: those who search in vain take turns.
    pub(in crate::server) async fn may_produce(&mut self) -> Option<SemaphoreGuardArc> {
        if !self.is_searching {
            return None;
        }
        let searches = Arc::clone(&self.shared.searches);
        Some(searches.acquire_arc().await)
    }

    /// Whether the streams have searched in vain for long enough for a client that sends nothing any more.
    pub(in crate::server) fn searches_for_nobody(&self) -> bool {
        self.is_searching
            && self.input.at_end
            && self.session.account.silent_ms(self.now) >= self.shared.config.search_after_end_ms
    }

    /// Gives the session's streams their turns; returns whether there is more to do at once.
    pub(in crate::server) fn produce(&mut self) -> bool {
        if self.session.is_quiet() {
            self.is_searching = false;
            self.wakes.listen_to_nothing_of_streams();
            return false;
        }
        if self.is_searching && self.shared.is_stopping() {
            return false;
        }
        // Listen first, then look: what happens in between is not missed.
        if !self.session.streams.is_empty() && self.wakes.inbox.is_none() {
            self.wakes.inbox = Some(self.session.inbox.changed.listen());
        }
        if !self.session.copies.is_empty() && self.wakes.acknowledged.is_none() {
            self.wakes.acknowledged = Some(self.shared.hub.acknowledged.listen());
        }
        let cx = self.session.context(&self.shared, rt::now());
        let produced = self.session.produce(&cx, &mut self.out);
        self.drop_garbage();
        self.is_searching = produced == Produced::Searching;
        produced != Produced::Idle
    }

    /// Waits until everything that the output tells of may be seen: under the sync policy `every
    /// batch` until it is on disk, both this client's changes and whatever else it could have
    /// read.
    pub(in crate::server) async fn until_safe(&mut self) {
        if let Some(log) = self.shared.hub.log()
            && log.gates()
            && !self.out.is_empty()
            && let Err(failure) = log.until_synced(log.appended()).await
        {
            let tock = self.shared.hub.read(Engine::tock);
            self.session.unsynced.withdraw(&failure, tock, &self.shared.counts, &mut self.out);
        }
        self.session.unsynced.forget();
    }

    /// The server stops: answers the requests that have arrived, those that wait for the node to be ready
    /// among them, as far as there is room for answers; for the rest the clients see the end.
    pub(in crate::server) fn answer_arrived(&mut self) {
        self.session.patience.give_up();
        while self.out.len() < self.shared.output_limit()
            && matches!(self.take_requests(None), Requests::More)
        {}
    }

    /// The server stops: ends all streams and says so.
    pub(in crate::server) fn end_all(&mut self) {
        let cx = self.session.context(&self.shared, rt::now());
        self.session.end_all(&cx, &mut self.out);
    }

    /// Whether the client may do nothing any more: its user was removed, or it must log in now.
    pub(in crate::server) fn is_shut_out(&mut self) -> bool {
        if self.session.is_welcome(&self.shared) {
            return false;
        }
        let cx = self.session.context(&self.shared, rt::now());
        self.session.is_shut_out(&cx)
    }

    /// The client is gone, or is given up.
    pub(in crate::server) fn abandon(&mut self) {
        let cx = self.session.context(&self.shared, rt::now());
        self.session.abandon(&cx);
        self.drop_garbage();
    }

    fn drop_garbage(&mut self) {
        for garbage in self.session.take_garbage() {
            // Detached: no task waits for it.
            drop(rt::spawn_blocking(move || drop(garbage)));
        }
    }

    /// Reports what the client costs in memory at present; `more`: bytes beyond its input and output.
    pub(in crate::server) fn tell_memory(&self, more: usize) {
        let buffers = self.out.capacity() + self.input.capacity() + more;
        self.session.account.set_buffers(buffers + self.session.open_bytes());
        let streams = &self.session.streams;
        self.session.traffic.note_streams(streams.queued_len(), streams.len());
    }

    /// If the client is a user, makes a change of users or access lists wake this task. Listen first, then look.
    pub(in crate::server) fn listen_for_policies(&mut self) {
        if matches!(self.session.identity, Identity::User { .. }) && self.wakes.policies.is_none() {
            self.wakes.policies = Some(self.shared.hub.policies.changed.listen());
        }
    }

    /// If requests wait for the node, makes its readiness wake this task. Returns whether it is
    /// ready already.
    pub(in crate::server) fn listen_for_ready(&mut self) -> bool {
        if !self.session.patience.is_waiting() {
            return false;
        }
        // Listen first, then look.
        self.wakes.ready.get_or_insert_with(|| self.shared.hub.became_ready.listen());
        self.shared.hub.read(Engine::is_ready)
    }

    /// How long to wait at most.
    pub(in crate::server) fn time_left(&self) -> Option<Duration> {
        if self.session.waits_only_for_bytes() {
            return None;
        }
        let now = rt::now();
        let deadline = self.session.next_deadline(&self.shared, now)?;
        Some(Duration::from_millis(deadline.saturating_sub(now)))
    }

    /// Whether something has happened that makes output.
    pub(in crate::server) fn poll_events(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.session.poll_aside(cx).is_ready() {
            return Poll::Ready(());
        }
        let Wakes { inbox, acknowledged, ready, policies } = &mut self.wakes;
        for listener in [inbox, acknowledged, ready, policies] {
            if let Some(event) = listener
                && Pin::new(event).poll(cx).is_ready()
            {
                *listener = None;
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Whether the client must be ended: the server stops, or there is too little memory for all.
    pub(in crate::server) fn poll_end(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let is_stopping = Pin::new(&mut self.stopping).poll(cx).is_ready();
        match is_stopping || Pin::new(&mut self.closing).poll(cx).is_ready() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// The error of a request that needs a thread when the system has none to give.
pub(in crate::server) fn no_thread(error: &io::Error) -> ClientError {
    let text = format!(
        "the system gives this node no thread for this request ({error}); nothing was changed; \
         try again later, or another node"
    );
    ClientError::new(ErrorCode::TooMany, text)
}
