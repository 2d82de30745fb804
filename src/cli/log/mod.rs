//! `log`: what happened, change by change: looking into event logs, making a state of them, and
//! beginning and ending one at a running node.

mod changes;
mod control;
mod follow;
mod inspect;
mod replay;

use clap::{Args, Subcommand};

use super::error::CliError;
use super::remote::RemoteArgs;

/// Read event logs, restore a past state from them, start and stop one
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node log follow /var/lib/distkv     # changes, as they are logged
  distkv-node log inspect /var/lib/distkv/log-7.dkv --changes
  distkv-node log replay /var/lib/distkv --until-tock 4711 --to then.dkv
  distkv-node log start audit.dkv            # another log at a running node

A node with a data directory logs all changes there by itself. `distkv-node log COMMAND \
--help` has more.")]
pub(super) struct LogArgs {
    #[command(subcommand)]
    what: What,

    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    Start(control::StartArgs),
    Stop(control::StopArgs),
    Replay(replay::ReplayArgs),
    Inspect(inspect::InspectArgs),
    Follow(follow::FollowArgs),
}

pub(super) async fn run(args: LogArgs) -> Result<(), CliError> {
    let LogArgs { what, remote } = args;
    match what {
        What::Start(args) => control::start(&args, &args.remote.clone().or(remote)).await,
        What::Stop(args) => control::stop(&args.remote.or(remote)).await,
        What::Replay(args) => replay::run(args, remote.json),
        What::Inspect(args) => inspect::run(&args, remote.json || args.json),
        What::Follow(args) => follow::run(&args, remote.json || args.json).await,
    }
}
