//! Replication rule 10 in motion: peers compare sums over what they hold, and repair what differs.
//!
//! A full digest carries a sum over all that its sender has accounted for and one over all that it
//! holds. If a peer has the same first sum and the same mark, and another second sum, one event has
//! two contents. Then:
//!
//! | who | message | what |
//! |---|---|---|
//! | the lesser of the two nodes | `ContentsAsk` | its sums by bucket |
//! | the other | `ContentsList` | the versions that it holds in buckets that differ |
//! | the node that gets a list | `ContentsWant` | paths at which it lacks a listed version
//! ([`crate::replica::Replica::lacks`]) |
//! | the other | `ContentsVersions` | the whole versions, which are taken in by replication rule 10 |
//! | the lesser node, after the last list | `ContentsList` | the versions that it holds in the same
//! buckets |
//!
//! If changes are always under way, two nodes may never have seen the same at the moment of a
//! digest. Then the sums by bucket are compared from time to time, and those buckets are listed
//! that differ and have not changed at either node from one time to the next.
//!
//! Each message is self-contained and checked against the present state, so any of them may be lost
//! or late: the next full digest begins anew while the sums differ.

use std::sync::Arc;

use super::answer::ServeJob;
use crate::engine::{CloseReason, Engine, LinkId, Outbox, Output, Report};
use crate::model::entry::Entry;
use crate::model::ids::{Event, Millis, NodeIndex, NodeName, NodeTable};
use crate::model::invariant::OrBroken;
use crate::model::path::Path;
use crate::model::seen::Mark;
use crate::protocol::peer::{
    ContentsAsk, ContentsList, ContentsTold, Listed, PeerMessage, encode_versions,
};
use crate::protocol::record::Record;
use crate::replica::contents::{ContentsApplied, ListedVersion, Mended};
use crate::tree::content_sums::{BUCKET_COUNT, IncarnationKeys, bucket_of, path_hash};
use crate::tree::{AllEntries, Tree};

/// A peer whose sum differs is asked this often at most: what a comparison finds needs a moment to
/// be repaired.
const ASK_INTERVAL_MS: Millis = 2_000;
/// Two nodes whose sums could not be compared for this long compare their buckets all the same.
const UNCOMPARED_MS: Millis = 30_000;
/// Buckets that one comparison lists: with a million entries in all, 16,000.
const BUCKETS_MAX: usize = 16;
/// Entries that a list job looks at before it gives way to others.
const LOOK_MAX: usize = 4_096;
/// Versions are sent until they have this many bytes; the rest is requested again.
const VERSIONS_BYTES_MAX: usize = 256 << 10;

/// The sums by bucket of a peer, and this node's own of the same moment.
type BothSums = (Box<[u64]>, Box<[u64]>);

/// How a peer's contents compare, as far as is known.
#[derive(Default)]
pub(in crate::engine) struct PeerContents {
    /// When it was last asked to compare.
    asked_at: Option<Millis>,
    /// Since when its sum could not be compared with this node's.
    uncompared_since: Option<Millis>,
    /// The sums by bucket, its own and this node's, when it last asked although they could not be
    /// compared.
    last: Option<BothSums>,
    /// It has accounted for the same, at the same mark, and holds something else: certain.
    differs: bool,
}

/// Lists what was held at one moment in some buckets. Owns its snapshot, so it outlives the engine's
/// guard.
pub(in crate::engine) struct ListJob {
    walk: AllEntries,
    table: Arc<NodeTable>,
    keys: IncarnationKeys,
    /// The list's head; its entries are those of the next frame.
    head: ContentsList,
    /// By bucket, whether it is listed. Invariant: [`BUCKET_COUNT`] of them.
    is_listed: Vec<bool>,
    /// Where the incarnations of the table stand among the makers of the next frame.
    places: Vec<Option<usize>>,
}

impl ListJob {
    fn new(tree: &Tree, table: &Arc<NodeTable>, head: ContentsList) -> Self {
        let mut is_listed = vec![false; BUCKET_COUNT];
        for bucket in &head.buckets {
            if let Some(listed) = is_listed.get_mut(usize::from(*bucket)) {
                *listed = true;
            }
        }
        let (walk, table, keys) = (tree.all(), Arc::clone(table), IncarnationKeys::default());
        Self { walk, places: vec![None; table.len()], table, keys, head, is_listed }
    }

