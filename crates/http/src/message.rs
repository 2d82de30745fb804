//! Requests and replies as the rest of the node sees them, and bodies as `hyper` wants them: an answer is whole,
//! or comes in parts for as long as its client takes them.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use distkv_crowd::shares::Holder;
use futures::stream::{BoxStream, Stream, StreamExt as _};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::json;

use crate::conversions::Conversions;
use crate::rt::{self, Alarm};
use crate::slots::Busy;
use crate::turns::{Turn, Turns};

/// Longest body of a request, bytes.
pub(crate) const HTTP_BODY_BYTES_MAX: usize = 8 << 20;
/// A body of at most so many bytes is read at once; longer ones take turns.
const SMALL_BODY_BYTES: usize = 64 << 10;
/// Most long bodies that are read at once; others wait. One user, or one host where clients need not log in, may have no
/// more than are left for all others.
pub(crate) const HTTP_LONG_BODIES_MAX: usize = 8;
/// What they are called where there are too many.
const LONG_BODIES: &str = "bodies above 64 KiB by HTTP that are being sent";
/// How long a body may take, with the wait for its turn.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a body is read that nobody wanted: a small one before the answer, and any other one behind it.
const UNWANTED_TIMEOUT: Duration = Duration::from_secs(2);
/// A charged answer goes out in parts of so many bytes.
const PART_BYTES: usize = 64 << 10;
/// An event stream that has nothing to tell says so this often, which shows whether its client is still there.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// JSON.
pub const JSON: &str = "application/json";
/// Lines of JSON.
pub const JSON_LINES: &str = "application/x-ndjson";
/// Whether a proxy may keep parts of an answer back.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Events.
const EVENT_STREAM: &str = "text/event-stream";

/// A request that has passed the gate.
pub struct Request {
    /// GET, HEAD, PUT or DELETE.
    pub method: Method,
    /// Everything before `?`, as it was sent.
    pub path: String,
    /// Everything behind `?`, as it was sent.
    pub query: Option<String>,
    /// The header fields.
    pub headers: HeaderMap,
    /// Who asks.
    pub peer: SocketAddr,
    /// The address of this machine that the connection came in at.
    pub(crate) came_in_at: IpAddr,
    /// The port of this machine that the connection came in at.
    pub port: u16,
    /// Whether it came by TLS.
    pub is_encrypted: bool,
    /// Whether its client can tell the end of an answer in parts from a cut: by HTTP/1.0, it cannot.
    pub(crate) takes_parts: bool,
    /// What the request brings.
    pub upload: Upload,
    /// The turns of long conversions.
    pub conversions: Conversions,
}

impl Request {
    /// Whether nobody between its client and this node could read it: then it may bring a secret.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.is_encrypted || self.came_in_at.is_loopback()
    }
}

/// The body of a request, not read yet: who may not write is refused before.
pub struct Upload {
    unread: Unread,
    long_bodies: Arc<Turns>,
    patience: Duration,
}

/// What nobody has read yet of a request's body.
#[derive(Clone)]
pub(crate) struct Unread(Arc<Mutex<Option<Incoming>>>);

impl Unread {
    pub(crate) fn of(incoming: Incoming) -> Self {
        let incoming = Some(incoming).filter(|incoming| !incoming.is_end_stream());
        Self(Arc::new(Mutex::new(incoming)))
    }

    /// Lets go of it when the request is answered. True if it was read to its end, or is small enough and comes soon enough
    /// for that. Otherwise the connection cannot go on, which its client must be told: it would send the next request into it.
    /// What it is still sending is read for a moment and thrown away. Closing with unread bytes would reset the connection,
    /// maybe before its client has read the answer (RFC 9112, section 9.6).
    /// Meanwhile it is still busy.
    pub(crate) async fn pass_over(self, busy: Arc<Busy>) -> bool {
        let Some(mut incoming) = self.0.lock().take() else { return true };
        if length(&incoming) <= SMALL_BODY_BYTES as u64 {
            return drain(&mut incoming).await;
        }
        // It ends with its time, or with the connection.
        let _detached = rt::spawn(async move {
            drain(&mut incoming).await;
            drop(busy);
        });
        false
    }
}

