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

mod pieces;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
pub use pieces::JsonPieces;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value as Json};

use crate::model::limits::VALUE_DEPTH_MAX;
use crate::model::path::{EXT_PATH, Path};
use crate::model::path_text::PathTextError;
use crate::model::value::write::{
    write_array_len, write_bin, write_bool, write_ext, write_f64, write_i64, write_map_len,
    write_nil, write_str, write_str_bytes, write_u64,
};
use crate::model::value::{Kind, ReadError, Reader, SkipLimits, Value, ValueError};

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

/// The value that a JSON text says.
pub fn value_from_text(text: &str) -> Result<Value, JsonError> {
    value_from_json(&json_from_text(text, JSON_DEPTH_MAX)?)
}

/// The fields of a JSON object, among which values stand: in whatever form JSON has for them, not
/// yet checked.
pub(crate) fn object_from_text(text: &str) -> Result<Map<String, Json>, JsonError> {
    match json_from_text(text, JSON_DEPTH_MAX + 1)? {
        Json::Object(fields) => Ok(fields),
        _ => Err(SyntaxError::of_no_object().into()),
    }
}

fn json_from_text(text: &str, depth_max: usize) -> Result<Json, JsonError> {
    if nesting(text) > depth_max {
        return Err(JsonError::TooDeep);
    }
    if let Some(integer) = big_integer(text) {
        return Err(JsonError::BigInteger(shown(integer)));
    }
    let syntax = |error: serde_json::Error| SyntaxError::of(&error);
    let mut parser = serde_json::Deserializer::from_str(text);
    // Its own limit is less than values need; the text's was just checked.
    parser.disable_recursion_limit();
    let Strict(json) = Strict::deserialize(&mut parser).map_err(syntax)?;
    parser.end().map_err(syntax)?;
    Ok(json)
}

/// The value that a piece of JSON says.
pub fn value_from_json(json: &Json) -> Result<Value, JsonError> {
    let mut out = Vec::new();
    write_json(json, 0, &mut out)?;
    Ok(Value::new(&out)?)
}

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

/// How deep the brackets of a JSON text nest; meaningless, but harmless, if it is not JSON.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut in_string = false;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                bytes.next();
            }
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The first integer in a JSON text that does not fit into 64 bits; meaningless, but harmless, if the
/// text is not JSON.
fn big_integer(text: &str) -> Option<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let is_big = |token: &&str| {
        let digits = token.strip_prefix('-').unwrap_or(token);
        // Fewer digits fit.
        digits.len() > 18
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && token.parse::<u64>().is_err()
            && token.parse::<i64>().is_err()
    };
    let mut rest = text;
    // The text outside of strings, piece by piece.
    loop {
        let (outside, inside) = rest.split_once('"').unwrap_or((rest, ""));
        if let Some(token) = outside.split(|c| !is_part(c)).find(is_big) {
            return Some(token);
        }
        let mut bytes = inside.bytes().enumerate();
        let end = loop {
            match bytes.next() {
                Some((at, b'"')) => break at,
                Some((_, b'\\')) => drop(bytes.next()),
                Some(_) => {}
                None => return None,
            }
        };
        rest = inside.get(end + 1..)?;
    }
}

/// JSON as it is read here: a map with a key twice is an error, and nothing else of what is JSON.
struct Strict(Json);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Json::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Json, A::Error> {
        let mut map = Map::new();
        while let Some((key, Strict(value))) = pairs.next_entry::<String, Strict>()? {
            if map.contains_key(&key) {
                let text = format!("the key {:?} is there twice", shown(&key));
                return Err(A::Error::custom(text));
            }
            map.insert(key, value);
        }
        Ok(Json::Object(map))
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

/// Which escape form a map has, and the value of its key.
fn escape_of(map: &Map<String, Json>) -> Option<(&'static str, &Json)> {
    let (key, content) = map.iter().next().filter(|_| map.len() == 1)?;
    ESCAPES.iter().find(|name| *name == key).map(|name| (*name, content))
}

/// Appends the MessagePack of a piece of JSON that stands `depth` levels deep in a value.
fn write_json(json: &Json, depth: usize, out: &mut Vec<u8>) -> Result<(), JsonError> {
    match json {
        Json::Null => write_nil(out),
        Json::Bool(value) => write_bool(*value, out),
        Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), _, _) => write_u64(number, out),
            (None, Some(number), _) => write_i64(number, out),
            (None, None, number) => write_f64(number.unwrap_or(f64::NAN), out),
        },
        Json::String(text) => write_str(text, out),
        Json::Array(items) => {
            let depth = deeper(depth)?;
            write_array_len(items.len(), out);
            items.iter().try_for_each(|item| write_json(item, depth, out))?;
        }
        Json::Object(map) => match escape_of(map) {
            Some((name, content)) => write_escape(name, content, depth, out)?,
            None => {
                let depth = deeper(depth)?;
                write_map_len(map.len(), out);
                for (key, value) in map {
                    write_str(key, out);
                    write_json(value, depth, out)?;
                }
            }
        },
    }
    Ok(())
}

