//! Bytes to peer messages and back.

use super::group_codec::{
    read_group_hello, read_member, read_pair, read_proposal, read_round, write_group_hello,
    write_member, write_pair, write_proposal, write_round,
};
use super::mesh_codec::{EDGE, RELAYED, read_edge, read_relayed, write_edge, write_relayed};
use super::ping_codec::{read_ping, write_ping};
use super::{
    CatchUpAsk, CatchUpKnown, CatchUpNames, CatchUpVerdict, ChangeMessage, Digest, PeerError,
    PeerMessage, RefuseReason, ResyncStatus, Unnamed,
};
use crate::model::entry::Entry;
use crate::model::ids::{Incarnation, NODE_TABLE_MAX, NodeId, NodeName, NodeTable, Tick, Tock};
use crate::model::limits::MARK_COMPONENTS_MAX;
use crate::model::path::Path;
use crate::model::seen::{Lineage, Mark, SeenById};
use crate::model::seen_sum::SeenSum;
use crate::model::tick_set::TickSet;
use crate::model::value::{
    Kind, Reader, write_array_len, write_bin, write_bool, write_nil, write_str, write_u64,
};
use crate::protocol::frame::{Frame, write_frame};
use crate::protocol::record::{Record, encode_record, read_event};

const CHANGE: u8 = 1;
const DIGEST: u8 = 2;
const ACK: u8 = 3;
const CATCH_UP_ASK: u8 = 4;
const CATCH_UP_PART: u8 = 5;
const CATCH_UP_END: u8 = 6;
const CATCH_UP_REFUSED: u8 = 7;
const TOPIC: u8 = 8;
const KILL_NODE: u8 = 9;
const LEAVE: u8 = 10;
const CATCH_UP_KNOWN: u8 = 11;
const CATCH_UP_MISSING: u8 = 12;
const CATCH_UP_NAMES: u8 = 13;
const CATCH_UP_VERDICT: u8 = 14;
const CATCH_UP_DONE: u8 = 15;
const CATCH_UP_INVITE: u8 = 16;
const GROUP: u8 = 17;
const PROPOSE: u8 = 18;
const AGREE: u8 = 19;
const DISAGREE: u8 = 20;
const ANNOUNCE: u8 = 21;
const RESYNC: u8 = 22;
const PING: u8 = 23;
const DIGEST_WANTED: u8 = 24;

/// Most records that are read from one frame; a frame is cut at 64 KiB by its sender, and the
/// shortest record has about 20 bytes.
const RECORDS_MAX: usize = 1 << 16;
/// Most paths in one list of names; a sender stays far below.
pub(crate) const NAMED_PATHS_MAX: usize = 1 << 16;

