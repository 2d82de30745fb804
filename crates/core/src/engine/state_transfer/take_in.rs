//! Taking in a state from elsewhere (replication rule 9): harmless, whatever it is. It brings no
//! deleted entry back, and removes nothing that is newer.
//!
//! A state may be big, so some entries at a time are taken in, under a guard each; between them the
//! node works as usual. Data before knowledge: what the state's node had accounted for comes last,
//! when all entries are in. A caller that stops on the way has taken in entries, and nothing else.

use smallvec::SmallVec;

use crate::engine::{Engine, Image, Outbox};
use crate::model::entry::Entry;
use crate::model::path::Path;
use crate::model::seen::Mark;
use crate::protocol::record::Record;
use crate::replica::across::AcrossFailure;
use crate::replica::apply::Applied;
use crate::replica::come_back::ImageMap;
use crate::tree::Walk;

/// Records that are brought into the caches before the first of them is taken in. Few enough that
/// the first is still there when the last has come.
pub(in crate::engine) const TOUCHED_AT_ONCE: usize = 64;
/// Entries that [`Engine::load_image`] looks up at once.
const BATCH: usize = 256;

/// A state that is being taken in. Owns the parts of the image that it needs: most of the work is
/// done outside of the lock.
pub struct TakeIn {
    image: Image,
    map: ImageMap,
    walk: Walk,
    counts: TakenIn,
}

/// What taking in a state has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakenIn {
    /// Entries of it that were looked at, tombstones included.
    pub entries: u64,
    /// Those that are in the tree now: nothing was there, or something that they had replaced.
    pub taken: u64,
    /// New changes of this node: entries that would have been taken for purged, and versions that
    /// were put on top again.
    pub made: u64,
    /// Entries that are in the tree no more: they were purged where the state comes from.
    pub dropped: u64,
    /// Conflicts, which are reported.
    pub conflicts: u64,
    /// Entries of data with a value there that have another one here, or none, and stay so, because that is the later change.
    /// Conflicts are not counted.
    pub kept: u64,
}

impl TakeIn {
    /// The next entries, in the order of paths, as [`Engine::take_in_some`] wants them; none at
    /// the end only.
    pub fn next_batch(&mut self, max: usize) -> Vec<(Path, Entry)> {
        let batch = self.walk.next_batch(max);
        let ours = |(path, entry): (Path, Entry)| (path, self.map.entry(&entry));
        batch.into_iter().map(ours).collect()
    }
}

