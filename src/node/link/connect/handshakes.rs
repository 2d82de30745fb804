//! Connections that have not become links yet: how many strangers there may be, and whom this
//! node is greeting at the moment.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use event_listener::Event;
use parking_lot::Mutex;

use crate::rt;

/// Most connections that have not greeted yet. Each costs a socket for at most 5 s, and 4 KiB. Beyond
/// that the one goes that has not greeted for longest: it is the least likely to.
pub(in crate::node) const GREETINGS_MAX: usize = 256;
/// Most of them from one other machine; from this one there may be as many as there are.
pub(in crate::node) const GREETINGS_PER_ADDRESS_MAX: usize = 16;

/// All of a node's greetings under way.
pub(in crate::node::link) struct Greetings {
    /// Most strangers.
    bound: AtomicUsize,
    /// Connections that were made to us and have not become links yet, oldest first. Invariant: no more
    /// than `bound`.
    strangers: Mutex<Strangers>,
    /// Where we are greeting whom we dialled; as many as there are dials under way.
    dialled: Mutex<Vec<SocketAddr>>,
    /// Fires when one of those came to something.
    ended: Event,
}

#[derive(Default)]
struct Strangers {
    next: u64,
    all: Vec<Stranger>,
}

struct Stranger {
    id: u64,
    ip: IpAddr,
    /// It has said who it is, so it is not ended any more.
    has_greeted: bool,
    /// Ends its connection.
    end: Box<dyn Fn() + Send>,
}

impl Strangers {
    /// Ends the oldest connection of those that match and have not greeted. False: there is none.
    fn end_oldest(&mut self, matches: impl Fn(&Stranger) -> bool) -> bool {
        let place = self.all.iter().position(|one| !one.has_greeted && matches(one));
        let Some(place) = place else { return false };
        (self.all.remove(place).end)();
        true
    }
}

impl Default for Greetings {
    fn default() -> Self {
        Self {
            bound: AtomicUsize::new(GREETINGS_MAX),
            strangers: Mutex::default(),
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

    /// A slot for a stranger; `end` ends its connection, should it have to make way for a newer one. None
    /// if there are too many that have greeted.
    pub(in crate::node::link) fn slot(
        &self,
        ip: IpAddr,
        end: impl Fn() + Send + 'static,
    ) -> Option<Slot<'_>> {
        let mut strangers = self.strangers.lock();
        let from_there = strangers.all.iter().filter(|one| one.ip == ip && !one.has_greeted);
        if !ip.is_loopback() && from_there.count() >= GREETINGS_PER_ADDRESS_MAX {
            strangers.end_oldest(|one| one.ip == ip);
        }
        if strangers.all.len() >= self.bound.load(Ordering::Relaxed)
            && !strangers.end_oldest(|_| true)
        {
            return None;
        }
        let id = strangers.next;
        strangers.next += 1;
        strangers.all.push(Stranger { id, ip, has_greeted: false, end: Box::new(end) });
        Some(Slot { greetings: self, id })
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

/// A slot among the connections that have not become links yet.
pub(in crate::node::link) struct Slot<'a> {
    greetings: &'a Greetings,
    id: u64,
}

impl Slot<'_> {
    /// It has said who it is: it makes way for nobody. False if it had to already.
    pub(in crate::node::link) fn note_greeting(&self) -> bool {
        let mut strangers = self.greetings.strangers.lock();
        let own = strangers.all.iter_mut().find(|one| one.id == self.id);
        own.map(|own| own.has_greeted = true).is_some()
    }

    /// Whether its connection was ended for a newer one.
    pub(in crate::node::link) fn made_way(&self) -> bool {
        self.greetings.strangers.lock().all.iter().all(|one| one.id != self.id)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.greetings.strangers.lock().all.retain(|one| one.id != self.id);
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
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A stranger from that address; whether it was ended.
    fn stranger(greetings: &Greetings, ip: [u8; 4]) -> (Option<Slot<'_>>, Arc<AtomicBool>) {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let slot = greetings.slot(ip.into(), move || end.store(true, Ordering::Relaxed));
        (slot, ended)
    }

    fn ended(strangers: &[(Option<Slot<'_>>, Arc<AtomicBool>)]) -> Vec<usize> {
        let ended = |(at, (slot, ended)): (usize, &(Option<Slot<'_>>, Arc<AtomicBool>))| {
            assert_eq!(slot.as_ref().unwrap().made_way(), ended.load(Ordering::Relaxed));
            ended.load(Ordering::Relaxed).then_some(at)
        };
        strangers.iter().enumerate().filter_map(ended).collect()
    }

    #[test]
    fn in_a_crowd_of_strangers_the_oldest_that_has_not_greeted_makes_way() {
        let greetings = Greetings::default();
        let mut all: Vec<_> =
            (0..GREETINGS_MAX).map(|at| stranger(&greetings, [10, 0, (at / 8) as u8, 1])).collect();
        assert_eq!(ended(&all), [0; 0]);
        assert!(all[0].0.as_ref().unwrap().note_greeting());
        all.push(stranger(&greetings, [127, 0, 0, 1]));
        all.push(stranger(&greetings, [127, 0, 0, 1]));
        assert_eq!(ended(&all), [1, 2]);
        assert!(!all[1].0.as_ref().unwrap().note_greeting(), "too late");
        assert_eq!(greetings.strangers.lock().all.len(), GREETINGS_MAX);
        for (slot, _) in &all {
            slot.as_ref().unwrap().note_greeting();
        }
        assert!(stranger(&greetings, [10, 9, 9, 9]).0.is_none(), "all have greeted");
        drop(all);
        assert!(stranger(&greetings, [10, 9, 9, 9]).0.is_some());
    }

    #[test]
    fn one_machine_takes_no_slots_from_others_but_this_one_has_many_nodes() {
        let greetings = Greetings::default();
        let mut all = vec![stranger(&greetings, [10, 0, 0, 2])];
        all.extend((0..20).map(|_| stranger(&greetings, [10, 0, 0, 1])));
        assert_eq!(ended(&all), [1, 2, 3, 4]);
        let own: Vec<_> = (0..100).map(|_| stranger(&greetings, [127, 0, 0, 1])).collect();
        assert_eq!(ended(&own), [0; 0]);
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
