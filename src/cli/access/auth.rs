//! `auth`: whether clients must log in, and how.

use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::error::CliError;
use crate::cli::remote::RemoteArgs;
use crate::cli::terminal::output::Output;
use crate::client::Fields;

/// Switch on that clients must log in, or off
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node auth on password
  distkv-node auth off --user joe --secret-file joe.secret

That is a change of the data (the entry :n.auth), so it counts in the whole network. A node that has a cluster key asks for logins whatever it says. Connections without a login are closed when it is switched on, this one included.

Exit code: 0 done, 1 failed, 2 usage, 3 refused, 6 no node was reached, 7 it may \
have been done.")]
pub(in crate::cli) struct AuthArgs {
    #[command(subcommand)]
    command: AuthCommand,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum AuthCommand {
    /// Clients must log in; the method must have a user
    #[command(after_help = "Example:\n  distkv-node auth on password")]
    On {
        /// By which method: password, token, root
        method: String,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Clients need not log in
    #[command(after_help = "Example:\n  distkv-node auth off")]
    Off {
        #[command(flatten)]
        remote: RemoteArgs,
    },
}

pub(in crate::cli) async fn run(args: AuthArgs) -> Result<(), CliError> {
    let (AuthCommand::On { remote, .. } | AuthCommand::Off { remote }) = &args.command;
    let connect = remote.clone().or(args.remote);
    let remote = connect.connect().await?;
    let mut fields = Fields::new();
    let method = match &args.command {
        AuthCommand::On { method, .. } => {
            fields.str("typ", method);
            Some(method.as_str())
        }
        AuthCommand::Off { .. } => {
            fields.nil("typ");
            None
        }
    };
    remote.request("set_auth_typ", &fields).await?;
    let mut output = Output::new(connect.json);
    output.either(
        || json!({"method": method}),
        || match method {
            Some(method) => format!("clients must log in now (method {method})"),
            None => "clients need not log in any more".to_owned(),
        },
    )?;
    output.flush()
}
