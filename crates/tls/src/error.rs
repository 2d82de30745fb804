//! What can go wrong in TLS. Each message says first which of address, name, CA, time or certificate is wrong, then what to
//! do.

use std::net::IpAddr;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use time::OffsetDateTime;

use crate::ca::CaHash;

/// Names of a certificate that a message lists.
const NAMES_SHOWN: usize = 8;

/// Why there is no TLS session, or no more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The other side answered with something else.
    #[error(
        "wrong address: no TLS there, but something that begins with {begins:?}. A node that runs with --key speaks TLS at \
         its client port (27586 by default); to one without, connect without a ticket's CA"
    )]
    NotTls {
        /// Its first bytes, as far as they can be shown.
        begins: String,
    },
    /// It speaks an older version only.
    #[error(
        "the other side does not speak TLS 1.3, which is the only version that is served here ({reason})"
    )]
    Version {
        /// What the handshake said.
        reason: String,
    },
    /// It speaks TLS for something else than this protocol.
    #[error(
        "wrong address: what speaks TLS there is no client port of a node (27586 by default; 27585 is its HTTP port), or no client of one"
    )]
    OtherProtocol,
    /// The host is no name that a certificate could have.
    #[error("wrong name: {0:?} is neither a host name nor an IP address")]
    BadName(String),
    /// The certificate has other names.
    #[error(
        "wrong name: the node's certificate is for {presented}, not for {wanted}; connect by one of those, or start the node \
         with --cert-name {wanted}, or, if it has a --cert of its own, with one that has this name, too"
    )]
    Name {
        /// The name by which the client connects.
        wanted: String,
        /// Those in the certificate.
        presented: String,
    },
    /// Another CA than the one that the client was told.
    #[error(
        "wrong CA: the node's is {found}, not {wanted}. It is of another network, or its key was made anew: get a new ticket, \
         or its present key file. Or the node does not send its CA along: the file of its --cert must have the CA's \
         certificate, too. If the nodes have certificates of another CA (--cert), `--node-ca FILE` names that CA to \
         commands"
    )]
    OtherCa {
        /// The one that the client believes.
        wanted: CaHash,
        /// The last of the node's chain.
        found: CaHash,
    },
    /// The chain does not lead to a CA that is believed.
    #[error("wrong CA: {whose} was not issued by a CA that is trusted here ({reason})")]
    Untrusted {
        /// Whose certificate.
        whose: &'static str,
        /// What the check said.
        reason: String,
    },
    /// It is over.
    #[error(
        "wrong time: {whose} expired at {expired}, and now it is {now} here. If this clock is right, it must be renewed"
    )]
    Expired {
        /// Whose certificate.
        whose: &'static str,
        /// Its last second.
        expired: String,
        /// The time here.
        now: String,
    },
    /// It is not valid yet.
    #[error(
        "wrong time: {whose} is valid from {from}, and now it is {now} here. One of the two clocks is wrong"
    )]
    NotYet {
        /// Whose certificate.
        whose: &'static str,
        /// Its first second.
        from: String,
        /// The time here.
        now: String,
    },
    /// The certificate cannot be used for this, or is damaged.
    #[error("wrong certificate: {whose} cannot be used ({reason})")]
    Certificate {
        /// Whose certificate.
        whose: &'static str,
        /// What the check said.
        reason: String,
    },
    /// The other side does not accept our certificate.
    #[error("the other side refuses {whose} ({reason})")]
    Refused {
        /// Whose certificate: our own.
        whose: &'static str,
        /// Its alert.
        reason: String,
    },
    /// A handshake message or chain of certificates of more than 64 KiB.
    #[error("the other side's handshake is longer than 64 KiB")]
    TooLong,
    /// The settings make no configuration.
    #[error("TLS cannot be set up: {0}")]
    Settings(String),
    /// The connection ended where it must not.
    #[error("the connection ended without the end of TLS: it was cut")]
    Cut,
    /// Anything else: bytes were damaged on the way, or the other side does not keep to the protocol.
    #[error("TLS failed: {0}")]
    Failed(String),
}

/// Which side of a session this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    fn theirs(self) -> &'static str {
        match self {
            Side::Client => "the node's certificate",
            Side::Server => "the client's certificate",
        }
    }

    fn own(self) -> &'static str {
        match self {
            Side::Client => "the client's certificate",
            Side::Server => "the node's certificate",
        }
    }
}

/// The chain does not contain the CA that the client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the chain ends in {found}, not in {wanted}")]
pub(crate) struct OtherCa {
    pub(crate) wanted: CaHash,
    pub(crate) found: CaHash,
}

