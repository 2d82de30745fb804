//! Paths: where an entry stands in the tree.
//!
//! A path is a list of elements, kept as their canonical MessagePack, one after the other. One
//! path has one form, so equality and hashes are those of the bytes; the order is that of
//! [`cmp_paths`]. What is canonical:
//!
//! - integers, strings and byte strings in their shortest form (`0xcc05` is `0x05`);
//! - floats in 64 bits, -0.0 as 0.0; NaN is refused. A float is never an integer;
//! - the empty byte string is the empty string (as in DistKV) and is kept as such;
//! - nil only as the first element: the system's own tree; and within arrays;
//! - arrays in their shortest form, of items in these forms, nested up to
//!   [`PATH_NESTING_MAX`](crate::limits::PATH_NESTING_MAX) levels. A path as an element of a path is
//!   the array of its elements (as in DistKV);
//! - maps, which cannot be path elements in DistKV either, and other extensions are refused.

mod array;
mod builder;
pub mod bytes;
mod element;
mod error;

#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Ordering;

pub use crate::path::array::Array;
pub use crate::path::builder::PathBuilder;
pub use crate::path::bytes::{
    EXT_PATH, ElementEnds, Elements, OrderPrefix, cmp_paths, common_elements, order_prefix,
};

pub use crate::path::element::Element;
pub use crate::path::error::{ElementProblem, PathError};

use crate::path::builder::check_place;

use crate::entries::shared_bytes::SharedBytes;
use crate::invariant::OrBroken;
use crate::limits::{PATH_BYTES_MAX, PATH_ELEMENTS_MAX};
use crate::value::{Kind, ReadError, Reader};

/// What reading elements relies on.
const WITHIN: &str = "what was read is within the elements";

/// A path, checked and canonical; cheap to clone.
///
/// ```
/// # use distkv_model::path::Path;
/// let path: Path = "a.b:.c".parse().unwrap();
/// assert_eq!(path.as_bytes(), b"\xa1a\xa3b.c");
/// assert!(path.starts_with(&"a".parse().unwrap()));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Path {
    /// Invariant: canonical, at most [`PATH_ELEMENTS_MAX`] elements and [`PATH_BYTES_MAX`] bytes.
    bytes: SharedBytes,
}

/// A path that may still lie in the message it came in: borrowed if it was canonical there.
/// The hot path looks entries up by it without allocating.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathBytes<'a> {
    /// Invariant: as [`Path::bytes`].
    bytes: Cow<'a, [u8]>,
    /// How many elements those are.
    count: usize,
}

impl Path {
    /// The root of the tree: no elements.
    pub fn root() -> Path {
        Path::default()
    }

    /// The root of the system's own tree: only nil.
    pub fn system_root() -> Path {
        Path { bytes: SharedBytes::from(&[0xc0][..]) }
    }

    /// From canonical bytes, as peers and files have them; anything else is refused.
    pub fn from_canonical(bytes: &[u8]) -> Result<Path, PathError> {
        let path = PathBytes::from_msgpack(bytes)?;
        match path.bytes {
            Cow::Borrowed(bytes) => Ok(Path { bytes: SharedBytes::from(bytes) }),
            Cow::Owned(canonical) => {
                let index = crate::path::bytes::common_elements(bytes, &canonical);
                Err(PathError::NotCanonical { index })
            }
        }
    }

    /// From elements one after the other, of any width: the content of an extension of type 3.
    pub fn from_msgpack(elements: &[u8]) -> Result<Path, PathError> {
        PathBytes::from_msgpack(elements).map(PathBytes::into_path)
    }

    /// From one whole MessagePack value, an extension of type 3 or an array.
    pub fn from_msgpack_value(value: &[u8]) -> Result<Path, PathError> {
        PathBytes::from_msgpack_value(value).map(PathBytes::into_path)
    }

