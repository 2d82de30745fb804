//! Against snow itself: its handshake with ours, and its records with ours, also behind a rekey.

use distkv_core::membership::NetworkName;
use snow::{Builder, StatelessTransportState};

use super::clear::{Clear, First, read_first};
use super::*;
use crate::key::{Key, Purpose};
use crate::key_ring::KeyRing;

const REKEY: u64 = 1 << 20;

fn ring() -> KeyRing {
    KeyRing::new(NetworkName::new("plant").unwrap(), Key::new([1; 32]))
}

fn builder_params(suite: Suite) -> &'static str {
    match suite {
        Suite::AesGcm => "Noise_NNpsk0_25519_AESGCM_SHA256",
        Suite::ChaChaPoly => "Noise_NNpsk0_25519_ChaChaPoly_SHA256",
    }
}

fn noise_of(frame: &[u8]) -> &[u8] {
    match read_first(frame) {
        Ok(First::Handshake { noise, .. }) => noise,
        other => panic!("{other:?}"),
    }
}

/// A link whose one side is snow alone: ours dials, or accepts.
fn with_snow(suite: Suite, we_dial: bool) -> (Link, StatelessTransportState) {
    let ring = ring();
    let clear = Clear { suite, key: ring.primary_id() };
    let (psk, prologue) = (ring.primary().derive(Purpose::Link), clear.prologue("plant"));
    let builder = Builder::new(builder_params(suite).parse().unwrap());
    let builder = builder.psk(0, &psk).unwrap().prologue(&prologue).unwrap();
    let (suites, ephemeral) = (Suites::new(suite == Suite::AesGcm), Ephemeral::new([3; 32]));
    let mut message = [0; 200];
    let mut payload = [0; 200];
    let (mut theirs, mut frame) = (Vec::new(), Vec::new());
    if we_dial {
        let mut snow = builder.build_responder().unwrap();
        let mut dialler = Dialler::new(&ring, suites, suite, ephemeral, &mut frame).unwrap();
        snow.read_message(noise_of(&frame), &mut payload).unwrap();
        let length = snow.write_message(&[0b10], &mut message).unwrap();
        clear.encode(&message[..length], &mut theirs);
        let link = dialler.take(&theirs).unwrap().unwrap();
        (link, snow.into_stateless_transport_mode().unwrap())
    } else {
        let mut snow = builder.build_initiator().unwrap();
        let length = snow.write_message(&[0b11], &mut message).unwrap();
        clear.encode(&message[..length], &mut theirs);
        let mut acceptor = Acceptor::new(suites, ephemeral);
        let link = acceptor.take(&ring, &theirs, &mut frame).unwrap().unwrap();
        snow.read_message(noise_of(&frame), &mut payload).unwrap();
        (link, snow.into_stateless_transport_mode().unwrap())
    }
}

#[test]
fn records_are_those_of_snow_in_both_directions_and_behind_rekeys() {
    for suite in Suite::ALL {
        for we_dial in [true, false] {
            let (mut link, mut snow) = with_snow(suite, we_dial);
            let numbers = [0, 1, REKEY - 1, REKEY, REKEY + 1, 2 * REKEY - 1, 2 * REKEY];
            for number in numbers {
                // Behind a rekey, numbers go on.
                for half in [&mut link.sealer.direction, &mut link.opener.direction] {
                    half.number = number;
                }
                if number > 0 && number % REKEY == 0 {
                    snow.rekey_outgoing();
                    snow.rekey_incoming();
                }
                let mut sealed = Vec::new();
                link.sealer.seal(b"to snow", &mut sealed).unwrap();
                let mut buffer = [0; 100];
                let length = snow.read_message(number, &sealed[2..], &mut buffer).unwrap();
                assert_eq!(&buffer[..length], b"to snow");

                let length = snow.write_message(number, b"from snow", &mut buffer).unwrap();
                let mut record = (length as u16).to_be_bytes().to_vec();
                record.extend_from_slice(&buffer[..length]);
                let mut opened = Vec::new();
                assert_eq!(link.opener.open(&record, &mut opened), Ok(record.len()));
                assert_eq!(opened, b"from snow");
            }
        }
    }
}

#[test]
fn snow_with_another_prologue_does_not_get_in() {
    let ring = ring();
    let clear = Clear { suite: Suite::AesGcm, key: ring.primary_id() };
    let psk = ring.primary().derive(Purpose::Link);
    let builder = Builder::new(builder_params(Suite::AesGcm).parse().unwrap());
    let mut snow = builder.psk(0, &psk).unwrap().build_initiator().unwrap();
    let mut message = [0; 200];
    let length = snow.write_message(&[0b11], &mut message).unwrap();
    let (mut frame, mut out) = (Vec::new(), Vec::new());
    clear.encode(&message[..length], &mut frame);
    let mut acceptor = Acceptor::new(Suites::new(true), Ephemeral::new([3; 32]));
    let refused = acceptor.take(&ring, &frame, &mut out).map(|_| ());
    assert_eq!(refused, Err(AcceptError::Proof(clear.key)));
}
