//! `members`: the network, as one node sees it.

use clap::Args;

use super::error::CliError;
use super::output::{Output, Table, json_of};
use super::remote::RemoteArgs;
use super::units::show_millis;
use crate::client::message::array_items;
use crate::client::{Fields, Message};

/// Print the network's members, as a node sees them
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node members
  distkv-node members --json | jq -r 'select(.state == \"down\") | .name'

STATE is self, up, suspect (silent for a moment), down or left; FOR is how long it has been so.
LINK is whether changes flow directly to it, and LAGGING that they came too fast for it and it
fetches them; ACKED is the last of this node's own changes that it has confirmed.
With --json, one object per line.")]
pub(super) struct MembersArgs {
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

pub(super) async fn run(args: MembersArgs) -> Result<(), CliError> {
    let remote = args.remote.connect().await?;
    let reply = remote.request("members", &Fields::new()).await?;
    let members = reply.get("result").unwrap_or_default();
    let mut output = Output::new(args.remote.json);
    if output.json {
        for member in array_items(members) {
            output.line(&json_of(member).to_string())?;
        }
        return output.flush();
    }
    let head =
        ["NAME", "STATE", "FOR", "LINK", "READY", "ACKED", "PEERS AT", "CLIENTS AT", "SOFTWARE"];
    let mut table = Table::with_head(&head);
    for member in array_items(members).filter_map(|member| Message::new(member).ok()) {
        table.row(cells(&member));
    }
    table.print(&mut output)?;
    output.flush()
}

fn cells(member: &Message) -> [String; 9] {
    let text = |name: &str| member.str(name).unwrap_or_default().to_owned();
    let yes_no = |name: &str| match member.bool(name) {
        Some(true) => String::from("yes"),
        Some(false) => String::from("no"),
        None => String::new(),
    };
    let is_self = member.str("state") == Some("self");
    let link = match (is_self, member.bool("lagging")) {
        (true, _) => String::new(),
        (false, Some(true)) => String::from("lagging"),
        (false, Some(false) | None) => yes_no("linked"),
    };
    let acked = member.u64("acked").filter(|_| !is_self);
    [
        text("name"),
        text("state"),
        member.u64("since_ms").map(show_millis).unwrap_or_default(),
        link,
        yes_no("ready"),
        acked.map(|tick| tick.to_string()).unwrap_or_default(),
        text("gossip"),
        text("client"),
        text("software"),
    ]
}
