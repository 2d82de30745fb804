//! JSON for people, MessagePack for the wire: both ways, for the command line.
//!
//! Null, booleans, numbers, strings, arrays, and maps whose keys are strings stand as they are;
//! numbers with a dot or an exponent are floats, others integers. What JSON cannot say is a map
//! with one key that starts with a dollar sign:
//!
//! | JSON | MessagePack |
//! |---|---|
//! | `{"$bin": "aGk="}` | byte string, in base64 |
//! | `{"$str": "wyg="}` | string that is not UTF-8, in base64 |
//! | `{"$float": "nan"}` | float that is no number: `nan`, `inf`, `-inf` |
//! | `{"$path": "a.b:1"}` | extension 3: a path, in text form |
//! | `{"$int": "0x10000000000000000"}` | extension 2: an integer of 2^64 and above, in hexadecimal |
//! | `{"$int": "-9007199254740993"}` | an integer of 64 bits, in decimal: see [`make_integers_safe`] |
//! | `{"$ext": [5, "aGk="]}` | any other extension: type, content in base64 |
//! | `{"$map": [[1, "a"], [2, "b"]]}` | map with other keys than strings, or a key twice |
//!
//! A real map that looks like one of these is written as `$map` too, so nothing changes its
//! meaning on the way there and back. Other keys with a dollar sign (`$ref`) mean nothing special.
//!
//! Kept are the values, not their encodings: an integer comes back in its shortest form, a 32-bit
//! float in 64 bits, a NaN as the usual one. Nothing is changed or left out silently: an integer past
//! 64 bits is refused (`$int` keeps it exact, a dot or an exponent makes it a float), and so is a map
//! with a key twice (`$map` has both).

mod parse;
mod pieces;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
pub(crate) use parse::object_from_text;
pub use parse::{value_from_json, value_from_long_text, value_from_text};
pub use pieces::JsonPieces;
use serde_json::{Map, Number, Value as Json};

use crate::model::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};
use crate::model::path::{EXT_PATH, Path};
use crate::model::path_text::PathTextError;
use crate::model::value::{Kind, ReadError, Reader, SkipLimits, ValueError};

/// The extension type of integers of 2^64 and above (docs/client-protocol.md, "Framing").
const EXT_BIG_INTEGER: i8 = 2;

/// The greatest integer up to which programs whose numbers are all floats (JavaScript) tell each from the next.
pub const SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Deepest nesting of JSON text: a level of a value takes up to three (`$map`, its pairs, and the
/// map around them), what stands in its innermost one up to two (`$ext`).
const JSON_DEPTH_MAX: usize = 3 * VALUE_DEPTH_MAX + 2;

/// As many characters as an error repeats of the text.
const SHOWN: usize = 200;

/// The keys that have a meaning.
const ESCAPES: [&str; 7] = ["$bin", "$str", "$float", "$path", "$int", "$ext", "$map"];

/// Why a conversion failed. There is no result then, not even in part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// An integer past 64 bits: its beginning, if it is long.
    #[error(
        "the integer {0} is past 64 bits; {{\"$int\": \"0x…\"}} keeps it exact, and with a dot or an \
         exponent it is a float"
    )]
    BigInteger(String),
    /// Longer than any value is, whatever else is wrong with the rest.
    #[error("bad value: longer than {VALUE_BYTES_MAX} bytes as MessagePack")]
    TooLarge,
    /// Whoever keeps what it takes has no more room: see [`value_from_long_text`].
    #[error("there is no more memory for it")]
    Stopped,
    /// Nested too deep to be a value.
    #[error("nested deeper than {VALUE_DEPTH_MAX}")]
    TooDeep,
    /// One of the keys with a meaning has a wrong value.
    #[error("\"{name}\" must have {expected} behind it")]
    Escape {
        /// The key.
        name: &'static str,
        /// What must follow.
        expected: &'static str,
    },
    /// The text behind `$path` is no path.
    #[error("\"$path\": {0}")]
    Path(#[from] PathTextError),
    /// The value that comes out is past a limit.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The bytes are not one MessagePack value.
    #[error("not a MessagePack value: {0}")]
    Read(#[from] ReadError),
}

/// Why a text is not JSON, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    what: String,
    /// Line and column, both from 1 (a column of 0 is before the first); none where it is the whole text.
    at: Option<(usize, usize)>,
    /// Somebody else says which line it is.
    is_of_line: bool,
    is_key_twice: bool,
}

/// Of an escape like `\ud800` that does not have the other half beside it.
const LONE_SURROGATE: &str =
    "an escape is one half of a surrogate pair, which is no character by itself";

impl SyntaxError {
    fn of(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let (text, at) = (error.to_string(), (line > 0).then_some((line, column)));
        // Its text ends with its place, which it also tells as numbers.
        let what = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        // The parser names what it lacked, not what is there.
        let what = match what {
            "unexpected end of hex escape" | "lone leading surrogate in hex escape" => {
                LONE_SURROGATE
            }
            what => what,
        };
        // All else is wrong for the parser already.
        let is_key_twice = error.is_data();
        Self { what: what.to_owned(), at, is_of_line: false, is_key_twice }
    }

    fn of_no_object() -> Self {
        Self { what: String::from("no object"), at: None, is_of_line: false, is_key_twice: false }
    }

    /// The same in a text of one line: whoever reads it knows which one it is.
    #[must_use]
    pub(crate) fn of_line(self) -> Self {
        Self { is_of_line: true, ..self }
    }

