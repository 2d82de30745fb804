//! Since when a node has been linked to no other, although there are others: what was decided elsewhere since then,
//! such as that a user is none any more, it cannot know.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::model::ids::Millis;

/// See the module.
#[derive(Default)]
pub(in crate::node) struct Isolation {
    /// 0: it is not alone; else 1 ms more than the time.
    since: AtomicU64,
    /// It was linked, and had nothing to catch up with, when it was looked last.
    has_heard: AtomicBool,
}

impl Isolation {
    /// To be called about every second. `is_alone`: there are others, and no link to any of them. It ends not with a link, but
    /// when what has happened meanwhile has come: twice in a row there is a link, and nothing to catch up with. What
    /// there is to catch up with is known a moment after the link.
    pub(in crate::node) fn look(
        &self,
        is_alone: bool,
        is_behind: impl FnOnce() -> bool,
        now: Millis,
    ) {
        let was_alone = self.since.load(Ordering::Relaxed) != 0;
        if is_alone && !was_alone {
            self.since.store(now.saturating_add(1), Ordering::Relaxed);
            self.has_heard.store(false, Ordering::Relaxed);
        }
        if !was_alone {
            return;
        }
        let hears = !is_alone && !is_behind();
        if hears && self.has_heard.load(Ordering::Relaxed) {
            self.since.store(0, Ordering::Relaxed);
        }
        self.has_heard.store(hears, Ordering::Relaxed);
    }

    /// For how long it has been alone, if it is.
    pub(in crate::node) fn lasted_ms(&self, now: Millis) -> Option<Millis> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        Some(now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_alone_is_counted_from_its_beginning_and_anew_after_each_link() {
        let isolation = Isolation::default();
        let look = |is_alone, now| isolation.look(is_alone, || false, now);
        assert_eq!(isolation.lasted_ms(5_000), None);
        look(true, 0);
        look(true, 1_000);
        assert_eq!(isolation.lasted_ms(1_500), Some(1_500));
        look(false, 2_000);
        look(false, 3_000);
        assert_eq!(isolation.lasted_ms(3_500), None);
        look(true, 4_000);
        assert_eq!(isolation.lasted_ms(4_500), Some(500));
    }

    #[test]
    fn who_was_alone_is_so_until_it_has_caught_up() {
        let isolation = Isolation::default();
        isolation.look(true, || false, 0);
        for now in [1_000, 2_000, 3_000] {
            isolation.look(false, || true, now);
            assert_eq!(isolation.lasted_ms(now), Some(now));
        }
        // It has only just been linked, or has caught up with one peer.
        isolation.look(false, || false, 4_000);
        assert_eq!(isolation.lasted_ms(4_000), Some(4_000));
        isolation.look(false, || true, 5_000);
        isolation.look(false, || false, 6_000);
        assert_eq!(isolation.lasted_ms(6_000), Some(6_000));
        isolation.look(false, || false, 7_000);
        assert_eq!(isolation.lasted_ms(7_000), None);
    }
}
