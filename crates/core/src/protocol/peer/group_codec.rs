//! Bytes to the Delete group's messages and back (replication rules 5 and 7).

use super::field_codec::{
    bounded, read_component, read_seen, read_sum, read_tock, write_component, write_seen, write_sum,
};
use super::{GroupHello, PairById, PeerError, Proposal};
use crate::model::group::{GROUP_MEMBERS_MAX, GroupConfig, Member, RoundId};
use crate::model::ids::{Incarnation, NodeId, NodeName};
use crate::model::limits::MARK_COMPONENTS_MAX;
use crate::model::mark::{IMPLIED_MAX, Implied, PurgeId};
use crate::model::value::{Reader, write_array_len, write_bool, write_nil, write_str, write_u64};

/// A tock pair: `[[lineage, from's tock, ids …], to, id, base, seen, sum of the rest of seen]`.
pub(super) fn read_pair(r: &mut Reader<'_>) -> Result<PairById, PeerError> {
    let elements = r.read_array_len()?;
    let (lineage, from) = read_component(r)?;
    let (to, id) = (read_tock(r)?, PurgeId::new(r.read_u64()?));
    let count = bounded(r.read_array_len()?, "components of a mark", MARK_COMPONENTS_MAX)?;
    let mut base = Vec::new();
    for _ in 0..count {
        base.push(read_component(r)?);
    }
    let (seen, rest) = (read_seen(r)?, read_sum(r)?);
    let pair = PairById { lineage, from, to, id, base, seen, rest };
    skip_rest(r, elements, 6)?;
    Ok(pair)
}

pub(super) fn write_pair(pair: &PairById, out: &mut Vec<u8>) {
    write_array_len(6, out);
    write_component(&pair.lineage, &pair.from, out);
    write_u64(pair.to.get(), out);
    write_u64(pair.id.map_or(0, PurgeId::get), out);
    write_array_len(pair.base.len(), out);
    for (lineage, component) in &pair.base {
        write_component(lineage, component, out);
    }
    write_seen(&pair.seen, out);
    write_sum(pair.rest, out);
}

/// A member: `[name, store, durable]`.
pub(super) fn read_member(r: &mut Reader<'_>) -> Result<Member, PeerError> {
    let elements = r.read_array_len()?;
    let name = NodeName::new(r.read_str()?)?;
    let member = Member { name, store: r.read_u64()?, durable: r.read_bool()? };
    skip_rest(r, elements, 3)?;
    Ok(member)
}

pub(super) fn write_member(member: &Member, out: &mut Vec<u8>) {
    write_array_len(3, out);
    write_str(member.name.as_str(), out);
    write_u64(member.store, out);
    write_bool(member.durable, out);
}

/// A member list, or nil: `[version, [lineage, tock, id …] since which it is in force, members]`.
fn read_config(r: &mut Reader<'_>) -> Result<Option<GroupConfig>, PeerError> {
    if r.take_nil() {
        return Ok(None);
    }
    let elements = r.read_array_len()?;
    let version = r.read_u64()?;
    let (lineage, since) = read_component(r)?;
    let count = bounded(r.read_array_len()?, "members", GROUP_MEMBERS_MAX)?;
    let mut members = Vec::new();
    for _ in 0..count {
        members.push(read_member(r)?);
    }
    skip_rest(r, elements, 3)?;
    let config = GroupConfig::new(version, lineage, members).ok_or(PeerError::Members)?;
    Ok(Some(config.from_purge_on(since)))
}

fn write_config(config: Option<&GroupConfig>, out: &mut Vec<u8>) {
    let Some(config) = config else { return write_nil(out) };
    write_array_len(3, out);
    write_u64(config.version, out);
    write_component(&config.lineage, &config.since, out);
    write_array_len(config.members().len(), out);
    for member in config.members() {
        write_member(member, out);
    }
}

/// A round: `[name, incarnation, number, version]`.
pub(super) fn read_round(r: &mut Reader<'_>) -> Result<RoundId, PeerError> {
    let elements = r.read_array_len()?;
    let name = NodeName::new(r.read_str()?)?;
    let coordinator = NodeId { name, incarnation: Incarnation(r.read_u64()?) };
    let round = RoundId { coordinator, number: r.read_u64()?, version: r.read_u64()? };
    skip_rest(r, elements, 4)?;
    Ok(round)
}

pub(super) fn write_round(round: &RoundId, out: &mut Vec<u8>) {
    write_array_len(4, out);
    write_str(round.coordinator.name.as_str(), out);
    write_u64(round.coordinator.incarnation.0, out);
    write_u64(round.number, out);
    write_u64(round.version, out);
}

pub(super) fn read_proposal(r: &mut Reader<'_>) -> Result<Proposal, PeerError> {
    let (round, pair) = (read_round(r)?, read_pair(r)?);
    Ok(Proposal { round, pair, next: read_config(r)? })
}

pub(super) fn write_proposal(proposal: &Proposal, out: &mut Vec<u8>) {
    write_round(&proposal.round, out);
    write_pair(&proposal.pair, out);
    write_config(proposal.next.as_ref(), out);
}

