//! Logins and users, over real sockets.

mod certificates;
mod changes;
mod disconnected;
mod grace;
mod guests;
mod keeps_user;
mod own_changes;
mod records;
mod secrets;
mod sides;
mod together;
mod under_way;
mod users;
mod wrong_again;

use distkv::server::ServerConfig;
use distkv::server::access::cluster_key::ClusterKeys;
use distkv_access::dh::{BoxKey, Group, NONCE_BYTES, exchange, public_of};
use distkv_access::secret::key::{self, Nonces, Side};

use crate::harness::{Client, Node, Value, path, text};

/// The cluster's key of these tests.
pub const KEY: [u8; 32] = [7; 32];
/// SHA-256 of `test123`.
pub const TEST123: &str = "ecd71870d1963316a97e3ac3408c9835ad8cf0f3c1bc703527c30265534f75ae";

/// A secured node, the first of its network.
pub fn secured() -> Node {
    Node::found_with("n1", secured_config())
}

/// The settings of a secured node.
pub fn secured_config() -> ServerConfig {
    let cluster_keys = Some(ClusterKeys::new(vec![KEY]));
    ServerConfig { cluster_keys, ..ServerConfig::default() }
}

/// A login with the cluster's key, and the node's proof.
pub fn key_login(client: &Client, key: &[u8; 32]) -> (Value, [u8; 32]) {
    let node = client.hello["nonce"].as_slice().unwrap().try_into().unwrap();
    let nonces = Nonces { client: [9; 32], node };
    let proof = key::prove(key, Side::Client, &nonces).to_vec();
    let login = map! {
        "action": "auth", "typ": "key", "ident": "*", "nonce": Value::Binary(vec![9; 32]),
        "proof": Value::Binary(proof),
    };
    (login, key::prove(key, Side::Node, &nonces))
}

/// A client of a secured node that is an admin.
pub fn admin(node: &Node) -> Client {
    let mut client = node.connect();
    let (login, node) = key_login(&client, &KEY);
    let between = client.stream(login);
    assert_eq!(between[0]["proof"].as_slice(), Some(&node[..]));
    client
}

/// A login with a secret as it is.
pub fn login(method: &str, user: &str, secret: &str) -> Value {
    map! {"action": "auth", "typ": method, "ident": user, "secret": secret}
}

/// A login with a secret that is wrong, another one for each number.
pub fn guess(user: &str, number: u32) -> Value {
    login("password", user, &format!("guess {number}"))
}

/// A user with a password, as our tools make it.
pub fn password(user: &str, secret: &str) -> Value {
    map! {"action": "auth_set", "typ": "password", "kind": "user", "ident": user, "secret": secret}
}

/// The same with an access list.
pub fn limited(user: &str, secret: &str, list: &str) -> Value {
    map! {
        "action": "auth_set", "typ": "password", "kind": "user", "ident": user, "secret": secret,
        "acl": list,
    }
}

/// Reads an entry.
pub fn get(at: &str) -> Value {
    map! {"action": "get_value", "path": path(at)}
}

/// Logs a new client in.
pub fn logged_in(node: &Node, method: &str, user: &str, secret: &str) -> Client {
    let mut client = node.connect();
    assert_eq!(client.stream(login(method, user, secret)), []);
    client
}

/// An entry of an access list.
pub fn pattern(list: &str, pattern: &str, letters: &str) -> Value {
    let path = path(&format!("acl.{list}.{pattern}"));
    map! {"action": "set_internal", "path": path, "value": letters}
}

/// Agrees with the node on a key for boxes, as clients of the original do.
pub fn agree(client: &mut Client, group: Group) -> BoxKey {
    let private = [0xa5; 40];
    let length = if group == Group::Five { 16 } else { 1024 };
    let public = Value::Binary(public_of(group, &private));
    let reply = client.ok(map! {"action": "diffie_hellman", "pubkey": public, "length": length});
    assert_eq!(crate::harness::fields(&reply), ["pubkey", "seq", "tock"]);
    exchange(group, reply["pubkey"].as_slice().unwrap(), &private).unwrap().key
}

/// A login of the original's clients.
pub fn boxed(key: &BoxKey, user: &str, sha256: &[u8]) -> Value {
    let sealed = key.seal([3; NONCE_BYTES], sha256).unwrap();
    map! {"action": "auth", "typ": "password", "ident": user, "password": Value::Binary(sealed)}
}

/// Agrees on a key for boxes, and makes a login of the original's clients: joe's, with `test123`.
pub fn boxed_joe(client: &mut Client) -> Value {
    let key = agree(client, Group::Fourteen);
    boxed(&key, "joe", &bytes(TEST123))
}

/// The bytes of hexadecimal digits.
pub fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// The message with which the node closes a connection.
pub fn last_error(client: &mut Client) -> Value {
    loop {
        let message = client.receive().expect("it is told why");
        if crate::harness::has(&message, "error") {
            assert!(client.receive().is_none());
            assert!(!text(&message, "code").is_empty());
            return message;
        }
    }
}
