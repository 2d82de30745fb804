//! Secrets in the texts of errors: found by [`distkv_model::secrets`], which the audit log of a node uses, too.

pub(super) use distkv_model::secrets::without_tickets;
pub use distkv_model::secrets::{looks_secret, without_secrets};
