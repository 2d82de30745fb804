//! Writes a link: live frames first, and below them a catch-up that is being answered.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_lock::{Semaphore, SemaphoreGuardArc};
use futures::future::{Either, select};
use futures::io::AsyncWriteExt;

use super::catch_up_pacing::Pace;
use super::link::{Link, LinkEnd};
use super::liveness::sign_of_life;
use crate::engine::{CloseReason, Input, ServeJob};
use crate::hub::Hub;
use crate::hub::link_queue::LinkWork;
use crate::model::ids::{Millis, NodeTable, Tick};
use crate::protocol::frame::PART_BYTES;
use crate::protocol::peer::{PeerMessage, RefuseReason, write_arriving};
use crate::rt;
use crate::secure::link::Sealer;

/// About this many bytes of frames go into one write.
const WRITE_BYTES: usize = 64 << 10;
/// A frame of this size or more is written as it is, not copied together with others.
const WHOLE_BYTES: usize = 16 << 10;
/// A big write that took this long has waited until the peer's system took earlier data.
const WAITED_MS: Millis = 2;
/// What an idle link keeps for putting frames together.
const IDLE_BYTES: usize = 4 << 10;

/// What a link's writer has in hand.
pub(super) struct Writer {
    hub: Arc<Hub>,
    link: Arc<Link>,
    /// How many catch-ups this node answers at once.
    serves: Arc<Semaphore>,
    /// Held while a catch-up is being answered.
    permit: Option<SemaphoreGuardArc>,
    pace: Pace,
    /// It rested after the last piece of a catch-up.
    rested: bool,
    /// The last answer whose snapshot is known to be safe: it gets no younger.
    safe_serve: Option<u64>,
    out: Vec<u8>,
    /// Of a sealed link.
    sealing: Option<Sealing>,
}

/// What a sealed link's bytes pass through.
struct Sealing {
    sealer: Sealer,
    /// The records that are written next.
    records: Vec<u8>,
}

impl Writer {
    pub(super) fn new(
        hub: Arc<Hub>,
        link: Arc<Link>,
        serves: Arc<Semaphore>,
        sealer: Option<Sealer>,
    ) -> Self {
        Self {
            hub,
            link,
            serves,
            permit: None,
            pace: Pace::default(),
            rested: false,
            safe_serve: None,
            out: Vec::new(),
            sealing: sealer.map(|sealer| Sealing { sealer, records: Vec::new() }),
        }
    }

    /// Writes until the link ends, and says why it did. [`LinkEnd::Left`] after everything
    /// that was queued has been given to the system.
    pub(super) async fn run(mut self) -> LinkEnd {
        let mut listener = None;
        loop {
            if let Some(end) = self.link.end() {
                return end;
            }
            if let Err(error) = self.give_signs().await {
                return LinkEnd::Broken(error.to_string());
            }
            let wrote = match self.link.queue.next(WRITE_BYTES) {
                LinkWork::Frames(frames) => self.write_frames(&frames).await,
                LinkWork::Lagged => {
                    if self.link.is_lag_news(rt::now()) {
                        tracing::warn!(
                            peer = %self.link.peer.name,
                            dropped = self.link.queue.dropped(),
                            "the peer did not keep up; it will fetch what it missed"
                        );
                    }
                    self.hub.handle(Input::Lagged { link: self.link.id }, rt::now());
                    Ok(())
                }
                LinkWork::Serve(job) => self.serve(job).await,
                LinkWork::Close(CloseReason::Left) => return LinkEnd::Left,
                LinkWork::Close(CloseReason::TableFull) => return LinkEnd::TableFull,
                LinkWork::Close(CloseReason::ClockTooFar) => return LinkEnd::ClockTooFar,
                LinkWork::Close(CloseReason::Unneeded) => return LinkEnd::Unneeded,
                LinkWork::Wait => {
                    match listener.take() {
                        // Look again, now that nothing can be missed.
                        None => listener = Some(self.link.queue.changed.listen()),
                        Some(listener) => {
                            self.out.shrink_to(IDLE_BYTES);
                            if let Some(sealing) = &mut self.sealing {
                                sealing.records.clear();
                                sealing.records.shrink_to(IDLE_BYTES);
                            }
                            listener.await;
                        }
                    }
                    continue;
                }
            };
            listener = None;
            if let Err(error) = wrote {
                return LinkEnd::Broken(error.to_string());
            }
        }
    }

    /// Gives the signs of life that must be given: an acknowledgement of nothing, for which peers have no other use;
    /// and tells that bytes arrive.
    async fn give_signs(&mut self) -> std::io::Result<()> {
        let (signs, arriving) = (self.link.take_signs_wanted(), self.link.take_arriving(rt::now()));
        if signs == 0 && arriving.is_none() {
            return Ok(());
        }
        self.out.clear();
        for _ in 0..signs {
            sign_of_life().encode(&NodeTable::new(), &mut self.out);
        }
        if let Some(for_ms) = arriving {
            write_arriving(for_ms, &mut self.out);
        }
        self.flush().await
    }

