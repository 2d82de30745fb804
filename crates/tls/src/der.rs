//! The few fields of a certificate that no other crate here tells: its subject's common name and its validity. It reads
//! only as much DER as leads there, and takes nothing on trust: anything odd is `None`.
//!
//! RFC 5280, 4.1: `Certificate ::= SEQUENCE { tbsCertificate SEQUENCE { [0] version, serialNumber, signature, issuer,
//! validity, subject, … }, … }`.

const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
/// 2.5.4.3, commonName.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// From when to when a certificate is valid, in seconds since 1970, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// The one common name of a certificate's subject; none if there are several.
pub(crate) fn common_name(certificate: &[u8]) -> Option<&str> {
    let (_, mut subject) = validity_and_subject(certificate)?;
    let mut found = None;
    while !subject.is_empty() {
        let mut set = take(&mut subject, SET)?;
        while !set.is_empty() {
            let mut attribute = take(&mut set, SEQUENCE)?;
            if take(&mut attribute, OBJECT_ID)? != COMMON_NAME {
                continue;
            }
            let (tag, text) = take_any(&mut attribute)?;
            if !matches!(tag, UTF8_STRING | PRINTABLE_STRING) || found.is_some() {
                return None;
            }
            found = Some(std::str::from_utf8(text).ok()?);
        }
    }
    found
}

/// When a certificate is valid.
pub(crate) fn validity(certificate: &[u8]) -> Option<Validity> {
    let (mut validity, _) = validity_and_subject(certificate)?;
    let from = time(take_any(&mut validity)?)?;
    let to = time(take_any(&mut validity)?)?;
    validity.is_empty().then_some(Validity { from, to })
}

fn validity_and_subject(mut certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut outer = take(&mut certificate, SEQUENCE)?;
    let mut rest = take(&mut outer, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        take(&mut rest, VERSION)?;
    }
    take(&mut rest, INTEGER)?;
    // The signature's algorithm, and the issuer.
    take(&mut rest, SEQUENCE)?;
    take(&mut rest, SEQUENCE)?;
    Some((take(&mut rest, SEQUENCE)?, take(&mut rest, SEQUENCE)?))
}

/// Takes the next element, which must have this tag; returns its content.
fn take<'a>(from: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (found, content) = take_any(from)?;
    (found == tag).then_some(content)
}

/// Takes the next element: its tag and its content. Lengths have at most three bytes.
fn take_any<'a>(from: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = from.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x83 => {
            let (bytes, behind) = rest.split_at_checked(usize::from(first & 0x7f))?;
            rest = behind;
            bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
        }
        _ => return None,
    };
    let (content, behind) = rest.split_at_checked(length)?;
    *from = behind;
    Some((tag, content))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |at: usize, len: usize| -> Option<i32> {
        let digits = digits.get(at..at + len)?;
        digits.iter().try_fold(0_i32, |value, digit| {
            digit.is_ascii_digit().then(|| value * 10 + i32::from(digit - b'0'))
        })
    };
    let (year, at) = match tag {
        UTC_TIME if digits.len() == 12 => {
            let short = number(0, 2)?;
            (if short < 50 { 2000 + short } else { 1900 + short }, 2)
        }
        GENERALIZED_TIME if digits.len() == 14 => (number(0, 4)?, 4),
        _ => return None,
    };
    let small = |index: usize| number(at + 2 * index, 2).and_then(|n| u8::try_from(n).ok());
    let month = time::Month::try_from(small(0)?).ok()?;
    let date = time::Date::from_calendar_date(year, month, small(1)?).ok()?;
    let time = date.with_hms(small(2)?, small(3)?, small(4)?).ok()?;
    Some(time.assume_utc().unix_timestamp())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ca::Ca;

    #[test]
    fn times_are_read_in_both_forms() {
        let read = |tag, text: &str| time((tag, text.as_bytes()));
        assert_eq!(read(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(read(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(read(GENERALIZED_TIME, "20500101000000Z"), Some(2_524_608_000));
        for (tag, wrong) in [
            (UTC_TIME, "700101000000"),
            (UTC_TIME, "701301000000Z"),
            (UTC_TIME, "700230000000Z"),
            (UTC_TIME, "7001010000x0Z"),
            (UTC_TIME, "19700101000000Z"),
            (GENERALIZED_TIME, "700101000000Z"),
            (SEQUENCE, "700101000000Z"),
        ] {
            assert_eq!(read(tag, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_certificates_name_and_validity_are_found() {
        let now = 1_800_000_000;
        let ca = Ca::make("plant", now).unwrap();
        let joe = ca.issue_user("joe", 10, now).unwrap();
        let leaf = joe.chain().first().unwrap();
        assert_eq!(common_name(leaf), Some("joe"));
        let wanted = Validity { from: 1_800_000_000 - 3_600, to: 1_800_000_000 + 864_000 };
        assert_eq!(validity(leaf), Some(wanted));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
        ) {
            let _ = (common_name(&bytes), validity(&bytes));
            let ca = Ca::make("plant", 1_800_000_000).unwrap();
            let mut damaged = ca.certificate().to_vec();
            let at = at.index(damaged.len());
            damaged[at] ^= 0xff;
            let _ = (common_name(&damaged), validity(&damaged));
            let _ = (common_name(&damaged[..at]), validity(&damaged[..at]));
        }
    }
}
