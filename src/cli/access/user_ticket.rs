//! `user ticket`: a new secret for a user, as a ticket for the program that logs in with it.

use std::path::{Path, PathBuf};

use clap::Args;
use distkv_tls::{Login, Ticket};
use serde_json::json;

use super::ended::{also_ended, with_ended};
use super::existing::{Change, has_key};
use super::new_secret::{NewSecret, make_token};
use crate::cli::error::CliError;
use crate::cli::files::new_file::{Existing, tidy_when_interrupted};
use crate::cli::files::ticket_file::TicketFile;
use crate::cli::remote::{Remote, RemoteArgs, parse_address};
use crate::cli::terminal::output::{Output, printable, shell_word};
use crate::model::host_port::HostPort;

/// Give a user a new secret, and write a ticket with it
///
/// The ticket has all that a program needs: where the nodes are, by which CA they are known, and the user with its new
/// secret. The secret before logs nobody in any more; connections that are open go on, unless --disconnect ends them, too.
/// A user with a token gets a new token; for one with a password, --new-secret-file names the file with the new one.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node user ticket robot --to robot.ticket
  distkv-node user ticket robot --to robot.ticket --force \\
    --address n1.example.org --address n2.example.org
  distkv-node user ticket robot --to robot.ticket --force --disconnect

The file is made for its owner only (mode 0600), and whole or not at all. If the node's answer is lost (exit code 7), the \
new ticket is kept in FILE.new beside it. Nodes are given by the names or addresses that \
their certificates have; without --address, those that this command connects to. The CA is that \
of --node-ca, of the key file (--key), or of the ticket that this command uses.")]
pub(super) struct TicketArgs {
    /// The user's name
    name: String,

    /// The file to write
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// Replace the file if there is one
    #[arg(long)]
    force: bool,

    /// A node's client port, as programs reach it; may be repeated [default: as --connect]
    #[arg(long = "address", value_name = "ADDR[:PORT]")]
    addresses: Vec<String>,

    /// How the user logs in: password, token; needed where both have that name
    #[arg(long)]
    method: Option<String>,

    /// The file with the new password; - is standard input. If there is none, a password is made
    /// at random and written there
    #[arg(long, value_name = "FILE")]
    new_secret_file: Option<PathBuf>,

