//! Which admins can log in. Whether one is left is for the node to decide.

use super::users_of;
use crate::cli::error::CliError;
use crate::cli::remote::Remote;
use crate::model::meta::{Login, METHODS};

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
