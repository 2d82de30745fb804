//! Types against the original's transcripts, and schemas that would be too much.

use std::collections::BTreeMap;

use distkv_model::value::{Reader, write_str};
use serde_json::json;

use super::json::ITEMS_MAX;
use super::schema::{REGEXES_MAX, SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, SUBSCHEMAS_MAX, Schema};
use super::*;

const SCHEMAS: &str = include_str!("../../vectors/98-type-schema.txt");

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// MessagePack of JSON.
fn packed(json: &Json) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &value_of(json)).unwrap();
    bytes
}

fn value_of(json: &Json) -> rmpv::Value {
    match json {
        Json::Null => rmpv::Value::Nil,
        Json::Bool(value) => (*value).into(),
        Json::Number(n) if n.is_i64() => n.as_i64().unwrap().into(),
        Json::Number(n) if n.is_u64() => n.as_u64().unwrap().into(),
        Json::Number(n) => n.as_f64().unwrap().into(),
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => rmpv::Value::Array(items.iter().map(value_of).collect()),
        Json::Object(fields) => {
            rmpv::Value::Map(fields.iter().map(|(k, v)| (k.as_str().into(), value_of(v))).collect())
        }
    }
}

/// A tree's entries below `:n.type` and `:n.match`, and what is compiled of them.
#[derive(Default)]
struct Tree {
    entries: BTreeMap<Path, Vec<u8>>,
    types: Types,
}

impl Tree {
    fn set(&mut self, path: &Path, value: &[u8]) -> Result<(), TypeError> {
        let stored = self.types.check_change(path, value)?;
        self.put(path, stored.map_or_else(|| value.to_vec(), |value| value.as_bytes().to_vec()));
        Ok(())
    }

    /// Without a check, as from a peer.
    fn put(&mut self, path: &Path, value: Vec<u8>) {
        self.entries.insert(path.clone(), value);
        self.compile();
    }

    fn delete(&mut self, path: &Path) {
        self.entries.remove(path);
        self.compile();
    }

    fn compile(&mut self) {
        let entries = self.entries.iter().map(|(path, value)| (path.clone(), value.as_slice()));
        self.types = Types::build(entries, &self.types);
    }

    fn set_json(&mut self, at: &str, json: &Json) -> Result<(), TypeError> {
        self.set(&path(at), &packed(json))
    }

    fn check(&self, at: &str, json: &Json) -> Result<(), TypeError> {
        self.types.check(path(at).as_bytes(), &packed(json))
    }
}

/// The value of a field of a request.
fn field<'m>(message: &'m [u8], name: &str) -> Option<&'m [u8]> {
    let mut reader = Reader::new(message);
    for _ in 0..reader.read_map_len().unwrap() {
        let key = reader.read_str().unwrap();
        let value = reader.read_raw().unwrap();
        if key == name {
            return Some(value);
        }
    }
    None
}

#[test]
fn types_and_values_are_taken_and_refused_as_by_the_original() {
    // Where ours differs on purpose: deletions pass, also of matches.
    let differs = [35, 44];
    let lines: Vec<_> = SCHEMAS.lines().collect();
    let mut tree = Tree::default();
    let mut seen = 0;
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| line.contains("C->S {'action'")) {
        let message = bytes(lines[at + 1].split("bytes] ").nth(1).unwrap());
        let text = |name| Reader::new(field(&message, name).unwrap()).read_str().unwrap();
        let seq = Reader::new(field(&message, "seq").unwrap()).read_u64().unwrap();
        let place = Path::from_msgpack_value(field(&message, "path").unwrap()).unwrap();
        let internal = Path::system_root().join(&place).unwrap();
        let value = field(&message, "value");
        let result = match text("action") {
            "set_internal" => tree.set(&internal, value.unwrap()),
            "set_value" => tree.types.check(place.as_bytes(), value.unwrap()),
            "delete_internal" => {
                tree.delete(&internal);
                Ok(())
            }
            _ => continue,
        };
        seen += 1;
        // The error as the original's client sees it, within two levels of Python's quotes.
        let answer = lines[at + 2].replace('\\', "");
        assert!(answer.contains("S->C"), "{answer}");
        let was_refused = answer.contains("'error'");
        if differs.contains(&seq) {
            assert!(was_refused && result.is_ok(), "{seq}");
            continue;
        }
        assert_eq!(result.is_err(), was_refused, "{seq}: {result:?}, {answer}");
        let Err(error) = result else { continue };
        // A field that is missing: an `AttributeError` there, words here.
        let is_form = matches!(error, TypeError::Form(_)) && answer.contains("AttributeError");
        let ours = match &error {
            TypeError::Schema(value, _) => format!("failed on good value {value}"),
            error => error.to_string(),
        };
        assert!(is_form || answer.contains(&ours), "{seq}: {ours}, {answer}");
    }
    assert_eq!(seen, 42);
    let stored = &tree.entries;
    assert!(!stored.contains_key(&path(":n.match.m.+.v")));
}

