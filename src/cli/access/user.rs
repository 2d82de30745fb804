//! `user`: who may log in, and as what.

use std::path::PathBuf;

use clap::builder::StringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::ended::{Ended, also_ended, with_ended};
use super::existing::{
    Change, User, ask_if_there, methods, no_user, only, user_fields, user_of, users_named,
};
use super::new_secret::NewSecret;
use super::user_add::{self, AddArgs};
use super::user_ticket::{self, TicketArgs};
use super::user_token::{self, TokenArgs};
use super::{acl, users_of};
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::terminal::output::{Output, Table};
use crate::cli::terminal::words::completed;
use crate::cli::typed;
use crate::client::{Fields, Message};
use crate::model::meta::METHODS;

/// What a role is completed with.
pub(super) const ROLES: [&str; 3] = ["user", "operator", "admin"];

/// Users: add, list, change and remove those who may log in
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node user add joe --acl lamps --new-secret-file joe.secret
  distkv-node user add robot --method token --role operator
  distkv-node user ticket robot --to robot.ticket
  distkv-node user list
  distkv-node user acl joe lamps
  distkv-node user disconnect joe
  distkv-node user remove joe

Roles: user (what the access list says), operator (also the nodes' state), admin (everything). Without --acl and --role, a new user is an admin, as with the tools of DistKV. Who has an access list is no admin: `user acl NAME -` takes it away.

Exit code: 0 done, 1 failed (there is no such user), 2 usage, 3 refused, 5 there is such a user already, or somebody \
else has changed it, 6 no node was reached, 7 it may have been done, 8 what is only read cannot be \
written.")]
pub(in crate::cli) struct UserArgs {
    #[command(subcommand)]
    command: UserCommand,

    #[command(flatten)]
    pub(in crate::cli) remote: RemoteArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum UserCommand {
    Add(AddArgs),
    /// List users
    #[command(after_help = "Example:\n  distkv-node user list --json")]
    List {
        /// Only those who log in like this: password, token, root
        #[arg(long)]
        method: Option<String>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Show a user
    #[command(after_help = "Example:\n  distkv-node user show joe")]
    Show(Named),
    Password(PasswordArgs),
    Token(TokenArgs),
    Ticket(TicketArgs),
    /// Set a user's access list
    ///
    /// An admin becomes a user by that.
    #[command(after_help = "\
Examples:
  distkv-node user acl joe lamps
  distkv-node user acl joe '*'")]
    Acl {
        #[command(flatten)]
        user: Named,
        /// The list's name; * is all data, - no list, so nothing
        list: String,
        /// Also if the user is the last admin who can log in
        #[arg(long)]
        force: bool,
    },
    /// Set a user's role
    ///
    /// Who has an access list is no admin: take it away first (`user acl NAME -`).
    #[command(after_help = "Example:\n  distkv-node user role joe operator")]
    Role {
        #[command(flatten)]
        user: Named,
        /// What the user may do: user, operator, admin
        #[arg(
            value_parser = completed(StringValueParser::new(), &ROLES),
            hide_possible_values = true
        )]
        role: String,
        /// Also if the user is the last admin who can log in
        #[arg(long)]
        force: bool,
    },
    /// End a user's open connections, at every node that this reaches
    ///
    /// The user stays, and logs in again; our clients do that by themselves. So does a thief who has the secret, or a certificate of the user: after a theft, give the user another secret in the same change (`user password`, `user token` or `user ticket`, with --disconnect). A certificate logs in until it ends: then remove the user, and make one of another name. Users may end their own connections; that of this command is one of them. Nodes of a version without this command end none.
    ///
    /// The command waits until the nodes have confirmed it, and does it again if somebody has changed the user elsewhere at the same moment. If it gives up (exit code 5), `user remove`, then `user add`, always works. Where nobody has to log in, connections go on, and the command says so.
    ///
    /// At nodes that are cut off or down, connections go on until those are back. The command names them (--json: confirmed is false, unreached): type it again when they are back, or `members forget` one that is gone for good. A node that was started a moment ago knows of the members that it has met since, and of those that it knew before, from its data directory or its --peer-file. Without either it cannot name a member that it has not met yet: then ask a node that has run for longer.
    #[command(after_help = "Example:\n  distkv-node user disconnect joe")]
    Disconnect(Named),
    /// Remove a user, whose connections end
    ///
    /// The last admin stays while clients must log in and the network has no key: nobody could change users any more.
    #[command(after_help = "Example:\n  distkv-node user remove joe")]
    Remove {
        #[command(flatten)]
        user: Named,
        /// Also if the user is the last admin who can log in
        #[arg(long)]
        force: bool,
    },
}

/// Change a user's password
///
/// It is read from --new-secret-file, or from standard input; if there is no such file, it is made at random and written there. At a terminal it is asked for. Users may change their own.
///
/// Connections that are open go on, unless --disconnect ends them, too.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node user password joe --new-secret-file joe.secret
  distkv-node user password joe --new-secret-file other.secret --disconnect")]
struct PasswordArgs {
    /// The user's name
    name: String,
    /// The file with the new password, made if there is none; - is standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    new_secret_file: PathBuf,
    /// End the user's open connections, too, in the same change
    #[arg(long)]
    disconnect: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Debug, Clone, Args)]
