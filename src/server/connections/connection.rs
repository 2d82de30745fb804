//! One client connection: the loop that moves bytes between the socket and the session.
//!
//! Whatever has arrived is carried out as one batch and answered with one write. Before the
//! reactor is armed, the socket is asked once more, after other tasks had their turn: that is
//! cheaper than being woken up. While the output is full, nothing is read, so a client that
//! does not read is not served; its watches start over when it does.
//!
//! There may be thousands of these tasks, most of which wait: what one does once, and takes much, is boxed where it is done.

mod ending;

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures::io::AsyncRead;
use socket2::SockRef;

use distkv_tls::Channel;
use distkv_tls::channel::FEED_BYTES_MAX;

use super::exchange::{Exchange, IDLE_BYTES, Requests};
use super::input::Input;
use super::socket::{LINGER, is_local, linger, prepare, write_out};
use super::tls::{self, NoSession, TlsSettings};
use crate::engine::Engine;
use crate::protocol::client::reply::{Greeting, write_error, write_greeting};
use crate::protocol::client::{ClientError, ErrorCode};
use crate::rt::{self, TcpStream};
use crate::server::Shared;
use crate::server::access::methods;

/// What a connection costs besides its buffers and requests, about: its task, its session, and the runtime's part of its socket
/// (docs/memory.md has the measurement).
const CONNECTION_BYTES: usize = 8 << 10;

/// Serves one client until it goes, or has to. One that would have been refused for this may only look.
pub(in crate::server) async fn serve(
    socket: TcpStream,
    shared: Arc<Shared>,
    refusal: Option<ClientError>,
) {
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
    // In a block, so that the task does not keep room for a second exchange.
    let mut connection = {
        let mut exchange = Exchange::new(shared, is_local);
        exchange.session.has_place = refusal.is_none();
        exchange.session.looks_only = refusal;
        Connection { exchange, tls, may_begin_tls, socket }
    };
    connection.note_certificate();
    connection.take_plaintext();
    // Whatever the reason is: the client will notice, and nobody else needs to.
    let result = match connection.run().await {
        Ok(end) => connection.end_for(&end).await,
        Err(error) => Err(error),
    };
    tracing::debug!(?result, "client connection ended");
    connection.say_alert();
    connection.exchange.abandon();
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
    linger(&socket, &refusal_of(error, shared), LINGER).await;
}

/// The same, where there is no room to wait until the client has read it. It nearly always does: nothing was sent before
/// that, so the system takes it at once, and clients wait for the greeting before they send anything.
pub(in crate::server) fn refuse_and_close(
    socket: &TcpStream,
    error: &ClientError,
    shared: &Shared,
) {
    let socket = SockRef::from(socket);
    if (&*socket).write(&refusal_of(error, shared)).is_ok() {
        let _ = socket.shutdown(Shutdown::Write);
    }
}

/// The only message of a connection that is refused.
fn refusal_of(error: &ClientError, shared: &Shared) -> Vec<u8> {
    let mut out = Vec::new();
    shared.counts.note_error(error);
    write_error(error, None, shared.hub.read(Engine::tock), &mut out);
    out
}

