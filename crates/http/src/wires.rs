//! A connection and timers of the runtime as `hyper` wants them. A client that takes nothing of what is
//! written to it for too long loses its connection.

use std::future::Future;
use std::io::{self, Read as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use distkv_tls::{Channel, TlsError};
use futures::io::{AsyncRead, AsyncWrite};
use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};

use crate::rt::{Alarm, TcpStream};
use crate::secured::Begun;
use crate::targets::Heads;

/// How much is read at once.
const READ_BYTES: usize = 4 << 10;

/// A connection, in plain text or by TLS.
pub(crate) struct Wire {
    stream: TcpStream,
    /// The session, if TLS is spoken. Its handshake is done.
    channel: Option<Channel>,
    /// Plain text that was read before, to be read first: from `taken` on.
    said: Vec<u8>,
    taken: usize,
    /// Looks at what is read.
    heads: Heads,
    patience: Duration,
    /// Rings when a write has waited for too long; none while none waits.
    stalled: Option<Pin<Box<Alarm>>>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, begun: Begun, patience: Duration, heads: Heads) -> Self {
        let Begun { channel, said } = begun;
        Self { stream, channel, said, taken: 0, heads, patience, stalled: None }
    }

    /// Reads from the socket as it is.
    fn poll_socket(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }

    /// Reads into `part`: what was said before, else what the socket or the session has.
    fn poll_some(&mut self, cx: &mut Context<'_>, part: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut before = self.said.get(self.taken..).unwrap_or_default();
        if !before.is_empty() {
            let count = before.read(part)?;
            self.taken += count;
            return Poll::Ready(Ok(count));
        }
        self.said = Vec::new();
        if self.channel.is_none() {
            return self.poll_socket(cx, part);
        }
        loop {
            // What a session says by itself: answers of the protocol's own, and at its end an alert.
            let is_sent = self.poll_sent(cx)?.is_ready();
            let Some(channel) = &mut self.channel else { return Poll::Ready(Ok(0)) };
            let count = channel.take(part);
            if count > 0 || part.is_empty() || channel.is_peer_closed() {
                return Poll::Ready(Ok(count));
            }
            if let Some(error) = channel.failure() {
                return Poll::Ready(Err(io::Error::other(error.clone())));
            }
            if !channel.wants_more() && !is_sent {
                return Poll::Pending;
            }
            let mut bytes = [0; READ_BYTES];
            let count = ready!(self.poll_socket(cx, &mut bytes))?;
            let Some(channel) = &mut self.channel else { return Poll::Ready(Ok(0)) };
            let came = match count {
                0 => channel.ended().and(Err(TlsError::Cut)),
                count => channel.feed(bytes.get(..count).unwrap_or_default()),
            };
            if let Err(error) = came {
                // Its alert goes out if it can.
                let _ = self.poll_sent(cx);
                return Poll::Ready(Err(io::Error::other(error)));
            }
        }
    }

    /// Writes what the session has encrypted, all of it; at once done in plain text.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(channel) = &mut self.channel {
            let bytes = channel.outgoing();
            if bytes.is_empty() {
                break;
            }
            match Pin::new(&mut self.stream).poll_write(cx, bytes) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    channel.sent(count);
                    self.stalled = None;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return self.poll_patience(cx),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// To be called while nothing can be written: ends in an error when that has lasted for too long.
    fn poll_patience<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let patience = self.patience;
        let alarm = self.stalled.get_or_insert_with(|| Box::pin(Alarm::after(patience)));
        alarm.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; READ_BYTES];
        let room = buffer.remaining().min(READ_BYTES);
        let part = bytes.get_mut(..room).unwrap_or_default();
        let count = ready!(self.poll_some(cx, part))?;
        let read = part.get(..count).unwrap_or_default();
        self.heads.look(read);
        buffer.put_slice(read);
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.channel.is_some() {
            // Not more than one batch is encrypted before the socket has taken it.
            ready!(self.poll_sent(cx))?;
        }
        if let Some(channel) = &mut self.channel {
            let count = channel.write(bytes).map_err(io::Error::other)?;
            // What does not go out now does when it is flushed, or before more is written.
            return match self.poll_sent(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(count)),
            };
        }
        if let Poll::Ready(done) = Pin::new(&mut self.stream).poll_write(cx, bytes) {
            self.stalled = None;
            return Poll::Ready(done);
        }
        self.poll_patience(cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(channel) = &mut self.channel {
            // After a failure there is nothing more to say.
            let _ = channel.close();
        }
        ready!(self.poll_sent(cx))?;
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

/// The runtime's timers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers;

impl Timer for Timers {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Ring(Alarm::after(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Ring(Alarm::at(deadline)))
    }
}

struct Ring(Alarm);

impl Future for Ring {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Sleep for Ring {}
