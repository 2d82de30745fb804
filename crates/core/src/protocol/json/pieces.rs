//! The JSON text of a value, made piece by piece: the text of [`text_from_msgpack`](super::text_from_msgpack), with
//! integers that no reader rounds ([`make_integers_safe`](super::make_integers_safe)).
//!
//! A value of 4 MiB has up to 4 million parts. As a tree of JSON it would take some hundred MiB, and the thread that builds
//! it would do nothing else for a second. Here each call does a bounded part of the work, and what is kept besides the
//! value is small: where the writer is on each level, and one bit per map.
//!
//! There are two passes. The first finds the maps that are no JSON objects (`$map`): that shows only at their ends. The second
//! writes.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use base64::Engine as _;

use super::{BASE64, ESCAPES, EXT_BIG_INTEGER, SAFE_INTEGER, float_json};
use crate::model::path::{EXT_PATH, Path};
use crate::model::value::{Kind, ReadError, Reader};

/// Long strings are written in chunks of at most so many bytes. A multiple of 3, as base64 has it.
const CHUNK_BYTES: usize = 12 << 10;

/// See the module.
#[derive(Debug)]
pub struct JsonPieces<V> {
    value: V,
    first: FirstPass,
    is_known: bool,
    /// Where the writer is in the value.
    at: usize,
    /// How many maps it has begun.
    maps: usize,
    /// What it is in the midst of, outermost first.
    open: Vec<Open>,
    has_begun: bool,
}

/// Something of which only a part is written.
#[derive(Debug)]
enum Open {
    /// An array.
    Items { left: usize, is_first: bool },
    /// A map that is an object.
    Fields { left: usize, is_first: bool, is_value: bool },
    /// A map that is written as pairs.
    Pairs { left: usize, is_first: bool, next: OfPair },
    /// Text, up to this place of the value.
    Text { end: usize },
    /// Bytes as base64, up to this place; then this is written.
    Base64 { end: usize, then: &'static str },
    /// Bytes as hexadecimal digits, up to this place.
    Hex { end: usize },
}

#[derive(Debug, Clone, Copy)]
enum OfPair {
    Key,
    Value,
    End,
}

impl<V: AsRef<[u8]>> JsonPieces<V> {
    /// The text of one whole MessagePack value, whose bytes were checked before.
    #[must_use]
    pub fn new(value: V) -> Self {
        let (first, open) = (FirstPass::default(), Vec::new());
        Self { value, first, is_known: false, at: 0, maps: 0, open, has_begun: false }
    }

    /// Only as far as a beginning needs it: no more than so many parts are looked at before the first is written. A map of
    /// more parts is taken for an object.
    #[must_use]
    pub fn beginning(value: V, parts: usize) -> Self {
        let mut pieces = Self::new(value);
        // What cannot be read is found again when it is written.
        let _ = pieces.first.go_on(pieces.value.as_ref(), parts);
        pieces.is_known = true;
        pieces
    }

    /// How many bytes it keeps, about.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.value.as_ref().len() + self.first.kept_bytes()
    }

    /// Goes on for at most this many parts of the value in each of the two passes, or until `out` has at least `room` bytes (it may have some KiB
    /// more). True once all of the text was written.
    ///
    /// # Errors
    /// The bytes are not one MessagePack value.
    pub fn go_on(
        &mut self,
        out: &mut String,
        parts: usize,
        room: usize,
    ) -> Result<bool, ReadError> {
        if !self.is_known {
            self.is_known = self.first.go_on(self.value.as_ref(), parts)?;
            if !self.is_known {
                return Ok(false);
            }
        }
        for _ in 0..parts {
            if self.has_begun && self.open.is_empty() {
                return Ok(true);
            }
            if out.len() >= room {
                return Ok(false);
            }
            self.write_part(out)?;
        }
        Ok(self.has_begun && self.open.is_empty())
    }

    /// Has the text written once more from its beginning, which takes no first pass.
    pub fn restart(&mut self) {
        (self.at, self.maps, self.has_begun) = (0, 0, false);
        self.open.clear();
    }

