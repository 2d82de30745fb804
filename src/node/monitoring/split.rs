//! Notices when members that were here go silent: they have failed, or the network is split. Nobody can tell
//! which from here, so it is told as loudly for one as for many: `status`, `members`, the log and the metrics say
//! who is silent, since when, how many changes were made since, and with whom this node goes on.
//!
//! So are members that this node knew when it was started and that do not show themselves (`unseen`). Of members that are
//! up, those are told of to which no link comes about (`unlinked`), and of the linked ones those whose datagrams do not come through (`unheard`).
//!
//! A member that leaves says so, to membership or over its link (`parted`), and is not missed. One that is silent is, until it is back, has left, or is
//! forgotten: when it is taken off the Delete group, or this node is told to forget it; alone, when `--forget-down-after` is over; of several that
//! went together, after a week.

mod last_words;
mod parted;
#[cfg(test)]
mod tests;
pub(in crate::node) mod unheard;
pub(in crate::node) mod unlinked;
pub(in crate::node) mod unseen;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::membership::MemberState;
use crate::model::count::count_of;
use crate::model::ids::{Incarnation, Millis, NodeName};
use crate::node::link::Links;
use crate::rt;
use crate::server::{SilentInfo, SilentMembers};
use last_words::LastWords;
use parted::Parted;
use unheard::LinkSince;
use unseen::{Missed, Unseen};

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// Members whose silence began within this time of each other went together: each finds out by its own timers.
const TOGETHER_MS: Millis = 10_000;
/// While it lasts, the warning is repeated this often.
const SAY_AGAIN_MS: Millis = 600_000;
/// Several members that went together are missed for this long.
const MISSED_TOGETHER_MS: Millis = 7 * 86_400_000;
/// Most members that are missed; those that are silent for longest are forgotten first.
const SILENT_MEMBERS_MAX: usize = 4_096;

/// Looks until the node ends.
pub(in crate::node) async fn watch_split(links: Arc<Links>, forget_after_ms: Millis) {
    while links.stop.or(rt::sleep(INTERVAL)).await.is_some() {
        let present = present(&links);
        let now = rt::now();
        let look = |engine: &Engine| {
            let words = engine.last_words().map(|(name, known)| (name.clone(), known));
            let words: Vec<(NodeName, u64)> = words.collect();
            (engine.group_view(now).config, engine.counters(), engine.changes_at_ready(), words)
        };
        let (config, counters, known_at_ready, words) = links.hub.read(look);
        let listed = config.iter().flat_map(|config| config.members());
        let network = Network {
            present,
            lives: lives(&links),
            known: counters.changes(),
            words,
            listed: listed.map(|member| member.name.clone()).collect(),
            linked: links.infos().into_iter().map(|link| link.peer.name).collect(),
            refusing: links.refusing(),
            link_local: unlinked::at_link_local(&links.swim.roster().members),
            known_at_ready,
        };
        let mut news = links.observed.look_for_splits(&network, forget_after_ms, now);
        let wanted = links.hub.read(|engine| engine.wanted_links().cloned());
        let is_wanted = |name: &NodeName| wanted.as_ref().is_none_or(|w| w.contains(name));
        news.extend(links.observed.look_for_links(
            &network,
            is_wanted,
            |n| links.trouble_with(n),
            now,
        ));
        let links_since: Vec<LinkSince> = links.infos().into_iter().map(LinkSince::of).collect();
        let members = &links.swim.roster().members;
        news.extend(links.observed.look_for_datagrams(&links_since, members, now));
        for news in news {
            match news {
                News::Silent(text) => tracing::warn!("{text}"),
                News::Back(text) => tracing::warn!("{text}"),
                News::Over(text) => tracing::info!("{text}"),
            }
        }
        let silent = links.observed.silent(now);
        links.observed.live.look(silent.as_ref(), counters.conflicts);
    }
}

/// How each member of the network is, as far as is known here.
fn present(links: &Links) -> BTreeMap<NodeName, Presence> {
    let mut present = BTreeMap::new();
    for member in &links.swim.roster().members {
        let is = match member.state {
            MemberState::Up => Presence::Here,
            MemberState::Suspect => Presence::Doubtful,
            MemberState::Left => Presence::Left,
            MemberState::Down => Presence::Silent,
        };
        // Of several lives of one node, the one that is most here counts.
        let known = present.entry(member.name.clone()).or_insert(is);
        *known = (*known).min(is);
    }
    for link in links.infos() {
        // Where UDP does not get through, the link tells; the engine ends one that is silent.
        let known = present.entry(link.peer.name.clone()).or_insert(Presence::Here);
        *known = (*known).min(Presence::Doubtful);
    }
    present.remove(&links.me.name);
    present
}

