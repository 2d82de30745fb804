//! Whatever a client stores as a type: its schema must be taken or refused, and what was taken must check every
//! value in bounded time, and judge the examples as it did when it was stored.
#![no_main]

use distkv_model::path::Path;
use distkv_model::value::{Value, write_array_len, write_map_len, write_str};
use distkv_core::protocol::json::{value_from_json, value_from_text};
use distkv_access::types::Types;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value as Json, json};

/// Deepest nesting of what is made here; texts may have more.
const DEPTH_MAX: usize = 12;
/// Separates the schema from the values in a text.
const SEPARATOR: u8 = 0xff;
/// Where values are checked.
const PLACE: &str = "a.b";

/// Keywords that have a schema, a list of them, schemas by name, a number, or something of their own.
const SCHEMA: [&str; 10] = [
    "not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames",
    "unevaluatedProperties", "unevaluatedItems",
];
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const BY_NAME: [&str; 4] = ["properties", "patternProperties", "$defs", "dependentSchemas"];
const NUMBERS: [&str; 14] = [
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains",
    "maxContains", "version",
];
const REFERENCES: [&str; 9] = [
    "#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/allOf/0", "#a", "http://x/y", "a",
    "#/not",
];
const NAMES: [&str; 6] = ["a", "b", "", "a/b", "~0", "^(a|b)*$"];
const PATTERNS: [&str; 8] =
    ["^a+$", "(a*)*b", "(a|a)*$", "[", "\\p{L}+", "(?=a)", "a{1,1000}", "\\1"];
const KINDS: [&str; 8] =
    ["null", "boolean", "integer", "number", "string", "array", "object", "none"];

/// The input, read as choices; zeros behind its end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.byte() % of.len()]
    }

    fn number(&mut self) -> Json {
        match self.byte() {
            byte @ 0..200 => json!(byte as i64 - 20),
            byte @ 200..230 => json!(byte as f64 / 7.0),
            byte @ 230..240 => json!(i64::MAX - byte as i64),
            byte @ 240..250 => json!(1e300 * byte as f64),
            _ => json!(u64::MAX),
        }
    }

    fn value(&mut self, depth: usize) -> Json {
        match self.byte() % 8 {
            0 => Json::Null,
            1 => json!(self.byte() % 2 == 0),
            2 | 3 => self.number(),
            4 => json!("ab".repeat(self.byte() % 20)),
            5 => json!(self.one(&NAMES)),
            _ if depth == 0 => json!("deep"),
            6 => (0..self.byte() % 4).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let count = self.byte() % 4;
                let fields = (0..count)
                    .map(|_| (self.one(&NAMES).to_owned(), self.value(depth - 1)));
                Json::Object(fields.collect::<Map<_, _>>())
            }
        }
    }

    fn schema(&mut self, depth: usize) -> Json {
        let choice = self.byte();
        if depth == 0 || choice < 32 {
            return json!(choice % 2 == 0);
        }
        let mut schema = Map::new();
        for _ in 0..1 + choice % 4 {
            let (name, value) = match self.byte() % 9 {
                0 => (self.one(&SCHEMA), self.schema(depth - 1)),
                1 => {
                    let count = self.byte() % 4;
                    (self.one(&LISTS), (0..count).map(|_| self.schema(depth - 1)).collect())
                }
                2 => {
                    let (keyword, count) = (self.one(&BY_NAME), self.byte() % 4);
                    let fields = (0..count)
                        .map(|_| (self.one(&NAMES).to_owned(), self.schema(depth - 1)));
                    (keyword, Json::Object(fields.collect::<Map<_, _>>()))
                }
                3 => (self.one(&NUMBERS), self.number()),
                4 => (self.one(&["$ref", "$dynamicRef", "$id", "$anchor", "$schema"]),
                      json!(self.one(&REFERENCES))),
                5 => ("pattern", json!(self.one(&PATTERNS))),
                6 => ("type", json!(self.one(&KINDS))),
                7 => (self.one(&["const", "enum", "required", "default"]), self.value(3)),
                _ => ("uniqueItems", json!(self.byte() % 2 == 0)),
            };
            schema.insert(name.to_owned(), value);
        }
        Json::Object(schema)
    }
}

/// A schema, and values: from texts, or made of choices.
fn parts(data: &[u8]) -> Option<(Value, Vec<Value>)> {
    let (mode, rest) = data.split_first()?;
    if mode % 4 == 0 {
        let text = |bytes| value_from_text(std::str::from_utf8(bytes).ok()?).ok();
        let mut texts = rest.split(|byte| *byte == SEPARATOR);
        let schema = text(texts.next()?)?;
        return Some((schema, texts.filter_map(text).take(8).collect()));
    }
    let mut choices = Choices(rest);
    let schema = value_from_json(&choices.schema(DEPTH_MAX)).ok()?;
    let values = (0..4).filter_map(|_| value_from_json(&choices.value(4)).ok());
    Some((schema, values.collect()))
}

fn record(schema: &Value, good: &[&Value], bad: &[&Value]) -> Vec<u8> {
    let mut out = Vec::new();
    write_map_len(3, &mut out);
    write_str("schema", &mut out);
    out.extend_from_slice(schema.as_bytes());
    for (name, values) in [("good", good), ("bad", bad)] {
        write_str(name, &mut out);
        write_array_len(values.len(), &mut out);
        values.iter().for_each(|value| out.extend_from_slice(value.as_bytes()));
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let Some((schema, values)) = parts(data) else { return };
    let path = |text: &str| text.parse::<Path>().expect("a path");
    let (place, at_type, at_match) = (path(PLACE), path(":n.type.t"), path(":n.match.a.#"));
    let matched = [b"\x81\xa4type".as_slice(), b"\x91\xa1t"].concat();
    // What a peer sends is stored unseen: a schema that is not taken lets nothing in.
    let unseen = record(&schema, &[], &[]);
    let entries = [(at_type.clone(), &unseen[..]), (at_match.clone(), &matched[..])];
    let types = Types::build(entries, &Types::default());
    let fits = |value: &Value| types.check(place.as_bytes(), value.as_bytes());
    let (good, bad): (Vec<&Value>, Vec<&Value>) =
        values.iter().partition(|value| fits(value).is_ok());
    for value in &values {
        assert_eq!(fits(value).is_ok(), fits(value).is_ok());
    }
    if good.len() < 2 || bad.is_empty() {
        return;
    }
    // Some fit, so the schema was taken; with the same examples, a client may store it.
    let stored = record(&schema, &good, &bad);
    let judged = Types::default().check_change(&at_type, &stored);
    assert!(judged.is_ok(), "{judged:?}");
    let wrong = record(&schema, &bad.iter().chain(&bad).copied().collect::<Vec<_>>(), &good);
    assert!(Types::default().check_change(&at_type, &wrong).is_err());
});
