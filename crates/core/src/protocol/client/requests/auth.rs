//! Requests about logins and users: `diffie_hellman`, `auth` and its siblings, as the original's clients
//! send them, with the fields that ours add.

use super::write::timeout;
use crate::model::ids::Millis;
use crate::model::value::{Kind, Reader};
use crate::protocol::client::action::Action;
use crate::protocol::client::chain::ChainField;
use crate::protocol::client::decode::chain_length;
use crate::protocol::client::error::ClientError;
use crate::protocol::client::field::{Field, Fields, wrong, wrong_kind};
use crate::protocol::client::request::ChainLength;

/// Most bytes of a login's secret, of the original's sealed box with a password, and of a proof.
pub const SECRET_BYTES_MAX: usize = 4 << 10;
/// Most bytes of the name of a user or of a method.
pub const NAME_BYTES_MAX: usize = 256;
/// Most bytes of a public key of the key exchange: the group has 2,048 bits.
pub const PUBLIC_KEY_BYTES_MAX: usize = 256;
/// How many random bits the original's client asks for in a key exchange unless it says so.
const EXCHANGE_BITS: u64 = 1_024;

/// What is asked for.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthRequest<'a> {
    /// `diffie_hellman`: the two ends agree on a key for passwords.
    Exchange {
        /// The client's public number, most significant byte first.
        public: &'a [u8],
        /// How many random bits the client would like; below 32, a small group.
        bits: u64,
    },
    /// `auth`: the client says who it is.
    Login(Login<'a>),
    /// `auth_list`.
    List {
        /// Whose users.
        method: &'a str,
        /// This one alone; none for all.
        user: Option<&'a str>,
        /// How much of the chain is wanted.
        chain: ChainLength,
        /// The request said that it expects a stream. Without, the original sends one message too many.
        is_stream: bool,
    },
    /// `auth_get`.
    Get {
        /// Whose user.
        method: &'a str,
        /// Which one.
        user: &'a str,
        /// How much of the chain is wanted.
        chain: ChainLength,
    },
    /// `auth_set` and `auth_disconnect`.
    Set(UserChange<'a>),
    /// `auth_delete`: the user is no more, at all nodes, whatever others change of it at the same time.
    Delete {
        /// Whose user.
        method: &'a str,
        /// Which one.
        user: &'a str,
        /// Also if no admin is left who can log in.
        force: bool,
    },
    /// `set_auth_typ`: which method logins must use; none for no logins.
    SetMethod {
        /// The method.
        method: Option<&'a str>,
        /// For how long those who have not logged in may go on, in ms; none: not at all.
        grace_ms: Option<u64>,
        /// Also if no admin is left who can log in.
        force: bool,
    },
}

/// Who a client says it is, and how it shows that.
#[derive(Clone, PartialEq, Eq)]
pub struct Login<'a> {
    /// The method.
    pub method: &'a str,
    /// The user.
    pub user: &'a str,
    /// The original's sealed box with the password's hash.
    pub sealed: Option<&'a [u8]>,
    /// The secret itself, which only our clients send, within TLS or on the node's own machine.
    pub secret: Option<&'a [u8]>,
    /// The client's part of the challenge, for `proof`.
    pub nonce: Option<&'a [u8]>,
    /// That the client has the cluster's key.
    pub proof: Option<&'a [u8]>,
}

/// A user to be made, or changed.
#[derive(Clone, PartialEq, Eq)]
pub struct UserChange<'a> {
    /// Whose user.
    pub method: &'a str,
    /// Which one.
    pub user: &'a str,
    /// What the record's newest event must be.
    pub chain: ChainField<'a>,
    /// The original's sealed box with the password's hash.
    pub sealed: Option<&'a [u8]>,
    /// The secret itself, which only our clients send.
    pub secret: Option<&'a [u8]>,
    /// The user's access list; none leaves it as it is.
    pub acl: Option<&'a str>,
    /// The user's role; none leaves it as it is.
    pub role: Option<&'a str>,
    /// Also if no admin is left who can log in.
    pub force: bool,
    /// The client expects a stream, in which it is asked for the user's name: the original's clients, for the method
    /// `_test`.
    pub is_dialogue: bool,
    /// The user's open connections end, in the same change. Only who is there is changed, and the secret stays unless another
    /// one is given.
    pub disconnects: bool,
    /// Of such a change: for how long its answer waits until every linked peer has confirmed it; none: not at all.
    pub confirm_ms: Option<Millis>,
}

impl UserChange<'_> {
    /// The action by which it was asked for.
    #[must_use]
    pub fn action(&self) -> Action {
        if self.disconnects { Action::AuthDisconnect } else { Action::AuthSet }
    }
}

/// Says nothing of what is secret.
impl std::fmt::Debug for AuthRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exchange { bits, .. } => write!(f, "Exchange({bits} bits)"),
            Self::Login(login) => write!(f, "Login({:?}, {:?})", login.method, login.user),
            Self::List { method, user, .. } => write!(f, "List({method:?}, {user:?})"),
            Self::Get { method, user, .. } => write!(f, "Get({method:?}, {user:?})"),
            Self::Set(change) => write!(f, "Set({:?}, {:?})", change.method, change.user),
            Self::Delete { method, user, .. } => write!(f, "Delete({method:?}, {user:?})"),
            Self::SetMethod { method, .. } => write!(f, "SetMethod({method:?})"),
        }
    }
}

