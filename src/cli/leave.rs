//! `leave`: a node goes away.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::output::Output;
use super::remote::RemoteArgs;
use crate::client::Fields;
use crate::rt;

/// How long a node may take to go unless told otherwise: more than the 3 s for its goodbye and the
/// 10 s for its disk.
const GOING_MAX: Duration = Duration::from_secs(15);

/// Make a node leave its network and end
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node leave --connect 127.0.0.1:27596

The other nodes are told at once and do not look for it. SIGTERM does the same. The command \
returns when the node has ended: its ports and its data directory are free. If some of its \
changes are on no other node, it waits for its peers for a moment, and its log says how many \
are left.

Exit code: 0 it has left, 1 it refuses, cannot be asked, or is still there after --timeout \
(default here: 15s), 2 usage.")]
pub(super) struct LeaveArgs {
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

pub(super) async fn run(args: LeaveArgs) -> Result<(), CliError> {
    let remote = args.remote.connect().await?;
    let node = remote.connection.greeting().node.clone();
    remote.request("leave", &Fields::new()).await?;
    // It closes this connection last of all, when its ports are free.
    let timeout = args.remote.timeout.unwrap_or(GOING_MAX);
    if rt::timeout(timeout, remote.connection.closed()).await.is_none() {
        let text = format!("{node} wants to leave, but is still there after {timeout:?}");
        return Err(CliError::Failure(text));
    }
    let mut output = Output::new(args.remote.json);
    output.either(|| json!({"name": node, "left": true}), || format!("{node} has left"))?;
    output.flush()
}
