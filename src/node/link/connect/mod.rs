//! How a link comes about: whom to dial, accepting, the greetings of both sides, and which of two
//! connections stays.
//!
//! | file | what |
//! |---|---|
//! | [`targets`] | whom to dial, and when |
//! | `trouble` | what is told of addresses at which no link comes about |
//! | `dial` | connections that we make |
//! | `accept` | connections that peers make |
//! | `secure` | the handshake of a sealed link |
//! | `greet` | the first words on a connection |
//! | `handshakes` | connections that have not become links yet |
//! | [`admission`] | which connection to a peer stays |
//! | `name_conflict` | that another living node has our name |

pub(super) mod accept;
pub(super) mod admission;
pub(super) mod dial;
pub(super) mod greet;
pub(super) mod handshakes;
pub(super) mod name_conflict;
mod secure;
pub(super) mod targets;
pub(super) mod trouble;
