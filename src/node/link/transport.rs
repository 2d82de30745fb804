//! What the bytes of a connection pass through: nothing, or the records of a sealed link.
//!
//! Until a connection has become a link, a [`Channel`] has all of it. Then the reader takes the
//! [`Opener`], and the writer the [`Sealer`]: see [`Halves`].

use std::io;

use futures::io::{AsyncReadExt, AsyncWriteExt};

use crate::protocol::frame::{GREETING_BYTES_MAX, HEADER_BYTES};
use crate::rt::TcpStream;
use crate::secure::key::KeyId;
use crate::secure::link::{Link as SealedLink, Opener, RECORD_HEADER_BYTES, RecordError, Sealer};

/// Bytes of the longest greeting.
const GREETING_BYTES: usize = HEADER_BYTES + GREETING_BYTES_MAX;
/// Most bytes of the record that a greeting lies in: its length, and a tag.
const GREETING_RECORD_MAX: usize = GREETING_BYTES + RECORD_HEADER_BYTES + 16;
/// What is read at a time before there is a link.
const PIECE_BYTES: usize = 1024;

/// Why nothing more can be read from a connection that is no link yet.
#[derive(Debug, thiserror::Error)]
pub(in crate::node::link) enum ReceiveError {
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Record(#[from] RecordError),
    /// No greeting is so long.
    #[error("its first record is longer than a greeting")]
    TooLong,
}

/// A connection that is not a link yet.
pub(in crate::node::link) struct Channel {
    pub(in crate::node::link) stream: TcpStream,
    sealed: Option<Sealed>,
    /// What was received and is not opened yet; of an open connection, not yet looked at. Invariant: no
    /// longer than a greeting's record and a piece.
    raw: Vec<u8>,
}

struct Sealed {
    sealer: Sealer,
    opener: Opener,
    key: KeyId,
}

/// What a link's two tasks take over.
#[derive(Default)]
pub(in crate::node::link) struct Halves {
    /// The writer's; none: what it writes goes out as it is.
    pub(in crate::node::link) sealer: Option<Sealer>,
    /// The reader's.
    pub(in crate::node::link) opener: Option<Opener>,
    /// What was received behind the greeting and is not opened yet. Empty on an open link.
    pub(in crate::node::link) raw: Vec<u8>,
    /// What was received behind the greeting.
    pub(in crate::node::link) plain: Vec<u8>,
}

impl Channel {
    /// A connection in plaintext, of which this was received already.
    pub(in crate::node::link) fn open(stream: TcpStream, received: Vec<u8>) -> Self {
        Self { stream, sealed: None, raw: received }
    }

    /// A connection after its handshake. `received`: with the handshake.
    pub(in crate::node::link) fn sealed(
        stream: TcpStream,
        link: SealedLink,
        mut received: Vec<u8>,
    ) -> Self {
        received.drain(..link.consumed.min(received.len()));
        let SealedLink { sealer, opener, key, .. } = link;
        Self { stream, sealed: Some(Sealed { sealer, opener, key }), raw: received }
    }

    /// The key that sealed it; none of an open one.
    pub(in crate::node::link) fn key(&self) -> Option<KeyId> {
        self.sealed.as_ref().map(|sealed| sealed.key)
    }

    /// Sends all of these bytes; of a sealed connection, as one record if they are a greeting.
    pub(in crate::node::link) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = &self.stream;
        match &mut self.sealed {
            None => stream.write_all(bytes).await,
            Some(sealed) => {
                let mut record = Vec::new();
                sealed.sealer.seal(bytes, &mut record).map_err(io::Error::other)?;
                stream.write_all(&record).await
            }
        }
    }

    /// Appends what comes next to `plain`, which holds less than a greeting. False: it was closed.
    pub(in crate::node::link) async fn receive(
        &mut self,
        plain: &mut Vec<u8>,
    ) -> Result<bool, ReceiveError> {
        let mut stream = &self.stream;
        let mut piece = [0; PIECE_BYTES];
        let Some(sealed) = &mut self.sealed else {
            if !self.raw.is_empty() {
                plain.append(&mut self.raw);
                return Ok(true);
            }
            let room = GREETING_BYTES.saturating_sub(plain.len()).min(piece.len());
            let count = stream.read(piece.get_mut(..room).unwrap_or_default()).await?;
            plain.extend_from_slice(piece.get(..count).unwrap_or_default());
            return Ok(count > 0);
        };
        loop {
            let opened = sealed.opener.open(&self.raw, plain)?;
            self.raw.drain(..opened);
            if opened > 0 {
                return Ok(true);
            }
            if self.raw.len() >= GREETING_RECORD_MAX {
                return Err(ReceiveError::TooLong);
            }
            let count = stream.read(&mut piece).await?;
            if count == 0 {
                return Ok(false);
            }
            self.raw.extend_from_slice(piece.get(..count).unwrap_or_default());
        }
    }

    /// For the tasks of the link that it becomes. `plain`: what was received behind the greeting.
    pub(in crate::node::link) fn into_halves(self, plain: Vec<u8>) -> Halves {
        match self.sealed {
            None => Halves { plain, ..Halves::default() },
            Some(Sealed { sealer, opener, .. }) => {
                Halves { sealer: Some(sealer), opener: Some(opener), raw: self.raw, plain }
            }
        }
    }
}
