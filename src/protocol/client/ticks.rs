//! Sets of ticks by node, as clients send them: the same form in which `get_state` gives them.

use super::error::ClientError;
use super::field::{Field, wrong, wrong_kind};
use crate::model::ids::NODE_TABLE_MAX;
use crate::model::tick_set::TickSet;
use crate::model::value::{Kind, ReadError, Reader};

/// Reads `{node: [tick, [from, to), …]}`: a map from nodes' labels to their ticks. Ranges may
/// come in any order, and may overlap.
///
/// # Errors
/// It is something else, or has more nodes than any network.
pub fn read_ticks_by_node(raw: &[u8]) -> Result<Vec<(&str, TickSet)>, ClientError> {
    let bad = |e: ReadError| wrong(Field::Nodes, &e);
    let mut reader = Reader::new(raw);
    let count = reader.read_map_len().map_err(bad)?;
    if count > NODE_TABLE_MAX {
        let text = format!("the field 'nodes' has more than {NODE_TABLE_MAX} nodes");
        return Err(ClientError::bad_request(text));
    }
    let mut nodes = Vec::new();
    for _ in 0..count {
        let label = reader.read_str().map_err(bad)?;
        let mut ticks = TickSet::new();
        for _ in 0..reader.read_array_len().map_err(bad)? {
            let (from, to) = read_range(&mut reader)?;
            if !ticks.insert_range(from, to) {
                let text = format!("bad field 'nodes': ticks of '{label}' are out of range");
                return Err(ClientError::bad_request(text));
            }
        }
        nodes.push((label, ticks));
    }
    Ok(nodes)
}

fn read_range(reader: &mut Reader<'_>) -> Result<(u64, u64), ClientError> {
    let bad = |e: ReadError| wrong(Field::Nodes, &e);
    if reader.peek_kind() == Ok(Kind::Int) {
        let tick = reader.read_u64().map_err(bad)?;
        return Ok((tick, tick.saturating_add(1)));
    }
    let raw = reader.read_raw().map_err(bad)?;
    let mut pair = Reader::new(raw);
    match pair.read_array_len() {
        Ok(2) => Ok((pair.read_u64().map_err(bad)?, pair.read_u64().map_err(bad)?)),
        _ => Err(wrong(Field::Nodes, &wrong_kind(raw, "a tick, or a range's two ends"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_alone_and_in_ranges() {
        // {"a": [5, [7, 10], 6], "b": []}
        let read = read_ticks_by_node(b"\x82\xa1a\x93\x05\x92\x07\x0a\x06\xa1b\x90").unwrap();
        let shown: Vec<_> =
            read.iter().map(|(name, ticks)| (*name, ticks.iter().collect::<Vec<_>>())).collect();
        assert_eq!(shown, [("a", vec![5, 6, 7, 8, 9]), ("b", vec![])]);
    }

    #[test]
    fn what_is_no_set_of_ticks_is_refused() {
        for raw in [
            &b"\x05"[..],
            b"\x81\x05\x90",
            b"\x81\xa1a\x05",
            b"\x81\xa1a\x91\x91\x05",
            b"\x81\xa1a\x91\xa1x",
            b"\x81\xa1a\x91\x00",
            b"\x81\xa1a\x91\xff",
            b"\x81\xa1a\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(read_ticks_by_node(raw).is_err(), "{raw:?}");
        }
    }
}
