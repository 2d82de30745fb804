//! Replication rule 9: coming back with a state of one's own, and taking in a state from elsewhere.

use std::sync::Arc;

use crate::model::chain::ChainBound;
use crate::model::defects::Defects;
use crate::model::entry::Entry;
use crate::model::ids::{Event, NodeId, NodeIndex, NodeTable, Tick, Tock};
use crate::model::invariant::{OrBroken, invariant};
use crate::model::meta::AUTH_PATH;
use crate::model::path::Path;
use crate::model::seen::{Mark, Seen};
use crate::replica::across::{Across, AcrossFailure, Answers, Knowledge, NamesMax};
use crate::replica::crossing::Changed;
use crate::replica::deleted_here::DeletedHere;
use crate::replica::ring::Ring;
use crate::replica::shards::Upkeep;
use crate::replica::tops::Tops;
use crate::replica::write_ids::WriteIds;
use crate::replica::{Policies, Replica, login_of};
use crate::tree::Tree;
use crate::tree::content_sums::ContentSums;

/// All of a replica at one moment: what a snapshot file holds. O(1) to take; dropping it may
/// take time.
#[derive(Clone)]
pub struct ReplicaImage {
    /// Whose state it is.
    pub id: NodeId,
    /// The known incarnations, which events refer to.
    pub table: Arc<NodeTable>,
    /// All entries, tombstones included.
    pub tree: Tree,
    /// What was accounted for.
    pub seen: Seen,
    /// How far purges were applied.
    pub mark: Mark,
    /// The last tick that `id` had used.
    pub tick: Tick,
    /// The network's counter as it was known.
    pub tock: Tock,
}

impl Replica {
    /// The state of this moment; `id` is this node's.
    #[must_use]
    pub(crate) fn image(&self, id: &NodeId) -> ReplicaImage {
        invariant!(self.table.id(self.own) == id, "an image is of the life that its node is in");
        ReplicaImage {
            id: id.clone(),
            table: Arc::clone(&self.table),
            tree: self.tree.clone(),
            seen: self.seen.clone(),
            mark: self.mark.clone(),
            tick: self.tick,
            tock: self.tock,
        }
    }

    /// A node that comes back with an old state of its own; `id` must be a new incarnation
    /// (replication rule 9). Under the image's own incarnation, which only simulations of defects
    /// and copies use, it continues with the image's tick. `None` when the node table is full.
    #[must_use]
    pub fn come_back(image: &ReplicaImage, id: &NodeId) -> Option<Self> {
        let mut table = Arc::clone(&image.table);
        let own = match table.find(id.name.as_str(), id.incarnation) {
            Some(own) => own,
            None => Arc::make_mut(&mut table).intern(id)?,
        };
        let keeps = *id == image.id;
        let contents = ContentSums::of(&image.tree, &table);
        Some(Self {
            table,
            own,
            tree: image.tree.clone(),
            seen: image.seen.clone(),
            mark: image.mark.clone(),
            tick: if keeps { image.tick } else { Tick::default() },
            // Own tock >= every component of the mark, also after a restart.
            tock: image.tock.max(image.mark.top()),
            ring: Ring::after(&image.seen),
            write_ids: WriteIds::of(&image.tree),
            deleted_here: DeletedHere::of(&image.tree),
            tops: Tops::of(&image.tree),
            changed: Changed::default(),
            usurped: false,
            is_stopped: false,
            chain_bound: ChainBound::default(),
            defects: Defects::default(),
            contents,
            login: login_of(image.tree.get(AUTH_PATH)),
            policies: Policies::default(),
            shards: Upkeep::default(),
            room: None,
        })
    }

    /// Begins to take in a state from elsewhere. One that is ahead in some lineage plays the answerer
    /// in rules 3, 4 and 8 (without 4d); of any other all unseen entries are taken by rule 2 without
    /// refusing, each that arrives at an empty path with tock <= hi(X, file) is re-issued, and
    /// the file's seen is taken, but no mark.
    ///
    /// The caller then takes in all entries, in the order of their paths, with
    /// [`Replica::apply_on_behalf`], and ends with [`Replica::end_take_in`].
    ///
    /// # Errors
    /// [`AcrossFailure::NoEvent`]: the node table is full.
    pub(crate) fn begin_take_in(
        &mut self,
        image: &ReplicaImage,
    ) -> Result<ImageMap, AcrossFailure> {
        let places = image.table.iter().map(|(_, id)| self.intern(id)).collect::<Option<_>>();
        places.map(ImageMap).ok_or(AcrossFailure::NoEvent)
    }

