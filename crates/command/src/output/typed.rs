//! The options about the node as they were typed: commands that are printed repeat them, since who types such a command means
//! the same node. What the environment says holds for the next command, too, and is not repeated.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use clap::ArgMatches;
use clap::parser::ValueSource;

use distkv_model::path::Path as DataPath;

use super::{shell_file, shell_word};
use crate::error::{looks_secret, without_secrets};
use crate::given;

/// What was typed. One process runs one command.
static TYPED: OnceLock<Typed> = OnceLock::new();

/// What an option's value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Anybody may see it.
    Word,
    /// It names a file.
    File,
    /// It is a secret, or names a file with one behind an `@`.
    Ticket,
    /// There is none.
    Flag,
}

/// The options' names in the program and on the command line.
const OPTIONS: [(&str, &str, Kind); 9] = [
    ("connect", "--connect", Kind::Word),
    ("ticket", "--ticket", Kind::Ticket),
    ("key", "--key", Kind::File),
    ("node_ca", "--node-ca", Kind::File),
    ("as_user", "--user", Kind::Word),
    ("login_by", "--login", Kind::Word),
    ("secret_file", "--secret-file", Kind::File),
    ("secret_env", "--secret-env", Kind::Word),
    ("plaintext_login", "--plaintext-login", Kind::Flag),
];
/// Those that say who logs in. With a ticket or a key a user can be named, too, who counts more.
const LOGIN: [&str; 4] = ["--user", "--login", "--secret-file", "--secret-env"];
/// Of these, what stands behind the command counts alone.
const SECRETS: [&str; 2] = ["secret_file", "secret_env"];

#[derive(Default, Debug, PartialEq, Eq)]
struct Typed {
    /// Each with its value, as a shell takes them.
    words: Vec<String>,
    /// Names of options whose values are not repeated.
    left_out: Vec<&'static str>,
    /// The command has an option for a user's new secret.
    takes_new_secret: bool,
    /// Words that look like a secret, wherever they were typed but in place of a path: an element of a path is often a hash.
    secrets: Vec<String>,
}

/// The option for a user's new secret, in the program.
const NEW_SECRET: &str = "new_secret_file";

/// Remembers what was typed.
pub fn note(matches: &ArgMatches) {
    // It is the first that counts.
    let _ = TYPED.set(Typed::of(matches));
}

/// Whether the command that was typed has an option for a user's new secret: `--new-secret-file`.
#[must_use]
pub(crate) fn takes_new_secret() -> bool {
    TYPED.get().is_some_and(|typed| typed.takes_new_secret)
}

/// What a node says, without the secrets that were typed in place of a name, which it repeats. What else looks like a secret
/// stays: it tells of values and paths.
#[must_use]
pub(crate) fn without_typed_secrets(text: String) -> String {
    match TYPED.get() {
        Some(typed) => typed.without_secrets(text),
        None => text,
    }
}

/// A command that may be typed as it is printed, in backticks, for the node that this one is about: `words` are its name,
/// `operands` and `options` are not quoted yet. Where an option cannot be repeated (a ticket is a secret, standard input is
/// read by now), it is named behind it.
#[must_use]
pub fn command(words: &str, operands: &[&str], options: &[&str]) -> String {
    let nothing = Typed::default();
    TYPED.get().unwrap_or(&nothing).command(words, operands, options, "")
}

/// The same for another login than was typed, if one was: `login` are its options, not quoted yet.
#[must_use]
pub fn command_as(login: &[&str], words: &str, operands: &[&str]) -> String {
    let others = TYPED.get().map(|typed| typed.without(&LOGIN)).unwrap_or_default();
    others.command(words, operands, login, "")
}

/// The same for somebody else to type: nothing of what was typed is repeated.
#[must_use]
pub(crate) fn command_of_others(words: &str, operands: &[&str]) -> String {
    Typed::default().command(words, operands, &[], "")
}

/// The same for another node than was typed, if one was.
#[must_use]
pub fn command_at(node: &str, words: &str, operands: &[&str], options: &[&str]) -> String {
    let others = TYPED.get().map(|typed| typed.without(&["--connect"])).unwrap_or_default();
    others.command(words, operands, &[options, &["--connect", node]].concat(), "")
}

