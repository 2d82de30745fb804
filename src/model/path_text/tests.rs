//! DistKV's text form, against what the original library makes of it.

use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::model::path::{ElementProblem, arbitrary};

/// What the original library reads and writes; see the note in the file.
fn vectors() -> Json {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/path_text.json");
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
    let mut path = PathBuilder::default();
    for element in elements.as_array().unwrap() {
        let value = &element[1];
        match text(&element[0]) {
            "nil" => path.push(Element::Nil),
            "bool" => path.push(value.as_bool().unwrap()),
            "int" => path.push(Element::Int(text(value).parse().unwrap())),
            "float" => path.push(text(value).parse::<f64>().unwrap()),
            "str" => path.push(text(value)),
            "bin" => path.push(&*decode_hex(text(value)).unwrap()),
            other => panic!("unknown type {other}"),
        }
        .unwrap();
    }
    path.finish()
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
fn texts_that_the_original_refuses_are_refused() {
    for row in rows(&vectors(), "refused") {
        assert!(text(row).parse::<Path>().is_err(), "{row}");
    }
}

#[test]
fn where_we_differ_from_the_original_is_as_written_down() {
    for row in rows(&vectors(), "differs") {
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
    assert_eq!(error(":12a.b"), (2, BadNumber("12a".into())));
    assert_eq!(error(":007"), (2, BadNumber("007".into())));
    assert_eq!(error(":1e999"), (2, FloatTooBig("1e999".into())));
    assert_eq!(error("a:xyz"), (4, BadHexadecimal("yz".into())));
    assert_eq!(error(":bad"), (3, BadBinary("ad".into())));
    assert_eq!(error(":vü"), (3, NotAscii));
    assert_eq!(error(":y0"), (3, BadBytes("0".into())));
    let nil_inside = PathError::Element { index: 1, problem: ElementProblem::NilInside };
    assert_eq!(error("a:n"), (2, Path(nil_inside)));
    let too_big = PathError::Element { index: 0, problem: ElementProblem::IntegerTooBig };
    assert_eq!(error(&format!(":{}", "9".repeat(50))), (1, Path(too_big)));
    assert_eq!(error(&":t".repeat(65)), (129, Path(PathError::TooManyElements)));
    assert_eq!(error(&"a".repeat(4095)), (1, Path(PathError::TooLong)));
    assert_eq!(
        "a..b".parse::<super::Path>().unwrap_err().to_string(),
        "bad path: expected a string (an empty one is ':e' without the dot) (at character 3)"
    );
}

#[test]
fn errors_repeat_only_the_start_of_a_long_text() {
    let message = format!(":1{}", "x".repeat(100_000)).parse::<Path>().unwrap_err().to_string();
    assert!(message.len() < 200, "{message}");
}

proptest! {
    #[test]
    fn any_path_is_read_back_from_its_text(path in arbitrary::path()) {
        let read: Path = path.to_string().parse().unwrap();
        prop_assert_eq!(read.as_bytes(), path.as_bytes());
    }

    #[test]
    fn any_text_is_refused_or_written_in_its_one_form(text in "[.:_etfnxbvy019aé +-]{0,12}") {
        if let Ok(path) = text.parse::<Path>() {
            prop_assert_eq!(path.to_string().parse::<Path>().unwrap(), path);
        }
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = text.parse::<Path>();
    }
}
