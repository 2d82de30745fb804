//! A ticket: all that a program needs to use a network, in one string. `distkv1.` is followed by base64url of a
//! MessagePack map and four bytes of its SHA-256, so a string that was cut or mistyped is recognised as such.
//!
//! A ticket is a secret, as whoever has it can log in by it: no `Debug` and no error shows what is in it.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

use crate::Clock;
use crate::ca::{CaHash, Identity};
use crate::error::TlsError;
use crate::trust::{ClientTls, Trust};

/// What each ticket begins with. The digit is the version of its form.
const START: &str = "distkv1.";
/// Addresses in a ticket.
pub(crate) const ADDRESSES_MAX: usize = 16;
/// Bytes of one address, name, method or secret.
pub const TEXT_BYTES_MAX: usize = 1_024;
/// Certificates in a ticket.
pub(crate) const CHAIN_MAX: usize = 4;
/// Bytes of a ticket as text.
pub const TICKET_BYTES_MAX: usize = 64 << 10;
const SUM_BYTES: usize = 4;

/// Why a text is no ticket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// It is something else.
    #[error(
        "this is no ticket: a ticket begins with {START:?}, or is @ and the name of a file that holds one"
    )]
    NoTicket,
    /// It is of a later version.
    #[error("this ticket is of a later version of distkv; this program reads {START:?}")]
    Later,
    /// It was cut or changed.
    #[error("the ticket is damaged: it was cut or mistyped; copy it again, whole")]
    Damaged,
    /// Its parts make no sense together.
    #[error("the ticket cannot be used: {0}")]
    Content(&'static str),
}

/// Who a client is, and how it proves that.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// How: `password`, `token`, or another method of the network.
    pub method: String,
    /// The user's name.
    pub user: String,
    /// The password or token; none for a method that asks for nothing, or a client certificate.
    pub secret: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({} {})", self.method, self.user)
    }
}

/// A client certificate (DER, with those that lead to its CA) and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The client's first.
    pub(crate) chain: Vec<Vec<u8>>,
    /// The private key (DER: PKCS#8, SEC1 or PKCS#1).
    pub(crate) key: Vec<u8>,
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificate")
    }
}

impl From<&Identity> for ClientCertificate {
    fn from(identity: &Identity) -> Self {
        let chain = identity.chain().iter().map(|certificate| certificate.to_vec()).collect();
        Self { chain, key: identity.key().to_vec() }
    }
}

impl ClientCertificate {
    fn identity(&self) -> Result<Identity, TlsError> {
        let chain = self.chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let key = PrivateKeyDer::try_from(self.key.clone());
        let key = key.map_err(|why| TlsError::Settings(format!("the client's key: {why}")))?;
        Ok(Identity::new(chain, key))
    }
}

/// All that a client needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Client ports of nodes, `host:port`; from 1 to [`ADDRESSES_MAX`]. The hosts are names in the nodes' certificates.
    pub addresses: Vec<String>,
    /// The network's name: no other network's nodes are used. Empty where it was not told; then the first node that is
    /// reached says it.
    pub network: String,
    /// Who the client is; none where nobody logs in, or a certificate says it.
    pub login: Option<Login>,
    /// The nodes' CA; none: plain text.
    pub ca: Option<CaHash>,
    /// The client's own certificate.
    pub certificate: Option<ClientCertificate>,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({} {:?} {:?})", self.network, self.addresses, self.login)
    }
}

/// The form of a ticket. Fields that a later version adds are ignored.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Form {
    addresses: Vec<String>,
    network: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<Bytes>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chain: Vec<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Bytes>,
}

/// A MessagePack binary.
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a binary")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        from.deserialize_bytes(Visitor)
    }
}

