//! The skipper, readers and writers, against an independent implementation.

use proptest::prelude::*;
use rmpv::Value as Rmpv;

use crate::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};
use crate::value::arbitrary::any_rmpv;
use crate::value::*;

fn encoded(value: &Rmpv) -> Vec<u8> {
    let mut out = Vec::new();
    rmpv::encode::write_value(&mut out, value).unwrap();
    out
}

fn small(depth_max: usize, bytes_max: usize) -> SkipLimits {
    SkipLimits { depth_max, bytes_max }
}

#[test]
fn every_marker_has_its_length() {
    assert_eq!(skip_value(&[0xc1], SkipLimits::NONE), Err(SkipError::Invalid { offset: 0 }));
    // rmpv takes 0xc1 for nil.
    for marker in (0..=0xff_u8).filter(|marker| *marker != 0xc1) {
        let mut bytes = vec![marker];
        bytes.extend([0, 0, 0, 1]);
        bytes.resize(70_000, 0x01);
        let mut rest = &bytes[..];
        rmpv::decode::read_value(&mut rest).unwrap();
        let expected = bytes.len() - rest.len();
        assert_eq!(skip_value(&bytes, SkipLimits::NONE), Ok(expected), "{marker:#x}");
    }
}

#[test]
fn a_length_past_the_limit_is_refused_before_its_bytes_come() {
    let too_large = SkipError::TooLarge { bytes_max: VALUE_BYTES_MAX, offset: 0 };
    for marker in [0xc6, 0xdb, 0xc9, 0xdd, 0xdf] {
        for length in [[0xff; 4], [0x00, 0x40, 0x00, 0x00]] {
            let head = [&[marker], &length[..]].concat();
            assert_eq!(skip_value(&head, SkipLimits::VALUE), Err(too_large), "{marker:#x}");
            assert_eq!(Value::new(&head), Err(ValueError::Skip(too_large)));
            let mut skipper = Skipper::new(SkipLimits::VALUE);
            assert_eq!(skipper.advance(&head[..4]), Ok(None));
            assert_eq!(skipper.advance(&head), Err(too_large));
        }
    }
    let head = [0xda, 0xff, 0xff];
    assert_eq!(
        skip_value(&head, small(0, 65_538)),
        Err(SkipError::Incomplete { at_least: 65_538 })
    );
    let too_large = SkipError::TooLarge { bytes_max: 65_537, offset: 0 };
    assert_eq!(skip_value(&head, small(0, 65_537)), Err(too_large));
}

#[test]
fn many_small_announcements_add_up() {
    // Each array is small enough by itself, but their items must all still come.
    let bytes = [0xdc, 0x00, 0x20].repeat(4);
    let too_large = SkipError::TooLarge { bytes_max: 100, offset: 6 };
    assert_eq!(skip_value(&bytes, small(8, 100)), Err(too_large));
    let whole = [&[0x92, 0xa1], &[0x61, 0xa1, 0x62][..]].concat();
    assert_eq!(skip_value(&whole, small(8, 5)), Ok(5));
    assert_eq!(
        skip_value(&whole, small(8, 4)),
        Err(SkipError::TooLarge { bytes_max: 4, offset: 3 })
    );
}

#[test]
fn limits_are_exact() {
    let mut longest = vec![0xc6, 0, 0, 0, 0];
    longest[1..].copy_from_slice(&(VALUE_BYTES_MAX as u32 - 5).to_be_bytes());
    longest.resize(VALUE_BYTES_MAX, 7);
    assert_eq!(Value::new(&longest).unwrap().as_bytes(), longest);
    let mut array = vec![0xdd, 0, 0, 0, 0];
    array[1..].copy_from_slice(&(VALUE_BYTES_MAX as u32 - 5).to_be_bytes());
    array.resize(VALUE_BYTES_MAX, 7);
    assert!(Value::new(&array).is_ok());
    array[1..5].copy_from_slice(&(VALUE_BYTES_MAX as u32 - 4).to_be_bytes());
    array.push(7);
    assert!(matches!(Value::new(&array), Err(ValueError::Skip(SkipError::TooLarge { .. }))));

    let nested = |depth| [vec![0x91; depth], vec![0xc0]].concat();
    assert!(Value::new(&nested(VALUE_DEPTH_MAX)).is_ok());
    let too_deep = SkipError::TooDeep { depth_max: VALUE_DEPTH_MAX, offset: VALUE_DEPTH_MAX };
    for bytes in [nested(VALUE_DEPTH_MAX + 1), nested(100_000), vec![0x91; 65], vec![0x81; 65]] {
        assert_eq!(Value::new(&bytes), Err(ValueError::Skip(too_deep)));
    }
    assert!(skip_value(&nested(skip::SKIP_DEPTH_MAX), SkipLimits::NONE).is_ok());
    let more = skip_value(&nested(skip::SKIP_DEPTH_MAX + 1), small(usize::MAX, usize::MAX));
    assert!(matches!(more, Err(SkipError::TooDeep { .. })));
    // An empty array is a level too.
    assert_eq!(
        skip_value(&[0x90], small(0, 9)),
        Err(SkipError::TooDeep { depth_max: 0, offset: 0 })
    );
    assert_eq!(skip_value(&[0x90], small(1, 9)), Ok(1));
    assert_eq!(
        skip_value(&[0x05], small(0, 0)),
        Err(SkipError::TooLarge { bytes_max: 0, offset: 0 })
    );
}

