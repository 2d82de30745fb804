//! TLS handshakes that are under way: how many there may be, all in all and of one address. Those of an address that are too
//! many at once wait for their turn, because a machine with many clients connects all of them when a node comes back.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use async_lock::{Semaphore, SemaphoreGuardArc};
use parking_lot::Mutex;

/// Handshakes under way, and connections that wait for theirs.
const HALF_OPEN_MAX: usize = 512;
/// Of these, those of one address.
const OF_ONE_ADDRESS_MAX: usize = 256;
/// Of these, those that are under way.
const AT_ONCE_MAX: usize = 32;
/// An IPv6 address belongs to whoever has this many of its first bits.
const IPV6_BITS: u32 = 64;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::server) struct Handshakes(Arc<Mutex<HalfOpen>>);

#[derive(Debug, Default)]
struct HalfOpen {
    all: usize,
    /// Invariant: the counts add up to `all`, and none is 0.
    of: HashMap<IpAddr, Address>,
}

#[derive(Debug)]
struct Address {
    count: usize,
    turns: Arc<Semaphore>,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    half_open: Arc<Mutex<HalfOpen>>,
    address: IpAddr,
    turns: Arc<Semaphore>,
}

impl Handshakes {
    /// Counts one more; `None` if there are too many.
    pub(super) fn enter(&self, address: IpAddr) -> Option<Turn> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> IPV6_BITS << IPV6_BITS))
            }
            address @ IpAddr::V4(_) => address,
        };
        let mut half_open = self.0.lock();
        let count = half_open.of.get(&address).map_or(0, |of| of.count);
        if half_open.all >= HALF_OPEN_MAX || count >= OF_ONE_ADDRESS_MAX {
            return None;
        }
        half_open.all += 1;
        let of = half_open.of.entry(address);
        let of = of
            .or_insert_with(|| Address { count: 0, turns: Arc::new(Semaphore::new(AT_ONCE_MAX)) });
        of.count += 1;
        let turns = Arc::clone(&of.turns);
        drop(half_open);
        Some(Turn { half_open: Arc::clone(&self.0), address, turns })
    }
}

impl Turn {
    /// Waits until it is this one's turn, which lasts until the result is dropped.
    pub(super) async fn come(self) -> (SemaphoreGuardArc, Self) {
        (self.turns.acquire_arc().await, self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut half_open = self.half_open.lock();
        half_open.all = half_open.all.saturating_sub(1);
        if let Some(of) = half_open.of.get_mut(&self.address) {
            of.count = of.count.saturating_sub(1);
            if of.count == 0 {
                half_open.of.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_address_leaves_room_for_others_and_all_have_a_bound() {
        let handshakes = Handshakes::default();
        let one: Vec<Turn> = std::iter::from_fn(|| handshakes.enter(address("10.0.0.1"))).collect();
        assert_eq!(one.len(), OF_ONE_ADDRESS_MAX);
        let mut others = Vec::new();
        for low in 0..=u8::MAX {
            others.extend(handshakes.enter(IpAddr::from([10, 0, 1, low])));
        }
        assert_eq!(one.len() + others.len(), HALF_OPEN_MAX);
        assert!(handshakes.enter(address("10.9.0.1")).is_none());
        others.pop();
        assert!(handshakes.enter(address("10.9.0.1")).is_some());
        drop((one, others));
        assert!(handshakes.0.lock().of.is_empty());
        assert_eq!(handshakes.0.lock().all, 0);
    }

    #[test]
    fn those_of_an_address_take_turns() {
        let handshakes = Handshakes::default();
        let come = || handshakes.enter(address("2001:db8::1")).unwrap().come();
        let mut under_way: Vec<_> =
            (0..AT_ONCE_MAX).map(|_| come().now_or_never().unwrap()).collect();
        let mut waiting = std::pin::pin!(handshakes.enter(address("2001:db8::2")).unwrap().come());
        assert!(waiting.as_mut().now_or_never().is_none(), "a network of IPv6 counts as one");
        assert!(handshakes.enter(address("2001:db9::1")).unwrap().come().now_or_never().is_some());
        under_way.pop();
        assert!(waiting.now_or_never().is_some());
    }
}
