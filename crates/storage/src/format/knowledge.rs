//! What a node knows besides its entries ([`Knowledge`]), as records.
//!
//! | first element | record | then |
//! |---|---|---|
//! | 18 | the state; begins it | own incarnation's number, tick, tock, mark, group |
//! | 19 | ticks seen | node, base, then gap and length of each range |
//! | 20 | a decision, if there is one | lineage, from, to, next group, id, ids of from, base |
//! | 21 | ticks of its V | as 19 |
//!
//! A gap counts from the end of the range before it, the first one from `base`. A set of many
//! ranges takes several records, so that no record is longer than a frame. A mark, like a base, is
//! an array of `[lineage, tock, purge's id …]`, a lineage nil or `[name, incarnation, tick]`; a
//! group is nil or `[version, lineage, [[name, store, durable] …], tock, purge's id …]`, the last
//! ones being the purge from which on it is in force. Files from before purges had ids lack the
//! ids, the base, and what follows the members.

use std::collections::BTreeMap;

use super::record::{
    DECIDED, DECIDED_SEEN, Dictionary, SEEN, STATE, expect_fields, read_tick, read_tock,
    read_used_tick,
};
use crate::engine::{Decided, Knowledge};
use crate::error::FormatError;
use crate::model::group::{GROUP_MEMBERS_MAX, GroupConfig, Member};
use crate::model::ids::{Incarnation, NodeId, NodeIndex, NodeName, NodeTable, Tick, Tock};
use crate::model::invariant::OrBroken;
use crate::model::mark::{Component, Lineage, Mark, PURGE_IDS_MAX, PurgeId};
use crate::model::seen::Seen;
use crate::model::tick_set::TickSet;
use crate::model::value::{Reader, write_array_len, write_bool, write_nil, write_str, write_u64};
use crate::replica::purge::TockPair;

/// Most ranges in one record: at most 18 bytes each, so that a record is about as long as a frame
/// should be.
const RANGES_MAX: usize = 3_500;

/// Calls `each` for every record of it. The table has all its incarnations.
pub(crate) fn write_knowledge(
    knowledge: &Knowledge,
    table: &NodeTable,
    mut each: impl FnMut(&dyn Fn(&mut Vec<u8>)),
) {
    let id = &knowledge.id;
    let own = table.find(id.name.as_str(), id.incarnation);
    let own = own.or_broken("the own incarnation is in the node table");
    each(&|out| {
        write_array_len(6, out);
        write_u64(STATE, out);
        write_u64(own.as_usize() as u64, out);
        write_u64(knowledge.tick.get(), out);
        write_u64(knowledge.tock.get(), out);
        write_mark(&knowledge.mark, out);
        write_group(knowledge.group.as_ref(), out);
    });
    write_seen(SEEN, &knowledge.seen, &mut each);
    if let Some(Decided { pair, next }) = &knowledge.decided {
        each(&|out| {
            write_array_len(8, out);
            write_u64(DECIDED, out);
            write_lineage(&pair.lineage, out);
            write_u64(pair.from.tock().get(), out);
            write_u64(pair.to.get(), out);
            write_group(next.as_ref(), out);
            write_u64(pair.id.map_or(0, PurgeId::get), out);
            write_array_len(pair.from.ids().count(), out);
            pair.from.ids().for_each(|id| write_u64(id.get(), out));
            write_components(pair.base.iter().map(|(l, c)| (l, c)), pair.base.len(), out);
        });
        write_seen(DECIDED_SEEN, &pair.seen, &mut each);
    }
}

fn write_seen(kind: u64, seen: &Seen, each: &mut impl FnMut(&dyn Fn(&mut Vec<u8>))) {
    for (node, ticks) in seen.iter() {
        let mut ranges = ticks.ranges().peekable();
        let mut base = 0;
        while ranges.peek().is_some() {
            let part: Vec<(u64, u64)> = ranges.by_ref().take(RANGES_MAX).collect();
            each(&|out| write_ranges(kind, node, base, &part, out));
            base = part.last().map_or(base, |(_, to)| *to);
        }
    }
}

