//! What commands print, and how people write sizes, durations and moments.

pub(super) use distkv_command::{output, units};

pub(super) mod interrupt;
pub(super) mod progress;
pub(super) mod standard_input;
pub(super) mod times;
pub(super) mod words;
