//! Arrays in the text of paths: as DistKV writes tuples, in the words of Python.
//!
//! Items are quoted strings, byte strings (`b'…'`), numbers, `True`, `False`, `None`, and arrays in
//! parentheses. The parentheses around the outermost items are left out, as in DistKV: `'t',1`.
//! DistKV cannot read back what it writes in this way for an array of one item (`'t'` is a string),
//! or for one that begins with a byte string (`:b` begins a binary number). Here those are in
//! parentheses, `('t',)` and `(b't', 1)`, which DistKV reads. The rest of Python's grammar is
//! refused: expressions, other prefixes and escapes than those that are written, adjacent strings.
//!
//! This is the text before its dots, colons and spaces are escaped.

use std::fmt::Write;

use crate::limits::PATH_NESTING_MAX;
use crate::path::{Array, Element, ElementProblem, PathError};
use crate::path_text::{PathTextProblem, float_text, parse_number, shown};
use crate::value::write::write_array_len;

/// What is wrong with an array's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArrayTextProblem {
    /// One item without a comma.
    #[error("an array of one item has a comma behind it, as in ('a',)")]
    OneItem,
    /// Something that is no item.
    #[error("expected a quoted string, a number, True, False, None or '(' at '{0}'")]
    ExpectedItem(String),
    /// Something else behind an item.
    #[error("expected a comma or the end of the array at '{0}'")]
    ExpectedComma(String),
    /// A quote or a parenthesis without its counterpart.
    #[error("a quote or a parenthesis is not closed")]
    NotClosed,
    /// A backslash before a character that cannot be escaped.
    #[error("'{0}' means nothing; a backslash itself is written twice")]
    BadEscape(String),
    /// Something other than ASCII in a byte string.
    #[error("a byte string holds '{0}'; other bytes than ASCII are written as \\xff")]
    NotAscii(char),
}

/// Whether what stands behind a colon is an array; else it is an integer or a float.
pub(super) fn is_array(content: &str) -> bool {
    content.contains(',') || content.starts_with(['(', '\'', '"'])
}

/// The items of an array, as MessagePack, from its text.
pub(super) fn parse_array(text: &str) -> Result<Vec<u8>, PathTextProblem> {
    let mut parser = ArrayParser { rest: text, error: text };
    let outer = parser.list(1)?;
    parser.skip_spaces();
    if !parser.rest.is_empty() {
        return Err(parser.found(ArrayTextProblem::ExpectedComma));
    }
    if outer.has_comma {
        return Ok(outer.items);
    }
    // Parentheses around all of it.
    match outer.only_array {
        Some(items) => Ok(items),
        None => Err(bad(text, ArrayTextProblem::OneItem)),
    }
}

fn bad(text: &str, problem: ArrayTextProblem) -> PathTextProblem {
    PathTextProblem::BadArray { text: shown(text), problem }
}

/// Items up to a closing parenthesis, or to the end.
#[derive(Default)]
struct List {
    /// One after the other, in canonical form.
    items: Vec<u8>,
    count: usize,
    has_comma: bool,
    /// The items of an array, if that is all there is.
    only_array: Option<Vec<u8>>,
}

struct ArrayParser<'a> {
    rest: &'a str,
    /// The whole text, for errors.
    error: &'a str,
}

