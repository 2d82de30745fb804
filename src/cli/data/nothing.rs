//! What a command says that has found nothing at a path: a typo, or a pattern as other stores have it, looks like an empty
//! network otherwise.

use crate::cli::other_words::LIST;
use crate::cli::say;
use crate::cli::terminal::output::shown_path;
use crate::model::path::{Element, Path};

/// Notes that a listing has printed nothing. `place`: where that is, like "below", of the path. A user may not see all that
/// is there, so it does not say that nothing is.
pub(super) fn note_nothing(place: &str, path: &Path) {
    say::note(&format!("nothing to show {place} {}{}", shown_path(path), no_wildcards(path)));
}

/// What to say behind that if somebody has taken the path for a pattern; empty if not.
pub(super) fn no_wildcards(path: &Path) -> String {
    let is_pattern = |element: Element<'_>| match element {
        Element::Str(text) => text.contains('*') || matches!(text, "+" | "#"),
        _ => false,
    };
    match path.elements().any(is_pattern) {
        true => format!("; paths have no wildcards: {LIST}"),
        false => String::new(),
    }
}