struct Named {
    /// The user's name
    name: String,
    /// How the user logs in: password, token, root; needed where several have that name
    #[arg(long)]
    method: Option<String>,
    #[command(flatten)]
    remote: RemoteArgs,
}

impl UserCommand {
    fn remote(&self) -> &RemoteArgs {
        match self {
            UserCommand::Add(args) => &args.remote,
            UserCommand::List { remote, .. } => remote,
            UserCommand::Password(args) => &args.remote,
            UserCommand::Token(args) => &args.remote,
            UserCommand::Ticket(args) => &args.remote,
            UserCommand::Show(user)
            | UserCommand::Disconnect(user)
            | UserCommand::Remove { user, .. }
            | UserCommand::Acl { user, .. }
            | UserCommand::Role { user, .. } => &user.remote,
        }
    }
}

pub(in crate::cli) async fn run(args: UserArgs) -> Result<(), CliError> {
    let connect = args.command.remote().clone().or(args.remote);
    match &args.command {
        // Nobody should think of a password for nothing.
        UserCommand::Add(add) => add.check()?,
        UserCommand::Token(token) => token.tidy_when_interrupted(&connect)?,
        UserCommand::Ticket(ticket) => return user_ticket::run(ticket, &connect).await,
        _ => {}
    }
    let remote = connect.connect().await?;
    let output = &mut match &args.command {
        // There may be several to remove.
        UserCommand::Remove { .. } => Output::of_change(connect.json),
        UserCommand::List { .. } | UserCommand::Show(_) => Output::of_read(connect.json),
        _ => Output::new(connect.json),
    };
    match &args.command {
        UserCommand::Add(args) => user_add::run(args, &remote, output).await?,
        UserCommand::List { method, .. } => list(&remote, method.as_deref(), output).await?,
        UserCommand::Show(user) => show(&remote, user, output).await?,
        UserCommand::Password(args) => set_password(args, &remote, output).await?,
        UserCommand::Token(args) => user_token::run(args, &remote, output).await?,
        // Before a node was asked.
        UserCommand::Ticket(_) => {}
        UserCommand::Acl { user, list, force } => {
            change(&remote, user, ("acl", list), *force, output).await?;
            output.flush()?;
            acl::note_missing(&remote, &user.name, Some(list)).await;
        }
        UserCommand::Role { user, role, force } => {
            change(&remote, user, ("role", role), *force, output).await?;
        }
        UserCommand::Disconnect(user) => disconnect(&remote, user, output).await?,
        UserCommand::Remove { user, force } => remove(&remote, user, *force, output).await?,
    }
    output.flush()
}

async fn show(remote: &Remote, user: &Named, output: &mut Output) -> Result<(), CliError> {
    let User { method, told } = user_of(remote, user.method.as_deref(), &user.name).await?;
    output.either(
        || user_json(&method, &user.name, &told),
        || format!("{} ({method}): {}", user.name, role_and_list(&told)),
    )
}

async fn set_password(
    PasswordArgs { name, new_secret_file, disconnect, .. }: &PasswordArgs,
    remote: &Remote,
    output: &mut Output,
) -> Result<(), CliError> {
    remote.require_private()?;
    let change = Change::of_own(remote, Some("password"), name).await?;
    let mut change = change.disconnecting(*disconnect);
    let secret = NewSecret::read_or_make(new_secret_file, "password", name)?;
    change.set_secret(&secret.text);
    let (reply, ended) = match change.make(remote).await {
        Ok(made) => made,
        Err(error) => return Err(error.in_doubt(|| secret.keep_in_doubt("password", name))),
    };
    secret.keep();
    let told = Told { ended: ended.as_ref(), ..Told::of(&reply) };
    tell_set(output, name, "password", "has a new password", &told)
}

async fn change(
    remote: &Remote,
    user: &Named,
    (field, text): (&str, &str),
    force: bool,
    output: &mut Output,
) -> Result<(), CliError> {
    let found = user_of(remote, user.method.as_deref(), &user.name).await?;
    let mut change = found.change(&user.name)?;
    change.fields.str(field, text);
    add_force(force, &mut change.fields);
    let (reply, _) = change.make(remote).await?;
    let done = format!("has the {field} {text} now");
    tell_set(output, &user.name, &found.method, &done, &Told::of(&reply))
}

async fn disconnect(remote: &Remote, user: &Named, output: &mut Output) -> Result<(), CliError> {
    let Named { name, method, .. } = user;
    let change = Change::of_own(remote, method.as_deref(), name).await?;
    let change = change.disconnecting(true);
    let (_, ended) = change.make(remote).await.map_err(|error| {
        error.in_doubt(|| {
            "the connections may be ended; to be sure, type the command again".to_owned()
        })
    })?;
    let method = &change.method;
    output.either(
        || with_ended(json!({"user": name, "method": method}), ended.as_ref()),
        || {
            let what = ended.as_ref().map(Ended::text).unwrap_or_default();
            format!("{name} ({method}): {what}")
        },
    )
}

