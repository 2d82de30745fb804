//! One link: the connection to one peer after the greetings, and what its tasks share.

use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::connect::admission::Party;
use super::liveness::Signs;
use super::transport::Channel;
use crate::engine::LinkId;
use crate::hub::link_queue::LinkQueue;
use crate::model::ids::{Millis, NodeName};
use crate::node::monitoring::observed::LinkTraffic;
use crate::protocol::peer::greeting::Hello;
use crate::rt::TcpStream;
use crate::secure::key::KeyId;

/// A link on which nothing was heard, or nothing could be written, for this long is closed. Full
/// digests come every 5 s.
pub(super) const SILENCE_MS: Millis = 15_000;
/// The same where SWIM says that the peer is down: more than one full digest is overdue.
pub(super) const SILENCE_WHEN_DOWN_MS: Millis = 6_000;
/// The one with the greater name doubts a link this much later, so that usually one side dials.
const DOUBT_COURTESY_MS: Millis = 100;

/// Why a link ended, for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LinkEnd {
    /// The peer closed the connection without a farewell.
    Gone,
    /// The connection broke.
    Broken(String),
    /// The peer said farewell, or this node does.
    Left,
    /// Another connection to the same peer took its place.
    Replaced,
    /// The peer sent what no peer sends.
    Malformed(String),
    /// The peer names more incarnations than a node remembers.
    TableFull,
    /// Nothing was heard of the peer for too long.
    Silent,
    /// The peer did not read for too long.
    Stuck,
    /// This node has a new incarnation, which the peer must know before anything else.
    Renewed,
    /// Neither side wants it: others do its work.
    Unneeded,
    /// This node holds paths that the peer's version of the protocol cannot read.
    TooOld,
    /// The key that it is sealed with was removed: the next one is sealed with another.
    KeyRemoved,
}

impl std::fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone => f.write_str("the peer closed the connection"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::Left => f.write_str("a farewell"),
            Self::Replaced => f.write_str("a newer connection took its place"),
            Self::Malformed(why) => write!(f, "the peer sent what no peer sends: {why}"),
            Self::TableFull => f.write_str("the peer names more incarnations than are remembered"),
            Self::Silent => f.write_str("nothing was heard of the peer for too long"),
            Self::Stuck => f.write_str("the peer did not take what was sent for too long"),
            Self::Renewed => f.write_str("this node has a new incarnation"),
            Self::Unneeded => f.write_str("it is not needed any more"),
            Self::KeyRemoved => f.write_str("the key that sealed it was removed"),
            Self::TooOld => f.write_str(
                "this node holds paths with arrays as elements, which the peer's version cannot \
                 read; upgrade the peer",
            ),
        }
    }
}

impl LinkEnd {
    /// The reason's word in metrics.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Broken(_) => "broken",
            Self::Left => "left",
            Self::Replaced => "replaced",
            Self::Malformed(_) => "malformed",
            Self::TableFull => "table_full",
            Self::Silent => "silent",
            Self::Stuck => "stuck",
            Self::Renewed => "renewed",
            Self::Unneeded => "unneeded",
            Self::KeyRemoved => "key_removed",
            Self::TooOld => "too_old",
        }
    }

    /// Whether an operator should look at the peer.
    pub(super) fn is_alarming(&self) -> bool {
        match self {
            Self::Malformed(_) | Self::TableFull | Self::Silent | Self::Stuck | Self::TooOld => {
                true
            }
            Self::Gone
            | Self::Broken(_)
            | Self::Left
            | Self::Replaced
            | Self::Renewed
            | Self::KeyRemoved
            | Self::Unneeded => false,
        }
    }
}

/// The limit for a peer that asked for a catch-up and then does not read it: it keeps others
/// waiting for theirs, and the asking side has given up by then.
pub(super) const SERVE_STALL_MS: Millis = 5_000;
/// That a peer does not keep up is logged this often.
const LAG_LOG_INTERVAL_MS: Millis = 10_000;

/// What the tasks of a link share.
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) queue: Arc<LinkQueue>,
    pub(super) peer: Hello,
    pub(super) remote: SocketAddr,
    /// Whether this node dialled.
    pub(super) dialled: bool,
    pub(super) since: Millis,
    pub(super) stream: TcpStream,
    /// Of all links together.
    pub(super) traffic: Arc<LinkTraffic>,
    /// The key that its handshake proved; none of an open link.
    pub(super) key: Option<KeyId>,
    /// When something last came.
    heard: AtomicU64,
    signs: Mutex<Signs>,
    /// Since when a write makes no progress; 0 while none is under way.
    writing_since: AtomicU64,
    /// Whether a catch-up is being answered.
    serving: AtomicBool,
    lag_logged: AtomicU64,
    end: Mutex<Option<LinkEnd>>,
    /// The engine was told that it is up, and that it is down.
    told_up: AtomicBool,
    told_down: AtomicBool,
}

