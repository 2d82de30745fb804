//! What protects the traffic between nodes: the cluster key, links over TCP and datagrams over UDP.
//! Pure: bytes, time and random numbers come in, bytes come out. Nothing here reads a file, a socket or
//! a clock.
//!
//! | module | what |
//! |---|---|
//! | [`key`] | one cluster key, its id, and the keys derived from it for each purpose |
//! | [`key_ring`] | the 1 to 4 keys of a network during a rotation, and how two rings are merged |
//! | [`hand_over`] | what nodes tell each other of keys over their links, in bytes |
//! | [`reports`] | which keys the nodes of the network have, as each says |
//! | [`rotation`] | where the rotation of the keys stands |
//! | [`key_file`] | the text of a key file |
//! | [`link`] | the handshake of a TCP connection ([`link::Dialler`], [`link::Acceptor`]), and its records ([`link::Sealer`], [`link::Opener`]) |
//! | [`datagram`] | sealed datagrams that cannot be replayed ([`datagram::DatagramDoor`]) |
//!
//! Whoever has the key is a full member of the network. There are no identities of nodes here.
//!
//! Duties of the caller:
//! 1. Random bytes come from the operating system. An [`link::Ephemeral`] made of bytes that were used
//!    before gives the link's keys away.
//! 2. An accepted link counts as half-open until its [`link::Opener`] has opened a record: the first
//!    message of a handshake can be a replay, and only the first record proves that the dialler is there.
//! 3. Handshakes have a deadline, and the number of half-open ones a bound; neither is here.
//! 4. A [`link::Refusal`] is not authenticated. It may be logged, and it may choose the suite of the next
//!    dial. It must never make a node remove a key, drop a peer or speak in plaintext.

pub mod datagram;
pub mod hand_over;
pub mod key;
pub mod key_file;
pub mod key_ring;
pub mod link;
pub mod reports;
pub mod rotation;
