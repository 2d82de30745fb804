//! `get_state`, `get_value` by event, `enum_node`, `kill_node`, `check_deleted`: a node's knowledge
//! of itself and others. Walks over the tree run on a snapshot, as jobs of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use distkv_access::users::Role;

use super::admin::write_client_memory;
use super::delete_group::{write_delete_group, write_resync, write_texts};
use crate::engine::changes::{KillNode, MintTock};
use crate::engine::delete::GroupView;
use crate::engine::view::{ChainTicks, StateView, TickSets};
use crate::engine::{Engine, KILLED_MAX, NO_LATER, ResyncView};
use crate::hub::client_memory::ClientMemoryView;
use crate::model::ids::{Event, Millis, NodeIndex, NodeName, NodeTable, Tock};
use crate::model::path::bytes;
use crate::model::seen::Mark;
use crate::model::tick_set::TickSet;
use crate::model::value::{write_array_len, write_map_len, write_nil, write_str, write_u64};
use crate::protocol::client::chain::{Names, parse_life};
use crate::protocol::client::reply::{write_error, write_result, write_ticks};
use crate::protocol::client::request::{ChainLength, StateParts, tick_of};
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::access::authorise::Target;
use crate::server::access::mistakes::Mistake;
use crate::server::command::files::storage::write_storage;
use crate::server::connections::session::{Context, Purpose, Session, Then};
use crate::server::error_text::shown;
use crate::server::info::StorageStatus;