/// The same, with a file as its standard input.
#[must_use]
pub fn command_from(words: &str, operands: &[&str], options: &[&str], file: &Path) -> String {
    let nothing = Typed::default();
    let input = format!(" < {}", shell_file(file));
    TYPED.get().unwrap_or(&nothing).command(words, operands, options, &input)
}

impl Typed {
    fn of(matches: &ArgMatches) -> Self {
        let mut levels = vec![matches];
        while let Some((_, below)) = levels.last().and_then(|last| last.subcommand()) {
            levels.push(below);
        }
        let takes_new_secret =
            levels.last().is_some_and(|command| command.try_get_raw(NEW_SECRET).is_ok());
        let secrets = levels.iter().flat_map(|level| secrets_in(level)).collect();
        let mut typed = Self { takes_new_secret, secrets, ..Self::default() };
        for (id, option, kind) in OPTIONS {
            // Options may stand before a command, and behind it, where they count more.
            let ids: &[&str] = if SECRETS.contains(&id) { &SECRETS } else { &[id] };
            let says = |level: &&&ArgMatches| ids.iter().any(|id| is_typed(level, id));
            let level = levels.iter().rev().find(says);
            if let Some(level) = level.filter(|level| is_typed(level, id)) {
                typed.add(level, id, option, kind);
            }
        }
        typed
    }

    fn add(&mut self, level: &ArgMatches, id: &str, option: &'static str, kind: Kind) {
        if kind == Kind::Flag {
            return self.words.push(option.to_owned());
        }
        let values = level.try_get_raw(id).ok().flatten().into_iter().flatten();
        // What is no text cannot be printed.
        let values: Option<Vec<&str>> = values.map(OsStr::to_str).collect();
        let value = values.map(|values| values.join(",")).filter(|value| match kind {
            Kind::Word | Kind::Flag => true,
            Kind::File => given::can_be_read_again(Path::new(value)),
            Kind::Ticket => {
                let file = value.strip_prefix('@');
                file.is_some_and(|file| given::can_be_read_again(Path::new(file)))
            }
        });
        match value {
            None => self.left_out.push(option),
            Some(value) if value.starts_with('-') => {
                self.words.push(format!("{option}={}", shell_word(&value)));
            }
            Some(value) => self.words.push(format!("{option} {}", shell_word(&value))),
        }
    }

    fn without_secrets(&self, text: String) -> String {
        self.secrets.iter().fold(text, |text, secret| {
            let hidden = without_secrets(secret.trim());
            // Many names are told in quotes, with the escapes of a string.
            [secret.clone(), secret.escape_debug().to_string()]
                .iter()
                .fold(text, |text, form| text.replace(form, &hidden))
        })
    }

    fn without(&self, options: &[&str]) -> Self {
        let is_one = |word: &str| {
            let option = word.split([' ', '=']).next().unwrap_or_default();
            options.contains(&option)
        };
        let words = self.words.iter().filter(|word| !is_one(word)).cloned().collect();
        let left_out = self.left_out.iter().copied().filter(|option| !is_one(option)).collect();
        Self { words, left_out, ..Self::default() }
    }

    fn command(&self, words: &str, operands: &[&str], options: &[&str], input: &str) -> String {
        let quoted = |words: &[&str]| words.iter().map(|word| shell_word(word)).collect::<Vec<_>>();
        let options = [quoted(options), self.words.clone()].concat();
        let is_like_option = |operand: &&str| operand.len() > 1 && operand.starts_with('-');
        let arguments = if operands.iter().any(is_like_option) {
            [options, vec![String::from("--")], quoted(operands)].concat()
        } else {
            [quoted(operands), options].concat()
        };
        let all = [vec![format!("distkv-node {words}")], arguments].concat().join(" ");
        match &self.left_out[..] {
            [] => format!("`{all}{input}`"),
            left_out => format!("`{all}{input}` with the same {}", left_out.join(" and ")),
        }
    }
}