    fn write_part(&mut self, out: &mut String) -> Result<(), ReadError> {
        let comma = |is_first: &mut bool, out: &mut String| {
            if !std::mem::take(is_first) {
                out.push(',');
            }
        };
        match self.open.last_mut() {
            Some(Open::Items { left: 0, .. }) => self.close("]", out),
            Some(Open::Fields { left: 0, .. }) => self.close("}", out),
            Some(Open::Pairs { left: 0, .. }) => self.close("]}", out),
            Some(Open::Text { end }) => {
                let end = *end;
                self.write_text(end, out);
            }
            Some(Open::Base64 { end, then }) => {
                let (end, then) = (*end, *then);
                self.write_base64(end, then, out);
            }
            Some(Open::Hex { end }) => {
                let end = *end;
                self.write_hex(end, out);
            }
            Some(Open::Items { left, is_first }) => {
                comma(is_first, out);
                *left -= 1;
                self.write_value(out)?;
            }
            Some(Open::Fields { left, is_first, is_value }) => {
                if *is_value {
                    out.push(':');
                    *left -= 1;
                } else {
                    comma(is_first, out);
                }
                *is_value = !*is_value;
                self.write_value(out)?;
            }
            Some(Open::Pairs { left, is_first, next }) => match *next {
                OfPair::Key => {
                    comma(is_first, out);
                    out.push('[');
                    *next = OfPair::Value;
                    self.write_value(out)?;
                }
                OfPair::Value => {
                    out.push(',');
                    *next = OfPair::End;
                    self.write_value(out)?;
                }
                OfPair::End => {
                    out.push(']');
                    *left -= 1;
                    *next = OfPair::Key;
                }
            },
            None => {
                self.has_begun = true;
                self.write_value(out)?;
            }
        }
        Ok(())
    }

    fn close(&mut self, end: &str, out: &mut String) {
        out.push_str(end);
        self.open.pop();
    }

    /// Writes the value that begins here, or the beginning of one that is long.
    fn write_value(&mut self, out: &mut String) -> Result<(), ReadError> {
        let mut reader = Reader::new(self.value.as_ref().get(self.at..).unwrap_or_default());
        let at = self.at;
        match reader.peek_kind()? {
            Kind::Nil => {
                reader.read_nil()?;
                out.push_str("null");
            }
            Kind::Bool => out.push_str(if reader.read_bool()? { "true" } else { "false" }),
            Kind::Int => write_integer(reader.read_int()?, out),
            Kind::Float => {
                let _ = write!(out, "{}", float_json(reader.read_f64()?));
            }
            Kind::Str => {
                let bytes = reader.read_str_bytes()?;
                let end = at + reader.position();
                match std::str::from_utf8(bytes) {
                    Ok(text) if bytes.len() <= CHUNK_BYTES => {
                        out.push('"');
                        escape_text(text, out);
                        out.push('"');
                    }
                    Ok(_) => {
                        out.push('"');
                        self.begin(end - bytes.len(), Open::Text { end });
                        return Ok(());
                    }
                    Err(_) => {
                        out.push_str("{\"$str\":\"");
                        let open = Open::Base64 { end, then: "\"}" };
                        self.begin(end - bytes.len(), open);
                        return Ok(());
                    }
                }
            }
            Kind::Bin => {
                let length = reader.read_bin()?.len();
                let end = at + reader.position();
                out.push_str("{\"$bin\":\"");
                self.begin(end - length, Open::Base64 { end, then: "\"}" });
                return Ok(());
            }
            Kind::Ext => {
                let (kind, content) = reader.read_ext()?;
                let end = at + reader.position();
                let start = end - content.len();
                // Only a form that comes back in the same bytes may replace the plain one.
                match (kind, content) {
                    (EXT_PATH, _) if let Ok(path) = Path::from_canonical(content) => {
                        out.push_str("{\"$path\":\"");
                        escape_text(&path.to_string(), out);
                        out.push_str("\"}");
                    }
                    (EXT_BIG_INTEGER, [first, ..]) if *first > 0 && content.len() > 8 => {
                        let _ = write!(out, "{{\"$int\":\"0x{first:x}");
                        self.begin(start + 1, Open::Hex { end });
                        return Ok(());
                    }
                    _ => {
                        let _ = write!(out, "{{\"$ext\":[{kind},\"");
                        self.begin(start, Open::Base64 { end, then: "\"]}" });
                        return Ok(());
                    }
                }
            }
            Kind::Array => {
                let left = reader.read_array_len()?;
                out.push('[');
                let open = Open::Items { left, is_first: true };
                self.begin(at + reader.position(), open);
                return Ok(());
            }
            Kind::Map => {
                let left = reader.read_map_len()?;
                let is_object = !self.first.is_marked(self.maps);
                self.maps += 1;
                let open = match is_object {
                    true => Open::Fields { left, is_first: true, is_value: false },
                    false => Open::Pairs { left, is_first: true, next: OfPair::Key },
                };
                out.push_str(if is_object { "{" } else { "{\"$map\":[" });
                self.begin(at + reader.position(), open);
                return Ok(());
            }
        }
        self.at += reader.position();
        Ok(())
    }