    /// Appends the next frame, of about `bytes_max` bytes; there may be none although more will
    /// follow. Returns whether that was the last one.
    pub(super) fn next_frame(&mut self, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        let mut bytes = 0;
        let mut done = false;
        for _ in 0..LOOK_MAX {
            let Some((path, entry)) = self.walk.next() else {
                done = true;
                break;
            };
            let hash = path_hash(path.as_bytes());
            if !self.is_listed.get(usize::from(bucket_of(hash))).or_broken("there is each bucket") {
                continue;
            }
            let newest = entry.newest();
            let maker = self.place(newest.node);
            bytes += path.as_bytes().len() + 40;
            let hash = self.keys.content_hash(&self.table, hash, &entry);
            let (tick, tock) = (newest.tick, entry.tock());
            self.head.entries.push(Listed { path, maker, tick, tock, hash });
            if bytes >= bytes_max {
                break;
            }
        }
        self.head.last = done;
        if done || !self.head.entries.is_empty() {
            let list = ContentsList {
                makers: std::mem::take(&mut self.head.makers),
                entries: std::mem::take(&mut self.head.entries),
                ..self.head.clone()
            };
            PeerMessage::ContentsList(list).encode(&self.table, out);
            self.places.iter_mut().for_each(|place| *place = None);
        }
        done
    }

    fn place(&mut self, node: NodeIndex) -> usize {
        let place = self.places.get_mut(node.as_usize());
        let place = place.or_broken("the events of a tree are of incarnations in its node table");
        *place.get_or_insert_with(|| {
            self.head.makers.push(self.table.id(node).clone());
            self.head.makers.len() - 1
        })
    }
}

/// Whether neither side's sum of a bucket has changed.
pub(in crate::engine) fn is_same_bucket(
    before: &(Box<[u64]>, Box<[u64]>),
    now: &(Box<[u64]>, Box<[u64]>),
    bucket: u16,
) -> bool {
    let at = usize::from(bucket);
    before.0.get(at) == now.0.get(at) && before.1.get(at) == now.1.get(at)
}

impl Engine {
    /// Linked peers that certainly hold something else than this node, and are not repaired yet.
    #[must_use]
    pub fn contents_differ(&self) -> Vec<NodeName> {
        let differing = self.peers.iter().filter(|(_, peer)| peer.contents.differs);
        differing.map(|(_, peer)| peer.id.name.clone()).collect()
    }

    /// The sum over all that is held ([`crate::tree::content_sums`]).
    #[must_use]
    pub fn contents_sum(&self) -> u64 {
        self.replica.contents().total()
    }

    /// What a full digest says at this moment.
    pub(in crate::engine) fn contents_told(&mut self) -> Option<ContentsTold> {
        if !self.ready || !self.replica.compares_contents() {
            return None;
        }
        let seen = self.peers.extents.fingerprint(&self.replica);
        Some(ContentsTold { seen, sum: self.replica.contents().total() })
    }

    /// A peer's full digest has come.
    pub(in crate::engine) fn on_contents_told(
        &mut self,
        link: LinkId,
        mark: &Mark,
        theirs: ContentsTold,
        now: Millis,
        out: &mut Outbox,
    ) {
        let Some(ours) = self.contents_told() else { return };
        let is_lesser = self.peers.get(link).is_some_and(|peer| self.config.id < peer.id);
        let can_compare = ours.seen == theirs.seen && self.replica.mark() == mark;
        let Some(peer) = self.peers.get_mut(link) else { return };
        let contents = &mut peer.contents;
        let since = |at: Millis| now.saturating_sub(at);
        if can_compare {
            contents.uncompared_since = None;
            contents.last = None;
            if ours.sum == theirs.sum {
                contents.differs = false;
                return;
            }
        } else if since(*contents.uncompared_since.get_or_insert(now)) < UNCOMPARED_MS {
            return;
        }
        let interval = if can_compare { ASK_INTERVAL_MS } else { UNCOMPARED_MS };
        if !is_lesser || contents.asked_at.is_some_and(|at| since(at) < interval) {
            return;
        }
        contents.asked_at = Some(now);
        let sums = self.replica.contents().buckets().iter().enumerate();
        let sums = sums.filter(|(_, sum)| **sum != 0).map(|(at, sum)| (at as u16, *sum)).collect();
        let (mark, seen) = (self.replica.mark().clone(), self.replica.seen_fingerprint());
        let ask = ContentsAsk { mark, seen, differed: can_compare, sums };
        self.send(link, &PeerMessage::ContentsAsk(ask), out);
    }