impl<'a> PeerMessage<'a> {
    /// Reads one message. `Ok(None)`: a kind that this version does not know, to be ignored.
    ///
    /// # Errors
    /// [`PeerError`]; the link should be closed with it.
    pub fn decode(frame: &Frame<'a>) -> Result<Option<Self>, PeerError> {
        let mut reader = Reader::new(frame.body);
        let r = &mut reader;
        let elements = r.read_array_len()?;
        let (message, known) = match frame.kind {
            CHANGE => (
                Self::Change(ChangeMessage {
                    mark: read_mark(r)?,
                    ack_wanted: r.read_bool()?,
                    record: Record::decode(r)?,
                }),
                3,
            ),
            DIGEST => {
                let (ready, tock) = (r.read_bool()?, read_tock(r)?);
                let (mark, seen) = (read_mark(r)?, read_seen(r)?);
                let unnamed = if elements > 4 { read_unnamed(r)? } else { Unnamed::Unsaid };
                (Self::Digest(Digest { ready, tock, mark, seen, unnamed }), elements.clamp(4, 5))
            }
            DIGEST_WANTED => (Self::DigestWanted, 0),
            ACK => (Self::Ack(read_tick(r)?), 1),
            CATCH_UP_ASK => {
                let (id, mark) = (r.read_u64()?, read_mark(r)?);
                let (contiguous, no_announcements) = (read_contiguous(r)?, r.read_bool()?);
                (Self::CatchUpAsk(CatchUpAsk { id, mark, contiguous, no_announcements }), 4)
            }
            CATCH_UP_KNOWN => {
                let (id, tock) = (r.read_u64()?, read_tock(r)?);
                let (mark, seen) = (read_mark(r)?, read_seen(r)?);
                (Self::CatchUpKnown(CatchUpKnown { id, tock, mark, seen }), 4)
            }
            CATCH_UP_MISSING => {
                (Self::CatchUpMissing { id: r.read_u64()?, missing: read_seen(r)? }, 2)
            }
            CATCH_UP_NAMES => {
                let (id, events) = (r.read_u64()?, read_seen(r)?);
                let count = bounded(r.read_array_len()?, "named paths", NAMED_PATHS_MAX)?;
                let mut paths = Vec::new();
                for _ in 0..count {
                    paths.push(Path::from_canonical(r.read_bin()?)?);
                }
                (Self::CatchUpNames(CatchUpNames { id, events, paths }), 3)
            }
            CATCH_UP_VERDICT => {
                let (id, gone) = (r.read_u64()?, read_seen(r)?);
                let count = bounded(r.read_array_len()?, "empty paths", NAMED_PATHS_MAX)?;
                let mut empty = Vec::new();
                for _ in 0..count {
                    let raw = r.read_u64()?;
                    empty.push(usize::try_from(raw).map_err(|_| PeerError::Counter(raw))?);
                }
                (Self::CatchUpVerdict(CatchUpVerdict { id, gone, empty }), 3)
            }
            CATCH_UP_DONE => (Self::CatchUpDone { id: r.read_u64()? }, 1),
            CATCH_UP_INVITE => (Self::CatchUpInvite, 0),
            CATCH_UP_PART => {
                let (id, mark) = (r.read_u64()?, read_mark(r)?);
                let count = bounded(r.read_array_len()?, "records", RECORDS_MAX)?;
                let mut records = Vec::new();
                for _ in 0..count {
                    records.push(Record::decode(r)?);
                }
                (Self::CatchUpPart { id, mark, records }, 3)
            }
            CATCH_UP_END => (Self::CatchUpEnd { id: r.read_u64()?, entries: r.read_u64()? }, 2),
            CATCH_UP_REFUSED => {
                let id = r.read_u64()?;
                let reason = match r.read_u64()? {
                    1 => RefuseReason::Behind,
                    2 => RefuseReason::Announced,
                    3 => RefuseReason::Busy,
                    4 => RefuseReason::NotReady,
                    other => RefuseReason::Other(other),
                };
                (Self::CatchUpRefused { id, reason }, 2)
            }
            TOPIC => {
                let topic = Path::from_canonical(r.read_bin()?)?;
                (Self::Topic { topic, data: r.read_bin()? }, 2)
            }
            KILL_NODE => (Self::KillNode(NodeName::new(r.read_str()?)?), 1),
            LEAVE => (Self::Leave, 0),
            PING => (Self::Ping(read_ping(r)?), 7),
            RESYNC => {
                let (entries, remaining) = (r.read_u64()?, r.read_u64()?);
                let is_done = r.read_bool()?;
                (Self::Resync(ResyncStatus { entries, remaining, is_done }), 3)
            }
            GROUP => (Self::Group(read_group_hello(r)?), 2),
            PROPOSE => (Self::Propose(read_proposal(r)?), 4),
            AGREE => (Self::Agree { round: read_round(r)?, member: read_member(r)? }, 2),
            DISAGREE => (Self::Disagree(read_round(r)?), 1),
            ANNOUNCE => (Self::Announce(read_pair(r)?), 1),
            EDGE => (Self::Edge(read_edge(r)?), 3),
            RELAYED => (Self::Relayed(read_relayed(r)?), 5),
            _ => return Ok(None),
        };
        for _ in known..elements {
            r.skip()?;
        }
        reader.finish()?;
        Ok(Some(message))
    }

