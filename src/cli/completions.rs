//! `completions`: what a shell needs to complete this program's command lines.

mod positionals;

use std::collections::BTreeSet;

use clap::{Arg, Args, Command, CommandFactory as _, ValueHint};
use clap_complete::{Shell, generate};

use super::Cli;
use super::error::CliError;
use super::terminal::output::Output;

/// Print completions for a shell
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node completions bash > distkv-node.bash
  distkv-node completions zsh > _distkv-node
  distkv-node completions fish > distkv-node.fish
  distkv-node completions powershell > distkv-node.ps1

bash reads them from /etc/bash_completion.d or ~/.local/share/bash-completion/completions, zsh from a \
folder of $fpath, fish from ~/.config/fish/completions; PowerShell runs the file from $PROFILE.

Exit code: 0 done, 2 usage, 8 it cannot be written.")]
pub(in crate::cli) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(in crate::cli) fn run(args: &CompletionsArgs) -> Result<(), CliError> {
    let command = Cli::command();
    let mut command = match args.shell {
        Shell::Bash => with_named_files(command),
        _ => without_files_elsewhere(command),
    };
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    generate(args.shell, &mut command, &name, &mut text);
    let text = match args.shell {
        Shell::Bash => {
            let text = with_one_spelling(&String::from_utf8_lossy(&text), &name);
            let text = positionals::offer_in_bash(&text, &command, &name);
            files_where_meant(&text).into_bytes()
        }
        Shell::Fish => {
            let text = String::from_utf8_lossy(&text);
            positionals::offer_in_fish(&text, &command, &name).into_bytes()
        }
        Shell::Zsh => {
            with_whole_value_names(&String::from_utf8_lossy(&text), &command).into_bytes()
        }
        _ => text,
    };
    let mut output = Output::of_read(false);
    output.bytes(&text)?;
    output.flush()
}

/// The generator for bash spells a program's name that has a dash in two ways: where it finds out which command was typed,
/// and where it tells what that command takes. Then nothing behind the first word is completed.
fn with_one_spelling(text: &str, name: &str) -> String {
    text.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__"))
}

/// To bash, the generator says only of an option for a file that its value names one. Without that, a directory gets a space
/// behind it instead of a slash, and a name with a space in it becomes two words. What bash then completes are files and
/// directories, so this suits options for either.
fn with_named_files(command: Command) -> Command {
    let named = |arg: Arg| match arg.get_value_hint() {
        ValueHint::AnyPath => arg.value_hint(ValueHint::FilePath),
        _ => arg,
    };
    command.mut_args(named).mut_subcommands(with_named_files)
}

/// Where a path of an entry, a name, an address or a number is meant, shells offer names of files unless they are told that these
/// are something else. Not for bash: its generator would have the word that was begun complete itself.
fn without_files_elsewhere(command: Command) -> Command {
    let told = |arg: Arg| match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() && !has_words(&arg) => {
            arg.value_hint(ValueHint::Other)
        }
        _ => arg,
    };
    command.mut_args(told).mut_subcommands(without_files_elsewhere)
}

/// Whether it is one of a few words.
fn has_words(arg: &Arg) -> bool {
    !arg.get_possible_values().is_empty()
}

/// Where the script for bash has nothing to offer, bash completes names of files itself, also where a path of an entry is meant.
/// This allows it only where files are: it does more with their names (`$HOME/…`) than the script. Before version 4, bash
/// cannot be told.
fn files_where_meant(text: &str) -> String {
    const BEGIN: &str = "    local i cur prev opts cmd\n";
    // So the generator completes values of options of which it knows nothing.
    const UNKNOWN: &str = ")\n                    COMPREPLY=($(compgen -f \"${cur}\"))\n";
    let no_files = format!("{BEGIN}    {}\n", positionals::in_bash_4("+o bashdefault +o default"));
    text.replacen(BEGIN, &no_files, 1)
        .replace(UNKNOWN, ")\n                    COMPREPLY=()\n")
        .replace("compopt -o filenames", "compopt -o filenames -o bashdefault -o default")
        .replace("compopt -o plusdirs", "compopt -o plusdirs -o bashdefault -o default")
}

/// The generator for zsh does not escape a colon in the name of an option's value, such as ADDR:PORT. To zsh it begins another
/// value: then the command behind the first one is not completed.
fn with_whole_value_names(text: &str, command: &Command) -> String {
    let mut names = BTreeSet::new();
    add_value_names(command, &mut names);
    let with_colon = names.iter().filter(|name| name.contains(':'));
    with_colon.fold(text.to_owned(), |text, name| {
        text.replace(&format!(":{name}:"), &format!(":{}:", name.replace(':', "\\:")))
    })
}

fn add_value_names<'c>(command: &'c Command, names: &mut BTreeSet<&'c str>) {
    let all = command.get_opts().filter_map(Arg::get_value_names).flatten();
    names.extend(all.map(|name| name.as_str()));
    command.get_subcommands().for_each(|below| add_value_names(below, names));
}
