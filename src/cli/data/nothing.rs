//! What a command says that has found nothing at a path: a typo, or a pattern as other stores have it, looks like an empty
//! network otherwise.

use crate::cli::error::CliError;
use crate::cli::other_words::LIST;
use crate::cli::remote::{RemoteArgs, address_entry};
use crate::cli::say;
use crate::cli::terminal::output::shown_path;
use crate::cli::typed;
use crate::client::{Fields, StreamEvent};
use crate::model::path::{Element, Path};

/// What is said of a path that somebody has taken for a pattern.
const NO_WILDCARDS: &str = "paths have no wildcards";

/// Notes that a listing has printed nothing. `place`: where that is, like "below", of the path. A user may not see all that
/// is there, so it does not say that nothing is.
pub(super) fn note_nothing(place: &str, path: &Path) {
    say::note(&format!("nothing to show {place} {}{}", shown_path(path), no_wildcards(path)));
}

/// What to say behind that if somebody has taken the path for a pattern; empty if not.
pub(super) fn no_wildcards(path: &Path) -> String {
    match path.elements().any(is_pattern) {
        true => format!("; {NO_WILDCARDS}: {LIST}"),
        false => String::new(),
    }
}

/// Whether an element looks like a pattern of another store. A question mark within a name is mostly just one.
fn is_pattern(element: Element<'_>) -> bool {
    match element {
        Element::Str(text) => {
            text.contains('*') || text.ends_with('?') || matches!(text, "+" | "#")
        }
        _ => false,
    }
}

/// Notes that a path at which a deletion has found nothing is no pattern, if it looks like one.
pub(super) fn note_nothing_deleted(path: &Path) {
    if path.elements().any(is_pattern) {
        say::note(&format!(
            "{NO_WILDCARDS}: {LIST}; `distkv-node delete PATH --recursive` deletes all at and below PATH"
        ));
    }
}

/// Notes that a path is no pattern if it looks like one, and nothing is there: whoever watches it may wait for ever. A node
/// that does not tell what is there is not asked again.
///
/// # Errors
/// No node was reached, or none lets this command in.
pub(super) async fn note_nothing_to_watch(
    path: &Path,
    remote: &RemoteArgs,
) -> Result<(), CliError> {
    if !path.elements().any(is_pattern) {
        return Ok(());
    }
    let node = remote.connect().await?;
    let looking = async {
        let (action, below) = address_entry(path, "get_tree", "get_tree_internal")?;
        let mut fields = Fields::at(&below);
        fields.u64("nchain", 0);
        let mut stream = node.stream(action, &fields).await?;
        while let Some(event) = node.next(&mut stream).await? {
            if matches!(event, StreamEvent::Item { .. }) {
                return Ok(true);
            }
        }
        Ok::<bool, CliError>(false)
    };
    if let Ok(false) = looking.await {
        let instead = typed::command("watch", &[&above_pattern(path).to_string()], &[]);
        say::note(&format!(
            "nothing is at or below {} now, and {NO_WILDCARDS}: {instead} tells of all at and below that path",
            shown_path(path)
        ));
    }
    Ok(())
}

/// The path above the first element that looks like a pattern: of `site.l*.x` that is `site`, below which all is that may be
/// meant. `site.l` is another entry.
fn above_pattern(path: &Path) -> Path {
    let elements = path.elements().take_while(|element| !is_pattern(*element));
    // A part of a path is one.
    Path::from_elements(elements).unwrap_or_else(|_| Path::root())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_pattern_the_path_above_it_is_kept() {
        for (pattern, before) in [
            ("app*", ":"),
            ("site.l?", "site"),
            ("site.l*.x", "site"),
            ("site:1.*", "site:1"),
            ("site.#", "site"),
            ("*", ":"),
            ("a?b*.c", ":"),
            ("a.?b*.c", "a"),
            ("plain.x", "plain.x"),
        ] {
            let path: Path = pattern.parse().unwrap();
            assert_eq!(above_pattern(&path).to_string(), before, "{pattern}");
        }
    }
}