#[test]
fn a_value_is_exactly_one() {
    assert_eq!(Value::new(b""), Err(ValueError::Skip(SkipError::Incomplete { at_least: 1 })));
    assert_eq!(Value::new(&[5, 6]), Err(ValueError::Trailing(1)));
    assert_eq!(Value::new(&[0xc1]), Err(ValueError::Skip(SkipError::Invalid { offset: 0 })));
    assert_eq!(
        Value::new(&[0x92, 1, 0xc1]),
        Err(ValueError::Skip(SkipError::Invalid { offset: 2 }))
    );
    assert!(Value::nil().is_nil());
    assert_eq!(Value::new(&[0xc0]).unwrap(), Value::nil());
    assert_ne!(Value::new(&[0xcc, 5]).unwrap(), Value::new(&[5]).unwrap());
    // Not UTF-8, and an extension that nobody knows: kept as they are.
    for odd in [&[0xa2, 0xc3, 0x28][..], &[0xd4, 0x99, 0x01], &[0x81, 0xa1, 0xff, 0xd4, 77, 0]] {
        assert_eq!(Value::new(odd).unwrap().as_bytes(), odd);
    }
    assert_eq!(format!("{:?}", Value::new(&[0x92, 1, 0xff]).unwrap()), "Value(9201ff)");
    let long =
        format!("{:?}", Value::new(&[[0xda, 0x03, 0x00].as_slice(), &[0; 768]].concat()).unwrap());
    assert!(long.len() < 200 && long.ends_with("… 707 bytes more)"), "{long}");
}

#[test]
fn a_long_message_that_comes_byte_by_byte_is_not_scanned_again() {
    // A million bytes in a million pieces: scanning anew each time would take 10^11 steps.
    let mut bytes = vec![0xdd, 0, 0x0f, 0x42, 0x40];
    bytes.resize(1_000_005, 0x01);
    let mut skipper = Skipper::new(SkipLimits::VALUE);
    for end in 0..bytes.len() {
        assert_eq!(skipper.advance(&bytes[..end]), Ok(None));
        assert_eq!(skipper.at_least(), [1, 5, 5, 5, 5].get(end).copied().unwrap_or(bytes.len()));
    }
    assert_eq!(skipper.advance(&bytes), Ok(Some(bytes.len())));

    // The same where the end cannot be foreseen: each of many strings is longer than it must be.
    let bytes = [&[0xdc, 0xff, 0xff][..], &[0xa3, 1, 2, 3].repeat(65_535)].concat();
    let mut skipper = Skipper::new(SkipLimits::VALUE);
    for end in 0..bytes.len() {
        assert_eq!(skipper.advance(&bytes[..end]), Ok(None));
    }
    assert_eq!(skipper.advance(&bytes), Ok(Some(bytes.len())));
}

#[test]
fn integers_are_read_in_every_width_and_within_their_range() {
    let read = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes);
        (reader.read_u64().ok(), Reader::new(bytes).read_i64().ok())
    };
    assert_eq!(read(&[0x7f]), (Some(127), Some(127)));
    assert_eq!(read(&[0xff]), (None, Some(-1)));
    assert_eq!(read(&[0xd1, 0, 5]), (Some(5), Some(5)));
    assert_eq!(read(&[0xcf, 255, 255, 255, 255, 255, 255, 255, 255]), (Some(u64::MAX), None));
    assert_eq!(read(&[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]), (None, Some(i64::MIN)));
    let mut reader = Reader::new(&[0xff]);
    let error = reader.read_u64().unwrap_err();
    assert_eq!(error.to_string(), "expected an integer from 0 to 2^64 - 1, found -1");
    assert_eq!(reader.position(), 0);
}

