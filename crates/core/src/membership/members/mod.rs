//! Who is a member: identities, which nodes may come in, the reported state of each, and the peers to
//! call when they are missing.

pub(super) mod admission;
pub(super) mod identity;
pub(super) mod peers;
pub(super) mod roster;
pub(super) mod strangers;
