//! Bytes that are shared and do not change while they are: what paths and entries are kept as.
//!
//! A node holds two of these for each entry, so they are one pointer wide (the length is with the
//! bytes) and have no second count for weak references, as `Arc<[u8]>` has.

use std::hash::{Hash, Hasher};
use std::ops::Deref;

use triomphe::{Arc, ThinArc};

/// Bytes before the data in an allocation: the count of references and the length.
pub const SHARED_BYTES_HEAD: usize = 16;

/// Shared bytes; a clone shares the allocation. Empty ones have none.
#[derive(Clone, Default)]
pub(crate) struct SharedBytes(Option<ThinArc<(), u8>>);

impl SharedBytes {
    /// Has the bytes replaced in place by `fill`, if their length is this one and nobody else holds them; returns
    /// whether it did.
    pub(crate) fn overwrite(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Some(shared) = &mut self.0 else { return len == 0 };
        shared.with_arc_mut(|shared| {
            let Some(place) = Arc::get_mut(shared).map(|place| place.slice_mut()) else {
                return false;
            };
            let fits = place.len() == len;
            if fits {
                fill(place);
            }
            fits
        })
    }
}

impl From<&[u8]> for SharedBytes {
    fn from(bytes: &[u8]) -> Self {
        Self((!bytes.is_empty()).then(|| ThinArc::from_header_and_slice((), bytes)))
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |shared| &shared.slice)
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl Hash for SharedBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overwrite(bytes: &mut SharedBytes, by: &[u8]) -> bool {
        bytes.overwrite(by.len(), |place| place.copy_from_slice(by))
    }

    #[test]
    fn bytes_are_overwritten_only_where_nobody_else_has_them_and_they_fit() {
        let mut bytes = SharedBytes::from(&b"abc"[..]);
        assert!(overwrite(&mut bytes, b"def"));
        assert_eq!(&*bytes, b"def");
        assert!(!overwrite(&mut bytes, b"longer") && !overwrite(&mut bytes, b""));
        let other = bytes.clone();
        assert!(!overwrite(&mut bytes, b"ghi"));
        assert_eq!((&*bytes, &*other), (&b"def"[..], &b"def"[..]));
        assert!(bytes == other && bytes != SharedBytes::default());
        drop(other);
        assert!(overwrite(&mut bytes, b"ghi"));
        let mut empty = SharedBytes::from(&[][..]);
        assert!(empty.is_empty() && overwrite(&mut empty, b"") && !overwrite(&mut empty, b"a"));
        assert_eq!(std::mem::size_of::<SharedBytes>(), 8);
    }
}
