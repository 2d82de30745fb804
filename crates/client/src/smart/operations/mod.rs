//! What a program asks for, and gets: entries, trees, batches, conflicts, any other request.

pub(super) mod batch;
pub(super) mod conflicts;
pub(super) mod entry;
pub(super) mod ops;
pub(super) mod options;
pub(super) mod request;
pub(super) mod shards;
pub(super) mod tree;
pub(super) mod write_places;
