//! A node's state in the forms of others: the Python DistKV's saved states and change logs, and
//! lines of JSON. An [`Image`] becomes such a file piece by piece, and such a
//! file becomes an image, which [`Engine::load_image`](crate::engine::Engine::load_image) takes in (replication rule 9).
//!
//! | file | what |
//! |---|---|
//! | [`saved_state_out`] | an image as a saved state of the Python DistKV |
//! | [`saved_state_in`] | a saved state or a change log of the Python DistKV as an image |
//! | [`lines`] | an image as lines of JSON, and back |
//! | [`access`] | an image without users, logins and access lists |

pub mod access;
pub mod lines;
pub mod saved_state_in;
pub mod saved_state_out;
#[cfg(test)]
mod tests;

use crate::engine::Image;
use crate::model::entry::Entry;
use crate::model::left_out::accounted_events;
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::tree::{Tree, Walk};

/// An image of the same entries that knows of no change but those that they account for, and of no purge.
/// What is made of parts of a history must not claim to know what was in the others.
#[must_use]
pub fn entries_alone(image: Image) -> Image {
    let Image { mut replica, .. } = image;
    let mut seen = Seen::new();
    for (_, entry) in replica.tree.all() {
        for event in accounted_events(&entry) {
            seen.insert(event);
        }
    }
    (replica.seen, replica.mark) = (seen, Mark::default());
    Image { replica, group: None, decided: None }
}

/// As many bytes make a piece of a file; the entry that crosses it is the piece's last.
const PIECE_BYTES: usize = 64 << 10;
/// Entries that are looked up at once.
const BATCH: usize = 256;

/// A subtree's entries, one by one, in order.
struct Entries {
    walk: Walk,
    batch: std::vec::IntoIter<(Path, Entry)>,
}

impl Entries {
    fn below(tree: &Tree, top: &Path) -> Self {
        Self { walk: tree.walk(top), batch: Vec::new().into_iter() }
    }

    /// Continues after everything below a path.
    fn skip_subtree(&mut self, path: &Path) {
        self.walk.skip_subtree(path);
        self.batch = Vec::new().into_iter();
    }
}

impl Iterator for Entries {
    type Item = (Path, Entry);

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.len() == 0 {
            self.batch = self.walk.next_batch(BATCH).into_iter();
        }
        self.batch.next()
    }
}