#[test]
fn a_type_given_as_text_is_stored_as_a_path() {
    let mut tree = Tree::default();
    let number = json!({"schema": {"type": "integer"}, "good": [0, 1], "bad": ["x"]});
    tree.set_json(":n.type.n", &number).unwrap();
    tree.set_json(":n.type.n.small", &json!({})).unwrap();
    tree.set_json(":n.match.m.+", &json!({"x": 1, "type": "n.small"})).unwrap();
    let stored = tree.entries[&path(":n.match.m.+")].clone();
    let mut expected = b"\x82\xa1x\x01\xa4type".to_vec();
    path("n.small").encode_ext3(&mut expected);
    assert_eq!(stored, expected);
    tree.set_json(":n.match.l", &json!({"type": ["n"]})).unwrap();
    assert_eq!(tree.entries[&path(":n.match.l")], packed(&json!({"type": ["n"]})));
    assert!(tree.check("m.a", &json!("x")).is_err() && tree.check("l", &json!("x")).is_err());
    assert_eq!(tree.check("m.a", &json!(1)), Ok(()));
    // What the original does with `true` and `3.0`.
    assert_eq!(tree.check("m.a", &json!(3.0)), Ok(()));
    assert!(tree.check("m.a", &json!(3.5)).is_err() && tree.check("m.a", &json!(true)).is_err());
}

#[test]
fn python_is_refused_by_name() {
    let tree = Tree::default();
    let change = |at: &str, json: Json| tree.types.check_change(&path(at), &packed(&json));
    // As in transcript 94.
    let code = json!({"bad": ["foo", null], "good": [0, 1], "code": "if value: pass"});
    assert_eq!(change(":n.type.x", code), Err(TypeError::Python("'code'")));
    let codec = json!({"decode": "return value", "encode": "return value", "in": [], "out": []});
    assert_eq!(change(":n.codec.x", codec), Err(TypeError::Python("a codec")));
    assert_eq!(
        change(":n.conv.g.p", json!({"codec": ["x"]})),
        Err(TypeError::Python("a conversion"))
    );
    for other in [":n.auth.x", ":n.acl.x", ":n.shards:1", "type.x", ":n"] {
        assert_eq!(change(other, json!(1)), Ok(None), "{other}");
    }
    assert_eq!(change(":n.type", json!({})), Err(TypeError::Top));
    assert_eq!(change(":n.match", json!({})), Err(TypeError::Top));
}

#[test]
fn a_type_that_cannot_be_read_lets_nothing_in_and_one_that_is_gone_everything() {
    let mut tree = Tree::default();
    let at = path(":n.type.t");
    tree.set_json(":n.type.t", &json!({})).unwrap();
    tree.set_json(":n.match.m", &json!({"type": ["t"]})).unwrap();
    assert_eq!(tree.check("m", &json!("x")), Ok(()));
    for broken in [json!({"code": "pass"}), json!({"schema": {"type": "x"}}), json!(5)] {
        tree.put(&at, packed(&broken));
        assert_eq!(tree.check("m", &json!("x")), Err(TypeError::Broken(path("t"))), "{broken}");
        assert_eq!(tree.check("other", &json!("x")), Ok(()));
    }
    tree.delete(&at);
    assert_eq!(tree.check("m", &json!("x")), Ok(()));
    tree.put(&path(":n.match.m"), packed(&json!({"type": 5})));
    assert_eq!(tree.check("m", &json!("x")), Err(TypeError::Broken(Path::root())));
}