/// A time that is too long for any number is the longest.
fn grace(fields: &Fields<'_>) -> Result<Option<u64>, ClientError> {
    let Some(ms) = fields.int_or_nil(Field::Grace)? else { return Ok(None) };
    if ms < 0 {
        return Err(ClientError::bad_request("bad field 'grace_ms': it must be 0 or above"));
    }
    Ok(Some(u64::try_from(ms).unwrap_or(u64::MAX)))
}

/// Decodes the request of an action that is about logins and users.
///
/// # Errors
/// A field is missing, of another kind, or too long.
pub(in crate::protocol::client) fn decode_auth<'a>(
    action: Action,
    fields: &Fields<'a>,
) -> Result<AuthRequest<'a>, ClientError> {
    Ok(match action {
        Action::DiffieHellman => {
            let bits = fields
                .int_or_nil(Field::Length)?
                .map_or(EXCHANGE_BITS, |bits| u64::try_from(bits.max(0)).unwrap_or(u64::MAX));
            AuthRequest::Exchange { public: public_key(fields)?, bits }
        }
        Action::Auth => AuthRequest::Login(Login {
            method: name(fields, Field::Typ)?,
            user: name(fields, Field::Ident)?,
            sealed: secret(fields, Field::Password)?,
            secret: secret(fields, Field::Secret)?,
            nonce: secret(fields, Field::Nonce)?,
            proof: secret(fields, Field::Proof)?,
        }),
        Action::AuthGet => {
            check_kind(fields)?;
            let (method, user) = (name(fields, Field::Typ)?, name(fields, Field::Ident)?);
            AuthRequest::Get { method, user, chain: chain_length(fields, 0)? }
        }
        Action::AuthSet => AuthRequest::Set(UserChange {
            acl: optional_name(fields, Field::Acl)?,
            role: optional_name(fields, Field::Role)?,
            force: fields.flag(Field::Force)?,
            is_dialogue: fields.optional_text(Field::State)? == Some("start"),
            ..user_change(fields)?
        }),
        Action::AuthDisconnect => {
            check_changes_no_rights(fields)?;
            let waits = fields.get_non_nil(Field::Timeout).is_some();
            AuthRequest::Set(UserChange {
                // It takes no right away, so there is nothing to be warned of.
                force: true,
                disconnects: true,
                confirm_ms: waits.then(|| timeout(fields)).transpose()?,
                ..user_change(fields)?
            })
        }
        Action::AuthDelete => {
            check_kind(fields)?;
            AuthRequest::Delete {
                method: name(fields, Field::Typ)?,
                user: name(fields, Field::Ident)?,
                force: fields.flag(Field::Force)?,
            }
        }
        Action::SetAuthTyp => AuthRequest::SetMethod {
            method: optional_name(fields, Field::Typ)?,
            grace_ms: grace(fields)?,
            force: fields.flag(Field::Force)?,
        },
        // `auth_list`, as the only other one that is decoded here.
        _ => {
            check_kind(fields)?;
            let method = name(fields, Field::Typ)?;
            let user = optional_name(fields, Field::Ident)?;
            let is_stream = fields.optional_text(Field::State)? == Some("start");
            AuthRequest::List { method, user, chain: chain_length(fields, 0)?, is_stream }
        }
    })
}

/// Which user is to be changed, and its new secret.
fn user_change<'a>(fields: &Fields<'a>) -> Result<UserChange<'a>, ClientError> {
    check_kind(fields)?;
    Ok(UserChange {
        method: name(fields, Field::Typ)?,
        user: name(fields, Field::Ident)?,
        chain: ChainField::decode(fields.get(Field::Chain))?,
        sealed: secret(fields, Field::Password)?,
        secret: secret(fields, Field::Secret)?,
        acl: None,
        role: None,
        force: false,
        is_dialogue: false,
        disconnects: false,
        confirm_ms: None,
    })
}

/// Whoever sends these means that the user gets other rights, which this action does not give. If they were ignored, a thief
/// could keep rights of which somebody thinks that they were taken away.
fn check_changes_no_rights(fields: &Fields<'_>) -> Result<(), ClientError> {
    match [Field::Acl, Field::Role].into_iter().find(|field| fields.get_non_nil(*field).is_some()) {
        None => Ok(()),
        Some(field) => Err(ClientError::bad_request(format!(
            "bad field '{}': auth_disconnect changes neither the role nor the access list; nothing was changed; use \
             auth_set for that",
            field.name()
        ))),
    }
}

/// There are users and nothing else, in the original, too.
fn check_kind(fields: &Fields<'_>) -> Result<(), ClientError> {
    match fields.optional_text(Field::Kind)? {
        None | Some("user") => Ok(()),
        Some(_) => Err(ClientError::bad_request("bad field 'kind': there are only users")),
    }
}

