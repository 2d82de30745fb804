//! Links between two nodes, with an attacker between them who can read, change, repeat and invent bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

use distkv_core::membership::NetworkName;
use distkv_core::protocol::frame::split_frame;
use distkv_core::protocol::peer::greeting::{Greeting, Hello, LIMITS};
use distkv_model::ids::{Incarnation, NodeName};
use distkv_secure::key::Key;
use distkv_secure::key_ring::KeyRing;
use distkv_secure::link::{
    AcceptError, Acceptor, DialError, Dialler, Ephemeral, Link, MalformedFrame, RecordError,
    Refusal, SECURED, Suite, Suites,
};
use proptest::prelude::*;

const AES: Suites = Suites::new(true);

fn ring(network: &str, byte: u8) -> KeyRing {
    KeyRing::new(NetworkName::new(network).unwrap(), Key::new([byte; 32]))
}

fn dial(ring: &KeyRing, suites: Suites, suite: Suite) -> (Dialler, Vec<u8>) {
    let mut first = Vec::new();
    let ephemeral = Ephemeral::new([11; 32]);
    (Dialler::new(ring, suites, suite, ephemeral, &mut first).unwrap(), first)
}

fn accept(ring: &KeyRing, suites: Suites, first: &[u8]) -> (Result<Link, AcceptError>, Vec<u8>) {
    let mut answer = Vec::new();
    let mut acceptor = Acceptor::new(suites, Ephemeral::new([12; 32]));
    let link = acceptor.take(ring, first, &mut answer).map(|link| link.expect("a whole frame"));
    (link, answer)
}

/// The links of the dialler and the acceptor.
fn link(suite: Suite) -> (Link, Link) {
    let ring = ring("plant", 1);
    let suites = Suites::new(suite == Suite::AesGcm);
    let (mut dialler, first) = dial(&ring, suites, suite);
    let (accepted, answer) = accept(&ring, suites, &first);
    (dialler.take(&answer).unwrap().unwrap(), accepted.unwrap())
}

fn seal(link: &mut Link, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    link.sealer.seal(plain, &mut out).unwrap();
    out
}

fn open(link: &mut Link, sealed: &[u8]) -> Result<Vec<u8>, RecordError> {
    let mut out = Vec::new();
    let consumed = link.opener.open(sealed, &mut out)?;
    assert_eq!(consumed, sealed.len());
    Ok(out)
}

#[test]
fn two_nodes_with_the_key_link_in_either_suite() {
    for suite in [Suite::AesGcm, Suite::ChaChaPoly] {
        let (mut dialler, mut acceptor) = link(suite);
        assert_eq!((dialler.suite, acceptor.suite), (suite, suite));
        assert!(!acceptor.opener.is_confirmed());
        let sealed = seal(&mut dialler, b"hello");
        assert_eq!(open(&mut acceptor, &sealed).unwrap(), b"hello");
        assert!(acceptor.opener.is_confirmed());
        let sealed = seal(&mut acceptor, b"hello yourself");
        assert_eq!(open(&mut dialler, &sealed).unwrap(), b"hello yourself");
    }
}

#[test]
fn records_may_come_together_with_the_handshake() {
    let ring = ring("plant", 1);
    let (mut dialler, first) = dial(&ring, AES, Suite::AesGcm);
    let (accepted, mut received) = accept(&ring, AES, &first);
    let mut accepted = accepted.unwrap();
    assert_eq!(accepted.consumed, first.len());
    let answer = received.len();
    accepted.sealer.seal(b"at once", &mut received).unwrap();
    let mut link = dialler.take(&received).unwrap().unwrap();
    assert_eq!(link.consumed, answer);
    assert_eq!(open(&mut link, &received[answer..]).unwrap(), b"at once");
}

#[test]
fn any_key_of_the_ring_is_taken() {
    let mut both = ring("plant", 1);
    both.add(Key::new([2; 32])).unwrap();
    for byte in [1, 2] {
        let (mut dialler, first) = dial(&ring("plant", byte), AES, Suite::AesGcm);
        let (accepted, answer) = accept(&both, AES, &first);
        assert_eq!(accepted.unwrap().key, Key::new([byte; 32]).id());
        assert!(dialler.take(&answer).unwrap().is_some());
    }
}