    /// A peer's sums have arrived: the versions that this node holds where they differ are listed.
    pub(in crate::engine) fn on_contents_ask(
        &mut self,
        link: LinkId,
        ask: &ContentsAsk,
        out: &mut Outbox,
    ) {
        if !self.ready || !self.replica.compares_contents() {
            return;
        }
        let mut theirs = vec![0; BUCKET_COUNT];
        for (bucket, sum) in &ask.sums {
            if let Some(slot) = theirs.get_mut(usize::from(*bucket)) {
                *slot = *sum;
            }
        }
        let ours = self.replica.contents().buckets();
        let pairs = ours.iter().zip(&theirs).enumerate();
        let mut buckets: Vec<u16> = pairs
            .filter(|(_, (ours, theirs))| ours != theirs)
            .map(|(at, _)| u16::try_from(at).or_broken("a bucket's number is below 1,024"))
            .collect();
        // Both are of one moment, and exact: changes on their way do not matter.
        let differs =
            ask.mark == *self.replica.mark() && ask.seen == self.replica.seen_fingerprint();
        if !ask.differed && !differs {
            let now = (theirs.into_boxed_slice(), Box::from(ours));
            let Some(peer) = self.peers.get_mut(link) else { return };
            let before = peer.contents.last.replace(now);
            let Some(now) = &peer.contents.last else { return };
            buckets
                .retain(|bucket| before.as_ref().is_some_and(|b| is_same_bucket(b, now, *bucket)));
        }
        buckets.truncate(BUCKETS_MAX);
        if buckets.is_empty() {
            return;
        }
        if differs {
            self.note_contents_differ(link, out);
        }
        self.list(link, buckets, differs, true, out);
    }

    fn note_contents_differ(&mut self, link: LinkId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        if !std::mem::replace(&mut peer.contents.differs, true) {
            self.counters.contents_differed += 1;
            let peer = peer.id.name.clone();
            out.push(Output::Report(Report::ContentsDiffer { peer }));
        }
    }

    /// Lists what this node holds in some buckets, unless a catch-up is being answered on the link:
    /// that comes first, and the next digest asks again.
    fn list(
        &mut self,
        link: LinkId,
        buckets: Vec<u16>,
        differs: bool,
        answer_wanted: bool,
        out: &mut Outbox,
    ) {
        if self.peers.get(link).is_none_or(|peer| peer.serving.is_some()) {
            return;
        }
        let (makers, entries) = (Vec::new(), Vec::new());
        let mark = self.replica.mark().clone();
        let head =
            ContentsList { mark, differs, buckets, last: false, answer_wanted, makers, entries };
        let job = ListJob::new(self.replica.tree(), self.replica.table(), head);
        out.push(Output::Serve { link, job: Box::new(ServeJob::list(job)) });
    }

    /// A peer lists what it holds: versions that this node lacks are requested.
    pub(in crate::engine) fn on_contents_list(
        &mut self,
        link: LinkId,
        list: ContentsList,
        out: &mut Outbox,
    ) {
        if !self.ready || !self.replica.compares_contents() {
            return;
        }
        if list.differs {
            self.note_contents_differ(link, out);
        }
        let makers = list.makers.iter().map(|id| self.replica.intern(id)).collect::<Option<_>>();
        let Some(makers): Option<Vec<NodeIndex>> = makers else {
            out.push(Output::Close { link, reason: CloseReason::TableFull });
            return;
        };
        let mut wanted = Vec::new();
        for listed in list.entries {
            let Some(node) = makers.get(listed.maker) else { continue };
            let newest = Event { node: *node, tick: listed.tick };
            let version = ListedVersion { newest, tock: listed.tock, hash: listed.hash };
            if self.replica.lacks(&listed.path, version, &list.mark) {
                wanted.push(listed.path);
            }
        }
        if !wanted.is_empty() {
            self.send(link, &PeerMessage::ContentsWant(wanted), out);
        }
        if list.last && list.answer_wanted {
            self.list(link, list.buckets, false, false, out);
        }
    }