/// The lives that are up, or linked.
fn lives(links: &Links) -> BTreeSet<(NodeName, Incarnation)> {
    let roster = links.swim.roster();
    let is_up = |state| matches!(state, MemberState::Up | MemberState::Suspect);
    let up = roster.members.iter().filter(|member| is_up(member.state));
    let up = up.map(|member| (member.name.clone(), member.incarnation));
    let linked = links.infos().into_iter().map(|link| (link.peer.name, link.peer.incarnation));
    up.chain(linked).collect()
}

/// What is looked at.
#[derive(Clone, Default, Debug)]
pub(in crate::node) struct Network {
    /// The members but this node.
    pub(super) present: BTreeMap<NodeName, Presence>,
    /// Of these, the lives that are here.
    pub(super) lives: BTreeSet<(NodeName, Incarnation)>,
    /// How many changes were made here, or taken from peers, since the start.
    pub(super) known: u64,
    /// Of these, how many were known when something last came from each node that a link stands to.
    pub(super) words: Vec<(NodeName, u64)>,
    /// The members of the Delete group.
    pub(super) listed: BTreeSet<NodeName>,
    /// The nodes that a link stands to.
    pub(super) linked: BTreeSet<NodeName>,
    /// Nodes that link with this one under no circumstances, or this one with them; and why.
    pub(super) refusing: BTreeMap<NodeName, Arc<str>>,
    /// Members of which link-local addresses are told, which nobody else can connect to.
    pub(super) link_local: BTreeMap<NodeName, SocketAddr>,
    /// How many changes were known here when this node began to serve clients; none: it does not yet.
    pub(super) known_at_ready: Option<u64>,
}

impl Network {
    /// Whether a member is missed that has not been seen in this life. Where others are here, they know whether it has left:
    /// then it is only if it has a say in what is purged, and so cannot go unnoticed.
    pub(super) fn is_missed_from_start(&self, name: &NodeName) -> bool {
        let is_alone = !self.present.values().any(|is| *is < Presence::Left);
        is_alone || self.listed.contains(name)
    }
}

/// How a member is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::node) enum Presence {
    Here,
    /// It was here a moment ago.
    Doubtful,
    Left,
    Silent,
}

/// A line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::node) enum News {
    Silent(String),
    Back(String),
    /// What a line before has warned of is over.
    Over(String),
}

/// What was noticed so far.
#[derive(Default)]
pub(in crate::node) struct SplitWatch {
    /// Members that are here.
    here: BTreeSet<NodeName>,
    /// Of these, those that have not answered lately: when that began, and what was known here then.
    doubtful: BTreeMap<NodeName, (Millis, u64)>,
    splits: Vec<Split>,
    /// Members that may have been lost before this life.
    unseen: Unseen,
    parted: Parted,
    last_words: LastWords,
    /// Members that are not missed any more although they are not back.
    given_up: BTreeSet<NodeName>,
    /// At the last look; see [`Network`].
    refusing: BTreeMap<NodeName, Arc<str>>,
    /// The members of the Delete group at the last look.
    listed: BTreeSet<NodeName>,
    /// Members that an operator has forgotten, perhaps before their silence was noticed here: those that were taken off it
    /// while they were not linked, and those that this node was told of.
    forgotten: BTreeSet<NodeName>,
    /// How often members have gone silent.
    count: u64,
    /// What is known here now.
    known: u64,
}

/// Members that went silent together.
struct Split {
    since: Millis,
    /// How many changes were known here when something last came from one of them: that is before it was noticed.
    known: u64,
    names: BTreeSet<NodeName>,
    /// How many they were, with those that are back.
    were: usize,
    /// They have not been seen since this node was started.
    is_from_start: bool,
    said_at: Option<Millis>,
}

impl SplitWatch {
    /// How often members have gone silent.
    pub(in crate::node) fn count(&self) -> u64 {
        self.count
    }

    /// Whom this node knew when it was started.
    pub(in crate::node) fn expect(&mut self, unseen: Unseen) {
        self.unseen = unseen;
    }

    /// Whom this node knew when it was started, and has not met since.
    pub(in crate::node) fn unmet(&self) -> BTreeSet<NodeName> {
        self.unseen.unmet().clone()
    }