    /// Goes on inside of something, from this place of the value on.
    fn begin(&mut self, at: usize, open: Open) {
        self.at = at;
        self.open.push(open);
    }

    fn write_text(&mut self, end: usize, out: &mut String) {
        let rest = self.value.as_ref().get(self.at..end).unwrap_or_default();
        // It was checked as a whole; what is cut off at the end of a chunk begins the next one.
        let chunk = rest.get(..CHUNK_BYTES.min(rest.len())).unwrap_or_default();
        let text = chunk.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        escape_text(text, out);
        self.at += text.len();
        if self.at >= end || text.is_empty() {
            self.at = end;
            self.close("\"", out);
        }
    }

    fn write_base64(&mut self, end: usize, then: &'static str, out: &mut String) {
        let stop = end.min(self.at + CHUNK_BYTES);
        BASE64.encode_string(self.value.as_ref().get(self.at..stop).unwrap_or_default(), out);
        self.at = stop;
        if stop == end {
            self.close(then, out);
        }
    }

    fn write_hex(&mut self, end: usize, out: &mut String) {
        let stop = end.min(self.at + CHUNK_BYTES);
        for byte in self.value.as_ref().get(self.at..stop).unwrap_or_default() {
            let _ = write!(out, "{byte:02x}");
        }
        self.at = stop;
        if stop == end {
            self.close("\"}", out);
        }
    }
}

/// What finds the maps that are no objects: with another key than a text, a key twice, or the form of an escape.
#[derive(Debug, Default)]
struct FirstPass {
    at: usize,
    has_begun: bool,
    open: Vec<Looked>,
    maps: usize,
    /// A bit for each map, by its number; a missing one is not set.
    marks: Vec<u64>,
}

/// An array or a map that is being looked at.
#[derive(Debug)]
struct Looked {
    /// Values left in it; of a map keys are values, too.
    left: usize,
    map: Option<LookedMap>,
}

#[derive(Debug)]
struct LookedMap {
    number: usize,
    is_key: bool,
    is_alone: bool,
    /// The hashes of its keys. Where two keys have the same one, the map is written as pairs, which keeps both.
    seen: HashSet<u64>,
}

impl FirstPass {
    fn kept_bytes(&self) -> usize {
        let keys = |looked: &Looked| looked.map.as_ref().map_or(0, |map| map.seen.capacity());
        8 * self.marks.capacity() + 9 * self.open.iter().map(keys).sum::<usize>()
    }

    fn is_marked(&self, map: usize) -> bool {
        self.marks.get(map / 64).is_some_and(|bits| bits >> (map % 64) & 1 == 1)
    }

    fn mark(&mut self, map: usize) {
        if self.marks.len() <= map / 64 {
            self.marks.resize(map / 64 + 1, 0);
        }
        if let Some(bits) = self.marks.get_mut(map / 64) {
            *bits |= 1 << (map % 64);
        }
    }

    /// Looks at so many parts. True at the end.
    fn go_on(&mut self, value: &[u8], parts: usize) -> Result<bool, ReadError> {
        let mut reader = Reader::new(value.get(self.at..).unwrap_or_default());
        let begin = self.at;
        for _ in 0..parts {
            while self.open.last().is_some_and(|looked| looked.left == 0) {
                self.open.pop();
            }
            if self.has_begun && self.open.is_empty() {
                return Ok(true);
            }
            self.has_begun = true;
            self.look(&mut reader)?;
            self.at = begin + reader.position();
        }
        Ok(false)
    }

