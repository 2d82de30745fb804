//! TLS handshakes that are under way: how many there may be (see [`Crowd`]). Those of an address that are too many at once
//! wait for their turn, because a machine with many clients connects all of them when a node comes back.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_lock::Semaphore;
use event_listener::Event;
use futures::future::{Either, select};
use parking_lot::Mutex;

use super::super::throttled_warning::Tally;
use crate::crowd::{Crowd, Place};
use crate::model::ids::Millis;
use crate::rt;

/// Handshakes under way, and connections that wait for theirs.
const HALF_OPEN_MAX: usize = 512;
/// Of these, those of one address that make progress at once.
const AT_ONCE_MAX: usize = 32;
/// How long one keeps the others of its address waiting, ms. A client that is far away may take longer, which is no reason
/// to wait for it.
const TURN_MS_MAX: u64 = 2_000;
/// How long one has at least before it gives way to others of its own address, ms.
const GRACE_MS: Millis = 1_000;

/// See the module.
pub(in crate::server) struct Handshakes {
    pub(in crate::server) crowd: Arc<Crowd>,
    turns: Arc<Mutex<Turns>>,
    crowded: Tally,
}

/// Of each address that has a handshake under way, and for how many this is kept.
type Turns = HashMap<IpAddr, (usize, Arc<Semaphore>)>;

/// A handshake that is counted until this is dropped.
pub(super) struct HalfOpen {
    address: IpAddr,
    turn: Arc<Semaphore>,
    turns: Arc<Mutex<Turns>>,
    place: Place,
    /// Fires when it must give way to another one.
    ended: Arc<Event>,
}

impl Handshakes {
    /// `connections_max`: as many clients may connect.
    pub(in crate::server) fn new(connections_max: usize) -> Self {
        let crowd = Crowd::new(HALF_OPEN_MAX.min(connections_max), GRACE_MS);
        Self { crowd, turns: Arc::default(), crowded: Tally::default() }
    }

    /// Says in the log, now and then, that one of this address was closed because there are too many.
    pub(super) fn complain(&self, from: IpAddr) {
        if let Some(clients) = self.crowded.note(rt::now()) {
            let text =
                "too many TLS handshakes are under way; closing some of the address with most";
            let from = from.to_canonical();
            tracing::warn!(clients, %from, most = self.crowd.most(), "{text}");
        }
    }

    /// Counts one more; `None` if there are too many.
    pub(super) fn enter(&self, address: IpAddr, now: Millis) -> Option<HalfOpen> {
        let ended = Arc::new(Event::new());
        let end = Arc::clone(&ended);
        let end = move || {
            end.notify(usize::MAX);
        };
        let place = self.crowd.enter(address, now, end)?;
        let address = address.to_canonical();
        let mut turns = self.turns.lock();
        let (count, turn) =
            turns.entry(address).or_insert_with(|| (0, Arc::new(Semaphore::new(AT_ONCE_MAX))));
        *count += 1;
        let turn = Arc::clone(turn);
        drop(turns);
        Some(HalfOpen { address, turn, turns: Arc::clone(&self.turns), place, ended })
    }
}

impl HalfOpen {
    /// Makes the handshake when it is its turn. None if it had to give way to another one.
    pub(super) async fn run<T>(&self, handshake: impl Future<Output = T>) -> Option<T> {
        let in_turn = async {
            let turn = self.turn.acquire().await;
            let mut handshake = pin!(handshake);
            let time = pin!(rt::sleep(Duration::from_millis(TURN_MS_MAX)));
            match select(handshake.as_mut(), time).await {
                Either::Left((done, _)) => done,
                Either::Right(_) => {
                    drop(turn);
                    handshake.await
                }
            }
        };
        // Listen first, then look.
        let ended = self.ended.listen();
        if self.place.gave_way() {
            return None;
        }
        match select(pin!(in_turn), ended).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        let mut turns = self.turns.lock();
        if let Some((count, _)) = turns.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                turns.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn enter(handshakes: &Handshakes, address: &str) -> Option<HalfOpen> {
        handshakes.enter(address.parse().unwrap(), 0)
    }

    #[test]
    fn those_of_an_address_take_turns() {
        rt::block_on(async {
            let handshakes = Handshakes::new(usize::MAX);
            let all: Vec<_> =
                (0..=AT_ONCE_MAX).map(|_| enter(&handshakes, "2001:db8::1").unwrap()).collect();
            let never = std::future::pending::<()>;
            let mut under_way: Vec<_> =
                all[..AT_ONCE_MAX].iter().map(|one| Box::pin(one.run(never()))).collect();
            for one in &mut under_way {
                assert!(one.now_or_never().is_none());
            }
            let mut waiting = Box::pin(all[AT_ONCE_MAX].run(async { 1 }));
            assert!(waiting.as_mut().now_or_never().is_none());
            let neighbour = enter(&handshakes, "2001:db8::2").unwrap();
            assert_eq!(neighbour.run(async { 2 }).now_or_never(), Some(Some(2)));
            // Those that take long do not keep it waiting for as long as they take.
            let long = rt::timeout(Duration::from_secs(60), futures::future::join_all(under_way));
            let Either::Right((came, _)) = select(pin!(long), &mut waiting).await else {
                panic!("it had to wait for the others")
            };
            assert_eq!(came, Some(1));
            drop(waiting);
            drop((all, neighbour));
            assert!(handshakes.turns.lock().is_empty());
        });
    }

    #[test]
    fn one_that_gives_way_ends() {
        rt::block_on(async {
            let handshakes = Handshakes::new(usize::MAX);
            let all: Vec<_> = std::iter::from_fn(|| enter(&handshakes, "10.0.0.1")).collect();
            assert_eq!(all.len(), HALF_OPEN_MAX);
            let mut first = pin!(all[0].run(std::future::pending::<()>()));
            assert!(first.as_mut().now_or_never().is_none());
            let other = enter(&handshakes, "10.0.0.2").unwrap();
            assert_eq!(first.await, None);
            assert_eq!(all[0].run(async {}).await, None);
            assert_eq!(other.run(async { 3 }).await, Some(3));
        });
    }
}