    /// That life of a member has said farewell over its link.
    pub(in crate::node) fn note_farewell(&mut self, name: NodeName, life: Incarnation) {
        self.parted.note(name, life);
    }

    /// So many changes were known here when something last came over the link of a member, which ends now.
    pub(in crate::node) fn note_last_word(&mut self, name: NodeName, known: u64, now: Millis) {
        self.last_words.note(name, known, now);
    }

    /// Who has said farewell over its link, and is not back.
    pub(in crate::node) fn parted(&self) -> BTreeSet<NodeName> {
        self.parted.names()
    }

    /// Who is not missed any more, and not back.
    pub(in crate::node) fn given_up(&self) -> BTreeSet<NodeName> {
        self.given_up.clone()
    }

    /// Who is silent.
    pub(in crate::node) fn silent(&self, now: Millis) -> Option<SilentInfo> {
        if self.splits.is_empty() {
            return None;
        }
        let of = |split: &Split| SilentMembers {
            names: split.names.iter().map(ToString::to_string).collect(),
            since_ms: now.saturating_sub(split.since),
            changes: self.known.saturating_sub(split.known),
            is_from_start: split.is_from_start,
            refusing: split
                .names
                .iter()
                .find_map(|name| Some((name.to_string(), self.refusing.get(name)?.to_string()))),
        };
        let with = self.here.iter().map(ToString::to_string).collect();
        Some(SilentInfo { together: self.splits.iter().map(of).collect(), with })
    }

    /// The Delete group has these members now. Between two looks it may have changed more than once.
    pub(in crate::node) fn note_listed(&mut self, listed: BTreeSet<NodeName>) {
        let before = std::mem::replace(&mut self.listed, listed);
        self.forgotten.extend(before.difference(&self.listed).cloned());
    }

    /// An operator tells this node that a member does not come back. It need not be in the Delete group, nor have been one that
    /// is missed.
    pub(in crate::node) fn give_up(&mut self, name: &NodeName) {
        self.forgotten.insert(name.clone());
        self.given_up.insert(name.clone());
        self.unseen.give_up(name);
        self.remove_silent(|silent| silent == name);
    }

    /// Such members are not silent any more.
    fn remove_silent(&mut self, is_over: impl Fn(&NodeName) -> bool) {
        self.splits.retain_mut(|split| {
            split.names.retain(|name| !is_over(name));
            !split.names.is_empty()
        });
    }

    /// Looks at the members.
    pub(in crate::node) fn look(
        &mut self,
        network: &Network,
        forget_after_ms: Millis,
        now: Millis,
    ) -> Vec<News> {
        let (present, known) = (&network.present, network.known);
        self.known = known;
        self.note_listed(network.listed.clone());
        self.forgotten.retain(|name| !network.linked.contains(name));
        self.refusing.clone_from(&network.refusing);
        for (name, known) in &network.words {
            self.last_words.note(name.clone(), *known, now);
        }
        let mut back = BTreeSet::new();
        for (name, is) in present {
            match is {
                Presence::Here => {
                    self.doubtful.remove(name);
                    self.here.insert(name.clone());
                    back.insert(name);
                }
                // It can be heard over a new link, whatever becomes of its datagrams: of those, `unheard` tells.
                Presence::Doubtful if network.linked.contains(name) && self.is_silent(name) => {
                    self.here.insert(name.clone());
                    back.insert(name);
                }
                Presence::Doubtful if self.here.contains(name) => {
                    let (since, _) = self.doubtful.entry(name.clone()).or_insert((now, known));
                    if network.linked.contains(name) {
                        // Something came over the link lately, or it would have ended.
                        *since = (*since).max(now.saturating_sub(TOGETHER_MS));
                    }
                }
                // It has only just come.
                Presence::Doubtful => {}
                Presence::Left => self.leave(name),
                Presence::Silent => {}
            }
        }
        self.parted.look(&network.lives);
        for name in self.parted.gone(present) {
            self.leave(&name);
        }
        let is_gone =
            |name: &&NodeName| !matches!(present.get(*name), Some(is) if *is < Presence::Left);
        let lost: Vec<NodeName> = self.here.iter().filter(is_gone).cloned().collect();
        for name in lost {
            self.here.remove(&name);
            if self.forgotten.contains(&name) {
                self.doubtful.remove(&name);
                continue;
            }
            let (since, known) = self.doubtful.remove(&name).unwrap_or((now, known));
            let said = self.last_words.of(&name, since);
            self.lose(name, since, said.map_or(known, |said| said.min(known)));
        }
        if let Some(missed) = self.unseen.look(network, &self.forgotten, now) {
            self.miss(missed);
        }
        self.unseen.forget(forget_after_ms, now);
        let mut news = self.returns(network, &back, now);
        self.forget(forget_after_ms, now);
        self.given_up.retain(|name| present.get(name).is_none_or(|is| *is == Presence::Silent));
        news.extend(self.say(now));
        news
    }

