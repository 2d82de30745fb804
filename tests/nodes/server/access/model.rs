//! Each action of a limited user on random trees with random access lists, against a simple model; and that the
//! comparison misses none of the checks, if one is left out.

use std::collections::{BTreeMap, BTreeSet};

use distkv::model::count::count_of;
use distkv::model::path::{Element, Path};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use distkv::protocol::client::Action;
use distkv::server::access::mistakes::Mistake;

use super::judge::{List, Model, Tree};
use super::{Elements, Place, entries, of_path};
use crate::harness::{Client, Value, array, encode, has};
use crate::server::streams::conflicts::Peer;

/// Trees, and users of each.
const TREES: usize = 120;
const USERS: usize = 10;

fn ext(path: &Path) -> Value {
    Value::Ext(3, path.as_bytes().to_vec())
}

fn some_path(longest: usize) -> impl Strategy<Value = Path> {
    let element = prop_oneof![
        5 => Just(Element::Str("a")),
        4 => Just(Element::Str("b")),
        3 => Just(Element::Str("+")),
        3 => Just(Element::Str("#")),
        1 => Just(Element::Int(1)),
        1 => Just(Element::Bool(true)),
        1 => Just(Element::Float(1.0)),
    ];
    proptest::collection::vec(element, 0..=longest)
        .prop_map(|elements| Path::from_elements(elements).unwrap())
}

fn some_letters() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just("rwcdxen".to_owned()),
        2 => Just("rxe".to_owned()),
        1 => Just("xe".to_owned()),
        1 => Just(String::new()),
        4 => "[rwcdxena]{0,6}",
    ]
}

fn some_topic() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::collection::vec(prop_oneof![Just("a"), Just("b")], 1..=3)
}

/// A list's patterns for topics.
fn some_topics() -> impl Strategy<Value = Path> {
    let element = prop_oneof![3 => Just("a"), 2 => Just("b"), 1 => Just("+"), 1 => Just("#")];
    proptest::collection::vec(element, 1..=3).prop_map(|levels| {
        let whole = [":msg"].into_iter().chain(levels).map(Element::Str);
        Path::from_elements(whole).unwrap()
    })
}

struct Case {
    place: Place,
    tree: Tree,
    next: i64,
    /// Paths with a conflict.
    conflicts: BTreeSet<Path>,
    /// What clients asked for and got, to see that it was not always the same.
    granted: u64,
    denied: u64,
}

impl Case {
    fn new(tree: Vec<Path>, mistake: Option<Mistake>) -> Self {
        let mut place = Place::new();
        mistake.into_iter().for_each(|mistake| place.node.server.plant(mistake));
        let mut values = Tree::new();
        let mut conflicts = BTreeSet::new();
        let mut peer = Peer::new(&place.node);
        for path in tree.iter().filter(|path| !path.is_root()) {
            place.put_at(path, Some(&[1]));
            if conflicts.insert(path.clone()) {
                peer.push(&path.to_string(), Some(&[2]), 1_000);
            }
        }
        for (n, path) in tree.into_iter().enumerate() {
            place.admin.ok(map! {"action": "set_value", "path": ext(&path), "value": n as i64});
            values.insert(path, Some(n as i64));
        }
        let next = values.len() as i64 + 100;
        Self { place, tree: values, next, conflicts, granted: 0, denied: 0 }
    }

