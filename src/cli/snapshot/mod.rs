//! `snapshot`: a network's state as a file: saving, restoring, and looking into it.

pub(super) mod convert;
mod diff;
mod inspect;
pub(super) mod restore;
pub(in crate::cli) mod save;
mod verify;

use clap::{Args, Subcommand};

use super::error::CliError;
use super::remote::RemoteArgs;

/// Save a network's state to a file, inspect it, restore it
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node snapshot save --to monday.dkv        # of a running node
  distkv-node snapshot inspect monday.dkv          # what is in it
  distkv-node snapshot diff monday.dkv friday.dkv  # what has changed
  distkv-node snapshot restore monday.dkv          # add what a network lacks
  distkv-node snapshot convert monday.dkv --format distkv --to monday.bin

Wherever a file is read, it may be a snapshot, a saved state or a change log of the Python \
DistKV, or lines of JSON. `distkv-node snapshot COMMAND --help` has more.")]
pub(super) struct SnapshotArgs {
    #[command(subcommand)]
    what: What,

    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    Save(save::SaveArgs),
    Restore(restore::RestoreArgs),
    Inspect(inspect::InspectArgs),
    Verify(verify::VerifyArgs),
    Diff(diff::DiffArgs),
    Convert(convert::ConvertArgs),
}

pub(super) async fn run(args: SnapshotArgs) -> Result<(), CliError> {
    let SnapshotArgs { what, remote } = args;
    match what {
        What::Save(args) => save::run(&args, &args.remote.clone().or(remote)).await,
        What::Restore(args) => restore::run(&args, &args.remote.clone().or(remote)).await,
        What::Inspect(args) => inspect::run(&args, remote.json || args.json),
        What::Verify(args) => verify::run(&args, remote.json || args.json),
        What::Diff(args) => diff::run(&args, remote.json || args.json),
        What::Convert(args) => convert::run(&args, remote.json || args.json),
    }
}
