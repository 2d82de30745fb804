//! Bytes for foca's headers and members, and the pieces that datagrams of our own share with them.
//!
//! ```text
//! address   tag u8 (bit 0: IPv6, bit 1: leaving, where an identity follows), 4 or 16 bytes, port u16
//! identity  address, name length u8, name, incarnation u64, generation u32 as LEB128
//! member    identity, foca's incarnation u16, state u8
//! header    identity of the sender, its foca incarnation u16, identity of the target, message
//! message   tag u8; then a probe number u8 or, for the indirect ones, identity and probe number
//! ```
//!
//! Big-endian throughout. Every read is bounded by the datagram; nothing is allocated but a name
//! of at most 64 bytes.

use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, BufMut};
use foca::{Header, Member, Message, State};

use crate::membership::error::CodecError;
use crate::membership::members::identity::{Identity, canonical_addr, is_unicast};
use crate::model::ids::{Incarnation, NodeName};
use crate::model::limits::NAME_BYTES_MAX;

const TAG_IPV6: u8 = 1;
const TAG_LEAVING: u8 = 2;

/// Most bytes of an encoded address.
const ADDR_BYTES_MAX: usize = 1 + 16 + 2;
/// Most bytes of a 32-bit number in LEB128.
const LEB128_BYTES_MAX: usize = 5;
/// Most bytes of an encoded identity.
pub(super) const IDENTITY_BYTES_MAX: usize =
    ADDR_BYTES_MAX + 1 + NAME_BYTES_MAX + 8 + LEB128_BYTES_MAX;
/// Bytes of a foca incarnation and a state.
const MEMBER_EXTRA_BYTES: usize = 3;
/// Most bytes of a header: three identities (the indirect messages name a third), the sender's
/// foca incarnation, tag and probe number.
pub(super) const HEADER_BYTES_MAX: usize = 3 * IDENTITY_BYTES_MAX + 2 + 2;

/// The codec that foca is given.
#[derive(Debug, Clone, Copy)]
pub(in crate::membership) struct IdentityCodec;

impl foca::Codec<Identity> for IdentityCodec {
    type Error = CodecError;

    fn encode_header(
        &mut self,
        header: &Header<Identity>,
        mut buf: impl BufMut,
    ) -> Result<(), CodecError> {
        encode_identity(&header.src, &mut buf)?;
        need_room(&buf, 2)?;
        buf.put_u16(header.src_incarnation);
        encode_identity(&header.dst, &mut buf)?;
        encode_message(&header.message, &mut buf)
    }

    fn decode_header(&mut self, mut buf: impl Buf) -> Result<Header<Identity>, CodecError> {
        let src = decode_identity(&mut buf)?;
        let src_incarnation = read_u16(&mut buf)?;
        let dst = decode_identity(&mut buf)?;
        let message = decode_message(&mut buf)?;
        Ok(Header { src, src_incarnation, dst, message })
    }

    fn encode_member(
        &mut self,
        member: &Member<Identity>,
        mut buf: impl BufMut,
    ) -> Result<(), CodecError> {
        // Checked as a whole, because foca wants nothing left behind when there is no room.
        need_room(&buf, identity_bytes(member.id()) + MEMBER_EXTRA_BYTES)?;
        encode_identity(member.id(), &mut buf)?;
        buf.put_u16(member.incarnation());
        buf.put_u8(match member.state() {
            State::Alive => 0,
            State::Suspect => 1,
            State::Down => 2,
        });
        Ok(())
    }

    fn decode_member(&mut self, mut buf: impl Buf) -> Result<Member<Identity>, CodecError> {
        let identity = decode_identity(&mut buf)?;
        let incarnation = read_u16(&mut buf)?;
        let state = match read_u8(&mut buf)? {
            0 => State::Alive,
            1 => State::Suspect,
            2 => State::Down,
            _ => return Err(CodecError::Unknown("member state")),
        };
        Ok(Member::new(identity, incarnation, state))
    }
}

