//! `log start`, `log stop`: a log beside the node's own, written by the node.

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::remote::RemoteArgs;
use crate::cli::terminal::output::{Output, printable};
use crate::client::Fields;
use crate::protocol::client::Action;

/// What a log is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// An event log of distkv-node: everything, checksummed
    Log,
    /// A change log of the Python DistKV
    Distkv,
}

/// Let a running node log its changes to another file
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node log start audit.dkv  # what changes from now on
  # for the Python DistKV, beginning with all that is there:
  distkv-node log start moving.bin --format distkv --fetch

The node writes the file on its own machine, in the directory of its option --client-files \
and nowhere else. A log that was started before ends. A node with a data directory has a log \
of its own, and does not need this one.

Exit code: 0 the log has begun, 1 failed, 2 usage, 3 refused, 6 no node was reached.")]
pub(super) struct StartArgs {
    /// The file's name, in the directory that the node allows
    #[arg(value_name = "NAME")]
    name: String,

    /// Begin with all that is there
    #[arg(long)]
    fetch: bool,

    /// Replace the file if there is one, and lose what it has
    #[arg(long)]
    force: bool,

    /// What to write
    #[arg(long, value_enum, default_value = "log")]
    format: LogFormat,

    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

/// End the log that `log start` began
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node log stop

The node's own event log, in its data directory, goes on.

Exit code: 0 there is no such log any more, 1 failed (or the log had), 2 usage, 3 refused, 6 no node was reached.")]
pub(super) struct StopArgs {
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

pub(super) async fn start(args: &StartArgs, remote: &RemoteArgs) -> Result<(), CliError> {
    let mut fields = Fields::new();
    fields.str("path", &args.name).bool("fetch", args.fetch).bool("force", args.force);
    if args.format == LogFormat::Distkv {
        fields.str("format", "distkv");
    }
    remote.connect_in_time().await?.request(Action::LogStart.name(), &fields).await?;
    let mut output = Output::new(remote.json);
    output.either(
        || json!({ "file": args.name, "logging": true }),
        || format!("{}: changes are logged there", printable(&args.name)),
    )?;
    output.flush()
}

pub(super) async fn stop(remote: &RemoteArgs) -> Result<(), CliError> {
    let reply =
        remote.connect_in_time().await?.request(Action::LogStop.name(), &Fields::new()).await?;
    let was_logging = reply.bool("result") == Some(true);
    if let Some(why) = reply.str("failed") {
        return Err(CliError::Failure(format!(
            "the log is ended; but it had failed before, and lacks what changed since then: {}",
            printable(why)
        )));
    }
    let mut output = Output::new(remote.json);
    output.either(
        || json!({ "logging": false, "was_logging": was_logging }),
        || match was_logging {
            true => String::from("the log has ended"),
            false => String::from("no log was running"),
        },
    )?;
    output.flush()
}
