//! `whoami`: as whom a node takes the one who asks.

use clap::Args;
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::remote::RemoteArgs;
use crate::cli::terminal::output::{Output, printable};
use crate::client::Fields;

/// Show which user you are logged in as, and the role
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node whoami
  distkv-node whoami --user joe --secret-file joe.secret --json

With --json: node, user, method, role, acl; user is null where nobody is logged in: then the node asks for no login, and every client may do everything.

Exit code: 0 told, 1 failed, 2 usage, 3 the login fails, 6 no node was \
reached, or the login has to wait; 8 it cannot be written.")]
pub(in crate::cli) struct WhoamiArgs {
    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: WhoamiArgs) -> Result<(), CliError> {
    let remote = args.remote.connect_in_time().await?;
    let reply = remote.request("auth_info", &Fields::new()).await?;
    let text = |name| reply.str(name).map(|text| printable(text).into_owned());
    let node = remote.connection.greeting().node.clone();
    let mut output = Output::of_read(args.remote.json);
    output.either(
        || {
            json!({
                "node": node, "user": reply.str("user"), "method": reply.str("method"),
                "role": reply.str("role"), "acl": reply.str("acl"),
            })
        },
        || match (text("user"), text("method")) {
            (Some(user), Some(method)) => {
                let acl = text("acl").map(|acl| format!(", access list {acl}")).unwrap_or_default();
                let role = text("role").unwrap_or_default();
                format!("{user} ({method}), role {role}{acl}, at {node}")
            }
            (None, Some(_)) => format!("the holder of the cluster's key, role admin, at {node}"),
            (_, None) => format!("{node} asks for no login: every client may do everything"),
        },
    )?;
    output.flush()
}