    /// A peer lacks what this node holds at some paths.
    pub(in crate::engine) fn on_contents_want(
        &mut self,
        link: LinkId,
        paths: &[Path],
        out: &mut Outbox,
    ) {
        let (mut entries, mut bytes): (Vec<(Path, Entry)>, usize) = (Vec::new(), 0);
        for path in paths {
            let Some(entry) = self.replica.tree().get(path.as_bytes()) else { continue };
            bytes += path.as_bytes().len() + entry.memory_bytes();
            if bytes > VERSIONS_BYTES_MAX && !entries.is_empty() {
                break;
            }
            entries.push((path.clone(), entry.clone()));
        }
        if !entries.is_empty() {
            let mut frame = Vec::new();
            encode_versions(self.replica.mark(), &entries, self.replica.table(), &mut frame);
            out.push(Output::Send { link, frame: frame.into() });
        }
    }

    /// What this node lacked has come.
    pub(in crate::engine) fn on_contents_versions(
        &mut self,
        link: LinkId,
        mark: &Mark,
        records: &[Record<'_>],
        out: &mut Outbox,
    ) {
        let Some(peer) = self.peers.get(link).map(|peer| peer.id.name.clone()) else { return };
        for record in records {
            let Some(entry) = self.intern_record(record) else {
                out.push(Output::Close { link, reason: CloseReason::TableFull });
                return;
            };
            self.note_chain(&entry);
            match self.replica.apply_contents(&record.path, &entry, mark) {
                ContentsApplied::Nothing => {}
                ContentsApplied::Ordinary(applied) => {
                    let _ = self.publish_applied(applied, out);
                }
                ContentsApplied::Mended(mended) => self.publish_mended(&peer, *mended, out),
            }
        }
    }

    fn publish_mended(&mut self, peer: &NodeName, mended: Mended, out: &mut Outbox) {
        self.counters.contents_mended += 1;
        let Mended { event, change, is_made, conflict } = mended;
        let (peer, path) = (peer.clone(), change.path.clone());
        out.push(Output::Report(Report::ContentsMended { peer, path, event }));
        if is_made {
            self.push_change(&change, false, out);
        }
        self.publish(change, out);
        if let Some(conflict) = conflict {
            self.counters.conflicts += 1;
            self.record_conflict(&conflict, out);
            out.push(Output::Report(Report::Conflict(Box::new(conflict))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Input};
    use crate::model::ids::{Incarnation, NodeId};
    use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
    use crate::replica::write::Write;

    #[test]
    fn a_list_comes_in_frames_of_a_bounded_size() {
        const ENTRIES: usize = 300;
        const FRAME_BYTES: usize = 2_000;
        let id = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
        let mut engine = Engine::new(Config::new(id, 1));
        engine.handle(Input::Found, 0, &mut Outbox::new());
        for at in 0..ENTRIES {
            let path: Path = format!("p.{at}").parse().unwrap();
            engine.write(&mut Write::new(path, Some(&[1])), false, &mut Outbox::new()).unwrap();
        }
        let head = ContentsList {
            mark: Mark::default(),
            differs: false,
            buckets: (0..BUCKET_COUNT as u16).collect(),
            last: false,
            answer_wanted: false,
            makers: Vec::new(),
            entries: Vec::new(),
        };
        let mut job = ListJob::new(engine.tree(), engine.replica.table(), head);
        let (mut listed, mut done) = (0, false);
        while !done {
            let mut frame = Vec::new();
            done = job.next_frame(FRAME_BYTES, &mut frame);
            assert!(frame.len() < 2 * FRAME_BYTES, "{} bytes", frame.len());
            let Some(split) = split_frame(&frame, BODY_BYTES_MAX).unwrap() else { continue };
            let Some(PeerMessage::ContentsList(list)) = PeerMessage::decode(&split).unwrap() else {
                panic!("not a list");
            };
            assert_eq!(list.last, done);
            listed += list.entries.len();
        }
        assert_eq!(listed, ENTRIES);
    }
}
