//! Commands on users, access lists, and how clients log in.

pub(super) mod acl;
mod admins;
pub(super) mod auth;
mod ended;
mod existing;
mod new_secret;
pub(super) mod user;
mod user_add;
mod user_ticket;
mod user_token;
pub(super) mod whoami;

use super::error::CliError;
use super::remote::Remote;
use crate::client::{Fields, Message, StreamEvent};

/// The messages of a stream.
async fn collect(remote: &Remote, action: &str, fields: &Fields) -> Result<Vec<Item>, CliError> {
    let mut stream = remote.stream(action, fields).await?;
    let mut items = Vec::new();
    while let Some(event) = remote.next(&mut stream).await? {
        if let StreamEvent::Item { path, message } = event {
            items.push(Item { path, message });
        }
    }
    Ok(items)
}

/// One of them.
struct Item {
    path: Option<crate::model::path::Path>,
    message: Message,
}

/// The users of a method.
async fn users_of(remote: &Remote, method: &str) -> Result<Vec<Message>, CliError> {
    let mut fields = Fields::new();
    fields.str("typ", method).str("state", "start");
    let items = collect(remote, "auth_list", &fields).await?;
    Ok(items.into_iter().map(|item| item.message).collect())
}
