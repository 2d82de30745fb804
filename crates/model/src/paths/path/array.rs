//! Arrays as elements of paths: what the Python DistKV has tuples for, and paths within paths, which
//! are equal to tuples there.

use crate::invariant::OrBroken;
use crate::limits::{PATH_BYTES_MAX, PATH_NESTING_MAX};
use crate::path::bytes::EXT_PATH;
use crate::path::element::Element;
use crate::path::error::ElementProblem;
use crate::value::write::write_array_len;
use crate::value::{Kind, Reader};

/// How many times longer than its canonical form an item can be: nine bytes say a small integer.
const WIDEST_FORM: usize = 9;
/// An array with more bytes than this is too long in any form. So reading arrays over and over, level by
/// level, is bounded work.
const RAW_BYTES_MAX: usize = WIDEST_FORM * PATH_BYTES_MAX;

/// An array as an element of a path. Its items are what elements can be, and nil; arrays among them
/// nest up to [`PATH_NESTING_MAX`] levels, this one included.
#[derive(Clone, Copy)]
pub struct Array<'a> {
    /// Invariant: the items one after the other, each checked, in any width, at most [`RAW_BYTES_MAX`].
    items: &'a [u8],
}

impl<'a> Array<'a> {
    /// From its items, one after the other, in any width.
    ///
    /// # Errors
    /// One of them cannot be an item, or they are too long or nested too deep.
    pub(crate) fn from_items(items: &'a [u8]) -> Result<Array<'a>, ElementProblem> {
        let mut reader = Reader::new(items);
        check_items(&mut reader, None, PATH_NESTING_MAX)?;
        Array::within_bounds(items)
    }

    /// Reads the array, or the path in the place of one, at the front of `reader`. If refused, the reader
    /// stays.
    #[cold]
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Array<'a>, ElementProblem> {
        let mut ahead = *reader;
        let array = match ahead.peek_kind()? {
            Kind::Array => {
                let count = ahead.read_array_len()?;
                let items = ahead.rest();
                let start = ahead.position();
                check_items(&mut ahead, Some(count), PATH_NESTING_MAX)?;
                let length = ahead.position() - start;
                Array::within_bounds(items.get(..length).or_broken("what was read was there"))?
            }
            _ => Array::from_items(ahead.read_ext()?.1)?,
        };
        *reader = ahead;
        Ok(array)
    }

    fn within_bounds(items: &'a [u8]) -> Result<Array<'a>, ElementProblem> {
        if items.len() > RAW_BYTES_MAX {
            return Err(ElementProblem::TooLong);
        }
        Ok(Array { items })
    }

    /// Walks over the items.
    pub fn items(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        crate::path::bytes::elements(self.items)
    }

    /// Appends the canonical bytes: an array, also where this was read from a path within a path.
    #[cold]
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        write_array_len(self.items().count(), out);
        for item in self.items() {
            item.encode(out);
        }
    }
}

/// Reads items up to the end, or a given number of them, and checks them. `levels` is how deep they
/// may nest, including the array that they are in. It bounds the recursion.
fn check_items(
    reader: &mut Reader<'_>,
    count: Option<usize>,
    levels: usize,
) -> Result<(), ElementProblem> {
    let levels = levels.checked_sub(1).ok_or(ElementProblem::TooDeep)?;
    let mut left = count;
    while left.map_or(!reader.is_at_end(), |left| left > 0) {
        left = left.map(|left| left - 1);
        match reader.peek_kind()? {
            Kind::Array => {
                let count = reader.read_array_len()?;
                check_items(reader, Some(count), levels)?;
            }
            Kind::Ext => match reader.read_ext()? {
                (EXT_PATH, items) => check_items(&mut Reader::new(items), None, levels)?,
                (kind, _) => return Err(ElementProblem::of_ext(kind)),
            },
            _ => {
                Element::read(reader)?;
            }
        }
    }
    Ok(())
}

impl PartialEq for Array<'_> {
    fn eq(&self, other: &Array<'_>) -> bool {
        self.items().eq(other.items())
    }
}

impl std::fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.items()).finish()
    }
}
