//! Each action of a limited user on random trees with random access lists, against a simple model.

use std::collections::{BTreeMap, BTreeSet};

use distkv::model::path::{Element, Path};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::{Elements, Place, entries, of_path};
use crate::harness::{Client, Value, encode, has};

/// Trees, and users of each.
const TREES: usize = 120;
const USERS: usize = 10;

/// The model's tree: values, and none for what was deleted.
type Tree = BTreeMap<Path, Option<i64>>;
type List = BTreeMap<Path, String>;

fn ext(path: &Path) -> Value {
    Value::Ext(3, path.as_bytes().to_vec())
}

/// All ways in which a pattern matches a path, each as the kinds of its steps: they decide in that order.
fn ways(pattern: &[Element<'_>], path: &[Element<'_>], in_many: bool) -> Vec<Vec<u8>> {
    let Some((element, rest)) = path.split_first() else {
        return if pattern.is_empty() { vec![Vec::new()] } else { Vec::new() };
    };
    let mut next = Vec::new();
    if let Some((first, others)) = pattern.split_first() {
        if first == element {
            next.push((0, others, false));
        }
        if *first == Element::Str("+") {
            next.push((1, others, false));
        }
        if *first == Element::Str("#") {
            next.push((2, others, true));
        }
    }
    if in_many {
        next.push((3, pattern, true));
    }
    let mut found = Vec::new();
    for (kind, pattern, in_many) in next {
        for way in ways(pattern, rest, in_many) {
            found.push([vec![kind], way].concat());
        }
    }
    found
}

/// Whether a longer path can match.
fn leads(pattern: &[Element<'_>], path: &[Element<'_>], in_many: bool) -> bool {
    let Some((element, rest)) = path.split_first() else { return true };
    let more = pattern.split_first().is_some_and(|(first, others)| {
        (*first == Element::Str("#") && leads(others, rest, true))
            || ((first == element || *first == Element::Str("+")) && leads(others, rest, false))
    });
    more || (in_many && leads(pattern, rest, true))
}

/// What a user may do.
struct Model<'m> {
    list: &'m List,
    tree: &'m mut Tree,
}

