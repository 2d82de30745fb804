//! Doors against each other and against who records, repeats, redirects and invents datagrams.

mod flood;
mod simulation;

use distkv_core::membership::NetworkName;

use super::*;
use crate::key::Key;

fn ring_of(network: &str, byte: u8) -> KeyRing {
    KeyRing::new(NetworkName::new(network).unwrap(), Key::new([byte; 32]))
}

/// Random numbers for a door, from a seed.
fn numbers(mut seed: u64) -> impl FnMut() -> u64 + Send + 'static {
    move || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn door(seed: u64) -> DatagramDoor {
    DatagramDoor::new(&ring_of("plant", 1), numbers(seed))
}

fn addr(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], number))
}

fn plain(text: &str) -> Vec<u8> {
    [b"dkvS\x01\x00\x01\x05plant", text.as_bytes()].concat()
}

fn seal(door: &mut DatagramDoor, to: SocketAddr, text: &str, now: u64) -> Vec<Outgoing> {
    let mut out = Vec::new();
    door.seal(to, &plain(text), now, &mut out);
    out
}

fn open(
    door: &mut DatagramDoor,
    from: SocketAddr,
    bytes: &[u8],
    now: u64,
) -> (Opened, Vec<Outgoing>) {
    let mut out = Vec::new();
    let opened = door.open(from, bytes, now, &mut out);
    (opened, out)
}

/// The only datagram of some.
fn only(mut out: Vec<Outgoing>) -> Vec<u8> {
    assert_eq!(out.len(), 1, "{out:?}");
    out.remove(0).bytes
}

const A: u16 = 1;
const B: u16 = 2;

/// Two doors that know each other's epochs.
fn acquainted() -> (DatagramDoor, DatagramDoor) {
    let (mut a, mut b) = (door(1), door(2));
    let ask = only(seal(&mut a, addr(B), "first", 0));
    let (opened, out) = open(&mut b, addr(A), &ask, 0);
    assert_eq!(opened, Opened::Handled);
    let (opened, out) = open(&mut a, addr(B), &only(out), 0);
    assert_eq!(opened, Opened::Handled);
    let (opened, out) = open(&mut b, addr(A), &only(out), 0);
    assert_eq!((opened, out), (Opened::Datagram(plain("first")), Vec::new()));
    assert!(a.knows(addr(B)) && b.knows(addr(A)));
    (a, b)
}

#[test]
fn what_waited_for_an_epoch_arrives_and_sealing_adds_44_bytes() {
    let (mut a, mut b) = acquainted();
    let sealed = only(seal(&mut a, addr(B), "text", 1));
    assert_eq!(sealed.len(), plain("text").len() + OVERHEAD_BYTES);
    assert_eq!(OVERHEAD_BYTES, 44);
    assert!(!sealed.windows(4).any(|w| w == b"text"));
    assert_eq!(open(&mut b, addr(A), &sealed, 1).0, Opened::Datagram(plain("text")));
    let answer = only(seal(&mut b, addr(A), "back", 1));
    assert_eq!(open(&mut a, addr(B), &answer, 1).0, Opened::Datagram(plain("back")));
}

#[test]
fn four_wait_for_a_second_and_an_ask_goes_out_ten_times_a_second() {
    let mut a = door(1);
    let asks: usize = (0..100).map(|n| seal(&mut a, addr(B), &n.to_string(), n).len()).sum();
    assert_eq!(asks, 10);
    let ask = only(seal(&mut a, addr(B), "last", 1_090));
    let mut b = door(2);
    let (_, tell) = open(&mut b, addr(A), &ask, 1_091);
    // 97 to 99 came more than 993 ms ago, and less than 1 s.
    let (_, sent) = open(&mut a, addr(B), &only(tell), 1_092);
    let texts: Vec<_> =
        sent.iter().map(|sent| open(&mut b, addr(A), &sent.bytes, 1_093).0).collect();
    let expected = ["97", "98", "99", "last"].map(|text| Opened::Datagram(plain(text)));
    assert_eq!(texts, expected);
    assert_eq!(a.peers.waiting(), 0);
    // And what waits too long is not sent at all.
    let mut a = door(1);
    let ask = only(seal(&mut a, addr(B), "old", 0));
    let (_, tell) = open(&mut b, addr(A), &ask, 1_500);
    assert_eq!(open(&mut a, addr(B), &only(tell), 1_500), (Opened::Handled, Vec::new()));
}