pub(super) fn read_group_hello(r: &mut Reader<'_>) -> Result<GroupHello, PeerError> {
    let (member, config) = (read_member(r)?, read_config(r)?);
    let count = bounded(r.read_array_len()?, "components that are implied", IMPLIED_MAX)?;
    let mut implied = Vec::new();
    for _ in 0..count {
        let elements = r.read_array_len()?;
        let ((lineage, component), (by, at)) = (read_component(r)?, read_component(r)?);
        implied.push(Implied { lineage, component, by, at });
        skip_rest(r, elements, 2)?;
    }
    Ok(GroupHello { member, config, implied })
}

pub(super) fn write_group_hello(hello: &GroupHello, out: &mut Vec<u8>) {
    write_member(&hello.member, out);
    write_config(hello.config.as_ref(), out);
    write_array_len(hello.implied.len(), out);
    for fact in &hello.implied {
        write_array_len(2, out);
        write_component(&fact.lineage, &fact.component, out);
        write_component(&fact.by, &fact.at, out);
    }
}

fn skip_rest(r: &mut Reader<'_>, elements: usize, known: usize) -> Result<(), PeerError> {
    for _ in known..elements {
        r.skip()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::model::group::{GroupConfig, Member, RoundId};
    use crate::model::ids::{Incarnation, NodeId, NodeName, NodeTable, Tick, Tock};
    use crate::model::mark::{Component, Implied, Lineage, PurgeId};
    use crate::model::seen_sum::SeenSum;
    use crate::model::tick_set::TickSet;
    use crate::protocol::frame::{BODY_BYTES_MAX, Frame, split_frame};
    use crate::protocol::peer::{GroupHello, PairById, PeerError, PeerMessage, Proposal};
    use proptest::prelude::*;

    fn samples<'a>() -> Vec<PeerMessage<'a>> {
        let name = NodeName::new("a").unwrap();
        let id = NodeId { name: name.clone(), incarnation: Incarnation(u64::MAX) };
        let member = Member { name, store: 7, durable: true };
        let lineage = Lineage(Some((id.clone(), Tick::new(4).unwrap())));
        let seen = vec![(id.clone(), TickSet::range(1, 9).unwrap())];
        let since = Component::new(Tock::new(3).unwrap(), PurgeId::new(9));
        let config = GroupConfig::new(3, lineage.clone(), vec![member.clone()]);
        let config = config.map(|c| c.from_purge_on(since.clone()));
        let round = RoundId { coordinator: id, number: 5, version: 3 };
        let (ids, to) = ([1, 2].map(|id| PurgeId::new(id).unwrap()), Tock::new(1 << 40).unwrap());
        let from = Component::with_ids(Tock::new(2).unwrap(), ids);
        let base = vec![(Lineage(None), since.clone())];
        let fact = Implied {
            lineage: Lineage(None),
            component: since,
            by: lineage.clone(),
            at: from.clone(),
        };
        let id = PurgeId::new(u64::MAX);
        let rest = SeenSum { hash: u64::MAX, count: 2 };
        let pair = PairById { lineage, from, to, id, base, seen, rest };
        vec![
            PeerMessage::Group(GroupHello {
                member: member.clone(),
                config: config.clone(),
                implied: vec![fact],
            }),
            PeerMessage::Group(GroupHello {
                member: member.clone(),
                config: None,
                implied: Vec::new(),
            }),
            PeerMessage::Propose(Proposal {
                round: round.clone(),
                pair: pair.clone(),
                next: config,
            }),
            PeerMessage::Agree { round: round.clone(), member },
            PeerMessage::Disagree(round),
            PeerMessage::Announce(pair),
        ]
    }

    #[test]
    fn messages_of_the_group_come_back_as_they_were() {
        for at in 0..samples().len() {
            let mut bytes = Vec::new();
            samples()[at].encode(&NodeTable::new(), &mut bytes);
            let frame = split_frame(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
            let message: PeerMessage<'_> = samples().swap_remove(at);
            assert_eq!(PeerMessage::decode(&frame), Ok(Some(message)));
        }
    }

    #[test]
    fn a_list_without_members_is_refused() {
        // A member, a list of version 1 in the first lineage without members, and no facts.
        let body = [0x93, 0x93, 0xa1, b'a', 7, 0xc3, 0x93, 1, 0x92, 0xc0, 0, 0x90, 0x90];
        let frame = Frame { kind: 17, body: &body, length: 18 };
        assert_eq!(PeerMessage::decode(&frame), Err(PeerError::Members));
    }

    proptest! {
        #[test]
        fn damaged_messages_never_panic(which in 0usize..6, at in 5usize..80, byte: u8, cut in 0usize..40) {
            let mut bytes = Vec::new();
            samples()[which].encode(&NodeTable::new(), &mut bytes);
            let length = bytes.len();
            if at < length { bytes[at] = byte; }
            let body = bytes.get(5..length.saturating_sub(cut)).unwrap_or(&[]);
            let _ = PeerMessage::decode(&Frame { kind: bytes[4], body, length });
        }
    }
}