    fn look(&mut self, reader: &mut Reader<'_>) -> Result<(), ReadError> {
        let kind = reader.peek_kind()?;
        let mut marked = None;
        let mut key_of = None;
        if let Some(looked) = self.open.last_mut() {
            looked.left -= 1;
            key_of = looked.map.as_mut().filter(|map| map.is_key);
        }
        match (kind, key_of) {
            (Kind::Str, Some(map)) => {
                map.is_key = false;
                let key = reader.read_str_bytes()?;
                let is_form = map.is_alone && ESCAPES.iter().any(|escape| escape.as_bytes() == key);
                let is_new = map.is_alone || map.seen.insert(hash(key));
                if is_form || !is_new || std::str::from_utf8(key).is_err() {
                    marked = Some(map.number);
                }
            }
            (_, Some(map)) => {
                map.is_key = false;
                marked = Some(map.number);
                self.enter(kind, reader)?;
            }
            (_, None) => {
                if let Some(Looked { map: Some(map), .. }) = self.open.last_mut() {
                    map.is_key = true;
                }
                self.enter(kind, reader)?;
            }
        }
        if let Some(map) = marked {
            self.mark(map);
        }
        Ok(())
    }

    fn enter(&mut self, kind: Kind, reader: &mut Reader<'_>) -> Result<(), ReadError> {
        match kind {
            Kind::Array => {
                let left = reader.read_array_len()?;
                self.open.push(Looked { left, map: None });
            }
            Kind::Map => {
                let count = reader.read_map_len()?;
                let (number, is_alone) = (self.maps, count == 1);
                self.maps += 1;
                let map = LookedMap { number, is_key: true, is_alone, seen: HashSet::new() };
                self.open.push(Looked { left: 2 * count, map: Some(map) });
            }
            _ => reader.skip()?,
        }
        Ok(())
    }
}

fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn write_integer(number: i128, out: &mut String) {
    let _ = match number.unsigned_abs() > u128::from(SAFE_INTEGER) {
        true => write!(out, "{{\"$int\":\"{number}\"}}"),
        false => write!(out, "{number}"),
    };
}

