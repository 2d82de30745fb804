//! DistKV's text form, against what the original library makes of it.

use proptest::prelude::*;
use serde_json::Value as Json;

use crate::limits::PATH_NESTING_MAX;
use crate::path::arbitrary::OwnedElement;
use crate::path::{ElementProblem, arbitrary};
use crate::path_text::*;

/// What the original library reads and writes; see the note in the file.
fn vectors() -> Json {
    let file =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/conformance/vectors/path_text.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn rows<'a>(vectors: &'a Json, section: &str) -> &'a [Json] {
    let rows = vectors[section].as_array().unwrap();
    assert!(rows.len() > 20, "{section} has lost its rows");
    rows
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap()
}

fn path_of(elements: &Json) -> Path {
    let elements: Vec<_> = elements.as_array().unwrap().iter().map(element_of).collect();
    Path::from_elements(elements.iter().map(OwnedElement::borrow)).unwrap()
}

fn element_of(element: &Json) -> OwnedElement {
    let value = &element[1];
    match text(&element[0]) {
        "nil" => OwnedElement::Nil,
        "bool" => OwnedElement::Bool(value.as_bool().unwrap()),
        "int" => OwnedElement::Int(text(value).parse().unwrap()),
        "float" => OwnedElement::Float(text(value).parse().unwrap()),
        "str" => OwnedElement::Str(text(value).into()),
        "bin" => OwnedElement::Bin(decode_hex(text(value)).unwrap()),
        "array" => {
            let items: Vec<_> = value.as_array().unwrap().iter().map(element_of).collect();
            arbitrary::array_of(&items)
        }
        other => panic!("unknown type {other}"),
    }
}

#[test]
fn texts_of_the_original_are_read_and_written_alike() {
    for row in rows(&vectors(), "both") {
        let expected = path_of(&row["elements"]);
        let path: Path = text(&row["text"]).parse().unwrap();
        assert_eq!(path.as_bytes(), expected.as_bytes(), "{row}");
        assert_eq!(path.to_string(), text(&row["text"]));
    }
}

#[test]
fn other_texts_that_the_original_reads_give_the_same_elements() {
    for row in rows(&vectors(), "read") {
        let path: Path = text(&row["text"]).parse().unwrap();
        assert_eq!(path, path_of(&row["elements"]), "{row}");
        assert_eq!(path.to_string(), text(&row["printed"]));
    }
}

#[test]
fn arrays_that_the_original_cannot_read_back_are_written_so_that_it_can() {
    for row in rows(&vectors(), "written_otherwise") {
        let path: Path = text(&row["text"]).parse().unwrap();
        assert_eq!(path, path_of(&row["elements"]), "{row}");
        assert_eq!(path.to_string(), text(&row["text"]));
    }
}

#[test]
fn texts_that_the_original_refuses_are_refused() {
    for row in rows(&vectors(), "refused") {
        assert!(text(row).parse::<Path>().is_err(), "{row}");
    }
}

#[test]
fn where_we_differ_from_the_original_is_as_written_down() {
    let vectors = vectors();
    let own = vectors["own"].as_array().unwrap();
    assert!(own.len() >= 10, "what only this project reads");
    for row in rows(&vectors, "differs").iter().chain(own) {
        let ours = text(&row["text"]).parse::<Path>().ok().map(|path| path.to_string());
        assert_eq!(ours.as_deref(), row["ours"].as_str(), "{row}");
    }
}

fn error(text: &str) -> (usize, PathTextProblem) {
    let error = text.parse::<Path>().unwrap_err();
    (error.position, error.problem)
}

