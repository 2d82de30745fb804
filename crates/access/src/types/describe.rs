//! What does not fit, in the words of the original's library (`jsonschema` for Python).

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value as Json;

use super::json::{repr, repr_text};

/// One line that says what is wrong. `levels` bounds the recursion.
pub(super) fn describe(error: &ValidationError<'_>, levels: usize) -> String {
    use ValidationErrorKind as Kind;
    let value = repr(error.instance());
    match error.kind() {
        Kind::Type { kind } => {
            let names: Vec<_> = match kind {
                TypeKind::Single(name) => vec![repr_text(name.as_str())],
                TypeKind::Multiple(set) => set.iter().map(|n| repr_text(n.as_str())).collect(),
            };
            format!("{value} is not of type {}", names.join(", "))
        }
        Kind::Minimum { limit } => {
            format!("{value} is less than the minimum of {}", repr(limit))
        }
        Kind::Maximum { limit } => {
            format!("{value} is greater than the maximum of {}", repr(limit))
        }
        Kind::ExclusiveMinimum { limit } => {
            format!("{value} is less than or equal to the minimum of {}", repr(limit))
        }
        Kind::ExclusiveMaximum { limit } => {
            format!("{value} is greater than or equal to the maximum of {}", repr(limit))
        }
        Kind::MultipleOf { multiple_of } => format!("{value} is not a multiple of {multiple_of}"),
        Kind::MinLength { .. } | Kind::MinItems { .. } => format!("{value} is too short"),
        Kind::MaxLength { .. } | Kind::MaxItems { .. } => format!("{value} is too long"),
        Kind::MinProperties { .. } => format!("{value} does not have enough properties"),
        Kind::MaxProperties { .. } => format!("{value} has too many properties"),
        Kind::Pattern { pattern } => format!("{value} does not match {}", repr_text(pattern)),
        Kind::Required { property } => format!("{} is a required property", repr(property)),
        Kind::Enum { options } => format!("{value} is not one of {}", repr(options)),
        Kind::Constant { expected_value } => format!("{} was expected", repr(expected_value)),
        Kind::UniqueItems => format!("{value} has non-unique elements"),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => {
            format!("{value} is not valid under any of the given schemas")
        }
        Kind::OneOfMultipleValid { .. } => {
            format!("{value} is valid under more than one of the given schemas")
        }
        Kind::FalseSchema => format!("False schema does not allow {value}"),
        Kind::Not { schema } => format!("{value} should not be valid under {}", repr(schema)),
        Kind::Contains => format!("{value} does not contain items matching the given schema"),
        Kind::AdditionalProperties { unexpected } => {
            let names = Json::from(unexpected.clone());
            let names = repr(&names);
            let names = names.trim_start_matches('[').trim_end_matches(']');
            let verb = if unexpected.len() == 1 { "was" } else { "were" };
            format!("Additional properties are not allowed ({names} {verb} unexpected)")
        }
        Kind::PropertyNames { error } => match levels.checked_sub(1) {
            Some(levels) => describe(error, levels),
            None => format!("{value} has a key that does not fit"),
        },
        // Formats are not checked, so this is about the schema itself.
        Kind::Format { format } if format == "regex" => format!(
            "{value} is no regular expression here; they take linear time, so look-around, \
             back-references and what is very large when compiled are not supported"
        ),
        // The library's own text would show the whole value, however long it is.
        other => format!("{value} does not fit '{}'", other.keyword()),
    }
}
