//! The text form of paths, as DistKV's users type it.
//!
//! Strings are written as they are, with a dot before each but the first. Everything else starts
//! with a colon, which separates it from what comes before it; a string behind it has its dot
//! again.
//!
//! | text | element |
//! |---|---|
//! | `:` alone | none: the root |
//! | `:e` `:t` `:f` `:n` | the empty string, true, false, nil |
//! | `:12` `:-5` | integer, decimal |
//! | `:x1f` `:b101` | integer, hexadecimal and binary; read only, never written |
//! | `:1:.5` `:1e+300` | float: it has a dot (escaped) or an exponent |
//! | `:inf` `:-inf` | infinite float (DistKV writes that, but cannot read it) |
//! | `:vabc` | byte string, of printable ASCII |
//! | `:y00ff` | byte string, in hexadecimal |
//! | `:'t',1` `:('t',)` `:()` | array, as Python writes a tuple (see [`mod@array`]) |
//! | `:.` `::` `:_` | within strings: a dot, a colon, a space (which may also stand as it is) |
//! | `:u0009` `:u{e0041}` | within strings: the character of that number, four hexadecimal digits, or up to six in braces; read only, never written |
//!
//! So `a.b:1.c` is "a", "b", 1, "c", and `a:.b` is the one string "a.b". Each path is written in
//! one way, and read back equal. What prints paths for people writes characters that would do something to a terminal
//! as `:u0009` instead (`printable_path` in `distkv-command`), so that its lines can be typed back. Vectors made with DistKV are in `clients/conformance/vectors/path_text.json`.
//! DistKV also reads Python expressions (`:1+1`, `:None`, `:0x10`, `:1_000`, `:00`); they are
//! refused here.

use std::fmt::{self, Write};
use std::str::FromStr;

use crate::path::{Array, Element, Path, PathBuilder, PathBytes, PathError};

pub(crate) mod array;

pub use crate::path_text::array::python_text;
use crate::path_text::array::{ArrayTextProblem, array_text, is_array, parse_array};

#[cfg(test)]
mod tests;

/// So many hexadecimal digits follow `:u`.
const NUMBER_DIGITS: usize = 4;
/// So many at most in braces: enough for each character.
const MOST_BRACED_DIGITS: usize = 6;

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad path: {problem} (at character {position})")]
pub struct PathTextError {
    /// The position in characters, from 1; one past the last if something is missing at the end.
    pub position: usize,
    /// What is wrong there.
    pub(crate) problem: PathTextProblem,
}

/// What is wrong with a path's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathTextProblem {
    /// Nothing at all.
    #[error("a path cannot be empty; the root is ':'")]
    Empty,
    /// A dot without a string behind it, or at the start.
    #[error("an element is missing here; an empty string is written ':e', without the dot")]
    ExpectedString,
    /// After a dot, something that a colon separates already.
    #[error("expected a string after the dot; what starts with ':' needs no dot before it")]
    DotBeforeColon,
    /// Something right behind `:t` and the like.
    #[error("expected '.' or ':' or the end")]
    ExpectedSeparator,
    /// A colon at the end.
    #[error("expected something after ':' (a colon itself is '::')")]
    ExpectedAfterColon,
    /// A colon before something that has no meaning there.
    #[error(
        "':{0}' means nothing; a colon itself is '::', and what else may follow one is in `distkv-node --help`, \"Paths\""
    )]
    UnknownEscape(char),
    /// Neither an integer nor a float.
    #[error("expected a decimal number, found '{0}'")]
    BadNumber(String),
    /// A float too great for 64 bits.
    #[error("the float '{0}' is too great")]
    FloatTooBig(String),
    /// `:x` without a hexadecimal number.
    #[error("expected a hexadecimal number after ':x', found '{0}'")]
    BadHexadecimal(String),
    /// `:b` without a binary number.
    #[error("expected a binary number after ':b', found '{0}' (a byte string is ':v' or ':y')")]
    BadBinary(String),
    /// `:v` with other than ASCII.
    #[error("expected ASCII after ':v'; other bytes are written in hexadecimal, with ':y'")]
    NotAscii,
    /// `:y` without hexadecimal bytes.
    #[error("expected hexadecimal bytes, two digits each, after ':y', found '{0}'")]
    BadBytes(String),
    /// `:u` without the number of a character.
    #[error(
        "expected a character's four hexadecimal digits after ':u', or up to six in braces, found '{0}'"
    )]
    BadCharacter(String),
    /// Something that begins like an array.
    #[error("bad array \"{text}\": {problem}")]
    BadArray {
        /// The beginning of it.
        text: String,
        /// What is wrong with it.
        problem: ArrayTextProblem,
    },
    /// The element or the path as a whole is refused.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl PathTextProblem {
    /// The same problem, found in the element of this number.
    fn at(self, index: usize) -> Self {
        match self {
            Self::Path(PathError::Element { problem, .. }) => {
                Self::Path(PathError::Element { index, problem })
            }
            other => other,
        }
    }
}

