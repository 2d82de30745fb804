//! Whether clients must log in, as the data says. Peers are served in any case: the data is the network's.

use std::fmt;

use crate::engine::Engine;
use crate::model::meta::Login;
use crate::replica::Policies;

/// The data says that clients must log in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed {
    /// What the data says.
    pub login: Login,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { login } = self;
        write!(f, "logins are switched on in this network's data (:n.auth, {login})")?;
        if login.is_known() {
            return f.write_str(", so clients must log in");
        }
        // Never fail open: whoever switched that on wanted access restricted.
        f.write_str(
            ", and this version cannot log clients in that way, so this node refuses every client; its \
             operator can serve everybody with --ignore-auth",
        )
    }
}

impl Engine {
    /// Why clients are not served without a login, if that is so.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        let login = self.login().filter(|_| !self.config.ignore_auth)?;
        Some(Closed { login: login.clone() })
    }

    /// Whether no client is served without a login.
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
