//! Words that other programs have for what commands and options here do. Those that mean just the same are other names of the
//! command (`put`, `rm`, `del`); of the rest, an error says what is meant (`commands`, `options`), where a guess by spelling
//! would mislead; so it does of words below a command that is here, too (`below`). Of other guesses, those stay that are really
//! near (`near`). Several words where one path is wanted get a tip on paths (`several`), and a word that stands alone where it is an
//! option's value gets one on that option (`unnamed`). A word that begins like an option and is meant as a value is named as a
//! whole.

mod below;
mod commands;
mod near;
mod options;
mod several;
mod unnamed;

use std::ffi::OsString;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

pub(in crate::cli) use near::keep_near;

/// What lists entries.
pub(super) const LIST: &str =
    "`distkv-node ls` lists what is directly below a path, `distkv-node tree` all below it";
/// What connects to a node.
const ADDRESS: &str = "`--connect ADDR:PORT` says which node, or which, separated by commas";
/// What sets entries only where nothing is.
const IF_NEW: &str = "`--if-new`: only if nothing is there";
/// What counts them.
const COUNT: &str = "`distkv-node tree PATH --json | wc -l` counts the entries at and below a path; `distkv-node status` has the \
    number of all";
/// What there is in place of a time to live.
const NO_EXPIRY: &str = "entries do not expire, they stay until they are deleted; docs/coming-from.md says what to do instead";
/// What there is for changes that nobody else may have overtaken.
const CONDITION: &str = "`--if-value JSON` changes an entry only if that is its value, `--chain EVENT` only if that is its newest \
    event, as `get --chain` shows it";

/// What the error says instead, where somebody has typed a command or an option of another program.
pub(super) fn advice(error: &clap::Error, args: &[OsString], program: &Command) -> Option<String> {
    advice_on_command(error, args, program).or_else(|| advice_on_option(error, args, program))
}

fn advice_on_option(error: &clap::Error, args: &[OsString], program: &Command) -> Option<String> {
    let named = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(named))) => named,
        _ => return None,
    };
    let words: Vec<&str> = args.iter().map_while(|word| word.to_str()).collect();
    let command = *commands(program, &words).last()?;
    let named = named.split('=').next().unwrap_or(named);
    let instead = options::instead_of(command, named)?;
    Some(format!("there is no option {named}: {instead}"))
}

/// What to type instead of a command that there is not, if it is one of those words.
fn advice_on_command(error: &clap::Error, args: &[OsString], program: &Command) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    // Below another command the word means something else; the usage has that command's name.
    let usage = error.get(ContextKind::Usage)?.to_string();
    let is_first = usage.split_whitespace().nth(2).is_some_and(|word| word.starts_with('['));
    if is_first {
        let instead = commands::instead_of(word)?;
        return Some(format!("there is no command {word}: {instead}"));
    }
    let words = args.iter().map_while(|word| word.to_str());
    let words: Vec<&str> = words.take_while(|before| before != word).collect();
    let above = commands(program, &words).last()?.get_name();
    let instead = below::instead_of(above, word)?;
    Some(format!("there is no command {above} {word}: {instead}"))
}

/// Of a word like `-dash`, the parser names its first letter that is no option, and a tip with that letter does not work.
/// This puts the whole word there. Where the word stands behind an option and is meant as its value, `--` does not help
/// either: the two must be one word.
pub(super) fn name_whole_word(error: &mut clap::Error, args: &[OsString], command: &Command) {
    drop_unlikely_tip(error);
    let words: Vec<&str> = args.iter().map_while(|word| word.to_str()).collect();
    several::tip_on_path(error, &words, command);
    unnamed::tip_on_option(error, &words, command);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
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
        // An option of that name is no file.
        _ if !word.starts_with("--") && takes_file(command, words) => {
            format!("to name the file '{word}', type './{word}'")
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

/// Of an option that there is not, the parser says how to pass it as a value. Hardly anybody means a path or a name like that.
fn drop_unlikely_tip(error: &mut clap::Error) {
    let is_long = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(named)) => named.starts_with("--"),
        _ => false,
    };
    if error.kind() == ErrorKind::UnknownArgument && is_long && !lacks_value(error) {
        error.remove(ContextKind::Suggested);
    }
}

/// Whether the command takes an entry's value, which may be any text, and none is there yet: the usage has it in brackets.
fn lacks_value(error: &clap::Error) -> bool {
    error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains(" [VALUE]"))
}

/// Whether the command that these words name takes names of files that are no option's value.
fn takes_file(program: &Command, words: &[&str]) -> bool {
    let file = ValueParser::path_buf().type_id();
    let is_file = |arg: &Arg| arg.get_value_parser().type_id() == file;
    commands(program, words).last().is_some_and(|last| last.get_positionals().any(is_file))
}

/// Whether a word, like `-dash`, is several letters behind one dash, and the option `named`, like `-d`, is one of them.
fn is_bundle_with(word: &str, named: &str) -> bool {
    let Some(letter) = named.strip_prefix('-').filter(|rest| rest.chars().count() == 1) else {
        return false;
    };
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    letters.is_some_and(|letters| letters.len() > letter.len() && letters.contains(letter))
}

/// The commands that these words name (the program first), each below the one before it.
fn commands<'c>(program: &'c Command, words: &[&str]) -> Vec<&'c Command> {
    let mut commands = vec![program];
    for word in words.iter().skip(1) {
        let last = commands.last().copied();
        commands.extend(last.and_then(|command| command.find_subcommand(word)));
    }
    commands
}

/// Whether an option of the command that these words name (the program first), or of one above it, has a value.
fn takes_value(command: &Command, words: &[&str], option: &str) -> bool {
    let commands = commands(command, words);
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
