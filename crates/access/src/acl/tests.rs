//! Access lists against a model that lists all ways in which each pattern can match, and by example.

use distkv_model::path::arbitrary::{OwnedElement, small_path};
use distkv_model::path::{Element, Path};
use proptest::prelude::*;

use super::*;
use crate::patterns::{ACTIVE_MAX, PATTERNS_MAX};

/// The first element of patterns that stand for topics of messages: `::msg.TOPIC` in text. There `r` allows
/// to monitor a topic and `w` to send to it.
const TOPICS: &str = ":msg";

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn text_value(text: &str) -> Vec<u8> {
    let mut value = Vec::new();
    distkv_model::value::write_str(text, &mut value);
    value
}

fn acl(entries: &[(&str, &str)]) -> Acl {
    let values: Vec<_> = entries.iter().map(|(p, v)| (path(p), text_value(v))).collect();
    Acl::build(values.iter().map(|(p, v)| (p.clone(), v.as_slice()))).unwrap()
}

fn rights(entries: &[(&str, &str)]) -> Rights {
    Rights::of(acl(entries))
}

fn letters(rights: &Rights, at: &str) -> String {
    rights.letters(path(at).as_bytes()).to_string()
}

/// How a pattern's element was used for one of the path: in the order in which patterns decide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Use {
    Exact,
    One,
    Many,
    /// A `#` that stands for this element, too.
    Again,
}

/// All ways in which a pattern matches a path.
fn ways(pattern: &[Element<'_>], path: &[Element<'_>], after_many: bool) -> Vec<Vec<Use>> {
    let Some((element, rest)) = path.split_first() else {
        return if pattern.is_empty() { vec![Vec::new()] } else { Vec::new() };
    };
    let mut found = Vec::new();
    let mut follow = |used: Use, pattern: &[Element<'_>], after_many| {
        for mut way in ways(pattern, rest, after_many) {
            way.insert(0, used);
            found.push(way);
        }
    };
    if after_many {
        follow(Use::Again, pattern, true);
    }
    if let Some((first, others)) = pattern.split_first() {
        if first == element {
            follow(Use::Exact, others, false);
        }
        if *first == Element::Str("+") {
            follow(Use::One, others, false);
        }
        if *first == Element::Str("#") {
            follow(Use::Many, others, true);
        }
    }
    found
}

/// Whether a path that goes on from this one can match.
fn leads_on(pattern: &[Element<'_>], path: &[Element<'_>], after_many: bool) -> bool {
    let Some((element, rest)) = path.split_first() else { return true };
    let first = pattern.split_first();
    after_many && leads_on(pattern, rest, true)
        || first.is_some_and(|(first, others)| {
            (first == element || *first == Element::Str("+")) && leads_on(others, rest, false)
                || *first == Element::Str("#") && leads_on(others, rest, true)
        })
}

/// Elements of which patterns and paths are made, wildcards as names included.
fn some_path() -> impl Strategy<Value = Path> {
    let element = prop_oneof![
        4 => "[ab]".prop_map(OwnedElement::Str),
        3 => Just(OwnedElement::Str("+".into())),
        3 => Just(OwnedElement::Str("#".into())),
        1 => Just(OwnedElement::Int(1)),
        1 => Just(OwnedElement::Bool(true)),
        1 => Just(OwnedElement::Float(1.0)),
        1 => Just(OwnedElement::Bin(b"a".to_vec())),
    ];
    proptest::collection::vec(element, 0..6)
        .prop_map(|e| Path::from_elements(e.iter().map(OwnedElement::borrow)).unwrap())
}

