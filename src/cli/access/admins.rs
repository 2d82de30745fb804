//! Which admins can log in. A network that asks for logins and has no key must keep one: otherwise nobody can change
//! users or switch logins off any more, except by starting a node with `--ignore-auth`.

use super::auth::Logins;
use super::users_of;
use crate::cli::error::CliError;
use crate::cli::remote::Remote;
use crate::client::Fields;
use crate::model::meta::{Login, METHODS};

/// Refuses a change that would leave no admin, while clients must log in and no node asks for a key. `done`: what
/// would be done, as in "removing it".
///
/// # Errors
/// This user is the last admin; nothing was changed. Or the node could not be asked.
pub(super) async fn keep_one(
    remote: &Remote,
    (method, name): (&str, &str),
    done: &str,
) -> Result<(), CliError> {
    let reply = remote.request("status", &Fields::new()).await?;
    // A version that does not say has no logins to lose.
    let Some(Logins { method: Some(in_force), is_secured: false, .. }) = Logins::of(&reply) else {
        return Ok(());
    };
    let admins = admins_of(remote, &in_force).await?;
    if !matches!(&admins[..], [(by, one)] if *by == method && one == name) {
        return Ok(());
    }
    Err(CliError::Failure(format!(
        "{name} ({method}) is the last admin who can log in: {done} leaves nobody who could change users or switch \
         logins off, so nothing was changed. Make another admin first (`distkv-node user role NAME admin`), or add --force"
    )))
}

/// The admins who may log in where this method is in force, and how each does.
///
/// # Errors
/// The node could not be asked.
pub(super) async fn admins_of(
    remote: &Remote,
    in_force: &str,
) -> Result<Vec<(&'static str, String)>, CliError> {
    let in_force = Login::Method(in_force.into());
    let mut admins = Vec::new();
    for method in METHODS.into_iter().filter(|method| in_force.admits(method)) {
        let users = users_of(remote, method).await?;
        let users = users.iter().filter(|user| user.str("role") == Some("admin"));
        admins.extend(users.filter_map(|user| Some((method, user.str("ident")?.to_owned()))));
    }
    Ok(admins)
}
