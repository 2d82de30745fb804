//! TLS at the client port: who must use it, and the handshake.
//!
//! Without [`TlsSettings`] all is in plain text. With them, clients of other machines must use TLS, as the rule by address
//! says ([`TlsSettings::permits_plain_text`]). Those that may use plain text are greeted in it at once, because a client that
//! speaks plain text says nothing before. If such a client then begins a TLS handshake all the same, whose first byte begins
//! no message, it gets one: our client skips the greeting.

mod handshakes;
mod network;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use distkv_tls::{Channel, ServerTls, TlsError};
use futures::future::{Either, select};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use socket2::SockRef;

pub(in crate::server) use handshakes::Handshakes;
pub(crate) use network::{IpNetwork, NetworkError};

use crate::rt::{self, TcpStream};
use crate::server::Shared;

/// The first byte of a TLS handshake: a record of this kind. No message of the client protocol begins with it.
pub(super) const HELLO: u8 = 0x16;
/// How long a handshake may take, waiting for its turn included.
const HANDSHAKE_MS_MAX: u64 = 10_000;
/// How long a client that must use TLS may say nothing before it is told so in plain text: it probably waits for a greeting.
/// Less than the clients' own patience, so that they hear it.
const SILENCE_MS_MAX: u64 = 2_000;
/// Bytes that are read at a time in a handshake.
const CHUNK_BYTES: usize = 8 << 10;
/// What a session keeps besides its buffers, about.
pub(super) const SESSION_BYTES: usize = 8 << 10;

/// How the client port uses TLS.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// What the node presents. It may be replaced at any time.
    pub tls: Arc<ServerTls>,
    /// Whether clients on the node's own machine may use plain text.
    pub is_plain_at_home: bool,
    /// Other machines whose clients may (`--client-plaintext`).
    pub plain: Vec<IpNetwork>,
}

impl TlsSettings {
    /// Whether a client at this address may use plain text.
    #[must_use]
    pub(crate) fn permits_plain_text(&self, peer: IpAddr, is_local: bool) -> bool {
        (is_local && self.is_plain_at_home)
            || self.plain.iter().any(|network| network.contains(peer))
    }
}

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoSession {
    /// The client must use TLS and does not.
    #[error("it does not speak TLS")]
    PlainText,
    /// It does, but something is wrong.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It took too long.
    #[error("the handshake took longer than {HANDSHAKE_MS_MAX} ms")]
    TooSlow,
    /// Too many are under way.
    #[error("too many TLS handshakes are under way, all in all or of this address")]
    TooMany,
    /// The server stops.
    #[error("the node stops")]
    Stopping,
}

/// What a client is told, in plain text, that must use TLS and does not.
pub(super) const TLS_NEEDED: &str = "this node serves clients at your address by TLS only: connect with a ticket \
     (`distkv-node user ticket`), or with the key file (`--key`), or put `distkv-node tunnel` between for a client that cannot do TLS";

/// The session of a client that has said this much already, once its handshake is done.
pub(super) async fn begin(
    socket: &TcpStream,
    shared: &Shared,
    settings: &TlsSettings,
    said: &[u8],
) -> Result<Channel, NoSession> {
    let peer = socket.peer_addr()?.ip();
    let handshake = async {
        let half_open = shared.handshakes.enter(peer, rt::now()).ok_or(NoSession::TooMany)?;
        let handshake = async {
            let mut channel = settings.tls.accept()?;
            let result = shake_hands(socket, &mut channel, said).await;
            if result.is_err() {
                // An alert, for a client that understands it. It fits, as nothing else was written.
                let _ = io::Write::write(&mut &*SockRef::from(socket), channel.outgoing());
            }
            result.map(|()| channel)
        };
        half_open.run(handshake).await.ok_or(NoSession::TooMany)?
    };
    // Not a part of the task of each connection for as long as that lives.
    let handshake = Box::pin(rt::timeout(Duration::from_millis(HANDSHAKE_MS_MAX), handshake));
    let stopping = std::pin::pin!(shared.stopping.listen());
    if shared.is_stopping() {
        return Err(NoSession::Stopping);
    }
    match select(handshake, stopping).await {
        Either::Left((result, _)) => {
            let result = result.unwrap_or(Err(NoSession::TooSlow));
            if matches!(result, Err(NoSession::TooMany)) {
                shared.handshakes.complain(peer);
            }
            result
        }
        Either::Right(_) => Err(NoSession::Stopping),
    }
}

async fn shake_hands(
    mut socket: &TcpStream,
    channel: &mut Channel,
    said: &[u8],
) -> Result<(), NoSession> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut is_silent = said.is_empty();
    channel.feed(said)?;
    loop {
        let bytes = channel.outgoing();
        let count = bytes.len();
        socket.write_all(bytes).await?;
        channel.sent(count);
        if channel.is_open() {
            return Ok(());
        }
        let read = socket.read(&mut chunk);
        let count = if is_silent {
            let patience = Duration::from_millis(SILENCE_MS_MAX);
            rt::timeout(patience, read).await.ok_or(NoSession::PlainText)??
        } else {
            read.await?
        };
        let bytes = chunk.get(..count).unwrap_or_default();
        match bytes.first() {
            None => return Err(TlsError::Cut.into()),
            Some(first) if is_silent && *first != HELLO => return Err(NoSession::PlainText),
            Some(_) => is_silent = false,
        }
        channel.feed(bytes)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_use_plain_text() {
        let ca = distkv_tls::Ca::make("plant", 1_800_000_000).unwrap();
        let identity = ca.issue_node(&["n1"], 1_800_000_000).unwrap();
        let clients = distkv_tls::server::ClientRoots::none();
        let clock = distkv_tls::Clock::new(|| 1_800_000_000);
        let tls = Arc::new(ServerTls::new(&identity, &clients, clock).unwrap());
        let mut settings = TlsSettings {
            tls,
            is_plain_at_home: true,
            plain: vec!["10.1.0.0/16".parse().unwrap()],
        };
        let peer = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(settings.permits_plain_text(peer("127.0.0.1"), true));
        assert!(settings.permits_plain_text(peer("192.168.0.9"), true));
        assert!(settings.permits_plain_text(peer("10.1.2.3"), false));
        assert!(settings.permits_plain_text(peer("::ffff:10.1.2.3"), false));
        assert!(!settings.permits_plain_text(peer("10.2.0.1"), false));
        settings.is_plain_at_home = false;
        assert!(!settings.permits_plain_text(peer("127.0.0.1"), true));
        assert!(settings.permits_plain_text(peer("10.1.2.3"), true));
    }
}
