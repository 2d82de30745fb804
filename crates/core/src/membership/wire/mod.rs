//! Datagrams as bytes: their envelope, and foca's headers and members in them.

pub(super) mod codec;
pub(super) mod datagram;