#[test]
fn link_1_a_wrong_key_is_refused_and_the_refusal_names_the_ids() {
    let (theirs, ours) = (ring("plant", 1), ring("plant", 2));
    let (mut dialler, first) = dial(&theirs, AES, Suite::AesGcm);
    let (refused, answer) = accept(&ours, AES, &first);
    assert_eq!(refused.unwrap_err(), AcceptError::UnknownKey(theirs.primary_id()));
    let refusal = Refusal::UnknownKey(vec![ours.primary_id()]);
    assert_eq!(dialler.take(&answer).unwrap_err(), DialError::Refused(refusal));

    // Who claims an id and does not have its secret is refused, too.
    let mut claimed = first;
    let id = claimed.windows(4).position(|w| w == theirs.primary_id().0).unwrap();
    claimed[id..id + 4].copy_from_slice(&ours.primary_id().0);
    let refused = accept(&ours, AES, &claimed).0.unwrap_err();
    assert_eq!(refused, AcceptError::Proof(ours.primary_id()));
    assert_eq!(dialler.take(&answer).unwrap_err(), DialError::Over);
}

#[test]
fn link_2_an_acceptor_without_the_key_is_noticed() {
    let (ours, other) = (ring("plant", 1), ring("plant", 2));
    let (_, first) = dial(&other, AES, Suite::AesGcm);
    let (_, forged) = accept(&other, AES, &first);
    // It answers with a handshake of its own key, and claims ours.
    let (mut dialler, _) = dial(&ours, AES, Suite::AesGcm);
    assert_eq!(dialler.take(&forged).unwrap_err(), DialError::Altered);
    let mut claimed = forged;
    let id = claimed.windows(4).position(|w| w == other.primary_id().0).unwrap();
    claimed[id..id + 4].copy_from_slice(&ours.primary_id().0);
    let (mut dialler, _) = dial(&ours, AES, Suite::AesGcm);
    assert_eq!(dialler.take(&claimed).unwrap_err(), DialError::Proof(ours.primary_id()));
}

fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = Hello {
        versions: (2, 3),
        features: 0,
        network: "plant".into(),
        name: NodeName::new("n1").unwrap(),
        incarnation: Incarnation(1),
        gossip: "127.0.0.1:1".into(),
        client: String::new(),
        ready: false,
        serving_ms: 0,
        may_begin: None,
        limits: LIMITS.to_vec(),
        software: String::new(),
        peers: Vec::new(),
    };
    hello.encode(&mut bytes);
    bytes
}

#[test]
fn link_3_a_plaintext_peer_gets_and_gives_a_clear_error() {
    let ring = ring("plant", 1);
    let (refused, answer) = accept(&ring, AES, &hello());
    assert_eq!(refused.unwrap_err(), AcceptError::Plaintext);
    let frame = split_frame(&answer, 4096).unwrap().unwrap();
    let Greeting::Refusal(refusal) = Greeting::decode(&frame).unwrap() else { panic!() };
    assert!(refusal.text.contains("--key"), "{refusal}");
    // The kind is enough: a plaintext peer that waits for our greeting is told at once.
    assert_eq!(accept(&ring, AES, &hello()[..5]).0.unwrap_err(), AcceptError::Plaintext);
    let (mut dialler, _) = dial(&ring, AES, Suite::AesGcm);
    let error = dialler.take(&hello()).unwrap_err();
    assert_eq!(error, DialError::Plaintext);
    assert!(error.to_string().contains("--key"));
    // What a plaintext node makes of a handshake: a frame, of a kind that it does not know.
    let (_, first) = dial(&ring, AES, Suite::AesGcm);
    assert_eq!(split_frame(&first, 4096).unwrap().unwrap().kind, SECURED);
}

