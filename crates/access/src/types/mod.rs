//! Type checks: which values clients may store where.
//!
//! `:n.type.T[.SUB]` has `{schema, good: [at least 2], bad: [at least 1]}`, `:n.match.PATTERN` has
//! `{type: PATH}`. A value must fit the type of the pattern that decides, and the types above that one first.
//! Patterns are those of access lists. Types are JSON Schema only (draft 2020-12): what has `code`, and
//! whatever is below `:n.codec` and `:n.conv`, is refused, as it would be Python. A type without a schema
//! checks nothing.
//!
//! What is checked is what a client writes: not deletions, not what is below nil, and not what peers send. A
//! type that does not exist (any more) checks nothing; one that is there and cannot be read lets nothing in.

mod describe;
mod json;
mod record;
mod schema;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use distkv_model::meta::Family;
use distkv_model::path::Path;
use distkv_model::path::bytes::element_ends;
use distkv_model::value::Value;
use serde_json::Value as Json;

use crate::patterns::Patterns;
pub use crate::patterns::TooManyPatterns;
pub use json::NotJson;
use json::{repr, repr_text, to_json};
use record::{TypeRecord, match_value, read_match};
pub use schema::SchemaError;

/// From which product of a type's weight and a value's bytes on a check may take more than some milliseconds.
const LONG: usize = 4 << 20;
/// Most types; further ones cannot be made.
const TYPES_MAX: usize = 1_024;

