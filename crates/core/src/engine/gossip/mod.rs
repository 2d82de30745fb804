//! How changes and knowledge of them spread: the linked peers, digests, and how changes reach nodes
//! that have no link to their maker.

mod digest;
pub mod lists;
pub mod overlay;
pub(super) mod peers;
pub(super) mod spread;
