//! `completions`: what a shell needs to complete this program's command lines.

use clap::{Args, CommandFactory as _};
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

Exit code: 0 done, 2 usage.")]
pub(in crate::cli) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(in crate::cli) fn run(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    generate(args.shell, &mut command, &name, &mut text);
    if args.shell == Shell::Bash {
        text = with_one_spelling(&String::from_utf8_lossy(&text), &name).into_bytes();
    }
    let mut output = Output::new(false);
    output.bytes(&text)?;
    output.flush()
}

/// The generator for bash spells a program's name that has a dash in two ways: where it finds out which command was typed,
/// and where it tells what that command takes. Then nothing behind the first word is completed.
fn with_one_spelling(text: &str, name: &str) -> String {
    text.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__"))
}
