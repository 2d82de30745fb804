//! What every client can read. The Python DistKV decodes each message whole, so a client of it that
//! meets one part of a value that it cannot decode loses its connection, whatever it had asked
//! for, and loses it again with each try. So what clients store or send is checked first, in the pass that
//! finds out whether it is a value. What comes from peers, logs and snapshots is kept as it is.
//!
//! A string must be UTF-8. A map's key must not be or hold a map. Extensions must be of a type from 0
//! to 127, or a time that there is (-1); a path (3) must be made of whole elements; objects (5) need a class
//! that the reader does not have. That a key comes twice is no hindrance: the last one counts.

use crate::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};
use crate::path::EXT_PATH;
use crate::value::skip::SKIP_DEPTH_MAX;
use crate::value::{Kind, ReadError, Reader, Value, ValueError};

/// The extension type of times, by MessagePack itself.
const EXT_TIME: i8 = -1;
/// The extension type of objects (docs/client-protocol.md, "Framing").
const EXT_OBJECT: i8 = 5;
/// Nanoseconds of a time are below this.
const NANOS: u32 = 1_000_000_000;

/// What the Python DistKV cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has {}, which Python's clients cannot read{}", self.what(), self.advice())]
pub enum Unreadable {
    /// A string that is not UTF-8.
    NotUtf8,
    /// A map that is a key, or within one.
    MapInKey,
    /// A time of a wrong length, or with a second of nanoseconds or more.
    Time,
    /// A path whose content is not MessagePack.
    Path,
    /// Paths within paths, more than can be followed.
    TooDeep,
    /// Any object: the reader would have to have registered its class.
    Object,
    /// Below -1.
    NegativeExt,
    /// No value at all.
    Broken,
}

impl Unreadable {
    /// In a few words.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::NotUtf8 => "a string that is not UTF-8",
            Self::MapInKey => "a map in the key of a map",
            Self::Time => "a time (extension -1) that is none",
            Self::Path => "a path (extension 3) that is cut off or no path",
            Self::TooDeep => "paths within paths, too deep",
            Self::Object => "an object (extension 5)",
            Self::NegativeExt => "an extension of a negative type",
            Self::Broken => "bytes that are no MessagePack",
        }
    }

    /// What to do instead.
    fn advice(self) -> &'static str {
        match self {
            Self::NotUtf8 => "; store bytes (bin) instead",
            Self::MapInKey => "; use text, a number or an array of these as the key",
            Self::Time => "; it needs 4, 8 or 12 bytes, and less than 10^9 nanoseconds",
            Self::Path => "; it must be made of whole elements",
            Self::Object => "; they may not have its class, so store a map instead",
            Self::NegativeExt => "; use a type from 0 to 127",
            Self::TooDeep | Self::Broken => "",
        }
    }
}

impl From<ReadError> for Unreadable {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotUtf8 => Self::NotUtf8,
            ReadError::Truncated { .. }
            | ReadError::WrongKind { .. }
            | ReadError::OutOfRange { .. }
            | ReadError::Skip(_)
            | ReadError::Trailing(_) => Self::Broken,
        }
    }
}

impl Value {
    /// What [`Value::check`] checks, and that every client can read it.
    ///
    /// # Errors
    /// What [`Value::check`] says, and only if that says nothing, [`ValueError::Unreadable`].
    pub fn check_readable(bytes: &[u8]) -> Result<(), ValueError> {
        let mut reader = Reader::new(bytes);
        let found = read_item(&mut reader, Place::OUTSIDE);
        if found.is_ok() && reader.is_at_end() && bytes.len() <= VALUE_BYTES_MAX {
            return Ok(());
        }
        // That it is no value, or none within the limits, goes first, and says where.
        Value::check(bytes)?;
        Err(ValueError::Unreadable(found.err().unwrap_or(Unreadable::Broken)))
    }
}

/// Where an item is.
#[derive(Clone, Copy)]
struct Place {
    /// Levels around it.
    depth: usize,
    /// How deep it may be.
    depth_max: usize,
    /// In the key of a map.
    in_key: bool,
}

impl Place {
    const OUTSIDE: Place = Place { depth: 0, depth_max: VALUE_DEPTH_MAX, in_key: false };

    /// Within the array, map or path that is here.
    fn inside(self) -> Result<Place, Unreadable> {
        if self.depth < self.depth_max {
            Ok(Place { depth: self.depth + 1, ..self })
        } else {
            Err(Unreadable::TooDeep)
        }
    }
}

