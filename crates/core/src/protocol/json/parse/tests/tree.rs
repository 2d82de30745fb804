//! The same conversion by way of a tree: what the two passes are compared with.

use base64::Engine as _;
use serde_json::{Map, Value as Json};

use super::super::super::{BASE64, ESCAPES, JSON_DEPTH_MAX, JsonError};
use super::super::tree_from_text;
use super::super::write::{write_big_int, write_decimal_int};
use crate::model::limits::VALUE_DEPTH_MAX;
use crate::model::path::Path;
use crate::model::value::Value;
use crate::model::value::write::{
    write_array_len, write_bin, write_bool, write_ext, write_f64, write_i64, write_map_len,
    write_nil, write_str, write_str_bytes, write_u64,
};

pub(super) fn value_from_text(text: &str) -> Result<Value, JsonError> {
    value_from_json(&tree_from_text(text, JSON_DEPTH_MAX)?)
}

pub(super) fn value_from_json(json: &Json) -> Result<Value, JsonError> {
    let mut out = Vec::new();
    write_json(json, 0, &mut out)?;
    Ok(Value::new(&out)?)
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

fn base64_bytes(text: Option<&str>) -> Option<Vec<u8>> {
    BASE64.decode(text?).ok()
}
