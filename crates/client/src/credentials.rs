//! How a client gets into a network: which one it is, by TLS or in plain text, and as whom. A ticket says all of it.

use std::net::IpAddr;
#[cfg(feature = "tls")]
use std::path::Path;
#[cfg(feature = "tls")]
use std::sync::Arc;

#[cfg(feature = "tls")]
use certificate_file::CertificateFile;
#[cfg(feature = "tls")]
use distkv_tls::{ClientTls, Clock, Ticket, TlsError, Trust};

use crate::connection::OwnNetwork;
use crate::login::Login;
#[cfg(feature = "tls")]
use crate::rt;

#[cfg(feature = "tls")]
mod certificate_file;

/// See the module. The default: plain text, and no login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    #[cfg(feature = "tls")]
    tls: Option<ClientTls>,
    /// What counts instead of `tls`, where the client's certificate may be replaced.
    #[cfg(feature = "tls")]
    certificate: Option<Arc<CertificateFile>>,
    login: Option<Login>,
    plaintext_login: bool,
    network: Option<OwnNetwork>,
}

impl Access {
    /// Logs in so, where the node asks for a login.
    #[must_use]
    pub fn log_in(self, login: Login) -> Access {
        Access { login: Some(login), ..self }
    }

    /// Whether a user's password or token is also sent without TLS to another machine (no): whoever is in between, or
    /// answers in the node's place, can read it. Otherwise a node that asks for it there counts as one that refuses the
    /// client. Nodes of this machine, by a loopback address, get it anyway.
    #[must_use]
    pub fn plaintext_login(self, plaintext_login: bool) -> Access {
        Access { plaintext_login, ..self }
    }

    /// Whether [`Access::plaintext_login`] allowed it.
    pub(crate) fn has_plaintext_login(&self) -> bool {
        self.plaintext_login
    }

    /// Whether a secret may be sent over a connection, whose other end is at this address: by TLS, to this machine, or
    /// where that was allowed.
    #[must_use]
    pub fn may_send_secrets(&self, peer: IpAddr) -> bool {
        self.is_secured() || is_own_machine(peer) || self.plaintext_login
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

    /// This, and of what it says nothing, what the other one says. TLS counts as one, with its client certificate.
    pub(crate) fn or(self, other: Access) -> Access {
        #[cfg(feature = "tls")]
        let (tls, certificate) = match self.tls {
            Some(_) => (self.tls, self.certificate),
            None => (other.tls, other.certificate),
        };
        Access {
            #[cfg(feature = "tls")]
            tls,
            #[cfg(feature = "tls")]
            certificate,
            login: self.login.or(other.login),
            plaintext_login: self.plaintext_login || other.plaintext_login,
            network: self.network.or(other.network),
        }
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
        Access { tls: Some(tls), certificate: None, ..self }
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
        let login = Login::of_ticket(ticket);
        let (tls, network) = (ticket.tls(clock)?, OwnNetwork::of_ticket(ticket));
        Ok(Access { tls, certificate: None, login, plaintext_login: false, network })
    }

    /// The same, where the ticket was read from this file ([`read_ticket_file`](crate::read_ticket_file)). Where a node does not
    /// take the secret, the file is read again: if it has another one for the same user, network and CA by then, the client logs in
    /// with that at once, and from then on. Where a node had taken the secret before, it is read for up to a second before the
    /// client counts as refused; otherwise once, and at most once a second. Where the ticket has a client certificate, another one for the
    /// same network and CA is taken for new connections, once the file has changed. Nothing else of it is taken over.
    ///
    /// # Errors
    /// If the client certificate in it cannot be used.
    pub fn of_ticket_file(ticket: &Ticket, file: &Path) -> Result<Access, TlsError> {
        Access::of_ticket_file_for(ticket, file, false)
    }

    /// The same; `is_of_any_ca`: the program has said itself which CA counts, so another secret is taken whatever CA comes with it.
    pub(crate) fn of_ticket_file_for(
        ticket: &Ticket,
        file: &Path,
        is_of_any_ca: bool,
    ) -> Result<Access, TlsError> {
        let login = Login::of_ticket_file(ticket, file, is_of_any_ca);
        let access = Access::of_ticket(ticket)?;
        let tls = access.tls.as_ref();
        let certificate = tls.and_then(|tls| CertificateFile::new(ticket, file, tls)).map(Arc::new);
        Ok(Access { login, certificate, ..access })
    }

    /// Whether it logs in as this ticket says: with the secret that it had first, or with the one that it has found in its ticket's
    /// file meanwhile.
    #[must_use]
    pub fn logs_in_as(&self, ticket: &Ticket) -> bool {
        self.login.as_ref().map(Login::current) == Login::of_ticket(ticket)
    }

    /// How it connects by TLS, if it does; with the client certificate that it had first.
    #[must_use]
    pub fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }

    /// How the next connection is made by TLS, if it is.
    pub(crate) async fn tls_now(&self) -> Option<ClientTls> {
        match &self.certificate {
            Some(file) => Some(file.now().await),
            None => self.tls.clone(),
        }
    }
}

/// Whether nothing that is sent to this address leaves the machine.
pub(crate) fn is_own_machine(peer: IpAddr) -> bool {
    // An IPv6 socket has IPv4 addresses in their long form.
    peer.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_to_a_loopback_address_stays_on_the_machine() {
        let own = [
            "127.0.0.1",
            "127.0.0.0",
            "127.255.255.255",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:127.9.9.9",
        ];
        for address in own {
            assert!(Access::default().may_send_secrets(address.parse().unwrap()), "{address}");
        }
        let others = [
            "10.0.0.7",
            "126.255.255.255",
            "128.0.0.1",
            "0.0.0.0",
            "169.254.0.1",
            "192.168.1.1",
            "::",
            "::2",
            "::127.0.0.1",
            "::ffff:10.0.0.7",
            "::ffff:128.0.0.1",
            "fe80::1",
            "fd00::1",
            "2001:db8::1",
            "7f00::1",
        ];
        for address in others {
            let address = address.parse().unwrap();
            assert!(!Access::default().may_send_secrets(address), "{address}");
            let told = Access::default().plaintext_login(true);
            assert!(told.may_send_secrets(address), "{address}");
            assert!(!told.plaintext_login(false).may_send_secrets(address), "{address}");
        }
    }
}
