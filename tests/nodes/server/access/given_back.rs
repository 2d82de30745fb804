//! Watches of users whose rights grow while they run: what was there, or has changed, while it could not be read is told
//! once it can be, and what has gone meanwhile is told as a deletion.

mod mirror;

use super::{Elements, Place, at};
use crate::harness::{Client, Value, has, path, text};
use crate::server::streams::watches_and_purges::{UNHEARD, leave_tree, value};

/// What a watch sends, with whole paths below its top.
#[derive(Clone, PartialEq, Debug)]
enum Told {
    State(String),
    Set(Elements, Value),
    Deleted(Elements),
    Failed(Value),
}

fn set(text: &str, value: impl Into<Value>) -> Told {
    Told::Set(at(text), value.into())
}

fn deleted(text: &str) -> Told {
    Told::Deleted(at(text))
}

fn state(name: &str) -> Told {
    Told::State(name.into())
}

/// A watch of "site", whose client acknowledges what it reads.
struct Watch {
    user: Client,
    seq: u64,
    /// The path of the last message, by which the next one's is shortened.
    last: Elements,
}

impl Watch {
    fn begin(mut user: Client, more: Vec<(Value, Value)>) -> Self {
        let mut request = vec![("action".into(), "watch".into()), ("path".into(), path("site"))];
        request.extend(more);
        let seq = user.start(Value::Map(request));
        let mut watch = Self { user, seq, last: Elements::new() };
        assert_eq!(watch.next(), state("start"));
        watch
    }

    /// One that has told what there is.
    fn fetched(user: Client) -> (Self, Vec<Told>) {
        let mut watch =
            Self::begin(user, vec![("fetch".into(), true.into()), ("restart".into(), true.into())]);
        let told = watch.until(|told| *told == state("uptodate"));
        (watch, told)
    }

    fn next(&mut self) -> Told {
        let (told, wseq) = self.unacknowledged();
        wseq.into_iter().for_each(|wseq| self.user.ack(self.seq, wseq));
        told
    }

    /// The next one, and what is to be acknowledged.
    fn unacknowledged(&mut self) -> (Told, Option<u64>) {
        let message = self.user.reply(self.seq);
        (self.read(&message), message["wseq"].as_u64())
    }

    fn read(&mut self, message: &Value) -> Told {
        if has(message, "error") {
            return Told::Failed(message.clone());
        }
        if !has(message, "path") {
            return state(text(message, "state"));
        }
        self.last.truncate(message["depth"].as_u64().unwrap() as usize);
        self.last.extend(super::elements(&message["path"]));
        match has(message, "value") {
            true => Told::Set(self.last.clone(), message["value"].clone()),
            false => Told::Deleted(self.last.clone()),
        }
    }

    /// What comes before something.
    fn until(&mut self, is_end: impl Fn(&Told) -> bool) -> Vec<Told> {
        let mut told = Vec::new();
        loop {
            match self.next() {
                end if is_end(&end) => return told,
                other => told.push(other),
            }
        }
    }

    /// All that comes of what was done before. Marks are set, each when the one before has come: the first may be part of
    /// what a watch starts over from, the second may wait in its queue then. What its rights show comes behind those.
    fn told(&mut self, place: &mut Place) -> Vec<Told> {
        let mut told = Vec::new();
        for mark in ["first", "second", "third"] {
            place.admin.set("site.mark", mark);
            told.extend(self.until(|told| *told == set("mark", mark)));
        }
        // The entry with the mark of before may come as one that could not be read.
        told.retain(|told| !matches!(told, Told::Set(path, _) if *path == at("mark")));
        told
    }
}

fn delete(place: &mut Place, at: &str) {
    place.admin.ok(map! {"action": "delete_value", "path": path(at)});
}

