//! For how long clients that have not logged in go on where logins are switched on with a grace. Its end is a time of the
//! wall clock, which can be set back: a grace that is over at this node stays over, and one that has begun lasts no longer
//! than it would have by a clock that nobody sets. Otherwise whoever can set the clock of a node, or a machine that wakes
//! up with an old one, would open it again to everybody.
//!
//! What one node knows ends with it. So the end is taken out of the data when it is over: by the node that granted the
//! grace, whose clock it goes by, or by any other one that has seen it end, an hour later. All give this write the same
//! id, so that it is one, whoever made it.

use std::time::Duration;

use distkv_access::users::Directory;
use distkv_model::meta::{AUTH_PATH, grace_end, without_grace};
use parking_lot::Mutex;

use crate::engine::Engine;
use crate::model::ids::Millis;
use crate::model::invariant::OrBroken;
use crate::model::path::Path;
use crate::model::write_id::WriteId;
use crate::replica::write::{ChainCondition, Precondition, Write};
use crate::rt;
use crate::server::{Shared, change_time};

/// How long after its end another node than the one that granted it takes it out of the data: its clock may be ahead.
const OTHERS_WAIT_MS: Millis = 3_600_000;

/// See the module.
#[derive(Default)]
pub(super) struct Grace {
    /// The last one that was looked at. Another end is another grace, which somebody has granted.
    seen: Mutex<Option<Seen>>,
}

struct Seen {
    /// Its end by the wall clock, ms since 1970.
    end_ms: u64,
    /// Its end by the clock that nobody sets; it only becomes earlier.
    until: Millis,
    /// It was not over when it was first looked at.
    was_granted: bool,
}

/// The two clocks, at one moment.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    /// Milliseconds since 1970.
    pub(super) wall_ms: u64,
    /// Of the clock that nobody sets.
    pub(super) now: Millis,
}

impl Grace {
    /// What is left of a grace that ends at `end_ms`, in ms; none if it is over. `by_wall`: what is left by the wall clock,
    /// if that is a grace: it may be too long for one.
    pub(super) fn left(&self, end_ms: u64, by_wall: Option<u64>, at: Clocks) -> Option<Millis> {
        let mut seen = self.seen.lock();
        let until = match by_wall {
            Some(left) => at.now.saturating_add(left),
            None if at.wall_ms >= end_ms => at.now,
            // The clock is far behind. It may be set right soon, and then there may be a grace.
            None => return None,
        };
        let first = Seen { end_ms, until, was_granted: by_wall.is_some() };
        let before = seen.take().filter(|seen| seen.end_ms == end_ms).unwrap_or(first);
        let until = before.until.min(until);
        *seen = Some(Seen { until, ..before });
        until.checked_sub(at.now).filter(|left| *left > 0)
    }

    /// Since when this one is over, if it is and this node has seen it end.
    fn ended(&self, end_ms: u64, now: Millis) -> Option<Millis> {
        let seen = self.seen.lock();
        let seen = seen.as_ref().filter(|seen| seen.end_ms == end_ms && seen.was_granted)?;
        Some(seen.until).filter(|until| *until <= now)
    }

    /// Takes the end of a grace that is over out of the data, if it is this node's turn. Returns when it will be, in ms.
    pub(super) fn settle(&self, shared: &Shared, directory: &Directory) -> Option<Duration> {
        let end_ms = directory.grace_end()?;
        let now = rt::now();
        let ended = self.ended(end_ms, now)?;
        let path = Path::from_canonical(AUTH_PATH).or_broken("it is a path");
        let look = |engine: &Engine| {
            let entry = engine.get(AUTH_PATH).filter(|_| engine.is_ready())?;
            let value = entry.value().filter(|value| grace_end(value) == Some(end_ms))?;
            let event = entry.newest();
            Some((
                without_grace(value)?,
                event,
                engine.table().id(event.node).clone(),
                engine.id().clone(),
            ))
        };
        let (value, event, maker, own) = shared.hub.read(look)?;
        let due = ended.saturating_add(if maker == own { 0 } else { OTHERS_WAIT_MS });
        if let Some(left) = due.checked_sub(now).filter(|left| *left > 0) {
            return Some(Duration::from_millis(left));
        }
        let mut id = [0; WriteId::BYTES];
        let parts = [maker.incarnation.0.to_be_bytes(), event.tick.get().to_be_bytes()];
        id.iter_mut().zip(parts.as_flattened()).for_each(|(to, from)| *to = *from);
        let precondition = Precondition::chain(ChainCondition::Newest(event));
        let write = Write {
            precondition,
            write_id: Some(WriteId(id)),
            time: change_time(),
            ..Write::new(&path, Some(&value))
        };
        match shared.hub.write(write, false).0 {
            Ok(_) => tracing::info!(
                "the time in which clients without a login were served is over for the whole network"
            ),
            Err(error) => {
                tracing::warn!(%error, "that logins are asked for without a grace from now on could not be recorded")
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END_MS: u64 = 1_800_000_000_000;

    /// What is left so long before the end by the wall clock, and at this time of the other one.
    fn left(grace: &Grace, before_end_ms: i64, now: Millis) -> Option<Millis> {
        let wall_ms = END_MS.checked_add_signed(-before_end_ms).unwrap();
        let by_wall = END_MS.checked_sub(wall_ms).filter(|left| (1..=100_000).contains(left));
        grace.left(END_MS, by_wall, Clocks { wall_ms, now })
    }

    #[test]
    fn it_ends_when_the_wall_clock_says_so_and_stays_over_when_that_is_set_back() {
        let grace = Grace::default();
        assert_eq!(left(&grace, 5_000, 70), Some(5_000));
        assert_eq!(left(&grace, 1, 5_069), Some(1));
        assert_eq!(left(&grace, 0, 5_070), None);
        assert_eq!(left(&grace, 50_000, 5_071), None);
        // A clock that was ahead has ended it, too.
        let grace = Grace::default();
        assert_eq!(left(&grace, 5_000, 70), Some(5_000));
        assert_eq!(left(&grace, -1_000_000, 71), None);
        assert_eq!(left(&grace, 5_000, 72), None);
    }

    #[test]
    fn a_clock_that_is_set_back_meanwhile_makes_it_no_longer() {
        let grace = Grace::default();
        assert_eq!(left(&grace, 5_000, 100), Some(5_000));
        assert_eq!(left(&grace, 9_000, 1_100), Some(4_000));
        // Too far back for a grace: nobody is let in, and it goes on when the clock is right again.
        assert_eq!(left(&grace, 1_000_000, 1_200), None);
        assert_eq!(left(&grace, 5_000, 1_300), Some(3_800));
        assert_eq!(left(&grace, 5_000, 5_100), None);
    }

    #[test]
    fn another_one_begins_anew() {
        let grace = Grace::default();
        assert_eq!(left(&grace, 0, 100), None);
        let at = Clocks { wall_ms: END_MS, now: 200 };
        assert_eq!(grace.left(END_MS + 3_000, Some(3_000), at), Some(3_000));
    }
}
