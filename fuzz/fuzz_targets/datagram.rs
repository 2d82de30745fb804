//! Whatever arrives in a datagram: it must be taken in or dropped, and the member list must
//! stay bounded.
#![no_main]

use distkv_core::membership::{Identity, NetworkName, Swim, SwimConfig, SwimInput};
use distkv_model::ids::{Incarnation, NodeName};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let network = NetworkName::new("distkv").expect("a valid name");
    let addr = "127.0.0.1:1000".parse().expect("an address");
    let name = NodeName::new("me").expect("a valid name");
    let identity = Identity::new(addr, name, Incarnation(7));
    let mut swim = Swim::new(SwimConfig::lan(network), identity, 1).expect("a good identity");
    let mut out = Vec::new();
    let mut now = 0;
    // The first byte of each piece says how long it is and how long to wait before it.
    let mut rest = data;
    while let Some((head, tail)) = rest.split_first() {
        let (piece, after) = tail.split_at(usize::from(*head).min(tail.len()));
        rest = after;
        let from = "127.0.0.1:1001".parse().expect("an address");
        swim.handle(SwimInput::Datagram { from, bytes: piece }, now, &mut out);
        now += u64::from(*head) * 10;
        swim.handle(SwimInput::Tick, now, &mut out);
        out.clear();
    }
});
