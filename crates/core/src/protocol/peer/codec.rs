//! Bytes to peer messages and back.

use super::contents_codec::{
    CONTENTS_ASK, CONTENTS_LIST, CONTENTS_VERSIONS, CONTENTS_WANT, encode_versions, read_ask,
    read_list, read_told, read_want, write_ask, write_list, write_told, write_want,
};
use super::field_codec::{
    bounded, read_contiguous, read_mark, read_seen, read_tick, read_tock, read_unnamed,
    write_contiguous, write_mark, write_seen, write_unnamed,
};
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
use crate::model::ids::{NodeName, NodeTable};
use crate::model::path::Path;
use crate::model::seen::Mark;
use crate::model::value::{Reader, write_array_len, write_bin, write_bool, write_str, write_u64};
use crate::protocol::frame::{Frame, write_frame};
use crate::protocol::record::{Record, encode_record};

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
// 25 and 26 are in `mesh_codec`, 27 to 30 in `contents_codec`.
const CATCH_UP_MORE: u8 = 31;

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
                let contents = if elements > 5 { read_told(r)? } else { None };
                let digest = Digest { ready, tock, mark, seen, unnamed, contents };
                (Self::Digest(digest), elements.clamp(4, 6))
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
                let more = r.read_bool()?;
                (Self::CatchUpKnown(CatchUpKnown { id, tock, mark, seen, more }), 5)
            }
            CATCH_UP_MORE => (Self::CatchUpMore { id: r.read_u64()? }, 1),
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
                (Self::CatchUpPart { id, mark, records: read_records(r)? }, 3)
            }
            CATCH_UP_END => (Self::CatchUpEnd { id: r.read_u64()?, entries: r.read_u64()? }, 2),
            CATCH_UP_REFUSED => {
                let id = r.read_u64()?;
                let reason = match r.read_u64()? {
                    1 => RefuseReason::Behind,
                    2 => RefuseReason::Announced,
                    3 => RefuseReason::Busy,
                    4 => RefuseReason::NotReady,
                    5 => RefuseReason::TooLong,
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
            GROUP => (Self::Group(read_group_hello(r)?), 3),
            PROPOSE => (Self::Propose(read_proposal(r)?), 3),
            AGREE => (Self::Agree { round: read_round(r)?, member: read_member(r)? }, 2),
            DISAGREE => (Self::Disagree(read_round(r)?), 1),
            ANNOUNCE => (Self::Announce(read_pair(r)?), 1),
            EDGE => (Self::Edge(read_edge(r)?), 3),
            RELAYED => (Self::Relayed(read_relayed(r)?), 5),
            CONTENTS_ASK => (Self::ContentsAsk(read_ask(r)?), 4),
            CONTENTS_LIST => (Self::ContentsList(read_list(r)?), 7),
            CONTENTS_WANT => (Self::ContentsWant(read_want(r)?), 1),
            CONTENTS_VERSIONS => {
                (Self::ContentsVersions { mark: read_mark(r)?, records: read_records(r)? }, 2)
            }
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
                let entries = entries_of(records, &mut table);
                encode_part(*id, mark, &entries, &table, out);
            }
            Self::ContentsVersions { mark, records } => {
                let mut table = table.clone();
                let entries = entries_of(records, &mut table);
                encode_versions(mark, &entries, &table, out);
            }
            Self::Topic { topic, data } => encode_topic(topic, data, out),
            Self::Digest(d) => write_frame(DIGEST, out, |out| {
                write_array_len(6, out);
                write_bool(d.ready, out);
                write_u64(d.tock.get(), out);
                write_mark(&d.mark, out);
                write_seen(&d.seen, out);
                write_unnamed(d.unnamed, out);
                write_told(d.contents, out);
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
                write_array_len(5, out);
                write_u64(known.id, out);
                write_u64(known.tock.get(), out);
                write_mark(&known.mark, out);
                write_seen(&known.seen, out);
                write_bool(known.more, out);
            }),
            Self::CatchUpMore { id } => write_frame(CATCH_UP_MORE, out, |out| {
                write_array_len(1, out);
                write_u64(*id, out);
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
                    RefuseReason::TooLong => 5,
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
                write_array_len(3, out);
                write_group_hello(hello, out);
            }),
            Self::Propose(proposal) => write_frame(PROPOSE, out, |out| {
                write_array_len(3, out);
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
            Self::ContentsAsk(ask) => write_ask(ask, out),
            Self::ContentsList(list) => write_list(list, out),
            Self::ContentsWant(paths) => write_want(paths, out),
        }
    }
}

