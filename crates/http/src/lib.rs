//! The HTTP port of a node: metrics and health, for programs that watch over it, a page, and the way to what the rest
//! of the node answers at `/v1/` ([`Source::api`]).
//!
//! | module | what |
//! |---|---|
//! | this one | the port: opening, accepting, closing |
//! | `gate` | which requests are refused whatever they ask for |
//! | `answers` | what each path answers |
//! | `conversions` | turns of long conversions between JSON and values |
//! | `message` | requests and replies as the rest of the node sees them; bodies, events |
//! | `page` | the page's files |
//! | `secured` | TLS: which connections need it, the handshake |
//! | `slots` | how many connections there may be, and which goes when there are too many |
//! | `turns` | how many streams, long bodies and long conversions each user, or each host, may have |
//! | `targets` | targets with a raw `#`, which the parser would drop without a word |
//! | `wires` | a connection and timers as `hyper` wants them |
//!
//! `hyper` parses heads and frames messages. What it leaves to others is done here: bounds, times, and
//! requests that two programs could take for two different ones.

use distkv_runtime as rt;

mod answers;
mod conversions;
mod gate;
mod message;
mod page;
mod secured;
mod slots;
mod targets;
mod turns;
mod wires;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_lock::Semaphore;
use distkv_metrics::Numbers;
use futures::future::{AbortHandle, Abortable, BoxFuture, FutureExt as _};
use hyper::Version;
pub use hyper::header;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
pub use hyper::{Method, StatusCode};
use parking_lot::Mutex;

use crate::rt::{Task, TcpListener, TcpStream};
use answers::{Answers, Counts};
pub use conversions::{Conversions, others_first};
use gate::Hosts;
use message::{BODY_TIMEOUT, HTTP_LONG_BODIES_MAX, Unread};
pub use message::{Charge, Content, Event, EventPart, JSON, JSON_LINES, Reply, Request, Upload};
pub use secured::Tls;
use secured::{Begun, NoTalk};
use slots::{Slot, Slots};
pub use turns::Turn;
use turns::Turns;
use wires::{Timers, Wire};

/// Most HTTP connections at once. They never take a client's place. When one more comes, one of the address with most is
/// closed: the one that has waited longest without a request; if more are at work than wait, the one whose request has taken
/// longest, but for answers in parts. One more of that address itself is closed if those that are there have come just now.
pub const HTTP_CONNECTIONS_MAX: usize = 64;
/// Most answers in parts at once, of these connections: event streams, and whole trees. One user, or one host where clients
/// need not log in, may have no more than are left for all others.
const HTTP_STREAMS_MAX: usize = 32;
/// Longest head of a request, bytes, with its first line.
const HTTP_HEAD_BYTES_MAX: usize = 16 << 10;
/// Most header fields of a request.
const HTTP_HEADERS_MAX: usize = 64;
/// How long a head may take, and how long a connection may stand without one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take nothing of an answer. Its machine tells only when a large part of its receive buffer is free
/// again (of what Linux gives, 128 to 190 KiB at once), and nothing else shows that it reads: one that reads 4 KiB a second
/// seems to take nothing for up to 48 s.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client's machine may confirm nothing of what was sent; as long, for the same reason.
const UNHEARD_TIMEOUT: Duration = WRITE_TIMEOUT;
/// From how many bytes on that the system has not sent yet it takes no more, until half of them are sent. Else it would take
/// some MiB, and no more before a third of them is gone, which takes a slow reader longer than [`WRITE_TIMEOUT`].
const UNSENT_BYTES_MAX: u32 = 64 << 10;
/// How long to wait after the system could not give another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// How many scrapes are put together at once; others wait.
const SCRAPES_AT_ONCE: usize = 1;

