//! The bytes of a connection, in plain text or by TLS. Clones are the two halves: one reads, one writes.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use async_channel::Sender;
use futures::io::{AsyncReadExt, AsyncWriteExt};

use crate::credentials::Access;
use crate::error::ClientError;
use crate::model::host_port::HostPort;
use crate::rt::{self, TcpStream};
#[cfg(feature = "tls")]
pub use secure::PlainGreeting;

/// How long a connection may be silent before the system asks the other side's machine whether
/// it is still there. Watchers wait for hours on connections over which nothing comes.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug, Clone)]
pub struct Wire {
    stream: TcpStream,
    peer: IpAddr,
    #[cfg(feature = "tls")]
    session: Option<secure::Session>,
}

impl Wire {
    /// Connects, trying all addresses of the host one after the other, by TLS if `access` says so. `timeout` is shared
    /// by the addresses; the handshake is not counted.
    ///
    /// # Errors
    /// [`ClientError::Resolve`], [`ClientError::Connect`], [`ClientError::NoAccess`], or [`ClientError::Lost`] in the
    /// handshake.
    pub async fn connect(
        to: &HostPort,
        access: &Access,
        timeout: Duration,
    ) -> Result<Wire, ClientError> {
        let (stream, peer) = connect_any(to, timeout).await?;
        Wire::over(stream, peer, to, access).await
    }

    /// Sets up TLS, if `access` says so, over a connection to this address of the host.
    ///
    /// # Errors
    /// As of the handshake in [`Wire::connect`].
    pub async fn over(
        stream: TcpStream,
        peer: IpAddr,
        to: &HostPort,
        access: &Access,
    ) -> Result<Wire, ClientError> {
        #[cfg(feature = "tls")]
        if let Some(tls) = access.tls_now().await {
            let session = secure::Session::begin(stream.clone(), peer, to, &tls).await?;
            return Ok(Wire { stream, peer, session: Some(session) });
        }
        let _ = (to, access);
        Ok(Wire {
            stream,
            peer,
            #[cfg(feature = "tls")]
            session: None,
        })
    }

    /// What an error of [`Wire::read`] means, at the other end of a connection to `address`.
    pub(crate) fn lost(error: &io::Error, address: String) -> ClientError {
        #[cfg(feature = "tls")]
        if secure::is_refusal(error) {
            return ClientError::NoAccess {
                address,
                reason: error.to_string(),
                code: None,
                greeted: false,
            };
        }
        ClientError::Lost { address, reason: error.to_string() }
    }

    /// What the socket is connected to, whatever name was given for it.
    #[must_use]
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Where the reading half asks the writing one to write: an empty batch.
    pub(super) fn writer_is(&mut self, outgoing: &Sender<Vec<u8>>) {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            session.writer_is(outgoing);
        }
        let _ = outgoing;
    }

    /// Reads some bytes; 0 at the end.
    ///
    /// # Errors
    /// The socket's, or that of TLS.
    pub async fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return session.read(&mut self.stream, chunk).await;
        }
        self.stream.read(chunk).await
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// The socket's, or that of TLS.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return session.write_all(&mut self.stream, bytes).await;
        }
        self.stream.write_all(bytes).await
    }

    /// Writes as many of the bytes as can be written at once, which may be none.
    pub(super) fn try_write(&self, bytes: &[u8]) -> usize {
        #[cfg(feature = "tls")]
        if self.session.is_some() {
            return 0;
        }
        // An error comes again, at the next write.
        self.stream.try_write(bytes).unwrap_or(0)
    }

    /// Writes what [`Wire::try_write`] has left.
    pub(super) async fn write_rest(&mut self, rest: &[u8]) -> io::Result<()> {
        self.stream.write_all(rest).await
    }

    /// Ends both directions.
    pub async fn close(&mut self) {
        self.say_end().await;
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Ends what is written; the node may still answer.
    pub async fn finish(&mut self) {
        self.say_end().await;
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, reason = "TLS says its end"))]
    async fn say_end(&mut self) {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            session.close(&mut self.stream).await;
        }
    }
}