    /// From elements.
    pub fn from_elements<'a>(
        elements: impl IntoIterator<Item = Element<'a>>,
    ) -> Result<Path, PathError> {
        let mut builder = PathBuilder::default();
        for element in elements {
            builder.push(element)?;
        }
        Ok(builder.finish())
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether this is in the system's own tree, its root included.
    pub fn is_system(&self) -> bool {
        self.bytes.first() == Some(&0xc0)
    }

    /// How many elements the path has. Walks them.
    #[allow(clippy::len_without_is_empty, reason = "is_root says it")]
    pub fn len(&self) -> usize {
        crate::path::bytes::count_elements(&self.bytes)
    }

    /// The canonical bytes: the elements one after the other.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Walks over the elements.
    pub fn elements(&self) -> Elements<'_> {
        crate::path::bytes::elements(&self.bytes)
    }

    /// Walks over the offsets in [`Path::as_bytes`] at which elements end.
    pub fn element_ends(&self) -> ElementEnds<'_> {
        crate::path::bytes::element_ends(&self.bytes)
    }

    /// The element of this number, from 0.
    pub fn element(&self, index: usize) -> Option<Element<'_>> {
        self.elements().nth(index)
    }

    /// The first element.
    pub fn first(&self) -> Option<Element<'_>> {
        self.elements().next()
    }

    /// The last element.
    pub fn last(&self) -> Option<Element<'_>> {
        self.elements().last()
    }

    /// The path without its last element; the root has none.
    pub fn parent(&self) -> Option<Path> {
        crate::path::bytes::parent(&self.bytes)
            .map(|bytes| Path { bytes: SharedBytes::from(bytes) })
    }

    /// The first `count` elements, or all if there are fewer.
    pub fn prefix(&self, count: usize) -> Path {
        let end = match count.checked_sub(1) {
            None => 0,
            Some(last) => self.element_ends().nth(last).unwrap_or(self.bytes.len()),
        };
        let bytes = self.bytes.get(..end).or_broken("an element ends within its path");
        Path { bytes: SharedBytes::from(bytes) }
    }

    /// This path with `rest` below it, in a new path.
    pub fn join(&self, rest: &Path) -> Result<Path, PathError> {
        if rest.is_root() {
            return Ok(self.clone());
        }
        let mut builder = PathBuilder::below(self);
        for element in rest.elements() {
            builder.push(element)?;
        }
        Ok(builder.finish())
    }

    /// This path with one element more, in a new path.
    pub fn push<'a>(&self, element: impl Into<Element<'a>>) -> Result<Path, PathError> {
        let mut builder = PathBuilder::below(self);
        builder.push(element.into())?;
        Ok(builder.finish())
    }

    /// Whether this path is `prefix` or below it.
    pub fn starts_with(&self, prefix: &Path) -> bool {
        crate::path::bytes::starts_with(&self.bytes, &prefix.bytes)
    }

    /// The canonical bytes of what this path has below `prefix`.
    pub fn strip_prefix(&self, prefix: &Path) -> Option<&[u8]> {
        self.bytes.strip_prefix(prefix.as_bytes())
    }

    /// Appends the path as a MessagePack extension of type 3.
    pub fn encode_ext3(&self, out: &mut Vec<u8>) {
        crate::path::bytes::encode_ext3(&self.bytes, out);
    }

    /// Appends the path as a MessagePack array.
    pub fn encode_array(&self, out: &mut Vec<u8>) {
        crate::path::bytes::encode_array(&self.bytes, out);
    }
}

impl<'a> From<&'a Path> for PathBytes<'a> {
    fn from(path: &'a Path) -> Self {
        Self { bytes: Cow::Borrowed(path.as_bytes()), count: path.len() }
    }
}

impl From<Path> for PathBytes<'_> {
    /// A copy. Use it only where a reference will not do.
    fn from(path: Path) -> Self {
        Self { bytes: Cow::Owned(path.as_bytes().to_vec()), count: path.len() }
    }
}

impl<'a> PathBytes<'a> {
    /// From elements one after the other, of any width: the content of an extension of type 3.
    pub fn from_msgpack(elements: &'a [u8]) -> Result<PathBytes<'a>, PathError> {
        let (mut offset, mut count) = (0, 0);
        while let Some(&marker) = elements.get(offset) {
            let rest = elements.get(offset..).or_broken(WITHIN);
            let size = match short_string_len(marker, rest) {
                Some(size) if count < PATH_ELEMENTS_MAX => size,
                _ => match check_element(rest, count)? {
                    Some(size) => size,
                    None => {
                        let kept = elements.get(..offset).or_broken(WITHIN);
                        return PathBytes::canonicalise(kept, count, elements);
                    }
                },
            };
            (offset, count) = (offset + size, count + 1);
            if offset > PATH_BYTES_MAX {
                return Err(PathError::TooLong);
            }
        }
        Ok(PathBytes { bytes: Cow::Borrowed(elements), count })
    }

    /// From one whole MessagePack value, an extension of type 3 or an array.
    pub fn from_msgpack_value(value: &'a [u8]) -> Result<PathBytes<'a>, PathError> {
        let mut reader = Reader::new(value);
        let kind = reader.peek_kind().map_err(head_error)?;
        match kind {
            Kind::Ext => {
                let (kind, content) = reader.read_ext().map_err(head_error)?;
                if kind != EXT_PATH {
                    return Err(PathError::NotAPath("another extension"));
                }
                match reader.rest().len() {
                    0 => PathBytes::from_msgpack(content),
                    trailing => Err(PathError::Trailing(trailing)),
                }
            }
            Kind::Array => {
                let count = reader.read_array_len().map_err(head_error)?;
                PathBytes::from_items(reader.rest(), count)
            }
            Kind::Nil => Err(PathError::NotAPath("nil")),
            Kind::Bool => Err(PathError::NotAPath("a boolean")),
            Kind::Int => Err(PathError::NotAPath("an integer")),
            Kind::Float => Err(PathError::NotAPath("a float")),
            Kind::Str => Err(PathError::NotAPath("a string")),
            Kind::Bin => Err(PathError::NotAPath("a byte string")),
            Kind::Map => Err(PathError::NotAPath("a map")),
        }
    }

    /// The canonical bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same path, borrowed from this one.
    pub fn reborrow(&self) -> PathBytes<'_> {
        PathBytes { bytes: Cow::Borrowed(&self.bytes), count: self.count }
    }

    /// Whether the bytes are those that came in, not a copy.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.bytes, Cow::Borrowed(_))
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many elements the path has; known without walking.
    #[allow(clippy::len_without_is_empty, reason = "is_root says it")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Walks over the elements.
    pub fn elements(&self) -> Elements<'_> {
        crate::path::bytes::elements(&self.bytes)
    }

