//! Addresses for nodes that must be known before they start, or that somebody looks for in vain.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{env, process};

/// Below all that systems hand out for port 0 and for outgoing connections (Linux: 32,768; RFC 6335: 49,152).
const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;
/// Processes whose numbers follow each other begin so many ports apart.
const PER_PROCESS: u16 = 20;

/// Loopback addresses where nobody listens, neither for TCP nor for UDP. The system gives their ports to nobody
/// who asks for any port, so that they stay free until they are used: a port that was asked for with 0 and
/// freed again may be another program's by then. Nor does this give them to another process while this one lives: a node
/// that is started again finds them as it left them.
///
/// # Panics
///
/// If no port from 10,000 to 29,999 is free.
#[must_use]
#[allow(clippy::panic, reason = "for tests, which can do nothing about it")]
pub fn free_addrs<const N: usize>() -> [SocketAddr; N] {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let begin = process::id() % u32::from(COUNT / PER_PROCESS);
    let begin = u16::try_from(begin).unwrap_or(0).saturating_mul(PER_PROCESS);
    std::array::from_fn(|_| {
        for _ in 0..COUNT {
            let next = TAKEN.fetch_add(1, Ordering::Relaxed) % COUNT;
            let port = FIRST + (begin + next) % COUNT;
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let is_free = || TcpListener::bind(addr).is_ok() && UdpSocket::bind(addr).is_ok();
            if let Some(mark) = mark_of(port).filter(|_| is_free()) {
                MARKS.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
                return addr;
            }
        }
        panic!("no port from {FIRST} to {} is free", FIRST + COUNT - 1)
    })
}

/// Of the ports that this process has got. They are locked until it ends.
static MARKS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A file for a port, locked; none if another process has that.
fn mark_of(port: u16) -> Option<File> {
    let folder = env::temp_dir().join("distkv-test-ports");
    fs::create_dir_all(&folder).ok()?;
    let mark = File::create(folder.join(port.to_string())).ok()?;
    mark.try_lock().ok().map(|()| mark)
}

#[cfg(test)]
mod tests {
    use super::free_addrs;

    #[test]
    fn addresses_are_free_all_different_and_not_the_systems_to_give() {
        let addrs = free_addrs::<50>();
        for (at, addr) in addrs.iter().enumerate() {
            assert!((10_000..30_000).contains(&addr.port()));
            assert!(!addrs[..at].contains(addr), "{addr} twice");
        }
    }
}
