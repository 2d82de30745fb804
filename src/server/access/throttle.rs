//! How logins with passwords are slowed down at a node ([`Guesses`]), and where they wait for each other.
//!
//! Of a user, and from an address, only as many secrets are looked at at once as may be wrong. One more is put aside by
//! its connection, without any lock, until one of them has ended; then its request comes again and is judged anew.
//! Whatever is looked at is told where it is computed, so it counts also if the client is gone by then.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use distkv_access::secret::Guesses;
use distkv_access::secret::guesses::{self, Begin, Outcome};
use event_listener::{Event, EventListener};
use parking_lot::Mutex;

use crate::model::ids::Millis;
use crate::rt;

/// Most logins of a node that wait for others to end.
pub(crate) const TRIES_WAITING_MAX: usize = 256;
/// How long one waits at most: less than [`LOGIN_MS_MAX`](super::strangers::LOGIN_MS_MAX), so that its client is told
/// so before its connection is closed.
pub(crate) const TRY_WAIT_MS_MAX: Millis = 8_000;

/// See the module.
#[derive(Default)]
pub(in crate::server) struct Throttle(Arc<State>);

#[derive(Default)]
struct State {
    guesses: Mutex<Guesses>,
    /// Fires whenever a try has ended.
    ended: Event,
    waiting: AtomicUsize,
}

/// What becomes of a login.
pub(in crate::server) enum Verdict {
    /// Its secret may be looked at.
    Begun(Try),
    /// Others must end first.
    Waits(Waiting),
    /// Too many have failed: it may come again after so many ms.
    Refused(Millis),
    /// Others must end first, and it has waited for long enough, or too many wait.
    Crowded,
}

impl Throttle {
    /// A login wants to have its secret looked at. `waited`: how it has waited already.
    pub(in crate::server) fn begin(
        &self,
        ident: &str,
        address: IpAddr,
        now: Millis,
        waited: Option<Waiting>,
    ) -> Verdict {
        let state = &self.0;
        let mut guesses = state.guesses.lock();
        match guesses.begin(ident, address, now) {
            Begin::Begun(begun) => {
                Verdict::Begun(Try { state: Arc::clone(state), begun: Some(begun) })
            }
            Begin::Refused(wait) => Verdict::Refused(wait),
            Begin::Waits => {
                let since = waited.as_ref().map_or(now, |waited| waited.since);
                let place = waited.map(|waited| waited.place).or_else(|| Place::take(state));
                match place.filter(|_| now < since + TRY_WAIT_MS_MAX) {
                    // Under the lock, so that no end is missed.
                    Some(place) => {
                        Verdict::Waits(Waiting { place, since, ended: state.ended.listen() })
                    }
                    None => Verdict::Crowded,
                }
            }
        }
    }
}

/// A login whose secret may be looked at. Dropped without having been told how that ended, it was not.
pub(in crate::server) struct Try {
    state: Arc<State>,
    begun: Option<guesses::Try>,
}

impl Try {
    /// What came of it.
    pub(in crate::server) fn end(mut self, outcome: Outcome) {
        self.settle(outcome);
    }

    fn settle(&mut self, outcome: Outcome) {
        if let Some(begun) = self.begun.take() {
            self.state.guesses.lock().end(begun, outcome, rt::now());
            self.state.ended.notify(usize::MAX);
        }
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        self.settle(Outcome::NotLookedAt);
    }
}

/// A login that waits for others to end.
pub(in crate::server) struct Waiting {
    place: Place,
    since: Millis,
    ended: EventListener,
}

impl Waiting {
    /// Fires when one has ended.
    pub(in crate::server) fn ended(&mut self) -> &mut EventListener {
        &mut self.ended
    }

    /// Until when it may wait.
    pub(in crate::server) fn deadline(&self) -> Millis {
        self.since + TRY_WAIT_MS_MAX
    }
}

/// A place among those that wait, until this is dropped.
struct Place(Arc<State>);

impl Place {
    fn take(state: &Arc<State>) -> Option<Self> {
        let place = Self(Arc::clone(state));
        // Dropped, it takes its count back.
        (state.waiting.fetch_add(1, Ordering::AcqRel) < TRIES_WAITING_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use distkv_access::secret::guesses::FREE;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn begin(throttle: &Throttle, now: Millis, waited: Option<Waiting>) -> Verdict {
        throttle.begin("joe", HERE, now, waited)
    }

    /// As many as may be looked at.
    fn begun(throttle: &Throttle) -> Vec<Try> {
        let next = || match begin(throttle, 0, None) {
            Verdict::Begun(begun) => Some(begun),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }

    fn waits(verdict: Verdict) -> Waiting {
        match verdict {
            Verdict::Waits(waiting) => waiting,
            _ => panic!("it does not wait"),
        }
    }

    #[test]
    fn one_that_waits_is_woken_by_each_end_and_judged_anew() {
        let throttle = Throttle::default();
        let mut tries = begun(&throttle);
        assert_eq!(tries.len(), FREE as usize);
        let mut waiting = waits(begin(&throttle, 0, None));
        drop(tries.pop());
        rt::block_on(waiting.ended());
        assert!(matches!(begin(&throttle, 0, Some(waiting)), Verdict::Begun(_)));
        assert_eq!(throttle.0.waiting.load(Ordering::Relaxed), 0);
        tries.extend(begun(&throttle));
        let mut waiting = waits(begin(&throttle, 0, None));
        tries.pop().unwrap().end(Outcome::Wrong);
        rt::block_on(waiting.ended());
        // The others may be wrong, too.
        waiting = waits(begin(&throttle, 0, Some(waiting)));
        tries.into_iter().for_each(|one| one.end(Outcome::Wrong));
        rt::block_on(waiting.ended());
        assert!(matches!(begin(&throttle, rt::now(), Some(waiting)), Verdict::Refused(_)));
        assert_eq!(throttle.0.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn as_many_wait_as_may_and_none_for_longer_than_it_may() {
        let throttle = Throttle::default();
        let _tries = begun(&throttle);
        let mut all: Vec<Waiting> =
            (0..TRIES_WAITING_MAX).map(|_| waits(begin(&throttle, 5, None))).collect();
        assert!(matches!(begin(&throttle, 5, None), Verdict::Crowded));
        // Who waits already keeps its place.
        let last = all.pop().unwrap();
        let last = waits(begin(&throttle, 4 + TRY_WAIT_MS_MAX, Some(last)));
        assert_eq!(last.deadline(), 5 + TRY_WAIT_MS_MAX);
        assert!(matches!(begin(&throttle, last.deadline(), Some(last)), Verdict::Crowded));
        all.push(waits(begin(&throttle, 6, None)));
        assert!(matches!(begin(&throttle, 6, None), Verdict::Crowded));
        drop(all);
        assert_eq!(throttle.0.waiting.load(Ordering::Relaxed), 0);
    }
}
