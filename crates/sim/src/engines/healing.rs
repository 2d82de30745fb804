//! The end of a run: everything is repaired, the remaining work is completed, and when nothing
//! changes any more, the judge compares all nodes. A network that does not come to rest has failed.

use super::cluster::{Cluster, Happening, Phase, note};
use super::endless_talk::Talk;
use crate::engine::Input;
use crate::model::group::{GroupConfig, Member};
use crate::model::ids::{Millis, NodeName};
use crate::oracle::Survivor;
use crate::rng::Rng;

/// If nothing has changed for this long, the run has ended. Every node has told all that it knows
/// at least once in this time: full digests come every 5 s, and if a sum shows a difference, the
/// whole list is requested after that, from one peer a second.
const CALM_MS: Millis = 12_000;
/// Healing that takes longer than this does not end.
const HEALING_MS_MAX: Millis = 180_000;
/// How often the judge checks for the end.
const JUDGE_INTERVAL_MS: Millis = 500;
/// How often operators look.
const OPERATE_MS: Millis = 2_000;
/// How often engines are told that time passes now: nothing needs it sooner.
const TICK_MS: Millis = 200;

impl Cluster<'_> {
    /// Mends everything.
    pub(crate) fn heal(&mut self) {
        note!(self, "healing");
        self.phase = Phase::Healing { since: self.now() };
        self.changed_at = self.now();
        self.plan.tick_ms = TICK_MS;
        self.echoes.clear();
        drop(self.network.cuts.heal());
        let mut rng = self.rng;
        self.end_twins(&mut rng);
        for node in 0..self.nodes.len() {
            let process = self.nodes[node].process;
            self.on_thaw(node, process);
            self.come_back(node, &mut rng);
        }
        for end in self.network.ends() {
            let state = self.network.end_mut(end);
            state.stalled_until = 0;
            if state.open && state.broken {
                let now = self.now();
                self.schedule.plan(now, Happening::Notice(end));
            }
            self.to_look.push_back(end);
        }
        if !self.nodes.iter().any(|n| n.is_ready())
            && let Some(first) = self.nodes.iter().position(|n| n.is_up())
        {
            note!(self, "{} founds", self.nodes[first].label);
            self.handle(first, Input::Found);
        }
        self.after_block();
        let at = self.now() + JUDGE_INTERVAL_MS;
        self.schedule.plan(at, Happening::Judge);
        if self.plan.operator_forgets {
            self.schedule.plan(at + OPERATE_MS, Happening::Operate);
        }
    }

    /// Operators take members that will not come back off the Delete group's list.
    pub(crate) fn operate(&mut self) {
        let now = self.now();
        for node in 0..self.nodes.len() {
            let Some(engine) = &self.nodes[node].engine else { continue };
            let away = engine.group_view(now).away;
            let lost = away.iter().map(|(m, _)| &m.name).find(|name| !self.is_name_up(name));
            if let Some(name) = lost.cloned() {
                self.forget(node, &name);
                break;
            }
        }
        self.schedule.plan(now + OPERATE_MS, Happening::Operate);
    }

    fn is_name_up(&self, name: &NodeName) -> bool {
        self.nodes.iter().any(|n| n.is_up() && n.name == *name)
    }

    /// Whether all tombstones are gone. They stay if a member of the Delete group is gone that
    /// nobody removes from the list, and if the purge from which on the list is in force is gone
    /// with all nodes that had applied it, until a node makes another list, which may be long
    /// after.
    fn is_purged_or_blocked(&self) -> bool {
        let engines = || self.nodes.iter().filter_map(|n| n.engine.as_ref());
        let groups = || engines().filter_map(|e| e.group());
        let has_gone = |m: &Member| !self.is_name_up(&m.name);
        let is_stranded = |g: &GroupConfig| {
            self.plan.delete.takeover_after_ms >= HEALING_MS_MAX
                && !engines().any(|e| e.mark().component(&g.lineage).includes(&g.since))
        };
        engines().all(|e| e.tree().tombstone_len() == 0)
            || groups().any(|g| g.members().iter().any(has_gone) || is_stranded(g))
    }

    /// Two nodes of one name cannot stay: the operator stops one. A copy that has not found out yet
    /// must not go on in any case.
    fn end_twins(&mut self, rng: &mut Rng) {
        for node in 0..self.nodes.len() {
            let Some(twin) = self.nodes[node].twin.filter(|twin| *twin < node) else { continue };
            let is_unmet_copy = self.nodes[node].copied_at.is_some();
            let is_single = self.nodes[node].gone || self.nodes[twin].gone;
            if self.nodes[node].gone || (is_single && !is_unmet_copy) {
                continue;
            }
            let stopped = if is_unmet_copy || rng.percent(50) { node } else { twin };
            note!(self, "{} is stopped for good", self.nodes[stopped].label);
            self.nodes[stopped].gone = true;
            self.crash(stopped);
        }
    }

    /// Checks for the end.
    pub(crate) fn on_judge(&mut self) {
        let Phase::Healing { since } = self.phase else { return };
        let now = self.now();
        let is_busy = |n: &super::node::Node| {
            n.engine.as_ref().is_some_and(|e| e.catch_up_progress().is_some() || !e.is_ready())
        };
        let is_calm = now - self.changed_at >= CALM_MS
            && !self.nodes.iter().any(is_busy)
            && self.is_meshed()
            && self.is_purged_or_blocked();
        if is_calm {
            self.judge_talk(now);
            self.judge_end();
            self.stats.healing_ms_max = now - since;
            self.phase = Phase::Over;
        } else if now - since >= HEALING_MS_MAX {
            let busy: Vec<&str> =
                self.nodes.iter().filter(|n| is_busy(n)).map(|n| n.label.as_str()).collect();
            let detail = if !self.is_purged_or_blocked() {
                "tombstones stay".to_owned()
            } else if busy.is_empty() {
                format!("something always changes; all are linked: {}", self.is_meshed())
            } else {
                format!("not ready or catching up: {}", busy.join(" "))
            };
            self.oracle.fail("healing does not end", detail);
        } else {
            self.schedule.plan(now + JUDGE_INTERVAL_MS, Happening::Judge);
        }
    }

    /// Nothing changes any more, so there is little to say.
    fn judge_talk(&mut self, now: Millis) {
        let rate = |end: &u32| self.network.end(*end).talk.per_second(self.changed_at, now);
        let busiest = self.nodes.iter().flat_map(|n| &n.ends).max_by_key(|end| rate(end));
        let Some((end, per_second)) = busiest.map(|end| (*end, rate(end))) else { return };
        self.stats.calm_messages_max = per_second;
        if Talk::is_endless(per_second) {
            let detail = format!("{per_second} messages a second to {}", self.link_label(end));
            self.oracle.fail("nodes talk without end", detail);
        }
    }

    fn judge_end(&mut self) {
        for node in &mut self.nodes {
            if let Some(engine) = &node.engine {
                self.oracle.check_whole(&node.label, &mut node.shadow, engine);
            }
        }
        let survivors: Vec<Survivor<'_>> = self
            .nodes
            .iter()
            .filter_map(|n| {
                let engine = n.engine.as_ref()?;
                Some(Survivor { name: &n.label, shadow: &n.shadow, engine })
            })
            .collect();
        self.stats.blocked =
            u64::from(survivors.iter().any(|s| s.engine.tree().tombstone_len() > 0));
        self.oracle.check_end(&survivors);
        if self.script.is_some() {
            self.note_end();
        }
    }

    fn note_end(&mut self) {
        if self.oracle.only_end {
            return;
        }
        for node in 0..self.nodes.len() {
            if !self.nodes[node].is_up() {
                continue;
            }
            let paths = 0..self.oracle.history.paths().len() as u32;
            let held: Vec<String> = paths
                .map(|path| self.oracle.history.label(self.nodes[node].shadow.held(path)))
                .collect();
            note!(self, "{} ends with {}", self.nodes[node].label, held.join(", "));
        }
    }
}
