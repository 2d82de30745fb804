//! What a stranger may send, and what becomes of it.

use proptest::prelude::*;

use super::*;
use crate::pem;

/// A ClientHello of TLS 1.2, as clients sent it before 1.3: no extension names another version.
fn hello_of_1_2() -> Vec<u8> {
    let extensions: &[u8] = &[
        0x00, 0x0d, 0x00, 0x04, 0x00, 0x02, 0x04, 0x03, // signatures: ecdsa_secp256r1_sha256
        0x00, 0x0a, 0x00, 0x04, 0x00, 0x02, 0x00, 0x17, // groups: secp256r1
    ];
    let mut body = vec![0x03, 0x03];
    body.extend([7; 32]);
    body.extend([0, 0x00, 0x02, 0xc0, 0x2b, 0x01, 0x00, 0x00, extensions.len() as u8]);
    body.extend(extensions);
    let mut bytes =
        vec![0x16, 0x03, 0x01, 0x00, body.len() as u8 + 4, 0x01, 0x00, 0x00, body.len() as u8];
    bytes.extend(body);
    bytes
}

#[test]
fn tls_1_2_is_refused_and_the_client_is_told() {
    let ca = Ca::make("plant", NOW).unwrap();
    let mut server = node(&ca).accept().unwrap();
    let error = server.feed(&hello_of_1_2()).unwrap_err();
    assert!(matches!(error, TlsError::Version { .. }), "{error:?}");
    assert_eq!(
        server.outgoing(),
        [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 70],
        "no alert protocol_version"
    );
}

#[test]
fn a_node_that_speaks_tls_1_2_only_is_refused() {
    let ca = Ca::make("plant", NOW).unwrap();
    let mut client = client_of(&ca).connect("n1").unwrap();
    let mut hello = vec![0x16, 0x03, 0x03, 0x00, 0x2a, 0x02, 0x00, 0x00, 0x26, 0x03, 0x03];
    hello.extend([9; 32]);
    hello.extend([0x00, 0xc0, 0x2b, 0x00]);
    let error = client.feed(&hello).unwrap_err();
    assert!(matches!(error, TlsError::Version { .. }), "{error:?}");
    let mut client = client_of(&ca).connect("n1").unwrap();
    let error = client.feed(&[0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 70]).unwrap_err();
    assert!(matches!(error, TlsError::Version { .. }), "{error:?}");
}

#[test]
fn another_protocol_over_tls_is_refused_and_none_is_served() {
    let ca = Ca::make("plant", NOW).unwrap();
    for (protocols, is_served) in [(vec![b"h2".to_vec()], false), (Vec::new(), true)] {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca.certificate().to_vec().into()).unwrap();
        let builder =
            rustls::ClientConfig::builder_with_details(crate::provider(), Arc::new(clock()));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols;
        let mut a = Channel::client(Arc::new(config), "n1".try_into().unwrap()).unwrap();
        let mut b = node(&ca).accept().unwrap();
        let results = pump(&mut a, &mut b);
        assert_eq!(b.is_open(), is_served, "{results:?}");
        if !is_served {
            assert_eq!(results, [Err(TlsError::OtherProtocol), Err(TlsError::OtherProtocol)]);
        }
    }
}

#[test]
fn a_chain_of_more_than_64_kib_is_refused_by_either_side() {
    let ca = Ca::make("plant", NOW).unwrap();
    let mut joe = ca.issue_user("joe", 30, NOW).unwrap();
    let length = ca.certificate().len();
    while joe.chain.len() * length < 70_000 {
        joe.chain.push(ca.certificate().to_vec().into());
    }
    let (a, b, results) = meet(&client_with(&ca, Some(&joe)), &node(&ca), "n1");
    assert!(!b.is_open(), "{a:?}");
    assert_eq!(results[1], Err(TlsError::TooLong));

    let mut identity = ca.issue_node(&["n1"], NOW).unwrap();
    while identity.chain.len() * length < 70_000 {
        identity.chain.push(ca.certificate().to_vec().into());
    }
    let server = ServerTls::new(&identity, &ClientRoots::none(), clock()).unwrap();
    let (a, _, results) = meet(&client_of(&ca), &server, "n1");
    assert!(!a.is_open());
    assert_eq!(results[0], Err(TlsError::TooLong));
}

