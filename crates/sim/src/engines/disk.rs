//! What a node keeps over a restart: the images that its data directory holds, and which of them
//! may still be used under the directory's name.

use crate::engine::Image;
use crate::oracle::shadow::Shadow;

/// Most images that are kept, besides the first.
const IMAGES_MAX: usize = 4;

/// A state of a node, and what the judge knew of it at that moment.
#[derive(Clone)]
pub(crate) struct Saved {
    pub(crate) image: Image,
    pub(crate) shadow: Shadow,
}

/// A data directory, or the snapshot files of a node without one.
#[derive(Default)]
pub(crate) struct Disk {
    /// The data directory's id; none for a node without one, on whose data no other node relies.
    pub(crate) store: Option<u64>,
    /// Oldest first.
    saved: Vec<Saved>,
    /// Before this one the node agreed to something: older ones must not be used under the same
    /// id (replication rule 9).
    floor: usize,
    /// What is being written, with the token of the request.
    pub(crate) writing: Vec<(u64, Saved)>,
}

impl Disk {
    /// Keeps a state.
    pub(crate) fn save(&mut self, saved: Saved) {
        self.saved.push(saved);
        if self.saved.len() > IMAGES_MAX {
            // The first is the oldest that there can be: it stays as a backup.
            self.saved.remove(1);
            self.floor = self.floor.saturating_sub(1);
        }
    }

    /// The requested state is synced now; returns whether it was being written.
    pub(super) fn finish_writing(&mut self, token: u64) -> bool {
        let Some(at) = self.writing.iter().position(|(t, _)| *t == token) else { return false };
        let (_, saved) = self.writing.remove(at);
        self.save(saved);
        self.floor = self.saved.len() - 1;
        true
    }

    /// All states that are kept, the newest last.
    pub(crate) fn all(&self) -> &[Saved] {
        &self.saved
    }

    /// Those that may be used under the directory's id.
    pub(super) fn usable(&self) -> &[Saved] {
        &self.saved[self.floor.min(self.saved.len())..]
    }

    /// The directory is another one from now on, with one state in it or none.
    pub(crate) fn replace(&mut self, store: Option<u64>, saved: Option<Saved>) {
        *self = Self { store, saved: saved.into_iter().collect(), ..Self::default() };
    }
}
