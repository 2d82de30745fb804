//! JSON schemas: which ones are taken, and compiling them.
//!
//! A schema is JSON Schema, draft 2020-12, whatever its `$schema` says. It refers to nothing but its own
//! subschemas, and not in circles; so checking a value is bounded work.

use std::collections::HashMap;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value as Json;

use super::describe::describe;

/// Most bytes of a schema as MessagePack: 64 KiB.
pub(crate) const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// Most subschemas of a schema.
pub(crate) const SUBSCHEMAS_MAX: usize = 1_000;
/// Most subschemas if each reference is replaced by what it refers to.
const EXPANDED_MAX: usize = 10_000;
/// Deepest nesting of subschemas, references replaced.
pub(crate) const SCHEMA_DEPTH_MAX: usize = 64;
/// Most regular expressions of a schema.
pub(crate) const REGEXES_MAX: usize = 100;
/// Most bytes that a regular expression takes when compiled: 256 KiB.
const REGEX_BYTES_MAX: usize = 256 << 10;
/// What a subschema adds to a schema's weight, references replaced.
const SUBSCHEMA_WEIGHT: usize = 16;
/// What a regular expression adds: a short one may have thousands of states.
const REGEX_WEIGHT: usize = 1 << 10;

/// Why a schema is not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SchemaError {
    /// It is no schema; in the words of the library.
    #[error("the schema is not valid: {0}")]
    Invalid(String),
    /// It is past a limit.
    #[error("the schema has more than {0}")]
    TooLarge(&'static str),
    /// It uses something that is not supported here.
    #[error("the schema uses {0:?}, which is not supported here")]
    Unsupported(&'static str),
    /// It refers to something else than one of its own subschemas.
    #[error("the schema refers to something that is none of its own subschemas")]
    Reference,
    /// It refers to itself.
    #[error("the schema refers to itself")]
    Circle,
}

/// A compiled schema.
#[derive(Debug)]
pub(super) struct Schema {
    validator: Validator,
    /// What checking a value takes, roughly, per byte of the value: bytes of the schema, and more for what is large
    /// only when it is compiled.
    weight: usize,
}

impl Schema {
    /// `size` is the schema's, in bytes.
    pub(super) fn compile(mut json: Json, size: usize) -> Result<Self, SchemaError> {
        if let Json::Object(fields) = &mut json {
            // They would give references another base, and have other rules looked for.
            fields.shift_remove("$schema");
            fields.shift_remove("$id");
        }
        let subschemas = Subschemas::find(&json)?;
        let expanded = Expansion::new(&subschemas).check()?;
        let weight = size + SUBSCHEMA_WEIGHT * expanded + REGEX_WEIGHT * subschemas.regexes;
        let patterns = PatternOptions::regex();
        let patterns = patterns.size_limit(REGEX_BYTES_MAX).dfa_size_limit(REGEX_BYTES_MAX);
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
            .with_pattern_options(patterns)
            .should_validate_formats(false)
            .build(&json)
            .map_err(|error| SchemaError::Invalid(describe(&error, SCHEMA_DEPTH_MAX)))?;
        Ok(Self { validator, weight })
    }

    /// See the field.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// What does not fit, in words.
    pub(super) fn check(&self, value: &Json) -> Result<(), String> {
        self.validator.validate(value).map_err(|error| describe(&error, SCHEMA_DEPTH_MAX))
    }
}

/// What a keyword of a schema has.
enum Has {
    Schema,
    /// One, or a list of them.
    SchemaOrList,
    List,
    /// By name; lists in the place of schemas are of names.
    ByName,
}

fn keyword(name: &str) -> Option<Has> {
    Some(match name {
        "additionalItems"
        | "additionalProperties"
        | "contains"
        | "contentSchema"
        | "else"
        | "if"
        | "not"
        | "propertyNames"
        | "then"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Has::Schema,
        "items" => Has::SchemaOrList,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Has::List,
        "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties"
        | "properties" => Has::ByName,
        _ => return None,
    })
}

/// Keywords with which a schema would not be by itself, or not be bounded.
const UNSUPPORTED: [&str; 6] =
    ["$id", "$schema", "$vocabulary", "$dynamicRef", "$recursiveRef", "$dynamicAnchor"];

#[derive(Default)]
struct Subschema {
    below: Vec<usize>,
    refers_to: Option<String>,
}

/// All subschemas, the whole first, and where they are.
struct Subschemas {
    list: Vec<Subschema>,
    /// By JSON pointer.
    places: HashMap<String, usize>,
    regexes: usize,
}

impl Subschemas {
    fn find(json: &Json) -> Result<Self, SchemaError> {
        let mut found = Self { list: Vec::new(), places: HashMap::new(), regexes: 0 };
        // What is still to be looked at: where, what, below which one.
        let mut waiting = vec![(String::new(), json, None)];
        while let Some((place, json, above)) = waiting.pop() {
            let number = found.list.len();
            if number >= SUBSCHEMAS_MAX {
                return Err(SchemaError::TooLarge("1,000 subschemas"));
            }
            let mut subschema = Subschema::default();
            if let Json::Object(fields) = json {
                for (name, value) in fields {
                    let place = format!("{place}/{}", escaped(name));
                    if let Some(name) = UNSUPPORTED.iter().find(|other| *other == name) {
                        return Err(SchemaError::Unsupported(name));
                    }
                    found.regexes += match (name.as_str(), value) {
                        ("pattern", _) => 1,
                        ("patternProperties", Json::Object(fields)) => fields.len(),
                        _ => 0,
                    };
                    if name == "$ref" {
                        subschema.refers_to = Some(own_place(value)?);
                    }
                    let below = subschemas_of(name, value, place);
                    waiting.extend(below.into_iter().map(|(p, json)| (p, json, Some(number))));
                    if waiting.len() > SUBSCHEMAS_MAX {
                        return Err(SchemaError::TooLarge("1,000 subschemas"));
                    }
                }
            }
            if found.regexes > REGEXES_MAX {
                return Err(SchemaError::TooLarge("100 regular expressions"));
            }
            found.list.push(subschema);
            found.places.insert(place, number);
            if let Some(above) = above.and_then(|above: usize| found.list.get_mut(above)) {
                above.below.push(number);
            }
        }
        Ok(found)
    }
}

/// The subschemas in the value of a field, each with its place.
fn subschemas_of<'j>(name: &str, value: &'j Json, place: String) -> Vec<(String, &'j Json)> {
    match (keyword(name), value) {
        (Some(Has::Schema | Has::SchemaOrList), Json::Object(_) | Json::Bool(_)) => {
            vec![(place, value)]
        }
        (Some(Has::List | Has::SchemaOrList), Json::Array(items)) => {
            let items = items.iter().enumerate();
            items.map(|(n, item)| (format!("{place}/{n}"), item)).collect()
        }
        (Some(Has::ByName), Json::Object(fields)) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_array());
            fields.map(|(name, value)| (format!("{place}/{}", escaped(name)), value)).collect()
        }
        // Data, or what the library will find fault with.
        _ => Vec::new(),
    }
}

