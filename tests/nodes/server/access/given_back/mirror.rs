//! Random changes of a tree and of a user's access list, read at random by a watch: in the end, what a client has kept of
//! it is all that the user may read, as it is.

use std::collections::BTreeMap;

use distkv::model::path::Path;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::super::judge::{List, Model, Tree};
use super::super::{Elements, Place, of_path};
use super::{Told, Watch, delete, set};

/// What is done to a node and a user's watch, one after the other.
#[derive(Clone, Debug)]
enum Step {
    Set(usize),
    Delete(usize),
    /// Sets a pattern to these letters, or takes it away.
    List(usize, Option<&'static str>),
    /// The client reads what has come, and acknowledges it.
    Read,
    /// The watch has had a turn by then, if its client has taken enough.
    Wait,
}

const PATHS: &[&str] =
    &["site", "site.a", "site.a.x", "site.a.y", "site.b", "site.b.x", "site.b.x.z"];
const PATTERNS: &[&str] =
    &["site.#", "site.a", "site.a.#", "site.+.x", "site.b", "site.b.x.z", "#"];

fn some_step() -> impl Strategy<Value = Step> {
    let letters = prop_oneof![Just("rx"), Just("x"), Just("r"), Just("")];
    prop_oneof![
        6 => (0..PATHS.len()).prop_map(Step::Set),
        3 => (0..PATHS.len()).prop_map(Step::Delete),
        5 => (0..PATTERNS.len(), proptest::option::weighted(0.8, letters))
            .prop_map(|(pattern, letters)| Step::List(pattern, letters)),
        3 => Just(Step::Read),
        2 => Just(Step::Wait),
    ]
}

/// What a client keeps of what it is told.
#[derive(Default)]
struct Mirror {
    entries: BTreeMap<Elements, i64>,
    /// The newest value of each path that was told.
    newest: BTreeMap<Elements, i64>,
}

impl Mirror {
    fn take(&mut self, told: Told) {
        match told {
            Told::Set(path, value) => {
                let value = value.as_i64().unwrap();
                let newest = self.newest.entry(path.clone()).or_default();
                assert!(*newest <= value, "{value} behind {newest}");
                *newest = value;
                self.entries.insert(path, value);
            }
            Told::Deleted(path) => drop(self.entries.remove(&path)),
            Told::State(_) => {}
            Told::Failed(error) => panic!("{error}"),
        }
    }
}

/// Plays some steps; then the mirror has what may be read, as it is.
fn play(steps: &[Step], qlen: u64) {
    let mut place = Place::new();
    let (mut tree, mut list) = (Tree::new(), List::new());
    for (pattern, letters) in [("site", "rx"), ("site.mark", "r")] {
        list.insert(pattern.parse().unwrap(), letters.into());
        place.list("joe", &[(pattern, letters)]);
    }
    place.record("joe", "user");
    let mut watch = Watch::begin(place.login("joe", qlen), vec![("fetch".into(), true.into())]);
    let mut mirror = Mirror::default();
    for (step, next) in steps.iter().zip(1..) {
        match step {
            Step::Set(n) => {
                place.admin.set(PATHS[*n], next);
                tree.insert(PATHS[*n].parse().unwrap(), Some(next));
            }
            Step::Delete(n) => {
                delete(&mut place, PATHS[*n]);
                tree.insert(PATHS[*n].parse().unwrap(), None);
            }
            Step::List(n, Some(letters)) => {
                place.list("joe", &[(PATTERNS[*n], letters)]);
                list.insert(PATTERNS[*n].parse().unwrap(), (*letters).into());
            }
            Step::List(n, None) => {
                place.put(&format!(":n.acl.joe.{}", PATTERNS[*n]), None);
                list.remove(&PATTERNS[*n].parse().unwrap());
            }
            Step::Read => {
                while let Some(message) = watch.user.due(watch.seq) {
                    let wseq = message["wseq"].as_u64();
                    wseq.into_iter().for_each(|wseq| watch.user.ack(watch.seq, wseq));
                    mirror.take(watch.read(&message));
                }
            }
            Step::Wait => drop(watch.user.ok(map! {"action": "get_tock"})),
        }
    }
    for mark in [1_000, 1_001] {
        place.admin.set("site.mark", mark);
        watch.until(|told| *told == set("mark", mark)).into_iter().for_each(|t| mirror.take(t));
    }
    let model = Model { list: &list, tree: &mut tree };
    for text in PATHS {
        let path: Path = text.parse().unwrap();
        if model.reads(&path) {
            let told = mirror.entries.get(&of_path(&path)[1..]).copied();
            assert_eq!(told, model.value(&path), "{text}, list {list:?}");
        }
    }
}

#[test]
fn a_mirror_has_all_that_may_be_read_however_rights_come_and_go() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]);
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let steps = (proptest::collection::vec(some_step(), 1..40), prop_oneof![Just(0_u64), 2_u64..6]);
    runner
        .run(&steps, |(steps, qlen)| {
            play(&steps, qlen);
            Ok(())
        })
        .unwrap();
}
