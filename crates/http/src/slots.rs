//! The connections that are open: never more than there may be. When one more comes, one gives way, as in every
//! [crowd](distkv_crowd): the one that has waited longest without a request, of the address with most. So those who open
//! many and say nothing keep out nobody but themselves. If more are at work than wait, the one whose request has taken longest,
//! of the address with most, so that those whose logins wait, or whose bodies come slowly, keep no health check out. Answers
//! in parts stay, since there are only so many of them, and do not count for their address.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distkv_crowd::{Crowd, Does, Place};
use event_listener::Event;
use futures::future::AbortHandle;

use crate::rt::{self, TcpStream};

/// A connection has this long to begin a request, or to have it answered, before it gives way to others of its own
/// address. Without that, in a crowd of requests each new connection would take the place of the one before it.
const GRACE_MS: u64 = 200;

/// So many connections may be on their way out for each that is open.
const ENDING_FOR_EACH: usize = 1;

/// See the module.
pub(crate) struct Slots {
    most: usize,
    open: Arc<Crowd>,
    /// Connections whose tasks have not ended.
    alive: AtomicUsize,
    ended: Event,
}

impl Slots {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1);
        let (open, alive) = (Crowd::new(most, GRACE_MS), AtomicUsize::new(0));
        Self { most, open, alive, ended: Event::new() }
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.open.count()
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

    /// Takes a connection from this address in, whose task `task` ends; none if no other gives way to it.
    pub(crate) fn enter(
        self: &Arc<Self>,
        stream: &TcpStream,
        from: IpAddr,
        task: AbortHandle,
    ) -> Option<Slot> {
        let place = self.open.enter(from, rt::now(), move || task.abort())?;
        self.alive.fetch_add(1, Ordering::AcqRel);
        Some(Slot { slots: Arc::clone(self), place, stream: stream.clone() })
    }

    /// Closes all.
    pub(crate) fn close_all(&self) {
        self.open.end_all();
    }
}

/// A connection's place, until its task ends.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    place: Place,
    stream: TcpStream,
}

impl Slot {
    /// A request is being answered for as long as this lives.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.place.set(Does::Work, rt::now());
        Busy { slot: Arc::clone(self), is_stream: AtomicBool::new(false) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.alive.fetch_sub(1, Ordering::AcqRel);
        self.slots.ended.notify(usize::MAX);
    }
}

/// See [`Slot::busy`].
pub(crate) struct Busy {
    slot: Arc<Slot>,
    is_stream: AtomicBool,
}

impl Busy {
    /// The answer goes out in parts.
    pub(crate) fn streams(&self) {
        self.is_stream.store(true, Ordering::Relaxed);
        self.slot.place.set(Does::Stand, rt::now());
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let is_open = self.slot.place.set(Does::Wait, rt::now());
        if !is_open && !self.is_stream.load(Ordering::Relaxed) {
            // It is cut while its client may still be sending a body, of which nobody makes room for more: closed in order,
            // its client could wait for a minute. A reset it notices at once.
            let _ = socket2::SockRef::from(&self.slot.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::{TcpListener, block_on};

    /// Connections from addresses that are not theirs, each with what its task holds.
    struct Test {
        slots: Arc<Slots>,
        stream: TcpStream,
    }

    impl Test {
        fn new(most: usize) -> Self {
            let stream = block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                TcpStream::connect(listener.local_addr().unwrap()).await.unwrap()
            });
            Self { slots: Arc::new(Slots::new(most)), stream }
        }

        fn enter(&self, from: &str) -> Option<(Arc<Slot>, AbortHandle)> {
            let (task, _) = AbortHandle::new_pair();
            let slot = self.slots.enter(&self.stream, from.parse().unwrap(), task.clone())?;
            Some((Arc::new(slot), task))
        }
    }

    #[test]
    fn one_address_that_says_nothing_keeps_out_only_itself() {
        let test = Test::new(64);
        let asks: Vec<_> = (0..3).map(|_| test.enter("10.0.0.2").unwrap()).collect();
        let busy: Vec<_> = asks.iter().map(|(slot, _)| slot.busy()).collect();
        let home = test.enter("127.0.0.1").unwrap();
        let far = test.enter("10.0.0.3").unwrap();
        // A flood: each of these that gives way has gone.
        let mut flood: Vec<_> = (0..2_000).filter_map(|_| test.enter("10.0.0.1")).collect();
        let probe = test.enter("10.0.0.4").unwrap();
        flood.extend((0..2_000).filter_map(|_| test.enter("10.0.0.1")));
        let others = asks.iter().chain([&home, &far, &probe]);
        assert!(others.into_iter().all(|(_, task)| !task.is_aborted()));
        assert_eq!(test.slots.len(), 64);
        let there = flood.iter().filter(|(_, task)| !task.is_aborted()).count();
        assert_eq!(there, 64 - 6);
        drop((busy, flood));
        assert_eq!(test.slots.len(), 6);
    }

    #[test]
    fn many_addresses_that_say_nothing_cut_no_request_and_no_stream() {
        let test = Test::new(16);
        let asks: Vec<_> = (0..8).map(|_| test.enter("10.0.0.2").unwrap()).collect();
        let busy: Vec<_> = asks.iter().map(|(slot, _)| slot.busy()).collect();
        busy.iter().take(4).for_each(Busy::streams);
        let flood: Vec<_> =
            (0..999).filter_map(|n| test.enter(&format!("10.1.{}.1", n % 99))).collect();
        assert!(flood.len() > 99);
        assert!(asks.iter().all(|(_, task)| !task.is_aborted()));
        // A request that has ended does not protect its connection any more.
        drop(busy);
        assert!(test.enter("10.2.0.1").is_some());
        assert_eq!(asks.iter().filter(|(_, task)| task.is_aborted()).count(), 1);
    }
}