/// A TCP connection to the first of the host's addresses that takes one, and which address that is.
async fn connect_any(to: &HostPort, timeout: Duration) -> Result<(TcpStream, IpAddr), ClientError> {
    let addresses = rt::resolve(to).await.map_err(|error| ClientError::Resolve {
        address: to.to_string(),
        reason: error.to_string(),
    })?;
    // The last one may take all the time that is left; those before it must leave some.
    let share = timeout / u32::try_from(addresses.len() + 1).unwrap_or(u32::MAX);
    let mut reasons = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let is_last = index + 1 == addresses.len();
        let patience = if is_last { timeout } else { share };
        match rt::timeout(patience, TcpStream::connect(*address)).await {
            // The socket knows best: 0.0.0.0 is this machine.
            Some(Ok(stream)) => match stream.peer_addr() {
                Ok(peer) => {
                    prepare(&stream);
                    return Ok((stream, peer.ip()));
                }
                // It has ended already.
                Err(error) => reasons.push((*address, error.to_string())),
            },
            // So it would be at the next address.
            Some(Err(error)) if is_out_of_descriptors(&error) => {
                let (address, reason) = (to.to_string(), error.to_string());
                return Err(ClientError::NoDescriptor { address, reason });
            }
            Some(Err(error)) => reasons.push((*address, error.to_string())),
            None => reasons.push((*address, String::from("no answer"))),
        }
    }
    Err(ClientError::Connect { address: to.to_string(), reason: list_reasons(&reasons) })
}

/// Whether this process, or the whole system, has as many files open as it may (EMFILE, ENFILE).
fn is_out_of_descriptors(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Options of the socket. Where the system refuses them, things are slower, not wrong.
fn prepare(stream: &TcpStream) {
    let keep_alive = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE);
    let _ = stream.set_nodelay(true);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keep_alive);
}

/// One address's reason alone, several with their addresses.
fn list_reasons(reasons: &[(SocketAddr, String)]) -> String {
    match reasons {
        [(_, reason)] => reason.clone(),
        _ => {
            let each: Vec<_> =
                reasons.iter().map(|(address, why)| format!("{address}: {why}")).collect();
            each.join("; ")
        }
    }
}

#[cfg(feature = "tls")]
mod secure {
    //! A TLS session that two tasks share.

    use std::io;
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use async_channel::{Sender, WeakSender};
    use distkv_tls::{Channel, ClientTls, TlsError};
    use futures::io::{AsyncReadExt, AsyncWriteExt};
    use parking_lot::Mutex;

    use crate::credentials::is_own_machine;
    use crate::error::{BEGAN_TOO_LATE, ClientError, ServerError, WRONG_TIME};
    use crate::message::{Greeting, Message};
    use crate::model::host_port::HostPort;
    use crate::model::value::skip::SKIP_DEPTH_MAX;
    use crate::model::value::{SkipLimits, Skipper};
    use crate::retry::ErrorClass;
    use crate::rt::{self, TcpStream};

    /// Bytes that are read at a time in the handshake.
    const CHUNK_BYTES: usize = 16 << 10;
    /// Longest greeting in plain text that is skipped.
    const GREETING_BYTES_MAX: usize = 16 << 10;
    /// What a client with TLS is told where this machine has none for it.
    const NO_TLS_HERE: &str = "it greets as a node, but does not understand TLS: it is a tunnel, or a node without a \
                               certificate, and its clients speak plain text. Connect without a CA (commands: leave out --key, \
                               --node-ca and --ticket; users log in with --user and --secret-file)";
    /// How long the end of a session may take to be written.
    const CLOSE_PATIENCE: Duration = Duration::from_millis(500);

    /// The session, and what is on its way to the socket.
    #[derive(Debug, Clone)]
    pub(super) struct Session {
        channel: Arc<Mutex<Channel>>,
        /// Encrypted, not yet written. Of the writing half.
        sealed: Vec<u8>,
        /// To the writing half.
        writer: Option<WeakSender<Vec<u8>>>,
    }

