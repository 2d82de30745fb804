//! Bytes of the messages of networks in which not all are linked with all, and back.

use super::field_codec::read_id;
use super::{Edge, PeerError, Relayed};
use crate::model::value::{Reader, write_array_len, write_bin, write_bool, write_str, write_u64};
use crate::protocol::frame::write_frame;

pub(super) const EDGE: u8 = 25;
pub(super) const RELAYED: u8 = 26;

pub(super) fn read_edge(r: &mut Reader<'_>) -> Result<Edge, PeerError> {
    Ok(Edge { wanted: r.read_bool()?, eager: r.read_bool()?, relays: r.read_bool()? })
}

pub(super) fn write_edge(edge: Edge, out: &mut Vec<u8>) {
    write_frame(EDGE, out, |out| {
        write_array_len(3, out);
        write_bool(edge.wanted, out);
        write_bool(edge.eager, out);
        write_bool(edge.relays, out);
    });
}

pub(super) fn read_relayed<'a>(r: &mut Reader<'a>) -> Result<Relayed<'a>, PeerError> {
    let origin = read_id(r)?;
    let (number, wide) = (r.read_u64()?, r.read_bool()?);
    Ok(Relayed { origin, number, wide, frame: r.read_bin()? })
}

pub(super) fn write_relayed(relayed: &Relayed<'_>, out: &mut Vec<u8>) {
    write_frame(RELAYED, out, |out| {
        write_array_len(5, out);
        write_str(relayed.origin.name.as_str(), out);
        write_u64(relayed.origin.incarnation.0, out);
        write_u64(relayed.number, out);
        write_bool(relayed.wide, out);
        write_bin(relayed.frame, out);
    });
}
