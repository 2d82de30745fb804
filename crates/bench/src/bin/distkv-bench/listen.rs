//! Many connections over which something only comes: whoever is ready is read, until a time.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use distkv_bench::load::LoadError;
use distkv_bench::place::is_interrupted;
use distkv_runtime as rt;
use mio::{Events, Interest, Poll, Token};

/// So much is read at once.
pub(super) const READ_BYTES: usize = 256 << 10;
/// How late the end may be noticed when nothing comes.
const LOOK: Duration = Duration::from_millis(20);

/// Reads from all until `end` (as [`rt::now_ns`] tells it). `take` reads once from the connection of
/// that number, at that time, and tells whether there may be more.
///
/// # Errors
/// A connection is lost, or `take` finds something that must not come.
pub(super) fn read_all(
    connections: impl Iterator<Item = (TcpStream, SocketAddr)>,
    end: u64,
    mut take: impl FnMut(usize, u64, &mut mio::net::TcpStream) -> io::Result<bool>,
) -> Result<(), LoadError> {
    let mut poll = Poll::new().map_err(LoadError::Poll)?;
    let mut streams = Vec::new();
    for (index, (stream, address)) in connections.enumerate() {
        stream.set_nonblocking(true).map_err(LoadError::Poll)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        let registered = poll.registry().register(&mut stream, Token(index), Interest::READABLE);
        registered.map_err(LoadError::Poll)?;
        streams.push((stream, address));
    }
    let mut events = Events::with_capacity(1_024);
    while rt::now_ns() < end && !is_interrupted() {
        let polled = poll.poll(&mut events, Some(LOOK));
        if let Err(error) = polled
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(LoadError::Poll(error));
        }
        for event in &events {
            let index = event.token().0;
            let Some((stream, address)) = streams.get_mut(index) else { continue };
            loop {
                let now = rt::now_ns();
                if now >= end {
                    return Ok(());
                }
                match take(index, now, stream) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(LoadError::Lost(*address, error)),
                }
            }
        }
    }
    Ok(())
}

/// Reads once. That the other side has ended is an error.
pub(super) fn read_some(stream: &mut impl Read, room: &mut [u8]) -> io::Result<usize> {
    match stream.read(room)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => Ok(length),
    }
}
