//! Who may do what: access lists, users and their roles, secrets, the original's password login, type
//! checks.
//!
//! Pure: no clock, randomness, socket, file or environment. Times come in as milliseconds, random bytes as
//! arrays. Nothing here changes a tree. What is stored (`:n.auth`, `:n.acl`, `:n.type`, `:n.match`) comes in
//! as paths and values, and is compiled into tables that are replaced whole:
//!
//! | module | table | from |
//! |---|---|---|
//! | [`acl`] | [`acl::Rights`]: which letters hold at a path | one access list |
//! | [`users`] | [`users::Directory`]: users, roles, their rights | `:n.auth`, `:n.acl` |
//! | [`types`] | [`types::Types`]: which values fit where | `:n.type`, `:n.match` |
//!
//! Whatever cannot be read, or is past a bound, grants nothing.

pub mod acl;
pub mod dh;
mod patterns;
pub mod secret;
#[cfg(feature = "types")]
pub mod types;
pub mod users;
