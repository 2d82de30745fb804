//! Taking in a whole file at once, as no node does: it takes in some entries at a time.

use crate::model::path::Path;
use crate::replica::across::{Across, AcrossFailure};
use crate::replica::apply::{Applied, Conflict};
use crate::replica::come_back::ReplicaImage;
use crate::replica::{Committed, Replica};

/// What taking in a file did.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// New in the tree, from the file.
    pub(crate) taken: Vec<Committed>,
    /// New in the tree, made here: re-issues, and values put on top again.
    pub(crate) made: Vec<Committed>,
    /// Conflicts found.
    pub(crate) conflicts: Vec<Conflict>,
    /// Gone without an event (replication rule 4a).
    pub(crate) dropped: Vec<Committed>,
}

impl Restored {
    /// Notes what has become of an entry; returns whether it was refused.
    fn note(&mut self, applied: Applied) -> bool {
        match applied {
            Applied::AlreadyKnown | Applied::Superseded => {}
            Applied::Refused => return true,
            Applied::Taken(committed) => self.taken.push(committed),
            Applied::OnTopAgain(committed, conflict) | Applied::Reissued(committed, conflict) => {
                self.made.push(committed);
                self.conflicts.extend(conflict.map(|conflict| *conflict));
            }
            Applied::Conflict(conflict) => {
                if conflict.took_theirs {
                    let (path, entry) = (conflict.path.clone(), conflict.winner.clone());
                    self.taken.push(Committed { path, entry });
                }
                self.conflicts.push(*conflict);
            }
        }
        false
    }
}

impl Replica {
    /// Takes in a state from elsewhere, in all its steps.
    ///
    /// # Errors
    /// [`AcrossFailure`]; entries may have been taken in, but no knowledge. Also when the node
    /// table is full.
    pub(crate) fn take_in_image(
        &mut self,
        image: &ReplicaImage,
    ) -> Result<Restored, AcrossFailure> {
        let map = self.begin_take_in(image)?;
        let mut restored = Restored::default();
        // In the order of paths: ticks of re-issues must not depend on a hash map's.
        for (path, entry) in image.tree.subtree(&Path::root()) {
            let entry = map.entry(entry);
            if restored.note(self.apply_on_behalf(path, &entry, &image.mark)) {
                return Err(AcrossFailure::NoEvent);
            }
        }
        let Across { dropped, reissued, conflicts } = self.end_take_in(image, &map)?;
        restored.dropped = dropped;
        restored.conflicts.extend(conflicts);
        restored.made.extend(reissued);
        Ok(restored)
    }
}
