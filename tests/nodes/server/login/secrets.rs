//! Passwords, tokens and keys: what logs in, what does not, and what is never shown.

use distkv::engine::Engine;
use distkv::model::path::Path;
use distkv::replica::write::Write;
use distkv_access::dh::Group;
use distkv_access::secret::guesses::FREE;

use super::{
    TEST123, admin, agree, boxed, bytes, guess, key_login, logged_in, login, password, secured,
};
use crate::harness::{Client, Node, Value, encode, fields, has, path, text};

const FAILED: &str = "AuthFailedError('Password hashes do not match', 'joe')";

/// A node whose clients must log in as the original's servers have it.
fn open_with_passwords() -> Node {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(password("joe", "test123"));
    client.ok(map! {"action": "set_auth_typ", "typ": "password"});
    node
}

#[test]
fn a_client_of_the_original_logs_in_with_a_box_in_either_group() {
    for (node, group) in [
        (open_with_passwords(), Group::Five),
        (open_with_passwords(), Group::Fourteen),
        (secured_with_joe(), Group::Fourteen),
    ] {
        let mut client = node.connect();
        let key = agree(&mut client, group);
        let wrong = client.error(boxed(&key, "joe", &[0; 32]));
        assert_eq!(text(&wrong, "error"), FAILED);
        assert_eq!(text(&wrong, "code"), "auth_failed");
        assert_eq!(client.stream(boxed(&key, "joe", &bytes(TEST123))), []);
        client.set("a", 1);
        let again = map! {"action": "diffie_hellman", "pubkey": Value::Binary(vec![5])};
        assert!(text(&client.error(again), "error").contains("Can't call dh twice"));
    }
}

fn secured_with_joe() -> Node {
    let node = secured();
    admin(&node).ok(password("joe", "test123"));
    node
}

#[test]
fn bad_numbers_of_a_key_exchange_end_the_connection() {
    let node = open_with_passwords();
    // Nothing, 1, 2, one that is no square, and far too many digits' last.
    for public in [&[][..], &[1], &[2], &[0x1f], &[0xff; 256]] {
        let mut client = node.connect();
        let public = Value::Binary(public.to_vec());
        client.start(map! {"action": "diffie_hellman", "pubkey": public, "length": 16});
        let error = client.receive().unwrap();
        assert!(text(&error, "error").contains("Public key malformed"), "{error}");
        assert!(!has(&error, "seq"), "as the original");
        assert!(client.receive().is_none());
    }
    let mut client = node.connect();
    let long = Value::Binary(vec![1; 257]);
    let mut last = client.error(map! {"action": "diffie_hellman", "pubkey": long});
    assert_eq!(text(&last, "code"), "bad_request");
    // A secured node takes no group that is too small.
    let node = secured();
    let mut client = node.connect();
    let public = Value::Binary(vec![4]);
    last = client.error(map! {"action": "diffie_hellman", "pubkey": public, "length": 16});
    assert!(text(&last, "error").contains("too small"), "{last}");
}

#[test]
fn a_login_without_a_key_exchange_or_with_another_key_fails() {
    let node = open_with_passwords();
    let mut client = node.connect();
    let sealed = Value::Binary(vec![b'x'; 72]);
    let login = map! {"action": "auth", "typ": "password", "ident": "joe", "password": sealed};
    let error = client.error(login.clone());
    assert!(text(&error, "error").contains("has not executed DH key exchange"), "{error}");
    agree(&mut client, Group::Fourteen);
    let error = client.error(login);
    assert!(text(&error, "error").contains("CryptoError('Decryption failed."), "{error}");
    let missing = map! {"action": "auth", "typ": "password", "ident": "joe"};
    assert!(text(&client.error(missing), "error").contains("'password'"));
}

#[test]
fn unknown_users_and_wrong_secrets_get_one_answer_after_the_same_work() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(password("joe", "test123"));
    admin.ok(map! {"action": "auth_set", "typ": "token", "ident": "robot"});
    let mut client = node.connect();
    for (method, user) in
        [("password", "joe"), ("password", "nobody"), ("token", "robot"), ("token", "nobody")]
    {
        let error = client.error(login(method, user, "wrong"));
        assert_eq!(text(&error, "error"), FAILED.replace("joe", user));
        assert_eq!(text(&error, "code"), "auth_failed");
    }
    // That each refusal computes one hash is tested where that is done (distkv-access, `secret`).
}

