//! What can go wrong in membership: settings that cannot work, and bytes that are not ours.

use std::net::SocketAddr;

use thiserror::Error;

/// Why a [`Swim`](super::Swim) could not be made. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MembershipError {
    /// Others could not send anything to this address.
    #[error("{addr} cannot be advertised: it needs the address of one host and a port")]
    Address {
        /// The address.
        addr: SocketAddr,
    },
    /// A setting is zero, or two contradict each other.
    #[error("membership settings: {0}")]
    Setting(&'static str),
}

/// Why bytes from the network could not be read, or a datagram could not be written. Nothing was
/// changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum CodecError {
    /// It ends in the middle of something.
    #[error("cut short")]
    CutShort,
    /// A tag or a flag has a value that means nothing.
    #[error("unknown {0}")]
    Unknown(&'static str),
    /// A name, an address or a number is out of its bounds.
    #[error("bad {0}")]
    OutOfBounds(&'static str),
    /// Something follows where nothing should.
    #[error("trailing bytes")]
    Trailing,
    /// There is no room left for what should be written.
    #[error("no room")]
    NoRoom,
}
