//! The original's numbers, which were computed with its own library, and numbers that must be refused.

use distkv_model::value::Reader;

use super::*;

const VECTORS: &str = include_str!("../../vectors/96f-dh-vectors.txt");
const REFUSALS: &str = include_str!("../../vectors/96b-diffie-hellman.txt");

/// The `length` of clients that give none.
const LENGTH_DEFAULT: u64 = 1_024;

fn bytes(hex: &str) -> Vec<u8> {
    let hex = if hex.len().is_multiple_of(2) { hex.to_owned() } else { format!("0{hex}") };
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn private(hex: &str) -> [u8; PRIVATE_BYTES] {
    let mut padded = [0; PRIVATE_BYTES];
    let digits = bytes(hex);
    padded[PRIVATE_BYTES - digits.len()..].copy_from_slice(&digits);
    padded
}

#[test]
fn exchanges_and_boxes_are_those_of_the_original() {
    let mut seen = 0;
    for section in VECTORS.split("\n\n").filter(|section| section.starts_with("## group")) {
        let group = match section.starts_with("## group 5") {
            true => Group::Five,
            false => Group::Fourteen,
        };
        let field = |name: &str| {
            let mut lines = section.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(found, _)| *found == name).map(|(_, value)| value.trim()).unwrap()
        };
        let client_public = bytes(field("client_public"));
        let exchange = exchange(group, &client_public, &private(field("server_private"))).unwrap();
        assert_eq!(exchange.public, bytes(field("server_public")), "{section}");
        assert_eq!(exchange.key.0.to_vec(), bytes(field("box_key")), "{section}");
        // The client's side is the same.
        assert_eq!(public_of(group, &private(field("client_private"))), client_public);
        let sealed = bytes(field("box"));
        let opened = exchange.key.open(&sealed).unwrap();
        assert_eq!(*opened, bytes(field("sha256")));
        let nonce = *sealed.first_chunk().unwrap();
        assert_eq!(exchange.key.seal(nonce, &opened), Ok(sealed));
        seen += 1;
    }
    assert_eq!(seen, 5);
}

/// The public number of each request in the transcript, and whether the original took it.
fn asked_of_the_original() -> Vec<(String, Vec<u8>, bool)> {
    let lines: Vec<_> = REFUSALS.lines().collect();
    let mut asked = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let connection = line.split_whitespace().nth(1).unwrap_or_default();
        if !line.contains("C->S {'action': 'diffie_hellman'") || !line.contains("'pubkey'") {
            continue;
        }
        let message = bytes(lines[at + 1].split("bytes] ").nth(1).unwrap().trim_end_matches('…'));
        let key = message.windows(7).position(|w| w == b"\xa6pubkey").unwrap();
        let Ok(public) = Reader::new(&message[key + 7..]).read_bin() else { continue };
        let answer = lines[at + 2];
        assert!(answer.contains(&format!("{connection} S->C")), "{answer}");
        asked.push((connection.to_owned(), public.to_vec(), answer.contains("'pubkey'")));
    }
    asked
}

#[test]
fn what_the_original_took_or_refused_is_taken_or_refused() {
    let asked = asked_of_the_original();
    assert!(asked.len() >= 8, "{}", asked.len());
    for (connection, public, was_taken) in asked {
        // c10 asks a second time, with 4, which is refused for that reason only.
        if connection == "c10" && public == [4] {
            continue;
        }
        let group = if public.len() > 192 { Group::Fourteen } else { Group::Five };
        let result = exchange(group, &public, &[7; PRIVATE_BYTES]);
        assert_eq!(result.is_ok(), was_taken, "{connection}: {result:?}");
    }
}

#[test]
fn bad_numbers_are_each_refused() {
    let five = GROUP_5.get();
    let fourteen = GROUP_14.get();
    // The primes plus `n`.
    let five = |n: i64| {
        let ten_less = five.wrapping_sub(&U1536::from_u64(10));
        let sum = ten_less.wrapping_add(&U1536::from_u64((10 + n) as u64));
        sum.to_be_bytes().as_ref().to_vec()
    };
    let fourteen = |n: i64| {
        let ten_less = fourteen.wrapping_sub(&U2048::from_u64(10));
        let sum = ten_less.wrapping_add(&U2048::from_u64((10 + n) as u64));
        sum.to_be_bytes().as_ref().to_vec()
    };
    let is = |group, public: &[u8]| exchange(group, public, &[7; PRIVATE_BYTES]).err();
    for group in [Group::Five, Group::Fourteen] {
        let near = |n| if group == Group::Five { five(n) } else { fourteen(n) };
        for low in [&[][..], &[0], &[1], &[2], &[0; 300], &[0, 0, 2]] {
            assert_eq!(is(group, low), Some(DhError::OutOfRange), "{low:?}");
        }
        for high in [near(-1), near(0), near(1), near(4), vec![0xff; 192], vec![0xff; 256]] {
            let is_number_of_14 = group == Group::Fourteen && high.len() == 192;
            assert_eq!(is(group, &high) == Some(DhError::OutOfRange), !is_number_of_14);
        }
        assert_eq!(is(group, &[0xff; 4_096]), Some(DhError::OutOfRange));
        // -2 and -4: both primes are 7 modulo 8, so -1 is no square and 2 is one.
        assert_eq!(is(group, &near(-2)), Some(DhError::NoSquare));
        assert_eq!(is(group, &near(-4)), Some(DhError::NoSquare));
        assert_eq!(is(group, &[4]), None);
        assert_eq!(is(group, &[0, 4]), None);
    }
    assert_eq!(is(Group::Five, &[31]), Some(DhError::NoSquare));
    assert_eq!(is(Group::Five, &[3]), None);
}

#[test]
fn a_short_length_means_group_5_where_that_is_taken() {
    assert_eq!(Group::of_length(31, true), Ok(Group::Five));
    assert_eq!(Group::of_length(31, false), Err(DhError::TooShort));
    assert_eq!(Group::of_length(32, true), Ok(Group::Fourteen));
    assert_eq!(Group::of_length(LENGTH_DEFAULT, false), Ok(Group::Fourteen));
}

#[test]
fn boxes_that_are_damaged_short_or_long_are_not_opened() {
    let key = BoxKey::new([9; 32]);
    let sealed = key.seal([1; NONCE_BYTES], b"secret").unwrap();
    assert_eq!(*key.open(&sealed).unwrap(), b"secret");
    for at in 0..sealed.len() {
        let mut damaged = sealed.clone();
        damaged[at] ^= 1;
        assert_eq!(key.open(&damaged), Err(BadBox), "byte {at}");
        assert_eq!(key.open(&sealed[..at]), Err(BadBox), "{at} bytes");
    }
    assert_eq!(BoxKey::new([8; 32]).open(&sealed), Err(BadBox));
    assert_eq!(key.seal([1; NONCE_BYTES], &[0; BOX_BYTES_MAX]), Err(BadBox));
    let longest = key.seal([1; NONCE_BYTES], &[0; BOX_BYTES_MAX - 40]).unwrap();
    assert_eq!(longest.len(), BOX_BYTES_MAX);
    assert!(key.open(&longest).is_ok());
    assert_eq!(key.open(&[longest, vec![0]].concat()), Err(BadBox));
    assert_eq!(format!("{key:?}"), "BoxKey(…)");
}
