//! The load generator's sockets: plain, or with TLS; and logged in, where the node asks for it.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use distkv_tls::channel::FEED_BYTES_MAX;
use distkv_tls::{Channel, ClientTls};
use mio::net::TcpStream;

use crate::client::splitter::Splitter;
use crate::client::wire::PlainGreeting;
use crate::client::{Access, Greeting, Login, Message};
use crate::model::ids::Millis;
use crate::rt;

/// Bytes that are read at a time in a handshake.
const CHUNK_BYTES: usize = 16 << 10;

/// How long a server may take for connecting, with the handshake and the login, unless told otherwise.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A system takes no shorter time.
const HARDLY_ANY: Duration = Duration::from_millis(1);
/// The number of a login's first request. Those of the load have others.
const LOGIN_SEQ: u64 = 1 << 40;

/// How the connections of a measurement get into nodes.
#[derive(Debug, Clone)]
pub struct Secure {
    /// Whether by TLS, and as whom.
    pub access: Access,
    /// The name in the certificates; without one the servers' addresses.
    pub host: Option<String>,
}

impl Secure {
    /// What this access says; none if it is plain text without a login.
    #[must_use]
    pub fn of(access: &Access, host: Option<String>) -> Option<Self> {
        let is_needed = access.tls().is_some() || access.login().is_some();
        is_needed.then(|| Self { access: access.clone(), host })
    }
}

/// A socket that does not block.
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    channel: Option<Box<Channel>>,
    chunk: Vec<u8>,
}

impl Stream {
    /// Connects, with the handshake and the login if there are such; that blocks.
    pub(crate) fn connect(
        target: SocketAddr,
        secure: Option<&Secure>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let timeout = timeout.max(HARDLY_ANY);
        let until = rt::now().saturating_add(rt::millis(timeout));
        let socket = std::net::TcpStream::connect_timeout(&target, timeout)?;
        socket.set_nodelay(true)?;
        let mut socket = InTime { socket, until };
        let host = secure.and_then(|secure| secure.host.clone());
        let host = host.unwrap_or_else(|| target.ip().to_string());
        let tls = secure.and_then(|secure| secure.access.tls());
        let channel = tls.map(|tls| shake_hands(&mut socket, tls, &host)).transpose()?;
        let mut channel = channel.map(Box::new);
        let chunk = if channel.is_some() { vec![0; FEED_BYTES_MAX] } else { Vec::new() };
        if let Some(access) = secure.map(|secure| &secure.access)
            && let Some(login) = access.login()
        {
            let may_send_secrets = access.may_send_secrets(target.ip());
            let mut talk = Talk { socket: &mut socket, channel: channel.as_deref_mut() };
            talk.log_in(login, target, may_send_secrets)?;
        }
        let socket = socket.socket;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: TcpStream::from_std(socket), channel, chunk })
    }
}

/// A socket that blocks, but not beyond a time, all together.
struct InTime {
    socket: std::net::TcpStream,
    until: Millis,
}

impl InTime {
    fn left(&self) -> io::Result<Duration> {
        match self.until.saturating_sub(rt::now()) {
            0 => Err(too_late()),
            left => Ok(Duration::from_millis(left)),
        }
    }
}

/// What a system says of a socket's time tells nobody anything.
fn too_late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time (--timeout)")
}

fn told(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => too_late(),
        _ => error,
    }
}

impl Read for InTime {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(room).map_err(told)
    }
}

impl Write for InTime {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes).map_err(told)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn shake_hands(socket: &mut InTime, tls: &ClientTls, host: &str) -> io::Result<Channel> {
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

/// A conversation before the load, one message after the other.
struct Talk<'a> {
    socket: &'a mut InTime,
    channel: Option<&'a mut Channel>,
}

impl Talk<'_> {
    fn log_in(
        &mut self,
        login: &Login,
        target: SocketAddr,
        may_send_secrets: bool,
    ) -> io::Result<()> {
        let mut splitter = Splitter::new();
        let greeting = Greeting::decode(&self.hear(&mut splitter)?);
        let greeting = greeting.ok_or_else(|| io::Error::other("it sends no greeting"))?;
        let (client, address) = (rt::random_bytes()?, target.to_string());
        let attempts = login.attempts(&greeting, &client, &address, may_send_secrets);
        let attempts = attempts.map_err(io::Error::other)?;
        let mut refused = Ok(());
        for (attempt, seq) in attempts.iter().zip(LOGIN_SEQ..) {
            self.say(&attempt.encode_request(seq, "auth"))?;
            refused = loop {
                let message = self.hear(&mut splitter)?;
                if message.u64("seq").is_some_and(|about| about != seq) {
                    continue;
                }
                match message.error() {
                    Some(error) => break Err(io::Error::other(error.to_string())),
                    None if message.str("state") == Some("end") => break Ok(()),
                    None => {}
                }
            };
            if refused.is_ok() {
                break;
            }
        }
        refused
    }

    fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(channel) = &mut self.channel else { return self.socket.write_all(bytes) };
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = channel.write(rest).map_err(io::Error::other)?;
            rest = rest.get(count..).unwrap_or_default();
            self.socket.write_all(channel.outgoing())?;
            channel.sent(channel.outgoing().len());
        }
        Ok(())
    }

    /// The next message.
    fn hear(&mut self, splitter: &mut Splitter) -> io::Result<Message> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            if let Some(value) = splitter.next_value().map_err(io::Error::other)? {
                return Message::new(value).map_err(io::Error::other);
            }
            let mut count = self.channel.as_mut().map_or(0, |channel| channel.take(&mut chunk));
            if count == 0 {
                count = self.socket.read(&mut chunk)?;
                let come = chunk.get(..count).unwrap_or_default();
                if come.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if let Some(channel) = &mut self.channel {
                    channel.feed(come).map_err(io::Error::other)?;
                    continue;
                }
            }
            splitter.push(chunk.get(..count).unwrap_or_default());
        }
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_that_says_nothing_is_waited_for_as_long_as_it_is_told() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = silent.local_addr().unwrap();
        let access = Access::default().log_in(Login::user(None, "joe", Some("geheim")));
        let secure = Secure::of(&access, None);
        let began = rt::now();
        let timeout = Duration::from_millis(200);
        let error = Stream::connect(target, secure.as_ref(), timeout).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("--timeout"), "{error}");
        assert!(rt::now() - began < rt::millis(CONNECT_TIMEOUT) / 2);
    }
}
