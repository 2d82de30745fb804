//! The fields that several peer messages have: ticks, tocks, marks, sets of ticks, identities, sums.

use super::{PeerError, Unnamed};
use crate::model::ids::{Incarnation, NODE_TABLE_MAX, NodeId, NodeName, Tick, Tock};
use crate::model::limits::MARK_COMPONENTS_MAX;
use crate::model::mark::{Component, PURGE_IDS_MAX, PurgeId};
use crate::model::seen::{Lineage, Mark, SeenById};
use crate::model::seen_sum::SeenSum;
use crate::model::tick_set::TickSet;
use crate::model::value::{
    Kind, Reader, write_array_len, write_bool, write_nil, write_str, write_u64,
};
use crate::protocol::record::read_event;

pub(super) fn bounded(count: usize, what: &'static str, max: usize) -> Result<usize, PeerError> {
    if count > max { Err(PeerError::TooMany { what, count, max }) } else { Ok(count) }
}

pub(super) fn read_tick(r: &mut Reader<'_>) -> Result<Tick, PeerError> {
    let raw = r.read_u64()?;
    Tick::new(raw).ok_or(PeerError::Counter(raw))
}

pub(super) fn read_tock(r: &mut Reader<'_>) -> Result<Tock, PeerError> {
    let raw = r.read_u64()?;
    Tock::new(raw).ok_or(PeerError::Counter(raw))
}

/// A mark: array of `[lineage, tock, purge's id …]`; a lineage is nil or an event.
pub(super) fn read_mark(r: &mut Reader<'_>) -> Result<Mark, PeerError> {
    let count = bounded(r.read_array_len()?, "components of a mark", MARK_COMPONENTS_MAX)?;
    let mut components = Vec::new();
    for _ in 0..count {
        components.push(read_component(r)?);
    }
    Ok(Mark::from_parts(components))
}

pub(super) fn write_mark(mark: &Mark, out: &mut Vec<u8>) {
    write_array_len(mark.len(), out);
    for (lineage, component) in mark.components() {
        write_component(lineage, component, out);
    }
}

/// A component of a mark: `[lineage, tock, purge's id …]`, one id but for [`PURGE_IDS_MAX`].
pub(super) fn read_component(r: &mut Reader<'_>) -> Result<(Lineage, Component), PeerError> {
    let elements = r.read_array_len()?;
    let (lineage, tock) = (read_lineage(r)?, read_tock(r)?);
    let first = if elements > 2 { PurgeId::new(r.read_u64()?) } else { None };
    if elements <= 3 {
        return Ok((lineage, Component::new(tock, first)));
    }
    let mut ids: Vec<PurgeId> = first.into_iter().collect();
    for at in 3..elements {
        if at < 2 + PURGE_IDS_MAX {
            ids.extend(PurgeId::new(r.read_u64()?));
        } else {
            r.skip()?;
        }
    }
    Ok((lineage, Component::with_ids(tock, ids)))
}

pub(super) fn write_component(lineage: &Lineage, component: &Component, out: &mut Vec<u8>) {
    write_array_len(2 + component.ids().count(), out);
    write_lineage(lineage, out);
    write_u64(component.tock().get(), out);
    for id in component.ids() {
        write_u64(id.get(), out);
    }
}

/// A lineage: nil, or the event that started it.
pub(super) fn read_lineage(r: &mut Reader<'_>) -> Result<Lineage, PeerError> {
    if r.take_nil() {
        return Ok(Lineage(None));
    }
    let event = read_event(r)?;
    let id = NodeId { name: NodeName::new(event.name)?, incarnation: event.incarnation };
    Ok(Lineage(Some((id, event.tick))))
}

pub(super) fn write_lineage(lineage: &Lineage, out: &mut Vec<u8>) {
    match &lineage.0 {
        None => write_nil(out),
        Some((id, tick)) => {
            write_array_len(3, out);
            write_str(id.name.as_str(), out);
            write_u64(id.incarnation.0, out);
            write_u64(tick.get(), out);
        }
    }
}