/// Why a value, a type or a match is refused. Nothing was changed. Texts contain the original's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TypeError {
    /// The value does not fit; in words.
    #[error("<ValidationError: {}>", repr_text(.0))]
    Misfit(String),
    /// The value is not JSON, so it fits no schema.
    #[error("<ValidationError: 'the value {0}'>")]
    NotJson(#[from] NotJson),
    /// The type that would have to be checked cannot be read.
    #[error("the type {0} of this entry cannot be checked; it must be replaced or deleted first")]
    Broken(Path),
    /// More patterns match than are followed.
    #[error("more type patterns match here than are followed")]
    TooManyMatch,
    /// A type has a schema, and not two values that fit.
    #[error("Must have check-good values")]
    NoGood,
    /// A type has a schema, and no value that does not fit.
    #[error("Must have check-bad values")]
    NoBad,
    /// A value that should fit does not.
    #[error("failed on good value {0}")]
    FailedGood(String),
    /// A value that should not fit does.
    #[error("did not fail on {0}")]
    FittedBad(String),
    /// The schema is not taken; with the first good value, on which the original failed.
    #[error("failed on good value {0}: {1}")]
    Schema(String, SchemaError),
    /// The value is not of the form that is needed.
    #[error("{0}")]
    Form(&'static str),
    /// A match's type is no path.
    #[error("Type of {0} is not a list")]
    NoPath(String),
    /// A match names a type that is not there.
    #[error("This type does not exist")]
    NoType,
    /// The tops of the families have no values.
    #[error("This node can't have data.")]
    Top,
    /// Python, which this node does not run.
    #[error("{0} is not supported here: types are JSON Schema only")]
    Python(&'static str),
    /// There are too many types or matches.
    #[error("there are too many types or matches")]
    TooMany,
}

/// What is known of a type.
#[derive(Clone, Debug)]
struct Type {
    /// The record that it was made of.
    source: Box<[u8]>,
    check: Check,
}

#[derive(Clone, Debug)]
enum Check {
    /// Any value fits.
    Nothing,
    Schema(Arc<schema::Schema>),
    /// It cannot be read.
    Broken,
}

/// All types and matches, compiled; replaced when `:n.type` or `:n.match` change.
#[derive(Debug, Default)]
pub struct Types {
    /// By path below `:n.type`, in canonical bytes.
    types: BTreeMap<Box<[u8]>, Type>,
    /// To the path of a type; none for a match that cannot be read.
    matches: Patterns<Option<Path>>,
    /// There are more types or matches than are looked at, so what is not known may exist.
    is_over: bool,
    /// Of the heaviest type.
    weight: usize,
}

impl Types {
    /// Compiles the entries below `:n.type` and `:n.match`, without deleted ones: whole path and value, in any
    /// order. Others are passed over. Types that are as in `before` are not compiled again.
    #[must_use]
    pub fn build<'v>(entries: impl IntoIterator<Item = (Path, &'v [u8])>, before: &Self) -> Self {
        let mut types = Self::default();
        for (path, value) in entries {
            let Some((family, rest)) = place(&path) else { continue };
            match family {
                Family::Type if types.types.len() >= TYPES_MAX => types.is_over = true,
                Family::Type => {
                    let same = before.types.get(rest.as_bytes()).filter(|t| *t.source == *value);
                    let compiled = same.cloned().unwrap_or_else(|| Type::of(value));
                    types.weight = types.weight.max(compiled.check.weight());
                    types.types.insert(rest.as_bytes().into(), compiled);
                }
                Family::Match => {
                    let target = read_match(value).ok();
                    types.is_over |= types.matches.insert(&rest, target).is_err();
                }
                _ => {}
            }
        }
        types
    }

    /// Whether there are no types and no matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.types.is_empty() && self.matches.is_empty() && !self.is_over
    }

    /// Whether checking a value of so many bytes may take more than some milliseconds.
    #[must_use]
    pub fn may_take_long(&self, value_bytes: usize) -> bool {
        self.weight.saturating_mul(value_bytes) >= LONG
    }

    /// Whether a client may store this value (one checked MessagePack value) at a whole path, in canonical
    /// bytes. Not to be asked for deletions. Costs next to nothing where no pattern begins like the path.
    ///
    /// # Errors
    /// The value does not fit the type that is asked for there.
    pub fn check(&self, path: &[u8], value: &[u8]) -> Result<(), TypeError> {
        if path.first() == Some(&0xc0) {
            return Ok(());
        }
        let mut states = self.matches.start();
        for element in crate::patterns::element_slices(path) {
            if states.is_empty() {
                break;
            }
            states = self.matches.step(&states, element);
        }
        if states.is_over() {
            return Err(TypeError::TooManyMatch);
        }
        match self.matches.decides(&states) {
            None if self.is_over => Err(TypeError::TooManyMatch),
            None => Ok(()),
            Some(None) => Err(TypeError::Broken(Path::root())),
            Some(Some(target)) => self.check_as(target, value),
        }
    }

    /// Whether a value fits a type (its path below `:n.type`) and those above it.
    fn check_as(&self, target: &Path, value: &[u8]) -> Result<(), TypeError> {
        let mut json = None;
        for end in element_ends(target.as_bytes()) {
            let bytes = target.as_bytes().get(..end).unwrap_or_default();
            let Some(found) = self.types.get(bytes) else {
                if self.is_over {
                    return Err(TypeError::Broken(target.clone()));
                }
                continue;
            };
            match &found.check {
                Check::Nothing => {}
                Check::Broken => return Err(TypeError::Broken(target.clone())),
                Check::Schema(schema) => {
                    if json.is_none() {
                        json = Some(to_json(value)?);
                    }
                    let json = json.as_ref().unwrap_or(&Json::Null);
                    schema.check(json).map_err(TypeError::Misfit)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a client may store this value at a whole path below nil; the value to store instead, if it is
    /// another one (the original stores a type's path as a path, also if it comes as text). Paths that are not
    /// about types are passed over.
    ///
    /// # Errors
    /// It is no type or match, one that is refused, or Python.
    pub fn check_change(&self, path: &Path, value: &[u8]) -> Result<Option<Value>, TypeError> {
        match Family::of(path.as_bytes()) {
            Some(Family::Codec) => return Err(TypeError::Python("a codec")),
            Some(Family::Conv) => return Err(TypeError::Python("a conversion")),
            Some(Family::Type | Family::Match) => {}
            _ => return Ok(None),
        }
        let (family, rest) = place(path).ok_or(TypeError::Top)?;
        match family {
            Family::Match => self.check_match(&rest, value),
            _ => self.check_type(&rest, value).map(|()| None),
        }
    }

    fn check_type(&self, target: &Path, value: &[u8]) -> Result<(), TypeError> {
        let is_new = !self.types.contains_key(target.as_bytes());
        if is_new && self.types.len() >= TYPES_MAX {
            return Err(TypeError::TooMany);
        }
        let record = TypeRecord::read(value)?;
        let Some(schema) = record.schema else { return Ok(()) };
        let good = record.good.ok_or(TypeError::Form("a type with a schema needs 'good'"))?;
        let bad = record.bad.ok_or(TypeError::Form("a type with a schema needs 'bad'"))?;
        if good.len() < 2 {
            return Err(TypeError::NoGood);
        }
        if bad.is_empty() {
            return Err(TypeError::NoBad);
        }
        let shown = |value: &[u8]| to_json(value).map_or("…".to_owned(), |json| repr(&json));
        let first = good.first().map_or_else(String::new, |value| shown(value));
        let compiled = record::compile(schema).map_err(|error| TypeError::Schema(first, error))?;
        let parent = target.parent().unwrap_or_default();
        for value in good {
            self.check_as(&parent, value)?;
            if compiled.check(&to_json(value)?).is_err() {
                return Err(TypeError::FailedGood(shown(value)));
            }
        }
        for value in bad {
            self.check_as(&parent, value)?;
            // What is not JSON does not fit.
            if to_json(value).is_ok_and(|json| compiled.check(&json).is_ok()) {
                return Err(TypeError::FittedBad(shown(value)));
            }
        }
        Ok(())
    }

    fn check_match(&self, pattern: &Path, value: &[u8]) -> Result<Option<Value>, TypeError> {
        let target = read_match(value)?;
        if !self.types.contains_key(target.as_bytes()) {
            return Err(TypeError::NoType);
        }
        let elements: Vec<_> = pattern.elements().collect();
        if self.matches.get(&elements).is_none() && self.matches.is_full() {
            return Err(TypeError::TooMany);
        }
        match_value(value, &target)
    }
}

impl Check {
    fn weight(&self) -> usize {
        match self {
            Self::Schema(schema) => schema.weight(),
            Self::Nothing | Self::Broken => 0,
        }
    }
}

impl Type {
    fn of(value: &[u8]) -> Self {
        let check = match TypeRecord::read(value).map(|record| record.schema) {
            Ok(None) => Check::Nothing,
            Ok(Some(schema)) => match record::compile(schema) {
                Ok(schema) => Check::Schema(Arc::new(schema)),
                Err(_) => Check::Broken,
            },
            Err(_) => Check::Broken,
        };
        Self { source: value.into(), check }
    }
}

/// The family of a path below `:n.type` or `:n.match`, and what it has below that.
fn place(path: &Path) -> Option<(Family, Path)> {
    let family = Family::of(path.as_bytes())?;
    let rest = path.elements().skip(2);
    let rest = Path::from_elements(rest).ok().filter(|rest| !rest.is_root())?;
    matches!(family, Family::Type | Family::Match).then_some((family, rest))
}