#[test]
fn what_is_no_plaintext_datagram_is_never_sent() {
    let (mut a, _) = acquainted();
    let mut out = Vec::new();
    for plain in [
        &b""[..],
        b"dkvS\x01",
        b"dkvS\x01\x01\x01\x05plant",
        b"dkvS\x02\x00\x01",
        b"xkvS\x01\x00\x01",
    ] {
        a.seal(addr(B), plain, 0, &mut out);
    }
    let room = DATAGRAM_BYTES_MAX - OVERHEAD_BYTES - plain("").len();
    a.seal(addr(B), &plain(&"x".repeat(room + 1)), 0, &mut out);
    assert_eq!(out, []);
    a.seal(addr(B), &plain(&"x".repeat(room)), 0, &mut out);
    assert_eq!(only(out).len(), DATAGRAM_BYTES_MAX);
}

#[test]
fn datagram_13_a_replay_at_once_is_dropped_wherever_it_comes_from() {
    let (mut a, mut b) = acquainted();
    let sealed = only(seal(&mut a, addr(B), "once", 1));
    assert_eq!(open(&mut b, addr(A), &sealed, 1).0, Opened::Datagram(plain("once")));
    for from in [A, 77] {
        let (opened, out) = open(&mut b, addr(from), &sealed, 1);
        assert_eq!((opened, out), (Opened::Dropped(Dropped::Repeated), Vec::new()));
    }
}

#[test]
fn datagram_14_a_replay_after_a_restart_of_either_is_dropped_and_they_hear_each_other_again() {
    let (mut a, mut b) = acquainted();
    let old = only(seal(&mut a, addr(B), "old", 1));
    let never_seen = only(seal(&mut a, addr(B), "never seen", 1));
    assert_eq!(open(&mut b, addr(A), &old, 1).0, Opened::Datagram(plain("old")));

    // The receiver restarts: it tells the sender, which sends the next one for the new life.
    let mut b = door(3);
    for replay in [&old, &never_seen] {
        let (opened, out) = open(&mut b, addr(A), replay, 2);
        assert_eq!((opened, out.len()), (Opened::Dropped(Dropped::OtherEpoch), 1));
        assert_eq!(open(&mut a, addr(B), &out[0].bytes, 2).0, Opened::Handled);
    }
    let sealed = only(seal(&mut a, addr(B), "new", 3));
    assert_eq!(open(&mut b, addr(A), &sealed, 3).0, Opened::Datagram(plain("new")));

    // The sender restarts: what it sent before is still known, and it asks.
    let mut a = door(4);
    assert_eq!(open(&mut b, addr(A), &sealed, 4).0, Opened::Dropped(Dropped::Repeated));
    let ask = only(seal(&mut a, addr(B), "again", 4));
    let (_, out) = open(&mut b, addr(A), &ask, 4);
    // A tell, and a question: B knew another epoch there.
    assert_eq!(out.len(), 2);
    let (_, waited) = open(&mut a, addr(B), &out[0].bytes, 4);
    let (_, answer) = open(&mut a, addr(B), &out[1].bytes, 4);
    assert_eq!(open(&mut b, addr(A), &only(waited), 4).0, Opened::Datagram(plain("again")));
    assert_eq!(open(&mut b, addr(A), &only(answer), 4).0, Opened::Handled);
    let sealed = only(seal(&mut b, addr(A), "welcome", 5));
    assert_eq!(open(&mut a, addr(B), &sealed, 5).0, Opened::Datagram(plain("welcome")));
}

