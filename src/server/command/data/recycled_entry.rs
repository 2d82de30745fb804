//! Overwritten entries that are not used any more, kept for a moment: the next ones are made in
//! their memory. It is in the processor's caches, because it was just used; memory from an
//! allocator after many changes in no order has not been touched for long.

use std::cell::RefCell;

use crate::model::entry::Entry;

/// Most that a thread keeps: as many as a batch has messages.
const SPARE_MAX: usize = 256;
/// Larger ones are not kept; so that is 256 KiB for each thread at most.
const SPARE_BYTES_MAX: usize = 1 << 10;

thread_local! {
    static SPARE: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Keeps an entry, if there is room.
pub(in crate::server::command) fn give(entry: Option<Entry>) {
    let Some(entry) = entry.filter(|entry| entry.memory_bytes() <= SPARE_BYTES_MAX) else { return };
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < SPARE_MAX {
            spare.push(entry);
        }
    });
}

/// The one that was kept last.
pub(in crate::server::command) fn take() -> Option<Entry> {
    SPARE.with_borrow_mut(Vec::pop)
}
