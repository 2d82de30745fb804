//! The ids of this client's writes. Each says the write's place among the client's, and for which older ones the client still
//! waits (docs/client-protocol.md, "A client's own order"): so a node refuses a write that comes late, from a buffer that
//! nobody could empty in time, instead of making it on top of what the client has written since.
//!
//! What the client waits for is known by generations, each with a count, and not write by write: a generation ends when a
//! call begins and nothing of the one before it is waited for any more. So what an id says may be less than the truth, never more.

use parking_lot::Mutex;

use super::options::WriteId;
use crate::model::write_id::WritePlace;
use crate::retry::deviations::{Rule, is_broken};
use crate::rt;

/// See the module.
#[derive(Debug)]
pub(in crate::smart) struct WritePlaces {
    state: Mutex<State>,
}

/// Calls that began at about the same time.
#[derive(Debug, Clone, Copy)]
struct Generation {
    /// The number of its first write.
    first: u32,
    /// Calls that have not ended.
    open: usize,
}

#[derive(Debug)]
struct State {
    client: u64,
    /// The number of the next write.
    next: u32,
    /// Of the newer generation; the other one's is one less.
    generation: u64,
    older: Generation,
    newer: Generation,
}

/// A call that writes: until it is dropped, the client waits for its writes.
#[derive(Debug)]
pub(in crate::smart) struct Turn<'p> {
    places: &'p WritePlaces,
    generation: u64,
    /// Where its next write has its place.
    next: WritePlace,
}

impl State {
    /// As of a client that has written nothing.
    fn new(client: u64, generation: u64) -> Self {
        let none = Generation { first: 0, open: 0 };
        Self { client, next: 0, generation, older: none, newer: none }
    }
}

/// 56 bits that no other client has.
fn new_client() -> u64 {
    rt::random_u64() >> 8
}

impl WritePlaces {
    /// Those of a new client.
    pub(in crate::smart) fn new() -> Self {
        Self { state: Mutex::new(State::new(new_client(), 0)) }
    }

    /// A call begins that makes so many writes.
    pub(in crate::smart) fn begin(&self, writes: u32) -> Turn<'_> {
        let mut state = self.state.lock();
        if state.next.checked_add(writes).is_none() {
            // As another client: of the one before, nothing more will be said. Both generations are new.
            *state = State::new(new_client(), state.generation + 2);
        }
        if state.older.open == 0 {
            let next = Generation { first: state.next, open: 0 };
            state.older = std::mem::replace(&mut state.newer, next);
            state.generation += 1;
        }
        state.newer.open += 1;
        let oldest = if state.older.open == 0 { state.newer } else { state.older };
        let State { client, next: number, generation, .. } = *state;
        state.next += writes;
        let settled = if is_broken(Rule::GivenUp) { 0 } else { oldest.first };
        let next = WritePlace { client, number, settled };
        Turn { places: self, generation, next }
    }
}

impl Turn<'_> {
    /// The id of its next write.
    pub(in crate::smart) fn id(&mut self) -> WriteId {
        let place = self.next;
        self.next.number = place.number.saturating_add(1);
        WriteId(place.to_id().0)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.places.state.lock();
        let newer = state.generation;
        let of = match self.generation {
            generation if generation == newer => &mut state.newer,
            generation if generation + 1 == newer => &mut state.older,
            // Of a client that this was before its numbers were used up.
            _ => return,
        };
        of.open = of.open.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::write_id::WriteId as Bytes;

    fn place(turn: &mut Turn<'_>) -> WritePlace {
        WritePlace::of(Bytes(turn.id().0)).unwrap()
    }

    #[test]
    fn writes_one_after_the_other_settle_all_before_them() {
        let places = WritePlaces::new();
        let client = place(&mut places.begin(1)).client;
        for number in 1..10 {
            let expected = WritePlace { client, number, settled: number };
            assert_eq!(place(&mut places.begin(1)), expected);
        }
        assert_ne!(place(&mut WritePlaces::new().begin(1)).client, client);
    }

    #[test]
    fn the_writes_of_a_call_have_a_place_each_and_are_waited_for_together() {
        let places = WritePlaces::new();
        let (mut three, mut one) = (places.begin(3), places.begin(1));
        assert_eq!([(); 3].map(|()| place(&mut three).number), [0, 1, 2]);
        assert_eq!((place(&mut one).number, places.begin(1).next.settled), (3, 0));
        drop(three);
        assert_eq!(places.begin(1).next.settled, 3, "one is open");
    }

    #[test]
    fn nothing_is_settled_that_is_waited_for_and_all_is_in_the_end() {
        let places = WritePlaces::new();
        // Random, but each time the same: calls begin and end in any order.
        let (mut random, mut open) = (1_u64, Vec::<Turn<'_>>::new());
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if random >> 63 == 0 && open.len() < 20 {
                open.push(places.begin((random >> 32) as u32 % 4));
            } else if !open.is_empty() {
                drop(open.swap_remove((random >> 32) as usize % open.len()));
            }
            let oldest = open.iter().map(|turn| turn.next.number).min();
            let next = places.begin(1).next;
            let oldest = oldest.unwrap_or(next.number);
            assert!(next.settled <= oldest, "{next:?} while {oldest} is waited for");
        }
        open.clear();
        let last = places.begin(1).next;
        assert_eq!(last.settled, last.number);
    }

    #[test]
    fn one_slow_call_holds_back_what_is_settled_only_while_it_lasts() {
        let places = WritePlaces::new();
        let slow = places.begin(1);
        for _ in 0..10 {
            assert_eq!(places.begin(1).next.settled, slow.next.number);
        }
        drop(slow);
        let after = places.begin(1).next;
        assert_eq!(after.settled, after.number);
    }

    #[test]
    fn when_the_numbers_are_used_up_it_goes_on_as_another_client() {
        let places = WritePlaces::new();
        places.state.lock().next = u32::MAX - 1;
        let before = places.begin(1);
        let after = places.begin(1);
        assert_eq!((before.next.number, after.next.number), (u32::MAX - 1, 0));
        assert_ne!(before.next.client, after.next.client);
        // The call of before counts for nothing here.
        drop(before);
        assert_eq!(places.begin(1).next.settled, 0, "the other one is open");
    }
}
