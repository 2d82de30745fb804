//! What clients send: the fields of a message, and the typed requests that they make.

pub mod action;
pub mod auth;
pub mod batch;
pub(super) mod coerce;
pub mod decode;
pub mod field;
pub mod operator;
pub mod request;
pub mod shards;
pub mod stored;
pub mod topic;
pub mod write;