/// Reads what nobody wants, for a moment. Whether all of it came.
async fn drain(incoming: &mut Incoming) -> bool {
    let draining = async {
        while let Some(frame) = incoming.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    rt::timeout(UNWANTED_TIMEOUT, draining).await.unwrap_or(false)
}

/// As announced; the greatest there is for one that is not.
fn length(incoming: &Incoming) -> u64 {
    incoming.size_hint().upper().unwrap_or(u64::MAX)
}

impl Upload {
    /// Nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::of(Unread(Arc::default()), Turns::new(0), BODY_TIMEOUT)
    }

    pub(crate) fn of(unread: Unread, long_bodies: Arc<Turns>, patience: Duration) -> Self {
        Self { unread, long_bodies, patience }
    }

    /// All of it. A long one takes from the share of `holder`.
    ///
    /// # Errors
    /// The reply that says why not: it is too long, or too slow, or was cut, or its turn has not come.
    pub async fn read(self, holder: &Holder) -> Result<Bytes, Reply> {
        let expected = self.unread.0.lock().as_ref().map_or(0, length);
        if expected > HTTP_BODY_BYTES_MAX as u64 {
            let text = format!("a body has at most {HTTP_BODY_BYTES_MAX} bytes");
            return Err(Reply::error(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &text));
        }
        let Some(incoming) = self.unread.0.lock().take() else { return Ok(Bytes::new()) };
        let mut waits_for = None;
        let reading = async {
            let _turn = match expected > SMALL_BODY_BYTES as u64 {
                true => Some(Turns::wait(&self.long_bodies, holder, &mut waits_for).await),
                false => None,
            };
            collect(incoming).await
        };
        let read = rt::timeout(self.patience, reading).await;
        read.unwrap_or_else(|| {
            let reply = match waits_for {
                Some(why) => {
                    let status = StatusCode::TOO_MANY_REQUESTS;
                    Reply::error(status, "too_many", &why.text(LONG_BODIES))
                }
                None => {
                    let text = "the body came too slowly";
                    Reply::error(StatusCode::REQUEST_TIMEOUT, "too_slow", text)
                }
            };
            Err(reply.with(CONNECTION, HeaderValue::from_static("close")))
        })
    }
}

async fn collect(mut incoming: Incoming) -> Result<Bytes, Reply> {
    let cut = |_| Reply::error(StatusCode::BAD_REQUEST, "bad_request", "the body was cut");
    let mut whole = BytesMut::new();
    while let Some(frame) = incoming.frame().await {
        let Ok(part) = frame.map_err(cut)?.into_data() else { continue };
        // Its length was announced and looked at; this does not rely on it.
        if whole.len() + part.len() > HTTP_BODY_BYTES_MAX {
            return Err(Reply::error(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "too long"));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// An answer.
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Header fields: in place of the ones that every answer has, or besides them.
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    /// What it has to say.
    pub content: Content,
}

/// What an answer has to say.
pub enum Content {
    /// All of it.
    Whole(Bytes),
    /// All of it, which the clients' memory is charged with as long as the charge is kept.
    Charged(Bytes, Box<dyn Charge>),
    /// Parts, made as the client takes them, that have so many bytes in all. Whoever makes them sees to it that their number and
    /// memory are bounded. An error cuts the connection.
    Made(BoxStream<'static, io::Result<Bytes>>, u64),
    /// Parts, made as the client takes them. An error cuts the connection, so that nobody takes a part for all.
    /// Bounded in number, and in how many of them this holder may have: see [`crate::HTTP_STREAMS_MAX`].
    Parts(BoxStream<'static, io::Result<Bytes>>, Holder),
}

/// See [`Content::Charged`].
pub trait Charge: Send {
    /// Whether the answer is to be cut: its memory is needed more, or whoever asked may do nothing any more.
    /// It is asked before each part, and never again once it has said so.
    fn is_over(&mut self) -> bool;
}

impl Reply {
    /// A whole answer.
    #[must_use]
    pub fn new(status: StatusCode, kind: &'static str, content: impl Into<Bytes>) -> Self {
        let fields = vec![(CONTENT_TYPE, HeaderValue::from_static(kind))];
        Self { status, fields, content: Content::Whole(content.into()) }
    }

    /// An answer in parts, which takes from the share of `holder`.
    #[must_use]
    pub fn parts(
        kind: &'static str,
        parts: BoxStream<'static, io::Result<Bytes>>,
        holder: Holder,
    ) -> Self {
        let fields = vec![(CONTENT_TYPE, HeaderValue::from_static(kind))];
        Self { status: StatusCode::OK, fields, content: Content::Parts(parts, holder) }
    }

    /// A stream of events, which takes from the share of `holder`. When nothing happens, it says so now and then.
    #[must_use]
    pub fn events(events: BoxStream<'static, Event>, holder: Holder) -> Self {
        Self::event_parts(events.map(EventPart::from).boxed(), holder)
    }

    /// The same, of events that come in parts.
    #[must_use]
    pub fn event_parts(parts: BoxStream<'static, EventPart>, holder: Holder) -> Self {
        let alarm = Box::pin(Alarm::after(HEARTBEAT));
        let parts = EventBytes { parts, is_between: true, alarm };
        // A proxy like nginx would collect events before it passes them on.
        Self::parts(EVENT_STREAM, Box::pin(parts), holder)
            .with(ACCEL_BUFFERING, HeaderValue::from_static("no"))
    }

    /// An error: a word for programs and a text for people.
    #[must_use]
    pub fn error(status: StatusCode, code: &str, text: &str) -> Self {
        Self::new(status, JSON, format!("{}\n", json!({"code": code, "error": text})))
    }

    /// With another header field.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.fields.push((name, value));
        self
    }
}

/// One event of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// What kind it is: a word.
    pub name: &'static str,
    /// A JSON text.
    pub data: String,
}

impl Event {
    /// As it is sent. Each line of the data has a field of its own, because a line ends a field.
    fn to_bytes(&self) -> Bytes {
        let mut text = format!("event: {}\n", self.name);
        for line in self.data.split(['\n', '\r']) {
            text.push_str("data: ");
            text.push_str(line);
            text.push('\n');
        }
        text.push('\n');
        Bytes::from(text)
    }
}

/// A part of an event, as it is sent: `event: NAME`, `data: JSON`, and an empty line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventPart {
    /// What is sent.
    pub bytes: Bytes,
    /// Whether the event ends with it.
    pub is_end: bool,
}

impl From<Event> for EventPart {
    fn from(event: Event) -> Self {
        Self { bytes: event.to_bytes(), is_end: true }
    }
}

struct EventBytes {
    parts: BoxStream<'static, EventPart>,
    /// Whether an event has ended and no other one has begun.
    is_between: bool,
    alarm: Pin<Box<Alarm>>,
}

impl Stream for EventBytes {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let bytes = match self.parts.as_mut().poll_next(cx) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(part)) => {
                self.is_between = part.is_end;
                part.bytes
            }
            // In the midst of an event nothing else may be said.
            Poll::Pending if !self.is_between => return Poll::Pending,
            Poll::Pending => {
                ready!(self.alarm.as_mut().poll(cx));
                Bytes::from_static(b":\n\n")
            }
        };
        self.alarm = Box::pin(Alarm::after(HEARTBEAT));
        Poll::Ready(Some(Ok(bytes)))
    }
}

