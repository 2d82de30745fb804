//! A user's record: `{role, password | token}`, what it knows of removals and of ends of connections, and fields of others,
//! which are kept.

use distkv_model::value::{Kind, Reader, Value, ValueError, write_bin, write_map_len, write_str};

use super::roles::Role;
use crate::secret::{PasswordHash, Secret, Sent, TokenHash};

/// Most fields of a record.
pub(crate) const FIELDS_MAX: usize = 64;

/// Why a value is no record, or a record no value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The value is not a map, or one of too many fields.
    #[error("a user's record is not a map of at most {FIELDS_MAX} fields")]
    NoMap,
    /// It would have more fields than are read. Fields of other programs count, too.
    #[error(
        "a user's record has at most {FIELDS_MAX} fields, and this one would have more, most of them of other programs; \
         remove the user and make it again, or remove some of those"
    )]
    TooManyFields,
    /// What was written is not a value.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// Key and value.
type Field = (Box<[u8]>, Box<[u8]>);

/// A user's record. The original's are read, too: without a role, and with the SHA-256 of a password.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// None, and a role that is not known, count as [`Role::User`].
    pub role: Option<Role>,
    /// What the user has to prove. What cannot be read is nothing that could be proved. Of a password and a
    /// token, the password counts.
    pub secret: Secret,
    /// Of a user who was removed before: which removal the record knows of.
    pub after: Option<Removal>,
    /// Which end of the user's connections the record knows of; none: nobody has ended them.
    pub disconnect: Option<Disconnect>,
    /// Other fields: key and value, each MessagePack.
    others: Vec<Field>,
}

impl Record {
    /// What `auth_set` writes for a new user: an admin, as the original's tools expect, until an access list
    /// is set.
    #[must_use]
    pub fn of_auth_set(secret: Secret) -> Self {
        Self::new(Role::Admin, secret)
    }

    /// A record of this role.
    #[must_use]
    pub(crate) fn new(role: Role, secret: Secret) -> Self {
        Self { role: Some(role), secret, ..Self::default() }
    }

    /// Reads a record: one checked MessagePack value.
    ///
    /// # Errors
    /// It is not a map, or one of too many fields.
    pub fn read(value: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new(value);
        let fields = reader.read_map_len().map_err(|_| RecordError::NoMap)?;
        if fields > FIELDS_MAX {
            return Err(RecordError::NoMap);
        }
        let mut record = Self::default();
        let (mut password, mut token) = (None, None);
        for _ in 0..fields {
            let key = reader.read_raw().map_err(|_| RecordError::NoMap)?;
            let value = reader.read_raw().map_err(|_| RecordError::NoMap)?;
            match Reader::new(key).read_str_bytes() {
                Ok(b"role") => record.role = Some(read_role(value)),
                Ok(b"password") => password = Some(read_password(value)),
                Ok(b"token") => token = Some(read_token(value)),
                Ok(b"after") => record.after = read_id(value).map(Removal),
                Ok(b"disconnect") => record.disconnect = read_id(value).map(Disconnect),
                _ => record.others.push((key.into(), value.into())),
            }
        }
        record.secret = password.or(token).unwrap_or_default();
        Ok(record)
    }

