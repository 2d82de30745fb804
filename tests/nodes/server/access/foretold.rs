//! What `test_acl` says of a list, against what a user with that list gets: on random trees and lists, at paths that are
//! there or not, below places that are there or not.

use std::collections::BTreeMap;

use distkv::model::path::{Element, Path};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::Place;
use crate::harness::{Client, Value, encode, has, path};

/// Trees, lists for each, and paths that are asked about for each list.
const TREES: usize = 30;
const LISTS: usize = 12;
const PATHS: usize = 8;

fn some_path(longest: usize) -> impl Strategy<Value = Path> {
    let element = prop_oneof![Just("a"), Just("b")];
    proptest::collection::vec(element, 1..=longest)
        .prop_map(|elements| Path::from_elements(elements.into_iter().map(Element::Str)).unwrap())
}

/// Of a list: patterns that match many of the paths.
fn some_pattern() -> impl Strategy<Value = Path> {
    let element = prop_oneof![3 => Just("a"), 2 => Just("b"), 2 => Just("+"), 2 => Just("#")];
    proptest::collection::vec(element, 0..=3)
        .prop_map(|elements| Path::from_elements(elements.into_iter().map(Element::Str)).unwrap())
}

fn ext(path: &Path) -> Value {
    Value::Ext(3, path.as_bytes().to_vec())
}

/// Whether the request was carried out; else it was denied.
fn gets(client: &mut Client, request: Value) -> bool {
    let reply = client.request(request);
    let is_refused = has(&reply, "error");
    assert!(!is_refused || reply["code"].as_str() == Some("denied"), "{reply}");
    !is_refused
}

#[test]
fn what_is_said_of_a_list_is_what_a_request_gets() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let trees = proptest::collection::btree_set(some_path(4), 0..6);
    let lists = proptest::collection::btree_map(some_pattern(), "[rwcdxen]{0,9}", 1..6);
    // How often each was carried out, and denied.
    let mut counts: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for n in 0..TREES {
        let mut place = Place::new();
        let tree = trees.new_tree(&mut runner).unwrap().current();
        let set = |at: &Path| map! {"action": "set_value", "path": ext(at), "value": 1};
        for at in &tree {
            place.admin.ok(set(at));
        }
        for l in 0..LISTS {
            let (name, list) = (format!("u{l}"), lists.new_tree(&mut runner).unwrap().current());
            place.record(&name, "user");
            let top: Path = format!(":n.acl.{name}").parse().unwrap();
            for (pattern, letters) in &list {
                let at = top.join(pattern).unwrap();
                place.put_at(&at, Some(&encode(&Value::from(letters.as_str()))));
            }
            let mut user = place.login(&name, 0);
            for k in 0..PATHS {
                let any = some_path(4).new_tree(&mut runner).unwrap().current();
                // Half of them are there.
                let known = tree.iter().nth(k / 2).filter(|_| k % 2 == 0);
                let at = known.cloned().unwrap_or(any);
                let is_value = tree.contains(&at);
                let ask = |mode: &str| map! {"action": "test_acl", "path": ext(&at), "mode": mode, "acl": name.as_str()};
                let mut said = |mode| place.admin.ok(ask(mode))["access"].as_bool().unwrap();
                let foretold = ["r", "e", "x", "W", if is_value { "w" } else { "c" }, "d"]
                    .map(|mode| (mode, said(mode)));
                for (mode, said) in foretold {
                    let action = match mode {
                        "r" => "get_value",
                        "e" => "enum",
                        // Where it passes, it may be asked what is below.
                        "x" => "watch",
                        "d" => "delete_value",
                        _ => "set_value",
                    };
                    let got = if mode == "x" {
                        passes(&mut user, &at)
                    } else {
                        let asked = map! {"action": action, "path": ext(&at)};
                        gets(&mut user, if action == "set_value" { set(&at) } else { asked })
                    };
                    assert_eq!(said, got, "tree {n} {tree:?}, {list:?}: {mode} at {at}");
                    counts.entry(mode).or_default()[usize::from(!got)] += 1;
                    // As it was.
                    if got && action == "set_value" && !is_value {
                        place.admin.ok(map! {"action": "delete_value", "path": ext(&at)});
                    } else if got && action == "delete_value" && is_value {
                        place.admin.ok(set(&at));
                    }
                }
            }
        }
    }
    println!("{counts:?}");
    for (mode, [got, denied]) in counts {
        assert!(got > 50 && denied > 50, "{mode}: {got} carried out, {denied} denied");
    }
}

/// Whether a client may watch what is below a path.
fn passes(client: &mut Client, at: &Path) -> bool {
    let seq = client.start(map! {"action": "watch", "path": ext(at)});
    let first = client.reply(seq);
    let mut is_denied = first["code"].as_str() == Some("denied");
    if !has(&first, "error") {
        client.ok(map! {"action": "stop", "task": seq});
        let rest = client.rest(seq);
        is_denied |= rest.iter().any(|message| message["code"].as_str() == Some("denied"));
    }
    !is_denied
}

/// Who may not read a path is not told what there is, on the way there as little as there.
#[test]
fn what_there_is_does_not_show_in_what_is_said_of_a_list() {
    let mut place = Place::new();
    place.admin.set("a.hidden.b", 1);
    let mut users = [
        ("makes", [("a.#", "cwn"), ("a", "n"), (":", "x")]),
        ("passes", [("a.#", "cwx"), ("a", "x"), (":", "x")]),
        ("both", [("a.#", "cwnx"), ("a", "nx"), (":", "nx")]),
    ]
    .map(|(name, list)| (name, place.user(name, &list)));
    for at in ["a.hidden.b", "a.hidden.c", "a.hidden", "a.none.b", "a.none"] {
        for mode in ["W", "c", "w"] {
            let all = users.each_mut().map(|(acl, user)| {
                let ask = map! {"action": "test_acl", "path": path(at), "mode": mode, "acl": *acl};
                user.ok(ask)["access"].as_bool().unwrap()
            });
            assert_eq!(all, [false, false, true], "{mode} at {at}");
        }
    }
}
