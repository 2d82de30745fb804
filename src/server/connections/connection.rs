//! One client connection: the loop that moves bytes between the socket and the session.
//!
//! Whatever has arrived is carried out as one batch and answered with one write. Before the
//! reactor is armed, the socket is asked once more, after other tasks had their turn: that is
//! cheaper than being woken up. While the output is full, nothing is read, so a client that
//! does not read is not served; its watches start over when it does.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use event_listener::EventListener;
use futures::future::{Either, select};
use futures::io::{AsyncRead, AsyncWriteExt};
use socket2::SockRef;

use super::input::Input;
use super::session::{Decoded, HeavyJob, Session, Then};
use crate::engine::Engine;
use crate::model::ids::Millis;
use crate::model::invariant::OrBroken;
use crate::protocol::client::reply::{write_error, write_greeting};
use crate::protocol::client::{ClientError, ErrorCode, decode};
use crate::rt::{self, TcpStream};
use crate::server::Shared;
use crate::server::access::{Identity, methods};
use crate::server::stream::Produced;

/// Bytes of output kept while nothing goes out.
const IDLE_BYTES: usize = 4 << 10;
/// How long, and for how many bytes, a connection is read after its last message, so that the
/// client gets to see that message: what lies unread when a socket is closed resets it.
const LINGER: Duration = Duration::from_secs(2);
/// The same when the node ends.
const LINGER_AT_STOP: Duration = Duration::from_millis(300);
const LINGER_BYTES: usize = 64 << 20;
/// After this long without a byte, the system asks whether the client is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Serves one client until it goes, or has to.
pub(in crate::server) async fn serve(socket: TcpStream, shared: Arc<Shared>) {
    prepare(&socket);
    let session = Session::new(is_local(&socket), shared.hub.client_memory(), rt::now());
    let mut connection = Connection {
        input: Input::new(shared.config.message_limit()),
        out: Vec::new(),
        last_word: Vec::new(),
        stopping: shared.stopping.listen(),
        closing: session.account.closing.listen(),
        session,
        wakes: Wakes::default(),
        socket,
        shared,
    };
    // Whatever the reason is: the client will notice, and nobody else needs to.
    let result = connection.run().await;
    tracing::debug!(?result, "client connection ended");
    connection.close();
}

/// Tells a client that it cannot be served.
pub(in crate::server) async fn refuse(socket: TcpStream, error: &ClientError, shared: &Shared) {
    prepare(&socket);
    let mut out = Vec::new();
    write_error(error, None, shared.hub.read(Engine::tock), &mut out);
    linger(&socket, &out, LINGER).await;
}

/// Whether a client is on this machine.
fn is_local(socket: &TcpStream) -> bool {
    match (socket.peer_addr(), socket.local_addr()) {
        (Ok(peer), Ok(own)) => is_same_machine(peer.ip(), own.ip()),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// Whether a connection comes from the machine that it came to, even if the client used the
/// machine's own address and not the loopback one. No other machine completes a connection from
/// there.
fn is_same_machine(peer: IpAddr, own: IpAddr) -> bool {
    let (peer, own) = (peer.to_canonical(), own.to_canonical());
    peer.is_loopback() || peer == own
}

fn prepare(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    // Without it a pipelining client stalls. If it fails, it is only slow.
    let _ = socket.set_tcp_nodelay(true);
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4);
    let _ = socket.set_tcp_keepalive(&keepalive);
}

/// Writes the last bytes and gives the client a little time to go by itself: clients of the original report
/// an end that comes first as an error.
async fn part(socket: &TcpStream, last: &[u8], patience: Duration) {
    let mut socket = socket;
    let farewell = async {
        socket.write_all(last).await?;
        let mut buffer = vec![0; 16 << 10];
        let mut total = 0;
        while total < LINGER_BYTES {
            match poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut buffer)).await? {
                0 => break,
                bytes => total += bytes,
            }
        }
        io::Result::Ok(())
    };
    let _ = rt::timeout(patience, farewell).await;
}

