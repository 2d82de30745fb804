//! Replication rule 5: announcements of purges. A node that stands at `from` and has seen V applies
//! them; each applied announcement is kept for a while and offered, in order, to nodes that are
//! behind.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use crate::engine::{LinkId, Outbox, Output, Report};
use crate::model::ids::{NodeId, NodeIndex, Tick, Tock};
use crate::model::seen::{Mark, Seen, export_seen, export_some};
use crate::model::seen_list::nodes_that_fit;
use crate::model::seen_sum::{SeenSum, sum_of_rest};
use crate::model::tick_set::TickSet;
use crate::protocol::peer::{PairById, PeerMessage};
use crate::replica::purge::{PurgeDecision, TockPair};

/// Most announcements that wait for their V; a node that needs more goes by replication rule 4.
const WAITING_MAX: usize = 16;

impl Engine {
    /// An announcement came in.
    pub(in crate::engine) fn on_announce(&mut self, pair: &PairById, out: &mut Outbox) {
        let Some(pair) = self.intern_pair(pair) else { return };
        // True also where the pair cannot be applied.
        let is_news = self.learn_implied(&pair.implied());
        self.take_announcement(pair, out);
        if is_news {
            self.broadcast_group(out);
        }
    }

    /// A pair as this node understands it; none if it does not know V: the incarnations that were too
    /// many to be named sum up to something else here, so what V has of them is not known.
    pub(in crate::engine) fn intern_pair(&mut self, pair: &PairById) -> Option<TockPair> {
        let mut seen = self.replica.intern_seen(&pair.seen)?;
        if pair.rest != SeenSum::default() {
            let table = self.replica.table();
            let find = |(id, _): &(NodeId, TickSet)| table.find(id.name.as_str(), id.incarnation);
            let named: BTreeSet<NodeIndex> = pair.seen.iter().filter_map(find).collect();
            if sum_of_rest(table, self.replica.seen(), &named) != pair.rest {
                return None;
            }
            let own = self.replica.seen().iter();
            own.filter(|(node, _)| !named.contains(node)).for_each(|(node, ticks)| {
                seen.union_node(node, ticks);
            });
        }
        Some(TockPair {
            lineage: pair.lineage.clone(),
            from: pair.from.clone(),
            to: pair.to,
            id: pair.id,
            base: pair.base.clone(),
            seen,
        })
    }

    /// A pair for others: of V it names whole incarnations, as many as fit, and sums up the rest.
    pub(in crate::engine) fn export_pair(&self, pair: &TockPair) -> PairById {
        let of = |seen, rest| PairById {
            lineage: pair.lineage.clone(),
            from: pair.from.clone(),
            to: pair.to,
            id: pair.id,
            base: pair.base.clone(),
            seen,
            rest,
        };
        let (table, max) = (self.table(), self.config.lists.list);
        if max.fits(&pair.seen) {
            return of(export_seen(table, &pair.seen), SeenSum::default());
        }
        let named: BTreeSet<NodeIndex> = nodes_that_fit(&pair.seen, max).into_iter().collect();
        let rest = sum_of_rest(table, &pair.seen, &named);
        of(export_some(table, &pair.seen, named), rest)
    }

    fn take_announcement(&mut self, pair: TockPair, out: &mut Outbox) {
        match self.replica.decide_purge(&pair) {
            PurgeDecision::Apply => {
                self.apply_and_pass_on(pair, out);
                self.retry_waiting(out);
            }
            // Changes on their way may make it fit; if not, replication rule 4 does.
            PurgeDecision::NotSeen | PurgeDecision::OtherMark => {
                if !self.delete.waiting.contains(&pair) {
                    if self.delete.waiting.len() >= WAITING_MAX {
                        self.delete.waiting.pop_front();
                    }
                    self.delete.waiting.push_back(pair);
                }
            }
            PurgeDecision::Done | PurgeDecision::OtherTombstone => {}
        }
    }

    /// Tries the announcements that wait, as long as that helps.
    pub(super) fn retry_waiting(&mut self, out: &mut Outbox) {
        loop {
            let replica = &self.replica;
            self.delete.waiting.retain(|pair| replica.decide_purge(pair) != PurgeDecision::Done);
            let fits = |pair: &TockPair| replica.decide_purge(pair) == PurgeDecision::Apply;
            let Some(at) = self.delete.waiting.iter().position(fits) else { return };
            if let Some(pair) = self.delete.waiting.remove(at) {
                self.apply_and_pass_on(pair, out);
            }
        }
    }

