//! Answers that are on their way when their user loses what they rest on: they are cut, and never look whole.

use rmpv::Value;

use super::tickets::Secured;

/// Of such an answer the system's buffers take only a part.
const LONG_BYTES: usize = 4_000_000;
/// The end of an answer in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[test]
fn a_long_value_is_cut_when_its_user_is_removed_or_disconnected() {
    let secured = Secured::start();
    // Of many parts, and of one.
    secured.client().set(&["a", "parts"], Value::Array(vec![Value::from(1); LONG_BYTES]));
    secured.client().set(&["a", "text"], Value::from("x".repeat(LONG_BYTES)));
    let ends: [(&str, &[&str]); 2] =
        [("joe", &["user", "remove", "joe"]), ("ann", &["user", "disconnect", "ann"])];
    for (name, end) in ends {
        let ticket = secured.user(name, &["--acl", "*"]);
        let begun: Vec<_> = ["parts", "text"]
            .into_iter()
            .flat_map(|key| ["json", "msgpack"].map(|kind| (key, format!("application/{kind}"))))
            .map(|(key, kind)| {
                secured
                    .ask(&ticket, "GET", &format!("/v1/kv/a/{key}"))
                    .field("Accept", &kind)
                    .begin()
            })
            .collect();
        secured.admin(end);
        for begun in begun {
            let length = begun.rest().len();
            assert!(length < LONG_BYTES, "{length} bytes came, {end:?}");
        }
    }
}

#[test]
fn a_tree_is_cut_when_its_user_may_not_read_all_of_it_any_more() {
    let secured = Secured::start();
    for n in 0..20 {
        secured.client().set(&["tr", &n.to_string()], Value::from("y".repeat(500_000)));
    }
    secured.admin(&["acl", "set", "some", "#", "rwcdxen"]);
    secured.admin(&["acl", "set", "some", "tr.hidden", "xe"]);
    let ticket = secured.user("joe", &["--acl", "some"]);
    // What it never could read is left out of a whole tree, and more rights do no harm.
    let begun = secured.ask(&ticket, "GET", "/v1/kv/tr?tree").begin();
    secured.admin(&["acl", "set", "some", "tr.hidden", "rxe"]);
    assert!(begun.rest().ends_with(LAST_CHUNK));
    let begun = secured.ask(&ticket, "GET", "/v1/kv/tr?tree").begin();
    secured.admin(&["acl", "set", "some", "#", "xe"]);
    let came = begun.rest();
    assert!(!came.ends_with(LAST_CHUNK), "{} bytes came, as if that were all", came.len());
    assert!(came.len() < 20 * 500_000, "{} bytes", came.len());
}
