//! Records, roles, and the directory that is compiled of them.

use distkv_core::protocol::client::Action;
use distkv_model::ids::{Event, NodeIndex, Tick};
use distkv_model::meta::Login;
use distkv_model::path::Path;
use distkv_model::value::write_str;

use super::*;
use crate::acl::Letters;
use crate::secret::{PasswordHash, Secret, Sent, TokenHash, check};

/// As [`least_role`], by the action's name in a request; none for a name that is no action, which nobody may
/// ask for.
fn least_role_of_name(name: &[u8]) -> Option<Role> {
    Action::of(name).map(least_role)
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn event(tick: u64) -> Event {
    Event { node: NodeIndex(0), tick: Tick::new(tick).unwrap() }
}

/// MessagePack of a map from text to text.
fn map(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = vec![0x80 | fields.len() as u8];
    for (key, value) in fields {
        write_str(key, &mut bytes);
        write_str(value, &mut bytes);
    }
    bytes
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_str(text, &mut bytes);
    bytes
}

fn directory(entries: &[(&str, Vec<u8>)]) -> Directory {
    let entries = entries.iter().zip(1..);
    Directory::build(7, entries.map(|((p, v), tick)| (path(p), v.as_slice(), event(tick))))
}

fn letters(directory: &Directory, ident: &str, at: &str) -> String {
    let user = directory.user("password", ident).unwrap();
    directory.rights_of(user).letters(path(at).as_bytes()).to_string()
}

const JOE: &str = ":n.auth.password.user.joe";
const JOES_ACL: &str = ":n.auth.password.user.joe.acl";

#[test]
fn places_are_where_the_original_has_them() {
    let user = path(JOE);
    assert_eq!(user_path("password", "joe"), Ok(user.clone()));
    assert_eq!(Place::of(&user), Some(Place::User { method: "password", ident: "joe" }));
    let acl = user_acl_path("password", "joe").unwrap();
    assert_eq!(acl, path(JOES_ACL));
    assert_eq!(Place::of(&acl), Some(Place::UserAcl { method: "password", ident: "joe" }));
    let revoked = revoked_path("password", "joe").unwrap();
    assert_eq!(revoked, path(":n.auth.revoked.password.joe"));
    assert_eq!(Place::of(&revoked), Some(Place::Revoked { method: "password", ident: "joe" }));
    let removal = removal_path("password", "joe", Removal([7; REMOVAL_BYTES])).unwrap();
    assert_eq!(removal.parent(), Some(revoked));
    assert_eq!(Place::of(&removal), Some(Place::Removal { method: "password", ident: "joe" }));
    let pattern = acl_path("lim").unwrap().join(&path("a.+")).unwrap();
    assert_eq!(Place::of(&pattern), Some(Place::Pattern { name: "lim", pattern: path("a.+") }));
    assert_eq!(Place::of(&path(":n.auth")), Some(Place::Login));
    let others = [
        ":n.auth.password",
        ":n.auth.password.user",
        ":n.auth.password.user.joe.conv",
        ":n.auth.password.user:1",
        ":n.auth.revoked.password",
        ":n.acl",
        ":n.acl:1.a",
        ":n",
        "auth",
        ":n.auth.revoked.user.joe.acl",
        ":n.auth.password.user.joe.acl.x",
        ":n.type.x",
        ":",
    ];
    for other in others {
        assert_eq!(Place::of(&path(other)), None, "{other}");
    }
    // A method of that name would hide revocations.
    let place = path(":n.auth.revoked.user.joe");
    assert_eq!(Place::of(&place), Some(Place::Revoked { method: "user", ident: "joe" }));
    assert!(user_path(&"x".repeat(5_000), "joe").is_err());
}

#[test]
fn a_record_is_written_as_it_is_read_and_keeps_fields_of_others() {
    let secret = Secret::Token(TokenHash::of(&Sent::of_text("token")));
    let value = [&b"\x83\xa1x\x05\xa4role\xa8operator\xa5token\xc4\x20"[..], &[7; 32]].concat();
    let record = Record::read(&value).unwrap();
    assert_eq!(record.role, Some(Role::Operator));
    let written = record.write().unwrap();
    let again = Record::read(written.as_bytes()).unwrap();
    assert_eq!(again.write().unwrap(), written);
    assert!(written.as_bytes().ends_with(b"\xa1x\x05"));
    let changed = again.with_secret(secret).write().unwrap();
    let changed = Record::read(changed.as_bytes()).unwrap();
    assert_eq!(changed.role, Some(Role::Operator));
    assert!(check(Some(&changed.secret), &Sent::of_text("token")));
}

/// A record of so many fields that mean nothing here.
fn record_of_others(count: u8) -> Vec<u8> {
    let others = (0..count).flat_map(|number| [0xcc, number, 0xc0]);
    [0xde, 0, count].into_iter().chain(others).collect()
}

#[test]
fn a_record_that_could_not_be_read_again_is_not_written() {
    let secret = || Secret::Token(TokenHash::of(&Sent::of_text("token")));
    let nearly = Record::read(&record_of_others(63)).unwrap().with_secret(secret());
    let again = Record::read(nearly.write().unwrap().as_bytes()).unwrap();
    assert!(check(Some(&again.secret), &Sent::of_text("token")));
    // Another secret is one more field, and so is that an admin becomes a user.
    let full = Record::read(&record_of_others(64)).unwrap();
    assert!(Record::read(full.write().unwrap().as_bytes()).is_ok());
    for changed in [full.with_secret(secret()), again.before_acl().unwrap()] {
        // Nobody could log in with it any more.
        assert_eq!(changed.write(), Err(RecordError::TooManyFields));
    }
    assert_eq!(Record::read(&record_of_others(65)).unwrap_err(), RecordError::NoMap);
    // Whose record says that it is an admin can always become a user.
    let mut admin = Record::read(&record_of_others(63)).unwrap();
    admin.role = Some(Role::Admin);
    let admin = Record::read(admin.write().unwrap().as_bytes()).unwrap();
    assert!(admin.before_acl().unwrap().write().is_ok());
}

#[test]
fn a_record_keeps_which_end_of_connections_it_knows_of_whatever_else_changes() {
    let ended = Some(Disconnect([7; DISCONNECT_BYTES]));
    let mut record = Record::of_auth_set(Secret::None);
    record.disconnect = ended;
    let read = |record: &Record| Record::read(record.write().unwrap().as_bytes()).unwrap();
    let record =
        read(&read(&record).with_secret(Secret::Token(TokenHash::of(&Sent::of_text("t")))));
    assert_eq!(record.disconnect, ended);
    let record = read(&record.before_acl().unwrap());
    assert_eq!(record.disconnect, ended);
    let stored = record.write().unwrap();
    let found = directory(&[(JOE, stored.as_bytes().to_vec())]);
    assert_eq!(found.user("password", "joe").unwrap().disconnect, ended);
    // What is no id is none.
    for odd in [&b"\x81\xaadisconnect\xc4\x01\x07"[..], b"\x81\xaadisconnect\x05"] {
        assert_eq!(Record::read(odd).unwrap().disconnect, None);
    }
}

#[test]
fn a_record_of_the_original_is_read_and_converted() {
    let sent = Sent::of_text("test123");
    let value = [&b"\x81\xa8password\xc4\x20"[..], sent.as_bytes()].concat();
    let record = Record::read(&value).unwrap();
    assert_eq!(record.role, None);
    assert!(check(Some(&record.secret), &sent));
    let password = Secret::Password(PasswordHash::new(&sent, [3; 16]).unwrap());
    let stored = record.with_secret(password).write().unwrap();
    assert!(!stored.as_bytes().windows(32).any(|w| w == sent.as_bytes()));
    let again = Record::read(stored.as_bytes()).unwrap();
    assert!(check(Some(&again.secret), &sent) && !check(Some(&again.secret), &Sent::of_text("x")));
    assert!(matches!(again.secret, Secret::Password(_)), "there is nothing left to convert");
}

#[test]
fn a_record_that_is_odd_gives_no_rights_and_no_login() {
    for value in [&b"\xc0"[..], b"\xa1x", b"\x90", b"\xde\x00\x41", b"\x81\xa4role"] {
        assert_eq!(Record::read(value).unwrap_err(), RecordError::NoMap, "{value:02x?}");
    }
    let records = [
        &b"\x80"[..],
        b"\x81\xa8password\xc4\x05short",
        b"\x81\xa8password\xa5plain",
        b"\x81\xa8password\xc3",
        b"\x81\xa5token\xa3abc",
    ];
    for value in records {
        let record = Record::read(value).unwrap();
        assert!(matches!(record.secret, Secret::None), "{value:02x?}");
    }
    for value in [map(&[("role", "root")]), map(&[("role", "Admin")]), b"\x81\xa4role\x01".to_vec()]
    {
        assert_eq!(Record::read(&value).unwrap().role, Some(Role::User));
    }
}

#[test]
fn an_access_list_makes_a_user_of_an_admin_and_gives_nothing_back() {
    let admin = Record::of_auth_set(Secret::None);
    assert_eq!(admin.role, Some(Role::Admin));
    let first = admin.before_acl().unwrap();
    assert_eq!(first.role, Some(Role::User));
    assert!(first.before_acl().is_none());
    assert!(Record::new(Role::Operator, Secret::None).before_acl().is_none());
    assert_eq!(Record::default().before_acl().unwrap().role, Some(Role::User));

    let admin = admin.write().unwrap().as_bytes().to_vec();
    let alone = directory(&[(JOE, admin.clone())]);
    assert_eq!(alone.user("password", "joe").unwrap().role, Role::Admin);
    assert_eq!(letters(&alone, "joe", ":n.auth"), "rwcdxena");
    // The list came before the record that makes it a user.
    let listed = [(JOE, admin), (JOES_ACL, acl_name_value("lim")), (":n.acl.lim.a", text("r"))];
    let listed = directory(&listed);
    assert_eq!(listed.user("password", "joe").unwrap().role, Role::User);
    assert_eq!(letters(&listed, "joe", "a"), "r");
    assert_eq!(letters(&listed, "joe", ":n.auth"), "");
    // The list was removed.
    let removed = directory(&[(JOE, first.write().unwrap().as_bytes().to_vec())]);
    assert_eq!(letters(&removed, "joe", "a"), "");
}

#[test]
fn lists_that_are_missing_or_unreadable_allow_nothing_and_a_star_all_data() {
    let of = |acl: Vec<u8>| directory(&[(JOE, map(&[("role", "user")])), (JOES_ACL, acl)]);
    let star = of(acl_name_value("*"));
    assert_eq!(letters(&star, "joe", "a.b"), "rwcdxena");
    assert_eq!(letters(&star, "joe", ":n.acl"), "");
    for acl in
        [acl_name_value("nope"), map(&[]), text("*"), b"\xc0".to_vec(), b"\x81\xa3key\x01".to_vec()]
    {
        assert_eq!(letters(&of(acl), "joe", "a"), "");
    }
    let warning = Warning::NoList("nope".into(), "joe".into());
    assert_eq!(of(acl_name_value("nope")).warnings(), [warning]);
    // Without a role, from the original: what the list says.
    let old = directory(&[(JOE, b"\x80".to_vec()), (JOES_ACL, acl_name_value("*"))]);
    assert_eq!(old.user("password", "joe").unwrap().role, Role::User);
    assert_eq!(letters(&old, "joe", "a"), "rwcdxena");
    assert_eq!(letters(&directory(&[(JOE, b"\x80".to_vec())]), "joe", "a"), "");
}

#[test]
fn a_revoked_user_is_gone_whatever_its_record_says_and_in_whatever_order_it_came() {
    let admin = map(&[("role", "admin")]);
    let revoked = (":n.auth.revoked.password.joe", b"\xc3".to_vec());
    let joe = (JOE, admin.clone());
    for entries in [[joe.clone(), revoked.clone()], [revoked.clone(), joe]] {
        assert!(directory(&entries).user("password", "joe").is_none());
    }
    let again = Removal([7; REMOVAL_BYTES]);
    let record = |after| {
        let mut record = Record::new(Role::User, Secret::None);
        record.after = after;
        record.write().unwrap().as_bytes().to_vec()
    };
    let made_again = (":n.auth.revoked.password.joe", again.made_again());
    for (removed, after, is_user) in [
        (made_again.clone(), Some(again), true),
        (made_again.clone(), None, false),
        (made_again, Some(Removal([8; REMOVAL_BYTES])), false),
        ((":n.auth.revoked.password.joe", Removal::removed()), Some(again), false),
        ((":n.auth.revoked.password.joe", map(&[("again", "text")])), None, false),
        ((":n.auth.revoked.password.joe", b"\xdf\xff\xff\xff\xff".to_vec()), None, false),
    ] {
        let found = directory(&[(JOE, record(after)), removed.clone()]);
        assert_eq!(found.user("password", "joe").is_some(), is_user, "{removed:?} {after:?}");
        let told = found.warnings().iter().any(|w| matches!(w, Warning::Removed(..)));
        assert_eq!(told, !is_user);
    }
    // One removal that was not known where the user was made again is enough, in whatever order it came.
    let joe = [(JOE, record(Some(again))), (":n.auth.revoked.password.joe", again.made_again())];
    let removal = |method, ident| removal_path(method, ident, again).unwrap().to_string();
    for at in 0..=joe.len() {
        let mut entries = joe.to_vec();
        let removal = removal("password", "joe");
        entries.insert(at, (&removal, Removal::removed()));
        assert!(directory(&entries).user("password", "joe").is_none(), "{removal} {at}");
    }
    for other in [removal("password", "amy"), removal("token", "joe")] {
        let entries = [&joe[..], &[(&other, Removal::removed())]].concat();
        assert!(directory(&entries).user("password", "joe").is_some(), "{other}");
    }
    // A new secret is still of the same user.
    let changed = Record::read(&record(Some(again))).unwrap().with_secret(Secret::None);
    assert_eq!(changed.after, Some(again));
    let other = directory(&[(":n.auth.root.user.joe", admin), revoked]);
    assert!(other.user("root", "joe").is_some());
    assert!(other.user("password", "joe").is_none());
}

#[test]
fn the_directory_knows_its_version_the_login_events_and_users() {
    let entries = [
        (":n.auth", map(&[("current", "password")])),
        (JOE, map(&[("role", "user")])),
        (":n.auth.password.user.amy", map(&[("role", "operator")])),
        (":n.auth.password.user.bad", text("x")),
        (":n.type.x", text("y")),
    ];
    let directory = directory(&entries);
    assert_eq!(directory.version(), 7);
    assert_eq!(directory.login(), Some(&Login::Method("password".into())));
    let idents: Vec<_> = directory.users().map(|user| &*user.ident).collect();
    assert_eq!(idents, ["amy", "joe"]);
    assert_eq!(directory.user("password", "joe").unwrap().event, event(2));
    assert!(directory.user("root", "joe").is_none() && directory.user("password", "jo").is_none());
    assert_eq!(directory.warnings(), [Warning::Record("password".into(), "bad".into())]);
    assert_eq!(Directory::default().login(), None);
}

#[test]
fn users_share_a_list_and_old_lists_are_told() {
    let entries = [
        (JOE, map(&[("role", "user")])),
        (JOES_ACL, acl_name_value("lim")),
        (":n.auth.password.user.amy", map(&[("role", "operator")])),
        (":n.auth.password.user.amy.acl", acl_name_value("lim")),
        (":n.acl.lim.a.#", text("rw")),
        (":n.acl.full.#", text("")),
    ];
    let directory = directory(&entries);
    let of = |ident| directory.rights_of(directory.user("password", ident).unwrap());
    assert!(std::sync::Arc::ptr_eq(&of("joe"), &of("amy")));
    assert_eq!(directory.user("password", "amy").unwrap().role, Role::Operator);
    assert_eq!(directory.list("lim").unwrap().letters(path("a.b").as_bytes()), Letters::read("rw"));
    assert!(directory.list("nope").is_none() && directory.list("*").is_some());
    let warnings: Vec<_> = directory.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("\"lim\" has no pattern '#'"), "{warnings:?}");
}