    /// Whether the node does not accept the client's certificate. It says so only after the handshake.
    pub(super) fn is_refusal(error: &io::Error) -> bool {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        matches!(tls, Some(TlsError::Refused { .. }))
    }

    impl Session {
        /// The handshake.
        pub(super) async fn begin(
            mut stream: TcpStream,
            peer: IpAddr,
            to: &HostPort,
            tls: &ClientTls,
        ) -> Result<Session, ClientError> {
            let address = to.to_string();
            let no_access = |error: TlsError| {
                let is_time = matches!(error, TlsError::Expired { .. } | TlsError::NotYet { .. });
                ClientError::NoAccess {
                    address: address.clone(),
                    reason: error.to_string(),
                    code: is_time.then(|| WRONG_TIME.into()),
                    greeted: false,
                }
            };
            let lost = |error: io::Error| ClientError::Lost {
                address: address.clone(),
                reason: error.to_string(),
            };
            let mut channel = tls.connect(&to.host).map_err(no_access)?;
            let mut greeting = PlainGreeting::default();
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                let bytes = channel.outgoing();
                let count = bytes.len();
                stream.write_all(bytes).await.map_err(lost)?;
                channel.sent(count);
                if channel.is_open() {
                    let (channel, sealed) = (Arc::new(Mutex::new(channel)), Vec::new());
                    return Ok(Session { channel, sealed, writer: None });
                }
                let count = stream.read(&mut chunk).await.map_err(lost)?;
                if count == 0 {
                    // A node that stops, or is full, says nothing of this client.
                    return Err(ClientError::Lost {
                        address: address.clone(),
                        reason: String::from("it closed the connection before TLS was set up"),
                    });
                }
                let bytes = greeting.skip(chunk.get(..count).unwrap_or_default());
                let bytes = bytes.map_err(|error| match ErrorClass::of_server(&error) {
                    // It took this client for one without TLS, because nothing came for too long. It comes again. What the
                    // node says is for those who have no TLS.
                    ErrorClass::Final if error.has_code("auth_required") => ClientError::Connect {
                        address: address.clone(),
                        reason: String::from(BEGAN_TOO_LATE),
                    },
                    ErrorClass::Final => ClientError::NoAccess {
                        address: address.clone(),
                        reason: format!("it says, in plain text: {error}"),
                        code: error.code.map(Into::into),
                        greeted: false,
                    },
                    // A node that is full, say: another one may not be.
                    _ => ClientError::Server(error),
                })?;
                if let Err(error) = channel.feed(&bytes) {
                    // The node is told why, if it listens.
                    let _ = stream.write_all(channel.outgoing()).await;
                    let is_plain = matches!(error, TlsError::NotTls { .. }) && greeting.has_come();
                    // On other machines, whoever is in between can seem to have no TLS: nobody is told to do without it.
                    if is_plain && is_own_machine(peer) {
                        return Err(ClientError::NoAccess {
                            address: address.clone(),
                            reason: String::from(NO_TLS_HERE),
                            code: None,
                            greeted: false,
                        });
                    }
                    return Err(no_access(error));
                }
            }
        }

        pub(super) fn writer_is(&mut self, outgoing: &Sender<Vec<u8>>) {
            self.writer = Some(outgoing.downgrade());
        }

        pub(super) async fn read(
            &mut self,
            stream: &mut TcpStream,
            chunk: &mut [u8],
        ) -> io::Result<usize> {
            loop {
                {
                    let mut channel = self.channel.lock();
                    let count = channel.take(chunk);
                    if count > 0 || channel.is_peer_closed() {
                        return Ok(count);
                    }
                }
                let count = stream.read(chunk).await?;
                let mut channel = self.channel.lock();
                if count == 0 {
                    return channel.ended().map(|()| 0).map_err(io::Error::other);
                }
                let fed = channel.feed(chunk.get(..count).unwrap_or_default());
                let writer = self.writer.as_ref().filter(|_| !channel.outgoing().is_empty());
                if let Some(writer) = writer.and_then(WeakSender::upgrade) {
                    // If the queue is full, the writer has enough to do and will find it.
                    let _ = writer.try_send(Vec::new());
                }
                fed.map_err(io::Error::other)?;
            }
        }

