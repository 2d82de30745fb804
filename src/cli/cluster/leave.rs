//! `leave`: a node goes away.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::status::is_closed;
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::terminal::output::Output;
use crate::client::Fields;
use crate::rt;

/// How long a node may take to go unless told otherwise: more than the 3 s for its goodbye and the
/// 10 s for its disk.
const GOING_MAX: Duration = Duration::from_secs(15);

/// How long the others may take to agree that a node leaves for good, unless told otherwise.
const AGREEING: Duration = Duration::from_secs(10);
/// What the node takes beyond that before it says how it stands: a little more than it allows itself.
const SETTLING: Duration = Duration::from_secs(6);

/// Make a node leave its network and end
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node leave --connect 127.0.0.1:27596
  distkv-node leave --for-good --connect 127.0.0.1:27606

The other nodes are told at once and do not look for it. SIGTERM does the same. The command \
returns when the node has ended: its ports and its data directory are free. If some of its \
changes are on no other node, it waits for its peers for a moment, and its log says how many \
are left.

A node with a data directory is expected back, and while it is away no deleted entry is purged. A \
node that will not come back leaves with --for-good: all members of the Delete group, which must be \
there, agree to continue without it, and then it ends. Nothing waits for it, and `members forget` is \
not needed. Its data directory records that it has left: a node that is started with it begins \
empty, as a newcomer, and puts the old files aside. If not all members agree within --timeout \
(default here: 10s, at most 60s), the node stays a member, and the error says who is missing.

In a network with a key, `key rotate` waits for each node that has left without --for-good, also \
for one without a data directory, which `members` no longer shows: it may come back, with the old \
key in its key file, and nobody would take it. `members forget` ends that, too.

Exit code: 0 it has left, 1 it is still there after --timeout (default here: 15s), 2 usage, 3 \
it refuses, 6 it was not reached, 7 it may be leaving.")]
pub(in crate::cli) struct LeaveArgs {
    /// The node will not come back: take it out of the Delete group first
    #[arg(long)]
    for_good: bool,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: LeaveArgs) -> Result<(), CliError> {
    let mut remote = args.remote.connect().await?;
    let node = remote.connection.greeting().node.clone();
    let mut fields = Fields::new();
    if args.for_good {
        let patience = args.remote.timeout.unwrap_or(AGREEING);
        fields.bool("for_good", true).f64("timeout", patience.as_secs_f64());
        remote = Remote::over(remote.connection, patience + SETTLING).patient();
    }
    remote.try_request("leave", &fields).await?.map_err(|error| {
        let is_closed = is_closed(&error);
        let text = format!("{node} asks for a login (--user); or end it with SIGTERM: {error}");
        let told = CliError::from(error);
        if is_closed { told.said(|_| text) } else { told }
    })?;
    // It closes this connection last of all, when its ports are free.
    let timeout = args.remote.timeout.filter(|_| !args.for_good).unwrap_or(GOING_MAX);
    if rt::timeout(timeout, remote.connection.closed()).await.is_none() {
        let text = format!("{node} wants to leave, but is still there after {timeout:?}");
        return Err(CliError::Failure(text));
    }
    let mut output = Output::new(args.remote.json);
    let how = if args.for_good { " for good" } else { "" };
    output.either(
        || json!({"name": node, "left": true, "for_good": args.for_good}),
        || format!("{node} has left{how}"),
    )?;
    output.flush()
}
