//! `leave`: a node goes away.

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::output::Output;
use super::remote::RemoteArgs;
use crate::client::Fields;
use crate::rt;

/// Make a node say goodbye to its network and end
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node leave --connect 127.0.0.1:27590

The other nodes hear at once that it is gone, and do not look for it. SIGTERM does the same.

Exit code: 0 it has gone, 1 it refuses or cannot be asked, 2 usage.")]
pub(super) struct LeaveArgs {
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

pub(super) async fn run(args: LeaveArgs) -> Result<(), CliError> {
    let remote = args.remote.connect().await?;
    let node = remote.connection.greeting().node.clone();
    remote.request("leave", &Fields::new()).await?;
    // It closes its connections when it has said goodbye.
    let timeout = args.remote.timeout_or_default();
    if rt::timeout(timeout, remote.connection.closed()).await.is_none() {
        let text = format!("{node} wants to leave, but is still there after {timeout:?}");
        return Err(CliError::Failure(text));
    }
    let mut output = Output::new(args.remote.json);
    output.either(|| json!({"name": node, "left": true}), || format!("{node} has left"))?;
    output.flush()
}
