//! Whatever comes before a TLS session stands, at a node's port or as a node's answer: it must not become a
//! session, and what is kept of it is bounded.
#![no_main]

use std::sync::OnceLock;

use distkv_tls::server::ClientRoots;
use distkv_tls::{Ca, Channel, ClientTls, Clock, ServerTls, Ticket, Trust};
use libfuzzer_sys::fuzz_target;

/// 2027-01-15.
const NOW: u64 = 1_800_000_000;
/// What a channel that does not stand yet may have taken; a message of the handshake is at most 64 KiB.
const KEPT_MAX: usize = 256 * 1_024;

fn sides() -> &'static (ServerTls, ClientTls) {
    static SIDES: OnceLock<(ServerTls, ClientTls)> = OnceLock::new();
    SIDES.get_or_init(|| {
        let clock = || Clock::new(|| NOW);
        let ca = Ca::make("plant", NOW).expect("a CA");
        let identity = ca.issue_node(&["n1"], NOW).expect("a certificate");
        let roots = ClientRoots::none().with_ca(&ca).expect("a root");
        let server = ServerTls::new(&identity, &roots, clock()).expect("a node's side");
        let client = ClientTls::new(Trust::hash(ca.hash()), None, clock()).expect("a client's side");
        (server, client)
    })
}

fn feed(channel: &mut Channel, mut bytes: &[u8]) {
    while let Ok(taken) = channel.feed(bytes) {
        bytes = &bytes[taken..];
        if taken == 0 || bytes.is_empty() {
            break;
        }
    }
    assert!(!channel.is_open());
    assert!(channel.plaintext().is_empty());
    assert!(channel.capacity() <= KEPT_MAX, "{}", channel.capacity());
}

fuzz_target!(|data: &[u8]| {
    let (server, client) = sides();
    let Some((head, tail)) = data.split_first() else { return };
    // Either as it is, or behind the start of a real first message, or of a real answer to one.
    let mut asks = client.connect("n1").expect("a channel");
    let hello = asks.outgoing().to_vec();
    let keep = usize::from(*head) * hello.len() / 256;
    let input = [&hello[..keep], tail].concat();
    feed(&mut server.accept().expect("a channel"), &input);

    let mut answers = server.accept().expect("a channel");
    answers.feed(&hello).expect("a real first message");
    let answer = answers.outgoing().to_vec();
    let keep = usize::from(*head) * answer.len() / 256;
    feed(&mut asks, &[&answer[..keep], tail].concat());

    let _ = String::from_utf8_lossy(data).parse::<Ticket>();
});
