//! `user add`: a new user.

use std::path::PathBuf;

use clap::Args;
use clap::builder::StringValueParser;
use distkv_access::users::Role;

use super::acl;
use super::existing::{user_fields, user_of};
use super::new_secret::NewSecret;
use super::user::{ROLES, Told, another_token, role_and_list, tell_set};
use crate::cli::error::CliError;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::say;
use crate::cli::terminal::output::{Output, printable};
use crate::cli::terminal::words::completed;
use crate::cli::typed;

/// What `--method` is completed with.
const OFFERED: [&str; 3] = ["password", "token", "root"];

/// Add a user
///
/// A password is read from --new-secret-file, or from standard input; if there is no such file, it is made at random and written there. At a terminal it is asked for. It does not stand behind the name and a colon, which would be part of the name. A token is made by the node and printed once, unless there is a --new-secret-file.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node user add joe --acl lamps --new-secret-file joe.secret
  distkv-node user add robot --method token --acl '*'")]
pub(super) struct AddArgs {
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
    pub(super) remote: RemoteArgs,
}

impl AddArgs {
    /// Whether there is such a role.
    pub(super) fn check(&self) -> Result<(), CliError> {
        match self.role.as_deref().filter(|role| Role::of(role).is_none()) {
            None => Ok(()),
            Some(role) => Err(CliError::Usage(format!(
                "--role: there is no role {role}: give user, operator or admin"
            ))),
        }
    }
}

pub(super) async fn run(
    AddArgs { name, method, role, acl, new_secret_file, .. }: &AddArgs,
    remote: &Remote,
    output: &mut Output,
) -> Result<(), CliError> {
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
    let secret = file.map(|file| NewSecret::read_or_make(file, method, name)).transpose()?;
    if let Some(secret) = &secret {
        fields.str("secret", &secret.text);
    }
    let reply = match remote.request("auth_set", &fields).await {
        Ok(reply) => reply,
        Err(error) => return Err(error.in_doubt(|| in_doubt(name, method, secret))),
    };
    secret.into_iter().for_each(NewSecret::keep);
    let done = match reply.bool("changed") {
        Some(false) => {
            let told = user_of(remote, Some(method), name).await?.told;
            format!("is there already, and so it stays: {}", role_and_list(&told))
        }
        Some(true) | None => String::from("added"),
    };
    tell_set(output, name, method, &done, &Told::of(&reply))?;
    output.flush()?;
    acl::note_missing(remote, name, acl.as_deref()).await;
    Ok(())
}

/// What to do where nobody knows whether the user was added.
fn in_doubt(name: &str, method: &str, secret: Option<NewSecret>) -> String {
    match secret {
        Some(secret) => secret.keep_in_doubt(method, name),
        None if method == "token" => {
            let another = another_token(name);
            format!("if {name} was added, the token is lost: {another} makes another one")
        }
        None => format!("{} tells", typed::command("user show", &[name], &[])),
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
