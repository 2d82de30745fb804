//! `user`: who may log in, and as what.

use std::path::{Path, PathBuf};

use clap::builder::StringValueParser;
use clap::{Args, Subcommand};
use distkv_access::users::Role;
use serde_json::{Value as Json, json};

use super::ended::{Ended, also_ended, with_ended};
use super::existing::{
    Change, User, ask_if_there, methods, no_user, only, user_fields, user_of, users_named,
};
use super::new_secret::{NewSecret, make_token, tells_of_secret};
use super::user_ticket::{self, TicketArgs};
use super::{acl, users_of};
use crate::cli::error::CliError;
use crate::cli::files::new_file::{Existing, tidy_when_interrupted};
use crate::cli::files::ticket_file::TicketFile;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::say;
use crate::cli::terminal::output::{Output, Table, printable};
use crate::cli::terminal::words::completed;
use crate::cli::typed;
use crate::client::{Fields, Message};
use crate::model::meta::METHODS;

/// What `--method` is completed with.
const OFFERED: [&str; 3] = ["password", "token", "root"];
/// What a role is completed with.
const ROLES: [&str; 3] = ["user", "operator", "admin"];

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
    /// Add a user
    ///
    /// A password is read from --new-secret-file, or from standard input; if there is no such file, it is made at random and written there. At a terminal it is asked for. It does not stand behind the name and a colon, which would be part of the name. A token is made by the node and printed once, unless there is a --new-secret-file.
    #[command(after_help = "\
Examples:
  distkv-node user add joe --acl lamps --new-secret-file joe.secret
  distkv-node user add robot --method token --acl '*'")]
    Add {
        /// The user's name
        name: String,
        /// How the user logs in: password, token, root
        #[arg(
            long,
            default_value = "password",
            value_parser = completed(StringValueParser::new(), &OFFERED),
            hide_possible_values = true
        )]
        method: String,
        /// What the user may do: user, operator, or admin, who has no access list [default: user with --acl, admin without]
        #[arg(
            long,
            value_parser = completed(StringValueParser::new(), &ROLES),
            hide_possible_values = true
        )]
        role: Option<String>,
        /// The user's access list; * is all data
        #[arg(long)]
        acl: Option<String>,
        /// The file with the password or token, made if there is none; - is standard input
        #[arg(long, value_name = "FILE")]
        new_secret_file: Option<PathBuf>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
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
    /// Change a user's password
    ///
    /// It is read from --new-secret-file, or from standard input; if there is no such file, it is made at random and written there. At a terminal it is asked for. Users may change their own.
    ///
    /// Connections that are open go on, unless --disconnect ends them, too.
    #[command(after_help = "\
Examples:
  distkv-node user password joe --new-secret-file joe.secret
  distkv-node user password joe --new-secret-file other.secret --disconnect")]
    Password {
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
    },
    /// Give a user a new token, which is printed once; the old one logs nobody in any more
    ///
    /// Connections that are open go on, unless --disconnect ends them, too.
    #[command(after_help = "\
Examples:
  distkv-node user token robot --to robot.token
  distkv-node user token robot
  distkv-node user token robot --disconnect