fn encode_message(message: &Message<Identity>, mut buf: impl BufMut) -> Result<(), CodecError> {
    let (tag, about, probe_number) = match message {
        Message::Ping(number) => (1, None, Some(*number)),
        Message::Ack(number) => (2, None, Some(*number)),
        Message::PingReq { target, probe_number } => (3, Some(target), Some(*probe_number)),
        Message::IndirectPing { origin, probe_number } => (4, Some(origin), Some(*probe_number)),
        Message::IndirectAck { target, probe_number } => (5, Some(target), Some(*probe_number)),
        Message::ForwardedAck { origin, probe_number } => (6, Some(origin), Some(*probe_number)),
        Message::Announce => (7, None, None),
        Message::Feed => (8, None, None),
        Message::Gossip => (9, None, None),
        Message::Broadcast => (10, None, None),
        Message::TurnUndead => (11, None, None),
    };
    need_room(&buf, 1)?;
    buf.put_u8(tag);
    if let Some(identity) = about {
        encode_identity(identity, &mut buf)?;
    }
    if let Some(number) = probe_number {
        need_room(&buf, 1)?;
        buf.put_u8(number);
    }
    Ok(())
}

fn decode_message(mut buf: impl Buf) -> Result<Message<Identity>, CodecError> {
    Ok(match read_u8(&mut buf)? {
        1 => Message::Ping(read_u8(&mut buf)?),
        2 => Message::Ack(read_u8(&mut buf)?),
        tag @ 3..=6 => {
            let about = decode_identity(&mut buf)?;
            let probe_number = read_u8(&mut buf)?;
            match tag {
                3 => Message::PingReq { target: about, probe_number },
                4 => Message::IndirectPing { origin: about, probe_number },
                5 => Message::IndirectAck { target: about, probe_number },
                _ => Message::ForwardedAck { origin: about, probe_number },
            }
        }
        7 => Message::Announce,
        8 => Message::Feed,
        9 => Message::Gossip,
        10 => Message::Broadcast,
        11 => Message::TurnUndead,
        _ => return Err(CodecError::Unknown("message")),
    })
}