#[test]
fn a_list_that_is_as_it_was_is_the_same_one_and_a_list_that_was_changed_is_not() {
    let of = |kept: &str, changed: &str| {
        directory(&[(":n.acl.kept.a.#", text(kept)), (":n.acl.changed.a.#", text(changed))])
    };
    let before = of("rw", "r");
    let after = of("rw", "rx").after(&before);
    let is_same =
        |name| std::sync::Arc::ptr_eq(after.list(name).unwrap(), before.list(name).unwrap());
    assert!(is_same("kept") && is_same("*") && !is_same("changed"));
    assert_eq!(after.list("changed").unwrap().letters(path("a.b").as_bytes()), Letters::read("rx"));
}

#[test]
fn a_list_of_too_many_patterns_allows_nothing() {
    let many: Vec<_> = (0..2_000).map(|n| (format!(":n.acl.lim.p{n}"), text("r"))).collect();
    let mut entries: Vec<_> = many.iter().map(|(p, v)| (p.as_str(), v.clone())).collect();
    entries.push((JOE, map(&[("role", "user")])));
    entries.push((JOES_ACL, acl_name_value("lim")));
    let directory = directory(&entries);
    assert_eq!(letters(&directory, "joe", "p1"), "");
    assert_eq!(directory.warnings(), [Warning::TooManyPatterns("lim".into())]);
}

