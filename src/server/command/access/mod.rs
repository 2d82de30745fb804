//! Access control, as far as it goes: `test_acl`, and what is stored and not enforced.

pub(in crate::server) mod acl;
pub(in crate::server) mod unenforced;
