//! The connections that are open: never more than there may be. When one more comes, the one that has waited
//! longest without a request gives way, so that those who open many and say nothing keep nobody out; if none waits, the
//! one whose request has taken longest, so that those whose logins wait, or whose bodies come slowly, keep no health
//! check out. Answers in parts stay: there are only so many of them.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use event_listener::Event;
use parking_lot::Mutex;

use crate::rt::{self, TcpStream};

/// A connection has this long to begin a request before it is the first to give way. Without that, in a crowd of
/// requests each new connection would take the place of the one before it.
const GRACE_MS: u64 = 200;

/// So many connections may be on their way out for each that is open.
const ENDING_FOR_EACH: usize = 1;

/// See the module.
pub(crate) struct Slots {
    most: usize,
    open: Mutex<Open>,
    /// Connections whose tasks have not ended.
    alive: AtomicUsize,
    ended: Event,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// By number.
    slots: BTreeMap<u64, Entry>,
}

struct Entry {
    stream: TcpStream,
    does: Does,
    /// By [`rt::now`].
    since: u64,
}

/// What a connection does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// It waits for a request.
    Wait,
    /// One is being answered.
    Answer,
    /// An answer in parts goes out.
    Stream,
}

impl Entry {
    /// The least gives way first; none: it never does.
    fn rank(&self, now: u64) -> Option<(u8, u64)> {
        let kind = match self.does {
            Does::Wait if now.saturating_sub(self.since) >= GRACE_MS => 0,
            Does::Answer => 1,
            Does::Wait => 2,
            Does::Stream => return None,
        };
        Some((kind, self.since))
    }
}

impl Slots {
    pub(crate) fn new(most: usize) -> Self {
        let (open, alive) = (Mutex::default(), AtomicUsize::new(0));
        Self { most: most.max(1), open, alive, ended: Event::new() }
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.open.lock().slots.len()
    }

    /// Waits until another one may be accepted.
    pub(crate) async fn room(&self) {
        loop {
            let ended = self.ended.listen();
            if self.alive.load(Ordering::Acquire) < self.most * (1 + ENDING_FOR_EACH) {
                return;
            }
            ended.await;
        }
    }

    /// Takes a connection in; none if all others are answers in parts.
    pub(crate) fn enter(self: &Arc<Self>, stream: &TcpStream) -> Option<Slot> {
        let mut open = self.open.lock();
        if open.slots.len() >= self.most {
            let now = rt::now();
            let ranked = open.slots.iter().filter_map(|(n, slot)| Some((slot.rank(now)?, *n)));
            let (_, first) = ranked.min()?;
            if let Some(entry) = open.slots.remove(&first) {
                // Its task finds out.
                let _ = entry.stream.shutdown(Shutdown::Both);
            }
        }
        let number = open.next;
        open.next += 1;
        let entry = Entry { stream: stream.clone(), does: Does::Wait, since: rt::now() };
        open.slots.insert(number, entry);
        self.alive.fetch_add(1, Ordering::AcqRel);
        Some(Slot { slots: Arc::clone(self), number })
    }

    /// Closes all.
    pub(crate) fn close_all(&self) {
        for (_, entry) in std::mem::take(&mut self.open.lock().slots) {
            let _ = entry.stream.shutdown(Shutdown::Both);
        }
    }

    fn set(&self, number: u64, does: Does) {
        if let Some(entry) = self.open.lock().slots.get_mut(&number) {
            (entry.does, entry.since) = (does, rt::now());
        }
    }
}

/// A connection's place, until its task ends.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    number: u64,
}

impl Slot {
    /// A request is being answered for as long as this lives.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.slots.set(self.number, Does::Answer);
        Busy(Arc::clone(self))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.open.lock().slots.remove(&self.number);
        self.slots.alive.fetch_sub(1, Ordering::AcqRel);
        self.slots.ended.notify(usize::MAX);
    }
}

/// See [`Slot::busy`].
pub(crate) struct Busy(Arc<Slot>);

impl Busy {
    /// The answer goes out in parts.
    pub(crate) fn streams(&self) {
        self.0.slots.set(self.0.number, Does::Stream);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.slots.set(self.0.number, Does::Wait);
    }
}
