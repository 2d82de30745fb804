//! Whatever is stored or sent: it is read or refused, without a panic, and grants nothing by accident.

#![allow(clippy::unwrap_used, reason = "what a test makes is valid")]

use distkv_access::acl::{Acl, Letters, Rights};
use distkv_access::dh::{BoxKey, Group, PRIVATE_BYTES, exchange};
use distkv_access::secret::PasswordHash;
use distkv_access::types::Types;
use distkv_access::users::{Directory, Place, Record, Removal, Role, revoked_path};
use distkv_model::ids::{Event, NodeIndex, Tick};
use distkv_model::path::{Element, Path};
use distkv_model::value::Value;
use proptest::collection::vec;
use proptest::prelude::*;

/// Paths below nil, among them those that matter.
fn system_path() -> impl Strategy<Value = Path> {
    let families = ["auth", "acl", "type", "match", "codec", "conv", "x"];
    let words = ["auth", "password", "user", "revoked", "joe", "acl", "lim", "*", "+", "#", "t"];
    let element = prop_oneof![
        9 => proptest::sample::select(words.to_vec()).prop_map(Element::Str),
        1 => Just(Element::Bin(&[7; 16])),
    ];
    (proptest::sample::select(families.to_vec()), vec(element, 0..5)).prop_map(|(family, rest)| {
        let path = [Element::Nil, Element::Str(family)].into_iter().chain(rest);
        Path::from_elements(path).unwrap()
    })
}

/// Values made of the words that records, matches and schemas are made of.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "role",
        "admin",
        "user",
        "password",
        "token",
        "again",
        "after",
        "key",
        "lim",
        "*",
        "current",
        "schema",
        "good",
        "bad",
        "type",
        "integer",
        "properties",
        "$ref",
        "#",
        "#/$defs/a",
        "$defs",
        "a",
        "items",
        "anyOf",
        "not",
        "pattern",
        "(a+)+",
        "rwx",
        "minimum",
        "enum",
        "const",
        "t",
    ];
    let scalar = prop_oneof![
        6 => proptest::sample::select(words.to_vec()).prop_map(rmpv::Value::from),
        1 => any::<i64>().prop_map(rmpv::Value::from),
        1 => any::<f64>().prop_map(rmpv::Value::from),
        1 => any::<bool>().prop_map(rmpv::Value::from),
        1 => Just(rmpv::Value::Nil),
        1 => vec(any::<u8>(), 32).prop_map(rmpv::Value::Binary),
        1 => Just(rmpv::Value::Binary(vec![7; 16])),
    ];
    let key = proptest::sample::select(words.to_vec()).prop_map(rmpv::Value::from);
    let value = scalar.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..4).prop_map(rmpv::Value::Array),
            3 => vec((key.clone(), inner), 0..4).prop_map(rmpv::Value::Map),
        ]
    });
    value.prop_map(|value| {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &value).unwrap();
        bytes
    })
}

proptest! {
    #[test]
    fn whatever_is_stored_is_read_or_refused(entries in vec((system_path(), value()), 0..20)) {
        let event = Event { node: NodeIndex(0), tick: Tick::new(1).unwrap() };
        let all = || entries.iter().map(|(path, value)| (path.clone(), value.as_slice()));
        let directory = Directory::build(1, all().map(|(path, value)| (path, value, event)));
        for user in directory.users() {
            let letters = directory.rights_of(user).letters(b"\xc0\xa4auth");
            prop_assert!(user.role == Role::Admin || letters == Letters::NONE);
            // Nobody is there who was removed, unless it was made again.
            let revoked = revoked_path(&user.method, &user.ident).unwrap();
            let removed = all().rfind(|(path, _)| *path == revoked);
            prop_assert!(removed.is_none_or(|(_, value)| Removal::read(value).is_some()));
            let is_open = |(path, _): (Path, &[u8])| {
                Place::of(&path)
                    == Some(Place::Removal { method: &user.method, ident: &user.ident })
            };
            prop_assert!(!all().any(is_open));
        }
        let acl = Acl::build(all().map(|(path, value)| {
            (Path::from_elements(path.elements().skip(1)).unwrap(), value)
        }));
        let rights = Rights::of(acl.unwrap());
        let types = Types::build(all(), &Types::default());
        for (path, value) in &entries {
            // Of what is the system's, whatever the list says, a client may read only what all may.
            let family = path.elements().nth(1);
            let is_shown = ["type", "match"].iter().any(|it| family == Some(Element::Str(it)));
            let allowed = Letters::read(if is_shown { "rxe" } else { "" });
            prop_assert_eq!(rights.letters(path.as_bytes()), allowed);
            if let Ok(Some(stored)) = types.check_change(path, value) {
                prop_assert!(Value::check(stored.as_bytes()).is_ok());
            }
            let data = Path::from_elements(path.elements().skip(1)).unwrap();
            let _ = types.check(data.as_bytes(), value);
            if let Ok(record) = Record::read(value) {
                let written = record.write().unwrap();
                let again = Record::read(written.as_bytes()).unwrap().write().unwrap();
                prop_assert_eq!(again, written);
            }
        }
    }

    #[test]
    fn whatever_is_sent_is_taken_or_refused(
        bytes in vec(any::<u8>(), 0..300),
        text in "(\\$argon2id\\$v=19)?[$a-z=,0-9]{0,60}",
    ) {
        prop_assert!(BoxKey::new([1; 32]).open(&bytes).is_err());
        let _ = PasswordHash::read(&text);
        let _ = Record::read(&bytes);
        let _ = Removal::read(&bytes);
    }
}

proptest! {
    // Each takes some ms.
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn public_numbers_of_any_length_are_taken_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        for group in [Group::Five, Group::Fourteen] {
            let _ = exchange(group, &bytes, &[7; PRIVATE_BYTES]);
        }
    }
}
