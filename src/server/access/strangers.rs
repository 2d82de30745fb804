//! Connections whose clients have not logged in yet, where they must: how many, and for how long.
//!
//! Each is allowed little, so that whoever cannot log in cannot keep others from doing so for long.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::ids::Millis;

/// Most connections at once that have not logged in.
pub(crate) const STRANGERS_MAX: usize = 512;
/// Most of them from one address.
pub const STRANGERS_PER_ADDRESS_MAX: usize = 32;
/// How long a client may take to log in, in ms.
pub const LOGIN_MS_MAX: Millis = 10_000;
/// Most bytes that a client may send before it has logged in.
pub const STRANGER_BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Default)]
pub(in crate::server) struct Strangers(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    all: usize,
    /// Invariant: none is 0, and `all` is their sum.
    by_address: HashMap<IpAddr, usize>,
}

impl Strangers {
    /// A place for a client from this address, for as long as it is kept; none if there are too many.
    pub(in crate::server) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut counts = self.0.lock();
        if counts.all >= STRANGERS_MAX {
            return None;
        }
        let count = counts.by_address.entry(address).or_default();
        if *count >= STRANGERS_PER_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        counts.all += 1;
        drop(counts);
        Some(Place { strangers: Arc::clone(self), address })
    }
}

/// One connection's place.
pub(in crate::server) struct Place {
    strangers: Arc<Strangers>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.strangers.0.lock();
        counts.all = counts.all.saturating_sub(1);
        if let Some(count) = counts.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: usize) -> IpAddr {
        IpAddr::from(u32::try_from(n).unwrap().to_be_bytes())
    }

    #[test]
    fn one_address_has_few_places_and_all_together_have_a_bound() {
        let strangers = Arc::new(Strangers::default());
        let mut places = Vec::new();
        for n in 0..STRANGERS_MAX / STRANGERS_PER_ADDRESS_MAX {
            for _ in 0..STRANGERS_PER_ADDRESS_MAX {
                places.push(strangers.admit(address(n)).unwrap());
            }
            assert!(strangers.admit(address(n)).is_none());
        }
        assert_eq!(places.len(), STRANGERS_MAX);
        assert!(strangers.admit(address(99)).is_none());
        places.pop();
        let mapped: IpAddr = "::ffff:0.0.0.99".parse().unwrap();
        places.push(strangers.admit(mapped).unwrap());
        drop(places);
        assert_eq!(strangers.0.lock().by_address.len(), 0);
        assert_eq!(strangers.0.lock().all, 0);
    }
}