    /// Whether that is because a map has a key twice.
    #[must_use]
    pub fn is_key_twice(&self) -> bool {
        self.is_key_twice
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match self.at {
            None => Ok(()),
            Some((_, column)) if self.is_of_line => write!(f, " at column {column}"),
            Some((line, column)) => write!(f, " at line {line} column {column}"),
        }
    }
}

impl std::error::Error for SyntaxError {}

/// The JSON for one MessagePack value (or message, which may be a few levels deeper), given as its
/// bytes.
pub fn json_from_msgpack(bytes: &[u8]) -> Result<Json, JsonError> {
    let mut reader = Reader::new(bytes);
    // Also bounds how deep `read_json` recurses.
    let mut value = Reader::new(reader.read_raw_within(SkipLimits::NONE)?);
    reader.finish()?;
    Ok(read_json(&mut value)?)
}

/// The same, with integers past [`SAFE_INTEGER`] as text: see [`make_integers_safe`].
pub fn safe_json_from_msgpack(bytes: &[u8]) -> Result<Json, JsonError> {
    let mut json = json_from_msgpack(bytes)?;
    make_integers_safe(&mut json);
    Ok(json)
}

/// Writes integers past [`SAFE_INTEGER`] as text: `{"$int": "9007199254740993"}`. So no reader rounds one silently, and
/// what comes back is what was there.
pub fn make_integers_safe(json: &mut Json) {
    match json {
        Json::Number(number) => {
            let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if size.is_some_and(|size| size > SAFE_INTEGER) {
                *json = escape("$int", number.to_string().into());
            }
        }
        Json::Array(items) => items.iter_mut().for_each(make_integers_safe),
        Json::Object(fields) => fields.values_mut().for_each(make_integers_safe),
        Json::Null | Json::Bool(_) | Json::String(_) => {}
    }
}

/// The JSON text, on one line, for one MessagePack value, given as its bytes.
pub fn text_from_msgpack(bytes: &[u8]) -> Result<String, JsonError> {
    Ok(json_from_msgpack(bytes)?.to_string())
}

/// A text of somebody else as an error repeats it: cut short.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// Reads one value, whose nesting the caller has bounded.
fn read_json(reader: &mut Reader<'_>) -> Result<Json, ReadError> {
    Ok(match reader.peek_kind()? {
        Kind::Nil => {
            reader.read_nil()?;
            Json::Null
        }
        Kind::Bool => Json::Bool(reader.read_bool()?),
        Kind::Int => match reader.read_u64() {
            Ok(number) => number.into(),
            Err(_) => reader.read_i64()?.into(),
        },
        Kind::Float => float_json(reader.read_f64()?),
        Kind::Str => {
            let bytes = reader.read_str_bytes()?;
            match std::str::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(_) => escape("$str", BASE64.encode(bytes).into()),
            }
        }
        Kind::Bin => escape("$bin", BASE64.encode(reader.read_bin()?).into()),
        Kind::Ext => {
            let (kind, content) = reader.read_ext()?;
            ext_json(kind, content)
        }
        Kind::Array => {
            let count = reader.read_array_len()?;
            Json::Array((0..count).map(|_| read_json(reader)).collect::<Result<_, _>>()?)
        }
        Kind::Map => {
            let count = reader.read_map_len()?;
            let pair = |_| Ok((read_json(reader)?, read_json(reader)?));
            map_json((0..count).map(pair).collect::<Result<_, ReadError>>()?)
        }
    })
}

/// An escape form.
fn escape(name: &'static str, content: Json) -> Json {
    Json::Object(Map::from_iter([(name.to_owned(), content)]))
}

fn float_json(number: f64) -> Json {
    match Number::from_f64(number) {
        Some(number) => Json::Number(number),
        None if number.is_nan() => escape("$float", "nan".into()),
        None if number > 0.0 => escape("$float", "inf".into()),
        None => escape("$float", "-inf".into()),
    }
}

fn ext_json(kind: i8, content: &[u8]) -> Json {
    // Only a form that comes back in the same bytes may replace the plain one.
    match (kind, content) {
        (EXT_PATH, _) => {
            if let Ok(path) = Path::from_canonical(content) {
                return escape("$path", path.to_string().into());
            }
        }
        (EXT_BIG_INTEGER, [first, ..]) if *first > 0 && content.len() > 8 => {
            let digits: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
            return escape("$int", format!("0x{}", digits.trim_start_matches('0')).into());
        }
        _ => {}
    }
    escape("$ext", vec![Json::from(kind), BASE64.encode(content).into()].into())
}

/// A map from its pairs, of which the keys are JSON already.
fn map_json(pairs: Vec<(Json, Json)>) -> Json {
    let mut seen = HashSet::new();
    let plain = pairs.iter().all(|(key, _)| key.as_str().is_some_and(|key| seen.insert(key)));
    let looks_like_a_form = match pairs.as_slice() {
        [(key, _)] => key.as_str().is_some_and(|key| ESCAPES.contains(&key)),
        _ => false,
    };
    if !plain || looks_like_a_form {
        let pairs = pairs.into_iter().map(|(key, value)| Json::Array(vec![key, value]));
        return escape("$map", pairs.collect());
    }
    let text_keys = pairs.into_iter().filter_map(|(key, value)| match key {
        Json::String(key) => Some((key, value)),
        _ => None,
    });
    Json::Object(text_keys.collect())
}
