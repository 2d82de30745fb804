//! Types: which values clients may store where, by JSON Schema (`:n.type`, `:n.match`). Checked where a client
//! writes, and never for what peers send: all nodes must take the same.
//!
//! Without the cargo feature `types` nothing is checked, so a node takes no changes of types then.

use crate::model::path::Path;
use crate::model::value::Value;
use crate::protocol::client::{ClientError, ErrorCode};
#[cfg(feature = "types")]
use crate::rt;

/// A type up to which its examples are checked at once.
#[cfg(feature = "types")]
const SHORT_TYPE_BYTES: usize = 4 << 10;

/// All types and matches of the tree, compiled.
#[derive(Debug, Default)]
pub(crate) struct TypeChecks {
    #[cfg(feature = "types")]
    types: distkv_access::types::Types,
    #[cfg(not(feature = "types"))]
    is_some: bool,
}

#[cfg(feature = "types")]
impl TypeChecks {
    /// Of the living entries below `:n.type` and `:n.match`; what is as it was in `before` is not compiled again.
    #[must_use]
    pub(crate) fn build<'v>(
        entries: impl Iterator<Item = (Path, &'v [u8])>,
        before: Option<&Self>,
    ) -> Self {
        let none = distkv_access::types::Types::default();
        let before = before.map_or(&none, |before| &before.types);
        Self { types: distkv_access::types::Types::build(entries, before) }
    }

    /// Whether there is nothing to check.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Whether a client may store this value at a whole path (canonical bytes).
    ///
    /// # Errors
    /// It does not fit. Nothing was changed.
    pub(crate) fn check(&self, path: &[u8], value: &[u8]) -> Result<(), ClientError> {
        let check = || self.types.check(path, value);
        // A client's own choice of types and values holds up nobody else.
        let checked = match self.types.may_take_long(value.len()) {
            true => rt::compute(check),
            false => check(),
        };
        checked.map_err(|error| misfit(&error))
    }

    /// Whether a client may store this at a whole path below nil, and what is stored instead, if that is
    /// something else.
    ///
    /// # Errors
    /// It is no type, or not one that can be checked. Nothing was changed.
    pub(crate) fn check_change(
        &self,
        path: &Path,
        value: &[u8],
    ) -> Result<Option<Value>, ClientError> {
        let check = || self.types.check_change(path, value);
        let checked = match value.len() > SHORT_TYPE_BYTES {
            true => rt::compute(check),
            false => check(),
        };
        checked.map_err(|error| misfit(&error))
    }
}

/// Clients of the original look for the class in the text.
#[cfg(feature = "types")]
fn misfit(error: &distkv_access::types::TypeError) -> ClientError {
    ClientError::new(ErrorCode::TypeMismatch, error.to_string())
}

#[cfg(not(feature = "types"))]
impl TypeChecks {
    /// Of the living entries below `:n.type` and `:n.match`.
    #[must_use]
    pub(crate) fn build<'v>(
        mut entries: impl Iterator<Item = (Path, &'v [u8])>,
        _before: Option<&Self>,
    ) -> Self {
        Self { is_some: entries.next().is_some() }
    }

    /// Whether there is nothing to check.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_some
    }

    /// Every value: nothing is checked.
    ///
    /// # Errors
    /// None.
    pub(crate) fn check(&self, _path: &[u8], _value: &[u8]) -> Result<(), ClientError> {
        Ok(())
    }

    /// Whether a client may store this at a whole path below nil.
    ///
    /// # Errors
    /// It is about types. Nothing was changed.
    pub(crate) fn check_change(
        &self,
        _path: &Path,
        _value: &[u8],
    ) -> Result<Option<Value>, ClientError> {
        let text = "this node was built without type checks (the cargo feature 'types'), so it takes no \
                    changes of types; nothing was changed";
        Err(ClientError::new(ErrorCode::NotImplemented, text))
    }
}
