//! The connections that are open: never more than there may be. When one more comes, the one that has waited
//! longest without a request gives way, so that those who open many and say nothing keep nobody out.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use event_listener::Event;
use parking_lot::Mutex;

use crate::rt::TcpStream;

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
    /// Since which number it waits for a request; none while one is being answered.
    waits: Option<u64>,
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

    /// Takes a connection in; none if all others are being answered.
    pub(crate) fn enter(self: &Arc<Self>, stream: &TcpStream) -> Option<Slot> {
        let mut open = self.open.lock();
        if open.slots.len() >= self.most {
            let waiting = open.slots.iter().filter_map(|(n, slot)| Some((slot.waits?, *n)));
            let (_, longest) = waiting.min()?;
            if let Some(entry) = open.slots.remove(&longest) {
                // Its task finds out.
                let _ = entry.stream.shutdown(Shutdown::Both);
            }
        }
        let number = open.next;
        open.next += 1;
        open.slots.insert(number, Entry { stream: stream.clone(), waits: Some(number) });
        self.alive.fetch_add(1, Ordering::AcqRel);
        Some(Slot { slots: Arc::clone(self), number })
    }

    /// Closes all.
    pub(crate) fn close_all(&self) {
        for (_, entry) in std::mem::take(&mut self.open.lock().slots) {
            let _ = entry.stream.shutdown(Shutdown::Both);
        }
    }

    fn set_waiting(&self, number: u64, is_waiting: bool) {
        let mut open = self.open.lock();
        let now = open.next;
        open.next += 1;
        if let Some(entry) = open.slots.get_mut(&number) {
            entry.waits = is_waiting.then_some(now);
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
        self.slots.set_waiting(self.number, false);
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

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.slots.set_waiting(self.0.number, true);
    }
}
