//! The id that a client gives a write, so that a client that does not know whether the write was
//! made can send it again, to any node.

use crate::invariant::OrBroken;

/// The key under which a change record carries it. The first of those that nodes pass on as they are,
/// so nodes that do not know it keep it, too.
const KEY: u8 = 5;
/// What stands before it in a record's further fields: that it is the only one, its key, and the head
/// of 16 bytes in MessagePack.
const HEAD: [u8; 4] = [1, KEY, 0xc4, 16];

/// 16 bytes, chosen by the client: random, or made so that no two writes ever have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriteId(pub [u8; Self::BYTES]);

impl WriteId {
    /// How long one is.
    pub const BYTES: usize = 16;

    /// The one among an entry's further fields ([`crate::entry::Entry::extra`]); none if that is not
    /// there, or is no write id.
    #[must_use]
    pub fn of_extra(extra: &[u8]) -> Option<Self> {
        let [_count, fields @ ..] = extra else { return None };
        let [_count, head @ ..] = HEAD;
        let id = fields.strip_prefix(&head)?.first_chunk()?;
        Some(Self(*id))
    }

    /// An entry's further fields if it is the only one.
    #[must_use]
    pub fn to_extra(self) -> [u8; HEAD.len() + Self::BYTES] {
        let mut extra = [0; HEAD.len() + Self::BYTES];
        let (head, id) = extra.split_at_mut(HEAD.len());
        head.copy_from_slice(&HEAD);
        id.copy_from_slice(&self.0);
        extra
    }

    /// Further fields without a write id, if they had one.
    #[must_use]
    pub fn taken_out_of(extra: &[u8]) -> Vec<u8> {
        match (Self::of_extra(extra), extra) {
            (Some(_), [count, ..]) if *count > 1 => {
                let rest = extra
                    .get(HEAD.len() + Self::BYTES..)
                    .or_broken("a write id that was read was there");
                [&[count - 1], rest].concat()
            }
            (Some(_), _) => Vec::new(),
            (None, _) => extra.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::write_id::*;

    #[test]
    fn an_id_is_found_where_it_was_put() {
        let id = WriteId(*b"0123456789abcdef");
        let mut extra = id.to_extra().to_vec();
        assert_eq!(WriteId::of_extra(&extra), Some(id));
        assert!(WriteId::taken_out_of(&extra).is_empty());
        // Followed by a field of a later version.
        extra[0] = 2;
        extra.extend_from_slice(&[9, 0xc0]);
        assert_eq!(WriteId::of_extra(&extra), Some(id));
        assert_eq!(WriteId::taken_out_of(&extra), [1, 9, 0xc0]);
    }

    #[test]
    fn what_is_no_write_id_is_none_and_stays() {
        let id = WriteId([7; 16]).to_extra();
        let mut shorter = id;
        shorter[3] = 15;
        let mut text = id;
        text[2] = 0xd9;
        let mut other_key = id;
        other_key[1] = 6;
        for extra in [&[][..], &[1], &id[..19], &shorter, &text, &other_key, &[1, 5, 0xc0]] {
            assert_eq!(WriteId::of_extra(extra), None, "{extra:?}");
            assert_eq!(WriteId::taken_out_of(extra), extra);
        }
    }
}
