//! Functions on the canonical bytes of paths, wherever those live: walking, ordering, comparing.
//!
//! All of them take bytes that were checked before (by [`Path`](crate::path::Path) or
//! [`PathBytes`](crate::path::PathBytes)). Given others they return something, without panic.

use std::cmp::Ordering;

use crate::path::element::Element;
use crate::value::Reader;
use crate::value::skip::{SkipLimits, scalar_len, skip_value};
use crate::value::write::{write_array_len, write_ext};

/// The extension type of paths (docs/client-protocol.md, "Framing").
pub const EXT_PATH: i8 = 3;

/// The order of paths, on canonical bytes: element by element (see [`Element::order`]), a path
/// before its extensions. So a path directly precedes its subtree, and the subtree is one range.
pub fn cmp_paths(a: &[u8], b: &[u8]) -> Ordering {
    let same = common_bytes(a, b);
    let (Some(byte_a), Some(byte_b)) = (a.get(same), b.get(same)) else {
        // Canonical elements delimit themselves, so equal bytes are equal elements.
        return a.len().cmp(&b.len());
    };
    // The element in which they differ; nearly always it and those before it are short strings.
    let mut start = 0;
    while let Some(marker @ 0xa0..=0xbf) = a.get(start) {
        let end = start + 1 + usize::from(marker & 0x1f);
        if end > same {
            // Behind equal heads the first difference decides.
            return match start < same {
                true => byte_a.cmp(byte_b),
                false => cmp_elements_at(a, b, start),
            };
        }
        start = end;
    }
    let rest = |path| element_ends(path).map(|end| end + start).take_while(|end| *end <= same);
    start = rest(a.get(start..).unwrap_or_default()).last().unwrap_or(start);
    cmp_elements_at(a, b, start)
}

fn cmp_elements_at(a: &[u8], b: &[u8], start: usize) -> Ordering {
    cmp_first_elements(a.get(start..).unwrap_or_default(), b.get(start..).unwrap_or_default())
}

/// The order of the elements that two paths start with. Strings, the usual case, are compared
/// as they stand, without checking again that they are UTF-8.
fn cmp_first_elements(a: &[u8], b: &[u8]) -> Ordering {
    if let (Ok(a), Ok(b)) = (Reader::new(a).read_str_bytes(), Reader::new(b).read_str_bytes()) {
        return a.cmp(b);
    }
    match (elements(a).next(), elements(b).next()) {
        (Some(a), Some(b)) => a.order(&b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// The beginning of a path as numbers, for sorting very many: if those of two paths differ, they
/// order the paths ([`cmp_paths`]); if they are equal, the paths must be compared.
pub fn order_prefix(path: &[u8]) -> OrderPrefix {
    let mut prefix = [0_u8; 24];
    let mut slots = prefix.iter_mut();
    let mut put = |byte: u8| slots.next().map(|slot| *slot = byte);
    'elements: for element in elements(path) {
        // Above 0, which stands for the path's end.
        if put(element.rank() + 1).is_none() {
            break;
        }
        let Element::Str(text) = element else { break };
        for byte in text.bytes() {
            // A string's end must be below any byte that it could go on with.
            let is_full = match byte {
                0 => put(0).and_then(|()| put(0xff)).is_none(),
                _ => put(byte).is_none(),
            };
            if is_full {
                break 'elements;
            }
        }
        if put(0).and_then(|()| put(1)).is_none() {
            break;
        }
    }
    let (words, _) = prefix.as_chunks::<8>();
    let mut numbers = words.iter().map(|word| u64::from_be_bytes(*word));
    OrderPrefix(std::array::from_fn(|_| numbers.next().unwrap_or(0)))
}

/// See [`order_prefix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderPrefix([u64; 3]);

/// How many bytes, and how many whole elements, two paths share from their start.
pub fn common_prefix(a: &[u8], b: &[u8]) -> (usize, usize) {
    let same = common_bytes(a, b);
    let (mut bytes, mut count) = (0, 0);
    // An element that lies wholly within the equal bytes of `a` is one of `b` too, because
    // its head says where it ends.
    for end in element_ends(a).take_while(|end| *end <= same) {
        bytes = end;
        count += 1;
    }
    (bytes, count)
}

/// How many bytes two slices share from their start. Eight at a time: paths that are compared in
/// a tree have most of their bytes in common.
fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    let (a_words, _) = a.as_chunks::<8>();
    let (b_words, _) = b.as_chunks::<8>();
    let mut same = 0;
    for (a, b) in a_words.iter().zip(b_words) {
        let different = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if different != 0 {
            return same + different.trailing_zeros() as usize / 8;
        }
        same += 8;
    }
    let a = a.get(same..).unwrap_or_default();
    let b = b.get(same..).unwrap_or_default();
    same + a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// How many elements two paths share from their start.
pub fn common_elements(a: &[u8], b: &[u8]) -> usize {
    common_prefix(a, b).1
}

/// Whether the path `bytes` is `prefix` or below it.
pub(crate) fn starts_with(bytes: &[u8], prefix: &[u8]) -> bool {
    // Canonical elements delimit themselves, so equal bytes are equal elements.
    bytes.starts_with(prefix)
}

/// How many elements a path has.
pub(crate) fn count_elements(bytes: &[u8]) -> usize {
    element_ends(bytes).count()
}

/// The path without its last element; the root's is none.
pub(crate) fn parent(bytes: &[u8]) -> Option<&[u8]> {
    let mut start = 0;
    for end in element_ends(bytes) {
        if end >= bytes.len() {
            return bytes.get(..start);
        }
        start = end;
    }
    None
}

/// The first element's canonical bytes.
#[must_use]
pub fn first_element(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(..element_ends(bytes).next()?)
}

/// Walks over the elements of a path.
pub fn elements(bytes: &[u8]) -> Elements<'_> {
    Elements { reader: Reader::new(bytes) }
}

/// Walks over the offsets at which elements end: the lengths of all prefixes, the root's (0) not
/// included, the whole path's included.
pub fn element_ends(bytes: &[u8]) -> ElementEnds<'_> {
    ElementEnds { bytes, offset: 0 }
}

