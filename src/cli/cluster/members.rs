//! `members`: the network, as one node sees it, and taking a member off the Delete group.

use std::io::{self, IsTerminal, Write};

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use crate::cli::error::CliError;
use crate::cli::remote::RemoteArgs;
use crate::cli::say;
use crate::cli::terminal::output::{Output, Table, json_of, printable};
use crate::cli::terminal::units::show_millis;
use crate::client::message::{array_items, as_str};
use crate::client::{Fields, Message};
use crate::rt;

/// Print the network's members, or forget one
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node members
  distkv-node members --json | jq -r 'select(.state == \"down\") | .name'
  distkv-node members forget n3

STATE is self, joining (linked, and not a member yet), up, suspect (silent for a moment), down, left, or away \
(known only from the Delete group's list); FOR says since when.

LINK says whether changes flow directly to the node; it is LAGGING when changes came too \
fast for it, so that it fetches them. In networks of more than 48 nodes most are not linked to each other. READY is \
known of those that are. ACKED is the last of this node's own changes that it \
has confirmed.

KEEPER is the node's rank among the housekeepers, which drive the healing of a split. DELETE \
is yes for members of the Delete group (64 at most), or says how long one has been missed: all of \
them must agree before deleted entries are purged.

With --json, one object per line; \"ready\" and \"secured\" are null of a node that is up and not linked.

Exit code: 0 done, 1 failed, 2 usage, 3 refused, 6 no node was reached, 8 it cannot be written.")]
pub(in crate::cli) struct MembersArgs {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    List(ListArgs),
    Forget(ForgetArgs),
}

/// Print the network's members, as a node sees them; the same as `members` alone
#[derive(Debug, Clone, Args)]
struct ListArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Remove from the Delete group a member that will not come back, so that purging can continue
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node members forget n3
  distkv-node members forget n3 --yes  # without a question

Deleted entries are purged only while all members of the Delete group are up. When one is \
lost for good, forget it. If it comes back after all, it is a new member: changes that \
nobody else had count as new changes, and entries that only it had deleted may have to be \
deleted again.

A node that still had a link to it when it was forgotten waits for it all the same, for as long as \
its --purge-grace says (5 minutes): perhaps only the link was cut. To have purging go on at once, \
forget a member when `members` shows it as down. A node that is linked is not forgotten: `leave --for-good`, asked of it, \
takes it off. A member outside the Delete group is forgotten by the node that is asked only; ask each node that still warns.

On a terminal, the command asks first; with --json, it needs --yes there. Each forget permanently adds metadata on every node.

Exit code: 0 it is forgotten, or was before; 1 failed, 2 usage, 3 refused, 6 no node was reached.")]
struct ForgetArgs {
    /// The member's name
    #[arg(value_name = "NAME")]
    name: String,

    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

pub(in crate::cli) async fn run(args: MembersArgs) -> Result<(), CliError> {
    match args.what {
        None => list(&args.remote).await,
        Some(What::List(list_args)) => list(&list_args.remote.or(args.remote)).await,
        Some(What::Forget(forget_args)) => {
            let remote = forget_args.remote.or(args.remote);
            forget(&forget_args.name, forget_args.yes, &remote).await
        }
    }
}

async fn list(remote: &RemoteArgs) -> Result<(), CliError> {
    let reply = remote.connect_in_time().await?.request("members", &Fields::new()).await?;
    let members = reply.get("result").unwrap_or_default();
    let mut output = Output::of_read(remote.json);
    if output.json {
        for member in array_items(members) {
            output.json_line(json_line(member))?;
        }
        output.flush()?;
        // Each line is a member; programs find the warnings in `status`.
        warnings_of(&reply).iter().for_each(|warning| say::warning(warning));
        return Ok(());
    }
    let head = [
        "NAME",
        "STATE",
        "FOR",
        "LINK",
        "READY",
        "ACKED",
        "KEEPER",
        "DELETE",
        "PEERS AT",
        "CLIENTS AT",
        "SOFTWARE",
    ];
    let mut table = Table::with_head(&head);
    let rows = || array_items(members).filter_map(|member| Message::new(member).ok());
    let is_self = |row: &Message| row.str("state") == Some("self");
    // What stands in plaintext is worth a word where it could be sealed.
    let has_key = rows().any(|row| is_self(&row) && row.bool("secured") == Some(true));
    for member in rows() {
        table.row(cells(&member, has_key));
    }
    table.print(&mut output)?;
    print_warnings(&reply, &mut output)?;
    output.flush()
}

/// What only a link tells is told as unknown where there is none: nodes send false.
fn json_line(member: &[u8]) -> Json {
    let mut line = json_of(member);
    let is_unknown = Message::new(member).is_ok_and(|member| !is_known(&member));
    if let Some(fields) = line.as_object_mut().filter(|_| is_unknown) {
        fields.extend(["ready", "secured"].map(|name| (name.to_owned(), Json::Null)));
    }
    line
}

/// Whether the node that tells of a member can know how it is: it is linked to it, or is it, or holds it for gone.
fn is_known(member: &Message) -> bool {
    let is_up = matches!(member.str("state"), Some("joining" | "up" | "suspect"));
    !is_up || member.bool("linked") != Some(false)
}

fn cells(member: &Message, has_key: bool) -> [String; 11] {
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
        (false, Some(false) | None) => match (member.bool("linked"), member.bool("secured")) {
            (Some(true), Some(true)) => String::from("secured"),
            (Some(true), _) if has_key => String::from("plaintext"),
            _ => yes_no("linked"),
        },
    };
    let acked = member.u64("acked").filter(|_| !is_self);
    let delete = match (member.bool("delete_member"), member.u64("away_ms")) {
        (Some(true), None) => String::from("yes"),
        (Some(true), Some(away)) => format!("missed {}", show_millis(away)),
        (Some(false) | None, _) => String::new(),
    };
    [
        text("name"),
        text("state"),
        member.u64("since_ms").map(show_millis).unwrap_or_default(),
        link,
        if is_known(member) { yes_no("ready") } else { String::new() },
        acked.map(|tick| tick.to_string()).unwrap_or_default(),
        member.u64("housekeeper").map(|place| place.to_string()).unwrap_or_default(),
        delete,
        text("gossip"),
        text("client"),
        text("software"),
    ]
}

/// What a node wants everybody to know.
fn warnings_of(reply: &Message) -> Vec<String> {
    let warnings = array_items(reply.get("warnings").unwrap_or_default()).filter_map(as_str);
    warnings.map(|warning| printable(warning).into_owned()).collect()
}

/// The same, one line each.
pub(super) fn print_warnings(reply: &Message, output: &mut Output) -> Result<(), CliError> {
    let warnings = warnings_of(reply);
    warnings.iter().try_for_each(|warning| output.line(&format!("warning: {warning}")))
}

async fn forget(name: &str, yes: bool, remote: &RemoteArgs) -> Result<(), CliError> {
    let asks = !yes && io::stdin().is_terminal();
    if asks && remote.json {
        let text = "with --json, nothing is asked, so --yes is missing; nothing was changed";
        return Err(CliError::Usage(text.to_owned()));
    }
    let mut connection = remote.connect_in_time().await?;
    if asks {
        let began = rt::now();
        if !ask(name)? {
            return Err(CliError::Failure(format!("{name} is not forgotten")));
        }
        connection = connection.waited_since(began);
    }
    let mut fields = Fields::new();
    fields.str("node", name);
    let reply = connection.request("forget_member", &fields).await?;
    let did = match (reply.bool("result"), reply.bool("was_listed")) {
        (Some(false), _) => "not in the Delete group; this node does not miss it any more",
        (_, Some(false)) => {
            "forgotten; it was not in the Delete group, and its keys are waited for no more"
        }
        _ => "forgotten; the Delete group goes on without it",
    };
    let mut output = Output::new(remote.json);
    output.either(
        || json!({"name": name, "forgotten": true}),
        || format!("{}: {did}", printable(name)),
    )?;
    output.flush()
}

fn ask(name: &str) -> Result<bool, CliError> {
    let unreadable =
        |error: io::Error| CliError::Failure(format!("cannot ask on this terminal: {error}"));
    // Not by a macro, which panics where nobody reads standard error any more.
    let name = printable(name);
    let question = format!(
        "Forget {name}? If it comes back, what it alone has deleted may have to be deleted again. [y/N] "
    );
    io::stderr().write_all(question.as_bytes()).map_err(unreadable)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(unreadable)?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        assert!(is_yes("y\n") && is_yes(" Yes \r\n"));
        assert!(!is_yes("\n") && !is_yes("") && !is_yes("n\n") && !is_yes("yesterday\n"));
    }
}
