//! One link: the connection to one peer after the greetings, and what its tasks share.

use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::arrivals::{GAP_LONG_MS, GAP_SHORT_MS, TELL_MS};
use super::connect::admission::Party;
use super::known::ToldOf;
use super::liveness::Signs;
use super::transport::Channel;
use crate::engine::LinkId;
use crate::hub::link_queue::LinkQueue;
use crate::model::ids::{Millis, NodeName};
use crate::node::membership::identity::Told;
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
    /// The peer says that the network's clock is where no network brings it.
    ClockTooFar,
    /// Nothing was heard of the peer for too long.
    Silent,
    /// The peer did not read for too long.
    Stuck,
    /// This node has a new incarnation, which the peer must know before anything else.
    Renewed,
    /// Peers and clients reach this node at another address than it told over this link.
    Moved,
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
            Self::ClockTooFar => f.write_str(
                "the peer says that the network's clock is near its end, where no network comes by its changes; nothing of \
                 that was taken. Who has made it say so has the cluster's key: see docs/security.md, \"A stolen key\"",
            ),
            Self::Silent => f.write_str("nothing was heard of the peer for too long"),
            Self::Stuck => f.write_str("the peer did not take what was sent for too long"),
            Self::Renewed => f.write_str("this node has a new incarnation"),
            Self::Moved => f.write_str("this node is reached at another address now"),
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
            Self::ClockTooFar => "clock_too_far",
            Self::Silent => "silent",
            Self::Stuck => "stuck",
            Self::Renewed => "renewed",
            Self::Moved => "moved",
            Self::Unneeded => "unneeded",
            Self::KeyRemoved => "key_removed",
            Self::TooOld => "too_old",
        }
    }

    /// Whether an operator should look at the peer.
    pub(super) fn is_alarming(&self) -> bool {
        match self {
            Self::Malformed(_)
            | Self::TableFull
            | Self::ClockTooFar
            | Self::Silent
            | Self::Stuck
            | Self::TooOld => true,
            Self::Gone
            | Self::Broken(_)
            | Self::Left
            | Self::Replaced
            | Self::Renewed
            | Self::Moved
            | Self::KeyRemoved
            | Self::Unneeded => false,
        }
    }
}