/// Reads one value. Recurses as deep as [`Place`] allows.
fn read_item(reader: &mut Reader<'_>, place: Place) -> Result<(), Unreadable> {
    match reader.peek_kind()? {
        Kind::Nil | Kind::Bool | Kind::Int | Kind::Float | Kind::Bin => reader.skip()?,
        Kind::Str => {
            reader.read_str()?;
        }
        Kind::Array => {
            let place = place.inside()?;
            for _ in 0..reader.read_array_len()? {
                read_item(reader, place)?;
            }
        }
        Kind::Map if place.in_key => return Err(Unreadable::MapInKey),
        Kind::Map => {
            let place = place.inside()?;
            for _ in 0..reader.read_map_len()? {
                read_item(reader, Place { in_key: true, ..place })?;
                read_item(reader, place)?;
            }
        }
        Kind::Ext => {
            let (kind, content) = reader.read_ext()?;
            match kind {
                EXT_TIME => read_time(content)?,
                EXT_PATH => {
                    // Skippers do not look into extensions, so these levels are on top of theirs.
                    let place = Place { depth_max: SKIP_DEPTH_MAX, ..place }.inside()?;
                    read_elements(&mut Reader::new(content), place)?;
                }
                EXT_OBJECT => return Err(Unreadable::Object),
                0.. => {}
                _ => return Err(Unreadable::NegativeExt),
            }
        }
    }
    Ok(())
}

fn read_elements(reader: &mut Reader<'_>, place: Place) -> Result<(), Unreadable> {
    while !reader.is_at_end() {
        read_item(reader, place).map_err(|error| match error {
            Unreadable::Broken => Unreadable::Path,
            error => error,
        })?;
    }
    Ok(())
}

