//! Access control, as far as it goes: `test_acl`, and what is stored and not enforced.

mod acl;
pub(in crate::server) mod unenforced;