struct Connection {
    socket: TcpStream,
    exchange: Exchange,
    /// The TLS session, if there is one: then nothing goes to or from the socket but through it.
    tls: Option<Box<Channel>>,
    /// The client was greeted in plain text and may begin TLS with its first byte.
    may_begin_tls: Option<TlsSettings>,
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

/// Why a connection ends.
enum End {
    /// Its client has got all that it waited for, or the node does not wait for its clients any longer.
    Quiet,
    /// There is no place for the client.
    Refused(ClientError),
    /// The client may do nothing any more.
    ShutOut,
    /// It had to log in by now, must give way to another one, or has looked for long enough.
    Overstays(ClientError),
    /// A request was the last; the output's end says why.
    Said,
    /// The server stops.
    Stopping,
    /// The clients' memory is used up.
    Memory,
}

impl Connection {
    /// Greets the client. Then, round after round, carries out what has arrived, lets the streams produce, writes all
    /// output, and waits if there is no more to do. Returns why the connection ends.
    async fn run(&mut self) -> io::Result<End> {
        let address = self.socket.peer_addr()?;
        if let Err(error) = self.exchange.enter(address) {
            self.exchange.shared.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(End::Refused(error));
        }
        self.greet();
        self.flush().await?;
        loop {
            if let Some(end) = self.begin_round() {
                return Ok(end);
            }
            if !self.exchange.input.is_empty()
                && let Some(settings) = self.may_begin_tls.take()
                && self.exchange.input.first() == Some(tls::HELLO)
            {
                self.begin_tls(&settings).await?;
            }
            let woken_before = self.exchange.shared.hub.woke_few_links();
            let began = self.exchange.meter.is_timed().then(rt::now_us);
            let mut busy = match self.exchange.take_requests(began) {
                Requests::Done | Requests::NeedsReady | Requests::Behind => false,
                Requests::More => true,
                Requests::Heavy(job) => {
                    self.flush().await?;
                    self.exchange.run_heavy(job).await;
                    self.exchange.ask_time();
                    true
                }
                Requests::NeedsRoom => {
                    self.flush().await?;
                    self.exchange.shared.room().await;
                    self.exchange.ask_time();
                    true
                }
                Requests::Close => return Ok(End::Said),
            };
            if self.exchange.session.makes_changes() {
                self.exchange.shared.room().await;
                self.exchange.ask_time();
            }
            if self.exchange.shared.hub.woke_few_links() != woken_before {
                // Other nodes have the change before the client has the answer, and with it those of
                // the connections that are next.
                rt::yield_now().await;
            }
            let leave = self.exchange.may_produce().await;
            busy |= self.exchange.produce();
            drop(leave);
            self.flush().await?;
            if let Some(end) = self.must_end() {
                return Ok(end);
            }
            if self.exchange.input.at_end {
                if self.exchange.session.patience.is_waiting() {
                    // Perhaps the client is gone: no node is waited for.
                    self.exchange.session.patience.give_up();
                    continue;
                }
                if !busy && self.finish_after_end().await? {
                    return Ok(End::Quiet);
                }
                if self.exchange.searches_for_nobody() {
                    self.exchange.end_all();
                    self.flush().await?;
                    return Ok(End::Quiet);
                }
            }
            if !busy {
                self.wait().await?;
                continue;
            }
            if self.exchange.wants_more() {
                self.try_read()?;
            }
            // There is more to do here, but others have their turn first.
            rt::yield_now().await;
        }
    }

    /// Begins a round, or returns why the connection must end instead.
    fn begin_round(&mut self) -> Option<End> {
        if self.exchange.shared.is_abandoned() {
            return Some(End::Quiet);
        }
        self.exchange.begin_round();
        self.exchange.listen_for_policies();
        if self.exchange.is_shut_out() {
            return Some(End::ShutOut);
        }
        self.exchange.overstays().map(End::Overstays)
    }

    /// Why the connection must end now that its output is written, if it must.
    fn must_end(&mut self) -> Option<End> {
        if self.exchange.shared.is_abandoned() {
            Some(End::Quiet)
        } else if self.exchange.shared.is_stopping() {
            Some(End::Stopping)
        } else if !self.exchange.session.account.is_closing() {
            None
        } else if self.exchange.is_shut_out() {
            Some(End::ShutOut)
        } else {
            Some(End::Memory)
        }
    }

    /// Ends the connection, and says why if somebody wants to know.
    async fn end_for(&mut self, end: &End) -> io::Result<()> {
        match end {
            End::Quiet => Ok(()),
            End::Refused(error) => self.end_after(Vec::new(), error).await,
            End::ShutOut => self.end_shut_out().await,
            End::Overstays(error) => self.end_stranger(error).await,
            End::Stopping => self.end().await,
            End::Memory => self.end_for_memory().await,
            End::Said => {
                self.exchange.until_safe().await;
                if self.exchange.is_shut_out() {
                    return self.end_shut_out().await;
                }
                let last = std::mem::take(&mut self.exchange.out);
                let last = self.seal(last);
                linger(&self.socket, &last, LINGER).await;
                Ok(())
            }
        }
    }

