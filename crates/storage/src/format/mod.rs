//! What is in every file: frames, the header, and the records in them.

pub mod batch;
pub mod frame;
pub(super) mod framing;
pub mod header;
pub(super) mod knowledge;
pub(super) mod record;
