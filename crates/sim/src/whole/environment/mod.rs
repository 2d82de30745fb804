//! What whole nodes run on: clocks, disks, links and membership, and the faults of all of them.

mod disks;
mod faults;
pub(super) mod membership;
pub(super) mod system;
pub(super) mod wires;
