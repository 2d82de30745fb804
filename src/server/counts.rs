//! What the client port counts for metrics and for operators: requests by kind, errors by code, bytes, and how long
//! answers took. Of all clients together, and of each connection.
//!
//! The hot path pays a few relaxed additions for a batch, on counters that its thread rarely shares, and looks at
//! the clock for one batch in [`TIMED_EVERY`].

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use distkv_metrics::{Histogram, HistogramNumbers, Name};

use super::cluster::shards::thread_number;
use super::connections::session::Decoded;
use crate::protocol::client::{Action, ClientError, ClientMessage, ErrorCode, Request};

/// Counters are spread over this many places, so that threads do not share a cache line.
const STRIPES: usize = 16;
/// One batch in so many is timed.
const TIMED_EVERY: u32 = 16;

/// What requests are counted as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    Get,
    Set,
    Delete,
    Batch,
    List,
    Watch,
    Message,
    State,
    Shards,
    File,
    Admin,
    Other,
}

/// How many kinds there are.
pub(crate) const KINDS: usize = RequestKind::ALL.len();

impl RequestKind {
    /// All of them, in their order.
    pub(crate) const ALL: [Self; 12] = [
        Self::Get,
        Self::Set,
        Self::Delete,
        Self::Batch,
        Self::List,
        Self::Watch,
        Self::Message,
        Self::State,
        Self::Shards,
        Self::File,
        Self::Admin,
        Self::Other,
    ];

    /// Its word in metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Delete => "delete",
            Self::Batch => "batch",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Message => "message",
            Self::State => "state",
            Self::Shards => "shards",
            Self::File => "file",
            Self::Admin => "admin",
            Self::Other => "other",
        }
    }

    /// What an action is counted as.
    pub(crate) fn of(action: Action) -> Self {
        use Action as A;
        match action {
            A::GetValue | A::GetInternal => Self::Get,
            A::SetValue | A::SetInternal | A::Update => Self::Set,
            A::DeleteValue | A::DeleteInternal | A::DeleteTree => Self::Delete,
            A::Batch => Self::Batch,
            A::GetTree | A::GetTreeInternal | A::Enum | A::EnumInternal => Self::List,
            A::Watch | A::WatchCluster => Self::Watch,
            A::MsgSend | A::MsgMonitor => Self::Message,
            A::GetState
            | A::EnumNode
            | A::CheckDeleted
            | A::Conflicts
            | A::Status
            | A::Members
            | A::Clients
            | A::History
            | A::Cluster
            | A::KeyList => Self::State,
            A::ListShards => Self::Shards,
            A::GetSnapshot
            | A::Restore
            | A::Snapshot
            | A::LogStart
            | A::LogStop
            | A::Save
            | A::Log => Self::File,
            A::KillNode
            | A::ForgetMember
            | A::KeyAdd
            | A::KeyUse
            | A::KeyRemove
            | A::Leave
            | A::FakeInfo
            | A::FakeInfoSend
            | A::AuthSet
            | A::AuthDisconnect
            | A::AuthDelete
            | A::AuthList
            | A::SetAuthTyp => Self::Admin,
            A::Stop
            | A::GetTock
            | A::Root
            | A::DiffieHellman
            | A::Auth
            | A::AuthInfo
            | A::AuthGet
            | A::TestAcl => Self::Other,
        }
    }

    /// What a message is counted as; none for what is no request. One that cannot be read counts, too.
    fn of_message(message: &Decoded<'_>) -> Option<Self> {
        match message {
            Ok(ClientMessage::Request { action, .. }) => Some(Self::of(*action)),
            Ok(
                ClientMessage::Ack { .. }
                | ClientMessage::Settings { .. }
                | ClientMessage::StreamEnd,
            ) => None,
            Err(_) => Some(Self::Other),
        }
    }
}

/// How answers' times are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimedKind {
    Read,
    Write,
    /// A write that waits until other nodes have it.
    Copies,
    List,
    Other,
}

impl TimedKind {
    /// All of them, in their order.
    pub(crate) const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::Copies, Self::List, Self::Other];

    /// Its word in metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copies => "copies",
            Self::List => "list",
            Self::Other => "other",
        }
    }

    /// What a batch is timed as: by its first request.
    fn of(batch: &[Decoded<'_>]) -> Option<Self> {
        batch.iter().find_map(|message| {
            if let Ok(ClientMessage::Request { request: Request::Write(write), .. }) = message
                && write.copies > 0
            {
                return Some(Self::Copies);
            }
            Some(match RequestKind::of_message(message)? {
                RequestKind::Get => Self::Read,
                RequestKind::Set | RequestKind::Delete | RequestKind::Batch => Self::Write,
                RequestKind::List => Self::List,
                _ => Self::Other,
            })
        })
    }
}

#[derive(Default)]
struct Stripe {
    requests: [AtomicU64; KINDS],
    received: AtomicU64,
    sent: AtomicU64,
}