    /// Appends the message as a frame. Changes, parts and topics have functions of their own,
    /// because they are encoded from what the engine holds.
    pub fn encode(&self, table: &NodeTable, out: &mut Vec<u8>) {
        match self {
            Self::Change(m) => {
                if let Some(entry) = m.record.to_entry(&mut table.clone()) {
                    encode_change(&m.mark, m.ack_wanted, &m.record.path, &entry, table, out);
                }
            }
            Self::CatchUpPart { id, mark, records } => {
                let mut table = table.clone();
                let entries: Vec<(Path, Entry)> = records
                    .iter()
                    .filter_map(|r| Some((r.path.clone(), r.to_entry(&mut table)?)))
                    .collect();
                encode_part(*id, mark, &entries, &table, out);
            }
            Self::Topic { topic, data } => encode_topic(topic, data, out),
            Self::Digest(d) => write_frame(DIGEST, out, |out| {
                write_array_len(5, out);
                write_bool(d.ready, out);
                write_u64(d.tock.get(), out);
                write_mark(&d.mark, out);
                write_seen(&d.seen, out);
                write_unnamed(d.unnamed, out);
            }),
            Self::DigestWanted => write_frame(DIGEST_WANTED, out, |out| write_array_len(0, out)),
            Self::Ack(tick) => write_frame(ACK, out, |out| {
                write_array_len(1, out);
                write_u64(tick.get(), out);
            }),
            Self::CatchUpAsk(ask) => write_frame(CATCH_UP_ASK, out, |out| {
                write_array_len(4, out);
                write_u64(ask.id, out);
                write_mark(&ask.mark, out);
                write_contiguous(&ask.contiguous, out);
                write_bool(ask.no_announcements, out);
            }),
            Self::CatchUpKnown(known) => write_frame(CATCH_UP_KNOWN, out, |out| {
                write_array_len(4, out);
                write_u64(known.id, out);
                write_u64(known.tock.get(), out);
                write_mark(&known.mark, out);
                write_seen(&known.seen, out);
            }),
            Self::CatchUpMissing { id, missing } => write_frame(CATCH_UP_MISSING, out, |out| {
                write_array_len(2, out);
                write_u64(*id, out);
                write_seen(missing, out);
            }),
            Self::CatchUpEnd { id, entries } => write_frame(CATCH_UP_END, out, |out| {
                write_array_len(2, out);
                write_u64(*id, out);
                write_u64(*entries, out);
            }),
            Self::CatchUpNames(names) => write_frame(CATCH_UP_NAMES, out, |out| {
                write_array_len(3, out);
                write_u64(names.id, out);
                write_seen(&names.events, out);
                write_array_len(names.paths.len(), out);
                for path in &names.paths {
                    write_bin(path.as_bytes(), out);
                }
            }),
            Self::CatchUpVerdict(verdict) => write_frame(CATCH_UP_VERDICT, out, |out| {
                write_array_len(3, out);
                write_u64(verdict.id, out);
                write_seen(&verdict.gone, out);
                write_array_len(verdict.empty.len(), out);
                for at in &verdict.empty {
                    write_u64(*at as u64, out);
                }
            }),
            Self::CatchUpDone { id } => write_frame(CATCH_UP_DONE, out, |out| {
                write_array_len(1, out);
                write_u64(*id, out);
            }),
            Self::CatchUpInvite => {
                write_frame(CATCH_UP_INVITE, out, |out| write_array_len(0, out));
            }
            Self::CatchUpRefused { id, reason } => write_frame(CATCH_UP_REFUSED, out, |out| {
                write_array_len(2, out);
                write_u64(*id, out);
                let code = match reason {
                    RefuseReason::Behind => 1,
                    RefuseReason::Announced => 2,
                    RefuseReason::Busy => 3,
                    RefuseReason::NotReady => 4,
                    RefuseReason::Other(code) => *code,
                };
                write_u64(code, out);
            }),
            Self::KillNode(name) => write_frame(KILL_NODE, out, |out| {
                write_array_len(1, out);
                write_str(name.as_str(), out);
            }),
            Self::Leave => write_frame(LEAVE, out, |out| write_array_len(0, out)),
            Self::Ping(ping) => write_frame(PING, out, |out| {
                write_array_len(7, out);
                write_ping(ping, out);
            }),
            Self::Resync(status) => write_frame(RESYNC, out, |out| {
                write_array_len(3, out);
                write_u64(status.entries, out);
                write_u64(status.remaining, out);
                write_bool(status.is_done, out);
            }),
            Self::Group(hello) => write_frame(GROUP, out, |out| {
                write_array_len(2, out);
                write_group_hello(hello, out);
            }),
            Self::Propose(proposal) => write_frame(PROPOSE, out, |out| {
                write_array_len(4, out);
                write_proposal(proposal, out);
            }),
            Self::Agree { round, member } => write_frame(AGREE, out, |out| {
                write_array_len(2, out);
                write_round(round, out);
                write_member(member, out);
            }),
            Self::Disagree(round) => write_frame(DISAGREE, out, |out| {
                write_array_len(1, out);
                write_round(round, out);
            }),
            Self::Announce(pair) => write_frame(ANNOUNCE, out, |out| {
                write_array_len(1, out);
                write_pair(pair, out);
            }),
            Self::Edge(edge) => write_edge(*edge, out),
            Self::Relayed(relayed) => write_relayed(relayed, out),
        }
    }
}