impl FromStr for Path {
    type Err = PathTextError;

    fn from_str(text: &str) -> Result<Path, PathTextError> {
        if text == ":" {
            return Ok(Path::root());
        }
        let mut parser = Parser { text, rest: text, path: PathBuilder::default() };
        match parser.parse() {
            Ok(()) => Ok(parser.path.finish()),
            Err((offset, problem)) => {
                let before = text.get(..offset).unwrap_or(text);
                Err(PathTextError { position: before.chars().count() + 1, problem })
            }
        }
    }
}

/// A problem and its offset in bytes.
type ParseError = (usize, PathTextProblem);

struct Parser<'a> {
    text: &'a str,
    /// The part of `text` that was not read yet.
    rest: &'a str,
    path: PathBuilder,
}

impl Parser<'_> {
    fn parse(&mut self) -> Result<(), ParseError> {
        if self.text.is_empty() {
            return Err((0, PathTextProblem::Empty));
        }
        if !self.rest.starts_with(':') {
            self.string()?;
        }
        while let Some(next) = self.rest.chars().next() {
            let start = self.offset();
            match next {
                '.' => {
                    self.skip(1);
                    self.string()?;
                }
                ':' if self.escaped().is_some() => self.string()?,
                ':' => self.typed_element()?,
                _ => return Err((start, PathTextProblem::ExpectedSeparator)),
            }
        }
        Ok(())
    }

    /// A non-empty string; or, as in DistKV, an element with a letter after its colon, which needs
    /// no dot before it but may have one.
    fn string(&mut self) -> Result<(), ParseError> {
        let start = self.offset();
        let text = self.content();
        if !text.is_empty() {
            return self.push(start, Element::Str(&text));
        }
        // `:u` is none, and has an error of its own.
        if [":x", ":b", ":v", ":y", ":u"].iter().any(|kind| self.rest.starts_with(kind)) {
            return Ok(());
        }
        let problem = match self.rest.starts_with(':') {
            true => PathTextProblem::DotBeforeColon,
            false => PathTextProblem::ExpectedString,
        };
        Err((start, problem))
    }

    /// What stands behind a colon that is no escape within a string.
    fn typed_element(&mut self) -> Result<(), ParseError> {
        let start = self.offset();
        self.skip(1);
        let Some(kind) = self.rest.chars().next() else {
            return Err((self.offset(), PathTextProblem::ExpectedAfterColon));
        };
        let simple = match kind {
            'e' => Element::Str(""),
            't' => Element::Bool(true),
            'f' => Element::Bool(false),
            'n' => Element::Nil,
            _ => return self.long_element(start, kind),
        };
        self.skip(1);
        self.push(start, simple)
    }

    /// An element with content behind its colon and perhaps a letter.
    fn long_element(&mut self, start: usize, kind: char) -> Result<(), ParseError> {
        // `b'…'` is what DistKV writes for an array that begins with a byte string, but cannot read.
        let is_bytes = ["b'", "b\""].iter().any(|start| self.rest.starts_with(start));
        if matches!(kind, 'x' | 'b' | 'v' | 'y') && !is_bytes {
            self.skip(1);
        }
        let content_start = self.offset();
        let at_content = |problem| (content_start, problem);
        match kind {
            'b' if is_bytes => {
                let content = self.content();
                self.push_array(start, content_start, &content)
            }
            'x' | 'b' => {
                let digits = self.content();
                let radix = if kind == 'x' { 16 } else { 2 };
                let element = i128::from_str_radix(&digits, radix).map_err(|_| {
                    at_content(match kind {
                        'x' => PathTextProblem::BadHexadecimal(shown(&digits)),
                        _ => PathTextProblem::BadBinary(shown(&digits)),
                    })
                })?;
                self.push(start, Element::Int(element))
            }
            'v' => match self.content() {
                text if text.is_ascii() => self.push(start, Element::Bin(text.as_bytes())),
                _ => Err(at_content(PathTextProblem::NotAscii)),
            },
            'y' => {
                let digits = self.content();
                let bytes = decode_hex(&digits)
                    .ok_or_else(|| at_content(PathTextProblem::BadBytes(shown(&digits))))?;
                self.push(start, Element::Bin(&bytes))
            }
            '0'..='9' | '+' | '-' | 'i' | 'T' | 'F' | 'N' | '(' | '\'' | '"' => {
                let content = self.content();
                match kind {
                    _ if is_array(&content) => self.push_array(start, content_start, &content),
                    'T' | 'F' | 'N' => Err(at_content(PathTextProblem::UnknownEscape(kind))),
                    _ => {
                        let element = parse_number(&content).map_err(at_content)?;
                        self.push(start, element)
                    }
                }
            }
            'u' => {
                self.skip(1);
                let content_start = self.offset();
                let content = self.content();
                let shown = match content.starts_with('{') {
                    true => MOST_BRACED_DIGITS + 3,
                    false => NUMBER_DIGITS,
                };
                let digits: String = content.chars().take(shown).collect();
                Err((content_start, PathTextProblem::BadCharacter(digits)))
            }
            other => Err(at_content(PathTextProblem::UnknownEscape(other))),
        }
    }

    /// An array from its text, which begins at `content_start`.
    fn push_array(
        &mut self,
        start: usize,
        content_start: usize,
        text: &str,
    ) -> Result<(), ParseError> {
        let index = self.path.len();
        let items = parse_array(text).map_err(|problem| (content_start, problem.at(index)))?;
        let array = Array::from_items(&items);
        let array =
            array.map_err(|problem| (start, PathError::Element { index, problem }.into()))?;
        self.push(start, Element::Array(array))
    }

    /// Reads up to the next separator or the end, and takes the escapes out.
    fn content(&mut self) -> String {
        let mut content = String::new();
        while let Some(next) = self.rest.chars().next() {
            match next {
                '.' => break,
                ':' => match self.escaped() {
                    Some((escaped, length)) => {
                        content.push(escaped);
                        self.skip(length);
                    }
                    None => break,
                },
                plain => {
                    content.push(plain);
                    self.skip(plain.len_utf8());
                }
            }
        }
        content
    }

    /// The character of a string that is escaped here, if one is, and the length of its escape in bytes.
    fn escaped(&self) -> Option<(char, usize)> {
        let behind = self.rest.strip_prefix(':')?;
        match behind.chars().next()? {
            '_' => Some((' ', 2)),
            escaped @ ('.' | ':') => Some((escaped, 2)),
            'u' => {
                let behind = behind.get(1..)?;
                let (digits, length) = match behind.strip_prefix('{') {
                    Some(behind) => {
                        let mut bytes = behind.bytes().take(MOST_BRACED_DIGITS + 1);
                        let end = bytes.position(|byte| byte == b'}')?;
                        (behind.get(..end)?, end + 2)
                    }
                    None => (behind.get(..NUMBER_DIGITS)?, NUMBER_DIGITS),
                };
                // `from_str_radix` takes a sign.
                let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                let number = u32::from_str_radix(digits, 16).ok().filter(|_| is_number)?;
                Some((char::from_u32(number)?, 2 + length))
            }
            _ => None,
        }
    }

    fn push(&mut self, start: usize, element: Element<'_>) -> Result<(), ParseError> {
        self.path.push(element).map_err(|error| (start, error.into()))
    }

    fn offset(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

/// An integer, or a float if there is a dot, an exponent, or it is infinite.
fn parse_number(text: &str) -> Result<Element<'static>, PathTextProblem> {
    let bad = || PathTextProblem::BadNumber(shown(text));
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits == "inf" {
        let negative = text.starts_with('-');
        return Ok(Element::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY }));
    }
    if !digits.starts_with(|c: char| c == '.' || c.is_ascii_digit()) {
        return Err(bad());
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        // Zeros in front mean octal to some and nothing to others.
        if digits.len() > 1 && digits.starts_with('0') {
            return Err(bad());
        }
        // What does not even fit here is just as much out of range.
        let number = text.parse().unwrap_or(i128::MAX);
        return Ok(Element::Int(number));
    }
    let number: f64 = text.parse().map_err(|_| bad())?;
    match number.is_finite() {
        true => Ok(Element::Float(number)),
        false => Err(PathTextProblem::FloatTooBig(shown(text))),
    }
}

