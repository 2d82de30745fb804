//! Whether two values mean the same, whatever widths their numbers and lengths were written in:
//! what `prev` preconditions and `changed` ask.

use crate::value::read::{Kind, Reader};

/// Whether two checked values are equal. Integers are compared as numbers (`0x05` and `0xcc05`
/// are equal), strings, byte strings and extensions by content, arrays and maps item by item in
/// their order. Different kinds are never equal: `1`, `1.0` and `true` are three values.
///
/// Iterative, so nesting costs no stack; bytes that are no value are equal to nothing but the
/// same bytes.
#[must_use]
pub fn values_equal(a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return true;
    }
    let (mut a, mut b) = (Reader::new(a), Reader::new(b));
    while !a.is_at_end() && !b.is_at_end() {
        if !heads_equal(&mut a, &mut b).unwrap_or(false) {
            return false;
        }
    }
    a.is_at_end() && b.is_at_end()
}

/// Compares the next head of both (with its content if it has no items) and steps past it. The
/// items of arrays and maps simply follow, so counting them is not needed.
fn heads_equal(a: &mut Reader<'_>, b: &mut Reader<'_>) -> Result<bool, crate::value::ReadError> {
    let kind = a.peek_kind()?;
    if kind != b.peek_kind()? {
        return Ok(false);
    }
    Ok(match kind {
        Kind::Nil => a.take_nil() && b.take_nil(),
        Kind::Bool => a.read_bool()? == b.read_bool()?,
        Kind::Int => a.read_int()? == b.read_int()?,
        Kind::Float => a.read_f64()?.to_bits() == b.read_f64()?.to_bits(),
        Kind::Str => a.read_str_bytes()? == b.read_str_bytes()?,
        Kind::Bin => a.read_bin()? == b.read_bin()?,
        Kind::Array => a.read_array_len()? == b.read_array_len()?,
        Kind::Map => a.read_map_len()? == b.read_map_len()?,
        Kind::Ext => a.read_ext()? == b.read_ext()?,
    })
}

#[cfg(test)]
mod tests {
    use crate::value::equal::*;

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
}
