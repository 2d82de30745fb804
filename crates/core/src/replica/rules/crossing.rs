//! Replication rule 4 under way, the asking side: which entries are named, piece by piece, and the
//! answers.
//!
//! The entries are those of one O(1) snapshot, walked once; each piece of the walk is short,
//! because it happens under the guard. Entries that change meanwhile are noted, and asked about at
//! the end. So the last step looks at the answers and at the changes, and at nothing else.

use crate::model::defects::Defect;
use crate::model::ids::{Event, Tock};
use crate::model::invariant::OrBroken;
use crate::model::path::Path;
use crate::replica::across::{Across, AcrossFailure, Knowledge, NamesMax};
use crate::replica::{Committed, Replica};
use crate::tree::AllEntries;

/// Entries that one piece looks at: some milliseconds.
const LOOK_MAX: usize = 1 << 14;
/// Most changes while names are asked about; with more, the catch-up is given up. About 5 MiB.
const CHANGED_MAX: usize = 1 << 16;

/// The paths of entries that were put into the tree since names are asked about.
#[derive(Default)]
pub(in crate::replica) struct Changed(Option<Vec<Path>>);

impl Changed {
    pub(in crate::replica) fn note(&mut self, path: &Path) {
        if let Some(paths) = &mut self.0
            && paths.len() < CHANGED_MAX
        {
            paths.push(path.clone());
        }
    }
}

/// See the module.
pub(crate) struct Crossing {
    their: Knowledge,
    /// The rest of the snapshot; none at its end.
    walk: Option<AllEntries>,
    /// Changed since, and to be asked about.
    again: Vec<Path>,
    /// The names that were sent last, in this order, and are not answered yet.
    asked: Vec<(Path, Event)>,
    /// Named, and the answerer holds nothing there.
    empty: Vec<(Path, Event)>,
}

impl Crossing {
    /// Takes in the answer to the names that were given last: the places where the answerer holds
    /// nothing.
    pub(crate) fn take(&mut self, empty: &[usize]) {
        let mut places = empty.to_vec();
        places.sort_unstable();
        let mut places = places.into_iter().peekable();
        for (at, named) in std::mem::take(&mut self.asked).into_iter().enumerate() {
            if places.peek() == Some(&at) {
                self.empty.push(named);
            }
            while places.next_if_eq(&at).is_some() {}
        }
    }

    /// The answerer's knowledge.
    #[must_use]
    pub(crate) fn their(&self) -> &Knowledge {
        &self.their
    }
}

impl Replica {
    /// When all data is in: begins to name entries, if this node is behind the answerer.
    #[must_use]
    pub(crate) fn begin_crossing(&mut self, their: Knowledge) -> Crossing {
        let is_behind = self.purged_below(&their) > Tock::default();
        self.changed = Changed(is_behind.then(Vec::new));
        let walk = is_behind.then(|| self.tree.all());
        Crossing { their, walk, again: Vec::new(), asked: Vec::new(), empty: Vec::new() }
    }

    /// Nothing more is asked.
    pub(crate) fn abandon_crossing(&mut self) {
        self.changed = Changed::default();
    }

    /// The next paths to ask about: does the answerer hold anything there? There may be none
    /// although more will follow. `None` if all are answered: then the step can be taken.
    pub(crate) fn next_names(&self, crossing: &mut Crossing, max: NamesMax) -> Option<Vec<Path>> {
        let purged_below = self.purged_below(&crossing.their);
        if crossing.again.is_empty() && crossing.walk.is_none() {
            return None;
        }
        let (mut names, mut bytes) = (Vec::new(), 0);
        for _ in 0..LOOK_MAX {
            if names.len() >= max.paths || bytes >= max.bytes {
                break;
            }
            let next = match crossing.again.pop() {
                Some(path) => match self.tree.get(path.as_bytes()).cloned() {
                    Some(entry) => (path, entry),
                    None => continue,
                },
                None => match crossing.walk.as_mut().and_then(Iterator::next) {
                    Some(next) => next,
                    None => {
                        crossing.walk = None;
                        break;
                    }
                },
            };
            let (path, entry) = next;
            if entry.tock() <= purged_below {
                bytes += path.as_bytes().len();
                names.push(path.clone());
                crossing.asked.push((path, entry.newest()));
            }
        }
        let is_all = crossing.again.is_empty() && crossing.walk.is_none();
        (!names.is_empty() || !is_all).then_some(names)
    }