async fn remove(
    remote: &Remote,
    user: &Named,
    force: bool,
    output: &mut Output,
) -> Result<(), CliError> {
    let (method, name) = (user.method.as_deref(), &*user.name);
    let found = users_named(remote, method, name).await?;
    if found.is_empty() {
        return remove_leftovers(remote, method, name, output).await;
    }
    let method = only(found, method, name)?.method;
    let mut fields = user_fields(&method, name);
    add_force(force, &mut fields);
    remote.request("auth_delete", &fields).await?;
    tell_removed(output, name, &method)
}

/// Also if no admin is left who can log in.
fn add_force(force: bool, fields: &mut Fields) {
    if force {
        fields.bool("force", true);
    }
}

fn tell_removed(output: &mut Output, name: &str, method: &str) -> Result<(), CliError> {
    output.either(
        || json!({"user": name, "method": method, "removed": true}),
        || format!("{name} ({method}) is removed"),
    )
}

/// Nobody is there. But a change that did not know that the user was removed may have come later: what it has left is no
/// user, and `status` warns of it until it is removed, too. What was removed is told at once: another method's may fail.
async fn remove_leftovers(
    remote: &Remote,
    method: Option<&str>,
    name: &str,
    output: &mut Output,
) -> Result<(), CliError> {
    let mut is_there = false;
    for method in methods(method) {
        let fields = user_fields(method, name);
        if ask_if_there(remote, "auth_delete", &fields).await?.is_some() {
            is_there = true;
            tell_removed(output, name, method)?;
            output.flush()?;
        }
    }
    if is_there { Ok(()) } else { Err(no_user(method, name)) }
}

/// What a user may do, for people.
pub(super) fn role_and_list(told: &Message) -> String {
    let list = match told.str("acl").unwrap_or_default() {
        "" => "no access list".to_owned(),
        list => format!("access list {list}"),
    };
    format!("role {}, {list}", told.str("role").unwrap_or_default())
}

/// The command that makes another token.
pub(super) fn another_token(name: &str) -> String {
    typed::command("user token", &[name], &["--to", "FILE"])
}

/// A token that nobody has seen is in force.
pub(super) fn lost_token(name: &str, why: &CliError) -> String {
    let another = another_token(name);
    format!("{why}; the new token is in force already, and is lost: {another} makes another one")
}

/// What came of a change of a user.
pub(super) struct Told<'a> {
    pub(super) changed: Option<bool>,
    /// The user's new token, which is shown now, or never.
    pub(super) token: Option<&'a str>,
    /// Of a change that also ended the user's connections.
    pub(super) ended: Option<&'a Ended>,
}

impl<'a> Told<'a> {
    pub(super) fn of(reply: &'a Message) -> Self {
        Self { changed: reply.bool("changed"), token: reply.str("token"), ended: None }
    }
}

/// Says what was done, and a token, if one was made: who was to read that and does not has no token.
pub(super) fn tell_set(
    output: &mut Output,
    name: &str,
    method: &str,
    done: &str,
    told: &Told<'_>,
) -> Result<(), CliError> {
    let Told { changed, token, ended } = *told;
    let also = also_ended(ended);
    let told = output.either(
        || {
            let told = json!({"user": name, "method": method, "changed": changed, "token": token});
            with_ended(told, ended)
        },
        || match token {
            Some(token) => {
                format!(
                    "{name} ({method}) {done}{also}; the token, which is not shown again:\n{token}"
                )
            }
            None => format!("{name} ({method}) {done}{also}"),
        },
    );
    match (told.and_then(|()| output.flush()), token) {
        (Err(why), Some(_)) => Err(CliError::Failure(lost_token(name, &why))),
        (told, _) => told,
    }
}

async fn list(remote: &Remote, method: Option<&str>, output: &mut Output) -> Result<(), CliError> {
    let methods: Vec<&str> = method.map_or_else(|| METHODS.to_vec(), |method| vec![method]);
    let mut table = Table::with_head(&["USER", "METHOD", "ROLE", "ACCESS LIST"]);
    let mut count = 0;
    for method in methods {
        for user in users_of(remote, method).await? {
            let name = user.str("ident").unwrap_or_default();
            if output.json {
                output.json_line(user_json(method, name, &user))?;
            }
            let told = |field| user.str(field).unwrap_or_default().to_owned();
            table.row([name.to_owned(), method.to_owned(), told("role"), told("acl")]);
            count += 1;
        }
    }
    match (output.json, count) {
        (true, _) => Ok(()),
        (false, 0) => output.line("there are no users"),
        (false, _) => table.print(output),
    }
}

fn user_json(method: &str, name: &str, user: &Message) -> Json {
    json!({"user": name, "method": method, "role": user.str("role"), "acl": user.str("acl")})
}
