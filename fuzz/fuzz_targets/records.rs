//! Whatever comes over a sealed link: only what was sealed, in order, may be opened.
#![no_main]

use distkv_secure::key::Key;
use distkv_secure::key_ring::KeyRing;
use distkv_secure::link::{Acceptor, Dialler, Ephemeral, Suite, Suites};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let network = distkv_core::membership::NetworkName::new("plant").expect("a valid name");
    let ring = KeyRing::new(network, Key::new([1; 32]));
    let (suites, mut first, mut answer) = (Suites::new(true), Vec::new(), Vec::new());
    let mut dialler =
        Dialler::new(&ring, suites, Suite::AesGcm, Ephemeral::new([2; 32]), &mut first)
            .expect("a dial");
    let mut acceptor = Acceptor::new(suites, Ephemeral::new([3; 32]));
    let mut accepted = acceptor.take(&ring, &first, &mut answer).expect("taken").expect("whole");
    let mut dialled = dialler.take(&answer).expect("taken").expect("whole");
    // Each piece is sealed; its first byte says which bit is changed, if any, and where the input is cut.
    let (mut input, mut sent, mut opened) = (Vec::new(), Vec::new(), Vec::new());
    for piece in data.chunks(37) {
        let (head, content) = piece.split_first().unwrap_or((&0, &[]));
        let start = input.len();
        dialled.sealer.seal(content, &mut input).expect("sealed");
        sent.extend_from_slice(content);
        let at = start + usize::from(*head >> 3);
        if head & 1 == 1 && at < input.len() {
            input[at] ^= 2 << (head & 6);
        }
        let cut = input.len() - usize::from(head & 7).min(input.len());
        let Ok(consumed) = accepted.opener.open(&input[..cut], &mut opened) else { break };
        input.drain(..consumed);
    }
    assert!(sent.starts_with(&opened));
});