#[test]
fn errors_say_where_and_what_was_expected() {
    use PathTextProblem::*;
    assert_eq!(error(""), (1, Empty));
    assert_eq!(error("."), (1, ExpectedString));
    assert_eq!(error("a..b"), (3, ExpectedString));
    assert_eq!(error("ü."), (3, ExpectedString));
    assert_eq!(error("a.:t"), (3, DotBeforeColon));
    assert_eq!(error("a:tb"), (4, ExpectedSeparator));
    assert_eq!(error("a:"), (3, ExpectedAfterColon));
    assert_eq!(error("ü:q"), (3, UnknownEscape('q')));
    assert_eq!(error("ü:u12"), (4, BadCharacter("12".into())));
    assert_eq!(error("a.:ud800"), (5, BadCharacter("d800".into())));
    assert_eq!(error("a:u+123"), (4, BadCharacter("+123".into())));
    for braced in ["{", "{}", "{e0041", "{d800}", "{110000}", "{00e0041}", "{+e0041}", "{e004g}"] {
        assert_eq!(error(&format!("a:u{braced}")), (4, BadCharacter(braced.into())), "{braced}");
    }
    assert_eq!(error("a:u{e0.b}"), (4, BadCharacter("{e0".into())));
    assert_eq!(error(":12a.b"), (2, BadNumber("12a".into())));
    assert_eq!(error(":007"), (2, BadNumber("007".into())));
    assert_eq!(error(":1e999"), (2, FloatTooBig("1e999".into())));
    assert_eq!(error("a:xyz"), (4, BadHexadecimal("yz".into())));
    assert_eq!(error(":bad"), (3, BadBinary("ad".into())));
    assert_eq!(error(":vü"), (3, NotAscii));
    assert_eq!(error(":y0"), (3, BadBytes("0".into())));
    let array = |position, text: &str, problem| (position, BadArray { text: text.into(), problem });
    use ArrayTextProblem as Array;
    assert_eq!(error("a:'b'"), array(3, "'b'", Array::OneItem));
    assert_eq!(error("a:(b)"), array(3, "(b)", Array::ExpectedItem("b)".into())));
    assert_eq!(error("a:(1,:_(2))"), array(3, "(1, (2))", Array::OneItem));
    assert_eq!(error(":(1,2"), array(2, "(1,2", Array::NotClosed));
    assert_eq!(error(":1,2)"), array(2, "1,2)", Array::ExpectedComma(")".into())));
    assert_eq!(error(":'a'b,1"), array(2, "'a'b,1", Array::ExpectedComma("b,1".into())));
    assert_eq!(error(":1,'\\q'"), array(2, "1,'\\q'", Array::BadEscape("\\q".into())));
    assert_eq!(error(":1,b'ü'"), array(2, "1,b'ü'", Array::NotAscii('ü')));
    assert_eq!(error(":1,x2"), array(2, "1,x2", Array::ExpectedItem("x2".into())));
    assert_eq!(error(":1,2x"), (2, BadNumber("2x".into())));
    assert_eq!(error(":None"), (2, UnknownEscape('N')));
    let too_big = PathError::Element { index: 1, problem: ElementProblem::IntegerTooBig };
    assert_eq!(error("a:(18446744073709551616,)"), (3, Path(too_big)));
    let nil_inside = PathError::Element { index: 1, problem: ElementProblem::NilInside };
    assert_eq!(error("a:n"), (2, Path(nil_inside)));
    let too_big = PathError::Element { index: 0, problem: ElementProblem::IntegerTooBig };
    assert_eq!(error(&format!(":{}", "9".repeat(50))), (1, Path(too_big)));
    assert_eq!(error(&":t".repeat(65)), (129, Path(PathError::TooManyElements)));
    assert_eq!(error(&"a".repeat(4095)), (1, Path(PathError::TooLong)));
    assert_eq!(
        "a..b".parse::<crate::path_text::Path>().unwrap_err().to_string(),
        "bad path: an element is missing here; an empty string is written ':e', without the dot (at character 3)"
    );
}

#[test]
fn arrays_nest_in_text_so_deep_and_no_deeper() {
    let nested =
        |levels: usize| format!(":{}1,{}", "(".repeat(levels - 1), "),".repeat(levels - 1));
    let path: Path = nested(PATH_NESTING_MAX).parse().unwrap();
    assert_eq!(path.as_bytes(), [vec![0x91; PATH_NESTING_MAX], vec![1]].concat());
    let too_deep = PathError::Element { index: 0, problem: ElementProblem::TooDeep };
    for levels in [PATH_NESTING_MAX + 1, PATH_NESTING_MAX + 2, 100_000] {
        let (_, problem) = error(&nested(levels));
        assert_eq!(problem, PathTextProblem::Path(too_deep), "{levels}");
    }
}

#[test]
fn an_array_is_also_told_as_python_writes_it() {
    let path: Path = ":'t',1.a".parse().unwrap();
    assert_eq!(path.elements().map(python_text).collect::<Vec<_>>(), ["('t', 1)", "'a'"]);
}

#[test]
fn errors_repeat_only_the_start_of_a_long_text() {
    let message = format!(":1{}", "x".repeat(100_000)).parse::<Path>().unwrap_err().to_string();
    assert!(message.len() < 200, "{message}");
}

#[test]
fn a_character_of_a_string_may_be_written_by_its_number() {
    for (text, meant) in [
        ("a:u0009b", "a\tb"),
        (":u0009", "\t"),
        ("a.:u202E.b", "a.\u{202e}.b"),
        ("a:1.:u0000x", "a:1.\0x"),
        ("a:u002eb:u0020c:u003ad", "a:.b:_c::d"),
        ("a:u{e0041}b", "a\u{e0041}b"),
        (":u{E0041}.:u{1d173}", "\u{e0041}.\u{1d173}"),
        ("a:1.:u{9}x:u{10ffff}", "a:1.\tx\u{10ffff}"),
        (":'t:u{e0041}',1", ":'t\u{e0041}',1"),
        ("a:u{2e}b:u{20}c:u{3A}d", "a:.b:_c::d"),
        ("a{e0041}", "a{e0041}"),
    ] {
        assert_eq!(text.parse::<Path>(), meant.parse::<Path>(), "{text}");
    }
    assert_ne!("a::u0009".parse::<Path>(), "a\t".parse::<Path>());
    assert_ne!("a::u{9}".parse::<Path>(), "a\t".parse::<Path>());
}

proptest! {
    #[test]
    fn any_path_is_read_back_from_its_text(path in arbitrary::path()) {
        let read: Path = path.to_string().parse().unwrap();
        prop_assert_eq!(read.as_bytes(), path.as_bytes());
    }

    #[test]
    fn any_text_is_refused_or_written_in_its_one_form(text in "[.:_etfnxbvyu019aé +-]{0,12}") {
        if let Ok(path) = text.parse::<Path>() {
            prop_assert_eq!(path.to_string().parse::<Path>().unwrap(), path);
        }
    }

    #[test]
    fn any_text_like_an_array_is_refused_or_written_in_its_one_form(
        text in "a?:[(),'\"\\\\bx01u:. TrueNone-]{0,16}"
    ) {
        if let Ok(path) = text.parse::<Path>() {
            prop_assert_eq!(path.to_string().parse::<Path>().unwrap(), path);
        }
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = text.parse::<Path>();
    }
}