/// Writes an identity, all of it or nothing.
pub(super) fn encode_identity(identity: &Identity, mut buf: impl BufMut) -> Result<(), CodecError> {
    need_room(&buf, identity_bytes(identity))?;
    put_addr(&identity.addr, if identity.leaving { TAG_LEAVING } else { 0 }, &mut buf);
    let name = identity.name.as_str().as_bytes();
    buf.put_u8(u8::try_from(name.len()).map_err(|_| CodecError::OutOfBounds("name"))?);
    buf.put_slice(name);
    buf.put_u64(identity.incarnation.0);
    let mut rest = identity.generation;
    while rest > 0x7f {
        buf.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    buf.put_u8(rest as u8);
    Ok(())
}

/// Reads an identity; refuses what could not be a member's.
pub(super) fn decode_identity(mut buf: impl Buf) -> Result<Identity, CodecError> {
    let tag = read_u8(&mut buf)?;
    if tag & !(TAG_IPV6 | TAG_LEAVING) != 0 {
        return Err(CodecError::Unknown("address tag"));
    }
    let addr = read_addr(tag, &mut buf)?;
    let name = read_name(&mut buf)?;
    let incarnation = Incarnation(buf.try_get_u64().map_err(|_| CodecError::CutShort)?);
    let generation = read_leb128(&mut buf)?;
    Ok(Identity { addr, name, incarnation, generation, leaving: tag & TAG_LEAVING != 0 })
}

/// Writes an address by itself.
pub(super) fn encode_addr(addr: &SocketAddr, mut buf: impl BufMut) -> Result<(), CodecError> {
    need_room(&buf, addr_bytes(addr))?;
    put_addr(addr, 0, &mut buf);
    Ok(())
}

/// Reads an address by itself.
pub(super) fn decode_addr(mut buf: impl Buf) -> Result<SocketAddr, CodecError> {
    let tag = read_u8(&mut buf)?;
    if tag & !TAG_IPV6 != 0 {
        return Err(CodecError::Unknown("address tag"));
    }
    read_addr(tag, &mut buf)
}

/// Reads a length-prefixed name of a node; a network's has the same form.
pub(super) fn read_name(mut buf: impl Buf) -> Result<NodeName, CodecError> {
    let mut bytes = [0; NAME_BYTES_MAX];
    let len = usize::from(read_u8(&mut buf)?);
    let bytes = bytes.get_mut(..len).ok_or(CodecError::OutOfBounds("name"))?;
    buf.try_copy_to_slice(bytes).map_err(|_| CodecError::CutShort)?;
    let name = std::str::from_utf8(bytes).map_err(|_| CodecError::OutOfBounds("name"))?;
    NodeName::new(name).map_err(|_| CodecError::OutOfBounds("name"))
}

pub(super) fn read_u8(mut buf: impl Buf) -> Result<u8, CodecError> {
    buf.try_get_u8().map_err(|_| CodecError::CutShort)
}

fn read_u16(mut buf: impl Buf) -> Result<u16, CodecError> {
    buf.try_get_u16().map_err(|_| CodecError::CutShort)
}

fn read_addr(tag: u8, mut buf: impl Buf) -> Result<SocketAddr, CodecError> {
    let ip = if tag & TAG_IPV6 == 0 {
        let mut octets = [0; 4];
        buf.try_copy_to_slice(&mut octets).map_err(|_| CodecError::CutShort)?;
        IpAddr::from(octets)
    } else {
        let mut octets = [0; 16];
        buf.try_copy_to_slice(&mut octets).map_err(|_| CodecError::CutShort)?;
        IpAddr::from(octets)
    };
    let addr = SocketAddr::new(ip, read_u16(&mut buf)?);
    // One address must have one form, else one member could be two.
    if !is_unicast(&addr) || canonical_addr(addr) != addr {
        return Err(CodecError::OutOfBounds("address"));
    }
    Ok(addr)
}

fn read_leb128(mut buf: impl Buf) -> Result<u32, CodecError> {
    let mut value: u64 = 0;
    for at in 0..LEB128_BYTES_MAX {
        let byte = read_u8(&mut buf)?;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return u32::try_from(value).map_err(|_| CodecError::OutOfBounds("generation"));
        }
    }
    Err(CodecError::OutOfBounds("generation"))
}

fn put_addr(addr: &SocketAddr, tag: u8, mut buf: impl BufMut) {
    match addr.ip() {
        IpAddr::V4(ip) => {
            buf.put_u8(tag);
            buf.put_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            buf.put_u8(tag | TAG_IPV6);
            buf.put_slice(&ip.octets());
        }
    }
    buf.put_u16(addr.port());
}

fn addr_bytes(addr: &SocketAddr) -> usize {
    1 + if addr.is_ipv4() { 4 } else { 16 } + 2
}

/// An upper bound, exact but for the generation.
fn identity_bytes(identity: &Identity) -> usize {
    addr_bytes(&identity.addr) + 1 + identity.name.as_str().len() + 8 + LEB128_BYTES_MAX
}

