//! Values as JSON, and JSON as the original's messages show it (as Python's `repr`).

use distkv_model::limits::VALUE_DEPTH_MAX;
use distkv_model::value::{Kind, ReadError, Reader};
use serde_json::{Map, Number, Value as Json};

/// Most items, on all levels, of a value that is checked: as JSON, each takes up to 100 bytes.
pub(crate) const ITEMS_MAX: usize = 262_144;
/// Most characters of a value that a message shows.
const SHOWN: usize = 200;

/// Why a value is not JSON; completes "the value".
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotJson {
    /// JSON has neither byte strings nor extensions.
    #[error("has {0}, which JSON has not")]
    Kind(Kind),
    /// NaN, or infinite.
    #[error("has a float that is no number")]
    NoNumber,
    /// A map has a key that is no text.
    #[error("has a map with a key that is no text")]
    Key,
    /// A map has a key twice.
    #[error("has a map with the same key twice")]
    KeyTwice,
    /// There are too many items, or they are too deep.
    #[error("has more than {ITEMS_MAX} items, or is nested too deep")]
    TooLarge,
    /// Not MessagePack, or text that is not UTF-8.
    #[error("cannot be read: {0}")]
    Read(#[from] ReadError),
}

/// A value (one MessagePack value) as JSON.
pub(super) fn to_json(value: &[u8]) -> Result<Json, NotJson> {
    let mut items = ITEMS_MAX;
    let mut reader = Reader::new(value);
    let json = read(&mut reader, VALUE_DEPTH_MAX, &mut items)?;
    reader.finish()?;
    Ok(json)
}

/// `levels` bounds the recursion.
fn read(reader: &mut Reader<'_>, levels: usize, items: &mut usize) -> Result<Json, NotJson> {
    *items = items.checked_sub(1).ok_or(NotJson::TooLarge)?;
    Ok(match reader.peek_kind()? {
        Kind::Nil => {
            reader.read_nil()?;
            Json::Null
        }
        Kind::Bool => Json::Bool(reader.read_bool()?),
        Kind::Int => {
            let number = reader.read_int()?;
            let number = match u64::try_from(number) {
                Ok(positive) => Number::from(positive),
                Err(_) => Number::from(i64::try_from(number).map_err(|_| NotJson::NoNumber)?),
            };
            Json::Number(number)
        }
        Kind::Float => Json::Number(Number::from_f64(reader.read_f64()?).ok_or(NotJson::NoNumber)?),
        Kind::Str => Json::String(reader.read_str()?.to_owned()),
        Kind::Array => {
            let levels = levels.checked_sub(1).ok_or(NotJson::TooLarge)?;
            let count = reader.read_array_len()?;
            let mut array = Vec::new();
            for _ in 0..count {
                array.push(read(reader, levels, items)?);
            }
            Json::Array(array)
        }
        Kind::Map => {
            let levels = levels.checked_sub(1).ok_or(NotJson::TooLarge)?;
            let count = reader.read_map_len()?;
            let mut map = Map::new();
            for _ in 0..count {
                if reader.peek_kind()? != Kind::Str {
                    return Err(NotJson::Key);
                }
                let key = reader.read_str()?.to_owned();
                if map.insert(key, read(reader, levels, items)?).is_some() {
                    return Err(NotJson::KeyTwice);
                }
            }
            Json::Object(map)
        }
        kind @ (Kind::Bin | Kind::Ext) => return Err(NotJson::Kind(kind)),
    })
}

/// As Python shows it; a long one is cut.
pub(super) fn repr(json: &Json) -> String {
    let mut out = String::new();
    let mut left = SHOWN;
    // An error is the end of the room.
    if show(json, &mut out, &mut left).is_none() {
        out.push('…');
    }
    out
}

fn put(text: &str, out: &mut String, left: &mut usize) -> Option<()> {
    for character in text.chars() {
        *left = left.checked_sub(1)?;
        out.push(character);
    }
    Some(())
}

/// As deep as the value, which is bounded when it is read.
fn show(json: &Json, out: &mut String, left: &mut usize) -> Option<()> {
    match json {
        Json::Null => put("None", out, left),
        Json::Bool(true) => put("True", out, left),
        Json::Bool(false) => put("False", out, left),
        Json::Number(number) => put(&number.to_string(), out, left),
        Json::String(text) => show_text(text, out, left),
        Json::Array(items) => {
            put("[", out, left)?;
            for (n, item) in items.iter().enumerate() {
                put(if n == 0 { "" } else { ", " }, out, left)?;
                show(item, out, left)?;
            }
            put("]", out, left)
        }
        Json::Object(fields) => {
            put("{", out, left)?;
            for (n, (key, value)) in fields.iter().enumerate() {
                put(if n == 0 { "" } else { ", " }, out, left)?;
                show_text(key, out, left)?;
                put(": ", out, left)?;
                show(value, out, left)?;
            }
            put("}", out, left)
        }
    }
}

/// A text as Python shows it: in single quotes, unless it has some and no double ones.
pub(super) fn repr_text(text: &str) -> String {
    let mut out = String::new();
    let mut left = 2 * SHOWN;
    if show_text(text, &mut out, &mut left).is_none() {
        out.push('…');
    }
    out
}

fn show_text(text: &str, out: &mut String, left: &mut usize) -> Option<()> {
    // What is cut off decides nothing.
    let shown = || text.chars().take(2 * SHOWN);
    let is_double = shown().any(|c| c == '\'') && !shown().any(|c| c == '"');
    let quote = if is_double { '"' } else { '\'' };
    put(quote.encode_utf8(&mut [0; 4]), out, left)?;
    for character in text.chars() {
        match character {
            '\n' => put("\\n", out, left)?,
            '\r' => put("\\r", out, left)?,
            '\t' => put("\\t", out, left)?,
            '\\' => put("\\\\", out, left)?,
            c if c == quote => put(&format!("\\{c}"), out, left)?,
            c if c.is_control() => put(&format!("\\x{:02x}", u32::from(c)), out, left)?,
            c => put(c.encode_utf8(&mut [0; 4]), out, left)?,
        }
    }
    put(quote.encode_utf8(&mut [0; 4]), out, left)
}
