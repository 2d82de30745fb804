//! Many logins at once: right ones do not keep each other out, and guesses gain nothing by it.

use std::time::Instant;

use distkv_access::secret::guesses::FREE;

use super::{admin, guess, limited, logged_in, login, password, secured};
use crate::harness::{Client, Node, Value, has, text};

/// What becomes of these logins, each on a connection of its own, all of them sent before any is answered: the codes
/// of those that fail, none of those that are in.
fn all_at_once(node: &Node, logins: impl IntoIterator<Item = Value>) -> Vec<Option<String>> {
    let logins: Vec<Value> = logins.into_iter().collect();
    let mut clients: Vec<Client> = logins.iter().map(|_| node.connect()).collect();
    let asked = clients.iter_mut().zip(logins);
    let begun: Vec<u64> = asked.map(|(client, login)| client.start(login)).collect();
    let outcome = |(client, seq): (&mut Client, u64)| {
        assert_eq!(text(&client.reply(seq), "state"), "start");
        let next = client.reply(seq);
        has(&next, "error").then(|| text(&next, "code").to_owned())
    };
    clients.iter_mut().zip(begun).map(outcome).collect()
}

#[test]
fn right_logins_of_one_user_at_once_all_get_in_and_leave_no_failure_behind() {
    let node = secured();
    admin(&node).ok(password("joe", "test123"));
    let outcomes = all_at_once(&node, (0..20).map(|_| login("password", "joe", "test123")));
    assert_eq!(outcomes, vec![None; 20]);
    // Once more where it is known.
    let outcomes = all_at_once(&node, (0..20).map(|_| login("password", "joe", "test123")));
    assert_eq!(outcomes, vec![None; 20]);
    // Whoever comes from here has all the guesses that are free.
    let mut other = node.connect();
    for n in 0..FREE {
        assert_eq!(other.code(guess("amy", n)), "auth_failed");
    }
    assert_eq!(other.code(guess("amy", FREE)), "too_many");
    // And joe still gets in.
    logged_in(&node, "password", "joe", "test123");
}

#[test]
fn different_users_from_one_address_at_once_all_get_in() {
    let node = secured();
    let mut admin = admin(&node);
    for n in 0..12 {
        admin.ok(limited(&format!("user{n}"), &format!("secret {n}"), "plant"));
    }
    let one = |n| login("password", &format!("user{n}"), &format!("secret {n}"));
    assert_eq!(all_at_once(&node, (0..12).map(one)), vec![None; 12]);
}

#[test]
fn guesses_at_once_are_looked_at_as_often_as_one_after_the_other() {
    let node = secured();
    admin(&node).ok(password("joe", "test123"));
    let began = Instant::now();
    let outcomes = all_at_once(&node, (0..200).map(|n| guess("joe", n)));
    // On a slow machine, waits end meanwhile: after 1 s one more guess is free, after 2 s another one, and so on.
    let seconds = began.elapsed().as_secs();
    let more = (0..).take_while(|n| (1 << (n + 1)) - 1 <= seconds).count();
    let looked_at = outcomes.iter().filter(|code| code.as_deref() == Some("auth_failed")).count();
    let refused = outcomes.iter().filter(|code| code.as_deref() == Some("too_many")).count();
    assert_eq!(looked_at + refused, 200, "{outcomes:?}");
    assert!(
        (FREE as usize..=FREE as usize + more).contains(&looked_at),
        "{looked_at}, {seconds} s"
    );
}