impl Session {
    /// `get_state`.
    pub(in crate::server) fn get_state(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        parts: StateParts,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::GetState, Target::Node)?;
        // A fresh tock, as in the original: it says of which moment the answer is.
        cx.hub.handle(MintTock, cx.now);
        let mut moment = cx.hub.read(|engine| Moment::of(engine, parts, cx.now));
        if parts.storage {
            moment.storage = cx.shared.info.storage();
        }
        if parts.client_memory {
            moment.client_memory = Some(cx.hub.client_memory().view());
        }
        let over = match (parts.nodes || parts.known) && !parts.over {
            true => moment.view.over(),
            false => BTreeSet::new(),
        };
        let known = cx.shared.standing.known(&moment.view, cx.now);
        if parts.walks() || (known.is_none() && !over.is_empty()) {
            let (standing, now) = (Arc::clone(&cx.shared.standing), cx.now);
            return Ok(heavy(
                cx,
                (seq, Purpose::to_read(Action::GetState)),
                moment.view.tock,
                move |reply| {
                    let chains = moment.parts.walks().then(|| moment.view.chain_ticks());
                    let left_out = match &chains {
                        _ if over.is_empty() => over,
                        Some(chains) => &over - &chains.standing(),
                        None => &over - &*standing.find(&moment.view, now),
                    };
                    moment.write(chains.as_ref(), &left_out, seq, reply);
                    Ok(())
                },
            ));
        }
        let left_out = known.map(|standing| &over - &*standing).unwrap_or_default();
        moment.write(None, &left_out, seq, out);
        Ok(Then::Continue)
    }

    /// `get_value` with a node and a tick: whatever entry's chain holds that event.
    pub(in crate::server) fn get_by_event(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        node: &str,
        tick: i128,
        chain: ChainLength,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::GetValue, Target::Node)?;
        Self::check_ready(cx)?;
        let view = cx.hub.read(|engine| engine.view());
        let node = visible_life(&view, node)?;
        let missing =
            || ClientError::new(ErrorCode::NotFound, format!("no entry has the tick {tick}"));
        let event = Event { node, tick: tick_of(tick).ok_or_else(missing)? };
        if !view.seen.contains(event) {
            return Err(missing());
        }
        // Of policies that are not older than the view.
        let (access, root) = (self.context(cx.shared, cx.now).access, self.root.clone());
        Ok(heavy(cx, (seq, Purpose::to_read(Action::GetValue)), view.tock, move |reply| {
            let missing = format!("no entry has the tick {tick}");
            let missing = || ClientError::new(ErrorCode::NotFound, missing);
            let (path, entry) = view.by_event(event).ok_or_else(missing.clone())?;
            let may_read =
                access.makes(Mistake::Each(Action::GetValue)) || access.may_read(path.as_bytes());
            let below = path.strip_prefix(&root).filter(|_| may_read);
            let below = below.ok_or_else(missing)?;
            let mut message = MessageWriter::new(reply);
            message.entry(path.as_bytes(), &entry, chain, names(&view));
            let key = message.key("path");
            if root.is_root() {
                bytes::encode_ext3(below, key);
            } else {
                bytes::encode_array(below, key);
            }
            message.u64("seq", seq);
            Ok(())
        }))
    }

    /// `enum_node`.
    pub(in crate::server) fn enum_node(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        node: &str,
        max: Option<usize>,
        current: bool,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::EnumNode, Target::Node)?;
        Self::check_ready(cx)?;
        let view = cx.hub.read(|engine| engine.view());
        let node = visible_life(&view, node)?;
        Ok(heavy(cx, (seq, Purpose::to_read(Action::EnumNode)), view.tock, move |reply| {
            let ticks = view.ticks_of(&[node], current);
            let count = usize::try_from(ticks.count()).unwrap_or(usize::MAX);
            let count = max.map_or(count, |max| max.min(count));
            let mut list = Vec::new();
            write_array_len(count, &mut list);
            ticks.iter().take(count).for_each(|tick| write_u64(tick, &mut list));
            write_result(&list, seq, view.tock, reply);
            Ok(())
        }))
    }

    /// `kill_node`: all lives of a node vanish from what clients see. The node is named by its
    /// name, or by one of its lives, as in `get_state`.
    pub(in crate::server) fn kill_node(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        node: &str,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::KillNode, Target::Node)?;
        Self::check_ready(cx)?;
        let view = cx.hub.read(|engine| engine.view());
        let name = visible_name(&view, node)?;
        let in_use = |text| Err(ClientError::new(ErrorCode::InUse, text));
        if view.table.id(view.own).name == name {
            if let Some(event) = view.owned_by(&[view.own]) {
                return in_use(owns(&name, &view, event));
            }
            return in_use(format!("Node {name} is this one"));
        }
        if view.peers.iter().any(|peer| peer.id.name == name) {
            return in_use(format!("Node {name} is up; it can be removed once it is gone"));
        }
        let hub = Arc::clone(&cx.shared.hub);
        Ok(heavy(cx, (seq, Purpose::to_change(Action::KillNode)), view.tock, move |reply| {
            let incarnations = view.table.incarnations(name.as_str()).to_vec();
            if let Some(event) = view.owned_by(&incarnations) {
                return Err(ClientError::new(ErrorCode::InUse, owns(&name, &view, event)));
            }
            if !hub.handle(KillNode(&name), NO_LATER) {
                let text = format!("{KILLED_MAX} nodes are removed already; no more are kept");
                return Err(ClientError::new(ErrorCode::TooMany, text));
            }
            MessageWriter::new(reply).u64("seq", seq).tock(hub.read(Engine::tock));
            Ok(())
        }))
    }

    /// `check_deleted`: what has become of these ticks here. The original's servers ask this of
    /// each other after a split, and then remove what the other side says it does not have,
    /// including changes that it has merely not seen; ours only answers, and removes nothing for
    /// it: replication rule 4 does that between nodes.
    ///
    /// Users, whose watches ask this after they were cut off, are told only what is missing: the rest says of events in
    /// places that they may not read whether they still count.
    pub(in crate::server) fn check_deleted(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        nodes: &[(&str, TickSet)],
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::CheckDeleted, Target::Node)?;
        let is_low = cx.access.role < Some(Role::Operator);
        Self::check_ready(cx)?;
        let view = cx.hub.read(|engine| engine.view());
        let mut asked = TickSets::new();
        let mut unknown: BTreeMap<String, TickSet> = BTreeMap::new();
        for (text, ticks) in nodes {
            let life = parse_life("nodes", text)?;
            match view.table.find(life.name, life.incarnation) {
                Some(node) => asked.entry(node).or_default().union_with(ticks),
                None => unknown.entry((*text).to_owned()).or_default().union_with(ticks),
            };
        }
        Ok(heavy(cx, (seq, Purpose::to_read(Action::CheckDeleted)), view.tock, move |reply| {
            let mut message = MessageWriter::new(reply);
            if is_low {
                write_ticks_by_life("missing", &missing(&view, &asked, unknown), &mut message);
            } else {
                write_fates(&view, asked, unknown, &mut message);
            }
            message.u64("seq", seq).tock(view.tock);
            Ok(())
        }))
    }
}

/// Ticks by the spelling of their life.
type SpelledTicks = BTreeMap<String, TickSet>;

