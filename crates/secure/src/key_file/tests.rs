//! A key file reads back as it was written, and each damage is named with its line.

use super::*;

fn key(byte: u8) -> Key {
    Key::new([byte; 32])
}

fn line(byte: u8, mark: &str) -> String {
    format!("key {} {}{mark}", key(byte).id(), *key(byte).secret_text())
}

fn error(text: &str) -> (usize, Problem) {
    let error = KeyFile::parse(text).expect_err(text);
    assert!(!error.to_string().contains("abab"), "{error}");
    (error.line, error.problem)
}

#[test]
fn a_file_reads_back_as_it_was_written() {
    let mut ring = KeyRing::new(NetworkName::new("plant").unwrap(), key(1));
    for byte in 2..=5 {
        ring.add(key(byte)).unwrap();
        ring.make_primary(key(byte).id()).unwrap();
        if byte == 4 {
            ring.remove(key(1).id()).unwrap();
        }
    }
    let ordered = {
        let mut ring = KeyRing::new(NetworkName::new("plant").unwrap(), key(1));
        for byte in 2..=3 {
            ring.order_add(key(byte)).unwrap();
            ring.order_use(key(byte).id()).unwrap();
        }
        ring.order_remove(key(1).id()).unwrap();
        ring.order_remove(key(2).id()).unwrap();
        ring.add(key(4)).unwrap();
        ring
    };
    let key = Zeroizing::new(vec![9; 138]);
    let ca = CertificateAuthority { key, certificate: vec![8; 400] };
    for (ca, ring) in [(None, ring), (Some(ca), ordered)] {
        let file = KeyFile { ring, ca };
        let text = file.to_text();
        assert!(
            text.capacity() <= 2_048 + 2 * 538 && text.len() < text.capacity(),
            "it never grew"
        );
        assert_eq!(KeyFile::parse(&text), Ok(file));
    }
}

#[test]
fn comments_base64_and_windows_line_ends_are_taken_and_one_key_is_primary() {
    let secret = to_base64(&[7; 32]);
    let text = format!("# a\r\n\r\n  network  plant \r\n\tkey {} {}\r\n#", key(7).id(), *secret);
    let file = KeyFile::parse(&text).unwrap();
    assert_eq!(file.ring.primary(), &key(7));
    assert_eq!(file.ring.network().as_str(), "plant");
}

