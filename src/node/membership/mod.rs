//! Which nodes there are, and how they reach each other: the SWIM thread, what follows from what it
//! finds, the list of known peers on disk, and this node's own address and greeting.

pub(super) mod address;
pub(super) mod door;
pub(super) mod identity;
pub(super) mod members;
pub(super) mod peer_file;
pub(super) mod route;
pub(super) mod swim;