/// Of all clients together.
pub(crate) struct Counts {
    stripes: [CachePadded<Stripe>; STRIPES],
    errors: [AtomicU64; ErrorCode::ALL.len()],
    times: [Histogram; TimedKind::ALL.len()],
    stalled: AtomicU64,
    heavy_running: AtomicUsize,
    heavy_waiting: AtomicUsize,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            stripes: Default::default(),
            errors: [const { AtomicU64::new(0) }; ErrorCode::ALL.len()],
            times: std::array::from_fn(|_| Histogram::of(Name::ClientRequestSeconds)),
            stalled: AtomicU64::new(0),
            heavy_running: AtomicUsize::new(0),
            heavy_waiting: AtomicUsize::new(0),
        }
    }
}

impl Counts {
    fn stripe(&self) -> Option<&Stripe> {
        self.stripes.get(thread_number() % STRIPES).map(|stripe| &**stripe)
    }

    /// A request is answered with this error.
    pub(in crate::server) fn note_error(&self, error: &ClientError) {
        if let Some(count) = self.errors.get(error.code as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A client was given up because it took nothing.
    pub(in crate::server) fn note_stalled(&self) {
        self.stalled.fetch_add(1, Ordering::Relaxed);
    }

    /// A long job waits for its turn, until the returned value is dropped.
    pub(in crate::server) fn heavy_waits(&self) -> Held<'_> {
        Held::new(&self.heavy_waiting)
    }

    /// A long job runs, until the returned value is dropped.
    pub(in crate::server) fn heavy_runs(&self) -> Held<'_> {
        Held::new(&self.heavy_running)
    }

    /// Requests by kind.
    pub(crate) fn requests(&self) -> [u64; KINDS] {
        std::array::from_fn(|kind| {
            let of = |stripe: &CachePadded<Stripe>| {
                stripe.requests.get(kind).map_or(0, |count| count.load(Ordering::Relaxed))
            };
            self.stripes.iter().map(of).sum()
        })
    }

    /// Bytes received and sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        self.stripes.iter().fold((0, 0), |(received, sent), stripe| {
            let stripe = &**stripe;
            (
                received + stripe.received.load(Ordering::Relaxed),
                sent + stripe.sent.load(Ordering::Relaxed),
            )
        })
    }

    /// Errors by code's word.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let words = ErrorCode::ALL.iter().map(|code| code.word());
        words.zip(self.errors.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// How long answers took, by kind.
    pub(crate) fn times(&self) -> impl Iterator<Item = (&'static str, HistogramNumbers)> {
        let words = TimedKind::ALL.iter().map(|kind| kind.word());
        words.zip(self.times.iter().map(Histogram::numbers))
    }

    /// Clients that were given up because they took nothing.
    pub(crate) fn stalled(&self) -> u64 {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Long jobs that run, and that wait.
    pub(crate) fn heavy(&self) -> (usize, usize) {
        (self.heavy_running.load(Ordering::Relaxed), self.heavy_waiting.load(Ordering::Relaxed))
    }
}

/// Counts one more while it lives.
pub(in crate::server) struct Held<'c>(&'c AtomicUsize);

