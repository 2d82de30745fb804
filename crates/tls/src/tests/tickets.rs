//! Tickets as text, and back.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;

use super::*;
use crate::ca::CaHash;
use crate::ticket::{ADDRESSES_MAX, ClientCertificate, Login, Ticket, TicketError};

fn ticket() -> Ticket {
    Ticket {
        addresses: vec![String::from("n1:27586"), String::from("[::1]:27586")],
        network: String::from("plant"),
        login: Some(Login {
            method: String::from("token"),
            user: String::from("joe"),
            secret: Some(String::from("hunter2")),
        }),
        ca: Some(CaHash([7; 32])),
        certificate: None,
    }
}

fn tickets() -> impl Strategy<Value = Ticket> {
    let text = "[!-~]{1,40}";
    let login = (text, text, proptest::option::of("\\PC{1,40}"))
        .prop_map(|(method, user, secret)| Login { method, user, secret });
    let binary = || proptest::collection::vec(any::<u8>(), 1..300);
    let certificate = (proptest::collection::vec(binary(), 1..=4), binary())
        .prop_map(|(chain, key)| ClientCertificate { chain, key });
    (
        proptest::collection::vec(text.prop_map(String::from), 1..=ADDRESSES_MAX),
        "\\PC{1,20}",
        proptest::option::of(login),
        proptest::option::of(any::<[u8; 32]>().prop_map(CaHash)),
        proptest::option::of(certificate),
    )
        .prop_map(|(addresses, network, login, ca, certificate)| Ticket {
            addresses,
            network,
            login,
            ca,
            certificate,
        })
}

proptest! {
    #[test]
    fn a_ticket_is_read_as_it_was_written(ticket in tickets()) {
        let text = ticket.to_text().unwrap();
        prop_assert!(text.starts_with("distkv1."));
        prop_assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)), "{text}");
        prop_assert_eq!(text.parse::<Ticket>(), Ok(ticket.clone()));
        prop_assert_eq!(format!(" {text}\n").parse::<Ticket>(), Ok(ticket));
    }

    #[test]
    fn no_text_makes_the_reader_fail(text in "\\PC{0,100}", bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(text.parse::<Ticket>().is_err());
        // Right sums, wrong content.
        let mut bytes = bytes;
        let sum = ring::digest::digest(&ring::digest::SHA256, &bytes);
        bytes.extend(&sum.as_ref()[..4]);
        let text = format!("distkv1.{}", URL_SAFE_NO_PAD.encode(bytes));
        prop_assert!(text.parse::<Ticket>().is_err());
    }
}

#[test]
fn a_changed_or_missing_character_is_noticed() {
    let text = ticket().to_text().unwrap();
    for at in 0..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(changed.parse::<Ticket>().is_err(), "{changed}");
        assert!(text[..at].parse::<Ticket>().is_err());
        if at > 7 {
            assert_eq!(text[..at].parse::<Ticket>(), Err(TicketError::Damaged));
        }
    }
}

#[test]
fn what_is_none_and_what_is_later_is_told_apart() {
    for none in ["", "n1:27586", "distkv", "distkv.x", "@file"] {
        assert_eq!(none.parse::<Ticket>(), Err(TicketError::NoTicket), "{none}");
    }
    assert_eq!("distkv2.AAAA".parse::<Ticket>(), Err(TicketError::Later));
    let long = format!("distkv1.{}", "A".repeat(70_000));
    assert_eq!(long.parse::<Ticket>(), Err(TicketError::Damaged));
}

#[test]
fn a_ticket_that_makes_no_sense_is_not_written() {
    type Change = fn(&mut Ticket);
    let wrong: [Change; 6] = [
        |t| t.addresses.clear(),
        |t| t.addresses = vec![String::from("a:1"); ADDRESSES_MAX + 1],
        |t| t.network = "x".repeat(1_025),
        |t| t.addresses.push(String::new()),
        |t| t.login.as_mut().unwrap().secret = Some("x".repeat(1_025)),
        |t| t.certificate = Some(ClientCertificate { chain: Vec::new(), key: vec![1] }),
    ];
    for change in wrong {
        let mut ticket = ticket();
        change(&mut ticket);
        assert!(matches!(ticket.to_text(), Err(TicketError::Content(_))), "{ticket:?}");
    }
}

#[test]
fn a_ticket_need_not_name_its_network() {
    let ticket = Ticket { network: String::new(), ..ticket() };
    assert_eq!(ticket.to_text().unwrap().parse(), Ok(ticket));
}

#[test]
fn a_field_of_a_later_version_is_ignored() {
    let mut bytes = vec![0x83];
    bytes.extend(b"\xa9addresses\x91\xa4n1:1\xa7network\xa5plant\xa5later\x92\x01\xc0");
    let sum = ring::digest::digest(&ring::digest::SHA256, &bytes);
    bytes.extend(&sum.as_ref()[..4]);
    let text = format!("distkv1.{}", URL_SAFE_NO_PAD.encode(bytes));
    let ticket: Ticket = text.parse().unwrap();
    assert_eq!((ticket.addresses, ticket.ca), (vec![String::from("n1:1")], None));
}

#[test]
fn no_debug_text_shows_the_secret() {
    let mut ticket = ticket();
    ticket.certificate = Some(ClientCertificate { chain: vec![vec![77; 9]], key: vec![88; 9] });
    let text = format!("{ticket:?} {:?}", ticket.login);
    assert!(text.contains("joe") && text.contains("plant"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("77") && !text.contains("88"), "{text}");
}

#[test]
fn a_ticket_with_a_certificate_logs_in_by_it() {
    let ca = Ca::make("plant", NOW).unwrap();
    let joe = ca.issue_user("joe", 30, NOW).unwrap();
    let mut ticket = ticket();
    ticket.ca = Some(ca.hash());
    ticket.certificate = Some(ClientCertificate::from(&joe));
    let ticket: Ticket = ticket.to_text().unwrap().parse().unwrap();
    let client = ticket.tls(clock()).unwrap().unwrap();
    let (_, b, results) = meet(&client, &node(&ca), "n1");
    assert_eq!(results, [Ok(()), Ok(())]);
    assert_eq!(b.user(), Ok(Some("joe")));
    let plain = Ticket { ca: None, ..ticket };
    assert!(plain.tls(clock()).unwrap().is_none());
}