fn write_ranges(kind: u64, node: NodeIndex, base: u64, ranges: &[(u64, u64)], out: &mut Vec<u8>) {
    write_array_len(3 + 2 * ranges.len(), out);
    write_u64(kind, out);
    write_u64(node.as_usize() as u64, out);
    write_u64(base, out);
    let mut at = base;
    for (from, to) in ranges {
        write_u64(from - at, out);
        write_u64(to - from, out);
        at = *to;
    }
}

fn write_mark(mark: &Mark, out: &mut Vec<u8>) {
    write_components(mark.components(), mark.len(), out);
}

fn write_components<'a>(
    components: impl Iterator<Item = (&'a Lineage, &'a Component)>,
    count: usize,
    out: &mut Vec<u8>,
) {
    write_array_len(count, out);
    for (lineage, component) in components {
        write_array_len(2 + component.ids().count(), out);
        write_lineage(lineage, out);
        write_u64(component.tock().get(), out);
        component.ids().for_each(|id| write_u64(id.get(), out));
    }
}

fn write_lineage(lineage: &Lineage, out: &mut Vec<u8>) {
    let Some((id, tick)) = &lineage.0 else { return write_nil(out) };
    write_array_len(3, out);
    write_str(id.name.as_str(), out);
    write_u64(id.incarnation.0, out);
    write_u64(tick.get(), out);
}

fn write_group(group: Option<&GroupConfig>, out: &mut Vec<u8>) {
    let Some(group) = group else { return write_nil(out) };
    write_array_len(4 + group.since.ids().count(), out);
    write_u64(group.version, out);
    write_lineage(&group.lineage, out);
    write_array_len(group.members().len(), out);
    for member in group.members() {
        write_array_len(3, out);
        write_str(member.name.as_str(), out);
        write_u64(member.store, out);
        write_bool(member.durable, out);
    }
    write_u64(group.since.tock().get(), out);
    group.since.ids().for_each(|id| write_u64(id.get(), out));
}

/// Gathers what the records say.
#[derive(Default)]
pub(crate) struct KnowledgeParts {
    state: Option<State>,
    seen: TickSets,
    decided: Option<Decided>,
    decided_seen: TickSets,
}

/// A set may come in many parts, and a [`Seen`] is slow at adding ranges one by one.
type TickSets = BTreeMap<NodeIndex, TickSet>;

struct State {
    id: NodeId,
    tick: Tick,
    tock: Tock,
    mark: Mark,
    group: Option<GroupConfig>,
}

impl KnowledgeParts {
    /// Reads a record's fields after its kind.
    pub(crate) fn read(
        &mut self,
        kind: u64,
        fields: usize,
        nodes: &Dictionary,
        r: &mut Reader<'_>,
    ) -> Result<(), FormatError> {
        match kind {
            STATE => {
                expect_fields(fields, 6)?;
                // It begins the knowledge of another moment.
                *self = Self::default();
                let own = nodes.read_node(r)?;
                let id = nodes.table().get(own).ok_or(FormatError::Lacks("own incarnation"))?;
                self.state = Some(State {
                    id: id.clone(),
                    tick: read_tick(r)?,
                    tock: read_tock(r)?,
                    mark: read_mark(r)?,
                    group: read_group(r)?,
                });
            }
            SEEN => read_ranges(fields, nodes, &mut self.seen, r)?,
            DECIDED => {
                let has_id = fields != 5;
                if has_id {
                    expect_fields(fields, 8)?;
                }
                let (lineage, from, to) = (read_lineage(r)?, read_tock(r)?, read_tock(r)?);
                let next = read_group(r)?;
                let (mut id, mut ids, mut base) = (None, Vec::new(), Vec::new());
                if has_id {
                    id = PurgeId::new(r.read_u64()?);
                    let count = r.read_array_len()?;
                    ids = read_ids(count, r)?;
                    base = read_components(r)?;
                }
                let from = Component::with_ids(from, ids);
                // The ticks that it must have seen follow.
                let pair = TockPair { lineage, from, to, id, base, seen: Seen::new() };
                self.decided = Some(Decided { pair, next });
            }
            DECIDED_SEEN => read_ranges(fields, nodes, &mut self.decided_seen, r)?,
            other => return Err(FormatError::Unknown("a record", other)),
        }
        Ok(())
    }

