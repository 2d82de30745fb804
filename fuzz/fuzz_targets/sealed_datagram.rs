//! Whatever arrives at a door: it must be opened once or dropped, and answers must be few and short.
#![no_main]

use distkv_secure::datagram::{DatagramDoor, Opened};
use distkv_secure::key::Key;
use distkv_secure::key_ring::KeyRing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let network = distkv_core::membership::NetworkName::new("plant").expect("a valid name");
    let ring = KeyRing::new(network, Key::new([1; 32]));
    let (mut one, mut other) = (DatagramDoor::new(&ring, || 1), DatagramDoor::new(&ring, || 2));
    let (a, b) =
        ("10.0.0.1:1".parse().expect("an address"), "10.0.0.1:2".parse().expect("an address"));
    let (mut there, mut back, mut now, mut taken, mut sealed) = (Vec::new(), Vec::new(), 0, 0, 0);
    // The first byte of each piece: how long it is, whether it is sealed first, and what is changed.
    let mut rest = data;
    while let Some((head, tail)) = rest.split_first() {
        let (piece, after) = tail.split_at(usize::from(head & 63).min(tail.len()));
        rest = after;
        now += u64::from(*head);
        if head & 64 == 0 {
            other.open(a, piece, now, &mut back);
        } else {
            let plain = [b"dkvS\x01\x00\x01\x05plant", piece].concat();
            one.seal(b, &plain, now, &mut there);
            sealed += 1;
        }
        for mut datagram in there.drain(..) {
            if head & 128 != 0 {
                let at = usize::from(*head) % datagram.bytes.len();
                datagram.bytes[at] ^= 1;
            }
            for _ in 0..2 {
                let opened = other.open(a, &datagram.bytes, now, &mut back);
                taken += usize::from(matches!(opened, Opened::Datagram(_)));
            }
        }
        assert!(back.len() <= 8, "one answer each");
        for datagram in back.drain(..) {
            one.open(b, &datagram.bytes, now, &mut there);
        }
        assert!(taken <= sealed);
    }
});