#[test]
fn a_wrong_kind_is_told_and_leaves_the_reader_in_place() {
    let mut reader = Reader::new(&[0xa1, b'x']);
    assert_eq!(reader.read_map_len().unwrap_err().to_string(), "expected a map, found a string");
    assert_eq!(reader.read_bool().unwrap_err().to_string(), "expected a boolean, found a string");
    assert_eq!(reader.read_str(), Ok("x"));
    assert!(reader.is_at_end());
    assert_eq!(reader.read_nil(), Err(ReadError::Truncated { expected: "nil" }));
    let mut reader = Reader::new(&[0xc1]);
    assert_eq!(reader.read_str(), Err(ReadError::Skip(SkipError::Invalid { offset: 0 })));
    let mut reader = Reader::new(&[0xa2, 0xc3, 0x28]);
    assert_eq!(reader.read_str(), Err(ReadError::NotUtf8));
    assert_eq!(reader.read_str_bytes(), Ok(&[0xc3, 0x28][..]));
    assert_eq!(Reader::new(&[1, 2]).finish(), Err(ReadError::Trailing(2)));
}

#[test]
fn a_count_of_more_items_than_bytes_is_refused() {
    assert!(Reader::new(&[0xdd, 0xff, 0xff, 0xff, 0xff, 1, 2]).read_array_len().is_err());
    assert!(Reader::new(&[0xdf, 0xff, 0xff, 0xff, 0xff, 1, 2]).read_map_len().is_err());
    assert!(Reader::new(&[0x82, 1, 2, 3]).read_map_len().is_err());
    assert_eq!(Reader::new(&[0x82, 1, 2, 3, 4]).read_map_len(), Ok(2));
    assert_eq!(Reader::new(&[0xdc, 0, 2, 1, 2]).read_array_len(), Ok(2));
}

/// Reads one value with the typed readers.
fn read_typed(reader: &mut Reader<'_>) -> Result<Rmpv, ReadError> {
    Ok(match reader.peek_kind()? {
        Kind::Nil => reader.read_nil().map(|()| Rmpv::Nil)?,
        Kind::Bool => reader.read_bool()?.into(),
        Kind::Int => match reader.read_u64() {
            Ok(number) => number.into(),
            Err(_) => reader.read_i64()?.into(),
        },
        Kind::Float => reader.read_f64()?.into(),
        Kind::Str => reader.read_str()?.into(),
        Kind::Bin => reader.read_bin()?.into(),
        Kind::Ext => {
            let (kind, content) = reader.read_ext()?;
            Rmpv::Ext(kind, content.to_vec())
        }
        Kind::Array => {
            let count = reader.read_array_len()?;
            Rmpv::Array((0..count).map(|_| read_typed(reader)).collect::<Result<_, _>>()?)
        }
        Kind::Map => {
            let count = reader.read_map_len()?;
            let pair = |_| Ok((read_typed(reader)?, read_typed(reader)?));
            Rmpv::Map((0..count).map(pair).collect::<Result<_, ReadError>>()?)
        }
    })
}

/// Writes one value with the typed writers.
fn write_typed(value: &Rmpv, out: &mut Vec<u8>) {
    match value {
        Rmpv::Nil => write::write_nil(out),
        Rmpv::Boolean(value) => write::write_bool(*value, out),
        Rmpv::Integer(number) => match number.as_u64() {
            Some(number) => write::write_u64(number, out),
            None => write::write_i64(number.as_i64().unwrap(), out),
        },
        Rmpv::F32(number) => write::write_f64((*number).into(), out),
        Rmpv::F64(number) => write::write_f64(*number, out),
        Rmpv::String(text) => write::write_str_bytes(text.as_bytes(), out),
        Rmpv::Binary(bytes) => write::write_bin(bytes, out),
        Rmpv::Ext(kind, content) => write::write_ext(*kind, content, out),
        Rmpv::Array(items) => {
            write::write_array_len(items.len(), out);
            items.iter().for_each(|item| write_typed(item, out));
        }
        Rmpv::Map(pairs) => {
            write::write_map_len(pairs.len(), out);
            for (key, value) in pairs {
                write_typed(key, out);
                write_typed(value, out);
            }
        }
    }
}

/// rmpv has two types of floats; the reader has one.
fn widened(value: Rmpv) -> Rmpv {
    match value {
        Rmpv::F32(number) => Rmpv::F64(number.into()),
        Rmpv::Array(items) => Rmpv::Array(items.into_iter().map(widened).collect()),
        Rmpv::Map(pairs) => Rmpv::Map(
            pairs.into_iter().map(|(key, value)| (widened(key), widened(value))).collect(),
        ),
        other => other,
    }
}

