//! Bytes to the pings of an election and back. `actor` judges their content.

use super::PeerError;
use super::field_codec::bounded;
use crate::model::ids::NodeName;
use crate::model::ping::{
    ConfigVersion, GroupId, HISTORY_LEN_MAX, Meeting, PING_MEETINGS_MAX, Ping,
};
use crate::model::value::{Reader, write_array_len, write_nil, write_str, write_u64};

/// A later version may have longer lists; those of an honest one still stay below.
const NAMES_MAX: usize = 4 * HISTORY_LEN_MAX;
/// The same limit for meetings.
const MEETINGS_MAX: usize = 4 * PING_MEETINGS_MAX;

/// `[group, sender, turn, value, history, meetings, [version, cycle, gap, list length]]`.
pub(super) fn read_ping(r: &mut Reader<'_>) -> Result<Ping, PeerError> {
    let raw = r.read_u64()?;
    let group = GroupId(u8::try_from(raw).map_err(|_| PeerError::Counter(raw))?);
    let sender = NodeName::new(r.read_str()?)?;
    let turn = r.read_u64()?;
    let value = if r.take_nil() { None } else { Some(r.read_u64()?) };
    let history = read_names(r)?;
    let count = bounded(r.read_array_len()?, "meetings", MEETINGS_MAX)?;
    let mut meetings = Vec::new();
    for _ in 0..count {
        let elements = r.read_array_len()?;
        meetings.push(Meeting { turn: r.read_u64()?, sides: [read_names(r)?, read_names(r)?] });
        for _ in 3..elements {
            r.skip()?;
        }
    }
    let elements = r.read_array_len()?;
    let (version, cycle_ms, gap_ms) = (r.read_u64()?, r.read_u64()?, r.read_u64()?);
    let raw = r.read_u64()?;
    let list_len = usize::try_from(raw).map_err(|_| PeerError::Counter(raw))?;
    for _ in 4..elements {
        r.skip()?;
    }
    let config = ConfigVersion { version, cycle_ms, gap_ms, list_len };
    Ok(Ping { group, sender, turn, value, history, meetings, config })
}

pub(super) fn write_ping(ping: &Ping, out: &mut Vec<u8>) {
    write_u64(ping.group.0.into(), out);
    write_str(ping.sender.as_str(), out);
    write_u64(ping.turn, out);
    match ping.value {
        Some(value) => write_u64(value, out),
        None => write_nil(out),
    }
    write_names(&ping.history, out);
    write_array_len(ping.meetings.len(), out);
    for meeting in &ping.meetings {
        write_array_len(3, out);
        write_u64(meeting.turn, out);
        meeting.sides.iter().for_each(|side| write_names(side, out));
    }
    write_array_len(4, out);
    write_u64(ping.config.version, out);
    write_u64(ping.config.cycle_ms, out);
    write_u64(ping.config.gap_ms, out);
    write_u64(ping.config.list_len as u64, out);
}

fn read_names(r: &mut Reader<'_>) -> Result<Vec<NodeName>, PeerError> {
    let count = bounded(r.read_array_len()?, "names of a history", NAMES_MAX)?;
    (0..count).map(|_| Ok(NodeName::new(r.read_str()?)?)).collect()
}

fn write_names(names: &[NodeName], out: &mut Vec<u8>) {
    write_array_len(names.len(), out);
    names.iter().for_each(|name| write_str(name.as_str(), out));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::NodeTable;
    use crate::protocol::frame::{BODY_BYTES_MAX, Frame, split_frame};
    use crate::protocol::peer::PeerMessage;
    use proptest::prelude::*;

    fn sample(value: Option<u64>) -> Ping {
        let names = |names: &[&str]| names.iter().map(|n| NodeName::new(n).unwrap()).collect();
        Ping {
            group: GroupId(2),
            sender: NodeName::new("a").unwrap(),
            turn: 1 << 40,
            value,
            history: names(&["a", "b"]),
            meetings: vec![Meeting { turn: 3, sides: [names(&["a"]), names(&["c", "d"])] }],
            config: ConfigVersion { version: 7, ..ConfigVersion::DEFAULT },
        }
    }

    #[test]
    fn a_ping_comes_back_as_it_was() {
        for value in [None, Some(0), Some(u64::MAX)] {
            let mut bytes = Vec::new();
            PeerMessage::Ping(sample(value)).encode(&NodeTable::new(), &mut bytes);
            let frame = split_frame(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
            let ping = PeerMessage::Ping(sample(value));
            assert_eq!(PeerMessage::decode(&frame), Ok(Some(ping)));
        }
    }

    proptest! {
        #[test]
        fn damaged_pings_never_panic(at in 5usize..60, byte: u8, cut in 0usize..40) {
            let mut bytes = Vec::new();
            PeerMessage::Ping(sample(Some(5))).encode(&NodeTable::new(), &mut bytes);
            let length = bytes.len();
            if at < length { bytes[at] = byte; }
            let body = bytes.get(5..length.saturating_sub(cut)).unwrap_or(&[]);
            let _ = PeerMessage::decode(&Frame { kind: bytes[4], body, length });
        }
    }
}