proptest! {
    #[test]
    fn the_first_pattern_by_the_model_decides(
        patterns in proptest::collection::btree_map(some_path(), "[rwcdxena]{0,4}", 0..12),
        asked in proptest::collection::vec(prop_oneof![3 => some_path(), 1 => small_path()], 1..8),
    ) {
        let values: Vec<_> = patterns.iter().map(|(p, v)| (p.clone(), text_value(v))).collect();
        let acl = Acl::build(values.iter().map(|(p, v)| (p.clone(), v.as_slice()))).unwrap();
        let rights = std::sync::Arc::new(Rights::of(acl));
        let mut walk = Walk::new(std::sync::Arc::clone(&rights));
        for at in &asked {
            let elements: Vec<_> = at.elements().collect();
            let in_order = patterns.iter().filter_map(|(pattern, text)| {
                let pattern_elements: Vec<_> = pattern.elements().collect();
                let first = ways(&pattern_elements, &elements, false).into_iter().min()?;
                Some((first, pattern, text))
            });
            let explained = rights.explain(at.as_bytes());
            let leads = patterns.keys().any(|p| leads_on(&p.elements().collect::<Vec<_>>(), &elements, false));
            let expected = match in_order.min() {
                Some((_, pattern, text)) => {
                    prop_assert_eq!(&explained.because, &Because::Pattern(pattern.clone()));
                    Letters::read(text)
                }
                // The root is the way to the entry that all may read.
                None if at.is_root() => Letters::PASS
                    | if leads { Letters::NEW } else { Letters::NONE },
                None if leads => Letters::PASS | Letters::NEW,
                None => Letters::NONE,
            };
            prop_assert_eq!(explained.letters, expected, "at {}", at);
            walk.go(at.as_bytes());
            prop_assert_eq!(walk.letters(), expected, "on a walk, at {}", at);
            let lacks = |letter, n: &usize| !rights.letters(at.prefix(*n).as_bytes()).has(letter);
            let closed: Vec<usize> = (0..=at.len()).filter(|n| lacks(Letters::PASS, n)).collect();
            let unlisted: Vec<usize> = (0..=at.len()).filter(|n| lacks(Letters::ENUM, n)).collect();
            prop_assert_eq!(walk.is_open(), closed.iter().all(|n| *n == at.len()));
            prop_assert_eq!(walk.closed_at(None), closed.first().copied());
            for from in 0..=at.len() {
                let behind: Vec<usize> = unlisted.iter().copied().filter(|n| *n >= from).collect();
                prop_assert_eq!(walk.is_listed(from), behind.iter().all(|n| *n == at.len()));
                let either = closed.first().into_iter().chain(behind.first()).min().copied();
                prop_assert_eq!(walk.closed_at(Some(from)), either);
            }
            if rights.at(at.as_bytes()).is_dead() {
                prop_assert_eq!(rights.letters(at.push("a").unwrap().as_bytes()), Letters::NONE);
            }
        }
    }
}

#[test]
fn letters_are_a_set_and_unknown_ones_are_passed_over() {
    assert_eq!(Letters::read("aqr\u{e9}xr").to_string(), "rxa");
    assert_eq!(Letters::read("rwcdxena"), Letters::ALL);
    assert_eq!(Letters::read(""), Letters::NONE);
    assert!(Letters::read("rw").has(Letters::READ) && !Letters::READ.has(Letters::read("rw")));
}

#[test]
fn exact_comes_before_one_before_many_and_depth_before_breadth() {
    let rights = rights(&[("a.b", "r"), ("a.+", "w"), ("a.#", "c"), ("#.b", "d"), ("+.c.x", "e")]);
    assert_eq!(letters(&rights, "a.b"), "r");
    assert_eq!(letters(&rights, "a.q"), "w");
    assert_eq!(letters(&rights, "a.q.q"), "c");
    assert_eq!(letters(&rights, "z.b"), "d");
    // `a.+` has no further elements, `a.#` goes on, before `+.c.x` is looked at.
    assert_eq!(letters(&rights, "a.c.x"), "c");
    assert_eq!(letters(&rights, "z.c.x"), "e");
    let explained = rights.explain(path("a.q").as_bytes());
    assert_eq!(explained.because, Because::Pattern(path("a.+")));
}

#[test]
fn a_pattern_without_a_value_does_not_decide() {
    // `a.b` is only on the way to `a.b.c`.
    let rights = rights(&[("a.b.c", "r"), ("a.+", "w")]);
    assert_eq!(letters(&rights, "a.b"), "w");
}