With --to, the file is made for its owner only (mode 0600), before the old token ends. If the node's answer is lost (exit code 7), the new token is kept in FILE.new beside it. Where the new one is printed and cannot be written, nobody has it: the command fails, and is to be typed again.")]
    Token {
        /// The user's name
        name: String,
        /// Write the token to this file, and do not print it
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        /// Replace the file if there is one
        #[arg(long, requires = "to")]
        force: bool,
        /// End the user's open connections, too, in the same change
        #[arg(long)]
        disconnect: bool,
        #[command(flatten)]
        remote: RemoteArgs,
    },
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
            UserCommand::Add { remote, .. }
            | UserCommand::List { remote, .. }
            | UserCommand::Password { remote, .. }
            | UserCommand::Token { remote, .. } => remote,
            UserCommand::Ticket(ticket) => &ticket.remote,
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
    if let UserCommand::Add { role, .. } = &args.command {
        // Nobody should think of a password for nothing.
        check_role(role.as_deref())?;
    }
    if let UserCommand::Token { to: Some(_), .. } = &args.command {
        tidy_when_interrupted(connect.json)?;
    }
    if let UserCommand::Ticket(ticket) = &args.command {
        return user_ticket::run(ticket, &connect).await;
    }
    let remote = connect.connect().await?;
    let mut output = match &args.command {
        // There may be several to remove.
        UserCommand::Remove { .. } => Output::of_change(connect.json),
        UserCommand::List { .. } | UserCommand::Show(_) => Output::of_read(connect.json),
        _ => Output::new(connect.json),
    };
    match &args.command {
        UserCommand::Add { name, method, role, acl, new_secret_file, .. } => {
            warn_of_colon(name);
            let mut fields = user_fields(method, name);
            // One that is there already is not changed.
            fields.nil("chain");
            if method == "token" || method == "password" {
                remote.require_private()?;
            }
            let more = [("role", role), ("acl", acl)];
            for (field, text) in more {
                if let Some(text) = text {
                    fields.str(field, text);
                }
            }
            let stdin = PathBuf::from("-");
            let file = new_secret_file.as_ref().or((method == "password").then_some(&stdin));
            let secret =
                file.map(|file| NewSecret::read_or_make(file, method, name)).transpose()?;
            if let Some(secret) = &secret {
                fields.str("secret", &secret.text);
            }
            let reply = match remote.request("auth_set", &fields).await {
                Ok(reply) => reply,
                Err(error) => {
                    return Err(error.in_doubt(|| match secret {
                        Some(secret) => secret.keep_in_doubt(method, name),
                        None if method == "token" => {
                            let another = another_token(name);
                            format!("if {name} was added, the token is lost: {another} makes another one")
                        }
                        None => show_tells(name),
                    }));
                }
            };
            secret.into_iter().for_each(NewSecret::keep);
            let done = match reply.bool("changed") {
                Some(false) => {
                    let told = user_of(&remote, Some(method), name).await?.told;
                    format!("is there already, and so it stays: {}", role_and_list(&told))
                }
                Some(true) | None => String::from("added"),
            };
            tell_set(&mut output, name, method, &done, &Told::of(&reply))?;
            output.flush()?;
            acl::note_missing(&remote, name, acl.as_deref()).await;
        }
        UserCommand::List { method, .. } => list(&remote, method.as_deref(), &mut output).await?,
        UserCommand::Show(user) => {
            let User { method, told } =
                user_of(&remote, user.method.as_deref(), &user.name).await?;
            output.either(
                || user_json(&method, &user.name, &told),
                || format!("{} ({method}): {}", user.name, role_and_list(&told)),
            )?;
        }
        UserCommand::Password { name, new_secret_file, disconnect, .. } => {
            remote.require_private()?;
            let change = Change::of_own(&remote, Some("password"), name).await?;
            let mut change = change.disconnecting(*disconnect);
            let secret = NewSecret::read_or_make(new_secret_file, "password", name)?;
            change.set_secret(&secret.text);
            let (reply, ended) = match change.make(&remote).await {
                Ok(made) => made,
                Err(error) => return Err(error.in_doubt(|| secret.keep_in_doubt("password", name))),
            };
            secret.keep();
            let told = Told { ended: ended.as_ref(), ..Told::of(&reply) };
            tell_set(&mut output, name, "password", "has a new password", &told)?;
        }
        UserCommand::Token { name, to, force, disconnect, .. } => {
            remote.require_private()?;
            let file = to.as_ref().map(|to| TicketFile::begin(to, Existing::of_force(*force)));
            let file = to.as_ref().zip(file.transpose()?);
            let change = Change::of_own(&remote, Some("token"), name).await?;
            let mut change = change.disconnecting(*disconnect);
            match file {
                None => {
                    let token = disconnect.then(make_token).transpose()?;
                    if let Some(token) = &token {
                        change.set_secret(token);
                    }
                    let made = change.make(&remote).await;
                    let (reply, ended) = made.map_err(|error| {
                        error.in_doubt(|| {
                            let another = another_token(name);
                            format!(
                                "if {name} has a new token, it is lost, and the one before is not valid any more: {another} \
                                 makes another one"
                            )
                        })
                    })?;
                    let told = Told::of(&reply);
                    let token = token.as_deref().or(told.token);
                    let told = Told { token, ended: ended.as_ref(), ..told };
                    tell_set(&mut output, name, "token", "has a new token", &told)?;
                }
                Some((to, file)) => {
                    let ended = token_into(file, change, &remote, name).await?;
                    let place = to.display().to_string();
                    output.either(
                        || {
                            let told = json!({"user": name, "method": "token", "changed": true, "token_file": place});
                            with_ended(told, ended.as_ref())
                        },
                        || {
                            let ended = also_ended(ended.as_ref());
                            format!("{name} (token) has a new token, which is in {place}{ended}")
                        },
                    )?;
                }
            }
        }
        // Before a node is asked.
        UserCommand::Ticket(_) => {}
        UserCommand::Acl { user, list, force } => {
            change(&remote, user, ("acl", list), *force, &mut output).await?;
            output.flush()?;
            acl::note_missing(&remote, &user.name, Some(list)).await;
        }
        UserCommand::Role { user, role, force } => {
            change(&remote, user, ("role", role), *force, &mut output).await?;
        }
        UserCommand::Disconnect(user) => {
            let Named { name, method, .. } = user;
            let change = Change::of_own(&remote, method.as_deref(), name).await?;
            let change = change.disconnecting(true);
            let (_, ended) = change.make(&remote).await.map_err(|error| {
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
            )?;
        }
        UserCommand::Remove { user, force } => {
            remove(&remote, user, *force, &mut output).await?;
        }
    }
    output.flush()
}

