//! The first words on a connection, with their limits of time and size: before a greeting, a
//! connection has cost next to nothing.

use std::io;
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};

use crate::node::config::GOSSIP_PORT;
use crate::protocol::frame::{FrameError, GREETING_BYTES_MAX, HEADER_BYTES, split_frame};
use crate::protocol::peer::greeting::{Greeting, GreetingError, Hello, Refusal};
use crate::rt::{self, TcpStream};

/// How long either side may take to identify itself.
pub(super) const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of a stranger's first bytes is shown in the log.
const SHOWN_BYTES_MAX: usize = 24;

/// Why a greeting did not come about.
#[derive(Debug, thiserror::Error)]
pub(in crate::node::link) enum GreetError {
    #[error("it did not say who it is within {} s", GREETING_TIMEOUT.as_secs())]
    Silent,
    #[error("it closed the connection without a greeting")]
    Closed,
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// Clients are greeted there, with a map that begins with the field `seq`.
    #[error("it is a client port; give the gossip port of that node (default {GOSSIP_PORT})")]
    ClientPort,
    #[error("it does not speak the peer protocol: it began with \"{shown}\" ({why})")]
    Stranger { shown: String, why: FrameError },
    #[error("{0}")]
    Greeting(#[from] GreetingError),
}

impl GreetError {
    /// Whether the address is not a node's gossip port, and will not be until a setting is changed.
    pub(super) fn is_lasting(&self) -> bool {
        matches!(self, Self::ClientPort | Self::Stranger { .. })
    }

    /// A fixed word, so that the same complaint is logged once.
    pub(in crate::node::link) fn reason(&self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Closed => "closed",
            Self::Io(_) => "io",
            Self::ClientPort => "client port",
            Self::Stranger { .. } => "stranger",
            Self::Greeting(_) => "greeting",
        }
    }
}

/// Reads the other side's greeting, and returns the bytes after it.
pub(super) async fn read_greeting(stream: &TcpStream) -> Result<(Greeting, Vec<u8>), GreetError> {
    rt::timeout(GREETING_TIMEOUT, read_unlimited(stream)).await.unwrap_or(Err(GreetError::Silent))
}

/// Whether some bytes begin as a node greets its clients: a short map whose first key is `seq`.
fn is_client_greeting(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80..=0x8f, rest @ ..] if rest.starts_with(b"\xa3seq"))
}

async fn read_unlimited(mut stream: &TcpStream) -> Result<(Greeting, Vec<u8>), GreetError> {
    let mut bytes = Vec::new();
    loop {
        match split_frame(&bytes, GREETING_BYTES_MAX) {
            Err(_) if is_client_greeting(&bytes) => return Err(GreetError::ClientPort),
            Err(why) => {
                let shown = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(&bytes);
                let shown = shown.escape_ascii().to_string();
                return Err(GreetError::Stranger { shown, why });
            }
            Ok(Some(frame)) => {
                let greeting = printable(Greeting::decode(&frame)?);
                let behind = bytes.split_off(frame.length);
                return Ok((greeting, behind));
            }
            Ok(None) => {}
        }
        // Never more than the longest greeting: `split_frame` has spoken by then.
        let mut piece = [0; 1024];
        let room = (HEADER_BYTES + GREETING_BYTES_MAX).saturating_sub(bytes.len()).min(piece.len());
        let count = stream.read(piece.get_mut(..room).unwrap_or_default()).await?;
        if count == 0 {
            return Err(GreetError::Closed);
        }
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
}

/// What others say of themselves goes into logs and onto terminals: no line breaks, no escape
/// sequences. Names and addresses are checked anyway.
fn printable(greeting: Greeting) -> Greeting {
    let clean = |text: &mut String| {
        *text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    };
    match greeting {
        Greeting::Hello(mut hello) => {
            clean(&mut hello.software);
            clean(&mut hello.client);
            Greeting::Hello(hello)
        }
        Greeting::Refusal(mut refusal) => {
            clean(&mut refusal.text);
            Greeting::Refusal(refusal)
        }
    }
}

/// Sends our greeting.
pub(super) async fn send_hello(stream: &TcpStream, hello: &Hello) -> Result<(), GreetError> {
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    send(stream, &bytes).await
}

/// Sends the reason of our refusal, and closes the connection such that the other side can read it.
pub(super) async fn send_refusal(stream: &TcpStream, refusal: &Refusal) {
    let mut bytes = Vec::new();
    refusal.encode(&mut bytes);
    if send(stream, &bytes).await.is_ok() && stream.shutdown(std::net::Shutdown::Write).is_ok() {
        // Closing with unread bytes would reset the connection, and the refusal with it.
        let drain = async {
            let (mut stream, mut piece, mut left) = (stream, [0; 1024], 16);
            while left > 0 && stream.read(&mut piece).await.is_ok_and(|count| count > 0) {
                left -= 1;
            }
        };
        let _ = rt::timeout(Duration::from_secs(1), drain).await;
    }
}

async fn send(mut stream: &TcpStream, bytes: &[u8]) -> Result<(), GreetError> {
    rt::timeout(GREETING_TIMEOUT, stream.write_all(bytes)).await.ok_or(GreetError::Silent)??;
    Ok(())
}