fn write_ticks_by_life(name: &'static str, lives: &SpelledTicks, message: &mut MessageWriter<'_>) {
    let part = message.key(name);
    write_map_len(lives.len(), part);
    for (life, ticks) in lives {
        write_str(life, part);
        write_ticks(ticks, part);
    }
}

/// The ticks that are not accounted for here: those of unknown lives, and of the others those that were not seen.
fn missing(view: &StateView, asked: &TickSets, unknown: SpelledTicks) -> SpelledTicks {
    let nothing = TickSet::new();
    let mut missing = unknown;
    for (node, ticks) in asked {
        let not_seen = ticks.difference(view.seen.get(*node).unwrap_or(&nothing));
        if !not_seen.is_empty() {
            missing.entry(view.table.spell(*node)).or_default().union_with(&not_seen);
        }
    }
    missing
}

/// What `check_deleted` tells: the ticks that were asked about, as `get_state` sorts them; and those that are not
/// accounted for here.
fn write_fates(
    view: &StateView,
    asked: TickSets,
    unknown: SpelledTicks,
    message: &mut MessageWriter<'_>,
) {
    let nothing = TickSet::new();
    let chains = view.chain_ticks();
    let missing = missing(view, &asked, unknown);
    let mut fates = [SpelledTicks::new(), SpelledTicks::new(), SpelledTicks::new()];
    let [present, known, deleted] = &mut fates;
    for (node, ticks) in asked {
        let not_in = |set: Option<&TickSet>| ticks.difference(set.unwrap_or(&nothing));
        let not_seen = not_in(view.seen.get(node));
        let not_present = not_in(chains.present.get(&node));
        let not_deleted = not_in(chains.deleted.get(&node));
        let life = view.table.spell(node);
        let put = |fate: &mut SpelledTicks, ticks: TickSet| {
            if !ticks.is_empty() {
                fate.entry(life.clone()).or_default().union_with(&ticks);
            }
        };
        put(known, not_present.difference(&not_seen));
        put(present, ticks.difference(&not_present));
        put(deleted, ticks.difference(&not_deleted));
    }
    for (name, fate) in ["present", "known", "deleted"].into_iter().zip(&fates) {
        write_ticks_by_life(name, fate, message);
    }
    write_ticks_by_life("missing", &missing, message);
}

fn owns(name: &NodeName, view: &StateView, event: Event) -> String {
    format!("Node {name} has entry {}", view.table.spell_event(event))
}

/// A job that walks the tree, with its errors answered.
fn heavy(
    cx: &Context<'_>,
    (seq, purpose): (u64, Purpose),
    tock: Tock,
    job: impl FnOnce(&mut Vec<u8>) -> Result<(), ClientError> + Send + 'static,
) -> Then {
    let counts = Arc::clone(&cx.shared.counts);
    Then::heavy(cx, seq, purpose, move || {
        let mut reply = Vec::new();
        if let Err(error) = job(&mut reply) {
            counts.note_error(&error);
            write_error(&error, Some(seq), tock, &mut reply);
        }
        reply
    })
}

fn names(view: &StateView) -> Names<'_> {
    let table: &NodeTable = &view.table;
    Names { table, killed: &view.killed }
}

fn unknown_node(text: &str) -> ClientError {
    ClientError::new(ErrorCode::NotFound, format!("there is no node '{}'", shown(text)))
}

/// The life that a client names, unless its node was removed from clients' view.
fn visible_life(view: &StateView, text: &str) -> Result<NodeIndex, ClientError> {
    let life = parse_life("node", text)?;
    match view.table.find(life.name, life.incarnation) {
        Some(node) if !view.killed.contains(life.name) => Ok(node),
        _ => Err(unknown_node(text)),
    }
}

/// The node that a client names, by its name or by one of its lives.
fn visible_name(view: &StateView, text: &str) -> Result<NodeName, ClientError> {
    let life = match text.contains('~') {
        true => Some(visible_life(view, text)?),
        false => view.table.incarnations(text).first().copied(),
    };
    let name = life.map(|life| view.table.id(life).name.clone());
    name.filter(|name| !view.killed.contains(name)).ok_or_else(|| unknown_node(text))
}

/// What `get_state` reports, at one moment.
struct Moment {
    view: StateView,
    parts: StateParts,
    housekeepers: Vec<NodeName>,
    resync: Option<ResyncView>,
    group: GroupView,
    mark: Mark,
    /// Conflicts that were found, and how many of them are kept.
    conflicts: (u64, u64),
    /// Of a node with a data directory.
    storage: Option<StorageStatus>,
    client_memory: Option<ClientMemoryView>,
}

