//! Whom a client believes, and what it says about others.

use super::*;
use crate::ca::CaHash;
use crate::pem;

#[test]
fn a_client_that_knows_the_ca_connects_by_each_of_the_nodes_names() {
    let ca = Ca::make("plant", NOW).unwrap();
    let server = node(&ca);
    assert_eq!(server.ca_hash(), Some(ca.hash()));
    let by_pem = Trust::pem(pem::certificate(ca.certificate()).as_bytes()).unwrap();
    let by_pem = ClientTls::new(by_pem, None, clock()).unwrap();
    for client in [client_of(&ca), by_pem] {
        for host in ["n1", "10.0.0.5"] {
            let (mut a, mut b, results) = meet(&client, &server, host);
            assert_eq!(results, [Ok(()), Ok(())]);
            assert!(a.is_open() && b.is_open());
            assert_eq!(b.user(), Ok(None));
            assert_eq!(a.write(b"get").unwrap(), 3);
            assert_eq!(pump(&mut a, &mut b), [Ok(()), Ok(())]);
            assert_eq!(b.plaintext(), b"get");
        }
    }
}

/// A zone says which of the client's own interfaces leads there, and means nothing to anybody else (RFC 4007, section 11.2).
#[test]
fn a_zone_is_no_part_of_the_name_that_a_certificate_must_have() {
    let ca = Ca::make("plant", NOW).unwrap();
    let identity = ca.issue_node(&["fe80::5"], NOW).unwrap();
    let server = ServerTls::new(&identity, &ClientRoots::none(), clock()).unwrap();
    for host in ["fe80::5", "fe80::5%eth0", "fe80::5%3"] {
        let (a, b, results) = meet(&client_of(&ca), &server, host);
        assert_eq!(results, [Ok(()), Ok(())], "{host}");
        assert!(a.is_open() && b.is_open(), "{host}");
    }
    let other = client_error(&client_of(&ca), &server, "fe80::6%eth0");
    assert!(other.to_string().contains("fe80::6"), "{other}");
    for host in ["n1%eth0", "10.0.0.5%eth0", "fe80::5%"] {
        let refused = client_of(&ca).connect(host).map(drop);
        assert_eq!(refused, Err(TlsError::BadName(host.to_owned())));
    }
}

#[test]
fn an_expired_certificate_is_named_with_both_times() {
    let ca = Ca::make("plant", NOW).unwrap();
    let hand = Hand::at(NOW + 31 * DAY);
    let client = ClientTls::new(Trust::hash(ca.hash()), None, hand.clock()).unwrap();
    let error = client_error(&client, &node(&ca), "n1");
    assert_eq!(
        error.to_string(),
        "wrong time: the node's certificate expired at 2027-02-14 08:00 UTC, and now it is 2027-02-15 08:00 UTC here. If \
         this clock is right, it must be renewed"
    );
    hand.set(NOW - 2 * 3_600);
    let error = client_error(&client, &node(&ca), "n1");
    assert_eq!(
        error.to_string(),
        "wrong time: the node's certificate is valid from 2027-01-15 07:00 UTC, and now it is 2027-01-15 06:00 UTC here. \
         One of the two clocks is wrong"
    );
    hand.set(NOW + 29 * DAY);
    assert_eq!(meet(&client, &node(&ca), "n1").2, [Ok(()), Ok(())]);
}

#[test]
fn a_wrong_name_is_told_with_the_right_ones() {
    let ca = Ca::make("plant", NOW).unwrap();
    let error = client_error(&client_of(&ca), &node(&ca), "n2");
    assert_eq!(
        error.to_string(),
        "wrong name: the node's certificate is for n1, 10.0.0.5, not for n2; connect by one of those, or start the node with \
         --cert-name n2, or, if it has a --cert of its own, with one that has this name, too"
    );
    let error = client_error(&client_of(&ca), &node(&ca), "10.0.0.6");
    assert!(error.to_string().contains("for n1, 10.0.0.5, not for 10.0.0.6"), "{error}");
    let error = client_of(&ca).connect("a b").unwrap_err();
    assert_eq!(error, TlsError::BadName(String::from("a b")));
}

