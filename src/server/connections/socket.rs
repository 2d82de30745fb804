//! A client's socket: its options, whether its client is on this machine, and writing with patience.

use std::future::poll_fn;
use std::io::{self, Write};
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use event_listener::EventListener;
use futures::future::{Either, select};
use futures::io::{AsyncRead, AsyncWriteExt};
use socket2::SockRef;

use crate::rt::{self, TcpStream};

/// How long, and for how many bytes, a connection is read after its last message, so that the
/// client gets to see that message: what lies unread when a socket is closed resets it.
pub(super) const LINGER: Duration = Duration::from_secs(2);
/// The same when the node ends.
pub(super) const LINGER_AT_STOP: Duration = Duration::from_millis(300);
const LINGER_BYTES: usize = 64 << 20;
/// After this long without a byte, the system asks whether the client is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Whether a client is on this machine.
pub(super) fn is_local(socket: &TcpStream) -> bool {
    match (socket.peer_addr(), socket.local_addr()) {
        (Ok(peer), Ok(own)) => is_same_machine(peer.ip(), own.ip()),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// Whether a connection comes from the machine that it came to, even if the client used the
/// machine's own address and not the loopback one. No other machine completes a connection from
/// there.
fn is_same_machine(peer: IpAddr, own: IpAddr) -> bool {
    let (peer, own) = (peer.to_canonical(), own.to_canonical());
    peer.is_loopback() || peer == own
}

pub(super) fn prepare(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    // Without it a pipelining client stalls. If it fails, it is only slow.
    let _ = socket.set_tcp_nodelay(true);
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4);
    let _ = socket.set_tcp_keepalive(&keepalive);
}

/// Writes the last bytes and waits a little for the client to take them.
pub(super) async fn linger(socket: &TcpStream, last: &[u8], patience: Duration) {
    say_farewell(socket, last, patience, true).await;
}

/// Writes the last bytes and gives the client a little time to go by itself: clients of the original report
/// an end that comes first as an error.
pub(super) async fn part(socket: &TcpStream, last: &[u8], patience: Duration) {
    say_farewell(socket, last, patience, false).await;
}

async fn say_farewell(socket: &TcpStream, last: &[u8], patience: Duration, ends: bool) {
    let mut socket = socket;
    let farewell = async {
        socket.write_all(last).await?;
        if ends {
            socket.shutdown(std::net::Shutdown::Write)?;
        }
        let mut buffer = vec![0; 16 << 10];
        let mut total = 0;
        while total < LINGER_BYTES {
            match poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut buffer)).await? {
                0 => break,
                bytes => total += bytes,
            }
        }
        io::Result::Ok(())
    };
    let _ = rt::timeout(patience, farewell).await;
}

/// Writes all these bytes. A client that takes nothing for too long is given up.
pub(super) async fn write_out(
    socket: &TcpStream,
    closing: &mut EventListener,
    stall: Duration,
    bytes: &[u8],
    moved: impl Fn(),
) -> io::Result<()> {
    let mut from = 0;
    while let Some(rest) = bytes.get(from..).filter(|rest| !rest.is_empty()) {
        match (&*SockRef::from(socket)).write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => from += bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let mut writer = socket;
                let write = select(writer.write(rest), &mut *closing);
                match rt::timeout(stall, write).await {
                    Some(Either::Left((written, _))) => from += written?,
                    // The message would be behind what the client does not read.
                    Some(Either::Right(_)) => return Err(io::ErrorKind::OutOfMemory.into()),
                    None => return Err(io::ErrorKind::TimedOut.into()),
                }
                moved();
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_the_same_under_each_of_its_addresses() {
        let same =
            |peer: &str, own: &str| is_same_machine(peer.parse().unwrap(), own.parse().unwrap());
        assert!(same("127.0.0.1", "127.0.0.1") && same("::1", "::1"));
        assert!(same("10.0.0.5", "10.0.0.5") && same("::ffff:10.0.0.5", "10.0.0.5"));
        assert!(same("2001:db8::5", "2001:db8::5"));
        assert!(!same("10.0.0.6", "10.0.0.5") && !same("::ffff:10.0.0.6", "::ffff:10.0.0.5"));
    }
}
