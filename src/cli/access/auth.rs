//! `auth`: whether clients must log in, and how.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use super::admins::admins_of;
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::terminal::output::{Output, count_of, printable};
use crate::cli::terminal::units::parse_duration;
use crate::client::{Fields, Message};
use crate::rt;

/// Show whether clients must log in, and switch it on or off
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node auth
  distkv-node auth on password --grace 10m
  distkv-node auth on password
  distkv-node auth off --user joe --secret-file joe.secret

That is a change of the data (the entry :n.auth), so it counts in the whole network. A node that has a cluster key asks for logins whatever it says. Connections without a login are closed when it is switched on, this one included, or at the end of --grace.

`auth` alone says how many clients of this node have not logged in: those are the ones that will be closed.

Exit code: 0 done, 1 failed (or no admin could log in), 2 usage, 3 refused, 6 no node was reached, 7 it may \
have been done, 8 how clients log in cannot be written.")]
pub(in crate::cli) struct AuthArgs {
    #[command(subcommand)]
    command: Option<AuthCommand>,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum AuthCommand {
    /// Clients must log in; the method must have a user
    #[command(after_help = "\
Examples:
  distkv-node auth on password
  distkv-node auth on password --grace 10m

With --grace, clients that have not logged in are served as before for so long, old connections and new ones; programs that have a secret use it already. Nodes end the time by their own clocks. `auth on` without it ends the time at once.

There must be an admin who can log in then, or the node must have a key: otherwise nobody could change users, or switch logins off.")]
    On {
        /// By which method: password, token, root
        method: String,

        /// Go on serving clients without a login for so long, like 10m; at most 7d
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        grace: Option<Duration>,

        /// Also if no admin could log in then
        #[arg(long)]
        force: bool,
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
    let after = match &args.command {
        Some(AuthCommand::On { remote, .. } | AuthCommand::Off { remote }) => remote.clone(),
        None => RemoteArgs::default(),
    };
    let connect = after.or(args.remote);
    let remote = connect.connect_in_time().await?;
    let mut output = match &args.command {
        None => Output::of_read(connect.json),
        Some(_) => Output::new(connect.json),
    };
    let greeting = remote.connection.greeting();
    // Only such a node says by what its key is proved.
    let asks_anyway = greeting.nonce.map(|_| {
        let node = printable(&greeting.node);
        format!("; {node} has a key, so it asks its clients for a login whatever the data says")
    });
    let asks_anyway = asks_anyway.unwrap_or_default();
    match &args.command {
        None => show(&remote, &mut output).await?,
        Some(AuthCommand::On { method, grace, force, .. }) => {
            let mut fields = Fields::new();
            fields.str("typ", method);
            if let Some(grace) = grace {
                fields.u64("grace_ms", rt::millis(*grace));
            }
            // Afterwards nobody could be asked any more.
            let admins = admins_of(&remote, method).await?.len();
            if *force {
                fields.bool("force", true);
            }
            remote.request("set_auth_typ", &fields).await?;
            output.either(
                || {
                    let grace_ms = grace.map(|grace| grace.as_millis() as u64);
                    json!({"method": method, "grace_ms": grace_ms, "admins": admins})
                },
                || {
                    let text = match grace {
                        _ if !asks_anyway.is_empty() => {
                            format!("the data says that clients must log in (method {method}){asks_anyway}")
                        }
                        Some(grace) => {
                            let secs = grace.as_secs();
                            format!("clients must log in (method {method}) in {secs} s; until then, those without a login go on")
                        }
                        None => format!("clients must log in now (method {method})"),
                    };
                    if admins == 0 { text + NO_ADMIN } else { text }
                },
            )?;
        }
        Some(AuthCommand::Off { .. }) => {
            let mut fields = Fields::new();
            fields.nil("typ");
            remote.request("set_auth_typ", &fields).await?;
            output.either(
                || json!({"method": null}),
                || match asks_anyway.as_str() {
                    "" => String::from("clients need not log in any more"),
                    asks => format!("the data asks for no login any more{asks}"),
                },
            )?;
        }
    }
    output.flush()
}

async fn show(remote: &Remote, output: &mut Output) -> Result<(), CliError> {
    let reply = remote.request("status", &Fields::new()).await?;
    let node = remote.connection.greeting().node.clone();
    let Some(logins) = Logins::of(&reply) else {
        let text = format!("{node} is of an older version, and does not say how clients log in");
        return Err(CliError::Failure(text));
    };
    output.either(
        || {
            json!({
                "node": node, "method": logins.method, "secured": logins.is_secured,
                "grace_ms": logins.grace_ms, "without_login": logins.without,
            })
        },
        || printable(&logins.text(&node)).into_owned(),
    )
}

/// What is said where logins are switched on and no admin has one.
const NO_ADMIN: &str = ".\nNo admin can log in: to change users, or to switch logins off, use the key of a secured network, \
                        or start a node with --ignore-auth";

/// What a node's status says of logins.
pub(super) struct Logins {
    pub(super) method: Option<String>,
    pub(super) is_secured: bool,
    grace_ms: Option<u64>,
    without: u64,
}

impl Logins {
    pub(super) fn of(reply: &Message) -> Option<Self> {
        use crate::client::message::{as_bool, as_str, as_u64, map_items};
        let fields = map_items(reply.get("logins")?);
        let fields: BTreeMap<&str, &[u8]> =
            fields.filter_map(|(key, value)| Some((as_str(key)?, value))).collect();
        let field = |name| fields.get(name).copied();
        Some(Self {
            method: field("method").and_then(as_str).map(str::to_owned),
            is_secured: field("secured").and_then(as_bool).unwrap_or(false),
            grace_ms: field("grace_ms").and_then(as_u64),
            without: field("without_login").and_then(as_u64).unwrap_or(0),
        })
    }

    fn text(&self, node: &str) -> String {
        let without = |one, many| count_of(self.without, one, many);
        match (&self.method, self.is_secured, self.grace_ms) {
            (_, true, _) => format!(
                "{node} has a key: its clients must log in, with a password, a token or the key"
            ),
            (None, false, _) => {
                format!("{node}: clients need not log in; {}", without("has not", "have not"))
            }
            (Some(method), false, Some(ms)) => format!(
                "{node}: clients must log in (method {method}) in {} s; {} served until then",
                ms / 1_000,
                without("has not, and is", "have not, and are")
            ),
            (Some(method), false, None) => format!("{node}: clients must log in (method {method})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_who_must_log_in_and_when() {
        let text = |method: Option<&str>, is_secured, grace_ms| {
            let method = method.map(str::to_owned);
            Logins { method, is_secured, grace_ms, without: 3 }.text("n1")
        };
        assert!(text(None, true, None).contains("has a key"));
        assert_eq!(text(None, false, None), "n1: clients need not log in; 3 have not");
        assert_eq!(
            text(Some("password"), false, Some(90_500)),
            "n1: clients must log in (method password) in 90 s; 3 have not, and are served until then"
        );
        assert_eq!(text(Some("token"), false, None), "n1: clients must log in (method token)");
    }
}
