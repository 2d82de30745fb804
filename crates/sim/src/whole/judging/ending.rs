//! The end of a run: everything is mended, all nodes that are not lost run, and when nothing changes any
//! more, the judge compares what they hold, what clients were told, what watches have, and what the
//! disks would give back.

use std::collections::BTreeMap;

use super::view::{Version, contents, knows};
use crate::durable::SyncPolicy;
use crate::engine::{Engine, Image};
use crate::model::group::Member;
use crate::model::ids::{Millis, NodeId, NodeName};
use crate::model::path::Path;
use crate::whole::{Happening, Phase, Whole, note};

/// Nothing has changed for so long: it is over.
const CALM_MS: Millis = 12_000;
/// Healing that takes longer than this does not end.
const HEALING_MS_MAX: Millis = 240_000;
/// More events than this in healing, in which clients only end what they have begun, have no end.
const HEALING_EVENTS_MAX: u64 = 20_000;
/// The slowest watch reads nothing for so long then.
const SLOW_WATCH_MS: Millis = 20_000;
const JUDGE_INTERVAL_MS: Millis = 500;
const OPERATE_MS: Millis = 3_000;

impl Whole<'_> {
    /// Mends everything.
    pub(in crate::whole) fn heal(&mut self) {
        note!(self, "healing");
        self.phase = Phase::Healing { since: self.now(), events: self.judge.event_count() };
        self.changed_at = self.now();
        drop(self.cuts.heal());
        for wire in &mut self.wires {
            wire.ends.iter_mut().for_each(|end| end.stalled_until = 0);
        }
        // Some go on reading only when much has been purged.
        for watcher in 0..self.watchers.len() {
            if self.rng.percent(50) {
                let until = self.now() + self.rng.within(0, SLOW_WATCH_MS);
                self.watchers[watcher].pause(until);
            }
        }
        self.end_namesakes();
        for slot in 0..self.slots.len() {
            let at = &mut self.slots[slot];
            at.disk_fails = false;
            at.disk.set_fault(None);
            if let Some(process) = &mut at.process {
                process.dies_with_disk = false;
                process.disk_stalled_until = 0;
                process.log_planned = None;
                let number = process.number;
                self.thaw(slot, number);
            }
            self.start(slot);
            self.touch(slot);
        }
        // If only nodes are left that found nothing, an operator says who begins.
        if let Some(slot) = self.slots.iter().position(|slot| slot.is_up())
            && !self.slots.iter().any(|slot| slot.founds && slot.is_up())
        {
            self.slots[slot].founds = true;
        }
        let at = self.now() + JUDGE_INTERVAL_MS;
        self.schedule.plan(at, Happening::Judge);
        self.schedule.plan(at + OPERATE_MS, Happening::Operate);
    }

    /// Two nodes of one name cannot both run in the end: the operator keeps one.
    fn end_namesakes(&mut self) {
        for slot in 0..self.slots.len() {
            let name = self.slots[slot].name.clone();
            let is_there = |at: &crate::whole::node::Slot| !at.gone && at.name == name;
            let others = self.slots[..slot].iter().any(is_there);
            if others && !self.slots[slot].gone {
                self.lose(slot);
            }
        }
    }

    /// An operator takes members that will not come back off the Delete group's list.
    pub(in crate::whole) fn operate(&mut self) {
        let now = self.now();
        for slot in 0..self.slots.len() {
            let Some(process) = &self.slots[slot].process else { continue };
            let away = process.hub.read(|engine| engine.group_view(now).away);
            let lost = away.into_iter().find(|(member, _)| !self.is_member_there(member));
            if let Some((member, _)) = lost {
                self.forget(slot, &member.name);
                break;
            }
        }
        self.schedule.plan(now + OPERATE_MS, Happening::Operate);
    }

    fn is_name_up(&self, name: &NodeName) -> bool {
        self.slots.iter().any(|slot| slot.is_up() && slot.name == *name)
    }

    /// Whether a member runs; a node of its name with another store is not it.
    fn is_member_there(&self, member: &Member) -> bool {
        let stores = |engine: &Engine| engine.store().unwrap_or(engine.id().incarnation.0);
        let is_it = |slot: &crate::whole::node::Slot| {
            slot.process.as_ref().is_some_and(|process| process.hub.read(stores) == member.store)
        };
        self.is_name_up(&member.name)
            && self.slots.iter().any(|slot| slot.name == member.name && is_it(slot))
    }

    fn engines<R>(&self, read: impl Fn(&Engine) -> R) -> Vec<R> {
        let running = self.slots.iter().filter_map(|slot| slot.process.as_ref());
        running.map(|process| process.hub.read(&read)).collect()
    }

    /// Whether everybody has the links that it wants.
    fn is_meshed(&self) -> bool {
        let up = self.slots.iter().filter(|slot| slot.is_up()).count();
        let running = self.slots.iter().filter_map(|slot| slot.process.as_ref());
        running.into_iter().all(|process| {
            process.up.len() + 1 == up
                && process.hub.read(|engine| match engine.wanted_links() {
                    Some(wanted) => wanted.len() <= process.links.len(),
                    None => process.links.len() + 1 == up,
                })
        })
    }

    /// What is not as it should be in the end, if anything.
    fn unrest(&self) -> Option<String> {
        let calm = self.now().saturating_sub(self.changed_at);
        if self.slots.iter().any(|slot| !slot.gone && !slot.is_up()) {
            return Some("a node is down".into());
        }
        let is_busy = |engine: &Engine| engine.catch_up_progress().is_some() || !engine.is_ready();
        if self.engines(is_busy).contains(&true) {
            return Some("a node is not ready, or catches up".into());
        }
        if !self.is_meshed() {
            let of = |at: &crate::whole::node::Slot| {
                let process = at.process.as_ref()?;
                let up: Vec<_> =
                    process.up.iter().map(|(addr, name)| format!("{name}@{addr}")).collect();
                Some(format!("{} sees {up:?}, linked with {:?}", at.label, process.links.keys()))
            };
            let all: Vec<String> = self.slots.iter().filter_map(of).collect();
            return Some(format!("not all are linked that want to be: {}", all.join("; ")));
        }
        if self.engines(|engine| engine.tree().tombstone_len()).iter().any(|count| *count > 0) {
            return Some("tombstones stay".into());
        }
        if self.clients.iter().any(crate::whole::Client::is_busy) {
            return Some("a client waits".into());
        }
        if !self.are_watches_through() {
            return Some("a watch waits".into());
        }
        let logs = self.slots.iter().filter_map(|slot| slot.process.as_ref()?.log.as_ref());
        if logs.into_iter().any(|log| log.is_behind() || log.failure().is_some()) {
            return Some("a log waits".into());
        }
        (calm < CALM_MS).then(|| "something always changes".into())
    }

    /// Looks whether it is over.
    pub(in crate::whole) fn on_judge(&mut self) {
        let Phase::Healing { since, events } = self.phase else { return };
        let now = self.now();
        let made = self.judge.event_count() - events;
        if made > HEALING_EVENTS_MAX {
            // Nobody wants to wait for the end of that, nor has the memory for it.
            return self.judge.fail("nodes make events without end", format!("{made} in healing"));
        }
        match self.unrest() {
            None => {
                self.stats.healing_ms_max = now - since;
                self.judge_end();
                self.phase = Phase::Over;
            }
            Some(why) if now - since >= HEALING_MS_MAX => {
                if why == "tombstones stay" {
                    note!(self, "{:?}", self.engines(|engine| engine.group_view(now)));
                }
                self.judge.fail("healing does not end", why);
            }
            Some(_) => self.schedule.plan(now + JUDGE_INTERVAL_MS, Happening::Judge),
        }
    }

    fn judge_end(&mut self) {
        let states = self.engines(|engine| {
            let table = engine.table();
            let seen: BTreeMap<NodeId, _> = engine
                .seen()
                .iter()
                .filter(|(_, ticks)| !ticks.is_empty())
                .filter_map(|(node, ticks)| Some((table.get(node)?.clone(), ticks.clone())))
                .collect();
            (contents(table, engine.tree()), seen, engine.mark().top().get())
        });
        let Some((held, seen, mark)) = states.first() else { return };
        if let Some((other, other_seen, _)) = states.iter().find(|state| state != &&states[0]) {
            let detail = if other == held {
                format!("{seen:?} and {other_seen:?}")
            } else {
                first_difference(held, other)
            };
            return self.judge.fail("nodes do not agree in the end", detail);
        }
        let mut judge = std::mem::take(&mut self.judge);
        judge.judge_changes(held, *mark, |(id, tick)| {
            !self.engines(|engine| knows(engine, id, *tick)).contains(&false)
        });
        self.judge = judge;
        if self.judge.failure.is_some() {
            return;
        }
        for (number, watch) in self.watchers.iter().enumerate() {
            if let Some(detail) = watch.check(held) {
                let detail = format!("watch {number}: {detail}");
                return self.judge.fail("a watch is not told how it ends", detail);
            }
        }
        let held = held.clone();
        self.judge_disks(&held);
    }

    /// What a power cut would leave of each disk now is what its node holds: nothing has changed for
    /// longer than any policy but `never` needs.
    fn judge_disks(&mut self, held: &BTreeMap<Path, Version>) {
        for slot in 0..self.slots.len() {
            let at = &self.slots[slot];
            if at.process.is_none() || at.sync.is_none_or(|sync| sync == SyncPolicy::Never) {
                continue;
            }
            let label = at.label.clone();
            let Some(process) = &at.process else { continue };
            let live = process.hub.read(Engine::image);
            match self.recovered(slot) {
                Err(why) => {
                    let detail = format!("{label}: {why}");
                    return self.judge.fail("a disk cannot be read in the end", detail);
                }
                Ok(image) => {
                    let found = contents(&image.replica.table, &image.replica.tree);
                    if found != *held {
                        let detail = format!("{label}: {}", first_difference(held, &found));
                        return self
                            .judge
                            .fail("a disk holds something else than its node", detail);
                    }
                    let knowledge = |image: &Image| (image.replica.mark.top(), image.group.clone());
                    if knowledge(&image) != knowledge(&live) || !is_seen_by(&image, &live) {
                        let detail = format!("{label}: {:?}", knowledge(&image));
                        return self
                            .judge
                            .fail("a disk knows something else than its node", detail);
                    }
                    self.stats.disks_compared += 1;
                }
            }
        }
    }
}

/// Whether all that a disk says was seen was. It may say less: what came and lost is seen, and is in no
/// log; it is fetched again.
fn is_seen_by(image: &Image, live: &Image) -> bool {
    let (table, of) = (&image.replica.table, &live.replica);
    image.replica.seen.iter().filter(|(_, ticks)| !ticks.is_empty()).all(|(node, ticks)| {
        let id = table.get(node);
        let there = id.and_then(|id| of.table.find(id.name.as_str(), id.incarnation));
        there.and_then(|there| of.seen.get(there)).is_some_and(|seen| seen.contains_all(ticks))
    })
}

fn first_difference(a: &BTreeMap<Path, Version>, b: &BTreeMap<Path, Version>) -> String {
    let mut paths = a.keys().chain(b.keys());
    let path = paths.find(|path| a.get(*path) != b.get(*path));
    path.map_or(String::new(), |path| format!("{path}: {:?} and {:?}", a.get(path), b.get(path)))
}