#[test]
fn datagram_15_the_window_takes_each_of_the_last_1024_once_in_any_order() {
    let (mut a, mut b) = acquainted();
    let sent: Vec<_> = (0..1_026).map(|n| only(seal(&mut a, addr(B), &n.to_string(), 1))).collect();
    assert!(matches!(open(&mut b, addr(A), &sent[1_025], 1).0, Opened::Datagram(_)));
    for late in [0, 1] {
        assert_eq!(open(&mut b, addr(A), &sent[late], 1).0, Opened::Dropped(Dropped::TooOld));
    }
    for late in (2..1_025).rev() {
        assert!(matches!(open(&mut b, addr(A), &sent[late], 1).0, Opened::Datagram(_)), "{late}");
        assert_eq!(open(&mut b, addr(A), &sent[late], 1).0, Opened::Dropped(Dropped::Repeated));
    }
}

#[test]
fn datagram_16_one_for_another_receiver_is_not_taken() {
    let (mut a, mut b) = acquainted();
    let mut c = door(3);
    let sealed = only(seal(&mut a, addr(B), "for b", 1));
    // C does not know B: it takes it for one for its own former life, and says so. A learns nothing wrong
    // for good: B corrects it with the next one.
    let (opened, tell) = open(&mut c, addr(A), &sealed, 1);
    assert_eq!(opened, Opened::Dropped(Dropped::OtherEpoch));
    open(&mut a, addr(3), &only(tell), 1);
    let astray = only(seal(&mut a, addr(B), "astray", 1));
    let (opened, tell) = open(&mut b, addr(A), &astray, 1);
    assert_eq!(opened, Opened::Dropped(Dropped::OtherEpoch));
    open(&mut a, addr(B), &only(tell), 1);
    let sealed = only(seal(&mut a, addr(B), "for b again", 1));
    assert_eq!(open(&mut b, addr(A), &sealed, 1).0, Opened::Datagram(plain("for b again")));

    // Once C has heard of B, it knows that it is meant for B, and does not answer.
    let ask = only(seal(&mut b, addr(3), "hello c", 1));
    let (_, tell) = open(&mut c, addr(B), &ask, 1);
    let (_, hello) = open(&mut b, addr(3), &only(tell), 1);
    assert!(matches!(open(&mut c, addr(B), &only(hello), 1).0, Opened::Datagram(_)));
    let sealed = only(seal(&mut a, addr(B), "for b only", 1));
    let (opened, out) = open(&mut c, addr(A), &sealed, 1);
    assert_eq!((opened, out), (Opened::Dropped(Dropped::OtherReceiver), Vec::new()));

    // Nor does the sender take its own.
    let (opened, out) = open(&mut a, addr(B), &sealed, 1);
    assert_eq!((opened, out), (Opened::Dropped(Dropped::OtherReceiver), Vec::new()));
    let ask = only(seal(&mut a, addr(44), "who is there", 1));
    let (opened, out) = open(&mut a, addr(44), &ask, 1);
    assert_eq!((opened, out), (Opened::Dropped(Dropped::OtherReceiver), Vec::new()));
}

#[test]
fn datagram_16_other_keys_and_networks_are_dropped_and_any_key_of_the_ring_is_taken() {
    let (mut a, mut b) = acquainted();
    let mut stranger = DatagramDoor::new(&ring_of("plant", 9), numbers(9));
    let ask = only(seal(&mut stranger, addr(B), "hello", 1));
    assert_eq!(open(&mut b, addr(9), &ask, 1), (Opened::Dropped(Dropped::UnknownKey), Vec::new()));
    let mut stranger = DatagramDoor::new(&ring_of("office", 1), numbers(9));
    let mut out = Vec::new();
    stranger.seal(addr(B), b"dkvS\x01\x00\x01\x06officex", 1, &mut out);
    let dropped = (Opened::Dropped(Dropped::OtherNetwork), Vec::new());
    assert_eq!(open(&mut b, addr(9), &only(out), 1), dropped);

    // A rotation: A uses the new key while B uses the old one.
    let mut ring = ring_of("plant", 1);
    ring.add(Key::new([2; 32])).unwrap();
    b.set_ring(&ring);
    ring.make_primary(Key::new([2; 32]).id()).unwrap();
    a.set_ring(&ring);
    let sealed = only(seal(&mut a, addr(B), "new key", 2));
    assert_eq!(open(&mut b, addr(A), &sealed, 2).0, Opened::Datagram(plain("new key")));
    let sealed = only(seal(&mut b, addr(A), "old key", 2));
    assert_eq!(open(&mut a, addr(B), &sealed, 2).0, Opened::Datagram(plain("old key")));
}