impl Model<'_> {
    fn letters(&self, path: &Path) -> String {
        let path: Vec<_> = path.elements().collect();
        let pattern = |pattern: &Path| pattern.clone();
        let mut deciding: Vec<(Vec<u8>, &String)> = Vec::new();
        let mut on_way = false;
        for (key, letters) in self.list {
            let key = pattern(key);
            let key: Vec<_> = key.elements().collect();
            deciding.extend(ways(&key, &path, false).into_iter().min().map(|way| (way, letters)));
            on_way |= leads(&key, &path, false);
        }
        match deciding.into_iter().min() {
            Some((_, letters)) => letters.clone(),
            None if on_way => "xn".into(),
            // The configuration that all may read is below.
            None if path.is_empty() => "x".into(),
            None => String::new(),
        }
    }

    fn has(&self, path: &Path, letter: char) -> bool {
        self.letters(path).contains(letter)
    }

    fn is_open(&self, path: &Path) -> bool {
        (0..path.len()).all(|n| self.has(&path.prefix(n), 'x'))
    }

    fn reads(&self, path: &Path) -> bool {
        self.is_open(path) && self.has(path, 'r')
    }

    fn value(&self, path: &Path) -> Option<i64> {
        self.tree.get(path).copied().flatten()
    }

    fn is_there(&self, path: &Path) -> bool {
        self.tree.iter().any(|(at, value)| at.starts_with(path) && value.is_some())
    }

    fn may_set(&self, path: &Path) -> bool {
        let passes = |n| {
            let there = self.is_there(&path.prefix(n + 1));
            self.has(&path.prefix(n), if there { 'x' } else { 'n' })
        };
        let letter = if self.value(path).is_some() { 'w' } else { 'c' };
        (0..path.len()).all(passes) && self.has(path, letter)
    }

    fn may_delete(&self, path: &Path) -> bool {
        self.is_open(path) && self.has(path, 'd')
    }

    /// What `get_tree` shows; none if it is refused.
    fn walked(
        &self,
        top: &Path,
        empty: bool,
        depth: Option<usize>,
    ) -> Option<BTreeMap<Elements, Option<i64>>> {
        if !self.is_open(top) || !self.has(top, 'e') {
            return None;
        }
        let is_shown = |path: &Path| {
            self.reads(path) && (top.len()..path.len()).all(|n| self.has(&path.prefix(n), 'e'))
        };
        let mut shown: BTreeMap<Path, Option<i64>> = BTreeMap::new();
        for (path, value) in &*self.tree {
            if !path.starts_with(top) || !is_shown(path) || (value.is_none() && !empty) {
                continue;
            }
            for n in (top.len()..path.len()).filter(|_| empty) {
                shown.entry(path.prefix(n)).or_insert(None);
            }
            shown.insert(path.clone(), *value);
        }
        let shown =
            shown.into_iter().filter(|(p, _)| depth.is_none_or(|d| p.len() - top.len() <= d));
        Some(shown.map(|(path, value)| (of_path(&path)[top.len()..].to_vec(), value)).collect())
    }

    /// What `enum` lists.
    fn listed(&self, top: &Path, empty: bool) -> Option<BTreeMap<Vec<u8>, Option<i64>>> {
        if !self.is_open(top) || !self.has(top, 'e') {
            return None;
        }
        let below = self.tree.keys().filter(|path| path.starts_with(top) && path.len() > top.len());
        let children: BTreeSet<Path> = below.map(|path| path.prefix(top.len() + 1)).collect();
        let mut listed = BTreeMap::new();
        for child in children {
            let name = of_path(&child).pop().unwrap();
            let has_entry = self.tree.contains_key(&child);
            let leads = self.is_open(&child)
                && self.has(&child, 'x')
                && self
                    .tree
                    .iter()
                    .any(|(p, v)| p.starts_with(&child) && *p != child && v.is_some());
            if has_entry && self.reads(&child) {
                if empty || self.value(&child).is_some() {
                    listed.insert(name, self.value(&child));
                }
            } else if empty && leads {
                listed.insert(name, None);
            }
        }
        Some(listed)
    }
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

struct Case {
    place: Place,
    tree: Tree,
    next: i64,
    /// What clients asked for and got, to see that it was not always the same.
    granted: u64,
    denied: u64,
}

impl Case {
    fn new(tree: Vec<Path>) -> Self {
        let mut place = Place::new();
        let mut values = Tree::new();
        for (n, path) in tree.into_iter().enumerate() {
            place.admin.ok(map! {"action": "set_value", "path": ext(&path), "value": n as i64});
            values.insert(path, Some(n as i64));
        }
        let next = values.len() as i64 + 100;
        Self { place, tree: values, next, granted: 0, denied: 0 }
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
                let reply = self.ask(user, request, may, why);
                if may {
                    let old = model.tree.insert(path.clone(), Some(value)).flatten();
                    assert_eq!(reply["prev"].as_i64(), old.filter(|_| may_read), "{why}");
                }
            }
            1 => {
                let may = model.may_delete(path);
                let may_read = model.has(path, 'r');
                let request = map! {"action": "delete_value", "path": ext(path)};
                let reply = self.ask(user, request, may, why);
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
                        text.contains(&format!("{} were deleted", gone.len())),
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

#[test]
fn each_action_gets_what_the_model_allows() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let trees = proptest::collection::vec(some_path(4), 0..14);
    let lists = proptest::collection::btree_map(some_path(4), some_letters(), 0..6);
    let asked = proptest::collection::vec(some_path(4), 3);
    let (mut granted, mut denied) = (0, 0);
    for n in 0..TREES {
        let mut case = Case::new(trees.new_tree(&mut runner).unwrap().current());
        for u in 0..USERS {
            let list: List = lists.new_tree(&mut runner).unwrap().current();
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
            case.check_tree(&format!("tree {n}, user {u}"));
        }
        granted += case.granted;
        denied += case.denied;
    }
    assert!(granted > 5_000 && denied > 5_000, "{granted} granted, {denied} denied");
}
