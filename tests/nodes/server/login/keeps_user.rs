//! A connection that is logged in keeps its user: who logs in as another one on it is told so, and nothing changes.

use distkv_access::secret::guesses::FREE;

use super::{
    KEY, admin, agree, boxed, boxed_joe, guess, key_login, limited, logged_in, login, secured,
};
use crate::harness::{Client, Node, text};
use distkv_access::dh::Group;

/// A secured node with joe and amy, whose secrets are `test123` and `test124`.
fn with_users() -> Node {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "plant"));
    admin.ok(limited("amy", "test124", "plant"));
    node
}

/// Whom the node takes the client for, and how.
fn known_as(client: &mut Client) -> (Option<String>, Option<String>) {
    let info = client.ok(map! {"action": "auth_info"});
    let [user, method] = ["user", "method"].map(|field| info[field].as_str().map(str::to_owned));
    (user, method)
}

fn amy_by_password() -> (Option<String>, Option<String>) {
    (Some("amy".into()), Some("password".into()))
}

#[test]
fn a_connection_keeps_its_user_and_says_so_to_who_logs_in_as_another_one() {
    let node = with_users();
    let mut client = logged_in(&node, "password", "amy", "test124");
    for (user, secret) in [("joe", "test123"), ("joe", "wrong"), ("nobody", "test123")] {
        let error = client.error(login("password", user, secret));
        let told = format!(
            "nothing was changed: this connection is logged in as the user 'amy', and stays so; open a new connection to \
             log in as the user '{user}'"
        );
        assert_eq!((text(&error, "error"), text(&error, "code")), (&*told, "bad_request"));
    }
    let (by_key, _) = key_login(&client, &KEY);
    let error = client.error(by_key);
    assert!(text(&error, "error").ends_with("to log in with the cluster's key"), "{error}");
    assert_eq!(known_as(&mut client), amy_by_password());
    // Who has the key is nobody else either.
    let error = admin(&node).error(login("password", "joe", "test123"));
    assert!(text(&error, "error").contains("is logged in with the cluster's key"), "{error}");
}

#[test]
fn a_login_as_another_user_on_a_connection_that_is_logged_in_is_no_guess() {
    let node = with_users();
    let mut client = logged_in(&node, "password", "amy", "test124");
    for n in 0..3 * FREE {
        assert_eq!(client.code(guess("joe", n)), "bad_request");
    }
    let mut guesser = node.connect();
    for n in 0..FREE {
        assert_eq!(guesser.code(guess("joe", n)), "auth_failed");
    }
}

#[test]
fn the_same_user_may_log_in_again() {
    let node = with_users();
    let mut client = logged_in(&node, "password", "amy", "test124");
    assert_eq!(client.code(login("password", "amy", "wrong")), "auth_failed");
    assert_eq!(client.stream(login("password", "amy", "test124")), []);
    assert_eq!(known_as(&mut client), amy_by_password());
    // A token is one, whatever it is called.
    let made = admin(&node).ok(map! {"action": "auth_set", "typ": "token", "ident": "robot"});
    let mut robot = logged_in(&node, "token", "robot", text(&made, "token"));
    for method in ["password", "token"] {
        assert_eq!(robot.stream(login(method, "robot", text(&made, "token"))), [], "{method}");
    }
    let mut holder = admin(&node);
    let (by_key, _) = key_login(&holder, &KEY);
    assert_eq!(holder.stream(by_key).len(), 1);
}

#[test]
fn a_login_of_the_originals_form_tries_a_password_on_a_connection_that_is_logged_in() {
    let node = with_users();
    let mut client = logged_in(&node, "password", "amy", "test124");
    let joe = boxed_joe(&mut client);
    assert_eq!(client.stream(joe), [], "its command `auth user auth` needs that");
    assert_eq!(known_as(&mut client), amy_by_password());
    let mut other = logged_in(&node, "password", "amy", "test124");
    let key = agree(&mut other, Group::Fourteen);
    assert_eq!(other.code(boxed(&key, "joe", &[0; 32])), "auth_failed");
}