#[test]
fn guesses_are_slowed_down_and_good_logins_are_not() {
    let node = secured();
    admin(&node).ok(password("joe", "test123"));
    let mut client = node.connect();
    for n in 0..FREE {
        assert_eq!(client.code(guess("joe", n)), "auth_failed");
    }
    // Another connection does not help, nor the right password, nor another user's name.
    let mut other = node.connect();
    let error = other.error(login("password", "joe", "test123"));
    assert_eq!(text(&error, "code"), "too_many");
    assert!(text(&error, "error").contains("try again in"), "{error}");
    assert_eq!(other.code(login("password", "amy", "x")), "too_many");
    let node = secured();
    admin(&node).ok(password("joe", "test123"));
    for _ in 0..3 * FREE {
        logged_in(&node, "password", "joe", "test123");
    }
}

#[test]
fn who_has_a_token_waits_for_nobody_who_guesses_and_guesses_wait_all_the_same() {
    let node = secured();
    let made = admin(&node).ok(map! {"action": "auth_set", "typ": "token", "ident": "robot"});
    let token = text(&made, "token");
    let mut stranger = node.connect();
    for n in 0..FREE {
        assert_eq!(stranger.code(guess("robot", n)), "auth_failed");
    }
    // On a slow machine, the wait may be over: then one more guess is free.
    let mut guesses = FREE..;
    let mut waits = |method| {
        let mut code = || {
            let secret = format!("guess {}", guesses.next().unwrap());
            stranger.code(login(method, "robot", &secret))
        };
        let first = code();
        first == "too_many" || (first == "auth_failed" && code() == "too_many")
    };
    for method in ["token", "password"] {
        assert!(waits(method), "{method}");
        logged_in(&node, method, "robot", token).set("a", 1);
        assert!(waits(method), "{method}, behind a login");
    }
    // What can be guessed is no token: in a box, anything can be.
    let key = agree(&mut stranger, Group::Fourteen);
    let weak = key.seal([3; 24], &bytes(TEST123)).unwrap();
    let weak = map! {
        "action": "auth_set", "typ": "token", "ident": "weak", "password": Value::Binary(weak),
    };
    let (key_login, _) = key_login(&stranger, &super::KEY);
    stranger.stream(key_login);
    assert_eq!(stranger.code(weak), "bad_request");
}

#[test]
fn a_login_that_is_remembered_answers_no_guess_that_must_wait() {
    let node = secured();
    admin(&node).ok(password("joe", "test123"));
    logged_in(&node, "password", "joe", "test123");
    let mut guesser = node.connect();
    for n in 0..FREE {
        assert_eq!(guesser.code(guess("joe", n)), "auth_failed");
    }
    for secret in ["guess 0", "another guess", "test123"] {
        assert_eq!(guesser.code(login("password", "joe", secret)), "too_many");
    }
}

#[test]
fn a_hash_that_is_stored_logs_nobody_in() {
    let node = open_with_passwords();
    let stored = node.hub.read(|engine: &Engine| {
        let at: distkv::model::path::Path = ":n.auth.password.user.joe".parse().unwrap();
        engine.get(at.as_bytes()).unwrap().value().unwrap().to_vec()
    });
    let record = rmpv::decode::read_value(&mut &stored[..]).unwrap();
    let hash = record["password"].as_str().unwrap().to_owned();
    assert!(hash.starts_with("$argon2id$"), "{hash}");
    let mut client = node.connect();
    assert_eq!(client.code(login("password", "joe", &hash)), "auth_failed");
    let key = agree(&mut client, Group::Fourteen);
    // The SHA-256 of the password is what clients of the original send; it is not what is stored.
    assert!(!stored.windows(32).any(|window| window == bytes(TEST123)));
    assert_eq!(client.stream(boxed(&key, "joe", &bytes(TEST123))), []);
}