#[test]
fn writers_take_the_shortest_form_at_every_edge() {
    for length in [0, 1, 2, 4, 8, 15, 16, 17, 31, 32, 255, 256, 65_535, 65_536] {
        let bytes = vec![b'a'; length];
        let many = vec![Rmpv::Nil; length];
        for value in [
            Rmpv::from("a".repeat(length)),
            Rmpv::Binary(bytes.clone()),
            Rmpv::Ext(3, bytes),
            Rmpv::Map(many.iter().map(|nil| (nil.clone(), nil.clone())).collect()),
            Rmpv::Array(many),
        ] {
            let mut out = Vec::new();
            write_typed(&value, &mut out);
            assert!(out == encoded(&value), "{length}");
            assert!(read_typed(&mut Reader::new(&out)).unwrap() == value, "{length}");
        }
    }
    for number in
        (0..64).flat_map(|bit| [(1_i128 << bit) - 1, 1 << bit, -(1 << bit), -1 - (1 << bit)])
    {
        let value = match (u64::try_from(number), i64::try_from(number)) {
            (Ok(number), _) => Rmpv::from(number),
            (_, Ok(number)) => Rmpv::from(number),
            _ => continue,
        };
        let mut out = Vec::new();
        write_typed(&value, &mut out);
        assert_eq!(out, encoded(&value), "{number}");
        assert_eq!(Reader::new(&out).read_int(), Ok(number));
    }
}

proptest! {
    #[test]
    fn the_end_is_where_an_independent_decoder_finds_it(value in any_rmpv(), tail: Vec<u8>) {
        let bytes = encoded(&value);
        let with_tail = [&bytes[..], &tail].concat();
        prop_assert_eq!(skip_value(&with_tail, SkipLimits::VALUE), Ok(bytes.len()));
        prop_assert!(Value::new(&bytes).is_ok());
        prop_assert_eq!(skip_value(&bytes, small(64, bytes.len())), Ok(bytes.len()));
        let cut = skip_value(&bytes, small(64, bytes.len() - 1));
        prop_assert!(matches!(cut, Err(SkipError::TooLarge { .. })), "{:?}", cut);
    }

    #[test]
    fn every_beginning_is_incomplete_and_the_hint_is_true(value in any_rmpv()) {
        let bytes = encoded(&value);
        for end in 0..bytes.len() {
            match skip_value(&bytes[..end], SkipLimits::VALUE) {
                Err(SkipError::Incomplete { at_least }) => {
                    prop_assert!(end < at_least && at_least <= bytes.len());
                }
                other => prop_assert!(false, "{:?} at {}", other, end),
            }
        }
    }

    #[test]
    fn pieces_give_what_the_whole_gives(
        value in any_rmpv(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
        spoilt in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
    ) {
        let mut bytes = encoded(&value);
        if let Some((at, byte)) = spoilt {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let limits = small(3, 2000);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut skipper = Skipper::new(limits);
        let mut outcome = Ok(None);
        for cut in cuts {
            outcome = skipper.advance(&bytes[..cut]);
            if !matches!(outcome, Ok(None)) {
                break;
            }
        }
        let whole = skip_value(&bytes, limits);
        prop_assert_eq!(match outcome {
            Ok(Some(end)) => Ok(end),
            Ok(None) => Err(SkipError::Incomplete { at_least: skipper.at_least() }),
            Err(error) => Err(error),
        }, whole);
    }

    #[test]
    fn any_bytes_are_judged_as_an_independent_decoder_does(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut rest = &bytes[..];
        let expected = rmpv::decode::read_value_ref(&mut rest).map(|_| bytes.len() - rest.len());
        match (skip_value(&bytes, SkipLimits::NONE), expected) {
            (Ok(end), Ok(expected)) => prop_assert_eq!(end, expected),
            (Err(_), Err(_)) => {}
            // rmpv goes deeper, to 1024, and takes 0xc1 for nil.
            (Err(SkipError::TooDeep { .. } | SkipError::Invalid { .. }), Ok(_)) => {}
            (ours, theirs) => prop_assert!(false, "{:?} {:?}", ours, theirs),
        }
    }

    #[test]
    fn typed_readers_and_writers_agree_with_an_independent_implementation(value in any_rmpv()) {
        let bytes = encoded(&value);
        let mut reader = Reader::new(&bytes);
        let read = read_typed(&mut reader).unwrap();
        prop_assert!(reader.is_at_end());
        // Compared as bytes, since NaN is not equal to itself.
        prop_assert_eq!(encoded(&read), encoded(&widened(value)));
        let mut written = Vec::new();
        write_typed(&read, &mut written);
        prop_assert_eq!(written, encoded(&read));
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(reader.read_raw().unwrap(), &bytes);
    }

    #[test]
    fn no_bytes_panic_and_no_failed_read_moves(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let reader = Reader::new(&bytes);
        macro_rules! stays {
            ($($method:ident),*) => {$({
                let mut tried = reader;
                if tried.$method().is_err() {
                    prop_assert_eq!(tried.position(), 0);
                }
            })*};
        }
        stays!(
            read_nil, read_bool, read_u64, read_i64, read_int, read_f64, read_str,
            read_str_bytes, read_bin, read_ext, read_array_len, read_map_len, read_raw, skip
        );
        let _ = read_typed(&mut Reader::new(&bytes));
    }
}
