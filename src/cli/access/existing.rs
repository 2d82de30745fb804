//! Users who are there, and changes of them. `auth_set` makes whoever is not there, as an admin: so a change names the
//! record that was looked at, and comes to nothing if that is gone.

use super::ended::Ended;
use crate::cli::error::CliError;
use crate::cli::remote::Remote;
use crate::cli::typed;
use crate::client::{Fields, Message};
use crate::model::meta::METHODS;

/// A user who is there.
pub(super) struct User {
    pub(super) method: String,
    /// What a node says of it.
    pub(super) told: Message,
}

/// A change of a user who is there, to be completed.
pub(super) struct Change {
    pub(super) method: String,
    pub(super) name: String,
    pub(super) fields: Fields,
    /// The record that was looked at, as MessagePack; none: of a user who may not look at itself.
    chain: Option<Vec<u8>>,
    /// Whether the user gets another secret.
    pub(super) sets_secret: bool,
    /// The user's open connections end, in the same change. A token is to be in the fields then: the node makes none.
    pub(super) disconnects: bool,
}

/// The fields that say which user is meant.
pub(super) fn user_fields(method: &str, name: &str) -> Fields {
    let mut fields = Fields::new();
    fields.str("typ", method).str("kind", "user").str("ident", name);
    fields
}

/// Those of that name, of the method that was given or of all.
pub(super) async fn users_named(
    remote: &Remote,
    method: Option<&str>,
    name: &str,
) -> Result<Vec<User>, CliError> {
    let mut found = Vec::new();
    for method in methods(method) {
        let mut fields = user_fields(method, name);
        fields.u64("nchain", 1);
        if let Some(told) = ask_if_there(remote, "auth_get", &fields).await? {
            found.push(User { method: method.to_owned(), told });
        }
    }
    Ok(found)
}

/// What a node answers about a user; none if it knows nothing of that name.
pub(super) async fn ask_if_there(
    remote: &Remote,
    action: &str,
    fields: &Fields,
) -> Result<Option<Message>, CliError> {
    match remote.try_request(action, fields).await? {
        Ok(told) => Ok(Some(told)),
        Err(error) if error.has_code("not_found") => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether the node has a key, also where it does not ask for logins yet, as it is being moved to the key.
pub(super) async fn has_key(remote: &Remote) -> Result<bool, CliError> {
    Ok(remote.try_request("key_list", &Fields::new()).await?.is_ok())
}

/// The only one of that name.
pub(super) async fn user_of(
    remote: &Remote,
    method: Option<&str>,
    name: &str,
) -> Result<User, CliError> {
    only(users_named(remote, method, name).await?, method, name)
}

/// The only one of those that were found.
pub(super) fn only(
    mut found: Vec<User>,
    method: Option<&str>,
    name: &str,
) -> Result<User, CliError> {
    match (found.pop(), &found[..]) {
        (None, _) => Err(no_user(method, name)),
        (Some(user), []) => Ok(user),
        (Some(last), others) => {
            let methods: Vec<&str> = others.iter().chain([&last]).map(|u| &*u.method).collect();
            let methods = methods.join(", ");
            let text = format!("{name:?} is a user of {methods}; say which with --method");
            Err(CliError::Usage(text))
        }
    }
}

/// The methods that may be meant.
pub(super) fn methods(method: Option<&str>) -> Vec<&str> {
    method.map_or_else(|| METHODS.to_vec(), |method| vec![method])
}

/// How the client has logged in, if it is the user of that name.
async fn own_method(remote: &Remote, name: &str) -> Result<Option<String>, CliError> {
    let own = remote.request("auth_info", &Fields::new()).await?;
    let is_named = own.str("user") == Some(name);
    Ok(own.str("method").filter(|_| is_named).map(str::to_owned))
}

/// There is nobody of that name.
pub(super) fn no_user(method: Option<&str>, name: &str) -> CliError {
    let of = method.map(|method| format!(" of the method {method:?}")).unwrap_or_default();
    CliError::not_found(format!("there is no user {name:?}{of}"))
}

impl User {
    /// A change of this user.
    pub(super) fn change(&self, name: &str) -> Result<Change, CliError> {
        let Some(chain) = self.told.get("chain") else {
            return Err(no_user(Some(&self.method), name));
        };
        let chain = Some(chain.to_vec());
        let fields = user_fields(&self.method, name);
        let (method, name) = (self.method.clone(), name.to_owned());
        Ok(Change { method, name, fields, chain, sets_secret: false, disconnects: false })
    }
}

impl Change {
    /// Another secret, or the end of all connections. Users may not look at themselves; but for whoever is no admin, a node
    /// does that to its own user only, who is there.
    pub(super) async fn of_own(
        remote: &Remote,
        method: Option<&str>,
        name: &str,
    ) -> Result<Self, CliError> {
        let error = match user_of(remote, method, name).await {
            Err(error) if error.has_code("denied") => error,
            user => return user?.change(name),
        };
        let method = match method {
            Some(method) => method.to_owned(),
            None => own_method(remote, name).await?.ok_or(error)?,
        };
        let fields = user_fields(&method, name);
        Ok(Self {
            method,
            name: name.to_owned(),
            fields,
            chain: None,
            sets_secret: false,
            disconnects: false,
        })
    }

    /// The user gets this secret.
    pub(super) fn set_secret(&mut self, secret: &str) {
        self.fields.str("secret", secret);
        self.sets_secret = true;
    }

    /// The same, which ends the user's open connections, or does not.
    pub(super) fn disconnecting(self, disconnects: bool) -> Self {
        Self { disconnects, ..self }
    }

    /// Makes it. What ends connections needs no record that was looked at: it makes nobody, and whoever has stolen the user's
    /// secret could be in its way by changing that all the time.
    ///
    /// # Errors
    /// The user is not there any more, or another one; or the node has refused it, is of an older version, or was not
    /// reached.
    pub(super) async fn make(&self, remote: &Remote) -> Result<(Message, Option<Ended>), CliError> {
        let Self { method, name, fields, chain, disconnects, .. } = self;
        let made = if *disconnects {
            self.make_until_it_counts(remote).await.map(|(reply, ended)| (reply, Some(ended)))
        } else {
            let mut fields = fields.clone();
            if let Some(chain) = chain {
                fields.raw("chain", chain);
            }
            remote.request("auth_set", &fields).await.map(|reply| (reply, None))
        };
        match made {
            Err(error) if *disconnects && error.has_code("not_found") => {
                Err(no_user(Some(method), name))
            }
            Err(error) if *disconnects && error.has_code("unknown_action") => Err(error.said(|_| {
                let remove = typed::command("user remove", &[name], &["--method", method]);
                format!(
                    "this node is of an older version and ends no connections of a user who stays; nothing was changed: \
                     connect to another node, or remove the user ({remove}) and make it again"
                )
            })),
            Err(error) if error.has_code("is_new") => Err(no_user(Some(method), name)),
            Err(error) if error.has_code("chain_mismatch") => Err(error.said(|_| {
                format!(
                    "{name} ({method}) was changed by somebody else at this moment; nothing was changed: type the \
                     command again"
                )
            })),
            made => made,
        }
    }
}