#[test]
fn each_action_needs_the_role_of_the_documentation() {
    let operator = ["status", "members", "get_state", "enum_node"];
    let user = [
        "check_deleted",
        "get_value",
        "set_value",
        "delete_value",
        "delete_tree",
        "get_tree",
        "enum",
        "enumerate",
        "watch",
        "batch",
        "conflicts",
        "msg_send",
        "msg_monitor",
        "root",
        "stop",
        "get_tock",
        "cluster",
        "watch_cluster",
        "list_shards",
        "test_acl",
        "diffie_hellman",
        "auth",
        "auth_info",
        "auth_set",
        "auth_disconnect",
    ];
    for action in Action::ALL {
        let name = action.name();
        let expected = match () {
            () if user.contains(&name) => Role::User,
            () if operator.contains(&name) => Role::Operator,
            () => Role::Admin,
        };
        assert_eq!(least_role(*action), expected, "{name}");
        assert_eq!(least_role_of_name(name.as_bytes()), Some(expected), "{name}");
        let is_login = ["auth", "diffie_hellman"].contains(&name);
        assert_eq!(is_before_login(*action), is_login, "{name}");
    }
    for name in user.iter().chain(&operator) {
        assert!(least_role_of_name(name.as_bytes()).is_some(), "{name}");
    }
    for name in ["", "nonsense", "Auth", "get_value ", "metrics"] {
        assert_eq!(least_role_of_name(name.as_bytes()), None, "{name}");
    }
    assert!(Role::User < Role::Operator && Role::Operator < Role::Admin);
    for (role, name) in [(Role::User, "user"), (Role::Operator, "operator"), (Role::Admin, "admin")]
    {
        assert_eq!(Role::of(name), Some(role));
        assert_eq!(role.to_string(), name);
    }
}