#[test]
fn nothing_that_a_client_can_ask_for_shows_a_secret() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited_operator());
    let watch = admin.start(map! {"action": "watch", "path": path(":n"), "fetch": true});
    while text_or(&admin.reply(watch), "state") != "uptodate" {}
    let token = admin.ok(map! {"action": "auth_set", "typ": "token", "ident": "robot"});
    assert_eq!(text(&token, "token").len(), 64);
    let reply = admin.ok(password("joe", "another1"));
    assert!(!has(&reply, "prev"), "{reply}");
    for _ in 0..2 {
        let change = admin.reply(watch);
        assert_eq!(change["value"], Value::Map(Vec::new()), "{change}");
    }
    let joe = || path("auth.password.user.joe");
    let seen = [
        admin.ok(map! {"action": "get_internal", "path": joe(), "nchain": 3}),
        admin.ok(map! {"action": "get_internal", "path": joe()}),
        admin.ok(map! {"action": "get_value", "path": path(":n.auth.password.user.joe")}),
        admin.ok(map! {"action": "get_value", "node": "n1~1", "tick": 3}),
        admin.ok(map! {"action": "batch", "ops": Value::Array(vec![
            map! {"action": "get_internal", "path": joe()},
        ])})["results"][0]
            .clone(),
    ];
    for reply in &seen[..3] {
        assert_eq!(reply["value"], Value::Map(Vec::new()), "{reply}");
    }
    assert_eq!(seen[4]["value"], Value::Map(Vec::new()));
    let users =
        map! {"action": "enum_internal", "path": path("auth.password.user"), "with_data": true};
    assert_eq!(admin.ok(users)["result"], map! {"joe": Value::Map(Vec::new())});
    let tree = admin.stream(map! {"action": "get_tree_internal", "path": path("auth")});
    // Whether there is a secret does not show, only names of lists.
    assert!(
        tree.iter().all(|m| m["value"] == Value::Map(Vec::new()) || has(&m["value"], "key")),
        "{tree:?}"
    );
    assert_eq!(tree.len(), 3);
    // No question of ours tells what it is, either.
    let set = map! {
        "action": "set_internal", "path": joe(), "value": 1, "prev": map! {"role": "user"},
    };
    assert_eq!(admin.code(set), "denied");
    let set = map! {"action": "set_internal", "path": joe(), "value": 1, "idem": true};
    assert_eq!(admin.code(set), "denied");
    // Nor of what is no user's.
    let below = || path("auth.password.user.joe.old");
    for value in [1, 2] {
        let set = map! {"action": "set_internal", "path": below(), "value": value};
        assert!(!has(&admin.ok(set), "prev"));
    }
    for set in [
        map! {"action": "set_internal", "path": below(), "value": 2, "prev": 2},
        map! {"action": "set_internal", "path": below(), "value": 2, "idem": true},
    ] {
        assert_eq!(admin.code(set.clone()), "denied", "{set}");
    }
    admin.ok(map! {"action": "delete_internal", "path": below()});
    let delete = map! {"action": "delete_internal", "path": joe(), "nchain": 1};
    assert!(!has(&admin.ok(delete), "prev"));
    let conflicts = admin.stream(map! {"action": "conflicts", "path": path(":n"), "nchain": 1});
    assert_eq!(conflicts, []);
}

#[test]
fn neither_conflicts_nor_deletions_show_a_secret() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(password("joe", "test123"));
    let conflicting = admin.start(map! {"action": "watch", "path": path(":n"), "conflicts": true});
    assert_eq!(text(&admin.reply(conflicting), "state"), "start");
    // Others have changed the user, too.
    let theirs = map! {"password": "$argon2id$hushhush", "role": "user"};
    let theirs = crate::harness::encode(&theirs);
    let mut peer = crate::server::streams::conflicts::Peer::new(&node);
    peer.push(":n.auth.password.user.joe", Some(&theirs), 1_000);
    let mut told = vec![admin.reply(conflicting), admin.reply(conflicting)];
    assert!(told.iter().any(|message| has(message, "conflict")), "{told:?}");
    let all = map! {"action": "conflicts", "path": path(":n"), "nchain": 1};
    told.extend(admin.stream(all));
    let delete = map! {"action": "delete_tree", "path": path(":n.auth.password"), "nchain": 2};
    let deleted = admin.stream(delete);
    assert!(deleted.iter().any(|message| has(message, "path")), "{deleted:?}");
    told.extend(deleted);
    for message in told {
        let text = message.to_string();
        assert!(!text.contains("argon2id") && !text.contains("role"), "{text}");
    }
}

