//! The writing half of a connection. A task writes what is queued, as much as possible at a time, so that a cancelled
//! request never leaves half a message behind. Who asks alone, with nothing queued, writes without waking that task: it
//! would cost more than the write.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_channel::{Receiver, SendError, Sender, TrySendError};
use parking_lot::Mutex;

use super::shared::Shared;
use crate::rt;
use crate::wire::Wire;

/// Requests that wait to be written. More wait in [`Outgoing::send`]; each is at most
/// [`REQUEST_BYTES_MAX`](crate::message::REQUEST_BYTES_MAX) long, and most are a few dozen bytes.
const OUTGOING_MAX: usize = 256;
/// Bytes that are gathered into one write.
const WRITE_BYTES: usize = 64 << 10;

/// How long what is left to be read may take, once nothing can be written any more.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Where requests go in. The connection ends when all clones are dropped.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    queue: Sender<Vec<u8>>,
    lane: Arc<Lane>,
}

/// What those who write share.
#[derive(Debug)]
struct Lane {
    /// Requests that are queued or about to be, and not written: nothing may overtake them.
    queued: AtomicUsize,
    idle: Mutex<Idle>,
}

/// The wire, while the task does not write.
struct Idle {
    /// None while it does.
    wire: Option<Wire>,
    /// What was left of the last request that was written without it.
    rest: Vec<u8>,
}

/// A request may be a login, so that its bytes are not shown.
impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Idle({:?}, {} bytes)", self.wire, self.rest.len())
    }
}

/// One that is counted as queued. Dropping it takes that back.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }

    /// It is in the queue: the task counts it off once it is written.
    fn entered(self) {
        std::mem::forget(self);
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The task that writes.
pub(super) struct Writer {
    queue: Receiver<Vec<u8>>,
    lane: Arc<Lane>,
}

/// Both ends of the queue in front of a wire.
pub(super) fn queue(wire: Wire) -> (Outgoing, Writer) {
    let (sender, receiver) = async_channel::bounded(OUTGOING_MAX);
    let idle = Mutex::new(Idle { wire: Some(wire), rest: Vec::new() });
    let lane = Arc::new(Lane { queued: AtomicUsize::new(0), idle });
    (Outgoing { queue: sender, lane: Arc::clone(&lane) }, Writer { queue: receiver, lane })
}

impl Outgoing {
    /// Writes a request, or queues it. `is_alone`: no other request waits for its answer, so none will follow it at once
    /// that could share its write.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) async fn send(
        &self,
        bytes: Vec<u8>,
        is_alone: bool,
    ) -> Result<(), SendError<Vec<u8>>> {
        if is_alone && self.write_now(&bytes) {
            return Ok(());
        }
        let queued = Queued::begin(&self.lane.queued);
        self.queue.send(bytes).await?;
        queued.entered();
        Ok(())
    }

    /// Queues a request.
    ///
    /// # Errors
    /// The queue is full, or the connection has ended.
    pub(super) fn try_send(&self, bytes: Vec<u8>) -> Result<(), TrySendError<Vec<u8>>> {
        let queued = Queued::begin(&self.lane.queued);
        self.queue.try_send(bytes)?;
        queued.entered();
        Ok(())
    }

    /// Where an empty batch can be sent, to have written what the wire itself has to say.
    pub(super) fn queue(&self) -> &Sender<Vec<u8>> {
        &self.queue
    }

    /// Writes it here and now, or as much as can be written: the rest follows before anything else. False if nothing
    /// was written.
    fn write_now(&self, bytes: &[u8]) -> bool {
        let mut idle = self.lane.idle.lock();
        if self.lane.queued.load(Ordering::Acquire) > 0 || !idle.rest.is_empty() {
            return false;
        }
        let Some(wire) = &idle.wire else { return false };
        match wire.try_write(bytes) {
            0 => return false,
            written => idle.rest.extend_from_slice(bytes.get(written..).unwrap_or_default()),
        }
        if !idle.rest.is_empty() {
            // A full queue is looked at anyway.
            let _ = self.queue.try_send(Vec::new());
        }
        true
    }
}

impl Writer {
    /// The queue, for whoever is to close it.
    pub(super) fn queue(&self) -> Receiver<Vec<u8>> {
        self.queue.clone()
    }

    /// Writes what is queued until the connection ends.
    pub(super) async fn run(self, shared: Arc<Shared>) {
        while let Ok(mut batch) = self.queue.recv().await {
            let mut count = usize::from(!batch.is_empty());
            while batch.len() < WRITE_BYTES {
                let Ok(next) = self.queue.try_recv() else { break };
                count += usize::from(!next.is_empty());
                batch.extend_from_slice(&next);
            }
            let (wire, rest) = {
                let mut idle = self.lane.idle.lock();
                (idle.wire.take(), std::mem::take(&mut idle.rest))
            };
            let Some(mut wire) = wire else { break };
            let written = match rest.as_slice() {
                [] => Ok(()),
                rest => wire.write_rest(rest).await,
            };
            let written = match written {
                Ok(()) => wire.write_all(&batch).await,
                failed => failed,
            };
            self.lane.idle.lock().wire = Some(wire);
            if let Err(error) = written {
                // What the node has said as it closed the connection says more, and may be still to be read.
                let _ = rt::timeout(LAST_WORDS, shared.closed()).await;
                shared.end(shared.lost_because(error.to_string()));
                break;
            }
            // Only now: what is written at once must not come before it.
            self.lane.queued.fetch_sub(count, Ordering::AcqRel);
        }
        // All handles are gone, or the connection is: either way the reader has nothing to wait for.
        self.queue.close();
        let wire = self.lane.idle.lock().wire.take();
        if let Some(mut wire) = wire {
            wire.close().await;
        }
    }
}