    fn fresh(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    fn count(&mut self, allowed: bool) {
        if allowed { self.granted += 1 } else { self.denied += 1 }
    }

    /// Either an answer or `denied`.
    fn ask(&mut self, user: &mut Client, request: Value, allowed: bool, why: &str) -> Value {
        self.count(allowed);
        let reply = user.request(request);
        assert_eq!(!has(&reply, "error"), allowed, "{why}: {reply}");
        if !allowed {
            assert_eq!(reply["code"].as_str(), Some("denied"), "{why}");
        }
        reply
    }

    /// The same, as a request of its own or in a batch.
    fn ask_either(&mut self, user: &mut Client, request: Value, allowed: bool, why: &str) -> Value {
        if self.fresh() % 2 == 0 {
            return self.ask(user, request, allowed, why);
        }
        let batch = map! {"action": "batch", "ops": Value::Array(vec![request])};
        let result = user.ok(batch)["results"][0].clone();
        self.count(allowed);
        let code = (!allowed).then_some("denied");
        assert_eq!(result["code"].as_str(), code, "{why}: {result}");
        result
    }

    /// Either a stream's entries or `denied`.
    fn read_stream(
        &mut self,
        user: &mut Client,
        request: Value,
        why: &str,
    ) -> Option<Vec<(Elements, Option<i64>)>> {
        let seq = user.start(request);
        let first = user.reply(seq);
        if has(&first, "error") {
            assert_eq!(first["code"].as_str(), Some("denied"), "{why}");
            return None;
        }
        let messages = user.rest(seq);
        if messages.iter().any(|m| m["code"].as_str() == Some("denied")) {
            return None;
        }
        let number = |value: Option<Value>| value.map(|value| value.as_i64().unwrap());
        Some(entries(&messages).into_iter().map(|(path, value)| (path, number(value))).collect())
    }

    fn check_reads(&mut self, list: &List, user: &mut Client, path: &Path, why: &str) {
        let mut tree = std::mem::take(&mut self.tree);
        let model = Model { list, tree: &mut tree };
        let may = model.reads(path);
        let got = self.ask(user, map! {"action": "get_value", "path": ext(path)}, may, why);
        if may {
            assert_eq!(got["value"].as_i64(), model.value(path), "{why}");
        }
        let op = map! {"action": "get_value", "path": ext(path)};
        let batch = user.ok(map! {"action": "batch", "ops": Value::Array(vec![op])});
        let result = &batch["results"][0];
        assert_eq!(has(result, "error"), !may, "{why}: {batch}");
        assert_eq!(result["value"].as_i64(), model.value(path).filter(|_| may), "{why}: {batch}");
        for empty in [false, true] {
            let expected = model.listed(path, empty);
            for with_data in [false, true] {
                let request = map! {"action": "enum", "path": ext(path), "with_data": with_data, "empty": empty};
                let reply = self.ask(user, request, expected.is_some(), why);
                let Some(expected) = &expected else { continue };
                let got: BTreeMap<Vec<u8>, Option<i64>> = match &reply["result"] {
                    Value::Array(names) => names
                        .iter()
                        .map(|n| (encode(n), expected.get(&encode(n)).copied().flatten()))
                        .collect(),
                    Value::Map(children) => {
                        children.iter().map(|(n, v)| (encode(n), v.as_i64())).collect()
                    }
                    other => panic!("{other}"),
                };
                assert_eq!(&got, expected, "{why}: enum, empty {empty}");
            }
            for depth in [None, Some(1)] {
                let mut request = vec![
                    (Value::from("action"), Value::from("get_tree")),
                    (Value::from("path"), ext(path)),
                    (Value::from("empty"), Value::from(empty)),
                ];
                request.extend(depth.map(|d| (Value::from("max_depth"), Value::from(d as u64))));
                let got = self.read_stream(user, Value::Map(request), why);
                let expected = model.walked(path, empty, depth);
                self.count(expected.is_some());
                let count = got.as_ref().map(Vec::len);
                let got = got.map(|got| got.into_iter().collect::<BTreeMap<_, _>>());
                assert_eq!(got, expected, "{why}: get_tree, empty {empty}, depth {depth:?}");
                assert_eq!(count, expected.map(|expected| expected.len()), "{why}: once each");
            }
        }
        // The letters of its own list.
        let own = user.ok(map! {"action": "test_acl", "path": ext(path)})["access"].clone();
        let sees = model.is_open(path) && model.has(path, 'a');
        let letters = |text: &str| text.chars().collect::<BTreeSet<char>>();
        let expected = sees.then(|| letters(&model.letters(path)));
        assert_eq!(own.as_str().map(letters), expected, "{why}: {own}");
        self.count(sees);
        // By event.
        let request = map! {"action": "get_value", "path": ext(path), "nchain": 1};
        let chain = self.place.admin.ok(request)["chain"].clone();
        if model.value(path).is_some() {
            let (node, tick) = (chain["node"].clone(), chain["tick"].clone());
            let reply = user.request(map! {"action": "get_value", "node": node, "tick": tick});
            assert_eq!(
                reply["value"].as_i64(),
                model.value(path).filter(|_| may),
                "{why}: by event"
            );
            let code = (!may).then_some("not_found");
            assert_eq!(reply["code"].as_str(), code, "{why}: by event");
            self.count(may);
        }
        let may_pass = model.is_open(path) && model.has(path, 'x');
        let reply = self.ask(user, map! {"action": "root", "path": ext(path)}, may_pass, why);
        if may_pass {
            assert_eq!(reply["value"].as_i64(), model.value(path).filter(|_| may), "{why}");
            // Paths of lists are whole ones, whatever the root is.
            let here =
                self.ask(user, map! {"action": "get_value", "path": ext(&Path::root())}, may, why);
            assert_eq!(here["value"].as_i64(), model.value(path).filter(|_| may), "{why}");
        }
        self.tree = tree;
    }

    fn check_conflicts(&mut self, list: &List, user: &mut Client, why: &str) {
        let mut tree = std::mem::take(&mut self.tree);
        let model = Model { list, tree: &mut tree };
        let told = user.stream(map! {"action": "conflicts", "path": ext(&Path::root())});
        let got: BTreeSet<Elements> = entries(&told).into_iter().map(|(path, _)| path).collect();
        let shown = self.conflicts.iter().filter(|path| model.reads(path));
        let expected: BTreeSet<Elements> = shown.map(of_path).collect();
        assert_eq!(got, expected, "{why}: conflicts");
        let all = self.conflicts.len();
        (0..all).for_each(|n| self.count(n < expected.len()));
        self.tree = tree;
    }

    fn check_topics(&mut self, list: &List, user: &mut Client, topics: &[Vec<&str>], why: &str) {
        let mut tree = std::mem::take(&mut self.tree);
        let model = Model { list, tree: &mut tree };
        let is_any = topics.iter().any(|topic| model.topic(topic, 'r'));
        let all = user.start(map! {"action": "msg_monitor", "topic": array(["#"])});
        assert_eq!(user.reply(all)["state"].as_str(), Some("start"));
        let mut told = Vec::new();
        for (n, topic) in topics.iter().enumerate() {
            let levels = array(topic.iter().copied());
            let send =
                |n: usize| map! {"action": "msg_send", "topic": levels.clone(), "data": n as u64};
            let may = model.topic(topic, 'w');
            self.ask(user, send(100), may, why);
            self.place.admin.ok(send(n));
            let sent = if may { vec![100, n as u64] } else { vec![n as u64] };
            told.extend(sent.into_iter().filter(|_| model.topic(topic, 'r')));
            let one = user.start(map! {"action": "msg_monitor", "topic": levels.clone()});
            assert_eq!(user.reply(one)["state"].as_str(), Some("start"));
            let is_running = user.ok(map! {"action": "stop", "task": one})["result"].as_bool();
            user.rest(one);
            let may = model.topic(topic, 'r');
            assert_eq!(is_running, Some(may), "{why}: monitor {topic:?}");
            self.count(may);
        }
        user.ok(map! {"action": "stop", "task": all});
        let messages = user.rest(all);
        // Whether there is a pattern that could allow something is coarser than what can be read.
        let is_denied = messages.iter().any(|message| message["code"].as_str() == Some("denied"));
        assert!(!(is_denied && is_any), "{why}: monitor");
        if !is_denied {
            let got: Vec<u64> = messages.iter().filter_map(|m| m["data"].as_u64()).collect();
            assert_eq!(got, told, "{why}: messages");
        }
        self.tree = tree;
    }

    fn check_watch(&mut self, list: &List, user: &mut Client, top: &Path, why: &str) {
        let mut tree = std::mem::take(&mut self.tree);
        let model = Model { list, tree: &mut tree };
        let may_pass = model.is_open(top) && model.has(top, 'x');
        let seq = user.start(map! {"action": "watch", "path": ext(top), "fetch": true});
        let first = user.reply(seq);
        if !may_pass {
            let refusal = if has(&first, "error") { first } else { user.reply(seq) };
            assert_eq!(refusal["code"].as_str(), Some("denied"), "{why}");
            self.tree = tree;
            self.count(false);
            return;
        }
        let is_shown = |path: &Path| path.starts_with(top) && model.reads(path);
        let living = model.tree.iter().filter(|(path, value)| is_shown(path) && value.is_some());
        let below = |path: &Path| of_path(path)[top.len()..].to_vec();
        let mut expected: Vec<(Elements, Option<i64>)> =
            living.map(|(p, v)| (below(p), *v)).collect();
        expected.sort();
        let mut messages = Vec::new();
        loop {
            let message = user.reply(seq);
            if message["state"].as_str() == Some("uptodate") {
                break;
            }
            messages.push(message);
        }
        // Live: one change of everything, one after the other or together.
        let mut written: Vec<(Elements, Option<i64>)> = Vec::new();
        let mut ops = Vec::new();
        let paths: Vec<Path> = model.tree.keys().cloned().collect();
        for (n, path) in paths.into_iter().enumerate() {
            let value = (n % 3 > 0).then(|| self.fresh());
            let before = model.tree.insert(path.clone(), value);
            let is_change = value.is_some() || before.flatten().is_some();
            if is_change && path.starts_with(top) && model.reads(&path) {
                written.push((below(&path), value));
            }
            ops.push(match value {
                Some(value) => map! {"action": "set_value", "path": ext(&path), "value": value},
                None => map! {"action": "delete_value", "path": ext(&path)},
            });
        }
        self.place.admin.ok(map! {"action": "batch", "ops": Value::Array(ops)});
        // What was due comes before the answer to this.
        user.ok(map! {"action": "stop", "task": seq});
        messages.extend(user.rest(seq));
        let number = |value: Option<Value>| value.map(|value| value.as_i64().unwrap());
        let got: Vec<_> = entries(&messages).into_iter().map(|(p, v)| (p, number(v))).collect();
        let (mut fetched, live) = got.split_at(expected.len().min(got.len()));
        let mut sorted = fetched.to_vec();
        sorted.sort();
        fetched = &sorted;
        assert_eq!(fetched, expected, "{why}: fetched");
        assert_eq!(live, written, "{why}: live");
        self.tree = tree;
        self.count(true);
    }

    fn check_writes(&mut self, list: &List, user: &mut Client, path: &Path, n: usize, why: &str) {
        let mut tree = std::mem::take(&mut self.tree);
        let model = Model { list, tree: &mut tree };
        match n % 3 {
            0 => {
                let (may, value) = (model.may_set(path), self.fresh());
                let may_read = model.has(path, 'r');
                let request = map! {"action": "set_value", "path": ext(path), "value": value};
                let reply = self.ask_either(user, request, may, why);
                if may {
                    let old = model.tree.insert(path.clone(), Some(value)).flatten();
                    assert_eq!(reply["prev"].as_i64(), old.filter(|_| may_read), "{why}");
                }
            }
            1 => {
                let may = model.may_delete(path);
                let may_read = model.has(path, 'r');
                let request = map! {"action": "delete_value", "path": ext(path)};
                let reply = self.ask_either(user, request, may, why);
                if may && let Some(value) = model.tree.get_mut(path) {
                    assert_eq!(reply["prev"].as_i64(), value.filter(|_| may_read), "{why}");
                    *value = None;
                }
            }
            _ if path.is_root() => {}
            _ => {
                let may = model.may_delete(path);
                let below: Vec<Path> =
                    model.tree.keys().filter(|at| at.starts_with(path)).cloned().collect();
                let living: Vec<&Path> =
                    below.iter().filter(|at| model.value(at).is_some()).collect();
                let (gone, left): (Vec<&Path>, Vec<&Path>) =
                    living.into_iter().partition(|at| may && model.may_delete(at));
                let all = may && left.is_empty();
                let reply =
                    self.ask(user, map! {"action": "delete_tree", "path": ext(path)}, all, why);
                if all {
                    assert_eq!(reply["changed"].as_u64(), Some(gone.len() as u64), "{why}");
                } else if may {
                    let text = reply["error"].as_str().unwrap();
                    assert!(
                        text.contains(&count_of(gone.len() as u64, "was deleted", "were deleted")),
                        "{why}: {text}"
                    );
                }
                for at in gone.into_iter().cloned().collect::<Vec<_>>() {
                    model.tree.insert(at, None);
                }
            }
        }
        self.tree = tree;
    }

    /// What the node has is what the model has.
    fn check_tree(&mut self, why: &str) {
        let messages =
            self.place.admin.stream(map! {"action": "get_tree", "path": ext(&Path::root())});
        let got: BTreeMap<Elements, i64> = entries(&messages)
            .into_iter()
            .map(|(path, value)| (path, value.unwrap().as_i64().unwrap()))
            .collect();
        let expected =
            self.tree.iter().filter_map(|(path, value)| Some((of_path(path), (*value)?)));
        assert_eq!(got, expected.collect(), "{why}");
    }
}

/// Compares on so many trees; how much was granted and how much denied.
fn compare(trees_count: usize, mistake: Option<Mistake>) -> (u64, u64) {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let trees = proptest::collection::vec(some_path(4), 0..14);
    let lists = proptest::collection::btree_map(some_path(4), some_letters(), 0..6);
    let of_topics = proptest::collection::btree_map(some_topics(), some_letters(), 0..4);
    let asked = proptest::collection::vec(some_path(4), 3);
    let topics = proptest::collection::vec(some_topic(), 3);
    let (mut granted, mut denied) = (0, 0);
    for n in 0..trees_count {
        let mut case = Case::new(trees.new_tree(&mut runner).unwrap().current(), mistake);
        for u in 0..USERS {
            let mut list: List = lists.new_tree(&mut runner).unwrap().current();
            list.extend(of_topics.new_tree(&mut runner).unwrap().current());
            let name = format!("u{u}");
            case.place.record(&name, "user");
            for (pattern, letters) in &list {
                let top: Path = format!(":n.acl.{name}").parse().unwrap();
                let at = top.join(pattern).unwrap();
                case.place.put_at(&at, Some(&encode(&Value::from(letters.as_str()))));
            }
            let mut paths: Vec<Path> = asked.new_tree(&mut runner).unwrap().current();
            paths.push(Path::root());
            let known: Vec<Path> = case.tree.keys().cloned().collect();
            if let Some(path) = known.get((n + u) % known.len().max(1)) {
                paths.extend([path.clone(), path.parent().unwrap_or_default()]);
            }
            for (k, path) in paths.iter().enumerate() {
                let why =
                    format!("tree {n}, user {u}, at {path}, tree {:?}, list {list:?}", case.tree);
                case.check_reads(&list, &mut case.place.login(&name, 0), path, &why);
                if k % 3 == n % 3 {
                    case.check_watch(&list, &mut case.place.login(&name, 0), path, &why);
                }
                case.check_writes(&list, &mut case.place.login(&name, 0), path, n + k, &why);
            }
            let why = format!("tree {n}, user {u}, list {list:?}");
            case.check_conflicts(&list, &mut case.place.login(&name, 0), &why);
            let topics = topics.new_tree(&mut runner).unwrap().current();
            case.check_topics(&list, &mut case.place.login(&name, 0), &topics, &why);
            case.check_tree(&why);
        }
        granted += case.granted;
        denied += case.denied;
    }
    (granted, denied)
}

#[test]
fn each_action_gets_what_the_model_allows() {
    let (granted, denied) = compare(TREES, None);
    println!("{granted} granted, {denied} denied");
    assert!(granted + denied >= 100_000, "{granted} granted, {denied} denied");
    assert!(granted > 15_000 && denied > 15_000, "{granted} granted, {denied} denied");
}

#[test]
fn the_model_misses_no_check_that_is_left_out() {
    use Action as A;
    let actions = [
        A::GetValue,
        A::SetValue,
        A::DeleteValue,
        A::DeleteTree,
        A::GetTree,
        A::Enum,
        A::Watch,
        A::Root,
        A::MsgSend,
        A::MsgMonitor,
    ];
    let each = [
        A::GetValue,
        A::DeleteTree,
        A::GetTree,
        A::Enum,
        A::Watch,
        A::Root,
        A::MsgMonitor,
        A::Conflicts,
        A::TestAcl,
    ];
    let mistakes = actions.map(Mistake::Action).into_iter().chain(each.map(Mistake::Each));
    let others = [Mistake::Way, Mistake::OldValue, Mistake::WriteOrCreate];
    for mistake in mistakes.chain(others) {
        let compared = std::panic::catch_unwind(|| compare(TREES, Some(mistake)));
        assert!(compared.is_err(), "{mistake:?} was not found");
        println!("{mistake:?}: found");
    }
}