/// What there is to tell. Implemented by the node.
pub trait Source: Send + Sync + 'static {
    /// All metrics of this moment. May take some milliseconds; called where that is allowed.
    fn numbers(&self) -> Numbers;

    /// Whether the process works, whatever its peers, its disk and its data are: a node that does not should
    /// be started again. Quick.
    fn live(&self) -> Vec<Check>;

    /// Whether it serves clients. Quick.
    fn ready(&self) -> Vec<Check>;

    /// Whether clients can change data, as far as [`Source::ready`] does not say. Quick.
    fn writable(&self) -> Vec<Check>;

    /// Answers a request for what is at `/v1` and below. Dropped if its client goes.
    fn api(&self, _request: Request) -> BoxFuture<'static, Reply> {
        let text = "there is nothing below /v1/";
        std::future::ready(Reply::error(StatusCode::NOT_FOUND, "not_found", text)).boxed()
    }
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// What.
    pub what: &'static str,
    /// What is wrong with it, if something is: one line for people.
    pub fault: Option<String>,
    /// What is to be said instead of "ok" where it passes.
    pub note: Option<String>,
}

impl Check {
    /// A check that passes unless there is a fault.
    #[must_use]
    pub fn new(what: &'static str, fault: Option<String>) -> Self {
        Self { what, fault, note: None }
    }
}

/// How patient the port is, and how many connections it takes. The defaults are for all but tests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most connections at once; at least 1.
    connections: usize,
    /// Most of them that get an answer in parts.
    streams: usize,
    /// How long a head may take, and before it a TLS handshake.
    head: Duration,
    /// How long a body may take, with the wait for its turn.
    body: Duration,
    /// How long a client may take nothing of an answer.
    write: Duration,
}

impl Limits {
    /// For no more than so many connections, where descriptors are scarce. Half of them may be streams, so that these keep
    /// nobody out.
    #[must_use]
    pub fn at_most(connections: usize) -> Self {
        let connections = connections.clamp(1, HTTP_CONNECTIONS_MAX);
        let streams = (connections / 2).clamp(1, HTTP_STREAMS_MAX);
        Self { connections, streams, ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: HTTP_CONNECTIONS_MAX,
            streams: HTTP_STREAMS_MAX,
            head: HEAD_TIMEOUT,
            body: BODY_TIMEOUT,
            write: WRITE_TIMEOUT,
        }
    }
}

/// An HTTP port that is open. Dropping it closes it.
pub struct HttpPort {
    address: SocketAddr,
    slots: Arc<Slots>,
    accepting: Mutex<Option<Task<()>>>,
}

impl HttpPort {
    /// Answers requests at a port that was opened before; `address` is its. `names`: hosts that requests may
    /// name, besides `localhost` and the address that they came in at. `tls`: how TLS is used; none: all is plain text.
    #[must_use]
    pub fn serve(
        listener: TcpListener,
        address: SocketAddr,
        names: Vec<String>,
        tls: Option<Tls>,
        source: Arc<dyn Source>,
        limits: Limits,
    ) -> Self {
        let slots = Arc::new(Slots::new(limits.connections));
        let port = Arc::new(Port {
            hosts: Hosts::new(names),
            tls,
            answers: Answers {
                source,
                scrapes: Semaphore::new(SCRAPES_AT_ONCE),
                streams: Turns::new(limits.streams),
                counts: Counts::default(),
                slots: Arc::clone(&slots),
            },
            long_bodies: Turns::new(HTTP_LONG_BODIES_MAX),
            conversions: Conversions::default(),
            limits,
        });
        let accepting = rt::spawn(accept(listener, port, Arc::clone(&slots)));
        Self { address, slots, accepting: Mutex::new(Some(accepting)) }
    }

    /// Where it listens, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections are open.
    #[cfg(test)]
    #[must_use]
    fn connections(&self) -> usize {
        self.slots.len()
    }

    /// Closes the port and all connections. When this returns, the port is free.
    pub async fn close(&self) {
        let accepting = self.accepting.lock().take();
        if let Some(accepting) = accepting {
            accepting.cancel().await;
        }
        self.slots.close_all();
    }
}

impl Drop for HttpPort {
    fn drop(&mut self) {
        let accepting = self.accepting.lock().take();
        let slots = Arc::clone(&self.slots);
        drop(rt::spawn(async move {
            if let Some(accepting) = accepting {
                accepting.cancel().await;
            }
            slots.close_all();
        }));
    }
}

/// What all connections share.
struct Port {
    hosts: Hosts,
    tls: Option<Tls>,
    answers: Answers,
    long_bodies: Arc<Turns>,
    conversions: Conversions,
    limits: Limits,
}