#[test]
fn datagram_17_a_flood_of_replayed_asks_gets_ten_answers_a_second_and_address_and_keeps_no_member_out()
 {
    let (mut a, mut b) = acquainted();
    let ask = only(seal(&mut a, addr(3), "hello c", 0));
    // From one address.
    let answers =
        |b: &mut DatagramDoor, from: u16, now: u64| open(b, addr(from), &ask, now).1.len();
    let in_a_second: usize = (0..10_000).map(|n| answers(&mut b, 500, 1_000 + n / 20)).sum();
    assert_eq!(in_a_second, 10);
    assert_eq!(open(&mut b, addr(500), &ask, 1_600).0, Opened::Dropped(Dropped::TooOften));
    assert_eq!(answers(&mut b, 500, 2_000), 1);
    // From 60,000 addresses: no more of them are remembered than 1,024, and nothing is learnt.
    let answered: usize = (1_000..61_000).map(|from| answers(&mut b, from, 5_000)).sum();
    assert_eq!((answered, b.strangers.len()), (1_024, 1_024));
    assert_eq!(b.peers.len(), 1);
    assert!(b.windows.len() == 1 && !b.knows(addr(500)));
    // A peer that restarts meanwhile gets its answer.
    let mut a = door(4);
    let ask = only(seal(&mut a, addr(B), "again", 5_000));
    let (opened, out) = open(&mut b, addr(A), &ask, 5_000);
    assert_eq!((opened, out.len()), (Opened::Handled, 2));
    assert!(out.iter().all(|answer| answer.bytes.len() <= ask.len()), "no amplification");
}

#[test]
fn datagram_17_an_old_answer_is_not_believed() {
    let mut a = door(1);
    let ask = only(seal(&mut a, addr(B), "first", 0));
    // B's former life answers, and the answer is held back.
    let held_back = only(open(&mut door(2), addr(A), &ask, 0).1);
    let ask = only(seal(&mut a, addr(B), "second", 500));
    let mut b = door(3);
    let tell = only(open(&mut b, addr(A), &ask, 500).1);
    assert_eq!(open(&mut a, addr(B), &tell, 500).0, Opened::Handled);
    assert_eq!(open(&mut a, addr(B), &held_back, 501).0, Opened::Dropped(Dropped::Unasked));
    assert_eq!(open(&mut a, addr(B), &tell, 501).0, Opened::Dropped(Dropped::Repeated));
    let sealed = only(seal(&mut a, addr(B), "third", 502));
    assert_eq!(open(&mut b, addr(A), &sealed, 502).0, Opened::Datagram(plain("third")));
}

#[test]
fn datagram_18_garbage_is_dropped_and_leaves_no_trace() {
    let (mut a, mut b) = acquainted();
    let sealed = only(seal(&mut a, addr(B), "good", 1));
    let sizes = |b: &DatagramDoor| (b.peers.len(), b.strangers.len(), b.windows.len());
    let before = sizes(&b);
    for cut in 0..sealed.len() {
        let (opened, out) = open(&mut b, addr(9), &sealed[..cut], 1);
        assert!(matches!(opened, Opened::Dropped(Dropped::Malformed | Dropped::Forged)), "{cut}");
        assert_eq!(out, []);
    }
    for bit in 0..8 * sealed.len() {
        let mut changed = sealed.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (opened, out) = open(&mut b, addr(9), &changed, 1);
        assert!(matches!(opened, Opened::Dropped(_)), "bit {bit}: {opened:?}");
        assert_eq!(out, []);
    }
    let mut random = numbers(5);
    for length in 0..1_500 {
        let mut garbage: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        for head in [&b""[..], b"dkvS", b"dkvS\x01\x01", &sealed[..10]] {
            let length = head.len().min(garbage.len());
            garbage[..length].copy_from_slice(&head[..length]);
            let (opened, out) = open(&mut b, addr(9), &garbage, 1);
            assert!(matches!(opened, Opened::Dropped(_)));
            assert_eq!(out, []);
        }
    }
    let (opened, out) = open(&mut b, addr(9), &plain("plaintext"), 1);
    assert_eq!((opened, out), (Opened::Dropped(Dropped::Plaintext), Vec::new()));
    assert_eq!(sizes(&b), before);
    assert_eq!(open(&mut b, addr(A), &sealed, 1).0, Opened::Datagram(plain("good")));
}