#[test]
fn what_has_changed_while_a_right_was_taken_away_is_told_when_it_is_given_back() {
    for restart in [true, false] {
        let mut place = Place::new();
        for n in 1..=4 {
            place.admin.set(&format!("site.a{n}"), n);
        }
        place.admin.set("site", 0);
        let user = place.user("joe", &[("site", "rx"), ("site.mark", "r"), ("site.#", "rx")]);
        let mut watch = Watch::begin(user, vec![("restart".into(), restart.into())]);
        place.list("joe", &[("site.#", "x")]);
        place.admin.set("site.a1", 101);
        delete(&mut place, "site.a2");
        place.admin.set("site.a3", 103);
        delete(&mut place, "site.a3");
        place.admin.set("site.a3", 203);
        // Of this one nothing is left in the tree.
        leave_tree(&place.node, Vec::new(), vec![value(&place.node, "site.gone", UNHEARD)]);
        place.admin.set("site", 10);
        assert_eq!(watch.told(&mut place), [set(":", 10)]);
        place.list("joe", &[("site.#", "rx")]);
        // The entry of the top could be read all the time, and is not told again.
        let restarted = restart.then(|| state("restart"));
        let there = [set("a1", 101), set("a3", 203), set("a4", 4)];
        let gone = [deleted("a2"), deleted("gone")];
        let expected: Vec<Told> =
            restarted.clone().into_iter().chain(gone).chain(there.clone()).collect();
        assert_eq!(watch.told(&mut place), expected);
        // What has gone was told, and is not told again.
        place.list("joe", &[("site.#", "x")]);
        watch.told(&mut place);
        place.list("joe", &[("site.#", "rx")]);
        let expected: Vec<Told> = restarted.into_iter().chain(there).collect();
        assert_eq!(watch.told(&mut place), expected);
    }
}

#[test]
fn what_was_there_before_a_right_was_granted_is_told_and_nothing_else() {
    let mut place = Place::new();
    for name in ["one.x", "two.x", "two.gone", "three.x"] {
        place.admin.set(&format!("site.{name}"), 1);
    }
    let lists = [
        ("site", "x"),
        ("site.mark", "r"),
        ("site.one.#", "rx"),
        ("site.one", "x"),
        ("site.two", ""),
    ];
    let (mut watch, fetched) = Watch::fetched(place.user("joe", &lists));
    assert_eq!(fetched, [set("one.x", 1)]);
    // It cannot be reached before the way there can be passed.
    place.list("joe", &[("site.two.+", "r")]);
    delete(&mut place, "site.two.gone");
    assert_eq!(watch.told(&mut place), []);
    place.list("joe", &[("site.two", "x")]);
    // The user has never been told of what is gone.
    assert_eq!(watch.told(&mut place), [state("restart"), set("two.x", 1)]);
}

#[test]
fn a_change_of_rights_that_shows_nothing_more_below_the_top_is_not_noticed() {
    let mut place = Place::new();
    place.admin.set("site.x", 1);
    let user = place.user("joe", &[("site", "x"), ("site.#", "rx"), ("other.#", "x")]);
    let _ = place.user("amy", &[("site", "x"), ("site.#", "x")]);
    let (mut watch, _) = Watch::fetched(user);
    place.list("joe", &[("site.#", "rwcdxen")]);
    assert_eq!(watch.told(&mut place), []);
    place
        .list("joe", &[("other.#", "rx"), ("one.more", "rx"), ("site.x.y", ""), ("site.x", "rwx")]);
    assert_eq!(watch.told(&mut place), []);
    place.list("amy", &[("site.#", "rx")]);
    assert_eq!(watch.told(&mut place), []);
    place.record("jim", "user");
    assert_eq!(watch.told(&mut place), []);
    place.list("joe", &[("site.x", "")]);
    assert_eq!(watch.told(&mut place), []);
}

#[test]
fn what_may_be_read_again_is_sent_as_the_client_takes_it_and_nothing_older_comes_behind_it() {
    let mut place = Place::new();
    let lists = [("site", "x"), ("site.#", "rx"), ("site.shut", "x"), ("site.shut.#", "x")];
    let user = place.user_with_qlen("joe", &lists, 3);
    let (mut watch, _) = Watch::fetched(user);
    for n in 1..=5 {
        for part in ["open", "shut"] {
            place.admin.set(&format!("site.{part}.x"), n);
        }
        place.admin.set(&format!("site.shut:{n}"), n);
    }
    // Two messages are sent, and the others wait.
    place.list("joe", &[("site.shut.#", "rx")]);
    let (first, _) = watch.unacknowledged();
    let (second, wseq) = watch.unacknowledged();
    watch.user.silence(watch.seq);
    watch.user.ack(watch.seq, wseq.unwrap());
    let told: Vec<Told> = [first, second].into_iter().chain(watch.told(&mut place)).collect();
    let of = |name: &str| -> Vec<i64> {
        let values = told.iter().filter_map(|told| match told {
            Told::Set(path, value) if *path == at(name) => value.as_i64(),
            _ => None,
        });
        values.collect()
    };
    assert_eq!(of("open.x"), [1, 2, 3, 4, 5], "{told:?}");
    let shut = of("shut.x");
    assert!(shut.is_sorted() && shut.last() == Some(&5), "{told:?}");
    for n in 1..=5 {
        assert_eq!(of(&format!("shut:{n}")).last(), Some(&n), "{told:?}");
    }
}