fn limited_operator() -> Value {
    map! {
        "action": "auth_set", "typ": "password", "ident": "joe", "secret": "geheim12",
        "role": "operator", "acl": "*",
    }
}

fn text_or<'v>(message: &'v Value, field: &str) -> &'v str {
    message[field].as_str().unwrap_or_default()
}

#[test]
fn a_token_is_made_by_the_node_told_once_and_used_like_a_password_too() {
    let node = secured();
    let mut admin = admin(&node);
    let reply = admin.ok(map! {"action": "auth_set", "typ": "token", "ident": "robot"});
    assert_eq!(fields(&reply), ["changed", "chain", "tock", "seq", "token"]);
    let token = text(&reply, "token").to_owned();
    logged_in(&node, "token", "robot", &token);
    logged_in(&node, "password", "robot", &token);
    // What else is changed leaves it as it is; without anything else, there is a new one.
    admin.ok(map! {"action": "auth_set", "typ": "token", "ident": "robot", "role": "operator"});
    logged_in(&node, "token", "robot", &token);
    let other = admin.ok(map! {"action": "auth_set", "typ": "token", "ident": "robot"});
    assert_ne!(text(&other, "token"), token);
    assert_eq!(node.connect().code(login("token", "robot", &token)), "auth_failed");
    let short = map! {"action": "auth_set", "typ": "token", "ident": "r2", "secret": "short"};
    assert_eq!(admin.code(short), "bad_request");
}

/// Clients that were told no method log in by the one that the node asks for, whatever their user's secret is.
#[test]
fn a_password_logs_in_by_either_method_as_a_token_does_where_both_are_served() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(password("joe", "test123"));
    let of_token =
        |user: &str| map! {"action": "auth_set", "typ": "token", "ident": user, "role": "admin"};
    admin.ok(of_token("robot"));
    admin.ok(password("both", "test124"));
    let token = text(&admin.ok(of_token("both")), "token").to_owned();
    admin.ok(map! {"action": "set_auth_typ", "typ": "token"});
    let asked = node.connect().hello["auth"].clone();
    assert_eq!(asked[0].as_str(), Some("token"));
    let who = |client: &mut Client| {
        let told = client.ok(map! {"action": "auth_info"});
        (text(&told, "method").to_owned(), text(&told, "user").to_owned())
    };
    // Nor does anything that was right count as a guess.
    for _ in 0..=FREE {
        let mut joe = logged_in(&node, "token", "joe", "test123");
        assert_eq!(who(&mut joe), ("password".to_owned(), "joe".to_owned()));
        assert_eq!(joe.stream(login("token", "joe", "test123")), []);
    }
    // Of a name that two users have, the secret says which one it is.
    for (secret, method) in [("test124", "password"), (&*token, "token")] {
        for by in ["token", "password"] {
            let mut client = logged_in(&node, by, "both", secret);
            assert_eq!(who(&mut client), (method.to_owned(), "both".to_owned()), "{by}");
        }
    }
    assert_eq!(node.connect().code(login("token", "joe", "wrong")), "auth_failed");
    assert_eq!(node.connect().code(login("token", "nobody", "test123")), "auth_failed");

    // An open node lets in by the method in force, and a password is no token.
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(password("joe", "test123"));
    client.ok(of_token("robot"));
    client.ok(map! {"action": "set_auth_typ", "typ": "token"});
    for by in ["token", "password"] {
        assert_eq!(node.connect().code(login(by, "joe", "test123")), "auth_failed", "{by}");
    }
}