impl Ticket {
    /// The ticket as text, which is a secret.
    ///
    /// # Errors
    /// [`TicketError::Content`] if something is missing or too long.
    pub fn to_text(&self) -> Result<String, TicketError> {
        self.check()?;
        let login = self.login.as_ref();
        let certificate = self.certificate.as_ref();
        let form = Form {
            addresses: self.addresses.clone(),
            network: self.network.clone(),
            method: login.map(|login| login.method.clone()),
            user: login.map(|login| login.user.clone()),
            secret: login.and_then(|login| login.secret.clone()),
            ca: self.ca.map(|hash| Bytes(hash.0.to_vec())),
            chain: certificate
                .map(|own| own.chain.iter().cloned().map(Bytes).collect())
                .unwrap_or_default(),
            key: certificate.map(|own| Bytes(own.key.clone())),
        };
        let mut bytes = rmp_serde::to_vec_named(&form)
            .map_err(|_| TicketError::Content("it cannot be written"))?;
        let sum = digest(&SHA256, &bytes);
        bytes.extend(sum.as_ref().iter().take(SUM_BYTES));
        let text = format!("{START}{}", URL_SAFE_NO_PAD.encode(bytes));
        if text.len() > TICKET_BYTES_MAX {
            return Err(TicketError::Content("it is too long"));
        }
        Ok(text)
    }

    /// What must hold, whatever a ticket is read from.
    fn check(&self) -> Result<(), TicketError> {
        let content = |reason| Err(TicketError::Content(reason));
        if self.addresses.is_empty() || self.addresses.len() > ADDRESSES_MAX {
            return content("it must have from 1 to 16 addresses");
        }
        let login = self.login.as_ref();
        let texts = self.addresses.iter();
        let texts = texts.chain(login.iter().flat_map(|login| [&login.method, &login.user]));
        let secret = login.and_then(|login| login.secret.as_ref());
        if texts.chain(secret).any(|text| text.is_empty() || text.len() > TEXT_BYTES_MAX)
            || self.network.len() > TEXT_BYTES_MAX
        {
            return content(
                "an address, a name or a secret in it is empty or longer than 1,024 bytes",
            );
        }
        if let Some(own) = &self.certificate
            && (own.chain.is_empty() || own.chain.len() > CHAIN_MAX || own.key.is_empty())
        {
            return content("a client certificate needs a key and from 1 to 4 certificates");
        }
        Ok(())
    }

    /// How to connect by TLS with this ticket; `None` if it says that connections are in plain text.
    ///
    /// # Errors
    /// [`TlsError::Settings`] if the client's certificate in it cannot be used.
    pub fn tls(&self, clock: Clock) -> Result<Option<ClientTls>, TlsError> {
        let Some(ca) = self.ca else { return Ok(None) };
        let identity = self.certificate.as_ref().map(ClientCertificate::identity).transpose()?;
        ClientTls::new(Trust::hash(ca), identity.as_ref(), clock).map(Some)
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    /// Reads a ticket; white space around it is ignored.
    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        let Some(encoded) = text.strip_prefix(START) else {
            let is_later = text.strip_prefix("distkv").is_some_and(|rest| {
                rest.split_once('.').is_some_and(|(version, _)| version.parse::<u32>().is_ok())
            });
            return Err(if is_later { TicketError::Later } else { TicketError::NoTicket });
        };
        if text.len() > TICKET_BYTES_MAX {
            return Err(TicketError::Damaged);
        }
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| TicketError::Damaged)?;
        let split = bytes.len().checked_sub(SUM_BYTES).ok_or(TicketError::Damaged)?;
        let (content, sum) = bytes.split_at_checked(split).ok_or(TicketError::Damaged)?;
        if !digest(&SHA256, content).as_ref().starts_with(sum) {
            return Err(TicketError::Damaged);
        }
        let form: Form = rmp_serde::from_slice(content).map_err(|_| TicketError::Damaged)?;
        form.ticket()
    }
}

impl Form {
    fn ticket(self) -> Result<Ticket, TicketError> {
        let login = match (self.method, self.user) {
            (Some(method), Some(user)) => Some(Login { method, user, secret: self.secret }),
            (None, None) => None,
            _ => {
                return Err(TicketError::Content(
                    "a method of login without a user, or the other way round",
                ));
            }
        };
        let ca = match self.ca {
            Some(Bytes(hash)) => Some(CaHash(
                hash.try_into()
                    .map_err(|_| TicketError::Content("the CA's hash is not 32 bytes long"))?,
            )),
            None => None,
        };
        let certificate = match self.key {
            Some(Bytes(key)) => {
                let chain = self.chain.into_iter().map(|Bytes(der)| der).collect();
                Some(ClientCertificate { chain, key })
            }
            None => None,
        };
        let ticket =
            Ticket { addresses: self.addresses, network: self.network, login, ca, certificate };
        ticket.check()?;
        Ok(ticket)
    }
}
