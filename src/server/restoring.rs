//! A snapshot that a client uploads, to be taken into the network (replication rule 9).
//!
//! The pieces go to a thread that reads them as they come; nothing is taken in before the whole
//! snapshot was read and found good. Only one is uploaded at a time, because it needs as much memory
//! as the state itself.

use std::io::{self, Read};
use std::sync::Arc;

use async_channel::{Receiver, Sender};
use parking_lot::Mutex;

use crate::engine::Image;
use crate::engine::take_in::TakenIn;
use crate::hub::Hub;
use crate::model::ids::Millis;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::replica::across::AcrossFailure;
use crate::rt;
use crate::server::connection::no_thread;
use crate::server::unsynced::in_flight;
use crate::storage::{FileHeader, StorageError, read_snapshot};

/// Pieces that wait for the thread; a client's message is at most 8 MiB.
const PIECES_MAX: usize = 2;
/// An upload that was idle for this long gives way to another one.
const IDLE_MS: Millis = 60_000;
/// Entries that are taken in under one guard.
const ENTRIES_PER_GUARD: usize = 256;
/// What messages call the file.
const NAME: &str = "the uploaded snapshot";

/// The present upload, of all connections: a number, and when its last piece came.
#[derive(Default)]
pub(super) struct UploadTurn {
    turn: Mutex<Turn>,
}

#[derive(Default)]
struct Turn {
    last: u64,
    current: Option<(u64, Millis)>,
}

impl UploadTurn {
    fn take(&self, now: Millis) -> Option<u64> {
        let mut turn = self.turn.lock();
        if turn.current.is_some_and(|(_, heard)| now.saturating_sub(heard) < IDLE_MS) {
            return None;
        }
        turn.last += 1;
        turn.current = Some((turn.last, now));
        Some(turn.last)
    }

    /// A piece came; returns whether it is still this upload's turn.
    fn keep(&self, number: u64, now: Millis) -> bool {
        match &mut self.turn.lock().current {
            Some((current, heard)) if *current == number => {
                *heard = now;
                true
            }
            _ => false,
        }
    }

    fn give_up(&self, number: u64) {
        let mut turn = self.turn.lock();
        if turn.current.is_some_and(|(current, _)| current == number) {
            turn.current = None;
        }
    }
}

/// An upload under way.
pub(super) struct Upload {
    turn: Arc<UploadTurn>,
    number: u64,
    pieces: Sender<Vec<u8>>,
    result: Receiver<Result<(FileHeader, Image), StorageError>>,
    bytes: u64,
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.turn.give_up(self.number);
    }
}

impl Upload {
    /// Begins one.
    pub(super) fn begin(turn: &Arc<UploadTurn>, now: Millis) -> Result<Self, ClientError> {
        let number = turn.take(now).ok_or_else(|| {
            let text = "a snapshot is being restored already; try again when it is done";
            ClientError::new(ErrorCode::TooMany, text)
        })?;
        let (pieces, source) = async_channel::bounded(PIECES_MAX);
        let (sender, result) = async_channel::bounded(1);
        let upload = Self { turn: Arc::clone(turn), number, pieces, result, bytes: 0 };
        let spawned = rt::spawn_thread("upload", move || {
            let source = PieceReader { source, piece: Vec::new(), at: 0 };
            let read = read_snapshot(NAME, Box::new(source), rt::random_u64(), &mut |_| {});
            // No task waits for it if the connection has gone.
            let _ = sender.send_blocking(read);
        });
        // If there is no thread, dropping the upload gives its turn back.
        spawned.map(|_detached| upload).map_err(|error| no_thread(&error))
    }

    /// How many bytes have come.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the next piece. Waits until there is room for it.
    pub(super) fn push(&mut self, piece: Vec<u8>, now: Millis) -> Result<(), ClientError> {
        self.check_turn(now)?;
        self.bytes += piece.len() as u64;
        if self.pieces.send_blocking(piece).is_ok() {
            return Ok(());
        }
        // The reader has had enough of it.
        match self.result.recv_blocking() {
            Ok(Err(error)) => Err(bad_snapshot(&error)),
            Ok(Ok(_)) | Err(_) => {
                Err(ClientError::bad_request("there is more behind the snapshot's end"))
            }
        }
    }

    /// All of it has arrived: its content.
    pub(super) fn finish(&self) -> Result<(FileHeader, Image), ClientError> {
        self.pieces.close();
        match self.result.recv_blocking() {
            Ok(read) => read.map_err(|error| bad_snapshot(&error)),
            Err(_) => Err(ClientError::new(ErrorCode::Internal, "reading the snapshot failed")),
        }
    }

    fn check_turn(&self, now: Millis) -> Result<(), ClientError> {
        if self.turn.keep(self.number, now) {
            return Ok(());
        }
        let text = "the upload was idle for too long, and another one has begun";
        Err(ClientError::new(ErrorCode::TooSlow, text))
    }

    /// Takes the state into the engine, some entries at a time, as fast as the disk keeps up.
    pub(super) fn take_in(&self, hub: &Hub, image: Image) -> Result<TakenIn, ClientError> {
        let mut state = hub.change(|engine, _| engine.begin_take_in(image)).map_err(refused)?;
        loop {
            // The network's own changes continue meanwhile; no other upload may begin.
            self.turn.keep(self.number, rt::now());
            if let Some(log) = hub.log() {
                rt::block_on(log.room());
            }
            let batch = state.next_batch(ENTRIES_PER_GUARD);
            if batch.is_empty() {
                break;
            }
            hub.change(|engine, out| engine.take_in_some(&mut state, &batch, out))
                .map_err(refused)?;
        }
        let (done, number) = hub.change_numbered(|engine, out| engine.end_take_in(&state, out));
        let done = done.map_err(refused)?;
        if let Some(log) = hub.log().filter(|log| log.gates()) {
            rt::block_on(log.until_synced(number)).map_err(|failure| in_flight(&failure))?;
        }
        Ok(done)
    }
}

fn bad_snapshot(error: &StorageError) -> ClientError {
    ClientError::bad_request(format!("{error}; nothing was taken in"))
}

fn refused(failure: AcrossFailure) -> ClientError {
    let text = match failure {
        AcrossFailure::NoEvent => {
            "this node cannot make changes now (its identity is in doubt, or it knows of too many \
             nodes); entries may have been taken in; try again"
        }
        AcrossFailure::Unanswered | AcrossFailure::Overtaken => {
            "purges went on meanwhile; entries were taken in; try again"
        }
    };
    ClientError::new(ErrorCode::NoEvent, text)
}

/// The pieces as one stream of bytes.
struct PieceReader {
    source: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.piece.len() {
            match self.source.recv_blocking() {
                Ok(piece) => (self.piece, self.at) = (piece, 0),
                // All has arrived; or the connection has gone, and the result is not needed.
                Err(_) => return Ok(0),
            }
        }
        let rest = self.piece.get(self.at..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_uploads_at_a_time_unless_it_has_fallen_silent() {
        let turn = UploadTurn::default();
        let first = turn.take(0).unwrap();
        assert_eq!(turn.take(IDLE_MS - 1), None);
        assert!(turn.keep(first, 50_000));
        assert_eq!(turn.take(IDLE_MS), None);
        let second = turn.take(50_000 + IDLE_MS).unwrap();
        assert!(!turn.keep(first, 50_001 + IDLE_MS));
        turn.give_up(first);
        assert!(turn.keep(second, 50_002 + IDLE_MS), "what is over cannot take the turn away");
        turn.give_up(second);
        assert!(turn.take(50_003 + IDLE_MS).is_some());
    }
}