#[test]
fn another_ca_is_told_whether_the_client_knows_a_hash_or_a_file() {
    let ca = Ca::make("plant", NOW).unwrap();
    let other = Ca::make("plant", NOW).unwrap();
    let error = client_error(&client_of(&other), &node(&ca), "n1");
    assert_eq!(error, TlsError::OtherCa { wanted: other.hash(), found: ca.hash() });
    let trust = Trust::pem(pem::certificate(other.certificate()).as_bytes()).unwrap();
    let error = client_error(&ClientTls::new(trust, None, clock()).unwrap(), &node(&ca), "n1");
    assert!(
        matches!(error, TlsError::Untrusted { whose: "the node's certificate", .. }),
        "{error:?}"
    );
    assert!(error.to_string().starts_with("wrong CA: "), "{error}");
}

#[test]
fn a_chain_that_merely_contains_the_right_ca_is_not_believed() {
    // Whoever has connected once has the CA's certificate, but not its key.
    let ca = Ca::make("plant", NOW).unwrap();
    let forger = Ca::make("plant", NOW).unwrap();
    let mut identity = forger.issue_node(&["n1"], NOW).unwrap();
    identity.chain.pop();
    identity.chain.push(ca.certificate().to_vec().into());
    let server = ServerTls::new(&identity, &ClientRoots::none(), clock()).unwrap();
    let error = client_error(&client_of(&ca), &server, "n1");
    assert!(matches!(error, TlsError::Untrusted { .. }), "{error:?}");
}

#[test]
fn a_users_certificate_is_no_nodes_certificate() {
    let ca = Ca::make("plant", NOW).unwrap();
    let joe = ca.issue_user("n1", 30, NOW).unwrap();
    let server = ServerTls::new(&joe, &ClientRoots::none(), clock()).unwrap();
    let error = client_error(&client_of(&ca), &server, "n1");
    assert!(matches!(error, TlsError::Certificate { .. }), "{error:?}");
}

#[test]
fn a_node_in_plain_text_is_recognised() {
    let ca = Ca::make("plant", NOW).unwrap();
    let mut client = client_of(&ca).connect("n1").unwrap();
    let error = client.feed(b"\x86\xa3seq\x00\xa4node\xa2n1").unwrap_err();
    assert_eq!(error, TlsError::NotTls { begins: String::from("\\x86\\xa3seq\\x00\\xa4n") });
    assert_eq!(client.write(b"x"), Err(error.clone()));
    assert_eq!(client.ended(), Err(error));
    assert!(!client.wants_more());
}

#[test]
fn an_end_in_the_middle_is_a_cut_and_a_closed_session_is_none() {
    let (mut a, mut b) = open_pair();
    assert_eq!(a.ended(), Err(TlsError::Cut));
    assert_eq!(a.write(b"last").unwrap(), 4);
    a.close().unwrap();
    assert_eq!(a.write(b"more").unwrap(), 0);
    assert_eq!(pump(&mut a, &mut b), [Ok(()), Ok(())]);
    assert_eq!(b.plaintext(), b"last");
    assert!(b.is_peer_closed());
    assert_eq!(b.ended(), Ok(()));
    // The other direction is still open.
    assert_eq!(b.write(b"answer").unwrap(), 6);
    b.close().unwrap();
    assert_eq!(pump(&mut a, &mut b), [Ok(()), Ok(())]);
    assert_eq!(a.plaintext(), b"answer");
    assert!(a.is_peer_closed());
}

#[test]
fn an_end_in_the_handshake_is_a_cut() {
    let ca = Ca::make("plant", NOW).unwrap();
    let client = client_of(&ca).connect("n1").unwrap();
    assert!(!client.is_open());
    assert_eq!(client.ended(), Err(TlsError::Cut));
    assert_eq!(node(&ca).accept().unwrap().ended(), Err(TlsError::Cut));
}

#[test]
fn the_hash_of_a_ca_is_read_as_it_is_written() {
    let hash = Ca::make("plant", NOW).unwrap().hash();
    let text = hash.to_string();
    assert_eq!(text.len(), 7 + 64);
    assert_eq!(text.parse(), Ok(hash));
    for wrong in
        [&text[1..], &text[..70], &format!("{text}0"), &text.replace("sha256:", "sha256:+")]
    {
        assert!(wrong.parse::<CaHash>().is_err(), "{wrong}");
    }
}