    /// The last step: all entries are in, none was refused. Walks the tree if the image is ahead
    /// of this node in some lineage.
    ///
    /// # Errors
    /// [`AcrossFailure`]; no knowledge was taken in.
    pub(crate) fn end_take_in(
        &mut self,
        image: &ReplicaImage,
        map: &ImageMap,
    ) -> Result<Across, AcrossFailure> {
        let seen = map.seen(&image.seen);
        if image.mark.ahead_of(&self.mark) == Tock::default() {
            self.check_own_seen(&seen);
            self.seen.union_with(&seen);
            self.deleted_here.begin_state();
            self.hear_tock(image.tock);
            return Ok(Across::default());
        }
        let their = Knowledge { seen, mark: image.mark.clone(), tock: image.tock };
        let newest_in_image =
            |path: &Path| Some(map.event(image.tree.get(path.as_bytes())?.newest()));
        let answers = self.answers_of(&their, newest_in_image);
        self.step_across(&their, &answers)
    }

    /// Replication rule 4 with a file as the answerer: what it says of all entries here.
    fn answers_of(
        &self,
        their: &Knowledge,
        newest_in_image: impl Fn(&Path) -> Option<Event>,
    ) -> Answers {
        let all = NamesMax { events: u64::MAX, paths: usize::MAX, bytes: usize::MAX };
        let mut answers = Answers::default();
        let names = self.name_unanswered(their, &answers, all);
        let mut gone = Seen::new();
        for (path, entry) in self.tree.all() {
            let newest = entry.newest();
            if names.events.contains(newest) && newest_in_image(&path) != Some(newest) {
                gone.insert(newest);
            }
        }
        let empty: Vec<usize> = (0..names.paths.len())
            .filter(|at| names.paths.get(*at).is_some_and(|p| newest_in_image(p).is_none()))
            .collect();
        answers.take(&names, &gone, &empty);
        answers
    }
}

/// Where an image's incarnations stand in another node table.
#[derive(Clone, Debug)]
pub(crate) struct ImageMap(Vec<NodeIndex>);

impl ImageMap {
    fn node(&self, node: NodeIndex) -> NodeIndex {
        let node = self.0.get(node.as_usize());
        *node.or_broken("the events of an image are of incarnations in its node table")
    }

    /// An event of the image.
    #[must_use]
    pub(crate) fn event(&self, event: Event) -> Event {
        Event { node: self.node(event.node), tick: event.tick }
    }

    /// An entry of the image.
    #[must_use]
    pub(crate) fn entry(&self, entry: &Entry) -> Entry {
        let entry = entry.translated(|event| Some(self.event(event)));
        entry.or_broken("each event of an image has its place")
    }

    fn seen(&self, theirs: &Seen) -> Seen {
        let mut seen = Seen::new();
        for (node, ticks) in theirs.iter() {
            seen.union_node(self.node(node), ticks);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use crate::model::ids::{Incarnation, NodeName};
    use crate::model::mark::{Lineage, PurgeId};
    use crate::replica::come_back::*;
    use crate::replica::write::Write;

    fn write(replica: &mut Replica, path: &str, value: Option<&[u8]>) {
        let path: Path = path.parse().unwrap();
        let mut write = Write::new(path, value);
        assert!(replica.write(&mut write).unwrap().committed.is_some());
    }

    #[test]
    fn a_file_with_events_of_this_very_identity_brings_nothing_back_below_the_mark() {
        let id = NodeId { name: NodeName::new("b").unwrap(), incarnation: Incarnation(5) };
        let mut original = Replica::new(&id, 1);
        write(&mut original, "x", Some(&[1]));
        let copied = original.image(&id);
        write(&mut original, "x", Some(&[2]));
        let file = original.image(&id);
        // The copy learns that x was deleted elsewhere, purges that, and only then reads the file.
        let mut copy = Replica::come_back(&copied, &id).unwrap();
        let other = NodeId { name: NodeName::new("a").unwrap(), ..id.clone() };
        let mut elsewhere = Replica::come_back(&copied, &other).unwrap();
        write(&mut elsewhere, "x", None);
        write(&mut elsewhere, "x", Some(&[3]));
        write(&mut elsewhere, "x", None);
        copy.take_in_image(&elsewhere.image(&other)).unwrap();
        let pair = copy.propose_pair(&Lineage(None), PurgeId::new(1), 100).unwrap();
        assert_eq!(copy.apply_purge(&pair).len(), 1);
        assert!(copy.tree().is_empty());
        assert!(copy.take_in_image(&file).is_err());
        assert!(copy.is_usurped() && copy.tree().is_empty(), "nothing is left half taken in");
    }
}
