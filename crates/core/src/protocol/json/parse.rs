//! From JSON to the value that it says, without a tree in between: a body of 8 MiB can have millions of parts, and as a tree each
//! would take a hundred bytes.
//!
//! There are two passes. The first (`look`) knows what is there once it has passed it: whether the text is JSON, whether a map
//! has a key twice, and which maps are forms (`{"$bin": …}`), which shows only at their ends. What it keeps is small: one bit for
//! each part, and the keys of maps that have not ended. The second (`write`) writes the MessagePack, part by part, and finds
//! what is wrong with forms.
//!
//! Of a tree that is there already, the second pass is enough: its maps and arrays know how many they have.

mod look;
mod strict;
#[cfg(test)]
mod tests;
mod write;

use std::borrow::Cow;
use std::fmt;

use look::{Look, LookAt, Looked};
use serde::de::{DeserializeSeed, Error, Visitor};
use serde::{Deserialize as _, Deserializer};
use serde_json::{Map, Value as Json};
use strict::Strict;
use write::write;

use super::{ESCAPES, JSON_DEPTH_MAX, JsonError, SyntaxError, shown};
use crate::model::value::Value;

/// After so many parts (items, keys, values) it is told how many bytes are kept.
const TOLD_PARTS: usize = 4_096;

/// The value that a JSON text says.
///
/// # Errors
/// [`JsonError`]: the first thing in the text that is wrong, but what is not JSON comes first of all, and a map with a key twice.
pub fn value_from_text(text: &str) -> Result<Value, JsonError> {
    value_from_long_text(text, &mut |_| true)
}

/// The same for whoever has to account for the memory: `keeps` is told again and again how many bytes are kept just now besides
/// the text, about. Where it says no, that is the end.
///
/// # Errors
/// [`JsonError`]; [`JsonError::Stopped`] if `keeps` said no.
pub fn value_from_long_text(
    text: &str,
    keeps: &mut dyn FnMut(usize) -> bool,
) -> Result<Value, JsonError> {
    let looked = look_at_text(text, keeps)?;
    write(Some(&looked), &mut parser(text), keeps)
}

/// The value that a piece of JSON says.
///
/// # Errors
/// [`JsonError`].
pub fn value_from_json(json: &Json) -> Result<Value, JsonError> {
    write(None, json, &mut |_| true)
}

/// The fields of a JSON object, among which values stand: in whatever form JSON has for them, not
/// yet checked.
pub(crate) fn object_from_text(text: &str) -> Result<Map<String, Json>, JsonError> {
    match tree_from_text(text, JSON_DEPTH_MAX + 1)? {
        Json::Object(fields) => Ok(fields),
        _ => Err(SyntaxError::of_no_object().into()),
    }
}

/// A text's tree. Half as much work as the two passes, so it is the way of lines, which are many and short.
fn tree_from_text(text: &str, depth_max: usize) -> Result<Json, JsonError> {
    check_text(text, depth_max)?;
    let mut parser = parser(text);
    let parsed = Strict::deserialize(&mut parser);
    let checked = parsed.and_then(|Strict(json)| parser.end().map(|()| json));
    Ok(checked.map_err(|error| SyntaxError::of(&error))?)
}

fn parser(text: &str) -> serde_json::Deserializer<serde_json::de::StrRead<'_>> {
    let mut parser = serde_json::Deserializer::from_str(text);
    // Its own limit is less than values need; `check_text` has one.
    parser.disable_recursion_limit();
    parser
}

/// All that is wrong with a text as such, and what the first pass has to tell of it.
fn look_at_text(text: &str, keeps: &mut dyn FnMut(usize) -> bool) -> Result<Looked, JsonError> {
    check_text(text, JSON_DEPTH_MAX)?;
    let mut look = Look::new(keeps);
    let mut parser = parser(text);
    let looked = LookAt(&mut look).deserialize(&mut parser);
    match (looked.and_then(|_| parser.end()), look.failure) {
        (Ok(()), _) => Ok(look.looked),
        (Err(_), Some(failure)) => Err(failure),
        (Err(error), None) => Err(SyntaxError::of(&error).into()),
    }
}

/// What the parser does not look for. The depth bounds how deep it recurses, too.
fn check_text(text: &str, depth_max: usize) -> Result<(), JsonError> {
    if nesting(text) > depth_max {
        return Err(JsonError::TooDeep);
    }
    match big_integer(text) {
        Some(integer) => Err(JsonError::BigInteger(shown(integer))),
        None => Ok(()),
    }
}

/// Ends a pass.
fn fail<E: Error>(failure: &mut Option<JsonError>, why: JsonError) -> E {
    let error = E::custom(&why);
    failure.get_or_insert(why);
    error
}

/// A string.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// The form that a map with this key only has.
fn form_of(key: &str) -> Option<&'static str> {
    ESCAPES.into_iter().find(|name| *name == key)
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
