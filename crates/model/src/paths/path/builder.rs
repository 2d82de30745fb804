//! Building a path element by element, each checked as it comes.

use crate::entries::shared_bytes::SharedBytes;
use crate::limits::{PATH_BYTES_MAX, PATH_ELEMENTS_MAX};
use crate::path::element::Element;
use crate::path::error::{ElementProblem, PathError};
use crate::path::{Path, bytes};

/// A path that grows. An element that is refused leaves it as it was.
#[derive(Debug, Clone, Default)]
pub struct PathBuilder {
    /// Invariant: a path's canonical bytes, within the limits.
    out: Vec<u8>,
    /// How many elements those are.
    count: usize,
}

impl PathBuilder {
    /// Starts with a path.
    pub(crate) fn below(path: &Path) -> PathBuilder {
        PathBuilder::with_elements(path.as_bytes(), bytes::count_elements(path.as_bytes()))
    }

    /// Starts with the canonical bytes of `count` elements.
    pub(super) fn with_elements(canonical: &[u8], count: usize) -> PathBuilder {
        PathBuilder { out: canonical.to_vec(), count }
    }

    /// Appends an element.
    pub fn push<'a>(&mut self, element: impl Into<Element<'a>>) -> Result<(), PathError> {
        let element = element.into().normalise().map_err(|problem| problem.at(self.count))?;
        check_place(element, self.count)?;
        if content_len(element) > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        let end = self.out.len();
        element.encode(&mut self.out);
        if self.out.len() > PATH_BYTES_MAX {
            self.out.truncate(end);
            return Err(PathError::TooLong);
        }
        self.count += 1;
        Ok(())
    }

    /// How many elements there are.
    #[allow(
        clippy::len_without_is_empty,
        reason = "a path without elements is the root, not empty"
    )]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The path.
    pub fn finish(self) -> Path {
        Path { bytes: SharedBytes::from(self.out.as_slice()) }
    }

    /// The path's canonical bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.out
    }
}

/// Whether an element may stand at this number.
pub(super) fn check_place(element: Element<'_>, index: usize) -> Result<(), PathError> {
    if index >= PATH_ELEMENTS_MAX {
        return Err(PathError::TooManyElements);
    }
    if element == Element::Nil && index > 0 {
        return Err(ElementProblem::NilInside.at(index));
    }
    Ok(())
}

/// The bytes of an element's content, if it has some of its own.
fn content_len(element: Element<'_>) -> usize {
    match element {
        Element::Str(text) => text.len(),
        Element::Bin(bytes) => bytes.len(),
        Element::Nil | Element::Bool(_) | Element::Int(_) | Element::Float(_) => 0,
        // Its length is bounded, but it may be in a wide form: only its canonical form says.
        Element::Array(_) => 0,
    }
}
