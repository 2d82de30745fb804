//! A connection and timers of the runtime as `hyper` wants them. A client that takes nothing of what is
//! written to it for too long loses its connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::io::{AsyncRead, AsyncWrite};
use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};

use crate::rt::{Alarm, TcpStream};

/// How much is read at once.
const READ_BYTES: usize = 4 << 10;

/// A connection.
pub(crate) struct Wire {
    stream: TcpStream,
    patience: Duration,
    /// Rings when a write has waited for too long; none while none waits.
    stalled: Option<Pin<Box<Alarm>>>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, patience, stalled: None }
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
        match Pin::new(&mut self.stream).poll_read(cx, part) {
            Poll::Ready(Ok(count)) => {
                buffer.put_slice(part.get(..count).unwrap_or_default());
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(done) = Pin::new(&mut self.stream).poll_write(cx, bytes) {
            self.stalled = None;
            return Poll::Ready(done);
        }
        let patience = self.patience;
        let alarm = self.stalled.get_or_insert_with(|| Box::pin(Alarm::after(patience)));
        alarm.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
