//! Data of all sizes, in pieces of all sizes, and what is kept meanwhile.

use super::*;
use crate::channel::{FEED_BYTES_MAX, OUTGOING_BYTES_MAX};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 + index / 251) as u8).collect()
}

/// Sends all of it from one side to the other, in pieces; returns what came.
fn send(from: &mut Channel, to: &mut Channel, data: &[u8], piece: usize) -> Vec<u8> {
    let (mut written, mut came) = (0, Vec::new());
    let mut into = vec![0; 10_000];
    while came.len() < data.len() {
        written += from.write(&data[written..]).unwrap();
        assert!(from.outgoing().len() <= OUTGOING_BYTES_MAX);
        assert_eq!(pump_in(from, to, piece), [Ok(()), Ok(())]);
        loop {
            let count = to.take(&mut into);
            if count == 0 {
                break;
            }
            came.extend_from_slice(&into[..count]);
        }
        assert!(to.capacity() <= 4 * FEED_BYTES_MAX, "{}", to.capacity());
        assert!(from.capacity() <= 4 * OUTGOING_BYTES_MAX, "{}", from.capacity());
    }
    came
}

#[test]
fn a_mebibyte_goes_both_ways_whole_in_pieces_and_byte_by_byte() {
    let data = pattern(1 << 20);
    let (mut a, mut b) = open_pair();
    for piece in [usize::MAX, 4_096, 1_447] {
        assert!(send(&mut a, &mut b, &data, piece) == data);
        assert!(send(&mut b, &mut a, &data, piece) == data);
    }
    let short = pattern(40_000);
    assert!(send(&mut a, &mut b, &short, 1) == short);
    assert!(send(&mut b, &mut a, &short, 1) == short);
}

#[test]
fn a_handshake_byte_by_byte_is_a_handshake() {
    let ca = Ca::make("plant", NOW).unwrap();
    let joe = ca.issue_user("joe", 30, NOW).unwrap();
    let mut a = client_with(&ca, Some(&joe)).connect("n1").unwrap();
    let mut b = node(&ca).accept().unwrap();
    assert_eq!(pump_in(&mut a, &mut b, 1), [Ok(()), Ok(())]);
    assert!(a.is_open() && b.is_open());
    assert_eq!(b.user(), Ok(Some("joe")));
}

#[test]
fn records_of_each_size_around_the_greatest_arrive() {
    let (mut a, mut b) = open_pair();
    for len in [1, 2, 16_383, 16_384, 16_385, 32_768, 32_769, 65_000, 65_536, 65_537] {
        let data = pattern(len);
        assert!(send(&mut a, &mut b, &data, usize::MAX) == data, "{len}");
    }
}

#[test]
fn nothing_is_read_or_written_beyond_the_bounds() {
    let (mut a, mut b) = open_pair();
    let data = pattern(1 << 20);
    let written = a.write(&data).unwrap();
    assert!(
        written > OUTGOING_BYTES_MAX - 1_000 && a.outgoing().len() <= OUTGOING_BYTES_MAX,
        "{written}"
    );
    assert_eq!(a.write(&data).unwrap(), 0);
    assert!(!a.wants_more(), "a side that does not take its answers is read all the same");
    let bytes = a.outgoing().to_vec();
    assert_eq!(b.feed(&bytes[..20_000]).unwrap(), 20_000);
    assert_eq!(b.plaintext(), &data[..16_384]);
    assert!(!b.wants_more());
    assert_eq!(b.feed(&bytes[20_000..]).unwrap(), 0, "the plaintext of the first part waits");
    b.taken(16_384);
    assert!(b.wants_more());
    assert_eq!(b.feed(&bytes[20_000..]).unwrap(), bytes.len() - 20_000);
    assert_eq!(b.plaintext(), &data[16_384..written]);
    b.taken(usize::MAX >> 1);
}

#[test]
fn a_sender_whose_output_is_taken_in_drops_keeps_little() {
    let (mut a, mut b) = open_pair();
    let data = pattern(8 << 20);
    let mut written = 0;
    while written < data.len() {
        written += a.write(&data[written..]).unwrap();
        // Never all of it.
        let some = a.outgoing()[..a.outgoing().len().min(9_000)].to_vec();
        let fed = b.feed(&some).unwrap();
        a.sent(fed);
        b.taken(usize::MAX >> 1);
        assert!(a.capacity() <= 4 * OUTGOING_BYTES_MAX, "{}", a.capacity());
    }
}

#[test]
fn an_idle_session_keeps_little() {
    let (mut a, mut b) = open_pair();
    let data = pattern(300_000);
    assert!(send(&mut a, &mut b, &data, usize::MAX) == data);
    assert!(send(&mut b, &mut a, &data, usize::MAX) == data);
    for side in [&mut a, &mut b] {
        side.shrink();
        assert_eq!(side.capacity(), 0);
    }
    assert!(size_of::<Channel>() <= 4_096, "{}", size_of::<Channel>());
    assert!(send(&mut a, &mut b, &data, usize::MAX) == data);
}

#[test]
fn a_shrink_in_the_middle_of_a_record_loses_nothing() {
    let (mut a, mut b) = open_pair();
    let data = pattern(20_000);
    let mut came = Vec::new();
    assert_eq!(a.write(&data).unwrap(), data.len());
    let bytes = a.outgoing().to_vec();
    for piece in bytes.chunks(700) {
        let mut rest = piece;
        while !rest.is_empty() {
            rest = &rest[b.feed(rest).unwrap()..];
            came.extend_from_slice(b.plaintext());
            b.taken(usize::MAX >> 1);
            b.shrink();
        }
    }
    assert!(came == data);
}
