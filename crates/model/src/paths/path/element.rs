//! One element of a path: its types, its order, and its canonical bytes.

use std::cmp::Ordering;

use crate::path::array::Array;
use crate::path::bytes::EXT_PATH;
use crate::path::error::ElementProblem;
use crate::value::write::{
    write_bin, write_bool, write_f64, write_i64, write_nil, write_str, write_u64,
};
use crate::value::{Kind, Reader};

/// One element of a path, or an item of an array that is one. Types are distinct: `true`, `1` and
/// `1.0` are three elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Element<'a> {
    /// As an element only the first one: the system's own tree. In arrays anywhere.
    Nil,
    /// A boolean.
    Bool(bool),
    /// An integer from -2^63 to 2^64 - 1.
    Int(i128),
    /// A float; never NaN, and -0.0 is 0.0.
    Float(f64),
    /// A string.
    Str(&'a str),
    /// A byte string. The empty one is the same element as the empty string, and is read as that.
    Bin(&'a [u8]),
    /// An array of these.
    Array(Array<'a>),
}

impl<'a> Element<'a> {
    /// Reads the element at the front of `reader`, in whatever width, and normalises it: an empty
    /// byte string becomes the empty string, -0.0 becomes 0.0, a path becomes an array. If refused,
    /// the reader stays.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Element<'a>, ElementProblem> {
        let element = match reader.peek_kind()? {
            Kind::Nil => {
                reader.read_nil()?;
                Element::Nil
            }
            Kind::Bool => Element::Bool(reader.read_bool()?),
            Kind::Int => Element::Int(reader.read_int()?),
            Kind::Float => Element::Float(reader.read_f64()?),
            Kind::Str => Element::Str(reader.read_str()?),
            Kind::Bin => Element::Bin(reader.read_bin()?),
            Kind::Array => return Array::read(reader).map(Element::Array),
            Kind::Map => return Err(ElementProblem::Map),
            Kind::Ext => {
                let mut ahead = *reader;
                return match ahead.read_ext()? {
                    (EXT_PATH, _) => Array::read(reader).map(Element::Array),
                    (kind, _) => Err(ElementProblem::of_ext(kind)),
                };
            }
        };
        element.normalise()
    }

    /// The form that a path keeps, or why it keeps none.
    pub fn normalise(self) -> Result<Element<'a>, ElementProblem> {
        match self {
            Element::Bin([]) => Ok(Element::Str("")),
            Element::Float(number) if number.is_nan() => Err(ElementProblem::NotANumber),
            // Also makes 0.0 of -0.0, which compares equal.
            Element::Float(0.0) => Ok(Element::Float(0.0)),
            Element::Int(number)
                if i64::try_from(number).is_err() && u64::try_from(number).is_err() =>
            {
                Err(ElementProblem::IntegerTooBig)
            }
            Element::Nil
            | Element::Bool(_)
            | Element::Int(_)
            | Element::Float(_)
            | Element::Str(_)
            | Element::Bin(_)
            | Element::Array(_) => Ok(self),
        }
    }

    /// Appends the canonical bytes of a normalised element.
    pub fn encode(self, out: &mut Vec<u8>) {
        match self {
            Element::Nil => write_nil(out),
            Element::Bool(value) => write_bool(value, out),
            Element::Int(number) => match u64::try_from(number) {
                Ok(positive) => write_u64(positive, out),
                // A normalised negative one fits.
                Err(_) => write_i64(i64::try_from(number).unwrap_or(i64::MIN), out),
            },
            Element::Float(number) => write_f64(number, out),
            Element::Str(text) => write_str(text, out),
            Element::Bin(bytes) => write_bin(bytes, out),
            Element::Array(array) => array.encode(out),
        }
    }

    /// The place of the element's type in the order of types.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Element::Nil => 0,
            Element::Bool(_) => 1,
            Element::Int(_) => 2,
            Element::Float(_) => 3,
            Element::Str(_) => 4,
            Element::Bin(_) => 5,
            Element::Array(_) => 6,
        }
    }

    /// The order of elements: by type (nil, booleans, integers, floats, strings, byte strings,
    /// arrays), then by value; strings by their UTF-8 bytes, arrays item by item, a prefix before
    /// longer arrays.
    pub(crate) fn order(&self, other: &Element<'_>) -> Ordering {
        match (self, other) {
            (Element::Bool(a), Element::Bool(b)) => a.cmp(b),
            (Element::Int(a), Element::Int(b)) => a.cmp(b),
            (Element::Float(a), Element::Float(b)) => a.total_cmp(b),
            (Element::Str(a), Element::Str(b)) => a.cmp(b),
            (Element::Bin(a), Element::Bin(b)) => a.cmp(b),
            (Element::Array(a), Element::Array(b)) => order_arrays(a, b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// Recurses as deep as arrays nest, which is bounded when they are read.
#[cold]
fn order_arrays(a: &Array<'_>, b: &Array<'_>) -> Ordering {
    let (mut a, mut b) = (a.items(), b.items());
    loop {
        match (a.next(), b.next()) {
            (Some(a), Some(b)) => match a.order(&b) {
                Ordering::Equal => {}
                different => return different,
            },
            (a, b) => return a.is_some().cmp(&b.is_some()),
        }
    }
}

impl<'a> From<Array<'a>> for Element<'a> {
    fn from(array: Array<'a>) -> Element<'a> {
        Element::Array(array)
    }
}

impl<'a> From<&'a str> for Element<'a> {
    fn from(text: &'a str) -> Element<'a> {
        Element::Str(text)
    }
}

impl<'a> From<&'a [u8]> for Element<'a> {
    fn from(bytes: &'a [u8]) -> Element<'a> {
        Element::Bin(bytes)
    }
}

impl From<bool> for Element<'_> {
    fn from(value: bool) -> Self {
        Element::Bool(value)
    }
}

impl From<i32> for Element<'_> {
    fn from(number: i32) -> Self {
        Element::Int(number.into())
    }
}

impl From<i64> for Element<'_> {
    fn from(number: i64) -> Self {
        Element::Int(number.into())
    }
}

impl From<u64> for Element<'_> {
    fn from(number: u64) -> Self {
        Element::Int(number.into())
    }
}

impl From<f64> for Element<'_> {
    fn from(number: f64) -> Self {
        Element::Float(number)
    }
}