    fn is_silent(&self, name: &NodeName) -> bool {
        self.splits.iter().any(|split| split.names.contains(name))
    }

    /// It is not missed.
    fn leave(&mut self, name: &NodeName) {
        self.here.remove(name);
        self.doubtful.remove(name);
        self.splits.iter_mut().for_each(|split| {
            split.names.remove(name);
        });
    }

    fn lose(&mut self, name: NodeName, since: Millis, known: u64) {
        let last = self.splits.last_mut();
        let is_with =
            |split: &&mut Split| !split.is_from_start && since.abs_diff(split.since) < TOGETHER_MS;
        match last.filter(is_with) {
            Some(split) => {
                split.since = split.since.min(since);
                split.known = split.known.min(known);
                split.were += 1;
                split.names.insert(name);
                // There is more to say now.
                split.said_at = None;
            }
            None => {
                self.count += 1;
                let names = BTreeSet::from([name]);
                self.splits.push(Split {
                    since,
                    known,
                    names,
                    were: 1,
                    is_from_start: false,
                    said_at: None,
                });
            }
        }
    }

    fn miss(&mut self, missed: Missed) {
        let Missed { names, since, known } = missed;
        self.count += 1;
        let were = names.len();
        // Nobody can have gone earlier.
        self.splits
            .insert(0, Split { since, known, names, were, is_from_start: true, said_at: None });
    }

    /// Members that are here again.
    fn returns(&mut self, network: &Network, back: &BTreeSet<&NodeName>, now: Millis) -> Vec<News> {
        let mut news = Vec::new();
        let known = self.known;
        self.splits.retain_mut(|split| {
            let before = split.names.len();
            split.names.retain(|name| {
                let is_missed = !split.is_from_start || network.is_missed_from_start(name);
                !back.contains(name) && is_missed
            });
            if split.names.is_empty() && before > 0 {
                let who = match split.were {
                    1 => String::from("the member that was silent is back"),
                    were => format!("all {were} members that were silent are back, or have left"),
                };
                let seconds = now.saturating_sub(split.since) / 1_000;
                let changes = count_of(known.saturating_sub(split.known), "change", "changes");
                news.push(News::Back(format!(
                    "{who}, after {seconds} s; {changes} came to be known here meanwhile"
                )));
            }
            !split.names.is_empty()
        });
        news
    }

    fn forget(&mut self, forget_after_ms: Millis, now: Millis) {
        let forgotten = std::mem::take(&mut self.forgotten);
        self.given_up.extend(forgotten.iter().cloned());
        self.remove_silent(|name| forgotten.contains(name));
        let given_up = &mut self.given_up;
        self.splits.retain_mut(|split| {
            let missed_for = if split.were == 1 { forget_after_ms } else { MISSED_TOGETHER_MS };
            let is_missed = now.saturating_sub(split.since) < missed_for;
            if !is_missed {
                given_up.append(&mut split.names);
            }
            is_missed
        });
        while self.given_up.len() > SILENT_MEMBERS_MAX {
            self.given_up.pop_first();
        }
        // It counts as long as the others still take it for a member.
        self.forgotten = forgotten.intersection(&self.here).cloned().collect();
        while self.splits.iter().map(|split| split.names.len()).sum::<usize>() > SILENT_MEMBERS_MAX
        {
            self.splits.remove(0);
        }
    }

    /// What it is time to say.
    fn say(&mut self, now: Millis) -> Vec<News> {
        let mut is_due = false;
        for split in &mut self.splits {
            let said = |at: Millis| now.saturating_sub(at) < SAY_AGAIN_MS;
            if !split.said_at.is_some_and(said) {
                split.said_at = Some(now);
                is_due = true;
            }
        }
        let told = self.silent(now).filter(|_| is_due);
        told.iter().flat_map(SilentInfo::warnings).map(News::Silent).collect()
    }
}