/// Takes one message, and has these lists when the next one is made: the window is full until it is acknowledged.
fn step(place: &Place, watch: &mut Watch, expected: Told, lists: &[(&str, &str)]) {
    let (told, wseq) = watch.unacknowledged();
    assert_eq!(told, expected);
    place.list("joe", lists);
    watch.user.ack(watch.seq, wseq.unwrap());
}

#[test]
fn a_right_that_goes_and_comes_while_what_it_shows_is_told_leaves_nothing_out() {
    let mut place = Place::new();
    for name in ["shut.a", "shut.b", "zoo:1", "zoo:2"] {
        place.admin.set(&format!("site.{name}"), 1);
    }
    let lists = [("site", "x"), ("site.mark", "r"), ("site.shut", "x"), ("site.shut.#", "rx")];
    let zoo = [("site.zoo", "x"), ("site.zoo.#", "rx")];
    let user = place.user_with_qlen("joe", &[&lists[..], &zoo].concat(), 2);
    let (mut watch, _) = Watch::fetched(user);
    place.list("joe", &[("site.shut.#", "x"), ("site.zoo.#", "x")]);
    watch.told(&mut place);
    delete(&mut place, "site.shut.a");
    delete(&mut place, "site.shut.b");
    place.admin.set("site.mark", 1);
    let both = [("site.shut.#", "rx"), ("site.zoo.#", "rx")];
    step(&place, &mut watch, set("mark", 1), &both);
    step(&place, &mut watch, state("restart"), &[]);
    step(&place, &mut watch, deleted("shut.a"), &[("site.shut.#", "x")]);
    step(&place, &mut watch, set("zoo:1", 1), &[("site.shut.#", "rx")]);
    let told = watch.told(&mut place);
    assert_eq!(told[..2], [set("zoo:2", 1), state("restart")]);
    assert!(told.contains(&deleted("shut.b")), "{told:?}");
}

#[test]
fn a_right_that_goes_and_comes_while_another_one_waits_to_be_shown_leaves_nothing_out() {
    let mut place = Place::new();
    for name in ["shut.a", "zoo.a"] {
        place.admin.set(&format!("site.{name}"), 1);
    }
    let lists = [("site", "x"), ("site.#", "rx"), ("site.shut", "x"), ("site.shut.#", "rx")];
    let zoo = [("site.zoo", "x"), ("site.zoo.#", "x")];
    let user = place.user_with_qlen("joe", &[&lists[..], &zoo].concat(), 2);
    let (mut watch, _) = Watch::fetched(user);
    for name in ["mark", "open:1", "open:2", "shut.a", "open:3", "open:4"] {
        place.admin.set(&format!("site.{name}"), 2);
    }
    step(&place, &mut watch, set("mark", 2), &[]);
    step(&place, &mut watch, set("open:1", 2), &[("site.zoo.#", "rx")]);
    step(&place, &mut watch, set("open:2", 2), &[("site.shut.#", "x")]);
    step(&place, &mut watch, set("open:3", 2), &[("site.shut.#", "rx")]);
    let told = watch.told(&mut place);
    assert_eq!(told[..2], [set("open:4", 2), state("restart")]);
    assert!(told.contains(&set("shut.a", 2)) && told.contains(&set("zoo.a", 1)), "{told:?}");
}

/// More changes than may wait for a watch, without its being read: the last ones of "site.open:0" and "site.open:1".
fn overflow(place: &mut Place) -> [Told; 2] {
    let big = "x".repeat(1 << 20);
    for n in 0..8 {
        place.admin.set(&format!("site.open:{}", n % 2), big.as_str());
    }
    [set("open:0", big.as_str()), set("open:1", big.as_str())]
}

/// Most deletions that are kept for a watch.
const KEPT: u64 = 4096;

/// Deletes so many entries below "site.shut", with names that end like this, of which nothing is left in the tree.
fn delete_shut(place: &mut Place, watch: &mut Watch, count: u64, end: &str) {
    let of = |n| value(&place.node, &format!("site.shut.n{n}{end}"), UNHEARD + n);
    leave_tree(&place.node, Vec::new(), (0..count).map(of).collect());
    assert_eq!(watch.told(place), []);
}