fn read_records<'a>(r: &mut Reader<'a>) -> Result<Vec<Record<'a>>, PeerError> {
    let count = bounded(r.read_array_len()?, "records", RECORDS_MAX)?;
    let mut records = Vec::new();
    for _ in 0..count {
        records.push(Record::decode(r)?);
    }
    Ok(records)
}

/// Records in the indices of a table; those for which it has no room are left out.
fn entries_of(records: &[Record<'_>], table: &mut NodeTable) -> Vec<(Path, Entry)> {
    records.iter().filter_map(|r| Some((r.path.clone(), r.to_entry(table)?))).collect()
}

/// Appends a change as a frame.
pub(crate) fn encode_change(
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
pub(crate) fn encode_part(
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
fn encode_topic(topic: &Path, data: &[u8], out: &mut Vec<u8>) {
    write_frame(TOPIC, out, |out| {
        write_array_len(2, out);
        write_bin(topic.as_bytes(), out);
        write_bin(data, out);
    });
}

#[cfg(test)]
mod tests {
    use super::super::{ContentsAsk, ContentsList, ContentsTold, Edge, Listed, Relayed};
    use super::*;
    use crate::model::ids::{Incarnation, NodeId, Tick, Tock};
    use crate::model::seen::Lineage;
    use crate::model::seen_sum::SeenSum;
    use crate::model::tick_set::TickSet;
    use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
    use proptest::prelude::*;

    fn id(name: &str) -> NodeId {
        NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(77) }
    }

    fn digest<'a>(unnamed: Unnamed) -> PeerMessage<'a> {
        let (tock, mark) = (Tock::new(9).unwrap(), Mark::default());
        let contents = None;
        PeerMessage::Digest(Digest {
            ready: false,
            tock,
            mark,
            seen: Vec::new(),
            unnamed,
            contents,
        })
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
                contents: Some(ContentsTold { seen: 1, sum: u64::MAX }),
            }),
            digest(Unnamed::Unsaid),
            digest(Unnamed::Follows),
            digest(Unnamed::TooLong),
            PeerMessage::DigestWanted,
            PeerMessage::Ack(Tick::new(12).unwrap()),
            PeerMessage::CatchUpAsk(CatchUpAsk {
                id: 5,
                mark: mark.clone(),
                contiguous: vec![(id("a"), Tick::new(9).unwrap())],
                no_announcements: true,
            }),
            PeerMessage::CatchUpKnown(CatchUpKnown {
                id: 5,
                tock,
                mark,
                seen: seen.clone(),
                more: true,
            }),
            PeerMessage::CatchUpMore { id: 5 },
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
            PeerMessage::CatchUpRefused { id: 5, reason: RefuseReason::TooLong },
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
            PeerMessage::ContentsAsk(ContentsAsk {
                mark: Mark::default(),
                seen: 5,
                differed: true,
                sums: vec![(0, 1), (1_023, u64::MAX)],
            }),
            PeerMessage::ContentsList(ContentsList {
                mark: Mark::default(),
                differs: true,
                buckets: vec![3, 1_023],
                last: true,
                answer_wanted: false,
                makers: vec![id("a")],
                entries: vec![Listed {
                    path: "a.b".parse().unwrap(),
                    maker: 0,
                    tick: Tick::new(4).unwrap(),
                    tock,
                    hash: 9,
                }],
            }),
            PeerMessage::ContentsWant(vec!["a".parse().unwrap(), Path::root()]),
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
        let sent = PeerMessage::CatchUpPart { id: 3, mark: mark.clone(), records: vec![record] };
        assert_eq!(decoded, sent);
        let PeerMessage::CatchUpPart { records, .. } = sent else { panic!("just made") };
        let mut bytes = Vec::new();
        let sent = PeerMessage::ContentsVersions { mark, records };
        sent.encode(&table, &mut bytes);
        let frame = split_frame(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
        let decoded = PeerMessage::decode(&frame).unwrap().unwrap();
        let PeerMessage::ContentsVersions { records, .. } = &decoded else { panic!("it is one") };
        assert_eq!(records.len(), 1);
        let mut again = Vec::new();
        decoded.encode(&table, &mut again);
        assert_eq!(again, bytes);
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
    fn a_listed_version_whose_maker_is_not_there_is_refused() {
        let list = ContentsList {
            mark: Mark::default(),
            differs: false,
            buckets: Vec::new(),
            last: true,
            answer_wanted: false,
            makers: vec![id("a")],
            entries: vec![Listed {
                path: Path::root(),
                maker: 1,
                tick: Tick::default(),
                tock: Tock::default(),
                hash: 0,
            }],
        };
        let mut bytes = Vec::new();
        PeerMessage::ContentsList(list).encode(&NodeTable::new(), &mut bytes);
        let frame = split_frame(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
        assert_eq!(PeerMessage::decode(&frame), Err(PeerError::Counter(1)));
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
