//! Words that other programs have for what commands here do. Those that mean just the same are other names of the command
//! (`put`, `rm`, `del`); of the rest, an error says which command is meant, where a guess by spelling would mislead.
//! So it does for a word that begins like an option and is meant as a value.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

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
/// This puts the whole word there. Where the word stands behind an option and is meant as its value, `--` does not help
/// either: the two must be one word.
pub(super) fn name_whole_word(error: &mut clap::Error, args: &[OsString], command: &Command) {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let words: Vec<&str> = args.iter().map_while(|word| word.to_str()).collect();
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let words = words.get(..end).unwrap_or_default();
    let position = match (error.kind(), text(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(named)) => {
            words.iter().skip(1).position(|word| *word == named || is_bundle_with(word, &named))
        }
        // The word is an option, or begins like one.
        (ErrorKind::InvalidValue, Some(named)) => {
            let is_empty = text(ContextKind::InvalidValue).is_some_and(|value| value.is_empty());
            let option = named.split_whitespace().next().filter(|_| is_empty);
            let at = words.iter().position(|word| Some(*word) == option);
            // That of another option is no value that somebody has meant.
            at.filter(|at| words.get(at + 1).is_some_and(|word| !word.starts_with("--")))
        }
        _ => None,
    };
    let Some(position) = position else { return };
    let (before, rest) = words.split_at(position + 1);
    let Some(word) = rest.first().filter(|word| word.len() > 1 && word.starts_with('-')) else {
        return;
    };
    let tip = match before.split_last() {
        Some((option, before)) if takes_value(command, before, option) => {
            format!("to pass '{word}' as the value of {option}, use '{option}={word}'")
        }
        // Of a whole word, the parser knows whether there may be values that are no option's.
        _ if text(ContextKind::InvalidArg).as_deref() == Some(*word) => return,
        _ => format!("to pass '{word}' as a value, use '-- {word}' behind all options"),
    };
    if error.kind() == ErrorKind::UnknownArgument {
        error.insert(ContextKind::InvalidArg, ContextValue::String((*word).to_owned()));
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// Whether a word, like `-dash`, is several letters behind one dash, and the option `named`, like `-d`, is one of them.
fn is_bundle_with(word: &str, named: &str) -> bool {
    let Some(letter) = named.strip_prefix('-').filter(|rest| rest.chars().count() == 1) else {
        return false;
    };
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    letters.is_some_and(|letters| letters.len() > letter.len() && letters.contains(letter))
}

/// Whether an option of the command that these words name (the program first), or of one above it, has a value.
fn takes_value(command: &Command, words: &[&str], option: &str) -> bool {
    let mut commands = vec![command];
    for word in words.iter().skip(1) {
        let last = commands.last().copied();
        commands.extend(last.and_then(|command| command.find_subcommand(word)));
    }
    let is_it = |arg: &Arg| match (option.strip_prefix("--"), option.strip_prefix('-')) {
        (Some(long), _) => {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(long) || aliases.contains(&long)
        }
        (None, Some(letter)) => arg.get_short().is_some_and(|short| letter == short.to_string()),
        (None, None) => false,
    };
    let mut all = commands.iter().flat_map(|command| command.get_opts());
    all.any(|arg| is_it(arg) && arg.get_action().takes_values())
}
