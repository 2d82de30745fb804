//! Commands on nodes and their network: how they are, what they know, who belongs to it.

pub(super) mod clients;
pub(super) mod conflicts;
pub(super) mod leave;
pub(super) mod members;
mod resync;
mod roster;
pub(super) mod shards;
pub(super) mod state;
pub(super) mod status;
pub(super) mod top;
pub(super) mod verify;
pub(super) mod wait;
