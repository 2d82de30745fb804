//! `delete`: one entry, or all below it.

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::output::Output;
use super::remote::{RemoteArgs, RequestKind, address_entry, parse_path};
use super::set::{ConditionArgs, CopiesArgs, change_json, change_text};
use crate::client::Fields;
use crate::model::path::Path;

/// Delete an entry, or with --recursive all below it too
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node delete site.lamp
  distkv-node delete site.lamp --if-value '{\"on\": false}'
  distkv-node delete site --recursive

Exit code: 0 it is gone (or was not there), 1 refused or the node cannot be asked, 2 usage.")]
pub(super) struct DeleteArgs {
    /// The entry's path, like a.b:1.c
    #[arg(value_parser = parse_path)]
    path: Path,

    /// Delete all below it too
    #[arg(short, long, conflicts_with_all = ["chain", "if_new", "if_value", "copies"])]
    recursive: bool,

    #[command(flatten)]
    copies: CopiesArgs,

    #[command(flatten)]
    condition: ConditionArgs,

    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

pub(super) async fn run(args: DeleteArgs) -> Result<(), CliError> {
    let path = args.path.to_string();
    let mut output = Output::new(args.remote.json);
    if args.recursive {
        let (reach, fields) = (args.remote.reach().await?, Fields::at(&args.path));
        let kind = RequestKind::WriteOnce;
        let reply = reach.request("delete_tree", fields, &args.path, kind).await?;
        let count = reply.u64("changed").unwrap_or(0);
        output.either(
            || json!({"path": path, "changed": count}),
            || format!("{path}: {count} deleted"),
        )?;
        return output.flush();
    }
    let (action, below) = address_entry(&args.path, "delete_value", "delete_internal")?;
    let mut fields = Fields::at(&below);
    fields.u64("nchain", 1);
    args.condition.add_to(&mut fields);
    args.copies.add_to(&args.remote, &mut fields);
    let reach = args.copies.reach(&args.remote).await?;
    let reply = reach.request(action, fields, &args.path, RequestKind::Write).await?;
    let text = || match reply.bool("changed") {
        Some(false) => format!("{path}: nothing was there"),
        Some(true) | None => change_text(&path, "deleted", &reply),
    };
    output.either(|| change_json(&path, &reply), text)?;
    output.flush()
}
