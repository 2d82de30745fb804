//! A node's whole state as data: what a restart needs, and states from elsewhere that are taken in.

pub mod exchange;
pub(super) mod image;
pub mod load;
pub mod take_in;
