//! Makes a snapshot while the log goes on: on a thread of its own, from a state that was taken in
//! no time; then, and only then, removes what it makes unnecessary.

use std::sync::Arc;

use super::state::{LogState, SnapshotWish};
use crate::engine::Image;
use crate::hub::log_queue::LogQueue;
use crate::model::ids::Millis;
use crate::rt;
use crate::storage::{DataDir, FileHeader, SnapshotInfo, StorageError};

/// A snapshot to be made.
pub(super) struct SaveJob {
    pub(super) dir: Arc<DataDir>,
    pub(super) header: FileHeader,
    pub(super) image: Image,
    pub(super) keep: usize,
    pub(super) state: Arc<LogState>,
    /// To call the log's thread when it is done.
    pub(super) queue: Arc<LogQueue>,
    /// Who waits for it.
    pub(super) wishes: Vec<SnapshotWish>,
}

impl SaveJob {
    /// Does it on a thread of its own.
    pub(super) fn spawn(self) {
        let (state, queue) = (Arc::clone(&self.state), Arc::clone(&self.queue));
        state.update(|view| view.is_saving = true);
        if let Err(error) = rt::spawn_background_thread("snapshot", move || self.run()) {
            state.note_saved(&Err(format!("the system has no thread for it: {error}")));
            queue.call();
        }
    }

    /// Does it here.
    pub(super) fn run(self) {
        let Self { dir, header, image, keep, state, queue, wishes } = self;
        let saved = save(&dir, &header, &image, keep);
        // The last holder of much of an old state, perhaps.
        drop(image);
        let told = saved.map_err(|error| error.to_string());
        if let Err(why) = &told {
            tracing::error!("no snapshot could be made, the log goes on: {why}");
        }
        state.note_saved(&told.clone().map(|info| (info, header.time_ms)));
        for wish in wishes {
            // Who does not wait any more needs no answer.
            let _ = wish.try_send(told.clone());
        }
        queue.call();
    }
}

/// Writes and verifies a snapshot, then removes what is older than those that are kept.
pub(super) fn save(
    dir: &DataDir,
    header: &FileHeader,
    image: &Image,
    keep: usize,
) -> Result<SnapshotInfo, StorageError> {
    let began: Millis = rt::now();
    let info = dir.save(header, image, &mut |_| {})?;
    let removed = match dir.prune(info.number, keep) {
        Ok(removed) => removed.len(),
        Err(error) => {
            tracing::warn!("old files could not be removed: {error}");
            0
        }
    };
    let took_ms = rt::now().saturating_sub(began);
    let (file, entries, bytes) = (&info.name, info.entries, info.bytes);
    tracing::info!(file, entries, bytes, took_ms, removed, "made a snapshot");
    Ok(info)
}