/// A seen: array of `[name, incarnation, gap, length, gap, length …]`. The first gap counts from 0,
/// each further one from the end of the range before it.
pub(super) fn read_seen(r: &mut Reader<'_>) -> Result<SeenById, PeerError> {
    let count = bounded(r.read_array_len()?, "incarnations", NODE_TABLE_MAX)?;
    let mut seen = Vec::new();
    for _ in 0..count {
        let elements = r.read_array_len()?;
        let id = read_id(r)?;
        let mut ranges = Vec::new();
        let mut at: u64 = 0;
        for _ in 0..elements.saturating_sub(2) / 2 {
            let (gap, length) = (r.read_u64()?, r.read_u64()?);
            let from = at.checked_add(gap).ok_or(PeerError::Ticks)?;
            at = from.checked_add(length).ok_or(PeerError::Ticks)?;
            ranges.push((from, at));
        }
        let ticks = TickSet::from_ranges(ranges).ok_or(PeerError::Ticks)?;
        if elements < 2 || elements % 2 != 0 {
            return Err(PeerError::Ticks);
        }
        seen.push((id, ticks));
    }
    Ok(seen)
}

pub(super) fn read_id(r: &mut Reader<'_>) -> Result<NodeId, PeerError> {
    let name = NodeName::new(r.read_str()?)?;
    Ok(NodeId { name, incarnation: Incarnation(r.read_u64()?) })
}

pub(super) fn write_seen(seen: &SeenById, out: &mut Vec<u8>) {
    write_array_len(seen.len(), out);
    for (id, ticks) in seen {
        write_array_len(2 + 2 * ticks.range_count(), out);
        write_str(id.name.as_str(), out);
        write_u64(id.incarnation.0, out);
        let mut at = 0;
        for (from, to) in ticks.ranges() {
            write_u64(from - at, out);
            write_u64(to - from, out);
            at = to;
        }
    }
}

/// What a digest says of the rest: nil or absent, true if another part follows, false if it would
/// be too long, else `[hash, count]`.
pub(super) fn read_unnamed(r: &mut Reader<'_>) -> Result<Unnamed, PeerError> {
    if r.take_nil() {
        return Ok(Unnamed::Unsaid);
    }
    if r.peek_kind()? == Kind::Bool {
        return Ok(if r.read_bool()? { Unnamed::Follows } else { Unnamed::TooLong });
    }
    Ok(Unnamed::Sum(read_sum(r)?))
}

/// A sum: `[hash, count]`.
pub(super) fn read_sum(r: &mut Reader<'_>) -> Result<SeenSum, PeerError> {
    let elements = r.read_array_len()?;
    let sum = SeenSum { hash: r.read_u64()?, count: r.read_u64()? };
    for _ in 2..elements {
        r.skip()?;
    }
    Ok(sum)
}

pub(super) fn write_sum(sum: SeenSum, out: &mut Vec<u8>) {
    write_array_len(2, out);
    write_u64(sum.hash, out);
    write_u64(sum.count, out);
}

pub(super) fn write_unnamed(unnamed: Unnamed, out: &mut Vec<u8>) {
    match unnamed {
        Unnamed::Unsaid => write_nil(out),
        Unnamed::Follows => write_bool(true, out),
        Unnamed::TooLong => write_bool(false, out),
        Unnamed::Sum(sum) => write_sum(sum, out),
    }
}

/// Counters: array of `[name, incarnation, tick]`.
pub(super) fn read_contiguous(r: &mut Reader<'_>) -> Result<Vec<(NodeId, Tick)>, PeerError> {
    let count = bounded(r.read_array_len()?, "incarnations", NODE_TABLE_MAX)?;
    let mut counters = Vec::new();
    for _ in 0..count {
        let event = read_event(r)?;
        let id = NodeId { name: NodeName::new(event.name)?, incarnation: event.incarnation };
        counters.push((id, event.tick));
    }
    Ok(counters)
}

pub(super) fn write_contiguous(counters: &[(NodeId, Tick)], out: &mut Vec<u8>) {
    write_array_len(counters.len(), out);
    for (id, tick) in counters {
        write_array_len(3, out);
        write_str(id.name.as_str(), out);
        write_u64(id.incarnation.0, out);
        write_u64(tick.get(), out);
    }
}
