//! A snapshot that a client uploads, to be taken into the network (replication rule 9).
//!
//! The pieces go to a thread that reads them as they come; nothing is taken in before the whole
//! snapshot was read and found good. Only one is uploaded at a time, because it needs as much memory
//! as the state itself. That counts as what is kept for clients (`--max-client-memory`), and a piece for
//! which there is no room ends the upload: nobody else is closed for it.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_channel::{Receiver, Sender};
use parking_lot::Mutex;

use crate::engine::changes::{BeginTakeIn, EndTakeIn, TakeInSome};
use crate::engine::take_in::TakenIn;
use crate::engine::{Engine, Image};
use crate::hub::Hub;
use crate::hub::client_memory::Account;
use crate::model::ids::Millis;
use crate::protocol::client::{ClientError, ErrorCode};
use crate::replica::across::AcrossFailure;
use crate::rt;
use crate::server::connections::exchange::no_thread;
use crate::server::connections::unsynced_replies::in_flight;
use crate::storage::{FileHeader, Progress, StorageError, read_snapshot};

/// Pieces that wait for the thread; a client's message is a little over 8 MiB at most.
const PIECES_MAX: usize = 2;
/// An upload that was idle for this long gives way to another one.
const IDLE_MS: Millis = 60_000;
/// Entries that are taken in under one guard.
const ENTRIES_PER_GUARD: usize = 256;
/// What an entry takes in memory beyond what it takes in the file: allocations, and its places in the
/// tree's indexes.
const ENTRY_BYTES: u64 = 128;
/// A piece may need so many times as much memory as it has bytes, where entries are small.
const PIECE_GROWTH: usize = 4;
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
    account: Arc<Account>,
    /// How many entries were read.
    entries: Arc<AtomicU64>,
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.turn.give_up(self.number);
        self.account.set_upload(0);
    }
}

impl Upload {
    /// Begins one, of the connection with this account.
    pub(super) fn begin(
        turn: &Arc<UploadTurn>,
        account: &Arc<Account>,
        now: Millis,
    ) -> Result<Self, ClientError> {
        let number = turn.take(now).ok_or_else(|| {
            let text = "a snapshot is being restored already; try again when it is done";
            ClientError::new(ErrorCode::TooMany, text)
        })?;
        let (pieces, source) = async_channel::bounded(PIECES_MAX);
        let (sender, result) = async_channel::bounded(1);
        let entries = Arc::new(AtomicU64::new(0));
        let upload = Self {
            turn: Arc::clone(turn),
            number,
            pieces,
            result,
            bytes: 0,
            account: Arc::clone(account),
            entries: Arc::clone(&entries),
        };
        let spawned = rt::spawn_thread("upload", move || {
            let source = PieceReader { source, piece: Vec::new(), at: 0 };
            let mut note = |progress: Progress| entries.store(progress.entries, Ordering::Relaxed);
            let read = read_snapshot(NAME, Box::new(source), rt::random_u64(), &mut note);
            // Nobody waits for it, if the connection has gone.
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
        if !self.account.has_room(piece.len().saturating_mul(PIECE_GROWTH)) {
            return Err(no_room());
        }
        self.bytes += piece.len() as u64;
        self.tell_memory();
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
        let read = self.result.recv_blocking();
        self.tell_memory();
        match read {
            Ok(read) => read.map_err(|error| bad_snapshot(&error)),
            Err(_) => Err(ClientError::new(ErrorCode::Internal, "reading the snapshot failed")),
        }
    }

    /// Tells what the upload takes now: what has come, and what its entries take besides.
    fn tell_memory(&self) {
        let entries = self.entries.load(Ordering::Relaxed);
        let bytes = self.bytes.saturating_add(entries.saturating_mul(ENTRY_BYTES));
        self.account.set_upload(usize::try_from(bytes).unwrap_or(usize::MAX));
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
        if let Some(why) = image.clock_too_far(hub.read(Engine::tock)) {
            return Err(ClientError::bad_request(format!("{why}; nothing was taken in")));
        }
        let mut state = hub.handle(BeginTakeIn(image), rt::now()).map_err(refused)?;
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
            let change = TakeInSome { state: &mut state, entries: &batch };
            hub.handle(change, rt::now()).map_err(refused)?;
        }
        let (done, number) = hub.handle_logged(EndTakeIn(&state), rt::now());
        let done = done.map_err(refused)?;
        if let Some(log) = hub.log().filter(|log| log.gates()) {
            rt::block_on(log.until_synced(number)).map_err(|failure| in_flight(&failure))?;
        }
        Ok(done)
    }
}

fn no_room() -> ClientError {
    let text = "the snapshot needs more memory than this node may use for its clients \
        (--max-client-memory); nothing was taken in; restart the node with a higher limit, or put the \
        snapshot into the data directory of a node that is not running, with `snapshot restore --into`";
    ClientError::new(ErrorCode::MemoryFull, text)
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