/// An answer's content on its way out. Until it is out, the connection is busy; what comes in parts keeps one of the places
/// for such answers.
pub(crate) struct Outgoing {
    content: Content,
    _held: (Arc<Busy>, Option<Turn>),
}

impl Outgoing {
    pub(crate) fn new(content: Content, busy: Arc<Busy>, place: Option<Turn>) -> Self {
        Self { content, _held: (busy, place) }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Charged(bytes, _) if bytes.is_empty() => Poll::Ready(None),
            Content::Charged(bytes, charge) => {
                if charge.is_over() {
                    return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
                }
                let part = bytes.split_to(bytes.len().min(PART_BYTES));
                Poll::Ready(Some(Ok(Frame::data(part))))
            }
            Content::Parts(parts, _) | Content::Made(parts, _) => {
                parts.as_mut().poll_next(cx).map(|part| part.map(|part| part.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) | Content::Charged(bytes, _) => bytes.is_empty(),
            Content::Made(_, length) => *length == 0,
            Content::Parts(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) | Content::Charged(bytes, _) => {
                SizeHint::with_exact(bytes.len() as u64)
            }
            Content::Made(_, length) => SizeHint::with_exact(*length),
            Content::Parts(..) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[test]
    fn a_heartbeat_stands_between_events_and_in_none() {
        let part = |text: &'static str, is_end| {
            stream::iter([EventPart { bytes: Bytes::from_static(text.as_bytes()), is_end }])
        };
        let said = |is_end| {
            let parts = part("event: a", is_end).chain(stream::pending()).boxed();
            let alarm = Box::pin(Alarm::after(HEARTBEAT));
            let mut events = EventBytes { parts, is_between: true, alarm };
            let first = rt::block_on(events.next()).unwrap().unwrap();
            assert_eq!(first, "event: a");
            // Nothing else has come for long.
            events.alarm = Box::pin(Alarm::after(Duration::ZERO));
            rt::block_on(futures::future::poll_immediate(events.next())).flatten()
        };
        assert_eq!(said(true).unwrap().unwrap(), ":\n\n");
        assert!(said(false).is_none());
    }

    #[test]
    fn an_event_cannot_forge_another_one() {
        let event = Event { name: "entry", data: String::from("a\n\nevent: b\r\ndata: c") };
        let text = String::from_utf8(event.to_bytes().to_vec()).unwrap();
        assert_eq!(
            text,
            "event: entry\ndata: a\ndata: \ndata: event: b\ndata: \ndata: data: c\n\n"
        );
    }
}
