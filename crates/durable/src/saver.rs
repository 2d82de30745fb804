//! Makes a snapshot while the log continues: on a thread of its own, from a state that was taken in
//! O(1); then, and only then, removes the files that it makes unnecessary.

use std::io;
use std::sync::Arc;

use super::state::{LogState, SnapshotWish};
use super::{LogSettings, System};
use crate::engine::Image;
use crate::hub::log_queue::LogQueue;
use crate::model::defects::Defect;
use crate::model::ids::Millis;
use crate::storage::{DataDir, FileHeader, SnapshotInfo, StorageError};

/// A snapshot to be made.
pub struct SaveJob {
    pub(super) dir: Arc<DataDir>,
    pub(super) header: FileHeader,
    pub(super) image: Image,
    pub(super) settings: LogSettings,
    /// The time that ages are counted by.
    pub(super) age_time_ms: u64,
    pub(super) state: Arc<LogState>,
    /// To call the log's thread when it is done.
    pub(super) queue: Arc<LogQueue>,
    /// The callers that wait for it.
    pub(super) wishes: Vec<SnapshotWish>,
    pub(super) system: Arc<dyn System>,
}

impl SaveJob {
    /// Runs it where `spawn` says; waiting callers are told if there is no thread for it.
    pub fn spawn_by(self, spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>) {
        let (state, queue) = (Arc::clone(&self.state), Arc::clone(&self.queue));
        let wishes = self.wishes.clone();
        state.update(|view| view.is_saving = true);
        if let Err(error) = spawn(Box::new(move || self.run())) {
            let why = format!("the system gives this node no thread for a snapshot: {error}");
            tracing::error!("no snapshot could be made, so the log continues: {why}");
            state.note_saved(&Err(why.clone()));
            for wish in wishes {
                // A caller that does not wait any more needs no answer.
                let _ = wish.try_send(Err(why.clone()));
            }
            queue.call();
        }
    }

    /// Does it here.
    pub(crate) fn run(self) {
        let Self { dir, header, image, settings, age_time_ms, state, queue, wishes, system } = self;
        let saved = save(&dir, &header, &image, (&settings, age_time_ms), &*system);
        // The last holder of much of an old state, perhaps.
        drop(image);
        let told = saved.map_err(|error| error.to_string());
        if let Err(why) = &told {
            tracing::error!("no snapshot could be made, so the log continues: {why}");
        }
        state.note_saved(&told.clone().map(|info| (info, header.time_ms)));
        for wish in wishes {
            // A caller that does not wait any more needs no answer.
            let _ = wish.try_send(told.clone());
        }
        queue.call();
    }
}

/// Writes and verifies a snapshot, then removes files that need not be kept any more. Ages are counted by the time behind the
/// settings.
pub(super) fn save(
    dir: &DataDir,
    header: &FileHeader,
    image: &Image,
    (settings, age_time_ms): (&LogSettings, u64),
    system: &dyn System,
) -> Result<SnapshotInfo, StorageError> {
    let began: Millis = system.now();
    if settings.defects.has(Defect::PruneBeforeSnapshot) {
        let files = dir.disk().list().unwrap_or_default();
        let number_of = |name: &str| name.split(['-', '.']).nth(1)?.parse::<u64>().ok();
        let is_older = |name: &str| number_of(name).is_some_and(|number| number < header.number);
        for file in files.iter().filter(|file| is_older(&file.name)) {
            // What a defect leaves undone is its own matter.
            let _ = dir.disk().remove(&file.name);
        }
    }
    let info = match dir.save(header, image, &mut |_| {}) {
        Err(error) if error.is_full() && make_room(dir, settings) => {
            dir.save(header, image, &mut |_| {})?
        }
        saved => saved?,
    };
    let removed = match dir.prune(info.number, &settings.keep(age_time_ms)) {
        Ok(removed) => removed.len(),
        Err(error) => {
            tracing::warn!("old files could not be removed: {error}");
            0
        }
    };
    let took_ms = system.now().saturating_sub(began);
    let (file, entries, bytes) = (&info.name, info.entries, info.bytes);
    tracing::info!(file, entries, bytes, took_ms, removed, "made a snapshot");
    Ok(info)
}

/// The disk is full: removes history that is kept only for its age. Returns whether there was any.
fn make_room(dir: &DataDir, settings: &LogSettings) -> bool {
    match dir.make_room(settings.keep_snapshots) {
        Ok(has_made_room) => {
            if has_made_room {
                tracing::warn!("the disk is full: old snapshots and logs were removed");
            }
            has_made_room
        }
        Err(error) => {
            tracing::warn!("the disk is full, and old files could not be removed: {error}");
            false
        }
    }
}
