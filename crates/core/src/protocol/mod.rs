//! Bytes to types and back, pure. Everything here must take hostile input without a panic.

pub mod client;
pub mod frame;
pub mod json;
pub mod lines;
pub mod peer;
pub mod record;
pub mod saved_state;