/// What an error of rustls means to people. `begins`: the first bytes that came.
pub(crate) fn explain(error: Error, side: Side, begins: &[u8]) -> TlsError {
    match error {
        Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => TlsError::TooLong,
        Error::InvalidMessage(_) if !is_tls(begins) => {
            TlsError::NotTls { begins: begins.escape_ascii().to_string() }
        }
        Error::PeerIncompatible(reason) => TlsError::Version { reason: format!("{reason:?}") },
        Error::NoApplicationProtocol => TlsError::OtherProtocol,
        Error::InvalidCertificate(error) => of_certificate(error, side.theirs()),
        Error::AlertReceived(alert) => of_alert(alert, side),
        error => TlsError::Failed(error.to_string()),
    }
}

/// Whether a record of TLS begins like this: its kind, and the greatest part of its version.
fn is_tls(begins: &[u8]) -> bool {
    match begins {
        [] => true,
        [kind] => (20..=23).contains(kind),
        [kind, version, ..] => (20..=23).contains(kind) && *version == 3,
    }
}

fn of_certificate(error: CertificateError, whose: &'static str) -> TlsError {
    let seconds =
        |time: rustls::pki_types::UnixTime| date(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    match error {
        CertificateError::ExpiredContext { time, not_after } => {
            TlsError::Expired { whose, expired: seconds(not_after), now: seconds(time) }
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            TlsError::NotYet { whose, from: seconds(not_before), now: seconds(time) }
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            TlsError::Name { wanted: name_text(&expected), presented: list_names(&presented) }
        }
        CertificateError::Other(other) => match other.0.downcast_ref::<OtherCa>() {
            Some(OtherCa { wanted, found }) => TlsError::OtherCa { wanted: *wanted, found: *found },
            None => TlsError::Certificate { whose, reason: other.to_string() },
        },
        error @ (CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            TlsError::Untrusted { whose, reason: format!("{error:?}") }
        }
        error => TlsError::Certificate { whose, reason: error.to_string() },
    }
}

fn of_alert(alert: AlertDescription, side: Side) -> TlsError {
    use AlertDescription as A;
    match alert {
        A::ProtocolVersion => TlsError::Version { reason: String::from("it says so") },
        A::NoApplicationProtocol => TlsError::OtherProtocol,
        // The same is said of one that is not valid yet.
        A::CertificateExpired => TlsError::Refused {
            whose: side.own(),
            reason: String::from("by the clock there it has expired, or is not valid yet"),
        },
        A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateRevoked
        | A::CertificateUnknown
        | A::CertificateRequired
        | A::UnknownCA
        | A::AccessDenied
        // A signature is wrong: usually that of a CA with the same name and another key.
        | A::DecryptError => TlsError::Refused { whose: side.own(), reason: format!("{alert:?}") },
        alert => TlsError::Failed(format!("the other side ended it with the alert {alert:?}")),
    }
}

fn name_text(name: &ServerName<'_>) -> String {
    name.to_str().into_owned()
}

/// The names of a certificate, as people write them. They come as `DnsName("n1")` and `IpAddress(10.0.0.5)`.
pub(crate) fn plain_names(names: &[String]) -> Vec<String> {
    let plain = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        let inner = inner.unwrap_or(name).trim_matches('"');
        // They come as `0::1`, too.
        inner.parse::<IpAddr>().map_or_else(|_| inner.to_owned(), |address| address.to_string())
    };
    names.iter().map(plain).collect()
}

/// The same as a text.
fn list_names(names: &[String]) -> String {
    let mut shown = plain_names(names.get(..NAMES_SHOWN).unwrap_or(names));
    if names.len() > NAMES_SHOWN {
        shown.push(format!("{} more", names.len() - NAMES_SHOWN));
    }
    if shown.is_empty() { String::from("no name at all") } else { shown.join(", ") }
}

/// A time in seconds since 1970 for people, like `2026-11-21 09:14 UTC`.
#[must_use]
pub fn date(seconds: i64) -> String {
    match OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(time) => format!("{} {:02}:{:02} UTC", time.date(), time.hour(), time.minute()),
        Err(_) => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_as_people_write_them() {
        let names = ["DnsName(\"n1\")", "IpAddress(10.0.0.5)", "IpAddress(0::1)"].map(String::from);
        assert_eq!(list_names(&names), "n1, 10.0.0.5, ::1");
        assert_eq!(list_names(&[]), "no name at all");
    }
}