#[test]
fn link_4_a_truncated_handshake_waits_and_a_changed_one_fails() {
    let ring = ring("plant", 1);
    let (_, first) = dial(&ring, AES, Suite::AesGcm);
    let (_, answer) = accept(&ring, AES, &first);
    for cut in 0..first.len() {
        let mut acceptor = Acceptor::new(AES, Ephemeral::new([12; 32]));
        let mut out = Vec::new();
        assert!(acceptor.take(&ring, &first[..cut], &mut out).unwrap().is_none(), "{cut}");
        assert!(out.is_empty());
        assert!(acceptor.take(&ring, &first, &mut out).unwrap().is_some());
    }
    for cut in 0..answer.len() {
        let (mut dialler, _) = dial(&ring, AES, Suite::AesGcm);
        assert!(dialler.take(&answer[..cut]).unwrap().is_none(), "{cut}");
        assert!(dialler.take(&answer).unwrap().is_some());
    }
    for bit in 0..8 * first.len() {
        let mut changed = first.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let mut acceptor = Acceptor::new(AES, Ephemeral::new([12; 32]));
        // A longer frame waits for more; everything else is refused.
        let taken = acceptor.take(&ring, &changed, &mut Vec::new());
        assert!(matches!(taken, Err(_) | Ok(None)), "bit {bit} of the first message");
    }
    for bit in 0..8 * answer.len() {
        let mut changed = answer.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (mut dialler, _) = dial(&ring, AES, Suite::AesGcm);
        let taken = dialler.take(&changed);
        assert!(matches!(taken, Err(_) | Ok(None)), "bit {bit} of the answer");
    }
}

#[test]
fn link_4_changed_repeated_left_out_and_reordered_records_end_the_link() {
    for suite in [Suite::AesGcm, Suite::ChaChaPoly] {
        let sealed = |count: u8| -> (Link, Vec<Vec<u8>>) {
            let (mut dialler, acceptor) = link(suite);
            (acceptor, (0..count).map(|n| seal(&mut dialler, &[n; 9])).collect())
        };
        let (_, records) = sealed(1);
        // But for the length, whose records wait for more, or are cut short.
        for bit in 16..8 * records[0].len() {
            let (mut acceptor, records) = sealed(1);
            let mut changed = records[0].clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&mut acceptor, &changed), Err(RecordError::Damaged), "bit {bit}");
        }
        for order in [&[0, 0][..], &[1], &[1, 0], &[0, 2], &[0, 1, 0], &[0, 1, 1]] {
            let (mut acceptor, records) = sealed(3);
            let (last, before) = order.split_last().unwrap();
            let all_before: Vec<_> =
                before.iter().map(|at| open(&mut acceptor, &records[*at])).collect();
            let is_wrong = open(&mut acceptor, &records[*last]).is_err();
            assert!(is_wrong || all_before.iter().any(Result::is_err), "{order:?}");
            assert_eq!(open(&mut acceptor, &records[0]), Err(RecordError::Over));
        }
        // A record of a shorter length, and one that is sent back to its sender.
        let (mut acceptor, records) = sealed(1);
        let mut cut = records[0].clone();
        cut[1] -= 1;
        cut.pop();
        assert_eq!(open(&mut acceptor, &cut), Err(RecordError::Damaged));
        let (mut dialler, _) = link(suite);
        let own = seal(&mut dialler, b"mirrored");
        assert_eq!(open(&mut dialler, &own), Err(RecordError::Damaged));
    }
}

#[test]
fn link_5_who_replays_a_first_message_can_neither_read_nor_write() {
    let ring = ring("plant", 1);
    let (mut dialler, first) = dial(&ring, AES, Suite::AesGcm);
    let (_, answer) = accept(&ring, AES, &first);
    let mut old = dialler.take(&answer).unwrap().unwrap();
    let recorded = seal(&mut old, b"pay 5");
    // The replay is answered with another ephemeral key.
    let mut acceptor = Acceptor::new(AES, Ephemeral::new([99; 32]));
    let mut other_answer = Vec::new();
    let mut replayed = acceptor.take(&ring, &first, &mut other_answer).unwrap().unwrap();
    assert_ne!(answer, other_answer);
    assert!(!replayed.opener.is_confirmed());
    let told = seal(&mut replayed, b"a secret");
    assert_eq!(open(&mut replayed, &recorded), Err(RecordError::Damaged));
    assert!(!replayed.opener.is_confirmed(), "it stays half-open");
    assert_eq!(open(&mut old, &told), Err(RecordError::Damaged));
}

