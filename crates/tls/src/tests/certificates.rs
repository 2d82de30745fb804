//! Certificates of clients, of operators, and what replaces what.

use super::*;
use crate::ca::{CaError, NAMES_MAX};
use crate::pem::{self, PemError};

#[test]
fn a_clients_certificate_names_its_user() {
    let ca = Ca::make("plant", NOW).unwrap();
    let joe = ca.issue_user("joe", 365, NOW).unwrap();
    let (_, b, results) = meet(&client_with(&ca, Some(&joe)), &node(&ca), "n1");
    assert_eq!(results, [Ok(()), Ok(())]);
    assert_eq!(b.user(), Ok(Some("joe")));
}

#[test]
fn a_clients_certificate_of_another_ca_is_refused_and_both_sides_say_so() {
    let ca = Ca::make("plant", NOW).unwrap();
    let joe = Ca::make("plant", NOW).unwrap().issue_user("joe", 365, NOW).unwrap();
    let (a, b, results) = meet(&client_with(&ca, Some(&joe)), &node(&ca), "n1");
    assert!(!b.is_open());
    let [Err(at_client), Err(at_node)] = results else { panic!("{a:?} {b:?}") };
    assert!(
        matches!(at_client, TlsError::Refused { whose: "the client's certificate", .. }),
        "{at_client:?}"
    );
    assert!(
        matches!(at_node, TlsError::Untrusted { whose: "the client's certificate", .. }),
        "{at_node:?}"
    );
}

#[test]
fn an_expired_certificate_of_a_client_is_refused_and_so_is_one_of_a_time_to_come() {
    let ca = Ca::make("plant", NOW - 30 * DAY).unwrap();
    for (made, is_over) in [(NOW - 2 * DAY, true), (NOW + 2 * DAY, false)] {
        let joe = ca.issue_user("joe", 1, made).unwrap();
        let (_, b, results) = meet(&client_with(&ca, Some(&joe)), &node(&ca), "n1");
        assert!(!b.is_open());
        let is_told = match &results[1] {
            Err(TlsError::Expired { whose: "the client's certificate", .. }) => is_over,
            Err(TlsError::NotYet { whose: "the client's certificate", .. }) => !is_over,
            _ => false,
        };
        assert!(is_told, "{results:?}");
        // The client's clock may be the right one.
        let Err(at_client) = &results[0] else { panic!("{results:?}") };
        let told = "by the clock there it has expired, or is not valid yet";
        assert!(at_client.to_string().contains(told), "{at_client}");
    }
}

#[test]
fn a_nodes_certificate_logs_nobody_in() {
    let ca = Ca::make("plant", NOW).unwrap();
    let other_node = ca.issue_node(&["joe"], NOW).unwrap();
    let (_, b, results) = meet(&client_with(&ca, Some(&other_node)), &node(&ca), "n1");
    assert!(!b.is_open());
    assert!(matches!(results[1], Err(TlsError::Certificate { .. })), "{results:?}");
}

#[test]
fn a_ca_of_the_operators_own_logs_clients_in_beside_the_networks() {
    let ca = Ca::make("plant", NOW).unwrap();
    let staff = Ca::make("staff", NOW).unwrap();
    let roots = ClientRoots::none().with_ca(&ca).unwrap();
    let roots = roots.with_pem(pem::certificate(staff.certificate()).as_bytes()).unwrap();
    let server = ServerTls::new(&ca.issue_node(&["n1"], NOW).unwrap(), &roots, clock()).unwrap();
    for (issuer, name) in [(&ca, "joe"), (&staff, "ann")] {
        let identity = issuer.issue_user(name, 30, NOW).unwrap();
        let (_, b, results) = meet(&client_with(&ca, Some(&identity)), &server, "n1");
        assert_eq!(results, [Ok(()), Ok(())]);
        assert_eq!(b.user(), Ok(Some(name)));
    }
}

#[test]
fn an_operators_certificate_is_read_from_pem_and_pinned_by_the_last_of_its_chain() {
    let ca = Ca::make("company", NOW).unwrap();
    let issued = ca.issue_node(&["db.example"], NOW).unwrap();
    let (chain, key) = issued.pem().unwrap();
    let identity = pem::identity(chain.as_bytes(), key.as_bytes(), NOW).unwrap();
    assert_eq!(identity.chain(), issued.chain());
    let server = ServerTls::new(&identity, &ClientRoots::none(), clock()).unwrap();
    assert_eq!(server.ca_hash(), Some(ca.hash()));
    assert_eq!(meet(&client_of(&ca), &server, "db.example").2, [Ok(()), Ok(())]);
}