/// Gives a user a new token, which is in the file before a node is sent it.
async fn token_into(
    mut file: TicketFile,
    mut change: Change,
    remote: &Remote,
    name: &str,
) -> Result<Option<Ended>, CliError> {
    let token = make_token()?;
    file.write(&token)?;
    change.set_secret(&token);
    let user = name.to_owned();
    let told = move |kept: &Path| {
        let (place, tells) = (kept.display(), tells_of_secret("token", &user, kept));
        format!(
            "{user} may have a new token: if so, it is in {place}, and the one before is not valid any more; {tells} tells, \
             where nodes ask for logins. If it logs in, rename the file; if not, type the command again"
        )
    };
    file.keep_when_interrupted(told.clone());
    match change.make(remote).await {
        Ok((_, ended)) => {
            file.finish().map_err(|error| CliError::Failure(lost_token(name, &error)))?;
            Ok(ended)
        }
        Err(error) => Err(error.in_doubt(|| match file.keep_beside() {
            Ok(kept) => told(&kept),
            Err(lost) => lost,
        })),
    }
}

/// Other tools take `NAME:PASSWORD` in one word. Here a colon is a character of a name like others, as in the original: it
/// must be possible to add such a user, but mostly it is not what somebody means.
fn warn_of_colon(name: &str) {
    if !name.contains(':') {
        return;
    }
    let remove = typed::command("user remove", &[name], &[]);
    say::warning(&format!(
        "the user's name is {}, with the colon: passwords are asked for, or read from --new-secret-file. If there is a \
         password in it, {remove} removes the user; take another password, since this one is in the list of users, and \
         in the history of the shell",
        printable(name)
    ));
}

/// Whether there is such a role.
fn check_role(role: Option<&str>) -> Result<(), CliError> {
    match role.filter(|role| Role::of(role).is_none()) {
        None => Ok(()),
        Some(role) => Err(CliError::Usage(format!(
            "--role: there is no role {role}: give user, operator or admin"
        ))),
    }
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
fn role_and_list(told: &Message) -> String {
    let list = match told.str("acl").unwrap_or_default() {
        "" => "no access list".to_owned(),
        list => format!("access list {list}"),
    };
    format!("role {}, {list}", told.str("role").unwrap_or_default())
}

/// The command that makes another token.
fn another_token(name: &str) -> String {
    typed::command("user token", &[name], &["--to", "FILE"])
}

/// The command that tells whether a user was added who has no secret.
fn show_tells(name: &str) -> String {
    format!("{} tells", typed::command("user show", &[name], &[]))
}

/// A token that nobody has seen is in force.
fn lost_token(name: &str, why: &CliError) -> String {
    let another = another_token(name);
    format!("{why}; the new token is in force already, and is lost: {another} makes another one")
}

/// What came of a change of a user.
struct Told<'a> {
    changed: Option<bool>,
    /// The user's new token, which is shown now, or never.
    token: Option<&'a str>,
    /// Of a change that also ended the user's connections.
    ended: Option<&'a Ended>,
}

impl<'a> Told<'a> {
    fn of(reply: &'a Message) -> Self {
        Self { changed: reply.bool("changed"), token: reply.str("token"), ended: None }
    }
}

/// Says what was done, and a token, if one was made: who was to read that and does not has no token.
fn tell_set(
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
