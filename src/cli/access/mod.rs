//! Commands on users, access lists, and how clients log in.

pub(super) mod acl;
mod admins;
pub(super) mod auth;
mod new_secret;
pub(super) mod user;
mod user_ticket;
pub(super) mod whoami;

use super::error::CliError;
use super::remote::Remote;
use crate::client::{Fields, Message, StreamEvent};
use crate::model::meta::METHODS;

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

/// The method of a user: the one that was given, or the only one that has it.
async fn method_of(remote: &Remote, method: Option<&str>, user: &str) -> Result<String, CliError> {
    if let Some(method) = method {
        return Ok(method.to_owned());
    }
    let mut found = Vec::new();
    for method in METHODS {
        let mut fields = Fields::new();
        fields.str("typ", method).str("ident", user);
        match remote.try_request("auth_get", &fields).await? {
            Ok(_) => found.push(method),
            Err(error) if error.server().is_some_and(|error| error.has_code("not_found")) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match &found[..] {
        [] => Err(CliError::not_found(format!("there is no user {user:?}"))),
        [method] => Ok((*method).to_owned()),
        several => {
            let text =
                format!("{user:?} is a user of {}; say which with --method", several.join(", "));
            Err(CliError::Usage(text))
        }
    }
}
