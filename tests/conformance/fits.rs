//! Whether an answer is the one that is expected. Everything else of the judge comes down to this.

use serde_json::Value as Json;

use crate::step::Order;

/// Whether all that is expected is there. Maps may have more; lists, and everything else, are the same, and of the same
/// type: `1` is neither `1.0` nor `true`.
pub(crate) fn fits(expected: &Json, found: &Json) -> bool {
    match (expected, found) {
        (Json::Object(expected), Json::Object(found)) => expected
            .iter()
            .all(|(name, value)| found.get(name).is_some_and(|found| fits(value, found))),
        (Json::Array(expected), Json::Array(found)) => {
            expected.len() == found.len()
                && expected.iter().zip(found).all(|(expected, found)| fits(expected, found))
        }
        // Numbers of JSON are equal only if both are integers or both are not.
        _ => expected == found,
    }
}

/// Whether what is expected is there at all, and fits.
pub(crate) fn fits_in(expected: &Json, found: Option<&Json>) -> bool {
    found.is_some_and(|found| fits(expected, found))
}

/// Whether that is what the client is to tell.
pub(crate) fn is_answered(order: &Order, answer: &Json) -> bool {
    match (&order.error, &order.expect, answer.get("ok")) {
        (Some(error), _, _) => fits_in(error, answer.get("error")),
        (None, Some(expect), Some(ok)) => fits(expect, ok),
        (None, None, Some(_)) => true,
        (None, _, None) => false,
    }
}