#[test]
fn a_handshake_that_never_ends_keeps_no_more_than_the_bound() {
    let ca = Ca::make("plant", NOW).unwrap();
    let mut server = node(&ca).accept().unwrap();
    // A ClientHello that says it is 65,000 bytes long, in records of one byte each.
    let mut sent = 0;
    let failed = loop {
        let message: &[u8] = &[0x01, 0x00, 0xfd, 0xe8];
        let byte = message.get(sent).copied().unwrap_or(0);
        sent += 1;
        assert_eq!(server.capacity(), 0);
        match server.feed(&[0x16, 0x03, 0x01, 0x00, 0x01, byte]) {
            Ok(_) => assert!(sent < 1_000_000, "it goes on for ever"),
            Err(error) => break error,
        }
    };
    assert!(!server.is_open());
    assert!(!matches!(failed, TlsError::NotTls { .. }), "{failed:?}");
}

#[test]
fn a_damaged_repeated_or_missing_record_ends_the_session() {
    for kind in ["damaged", "repeated", "missing", "swapped"] {
        let (mut a, mut b) = open_pair();
        let mut records = Vec::new();
        for text in [b"one", b"two", b"end"] {
            a.write(text).unwrap();
            records.push(a.outgoing().to_vec());
            a.sent(usize::MAX >> 1);
        }
        match kind {
            "damaged" => records[1][10] ^= 1,
            "repeated" => records.insert(1, records[0].clone()),
            "missing" => drop(records.remove(1)),
            _ => records.swap(1, 2),
        }
        b.feed(&records[0]).unwrap();
        assert_eq!(b.plaintext(), b"one");
        b.taken(3);
        let error = b.feed(&records[1]).unwrap_err();
        assert!(matches!(error, TlsError::Failed(_)), "{kind}: {error:?}");
        assert!(b.plaintext().is_empty());
        assert_eq!(
            b.feed(records.last().unwrap()),
            Err(error.clone()),
            "a failed session takes something"
        );
        assert_eq!(b.write(b"x"), Err(error));
        assert!(!b.outgoing().is_empty(), "the other side is not told");
        let alert = b.outgoing().to_vec();
        assert!(matches!(a.feed(&alert), Err(TlsError::Failed(_))), "{kind}");
    }
}

#[test]
fn no_early_data_and_no_second_session_without_a_handshake() {
    // Nothing that a node says after the handshake would let a client come back without one.
    let (a, mut b) = open_pair();
    assert!(b.outgoing().is_empty() && a.plaintext().is_empty());
    b.write(b"x").unwrap();
    assert_eq!(b.outgoing().len(), 5 + 1 + 1 + 16);
}

#[test]
fn a_root_that_is_none_is_refused() {
    let text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(Trust::pem(text.as_bytes()), Err(pem::PemError::Damaged(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_comes_a_node_neither_panics_nor_opens(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let ca = Ca::make("plant", NOW).unwrap();
        let mut server = node(&ca).accept().unwrap();
        let _ = server.feed(&bytes);
        prop_assert!(!server.is_open());
    }

    #[test]
    fn a_changed_byte_of_the_handshake_opens_no_session(at in any::<prop::sample::Index>(), xor in 1_u8..) {
        let ca = Ca::make("plant", NOW).unwrap();
        let mut a = client_of(&ca).connect("n1").unwrap();
        let mut b = node(&ca).accept().unwrap();
        // The first five bytes are the record's header, whose version means nothing.
        let mut hello = a.outgoing().to_vec();
        let at = 5 + at.index(hello.len() - 5);
        hello[at] ^= xor;
        a.sent(hello.len());
        let fed = b.feed(&hello);
        if fed.is_ok() {
            let _ = pump(&mut a, &mut b);
        }
        prop_assert!(!b.is_open());
        prop_assert!(!a.is_open());
    }
}
