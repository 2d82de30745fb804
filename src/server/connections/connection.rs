//! One client connection: the loop that moves bytes between the socket and the session.
//!
//! Whatever has arrived is carried out as one batch and answered with one write. Before the
//! reactor is armed, the socket is asked once more, after other tasks had their turn: that is
//! cheaper than being woken up. While the output is full, nothing is read, so a client that
//! does not read is not served; its watches start over when it does.

mod ending;

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use event_listener::EventListener;
use futures::io::AsyncRead;
use socket2::SockRef;

use distkv_tls::Channel;
use distkv_tls::channel::FEED_BYTES_MAX;

use super::input::Input;
use super::session::{Decoded, HeavyJob, Session, Then};
use super::socket::{LINGER, is_local, linger, prepare, write_out};
use super::tls::{self, NoSession, TlsSettings};
use crate::engine::Engine;
use crate::model::ids::Millis;
use crate::model::invariant::OrBroken;
use crate::protocol::client::reply::{write_error, write_greeting};
use crate::protocol::client::{ClientError, ErrorCode, decode};
use crate::rt::{self, TcpStream};
use crate::server::Shared;
use crate::server::access::{Identity, methods};
use crate::server::counts::Meter;
use crate::server::stream::Produced;

/// Bytes of output kept while nothing goes out.
const IDLE_BYTES: usize = 4 << 10;

/// Serves one client until it goes, or has to.
pub(in crate::server) async fn serve(socket: TcpStream, shared: Arc<Shared>) {
    prepare(&socket);
    let is_local = is_local(&socket);
    let mut tls = None;
    let mut may_begin_tls = None;
    if let Some(settings) = shared.config.tls.as_ref() {
        let peer = socket.peer_addr().map(|peer| peer.ip());
        if peer.is_ok_and(|peer| settings.permits_plain_text(peer, is_local)) {
            may_begin_tls = Some(settings.clone());
        } else {
            match tls::begin(&socket, &shared, settings, &[]).await {
                Ok(channel) => tls = Some(Box::new(channel)),
                Err(error) => return refuse_session(socket, &error, &shared).await,
            }
        }
    }
    let mut session = Session::new(is_local, shared.hub.client_memory(), rt::now());
    session.identity = shared.first_identity();
    let mut connection = Connection {
        input: Input::new(shared.config.message_limit()),
        out: Vec::new(),
        last_word: Vec::new(),
        stopping: shared.stopping.listen(),
        closing: session.account.closing.listen(),
        session,
        wakes: Wakes::default(),
        meter: Meter::default(),
        tls,
        may_begin_tls,
        socket,
        shared,
    };
    connection.note_certificate();
    connection.take_plaintext();
    // Whatever the reason is: the client will notice, and nobody else needs to.
    let result = connection.run().await;
    tracing::debug!(?result, "client connection ended");
    connection.say_alert();
    connection.close();
}

/// Ends a connection that got no TLS session. A client that does not speak TLS is told so.
async fn refuse_session(socket: TcpStream, why: &NoSession, shared: &Shared) {
    tracing::debug!(%why, "a client got no TLS session");
    shared.refused.fetch_add(1, Ordering::Relaxed);
    if matches!(why, NoSession::PlainText) {
        let error = ClientError::new(ErrorCode::AuthRequired, tls::TLS_NEEDED);
        refuse(socket, &error, shared).await;
    }
}

/// Tells a client that it cannot be served.
pub(in crate::server) async fn refuse(socket: TcpStream, error: &ClientError, shared: &Shared) {
    prepare(&socket);
    let mut out = Vec::new();
    shared.counts.note_error(error);
    write_error(error, None, shared.hub.read(Engine::tock), &mut out);
    linger(&socket, &out, LINGER).await;
}

struct Connection {
    socket: TcpStream,
    shared: Arc<Shared>,
    input: Input,
    out: Vec<u8>,
    /// What goes out although clients are shut out.
    last_word: Vec<u8>,
    session: Session,
    /// Fires when the server stops.
    stopping: EventListener,
    /// Fires when the connection is closed for the memory of all.
    closing: EventListener,
    wakes: Wakes,
    meter: Meter,
    /// The TLS session, if there is one: then nothing goes to or from the socket but through it.
    tls: Option<Box<Channel>>,
    /// The client was greeted in plain text and may begin TLS with its first byte.
    may_begin_tls: Option<TlsSettings>,
}