    /// A path of its own.
    pub fn to_path(&self) -> Path {
        Path { bytes: SharedBytes::from(&*self.bytes) }
    }

    /// A path of its own.
    pub(crate) fn into_path(self) -> Path {
        Path { bytes: SharedBytes::from(&*self.bytes) }
    }

    /// An array's items: exactly `count` elements.
    fn from_items(items: &'a [u8], count: usize) -> Result<PathBytes<'a>, PathError> {
        if count > PATH_ELEMENTS_MAX {
            return Err(PathError::TooManyElements);
        }
        let mut reader = Reader::new(items);
        for index in 0..count {
            Element::read(&mut reader).map_err(|problem| problem.at(index))?;
        }
        match reader.rest().len() {
            0 => PathBytes::from_msgpack(items),
            trailing => Err(PathError::Trailing(trailing)),
        }
    }

    /// The slow way: `kept` (`count` elements) is canonical, what follows it in `elements` is not.
    #[cold]
    fn canonicalise(
        kept: &[u8],
        count: usize,
        elements: &'a [u8],
    ) -> Result<PathBytes<'a>, PathError> {
        let mut builder = PathBuilder::with_elements(kept, count);
        let mut reader = Reader::new(elements.get(kept.len()..).or_broken(WITHIN));
        while !reader.is_at_end() {
            let index = builder.len();
            let element = Element::read(&mut reader).map_err(|problem| problem.at(index))?;
            builder.push(element)?;
        }
        let count = builder.len();
        Ok(PathBytes { bytes: Cow::Owned(builder.into_bytes()), count })
    }
}

/// The length of the ASCII string of up to 31 bytes that `rest` starts with, which is the usual
/// element; found without a full decode. None if there is something else, valid or not.
#[inline]
fn short_string_len(marker: u8, rest: &[u8]) -> Option<usize> {
    let length = match marker {
        0xa0..=0xbf => usize::from(marker & 0x1f),
        _ => return None,
    };
    rest.get(1..1 + length)?.is_ascii().then_some(1 + length)
}

/// The size of the element of number `count` that `rest` starts with; none if it is good, but not
/// in canonical form.
fn check_element(rest: &[u8], count: usize) -> Result<Option<usize>, PathError> {
    let mut reader = Reader::new(rest);
    let element = Element::read(&mut reader).map_err(|problem| problem.at(count))?;
    check_place(element, count)?;
    let size = reader.position();
    Ok(is_canonical(element, rest.get(..size).or_broken(WITHIN)).then_some(size))
}

/// Whether `bytes` are the canonical form of the (normalised) element read from them.
fn is_canonical(element: Element<'_>, bytes: &[u8]) -> bool {
    let Some((&marker, body)) = bytes.split_first() else { return false };
    match element {
        Element::Nil | Element::Bool(_) => true,
        Element::Int(number) => {
            let signed_form = (0xd0..=0xd3).contains(&marker);
            bytes.len() == int_len(number) && signed_form == (number < -32)
        }
        // Compares the bits, since -0.0 was made 0.0, and refuses the 32-bit form.
        Element::Float(number) => body == number.to_be_bytes(),
        Element::Str(text) => match marker {
            0xa0..=0xbf => true,
            0xd9 => text.len() > 31,
            0xda => text.len() > 0xff,
            _ => text.len() > 0xffff,
        },
        Element::Bin(content) => match marker {
            0xc4 => true,
            0xc5 => content.len() > 0xff,
            _ => content.len() > 0xffff,
        },
        Element::Array(array) => {
            let mut canonical = Vec::with_capacity(bytes.len());
            array.encode(&mut canonical);
            canonical == bytes
        }
    }
}

/// How long an integer's shortest form is.
fn int_len(number: i128) -> usize {
    match number {
        -0x20..=0x7f => 1,
        -0x80..=0xff => 2,
        -0x8000..=0xffff => 3,
        -0x8000_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

/// The error for a value whose very head cannot be read.
fn head_error(error: ReadError) -> PathError {
    match error {
        ReadError::Truncated { .. } => PathError::Truncated,
        _ => PathError::NotAPath("the byte 0xc1"),
    }
}

impl AsRef<[u8]> for Path {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Ord for Path {
    fn cmp(&self, other: &Path) -> Ordering {
        cmp_paths(&self.bytes, &other.bytes)
    }
}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Path) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