/// A name in a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The JSON pointer in a reference to the schema itself.
fn own_place(reference: &Json) -> Result<String, SchemaError> {
    let place = reference.as_str().and_then(|text| text.strip_prefix('#'));
    match place {
        // What is written in percents would have to be compared in another form.
        Some(place) if (place.is_empty() || place.starts_with('/')) && !place.contains('%') => {
            Ok(place.to_owned())
        }
        _ => Err(SchemaError::Reference),
    }
}

/// How large the schema is if each reference is replaced.
struct Expansion<'s> {
    subschemas: &'s Subschemas,
    seen: Vec<Seen>,
}

#[derive(Clone, Copy)]
enum Seen {
    Not,
    /// It is on the way to what is being looked at.
    Above,
    /// So many subschemas, so deep.
    Size(usize, usize),
}

impl<'s> Expansion<'s> {
    fn new(subschemas: &'s Subschemas) -> Self {
        Self { subschemas, seen: vec![Seen::Not; subschemas.list.len()] }
    }

    /// How many subschemas it has then.
    fn check(mut self) -> Result<usize, SchemaError> {
        // Those that only references lead to are below another one, too.
        self.size_of(0, SCHEMA_DEPTH_MAX).map(|(size, _)| size)
    }

    /// `levels` bounds the recursion.
    fn size_of(&mut self, number: usize, levels: usize) -> Result<(usize, usize), SchemaError> {
        const TOO_DEEP: SchemaError = SchemaError::TooLarge("64 levels of subschemas");
        match self.seen.get(number) {
            Some(Seen::Above) => return Err(SchemaError::Circle),
            Some(Seen::Size(size, depth)) if *depth <= levels => return Ok((*size, *depth)),
            Some(Seen::Size(..)) => return Err(TOO_DEEP),
            _ => {}
        }
        let left = levels.checked_sub(1).ok_or(TOO_DEEP)?;
        self.see(number, Seen::Above);
        let subschemas = self.subschemas;
        let Some(subschema) = subschemas.list.get(number) else {
            return Err(SchemaError::Reference);
        };
        let target = match &subschema.refers_to {
            None => None,
            Some(place) => Some(*subschemas.places.get(place).ok_or(SchemaError::Reference)?),
        };
        let (mut size, mut depth) = (1_usize, 0);
        for below in subschema.below.iter().copied().chain(target) {
            let (more, deep) = self.size_of(below, left)?;
            size = size.saturating_add(more);
            depth = depth.max(deep);
            if size > EXPANDED_MAX {
                return Err(SchemaError::TooLarge("10,000 subschemas, references replaced"));
            }
        }
        self.see(number, Seen::Size(size, depth + 1));
        Ok((size, depth + 1))
    }

    fn see(&mut self, number: usize, seen: Seen) {
        if let Some(slot) = self.seen.get_mut(number) {
            *slot = seen;
        }
    }
}
