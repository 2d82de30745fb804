//! Which writes their clients do not wait for any more, so that one that comes late, from the buffer of a connection that its
//! client has left, say, is not put on top of what that client has written since.

use std::collections::{HashMap, VecDeque};

use ahash::RandomState;

use crate::model::invariant::invariant;
use crate::model::write_id::WritePlace;

/// Most clients of which that is known; who was met first goes first, and is known again with its next write. About 2 MiB.
pub(crate) const WRITERS_MAX: usize = 1 << 16;

/// What the ids of writes have told of their clients ([`WritePlace`]).
pub(in crate::replica) struct GivenUp {
    /// By client: the least number of a write for which it may wait.
    settled: HashMap<u64, u32, RandomState>,
    /// Oldest first. Invariant: the same clients as `settled` has, at most [`WRITERS_MAX`].
    order: VecDeque<u64>,
}

impl GivenUp {
    /// Nothing is known yet.
    pub(in crate::replica) fn new(hasher: RandomState) -> Self {
        Self { settled: HashMap::with_hasher(hasher), order: VecDeque::new() }
    }

    /// A write is met, here or elsewhere, made or not. Whether its client does not wait for it any more.
    pub(in crate::replica) fn meet(&mut self, place: WritePlace) -> bool {
        if let Some(settled) = self.settled.get_mut(&place.client) {
            let is_given_up = place.number < *settled;
            *settled = place.settled.max(*settled);
            return is_given_up;
        }
        if self.order.len() >= WRITERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            let known = self.settled.remove(&oldest);
            invariant!(known.is_some(), "a client in order is one that is known");
        }
        self.order.push_back(place.client);
        self.settled.insert(place.client, place.settled);
        invariant!(
            self.order.len() == self.settled.len(),
            "the clients in order are those that are known"
        );
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(client: u64, number: u32, settled: u32) -> WritePlace {
        WritePlace { client, number, settled }
    }

    #[test]
    fn what_a_client_has_settled_is_given_up_however_its_writes_come() {
        let mut given_up = GivenUp::new(RandomState::with_seed(1));
        assert!(!given_up.meet(place(1, 0, 0)));
        // Three and four are waited for at once, and come in another order.
        assert!(!given_up.meet(place(1, 4, 3)));
        assert!(!given_up.meet(place(1, 3, 2)), "it is waited for");
        assert!(given_up.meet(place(1, 2, 0)));
        assert!(given_up.meet(place(1, 2, 0)), "still");
        assert!(!given_up.meet(place(2, 2, 0)), "that of another client");
    }

    #[test]
    fn the_clients_that_were_met_first_are_forgotten_first() {
        let mut given_up = GivenUp::new(RandomState::with_seed(1));
        for client in 0..=WRITERS_MAX as u64 {
            given_up.meet(place(client, 9, 9));
        }
        assert_eq!((given_up.settled.len(), given_up.order.len()), (WRITERS_MAX, WRITERS_MAX));
        assert!(given_up.meet(place(1, 1, 1)));
        assert!(!given_up.meet(place(0, 1, 1)), "it is forgotten");
        given_up.meet(place(0, 10, 10));
        assert!(given_up.meet(place(0, 1, 1)), "it is known again");
    }
}
