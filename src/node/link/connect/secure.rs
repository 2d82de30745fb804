//! The handshake of a sealed link on a connection, on both sides, with its limits of time and size.

use std::io;
use std::net::SocketAddr;

use futures::io::{AsyncReadExt, AsyncWriteExt};

use super::dial::connect_one;
use super::greet::{GREETING_TIMEOUT, GreetError, OtherPort, close_after_last_words};
use crate::node::link::transport::Channel;
use crate::node::link::tune;
use crate::node::security::Keys;
use crate::protocol::frame::HEADER_BYTES;
use crate::rt::{self, TcpStream};
use crate::secure::key::KeyId;
use crate::secure::link::{
    AcceptError, Acceptor, DialError, Dialler, HANDSHAKE_BYTES_MAX, Refusal, Suite,
};

/// Why a handshake did not come about.
#[derive(Debug, thiserror::Error)]
pub(super) enum SealError {
    #[error("it did not answer the handshake within {} s", GREETING_TIMEOUT.as_secs())]
    Silent,
    #[error(
        "it closed the connection before the handshake ended: it is stopping, or the port is another program's, \
         or its version of distkv-node has no keys yet"
    )]
    Closed,
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("{}", GreetError::OtherPort(*.0))]
    OtherPort(OtherPort),
    #[error("{0}")]
    Dial(#[from] DialError),
    #[error("{0}")]
    Accept(#[from] AcceptError),
}

impl SealError {
    /// A fixed word, so that the same complaint is logged once.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Closed => "closed",
            Self::Io(_) => "io",
            Self::OtherPort(port) => port.name(),
            Self::Dial(_) | Self::Accept(_) => "key",
        }
    }

    /// Why a caller is refused, for the audit log, and the key that it names. None: it has gone by itself, or
    /// will call again in another way.
    pub(super) fn refusal(&self) -> Option<(&'static str, Option<KeyId>)> {
        match self {
            Self::Silent => Some(("handshake: silent", None)),
            Self::Accept(error) => match error {
                AcceptError::Plaintext => Some(("no key", None)),
                AcceptError::UnknownKey(key) => Some(("unknown key", Some(*key))),
                // Which of the two it is cannot be seen from here.
                AcceptError::Proof(key) => Some(("wrong key or other network", Some(*key))),
                AcceptError::Version(_) => Some(("handshake: other version", None)),
                AcceptError::Malformed(_) | AcceptError::Refusal => {
                    Some(("handshake: not of this protocol", None))
                }
                AcceptError::Suite | AcceptError::Over => None,
            },
            Self::Closed | Self::Io(_) | Self::OtherPort(_) | Self::Dial(_) => None,
        }
    }

    /// What is wrong with a peer that was called, for the audit log, and the key that it should have. None: it may be
    /// well, and is called again.
    pub(super) fn complaint(&self) -> Option<(&'static str, Option<KeyId>)> {
        let error = match self {
            Self::Dial(error) => error,
            Self::OtherPort(_) => return Some(("handshake: not of this protocol", None)),
            Self::Silent | Self::Closed | Self::Io(_) | Self::Accept(_) => return None,
        };
        match error {
            DialError::Plaintext => Some(("no key", None)),
            DialError::Proof(key) => Some(("wrong key or other network", Some(*key))),
            DialError::Refused(Refusal::UnknownKey(_) | Refusal::Proof) => {
                Some(("it refuses the key of this node", None))
            }
            DialError::Version(_) | DialError::Refused(Refusal::Version) => {
                Some(("handshake: other version", None))
            }
            DialError::Altered | DialError::Downgrade => {
                Some(("handshake: changed on the way", None))
            }
            DialError::Malformed(_) => Some(("handshake: not of this protocol", None)),
            DialError::Refused(Refusal::Suite | Refusal::Other(_)) | DialError::Over => None,
        }
    }

    /// Whether it stays so until somebody changes a setting, for all that can be seen: none of it is
    /// authenticated.
    pub(super) fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::OtherPort(_)
                | Self::Dial(
                    DialError::Plaintext
                        | DialError::Version(_)
                        | DialError::Proof(_)
                        | DialError::Malformed(_)
                        | DialError::Refused(
                            Refusal::UnknownKey(_) | Refusal::Proof | Refusal::Version
                        )
                )
        )
    }

    /// Whether the other side may be a node without a key.
    fn is_plaintext(&self) -> bool {
        matches!(self, Self::Closed | Self::Dial(DialError::Plaintext))
    }
}