    /// Waits until everything up to this moment may be seen outside; gives signs of life meanwhile.
    /// If it cannot be synced, waiting is useless: the others' copies are the better ones then.
    async fn until_safe(&mut self) -> std::io::Result<()> {
        let Some(log) = self.hub.log().filter(|log| log.gates()).cloned() else { return Ok(()) };
        let mut safe = pin!(log.until_synced(log.appended()));
        let link = Arc::clone(&self.link);
        loop {
            let changed = link.queue.changed.listen();
            if link.end().is_some() {
                return Ok(());
            }
            self.give_signs().await?;
            if let Either::Left(_) = select(&mut safe, changed).await {
                return Ok(());
            }
        }
    }

    async fn write_frames(&mut self, frames: &[Arc<[u8]>]) -> std::io::Result<()> {
        self.until_safe().await?;
        self.link.note_frames(rt::now());
        if self.sealing.is_some() {
            return self.write_parts(frames.iter().map(|frame| &**frame)).await;
        }
        if let [frame] = frames {
            return self.write(frame).await;
        }
        self.out.clear();
        for frame in frames {
            if frame.len() >= WHOLE_BYTES {
                self.flush().await?;
                self.write(frame).await?;
            } else {
                self.out.extend_from_slice(frame);
            }
        }
        self.flush().await
    }

    async fn flush(&mut self) -> std::io::Result<()> {
        let out = std::mem::take(&mut self.out);
        let wrote = self.write(&out).await;
        self.out = out;
        self.out.clear();
        wrote
    }

    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self.sealing {
            None => self.write_raw(bytes).await,
            Some(_) => self.write_parts([bytes]).await,
        }
    }

    /// Of a sealed link: seals what lies in several places into as few records as possible.
    async fn write_parts<'a>(
        &mut self,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> std::io::Result<()> {
        let Some(sealing) = &mut self.sealing else { return Ok(()) };
        let mut records = std::mem::take(&mut sealing.records);
        records.clear();
        sealing.sealer.seal_parts(parts, &mut records).map_err(std::io::Error::other)?;
        let wrote = self.write_raw(&records).await;
        if let Some(sealing) = &mut self.sealing {
            sealing.records = records;
        }
        wrote
    }

    /// Notes each piece that was taken as progress; the watchdog closes a link without any.
    async fn write_raw(&self, mut bytes: &[u8]) -> std::io::Result<()> {
        let mut stream = &self.link.stream;
        let mut last = rt::now();
        let whole = bytes.len();
        self.link.note_write_begins(whole, last);
        while !bytes.is_empty() {
            self.link.note_writing(last);
            let count = stream.write(bytes).await?;
            self.link.note_taken(count);
            let now = rt::now();
            let waited = now.saturating_sub(last);
            if count >= WHOLE_BYTES && waited >= WAITED_MS {
                self.link.note_flow(waited, now);
            }
            last = now;
            if count == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            bytes = bytes.get(count..).unwrap_or_default();
        }
        self.link.traffic.note_sent(whole);
        self.link.note_written();
        Ok(())
    }

    /// Sends the next part of a catch-up's answer.
    async fn serve(&mut self, mut job: Box<ServeJob>) -> std::io::Result<()> {
        self.out.clear();
        if self.permit.is_none() {
            self.permit = self.serves.try_acquire_arc();
        }
        if self.permit.is_none() {
            let refused = PeerMessage::CatchUpRefused { id: job.id(), reason: RefuseReason::Busy };
            drop_aside(job);
            refused.encode(&NodeTable::new(), &mut self.out);
            return self.flush().await;
        }
        if self.safe_serve != Some(job.id()) {
            self.safe_serve = Some(job.id());
            self.until_safe().await?;
        }
        self.link.note_serving(true);
        self.link.note_frames(rt::now());
        let began = rt::now_us();
        // While clients write here, a little at a time.
        let bytes_max = if self.rested { 0 } else { WRITE_BYTES };
        let is_done = loop {
            let is_done = job.next_frames(PART_BYTES, &mut self.out);
            if is_done || self.out.len() >= bytes_max {
                break is_done;
            }
        };
        if is_done {
            drop_aside(job);
            self.permit = None;
            self.link.note_serving(false);
        } else if let Some(unwanted) = self.link.queue.put_back(job) {
            // A newer request has taken its place: then this one is not needed any more.
            drop_aside(unwanted);
        }
        let worked = Duration::from_micros(rt::now_us().saturating_sub(began));
        self.flush().await?;
        let rest = self.pace.rest(own_tick(&self.hub), rt::now(), worked);
        self.rested = rest.is_some();
        match rest {
            Some(rest) => rt::sleep(rest).await,
            // A fast peer never makes us wait, so others would not get to run.
            None => rt::yield_now().await,
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A catch-up that is not over holds a snapshot, perhaps the last one of a big tree.
        if let Some(job) = self.link.queue.take_serve() {
            drop_aside(job);
        }
    }
}

/// This node's last tick; none while it is not ready.
pub(super) fn own_tick(hub: &Hub) -> Option<Tick> {
    hub.read(|engine| engine.tick().filter(|_| engine.is_ready()))
}

/// Drops a snapshot where that may take its time.
fn drop_aside(job: Box<ServeJob>) {
    rt::spawn_blocking(move || drop(job));
}