        pub(super) async fn write_all(
            &mut self,
            stream: &mut TcpStream,
            bytes: &[u8],
        ) -> io::Result<()> {
            let mut rest = bytes;
            loop {
                {
                    let mut channel = self.channel.lock();
                    let count = channel.write(rest).map_err(io::Error::other)?;
                    rest = rest.get(count..).unwrap_or_default();
                    channel.move_outgoing(&mut self.sealed);
                }
                stream.write_all(&self.sealed).await?;
                if rest.is_empty() {
                    return Ok(());
                }
                if self.sealed.is_empty() {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
        }

        /// Says that this is the end, if the node listens.
        pub(super) async fn close(&mut self, stream: &mut TcpStream) {
            {
                let mut channel = self.channel.lock();
                let _ = channel.close();
                channel.move_outgoing(&mut self.sealed);
            }
            let _ = rt::timeout(CLOSE_PATIENCE, stream.write_all(&self.sealed)).await;
        }
    }

    /// What a node says in plain text before TLS begins: to clients on its own machine it says a greeting at once, as they
    /// may be of the kind that says nothing before it. It is skipped, and nothing in it is believed.
    #[derive(Debug, Default)]
    pub struct PlainGreeting {
        bytes: Vec<u8>,
        is_over: bool,
        has_come: bool,
    }

    impl PlainGreeting {
        /// The bytes behind it.
        ///
        /// # Errors
        /// What the node tells in plain text, if that is an error.
        pub fn skip(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ServerError> {
            // The kinds of TLS records; no MessagePack map begins like that.
            let is_tls = |byte: &u8| (20..=23).contains(byte);
            if self.is_over || (self.bytes.is_empty() && bytes.first().is_some_and(is_tls)) {
                self.is_over = true;
                return Ok(bytes.to_vec());
            }
            self.bytes.extend_from_slice(bytes);
            let limits = SkipLimits { depth_max: SKIP_DEPTH_MAX, bytes_max: GREETING_BYTES_MAX };
            let length = match Skipper::new(limits).advance(&self.bytes) {
                Ok(Some(length)) => length,
                Ok(None) => return Ok(Vec::new()),
                // Whatever it is, it is no greeting: TLS says so.
                Err(_) => 0,
            };
            self.is_over = true;
            let rest = self.bytes.split_off(length);
            let message = Message::new(&self.bytes).ok();
            match message.as_ref().and_then(Message::error) {
                Some(error) => Err(error),
                None => {
                    self.has_come = message.as_ref().and_then(Greeting::decode).is_some();
                    Ok(rest)
                }
            }
        }

        /// Whether a node's greeting was skipped.
        fn has_come(&self) -> bool {
            self.has_come
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_greeting_in_plain_text_is_skipped_in_whatever_pieces_it_comes() {
            let greeting = b"\x82\xa3seq\x00\xa4node\xa2n1";
            let mut bytes = greeting.to_vec();
            bytes.extend(b"\x16\x03\x03rest");
            for piece in 1..bytes.len() {
                let mut skipped = PlainGreeting::default();
                let mut rest = Vec::new();
                for piece in bytes.chunks(piece) {
                    rest.extend(skipped.skip(piece).unwrap());
                }
                assert_eq!(rest, b"\x16\x03\x03rest", "{piece}");
            }
            assert_eq!(PlainGreeting::default().skip(b"\x16\x03").unwrap(), b"\x16\x03");
        }

        #[test]
        fn an_error_in_plain_text_is_told_and_anything_else_is_left_to_tls() {
            let error = PlainGreeting::default().skip(b"\x81\xa5error\xa8too many").unwrap_err();
            assert_eq!(error.to_string(), "too many");
            assert_eq!(PlainGreeting::default().skip(b"\xc1HTTP").unwrap(), b"\xc1HTTP");
            let long = [&b"\x81\xa1a\xdb\x00\x01\x00\x00"[..], &[b'x'; 20_000]].concat();
            assert_eq!(PlainGreeting::default().skip(&long).unwrap(), long);
        }
    }
}