#[test]
fn without_a_match_only_the_way_to_patterns_may_be_passed() {
    let rights = rights(&[("a.+.c", "rw")]);
    assert_eq!(letters(&rights, ":"), "xn");
    assert_eq!(letters(&rights, "a"), "xn");
    assert_eq!(letters(&rights, "a.q"), "xn");
    assert_eq!(letters(&rights, "a.q.c"), "rw");
    assert_eq!(letters(&rights, "a.q.d"), "");
    assert_eq!(letters(&rights, "b"), "");
    assert_eq!(rights.explain(path("a").as_bytes()).because, Because::Way);
    assert_eq!(rights.explain(path("b").as_bytes()).because, Because::NoPattern);
    assert!(rights.at(path("b").as_bytes()).is_dead());
}

#[test]
fn the_configuration_may_be_read_unless_a_pattern_decides() {
    let config = ":.distkv.config";
    let nothing = Rights::nothing();
    assert_eq!(letters(&nothing, config), "rx");
    assert_eq!(letters(&nothing, ":.distkv"), "x");
    assert_eq!(letters(&nothing, ":"), "x");
    assert_eq!(letters(&nothing, ":.distkv.other"), "");
    assert_eq!(letters(&nothing, ":.distkv.config.below"), "");
    assert_eq!(nothing.explain(path(config).as_bytes()).because, Because::Config);
    assert!(nothing.way(path(config).as_bytes(), |_| true).is_ok());
    assert_eq!(letters(&rights(&[(config, "w")]), config), "w");
    assert_eq!(letters(&rights(&[("#", "")]), config), "");
}

#[test]
fn types_of_elements_are_exact() {
    let rights = rights(&[("a:1", "r"), ("a:t", "w"), ("a:1.0", "c"), ("a.1", "d")]);
    for (at, expected) in [("a:1", "r"), ("a:t", "w"), ("a:1.0", "c"), ("a.1", "d"), ("a:f", "")] {
        assert_eq!(letters(&rights, at), expected, "{at}");
    }
}

#[test]
fn wildcards_as_names_of_entries_are_matched_by_any_wildcard() {
    let rights = rights(&[("a.+", "r"), ("b.#", "w")]);
    assert_eq!(letters(&rights, "a.+"), "r");
    assert_eq!(letters(&rights, "a.#"), "r");
    assert_eq!(letters(&rights, "b.+"), "w");
    assert_eq!(letters(&rights, "b.#.#"), "w");
}

#[test]
fn below_nil_only_everything_reaches_more_than_what_is_shown_to_all() {
    let below = [":n", ":n.auth", ":n.acl.x"];
    for rights in [Rights::all_data(), rights(&[("#", "rwcdxena"), ("n", "r")]), Rights::nothing()]
    {
        for at in below {
            assert_eq!(letters(&rights, at), if at == ":n" { "x" } else { "" });
            assert_eq!(rights.explain(path(at).as_bytes()).because, Because::System);
        }
        for at in [":n.type", ":n.match.a.b", ":n.shards:7"] {
            assert_eq!(letters(&rights, at), "rxe");
        }
        assert_eq!(letters(&rights, ":n.types"), "");
    }
    let everything = Rights::everything();
    assert!(everything.is_everything() && !Rights::all_data().is_everything());
    for at in below.into_iter().chain([":", "a.b"]) {
        assert_eq!(everything.letters(path(at).as_bytes()), Letters::ALL);
    }
    assert_eq!(letters(&Rights::all_data(), "a.b"), "rwcdxena");
    assert_eq!(letters(&Rights::all_data(), ":"), "rwcdxena");
}

#[test]
fn paths_of_64_elements_match() {
    let deep = Path::from_elements((0..64).map(|_| Element::Str("a"))).unwrap();
    assert_eq!(rights(&[("#", "r")]).letters(deep.as_bytes()), Letters::READ);
    let mut exact = Acl::default();
    exact.insert(deep.clone(), &text_value("w")).unwrap();
    let exact = Rights::of(exact);
    assert_eq!(exact.letters(deep.as_bytes()), Letters::WRITE);
    assert_eq!(exact.letters(deep.parent().unwrap().as_bytes()), Letters::PASS | Letters::NEW);
}

#[test]
fn topics_have_patterns_of_their_own() {
    let rights = rights(&[("::msg.a", "r"), ("::msg.b.#", "w")]);
    assert_eq!(rights.topic(path("a").as_bytes()), Letters::READ);
    assert_eq!(rights.topic(path("b.c").as_bytes()), Letters::WRITE);
    assert_eq!(rights.topic(path("c").as_bytes()), Letters::NONE);
    assert_eq!(path("::msg.a").first(), Some(Element::Str(TOPICS)));
    assert_eq!(Rights::all_data().topic(path("c").as_bytes()), Letters::ALL);
    assert_eq!(Rights::nothing().topic(path("c").as_bytes()), Letters::NONE);
}

