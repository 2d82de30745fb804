//! Who could still change users and switch logins off: a network without a key, and with logins, must keep an admin, or
//! nobody can do that any more but who stops a node and starts it with `--ignore-auth`.

use super::auth::Logins;
use super::users_of;
use crate::cli::error::CliError;
use crate::cli::remote::Remote;
use crate::client::Fields;

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
    let Some(in_force) = Logins::of(&reply).filter(|logins| !logins.is_secured) else {
        return Ok(());
    };
    let Some(in_force) = in_force.method else { return Ok(()) };
    let admins = admins_of(remote, &in_force).await?;
    let is_last = matches!(&admins[..], [(by, one)] if *by == method && one == name);
    if !is_last {
        return Ok(());
    }
    Err(CliError::Failure(format!(
        "{name} ({method}) is the last admin who can log in: {done} leaves nobody who could change users or switch \
         logins off; nothing was changed. Make another admin first (`distkv-node user role NAME admin`), or add --force"
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
    let methods: &[&str] = match in_force {
        // Clients that know passwords only send tokens as such.
        "password" => &["password", "token"],
        "token" => &["token"],
        "root" => &["root"],
        _ => &["_test"],
    };
    let mut admins = Vec::new();
    for method in methods {
        let users = users_of(remote, method).await?;
        let users = users.iter().filter(|user| user.str("role") == Some("admin"));
        admins.extend(users.filter_map(|user| Some((*method, user.str("ident")?.to_owned()))));
    }
    Ok(admins)
}
