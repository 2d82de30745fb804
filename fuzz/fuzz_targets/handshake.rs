//! Whatever a stranger says first, or answers: it must not become a link.
#![no_main]

use distkv_secure::key::Key;
use distkv_secure::key_ring::KeyRing;
use distkv_secure::link::{Acceptor, Dialler, Ephemeral, Suite, Suites};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let network = distkv_core::membership::NetworkName::new("plant").expect("a valid name");
    let ring = KeyRing::new(network, Key::new([1; 32]));
    let (suites, mut out) = (Suites::new(true), Vec::new());
    let mut dialler = Dialler::new(&ring, suites, Suite::AesGcm, Ephemeral::new([2; 32]), &mut out)
        .expect("a dial");
    // Either as it is, or behind the start of a real first message, so that the fields are reached.
    let (head, tail) = data.split_first().unwrap_or((&0, &[]));
    let keep = usize::from(*head).min(out.len() - 1);
    let mut input = out[..keep].to_vec();
    input.extend_from_slice(tail);
    let is_genuine = input.starts_with(&out);
    assert!(!matches!(dialler.take(&input), Ok(Some(_))));
    let mut acceptor = Acceptor::new(suites, Ephemeral::new([3; 32]));
    let mut answer = Vec::new();
    let taken = acceptor.take(&ring, &input, &mut answer);
    assert!(is_genuine || !matches!(taken, Ok(Some(_))));
    assert!(answer.len() < 256);
});