/// Seals a connection that this node has made. Where the peer wants the other cipher, or takes plaintext
/// only and that is allowed, it is made again.
pub(super) async fn seal_dialled(
    keys: &Keys,
    stream: TcpStream,
    remote: SocketAddr,
) -> Result<Channel, SealError> {
    let own = keys.suites();
    match dial(keys, stream, own.preferred()).await {
        Err(SealError::Dial(DialError::Refused(Refusal::Suite)))
            if own.after(&Refusal::Suite) != own.preferred() =>
        {
            dial(keys, again(remote).await?, own.after(&Refusal::Suite)).await
        }
        Err(error) if keys.takes_plaintext() && error.is_plaintext() => {
            Ok(Channel::open(again(remote).await?, Vec::new()))
        }
        other => other,
    }
}

async fn again(remote: SocketAddr) -> io::Result<TcpStream> {
    let (stream, _) = connect_one(remote).await?;
    tune(&stream);
    Ok(stream)
}

async fn dial(keys: &Keys, stream: TcpStream, suite: Suite) -> Result<Channel, SealError> {
    let mut out = Vec::new();
    let (ring, ephemeral) = (keys.ring(), Keys::ephemeral()?);
    let mut dialler = Dialler::new(&ring, keys.suites(), suite, ephemeral, &mut out)?;
    let greeted = async {
        (&stream).write_all(&out).await?;
        let mut received = Vec::new();
        loop {
            more(&stream, &mut received).await?;
            if let Some(port) = OtherPort::of(&received) {
                return Err(SealError::OtherPort(port));
            }
            if let Some(link) = dialler.take(&received)? {
                return Ok((link, received));
            }
        }
    };
    let greeted = rt::timeout(GREETING_TIMEOUT, greeted).await;
    let (link, received) = greeted.unwrap_or(Err(SealError::Silent))?;
    Ok(Channel::sealed(stream, link, received))
}

/// Takes a connection that a peer has made: seals it, or leaves it open if that is allowed.
pub(super) async fn seal_accepted(keys: &Keys, stream: TcpStream) -> Result<Channel, SealError> {
    let mut acceptor = Acceptor::new(keys.suites(), Keys::ephemeral()?);
    let (mut received, mut out) = (Vec::new(), Vec::new());
    let greeted = async {
        loop {
            more(&stream, &mut received).await?;
            // Each time the present ring: it may be changed meanwhile.
            match acceptor.take(&keys.ring(), &received, &mut out) {
                Ok(None) => {}
                Ok(Some(link)) => {
                    (&stream).write_all(&out).await?;
                    return Ok(Some(link));
                }
                Err(AcceptError::Plaintext) if keys.takes_plaintext() => return Ok(None),
                Err(error) => {
                    close_after_last_words(&stream, &out).await;
                    return Err(error.into());
                }
            }
        }
    };
    let greeted = rt::timeout(GREETING_TIMEOUT, greeted).await.unwrap_or(Err(SealError::Silent))?;
    Ok(match greeted {
        Some(link) => Channel::sealed(stream, link, received),
        None => Channel::open(stream, received),
    })
}

/// Waits for more bytes of a handshake. There are never more than the longest one has: whoever sends more
/// has been refused by then.
async fn more(mut stream: &TcpStream, received: &mut Vec<u8>) -> Result<(), SealError> {
    let mut piece = [0; 1024];
    let room = (HEADER_BYTES + HANDSHAKE_BYTES_MAX).saturating_sub(received.len());
    let room = room.min(piece.len());
    let count = stream.read(piece.get_mut(..room).unwrap_or_default()).await?;
    if count == 0 {
        return Err(SealError::Closed);
    }
    received.extend_from_slice(piece.get(..count).unwrap_or_default());
    Ok(())
}
