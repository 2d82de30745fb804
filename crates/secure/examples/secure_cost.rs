//! What sealing costs on this machine: `cargo run --release -p distkv-secure --example secure_cost`.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a measurement, which reads the clock"
)]

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Instant;

use distkv_core::membership::NetworkName;
use distkv_secure::datagram::{DatagramDoor, Opened};
use distkv_secure::key::Key;
use distkv_secure::key_ring::KeyRing;
use distkv_secure::link::{Acceptor, Dialler, Ephemeral, Link, Suite, Suites};

/// µs that one call takes, on average.
fn micros(calls: u32, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}

fn link(ring: &KeyRing, suites: Suites, suite: Suite) -> (Link, Link) {
    let (mut first, mut answer) = (Vec::new(), Vec::new());
    // Fixed keys: nothing secret is sent here.
    let mut dialler =
        Dialler::new(ring, suites, suite, Ephemeral::new([1; 32]), &mut first).unwrap();
    let mut acceptor = Acceptor::new(suites, Ephemeral::new([2; 32]));
    let accepted = acceptor.take(ring, &first, &mut answer).unwrap().unwrap();
    (dialler.take(&answer).unwrap().unwrap(), accepted)
}

fn main() {
    let ring = KeyRing::new(NetworkName::new("plant").unwrap(), Key::new([7; 32]));
    println!("AES hardware: {}", Suites::of_this_machine().takes(Suite::AesGcm));
    for suite in [Suite::AesGcm, Suite::ChaChaPoly] {
        let suites = Suites::new(suite == Suite::AesGcm);
        let time = micros(2_000, || {
            black_box(link(&ring, suites, suite));
        });
        println!("{suite:?}: handshake, both sides {time:.0} µs");
        for length in [200, 64 << 10] {
            let calls = if length > 1_000 { 20_000 } else { 500_000 };
            let (mut dialler, mut acceptor) = link(&ring, suites, suite);
            let (plain, mut sealed, mut opened) = (vec![5; length], Vec::new(), Vec::new());
            let seal = micros(calls, || {
                sealed.clear();
                dialler.sealer.seal(black_box(&plain), &mut sealed).unwrap();
            });
            let (mut dialler, _) = link(&ring, suites, suite);
            let both = micros(calls, || {
                sealed.clear();
                opened.clear();
                dialler.sealer.seal(black_box(&plain), &mut sealed).unwrap();
                acceptor.opener.open(&sealed, &mut opened).unwrap();
            });
            println!("{suite:?}: {length} bytes: seal {seal:.2} µs, open {:.2} µs", both - seal);
        }
    }
    datagrams(&ring);
}

fn datagrams(ring: &KeyRing) {
    let (a, b): (SocketAddr, SocketAddr) = (([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into());
    let (mut one, mut other) = (DatagramDoor::new(ring, || 1), DatagramDoor::new(ring, || 2));
    let plain = [b"dkvS\x01\x00\x01\x05plant".as_slice(), &[5; 187]].concat();
    let (mut there, mut back) = (Vec::new(), Vec::new());
    one.seal(b, &plain, 0, &mut there);
    // `ask`, `tell`, and what waited.
    other.open(a, &there[0].bytes, 0, &mut back);
    there.clear();
    one.open(b, &back[0].bytes, 0, &mut there);
    let seal = micros(200_000, || {
        there.clear();
        one.seal(b, black_box(&plain), 0, &mut there);
    });
    let both = micros(200_000, || {
        there.clear();
        one.seal(b, black_box(&plain), 0, &mut there);
        let opened = other.open(a, &there[0].bytes, 0, &mut back);
        assert!(matches!(opened, Opened::Datagram(_)));
    });
    println!("datagram of 200 bytes: seal {seal:.2} µs, open {:.2} µs", both - seal);
    let replay = there[0].bytes.clone();
    let dropped = micros(200_000, || {
        other.open(a, black_box(&replay), 0, &mut back);
    });
    println!("datagram of 200 bytes: a replay is dropped in {dropped:.2} µs");
}