/// The three forms of a time that MessagePack knows.
fn read_time(content: &[u8]) -> Result<(), Unreadable> {
    let nanos = match content {
        [_, _, _, _] => 0,
        [a, b, c, d, _, _, _, _] => u32::from_be_bytes([*a, *b, *c, *d]) >> 2,
        [a, b, c, d, rest @ ..] if rest.len() == 8 => u32::from_be_bytes([*a, *b, *c, *d]),
        _ => NANOS,
    };
    if nanos < NANOS { Ok(()) } else { Err(Unreadable::Time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::SkipError;

    /// As the original's own decoder answers (tests/python/test_values.py asks it).
    const READABLE: [&[u8]; 21] = [
        b"\xc0",
        b"\xa0",
        b"\xa4caf\x65",
        b"\x81\x01\x82\xa1a\x01\xa1b\x02",
        b"\x82\xa1a\x01\xa1a\x02",
        b"\x82\x01\x01\xc3\x02",
        b"\x81\x92\x01\x91\x02\xc0",
        b"\xca\x7f\xc0\x00\x00",
        b"\x81\xca\x7f\xc0\x00\x00\x80",
        b"\xc4\x02\xff\xfe",
        b"\xd6\xff\xff\xff\xff\xff",
        b"\xd7\xff\xee\x6b\x27\xfc\x00\x00\x00\x00",
        b"\xc7\x0c\xff\x3b\x9a\xc9\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x81\xd6\xff\x00\x00\x00\x00\xc0",
        b"\xc7\x00\x03",
        b"\xc7\x03\x03\xa1a\x80",
        b"\x81\xc7\x03\x03\xa1a\x90\x01",
        b"\xc7\x00\x02",
        b"\xd5\x04\xff\xfe",
        b"\xd4\x00\xff",
        b"\xd4\x7f\xff",
    ];

    const UNREADABLE: [(&[u8], Unreadable); 31] = [
        (b"\xa2\xff\xfe", Unreadable::NotUtf8),
        (b"\xa4caf\xe9", Unreadable::NotUtf8),
        (b"\xd9\x03\xed\xa0\x80", Unreadable::NotUtf8),
        (b"\x92\x01\x91\xa1\xff", Unreadable::NotUtf8),
        (b"\x81\xa1a\xa1\xff", Unreadable::NotUtf8),
        (b"\x81\xa1\xff\x01", Unreadable::NotUtf8),
        (b"\xd5\x03\xa1\xff", Unreadable::NotUtf8),
        (b"\x81\x80\x01", Unreadable::MapInKey),
        (b"\x81\x91\x80\x01", Unreadable::MapInKey),
        (b"\x81\x92\x01\x91\x80\x01", Unreadable::MapInKey),
        (b"\x81\xd4\x03\x80\x01", Unreadable::MapInKey),
        (b"\x81\x91\xd5\x03\x91\x80\x01", Unreadable::MapInKey),
        (b"\x91\x81\x01\x81\x80\x01", Unreadable::MapInKey),
        (b"\xc7\x00\xff", Unreadable::Time),
        (b"\xc7\x03\xff\x01\x02\x03", Unreadable::Time),
        (b"\xd8\xff0123456789abcdef", Unreadable::Time),
        (b"\xd7\xff\xee\x6b\x28\x00\x00\x00\x00\x00", Unreadable::Time),
        (b"\xc7\x0c\xff\x3b\x9a\xca\x0000000000", Unreadable::Time),
        (b"\x81\xd4\xff\x00\xc0", Unreadable::Time),
        (b"\xd4\x03\xc1", Unreadable::Path),
        (b"\xc7\x02\x03\xc1\xc1", Unreadable::Path),
        (b"\xd5\x03\xa2a", Unreadable::Path),
        (b"\xd5\x03\x92\x01", Unreadable::Path),
        (b"\x91\xd5\x03\x91\xc1", Unreadable::Path),
        (b"\xc7\x00\x05", Unreadable::Object),
        (b"\xd4\x05\x01", Unreadable::Object),
        (b"\xc7\x05\x05\xa3abc\xc0", Unreadable::Object),
        (b"\xd4\xfe\x00", Unreadable::NegativeExt),
        (b"\xc7\x00\x80", Unreadable::NegativeExt),
        (b"\x81\xd4\xfe\x00\x01", Unreadable::NegativeExt),
        (b"\xd5\x03\xc7\x00", Unreadable::Path),
    ];

    #[test]
    fn what_python_can_read_passes_and_what_it_cannot_is_named() {
        for value in READABLE {
            assert_eq!(Value::check_readable(value), Ok(()), "{value:x?}");
        }
        for (value, why) in UNREADABLE {
            // From elsewhere it is a value like any other.
            assert_eq!(Value::check(value), Ok(()), "{value:x?}");
            let found = Value::check_readable(value);
            assert_eq!(found, Err(ValueError::Unreadable(why)), "{value:x?}");
            let text = found.unwrap_err().to_string();
            assert!(text.contains(why.what()) && text.contains("Python"), "{text}");
        }
    }

    #[test]
    fn what_is_no_value_is_told_as_ever() {
        let deep = [&[0x91; VALUE_DEPTH_MAX + 1][..], b"\xa1\xff"].concat();
        let long = [&[0xc6, 0x00, 0x40, 0x00, 0x00][..], &vec![0; 0x0040_0000]].concat();
        for bytes in [&b""[..], b"\xc1", b"\xa5a", b"\x01\x02", b"\x92\xa1\xff", &deep, &long] {
            let told = Value::check(bytes).unwrap_err();
            assert_eq!(Value::check_readable(bytes), Err(told), "{:x?}", bytes.get(..8));
        }
        let told = Value::check_readable(&deep);
        assert!(matches!(told, Err(ValueError::Skip(SkipError::TooDeep { .. }))), "{told:?}");
        // Not a level too many: what a value of that depth holds may be a path.
        let most = [&[0x91; VALUE_DEPTH_MAX][..], b"\xd5\x03\xa1a"].concat();
        assert_eq!(Value::check_readable(&most), Ok(()));
    }

    #[test]
    fn paths_within_paths_are_bounded() {
        let nested = |levels: usize| {
            (0..levels).fold(vec![0xc0], |inner, _| {
                let length = u32::try_from(inner.len()).unwrap().to_be_bytes();
                [&[0xc9][..], &length, &[EXT_PATH as u8], &inner].concat()
            })
        };
        assert_eq!(Value::check_readable(&nested(SKIP_DEPTH_MAX)), Ok(()));
        for levels in [SKIP_DEPTH_MAX + 1, 3_000] {
            let told = Value::check_readable(&nested(levels));
            assert_eq!(told, Err(ValueError::Unreadable(Unreadable::TooDeep)), "{levels}");
        }
    }

    #[test]
    fn a_value_that_is_as_long_as_values_may_be_passes() {
        let length = u32::try_from(VALUE_BYTES_MAX - 5).unwrap().to_be_bytes();
        let mut value = [&[0xdb][..], &length].concat();
        value.resize(VALUE_BYTES_MAX, b'a');
        assert_eq!(Value::check_readable(&value), Ok(()));
        value.push(b'a');
        assert_eq!(Value::check_readable(&value), Err(ValueError::Trailing(1)));
    }
}
