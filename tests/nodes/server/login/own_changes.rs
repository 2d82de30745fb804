//! How often users may change their own secret, or end their own connections, at a node.

use distkv_access::users::{OWN_CHANGE_INTERVAL_MS, OWN_CHANGES_AT_ONCE_MAX};

use super::{admin, limited, logged_in, password, secured};
use crate::harness::{Client, Node, Value, text};

const OFTEN: u32 = OWN_CHANGES_AT_ONCE_MAX;

/// How many tests of a user's own changes can be made before one is refused, and the refusal.
fn until_refused(client: &mut Client, change: impl Fn(u32) -> Value) -> (u32, Value) {
    // Each takes a hash of some 30 ms, so on a slow machine one more may be allowed in between.
    for n in 0..10 * OFTEN {
        let seq = client.start(change(n));
        let reply = client.reply(seq);
        if reply["changed"].as_bool() != Some(true) {
            return (n, reply);
        }
    }
    panic!("it is never refused");
}

/// A token of joe's, by number.
fn token(n: u32) -> Value {
    let secret = format!("{n:040}");
    map! {"action": "auth_set", "typ": "token", "ident": "joe", "secret": secret}
}

fn joe_with_token(node: &Node, admin: &mut Client) -> Client {
    let made = map! {
        "action": "auth_set", "typ": "token", "ident": "joe", "secret": "t".repeat(40), "acl": "*",
    };
    admin.ok(made);
    logged_in(node, "token", "joe", &"t".repeat(40))
}

#[test]
fn a_user_changes_itself_a_few_times_at_once_and_is_then_told_how_long_to_wait() {
    let node = secured();
    let mut admin = admin(&node);
    let mut joe = joe_with_token(&node, &mut admin);
    let (made, refusal) = until_refused(&mut joe, token);
    assert!(made >= OFTEN, "{made}");
    assert_eq!(text(&refusal, "code"), "too_many");
    let why = text(&refusal, "error");
    let wait = why.split("try again in ").nth(1).and_then(|rest| rest.split(' ').next());
    let wait: u64 = wait.and_then(|wait| wait.parse().ok()).expect(why);
    assert!((1..=OWN_CHANGE_INTERVAL_MS.div_ceil(1_000)).contains(&wait), "{why}");
    assert!(why.contains("nothing was changed") && why.contains("an admin"), "{why}");
    // The connection goes on, and the last secret that was taken counts.
    joe.set("a", 1);
    logged_in(&node, "token", "joe", &format!("{:040}", made - 1));
    // It is the user that is counted, on whichever connection, and for whichever of the two changes.
    let mut other = logged_in(&node, "token", "joe", &format!("{:040}", made - 1));
    let ends = map! {"action": "auth_disconnect", "typ": "token", "ident": "joe"};
    assert_eq!(other.code(ends), "too_many");
    other.set("a", 2);
    // What is so already is no change.
    assert_eq!(other.ok(token(made - 1))["changed"].as_bool(), Some(false));
}

#[test]
fn admins_are_never_kept_waiting_nor_is_one_user_by_another_one() {
    let node = secured();
    let mut admin = admin(&node);
    let mut joe = joe_with_token(&node, &mut admin);
    until_refused(&mut joe, token);
    for n in 0..3 * OFTEN {
        admin.ok(token(1_000 + n));
    }
    admin.ok(map! {"action": "auth_disconnect", "typ": "token", "ident": "joe"});
    // Nor is somebody of the same name and another method.
    for user in ["amy", "joe"] {
        admin.ok(limited(user, "test123", "*"));
        logged_in(&node, "password", user, "test123").ok(password(user, "test124"));
    }
    let own = |n: u32| {
        map! {
            "action": "auth_set", "typ": "token", "ident": "boss", "secret": format!("{n:040}"),
        }
    };
    admin.ok(own(0));
    let mut boss = logged_in(&node, "token", "boss", &format!("{:040}", 0));
    for n in 1..3 * OFTEN {
        boss.ok(own(n));
    }
}

#[test]
fn a_password_that_is_one_too_many_is_refused_and_the_one_before_stays() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let mut joe = logged_in(&node, "password", "joe", "test123");
    let (made, refusal) = until_refused(&mut joe, |n| password("joe", &format!("own{n:05}")));
    assert_eq!(text(&refusal, "code"), "too_many");
    assert!(made >= OFTEN, "{made}");
    logged_in(&node, "password", "joe", &format!("own{:05}", made - 1));
}

/// The name is the same, and it is somebody else.
#[test]
fn a_user_who_is_removed_and_made_again_has_all_its_changes_and_cannot_get_them_back_itself() {
    let node = secured();
    let mut admin = admin(&node);
    let mut joe = joe_with_token(&node, &mut admin);
    until_refused(&mut joe, token);
    for _ in 0..2 {
        admin.ok(map! {"action": "auth_delete", "typ": "token", "ident": "joe"});
        let mut joe = joe_with_token(&node, &mut admin);
        let (made, refusal) = until_refused(&mut joe, token);
        assert!(made >= OFTEN, "{made}");
        assert_eq!(text(&refusal, "code"), "too_many");
        // A change by an admin makes nobody new.
        admin.ok(token(2_000));
        let mut joe = logged_in(&node, "token", "joe", &format!("{:040}", 2_000));
        assert_eq!(joe.code(token(2_001)), "too_many");
    }
}
