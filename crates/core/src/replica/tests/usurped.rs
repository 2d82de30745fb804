//! No event twice: by whatever way a node hears of a tick of its own life that it never used, it
//! makes no event until it has a new identity.

use super::*;

fn own_ticks(replica: &Replica, ticks: u64) -> Seen {
    let mut seen = Seen::new();
    for tick in 1..=ticks {
        seen.insert(Event { node: replica.own(), tick: Tick::new(tick).unwrap() });
    }
    seen
}

/// A node with two changes.
fn with_two() -> Replica {
    let mut a = node("a");
    write(&mut a, "k", Some(&[1]));
    write(&mut a, "k", Some(&[2]));
    a
}

#[test]
fn what_a_catch_up_ends_with_may_tell_it() {
    for (ticks, is_usurped) in [(2, false), (3, true)] {
        let mut a = with_two();
        let seen = own_ticks(&a, ticks);
        a.take_knowledge(&Knowledge { seen, mark: Mark::default(), tock: Tock::default() });
        assert_eq!((a.is_usurped(), a.can_make_events()), (is_usurped, !is_usurped));
    }
}

#[test]
fn a_list_s_event_may_tell_it() {
    for (tick, is_usurped) in [(2, false), (3, true)] {
        let mut a = with_two();
        let event = Event { node: a.own(), tick: Tick::new(tick).unwrap() };
        a.account_for(event);
        assert_eq!((a.is_usurped(), a.can_make_events()), (is_usurped, !is_usurped));
    }
}