/// Takes connections until it is cancelled.
async fn accept(listener: TcpListener, port: Arc<Port>, slots: Arc<Slots>) {
    loop {
        // Those that were closed to make room must have ended: else a flood would outrun their ends.
        slots.room().await;
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (task, registration) = AbortHandle::new_pair();
                // None: those that are there have no less right to be, so this one is closed.
                if let Some(slot) = slots.enter(&stream, comes_from(&stream, peer), task) {
                    let serving = serve(stream, slot, Arc::clone(&port));
                    let _detached = rt::spawn(Abortable::new(serving, registration));
                }
            }
            Err(error) => {
                tracing::debug!("the system has no room for an HTTP connection: {error}");
                rt::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whose connection it is: this machine has other addresses besides those of the loopback.
fn comes_from(stream: &TcpStream, peer: SocketAddr) -> IpAddr {
    let is_own = stream.local_addr().is_ok_and(|local| local.ip() == peer.ip());
    if is_own { Ipv4Addr::LOCALHOST.into() } else { peer.ip() }
}

/// A client that has gone without a word must not keep its place: what a stream says now and then only fills the system's
/// buffers. And one that reads slowly must be seen to read.
fn prepare(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    {
        let socket = socket2::SockRef::from(stream);
        // Should the system refuse, it tries for longer, or keeps more.
        let _ = socket.set_tcp_user_timeout(Some(UNHEARD_TIMEOUT));
        let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, UNHEARD_TIMEOUT, UNSENT_BYTES_MAX);
}

/// Answers the requests of one connection until it ends.
async fn serve(stream: TcpStream, slot: Slot, port: Arc<Port>) {
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return };
    prepare(&stream);
    let (slot, came_in_at): (_, IpAddr) = (&Arc::new(slot), local.ip().to_canonical());
    let port = &port;
    let begun = match &port.tls {
        None => Begun { channel: None, said: Vec::new() },
        Some(tls) => match secured::begin(&stream, tls, came_in_at, port.limits.head).await {
            Ok(begun) => begun,
            Err(error) => {
                if matches!(error, NoTalk::PlainText) {
                    port.answers.counts.refused();
                }
                tracing::debug!("an HTTP connection has come to nothing: {error}");
                return;
            }
        },
    };
    let is_encrypted = begun.channel.is_some();
    let (heads, targets) = targets::watch();
    let targets = &targets;
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| async move {
        let busy = Arc::new(slot.busy());
        let (head, incoming) = request.into_parts();
        let refusal = match targets.next_is_cut() {
            true => Some(gate::cut_target()),
            false => gate::look(&head, came_in_at, &port.hosts).err(),
        };
        let unread = Unread::of(incoming);
        let upload = match refusal.is_none() && head.method == Method::PUT {
            true => Upload::of(unread.clone(), Arc::clone(&port.long_bodies), port.limits.body),
            false => Upload::none(),
        };
        let request = Request {
            method: head.method,
            path: head.uri.path().to_owned(),
            query: head.uri.query().map(str::to_owned),
            headers: head.headers,
            peer,
            came_in_at,
            port: local.port(),
            is_encrypted,
            takes_parts: head.version != Version::HTTP_10,
            upload,
            conversions: port.conversions.clone(),
        };
        let mut response = port.answers.answer(request, refusal, Arc::clone(&busy)).await;
        if !unread.pass_over(busy).await {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok::<_, Infallible>(response)
    });
    let connection = http1::Builder::new()
        .timer(Timers)
        .header_read_timeout(port.limits.head)
        .max_headers(HTTP_HEADERS_MAX)
        .max_header_size(HTTP_HEAD_BYTES_MAX)
        .max_buf_size(HTTP_HEAD_BYTES_MAX)
        // A page that is closed must free its stream's place at once.
        .half_close(false)
        .serve_connection(Wire::new(stream, begun, port.limits.write, heads), service);
    // Whatever ended it concerns only its client.
    if let Err(error) = connection.await {
        tracing::debug!("an HTTP connection has ended: {error}");
    }
}

#[cfg(test)]
mod tests;
