//! The same wrong secret again is no further guess: a program that goes on with an old one keeps nobody out.

use distkv_access::secret::guesses::FREE;

use super::{admin, guess, limited, logged_in, login, password, secured};
use crate::harness::Node;

/// Far more often than may be guessed.
const OFTEN: usize = 50;

/// A secured node with joe, whose secret was changed.
fn with_joe() -> Node {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(password("joe", "the old one"));
    admin.ok(password("joe", "the new one"));
    node
}

#[test]
fn who_sends_an_old_secret_again_and_again_keeps_nobody_out() {
    let node = with_joe();
    admin(&node).ok(map! {"action": "auth_set", "typ": "token", "ident": "robot"});
    // Users who do not exist are no others.
    for (method, user) in [("password", "joe"), ("password", "nobody"), ("token", "robot")] {
        for _ in 0..OFTEN {
            let mut stale = node.connect();
            assert_eq!(stale.code(login(method, user, "the old one")), "auth_failed", "{user}");
        }
    }
    logged_in(&node, "password", "joe", "the new one");
    // It was one guess of each.
    let mut guesser = node.connect();
    for n in 3..FREE {
        assert_eq!(guesser.code(guess("joe", n)), "auth_failed", "{n}");
    }
}

#[test]
fn different_wrong_secrets_are_guesses_all_the_same() {
    let node = with_joe();
    let mut guesser = node.connect();
    for n in 0..FREE {
        assert_eq!(guesser.code(guess("joe", n)), "auth_failed", "{n}");
    }
    // On a slow machine, a wait may be over meanwhile: then one more guess is free, and the next wait is longer.
    let mut more = (0..).map(|n| login("password", "joe", &format!("more {n}")));
    let mut waits = || (0..OFTEN).all(|_| guesser.code(more.next().unwrap()) == "too_many");
    // Who must wait does not learn what others have tried either, nor what is right.
    for secret in ["guess 0", "the new one"] {
        let mut other = node.connect();
        loop {
            let is_made_to_wait = waits();
            let code = other.code(login("password", "joe", secret));
            if is_made_to_wait && waits() {
                assert_eq!(code, "too_many", "{secret}");
                break;
            }
        }
    }
}

#[test]
fn what_was_wrong_is_looked_at_anew_when_the_user_has_changed() {
    let node = with_joe();
    let mut early = node.connect();
    for user in ["joe", "amy"] {
        for _ in 0..OFTEN {
            assert_eq!(early.code(login("password", user, "the third one")), "auth_failed");
        }
    }
    let mut admin = admin(&node);
    admin.ok(password("joe", "the third one"));
    admin.ok(limited("amy", "the third one", "plant"));
    logged_in(&node, "password", "joe", "the third one");
    logged_in(&node, "password", "amy", "the third one");
    assert_eq!(early.code(login("password", "joe", "the new one")), "auth_failed");
}
