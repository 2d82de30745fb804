//! JSON becomes a value without a tree as it would by way of one.

mod tree;

use proptest::prelude::*;

use super::super::text_from_msgpack;
use super::*;
use crate::model::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};
use crate::model::value::arbitrary::any_rmpv;

#[track_caller]
fn assert_same(text: &str) {
    assert_eq!(value_from_text(text), tree::value_from_text(text), "{text}");
}

#[test]
fn of_several_things_that_are_wrong_the_first_one_is_named() {
    let deep = format!("{}1{}", "[".repeat(VALUE_DEPTH_MAX), "]".repeat(VALUE_DEPTH_MAX));
    for text in [
        // What is no JSON, or has a key twice, comes first of all.
        r#"[{"$bin":5},]"#,
        r#"{"a":{"$bin":5},"a":1}"#,
        r#"{"a":1,"a":{"b":1,"b":2}}"#,
        r#"{"a":1,"a":}"#,
        // A form in a form; the outer one is wrong.
        r#"{"$bin":{"$str":"aGk="}}"#,
        r#"{"$ext":[{"$int":"5"},""]}"#,
        r#"{"$ext":[5,{"$str":""}]}"#,
        r#"{"$ext":[5,"aGk=",{"$bin":5}]}"#,
        r#"{"$map":{"$map":[]}}"#,
        r#"{"$bin":{"$map":[1]}}"#,
        // The pairs before one that is none come first, and then that it is none.
        r#"{"$map":[[{"$bin":5},1],[1]]}"#,
        r#"{"$map":[[1,2],[{"$bin":5}]]}"#,
        r#"{"$map":[[1,2],[{"$map":[1]},2,3]]}"#,
        r#"{"$map":[[1,{"$map":[1]}],2]}"#,
        r#"{"$map":[[{"$map":[[1,2,{"$bin":5}]]},1]]}"#,
        r#"{"$map":[[1]],"other":{"$bin":5}}"#,
        r#"[{"$map":[[1]],"other":1},{"$bin":5}]"#,
        &format!(r#"[{{"$bin":5}},{deep}]"#),
        &format!(r#"[{deep},{{"$bin":5}}]"#),
        &format!(r#"{{"$map":[[0,{deep}],1]}}"#),
        &format!(r#"{{"$bin":{deep}}}"#),
        &deep.replace('1', r#"{"$map":5}"#),
        &deep.replace('1', r#"{"$bin":5}"#),
    ] {
        assert_same(text);
    }
}

#[test]
fn heads_of_all_lengths_are_patched() {
    for count in [0, 1, 15, 16, 65_535, 65_536] {
        let items = vec!["[]"; count].join(",");
        assert_same(&format!("[{items}]"));
        assert_same(&format!("[1,[{items}],{{\"a\":[{items}]}},2]"));
        let fields: Vec<_> = (0..count).map(|n| format!("\"{n}\":1")).collect();
        assert_same(&format!("{{{}}}", fields.join(",")));
        let pairs = vec!["[1,[2]]"; count].join(",");
        assert_same(&format!("{{\"$map\":[{pairs}]}}"));
    }
}

/// JSON, and what is nearly that.
fn any_text() -> impl Strategy<Value = String> {
    let leaf = proptest::sample::select(vec![
        "null",
        "true",
        "0",
        "-0",
        "-5",
        "1.5",
        "1e999",
        "18446744073709551615",
        "18446744073709551616",
        "\"\"",
        "\"a\"",
        "\"\\u0061\\n\"",
        "\"aGk=\"",
        "\"a.b\"",
        "\"a..b\"",
        "\"nan\"",
        "\"0x0fffffffffffffffffff\"",
        "\"-7\"",
        "\"\\ud800\"",
        "[5,\"aGk=\"]",
        "nul",
    ])
    .prop_map(String::from);
    // Errors shall not be in all of them.
    let leaf = prop_oneof![9 => proptest::sample::select(vec!["1", "\"aGk=\"", "[]", "{}"]).prop_map(String::from), 1 => leaf];
    leaf.prop_recursive(6, 60, 5, |inner| {
        let key = proptest::sample::select(vec![
            "$bin", "$str", "$float", "$path", "$int", "$ext", "$map", "$ref", "a", "\\u0061", "b",
            "c", "d",
        ]);
        let object = |fields: Vec<(&str, String)>| {
            let fields: Vec<_> =
                fields.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
            format!("{{{}}}", fields.join(",\n"))
        };
        let array = |items: Vec<String>| format!("[{}]", items.join(", "));
        let pair = proptest::collection::vec(inner.clone(), 2);
        let nearly = prop_oneof![
            12 => pair,
            1 => proptest::collection::vec(inner.clone(), 0..4),
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(array),
            proptest::collection::vec((key.clone(), inner.clone()), 0..4).prop_map(object),
            proptest::collection::vec((key, inner.clone()), 1).prop_map(object),
            proptest::collection::vec(nearly.prop_map(array), 0..4)
                .prop_map(move |pairs| object(vec![("$map", array(pairs))])),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn any_text_gives_what_it_gives_by_way_of_a_tree(text in any_text(), levels in 0..70_usize, is_map in any::<bool>()) {
        prop_assert_eq!(value_from_text(&text), tree::value_from_text(&text));
        let (begin, end) = if is_map { ("{\"$map\":[[0,", "]]}") } else { ("[", "]") };
        let deep = format!("{}{text}{}", begin.repeat(levels), end.repeat(levels));
        prop_assert_eq!(value_from_text(&deep), tree::value_from_text(&deep));
        if let Ok(json) = serde_json::from_str::<Json>(&text) {
            prop_assert_eq!(value_from_json(&json), tree::value_from_json(&json));
        }
    }

    #[test]
    fn any_value_s_text_gives_what_it_gives_by_way_of_a_tree(value in any_rmpv(), at in any::<prop::sample::Index>(), byte in "[\\[\\]{}\",:$ab0-9.-]") {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &value).unwrap();
        let text = text_from_msgpack(&bytes).unwrap();
        prop_assert_eq!(value_from_text(&text), tree::value_from_text(&text));
        let mut chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        chars[at] = byte.chars().next().unwrap();
        let broken: String = chars.into_iter().collect();
        prop_assert_eq!(value_from_text(&broken), tree::value_from_text(&broken));
    }
}

/// `part` again and again, in brackets, about as long as the longest body by HTTP.
fn long(open: &str, part: &str, close: &str) -> String {
    format!("{open}{}{close}", vec![part; (8 << 20) / (part.len() + 1) - 8].join(","))
}

/// The most that is kept at a time.
fn most_kept(text: &str) -> (usize, Result<Value, JsonError>) {
    let mut most = 0;
    let value = value_from_long_text(text, &mut |kept| {
        most = most.max(kept);
        true
    });
    (most, value)
}

#[test]
fn little_is_kept_of_what_has_many_parts_and_all_of_it_is_told() {
    for part in
        ["[]", "{}", "1", "\"a\"", "{\"a\":1,\"b\":[2]}", "{\"$bin\":\"\"}", "{\"$ext\":[5,\"\"]}"]
    {
        let text = long("[", part, "]");
        let (most, value) = most_kept(&text);
        let length = value.unwrap().as_bytes().len();
        // The values' bytes in a buffer that grows to twice as many, and a bit for each part.
        let parts = text.len() / (part.len() + 1);
        assert!((length / 2..2 * length + parts).contains(&most), "{part}: {most} of {length}");
    }
    // With the keys of a map that has not ended.
    let keys: Vec<_> = (0..500_000).map(|n| format!("\"{n:05x}\":1")).collect();
    let text = format!("{{{}}}", keys.join(","));
    let (most, value) = most_kept(&text);
    assert!(value.is_ok());
    assert!((500_000 * 24..8 * text.len()).contains(&most), "{most} of {}", text.len());
}

#[test]
fn it_ends_where_what_it_keeps_is_too_much_for_its_owner() {
    let keys: Vec<_> = (0..100_000).map(|n| format!("\"{n}\":1")).collect();
    for (text, room) in
        [(format!("{{{}}}", keys.join(",")), 100_000), (long("[", "1", "]"), 1 << 20)]
    {
        let mut most = 0;
        let stopped = value_from_long_text(&text, &mut |kept| {
            assert!(most <= room, "it went on");
            most = kept;
            kept <= room
        });
        assert_eq!(stopped, Err(JsonError::Stopped));
    }
}

#[test]
fn what_gets_longer_than_any_value_ends_there() {
    // Five bytes less, for its head, is the longest.
    let fits = format!("\"{}\"", "a".repeat(VALUE_BYTES_MAX - 5));
    assert_same(&fits);
    let over = fits.replacen('a', "aa", 1);
    assert_eq!(value_from_text(&over), Err(JsonError::TooLarge));
    assert!(matches!(tree::value_from_text(&over), Err(JsonError::Value(_))));
    // Also if something behind that is wrong.
    let (most, value) = most_kept(&long("[", "1.5", ",{\"$bin\":5}]"));
    assert_eq!(value, Err(JsonError::TooLarge));
    assert!(most <= 2 * VALUE_BYTES_MAX + (1 << 20), "{most}");
}