    /// Replication rules 3 and 4, the step at the end: when the whole stream is in, none of it refused, and
    /// all that was named is answered.
    ///
    /// # Errors
    /// [`AcrossFailure`]; nothing was changed. After [`AcrossFailure::Unanswered`] there are names
    /// again.
    pub(crate) fn end_crossing(
        &mut self,
        crossing: &mut Crossing,
    ) -> Result<Across, AcrossFailure> {
        let their = &crossing.their;
        let purged_below = self.check_not_overtaken(their)?;
        let mut across = Across::default();
        if purged_below > Tock::default() {
            if let Some(changed) = &mut self.changed.0 {
                if changed.len() >= CHANGED_MAX {
                    return Err(AcrossFailure::Overtaken);
                }
                let mut changed = std::mem::take(changed);
                changed.sort_unstable();
                changed.dedup();
                let is_open = |path: &Path| {
                    let entry = self.tree.get(path.as_bytes());
                    entry.is_some_and(|entry| entry.tock() <= purged_below)
                };
                crossing.again = changed.into_iter().filter(is_open).collect();
                if !crossing.again.is_empty() {
                    return Err(AcrossFailure::Unanswered);
                }
            }
            across = self.carry_out_answers(their, purged_below, &crossing.empty)?;
        }
        self.changed = Changed::default();
        self.take_knowledge(&crossing.their);
        Ok(across)
    }

    /// Replication rules 4a and 4b for what was answered: the answerer holds nothing at these paths.
    fn carry_out_answers(
        &mut self,
        their: &Knowledge,
        purged_below: Tock,
        empty: &[(Path, Event)],
    ) -> Result<Across, AcrossFailure> {
        let (mut drops, mut reissues) = (Vec::new(), Vec::new());
        for (path, event) in empty {
            let Some(entry) = self.tree.get(path.as_bytes()) else { continue };
            // Else it was asked about again, or this node has applied the purge by itself.
            if entry.newest() != *event || entry.tock() > purged_below {
                continue;
            }
            if their.seen.contains(*event) {
                if !self.defects.has(Defect::NoDrop) {
                    drops.push(path.clone());
                }
            } else if self.defects.has(Defect::DropUnseen) {
                drops.push(path.clone());
            } else if !self.defects.has(Defect::NoReissue) {
                reissues.push((path.clone(), Self::is_origin_seen(entry, their)));
            }
        }
        self.drop_and_reissue(their, drops, reissues)
    }

    /// Takes an entry out of the tree, where there is one: replication rule 4a. No event is made for it.
    pub(super) fn drop_entry(&mut self, path: &Path) -> Committed {
        let entry = self.take_out(path).or_broken("what is dropped is held");
        Committed { path: path.clone(), entry }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::ids::{Incarnation, NodeId, NodeName};
    use crate::model::mark::{Lineage, Mark};
    use crate::model::seen::Seen;
    use crate::replica::crossing::*;

    #[test]
    fn more_changes_meanwhile_than_are_remembered_end_it() {
        let id = NodeId { name: NodeName::new("x").unwrap(), incarnation: Incarnation(1) };
        let mut replica = Replica::new(&id, 1);
        let tock = Tock::new(9).unwrap();
        let mark = Mark::from_components([(Lineage(None), tock)]);
        let mut crossing = replica.begin_crossing(Knowledge { seen: Seen::new(), mark, tock });
        let path: Path = "k".parse().unwrap();
        for changes in [CHANGED_MAX + 1, CHANGED_MAX, CHANGED_MAX - 1] {
            replica.changed = Changed(Some(Vec::new()));
            (0..changes).for_each(|_| replica.changed.note(&path));
            let noted = replica.changed.0.as_ref().map(Vec::len);
            assert_eq!(noted, Some(changes.min(CHANGED_MAX)));
            let done = replica.end_crossing(&mut crossing).map(|_| ());
            match changes < CHANGED_MAX {
                true => assert_eq!(done, Ok(())),
                false => assert_eq!(done, Err(AcrossFailure::Overtaken)),
            }
        }
    }
}