fn need_room(buf: &impl BufMut, bytes: usize) -> Result<(), CodecError> {
    if buf.remaining_mut() < bytes { Err(CodecError::NoRoom) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foca::Codec as _;
    use proptest::prelude::*;

    fn any_addr() -> impl Strategy<Value = SocketAddr> {
        (any::<IpAddr>(), 1u16..)
            .prop_map(|(ip, port)| canonical_addr(SocketAddr::new(ip, port)))
            .prop_filter("unicast", is_unicast)
    }

    prop_compose! {
        fn any_identity()(
            addr in any_addr(),
            name in "[a-z0-9.é-]{1,30}",
            incarnation in any::<u64>().prop_map(Incarnation),
            generation in prop_oneof![0u32..3, any::<u32>()],
            leaving in any::<bool>(),
        ) -> Identity {
            let name = NodeName::new(&name).unwrap();
            Identity { addr, name, incarnation, generation, leaving }
        }
    }

    fn any_message() -> impl Strategy<Value = Message<Identity>> {
        (0..11, any_identity(), any::<u8>()).prop_map(|(tag, about, n)| match tag {
            0 => Message::Ping(n),
            1 => Message::Ack(n),
            2 => Message::PingReq { target: about, probe_number: n },
            3 => Message::IndirectPing { origin: about, probe_number: n },
            4 => Message::IndirectAck { target: about, probe_number: n },
            5 => Message::ForwardedAck { origin: about, probe_number: n },
            6 => Message::Announce,
            7 => Message::Feed,
            8 => Message::Gossip,
            9 => Message::Broadcast,
            _ => Message::TurnUndead,
        })
    }

    proptest! {
        #[test]
        fn headers_survive_the_wire(
            src in any_identity(), dst in any_identity(), message in any_message(), n in any::<u16>(),
        ) {
            let header = Header { src, src_incarnation: n, dst, message };
            let mut bytes = Vec::new();
            IdentityCodec.encode_header(&header, &mut bytes).unwrap();
            prop_assert!(bytes.len() <= HEADER_BYTES_MAX);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(IdentityCodec.decode_header(&mut rest).unwrap(), header);
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn members_survive_the_wire_and_leave_no_trace_without_room(
            id in any_identity(), n in any::<u16>(), state in 0usize..3, room in 0usize..120,
        ) {
            let state = [State::Alive, State::Suspect, State::Down][state];
            let member = Member::new(id, n, state);
            let mut bytes = Vec::new();
            IdentityCodec.encode_member(&member, &mut bytes).unwrap();
            prop_assert_eq!(&IdentityCodec.decode_member(bytes.as_slice()).unwrap(), &member);

            let mut small = Vec::new();
            if IdentityCodec.encode_member(&member, (&mut small).limit(room)).is_err() {
                prop_assert!(small.is_empty());
                prop_assert!(room < bytes.len() + LEB128_BYTES_MAX);
            } else {
                prop_assert_eq!(small, bytes);
            }
        }

        #[test]
        fn what_decodes_encodes_to_the_same_member(bytes in prop::collection::vec(any::<u8>(), 0..90)) {
            let mut rest = bytes.as_slice();
            if let Ok(member) = IdentityCodec.decode_member(&mut rest) {
                let mut again = Vec::new();
                IdentityCodec.encode_member(&member, &mut again).unwrap();
                prop_assert_eq!(IdentityCodec.decode_member(again.as_slice()).unwrap(), member);
            }
        }
    }

    #[test]
    fn absurd_fields_are_refused() {
        let good = {
            let addr = "10.0.0.1:5".parse().unwrap();
            let mut bytes = Vec::new();
            let identity = Identity::new(addr, NodeName::new("ab").unwrap(), Incarnation(1));
            encode_identity(&identity, &mut bytes).unwrap();
            bytes
        };
        assert!(decode_identity(good.as_slice()).is_ok());
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            decode_identity(bytes.as_slice())
        };
        assert_eq!(with(0, 0x80), Err(CodecError::Unknown("address tag")));
        assert_eq!(with(1, 224), Err(CodecError::OutOfBounds("address")), "multicast");
        assert_eq!(with(6, 0), Err(CodecError::OutOfBounds("address")), "port 0");
        assert_eq!(with(7, 0), Err(CodecError::OutOfBounds("name")), "empty name");
        assert_eq!(with(7, 65), Err(CodecError::OutOfBounds("name")), "long name");
        assert_eq!(with(8, 0xff), Err(CodecError::OutOfBounds("name")), "not UTF-8");
        assert_eq!(with(8, b'~'), Err(CodecError::OutOfBounds("name")));
        assert_eq!(with(8, b'\n'), Err(CodecError::OutOfBounds("name")), "would spoil a log");
        for cut in 0..good.len() {
            assert!(decode_identity(good.get(..cut).unwrap()).is_err());
        }
        let mut endless = good.clone();
        endless.pop();
        endless.extend([0xff; 9]);
        assert_eq!(decode_identity(&*endless), Err(CodecError::OutOfBounds("generation")));
    }
}
