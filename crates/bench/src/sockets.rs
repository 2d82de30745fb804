//! The load generator's sockets: plain, or with TLS.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use distkv_tls::channel::FEED_BYTES_MAX;
use distkv_tls::{Channel, ClientTls};
use mio::net::TcpStream;

use crate::client::wire::PlainGreeting;

/// Bytes that are read at a time in a handshake.
const CHUNK_BYTES: usize = 16 << 10;

/// How the connections of a measurement use TLS.
#[derive(Debug, Clone)]
pub struct Secure {
    /// Whom they believe.
    pub tls: ClientTls,
    /// The name in the certificates; without one the servers' addresses.
    pub host: Option<String>,
}

/// A socket that does not block.
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    channel: Option<Box<Channel>>,
    chunk: Vec<u8>,
}

impl Stream {
    /// Connects, with the handshake if there is one; that blocks.
    pub(crate) fn connect(target: SocketAddr, secure: Option<&Secure>) -> io::Result<Self> {
        let mut socket = std::net::TcpStream::connect(target)?;
        socket.set_nodelay(true)?;
        let (channel, chunk) = match secure {
            None => (None, Vec::new()),
            Some(secure) => {
                let host = secure.host.clone().unwrap_or_else(|| target.ip().to_string());
                let channel = shake_hands(&mut socket, &secure.tls, &host)?;
                (Some(Box::new(channel)), vec![0; FEED_BYTES_MAX])
            }
        };
        socket.set_nonblocking(true)?;
        Ok(Self { socket: TcpStream::from_std(socket), channel, chunk })
    }
}

fn shake_hands(
    socket: &mut std::net::TcpStream,
    tls: &ClientTls,
    host: &str,
) -> io::Result<Channel> {
    let mut channel = tls.connect(host).map_err(io::Error::other)?;
    let mut greeting = PlainGreeting::default();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = channel.outgoing().len();
        socket.write_all(channel.outgoing())?;
        channel.sent(count);
        if channel.is_open() {
            return Ok(channel);
        }
        let count = socket.read(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bytes = greeting.skip(chunk.get(..count).unwrap_or_default());
        channel.feed(&bytes.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
}

impl Read for Stream {
    /// As much as is there and fits: less means that nothing more is there.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(channel) = &mut self.channel else { return self.socket.read(room) };
        let mut filled = 0;
        loop {
            filled += channel.take(room.get_mut(filled..).unwrap_or_default());
            if filled == room.len() {
                return Ok(filled);
            }
            match self.socket.read(&mut self.chunk) {
                Ok(0) => return Ok(filled),
                Ok(count) => {
                    let bytes = self.chunk.get(..count).unwrap_or_default();
                    channel.feed(bytes).map_err(io::Error::other)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if filled == 0 => return Err(error),
                Err(_) => return Ok(filled),
            }
        }
    }
}

impl Write for Stream {
    /// Takes bytes that may not have gone out yet: see [`Write::flush`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(channel) = &mut self.channel else { return self.socket.write(bytes) };
        let count = channel.write(bytes).map_err(io::Error::other)?;
        if count > 0 {
            return Ok(count);
        }
        self.flush()?;
        // There is room now.
        let Some(channel) = &mut self.channel else { return Ok(0) };
        channel.write(bytes).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(channel) = &mut self.channel else { return Ok(()) };
        while !channel.outgoing().is_empty() {
            let count = self.socket.write(channel.outgoing())?;
            channel.sent(count);
        }
        Ok(())
    }
}
