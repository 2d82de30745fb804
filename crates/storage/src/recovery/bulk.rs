//! Builds the tree of a state that is read: one thread reads and keeps the order of paths, another
//! one fills the hash map. That halves the time of a start.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::model::entry::Entry;
use crate::model::path::Path;
use crate::rt;
use crate::tree::Tree;
use crate::tree::bulk::{EntriesBuilder, OrderBuilder};

/// This many entries are handed over at once.
const CHUNK: usize = 1024;
/// At most this many chunks wait.
const CHUNKS_WAITING: usize = 16;

type Chunk = Vec<(Path, Entry)>;

/// A tree on its way.
pub(crate) struct BulkTree {
    hash_seed: u64,
    expected: usize,
    order: OrderBuilder,
    chunk: Chunk,
    filler: Filler,
}

/// What fills the hash map.
enum Filler {
    /// Nothing yet: there is less than a chunk.
    Nobody,
    Thread(SyncSender<Chunk>, JoinHandle<EntriesBuilder>),
    /// The system has no thread to give.
    Here(EntriesBuilder),
}

impl BulkTree {
    /// For about the given number of entries. The seed is for the tree's hashes.
    pub(crate) fn new(hash_seed: u64, expected: usize) -> Self {
        let order = OrderBuilder::default();
        Self { hash_seed, expected, order, chunk: Vec::new(), filler: Filler::Nobody }
    }

    /// Adds an entry; each path once, fastest in path order. The caller says whether it is a
    /// tombstone (see [`OrderBuilder::push`]).
    pub(crate) fn push(&mut self, path: Path, entry: Entry, is_tombstone: bool) {
        self.order.push(&path, &entry, is_tombstone);
        if self.chunk.capacity() == 0 {
            self.chunk.reserve_exact(CHUNK);
        }
        self.chunk.push((path, entry));
        if self.chunk.len() == CHUNK {
            let chunk = std::mem::take(&mut self.chunk);
            self.hand_over(chunk);
        }
    }

    fn hand_over(&mut self, chunk: Chunk) {
        if let Filler::Nobody = self.filler {
            self.filler = Filler::start(self.hash_seed, self.expected);
        }
        match &mut self.filler {
            // It ends only with this end of the channel, or in a panic, which `finish` meets.
            Filler::Thread(sender, _) => drop(sender.send(chunk)),
            Filler::Here(entries) => fill(entries, chunk),
            Filler::Nobody => {}
        }
    }

    /// The tree.
    pub(crate) fn finish(self) -> Tree {
        let mut entries = match self.filler {
            Filler::Nobody => EntriesBuilder::new(self.hash_seed, self.chunk.len()),
            Filler::Here(entries) => entries,
            Filler::Thread(sender, thread) => {
                drop(sender);
                // A panic continues as it would have without the thread.
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        };
        fill(&mut entries, self.chunk);
        Tree::assemble(entries, self.order)
    }
}

impl Filler {
    fn start(hash_seed: u64, expected: usize) -> Self {
        let (sender, receiver) = sync_channel::<Chunk>(CHUNKS_WAITING);
        let work = move || {
            let mut entries = EntriesBuilder::new(hash_seed, expected);
            receiver.into_iter().for_each(|chunk| fill(&mut entries, chunk));
            entries
        };
        match rt::spawn_thread("load", work) {
            Ok(thread) => Self::Thread(sender, thread),
            Err(_) => Self::Here(EntriesBuilder::new(hash_seed, expected)),
        }
    }
}

fn fill(entries: &mut EntriesBuilder, chunk: Chunk) {
    for (path, entry) in chunk {
        entries.push(path, entry);
    }
}