#[test]
fn values_that_are_not_json_do_not_fit_any_schema() {
    let mut tree = Tree::default();
    let any = json!({"schema": {"not": {"const": "bad"}}, "good": [0, 1], "bad": ["bad"]});
    tree.set_json(":n.type.any", &any).unwrap();
    tree.set_json(":n.type.free", &json!({})).unwrap();
    tree.set_json(":n.match.m", &json!({"type": ["any"]})).unwrap();
    tree.set_json(":n.match.f", &json!({"type": ["free"]})).unwrap();
    let values: [(&[u8], NotJson); 8] = [
        (b"\xc4\x01x", NotJson::Kind(distkv_model::value::Kind::Bin)),
        (b"\xd4\x01x", NotJson::Kind(distkv_model::value::Kind::Ext)),
        (b"\x91\xcb\x7f\xf8\0\0\0\0\0\0", NotJson::NoNumber),
        (b"\xcb\x7f\xf0\0\0\0\0\0\0", NotJson::NoNumber),
        (b"\x81\x01\x02", NotJson::Key),
        (b"\x81\xc0\x02", NotJson::Key),
        (b"\x82\xa1a\x01\xa1a\x02", NotJson::KeyTwice),
        (b"\xa1\xff", NotJson::Read(distkv_model::value::ReadError::NotUtf8)),
    ];
    for (value, why) in values {
        assert_eq!(tree.types.check(path("m").as_bytes(), value), Err(TypeError::NotJson(why)));
        // Without a schema, anything goes.
        assert_eq!(tree.types.check(path("f").as_bytes(), value), Ok(()));
        assert_eq!(tree.types.check(path(":n.m").as_bytes(), value), Ok(()));
    }
    for good in [json!(u64::MAX), json!(i64::MIN), json!({"a": [null, true, 1.5]}), json!("\u{e9}")]
    {
        assert_eq!(tree.check("m", &good), Ok(()), "{good}");
    }
    let mut many = vec![0xdd];
    many.extend_from_slice(&(ITEMS_MAX as u32).to_be_bytes());
    many.extend(std::iter::repeat_n(0xc0, ITEMS_MAX));
    assert_eq!(
        tree.types.check(path("m").as_bytes(), &many),
        Err(TypeError::NotJson(NotJson::TooLarge))
    );
}

fn compile(json: Json) -> Result<Schema, SchemaError> {
    Schema::compile(json, 0)
}

#[test]
fn references_stay_within_the_schema_and_make_no_circles() {
    let good = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://example.com/x.json",
        "$defs": {"a/b": {"type": "integer"}, "$id": {"$ref": "#/$defs/a~1b"}},
        "properties": {"$ref": {"$ref": "#/$defs/$id"}, "pattern": {"const": {"$ref": "x"}}},
    });
    let schema = compile(good).unwrap();
    assert_eq!(schema.check(&json!({"$ref": 1})), Ok(()));
    assert_eq!(schema.check(&json!({"$ref": "1"})), Err("'1' is not of type 'integer'".into()));
    for reference in [
        "https://example.com/other.json",
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "other",
        "#anchor",
        "#/$defs/%61",
        "#/$defs/none",
        "#/enum/0",
        "",
    ] {
        let schema = json!({"enum": [{}], "$defs": {"a": {}}, "items": {"$ref": reference}});
        assert_eq!(compile(schema).unwrap_err(), SchemaError::Reference, "{reference}");
    }
    assert_eq!(compile(json!({"$ref": 5})).unwrap_err(), SchemaError::Reference);
    let circles = [
        json!({"$ref": "#"}),
        json!({"items": {"$ref": "#"}}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
    ];
    for circle in circles {
        assert_eq!(compile(circle.clone()).unwrap_err(), SchemaError::Circle, "{circle}");
    }
    for name in ["$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$vocabulary"] {
        let schema = json!({"items": {(name): "#"}});
        assert_eq!(compile(schema).unwrap_err(), SchemaError::Unsupported(name));
    }
    for name in ["$id", "$schema"] {
        let schema = json!({"items": {(name): "https://example.com/"}});
        assert_eq!(compile(schema).unwrap_err(), SchemaError::Unsupported(name));
    }
}

