//! Answers that are on their way when their user loses what they rest on: they are cut, and never look whole.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rmpv::Value;

use super::tickets::Secured;
use crate::processes::PATIENCE;

/// Of such an answer the system's buffers take only a part.
const LONG_BYTES: usize = 4_000_000;
/// The end of an answer in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// An answer of which only the beginning was read.
struct Begun {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Begun {
    fn new(secured: &Secured, ticket: &str, target: &str, fields: &str) -> Self {
        let host = secured.http();
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ticket}\r\nConnection: close\r\n{fields}\r\n"
        )
        .unwrap();
        let mut read = vec![0; 1_000];
        stream.read_exact(&mut read).unwrap();
        assert!(read.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&read));
        Self { stream, read }
    }

    /// All of it, as far as it came.
    fn rest(mut self) -> Vec<u8> {
        // It may end in a reset.
        let _ = self.stream.read_to_end(&mut self.read);
        self.read
    }
}

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
            .flat_map(|key| ["", "Accept: application/msgpack\r\n"].map(|kind| (key, kind)))
            .map(|(key, kind)| Begun::new(&secured, &ticket, &format!("/v1/kv/a/{key}"), kind))
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
    let begun = Begun::new(&secured, &ticket, "/v1/kv/tr?tree", "");
    secured.admin(&["acl", "set", "some", "tr.hidden", "rxe"]);
    assert!(begun.rest().ends_with(LAST_CHUNK));
    let begun = Begun::new(&secured, &ticket, "/v1/kv/tr?tree", "");
    secured.admin(&["acl", "set", "some", "#", "xe"]);
    let came = begun.rest();
    assert!(!came.ends_with(LAST_CHUNK), "{} bytes came, as if that were all", came.len());
    assert!(came.len() < 20 * 500_000, "{} bytes", came.len());
}