#[test]
fn link_6_a_forged_refusal_ends_one_dial_and_is_only_a_hint() {
    let (theirs, ours) = (ring("plant", 1), ring("plant", 2));
    let (_, first) = dial(&theirs, AES, Suite::AesGcm);
    let forged = accept(&ours, AES, &first).1;
    let before = theirs.clone();
    let (mut dialler, _) = dial(&theirs, AES, Suite::AesGcm);
    let Err(DialError::Refused(refusal)) = dialler.take(&forged) else { panic!() };
    assert_eq!(refusal, Refusal::UnknownKey(vec![ours.primary_id()]));
    assert_eq!(AES.after(&refusal), Suite::AesGcm);
    assert_eq!(theirs, before);
    // The next dial is as good as if nothing had been.
    let (mut dialler, first) = dial(&theirs, AES, AES.after(&refusal));
    let (accepted, answer) = accept(&theirs, AES, &first);
    assert!(accepted.is_ok() && dialler.take(&answer).unwrap().is_some());
    // A refusal where a first message belongs is not answered.
    let (refused, answer) = accept(&theirs, AES, &forged);
    assert_eq!((refused.unwrap_err(), answer), (AcceptError::Refusal, Vec::new()));
}

#[test]
fn link_7_who_has_no_aes_hardware_refuses_aes_and_is_dialled_with_the_other_suite() {
    let (ring, plain) = (ring("plant", 1), Suites::new(false));
    let (mut dialler, first) = dial(&ring, AES, AES.preferred());
    let (refused, answer) = accept(&ring, plain, &first);
    assert_eq!(refused.unwrap_err(), AcceptError::Suite);
    let Err(DialError::Refused(refusal)) = dialler.take(&answer) else { panic!() };
    let (mut dialler, first) = dial(&ring, AES, AES.after(&refusal));
    let (accepted, answer) = accept(&ring, plain, &first);
    assert_eq!(accepted.unwrap().suite, Suite::ChaChaPoly);
    assert_eq!(dialler.take(&answer).unwrap().unwrap().suite, Suite::ChaChaPoly);
    // The other way round: a dialler without dials with the suite that everybody takes.
    let (mut dialler, first) = dial(&ring, plain, plain.preferred());
    let (accepted, answer) = accept(&ring, AES, &first);
    assert_eq!(accepted.unwrap().suite, Suite::ChaChaPoly);
    assert!(dialler.take(&answer).unwrap().is_some());
}

#[test]
fn link_7_a_downgrade_by_a_forged_refusal_or_a_changed_field_is_noticed() {
    let ring = ring("plant", 1);
    // The attacker forges "no AES" to the first dial; the second one finds out.
    let (mut dialler, first) = dial(&ring, AES, AES.after(&Refusal::Suite));
    let (accepted, answer) = accept(&ring, AES, &first);
    assert!(accepted.is_ok());
    assert_eq!(dialler.take(&answer).unwrap_err(), DialError::Downgrade);
    // Or changes the suite's number in the first message.
    let (_, mut first) = dial(&ring, AES, Suite::AesGcm);
    assert_eq!(first[7], 1, "the suite");
    first[7] = 2;
    let (refused, _) = accept(&ring, AES, &first);
    assert_eq!(refused.unwrap_err(), AcceptError::Proof(ring.primary_id()));
    // Or invents one.
    first[7] = 3;
    let (refused, _) = accept(&ring, AES, &first);
    let field = AcceptError::Malformed(MalformedFrame::Field("suite"));
    assert_eq!(refused.unwrap_err(), field);
}

