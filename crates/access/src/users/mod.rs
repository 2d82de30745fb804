//! Users: where the tree has them, what their records say, what their roles may do.
//!
//! | path | value |
//! |---|---|
//! | `:n.auth` | `{current: METHOD}`: how clients log in; none: authorisation is off |
//! | `:n.auth.METHOD.user.IDENT` | the user's [`Record`] |
//! | `:n.auth.METHOD.user.IDENT.acl` | `{key: NAME}`: the user's access list; `*`: all data |
//! | `:n.auth.revoked.METHOD.IDENT` | `{}`, or anything else: there is no such user, whatever its record says. `{again: ID}`: the user was made again, by a record with the field `after: ID` |
//! | the same with a byte string behind it | one removal, by its id; while there is any, there is no such user. Making the user again takes away those that are known there |
//! | `:n.acl.NAME.PATTERN…` | letters |
//!
//! A removal is an entry of its own, and stays, so that no password change made elsewhere at the same time lifts it, not
//! even once the user was made again. Nor does a new user of that name, where the removal was not known.
//! Methods, users and lists have names that are strings; others do not count.

mod directory;
mod own_changes;
mod place;
mod record;
mod roles;

#[cfg(test)]
mod tests;

pub use directory::{Directory, GRACE_MS_MAX, User, Warning};
pub use own_changes::{OWN_CHANGE_INTERVAL_MS, OWN_CHANGES_AT_ONCE_MAX, OneUser, OwnChanges};
pub use place::{
    NO_LIST, Place, acl_name_value, acl_path, is_list_name, removal_path, revoked_path,
    user_acl_path, user_path,
};
pub use record::{
    DISCONNECT_BYTES, Disconnect, REMOVAL_BYTES, Record, RecordError, Removal, Removals,
};
pub use roles::{Role, is_before_login, least_role, least_role_at};
