//! Never fail open: a node whose data says that clients must log in serves none, because they cannot
//! log in yet. Peers are served: the data is the network's, and another node may know how.

use crate::engine::Engine;
use crate::model::meta::Login;
use crate::replica::Policies;

/// The node serves no clients: its data says that they must log in, and they cannot.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "authorisation is switched on in this network's data (:n.auth, {login}), and this version cannot \
     log clients in, so this node refuses every client; its operator can serve everybody with --ignore-auth"
)]
pub struct Closed {
    /// What the data says.
    pub login: Login,
}

impl Engine {
    /// Why no client is served, if that is so. Peers are still served.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        let login = self.login().filter(|_| !self.config.ignore_auth)?;
        Some(Closed { login: login.clone() })
    }

    /// Whether no client is served.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.login().is_some() && !self.config.ignore_auth
    }

    /// How clients must log in, as the data says; none: they need not.
    #[must_use]
    pub fn login(&self) -> Option<&Login> {
        self.replica.login()
    }

    /// How often the data that says who may do what has changed. Whoever has checked something against it
    /// is out of date when this is another.
    #[must_use]
    pub fn policies(&self) -> Policies {
        self.replica.policies()
    }
}