/// What the data has because it was loaded: clients cannot store it.
fn as_loaded(node: &Node, at: &str, value: &Value) {
    let at: Path = at.parse().unwrap();
    node.hub.write(Write::new(&at, Some(&encode(value))), false).0.unwrap();
}

#[test]
fn passwords_of_the_original_log_in_and_are_stored_anew_by_that() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let record = map! {"password": Value::Binary(bytes(TEST123)), "role": "admin"};
    as_loaded(&node, ":n.auth.password.user.joe", &record);
    let stored = || {
        node.hub.read(|engine: &Engine| {
            let at: distkv::model::path::Path = ":n.auth.password.user.joe".parse().unwrap();
            let value = engine.get(at.as_bytes()).unwrap().value().unwrap().to_vec();
            rmpv::decode::read_value(&mut &value[..]).unwrap()
        })
    };
    assert!(stored()["password"].is_bin());
    client.ok(map! {"action": "set_auth_typ", "typ": "password"});
    assert_eq!(node.connect().code(login("password", "joe", "wrong")), "auth_failed");
    assert!(stored()["password"].is_bin());
    logged_in(&node, "password", "joe", "test123");
    assert!(stored()["password"].as_str().unwrap().starts_with("$argon2id$"));
    assert_eq!(stored()["role"].as_str(), Some("admin"));
    logged_in(&node, "password", "joe", "test123").set("a", 1);
    // That is no other secret.
    let record = map! {"password": Value::Binary(bytes(TEST123)), "role": "user"};
    as_loaded(&node, ":n.auth.password.user.amy", &record);
    logged_in(&node, "password", "amy", "test123").ok(password("amy", "test124"));
}

#[test]
fn a_login_that_is_remembered_is_forgotten_when_the_password_changes() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(password("joe", "test123"));
    for _ in 0..2 {
        logged_in(&node, "password", "joe", "test123");
    }
    admin.ok(password("joe", "test124"));
    assert_eq!(node.connect().code(login("password", "joe", "test123")), "auth_failed");
    logged_in(&node, "password", "joe", "test124");
}

#[test]
fn methods_without_a_secret_are_for_open_nodes_only() {
    let node = Node::found("n1");
    let mut client = node.connect();
    client.ok(map! {"action": "auth_set", "typ": "root", "ident": "*", "chain": Value::Nil});
    client.ok(map! {"action": "set_auth_typ", "typ": "root"});
    let root = || map! {"action": "auth", "typ": "root", "ident": "*", "data": map! {}};
    let mut client = node.connect();
    assert_eq!(client.code(map! {"action": "auth", "typ": "root", "ident": "joe"}), "auth_failed");
    let error = client.error(login("password", "joe", "x"));
    assert_eq!(text(&error, "error"), "RuntimeError('Wrong auth type', 'root')");
    assert_eq!(client.stream(root()), []);
    client.set("a", 1);
    let node = secured();
    let mut admin = admin(&node);
    let make = map! {"action": "auth_set", "typ": "root", "ident": "*", "chain": Value::Nil};
    assert_eq!(admin.code(make), "denied");
    as_loaded(&node, ":n.auth.root.user.*", &map! {"role": "admin"});
    assert_eq!(node.connect().code(root()), "auth_failed");
}

#[test]
fn the_cluster_key_logs_in_only_where_it_is_the_node_s_and_for_the_present_nonce() {
    let node = secured();
    let mut client = node.connect();
    let (wrong, _) = key_login(&client, &[8; 32]);
    assert_eq!(client.code(wrong), "auth_failed");
    let (old, _) = key_login(&node.connect(), &super::KEY);
    assert_eq!(client.code(old), "auth_failed");
    let bare = map! {"action": "auth", "typ": "key", "ident": "*"};
    assert_eq!(client.code(bare), "bad_request");
    let (right, proof) = key_login(&client, &super::KEY);
    assert_eq!(client.stream(right)[0]["proof"].as_slice(), Some(&proof[..]));
    client.ok(map! {"action": "auth_list", "typ": "password", "state": "start"});
}