impl Moment {
    fn of(engine: &Engine, parts: StateParts, now: Millis) -> Self {
        Self {
            view: engine.view(),
            parts,
            housekeepers: engine.housekeepers(),
            // It compares what all peers have seen.
            resync: if parts.resync { engine.resync_view(now) } else { None },
            group: engine.group_view(now),
            mark: engine.mark().clone(),
            conflicts: (engine.conflicts().last(), engine.conflicts().kept() as u64),
            storage: None,
            client_memory: None,
        }
    }

    /// `chains` if the parts need them; without the nodes `left_out`.
    fn write(
        &self,
        chains: Option<&ChainTicks>,
        left_out: &BTreeSet<NodeIndex>,
        seq: u64,
        out: &mut Vec<u8>,
    ) {
        let (view, parts, names) = (&self.view, self.parts, names(&self.view));
        let all = BTreeSet::new();
        let mut message = MessageWriter::new(out);
        if parts.nodes {
            write_nodes(view, names, left_out, message.key("nodes"));
        }
        if let Some(chains) = chains {
            if parts.known {
                write_tick_sets(&view.superseded(chains), names, left_out, message.key("known"));
            }
            if parts.present {
                write_tick_sets(&chains.present, names, &all, message.key("present"));
            }
            if parts.deleted {
                write_tick_sets(&chains.deleted, names, &all, message.key("deleted"));
            }
        }
        if parts.missing {
            write_tick_sets(&view.missing(), names, &all, message.key("missing"));
        }
        if parts.remote_missing {
            let sets = view.remote_missing();
            write_tick_sets(&sets, names, &all, message.key("remote_missing"));
        }
        if parts.node_drop {
            write_names(view.killed.iter(), message.key("node_drop"));
        }
        if parts.debug {
            write_map_len(0, message.key("debug"));
        }
        if parts.debugger {
            message.str("debugger", "this node has no debugger to start");
        }
        if parts.conflicts {
            let (found, kept) = self.conflicts;
            MessageWriter::new(message.key("conflicts")).u64("found", found).u64("kept", kept);
        }
        if parts.housekeepers {
            write_names(self.housekeepers.iter(), message.key("housekeepers"));
        }
        if parts.resync {
            write_resync(self.resync.as_ref(), message.key("resync"));
        }
        if parts.delete_group {
            write_delete_group(&self.group, &self.mark, message.key("delete_group"));
        }
        if parts.storage {
            write_storage(self.storage.as_ref(), message.key("storage"));
        }
        if let Some(view) = &self.client_memory {
            write_client_memory(view, message.key("client_memory"));
        }
        names.write_life(view.own, message.key("node"));
        message.tock(view.tock).u64("seq", seq);
    }
}

fn write_names<'a>(names: impl ExactSizeIterator<Item = &'a NodeName>, out: &mut Vec<u8>) {
    write_texts(names.map(NodeName::as_str), out);
}

/// Each life's highest tick: nil for one that never wrote, but 0 for this one.
fn write_nodes(
    view: &StateView,
    names: Names<'_>,
    left_out: &BTreeSet<NodeIndex>,
    out: &mut Vec<u8>,
) {
    let nodes = view.nodes(left_out);
    write_map_len(nodes.len(), out);
    for (node, tick) in nodes {
        names.write_life(node, out);
        match tick {
            Some(tick) => write_u64(tick.get(), out),
            None if node == view.own => write_u64(0, out),
            None => write_nil(out),
        }
    }
}

/// Ticks by life, in the order of names and incarnations; nodes that were removed are left out.
fn write_tick_sets(
    sets: &TickSets,
    names: Names<'_>,
    left_out: &BTreeSet<NodeIndex>,
    out: &mut Vec<u8>,
) {
    let mut visible: Vec<_> = sets
        .iter()
        .filter(|(node, _)| !left_out.contains(node))
        .map(|(node, ticks)| (names.table.id(*node), *node, ticks))
        .filter(|(id, ..)| !names.killed.contains(&id.name))
        .collect();
    visible.sort_by(|a, b| a.0.cmp(b.0));
    write_map_len(visible.len(), out);
    for (_, node, ticks) in visible {
        names.write_life(node, out);
        write_ticks(ticks, out);
    }
}