/// As much of a text as an error message should repeat.
fn shown(text: &str) -> String {
    const SHOWN: usize = 40;
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// Bytes from pairs of hexadecimal digits.
fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()).collect()
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_path(self.elements(), f)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

impl fmt::Display for PathBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_path(self.elements(), f)
    }
}

fn write_path<'a>(
    elements: impl Iterator<Item = Element<'a>>,
    out: &mut impl Write,
) -> fmt::Result {
    let mut is_root = true;
    for element in elements {
        match element {
            Element::Str("") => out.write_str(":e")?,
            Element::Str(text) => {
                out.write_str(if is_root { "" } else { "." })?;
                write_escaped(text, out)?;
            }
            Element::Nil => out.write_str(":n")?,
            Element::Bool(true) => out.write_str(":t")?,
            Element::Bool(false) => out.write_str(":f")?,
            Element::Int(number) => write!(out, ":{number}")?,
            Element::Float(number) => {
                out.write_char(':')?;
                write_escaped(&float_text(number), out)?;
            }
            Element::Bin(bytes) => write_bytes(bytes, out)?,
            Element::Array(array) => {
                out.write_char(':')?;
                write_escaped(&array_text(&array), out)?;
            }
        }
        is_root = false;
    }
    out.write_str(if is_root { ":" } else { "" })
}

fn write_escaped(text: &str, out: &mut impl Write) -> fmt::Result {
    for character in text.chars() {
        match character {
            '.' => out.write_str(":.")?,
            ':' => out.write_str("::")?,
            ' ' => out.write_str(":_")?,
            plain => out.write_char(plain)?,
        }
    }
    Ok(())
}

fn write_bytes(bytes: &[u8], out: &mut impl Write) -> fmt::Result {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(|byte| matches!(byte, 0x20..=0x7e)) => {
            out.write_str(":v")?;
            write_escaped(text, out)
        }
        _ => {
            out.write_str(":y")?;
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
    }
}

/// A float as Python writes it: the fewest digits that read back equal, always with a dot or
/// an exponent; the exponent has a sign and two digits or more.
fn float_text(number: f64) -> String {
    let text = format!("{number:?}");
    match text.split_once('e') {
        None => text,
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
    }
}