#[test]
fn schemas_that_grow_are_refused() {
    // Each definition refers to the next one twice.
    let doubling = |levels: usize| {
        let mut defs = serde_json::Map::new();
        for n in 0..levels {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            defs.insert(format!("d{n}"), json!({"anyOf": [next, next]}));
        }
        defs.insert(format!("d{levels}"), json!({"type": "integer"}));
        json!({"$defs": defs, "$ref": "#/$defs/d0"})
    };
    assert!(compile(doubling(8)).is_ok());
    let expanded = SchemaError::TooLarge("10,000 subschemas, references replaced");
    assert_eq!(compile(doubling(30)).unwrap_err(), expanded);

    let deep = |levels: usize| (1..levels).fold(json!({}), |below, _| json!({"not": below}));
    assert!(compile(deep(SCHEMA_DEPTH_MAX)).is_ok());
    let too_deep = SchemaError::TooLarge("64 levels of subschemas");
    assert_eq!(compile(deep(SCHEMA_DEPTH_MAX + 1)).unwrap_err(), too_deep);
    let chain: serde_json::Map<_, _> = (0..100)
        .map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)})))
        .chain([("d100".to_owned(), json!({}))])
        .collect();
    assert_eq!(compile(json!({"$defs": chain})).unwrap_err(), too_deep);

    let wide = |count: usize| json!({"anyOf": vec![json!({"type": "null"}); count]});
    assert!(compile(wide(SUBSCHEMAS_MAX - 1)).is_ok());
    let too_wide = SchemaError::TooLarge("1,000 subschemas");
    assert_eq!(compile(wide(SUBSCHEMAS_MAX)).unwrap_err(), too_wide);
    let long = packed(&json!({"description": "x".repeat(SCHEMA_BYTES_MAX)}));
    assert_eq!(record::compile(&long).unwrap_err(), SchemaError::TooLarge("64 KiB"));
}

#[test]
fn regular_expressions_take_linear_time_and_bounded_memory() {
    let schema = compile(json!({"pattern": "^(a+)+$"})).unwrap();
    let word = format!("{}b", "a".repeat(100_000));
    // With a backtracking engine this would not end.
    assert!(schema.check(&json!(word)).is_err());
    assert_eq!(schema.check(&json!("aaa")), Ok(()));
    // Lookahead, a back reference, and one that is huge when compiled.
    for pattern in ["(?=a)b", r"(a)\1", r"(\pL{1000}){1000}"] {
        let result = compile(json!({"pattern": pattern}));
        assert!(matches!(result, Err(SchemaError::Invalid(_))), "{pattern}: {result:?}");
    }
    let many = |count: usize| {
        let patterns: serde_json::Map<_, _> =
            (0..count).map(|n| (format!("a{n}"), json!({}))).collect();
        json!({"patternProperties": patterns})
    };
    assert!(compile(many(REGEXES_MAX)).is_ok());
    let too_many = SchemaError::TooLarge("100 regular expressions");
    assert_eq!(compile(many(REGEXES_MAX + 1)).unwrap_err(), too_many);
}

#[test]
fn messages_are_those_of_the_original_and_short() {
    let cases = [
        (json!({"type": ["null", "integer"]}), json!("x"), "'x' is not of type 'null', 'integer'"),
        (json!({"exclusiveMinimum": 5}), json!(5), "5 is less than or equal to the minimum of 5"),
        (
            json!({"exclusiveMaximum": 5}),
            json!(5),
            "5 is greater than or equal to the maximum of 5",
        ),
        (json!({"minLength": 2}), json!("it's"), ""),
        (json!({"minLength": 9}), json!("it's"), "\"it's\" is too short"),
        (json!({"maxItems": 1}), json!([1, "a"]), "[1, 'a'] is too long"),
        (json!({"required": ["a"]}), json!({"b": 1}), "'a' is a required property"),
        (json!({"enum": [1, null]}), json!(true), "True is not one of [1, None]"),
        (json!({"const": 5}), json!(6), "5 was expected"),
        (json!({"pattern": "^a"}), json!("b"), "'b' does not match '^a'"),
        (json!({"uniqueItems": true}), json!([1, 1]), "[1, 1] has non-unique elements"),
        (
            json!({"anyOf": [{"type": "null"}]}),
            json!(1),
            "1 is not valid under any of the given schemas",
        ),
        (json!(false), json!(1), "False schema does not allow 1"),
        (
            json!({"properties": {"c": {}}, "additionalProperties": false}),
            json!({"c": 1, "b": 2}),
            "Additional properties are not allowed ('b' was unexpected)",
        ),
    ];
    for (schema, value, text) in cases {
        let expected = if text.is_empty() { Ok(()) } else { Err(text.to_owned()) };
        assert_eq!(compile(schema).unwrap().check(&value), expected);
    }
    let long = json!("x".repeat(1_000_000));
    let error = compile(json!({"type": "null"})).unwrap().check(&long).unwrap_err();
    assert!(error.len() < 300 && error.contains('…'), "{error}");
    assert_eq!(TypeError::Misfit("'x' is".into()).to_string(), "<ValidationError: \"'x' is\">");
}