/// Walks over the canonical bytes of each element: what a list of names is made of.
pub fn raw_elements(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    element_ends(bytes).map_while(move |end| bytes.get(std::mem::replace(&mut start, end)..end))
}

/// Whether one of the path's elements is an array.
pub fn has_array(bytes: &[u8]) -> bool {
    raw_elements(bytes).any(|element| element.first().is_some_and(|marker| is_array(*marker)))
}

fn is_array(marker: u8) -> bool {
    matches!(marker, 0x90..=0x9f | 0xdc | 0xdd)
}

/// The length of the array that `rest` starts with; none for anything else. Kept apart from the
/// usual elements, so that only arrays pay for arrays.
#[inline]
fn array_len(rest: &[u8]) -> Option<usize> {
    #[cold]
    fn whole(rest: &[u8]) -> Option<usize> {
        skip_value(rest, SkipLimits::NONE).ok()
    }
    if is_array(*rest.first()?) { whole(rest) } else { None }
}

/// Appends the path as an extension of type 3, in its shortest form.
pub fn encode_ext3(bytes: &[u8], out: &mut Vec<u8>) {
    write_ext(EXT_PATH, bytes, out);
}

/// Appends the path (or the end of one) as an array of its elements.
pub fn encode_array(bytes: &[u8], out: &mut Vec<u8>) {
    write_array_len(count_elements(bytes), out);
    out.extend_from_slice(bytes);
}

/// Walks over the elements of a path; made by [`elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    reader: Reader<'a>,
}

impl<'a> Elements<'a> {
    /// The canonical bytes that were not walked over yet.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        Element::read(&mut self.reader).ok()
    }
}

/// Walks over the offsets at which elements end; made by [`element_ends`].
#[derive(Debug, Clone)]
pub struct ElementEnds<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl Iterator for ElementEnds<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let rest = self.bytes.get(self.offset..)?;
        self.offset += scalar_len(rest).or_else(|| array_len(rest))?;
        Some(self.offset)
    }
}