#[test]
fn link_8_another_network_with_the_same_key_is_refused() {
    let (one, other) = (ring("plant", 1), ring("office", 1));
    let (mut dialler, first) = dial(&one, AES, Suite::AesGcm);
    let (refused, answer) = accept(&other, AES, &first);
    assert_eq!(refused.unwrap_err(), AcceptError::Proof(one.primary_id()));
    let error = dialler.take(&answer).unwrap_err();
    assert_eq!(error, DialError::Refused(Refusal::Proof));
    assert!(error.to_string().contains("network"), "{error}");
}

#[test]
fn link_11_frames_of_5_mib_pass() {
    let (mut dialler, mut acceptor) = link(Suite::AesGcm);
    let frame: Vec<u8> = (0..(5 << 20) + 5).map(|at: u32| (at % 251) as u8).collect();
    let sealed = seal(&mut dialler, &frame);
    assert!(open(&mut acceptor, &sealed).unwrap() == frame);
}

#[test]
fn link_12_a_link_goes_on_behind_a_rekey() {
    let (mut dialler, mut acceptor) = link(Suite::AesGcm);
    let (mut sealed, mut opened) = (Vec::new(), Vec::new());
    for number in 0..(1_u32 << 20) + 3 {
        sealed.clear();
        opened.clear();
        dialler.sealer.seal(&number.to_be_bytes(), &mut sealed).unwrap();
        assert_eq!(acceptor.opener.open(&sealed, &mut opened), Ok(sealed.len()));
        assert_eq!(opened, number.to_be_bytes());
    }
}

#[test]
fn strangers_and_other_versions_are_told_apart() {
    let ring = ring("plant", 1);
    let error = accept(&ring, AES, b"GET / HTTP/1.1\r\n\r\n").0.unwrap_err();
    assert!(matches!(error, AcceptError::Malformed(MalformedFrame::Frame(_))), "{error}");
    let error = accept(&ring, AES, &[0, 0, 0, 1, 9]).0.unwrap_err();
    assert_eq!(error, AcceptError::Malformed(MalformedFrame::Kind(9)));
    let (_, mut first) = dial(&ring, AES, Suite::AesGcm);
    assert_eq!(first[6], 1, "the version");
    first[6] = 2;
    let (refused, answer) = accept(&ring, AES, &first);
    assert_eq!(refused.unwrap_err(), AcceptError::Version(2));
    let (mut dialler, _) = dial(&ring, AES, Suite::AesGcm);
    assert_eq!(dialler.take(&answer).unwrap_err(), DialError::Refused(Refusal::Version));
    // Nothing above the limit is waited for.
    let error = accept(&ring, AES, &[0, 0, 0x10, 2, SECURED]).0.unwrap_err();
    assert!(matches!(error, AcceptError::Malformed(MalformedFrame::Frame(_))), "{error}");
}

proptest! {
    /// A handshake as it should be, with some bytes replaced, cut or put behind.
    #[test]
    fn no_bytes_of_a_stranger_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        behind in prop::collection::vec(any::<u8>(), 0..40),
        is_raw in any::<bool>(),
    ) {
        let ring = ring("plant", 1);
        let (mut dialler, first) = dial(&ring, AES, Suite::AesGcm);
        let (_, answer) = accept(&ring, AES, &first);
        let change = |mut bytes: Vec<u8>| {
            if is_raw {
                bytes.clear();
            } else {
                for (at, byte) in &changes {
                    *at.get_mut(&mut bytes) = *byte;
                }
                bytes.truncate(cut.index(2 * bytes.len()));
            }
            bytes.extend_from_slice(&behind);
            bytes
        };
        let mut acceptor = Acceptor::new(AES, Ephemeral::new([12; 32]));
        let mut out = Vec::new();
        if let Ok(Some(link)) = acceptor.take(&ring, &change(first.clone()), &mut out) {
            prop_assert!(link.consumed == first.len());
        }
        prop_assert!(out.len() < 200);
        let _ = dialler.take(&change(answer));
        let (mut sender, mut receiver) = link(Suite::ChaChaPoly);
        let sealed = seal(&mut sender, b"some content");
        let mut opened = Vec::new();
        let _ = receiver.opener.open(&change(sealed), &mut opened);
        prop_assert!(opened.is_empty() || opened == b"some content");
    }
}
