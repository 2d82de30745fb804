//! The second pass over JSON that is to be a value: its MessagePack.

use std::fmt;

use base64::Engine as _;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::{BASE64, EXT_BIG_INTEGER, JsonError};
use super::look::Looked;
use super::{TOLD_PARTS, Text, fail, form_of};
use crate::model::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};
use crate::model::path::Path;
use crate::model::value::Value;
use crate::model::value::write::{
    write_array_len, write_bin, write_bool, write_ext, write_f64, write_i64, write_map_len,
    write_nil, write_str, write_str_bytes, write_u64,
};

/// The second pass, over what the first one has found good; or the only one, over a tree.
pub(super) fn write<'de, D: Deserializer<'de>>(
    looked: Option<&Looked>,
    json: D,
    keeps: &mut dyn FnMut(usize) -> bool,
) -> Result<Value, JsonError> {
    let mut writing =
        Writing { looked, values: 0, out: Vec::new(), head: Vec::new(), keeps, failure: None };
    let written = Write { writing: &mut writing, depth: 0 }.deserialize(json);
    match (written, writing.failure) {
        (Ok(()), None) if writing.out.len() > VALUE_BYTES_MAX => Err(JsonError::TooLarge),
        (Ok(()), None) => Ok(Value::new(&writing.out)?),
        // It was read before, so it cannot be anything else.
        (_, failure) => Err(failure.unwrap_or(JsonError::Stopped)),
    }
}

struct Writing<'a> {
    /// None for a tree: its maps and arrays know how many they have.
    looked: Option<&'a Looked>,
    /// How many values have begun.
    values: usize,
    out: Vec<u8>,
    /// The head of the array or map that has just ended.
    head: Vec<u8>,
    keeps: &'a mut dyn FnMut(usize) -> bool,
    failure: Option<JsonError>,
}

impl Writing<'_> {
    /// Begins a value; its number.
    fn begin<E: Error>(&mut self) -> Result<usize, E> {
        let number = self.values;
        self.values += 1;
        if self.out.len() > VALUE_BYTES_MAX {
            return Err(self.fail(JsonError::TooLarge));
        }
        let kept = || self.out.capacity() + self.looked.map_or(0, Looked::kept_bytes);
        match !number.is_multiple_of(TOLD_PARTS) || (self.keeps)(kept()) {
            true => Ok(number),
            false => Err(self.fail(JsonError::Stopped)),
        }
    }

    fn fail<E: Error>(&mut self, why: JsonError) -> E {
        fail(&mut self.failure, why)
    }

    /// One level down, if values go that deep.
    fn deeper<E: Error>(&mut self, depth: usize) -> Result<usize, E> {
        if depth < VALUE_DEPTH_MAX { Ok(depth + 1) } else { Err(self.fail(JsonError::TooDeep)) }
    }

    /// Begins an array or a map, whose length is not known yet; where its head is.
    fn begin_items(&mut self) -> usize {
        self.out.push(0);
        self.out.len() - 1
    }

    /// Writes the head of an array or a map that is written. What it has may have to move for it, on each level once.
    fn end_items(&mut self, head: usize, count: usize, write_len: fn(usize, &mut Vec<u8>)) {
        write_len(count, &mut self.head);
        self.out.splice(head..=head, self.head.drain(..));
    }
}

/// One value for the second pass.
struct Write<'a, 'k> {
    writing: &'a mut Writing<'k>,
    /// How many levels deep it stands.
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Write<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        let number = self.writing.begin()?;
        json.deserialize_any(WriteVisitor { to: self, number })
    }
}

struct WriteVisitor<'a, 'k> {
    to: Write<'a, 'k>,
    number: usize,
}

impl<'de> Visitor<'de> for WriteVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        write_nil(&mut self.to.writing.out);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        write_bool(value, &mut self.to.writing.out);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        write_u64(number, &mut self.to.writing.out);
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        write_i64(number, &mut self.to.writing.out);
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        write_f64(number, &mut self.to.writing.out);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        write_str(text, &mut self.to.writing.out);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Write { writing, depth } = self.to;
        let depth = writing.deeper(depth)?;
        let (head, mut count) = (writing.begin_items(), 0);
        while items.next_element_seed(Write { writing, depth })?.is_some() {
            count += 1;
        }
        writing.end_items(head, count, write_array_len);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<(), A::Error> {
        let Write { writing, depth } = self.to;
        let is_form = match writing.looked {
            Some(looked) => looked.is_form(self.number),
            None => pairs.size_hint() == Some(1),
        };
        let mut next = pairs.next_key_seed(Text)?;
        if let Some(name) = next.as_deref().filter(|_| is_form).and_then(form_of) {
            let depth = if name == "$map" { writing.deeper(depth)? } else { depth };
            return pairs.next_value_seed(Form { to: Write { writing, depth }, name });
        }
        let depth = writing.deeper(depth)?;
        let (head, mut count) = (writing.begin_items(), 0);
        while let Some(key) = next {
            write_str(&key, &mut writing.out);
            pairs.next_value_seed(Write { writing, depth })?;
            count += 1;
            next = pairs.next_key_seed(Text)?;
        }
        writing.end_items(head, count, write_map_len);
        Ok(())
    }
}

