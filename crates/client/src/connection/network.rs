//! Of which network a client is. It uses no other network's nodes: what is written there would be lost to the own one.

use std::fmt;

use crate::error::ClientError;
use crate::model::host_port::HostPort;

/// Characters of a network's name that an error shows.
const NETWORK_CHARS_MAX: usize = 64;

/// A client's network, and who says that it is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNetwork {
    name: String,
    said_by: SaidBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SaidBy {
    Configuration,
    #[cfg(feature = "tls")]
    Ticket,
    FirstNode,
}

impl OwnNetwork {
    /// That of this name; none if it is empty.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Option<OwnNetwork> {
        OwnNetwork::of(name.into(), SaidBy::Configuration)
    }

    /// The one that a ticket names, if it names one.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn of_ticket(ticket: &distkv_tls::Ticket) -> Option<OwnNetwork> {
        OwnNetwork::of(ticket.network.clone(), SaidBy::Ticket)
    }

    /// The one of a node that has let the client in, before any network was known.
    #[must_use]
    pub fn of_node(name: &str) -> Option<OwnNetwork> {
        OwnNetwork::of(name.to_owned(), SaidBy::FirstNode)
    }

    fn of(name: String, said_by: SaidBy) -> Option<OwnNetwork> {
        (!name.is_empty()).then_some(OwnNetwork { name, said_by })
    }

    /// Whether a node at this address may be used whose greeting names this network.
    ///
    /// # Errors
    /// [`ClientError::OtherNetwork`].
    pub(crate) fn check(&self, to: &HostPort, theirs: &str) -> Result<(), ClientError> {
        if self.name == theirs {
            return Ok(());
        }
        let (ours, theirs) = (Box::new(self.clone()), Box::from(theirs));
        Err(ClientError::OtherNetwork { address: to.to_string(), ours, theirs })
    }

    /// Its name; never empty.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A network's name for people: a node may say anything, and a name that is longer is none.
pub(crate) fn shown(name: &str) -> String {
    let end = name.char_indices().nth(NETWORK_CHARS_MAX);
    match end.and_then(|(end, _)| name.get(..end)) {
        Some(start) => format!("{start:?}…"),
        None => format!("{name:?}"),
    }
}

impl fmt::Display for OwnNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.name))?;
        f.write_str(match self.said_by {
            SaidBy::Configuration => ", as its configuration says",
            #[cfg(feature = "tls")]
            SaidBy::Ticket => ", as its ticket says",
            SaidBy::FirstNode => "",
        })
    }
}
