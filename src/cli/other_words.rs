//! Words that other programs have for what commands here do. Those that mean just the same are other names of the command
//! (`put`, `rm`, `del`); of the rest, an error says which command is meant, where a guess by spelling would mislead.

use clap::error::{ContextKind, ContextValue};

/// What lists entries.
const LIST: &str =
    "`distkv-node ls` lists what is directly below a path, `distkv-node tree` all below it";
/// What saves the state.
const SAVE: &str = "`distkv-node snapshot save --to FILE` saves the whole state";
/// What takes it back.
const RESTORE: &str = "`distkv-node snapshot restore FILE` takes a saved state back";

/// Each word with what to type instead.
const WORDS: [(&str, &str); 8] = [
    ("keys", LIST),
    ("list", LIST),
    ("scan", LIST),
    ("backup", SAVE),
    ("dump", SAVE),
    ("save", SAVE),
    ("load", RESTORE),
    ("restore", RESTORE),
];

/// What to type instead of a command that there is not, if it is one of those words.
pub(super) fn advice(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    // Below another command the word means something else; the usage has that command's name.
    let usage = error.get(ContextKind::Usage)?.to_string();
    let is_first = usage.split_whitespace().nth(2).is_some_and(|word| word.starts_with('['));
    let (_, instead) = WORDS.iter().find(|(other, _)| other == word).filter(|_| is_first)?;
    Some(format!("there is no command {word}: {instead}"))
}