    /// If not all are linked with the coordinator, each node that applies a pair tells its peers,
    /// once.
    fn apply_and_pass_on(&mut self, pair: TockPair, out: &mut Outbox) {
        let announcement = self.spread.is_tree().then(|| self.export_pair(&pair));
        self.apply_pair(pair, out);
        if let Some(announcement) = announcement {
            self.broadcast(&PeerMessage::Announce(announcement), out);
        }
    }

    /// Applies a pair that may be applied, and keeps it.
    pub(super) fn apply_pair(&mut self, pair: TockPair, out: &mut Outbox) {
        let purged = self.replica.apply_purge(&pair);
        self.counters.purges += 1;
        self.counters.purged += purged.len() as u64;
        if !purged.is_empty() {
            out.push(Output::Report(Report::Purged { tombstones: purged.len(), to: pair.to }));
            out.push(Output::Gone { purged, dropped: Vec::new() });
        }
        if self.delete.kept.len() >= self.delete.settings.kept_max {
            self.delete.kept.pop_front();
        }
        self.delete.kept.push_back(pair);
        self.note_knowledge();
        // All have agreed.
        self.delete.unanswered.clear();
        // The next coordinator need not begin at once.
        self.delete.rests = true;
    }

    /// Offers a peer that is behind the announcements that it missed, if they bring it up to this
    /// node's mark and, as far as is known, it can apply them. Returns whether it did.
    pub(in crate::engine) fn offer_announcements(
        &mut self,
        link: LinkId,
        asker_mark: &Mark,
        contiguous: &BTreeMap<NodeIndex, Tick>,
        out: &mut Outbox,
    ) -> bool {
        if self.replica.mark().ahead_of(asker_mark) == Tock::default() {
            return false;
        }
        let Some(peer) = self.peers.get(link) else { return false };
        let has_seen = |v: &Seen| {
            v.above(contiguous).iter().all(|(node, ticks)| {
                peer.seen.get(node).is_some_and(|theirs| theirs.contains_all(ticks))
            })
        };
        let mut mark = asker_mark.read_with(self.replica.mark().implied());
        let mut chain = Vec::new();
        for pair in &self.delete.kept {
            if pair.begins_at(&mark) && has_seen(&pair.seen) {
                pair.raise(&mut mark);
                chain.push(self.export_pair(pair));
            }
        }
        if self.replica.mark().ahead_of(&mark) > Tock::default() {
            return false;
        }
        // All of them go out at once: more than fits one message would fill the link's queue.
        let lists = chain.iter().flat_map(|pair| &pair.seen);
        let items: usize = lists.map(|(_, ticks)| 1 + ticks.range_count()).sum();
        if chain.len() > 1 && items > self.config.lists.list.ranges {
            return false;
        }
        for pair in chain {
            self.send(link, &PeerMessage::Announce(pair), out);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::delete::DeleteSettings;
    use crate::engine::{Config, Input};
    use crate::model::ids::{Event, Incarnation, NodeName};
    use crate::model::mark::{Component, Lineage};
    use crate::model::seen::Seen;

    /// An announcement up to a tock, whose V this node has not seen.
    fn announced(engine: &mut Engine, to: u64) -> PairById {
        let id = NodeId { name: NodeName::new("c").unwrap(), incarnation: Incarnation(1) };
        let node = engine.replica.intern(&id).unwrap();
        let mut seen = Seen::new();
        seen.insert(Event { node, tick: Tick::new(1).unwrap() });
        let pair = TockPair {
            lineage: Lineage::default(),
            from: Component::default(),
            to: Tock::new(to).unwrap(),
            id: None,
            base: Vec::new(),
            seen,
        };
        engine.export_pair(&pair)
    }

    #[test]
    fn announcements_that_wait_are_bounded_and_one_that_comes_twice_waits_once() {
        let id = NodeId { name: NodeName::new("b").unwrap(), incarnation: Incarnation(1) };
        let mut engine = Engine::new(Config::new(id, 1));
        let mut hear = |to: u64| {
            let pair = announced(&mut engine, to);
            engine.on_announce(&pair, &mut Outbox::new());
            engine.delete.waiting.iter().map(|pair| pair.to.get()).collect::<Vec<_>>()
        };
        let last = 2 + 2 * WAITING_MAX as u64;
        let latest: Vec<u64> = (last + 1 - WAITING_MAX as u64..=last).collect();
        for to in 2..=last {
            hear(to);
        }
        assert_eq!(hear(last), latest);
        assert_eq!(hear(latest[3]), latest, "nothing gives way to what waits already");
    }

    #[test]
    fn of_a_life_that_is_named_v_has_what_is_named_and_no_more() {
        let id =
            |name: &str| NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
        let mut engine = Engine::new(Config::new(id("b"), 1));
        let mut pair = announced(&mut engine, 5);
        let [c, d] = ["c", "d"].map(|name| engine.replica.intern(&id(name)).unwrap());
        for (node, ticks) in [(c, 3), (d, 2)] {
            for tick in 1..=ticks {
                engine.replica.account_for(Event { node, tick: Tick::new(tick).unwrap() });
            }
        }
        let named = BTreeSet::from([c]);
        pair.rest = sum_of_rest(engine.replica.table(), engine.replica.seen(), &named);
        let v = engine.intern_pair(&pair).unwrap().seen;
        // What this node has seen besides nobody has agreed on: its tombstones must stay.
        assert_eq!(v.get(c), TickSet::range(1, 2).as_ref());
        assert_eq!(v.get(d), TickSet::range(1, 3).as_ref());
    }

    /// A node that has applied a purge at tock 1 and one at tock 2, with a peer; V has what `c` made.
    fn applied_twice(settings: DeleteSettings) -> (Engine, NodeIndex) {
        let id =
            |name: &str| NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
        let config = Config { delete: settings, ..Config::new(id("b"), 1) };
        let mut engine = Engine::new(config);
        engine.handle(Input::Found, 0, &mut Outbox::new());
        engine.handle(Input::LinkUp { link: LINK, peer: id("p") }, 0, &mut Outbox::new());
        let c = engine.replica.intern(&id("c")).unwrap();
        for tick in [1, 3] {
            engine.replica.account_for(Event { node: c, tick: Tick::new(tick).unwrap() });
            let pair = engine.replica.empty_pair(&Lineage::default(), None).unwrap();
            engine.apply_pair(pair, &mut Outbox::new());
        }
        (engine, c)
    }

    const LINK: LinkId = LinkId(1);

    /// How many announcements a peer is offered that stands at the beginning.
    fn offered(engine: &mut Engine) -> Option<usize> {
        let mut out = Outbox::new();
        let is_offered =
            engine.offer_announcements(LINK, &Mark::default(), &BTreeMap::new(), &mut out);
        is_offered.then(|| out.drain().count())
    }

    #[test]
    fn so_many_announcements_are_kept() {
        let kept = |kept_max| {
            let settings = DeleteSettings { kept_max, ..DeleteSettings::default() };
            let kept: Vec<u64> =
                applied_twice(settings).0.applied_pairs().map(|p| p.to.get()).collect();
            kept
        };
        assert_eq!((kept(2), kept(1)), (vec![1, 2], vec![2]));
    }

    #[test]
    fn who_has_seen_v_is_offered_what_it_missed_if_that_is_little() {
        let (mut engine, c) = applied_twice(DeleteSettings::default());
        assert_eq!(offered(&mut engine), None, "it cannot apply them");
        let theirs = &mut engine.peers.get_mut(LINK).unwrap().seen;
        theirs.insert(Event { node: c, tick: Tick::new(1).unwrap() });
        assert_eq!(offered(&mut engine), None, "nor the second one");
        let theirs = &mut engine.peers.get_mut(LINK).unwrap().seen;
        theirs.insert(Event { node: c, tick: Tick::new(3).unwrap() });
        assert_eq!(offered(&mut engine), Some(2));
        engine.config.lists.list.ranges = 5;
        assert_eq!(offered(&mut engine), Some(2), "two items, and three");
        engine.config.lists.list.ranges = 4;
        assert_eq!(offered(&mut engine), None, "it asks for the data instead");
    }

    #[test]
    fn an_announcement_that_came_true_otherwise_waits_no_more() {
        let id = NodeId { name: NodeName::new("b").unwrap(), incarnation: Incarnation(1) };
        let mut engine = Engine::new(Config::new(id, 1));
        let pair = announced(&mut engine, 5);
        engine.on_announce(&pair, &mut Outbox::new());
        assert_eq!(engine.delete.waiting.len(), 1);
        let reached = [(Lineage::default(), Tock::new(5).unwrap())];
        engine.replica.raise_mark_early(&Mark::from_components(reached));
        engine.retry_waiting(&mut Outbox::new());
        assert!(engine.delete.waiting.is_empty());
    }
}
