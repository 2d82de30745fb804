//! One TLS session, for either side, without a socket: the loop of the connection that owns it moves the bytes.
//!
//! ```text
//! socket ──read──► feed()          plaintext(), taken() ──► the connection
//! socket ◄─write── outgoing(), sent()         write()   ◄── the connection
//! ```
//!
//! After each of these calls there may be something to send, during the handshake above all: look at
//! [`Channel::outgoing`]. Nothing should be read from the socket while [`Channel::wants_more`] says no: so a side that does
//! not take what it asked for is not served.
//!
//! After an error the session is over: what [`Channel::outgoing`] still holds (an alert) should be sent, nothing else.
//!
//! The session is a buffered one of rustls, whose own buffers hold one record, or during the handshake one message of at most
//! 64 KiB. Its unbuffered interface would save a copy, but panics if a session is asked for its alert after an error while
//! bytes are left.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::der;
use crate::error::{Side, TlsError, explain};

/// Bytes that [`Channel::feed`] takes at once. What they decrypt to, and what a record before them was still missing, is
/// kept until it is taken.
pub const FEED_BYTES_MAX: usize = 64 << 10;
/// Bytes of TLS that wait to be sent, but for what the handshake itself says (at most a chain of certificates).
pub(crate) const OUTGOING_BYTES_MAX: usize = 64 << 10;
/// Plaintext in one record.
const RECORD_BYTES: usize = 16 << 10;
/// What a record adds to its plaintext: header, kind and tag.
const RECORD_EXTRA: usize = 5 + 1 + 16;
/// Bytes that are kept of what came first, to tell what it was.
const BEGINS_BYTES_MAX: usize = 8;

/// One session.
pub struct Channel {
    session: Connection,
    /// Decrypted, to be taken: those from `taken` on. Invariant: at most [`FEED_BYTES_MAX`] and one record.
    plain: Vec<u8>,
    taken: usize,
    /// To be sent: those from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
    begins: Vec<u8>,
    is_peer_closed: bool,
    /// Nothing more is written here.
    is_closed: bool,
    failed: Option<TlsError>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self {
            Self { failed: Some(_), .. } => "failed",
            Self { is_peer_closed: true, .. } => "closed by the peer",
            _ if self.is_open() => "open",
            _ => "in the handshake",
        };
        write!(f, "Channel({:?}, {stage})", self.side())
    }
}

impl Channel {
    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, TlsError> {
        let session = ClientConnection::new(config, name)
            .map_err(|error| TlsError::Settings(error.to_string()))?;
        let mut channel = Self::new(session.into());
        channel.gather()?;
        Ok(channel)
    }

    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Self, TlsError> {
        let session =
            ServerConnection::new(config).map_err(|error| TlsError::Settings(error.to_string()))?;
        Ok(Self::new(session.into()))
    }

    fn new(mut session: Connection) -> Self {
        session.set_buffer_limit(Some(OUTGOING_BYTES_MAX));
        Self {
            session,
            plain: Vec::new(),
            taken: 0,
            outgoing: Vec::new(),
            sent: 0,
            begins: Vec::new(),
            is_peer_closed: false,
            is_closed: false,
            failed: None,
        }
    }

    fn side(&self) -> Side {
        match self.session {
            Connection::Client(_) => Side::Client,
            Connection::Server(_) => Side::Server,
        }
    }