/// Appends a change as a frame.
pub fn encode_change(
    mark: &Mark,
    ack_wanted: bool,
    path: &Path,
    entry: &Entry,
    table: &NodeTable,
    out: &mut Vec<u8>,
) {
    write_frame(CHANGE, out, |out| {
        write_array_len(3, out);
        write_mark(mark, out);
        write_bool(ack_wanted, out);
        encode_record(path.as_bytes(), entry, table, out);
    });
}

/// Appends a part of a catch-up's answer as a frame.
pub fn encode_part(
    id: u64,
    mark: &Mark,
    entries: &[(Path, Entry)],
    table: &NodeTable,
    out: &mut Vec<u8>,
) {
    write_frame(CATCH_UP_PART, out, |out| {
        write_array_len(3, out);
        write_u64(id, out);
        write_mark(mark, out);
        write_array_len(entries.len(), out);
        for (path, entry) in entries {
            encode_record(path.as_bytes(), entry, table, out);
        }
    });
}

/// Appends a client's message as a frame.
pub fn encode_topic(topic: &Path, data: &[u8], out: &mut Vec<u8>) {
    write_frame(TOPIC, out, |out| {
        write_array_len(2, out);
        write_bin(topic.as_bytes(), out);
        write_bin(data, out);
    });
}

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

/// A mark: array of `[lineage, tock]`; a lineage is nil or an event.
pub(super) fn read_mark(r: &mut Reader<'_>) -> Result<Mark, PeerError> {
    let count = bounded(r.read_array_len()?, "components of a mark", MARK_COMPONENTS_MAX)?;
    let mut components = Vec::new();
    for _ in 0..count {
        let elements = r.read_array_len()?;
        let lineage = read_lineage(r)?;
        components.push((lineage, read_tock(r)?));
        for _ in 2..elements {
            r.skip()?;
        }
    }
    Ok(Mark::from_components(components))
}