#[test]
fn the_way_needs_x_on_what_is_there_and_n_for_what_is_made() {
    let rights = rights(&[("a", "x"), ("a.b", "n"), ("a.b.c", "rw")]);
    let at = path("a.b.c");
    let way = |there: usize| rights.way(at.as_bytes(), |depth| depth <= there);
    assert_eq!(way(3).unwrap_err(), Missing { depth: 2, letter: Letters::PASS });
    assert_eq!(way(2).unwrap().letters(), Letters::read("rw"));
    assert_eq!(way(1).unwrap_err(), Missing { depth: 1, letter: Letters::NEW });
}

#[test]
fn values_that_are_no_strings_and_too_many_patterns_allow_nothing() {
    let mut acl = Acl::default();
    acl.insert(path("a"), b"\xc3").unwrap();
    acl.insert(path("#"), &text_value("r")).unwrap();
    assert_eq!(letters(&Rights::of(acl), "a"), "");
    let mut acl = Acl::default();
    for n in 0..PATTERNS_MAX {
        acl.insert(path("p").push(n as i64).unwrap(), &text_value("r")).unwrap();
    }
    assert_eq!(acl.insert(path("q"), &text_value("r")), Err(TooManyPatterns));
}

#[test]
fn a_list_that_is_made_to_match_in_too_many_ways_allows_nothing_there() {
    // Each element doubles the ways: all words of 9 letters over `a`, `+`.
    let mut acl = Acl::default();
    for word in 0..512_u32 {
        let element = |bit: u32| Element::Str(if word >> bit & 1 == 0 { "a" } else { "+" });
        let pattern = Path::from_elements((0..9).map(element)).unwrap();
        acl.insert(pattern, &text_value("r")).unwrap();
    }
    let rights = Rights::of(acl);
    let of = |n: usize| Path::from_elements((0..n).map(|_| Element::Str("a"))).unwrap();
    assert_eq!(1 << 8, ACTIVE_MAX);
    assert_eq!(rights.letters(of(8).as_bytes()), Letters::PASS | Letters::NEW);
    assert_eq!(rights.letters(of(9).as_bytes()), Letters::NONE);
    assert_eq!(rights.explain(of(9).as_bytes()).because, Because::TooMany);
}

#[test]
fn a_list_without_a_default_is_told() {
    assert!(acl(&[("#", ""), ("a", "r")]).has_default());
    assert!(!acl(&[("+", "r"), ("a.#", "r")]).has_default());
}

#[test]
fn a_list_of_the_original_says_the_same_where_its_patterns_match() {
    // The list `lim` of transcripts 97b to 97i.
    let entries = [
        ("pub", "rxe"),
        ("pub.#", "rwdcxen"),
        ("sec", "x"),
        ("sec.#", ""),
        ("ro", "rxe"),
        ("ro.#", "rxe"),
        ("wild", "xe"),
        ("wild.+", "xe"),
        ("wild.+.on", "rw"),
        ("wild.#", "rxe"),
        ("hid", "x"),
        ("hid.#", "r"),
    ];
    let lim = Rights::of(acl(&entries));
    let expected = [
        ("pub", "rxe"),
        ("pub.a.deep", "rwcdxen"),
        ("sec.a", ""),
        ("wild.k1.on", "rw"),
        ("wild.k1.off", "rxe"),
        ("wild.k2.x.y.on", "rxe"),
        ("free.q", ""),
        (":", "xn"),
    ];
    for (at, expected) in expected {
        assert_eq!(letters(&lim, at), expected, "{at}");
    }
    let may_go = |at: &str| lim.way(path(at).as_bytes(), |_| true).is_ok();
    assert!(
        may_go("wild.k2.x.y.on") && may_go("hid.a") && !may_go("hid.a.b") && !may_go("sec.a.b")
    );
    assert!(!lim.at(path("hid.a.b").as_bytes()).is_dead());
}