    /// Whether the handshake is done: from now on plaintext can be written, and comes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.session.is_handshaking()
    }

    /// Whether the other side has said that it writes no more. An end of the socket without that is a cut.
    #[must_use]
    pub fn is_peer_closed(&self) -> bool {
        self.is_peer_closed
    }

    /// Why the session has failed.
    #[must_use]
    pub fn failure(&self) -> Option<&TlsError> {
        self.failed.as_ref()
    }

    /// The name of the user in the client's certificate, once the handshake is done; at a node only.
    ///
    /// # Errors
    /// [`TlsError::Certificate`] if there is a certificate but no name in it, or several.
    pub fn user(&self) -> Result<Option<&str>, TlsError> {
        let Some(certificate) = self.client_certificate() else { return Ok(None) };
        let unnamed = || TlsError::Certificate {
            whose: "the client's certificate",
            reason: String::from("its subject must have one common name, the user's"),
        };
        der::common_name(certificate).filter(|name| !name.is_empty()).ok_or_else(unnamed).map(Some)
    }

    /// When the client's certificate is over, in seconds since 1970; at a node only, and none if there is no certificate.
    #[must_use]
    pub fn user_until(&self) -> Option<u64> {
        let certificate = self.client_certificate()?;
        // What cannot be read is over: the handshake has read it.
        let last = der::validity(certificate).map_or(0, |validity| validity.to);
        Some(u64::try_from(last).map_or(0, |last| last.saturating_add(1)))
    }

    fn client_certificate(&self) -> Option<&CertificateDer<'static>> {
        let Connection::Server(session) = &self.session else { return None };
        session.peer_certificates().filter(|_| !session.is_handshaking())?.first()
    }

    /// Whether bytes from the socket are wanted: not while plaintext or much output waits, or after the end.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.failed.is_none()
            && !self.is_peer_closed
            && self.plaintext().is_empty()
            && self.outgoing().len() < OUTGOING_BYTES_MAX
    }

    /// Takes bytes from the socket; returns how many. All of them, if there are at most [`FEED_BYTES_MAX`] and no plaintext
    /// waits. What comes after the other side's end means nothing.
    ///
    /// # Errors
    /// Why the session fails.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, TlsError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.is_peer_closed {
            return Ok(bytes.len());
        }
        if !self.plaintext().is_empty() {
            return Ok(0);
        }
        let now = bytes.get(..bytes.len().min(FEED_BYTES_MAX)).unwrap_or_default();
        if self.begins.len() < BEGINS_BYTES_MAX {
            self.begins.extend(now.iter().take(BEGINS_BYTES_MAX - self.begins.len()));
        }
        let mut rest = now;
        while !rest.is_empty() && !self.is_peer_closed {
            let before = rest.len();
            if let Err(error) = self.session.read_tls(&mut rest) {
                return Err(self.fail(TlsError::Failed(error.to_string())));
            }
            if let Err(error) = self.process() {
                return Err(self.fail(error));
            }
            if rest.len() == before && !self.is_peer_closed {
                return Err(self.fail(TlsError::Failed(String::from("it takes no more bytes"))));
            }
        }
        Ok(now.len())
    }

    /// Decrypts what was fed.
    fn process(&mut self) -> Result<(), TlsError> {
        let processed = self.session.process_new_packets();
        let state = processed.map_err(|error| explain(error, self.side(), &self.begins))?;
        self.is_peer_closed |= state.peer_has_closed();
        let before = self.plain.len();
        self.plain.resize(before + state.plaintext_bytes_to_read(), 0);
        let room = self.plain.get_mut(before..).unwrap_or_default();
        if let Err(error) = self.session.reader().read_exact(room) {
            self.plain.truncate(before);
            return Err(TlsError::Failed(error.to_string()));
        }
        self.gather()
    }

    /// Says what the end of the socket means.
    ///
    /// # Errors
    /// [`TlsError::Cut`] if the other side had not closed the session before.
    pub fn ended(&self) -> Result<(), TlsError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.is_peer_closed => Ok(()),
            None => Err(TlsError::Cut),
        }
    }

    /// What the other side has written.
    #[must_use]
    pub fn plaintext(&self) -> &[u8] {
        self.plain.get(self.taken..).unwrap_or_default()
    }

    /// So many bytes of [`Channel::plaintext`] are done with.
    pub fn taken(&mut self, bytes: usize) {
        self.taken = (self.taken + bytes).min(self.plain.len());
        if self.taken == self.plain.len() {
            self.plain.clear();
            self.taken = 0;
        }
    }

    /// Copies what the other side has written, as much as fits; returns how much.
    pub fn take(&mut self, into: &mut [u8]) -> usize {
        let plain = self.plaintext();
        let count = plain.len().min(into.len());
        if let (Some(from), Some(to)) = (plain.get(..count), into.get_mut(..count)) {
            to.copy_from_slice(from);
        }
        self.taken(count);
        count
    }

    /// Encrypts as much as there is room for; returns how much. Nothing before the handshake is done, or after
    /// [`Channel::close`].
    ///
    /// # Errors
    /// Why the session has failed.
    pub fn write(&mut self, plain: &[u8]) -> Result<usize, TlsError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let room = OUTGOING_BYTES_MAX.saturating_sub(self.outgoing().len());
        let records = room / (RECORD_BYTES + RECORD_EXTRA);
        let rest = (room % (RECORD_BYTES + RECORD_EXTRA)).saturating_sub(RECORD_EXTRA);
        let most = records * RECORD_BYTES + rest;
        let now = plain.get(..plain.len().min(most)).unwrap_or_default();
        if !self.is_open() || self.is_closed || now.is_empty() {
            return Ok(0);
        }
        let written = self.session.writer().write(now);
        let written = written.map_err(|error| self.fail(TlsError::Failed(error.to_string())))?;
        self.gather()?;
        Ok(written)
    }

    /// Says that nothing more is written here.
    ///
    /// # Errors
    /// Why the session has failed.
    pub fn close(&mut self) -> Result<(), TlsError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if !self.is_closed {
            self.is_closed = true;
            self.session.send_close_notify();
        }
        self.gather()
    }

    /// Bytes for the socket.
    #[must_use]
    pub fn outgoing(&self) -> &[u8] {
        self.outgoing.get(self.sent..).unwrap_or_default()
    }

    /// So many bytes of [`Channel::outgoing`] have been sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent = (self.sent + bytes).min(self.outgoing.len());
        if self.sent == self.outgoing.len() {
            self.outgoing.clear();
            self.sent = 0;
        } else if self.sent >= OUTGOING_BYTES_MAX {
            self.outgoing.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Moves the bytes for the socket into `to`, whose content goes.
    pub fn move_outgoing(&mut self, to: &mut Vec<u8>) {
        to.clear();
        if self.sent == 0 {
            std::mem::swap(&mut self.outgoing, to);
        } else {
            to.extend_from_slice(self.outgoing());
            self.outgoing.clear();
            self.sent = 0;
        }
    }

    /// Gives back memory that an idle session does not need.
    pub fn shrink(&mut self) {
        if self.plain.is_empty() {
            self.plain = Vec::new();
        }
        if self.outgoing.is_empty() {
            self.outgoing = Vec::new();
        }
    }

    /// Bytes of the session's buffers, but for the 4 KiB of the session's own.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.plain.capacity() + self.outgoing.capacity()
    }

    /// Takes what the session has to say.
    fn gather(&mut self) -> Result<(), TlsError> {
        while self.session.wants_write() {
            self.session
                .write_tls(&mut self.outgoing)
                .map_err(|error| TlsError::Failed(error.to_string()))?;
        }
        Ok(())
    }

    /// Ends the session. The alert for the other side is taken, if there is one.
    fn fail(&mut self, error: TlsError) -> TlsError {
        // What matters has been decided; that no more can be said is no further failure.
        let _ = self.gather();
        self.plain = Vec::new();
        self.taken = 0;
        self.failed = Some(error.clone());
        error
    }
}