    /// The value to store.
    ///
    /// # Errors
    /// Other fields make it too large, or are so many that it could not be read again.
    pub fn write(&self) -> Result<Value, RecordError> {
        let mut fields: Vec<(&str, Vec<u8>)> = Vec::new();
        let mut put = |name, write: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            write(&mut bytes);
            fields.push((name, bytes));
        };
        if let Some(role) = self.role {
            put("role", &|out| write_str(role.name(), out));
        }
        match &self.secret {
            Secret::None => {}
            Secret::Password(hash) => put("password", &|out| write_str(hash.as_str(), out)),
            Secret::Legacy(hash) => put("password", &|out| write_bin(hash.as_bytes(), out)),
            Secret::Token(hash) => put("token", &|out| write_bin(hash.as_bytes(), out)),
        }
        if let Some(Removal(id)) = &self.after {
            put("after", &|out| write_bin(id, out));
        }
        if let Some(Disconnect(id)) = &self.disconnect {
            put("disconnect", &|out| write_bin(id, out));
        }
        let count = fields.len() + self.others.len();
        if count > FIELDS_MAX {
            return Err(RecordError::TooManyFields);
        }
        let mut bytes = Vec::new();
        write_map_len(count, &mut bytes);
        for (name, value) in fields {
            write_str(name, &mut bytes);
            bytes.extend_from_slice(&value);
        }
        for (key, value) in &self.others {
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
        }
        Ok(Value::new(&bytes)?)
    }

    /// The record that must be stored before an access list is set for the user, or before the list is taken
    /// away; none if it may stay. So an admin is a user from then on, and removing the list gives nothing back.
    #[must_use]
    pub fn before_acl(&self) -> Option<Self> {
        let is_less = matches!(self.role, Some(Role::User | Role::Operator));
        (!is_less).then(|| Self { role: Some(Role::User), ..self.clone() })
    }

    /// Whether there is such a user: it was never removed, or the record was made by somebody who knew of all
    /// removals.
    #[must_use]
    pub fn is_in_force(&self, removals: &Removals) -> bool {
        let is_after = |value: &[u8]| {
            let removal = Removal::read(value);
            removal.is_some() && removal == self.after
        };
        !removals.is_open && removals.last.as_deref().is_none_or(is_after)
    }

    /// The record with another secret; the role stays.
    #[must_use]
    pub fn with_secret(&self, secret: Secret) -> Self {
        Self { secret, ..self.clone() }
    }
}

/// What the tree says of the removals of one user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Removals {
    /// The value at [`super::revoked_path`]; none: there is none.
    pub last: Option<Box<[u8]>>,
    /// There is a removal at [`super::removal_path`]. Whoever makes the user again takes away those that are known there:
    /// so one that is made elsewhere at the same time is left, and counts.
    pub is_open: bool,
}

impl Removals {
    /// Whether the user was ever removed.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.is_open || self.last.is_some()
    }
}

/// Which removal of a user a record knows of. While nobody has made the user again, there is none that it could know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removal(pub [u8; REMOVAL_BYTES]);

/// Bytes of a removal's id, which are random.
pub const REMOVAL_BYTES: usize = 16;

impl Removal {
    /// The one in the value of a removal; none: the user was not made again.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        for _ in 0..reader.read_map_len().ok()?.min(FIELDS_MAX) {
            let key = reader.read_raw().ok()?;
            let value = reader.read_raw().ok()?;
            if Reader::new(key).read_str_bytes() == Ok(b"again") {
                return read_id(value).map(Self);
            }
        }
        None
    }

    /// What is stored once the user is made again: only records that know this removal count.
    #[must_use]
    pub fn made_again(&self) -> Vec<u8> {
        let mut value = Vec::new();
        write_map_len(1, &mut value);
        write_str("again", &mut value);
        write_bin(&self.0, &mut value);
        value
    }

    /// What is stored when a user is removed: no record counts.
    #[must_use]
    pub fn removed() -> Vec<u8> {
        let mut value = Vec::new();
        write_map_len(0, &mut value);
        value
    }
}

/// Which end of a user's connections a record knows of. A connection goes on only while the record has the one that it
/// logged in under. It is random and no count: if two admins end connections on two sides of a split, neither keeps those
/// that the other has let in since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disconnect(pub [u8; DISCONNECT_BYTES]);

/// Bytes of its id.
pub const DISCONNECT_BYTES: usize = 16;

fn read_id<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    Reader::new(value).read_bin().ok()?.try_into().ok()
}

fn read_role(value: &[u8]) -> Role {
    Reader::new(value).read_str().ok().and_then(Role::of).unwrap_or(Role::User)
}

fn read_password(value: &[u8]) -> Secret {
    let mut reader = Reader::new(value);
    let secret = match reader.peek_kind() {
        Ok(Kind::Bin) => reader.read_bin().ok().and_then(Sent::from_slice).map(Secret::Legacy),
        Ok(Kind::Str) => {
            reader.read_str().ok().and_then(|t| PasswordHash::read(t).ok()).map(Secret::Password)
        }
        _ => None,
    };
    secret.unwrap_or_default()
}

fn read_token(value: &[u8]) -> Secret {
    let hash = Reader::new(value).read_bin().ok().and_then(TokenHash::from_slice);
    hash.map(Secret::Token).unwrap_or_default()
}
