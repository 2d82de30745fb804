//! What the client port refuses, or lets wait: limits, a node that is not ready, data that asks for a
//! login.

mod any_fields;
mod limits;
mod login_required;
mod not_ready;
