//! What tests of links need besides nodes: a proxy that can stop reading, a peer made by hand,
//! and the log.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say so at once, and may read the clock"
)]

pub mod pauses;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use distkv::model::ids::{Incarnation, NodeName, NodeTable};
use distkv::model::path::Path;
use distkv::model::value::Value;
use distkv::protocol::frame::{BODY_BYTES_MAX, split_frame};
use distkv::protocol::peer::greeting::{Greeting, Hello, LIMITS, VERSION, VERSION_OLDEST};
use distkv::protocol::peer::{PeerMessage, RefuseReason};
use distkv::testing::loopback;

/// How long a node may take to end. It promises 3 s; the rest is for a busy machine.
pub const GOODBYE: Duration = Duration::from_secs(10);

pub fn path(text: &str) -> Path {
    text.parse().unwrap()
}

pub fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

pub fn number(n: u8) -> Value {
    Value::new(&[0xcc, n]).unwrap()
}

/// A byte string of that many bytes.
pub fn big_value(bytes: usize) -> Value {
    let mut msgpack = vec![0xc6];
    msgpack.extend_from_slice(&(bytes as u32).to_be_bytes());
    msgpack.resize(5 + bytes, 7);
    Value::new(&msgpack).unwrap()
}

/// Carries connections to a target, and can stop reading what either side sends.
pub struct Proxy {
    pub addr: SocketAddr,
    paused: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// The target may be set later, when it is known.
    pub fn start(target: Arc<OnceLock<SocketAddr>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let paused = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (pausing, all) = (Arc::clone(&paused), Arc::clone(&connections));
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Some(far) = target.get().and_then(|t| TcpStream::connect(t).ok()) else {
                    continue;
                };
                let clone = |stream: &TcpStream| stream.try_clone().unwrap();
                all.lock().unwrap().extend([clone(&near), clone(&far)]);
                carry(clone(&near), clone(&far), Arc::clone(&pausing));
                carry(far, near, Arc::clone(&pausing));
            }
        });
        Self { addr, paused, connections }
    }

    /// From now on nothing is read, or again.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, paused: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        loop {
            while paused.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            match from.read(&mut buffer) {
                Ok(count) if count > 0 && to.write_all(&buffer[..count]).is_ok() => {}
                _ => break,
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

/// A greeting as a node of the default network would send it.
pub fn hello(own: &str, incarnation: u64) -> Hello {
    Hello {
        versions: (VERSION_OLDEST, VERSION),
        features: 0,
        network: loopback(name(own), Vec::new()).network,
        name: name(own),
        incarnation: Incarnation(incarnation),
        gossip: "127.0.0.1:1".into(),
        client: "127.0.0.1:2".into(),
        ready: true,
        serving_ms: 0,
        may_begin: None,
        limits: LIMITS.to_vec(),
        software: "by hand".into(),
        peers: Vec::new(),
    }
}

/// A peer made by hand.
pub struct RawPeer {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl RawPeer {
    pub fn connect(to: SocketAddr) -> Self {
        // Small, so that it does not take megabytes until a peer that never reads is one.
        let socket =
            socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        socket.connect(&to.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// Connects and greets; panics when the node refuses.
    pub fn greet(to: SocketAddr, own: &Hello) -> Self {
        let mut peer = Self::connect(to);
        match peer.exchange(own) {
            Greeting::Hello(_) => peer,
            Greeting::Refusal(refusal) => panic!("refused: {refusal}"),
        }
    }

    /// Sends a greeting and reads the answer.
    pub fn exchange(&mut self, own: &Hello) -> Greeting {
        let mut bytes = Vec::new();
        own.encode(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
        loop {
            if let Some(frame) = split_frame(&self.buffer, BODY_BYTES_MAX).unwrap() {
                let greeting = Greeting::decode(&frame).unwrap();
                let length = frame.length;
                self.buffer.drain(..length);
                return greeting;
            }
            assert!(self.read().unwrap() > 0, "closed without an answer");
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        let mut piece = [0; 16 << 10];
        let count = self.stream.read(&mut piece)?;
        self.buffer.extend_from_slice(&piece[..count]);
        Ok(count)
    }

    pub fn send(&mut self, message: &PeerMessage<'_>) {
        let mut bytes = Vec::new();
        message.encode(&NodeTable::new(), &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Reads what is there, and tells whether a catch-up was refused for this reason.
    pub fn heard_refusal(&mut self, wanted: RefuseReason) -> bool {
        while self.read().is_ok_and(|count| count > 0) {}
        let (mut at, mut heard) = (0, false);
        while let Some(frame) = split_frame(&self.buffer[at..], BODY_BYTES_MAX).unwrap() {
            let message = PeerMessage::decode(&frame).unwrap();
            heard |= matches!(
                message,
                Some(PeerMessage::CatchUpRefused { reason, .. }) if reason == wanted
            );
            at += frame.length;
        }
        self.buffer.drain(..at);
        heard
    }

    /// Reads until the node closes the connection; panics if it does not.
    pub fn wait_for_end(&mut self) {
        loop {
            match self.read() {
                Ok(0) => return,
                Ok(_) => self.buffer.clear(),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
                Err(error) => panic!("not closed: {error}"),
            }
        }
    }
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the log from here on; all tests of one process share it.
pub fn log() -> Log {
    static LOG: OnceLock<Sink> = OnceLock::new();
    let sink = LOG.get_or_init(|| {
        let sink = Sink::default();
        let writer = sink.clone();
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || writer.clone())
            .init();
        sink
    });
    Log(sink.clone())
}

/// What was logged in this process.
pub struct Log(Sink);

impl Log {
    /// The lines in which all of these words stand.
    pub fn lines(&self, words: &[&str]) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.0.lock().unwrap()).into_owned();
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        text.lines().filter(has_all).map(str::to_owned).collect()
    }
}