pub(super) fn write_mark(mark: &Mark, out: &mut Vec<u8>) {
    write_array_len(mark.iter().count(), out);
    for (lineage, tock) in mark.iter() {
        write_array_len(2, out);
        write_lineage(lineage, out);
        write_u64(tock.get(), out);
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

/// What is seen: array of `[name, incarnation, gap, length, gap, length …]`. The first gap
/// counts from 0, each further one from the end of the range before it.
pub(super) fn read_seen(r: &mut Reader<'_>) -> Result<SeenById, PeerError> {
    let count = bounded(r.read_array_len()?, "incarnations", NODE_TABLE_MAX)?;
    let mut seen = Vec::new();
    for _ in 0..count {
        let elements = r.read_array_len()?;
        let id = read_id(r)?;
        let mut ticks = TickSet::new();
        let mut at: u64 = 0;
        for _ in 0..elements.saturating_sub(2) / 2 {
            let (gap, length) = (r.read_u64()?, r.read_u64()?);
            let from = at.checked_add(gap).ok_or(PeerError::Ticks)?;
            let to = from.checked_add(length).ok_or(PeerError::Ticks)?;
            if gap == 0 || length == 0 || !ticks.insert_range(from, to) {
                return Err(PeerError::Ticks);
            }
            at = to;
        }
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

/// What a digest says of the rest: nil or absent, true where another part follows, else
/// `[hash, count]`.
fn read_unnamed(r: &mut Reader<'_>) -> Result<Unnamed, PeerError> {
    if r.take_nil() {
        return Ok(Unnamed::Unsaid);
    }
    if r.peek_kind()? == Kind::Bool {
        return Ok(if r.read_bool()? { Unnamed::Follows } else { Unnamed::Unsaid });
    }
    let elements = r.read_array_len()?;
    let sum = SeenSum { hash: r.read_u64()?, count: r.read_u64()? };
    for _ in 2..elements {
        r.skip()?;
    }
    Ok(Unnamed::Sum(sum))
}

fn write_unnamed(unnamed: Unnamed, out: &mut Vec<u8>) {
    match unnamed {
        Unnamed::Unsaid => write_nil(out),
        Unnamed::Follows => write_bool(true, out),
        Unnamed::Sum(sum) => {
            write_array_len(2, out);
            write_u64(sum.hash, out);
            write_u64(sum.count, out);
        }
    }
}

/// Counters: array of `[name, incarnation, tick]`.
fn read_contiguous(r: &mut Reader<'_>) -> Result<Vec<(NodeId, Tick)>, PeerError> {
    let count = bounded(r.read_array_len()?, "incarnations", NODE_TABLE_MAX)?;
    let mut counters = Vec::new();
    for _ in 0..count {
        let event = read_event(r)?;
        let id = NodeId { name: NodeName::new(event.name)?, incarnation: event.incarnation };
        counters.push((id, event.tick));
    }
    Ok(counters)
}

fn write_contiguous(counters: &[(NodeId, Tick)], out: &mut Vec<u8>) {
    write_array_len(counters.len(), out);
    for (id, tick) in counters {
        write_array_len(3, out);
        write_str(id.name.as_str(), out);
        write_u64(id.incarnation.0, out);
        write_u64(tick.get(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Edge, Relayed};
    use super::*;
    use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
    use proptest::prelude::*;

    fn id(name: &str) -> NodeId {
        NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(77) }
    }

    fn digest<'a>(unnamed: Unnamed) -> PeerMessage<'a> {
        let (tock, mark) = (Tock::new(9).unwrap(), Mark::default());
        PeerMessage::Digest(Digest { ready: false, tock, mark, seen: Vec::new(), unnamed })
    }

    fn samples<'a>() -> Vec<PeerMessage<'a>> {
        let mut ticks = TickSet::range(1, 100).unwrap();
        ticks.insert_range(150, 1 << 62);
        let seen = vec![(id("a"), ticks), (id("b"), TickSet::new())];
        let lineage = Lineage(Some((id("x"), Tick::new(4).unwrap())));
        let tock = Tock::new(9).unwrap();
        let mark = Mark::from_components([(Lineage(None), tock), (lineage, tock)]);
        vec![
            PeerMessage::Digest(Digest {
                ready: true,
                tock,
                mark: mark.clone(),
                seen: seen.clone(),
                unnamed: Unnamed::Sum(SeenSum { hash: u64::MAX, count: 3 }),
            }),
            digest(Unnamed::Unsaid),
            digest(Unnamed::Follows),
            PeerMessage::DigestWanted,
            PeerMessage::Ack(Tick::new(12).unwrap()),
            PeerMessage::CatchUpAsk(CatchUpAsk {
                id: 5,
                mark: mark.clone(),
                contiguous: vec![(id("a"), Tick::new(9).unwrap())],
                no_announcements: true,
            }),
            PeerMessage::CatchUpKnown(CatchUpKnown { id: 5, tock, mark, seen: seen.clone() }),
            PeerMessage::CatchUpMissing { id: 5, missing: seen.clone() },
            PeerMessage::CatchUpEnd { id: 5, entries: 1 << 40 },
            PeerMessage::CatchUpNames(CatchUpNames {
                id: 5,
                events: seen.clone(),
                paths: vec!["a.b".parse().unwrap(), Path::root()],
            }),
            PeerMessage::CatchUpVerdict(CatchUpVerdict { id: 5, gone: seen, empty: vec![1] }),
            PeerMessage::CatchUpDone { id: 5 },
            PeerMessage::CatchUpInvite,
            PeerMessage::Resync(ResyncStatus { entries: 1, remaining: 2, is_done: true }),
            PeerMessage::CatchUpRefused { id: 5, reason: RefuseReason::Busy },
            PeerMessage::Topic { topic: "a.b".parse().unwrap(), data: &[0xc1, 0xff] },
            PeerMessage::KillNode(NodeName::new("old").unwrap()),
            PeerMessage::Leave,
            PeerMessage::Edge(Edge { wanted: true, eager: false, relays: true }),
            PeerMessage::Relayed(Relayed {
                origin: id("a"),
                number: 3,
                wide: true,
                frame: &[0, 0, 0, 1, 10],
            }),
        ]
    }

    #[test]
    fn messages_come_back_as_they_were() {
        for at in 0..samples().len() {
            let mut bytes = Vec::new();
            samples()[at].encode(&NodeTable::new(), &mut bytes);
            let message = samples().swap_remove(at);
            let frame = split_frame(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
            assert_eq!(PeerMessage::decode(&frame), Ok(Some(message)));
        }
    }

    #[test]
    fn changes_and_parts_come_back_as_they_were() {
        let mut raw = Vec::new();
        raw.extend_from_slice(&[0x84, 0, 0xc4, 2, 0xa1, b'k', 1, 3, 2, 0x91, 0x93]);
        raw.extend_from_slice(&[0xa1, b'n', 7, 1, 3, 0xc3]);
        let record = Record::decode(&mut Reader::new(&raw)).unwrap();
        let mut table = NodeTable::new();
        let entry = record.to_entry(&mut table).unwrap();
        let mark = Mark::default();
        let (mut change, mut part) = (Vec::new(), Vec::new());
        encode_change(&mark, true, &record.path, &entry, &table, &mut change);
        encode_part(3, &mark, &[(record.path.clone(), entry)], &table, &mut part);
        let frame = split_frame(&change, BODY_BYTES_MAX).unwrap().unwrap();
        let decoded = PeerMessage::decode(&frame).unwrap().unwrap();
        let Ok(record) = Record::decode(&mut Reader::new(&raw)) else { panic!("decoded before") };
        let sent = ChangeMessage { mark: mark.clone(), ack_wanted: true, record };
        assert_eq!(decoded, PeerMessage::Change(sent));
        let frame = split_frame(&part, BODY_BYTES_MAX).unwrap().unwrap();
        let decoded = PeerMessage::decode(&frame).unwrap().unwrap();
        let Ok(record) = Record::decode(&mut Reader::new(&raw)) else { panic!("decoded before") };
        assert_eq!(decoded, PeerMessage::CatchUpPart { id: 3, mark, records: vec![record] });
    }

    #[test]
    fn unknown_kinds_and_further_elements_are_ignored() {
        let frame = Frame { kind: 200, body: &[0x91, 1], length: 7 };
        assert_eq!(PeerMessage::decode(&frame), Ok(None));
        let frame = Frame { kind: ACK, body: &[0x93, 5, 0xc0, 0xa1, b'x'], length: 10 };
        let ack = PeerMessage::Ack(Tick::new(5).unwrap());
        assert_eq!(PeerMessage::decode(&frame), Ok(Some(ack)));
    }

    #[test]
    fn absurd_ticks_are_refused() {
        let mut body = vec![0x91, 0xcf];
        body.extend_from_slice(&u64::MAX.to_be_bytes());
        let frame = Frame { kind: ACK, body: &body, length: 0 };
        assert_eq!(PeerMessage::decode(&frame), Err(PeerError::Counter(u64::MAX)));
    }

    proptest! {
        #[test]
        fn damaged_messages_never_panic(which in 0..samples().len(), at in 5usize..80, byte: u8, cut in 0usize..40) {
            let mut bytes = Vec::new();
            samples()[which].encode(&NodeTable::new(), &mut bytes);
            let length = bytes.len();
            if at < length { bytes[at] = byte; }
            let body = bytes.get(5..length.saturating_sub(cut)).unwrap_or(&[]);
            let _ = PeerMessage::decode(&Frame { kind: bytes[4], body, length });
        }
    }
}
