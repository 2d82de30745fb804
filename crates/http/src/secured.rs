//! TLS at the port: which connections need it, the handshake, and what one is told that should use it and does not.
//!
//! Both kinds come in at one port, told apart by the first byte: the record of a handshake begins with 0x16, and no
//! request does. So one address is right for `https://` from everywhere, and for `http://` on the node's own machine.

use std::io;
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;
use std::time::Duration;

use distkv_tls::{Channel, ServerTls, TlsError};
use futures::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::rt::{self, TcpStream};

/// The first byte of a TLS handshake.
const HELLO: u8 = 0x16;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 4 << 10;
/// How long, and for how many bytes, a connection is read after it was told to use TLS: what lies unread when a socket is
/// closed resets it, and the client might never see what it was told.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 << 10;
/// What is said, in plain text, to whoever speaks plain text where TLS is needed.
const TLS_NEEDED: &str = "{\"code\":\"tls\",\"error\":\"this port speaks TLS with other machines: ask by https:// (the \
     certificate of its CA: that of the node's --cert, or of its key file, which `distkv-node key cert --ca` writes)\"}\n";

/// How a port uses TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// What the node presents. It may be replaced at any time.
    pub tls: Arc<ServerTls>,
    /// Whether plain text is taken at loopback addresses, too.
    pub is_plain_at_home: bool,
}

impl Tls {
    fn permits_plain_text(&self, came_in_at: IpAddr) -> bool {
        self.is_plain_at_home && came_in_at.is_loopback()
    }
}

/// A connection on which requests may come now.
pub(crate) struct Begun {
    /// None: they come in plain text.
    pub(crate) channel: Option<Channel>,
    /// What has come of the first one, in plain text.
    pub(crate) said: Vec<u8>,
}

/// Why none may come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoTalk {
    #[error("it must use TLS and does not")]
    PlainText,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("nothing came, or the TLS handshake took too long")]
    TooSlow,
}

/// Waits for what a connection says first, and shakes hands if that is what it wants. All of this takes `patience` at most.
pub(crate) async fn begin(
    stream: &TcpStream,
    tls: &Tls,
    came_in_at: IpAddr,
    patience: Duration,
) -> Result<Begun, NoTalk> {
    let beginning = async {
        let mut said = vec![0; CHUNK_BYTES];
        let count = (&*stream).read(&mut said).await?;
        said.truncate(count);
        match said.first() {
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Some(&HELLO) => {
                let mut channel = tls.tls.accept_http()?;
                let shaken = shake_hands(stream, &mut channel, &said).await;
                if shaken.is_err() {
                    // An alert, for a client that understands it.
                    let _ = (&*stream).write_all(channel.outgoing()).await;
                }
                shaken.map(|()| Begun { channel: Some(channel), said: Vec::new() })
            }
            Some(_) if tls.permits_plain_text(came_in_at) => Ok(Begun { channel: None, said }),
            Some(_) => Err(NoTalk::PlainText),
        }
    };
    let begun = rt::timeout(patience, beginning).await.unwrap_or(Err(NoTalk::TooSlow));
    if matches!(begun, Err(NoTalk::PlainText)) {
        // A client that does not take it has gone wrong in any case.
        let _ = rt::timeout(LINGER, tell_to_use_tls(stream)).await;
    }
    begun
}

async fn shake_hands(
    mut stream: &TcpStream,
    channel: &mut Channel,
    hello: &[u8],
) -> Result<(), NoTalk> {
    let mut chunk = vec![0; CHUNK_BYTES];
    channel.feed(hello)?;
    loop {
        let bytes = channel.outgoing();
        let count = bytes.len();
        stream.write_all(bytes).await?;
        channel.sent(count);
        if channel.is_open() {
            return Ok(());
        }
        let count = stream.read(&mut chunk).await?;
        match chunk.get(..count).unwrap_or_default() {
            [] => return Err(TlsError::Cut.into()),
            bytes => channel.feed(bytes)?,
        };
    }
}

async fn tell_to_use_tls(mut stream: &TcpStream) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        TLS_NEEDED.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(TLS_NEEDED.as_bytes()).await?;
    stream.shutdown(Shutdown::Write)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut total = 0;
    while total < LINGER_BYTES {
        match stream.read(&mut chunk).await? {
            0 => break,
            count => total += count,
        }
    }
    Ok(())
}