/// One level down, if values go that deep. It bounds the recursion of [`write_json`].
fn deeper(depth: usize) -> Result<usize, JsonError> {
    if depth < VALUE_DEPTH_MAX { Ok(depth + 1) } else { Err(JsonError::TooDeep) }
}

/// Appends what an escape form stands for.
fn write_escape(
    name: &'static str,
    content: &Json,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    let wrong = |expected| JsonError::Escape { name, expected };
    let text = content.as_str();
    match name {
        "$bin" => write_bin(&base64_bytes(text).ok_or(wrong("base64 text"))?, out),
        "$str" => write_str_bytes(&base64_bytes(text).ok_or(wrong("base64 text"))?, out),
        "$float" => write_f64(
            match text {
                Some("nan") => f64::NAN,
                Some("inf") => f64::INFINITY,
                Some("-inf") => f64::NEG_INFINITY,
                _ => return Err(wrong("\"nan\", \"inf\" or \"-inf\"")),
            },
            out,
        ),
        "$path" => text.ok_or(wrong("a path's text"))?.parse::<Path>()?.encode_ext3(out),
        "$int" => {
            let expected = "\"0x\" and the hexadecimal digits of a positive integer, or the decimal digits of one of \
                 64 bits";
            let text = text.ok_or(wrong(expected))?;
            match text.strip_prefix("0x") {
                Some(digits) => write_big_int(digits, out),
                None => write_decimal_int(text, out),
            }
            .ok_or(wrong(expected))?;
        }
        "$ext" => {
            let expected = "an array of a type from -128 to 127 and base64 text";
            let (kind, content) = match content.as_array().map(Vec::as_slice) {
                Some([kind, content]) => (kind.as_i64(), base64_bytes(content.as_str())),
                _ => (None, None),
            };
            let kind = kind.and_then(|kind| i8::try_from(kind).ok()).ok_or(wrong(expected))?;
            write_ext(kind, &content.ok_or(wrong(expected))?, out);
        }
        _ => write_pairs(content, depth, out)?,
    }
    Ok(())
}

/// Appends the map of the pairs behind `$map`.
fn write_pairs(content: &Json, depth: usize, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let wrong = JsonError::Escape { name: "$map", expected: "an array of arrays of two" };
    let depth = deeper(depth)?;
    let Some(pairs) = content.as_array() else { return Err(wrong) };
    write_map_len(pairs.len(), out);
    for pair in pairs {
        match pair.as_array().map(Vec::as_slice) {
            Some([key, value]) => {
                write_json(key, depth, out)?;
                write_json(value, depth, out)?;
            }
            _ => return Err(wrong),
        }
    }
    Ok(())
}

/// Appends an integer: as such if it fits into 64 bits, else as the extension, minimal.
fn write_big_int(digits: &str, out: &mut Vec<u8>) -> Option<()> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    if digits.len() <= 16 {
        write_u64(u64::from_str_radix(digits, 16).unwrap_or_default(), out);
        return Some(());
    }
    // From the right, since the first byte may have one digit.
    let mut bytes: Vec<u8> = digits
        .as_bytes()
        .rchunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | hex_digit(*digit)))
        .collect();
    bytes.reverse();
    write_ext(EXT_BIG_INTEGER, &bytes, out);
    Some(())
}

/// Appends an integer of 64 bits.
fn write_decimal_int(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    match (text.parse::<u64>(), text.parse::<i64>()) {
        (Ok(number), _) => write_u64(number, out),
        (Err(_), Ok(number)) => write_i64(number, out),
        (Err(_), Err(_)) => return None,
    }
    Some(())
}

/// The value of a hexadecimal digit.
fn hex_digit(digit: u8) -> u8 {
    // A digit is below 16, so it fits.
    char::from(digit).to_digit(16).unwrap_or_default() as u8
}

fn base64_bytes(text: Option<&str>) -> Option<Vec<u8>> {
    BASE64.decode(text?).ok()
}
