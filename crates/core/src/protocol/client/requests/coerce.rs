//! Integers and flags of requests, read as the original's server reads them. It is Python: its
//! clients send `False` for 0, `2.0` for 2, and any value for a flag.

use crate::model::path::EXT_PATH;
use crate::model::value::{Kind, ReadError, Reader};
use crate::protocol::client::field::wrong_kind;

/// Reads an integer. A boolean is 0 or 1, and a float without a fraction is that integer; floats
/// beyond the range of `i128` become its ends.
///
/// # Errors
/// There is something else; the reader stays where it was.
pub(super) fn read_integer(reader: &mut Reader<'_>) -> Result<i128, ReadError> {
    let mut ahead = *reader;
    let number = match ahead.peek_kind()? {
        Kind::Bool => i128::from(ahead.read_bool()?),
        Kind::Float => {
            let number = ahead.read_f64()?;
            // Neither a number with a fraction nor NaN or an infinity has this remainder.
            if number % 1.0 != 0.0 {
                return Err(wrong_kind(reader.rest(), "an integer"));
            }
            number as i128
        }
        _ => ahead.read_int()?,
    };
    *reader = ahead;
    Ok(number)
}

/// As [`read_integer`], for numbers that are never negative.
///
/// # Errors
/// There is something else, or an integer that `u64` cannot hold; the reader stays where it was.
pub(in crate::protocol::client) fn read_natural(reader: &mut Reader<'_>) -> Result<u64, ReadError> {
    let mut ahead = *reader;
    let found = read_integer(&mut ahead)?;
    let number = u64::try_from(found)
        .map_err(|_| ReadError::OutOfRange { expected: "an integer from 0 to 2^64 - 1", found })?;
    *reader = ahead;
    Ok(number)
}

/// Whether Python takes a value for true: all but nil, false, zero, and empty values.
///
/// # Errors
/// The bytes hold no value.
pub(super) fn read_truth(reader: &mut Reader<'_>) -> Result<bool, ReadError> {
    let raw = reader.read_raw()?;
    let mut value = Reader::new(raw);
    Ok(match value.peek_kind()? {
        Kind::Nil => false,
        Kind::Bool => value.read_bool()?,
        Kind::Int => value.read_int()? != 0,
        Kind::Float => value.read_f64()? != 0.0,
        Kind::Str => !value.read_str_bytes()?.is_empty(),
        Kind::Bin => !value.read_bin()?.is_empty(),
        Kind::Array => value.read_array_len()? > 0,
        Kind::Map => value.read_map_len()? > 0,
        Kind::Ext => {
            let (kind, content) = value.read_ext()?;
            // A path without elements is false.
            kind != EXT_PATH || !content.is_empty()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(number: f64) -> Vec<u8> {
        [&[0xcb][..], &number.to_be_bytes()].concat()
    }

    #[test]
    fn booleans_and_whole_floats_are_integers() {
        let same: [(&[u8], i128); 7] = [
            (b"\x07", 7),
            (b"\xff", -1),
            (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", i128::from(u64::MAX)),
            (b"\xc2", 0),
            (b"\xc3", 1),
            (b"\xca\x40\x00\x00\x00", 2),
            (b"\xca\xbf\x80\x00\x00", -1),
        ];
        for (raw, number) in same {
            assert_eq!(read_integer(&mut Reader::new(raw)), Ok(number), "{raw:x?}");
        }
        for (number, integer) in [(0.0, 0), (-0.0, 0), (3.0, 3), (1e300, i128::MAX)] {
            assert_eq!(read_integer(&mut Reader::new(&float(number))), Ok(integer), "{number}");
        }
    }

    #[test]
    fn nothing_else_is_an_integer() {
        for number in [1.5, -0.25, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let raw = float(number);
            let mut reader = Reader::new(&raw);
            assert!(matches!(read_integer(&mut reader), Err(ReadError::WrongKind { .. })));
            assert_eq!(reader.position(), 0);
        }
        for raw in [&b"\xc0"[..], b"\xa11", b"\x90", b"\x80", b"\xc4\x011", b"", b"\xcb\x00"] {
            assert!(read_integer(&mut Reader::new(raw)).is_err(), "{raw:x?}");
        }
        assert!(matches!(
            read_natural(&mut Reader::new(&float(-1.0))),
            Err(ReadError::OutOfRange { found: -1, .. })
        ));
        assert_eq!(read_natural(&mut Reader::new(b"\xc3")), Ok(1));
    }

    #[test]
    fn a_flag_is_what_python_takes_for_true() {
        let nan = float(f64::NAN);
        let yes: [&[u8]; 13] = [
            b"\xc3",
            b"\x01",
            b"\xff",
            b"\xa1x",
            b"\xa10",
            b"\xc4\x01\x00",
            b"\x91\xc0",
            b"\x81\xc0\xc0",
            b"\xc7\x01\x03\xc0",
            b"\xc7\x00\x05",
            b"\xca\x3f\x00\x00\x00",
            b"\xd4\x2a\x00",
            &nan,
        ];
        let (zero, minus_zero) = (float(0.0), float(-0.0));
        let no: [&[u8]; 10] = [
            b"\xc0",
            b"\xc2",
            b"\x00",
            b"\xa0",
            b"\xc4\x00",
            b"\x90",
            b"\x80",
            b"\xc7\x00\x03",
            &zero,
            &minus_zero,
        ];
        for (list, is_true) in [(&yes[..], true), (&no[..], false)] {
            for raw in list {
                assert_eq!(read_truth(&mut Reader::new(raw)), Ok(is_true), "{raw:x?}");
            }
        }
        assert!(read_truth(&mut Reader::new(b"\xc1")).is_err());
    }
}