#[test]
fn an_encrypted_key_is_called_that_in_either_form_and_no_error_shows_numbers() {
    let ca = Ca::make("plant", NOW).unwrap();
    let issued = ca.issue_node(&["n1"], NOW).unwrap();
    let (chain, key) = issued.pem().unwrap();
    let read = |key: &str| pem::identity(chain.as_bytes(), key.as_bytes(), NOW).map(drop);
    let body = key.lines().nth(1).unwrap();
    let label = |label: &str, head: &str| {
        format!("-----BEGIN {label}-----\n{head}{body}\n-----END {label}-----\n")
    };
    let header = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,9F3C\n\n";
    for encrypted in [
        label("ENCRYPTED PRIVATE KEY", ""),
        label("RSA PRIVATE KEY", header),
        label("EC PRIVATE KEY", &header.replace('\n', "\r\n")),
        format!("{chain}{}", label("ENCRYPTED PRIVATE KEY", "")),
    ] {
        let error = read(&encrypted).unwrap_err();
        assert_eq!(error, PemError::Encrypted, "{encrypted}");
        assert!(error.to_string().contains("openssl pkey -in"), "{error}");
    }
    assert_eq!(read(&format!("{key}{}", label("ENCRYPTED PRIVATE KEY", ""))), Ok(()));
    let cut = read(key.trim_end().strip_suffix("-----END PRIVATE KEY-----").unwrap()).unwrap_err();
    assert!(cut.to_string().contains("END PRIVATE KEY") && !cut.to_string().contains('['), "{cut}");
}

#[test]
fn a_bad_file_is_refused_with_what_is_wrong_and_the_old_certificate_stays() {
    let ca = Ca::make("plant", NOW).unwrap();
    let server = node(&ca);
    let issued = ca.issue_node(&["n1"], NOW).unwrap();
    let (chain, key) = issued.pem().unwrap();
    let other = ca.issue_node(&["n1"], NOW).unwrap();
    let (_, other_key) = other.pem().unwrap();
    let read =
        |chain: &str, key: &str| pem::identity(chain.as_bytes(), key.as_bytes(), NOW).unwrap_err();
    assert!(matches!(read("", key), PemError::Missing { what: "certificate", .. }));
    assert!(matches!(read(chain, chain), PemError::Missing { what: "private key", .. }));
    assert!(matches!(read(chain, other_key), PemError::Key(_)));
    assert!(matches!(
        read(&chain[..chain.len() / 3], key),
        PemError::Missing { .. } | PemError::Damaged(_)
    ));
    assert!(matches!(read(&chain.replace("MII", "M!I"), key), PemError::Damaged(_)));
    assert!(matches!(read(&chain.repeat(200), key), PemError::TooLarge(_)));
    let later = pem::identity(chain.as_bytes(), key.as_bytes(), NOW + 31 * DAY).unwrap_err();
    assert_eq!(
        later.to_string(),
        "the certificate is valid from 2027-01-15 07:00 UTC to 2027-02-14 08:00 UTC, and now it is 2027-02-15 08:00 UTC"
    );
    // Who looks at the time by itself gets it, and with the same faults nothing else.
    let any_time = |chain: &str, key: &str| {
        pem::identity_of_any_time(chain.as_bytes(), key.as_bytes()).map(|own| own.period().unwrap())
    };
    let period = any_time(chain, key).unwrap();
    assert_eq!((period.from, period.to), (NOW - 3_600, NOW + 30 * DAY));
    assert_eq!(period.lasts, 30 * DAY + 3_600, "the leaf ends before its CA does");
    assert!(matches!(any_time(chain, other_key), Err(PemError::Key(_))));
    assert!(matches!(any_time(&chain.replace("MII", "M!I"), key), Err(PemError::Damaged(_))));
    // What was read may still make no configuration.
    let mut wrong = issued.clone();
    wrong.key = other.key.clone_key();
    assert!(server.replace(&wrong, &ClientRoots::none()).is_err());
    assert_eq!(meet(&client_of(&ca), &server, "10.0.0.5").2, [Ok(()), Ok(())]);
}

#[test]
fn a_replaced_certificate_is_presented_to_new_clients_and_old_sessions_go_on() {
    let ca = Ca::make("plant", NOW).unwrap();
    let server = node(&ca);
    let (mut a, mut b, _) = meet(&client_of(&ca), &server, "n1");
    let renewed = ca.issue_node(&["n9"], NOW).unwrap();
    server.replace(&renewed, &ClientRoots::none()).unwrap();
    assert_eq!(meet(&client_of(&ca), &server, "n9").2, [Ok(()), Ok(())]);
    assert!(matches!(client_error(&client_of(&ca), &server, "n1"), TlsError::Name { .. }));
    assert_eq!(a.write(b"still here").unwrap(), 10);
    assert_eq!(pump(&mut a, &mut b), [Ok(()), Ok(())]);
    assert_eq!(b.plaintext(), b"still here");
}

#[test]
fn a_ca_is_the_same_after_it_was_loaded() {
    let ca = Ca::make("plant", NOW).unwrap();
    let loaded = Ca::load("plant", ca.key(), ca.certificate()).unwrap();
    assert_eq!(loaded.hash(), ca.hash());
    let server = ServerTls::new(
        &loaded.issue_node(&["n1"], NOW).unwrap(),
        &ClientRoots::none().with_ca(&loaded).unwrap(),
        clock(),
    );
    let joe = ca.issue_user("joe", 30, NOW).unwrap();
    let (_, b, results) = meet(&client_with(&ca, Some(&joe)), &server.unwrap(), "n1");
    assert_eq!(results, [Ok(()), Ok(())]);
    assert_eq!(b.user(), Ok(Some("joe")));
}