/// Test 19 is about a `Bye` of SWIM: for the door it is a datagram as any other.
#[test]
fn datagram_19_a_bye_is_not_forged_nor_repeated() {
    let (mut a, mut b) = acquainted();
    let bye = b"dkvS\x01\x00\x04\x05plantidentity";
    let opened = open(&mut b, addr(A), bye, 1).0;
    assert_eq!(opened, Opened::Dropped(Dropped::Plaintext));
    let mut out = Vec::new();
    a.seal(addr(B), bye, 1, &mut out);
    let sealed = only(out);
    assert_eq!(open(&mut b, addr(A), &sealed, 1).0, Opened::Datagram(bye.to_vec()));
    assert_eq!(open(&mut b, addr(A), &sealed, 1).0, Opened::Dropped(Dropped::Repeated));
    let mut b = door(7);
    assert_eq!(open(&mut b, addr(A), &sealed, 2).0, Opened::Dropped(Dropped::OtherEpoch));
}

#[test]
fn too_many_senders_make_a_new_epoch_and_no_old_datagram_counts() {
    let mut b = door(1);
    let mut first: Option<(DatagramDoor, Vec<u8>)> = None;
    // Each of these is a life of the node at A that sends one datagram.
    for life in 0..SENDERS_MAX as u64 {
        let now = 1_000 * life;
        let mut a = door(10 + life);
        let ask = only(seal(&mut a, addr(B), "x", now));
        let tell = open(&mut b, addr(A), &ask, now).1.remove(0).bytes;
        let sealed = only(open(&mut a, addr(B), &tell, now).1);
        assert!(matches!(open(&mut b, addr(A), &sealed, now).0, Opened::Datagram(_)));
        first.get_or_insert((a, sealed));
    }
    let (epoch, now) = (b.epoch, 1_000 * SENDERS_MAX as u64);
    assert_eq!(b.windows.len(), SENDERS_MAX);
    let mut a = door(9_999_999);
    let ask = only(seal(&mut a, addr(B), "y", now));
    let tell = open(&mut b, addr(A), &ask, now).1.remove(0).bytes;
    let sealed = only(open(&mut a, addr(B), &tell, now).1);
    let (opened, tell) = open(&mut b, addr(A), &sealed, now);
    assert_eq!(opened, Opened::Dropped(Dropped::OtherEpoch));
    assert!(b.epoch != epoch && b.windows.is_empty());
    // The sender learns the new epoch at once.
    open(&mut a, addr(B), &only(tell), now);
    let sealed = only(seal(&mut a, addr(B), "z", now));
    assert_eq!(open(&mut b, addr(A), &sealed, now).0, Opened::Datagram(plain("z")));
    let (_, replay) = first.unwrap();
    let opened = open(&mut b, addr(50), &replay, now).0;
    assert_eq!(opened, Opened::Dropped(Dropped::OtherEpoch));
}

#[test]
fn more_addresses_than_are_remembered_push_out_the_one_not_used_for_longest() {
    let mut a = door(1);
    for number in 1..=peers::PEERS_MAX as u16 + 5 {
        seal(&mut a, addr(number), "x", 0);
    }
    assert_eq!(a.peers.len(), peers::PEERS_MAX);
    assert!(a.peers.get(addr(5)).is_none() && a.peers.get(addr(6)).is_some());
}
