//! Whether rights show more than those before them. Who follows what a client may read asks this when the client's
//! rights have changed: what it may read now, and could not before, was not told to it.

use std::collections::BTreeMap;

use distkv_model::path::Path;

use super::rights::{CONFIG, Kind, NIL, Rights};
use super::{Acl, Letters};
use crate::patterns::{MANY, ONE, element_slices};

impl Rights {
    /// Whether these say the same of every path, because they were compiled from the same list. False may be wrong.
    #[must_use]
    pub(crate) fn are_those_of(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Kind::Everything, Kind::Everything) | (Kind::Data, Kind::Data) => true,
            (Kind::Acl(one), Kind::Acl(other)) => one.patterns == other.patterns,
            _ => false,
        }
    }

    /// Whether something at a path (canonical bytes), or below it, can perhaps be read by these rights that could not be
    /// read by those before; asked only if one may pass at that path by both. The lists are compared pattern by
    /// pattern, without looking at what is there: true may be wrong, false never is.
    #[must_use]
    pub fn may_show_more(&self, before: &Self, top: &[u8]) -> bool {
        match (&before.0, &self.0) {
            (Kind::Everything, _) => false,
            (_, Kind::Everything) => true,
            // Below nil, lists decide nothing.
            _ if top.starts_with(NIL) => false,
            (Kind::Data, _) => false,
            (Kind::Acl(_), Kind::Data) => true,
            (Kind::Acl(before), Kind::Acl(now)) => now.may_show_more(before, top),
        }
    }
}

impl Acl {
    fn letters(&self) -> BTreeMap<&Path, Letters> {
        self.patterns.values().map(|flags| (&flags.pattern, flags.letters)).collect()
    }

    fn may_show_more(&self, before: &Self, top: &[u8]) -> bool {
        let (now, had) = (self.letters(), before.letters());
        let shown = |letters: Letters| letters.and(Letters::READ | Letters::PASS);
        let may_decide = |pattern: &Path| can_match_below(pattern.as_bytes(), top);
        let config = CONFIG.concat();
        // Where a pattern is not there any more, others decide; or none does, and the way to others can be passed.
        let grows_without = |pattern: &Path, letters: Letters| {
            let others = now.iter().map(|(other, letters)| (other.as_bytes(), *letters));
            let others = others.chain([(&config[..], Letters::READ | Letters::PASS)]);
            let mut others = others.filter(|(other, _)| can_match_below(other, top));
            before.patterns.may_be_over()
                || others.any(|(other, shows)| match meet(pattern.as_bytes(), other) {
                    Meet::Never => false,
                    Meet::OnTheWay => !letters.has(Letters::PASS),
                    Meet::Perhaps => !letters.has(shown(shows) | Letters::PASS),
                })
        };
        let grows_with = |pattern: &Path, letters: Letters| {
            !had.get(pattern).copied().unwrap_or(Letters::NONE).has(shown(letters))
        };
        let removed = had.iter().filter(|(pattern, _)| !now.contains_key(*pattern));
        now.iter().any(|(pattern, letters)| may_decide(pattern) && grows_with(pattern, *letters))
            || removed
                .into_iter()
                .any(|(pattern, letters)| may_decide(pattern) && grows_without(pattern, *letters))
    }
}

/// Whether a pattern can match a path, or one below it. All are canonical bytes.
fn can_match_below(pattern: &[u8], path: &[u8]) -> bool {
    let mut pattern = element_slices(pattern);
    for element in element_slices(path) {
        match pattern.next() {
            Some(MANY) => return true,
            Some(ONE) => {}
            Some(exact) if exact == element => {}
            Some(_) | None => return false,
        }
    }
    true
}

/// How two patterns have to do with each other.
enum Meet {
    /// Not at all.
    Never,
    /// What the one matches leads to what the other matches.
    OnTheWay,
    /// The same, or both match some path.
    Perhaps,
}