/// Writes the last bytes and waits a little for the client to take them.
async fn linger(socket: &TcpStream, last: &[u8], patience: Duration) {
    let mut socket = socket;
    let farewell = async {
        socket.write_all(last).await?;
        socket.shutdown(std::net::Shutdown::Write)?;
        let mut buffer = vec![0; 16 << 10];
        let mut total = 0;
        while total < LINGER_BYTES {
            match poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut buffer)).await? {
                0 => break,
                bytes => total += bytes,
            }
        }
        io::Result::Ok(())
    };
    let _ = rt::timeout(patience, farewell).await;
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
}

/// What a connection waits for besides its socket. Listeners are kept from one round to the next,
/// because most rounds are about the socket.
#[derive(Default)]
struct Wakes {
    inbox: Option<EventListener>,
    acknowledged: Option<EventListener>,
    ready: Option<EventListener>,
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
        let address = self.socket.peer_addr()?.ip();
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
            if self.is_shut_out() {
                return self.end_shut_out().await;
            }
            if let Some(error) = self.session.guest.overstays(rt::now(), self.input.total()) {
                return self.end_after(Vec::new(), &error).await;
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
                    linger(&self.socket, &std::mem::take(&mut self.out), LINGER).await;
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

    fn greet(&mut self) {
        let qlen = self.shared.config.qlen;
        let (_, directory) = self.shared.users.now(&self.shared.hub);
        let nonce = self.session.guest.nonce;
        let offer = methods::offer(&directory, self.shared.must_log_in(), nonce);
        let out = &mut self.out;
        self.shared.hub.read(|engine| {
            let name = engine.id().name.as_str();
            write_greeting(name, engine.tick(), engine.tock(), qlen, &offer, out);
        });
    }

    /// Carries out a batch of requests, or a part of it: first those that have waited.
    fn take_requests(&mut self) -> Requests {
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
        self.shared.count_requests(done);
        let all = done == batch.messages.len();
        let end = match done.checked_sub(1) {
            None => 0,
            Some(last) => *batch.ends.get(last).or_broken("each message of a batch has its end"),
        };
        drop(batch);
        self.input.consume(end, all);
        Requests::after(then, self.input.has_more())
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
            self.wakes = Wakes::default();
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
            None => shared.heavy.acquire().await,
        };
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
            self.session.unsynced.withdraw(&failure, tock, &mut self.out);
        }
        self.session.unsynced.forget();
    }

    /// Writes all output. A client that takes nothing for too long is given up.
    async fn flush(&mut self) -> io::Result<()> {
        self.until_safe().await;
        self.tell_memory();
        if self.out.is_empty() {
            return Ok(());
        }
        if self.is_shut_out() {
            // Whatever was read after that moment is in the output that is dropped here.
            self.end_shut_out().await?;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let stall = Duration::from_millis(self.shared.config.write_stall_ms);
        let mut from = 0;
        while let Some(rest) = self.out.get(from..).filter(|rest| !rest.is_empty()) {
            match (&*SockRef::from(&self.socket)).write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => from += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let mut socket = &self.socket;
                    let write = select(socket.write(rest), &mut self.closing);
                    match rt::timeout(stall, write).await {
                        Some(Either::Left((written, _))) => from += written?,
                        // The message would be behind what the client does not read.
                        Some(Either::Right(_)) => return Err(io::ErrorKind::OutOfMemory.into()),
                        None => return Err(io::ErrorKind::TimedOut.into()),
                    }
                    self.session.account.note_moved(rt::now());
                }
                Err(e) => return Err(e),
            }
        }
        self.out.clear();
        self.session.account.note_moved(rt::now());
        Ok(())
    }

    /// Reports the connection's present memory.
    fn tell_memory(&self) {
        let buffers = self.out.capacity() + self.input.capacity();
        self.session.account.set_buffers(buffers + self.session.open_bytes());
    }

    /// Reads available data, without waiting; returns whether there was any (or the end).
    fn try_read(&mut self) -> io::Result<bool> {
        let mut is_new = false;
        loop {
            match (&*SockRef::from(&self.socket)).read(self.input.room()) {
                Ok(bytes) => {
                    self.input.filled(bytes);
                    is_new = true;
                    // As much as fitted: there is probably more, and a batch should be all of it.
                    if !self.input.is_full() || !self.input.wants_more() {
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
                self.input.filled(bytes);
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
        for listener in [&mut wakes.inbox, &mut wakes.acknowledged, &mut wakes.ready] {
            if let Some(event) = listener
                && Pin::new(event).poll(cx).is_ready()
            {
                *listener = None;
                return Poll::Ready(Ok(Woken::Event));
            }
        }
        if self.input.wants_more() {
            let mut socket = &self.socket;
            let read = Pin::new(&mut socket).poll_read(cx, self.input.room());
            if let Poll::Ready(read) = read {
                return Poll::Ready(read.map(Woken::Read));
            }
        }
        self.input.shrink();
        self.out.shrink_to(IDLE_BYTES);
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

    /// The server stops: ends all streams and says so.
    async fn end(&mut self) -> io::Result<()> {
        let cx = self.session.context(&self.shared, rt::now());
        self.session.end_all(&cx, &mut self.out);
        if self.session.sent_away {
            self.flush().await?;
            self.shared.keep_to_the_end(self.socket.clone());
            return Ok(());
        }
        self.until_safe().await;
        if self.is_shut_out() {
            return self.end_shut_out().await;
        }
        linger(&self.socket, &std::mem::take(&mut self.out), LINGER_AT_STOP).await;
        Ok(())
    }

    fn is_shut_out(&mut self) -> bool {
        let cx = self.session.context(&self.shared, rt::now());
        self.session.is_shut_out(&cx)
    }

    /// The client may do nothing any more: says so, and drops pending output. One that has brought that about
    /// itself gets its reply, and no error.
    async fn end_shut_out(&mut self) -> io::Result<()> {
        self.out = Vec::new();
        let parting = std::mem::take(&mut self.session.guest.parting);
        if !parting.is_empty() {
            self.close();
            part(&self.socket, &parting, LINGER).await;
            return Ok(());
        }
        let why = match &self.session.identity {
            Identity::User { method, name } => format!(
                "the user {name:?} (method {method:?}) was removed, or may not log in by this method any more"
            ),
            Identity::Unknown | Identity::KeyHolder => match self.shared.hub.read(Engine::closed) {
                Some(closed) => closed.to_string(),
                None => String::from("authorisation was switched on for a moment"),
            },
        };
        let text = format!(
            "closing the connection: {why}. What was asked for and not answered may have been done"
        );
        let error = ClientError::new(ErrorCode::AuthRequired, text);
        let last = std::mem::take(&mut self.last_word);
        self.end_after(last, &error).await
    }

    /// The clients' memory is used up, and this connection is the worst: says so, if the client
    /// reads that. What the connection holds goes first.
    async fn end_for_memory(&mut self) -> io::Result<()> {
        let text = "closing the connection: what this node keeps for its clients exceeds \
                    --max-client-memory, and this connection keeps much and takes little; read \
                    faster, or ask for less at once";
        let last = std::mem::take(&mut self.out);
        self.end_after(last, &ClientError::new(ErrorCode::TooSlow, text)).await
    }

    /// Ends the connection with an error after these bytes.
    async fn end_after(&mut self, mut last: Vec<u8>, error: &ClientError) -> io::Result<()> {
        self.close();
        write_error(error, None, self.shared.hub.read(Engine::tock), &mut last);
        self.input.shrink();
        self.tell_memory();
        linger(&self.socket, &last, LINGER).await;
        Ok(())
    }

    fn close(&mut self) {
        let cx = self.session.context(&self.shared, rt::now());
        self.session.abandon(&cx);
        self.drop_garbage();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_the_same_under_each_of_its_addresses() {
        let same =
            |peer: &str, own: &str| is_same_machine(peer.parse().unwrap(), own.parse().unwrap());
        assert!(same("127.0.0.1", "127.0.0.1") && same("::1", "::1"));
        assert!(same("10.0.0.5", "10.0.0.5") && same("::ffff:10.0.0.5", "10.0.0.5"));
        assert!(same("2001:db8::5", "2001:db8::5"));
        assert!(!same("10.0.0.6", "10.0.0.5") && !same("::ffff:10.0.0.6", "::ffff:10.0.0.5"));
    }
}
