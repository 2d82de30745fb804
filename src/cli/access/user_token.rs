//! `user token`: a new token for a user, printed or in a file.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::ended::{Ended, also_ended, with_ended};
use super::existing::Change;
use super::new_secret::{make_token, tells_of_secret};
use super::user::{Told, another_token, lost_token, tell_set};
use crate::cli::error::CliError;
use crate::cli::files::new_file::{Existing, tidy_when_interrupted};
use crate::cli::files::ticket_file::TicketFile;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::terminal::output::Output;

/// Give a user a new token, which is printed once; the old one logs nobody in any more
///
/// Connections that are open go on, unless --disconnect ends them, too.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node user token robot --to robot.token
  distkv-node user token robot
  distkv-node user token robot --disconnect

With --to, the file is made for its owner only (mode 0600), before the old token ends. If the node's answer is lost (exit code 7), the new token is kept in FILE.new beside it. Where the new one is printed and cannot be written, nobody has it: the command fails, and is to be typed again.")]
pub(super) struct TokenArgs {
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
    pub(super) remote: RemoteArgs,
}

impl TokenArgs {
    /// Nothing of a file is left of a command that is interrupted.
    pub(super) fn tidy_when_interrupted(&self, connect: &RemoteArgs) -> Result<(), CliError> {
        if self.to.is_some() { tidy_when_interrupted(connect.json) } else { Ok(()) }
    }
}

pub(super) async fn run(
    TokenArgs { name, to, force, disconnect, .. }: &TokenArgs,
    remote: &Remote,
    output: &mut Output,
) -> Result<(), CliError> {
    remote.require_private()?;
    let file = to.as_ref().map(|to| TicketFile::begin(to, Existing::of_force(*force)));
    let file = to.as_ref().zip(file.transpose()?);
    let change = Change::of_own(remote, Some("token"), name).await?;
    let change = change.disconnecting(*disconnect);
    let Some((to, file)) = file else {
        return print(change, *disconnect, remote, name, output).await;
    };
    let ended = token_into(file, change, remote, name).await?;
    let place = to.display().to_string();
    output.either(
        || {
            let told =
                json!({"user": name, "method": "token", "changed": true, "token_file": place});
            with_ended(told, ended.as_ref())
        },
        || {
            let ended = also_ended(ended.as_ref());
            format!("{name} (token) has a new token, which is in {place}{ended}")
        },
    )
}

/// Gives a user a new token, and prints it.
async fn print(
    mut change: Change,
    disconnects: bool,
    remote: &Remote,
    name: &str,
    output: &mut Output,
) -> Result<(), CliError> {
    let token = disconnects.then(make_token).transpose()?;
    if let Some(token) = &token {
        change.set_secret(token);
    }
    let (reply, ended) = change.make(remote).await.map_err(|error| {
        error.in_doubt(|| {
            let another = another_token(name);
            format!(
                "if {name} has a new token, it is lost, and the one before is not valid any more: {another} makes another one"
            )
        })
    })?;
    let told = Told::of(&reply);
    let told = Told { token: token.as_deref().or(told.token), ended: ended.as_ref(), ..told };
    tell_set(output, name, "token", "has a new token", &told)
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