impl Link {
    pub(super) fn new(
        (id, queue): (LinkId, Arc<LinkQueue>),
        channel: &Channel,
        peer: Hello,
        (remote, dialled): (SocketAddr, bool),
        traffic: &Arc<LinkTraffic>,
        now: Millis,
    ) -> Self {
        Self {
            id,
            queue,
            peer,
            remote,
            dialled,
            since: now,
            stream: channel.stream.clone(),
            traffic: Arc::clone(traffic),
            key: channel.key(),
            heard: AtomicU64::new(now),
            signs: Mutex::new(Signs::new()),
            writing_since: AtomicU64::new(0),
            serving: AtomicBool::new(false),
            lag_logged: AtomicU64::new(0),
            end: Mutex::new(None),
            told_up: AtomicBool::new(false),
            told_down: AtomicBool::new(false),
        }
    }

    /// As [`super::connect::admission`] sees it.
    pub(super) fn party(&self) -> Party<'_> {
        Party {
            incarnation: self.peer.incarnation,
            gossip: &self.peer.gossip,
            dialled: self.dialled,
        }
    }

    /// This node's end of the connection.
    pub(super) fn local_ip(&self) -> Option<IpAddr> {
        self.stream.local_addr().ok().map(|addr| addr.ip().to_canonical())
    }

    /// Ends it; both tasks find out. The first reason counts.
    pub(super) fn close(&self, end: LinkEnd) {
        self.end.lock().get_or_insert(end);
        let _ = self.stream.shutdown(Shutdown::Both);
        self.queue.changed.notify(usize::MAX);
    }

    /// Why it ended, if it did.
    pub(super) fn end(&self) -> Option<LinkEnd> {
        self.end.lock().clone()
    }

    pub(super) fn note_heard(&self, now: Millis) {
        self.heard.store(now, Ordering::Relaxed);
    }

    /// Frames are being written, which should arrive.
    pub(super) fn note_frames(&self, now: Millis) {
        self.signs.lock().on_frames(now);
    }

    /// Many bytes pass: a big read, or a write that had to wait for others and was then taken.
    pub(super) fn note_flow(&self, now: Millis) {
        self.signs.lock().on_flow(now);
    }

    /// The peer has given a sign of life.
    pub(super) fn on_sign(&self) {
        if self.signs.lock().on_sign() {
            self.queue.changed.notify(usize::MAX);
        }
    }

    /// Asks for a sign of life if it is time. To be called a few times per second.
    pub(super) fn ask_for_sign(&self, now: Millis) {
        if self.signs.lock().ask(now) {
            self.queue.changed.notify(usize::MAX);
        }
    }

    /// Whether a sign of life must be given now.
    pub(super) fn take_sign_wanted(&self) -> bool {
        self.signs.lock().take_wanted()
    }

    /// Whether it is in doubt, as the node named `own` sees it: see [`super::liveness`].
    pub(super) fn is_doubtful(&self, own: &NodeName, now: Millis) -> bool {
        let courtesy = if *own > self.peer.name { DOUBT_COURTESY_MS } else { 0 };
        self.signs.lock().is_doubtful(courtesy, now)
    }

    /// A write begins, or made progress.
    pub(super) fn note_writing(&self, now: Millis) {
        self.writing_since.store(now.max(1), Ordering::Relaxed);
    }

    /// Nothing is being written any more.
    pub(super) fn note_written(&self) {
        self.writing_since.store(0, Ordering::Relaxed);
    }

    /// A catch-up is being answered, or not any more.
    pub(super) fn note_serving(&self, serving: bool) {
        self.serving.store(serving, Ordering::Relaxed);
    }

    /// Whether it should be logged that the peer does not keep up.
    pub(super) fn is_lag_news(&self, now: Millis) -> bool {
        let last = self.lag_logged.swap(now.max(1), Ordering::Relaxed);
        last == 0 || now.saturating_sub(last) >= LAG_LOG_INTERVAL_MS
    }

    /// Whether it makes no progress any more.
    pub(super) fn decide_stall(&self, peer_is_down: bool, now: Millis) -> Option<LinkEnd> {
        let allowed = if peer_is_down { SILENCE_WHEN_DOWN_MS } else { SILENCE_MS };
        let writing_since = self.writing_since.load(Ordering::Relaxed);
        let serving = self.serving.load(Ordering::Relaxed);
        let stall = if serving { SERVE_STALL_MS } else { SILENCE_MS };
        if writing_since > 0 && now.saturating_sub(writing_since) >= stall {
            return Some(LinkEnd::Stuck);
        }
        let heard = self.heard.load(Ordering::Relaxed);
        (now.saturating_sub(heard) >= allowed).then_some(LinkEnd::Silent)
    }

    /// Whether the engine must be told that it is up: once, and not after it is down.
    pub(super) fn tell_up(&self) -> bool {
        !self.told_down.load(Ordering::Acquire) && !self.told_up.swap(true, Ordering::AcqRel)
    }

    /// Whether the engine must be told that it is down: once.
    pub(super) fn tell_down(&self) -> bool {
        !self.told_down.swap(true, Ordering::AcqRel)
    }
}
