//! Whether two values mean the same, whatever widths their numbers and lengths were written in, and in whatever order
//! their maps: what `prev` preconditions and `changed` ask.

use std::cmp::Ordering;

use crate::limits::VALUE_BYTES_MAX;
use crate::value::read::{Kind, ReadError, Reader};
use crate::value::skip::SKIP_DEPTH_MAX;

/// So many pairs of a value's maps, all together, are looked for where the order differs. In longer ones the order counts:
/// writers hold up all others while they compare.
const REORDERED_PAIRS_MAX: usize = 4_096;
/// And in so many bytes.
const REORDERED_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX;

/// Whether two checked values are equal. Integers are compared as numbers (`0x05` and `0xcc05`
/// are equal), strings, byte strings and extensions by content, arrays item by item in their order, maps pair by pair in
/// any order, up to 4,096 pairs of the whole value: languages do not agree on one. Different kinds are never equal: `1`, `1.0` and
/// `true` are three values.
///
/// Bytes that are no value, or are nested too deeply for one, are equal to nothing but the same bytes.
#[must_use]
pub fn values_equal(a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return true;
    }
    let (mut a, mut b) = (Reader::new(a), Reader::new(b));
    let mut comparison = Comparison { pairs: REORDERED_PAIRS_MAX, bytes: REORDERED_BYTES_MAX };
    let are_equal = comparison.items_equal(&mut a, &mut b, SKIP_DEPTH_MAX);
    are_equal.unwrap_or(false) && a.is_at_end() && b.is_at_end()
}

/// What may still be looked for in another order.
struct Comparison {
    pairs: usize,
    bytes: usize,
}