    /// The knowledge gathered so far, if a state is part of it.
    pub(crate) fn take(&mut self) -> Option<Knowledge> {
        let Self { state, seen, decided, decided_seen } = std::mem::take(self);
        let State { id, tick, tock, mark, group } = state?;
        let decided = decided.map(|Decided { pair, next }| Decided {
            pair: TockPair { seen: gathered(&decided_seen), ..pair },
            next,
        });
        Some(Knowledge { id, tick, tock, seen: gathered(&seen), mark, group, decided })
    }
}

fn gathered(sets: &TickSets) -> Seen {
    let mut seen = Seen::new();
    for (node, ticks) in sets {
        seen.union_node(*node, ticks);
    }
    seen
}

fn read_ranges(
    fields: usize,
    nodes: &Dictionary,
    sets: &mut TickSets,
    r: &mut Reader<'_>,
) -> Result<(), FormatError> {
    if fields < 3 || fields.is_multiple_of(2) {
        return Err(FormatError::Ticks);
    }
    let node = nodes.read_node(r)?;
    let mut at = r.read_u64()?;
    let ticks = sets.entry(node).or_default();
    for _ in 0..fields / 2 - 1 {
        let (gap, length) = (r.read_u64()?, r.read_u64()?);
        let from = at.checked_add(gap).ok_or(FormatError::Ticks)?;
        let to = from.checked_add(length).ok_or(FormatError::Ticks)?;
        if gap == 0 || length == 0 || !ticks.insert_range(from, to) {
            return Err(FormatError::Ticks);
        }
        at = to;
    }
    Ok(())
}

fn read_mark(r: &mut Reader<'_>) -> Result<Mark, FormatError> {
    Ok(Mark::from_parts(read_components(r)?))
}

fn read_components(r: &mut Reader<'_>) -> Result<Vec<(Lineage, Component)>, FormatError> {
    let mut components = Vec::new();
    for _ in 0..r.read_array_len()? {
        let fields = r.read_array_len()?;
        expect_fields(fields.min(2), 2)?;
        let (lineage, tock) = (read_lineage(r)?, read_tock(r)?);
        components.push((lineage, Component::with_ids(tock, read_ids(fields - 2, r)?)));
    }
    Ok(components)
}

fn read_ids(count: usize, r: &mut Reader<'_>) -> Result<Vec<PurgeId>, FormatError> {
    if count > PURGE_IDS_MAX {
        return Err(FormatError::TooMany(count, "purges of one tock"));
    }
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.extend(PurgeId::new(r.read_u64()?));
    }
    Ok(ids)
}

fn read_lineage(r: &mut Reader<'_>) -> Result<Lineage, FormatError> {
    if r.take_nil() {
        return Ok(Lineage(None));
    }
    expect_fields(r.read_array_len()?, 3)?;
    let name = NodeName::new(r.read_str()?)?;
    let id = NodeId { name, incarnation: Incarnation(r.read_u64()?) };
    Ok(Lineage(Some((id, read_used_tick(r)?))))
}

fn read_group(r: &mut Reader<'_>) -> Result<Option<GroupConfig>, FormatError> {
    if r.take_nil() {
        return Ok(None);
    }
    let fields = r.read_array_len()?;
    expect_fields(fields.min(3), 3)?;
    let (version, lineage) = (r.read_u64()?, read_lineage(r)?);
    let count = r.read_array_len()?;
    if count > GROUP_MEMBERS_MAX {
        return Err(FormatError::TooMany(count, "members"));
    }
    let mut members = Vec::new();
    for _ in 0..count {
        expect_fields(r.read_array_len()?, 3)?;
        let name = NodeName::new(r.read_str()?)?;
        members.push(Member { name, store: r.read_u64()?, durable: r.read_bool()? });
    }
    let config = GroupConfig::new(version, lineage, members).ok_or(FormatError::Members)?;
    if fields == 3 {
        return Ok(Some(config));
    }
    let since = read_tock(r)?;
    Ok(Some(config.from_purge_on(Component::with_ids(since, read_ids(fields - 4, r)?))))
}
