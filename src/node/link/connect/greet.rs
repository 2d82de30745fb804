//! The first words on a connection, with their limits of time and size: before a greeting, a
//! connection has cost next to nothing.

use std::io;
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};

use crate::node::config::GOSSIP_PORT;
use crate::node::link::transport::{Channel, ReceiveError};
use crate::protocol::frame::{FrameError, GREETING_BYTES_MAX, HEADER_BYTES, split_frame};
use crate::protocol::peer::greeting::{Greeting, GreetingError, Hello, Refusal};
use crate::rt::{self, TcpStream};
use crate::secure::link::SECURED;

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
    /// Others than nodes are answered there.
    #[error("it is {}; give the gossip port of that node (default {GOSSIP_PORT})", .0.with_article())]
    OtherPort(OtherPort),
    #[error("it does not speak the peer protocol: it began with \"{shown}\" ({why})")]
    Stranger { shown: String, why: FrameError },
    #[error("{0}")]
    Greeting(#[from] GreetingError),
    /// A handshake where a greeting belongs.
    #[error("the peer uses a key, and this node does not; start this node with `--key FILE`, too")]
    Sealed,
    /// A record that does not open.
    #[error("{0}")]
    Record(ReceiveError),
}

impl From<ReceiveError> for GreetError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Io(error) => Self::Io(error),
            error => Self::Record(error),
        }
    }
}

impl GreetError {
    /// Whether the address is not a node's gossip port, and will not be until a setting is changed.
    pub(super) fn is_lasting(&self) -> bool {
        matches!(self, Self::OtherPort(_) | Self::Stranger { .. })
    }

    /// Why a caller is refused, for the audit log. None: it has gone by itself.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        match self {
            Self::Silent => Some("greeting: silent"),
            Self::Closed | Self::Io(_) => None,
            Self::OtherPort(_) | Self::Stranger { .. } | Self::Greeting(_) => {
                Some("greeting: not of this protocol")
            }
            Self::Sealed => Some("it uses a key, and this node does not"),
            // A handshake that was recorded and sent again gets as far as here.
            Self::Record(_) => Some("records: they do not open"),
        }
    }

    /// What is wrong with a peer that was called, for the audit log. None: it may be well, and is called again.
    pub(super) fn complaint(&self) -> Option<&'static str> {
        self.refusal().filter(|_| !matches!(self, Self::Silent))
    }

    /// A fixed word, so that the same complaint is logged once.
    pub(in crate::node::link) fn reason(&self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Closed => "closed",
            Self::Io(_) => "io",
            Self::OtherPort(port) => port.name(),
            Self::Stranger { .. } => "stranger",
            Self::Greeting(_) => "greeting",
            Self::Sealed => "key",
            Self::Record(_) => "record",
        }
    }
}

/// Reads the other side's greeting, and returns the bytes after it.
pub(super) async fn read_greeting(
    channel: &mut Channel,
) -> Result<(Greeting, Vec<u8>), GreetError> {
    let read = rt::timeout(GREETING_TIMEOUT, read_unlimited(channel)).await;
    read.unwrap_or(Err(GreetError::Silent))
}

/// A port of a node that is taken for its gossip port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node::link) enum OtherPort {
    Client,
    Http,
}

impl OtherPort {
    /// Of which port these bytes are the first: a node greets its clients with a short map whose first key is `seq`, or
    /// refuses them where they must use TLS; what answers HTTP says so. None: of none of these, or there are too few yet.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'H', b'T', b'T', b'P', b'/', ..] => Some(Self::Http),
            [0x80..=0x8f, rest @ ..]
                if rest.starts_with(b"\xa3seq") || rest.starts_with(b"\xa5error") =>
            {
                Some(Self::Client)
            }
            _ => None,
        }
    }

    fn with_article(self) -> &'static str {
        match self {
            Self::Client => "a client port",
            Self::Http => "an HTTP port",
        }
    }

    /// A fixed word, so that the same complaint is logged once.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Client => "client port",
            Self::Http => "HTTP port",
        }
    }
}

async fn read_unlimited(channel: &mut Channel) -> Result<(Greeting, Vec<u8>), GreetError> {
    let mut bytes = Vec::new();
    loop {
        if bytes.get(HEADER_BYTES - 1) == Some(&SECURED) && channel.key().is_none() {
            return Err(GreetError::Sealed);
        }
        match split_frame(&bytes, GREETING_BYTES_MAX) {
            Err(why) => {
                if let Some(port) = OtherPort::of(&bytes) {
                    return Err(GreetError::OtherPort(port));
                }
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
        if !channel.receive(&mut bytes).await? {
            return Err(GreetError::Closed);
        }
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
pub(super) async fn send_hello(channel: &mut Channel, hello: &Hello) -> Result<(), GreetError> {
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    send(channel, &bytes).await
}

/// Sends the reason of our refusal, and closes the connection such that the other side can read it.
pub(super) async fn send_refusal(channel: &mut Channel, refusal: &Refusal) {
    let mut bytes = Vec::new();
    refusal.encode(&mut bytes);
    if send(channel, &bytes).await.is_ok() {
        close_after_last_words(&channel.stream, &[]).await;
    }
}

async fn send(channel: &mut Channel, bytes: &[u8]) -> Result<(), GreetError> {
    rt::timeout(GREETING_TIMEOUT, channel.send(bytes)).await.ok_or(GreetError::Silent)??;
    Ok(())
}

/// Sends these bytes as they are, and closes the connection such that the other side can read them.
pub(super) async fn close_after_last_words(mut stream: &TcpStream, words: &[u8]) {
    let last = async {
        if stream.write_all(words).await.is_err()
            || stream.shutdown(std::net::Shutdown::Write).is_err()
        {
            return;
        }
        // Closing with unread bytes would reset the connection, and the last words with it.
        let (mut piece, mut left) = ([0; 1024], 16);
        while left > 0 && stream.read(&mut piece).await.is_ok_and(|count| count > 0) {
            left -= 1;
        }
    };
    let _ = rt::timeout(Duration::from_secs(1), last).await;
}