impl<'c> Held<'c> {
    fn new(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Of one connection. Only its own task adds to it; others look.
#[derive(Default)]
pub(crate) struct Traffic {
    requests: [AtomicU64; KINDS],
    received: AtomicU64,
    sent: AtomicU64,
    watches: AtomicUsize,
    streams: AtomicUsize,
}

impl Traffic {
    /// Requests by kind.
    pub(crate) fn requests(&self) -> [u64; KINDS] {
        std::array::from_fn(|kind| {
            self.requests.get(kind).map_or(0, |count| count.load(Ordering::Relaxed))
        })
    }

    /// Bytes received and sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }

    /// Open watches, and open streams of any kind.
    pub(crate) fn streams(&self) -> (usize, usize) {
        (self.watches.load(Ordering::Relaxed), self.streams.load(Ordering::Relaxed))
    }

    /// So many are open now.
    pub(in crate::server) fn note_streams(&self, watches: usize, streams: usize) {
        self.watches.store(watches, Ordering::Relaxed);
        self.streams.store(streams, Ordering::Relaxed);
    }
}

/// Adds where nobody else does.
fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// What a connection's task counts with.
#[derive(Default)]
pub(in crate::server) struct Meter {
    /// Bytes read since they were last told.
    pub(in crate::server) received: u64,
    batches: u32,
    /// The batch that is timed: since when, microseconds, and as what.
    timed: Option<(u64, TimedKind)>,
}

impl Meter {
    /// Whether the next batch should be timed: call this before it is carried out.
    pub(in crate::server) fn is_timed(&self) -> bool {
        self.batches.is_multiple_of(TIMED_EVERY) && self.timed.is_none()
    }

    /// The first `done` messages of a batch were carried out. `began`: when that began, if it is timed.
    pub(in crate::server) fn count(
        &mut self,
        batch: &[Decoded<'_>],
        done: usize,
        began: Option<u64>,
        (counts, traffic): (&Counts, &Traffic),
    ) {
        let Some(stripe) = counts.stripe() else { return };
        let received = std::mem::take(&mut self.received);
        if received > 0 {
            stripe.received.fetch_add(received, Ordering::Relaxed);
            bump(&traffic.received, received);
        }
        let done = batch.get(..done).unwrap_or(batch);
        if done.is_empty() {
            return;
        }
        self.batches = self.batches.wrapping_add(1);
        if let Some(began) = began {
            self.timed = TimedKind::of(done).map(|kind| (began, kind));
        }
        let add = |kind: RequestKind, count: u64| {
            let at = kind as usize;
            if count > 0
                && let (Some(all), Some(own)) = (stripe.requests.get(at), traffic.requests.get(at))
            {
                all.fetch_add(count, Ordering::Relaxed);
                bump(own, count);
            }
        };
        // Usually all are of one kind.
        let (mut of, mut count) = (RequestKind::Other, 0);
        for kind in done.iter().filter_map(RequestKind::of_message) {
            if kind != of {
                add(of, count);
                (of, count) = (kind, 0);
            }
            count += 1;
        }
        add(of, count);
    }

    /// So many bytes were sent.
    pub(in crate::server) fn note_sent(&self, bytes: u64, counts: &Counts, traffic: &Traffic) {
        if let Some(stripe) = counts.stripe() {
            stripe.sent.fetch_add(bytes, Ordering::Relaxed);
            bump(&traffic.sent, bytes);
        }
    }

    /// Output was written. `waits_for_copies`: not all of the answers yet. `now`: the clock, microseconds, which is
    /// asked only if a batch is timed.
    pub(in crate::server) fn note_answered(
        &mut self,
        waits_for_copies: bool,
        now: impl Fn() -> u64,
        counts: &Counts,
    ) {
        let Some((began, kind)) = self.timed else { return };
        if kind == TimedKind::Copies && waits_for_copies {
            return;
        }
        self.timed = None;
        if let Some(times) = counts.times.get(kind as usize) {
            times.add_us(now().saturating_sub(began));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::client::decode;
    use distkv_metrics::Label;

    /// The values of a metric's only label.
    fn labels(name: Name) -> Vec<&'static str> {
        match name.metric().unwrap().labels {
            [Label::Fixed(_, values)] => values.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_table_of_metrics_has_all_kinds_and_codes_in_their_order() {
        assert_eq!(labels(Name::ClientRequests), RequestKind::ALL.map(RequestKind::word));
        assert_eq!(labels(Name::ClientRequestSeconds), TimedKind::ALL.map(TimedKind::word));
        assert_eq!(labels(Name::ClientErrors), ErrorCode::ALL.map(ErrorCode::word));
        for (at, kind) in RequestKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, at);
        }
        for (at, kind) in TimedKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, at);
        }
        for action in Action::ALL {
            assert!((RequestKind::of(*action) as usize) < KINDS);
        }
    }

    fn message(action: &str) -> Vec<u8> {
        let mut bytes = b"\x83\xa3seq\x01\xa4path\x91\xa1a\xa6action".to_vec();
        bytes.push(0xa0 | u8::try_from(action.len()).unwrap());
        bytes.extend(action.as_bytes());
        bytes
    }

    #[test]
    fn a_batch_is_counted_by_kind_as_far_as_it_is_done_and_every_sixteenth_is_timed() {
        let (counts, traffic, mut meter) =
            (Counts::default(), Traffic::default(), Meter::default());
        let messages = ["get_value", "get_value", "enum", "get_value"].map(message);
        let batch: Vec<_> = messages.iter().map(|bytes| decode(bytes)).collect();
        meter.received = 7;
        let mut timed = 0;
        for _ in 0..32 {
            let began = meter.is_timed().then_some(1_000);
            meter.count(&batch, 3, began, (&counts, &traffic));
            let clock = || 1_060;
            meter.note_answered(false, clock, &counts);
            timed += u32::from(began.is_some());
        }
        meter.count(&batch, 0, None, (&counts, &traffic));
        assert_eq!(timed, 2);
        let of = |kind: RequestKind| counts.requests()[kind as usize];
        assert_eq!((of(RequestKind::Get), of(RequestKind::List)), (64, 32));
        assert_eq!(counts.requests(), traffic.requests());
        assert_eq!((counts.bytes(), traffic.bytes()), ((7, 0), (7, 0)));
        let times: Vec<_> = counts.times().map(|(word, times)| (word, times.count)).collect();
        assert_eq!(times, [("read", 2), ("write", 0), ("copies", 0), ("list", 0), ("other", 0)]);
    }

    #[test]
    fn a_write_that_waits_for_copies_is_timed_until_they_are_there() {
        let (counts, traffic, mut meter) =
            (Counts::default(), Traffic::default(), Meter::default());
        let mut bytes = b"\x85\xa3seq\x01\xa4path\x91\xa1a\xa5value\x01\xa6copies\x01".to_vec();
        bytes.extend(b"\xa6action\xa9set_value");
        let batch = [decode(&bytes)];
        meter.count(&batch, 1, Some(0), (&counts, &traffic));
        let copies = |counts: &Counts| counts.times().nth(2).map(|(_, times)| times.count);
        meter.note_answered(true, || 1, &counts);
        assert_eq!(copies(&counts), Some(0));
        meter.note_answered(false, || 900, &counts);
        assert_eq!(copies(&counts), Some(1));
    }
}