/// Text as it stands between the quotes.
fn escape_text(text: &str, out: &mut String) {
    let is_plain = |byte: u8| byte >= 0x20 && !matches!(byte, b'"' | b'\\');
    if text.bytes().all(is_plain) {
        out.push_str(text);
        return;
    }
    let quoted = serde_json::Value::from(text).to_string();
    out.push_str(quoted.get(1..quoted.len() - 1).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::safe_json_from_msgpack;
    use super::*;
    use crate::model::value::arbitrary::any_rmpv;

    fn text(bytes: &[u8], parts: usize, room: usize) -> String {
        let mut pieces = JsonPieces::new(bytes.to_vec());
        let mut texts = [String::new(), String::new()];
        for text in &mut texts {
            loop {
                let mut piece = String::new();
                let is_over = pieces.go_on(&mut piece, parts, room).unwrap();
                text.push_str(&piece);
                if is_over {
                    break;
                }
            }
            pieces.restart();
        }
        let [once, again] = texts;
        assert_eq!(once, again);
        once
    }

    fn assert_same(bytes: &[u8]) {
        let expected = safe_json_from_msgpack(bytes).unwrap().to_string();
        for (parts, room) in [(1, 1), (3, 5), (usize::MAX, usize::MAX)] {
            assert_eq!(text(bytes, parts, room), expected, "{bytes:?}");
        }
    }

    #[test]
    fn pieces_make_the_text_that_is_made_at_once() {
        for bytes in [
            &b"\xc0"[..],
            b"\xc3",
            b"\xd3\x80\0\0\0\0\0\0\0",
            b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\xcf\0\x1f\xff\xff\xff\xff\xff\xff",
            b"\xcb\x7f\xf8\0\0\0\0\0\0",
            b"\xca\x3f\x80\0\0",
            b"\xa7a\"\\\n\x01\xc3\xa9",
            b"\xa2\xc3\x28",
            b"\xc4\x00",
            b"\xc4\x02hi",
            b"\xc7\x05\x03\xa1a\xa1b\x01",
            b"\xc7\x09\x02\x01\0\0\0\0\0\0\0\0",
            b"\xc7\x09\x02\xf1\0\0\0\0\0\0\0\0",
            b"\xd5\x05hi",
            b"\xc7\x00\xff",
            b"\x93\x01\x90\x80",
            b"\x82\xa1b\x01\xa1a\x81\xa2\xc3\xa9\xc0",
            b"\x81\xa4$bin\xa4aGk=",
            b"\x82\xa4$bin\xa4aGk=\xa5other\x01",
            b"\x82\x01\xa1a\xc0\x91\x02",
            b"\x82\xa1a\x01\xa1a\x02",
            b"\x92\x81\x80\x81\x01\x02\x82\xa1a\x81\xa1b\x80\xa1c\x81\x90\xa1c",
        ] {
            assert_same(bytes);
        }
        let long = |head: &[u8], byte: u8, count: usize| [head, &vec![byte; count]].concat();
        assert_same(&long(b"\xdb\0\x01\0\0", b'"', 65_536));
        assert_same(&[&b"\xdb\0\x01\0\x01a"[..], "é".repeat(32_768).as_bytes()].concat());
        assert_same(&long(b"\xdb\0\x01\0\0", 0xff, 65_536));
        assert_same(&long(b"\xc6\0\x01\0\0", 7, 65_536));
        assert_same(&long(b"\xc9\0\x01\0\0\x02", 7, 65_536));
    }

    proptest! {
        #[test]
        fn pieces_make_the_text_of_any_value(value in any_rmpv(), parts in 1..9_usize, room in 1..99_usize) {
            let mut bytes = Vec::new();
            rmpv::encode::write_value(&mut bytes, &value).unwrap();
            let expected = safe_json_from_msgpack(&bytes).unwrap().to_string();
            prop_assert_eq!(text(&bytes, parts, room), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_no_value_is_an_error_and_ends(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut pieces = JsonPieces::new(bytes.clone());
            let mut out = String::new();
            // A byte is at most a key's or an item's: a few steps.
            let ended = (0..10 * bytes.len() + 10).find_map(|_| match pieces.go_on(&mut out, 1, usize::MAX) {
                Ok(false) => None,
                Ok(true) => Some(true),
                Err(_) => Some(false),
            });
            prop_assert!(ended.is_some());
            let mut reader = Reader::new(&bytes);
            if reader.read_raw().is_ok() {
                prop_assert_eq!(ended, Some(true));
            }
        }
    }

    #[test]
    fn each_call_does_a_bounded_part_and_keeps_little() {
        const PARTS: usize = 200_000;
        let mut value = vec![0xdd];
        value.extend_from_slice(&(PARTS as u32).to_be_bytes());
        value.resize(5 + PARTS, 0x80);
        let mut pieces = JsonPieces::new(value);
        let (mut calls, mut written) = (0, 0);
        loop {
            let mut piece = String::new();
            let is_over = pieces.go_on(&mut piece, 1_000, 1_500).unwrap();
            assert!(piece.len() < 1_510, "{}", piece.len());
            (calls, written) = (calls + 1, written + piece.len());
            assert!(pieces.kept_bytes() < 2 * PARTS);
            if is_over {
                break;
            }
        }
        assert_eq!(written, "[]".len() + PARTS * "{},".len() - 1);
        // The first pass, two parts for each map (its beginning and its end), and where a piece was full before.
        assert!((3 * PARTS / 1_000..5 * PARTS / 1_000).contains(&calls), "{calls}");
    }

    #[test]
    fn a_beginning_is_made_of_a_few_parts() {
        let mut value = vec![0xdd, 0, 0x3f, 0xff, 0xff];
        value.resize(5 + 0x3f_ffff, 0x80);
        let mut pieces = JsonPieces::beginning(value, 10);
        assert_eq!(pieces.first.at, 5 + 9);
        let mut out = String::new();
        assert!(!pieces.go_on(&mut out, 100, 20).unwrap());
        assert_eq!(out, "[{},{},{},{},{},{},{}".get(..out.len()).unwrap());
        assert!(out.len() >= 20 && pieces.at < 20, "{} {}", out.len(), pieces.at);
    }
}