fn name<'a>(fields: &Fields<'a>, field: Field) -> Result<&'a str, ClientError> {
    let missing = || ClientError::bad_request(format!("the field '{}' is missing", field.name()));
    optional_name(fields, field)?.ok_or_else(missing)
}

fn optional_name<'a>(fields: &Fields<'a>, field: Field) -> Result<Option<&'a str>, ClientError> {
    let text = fields.optional_text(field)?;
    if text.is_some_and(|text| text.is_empty() || text.len() > NAME_BYTES_MAX) {
        let text = format!("bad field '{}': 1 to {NAME_BYTES_MAX} bytes", field.name());
        return Err(ClientError::bad_request(text));
    }
    Ok(text)
}

/// Bytes, or a text's bytes.
fn secret<'a>(fields: &Fields<'a>, field: Field) -> Result<Option<&'a [u8]>, ClientError> {
    let Some(raw) = fields.get_non_nil(field) else { return Ok(None) };
    let mut reader = Reader::new(raw);
    let bytes = match reader.peek_kind() {
        Ok(Kind::Str) => reader.read_str().map(str::as_bytes),
        Ok(Kind::Bin) => reader.read_bin(),
        _ => Err(wrong_kind(raw, "bytes or a text")),
    };
    let bytes = bytes.map_err(|e| wrong(field, &e))?;
    if bytes.len() > SECRET_BYTES_MAX {
        let text = format!("bad field '{}': more than {SECRET_BYTES_MAX} bytes", field.name());
        return Err(ClientError::bad_request(text));
    }
    Ok(Some(bytes))
}

fn public_key<'a>(fields: &Fields<'a>) -> Result<&'a [u8], ClientError> {
    match fields.bytes(Field::Pubkey)? {
        None => Err(ClientError::bad_request("the field 'pubkey' is missing")),
        Some(bytes) if bytes.len() > PUBLIC_KEY_BYTES_MAX => {
            let text = format!("bad field 'pubkey': more than {PUBLIC_KEY_BYTES_MAX} bytes");
            Err(ClientError::bad_request(text))
        }
        Some(bytes) => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::value::{write_map_len, write_str};
    use crate::protocol::client::{ClientMessage, Request, decode};

    /// A message of texts.
    fn message(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        write_map_len(fields.len() + 1, &mut out);
        write_str("seq", &mut out);
        out.push(1);
        for (name, text) in fields {
            write_str(name, &mut out);
            write_str(text, &mut out);
        }
        out
    }

    fn decoded(fields: &[(&str, &str)]) -> Result<String, String> {
        let message = message(fields);
        match decode(&message) {
            Ok(ClientMessage::Request { request: Request::Auth(auth), .. }) => {
                Ok(format!("{auth:?}"))
            }
            Err(bad) => Err(bad.error.text),
            Ok(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_about_users_are_decoded_and_show_nothing_secret() {
        let login =
            [("action", "auth"), ("typ", "token"), ("ident", "joe"), ("secret", "tell none")];
        assert_eq!(decoded(&login).unwrap(), "Login(\"token\", \"joe\")");
        let list = [("action", "auth_list"), ("typ", "password"), ("kind", "user")];
        assert_eq!(decoded(&list).unwrap(), "List(\"password\", None)");
        let set = [("action", "auth_set"), ("typ", "root"), ("ident", "*"), ("role", "user")];
        assert_eq!(decoded(&set).unwrap(), "Set(\"root\", \"*\")");
        let disconnect = [("action", "auth_disconnect"), ("typ", "root"), ("ident", "*")];
        assert_eq!(decoded(&disconnect).unwrap(), "Set(\"root\", \"*\")");
        assert_eq!(decoded(&[("action", "set_auth_typ")]).unwrap(), "SetMethod(None)");
        assert!(decoded(&[("action", "set_auth_typ"), ("grace_ms", "x")]).is_err());
    }

    #[test]
    fn what_is_missing_or_too_long_is_named() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let disconnect = [("action", "auth_disconnect"), ("typ", "root"), ("ident", "*")];
        let [with_role, with_list, with_time] =
            ["role", "acl", "timeout"].map(|name| [&disconnect[..], &[(name, "user")]].concat());
        let cases: [(&[(&str, &str)], &str); 8] = [
            (&with_role, "bad field 'role'"),
            (&with_list, "bad field 'acl'"),
            (&with_time, "bad field 'timeout'"),
            (&[("action", "auth"), ("ident", "joe")], "the field 'typ' is missing"),
            (&[("action", "auth_get"), ("typ", "root")], "the field 'ident' is missing"),
            (&[("action", "set_auth_typ"), ("typ", &long)], "bad field 'typ'"),
            (&[("action", "auth_list"), ("typ", "root"), ("kind", "role")], "bad field 'kind'"),
            (&[("action", "diffie_hellman")], "the field 'pubkey' is missing"),
        ];
        for (fields, error) in cases {
            let text = decoded(fields).unwrap_err();
            assert!(text.contains(error), "{text}");
        }
    }
}