/// What stands behind a key with a meaning. The depth is that of what is in it.
struct Form<'a, 'k> {
    to: Write<'a, 'k>,
    name: &'static str,
}

impl<'de> DeserializeSeed<'de> for Form<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        let (Write { writing, depth }, name) = (self.to, self.name);
        writing.begin::<D::Error>()?;
        let to = Write { writing, depth };
        // What is no text, or no array, has no way to be written.
        json.deserialize_any(Form { to, name }).map_err(|_| writing.fail(wrong(name)))
    }
}

impl<'de> Visitor<'de> for Form<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(expected(self.name))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let writing = self.to.writing;
        let written = write_text_form(self.name, text, &mut writing.out);
        written.map_err(|error| writing.fail(error))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Write { writing, depth } = self.to;
        match self.name {
            "$map" => {
                let (head, mut count) = (writing.begin_items(), 0);
                while items.next_element_seed(Pair(Write { writing, depth }))?.is_some() {
                    count += 1;
                }
                writing.end_items(head, count, write_map_len);
                Ok(())
            }
            "$ext" => {
                let (kind, content) = (items.next_element()?, items.next_element_seed(Text)?);
                let is_more = items.next_element::<IgnoredAny>()?.is_some();
                let (Some(kind), Some(content), false) = (kind, content, is_more) else {
                    return Err(writing.fail(wrong(self.name)));
                };
                let content = BASE64.decode(&*content).map_err(A::Error::custom)?;
                write_ext(kind, &content, &mut writing.out);
                // As the first pass counts them.
                writing.begin::<A::Error>()?;
                writing.begin::<A::Error>()?;
                Ok(())
            }
            _ => Err(writing.fail(wrong(self.name))),
        }
    }
}

/// A pair behind `$map`.
struct Pair<'a, 'k>(Write<'a, 'k>);

impl<'de> DeserializeSeed<'de> for Pair<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        let number = self.0.writing.begin()?;
        if self.0.writing.looked.is_some_and(|looked| looked.no_pair == Some(number)) {
            return Err(self.0.writing.fail(wrong("$map")));
        }
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Pair<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of two")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Write { writing, depth } = self.0;
        if writing.looked.is_none() && items.size_hint() != Some(2) {
            return Err(writing.fail(wrong("$map")));
        }
        while items.next_element_seed(Write { writing, depth })?.is_some() {}
        Ok(())
    }
}

fn wrong(name: &'static str) -> JsonError {
    JsonError::Escape { name, expected: expected(name) }
}

/// What must stand behind a key with a meaning.
fn expected(name: &str) -> &'static str {
    match name {
        "$bin" | "$str" => "base64 text",
        "$float" => "\"nan\", \"inf\" or \"-inf\"",
        "$path" => "a path's text",
        "$int" => {
            "\"0x\" and the hexadecimal digits of a positive integer, or the decimal digits of one of 64 bits"
        }
        "$ext" => "an array of a type from -128 to 127 and base64 text",
        _ => "an array of arrays of two",
    }
}

/// Appends what a form with a text stands for.
fn write_text_form(name: &'static str, text: &str, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let bytes = || BASE64.decode(text).map_err(|_| wrong(name));
    match name {
        "$bin" => write_bin(&bytes()?, out),
        "$str" => write_str_bytes(&bytes()?, out),
        "$float" => write_f64(
            match text {
                "nan" => f64::NAN,
                "inf" => f64::INFINITY,
                "-inf" => f64::NEG_INFINITY,
                _ => return Err(wrong(name)),
            },
            out,
        ),
        "$path" => text.parse::<Path>()?.encode_ext3(out),
        "$int" => match text.strip_prefix("0x") {
            Some(digits) => write_big_int(digits, out),
            None => write_decimal_int(text, out),
        }
        .ok_or(wrong(name))?,
        _ => return Err(wrong(name)),
    }
    Ok(())
}

/// Appends an integer: as such if it fits into 64 bits, else as the extension, minimal.
pub(super) fn write_big_int(digits: &str, out: &mut Vec<u8>) -> Option<()> {
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
pub(super) fn write_decimal_int(text: &str, out: &mut Vec<u8>) -> Option<()> {
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
