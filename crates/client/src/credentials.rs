//! How a client gets into a network: which one it is, by TLS or in plain text, and as whom. A ticket says all of it.

#[cfg(feature = "tls")]
use distkv_tls::{ClientTls, Clock, Ticket, TlsError, Trust};

use crate::connection::OwnNetwork;
use crate::login::Login;
#[cfg(feature = "tls")]
use crate::rt;

/// See the module. The default: plain text, and no login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    #[cfg(feature = "tls")]
    tls: Option<ClientTls>,
    login: Option<Login>,
    network: Option<OwnNetwork>,
}

impl Access {
    /// Logs in so, where the node asks for a login.
    #[must_use]
    pub fn log_in(self, login: Login) -> Access {
        Access { login: Some(login), ..self }
    }

    /// Whether by TLS.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
    }

    /// Nodes whose greeting names another network are left before anything is sent. None: any are used.
    #[must_use]
    pub fn to_network(self, network: Option<OwnNetwork>) -> Access {
        Access { network, ..self }
    }

    /// The network whose nodes alone are used, if that is known.
    #[must_use]
    pub fn network(&self) -> Option<&OwnNetwork> {
        self.network.as_ref()
    }

    /// How it logs in, if it does.
    #[must_use]
    pub fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }
}

#[cfg(feature = "tls")]
impl Access {
    /// Connects by TLS, and not at all to a node that does not speak it.
    #[must_use]
    pub fn by_tls(self, tls: ClientTls) -> Access {
        Access { tls: Some(tls), ..self }
    }

    /// Connects by TLS to nodes whose certificates are of this CA and have the name under which they are asked.
    ///
    /// ```
    /// use distkv_client::{Access, ClientConfig, Trust};
    ///
    /// # fn config(pem: &[u8]) -> Result<ClientConfig, Box<dyn std::error::Error>> {
    /// let access = Access::default().by_ca(Trust::pem(pem)?)?;
    /// Ok(ClientConfig::new().access(access))
    /// # }
    /// ```
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn by_ca(self, trust: Trust) -> Result<Access, TlsError> {
        let clock = Clock::new(|| rt::wall_clock_ms() / 1_000);
        Ok(self.by_tls(ClientTls::new(trust, None, clock)?))
    }

    /// What a ticket says, but for its addresses.
    ///
    /// # Errors
    /// If the client certificate in it cannot be used.
    pub fn of_ticket(ticket: &Ticket) -> Result<Access, TlsError> {
        let clock = Clock::new(|| rt::wall_clock_ms() / 1_000);
        let login = ticket.login.as_ref();
        let login = login
            .map(|login| Login::user(Some(&login.method), &login.user, login.secret.as_deref()));
        Ok(Access { tls: ticket.tls(clock)?, login, network: OwnNetwork::of_ticket(ticket) })
    }

    /// How it connects by TLS, if it does.
    #[must_use]
    pub fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }
}