/// A write that waits for as long is given up, even if the peer says that bytes arrive: at the least rate, what the
/// system holds unsent takes no longer.
const SLOWEST_WRITE_MS: Millis = 256_000;
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
    /// What the peer was told of where this node is.
    pub(super) told: Told,
    /// What membership was told of the peer.
    pub(super) told_swim: Mutex<ToldOf>,
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
    /// So long the link is trusted because of what comes from the peer; 0 unless it should be told.
    to_tell: AtomicU64,
    /// So long the peer says that what was written arrives.
    arrives_until: AtomicU64,
    /// The size of the last write, and when it began.
    write_bytes: AtomicUsize,
    write_began: AtomicU64,
    /// What was written since the engine was told that bytes pass.
    passed: AtomicU64,
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
        (peer, told): (Hello, Told),
        (remote, dialled): (SocketAddr, bool),
        traffic: &Arc<LinkTraffic>,
        now: Millis,
    ) -> Self {
        Self {
            id,
            queue,
            peer,
            told,
            told_swim: Mutex::new(ToldOf::new(now)),
            remote,
            dialled,
            since: now,
            stream: channel.stream.clone(),
            traffic: Arc::clone(traffic),
            key: channel.key(),
            heard: AtomicU64::new(now),
            signs: Mutex::new(Signs::new()),
            to_tell: AtomicU64::new(0),
            arrives_until: AtomicU64::new(0),
            write_bytes: AtomicUsize::new(0),
            write_began: AtomicU64::new(0),
            passed: AtomicU64::new(0),
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

    /// When something last came.
    pub(super) fn heard(&self) -> Millis {
        self.heard.load(Ordering::Relaxed)
    }

    pub(super) fn note_heard(&self, now: Millis) {
        self.heard.store(now, Ordering::Relaxed);
    }

    /// Frames are being written, which should arrive.
    pub(super) fn note_frames(&self, now: Millis) {
        self.signs.lock().on_frames(now);
    }

    /// Many bytes pass: a big read, or a write that had to wait for others, so long, and was then taken. The next
    /// may have to wait for longer.
    pub(super) fn note_flow(&self, waited: Millis, now: Millis) {
        self.trust(now + (2 * waited).clamp(GAP_SHORT_MS, GAP_LONG_MS));
    }

    /// Bytes come, which says that until then others may follow.
    pub(super) fn trust(&self, until: Millis) {
        self.signs.lock().trust(until);
    }

    /// The peer should know that its bytes come, and until when they may be waited for.
    pub(super) fn tell_arriving(&self, until: Millis) {
        self.to_tell.store(until, Ordering::Relaxed);
        self.queue.changed.notify(usize::MAX);
    }

    /// For how long from now the peer should trust this link, if it should be told; it counts as told from here on.
    pub(super) fn take_arriving(&self, now: Millis) -> Option<Millis> {
        let until = self.to_tell.swap(0, Ordering::Relaxed);
        until.checked_sub(now).filter(|left| *left > 0)
    }

    /// The peer says that bytes of this node's come, and for how long from now that is to be trusted. Returns how
    /// many were written since the last time.
    pub(super) fn on_arriving(&self, for_ms: Millis, now: Millis) -> u64 {
        let until = now + for_ms.min(GAP_LONG_MS) + TELL_MS;
        self.arrives_until.store(until, Ordering::Relaxed);
        self.trust(until);
        self.passed.swap(0, Ordering::Relaxed)
    }

    /// The peer has given a sign of life.
    pub(super) fn on_sign(&self, now: Millis) {
        if self.signs.lock().on_sign(now) {
            self.queue.changed.notify(usize::MAX);
        }
    }

    /// Asks for a sign of life if it is time. To be called a few times per second.
    pub(super) fn ask_for_sign(&self, now: Millis) {
        if self.signs.lock().ask(now) {
            self.queue.changed.notify(usize::MAX);
        }
    }

    /// How many signs of life must be given now.
    pub(super) fn take_signs_wanted(&self) -> usize {
        self.signs.lock().take_wanted()
    }

    /// Whether it is in doubt, as the node named `own` sees it: see [`super::liveness`].
    pub(super) fn is_doubtful(&self, own: &NodeName, now: Millis) -> bool {
        let courtesy = if *own > self.peer.name { DOUBT_COURTESY_MS } else { 0 };
        self.signs.lock().is_doubtful(courtesy, now)
    }

    /// A write of so many bytes begins.
    pub(super) fn note_write_begins(&self, bytes: usize, now: Millis) {
        self.write_bytes.store(bytes, Ordering::Relaxed);
        self.write_began.store(now, Ordering::Relaxed);
    }

    /// It is waited for, or made progress.
    pub(super) fn note_writing(&self, now: Millis) {
        self.writing_since.store(now.max(1), Ordering::Relaxed);
    }

    /// The system took so many bytes of it.
    pub(super) fn note_taken(&self, count: usize) {
        self.passed.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The bytes of the write that is not over, if it began so long ago.
    pub(super) fn long_write(&self, lasts_ms: Millis, now: Millis) -> Option<usize> {
        let is_over = self.writing_since.load(Ordering::Relaxed) == 0;
        let lasted = now.saturating_sub(self.write_began.load(Ordering::Relaxed));
        (!is_over && lasted >= lasts_ms).then(|| self.write_bytes.load(Ordering::Relaxed))
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
        let is_serving = self.serving.load(Ordering::Relaxed);
        let arrives = now < self.arrives_until.load(Ordering::Relaxed);
        if writing_since > 0
            && now.saturating_sub(writing_since) >= write_patience_ms(is_serving, arrives)
        {
            return Some(LinkEnd::Stuck);
        }
        (now.saturating_sub(self.heard()) >= allowed).then_some(LinkEnd::Silent)
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

/// How long the system may take none of what is written. The peer may say that earlier bytes arrive; if that is not
/// true, it holds what it holds for longer, but not for ever.
fn write_patience_ms(is_serving: bool, arrives: bool) -> Millis {
    match (arrives, is_serving) {
        (true, _) => SLOWEST_WRITE_MS,
        (false, true) => SERVE_STALL_MS,
        (false, false) => SILENCE_MS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::link::UNSENT_BYTES_MAX;
    use crate::node::link::arrivals::RATE_LEAST;

    #[test]
    fn a_write_is_waited_for_longer_only_where_the_peer_says_that_bytes_arrive() {
        let patience = |is_serving, arrives| write_patience_ms(is_serving, arrives);
        assert_eq!([patience(true, false), patience(false, false)], [5_000, 15_000]);
        assert_eq!([patience(true, true), patience(false, true)], [SLOWEST_WRITE_MS; 2]);
        assert_eq!(u64::from(UNSENT_BYTES_MAX) * 1_000 / RATE_LEAST, SLOWEST_WRITE_MS);
    }
}
