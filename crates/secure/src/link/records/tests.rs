//! Records of all lengths, in all pieces; and what ends a link.

use super::*;

const KEY: [u8; 32] = [7; 32];

/// Bytes that [`Sealer::seal`] appends for so many bytes.
fn sealed_bytes(plain: usize) -> usize {
    plain + plain.div_ceil(PLAIN_BYTES_MAX) * (RECORD_HEADER_BYTES + TAG_BYTES)
}

fn pair(suite: Suite) -> (Sealer, Opener) {
    (Sealer::new(suite, &KEY), Opener::new(suite, &KEY))
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7) as u8).collect()
}

#[test]
fn any_length_is_sealed_in_as_few_records_as_possible() {
    for suite in Suite::ALL {
        let (mut sealer, mut opener) = pair(suite);
        for length in [0, 1, PLAIN_BYTES_MAX - 1, PLAIN_BYTES_MAX, PLAIN_BYTES_MAX + 1, 5 << 20] {
            let (mut sealed, mut opened) = (b"before".to_vec(), Vec::new());
            let number = sealer.direction.number;
            sealer.seal(&bytes(length), &mut sealed).unwrap();
            assert_eq!(sealed.len(), 6 + sealed_bytes(length));
            let records = sealer.direction.number - number;
            assert_eq!(records, length.div_ceil(65_519) as u64);
            assert_eq!(opener.open(&sealed[6..], &mut opened), Ok(sealed.len() - 6));
            assert!(opened == bytes(length), "{length}");
        }
    }
}

#[test]
fn parts_are_sealed_as_if_they_lay_together() {
    let whole = bytes(200_000);
    let (mut one, mut parts) = (Vec::new(), Vec::new());
    pair(Suite::AesGcm).0.seal(&whole, &mut one).unwrap();
    pair(Suite::AesGcm).0.seal_parts(whole.chunks(999).chain([&[][..]]), &mut parts).unwrap();
    assert!(one == parts);
}

#[test]
fn records_come_in_any_pieces() {
    let (mut sealer, mut opener) = pair(Suite::ChaChaPoly);
    let mut sealed = Vec::new();
    sealer.seal(b"first", &mut sealed).unwrap();
    sealer.seal(b" second", &mut sealed).unwrap();
    let (mut input, mut opened) = (Vec::new(), Vec::new());
    for byte in sealed {
        input.push(byte);
        let consumed = opener.open(&input, &mut opened).unwrap();
        assert!(consumed == 0 || consumed == input.len());
        input.drain(..consumed);
    }
    assert_eq!((opened, input), (b"first second".to_vec(), Vec::new()));
}

#[test]
fn what_came_before_a_damaged_record_counts_and_nothing_after() {
    let (mut sealer, mut opener) = pair(Suite::AesGcm);
    let (mut sealed, mut opened) = (Vec::new(), Vec::new());
    sealer.seal(b"good", &mut sealed).unwrap();
    let at = sealed.len();
    sealer.seal(b"bad", &mut sealed).unwrap();
    sealed[at + 3] ^= 1;
    assert!(!opener.is_confirmed());
    assert_eq!(opener.open(&sealed, &mut opened), Err(RecordError::Damaged));
    assert_eq!(opened, b"good");
    assert!(opener.is_confirmed());
    sealed[at + 3] ^= 1;
    assert_eq!(opener.open(&sealed[at..], &mut opened), Err(RecordError::Over));
}

#[test]
fn an_impossible_length_ends_the_link_before_its_bytes_come() {
    for length in [0, 1, 16] {
        let mut opener = pair(Suite::AesGcm).1;
        let error = Err(RecordError::Length(length.into()));
        assert_eq!(opener.open(&u16::to_be_bytes(length), &mut Vec::new()), error);
        assert!(!opener.is_confirmed());
    }
}

#[test]
fn the_last_number_is_kept_for_rekeys_and_nothing_is_sealed_behind_it() {
    let mut sealer = pair(Suite::AesGcm).0;
    sealer.direction.number = u64::MAX - 1;
    let mut out = b"before".to_vec();
    assert_eq!(sealer.seal(&bytes(100_000), &mut out), Err(RecordError::Over));
    assert_eq!(out, b"before");
    sealer.direction.number = u64::MAX - 1;
    assert_eq!(sealer.seal(b"one", &mut out), Ok(()));
    assert_eq!(sealer.seal(b"one", &mut out), Err(RecordError::Over));
}
