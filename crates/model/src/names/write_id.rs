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

/// What stands first in an id that says which place its write has. No text begins like that, and of random ids only few;
/// those have no client in common.
const PLACE_MARK: [u8; 2] = [0xd1, 0x5c];

/// The place of a write among those of its client, for clients that number their writes: the id says it, so whoever meets
/// the change knows it, and which older writes the client does not wait for any more.
///
/// As bytes: the mark, 7 of the client, 4 of the number, 3 of the difference between both numbers (big-endian). All
/// ones: the difference is greater, and nothing is known to be settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritePlace {
    /// Random, of one process of a client: 56 bits.
    pub client: u64,
    /// One more for each write, in the order in which the client began them.
    pub number: u32,
    /// The client does not wait for any write of a lesser number any more: each has succeeded or failed, or the client has
    /// given it up without knowing which. Never greater than `number`.
    pub settled: u32,
}

impl WritePlace {
    /// How many writes apart the two numbers can be.
    const SPAN_UNTOLD: u32 = (1 << 24) - 1;

    /// What the id says; none if it says nothing of that.
    #[must_use]
    pub fn of(id: WriteId) -> Option<Self> {
        let rest = id.0.strip_prefix(&PLACE_MARK)?;
        let (client, rest) = rest.split_first_chunk::<7>()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let [a, b, c] = *rest.first_chunk::<3>()?;
        let client = client.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let number = u32::from_be_bytes(*number);
        let settled = match u32::from_be_bytes([0, a, b, c]) {
            Self::SPAN_UNTOLD => 0,
            span => number.checked_sub(span)?,
        };
        Some(Self { client, number, settled })
    }

    /// The id that says so.
    #[must_use]
    pub fn to_id(self) -> WriteId {
        let span = (self.number - self.settled.min(self.number)).min(Self::SPAN_UNTOLD);
        let [_, client @ ..] = self.client.to_be_bytes();
        let [_, span @ ..] = span.to_be_bytes();
        let number = self.number.to_be_bytes();
        let mut id = [0; WriteId::BYTES];
        let bytes = PLACE_MARK.iter().chain(&client).chain(&number).chain(&span);
        id.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        WriteId(id)
    }
}

#[cfg(test)]
mod tests {
    use crate::write_id::*;

    #[test]
    fn a_place_is_what_was_put_into_the_id() {
        let place = |client, number, settled| WritePlace { client, number, settled };
        for there in [
            place(0, 0, 0),
            place(1, 7, 7),
            place((1 << 56) - 1, u32::MAX, u32::MAX - WritePlace::SPAN_UNTOLD + 1),
        ] {
            assert_eq!(WritePlace::of(there.to_id()), Some(there));
        }
        // The layout that other languages write, too.
        let id = place(0x0001_0203_0405_0607, 0x0809_0a0b, 0x0809_0a0b - 0x0c_0d0e).to_id();
        assert_eq!(id.0, *b"\xd1\x5c\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e");
        // Too far apart to say.
        let far = place(1, u32::MAX, 5);
        assert_eq!(WritePlace::of(far.to_id()), Some(place(1, u32::MAX, 0)));
    }

    #[test]
    fn other_ids_have_no_place() {
        let mut impossible = WritePlace { client: 1, number: 3, settled: 3 }.to_id();
        impossible.0[15] = 4;
        for id in [WriteId([7; 16]), WriteId(*b"order-0000000017"), WriteId([0; 16]), impossible] {
            assert_eq!(WritePlace::of(id), None, "{id:?}");
        }
    }

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
