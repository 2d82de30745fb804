//! What users with access lists get of each action, and what changes for them when lists or users do.

mod changes;
mod deletions;
mod foretold;
mod given_back;
mod judge;
mod messages;
mod model;
mod reads;
mod roles;
mod shares;
mod trees;
mod watches;
mod writes;

use distkv::model::path::Path;
use distkv::replica::write::Write;
use distkv::server::access::Identity;

use crate::harness::{Client, Node, Value, encode, has};

/// A node whose clients must have logged in, as it were: those that connect are admins, or users by
/// [`Place::user`].
pub(super) struct Place {
    pub(super) node: Node,
    pub(super) admin: Client,
}

impl Place {
    pub(super) fn new() -> Self {
        Self::of(Node::found("n1"))
    }

    pub(super) fn of(node: Node) -> Self {
        node.server.assume(Identity::KeyHolder);
        let admin = node.connect();
        Self { node, admin }
    }

    /// Puts an entry into the tree, as administration would.
    pub(super) fn put(&self, at: &str, value: Option<Value>) {
        let (path, value): (Path, _) = (at.parse().unwrap(), value.map(|value| encode(&value)));
        self.put_at(&path, value.as_deref());
    }

    pub(super) fn put_at(&self, path: &Path, value: Option<&[u8]>) {
        self.node.hub.write(Write::new(path, value), false).0.unwrap();
    }

    /// Sets patterns of an access list.
    pub(super) fn list(&self, name: &str, patterns: &[(&str, &str)]) {
        for (pattern, letters) in patterns {
            let top: Path = format!(":n.acl.{name}").parse().unwrap();
            let path = top.join(&pattern.parse().unwrap()).unwrap();
            self.put_at(&path, Some(&encode(&Value::from(*letters))));
        }
    }

    /// Makes a user of a role, with an access list of the same name.
    pub(super) fn record(&self, name: &str, role: &str) {
        self.put(&format!(":n.auth.password.user.{name}.acl"), Some(map! {"key": name}));
        self.put(&format!(":n.auth.password.user.{name}"), Some(map! {"role": role}));
    }

    /// A client that has logged in as a user with this access list.
    pub(super) fn user(&self, name: &str, patterns: &[(&str, &str)]) -> Client {
        self.user_with_qlen(name, patterns, 0)
    }

    pub(super) fn user_with_qlen(
        &self,
        name: &str,
        patterns: &[(&str, &str)],
        qlen: u64,
    ) -> Client {
        self.record(name, "user");
        self.list(name, patterns);
        self.login(name, qlen)
    }

    /// A client that has logged in as a user that there is, or was.
    pub(super) fn login(&self, name: &str, qlen: u64) -> Client {
        let (method, name) = ("password".into(), name.into());
        let identity = Identity::User { method, name, after: None, disconnect: None };
        self.node.server.assume(identity);
        let client = self.node.connect_with_qlen(qlen);
        self.node.server.assume(Identity::KeyHolder);
        client
    }
}

/// A path's elements, each encoded.
pub(super) type Elements = Vec<Vec<u8>>;

/// The elements of a path in a message: an extension, or an array.
pub(super) fn elements(value: &Value) -> Elements {
    match value {
        Value::Ext(3, bytes) => {
            let path = Path::from_canonical(bytes).unwrap();
            of_path(&path)
        }
        Value::Array(items) => items.iter().map(encode).collect(),
        other => panic!("no path: {other}"),
    }
}

pub(super) fn of_path(path: &Path) -> Elements {
    let mut found = Vec::new();
    for element in path.elements() {
        let mut bytes = Vec::new();
        element.encode(&mut bytes);
        found.push(bytes);
    }
    found
}

/// The elements of a path in text form.
pub(super) fn at(text: &str) -> Elements {
    of_path(&text.parse().unwrap())
}

/// The paths of a stream's messages, below its top, with their values; states are passed over. An error ends
/// it, and is an entry with its code.
pub(super) fn entries(messages: &[Value]) -> Vec<(Elements, Option<Value>)> {
    let (mut found, mut last) = (Vec::new(), Elements::new());
    for message in messages {
        if has(message, "path") {
            last.truncate(message["depth"].as_u64().unwrap() as usize);
            last.extend(elements(&message["path"]));
            let value = has(message, "value").then(|| message["value"].clone());
            found.push((last.clone(), value));
        } else if has(message, "code") {
            found.push((vec![b"error".to_vec()], Some(message["code"].clone())));
        }
    }
    found
}

/// What [`entries`] has for some paths in text form, all with a number.
pub(super) fn numbers(of: &[(&str, i64)]) -> Vec<(Elements, Option<Value>)> {
    of.iter().map(|(text, value)| (at(text), Some(Value::from(*value)))).collect()
}

/// What [`entries`] has at the end of a stream that failed.
pub(super) fn failed(code: &str) -> (Elements, Option<Value>) {
    (vec![b"error".to_vec()], Some(Value::from(code)))
}