impl Engine {
    /// Has what records are about in the processor's caches, all at once: else each that is taken in
    /// waits for its own.
    pub(in crate::engine) fn touch<'r, 'b: 'r>(
        &self,
        records: impl Iterator<Item = &'r Record<'b>>,
    ) {
        let paths: SmallVec<[&[u8]; TOUCHED_AT_ONCE]> =
            records.map(|record| record.path.as_bytes()).collect();
        if paths.len() < 2 {
            return;
        }
        self.tree().get_many(paths.into_iter(), |_| {});
    }

    /// Begins to take in a state.
    ///
    /// # Errors
    /// [`AcrossFailure::NoEvent`]: it knows more nodes than there is room for.
    pub(in crate::engine) fn begin_take_in(
        &mut self,
        image: Image,
    ) -> Result<TakeIn, AcrossFailure> {
        let map = self.replica.begin_take_in(&image.replica)?;
        let walk = image.replica.tree.walk(&Path::root());
        Ok(TakeIn { image, map, walk, counts: TakenIn::default() })
    }

    /// Takes in some of its entries.
    ///
    /// # Errors
    /// [`AcrossFailure::NoEvent`]: events are needed for it, and this node cannot make any now.
    pub(in crate::engine) fn take_in_some(
        &mut self,
        state: &mut TakeIn,
        entries: &[(Path, Entry)],
        out: &mut Outbox,
    ) -> Result<(), AcrossFailure> {
        let taken =
            entries.iter().try_for_each(|(path, entry)| self.take_in_one(state, path, entry, out));
        self.tell_knowledge(out);
        taken
    }

    fn take_in_one(
        &mut self,
        state: &mut TakeIn,
        path: &Path,
        entry: &Entry,
        out: &mut Outbox,
    ) -> Result<(), AcrossFailure> {
        self.note_chain(entry);
        let mark: &Mark = &state.image.replica.mark;
        let applied = self.replica.apply_on_behalf(path, entry, mark);
        let counts = &mut state.counts;
        counts.entries += 1;
        match &applied {
            Applied::AlreadyKnown | Applied::Superseded => {
                let here = || self.tree().get(path.as_bytes()).and_then(|entry| entry.value());
                let is_kept =
                    entry.value().is_some() && !path.is_system() && here() != entry.value();
                counts.kept += u64::from(is_kept);
            }
            Applied::Refused => return Err(AcrossFailure::NoEvent),
            Applied::Taken(_) => counts.taken += 1,
            Applied::OnTopAgain(_, conflict) | Applied::Reissued(_, conflict) => {
                counts.made += 1;
                counts.conflicts += u64::from(conflict.is_some());
            }
            Applied::Conflict(conflict) => {
                counts.conflicts += 1;
                counts.taken += u64::from(conflict.took_theirs);
            }
        }
        let _ = self.publish_applied(applied, out);
        Ok(())
    }

    /// Takes in what the state's node knew, when all entries are in.
    ///
    /// # Errors
    /// [`AcrossFailure`]; no knowledge was taken in.
    pub(in crate::engine) fn end_take_in(
        &mut self,
        state: &TakeIn,
        out: &mut Outbox,
    ) -> Result<TakenIn, AcrossFailure> {
        let across = self.replica.end_take_in(&state.image.replica, &state.map);
        let known: Vec<_> = self.replica.seen().iter().map(|(node, _)| node).collect();
        for node in known {
            self.peers.note_change(node);
        }
        let mut counts = state.counts;
        let across = across.map(|across| {
            counts.dropped += across.dropped.len() as u64;
            counts.made += across.reissued.len() as u64;
            counts.conflicts += across.conflicts.len() as u64;
            self.publish_across(across, out);
            self.note_knowledge();
            counts
        });
        self.tell_knowledge(out);
        across
    }

    /// All of it at once.
    ///
    /// # Errors
    /// [`AcrossFailure`]; entries may have been taken in, but no knowledge.
    pub(in crate::engine) fn load_image(
        &mut self,
        image: &Image,
        out: &mut Outbox,
    ) -> Result<TakenIn, AcrossFailure> {
        let mut state = self.begin_take_in(image.clone())?;
        loop {
            let batch = state.next_batch(BATCH);
            if batch.is_empty() {
                return self.end_take_in(&state, out);
            }
            self.take_in_some(&mut state, &batch, out)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::take_in::*;
    use crate::engine::{Config, Input, Output};
    use crate::model::ids::{Incarnation, NodeId, NodeName, Tock};
    use crate::model::mark::{Lineage, PurgeId};
    use crate::replica::write::Write;

    fn node(name: &str) -> Engine {
        let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
        let mut engine = Engine::new(Config::new(id, 1));
        engine.handle(Input::Found, 0, &mut Outbox::new());
        engine
    }

    fn write(engine: &mut Engine, path: &str, value: Option<&[u8]>) {
        let path: Path = path.parse().unwrap();
        engine.write(&mut Write::new(path, value), false, &mut Outbox::new()).unwrap();
    }

    fn load(engine: &mut Engine, image: &Image) -> (TakenIn, Vec<Output>) {
        let mut out = Outbox::new();
        let counts = engine.load_image(image, &mut out).unwrap();
        (counts, out.drain().collect())
    }

    #[test]
    fn what_was_taken_and_what_was_not_is_counted() {
        let (mut a, mut b) = (node("a"), node("b"));
        // Of equal tocks the greater name wins; then a's clock is ahead.
        write(&mut b, "new", Some(&[1]));
        write(&mut b, "theirs wins", Some(&[1]));
        write(&mut b, "ours wins", Some(&[1]));
        a.replica.hear_tock(Tock::new(1).unwrap());
        write(&mut a, "theirs wins", Some(&[2]));
        a.replica.hear_tock(Tock::new(9).unwrap());
        write(&mut a, "ours wins", Some(&[2]));
        let (counts, _) = load(&mut a, &b.image());
        let expected = TakenIn { entries: 3, taken: 2, conflicts: 2, ..TakenIn::default() };
        assert_eq!(counts, expected);
        let (again, _) = load(&mut a, &b.image());
        // What has lost stays lost, and is not another conflict.
        assert_eq!(again, TakenIn { entries: 3, kept: 1, ..TakenIn::default() });
    }

    #[test]
    fn entries_that_were_changed_since_are_kept_and_counted() {
        let mut a = node("a");
        for path in ["same", "set again", "changed", "deleted", "gone", ":n.x"] {
            write(&mut a, path, Some(&[1]));
        }
        write(&mut a, "gone", None);
        let old = a.image();
        write(&mut a, "set again", Some(&[1]));
        write(&mut a, "changed", Some(&[2]));
        write(&mut a, ":n.x", Some(&[2]));
        write(&mut a, "deleted", None);
        write(&mut a, "new", Some(&[1]));
        // What the state has deleted is nothing that could be set back.
        write(&mut a, "gone", Some(&[1]));
        let (counts, _) = load(&mut a, &old);
        assert_eq!(counts, TakenIn { entries: 6, kept: 2, ..TakenIn::default() });
        let here = |path: &str| a.tree().get(path.parse::<Path>().unwrap().as_bytes()).unwrap();
        assert_eq!((here("changed").value(), here("deleted").value()), (Some(&[2][..]), None));
    }

    #[test]
    fn what_a_state_that_is_ahead_takes_away_or_has_re_issued_is_told() {
        let (mut a, mut b) = (node("a"), node("b"));
        write(&mut a, "gone", Some(&[1]));
        load(&mut b, &a.image());
        a.replica.hear_tock(Tock::new(9).unwrap());
        write(&mut a, "gone", None);
        let pair = a.replica.propose_pair(&Lineage(None), PurgeId::new(1), 10).unwrap();
        assert_eq!(a.replica.apply_purge(&pair).len(), 1);
        write(&mut b, "mine", Some(&[2]));
        let (counts, outputs) = load(&mut b, &a.image());
        assert_eq!((counts.dropped, counts.made), (1, 1));
        let (mut gone, mut made) = (Vec::new(), Vec::new());
        for output in &outputs {
            match output {
                Output::Gone { dropped, .. } => gone.extend(dropped.iter().map(|c| &c.path)),
                Output::Commit(change) => made.push(&change.path),
                _ => {}
            }
        }
        assert_eq!(gone, [&"gone".parse::<Path>().unwrap()]);
        assert_eq!(made, [&"mine".parse::<Path>().unwrap()]);
        assert!(matches!(outputs.last(), Some(Output::Knowledge)), "for the log");
    }
}
