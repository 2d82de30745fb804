//! `match`: where which type must be obeyed.

use clap::{Args, Subcommand};

use super::{connect, delete, done, list, parse_below, set};
use crate::cli::error::CliError;
use crate::cli::remote::RemoteArgs;
use crate::cli::terminal::output::{Output, text_of};
use crate::client::Message;
use crate::model::path::Path;
use crate::model::value::write::{write_map_len, write_str};

/// Print which entries must have which type, or change that
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node match set 'lamps.+.level' percent  # every lamp's level
  distkv-node match set 'sensors.#' number       # all below sensors
  distkv-node match                              # all patterns
  distkv-node match delete 'lamps.+.level'

In a pattern, + stands for one element and # for one or more. If several patterns match, \
exact elements come before +, and + before #.

Exit code: 0 done, 1 failed, 2 usage, 3 refused (the text says why), 6 no \
node was reached, 7 it may have been done, 8 the list cannot be written.")]
pub(in crate::cli) struct MatchArgs {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Print all patterns; the same as `match` alone
    List(ListArgs),
    /// Ask for a type where a pattern matches
    Set(SetArgs),
    /// Remove a pattern
    Delete(DeleteArgs),
}

#[derive(Debug, Clone, Args)]
struct ListArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Debug, Clone, Args)]
struct SetArgs {
    /// The pattern of paths
    #[arg(value_parser = parse_below)]
    pattern: Path,

    /// The type's name
    #[arg(value_name = "TYPE", value_parser = parse_below)]
    name: Path,

    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Debug, Clone, Args)]
struct DeleteArgs {
    /// The pattern of paths
    #[arg(value_parser = parse_below)]
    pattern: Path,

    #[command(flatten)]
    remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: MatchArgs) -> Result<(), CliError> {
    let before = args.remote;
    let what = args.what.unwrap_or(What::List(ListArgs { remote: RemoteArgs::default() }));
    match what {
        What::List(args) => {
            let (remote, output) = connect(args.remote, before, Output::of_read).await?;
            let shown = |value: &Message| value.get("type").map(text_of).unwrap_or_default();
            list(&remote, ("match", "pattern"), ["PATTERN", "TYPE"], shown, output).await
        }
        What::Set(args) => {
            let (remote, output) = connect(args.remote, before, Output::new).await?;
            let mut record = Vec::new();
            write_map_len(1, &mut record);
            write_str("type", &mut record);
            args.name.encode_ext3(&mut record);
            set(&remote, "match", &args.pattern, &record).await?;
            done(output, "pattern", &args.pattern, "set")
        }
        What::Delete(args) => {
            let (remote, output) = connect(args.remote, before, Output::new).await?;
            delete(&remote, "match", "pattern", &args.pattern).await?;
            done(output, "pattern", &args.pattern, "deleted")
        }
    }
}