/// The words of one level that look like a secret, and are no path.
fn secrets_in(level: &ArgMatches) -> impl Iterator<Item = String> {
    let is_path = |id: &str| level.try_get_many::<DataPath>(id).is_ok_and(|paths| paths.is_some());
    let ids = level.ids().map(clap::Id::as_str).filter(move |id| !is_path(id));
    let words = ids.filter_map(|id| level.try_get_raw(id).ok().flatten()).flatten();
    words.filter_map(OsStr::to_str).filter(|word| looks_secret(word)).map(str::to_owned)
}

fn is_typed(level: &ArgMatches, id: &str) -> bool {
    // An option that the command does not have must not be asked for its source.
    level.try_get_raw(id).is_ok() && level.value_source(id) == Some(ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser, Subcommand};

    use super::*;
    use crate::remote::RemoteArgs;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        command: What,
        #[command(flatten)]
        before: RemoteArgs,
    }

    #[derive(Subcommand)]
    enum What {
        Get {
            #[command(flatten)]
            remote: RemoteArgs,
        },
    }

    fn typed(words: &[&str]) -> Typed {
        let all = [&["distkv-node"], words].concat();
        Typed::of(&Cli::command().try_get_matches_from(all).unwrap())
    }

    #[test]
    fn options_are_repeated_as_they_were_typed_and_those_behind_the_command_count_more() {
        let file = tempfile::Builder::new().suffix(" it's").tempfile().unwrap();
        let file = file.path().to_str().unwrap();
        let repeated = |words: &[&str]| typed(words).command("get", &["a"], &[], "");
        assert_eq!(repeated(&["get", "--json", "--timeout", "1s"]), "`distkv-node get a`");
        assert_eq!(
            repeated(&["--connect", "n1,[::1]:2", "get", "--key", file]),
            format!("`distkv-node get a --connect 'n1,[::1]:2' --key {}`", shell_word(file))
        );
        assert_eq!(
            repeated(&["--connect", "n1", "get", "--connect", "n2", "--plaintext-login"]),
            "`distkv-node get a --connect n2 --plaintext-login`"
        );
        let before = ["--user", "joe", "--secret-file", file, "get", "--secret-env", "OWN"];
        assert_eq!(repeated(&before), "`distkv-node get a --user joe --secret-env OWN`");
        assert_eq!(repeated(&["get", "--user=-j"]), "`distkv-node get a --user=-j`");
    }

    #[test]
    fn no_secret_is_repeated_and_nothing_that_cannot_be_read_again() {
        let repeated = |words: &[&str]| typed(words).command("get", &["a"], &[], "");
        let left_out = "`distkv-node get a` with the same --ticket";
        for ticket in ["dkt1geheim", "@-", "@/dev/stdin"] {
            assert_eq!(repeated(&["get", "--ticket", ticket]), left_out);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let ticket = format!("@{}", file.path().display());
        let with_file = format!("`distkv-node get a --ticket {}`", shell_word(&ticket));
        assert_eq!(repeated(&["get", "--ticket", &ticket]), with_file);
        assert_eq!(
            repeated(&["get", "--user", "joe", "--secret-file", "-"]),
            "`distkv-node get a --user joe` with the same --secret-file"
        );
    }

    #[test]
    fn for_another_login_the_node_and_how_it_is_known_are_repeated_and_who_logged_in_is_not() {
        let words =
            ["get", "--connect", "n1", "--user=-j", "--login", "token", "--secret-file", "-"];
        let as_joe = typed(&words).without(&LOGIN).command("whoami", &[], &["--user", "joe"], "");
        assert_eq!(as_joe, "`distkv-node whoami --user joe --connect n1`");
    }

    #[test]
    fn a_path_like_an_option_stands_behind_two_dashes() {
        let typed = typed(&["get", "--connect", "n1", "--user", "joe"]);
        let elsewhere = typed.without(&["--connect"]).command("get", &["a"], &[], "");
        assert_eq!(elsewhere, "`distkv-node get a --user joe`");
        let command = typed.command("set", &["-x", "-"], &["-r"], "");
        assert_eq!(command, "`distkv-node set -r --connect n1 --user joe -- -x -`");
    }
}