    /// The client speaks TLS, although it was greeted in plain text: it is greeted again.
    async fn begin_tls(&mut self, settings: &TlsSettings) -> io::Result<()> {
        let said = self.exchange.input.take_all();
        let channel = tls::begin(&self.socket, &self.exchange.shared, settings, &said).await;
        self.tls = Some(Box::new(channel.map_err(io::Error::other)?));
        self.note_certificate();
        self.greet();
        self.flush().await?;
        self.take_plaintext();
        Ok(())
    }

    /// Whether it is TLS, and whom the client's certificate names: as that user it is logged in.
    fn note_certificate(&mut self) {
        self.exchange.session.guest.note_tls(self.tls.is_some());
        match self.tls.as_ref().map(|channel| channel.user()) {
            Some(Ok(Some(user))) => {
                tracing::debug!(user, "a client has a certificate");
                let until = self.tls.as_ref().and_then(|channel| channel.user_until());
                let end_ms = until.unwrap_or(0).saturating_mul(1_000);
                self.exchange.session.certify(user, end_ms);
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
        let qlen = self.exchange.shared.config.qlen;
        let directory = self.exchange.shared.policy_data.directory(&self.exchange.shared.hub);
        let nonce = self.exchange.session.guest.nonce;
        let mut offer = methods::offer(&directory, self.exchange.shared.must_log_in(), nonce);
        if self.exchange.shared.grace_ms().is_some() {
            offer.soon = directory.login().map(|login| login.name().into());
        }
        let network = self.exchange.shared.info.network();
        let out = &mut self.exchange.out;
        self.exchange.shared.hub.read(|engine| {
            let name = engine.id().name.as_str();
            let (tick, tock) = (engine.tick(), engine.tock());
            let greeting = Greeting {
                node: name,
                network: &network,
                tick,
                tock,
                qlen,
                clock: rt::awake_or_not(),
            };
            write_greeting(&greeting, &offer, out);
        });
    }

    /// Writes all output. A client that takes nothing for too long is given up.
    async fn flush(&mut self) -> io::Result<()> {
        self.exchange.until_safe().await;
        self.tell_memory();
        if self.exchange.out.is_empty()
            && self.tls.as_ref().is_none_or(|tls| tls.outgoing().is_empty())
        {
            return Ok(());
        }
        if self.exchange.is_shut_out() {
            // Whatever was read after that moment is in the output that is dropped here.
            self.end_shut_out().await?;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let stall = Duration::from_millis(self.exchange.shared.config.write_stall_ms);
        self.exchange.note_moved();
        let moved = || self.exchange.session.account.note_moved(rt::now());
        let counts = &*self.exchange.shared.counts;
        let stalled = |error: io::Error| {
            if error.kind() == io::ErrorKind::TimedOut {
                counts.note_stalled();
            }
            error
        };
        let mut sent = 0;
        match &mut self.tls {
            None => {
                let closing = &mut self.exchange.closing;
                write_out(&self.socket, closing, stall, &self.exchange.out, moved)
                    .await
                    .map_err(stalled)?;
                sent = self.exchange.out.len();
            }
            Some(channel) => {
                let mut from = 0;
                loop {
                    let rest = self.exchange.out.get(from..).unwrap_or_default();
                    from += channel.write(rest).map_err(io::Error::other)?;
                    let bytes = channel.outgoing();
                    if bytes.is_empty() {
                        break;
                    }
                    let closing = &mut self.exchange.closing;
                    write_out(&self.socket, closing, stall, bytes, moved).await.map_err(stalled)?;
                    let count = bytes.len();
                    channel.sent(count);
                    sent += count;
                }
            }
        }
        self.exchange.out.clear();
        self.exchange.meter.note_sent(sent as u64, counts, &self.exchange.session.traffic);
        if self.exchange.session.long_batch.is_none() {
            let waits_for_copies = !self.exchange.session.copies.is_empty();
            self.exchange.meter.note_answered(waits_for_copies, rt::now_us, counts);
        }
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
        self.exchange.meter.received += bytes as u64;
        let Some(channel) = &mut self.tls else {
            self.exchange.input.filled(bytes);
            return Ok(());
        };
        if bytes == 0 {
            // Whether it was closed or cut: messages that are whole are carried out, as without TLS.
            self.exchange.input.filled(0);
            return Ok(());
        }
        let room = self.exchange.input.room();
        channel.feed(room.get(..bytes).unwrap_or_default()).map_err(io::Error::other)?;
        self.take_plaintext();
        Ok(())
    }

    /// Moves what the TLS session has decrypted to the input.
    fn take_plaintext(&mut self) {
        let Some(channel) = &mut self.tls else { return };
        while !channel.plaintext().is_empty() {
            let count = channel.take(self.exchange.input.room());
            self.exchange.input.filled(count);
        }
        if channel.is_peer_closed() {
            self.exchange.input.filled(0);
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
        self.exchange.tell_memory(CONNECTION_BYTES + tls);
    }

    /// Reads available data, without waiting; returns whether there was any (or the end).
    fn try_read(&mut self) -> io::Result<bool> {
        let mut is_new = false;
        loop {
            let room = Self::room(&mut self.exchange.input, self.tls.as_deref());
            let len = room.len();
            match (&*SockRef::from(&self.socket)).read(room) {
                Ok(bytes) => {
                    self.arrived(bytes)?;
                    is_new = true;
                    // As much as fitted: there is probably more, and a batch should be all of it.
                    if bytes < len || !self.exchange.wants_more() {
                        return Ok(true);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(is_new),
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits until there is something to do; returns after one turn of other tasks if bytes are available.
    async fn wait(&mut self) -> io::Result<()> {
        // Other tasks get their turn before the socket is asked once more: that gives the
        // next request time to arrive.
        rt::yield_now().await;
        if self.exchange.listen_for_ready() {
            return Ok(());
        }
        let woken = match self.exchange.time_left() {
            None => poll_fn(|cx| self.poll_wake(cx)).await?,
            Some(left) => match rt::timeout(left, poll_fn(|cx| self.poll_wake(cx))).await {
                Some(woken) => woken?,
                None => Woken::Event,
            },
        };
        match woken {
            Woken::Read(bytes) => {
                self.arrived(bytes)?;
                if self.exchange.input.is_full() && self.exchange.wants_more() {
                    self.try_read()?;
                }
            }
            Woken::Event | Woken::Stopping => {}
        }
        Ok(())
    }

    /// What makes output comes first. The socket is asked once, then the reactor is armed.
    fn poll_wake(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<Woken>> {
        if self.exchange.poll_events(cx).is_ready() {
            return Poll::Ready(Ok(Woken::Event));
        }
        if self.exchange.wants_more() {
            let mut socket = &self.socket;
            let room = Self::room(&mut self.exchange.input, self.tls.as_deref());
            let read = Pin::new(&mut socket).poll_read(cx, room);
            if let Poll::Ready(read) = read {
                return Poll::Ready(read.map(Woken::Read));
            }
        }
        self.exchange.input.shrink();
        self.exchange.out.shrink_to(IDLE_BYTES);
        if let Some(tls) = &mut self.tls {
            tls.shrink();
        }
        self.tell_memory();
        if self.exchange.poll_end(cx).is_ready() {
            return Poll::Ready(Ok(Woken::Stopping));
        }
        Poll::Pending
    }

    /// The client sends nothing any more: open requests are ended, or finished if possible. Returns
    /// whether nothing is left.
    async fn finish_after_end(&mut self) -> io::Result<bool> {
        let cx = self.exchange.session.context(&self.exchange.shared, rt::now());
        self.exchange.session.end_endless(&cx, &mut self.exchange.out);
        self.flush().await?;
        Ok(self.exchange.session.is_quiet())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most that the task of a connection may take, bytes. It takes nearly that.
    const TASK_BYTES_MAX: usize = 4_608;

    #[test]
    fn a_task_is_small() {
        fn size<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = size(serve);
        assert!(bytes <= TASK_BYTES_MAX, "{bytes}");
    }
}
