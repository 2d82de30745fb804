//! Handshakes, records and datagrams with fixed keys, byte by byte: `tests/vectors/*.txt` is what any
//! other implementation must make of the same keys. A change of these files is a change of the protocol.
//!
//! `DISTKV_WRITE_VECTORS=1 cargo test -p distkv-secure --test vectors` rewrites them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::format_collect,
    reason = "these are tests"
)]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use distkv_core::membership::NetworkName;
use distkv_secure::datagram::{DatagramDoor, Opened, Outgoing};
use distkv_secure::key::{Key, Purpose};
use distkv_secure::key_file::KeyFile;
use distkv_secure::key_ring::KeyRing;
use distkv_secure::link::{Acceptor, Dialler, Ephemeral, Refusal, Suite, Suites};

/// A text of named bytes.
struct Vector(String);

impl Vector {
    fn new(about: &str) -> Self {
        Self(format!("# {about}\n"))
    }

    fn say(&mut self, comment: &str) {
        writeln!(self.0, "\n# {comment}").unwrap();
    }

    fn add(&mut self, name: &str, bytes: &[u8]) {
        let hex: Vec<String> = bytes
            .chunks(32)
            .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        writeln!(self.0, "{name} {}", hex.join("\n    ")).unwrap();
    }

    fn compare(self, name: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
        if std::env::var_os("DISTKV_WRITE_VECTORS").is_some() {
            std::fs::write(&file, &self.0).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap();
        assert_eq!(self.0, expected, "{name}");
    }
}

fn key(first: u8) -> Key {
    Key::new(std::array::from_fn(|at| first + at as u8))
}

fn ring(first: u8) -> KeyRing {
    KeyRing::new(NetworkName::new("plant").unwrap(), key(first))
}

#[test]
fn keys() {
    let mut vector =
        Vector::new("A cluster key, its id, and the keys derived from it (HKDF-SHA-256).");
    let key = key(0);
    vector.add("secret", key.secret());
    vector.add("id", &key.id().0);
    vector.add("link_1", &*key.derive(Purpose::Link));
    vector.add("datagram_1", &*key.derive(Purpose::Datagram));
    vector.add("admin_login_1", &*key.derive(Purpose::AdminLogin));
    vector.say("The key file of that key, as text.");
    let file = KeyFile { ring: ring(0), ca: None };
    let text = file.to_text();
    vector.add("key_file", text.as_bytes());
    assert_eq!(KeyFile::parse(&text), Ok(file));
    vector.compare("keys.txt");
}

#[test]
fn handshakes_and_records() {
    for (suite, name) in [(Suite::AesGcm, "aesgcm"), (Suite::ChaChaPoly, "chachapoly")] {
        let about = format!(
            "A link of network `plant` with Noise_NNpsk0_25519_…_SHA256, suite {name}: frames and records."
        );
        let mut vector = Vector::new(&about);
        let suites = Suites::new(suite == Suite::AesGcm);
        let (ring, secret) = (ring(0), |first: u8| std::array::from_fn(|at| first + at as u8));
        vector.add("secret", ring.primary().secret());
        vector.add("dialler_ephemeral", &secret(0x40));
        vector.add("acceptor_ephemeral", &secret(0x80));
        let (mut first, mut answer) = (Vec::new(), Vec::new());
        let ephemeral = Ephemeral::new(secret(0x40));
        let mut dialler = Dialler::new(&ring, suites, suite, ephemeral, &mut first).unwrap();
        let mut acceptor = Acceptor::new(suites, Ephemeral::new(secret(0x80)));
        let mut accepted = acceptor.take(&ring, &first, &mut answer).unwrap().unwrap();
        let mut dialled = dialler.take(&answer).unwrap().unwrap();
        vector.say("Frames: u32 length, kind 0x46, [1, suite, key id, noise].");
        vector.add("dialler_says", &first);
        vector.add("acceptor_says", &answer);
        vector.say("Records: u16 length, sealed. The contents are \"ping\" and \"pong\", twice.");
        for _ in 0..2 {
            let (mut ping, mut pong, mut opened) = (Vec::new(), Vec::new(), Vec::new());
            dialled.sealer.seal(b"ping", &mut ping).unwrap();
            accepted.sealer.seal(b"pong", &mut pong).unwrap();
            vector.add("dialler_says", &ping);
            vector.add("acceptor_says", &pong);
            accepted.opener.open(&ping, &mut opened).unwrap();
            dialled.opener.open(&pong, &mut opened).unwrap();
            assert_eq!(opened, b"pingpong");
        }
        vector.say(
            "Record 1,048,576, the first one behind a rekey; those before it had one byte each.",
        );
        let (mut sealed, mut opened) = (Vec::new(), Vec::new());
        for number in 2..1 << 20 {
            sealed.clear();
            dialled.sealer.seal(&[number as u8], &mut sealed).unwrap();
            accepted.opener.open(&sealed, &mut opened).unwrap();
        }
        sealed.clear();
        dialled.sealer.seal(b"ping", &mut sealed).unwrap();
        vector.add("dialler_says", &sealed);
        accepted.opener.open(&sealed, &mut opened).unwrap();
        assert!(opened.ends_with(b"ping"));
        vector.compare(&format!("link_{name}.txt"));
    }
}

#[test]
fn refusals() {
    let mut vector =
        Vector::new("What acceptors answer instead: [1, 0, code, details]. Not authenticated.");
    let refusal = |ring: &KeyRing, suites: Suites, first: &[u8]| {
        let mut answer = Vec::new();
        let mut acceptor = Acceptor::new(suites, Ephemeral::new([2; 32]));
        acceptor.take(ring, first, &mut answer).unwrap_err();
        answer
    };
    let mut first = Vec::new();
    let (aes, ephemeral) = (Suites::new(true), Ephemeral::new([1; 32]));
    Dialler::new(&ring(0), aes, Suite::AesGcm, ephemeral, &mut first).unwrap();
    vector.say("Code 1: the key is unknown; the ids of those that the acceptor has.");
    let mut two = ring(1);
    two.add(key(2)).unwrap();
    vector.add("acceptor_says", &refusal(&two, aes, &first));
    vector.say("Code 2: the key is known, the rest does not fit.");
    let office = KeyRing::new(NetworkName::new("office").unwrap(), key(0));
    vector.add("acceptor_says", &refusal(&office, aes, &first));
    vector.say("Code 3: no AES hardware.");
    vector.add("acceptor_says", &refusal(&ring(0), Suites::new(false), &first));
    vector.say("Code 4: the version is unknown.");
    first[6] = 9;
    vector.add("acceptor_says", &refusal(&ring(0), aes, &first));
    assert_eq!(aes.after(&Refusal::Suite), Suite::ChaChaPoly);
    vector.compare("refusals.txt");
}

#[test]
fn datagrams() {
    let mut vector = Vector::new(
        "Two nodes of network `plant` whose epochs are 0x1111111111111111 (a) and 0x2222222222222222 (b).",
    );
    let (a, b): (SocketAddr, SocketAddr) = (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 1], 2).into());
    let mut door_a = DatagramDoor::new(&ring(0), || 0x1111_1111_1111_1111);
    let mut door_b = DatagramDoor::new(&ring(0), || 0x2222_2222_2222_2222);
    vector.add("secret", key(0).secret());
    let plain = b"dkvS\x01\x00\x01\x05plantbody";
    vector.say("What a sends to b, in plaintext: head, kind 1, network, body.");
    vector.add("plaintext", plain);
    let mut out = Vec::new();
    let mut only = |out: &mut Vec<Outgoing>, name: &str, comment: &str| {
        assert_eq!(out.len(), 1);
        let bytes = out.remove(0).bytes;
        vector.say(comment);
        vector.add(name, &bytes);
        bytes
    };
    door_a.seal(b, plain, 0, &mut out);
    let ask = only(
        &mut out,
        "a_says",
        "`ask`: receiver's epoch 0, counter 1; content 0x80, network, 8 zeros.",
    );
    door_b.open(a, &ask, 0, &mut out);
    let tell = only(&mut out, "b_says", "`tell`: content 0x81, network, the counter of the `ask`.");
    door_a.open(b, &tell, 0, &mut out);
    let sealed = only(&mut out, "a_says", "What waited, counter 2.");
    assert_eq!(door_b.open(a, &sealed, 0, &mut out), Opened::Datagram(plain.to_vec()));
    door_b.seal(a, plain, 0, &mut out);
    let back = only(&mut out, "b_says", "The same back: b has learnt the epoch of a.");
    assert_eq!(door_a.open(b, &back, 0, &mut out), Opened::Datagram(plain.to_vec()));
    vector.compare("datagrams.txt");
}