/// What a connection waits for besides its socket. Listeners are kept from one round to the next,
/// because most rounds are about the socket.
#[derive(Default)]
struct Wakes {
    inbox: Option<EventListener>,
    acknowledged: Option<EventListener>,
    ready: Option<EventListener>,
    /// The policies of a client that is a user: it may be removed, or lose the right to a stream.
    policies: Option<EventListener>,
}

/// Why the loop continues.
enum Woken {
    /// Bytes have arrived, or the end.
    Read(usize),
    /// Something else has happened, or time has passed.
    Event,
    /// The connection must end: the server stops, or there is too little memory for all.
    Stopping,
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        let address = self.socket.peer_addr()?;
        if let Err(error) = self.session.enter(&self.shared, address, rt::now()) {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            return self.end_after(Vec::new(), &error).await;
        }
        self.greet();
        self.flush().await?;
        loop {
            if self.shared.is_abandoned() {
                return Ok(());
            }
            self.listen_for_policies();
            if self.is_shut_out() {
                return self.end_shut_out().await;
            }
            if let Some(error) = self.session.guest.overstays(rt::now(), self.input.total()) {
                return self.end_after(Vec::new(), &error).await;
            }
            if !self.input.is_empty()
                && let Some(settings) = self.may_begin_tls.take()
                && self.input.first() == Some(tls::HELLO)
            {
                self.begin_tls(&settings).await?;
            }
            let woken_before = self.shared.hub.woke_few_links();
            let mut busy = match self.take_requests() {
                Requests::Done => false,
                Requests::More => true,
                Requests::Heavy(job) => {
                    self.run_heavy(job).await?;
                    true
                }
                Requests::NeedsRoom => {
                    self.flush().await?;
                    self.shared.room().await;
                    true
                }
                Requests::NeedsReady => false,
                Requests::Close => {
                    // The output's end says why.
                    self.until_safe().await;
                    if self.is_shut_out() {
                        return self.end_shut_out().await;
                    }
                    let last = std::mem::take(&mut self.out);
                    let last = self.seal(last);
                    linger(&self.socket, &last, LINGER).await;
                    return Ok(());
                }
            };
            if self.session.makes_changes() {
                self.shared.room().await;
            }
            if self.shared.hub.woke_few_links() != woken_before {
                // Other nodes have the change before the client has the answer, and with it those of
                // the connections that are next.
                rt::yield_now().await;
            }
            busy |= self.produce();
            self.flush().await?;
            if self.shared.is_stopping() {
                self.refuse_waiting();
                return self.end().await;
            }
            if self.session.account.is_closing() {
                if self.is_shut_out() {
                    return self.end_shut_out().await;
                }
                return self.end_for_memory().await;
            }
            if self.input.at_end && self.session.patience.is_waiting() {
                // Perhaps the client is gone: no node is waited for.
                self.session.patience.give_up();
                continue;
            }
            if self.input.at_end && !busy && self.finish_after_end().await? {
                return Ok(());
            }
            if !busy {
                // Other tasks get their turn before the socket is asked once more: that gives the
                // next request time to arrive.
                rt::yield_now().await;
                if !self.listen_for_ready() {
                    self.wait().await?;
                }
                continue;
            }
            if self.input.wants_more() {
                self.try_read()?;
            }
            // There is more to do here, but others have their turn first.
            rt::yield_now().await;
        }
    }

    /// The client speaks TLS, although it was greeted in plain text: it is greeted again.
    async fn begin_tls(&mut self, settings: &TlsSettings) -> io::Result<()> {
        let said = self.input.take_all();
        let channel = tls::begin(&self.socket, &self.shared, settings, &said).await;
        self.tls = Some(Box::new(channel.map_err(io::Error::other)?));
        self.note_certificate();
        self.greet();
        self.flush().await?;
        self.take_plaintext();
        Ok(())
    }

    /// Whether it is TLS, and whom the client's certificate names: as that user it is logged in.
    fn note_certificate(&mut self) {
        self.session.guest.note_tls(self.tls.is_some());
        match self.tls.as_ref().map(|channel| channel.user()) {
            Some(Ok(Some(user))) => {
                tracing::debug!(user, "a client has a certificate");
                self.session.certify(user);
            }
            Some(Err(error)) => tracing::debug!(%error, "a client's certificate names no user"),
            Some(Ok(None)) | None => {}
        }
    }

    /// Tells a client why its TLS session has failed, if it takes that at once.
    fn say_alert(&self) {
        if let Some(channel) = self.tls.as_ref().filter(|channel| channel.failure().is_some()) {
            let _ = (&*SockRef::from(&self.socket)).write(channel.outgoing());
        }
    }

    fn greet(&mut self) {
        let qlen = self.shared.config.qlen;
        let directory = self.shared.policy_data.directory(&self.shared.hub);
        let nonce = self.session.guest.nonce;
        let mut offer = methods::offer(&directory, self.shared.must_log_in(), nonce);
        if self.shared.grace_ms().is_some() {
            offer.soon = directory.login().map(|login| login.name().into());
        }
        let out = &mut self.out;
        self.shared.hub.read(|engine| {
            let name = engine.id().name.as_str();
            write_greeting(name, engine.tick(), engine.tock(), qlen, &offer, out);
        });
    }

    /// Carries out a batch of requests, or a part of it: first those that have waited.
    fn take_requests(&mut self) -> Requests {
        let began = self.meter.is_timed().then(rt::now_us);
        let cx = self.session.context(&self.shared, rt::now());
        let due = self.session.patience.take_due(&cx);
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

    /// If the client is a user, makes a change of users or access lists wake this task. Listen first, then look.
    fn listen_for_policies(&mut self) {
        if matches!(self.session.identity, Identity::User { .. }) && self.wakes.policies.is_none() {
            self.wakes.policies = Some(self.shared.hub.policies.changed.listen());
        }
    }

    /// If requests wait for the node, makes its readiness wake this task. Returns whether it is
    /// ready already.
    fn listen_for_ready(&mut self) -> bool {
        if !self.session.patience.is_waiting() {
            return false;
        }
        // Listen first, then look.
        self.wakes.ready.get_or_insert_with(|| self.shared.hub.became_ready.listen());
        self.shared.hub.read(Engine::is_ready)
    }

    /// The server stops: answers the requests that wait for the node to be ready, as far as there
    /// is room for answers; the other clients see the connection end.
    fn refuse_waiting(&mut self) {
        if !self.session.patience.is_waiting() {
            return;
        }
        self.session.patience.give_up();
        while self.out.len() < self.shared.output_limit()
            && matches!(self.take_requests(), Requests::More)
        {}
    }

    /// Gives the session's streams their turns; returns whether there is more to do at once.
    fn produce(&mut self) -> bool {
        if self.session.is_quiet() {
            let policies = self.wakes.policies.take();
            self.wakes = Wakes { policies, ..Wakes::default() };
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
        produced == Produced::More
    }

    fn drop_garbage(&mut self) {
        for garbage in self.session.take_garbage() {
            // Detached: no task waits for it.
            drop(rt::spawn_blocking(move || drop(garbage)));
        }
    }

    /// Runs a long job elsewhere; only a few at a time.
    async fn run_heavy(&mut self, job: HeavyJob) -> io::Result<()> {
        self.flush().await?;
        let shared = Arc::clone(&self.shared);
        let HeavyJob { seq, work, is_innocuous, prelude } = job;
        let _permit = match prelude {
            Some(_) => shared.logins.core().await,
            None => {
                let _waits = shared.counts.heavy_waits();
                shared.heavy.acquire().await
            }
        };
        let _runs = prelude.is_none().then(|| shared.counts.heavy_runs());
        let error = match rt::spawn_work("request", work) {
            Ok(work) => match work.done().await {
                Some(reply) => {
                    // Perhaps it is what has shut the clients out.
                    let is_last = is_innocuous && self.is_shut_out();
                    let to = if is_last { &mut self.last_word } else { &mut self.out };
                    to.extend_from_slice(&reply);
                    return Ok(());
                }
                None => ClientError::new(ErrorCode::Internal, "the node failed at this request"),
            },
            Err(error) => no_thread(&error),
        };
        if prelude.is_some() {
            // The request comes again, and finds nothing.
            return Ok(());
        }
        self.shared.counts.note_error(&error);
        write_error(&error, Some(seq), self.shared.hub.read(Engine::tock), &mut self.out);
        Ok(())
    }

    /// Waits until everything that the output tells of may be seen: under the sync policy `every
    /// batch` until it is on disk, both this connection's changes and whatever else it could have
    /// read.
    async fn until_safe(&mut self) {
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

    /// Writes all output. A client that takes nothing for too long is given up.
    async fn flush(&mut self) -> io::Result<()> {
        self.until_safe().await;
        self.tell_memory();
        if self.out.is_empty() && self.tls.as_ref().is_none_or(|tls| tls.outgoing().is_empty()) {
            return Ok(());
        }
        if self.is_shut_out() {
            // Whatever was read after that moment is in the output that is dropped here.
            self.end_shut_out().await?;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let stall = Duration::from_millis(self.shared.config.write_stall_ms);
        let moved = || self.session.account.note_moved(rt::now());
        let counts = &*self.shared.counts;
        let stalled = |error: io::Error| {
            if error.kind() == io::ErrorKind::TimedOut {
                counts.note_stalled();
            }
            error
        };
        let mut sent = 0;
        match &mut self.tls {
            None => {
                let closing = &mut self.closing;
                write_out(&self.socket, closing, stall, &self.out, moved).await.map_err(stalled)?;
                sent = self.out.len();
            }
            Some(channel) => {
                let mut from = 0;
                loop {
                    let rest = self.out.get(from..).unwrap_or_default();
                    from += channel.write(rest).map_err(io::Error::other)?;
                    let bytes = channel.outgoing();
                    if bytes.is_empty() {
                        break;
                    }
                    let closing = &mut self.closing;
                    write_out(&self.socket, closing, stall, bytes, moved).await.map_err(stalled)?;
                    let count = bytes.len();
                    channel.sent(count);
                    sent += count;
                }
            }
        }
        self.out.clear();
        self.session.account.note_moved(rt::now());
        self.meter.note_sent(sent as u64, counts, &self.session.traffic);
        self.meter.note_answered(!self.session.copies.is_empty(), rt::now_us, counts);
        Ok(())
    }

    /// The last bytes as they go out: encrypted, with the end of the session, if there is one.
    fn seal(&mut self, plain: Vec<u8>) -> Vec<u8> {
        let Some(channel) = &mut self.tls else { return plain };
        let mut sealed = Vec::with_capacity(plain.len());
        let mut rest = plain.as_slice();
        loop {
            let written = channel.write(rest).unwrap_or(0);
            rest = rest.get(written..).unwrap_or_default();
            if rest.is_empty() {
                // If it has failed, the client has been told.
                let _ = channel.close();
            }
            sealed.extend_from_slice(channel.outgoing());
            channel.sent(channel.outgoing().len());
            if written == 0 || rest.is_empty() {
                return sealed;
            }
        }
    }

    /// So many bytes have been read into the room for them; none: the end.
    fn arrived(&mut self, bytes: usize) -> io::Result<()> {
        self.meter.received += bytes as u64;
        let Some(channel) = &mut self.tls else {
            self.input.filled(bytes);
            return Ok(());
        };
        if bytes == 0 {
            // Whether it was closed or cut: messages that are whole are carried out, as without TLS.
            self.input.filled(0);
            return Ok(());
        }
        let room = self.input.room();
        channel.feed(room.get(..bytes).unwrap_or_default()).map_err(io::Error::other)?;
        self.take_plaintext();
        Ok(())
    }

    /// Moves what the TLS session has decrypted to the input.
    fn take_plaintext(&mut self) {
        let Some(channel) = &mut self.tls else { return };
        while !channel.plaintext().is_empty() {
            let count = channel.take(self.input.room());
            self.input.filled(count);
        }
        if channel.is_peer_closed() {
            self.input.filled(0);
        }
    }

    /// Room to read into from the socket.
    fn room<'r>(input: &'r mut Input, tls: Option<&Channel>) -> &'r mut [u8] {
        let room = input.room();
        let most = if tls.is_some() { FEED_BYTES_MAX } else { usize::MAX };
        let len = room.len().min(most);
        room.get_mut(..len).unwrap_or_default()
    }

    /// Reports the connection's present memory.
    fn tell_memory(&self) {
        let tls = self.tls.as_ref().map_or(0, |tls| tls.capacity() + tls::SESSION_BYTES);
        let buffers = self.out.capacity() + self.input.capacity() + tls;
        self.session.account.set_buffers(buffers + self.session.open_bytes());
        let streams = &self.session.streams;
        self.session.traffic.note_streams(streams.queued_len(), streams.len());
    }

    /// Reads available data, without waiting; returns whether there was any (or the end).
    fn try_read(&mut self) -> io::Result<bool> {
        let mut is_new = false;
        loop {
            let room = Self::room(&mut self.input, self.tls.as_deref());
            let len = room.len();
            match (&*SockRef::from(&self.socket)).read(room) {
                Ok(bytes) => {
                    self.arrived(bytes)?;
                    is_new = true;
                    // As much as fitted: there is probably more, and a batch should be all of it.
                    if bytes < len || !self.input.wants_more() {
                        return Ok(true);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(is_new),
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits until there is something to do; returns at once if bytes are available.
    async fn wait(&mut self) -> io::Result<()> {
        let cx = self.session.context(&self.shared, rt::now());
        let deadline = self.session.next_deadline(&cx);
        let woken = match deadline.map(|deadline| until(deadline, cx.now)) {
            None => poll_fn(|cx| self.poll_wake(cx)).await?,
            Some(left) => match rt::timeout(left, poll_fn(|cx| self.poll_wake(cx))).await {
                Some(woken) => woken?,
                None => Woken::Event,
            },
        };
        match woken {
            Woken::Read(bytes) => {
                self.session.account.note_moved(rt::now());
                self.arrived(bytes)?;
                if self.input.is_full() && self.input.wants_more() {
                    self.try_read()?;
                }
            }
            Woken::Event | Woken::Stopping => {}
        }
        Ok(())
    }

    /// What makes output comes first. The socket is asked once, then the reactor is armed.
    fn poll_wake(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<Woken>> {
        let wakes = &mut self.wakes;
        let Wakes { inbox, acknowledged, ready, policies } = wakes;
        for listener in [inbox, acknowledged, ready, policies] {
            if let Some(event) = listener
                && Pin::new(event).poll(cx).is_ready()
            {
                *listener = None;
                return Poll::Ready(Ok(Woken::Event));
            }
        }
        if self.input.wants_more() {
            let mut socket = &self.socket;
            let room = Self::room(&mut self.input, self.tls.as_deref());
            let read = Pin::new(&mut socket).poll_read(cx, room);
            if let Poll::Ready(read) = read {
                return Poll::Ready(read.map(Woken::Read));
            }
        }
        self.input.shrink();
        self.out.shrink_to(IDLE_BYTES);
        if let Some(tls) = &mut self.tls {
            tls.shrink();
        }
        self.tell_memory();
        let is_stopping = Pin::new(&mut self.stopping).poll(cx).is_ready();
        if is_stopping || Pin::new(&mut self.closing).poll(cx).is_ready() {
            return Poll::Ready(Ok(Woken::Stopping));
        }
        Poll::Pending
    }

    /// The client sends nothing any more: open requests are ended, or finished if possible. Returns
    /// whether nothing is left.
    async fn finish_after_end(&mut self) -> io::Result<bool> {
        let cx = self.session.context(&self.shared, rt::now());
        self.session.end_endless(&cx, &mut self.out);
        self.flush().await?;
        Ok(self.session.is_quiet())
    }
}

/// What became of the requests that have arrived.
enum Requests {
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
    /// The connection cannot go on.
    Close,
}

impl Requests {
    /// What became of them after a batch; `has_more`: there may be others.
    fn after(then: Then, has_more: bool) -> Self {
        match then {
            Then::Continue if has_more => Self::More,
            Then::Continue => Self::Done,
            Then::Heavy(job) => Self::Heavy(job),
            Then::NeedsRoom => Self::NeedsRoom,
            Then::NeedsReady => Self::NeedsReady,
            Then::Close => Self::Close,
        }
    }
}

fn until(deadline: Millis, now: Millis) -> Duration {
    Duration::from_millis(deadline.saturating_sub(now))
}

/// The error of a request that needs a thread when the system has none to give.
pub(in crate::server) fn no_thread(error: &io::Error) -> ClientError {
    let text = format!(
        "the system gives this node no thread for this request ({error}); nothing was changed; \
         try again later, or another node"
    );
    ClientError::new(ErrorCode::TooMany, text)
}