#[test]
fn users_read_types_and_shards_and_nothing_else_below_nil() {
    let reads = [Action::GetInternal, Action::EnumInternal, Action::GetTreeInternal];
    let open = [":n.type", ":n.type.x", ":n.match.a.+", ":n.shards", ":n.shards:1"];
    let closed = [":n", ":n.auth", ":n.acl.x", ":n.codec.x", ":n.conv", "type.x", ":n.shardsx"];
    for action in reads {
        for at in open {
            assert_eq!(least_role_at(action, path(at).as_bytes()), Role::User, "{at}");
        }
        for at in closed {
            assert_eq!(least_role_at(action, path(at).as_bytes()), Role::Admin, "{at}");
        }
    }
    for action in [Action::SetInternal, Action::DeleteInternal] {
        for at in open {
            assert_eq!(least_role_at(action, path(at).as_bytes()), Role::Admin, "{at}");
        }
    }
    assert_eq!(least_role_at(Action::Status, path(":n.type").as_bytes()), Role::Operator);
}

#[test]
fn what_is_shown_has_no_secrets() {
    let hash = PasswordHash::new(&Sent::of_text("geheim"), [1; 16]).unwrap();
    let shown = format!("{:?}", Record::of_auth_set(Secret::Password(hash.clone())));
    assert!(!shown.contains(hash.as_str()), "{shown}");
}

#[test]
fn a_grace_ends_by_itself_and_one_without_end_is_none() {
    let event = Event { node: NodeIndex(0), tick: Tick::new(1).unwrap() };
    let left = |value: &[u8], now| {
        let entries = [(":n.auth".parse::<Path>().unwrap(), value, event)];
        Directory::build(1, entries).grace_left(now)
    };
    let on = b"\x82\xa7current\xa4root\xa5grace\xcd\x03\xe8";
    assert_eq!(left(on, 400), Some(600));
    assert_eq!(left(on, 999), Some(1));
    assert_eq!(left(on, 1_000), None);
    assert_eq!(left(b"\x81\xa7current\xa4root", 400), None);
    // Where it is not known how to log in, nobody goes on.
    assert_eq!(left(b"\x82\xa7current\x05\xa5grace\xcd\x03\xe8", 400), None);
    let ages = b"\x82\xa7current\xa4root\xa5grace\xcf\xff\xff\xff\xff\xff\xff\xff\xff";
    assert_eq!(left(ages, 400), None);
}
