//! A word that stands alone where a command takes it as the value of an option: a tip names that option.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::commands;
use crate::cli::terminal::output::shell_word;

/// A command's words, the option that takes what stands alone, and how that looks.
type Row = (&'static [&'static str], &'static str, fn(&str) -> bool);

const OPTIONS: [Row; 8] = [
    (&["undo"], "below", is_any),
    (&["snapshot", "save"], "to", is_any),
    (&["key", "new"], "network", is_any),
    (&["key", "rotate"], "key", is_any),
    (&["type", "set"], "schema", |word| word.starts_with(['{', '"'])),
    (&["user", "ticket"], "to", is_any),
    (&["wait"], "timeout", |word| word.starts_with(|c: char| c.is_ascii_digit())),
    (&["run"], "name", is_any),
];

fn is_any(_: &str) -> bool {
    true
}

/// Puts a tip with the option where a word is one too many that may be its value, and the option is not there yet.
pub(super) fn tip_on_option(error: &mut clap::Error, words: &[&str], program: &Command) {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return;
    };
    let named = commands(program, words);
    let names = named.iter().skip(1).map(|command| command.get_name());
    let row =
        OPTIONS.iter().find(|(of, _, fits)| names.clone().eq(of.iter().copied()) && fits(word));
    let Some((_, option, _)) = row.filter(|_| !word.starts_with('-')) else { return };
    let option = format!("--{option}");
    let is_it = |given: &&str| given.split('=').next() == Some(&option);
    if words.iter().any(is_it) {
        return;
    }
    let typed = shell_word(word);
    let tip = format!("to pass '{word}' as the value of {option}, type `{option} {typed}`");
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_its_option_and_takes_no_further_word() {
        let program = crate::cli::command();
        for (words, option, _) in OPTIONS {
            let words: Vec<&str> = ["distkv-node"].iter().chain(words).copied().collect();
            let command = *commands(&program, &words).last().unwrap();
            assert_eq!(Some(command.get_name()), words.last().copied());
            let has = command.get_opts().any(|known| known.get_long() == Some(option));
            assert!(has || option == "key", "{words:?} --{option}");
        }
    }
}
