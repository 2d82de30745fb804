//! Connections that have not become links yet: how many strangers there may be, and whom this
//! node is greeting at the moment.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use event_listener::Event;
use parking_lot::Mutex;

use crate::rt;

/// Most connections that have not greeted yet. Each costs a socket for at most 5 s.
pub(in crate::node) const GREETINGS_MAX: usize = 256;

/// All of a node's greetings under way.
pub(in crate::node::link) struct Greetings {
    /// Most strangers.
    bound: AtomicUsize,
    /// Connections that were made to us and have not greeted yet.
    strangers: AtomicUsize,
    /// Where we are greeting whom we dialled; as many as there are dials under way.
    dialled: Mutex<Vec<SocketAddr>>,
    /// Fires when one of those came to something.
    ended: Event,
}

impl Default for Greetings {
    fn default() -> Self {
        Self {
            bound: AtomicUsize::new(GREETINGS_MAX),
            strangers: AtomicUsize::default(),
            dialled: Mutex::default(),
            ended: Event::new(),
        }
    }
}

impl Greetings {
    /// There may be no more strangers than this: descriptors are scarce.
    pub(in crate::node::link) fn bound(&self, strangers: usize) {
        self.bound.store(strangers, Ordering::Relaxed);
    }

    /// A slot for a stranger, if there are not too many.
    pub(in crate::node::link) fn slot(&self) -> Option<Slot<'_>> {
        let slot = Slot(self);
        // Taken even if it is too many; then it is given back at once.
        let before = self.strangers.fetch_add(1, Ordering::AcqRel);
        (before < self.bound.load(Ordering::Relaxed)).then_some(slot)
    }

    /// We are greeting a peer that we dialled there, until the returned value is dropped.
    pub(in crate::node::link) fn begin(&self, addr: SocketAddr) -> UnderWay<'_> {
        self.dialled.lock().push(addr);
        UnderWay { greetings: self, addr }
    }

    /// Waits until we are not greeting anybody there (any more), or for `patience`.
    pub(in crate::node::link) async fn over(&self, addr: SocketAddr, patience: Duration) {
        let wait = async {
            loop {
                let listener = self.ended.listen();
                if !self.dialled.lock().contains(&addr) {
                    return;
                }
                listener.await;
            }
        };
        let _ = rt::timeout(patience, wait).await;
    }
}

/// A slot among the connections that have not greeted yet.
pub(in crate::node::link) struct Slot<'a>(&'a Greetings);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.strangers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// We are greeting a peer.
pub(in crate::node::link) struct UnderWay<'a> {
    greetings: &'a Greetings,
    addr: SocketAddr,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut dialled = self.greetings.dialled.lock();
        if let Some(place) = dialled.iter().position(|addr| *addr == self.addr) {
            dialled.swap_remove(place);
        }
        drop(dialled);
        self.greetings.ended.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_of_strangers_gets_no_more_slots_than_there_are() {
        let greetings = Greetings::default();
        let slots: Vec<_> = (0..GREETINGS_MAX).map(|_| greetings.slot().unwrap()).collect();
        assert!(greetings.slot().is_none() && greetings.slot().is_none());
        drop(slots);
        assert!(greetings.slot().is_some());
    }

    #[test]
    fn who_waits_for_a_greeting_goes_on_when_it_is_over_or_takes_too_long() {
        let greetings = Greetings::default();
        let (here, there) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap());
        let (first, second) = (greetings.begin(here), greetings.begin(here));
        let soon = Duration::from_secs(60);
        rt::block_on(async {
            greetings.over(there, soon).await;
            greetings.over(here, Duration::from_millis(1)).await;
            drop(first);
            let end = async {
                rt::yield_now().await;
                drop(second);
            };
            futures::future::join(greetings.over(here, soon), end).await;
        });
    }
}