impl ArrayParser<'_> {
    /// Reads items. `level` is how deep they are, from 1; it bounds the recursion. The outermost items
    /// may turn out to be a single array, so they have one level more.
    fn list(&mut self, level: usize) -> Result<List, PathTextProblem> {
        if level > PATH_NESTING_MAX + 1 {
            let problem = ElementProblem::TooDeep;
            return Err(PathError::Element { index: 0, problem }.into());
        }
        let mut list = List::default();
        loop {
            self.skip_spaces();
            if self.rest.is_empty() || self.rest.starts_with(')') {
                return Ok(list);
            }
            list.only_array = self.item(level, &mut list.items)?;
            list.count += 1;
            self.skip_spaces();
            match self.rest.strip_prefix(',') {
                Some(rest) => (self.rest, list.has_comma) = (rest, true),
                None => return Ok(list),
            }
        }
    }

    /// Reads one item; gives back an array's own items.
    fn item(
        &mut self,
        level: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<Vec<u8>>, PathTextProblem> {
        if let Some(rest) = self.rest.strip_prefix('(') {
            self.rest = rest;
            let inner = self.list(level + 1)?;
            match self.rest.strip_prefix(')') {
                Some(rest) => self.rest = rest,
                None if self.rest.is_empty() => {
                    return Err(bad(self.error, ArrayTextProblem::NotClosed));
                }
                None => return Err(self.found(ArrayTextProblem::ExpectedComma)),
            }
            if inner.count == 1 && !inner.has_comma {
                return Err(bad(self.error, ArrayTextProblem::OneItem));
            }
            write_array_len(inner.count, out);
            out.extend_from_slice(&inner.items);
            return Ok(Some(inner.items));
        }
        if self.rest.starts_with(['\'', '"']) {
            let text = self.string()?;
            self.push(Element::Str(&text), out)?;
        } else if self.rest.starts_with("b'") || self.rest.starts_with("b\"") {
            self.rest = self.rest.get(1..).unwrap_or_default();
            let bytes = self.bytes()?;
            self.push(Element::Bin(&bytes), out)?;
        } else {
            let end = self.rest.find([',', ')', ' ']).unwrap_or(self.rest.len());
            let (word, rest) = self.rest.split_at(end);
            let element = match word {
                "None" => Element::Nil,
                "True" => Element::Bool(true),
                "False" => Element::Bool(false),
                _ if word.starts_with(|c: char| c.is_ascii_digit() || "+-i".contains(c)) => {
                    parse_number(word)?
                }
                _ => return Err(self.found(ArrayTextProblem::ExpectedItem)),
            };
            self.rest = rest;
            self.push(element, out)?;
        }
        Ok(None)
    }

    fn push(&self, element: Element<'_>, out: &mut Vec<u8>) -> Result<(), PathTextProblem> {
        let normal = element.normalise();
        let normal = normal.map_err(|problem| PathError::Element { index: 0, problem })?;
        normal.encode(out);
        Ok(())
    }

    /// A string in quotes.
    fn string(&mut self) -> Result<String, PathTextProblem> {
        let mut text = String::new();
        self.quoted(|parser, c, escaped| {
            let c = if escaped { parser.escape(c, true)? } else { c };
            text.push(c);
            Ok(())
        })?;
        Ok(text)
    }

    /// A byte string in quotes; the `b` before them is read.
    fn bytes(&mut self) -> Result<Vec<u8>, PathTextProblem> {
        let mut bytes = Vec::new();
        self.quoted(|parser, c, escaped| {
            let c = match escaped {
                true => parser.escape(c, false)?,
                false if !c.is_ascii() => {
                    return Err(bad(parser.error, ArrayTextProblem::NotAscii(c)));
                }
                false => c,
            };
            // Below 256, since only `\x` escapes are read here.
            bytes.push(u8::try_from(c).unwrap_or_default());
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Hands over the characters between quotes, each with whether it stands behind a backslash.
    fn quoted(
        &mut self,
        mut take: impl FnMut(&mut Self, char, bool) -> Result<(), PathTextProblem>,
    ) -> Result<(), PathTextProblem> {
        let quote = self.next();
        while let Some(c) = self.next() {
            match c {
                c if Some(c) == quote => return Ok(()),
                '\\' => match self.next() {
                    Some(escaped) => take(self, escaped, true)?,
                    None => break,
                },
                c => take(self, c, false)?,
            }
        }
        Err(bad(self.error, ArrayTextProblem::NotClosed))
    }

    /// The character that a backslash and `kind` stand for.
    fn escape(&mut self, kind: char, in_text: bool) -> Result<char, PathTextProblem> {
        let digits = match kind {
            '\\' | '\'' | '"' => return Ok(kind),
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'x' => 2,
            'u' if in_text => 4,
            'U' if in_text => 8,
            _ => 0,
        };
        let code = self.rest.get(..digits).unwrap_or_default();
        let is_hex = digits > 0 && code.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u32::from_str_radix(code, 16).ok().filter(|_| is_hex);
        match number.and_then(char::from_u32) {
            Some(c) => {
                self.rest = self.rest.get(digits..).unwrap_or_default();
                Ok(c)
            }
            None => {
                let found = format!("\\{kind}{code}");
                Err(bad(self.error, ArrayTextProblem::BadEscape(shown(&found))))
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    /// The error for what comes next.
    fn found(&self, problem: impl FnOnce(String) -> ArrayTextProblem) -> PathTextProblem {
        bad(self.error, problem(shown(self.rest)))
    }
}

/// The text of an array that is a path's element.
pub(super) fn array_text(array: &Array<'_>) -> String {
    let mut out = String::new();
    let is_bare =
        array.items().count() > 1 && !matches!(array.items().next(), Some(Element::Bin(_)));
    if is_bare {
        write_items(array, ",", &mut out);
    } else {
        write_item(Element::Array(*array), &mut out);
    }
    out
}

/// An element as Python's `repr` writes it, which is also what it writes for an item of a tuple.
pub fn python_text(element: Element<'_>) -> String {
    let mut out = String::new();
    write_item(element, &mut out);
    out
}

fn write_items(array: &Array<'_>, separator: &str, out: &mut String) {
    for (number, item) in array.items().enumerate() {
        if number > 0 {
            out.push_str(separator);
        }
        write_item(item, out);
    }
}

/// Recurses as deep as arrays nest, which is bounded when they are read.
fn write_item(item: Element<'_>, out: &mut String) {
    match item {
        Element::Nil => out.push_str("None"),
        Element::Bool(true) => out.push_str("True"),
        Element::Bool(false) => out.push_str("False"),
        // Writing to a string cannot fail.
        Element::Int(number) => drop(write!(out, "{number}")),
        Element::Float(number) => out.push_str(&float_text(number)),
        Element::Str(text) => write_string(text, out),
        Element::Bin(bytes) => write_bytes(bytes, out),
        Element::Array(array) => {
            out.push('(');
            write_items(&array, ", ", out);
            out.push_str(if array.items().count() == 1 { ",)" } else { ")" });
        }
    }
}

/// In single quotes, or in double ones if that spares escapes.
fn quote_for(has: impl Fn(char) -> bool) -> char {
    if has('\'') && !has('"') { '"' } else { '\'' }
}

fn write_string(text: &str, out: &mut String) {
    let quote = quote_for(|c| text.contains(c));
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => drop(match u32::from(c) {
                code @ ..0x100 => write!(out, "\\x{code:02x}"),
                code @ ..0x1_0000 => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\U{code:08x}"),
            }),
        }
    }
    out.push(quote);
}

/// Whether a character is written as it is: by Rust's table, which was made like Python's.
fn is_printable(c: char) -> bool {
    // Behind another character, so that one that combines with it counts as printable.
    let text: String = ['a', c].into_iter().collect();
    matches!(c, '\'' | '"') || text.escape_debug().count() == 2
}

fn write_bytes(bytes: &[u8], out: &mut String) {
    let quote = quote_for(|c| bytes.iter().any(|byte| char::from(*byte) == c));
    out.extend(['b', quote]);
    for byte in bytes {
        match char::from(*byte) {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c @ ' '..='~' => out.push(c),
            _ => drop(write!(out, "\\x{byte:02x}")),
        }
    }
    out.push(quote);
}
