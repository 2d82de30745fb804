//! `get_snapshot`: the state of one moment, as the bytes of a snapshot file, piece by piece.
//!
//! The bytes are made by a thread that is a few pieces ahead of the client and then waits for it. It
//! ends when the stream does.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_channel::{Receiver, Sender, TryRecvError};

use super::{Emit, Garbage, Progress, Source};
use crate::hub::client_memory::Pin;
use crate::hub::inbox::Inbox;
use crate::model::value::{write_bool, write_map_len, write_nil, write_str, write_u64};
use crate::protocol::client::{Action, ClientError, ErrorCode};
use crate::rt;
use crate::server::access::authorise::Target;
use crate::server::connections::exchange::no_thread;
use crate::server::connections::session::Context;
use crate::server::past::PastState;
use crate::storage::recover::PastGap;
use crate::storage::snapshot::write_snapshot_to;
use crate::storage::{FileHeader, FileId};

/// Bytes of one message.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that are made ahead.
const PIECES_AHEAD: usize = 4;
/// Snapshots at once that are made for clients, all connections together: each has a thread.
const DOWNLOADS_MAX: usize = 4;

/// One of the downloads that are allowed at once, while it lives.
pub(in crate::server) struct DownloadSlot(Arc<AtomicUsize>);

impl DownloadSlot {
    /// Takes one, if one is free.
    pub(in crate::server) fn take(downloads: &Arc<AtomicUsize>) -> Result<Self, ClientError> {
        // Counted before it is looked at, so that two cannot both be the last.
        let slot = Self(Arc::clone(downloads));
        if downloads.fetch_add(1, Ordering::AcqRel) < DOWNLOADS_MAX {
            return Ok(slot);
        }
        let text = format!("{DOWNLOADS_MAX} snapshots are being fetched already; try again later");
        Err(ClientError::new(ErrorCode::TooMany, text))
    }
}

impl Drop for DownloadSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// See the module.
pub(in crate::server) struct SnapshotSource {
    pieces: Receiver<Piece>,
}

enum Piece {
    /// With the first: why it may not be the state of the moment.
    Bytes(Vec<u8>, Option<PastGap>),
    End,
    Failed(ClientError),
}

/// Makes the state, where it may take as long as it takes; the pin accounts for it as long as it is here.
pub(in crate::server) type StateOfMoment =
    Box<dyn FnOnce() -> Result<(PastState, Pin), ClientError> + Send>;

impl SnapshotSource {
    /// Begins to make the snapshot. The inbox's event tells the connection that there is more.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(in crate::server) fn begin(
        network: String,
        state: StateOfMoment,
        inbox: Arc<Inbox>,
        slot: DownloadSlot,
    ) -> Result<Self, ClientError> {
        let (sender, pieces) = async_channel::bounded(PIECES_AHEAD);
        let spawned = rt::spawn_thread("download", move || {
            let _slot = slot;
            let mut pieces = MadePieces { sender, inbox, gap: None };
            let (PastState { image, gap }, _pin) = match state() {
                Ok(state) => state,
                // Here, too: nobody may be listening any more.
                Err(error) => return drop(pieces.send(Piece::Failed(error))),
            };
            pieces.gap = gap;
            let (id, time_ms) = (image.id().clone(), rt::wall_clock_ms());
            let header = FileHeader { number: 0, network, id, store: 0, time_ms };
            let mut writer = BufWriter::with_capacity(PIECE_BYTES, &mut pieces);
            let written =
                write_snapshot_to(&mut writer, &header, FileId::default(), &image, &mut |_| {})
                    .and_then(|_| writer.flush());
            drop(writer);
            // Nobody listens any more, if it failed.
            if written.is_ok() {
                let _ = pieces.send(Piece::End);
            }
            drop(image);
        });
        spawned.map(|_detached| Self { pieces }).map_err(|error| no_thread(&error))
    }
}

impl Source for SnapshotSource {
    fn asks(&self) -> Option<(Action, Target<'_>)> {
        Some((Action::GetSnapshot, Target::Node))
    }

    fn next(&mut self, _: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        match self.pieces.try_recv() {
            Ok(Piece::Bytes(bytes, gap)) => {
                let tock = emit.tock();
                let (mut message, tag) = emit.begin();
                if let Some(gap) = gap {
                    write_gap(gap, message.key("gap"));
                }
                message.bin("data", &bytes).tag(tag).tock(tock);
                Progress::Wrote
            }
            Ok(Piece::End) => Progress::Finished,
            Ok(Piece::Failed(error)) => Progress::Failed(error),
            Err(TryRecvError::Empty) => Progress::Idle,
            Err(TryRecvError::Closed) => {
                let text = "the snapshot could not be made";
                Progress::Failed(ClientError::new(ErrorCode::Internal, text))
            }
        }
    }

    fn holds_snapshot(&self) -> bool {
        true
    }

    fn close(self: Box<Self>, _: &Context<'_>) -> Option<Garbage> {
        None
    }
}

/// A client of an earlier version, which does not know `clock`, takes it for a time in which the node was off: it goes by the
/// state only if its user wants that, too.
fn write_gap(gap: PastGap, out: &mut Vec<u8>) {
    write_map_len(2 + usize::from(gap.is_set_back), out);
    write_str("from", out);
    write_u64(gap.from_ms, out);
    write_str("to", out);
    match gap.to_ms {
        Some(to_ms) => write_u64(to_ms, out),
        None => write_nil(out),
    }
    if gap.is_set_back {
        write_str("clock", out);
        write_bool(true, out);
    }
}

/// Makes a piece of all that is written at once, and waits if the client does not keep up.
struct MadePieces {
    sender: Sender<Piece>,
    inbox: Arc<Inbox>,
    /// Goes with the first piece.
    gap: Option<PastGap>,
}

impl MadePieces {
    fn send(&self, piece: Piece) -> io::Result<()> {
        self.sender.send_blocking(piece).map_err(|_| io::ErrorKind::BrokenPipe)?;
        self.inbox.changed.notify(usize::MAX);
        Ok(())
    }
}

impl Write for MadePieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
        let gap = self.gap.take();
        self.send(Piece::Bytes(piece.to_vec(), gap))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
