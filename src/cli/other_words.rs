//! Words that other programs have for what commands here do. Those that mean just the same are other names of the command
//! (`put`, `rm`, `del`); of the rest, an error says which command is meant, where a guess by spelling would mislead.
//! So it does for a word that begins like an option and is meant as a value.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

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

/// Of a word like `-dash`, the parser names its first letter that is no option, and a tip with that letter does not work.
/// This puts the whole word there.
pub(super) fn name_whole_word(error: &mut clap::Error, args: &[OsString]) {
    let Some(ContextValue::String(named)) = error.get(ContextKind::InvalidArg) else { return };
    let letter = named.strip_prefix('-').filter(|rest| rest.chars().count() == 1);
    let Some(letter) = letter.filter(|_| error.kind() == ErrorKind::UnknownArgument) else {
        return;
    };
    let is_it = |word: &&str| {
        let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        letters.is_some_and(|letters| letters.len() > letter.len() && letters.contains(letter))
    };
    let words = args.iter().skip(1).take_while(|word| *word != "--");
    let Some(word) = words.filter_map(|word| word.to_str()).find(is_it) else { return };
    let tip = format!("to pass '{word}' as a value, use '-- {word}' behind all options");
    error.insert(ContextKind::InvalidArg, ContextValue::String(word.to_owned()));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}
