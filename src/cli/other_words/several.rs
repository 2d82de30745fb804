//! Several words where a command takes one path: several keys, as other stores take them, or one key in several words.

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use super::commands;
use crate::cli::remote::parse_path;
use crate::cli::terminal::output::{printable_path, shown_path};
use crate::model::path::Path;

/// A path, for who has typed none that could be meant.
const EXAMPLE: &str = "a.b";

/// Puts a tip on how paths are written where a word behind a path is one too many.
pub(super) fn tip_on_path(error: &mut clap::Error, words: &[&str], program: &Command) {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(second))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return;
    };
    let named = commands(program, words);
    let Some(command) = named.last().copied() else { return };
    if second.starts_with('-') || !takes_one_path(command) {
        return;
    }
    let names: Vec<&str> = named.iter().skip(1).map(|command| command.get_name()).collect();
    let meant = meant(words, second, command);
    let tip = format!(
        "`{}` takes one path, whose elements are joined by dots: '{}'",
        names.join(" "),
        meant.as_deref().unwrap_or(EXAMPLE)
    );
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// Whether all that a command takes besides options is one path.
fn takes_one_path(command: &Command) -> bool {
    let path = ValueParser::new(parse_path).type_id();
    let mut positionals = command.get_positionals();
    let is_path = |arg: &Arg| arg.get_value_parser().type_id() == path;
    positionals.next().is_some_and(is_path) && positionals.next().is_none()
}

/// The path that the words make when they are joined: `second`, the one before it, and those behind it up to the next option.
fn meant(words: &[&str], second: &str, command: &Command) -> Option<String> {
    let is_option = |word: &&str| word.starts_with('-');
    let at = words.iter().skip(1).position(|word| *word == second)? + 1;
    let (before, behind) = words.split_at(at);
    let (first, before) = before.split_last()?;
    // Behind an option it may be that one's value, and the path may stand elsewhere.
    let is_command = |word: &str| {
        command.get_name() == word || command.get_all_aliases().any(|alias| alias == word)
    };
    if is_option(first) || is_command(first) || before.last().is_some_and(is_option) {
        return None;
    }
    let rest = behind.iter().take_while(|word| !is_option(word));
    let text = rest.fold((*first).to_owned(), |text, word| match word.starts_with([':', '.']) {
        true => text + word,
        false => text + "." + word,
    });
    let path: Path = text.parse().ok()?;
    Some(shown_path(&path)).filter(|shown| *printable_path(&text) == **shown)
}