#[test]
fn each_damage_is_named_with_its_line() {
    let (one, id) = (line(0xab, ""), key(0xab).id());
    let of = |lines: &[&str]| error(&lines.join("\n"));
    let net = "network plant";
    assert_eq!(of(&[net, &one, "port 5"]), (3, Problem::Unknown));
    assert_eq!(of(&[net, &line(1, " shared primary")]), (2, Problem::Key));
    assert_eq!(of(&[net, &line(1, " primary shared shared")]), (2, Problem::Key));
    assert_eq!(of(&[net, &one, "removed 00000000 primary"]), (3, Problem::Removed));
    for used in ["used", "used 1", "used x 00000000", "used 1 0", "used 1 00000000 2"] {
        assert_eq!(of(&[net, &one, used]), (3, Problem::Used), "{used}");
    }
    assert_eq!(of(&[net, &one, "used 1 00000000", "used 2 00000000"]), (4, Problem::Used));
    assert_eq!(of(&[net, "Key"]), (2, Problem::Unknown));
    assert_eq!(of(&["network", &one]), (1, Problem::Network));
    assert_eq!(of(&["network a b", &one]), (1, Problem::Network));
    assert_eq!(of(&["network a~", &one]), (1, NameError::Character('~').into()));
    assert_eq!(of(&[net, net, &one]), (2, Problem::NetworkTwice));
    assert_eq!(of(&[&one]), (0, Problem::NoNetwork));
    assert_eq!(of(&[net]), (0, Problem::NoKey));
    assert_eq!(of(&[]), (0, Problem::NoKey));
    assert_eq!(of(&[net, "key"]), (2, Problem::Key));
    assert_eq!(of(&[net, &format!("{one} second")]), (2, Problem::Key));
    assert_eq!(of(&[net, &format!("{one} primary x")]), (2, Problem::Key));
    assert_eq!(of(&[net, "key 123 abab"]), (2, Problem::Id));
    assert_eq!(of(&[net, &one[..one.len() - 2]]), (2, Problem::Secret));
    let other = one.replacen(&id.to_string(), "00000000", 1);
    assert_eq!(of(&[net, &other]), (2, Problem::OtherId { told: KeyId([0; 4]), is: id }));
    assert_eq!(of(&[net, &one, &one]), (3, Problem::KeyTwice(id)));
    let two = format!("{}\n{}", line(2, " primary"), line(3, " primary"));
    assert_eq!(of(&[net, &two]), (3, Problem::TwoPrimaries(key(2).id(), key(3).id())));
    assert_eq!(of(&[net, &one, &line(2, "")]), (0, Problem::NoPrimary));
    let five: Vec<_> = (1..=5).map(|byte| line(byte, "")).collect();
    assert_eq!(of(&[net, &five.join("\n")]), (6, Problem::KeysTooMany));
    let removed = format!("removed {id}");
    assert_eq!(of(&[net, &one, &removed]), (3, Problem::KeyAndRemoved(id)));
    assert_eq!(of(&[net, &removed, &one]), (3, Problem::KeyAndRemoved(id)));
    assert_eq!(of(&[net, &one, "removed"]), (3, Problem::Removed));
    let many: Vec<_> = (1..=17).map(|byte| format!("removed {}", key(byte).id())).collect();
    assert_eq!(of(&[net, &one, &many.join("\n")]), (19, Problem::RemovedTooMany));
    assert_eq!(of(&[net, &one, "ca key"]), (3, Problem::Ca));
    assert_eq!(of(&[net, &one, "ca chain AAAA"]), (3, Problem::Ca));
    assert_eq!(of(&[net, &one, "ca key !!!!"]), (3, Problem::Ca));
    let long = to_base64(&[0; CA_BYTES_MAX + 1]);
    assert_eq!(of(&[net, &one, &format!("ca key {}", *long)]), (3, Problem::Ca));
    assert_eq!(of(&[net, &one, "ca key AAAA"]), (0, Problem::CaHalf("certificate")));
    assert_eq!(of(&[net, &one, "ca certificate AAAA"]), (0, Problem::CaHalf("key")));
    assert_eq!(of(&[net, "ca key AAAA", "ca key AAAA"]), (3, Problem::CaTwice("key")));
    assert_eq!(error(&" ".repeat(FILE_BYTES_MAX + 1)), (0, Problem::TooLong));
}

#[test]
fn an_empty_file_is_not_to_be_replaced_by_a_new_key_that_would_shut_the_node_out() {
    let text = KeyFile::parse("").unwrap_err().to_string();
    assert!(text.contains("copy the file from another node, or, for a new network, "), "{text}");
}

#[test]
fn an_unknown_line_hints_at_a_newer_version_and_debug_shows_no_secret() {
    let text = KeyFile::parse("shadow 1").unwrap_err().to_string();
    assert!(text.starts_with("line 1: ") && text.contains("newer version"), "{text}");
    let file = KeyFile::parse(&format!("network a\n{}", line(0xab, ""))).unwrap();
    let text = format!("{file:?}");
    assert!(!text.contains("abab") && !text.contains("171"), "{text}");
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(network|key|ca|removed|#|[0-9a-f]{8}|primary|[ \n\t]|\\PC){0,40}") {
        let _ = KeyFile::parse(&text);
    }

    #[test]
    fn one_changed_character_is_noticed_or_changes_nothing(at in 0usize..200, to in "[0-9a-z]") {
        let text = format!("network plant\n{}\n{}\n", line(1, " primary"), line(2, ""));
        let at = at % text.len();
        let mut damaged = text.clone();
        damaged.replace_range(at..=at, &to);
        if let Ok(file) = KeyFile::parse(&damaged) {
            // The network's name has no checksum: another name is another network.
            proptest::prop_assert_eq!(file.ring.keys().len(), 2);
            proptest::prop_assert_eq!(file.ring.primary(), &key(1));
        }
    }
}