#[test]
fn as_many_deletions_as_are_kept_are_told() {
    let mut place = Place::new();
    let lists = [("site", "x"), ("site.#", "rx"), ("site.shut", "x"), ("site.shut.#", "rx")];
    let (mut watch, _) = Watch::fetched(place.user("joe", &lists));
    place.list("joe", &[("site.shut.#", "x")]);
    watch.told(&mut place);
    delete_shut(&mut place, &mut watch, KEPT, "");
    place.list("joe", &[("site.shut.#", "rx")]);
    let told = watch.told(&mut place);
    assert_eq!((told.len() as u64, &told[0]), (1 + KEPT, &state("restart")));
    assert!(told[1..].iter().all(|told| matches!(told, Told::Deleted(_))));
}

#[test]
fn a_watch_that_cannot_tell_any_more_what_has_gone_ends_and_says_what_to_do() {
    const TOO_MANY: &str = "more deletions than are kept";
    const TOO_LONG: &str = "more bytes of deletions than are kept";
    const MEANWHILE: &str = "it overflows meanwhile";
    const JUST_THEN: &str = "it starts over just then";
    for why in [TOO_MANY, TOO_LONG, MEANWHILE, JUST_THEN] {
        let mut place = Place::new();
        let lists = [("site", "x"), ("site.#", "rx"), ("site.shut", "x"), ("site.shut.#", "rx")];
        let user = place.user_with_qlen("joe", &lists, 2);
        let (mut watch, _) = Watch::fetched(user);
        if why == JUST_THEN {
            overflow(&mut place);
            watch.until(|told| *told == state("restart"));
        }
        place.list("joe", &[("site.shut.#", "x")]);
        watch.told(&mut place);
        match why {
            TOO_MANY => delete_shut(&mut place, &mut watch, KEPT + 1, ""),
            TOO_LONG => delete_shut(&mut place, &mut watch, 300, &"x".repeat(3600)),
            MEANWHILE => {
                let last = overflow(&mut place);
                let told = watch.told(&mut place);
                assert!(last.iter().chain([&state("restart")]).all(|last| told.contains(last)));
            }
            _ => {}
        }
        place.list("joe", &[("site.shut.#", "rx")]);
        let Told::Failed(error) = watch.next() else { panic!("it goes on: {why}") };
        assert_eq!(text(&error, "code"), "too_slow");
        assert!(text(&error, "error").contains("start the watch again"), "{error}");
        assert_eq!(watch.next(), state("end"));
    }
}

#[test]
fn a_watch_that_has_overflowed_when_its_rights_grow_tells_what_it_has_missed_and_what_they_show() {
    let mut place = Place::new();
    for name in ["open.gone", "open.x", "late.x"] {
        place.admin.set(&format!("site.{name}"), 1);
    }
    let lists = [("site", "x"), ("site.#", "rx"), ("site.late", "x"), ("site.late.#", "x")];
    let user = place.user_with_qlen("joe", &lists, 2);
    let (mut watch, fetched) = Watch::fetched(user);
    assert_eq!(fetched, [set("open.gone", 1), set("open.x", 1)]);
    let last = overflow(&mut place);
    delete(&mut place, "site.open.gone");
    place.list("joe", &[("site.late.#", "rx")]);
    let told = watch.told(&mut place);
    let count = |wanted: &Told| told.iter().filter(|told| *told == wanted).count();
    assert!(last.iter().all(|last| told.contains(last)));
    let once = [deleted("open.gone"), set("late.x", 1)];
    assert_eq!(once.map(|told| count(&told)), [1, 1]);
    assert_eq!(count(&set("open.x", 1)), 0);
    assert_eq!(count(&state("restart")), 2);
}

#[test]
fn a_watch_of_conflicts_alone_tells_no_entries_when_its_rights_grow() {
    let mut place = Place::new();
    place.admin.set("site.x", 1);
    let user = place.user("joe", &[("site", "x"), ("site.#", "x")]);
    let more = vec![("conflicts".into(), "only".into()), ("restart".into(), true.into())];
    let mut watch = Watch::begin(user, more);
    place.list("joe", &[("site.#", "rx")]);
    watch.user.silence(watch.seq);
    watch.user.silence(watch.seq);
}
