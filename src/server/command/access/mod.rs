//! Access control: logins, users, `test_acl`, and what is stored and not enforced.

pub(in crate::server) mod acl;
mod change;
pub(in crate::server::command) mod ended;
pub(in crate::server) mod entries;
pub(in crate::server) mod last_admin;
pub(in crate::server) mod login;
mod own;
mod removal;
mod set_user;
pub(in crate::server) mod unenforced;
mod user_list;
mod users;

pub(in crate::server) use change::policies_changed;
pub(in crate::server) use users::{check_list_name, demote_for_list, remove_for_record};