/// How what a pattern matches has to do with what another one matches (both in canonical bytes). What comes behind a `#` is
/// not looked at.
fn meet(one: &[u8], other: &[u8]) -> Meet {
    let (mut one, mut other) = (element_slices(one), element_slices(other));
    loop {
        match (one.next(), other.next()) {
            (None, None) | (Some(MANY), Some(_)) | (Some(_), Some(MANY)) => return Meet::Perhaps,
            (None, Some(_)) => return Meet::OnTheWay,
            (Some(_), None) => return Meet::Never,
            (Some(ONE), Some(_)) | (Some(_), Some(ONE)) => {}
            (Some(one), Some(other)) if one == other => {}
            (Some(_), Some(_)) => return Meet::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use distkv_model::path::Element;
    use proptest::prelude::*;

    use super::super::Walk;
    use super::*;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    fn rights<'p>(entries: impl IntoIterator<Item = (Path, &'p str)>) -> Rights {
        let mut acl = Acl::default();
        for (pattern, letters) in entries {
            let mut value = Vec::new();
            distkv_model::value::write_str(letters, &mut value);
            acl.insert(pattern, &value).unwrap();
        }
        Rights::of(acl)
    }

    fn list(entries: &[(&str, &'static str)]) -> Rights {
        rights(entries.iter().map(|(pattern, letters)| (path(pattern), *letters)))
    }

    fn grows(before: &[(&str, &'static str)], now: &[(&str, &'static str)]) -> bool {
        list(now).may_show_more(&list(before), path("s.t").as_bytes())
    }

    #[test]
    fn more_is_shown_by_r_and_x_of_what_can_match_below_the_top() {
        let before = [("s", "x"), ("s.t", "x"), ("s.t.#", "x")];
        assert!(grows(&before, &[("s", "x"), ("s.t", "x"), ("s.t.#", "rx")]));
        assert!(grows(&before, &[before[0], before[1], before[2], ("s.+.a", "r")]));
        assert!(grows(&before, &[before[0], ("s.t", "rx"), before[2]]));
        assert!(grows(
            &[before[0], before[1], ("s.t.a", "")],
            &[before[0], before[1], ("s.t.a", "x")]
        ));
        assert!(grows(&before, &[before[0], before[1], before[2], ("#", "r")]));
        // Another one decides there now.
        assert!(grows(
            &[before[0], before[1], ("s.t.#", "r"), ("s.t.a", "")],
            &[before[0], before[1], ("s.t.#", "r")]
        ));
        // None does, and the way to `s.t.a.b` is open.
        assert!(grows(
            &[before[0], before[1], ("s.t.a.b", "r"), ("s.t.a", "r")],
            &[before[0], before[1], ("s.t.a.b", "r")]
        ));
    }

    #[test]
    fn nothing_more_is_shown_by_other_letters_elsewhere_or_by_less() {
        let before = [("s", "x"), ("s.t", "x"), ("s.t.#", "rx")];
        assert!(!grows(&before, &before));
        assert!(!grows(&before, &[before[0], before[1], ("s.t.#", "x")]));
        assert!(!grows(&before, &[before[0], before[1], ("s.t.#", "rwcdxena")]));
        let elsewhere = [("s", "rx"), ("s.u.#", "rx"), ("s.+", "en"), ("+", "rx"), ("t.t.a", "r")];
        assert!(!grows(&before, &[&before[1..], &elsewhere].concat()));
        assert!(!grows(&before, &[&before[..], &[("s.t.a", "")]].concat()));
        // Where these were, nothing decides now, or what shows no more.
        assert!(!grows(&[&before[..2], &[("s.t.a", ""), ("s.t.b", "rx")]].concat(), &before[..2]));
        assert!(!grows(&[&before[..], &[("s.t.a", "rx")]].concat(), &before));
        assert!(!grows(
            &[&before[..2], &[("s.t.a", "x"), ("s.t.b", "rx")]].concat(),
            &[before[0], before[1], ("s.t.b", "rx")]
        ));
    }

    #[test]
    fn the_configuration_is_shown_where_no_pattern_decides() {
        let all = [("#", "x")];
        for (top, expected) in
            [(":", true), (":.distkv", true), (":.distkv.config", true), ("a", false)]
        {
            let top = path(top);
            let (before, now) = (list(&all), list(&[]));
            assert_eq!(now.may_show_more(&before, top.as_bytes()), expected, "{top}");
        }
        assert!(!list(&[("a", "x")]).may_show_more(&list(&[("a", "x"), ("b", "x")]), b""));
    }

    #[test]
    fn an_admin_sees_more_than_all_data_and_that_is_more_than_any_list() {
        let (all, data, some) = (Rights::everything(), Rights::all_data(), list(&[("#", "rx")]));
        let in_order = [&all, &data, &some];
        for top in ["s", ":"] {
            for (n, before) in in_order.iter().enumerate() {
                for (m, now) in in_order.iter().enumerate() {
                    assert_eq!(now.may_show_more(before, path(top).as_bytes()), m < n, "{n} {m}");
                }
            }
        }
        let below_nil = path(":n.type");
        assert!(!data.may_show_more(&some, below_nil.as_bytes()));
        assert!(all.may_show_more(&data, below_nil.as_bytes()));
    }

    #[test]
    fn only_the_same_list_is_the_same() {
        let one = list(&[("a", "rx"), ("b", "w")]);
        assert!(one.are_those_of(&list(&[("a", "xr"), ("b", "w")])));
        for other in [list(&[("a", "rx")]), list(&[("a", "rx"), ("b", "")]), Rights::all_data()] {
            assert!(!one.are_those_of(&other) && !other.are_those_of(&one));
        }
        assert!(Rights::everything().are_those_of(&Rights::everything()));
    }

    fn some_path(lengths: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Path> {
        let element = prop_oneof![4 => Just("a"), 3 => Just("b"), 2 => Just("+"), 2 => Just("#")];
        let elements = proptest::collection::vec(element.prop_map(Element::Str), lengths);
        elements.prop_map(|elements| Path::from_elements(elements).unwrap())
    }

    fn some_list() -> impl Strategy<Value = BTreeMap<Path, &'static str>> {
        let letters = prop_oneof![Just("rx"), Just("x"), Just("r"), Just("w")];
        proptest::collection::btree_map(some_path(1..=4), letters, 0..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn what_can_be_read_and_could_not_before_is_never_overlooked(
            common in some_list(),
            before in some_list(),
            now in some_list(),
            top in some_path(0..=2),
            paths in proptest::collection::vec(some_path(0..=3), 1..12),
        ) {
            let of = |own: BTreeMap<Path, &'static str>| {
                Arc::new(rights(common.clone().into_iter().chain(own)))
            };
            let at = |rights: &Arc<Rights>, path: &Path| {
                let mut walk = Walk::new(Arc::clone(rights));
                walk.go(path.as_bytes());
                if walk.is_open() { walk.letters() } else { Letters::NONE }
            };
            let (before, now) = (of(before), of(now));
            let may_pass = |rights| at(rights, &top).has(Letters::PASS);
            for below in paths.iter().filter(|_| may_pass(&before) && may_pass(&now)) {
                let path = top.join(below).unwrap();
                let reads = |rights| at(rights, &path).has(Letters::READ);
                if reads(&now) && !reads(&before) {
                    prop_assert!(now.may_show_more(&before, top.as_bytes()), "at {}", path);
                }
            }
        }
    }
}
