//! JSON and MessagePack, both ways and without loss.

use proptest::prelude::*;
use rmpv::Value as Rmpv;

use super::*;
use crate::model::value::SkipError;
use crate::model::value::arbitrary::any_rmpv;
use crate::model::value::write::{write_ext, write_i64, write_u64};

fn bytes_of(text: &str) -> Vec<u8> {
    value_from_text(text).unwrap().as_bytes().to_vec()
}

/// Checks a text and its MessagePack, both ways.
fn assert_both(text: &str, bytes: &[u8]) {
    assert_eq!(bytes_of(text), bytes, "{text}");
    assert_eq!(text_from_msgpack(bytes).unwrap(), text);
}

#[test]
fn what_json_can_say_stands_as_it_is() {
    assert_both("null", &[0xc0]);
    assert_both("true", &[0xc3]);
    assert_both("5", &[5]);
    assert_both("-33", &[0xd0, 0xdf]);
    assert_both("18446744073709551615", &[0xcf, 255, 255, 255, 255, 255, 255, 255, 255]);
    assert_both("-9223372036854775808", &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    assert_both("1.0", &[0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
    assert_both("-0.0", &[0xcb, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    assert_both("\"\"", &[0xa0]);
    assert_both("[1,[],{}]", &[0x93, 1, 0x90, 0x80]);
    assert_both(r#"{"b":1,"a":{"é":null}}"#, b"\x82\xa1b\x01\xa1a\x81\xa2\xc3\xa9\xc0");
    assert_both(r#"{"$ref":"x"}"#, b"\x81\xa4$ref\xa1x");
    assert_both(r#"{"$bin":"aGk=","other":1}"#, b"\x82\xa4$bin\xa4aGk=\xa5other\x01");
}

#[test]
fn what_json_cannot_say_has_its_form() {
    assert_both(r#"{"$bin":"aGk="}"#, b"\xc4\x02hi");
    assert_both(r#"{"$bin":""}"#, b"\xc4\x00");
    assert_both(r#"{"$str":"wyg="}"#, b"\xa2\xc3\x28");
    assert_both(r#"{"$float":"nan"}"#, &[0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0]);
    assert_both(r#"{"$float":"inf"}"#, &[0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0]);
    assert_both(r#"{"$float":"-inf"}"#, &[0xcb, 0xff, 0xf0, 0, 0, 0, 0, 0, 0]);
    assert_both(r#"{"$path":"a.b:1"}"#, b"\xc7\x05\x03\xa1a\xa1b\x01");
    assert_both(r#"{"$path":":"}"#, b"\xc7\x00\x03");
    assert_both(r#"{"$path":"a:'t',1"}"#, b"\xc7\x06\x03\xa1a\x92\xa1t\x01");
    assert_both(r#"{"$path":":()"}"#, b"\xd4\x03\x90");
    assert_both(r#"{"$int":"0x10000000000000000"}"#, b"\xc7\x09\x02\x01\0\0\0\0\0\0\0\0");
    assert_both(r#"{"$ext":[5,"aGk="]}"#, b"\xd5\x05hi");
    assert_both(r#"{"$ext":[-1,""]}"#, b"\xc7\x00\xff");
    assert_both(r#"{"$map":[[1,"a"],[null,[2]]]}"#, b"\x82\x01\xa1a\xc0\x91\x02");
    assert_both(r#"{"$map":[["a",1],["a",2]]}"#, b"\x82\xa1a\x01\xa1a\x02");
    assert_both(r#"{"$map":[[{"$bin":"aGk="},1]]}"#, b"\x81\xc4\x02hi\x01");
}

#[test]
fn extensions_that_would_change_on_the_way_keep_their_bytes() {
    // A path that is not canonical, none at all, and integers that are not minimal.
    assert_both(r#"{"$ext":[3,"zAU="]}"#, b"\xd5\x03\xcc\x05");
    assert_both(r#"{"$ext":[3,"gA=="]}"#, b"\xd4\x03\x80");
    assert_both(r#"{"$ext":[3,"xwAD"]}"#, b"\xc7\x03\x03\xc7\x00\x03");
    assert_both(r#"{"$ext":[2,"BQ=="]}"#, b"\xd4\x02\x05");
    assert_both(r#"{"$ext":[2,"AAEAAAAAAAAAAA=="]}"#, b"\xc7\x0a\x02\0\x01\0\0\0\0\0\0\0\0");
}

#[test]
fn an_error_repeats_only_the_beginning_of_what_is_wrong() {
    let digits = "7".repeat(1_000_000);
    for text in [digits.clone(), format!(r#"{{"{digits}":1,"{digits}":2}}"#)] {
        let said = value_from_text(&text).unwrap_err().to_string();
        assert!(said.len() < 400, "{} bytes", said.len());
        assert!(said.contains(&format!("{}…", &digits[..200])), "{said}");
    }
}

#[test]
fn nothing_is_changed_or_left_out_silently() {
    let error = |text: &str| value_from_text(text).unwrap_err().to_string();
    for text in [
        "18446744073709551616",
        "[1,-9223372036854775809]",
        r#"{"a \" 1": 123456789012345678901234567890}"#,
    ] {
        assert!(error(text).contains("past 64 bits"), "{text}: {}", error(text));
    }
    // Not an integer, or no number at all.
    assert_eq!(bytes_of("18446744073709551616.0")[0], 0xcb);
    assert_eq!(bytes_of("1844674407370955161600e1")[0], 0xcb);
    assert_eq!(bytes_of(r#"["\"18446744073709551616","5"]"#)[0], 0x92);
    for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"\u0061":2}}]"#] {
        assert!(error(text).contains(r#"the key "a" is there twice"#), "{text}");
    }
    assert!(object_from_text(r#"{"path":"a","value":1,"value":2}"#).is_err());
}

#[test]
fn a_map_that_looks_like_a_form_survives() {
    assert_both(r#"{"$map":[["$bin","aGk="]]}"#, b"\x81\xa4$bin\xa4aGk=");
    assert_both(r#"{"$map":[["$map",[]]]}"#, b"\x81\xa4$map\x90");
    assert_both(r#"{"$map":[["$map",{"$map":[["$path",1]]}]]}"#, b"\x81\xa4$map\x81\xa5$path\x01");
    assert_eq!(bytes_of(r#"{"$map":[]}"#), [0x80]);
    assert_eq!(bytes_of(r#"{"$int":"0x05"}"#), [5]);
    assert_eq!(bytes_of(r#"{"$int":"0x00ffffffffffffffff"}"#)[0], 0xcf);
}

#[test]
fn malformed_forms_say_what_must_follow() {
    let error = |text: &str| value_from_text(text).unwrap_err().to_string();
    for (text, message) in [
        (r#"{"$bin":5}"#, "\"$bin\" must have base64 text behind it"),
        (r#"{"$bin":"a"}"#, "\"$bin\" must have base64 text behind it"),
        (r#"[{"$str":null}]"#, "\"$str\" must have base64 text behind it"),
        (r#"{"$float":"1.5"}"#, "\"$float\" must have \"nan\", \"inf\" or \"-inf\" behind it"),
        (r#"{"$path":["a"]}"#, "\"$path\" must have a path's text behind it"),
        (
            r#"{"$path":"a..b"}"#,
            "\"$path\": bad path: an element is missing here; an empty string is written ':e', without the dot \
             (at character 3)",
        ),
        (
            r#"{"$int":"0x"}"#,
            "\"$int\" must have \"0x\" and the hexadecimal digits of a positive integer, or the \
             decimal digits of one of 64 bits behind it",
        ),
        (
            r#"{"$ext":[128,""]}"#,
            "\"$ext\" must have an array of a type from -128 to 127 and base64 text behind it",
        ),
        (r#"{"$map":{"a":1}}"#, "\"$map\" must have an array of arrays of two behind it"),
        (r#"{"$map":[[1]]}"#, "\"$map\" must have an array of arrays of two behind it"),
    ] {
        assert_eq!(error(text), message);
    }
    for text in [r#"{"$int":5}"#, r#"{"$int":"1.5"}"#, r#"{"$int":"0xg"}"#, r#"{"$int":"0x+5"}"#] {
        assert!(error(text).contains("hexadecimal"), "{text}");
    }
    for text in
        [r#"{"$ext":[1]}"#, r#"{"$ext":"x"}"#, r#"{"$ext":[1.5,""]}"#, r#"{"$ext":[1,"*"]}"#]
    {
        assert!(error(text).contains("base64"), "{text}");
    }
}

#[test]
fn what_a_text_says_of_places_is_not_taken_for_the_place_of_the_error() {
    let text = "{\"k at line 1 column 2\":1,\n\"k at line 1 column 2\":2}";
    let Err(JsonError::Syntax(error)) = value_from_text(text) else { panic!("taken: {text}") };
    assert!(error.is_key_twice());
    let what = "the key \"k at line 1 column 2\" is there twice";
    assert_eq!(error.to_string(), format!("{what} at line 2 column 25"));
    assert_eq!(error.of_line().to_string(), format!("{what} at column 25"));
    let Err(JsonError::Syntax(error)) = value_from_text("{\"is there twice\":}") else { panic!() };
    assert!(!error.is_key_twice());
}

#[test]
fn text_that_is_not_json_is_refused_with_its_place() {
    assert_eq!(
        value_from_text("{\"a\":}").unwrap_err().to_string(),
        "not JSON: expected value at line 1 column 6"
    );
    for text in ["", "1 2", "nul", "'a'", "[1,]", "\"\\ud800\"", "NaN", "1e999"] {
        assert!(matches!(value_from_text(text), Err(JsonError::Syntax(_))), "{text}");
    }
}

#[test]
fn half_a_surrogate_pair_is_named() {
    for text in ["\"\\ud800\"", "\"\\ud800x\"", "\"\\udc00\"", "\"\\ud800\\u0041\""] {
        let error = value_from_text(text).unwrap_err().to_string();
        assert!(error.contains("half of a surrogate pair"), "{text}: {error}");
    }
    value_from_text("\"\\ud83d\\ude00\"").unwrap();
}

#[test]
fn depth_is_bounded_both_ways() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert!(value_from_text(&nested(VALUE_DEPTH_MAX)).is_ok());
    assert_eq!(value_from_text(&nested(VALUE_DEPTH_MAX + 1)), Err(JsonError::TooDeep));
    assert_eq!(value_from_text(&nested(100_000)), Err(JsonError::TooDeep));
    assert_eq!(value_from_text(&"{\"$map\":[[0,".repeat(100_000)), Err(JsonError::TooDeep));
    assert!(value_from_text(&format!("\"{}\"", "[{".repeat(1000))).is_ok());
    assert!(value_from_text(&format!("\"\\\"{}\"", "[{".repeat(1000))).is_ok());
    let maps = |depth: usize| {
        let depth_of_json = format!("{}1{}", "{\"$map\":[[0,".repeat(depth), "]]}".repeat(depth));
        value_from_text(&depth_of_json)
    };
    assert_eq!(maps(VALUE_DEPTH_MAX + 1), Err(JsonError::TooDeep));
    let deepest = maps(VALUE_DEPTH_MAX).unwrap();
    assert_eq!(value_from_text(&text_from_msgpack(deepest.as_bytes()).unwrap()), Ok(deepest));

    let array = |depth| [vec![0x91; depth], vec![0]].concat();
    assert!(json_from_msgpack(&array(VALUE_DEPTH_MAX + 8)).is_ok());
    let too_deep = json_from_msgpack(&array(100_000));
    assert!(matches!(too_deep, Err(JsonError::Read(ReadError::Skip(SkipError::TooDeep { .. })))));
    assert!(json_from_msgpack(&[1, 2]).is_err());
    assert!(json_from_msgpack(&[0xc1]).is_err());
    assert!(json_from_msgpack(&[]).is_err());
}

#[test]
fn a_value_that_gets_too_large_is_refused() {
    let text = format!("\"{}\"", "a".repeat(VALUE_BYTES_MAX));
    assert_eq!(value_from_text(&text), Err(JsonError::TooLarge));
}

/// What a value is after it was JSON: floats in 64 bits, NaN the usual one.
fn settled(value: Rmpv) -> Rmpv {
    match value {
        Rmpv::F32(number) => settled(Rmpv::F64(number.into())),
        Rmpv::F64(number) if number.is_nan() => Rmpv::F64(f64::NAN),
        Rmpv::Array(items) => Rmpv::Array(items.into_iter().map(settled).collect()),
        Rmpv::Map(pairs) => {
            let pair = |(key, value)| (settled(key), settled(value));
            Rmpv::Map(pairs.into_iter().map(pair).collect())
        }
        other => other,
    }
}

fn encoded(value: &Rmpv) -> Vec<u8> {
    let mut out = Vec::new();
    rmpv::encode::write_value(&mut out, value).unwrap();
    out
}

/// Maps whose keys are forms, strings, or what not.
fn tricky_map() -> impl Strategy<Value = Rmpv> {
    let key = prop_oneof![
        proptest::sample::select(&ESCAPES[..]).prop_map(Rmpv::from),
        Just(Rmpv::from("$ref")),
        "[ab]".prop_map(Rmpv::from),
        any::<i8>().prop_map(Rmpv::from),
    ];
    let pairs = proptest::collection::vec((key, any_rmpv()), 1..3);
    pairs.prop_map(Rmpv::Map)
}

proptest! {
    #[test]
    fn any_value_comes_back_from_json(value in prop_oneof![any_rmpv(), tricky_map()]) {
        let text = text_from_msgpack(&encoded(&value)).unwrap();
        let back = value_from_text(&text).unwrap();
        prop_assert_eq!(back.as_bytes(), &encoded(&settled(value)), "{}", text);
    }

    #[test]
    fn any_path_and_extension_comes_back(
        path in crate::model::path::arbitrary::path(),
        kind in -2..5_i8,
        content in proptest::collection::vec(any::<u8>(), 0..12),
    ) {
        let mut bytes = vec![0x92];
        path.encode_ext3(&mut bytes);
        write_ext(kind, &content, &mut bytes);
        let text = text_from_msgpack(&bytes).unwrap();
        let back = value_from_text(&text).unwrap();
        prop_assert_eq!(back.as_bytes(), &bytes, "{}", text);
    }

    #[test]
    fn no_text_panics(text in r#"[\[\]{}",:$a-f0-9.\\-]{0,30}"#) {
        let _ = value_from_text(&text);
    }
}

#[test]
fn integers_that_floats_round_come_as_text_where_that_is_asked_for_and_come_back() {
    let safe = |number: i128| {
        let mut bytes = Vec::new();
        match u64::try_from(number) {
            Ok(number) => write_u64(number, &mut bytes),
            Err(_) => write_i64(number as i64, &mut bytes),
        }
        let json = safe_json_from_msgpack(&bytes).unwrap();
        let back = value_from_json(&json).unwrap();
        assert_eq!(back.as_bytes(), bytes, "{number}");
        json.to_string()
    };
    let most = i128::from(SAFE_INTEGER);
    for number in [0, 1, -1, most, -most] {
        assert_eq!(safe(number), number.to_string());
    }
    for number in [most + 1, -most - 1, i128::from(u64::MAX), i128::from(i64::MIN)] {
        assert_eq!(safe(number), format!("{{\"$int\":\"{number}\"}}"));
    }
    for text in ["", "-", "+1", "1.0", "1e3", "18446744073709551616", "-9223372036854775809", " 1"]
    {
        let json = format!("{{\"$int\": \"{text}\"}}");
        assert!(value_from_text(&json).is_err(), "{text}");
    }
}