#[test]
fn a_schema_that_is_none_is_refused_with_the_text_of_the_original() {
    let tree = Tree::default();
    let change = |schema: Json| {
        let record = json!({"schema": schema, "good": [0, 1], "bad": [-1]});
        tree.types.check_change(&path(":n.type.n"), &packed(&record)).unwrap_err().to_string()
    };
    for schema in [json!({"type": "nonsense"}), json!(5), json!({"minimum": "x"}), json!(null)] {
        let text = change(schema);
        assert!(text.starts_with("failed on good value 0: the schema is not valid: "), "{text}");
    }
}

#[test]
fn a_regular_expression_that_is_not_taken_says_why() {
    let schemas =
        ["^a(?=b)", "^(a)\\1$", "(", "(?:a{500}){500}"].map(|regex| json!({"pattern": regex}));
    for schema in schemas.into_iter().chain([json!({"patternProperties": {"(?!x)": {}}})]) {
        let text = compile(schema.clone()).unwrap_err().to_string();
        assert!(text.contains("linear time") && text.contains("look-around"), "{schema}: {text}");
    }
    let text = compile(json!({"pattern": "^a(?=b)"})).unwrap_err().to_string();
    assert!(
        text.starts_with("the schema is not valid: '^a(?=b)' is no regular expression"),
        "{text}"
    );
}

#[test]
fn types_that_stay_are_not_compiled_again() {
    let mut tree = Tree::default();
    let number = json!({"schema": {"type": "integer"}, "good": [0, 1], "bad": ["x"]});
    tree.set_json(":n.type.n", &number).unwrap();
    let schema = |tree: &Tree, name: &str| match &tree.types.types[path(name).as_bytes()].check {
        Check::Schema(schema) => Arc::clone(schema),
        other => panic!("{other:?}"),
    };
    let first = schema(&tree, "n");
    tree.set_json(":n.type.m", &number).unwrap();
    assert!(Arc::ptr_eq(&first, &schema(&tree, "n")));
    let text = json!({"schema": {"type": "string"}, "good": ["a", "b"], "bad": [1]});
    tree.set_json(":n.type.n", &text).unwrap();
    assert!(!Arc::ptr_eq(&first, &schema(&tree, "n")));
}

#[test]
fn too_many_types_and_matches_are_refused_and_from_elsewhere_let_nothing_unchecked_in() {
    let mut entries = Vec::new();
    for n in 0..=TYPES_MAX {
        entries.push((path(&format!(":n.type.t{n:04}")), packed(&json!({}))));
    }
    let build = |entries: &[(Path, Vec<u8>)]| {
        let entries = entries.iter().map(|(path, value)| (path.clone(), value.as_slice()));
        Types::build(entries, &Types::default())
    };
    let full = build(&entries[..TYPES_MAX]);
    let empty = packed(&json!({}));
    assert_eq!(full.check_change(&path(":n.type.more"), &empty), Err(TypeError::TooMany));
    assert_eq!(full.check_change(&path(":n.type.t0001"), &empty), Ok(None));
    let mut name = Vec::new();
    write_str("t1024", &mut name);
    let to_last = [&b"\x81\xa4type"[..], &name].concat();
    entries.insert(0, (path(":n.match.m"), to_last));
    let over = build(&entries);
    assert_eq!(over.check(path("m").as_bytes(), b"\x01"), Err(TypeError::Broken(path("t1024"))));

    let matches: Vec<_> = (0..1_024)
        .map(|n| (path(&format!(":n.match.m{n}")), packed(&json!({"type": ["t"]}))))
        .chain([(path(":n.type.t"), empty.clone())])
        .collect();
    let full = build(&matches);
    let to_t = packed(&json!({"type": ["t"]}));
    assert_eq!(full.check_change(&path(":n.match.more"), &to_t), Err(TypeError::TooMany));
    assert_eq!(full.check_change(&path(":n.match.m5"), &to_t), Ok(None));
    assert_eq!(full.check(path("other").as_bytes(), b"\x01"), Ok(()));
}
