//! How a client gets into a network: by TLS or in plain text, and as whom. A ticket says both.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "tls")]
use distkv_tls::{ClientTls, Clock, Ticket, TlsError};

use crate::message::Fields;
#[cfg(feature = "tls")]
use crate::rt;

/// A user, and what proves that it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    method: String,
    user: String,
    secret: Option<String>,
}

/// Without the secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (method {})", self.user, self.method)
    }
}

impl Credentials {
    /// A user of this method, such as `password` or `token`, with its password or token; none for methods that ask
    /// for nothing. A secret is sent as it is, so it should be used with TLS or on the node's own machine only.
    #[must_use]
    pub fn new(method: &str, user: &str, secret: Option<&str>) -> Credentials {
        let secret = secret.map(str::to_owned);
        Credentials { method: method.to_owned(), user: user.to_owned(), secret }
    }

    /// The fields of the action `auth`.
    pub(crate) fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        fields.str("typ", &self.method).str("ident", &self.user);
        if let Some(secret) = &self.secret {
            fields.str("secret", secret);
        }
        fields
    }
}

/// See the module. The default: plain text, and no login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    #[cfg(feature = "tls")]
    tls: Option<ClientTls>,
    credentials: Option<Arc<Credentials>>,
}

impl Access {
    /// Logs in as this user, where the node asks for a login.
    #[must_use]
    pub fn log_in(self, credentials: Credentials) -> Access {
        Access { credentials: Some(Arc::new(credentials)), ..self }
    }

    /// Whether by TLS.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_deref()
    }
}

#[cfg(feature = "tls")]
impl Access {
    /// Connects by TLS, and not at all to a node that does not speak it.
    #[must_use]
    pub fn by_tls(self, tls: ClientTls) -> Access {
        Access { tls: Some(tls), ..self }
    }

    /// What a ticket says, but for its addresses.
    ///
    /// # Errors
    /// If the client certificate in it cannot be used.
    pub fn of_ticket(ticket: &Ticket) -> Result<Access, TlsError> {
        let clock = Clock::new(|| rt::wall_clock_ms() / 1_000);
        let credentials = ticket.login.as_ref().map(|login| {
            Arc::new(Credentials::new(&login.method, &login.user, login.secret.as_deref()))
        });
        Ok(Access { tls: ticket.tls(clock)?, credentials })
    }

    /// How it connects by TLS, if it does.
    #[must_use]
    pub fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    #[test]
    fn a_login_names_method_user_and_secret_and_no_debug_text_shows_it() {
        let credentials = Credentials::new("token", "joe", Some("hunter2"));
        let message = Message::new(&credentials.fields().encode()).unwrap();
        let text = |name| message.str(name);
        assert_eq!(
            (text("typ"), text("ident"), text("secret")),
            (Some("token"), Some("joe"), Some("hunter2"))
        );
        let shown = format!("{:?}", Access::default().log_in(credentials));
        assert!(shown.contains("joe") && !shown.contains("hunter2"), "{shown}");
        let without = Credentials::new("root", "*", None).fields().encode();
        assert_eq!(Message::new(&without).unwrap().get("secret"), None);
    }
}
