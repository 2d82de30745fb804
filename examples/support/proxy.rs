//! The wire between two nodes: a TCP and UDP proxy that counts the bytes of links in each
//! direction, and can be cut. Each node advertises its side of the proxy as its own address.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a closed side looks whether it is to open again.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A wire. Side 0 stands for the first node, side 1 for the second.
pub struct Wire {
    inner: Arc<Inner>,
}

struct Inner {
    sides: [Side; 2],
    /// Bytes of links that the node of that side has sent.
    sent: [AtomicU64; 2],
    cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

struct Side {
    /// What the node of this side advertises.
    advertised: SocketAddr,
    udp: UdpSocket,
    /// Where that node really is, once it has started.
    node: Mutex<Option<SocketAddr>>,
}

impl Wire {
    /// A wire that is not cut, and leads to nobody yet.
    pub fn new() -> std::io::Result<Wire> {
        let (first, second) = (Self::listen()?, Self::listen()?);
        let side = |pair: &(TcpListener, UdpSocket)| {
            Ok::<_, std::io::Error>(Side {
                advertised: pair.0.local_addr()?,
                udp: pair.1.try_clone()?,
                node: Mutex::new(None),
            })
        };
        let inner = Arc::new(Inner {
            sides: [side(&first)?, side(&second)?],
            sent: [AtomicU64::new(0), AtomicU64::new(0)],
            cut: AtomicBool::new(false),
            open: Mutex::new(Vec::new()),
        });
        for (place, (tcp, udp)) in [first, second].into_iter().enumerate() {
            let (for_tcp, for_udp) = (Arc::clone(&inner), Arc::clone(&inner));
            thread::spawn(move || for_tcp.accept(place, tcp));
            thread::spawn(move || for_udp.forward(place, &udp));
        }
        Ok(Wire { inner })
    }

    /// Both on one port.
    fn listen() -> std::io::Result<(TcpListener, UdpSocket)> {
        for _ in 0..100 {
            let tcp = TcpListener::bind("127.0.0.1:0")?;
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr()?) {
                return Ok((tcp, udp));
            }
        }
        Err(std::io::ErrorKind::AddrInUse.into())
    }

    /// What the node of a side is to advertise.
    pub fn advertised(&self, side: usize) -> SocketAddr {
        self.inner.side(side).advertised
    }

    /// Where the node of a side is.
    pub fn lead_to(&self, side: usize, node: SocketAddr) {
        *lock(&self.inner.side(side).node) = Some(node);
    }

    /// Closes all connections, takes no new ones, and drops all datagrams.
    pub fn cut(&self) {
        self.inner.cut.store(true, Ordering::SeqCst);
        for stream in lock(&self.inner.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Undoes that.
    pub fn mend(&self) {
        self.inner.cut.store(false, Ordering::SeqCst);
    }

    /// How many bytes each side's node has sent over links.
    pub fn sent(&self) -> [u64; 2] {
        [0, 1].map(|side| self.inner.sent(side).load(Ordering::SeqCst))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn side(&self, side: usize) -> &Side {
        let [first, second] = &self.sides;
        if side == 0 { first } else { second }
    }

    fn sent(&self, side: usize) -> &AtomicU64 {
        let [first, second] = &self.sent;
        if side == 0 { first } else { second }
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Takes connections at a side, which the other side's node makes. While the wire is cut,
    /// nobody listens: they are refused.
    fn accept(self: Arc<Self>, side: usize, listener: TcpListener) {
        let mut listener = Some(listener);
        loop {
            if self.is_cut() {
                listener = None;
            } else if listener.is_none() {
                listener = TcpListener::bind(self.side(side).advertised).ok();
            }
            let Some(open) = &listener else {
                thread::sleep(LOOK_INTERVAL);
                continue;
            };
            let _ = open.set_nonblocking(true);
            match open.accept() {
                Ok((from, _)) => {
                    let inner = Arc::clone(&self);
                    let _ = from.set_nonblocking(false);
                    thread::spawn(move || inner.connect(side, from));
                }
                Err(_) => thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    fn connect(self: Arc<Self>, side: usize, from: TcpStream) {
        let Some(node) = *lock(&self.side(side).node) else { return };
        let Ok(to) = TcpStream::connect(node) else { return };
        for stream in [&from, &to] {
            let _ = stream.set_nodelay(true);
            if let Ok(clone) = stream.try_clone() {
                lock(&self.open).push(clone);
            }
        }
        if self.is_cut() {
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        }
        if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
            let inner = Arc::clone(&self);
            thread::spawn(move || pump(from, to, inner.sent(1 - side)));
        }
        pump(to, from, self.sent(side));
    }

    /// Passes datagrams on that come in at a side, as if from the other side's node.
    fn forward(&self, side: usize, socket: &UdpSocket) {
        let mut buffer = [0; 2048];
        loop {
            let Ok((length, _)) = socket.recv_from(&mut buffer) else { continue };
            let node = *lock(&self.side(side).node);
            if let (Some(node), false) = (node, self.is_cut()) {
                let datagram = buffer.get(..length).unwrap_or_default();
                let _ = self.side(1 - side).udp.send_to(datagram, node);
            }
        }
    }
}

/// Passes bytes on until one of the two ends, and counts them.
fn pump(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length) = from.read(&mut buffer) {
        let piece = buffer.get(..length).unwrap_or_default();
        if piece.is_empty() || to.write_all(piece).is_err() {
            break;
        }
        count.fetch_add(length as u64, Ordering::SeqCst);
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