#[test]
fn parts_that_are_not_of_one_ca_are_refused() {
    let ca = Ca::make("plant", NOW).unwrap();
    let other = Ca::make("plant", NOW).unwrap();
    let load = |network: &str, key: &[u8], certificate: &[u8]| {
        Ca::load(network, key, certificate).unwrap_err()
    };
    assert!(matches!(load("plant", other.key(), ca.certificate()), CaError::Certificate { .. }));
    assert!(matches!(load("other", ca.key(), ca.certificate()), CaError::Certificate { .. }));
    assert!(matches!(load("plant", b"key", ca.certificate()), CaError::Key(_)));
    assert!(matches!(load("plant", ca.key(), b"certificate"), CaError::Certificate { .. }));
    assert!(matches!(load("plant", ca.key(), &ca.certificate()[1..]), CaError::Certificate { .. }));
}

#[test]
fn names_and_days_have_bounds() {
    let ca = Ca::make("plant", NOW).unwrap();
    assert_eq!(ca.issue_node(&[], NOW).unwrap_err(), CaError::Names(0));
    let many: Vec<String> = (0..=NAMES_MAX).map(|n| format!("n{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(ca.issue_node(&many, NOW).unwrap_err(), CaError::Names(NAMES_MAX + 1));
    assert!(ca.issue_node(&many[1..], NOW).is_ok());
    assert!(ca.issue_node(&["n1"; 100], NOW).is_ok());
    for wrong in ["", "é", "a\nb", &"a".repeat(254)] {
        assert!(matches!(ca.issue_node(&[wrong], NOW), Err(CaError::Name(_))), "{wrong:?}");
        assert!(matches!(ca.issue_user(wrong, 1, NOW), Err(CaError::Name(_))), "{wrong:?}");
    }
    assert_eq!(ca.issue_user("joe", 0, NOW).unwrap_err(), CaError::Days(0));
    assert_eq!(ca.issue_user("joe", 3_651, NOW).unwrap_err(), CaError::Days(3_651));
    assert_eq!(ca.issue_user("joe", 1, u64::MAX).unwrap_err(), CaError::Time(u64::MAX));
    assert!(matches!(Ca::make("", NOW), Err(CaError::Name(_))));
}

/// As on a machine without a battery, until it is told the time.
#[test]
fn a_clock_that_begins_in_1970_makes_certificates_that_are_believed() {
    for now in [0, 1, 3_599, 3_600, 3_601] {
        let clock = || Clock::new(move || now);
        let ca = Ca::make("plant", now).unwrap();
        let server = ServerTls::new(
            &ca.issue_node(&["n1"], now).unwrap(),
            &ClientRoots::none().with_ca(&ca).unwrap(),
            clock(),
        );
        let joe = ca.issue_user("joe", 30, now).unwrap();
        let client = ClientTls::new(Trust::hash(ca.hash()), Some(&joe), clock()).unwrap();
        let (_, b, results) = meet(&client, &server.unwrap(), "n1");
        assert_eq!(results, [Ok(()), Ok(())], "{now}");
        assert_eq!(b.user(), Ok(Some("joe")), "{now}");
    }
}

#[test]
fn what_is_secret_is_in_no_debug_text() {
    let ca = Ca::make("plant", NOW).unwrap();
    let joe = ca.issue_user("joe", 1, NOW).unwrap();
    let text = format!("{ca:?} {joe:?} {:?} {:?}", node(&ca), client_with(&ca, Some(&joe)));
    assert!(text.len() < 300, "{text}");
}

#[test]
fn a_node_knows_when_what_it_presents_expires_also_after_it_was_replaced() {
    let ca = Ca::make("plant", NOW).unwrap();
    let server = node(&ca);
    let days = |from: u64| {
        let (from, to) = (from - 3_600, from + 30 * DAY);
        Some(Period { from, to, lasts: to - from })
    };
    assert_eq!(server.period(), days(NOW));
    let later = ca.issue_node(&["n1"], NOW + 7 * DAY).unwrap();
    server.replace(&later, &ClientRoots::none()).unwrap();
    assert_eq!(server.period(), days(NOW + 7 * DAY));
    // Whoever is above it may expire before it; it is not valid before itself.
    let old = ca.issue_node(&["n1"], NOW - 20 * DAY).unwrap();
    let mut chain = later.chain().to_vec();
    chain.extend(old.chain().first().cloned());
    let identity = Identity::new(chain, later.key.clone_key());
    server.replace(&identity, &ClientRoots::none()).unwrap();
    let from = NOW + 7 * DAY - 3_600;
    let first_to_end = days(NOW - 20 * DAY).unwrap();
    assert_eq!(server.period(), Some(Period { from, ..first_to_end }));
}