    /// End the user's open connections, too, in the same change
    #[arg(long)]
    disconnect: bool,

    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

/// `connect`: the options of the connection.
pub(super) async fn run(args: &TicketArgs, connect: &RemoteArgs) -> Result<(), CliError> {
    tidy_when_interrupted(connect.json)?;
    // Before anybody is asked for a secret, and before the old one is gone for good.
    let mut new = TicketFile::begin(&args.to, Existing::of_force(args.force))?;
    let remote = &connect.connect().await?;
    remote.require_private()?;
    let change = Change::of_own(remote, args.method.as_deref(), &args.name).await?;
    let mut change = change.disconnecting(args.disconnect);
    let method = change.method.clone();
    let addresses = if args.addresses.is_empty() {
        connect.addresses()?
    } else {
        let parse = |text: &String| parse_address("--address", text);
        args.addresses.iter().map(parse).collect::<Result<_, _>>()?
    };
    let is_for_here = addresses.iter().all(is_own_machine);
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let (ca, network) = (connect.ca()?, network_of(remote).await?);
    let plain = match (ca, is_for_here) {
        (Some(_), _) => "",
        (None, false) if has_key(remote).await? => WITHOUT_CA,
        (None, _) => "; without a CA, so its clients use plain text",
    };
    let secret = match (&*method, &args.new_secret_file) {
        ("token", None) => None,
        ("password" | "token", Some(file)) => {
            Some(NewSecret::read_or_make(file, &method, &args.name)?)
        }
        ("password", None) => {
            let text = "a user with a password gets a ticket with a new one: give it with --new-secret-file, or make \
                        a user with `user add NAME --method token`";
            return Err(CliError::Usage(text.to_owned()));
        }
        (method, _) => {
            let text = format!(
                "users of the method {method} have no secret, so there is no ticket for them"
            );
            return Err(CliError::Usage(text));
        }
    };
    let text = secret.as_ref().map_or_else(make_token, |secret| Ok(secret.text.clone()))?;
    change.set_secret(&text);
    let login = Login { method: method.clone(), user: args.name.clone(), secret: Some(text) };
    let ticket = Ticket { addresses, network, login: Some(login), ca, certificate: None };
    // It is in the file before a node is sent the secret: an answer that is lost does not take it away.
    new.write(&ticket.to_text().map_err(|error| CliError::Usage(error.to_string()))?)?;
    let user = args.name.clone();
    new.keep_when_interrupted(move |kept| in_doubt(&user, kept));
    let ended = match change.make(remote).await {
        Ok((_, ended)) => {
            secret.into_iter().for_each(NewSecret::keep);
            ended
        }
        Err(error) => {
            return Err(error.in_doubt(|| {
                let ticket = new.keep_beside().map(|kept| in_doubt(&args.name, &kept));
                let secret = secret.map(|secret| secret.keep_in_doubt(&method, &args.name));
                match (ticket, secret) {
                    (Ok(ticket), _) => ticket,
                    (Err(_), Some(secret)) => secret,
                    (Err(lost), None) => lost,
                }
            }));
        }
    };
    new.finish().map_err(|error| lost(error, &args.name))?;
    let place = args.to.display().to_string();
    let mut output = Output::new(connect.json);
    output.either(
        || {
            let told = json!({
                "user": args.name, "method": method, "ticket_file": place,
                "addresses": ticket.addresses, "ca": ca.map(|ca| ca.to_string()),
            });
            with_ended(told, ended.as_ref())
        },
        || {
            let here = if is_for_here {
                "; it names loopback addresses only, so it is for programs of this machine: --address names others"
            } else {
                ""
            };
            let text = format!(
                "{} ({method}): the ticket with a new secret is in {place}{}{plain}{here}",
                args.name,
                also_ended(ended.as_ref())
            );
            printable(&text).into_owned()
        },
    )?;
    output.flush()
}

/// Nobody knows whether the secret of the ticket that was kept is in force.
fn in_doubt(user: &str, kept: &Path) -> String {
    let (place, ticket) = (kept.display(), shell_word(&format!("@{}", kept.display())));
    format!(
        "{user} may have a new secret: if so, the ticket with it is in {place}, and the one before is not valid any more; \
         `distkv-node whoami --ticket {ticket}` tells, where nodes ask for logins. If it logs in, rename the file; if not, type the command again"
    )
}

fn is_own_machine(address: &HostPort) -> bool {
    address.numeric().is_some_and(|address| address.ip().is_loopback())
        || address.host == "localhost"
}

/// What is said where the node has a key, and yet the command was not told of its CA: it does not ask for logins yet.
const WITHOUT_CA: &str = "; without a CA: a node with a key takes other machines by TLS only, once it runs without --plaintext-peers, \
                          and then this ticket is of no use there. For one that is, type this again with --force --node-ca \
                          ca.pem, which `distkv-node key cert --ca --key KEYFILE` writes";

/// The name of the node's network: clients with the ticket use no other one.
async fn network_of(remote: &Remote) -> Result<String, CliError> {
    let reply = remote.request("status", &crate::client::Fields::new()).await?;
    Ok(reply.str("network").unwrap_or_default().to_owned())
}

/// Nobody has the new secret if the file cannot be written, and the one before is not valid any more.
fn lost(error: CliError, user: &str) -> CliError {
    error.said(|text| {
        format!(
            "{text}; {user} has a new secret already, which is lost, and the ticket before is not valid any more: type \
             the command again with a file that can be written"
        )
    })
}