impl Comparison {
    /// Compares the next item of both, and steps past it if they are equal. `depth`: levels that may be entered.
    fn items_equal(
        &mut self,
        a: &mut Reader<'_>,
        b: &mut Reader<'_>,
        depth: usize,
    ) -> Result<bool, ReadError> {
        let kind = a.peek_kind()?;
        if kind != b.peek_kind()? {
            return Ok(false);
        }
        match (kind, depth.checked_sub(1)) {
            (Kind::Array, Some(depth)) => {
                let count = a.read_array_len()?;
                if count != b.read_array_len()? {
                    return Ok(false);
                }
                for _ in 0..count {
                    if !self.items_equal(a, b, depth)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Kind::Map, Some(depth)) => {
                let count = a.read_map_len()?;
                Ok(count == b.read_map_len()? && self.pairs_equal(a, b, count, depth)?)
            }
            (Kind::Array | Kind::Map, None) => Ok(false),
            _ => Ok(compare_scalars(kind, a, b)?.is_eq()),
        }
    }

    fn pairs_equal(
        &mut self,
        a: &mut Reader<'_>,
        b: &mut Reader<'_>,
        count: usize,
        depth: usize,
    ) -> Result<bool, ReadError> {
        for index in 0..count {
            let at_key = (*a, *b);
            if compare_keys(a.read_raw()?, b.read_raw()?).is_ne() {
                (*a, *b) = at_key;
                return self.reordered_equal(a, b, count - index, depth);
            }
            if !self.items_equal(a, b, depth)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The rest of two maps, whose order differs.
    fn reordered_equal(
        &mut self,
        a: &mut Reader<'_>,
        b: &mut Reader<'_>,
        count: usize,
        depth: usize,
    ) -> Result<bool, ReadError> {
        let Some(pairs) = self.pairs.checked_sub(count) else { return Ok(false) };
        let before = a.position() + b.position();
        let (ours, theirs) = (sorted_pairs(a, count)?, sorted_pairs(b, count)?);
        let bytes = a.position() + b.position() - before;
        let Some(bytes) = self.bytes.checked_sub(bytes) else { return Ok(false) };
        (self.pairs, self.bytes) = (pairs, bytes);
        for ((key, value), (other_key, other)) in ours.into_iter().zip(theirs) {
            let are_equal = compare_keys(key, other_key).is_eq()
                && self.items_equal(&mut Reader::new(value), &mut Reader::new(other), depth)?;
            if !are_equal {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

type Pair<'a> = (&'a [u8], &'a [u8]);

/// The next pairs, by their keys.
fn sorted_pairs<'a>(reader: &mut Reader<'a>, count: usize) -> Result<Vec<Pair<'a>>, ReadError> {
    let pairs = (0..count).map(|_| Ok((reader.read_raw()?, reader.read_raw()?)));
    let mut pairs = pairs.collect::<Result<Vec<_>, ReadError>>()?;
    pairs.sort_by(|(one, _), (other, _)| compare_keys(one, other));
    Ok(pairs)
}

/// An order of keys in which the equal ones are equal. Arrays and maps, which are keys in few languages, are compared by
/// their bytes.
fn compare_keys(a: &[u8], b: &[u8]) -> Ordering {
    let (mut one, mut other) = (Reader::new(a), Reader::new(b));
    match (one.peek_kind(), other.peek_kind()) {
        (Ok(kind), Ok(same)) if kind == same && !matches!(kind, Kind::Array | Kind::Map) => {
            compare_scalars(kind, &mut one, &mut other).unwrap_or_else(|_| a.cmp(b))
        }
        (Ok(kind), Ok(another)) if kind != another => (kind as u8).cmp(&(another as u8)),
        _ => a.cmp(b),
    }
}

/// Compares two items of this kind, and steps past them.
fn compare_scalars(
    kind: Kind,
    a: &mut Reader<'_>,
    b: &mut Reader<'_>,
) -> Result<Ordering, ReadError> {
    Ok(match kind {
        Kind::Nil => {
            a.read_nil()?;
            b.read_nil()?;
            Ordering::Equal
        }
        Kind::Bool => a.read_bool()?.cmp(&b.read_bool()?),
        Kind::Int => a.read_int()?.cmp(&b.read_int()?),
        Kind::Float => a.read_f64()?.to_bits().cmp(&b.read_f64()?.to_bits()),
        Kind::Str => a.read_str_bytes()?.cmp(b.read_str_bytes()?),
        Kind::Bin => a.read_bin()?.cmp(b.read_bin()?),
        Kind::Ext => a.read_ext()?.cmp(&b.read_ext()?),
        Kind::Array | Kind::Map => a.read_raw()?.cmp(b.read_raw()?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::value::equal::*;
    use crate::value::write_map_len;

    #[test]
    fn widths_do_not_matter_and_kinds_do() {
        assert!(values_equal(&[5], &[0xcc, 5]));
        assert!(values_equal(&[0xff], &[0xd0, 0xff]));
        assert!(values_equal(&[0xa1, b'x'], &[0xd9, 1, b'x']));
        assert!(values_equal(&[0x92, 5, 0xc0], &[0xdc, 0, 2, 0xcd, 0, 5, 0xc0]));
        assert!(!values_equal(&[1], &[0xc3]));
        assert!(!values_equal(&[1], &[0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0]));
        assert!(!values_equal(&[0xa1, b'x'], &[0xc4, 1, b'x']));
        assert!(!values_equal(&[0x91, 5], &[0x92, 5, 5]));
        assert!(!values_equal(&[0x81, 5, 6], &[0x81, 5, 7]));
    }

    #[test]
    fn maps_are_equal_in_any_order_and_arrays_are_not() {
        assert!(values_equal(&[0x82, 1, 2, 3, 4], &[0x82, 3, 4, 0xcc, 1, 2]));
        assert!(!values_equal(&[0x82, 1, 2, 3, 4], &[0x82, 3, 2, 1, 4]));
        assert!(!values_equal(&[0x82, 1, 2, 3, 4], &[0x82, 3, 4, 5, 2]));
        assert!(!values_equal(&[0x92, 1, 2], &[0x92, 2, 1]));
        // In a map in an array in a map.
        let of = |inner: [u8; 4]| [&[0x82, 7, 0x91, 0x82][..], &inner, &[8, 0xc0]].concat();
        let turned = |inner: [u8; 4]| [&[0x82, 8, 0xc0, 7, 0x91, 0x82][..], &inner].concat();
        assert!(values_equal(&of([1, 2, 3, 4]), &turned([3, 4, 1, 2])));
        assert!(!values_equal(&of([1, 2, 3, 4]), &turned([3, 4, 1, 1])));
        // A key that is there twice counts twice.
        assert!(values_equal(&[0x83, 1, 2, 1, 3, 4, 5], &[0x83, 4, 5, 1, 2, 1, 3]));
        assert!(!values_equal(&[0x82, 1, 2, 1, 2], &[0x82, 1, 2, 3, 2]));
        assert!(!values_equal(&[0x82, 1, 2, 3], &[0x82, 3, 4, 1, 2]), "it is cut off");
    }

    #[test]
    fn in_long_maps_the_order_counts() {
        let map = |turned: bool, count: usize| {
            let mut bytes = Vec::new();
            write_map_len(count, &mut bytes);
            for n in 0..count {
                let n = u32::try_from(if turned { count - 1 - n } else { n }).unwrap();
                bytes.push(0xce);
                bytes.extend(n.to_be_bytes());
                bytes.push(0xc0);
            }
            bytes
        };
        let (most, more) = (REORDERED_PAIRS_MAX, REORDERED_PAIRS_MAX + 1);
        assert!(values_equal(&map(false, most), &map(true, most)));
        assert!(!values_equal(&map(false, more), &map(true, more)));
        assert!(values_equal(&map(false, more), &map(false, more)));
    }

    /// A value, and another one that is equal to it: its maps in another order.
    fn value_and_turned() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let scalar = prop_oneof![
            any::<u8>().prop_map(|n| (vec![0xcc, n], vec![0xcd, 0, n])),
            "[a-z]{0,3}".prop_map(|text| {
                let of = |head: Vec<u8>| [head, text.clone().into_bytes()].concat();
                let len = u8::try_from(text.len()).unwrap();
                (of(vec![0xa0 | len]), of(vec![0xd9, len]))
            }),
        ];
        scalar.prop_recursive(4, 64, 6, |inner| {
            let keys = proptest::collection::btree_map(any::<u8>(), inner.clone(), 0..6);
            prop_oneof![
                proptest::collection::vec(inner, 0..6).prop_map(|items| {
                    let of = |items: Vec<Vec<u8>>| {
                        [vec![0x90 | items.len() as u8], items.concat()].concat()
                    };
                    let (one, other) = items.into_iter().unzip();
                    (of(one), of(other))
                }),
                (keys, any::<prop::sample::Index>()).prop_map(|(pairs, at)| {
                    let head = 0x80 | pairs.len() as u8;
                    let pair = |key: u8, value: &[u8]| [&[0xcc, key][..], value].concat();
                    let one = pairs.iter().map(|(key, (value, _))| pair(*key, value));
                    let mut other: Vec<_> =
                        pairs.iter().map(|(key, (_, value))| pair(*key, value)).collect();
                    if !other.is_empty() {
                        let middle = at.index(other.len());
                        other.rotate_left(middle);
                    }
                    let of = |pairs: Vec<Vec<u8>>| [vec![head], pairs.concat()].concat();
                    (of(one.collect()), of(other))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_turned_is_equal_and_one_byte_more_is_not((value, turned) in value_and_turned()) {
            prop_assert!(values_equal(&value, &turned));
            prop_assert!(values_equal(&turned, &value));
            let longer = [&turned[..], &[0xc0]].concat();
            prop_assert!(!values_equal(&value, &longer));
        }

        #[test]
        fn no_bytes_are_too_odd(a in proptest::collection::vec(any::<u8>(), 0..40), b in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(values_equal(&a, &b), values_equal(&b, &a));
            prop_assert!(values_equal(&a, &a));
        }
    }
}
