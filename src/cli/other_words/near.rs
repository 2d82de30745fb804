//! Which of the parser's guesses by spelling are good enough for a tip. The parser compares which letters two words share, so
//! it takes `--ex` for `--plaintext-login`.

use clap::error::{ContextKind, ContextValue};
use strsim::osa_distance;

/// Options that make a node or a login less secure. Nobody should type one because a tip says so.
pub(super) const WEAKENING: [&str; 9] = [
    "any-network",
    "client-plaintext",
    "http-write",
    "ignore-auth",
    "insecure",
    "plaintext-login",
    "plaintext-peers",
    "remote-restore",
    "with-auth",
];

/// Fewest letters of a beginning that is a tip: `--conn` for `--connect`.
const BEGINNING_MIN: usize = 3;
/// So many letters may have one mistake.
const LETTERS_PER_EDIT: usize = 4;
/// Most mistakes.
const MOST_EDITS: usize = 3;

/// Takes those guesses away that are not really near to what was typed, and those that weaken security.
pub(in crate::cli) fn keep_near(error: &mut clap::Error) {
    for (typed, guesses) in [
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ] {
        let Some(ContextValue::String(typed)) = error.get(typed).cloned() else { continue };
        let is_good = |guess: &String| {
            !WEAKENING.contains(&guess.trim_start_matches('-')) && is_near(&typed, guess)
        };
        match error.remove(guesses) {
            Some(ContextValue::String(guess)) if is_good(&guess) => {
                error.insert(guesses, ContextValue::String(guess));
            }
            Some(ContextValue::Strings(mut all)) => {
                all.retain(is_good);
                if !all.is_empty() {
                    error.insert(guesses, ContextValue::Strings(all));
                }
            }
            _ => {}
        }
    }
}

/// Whether one may have been typed for the other: it is its beginning, or has a mistake in every four letters at most.
fn is_near(typed: &str, meant: &str) -> bool {
    let [typed, meant] = [typed, meant].map(|word| word.trim_start_matches('-'));
    let letters = typed.chars().count();
    if letters < BEGINNING_MIN {
        return false;
    }
    let edits_max = (letters / LETTERS_PER_EDIT).clamp(1, MOST_EDITS);
    // Two letters that are exchanged are one mistake.
    meant.starts_with(typed) || osa_distance(typed, meant) <= edits_max
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    #[test]
    fn near_is_a_slip_of_the_finger_and_a_beginning() {
        for (typed, meant) in [
            ("memberz", "members"),
            ("jsnl", "jsonl"),
            ("--if-nw", "--if-new"),
            ("--conn", "--connect"),
            ("statsu", "status"),
            ("teh", "the"),
            ("gett", "get"),
            ("--secrt-fle", "--secret-file"),
        ] {
            assert!(is_near(typed, meant), "{typed} {meant}");
        }
        for (typed, meant) in [
            ("--ex", "--plaintext-login"),
            ("--keys-only", "--key"),
            ("lock", "log"),
            ("endpoint", "undo"),
            ("exists", "edit"),
            ("export", "import"),
            ("quit", "put"),
            ("--consistency", "--connect"),
            ("l", "ls"),
            ("", ""),
            ("é", "log"),
        ] {
            assert!(!is_near(typed, meant), "{typed} {meant}");
        }
    }

    #[test]
    fn what_weakens_security_are_options_that_there_are() {
        fn has(command: &Command, long: &str) -> bool {
            command.get_opts().any(|arg| arg.get_long() == Some(long))
                || command.get_arguments().any(|arg| arg.get_long() == Some(long))
                || command.get_subcommands().any(|command| has(command, long))
        }
        let program = crate::cli::command();
        for option in WEAKENING {
            assert!(has(&program, option), "{option}");
        }
    }
}
