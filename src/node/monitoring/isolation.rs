//! Since when a node has been linked to no other, although there are others: what was decided elsewhere since then,
//! such as that a user is none any more, it cannot know.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::ids::Millis;

/// See the module.
#[derive(Default)]
pub(in crate::node) struct Isolation {
    /// 0: it is not alone; else 1 ms more than the time.
    since: AtomicU64,
}

impl Isolation {
    /// To be called about every second. `is_alone`: there are others, and no link to any of them.
    pub(in crate::node) fn look(&self, is_alone: bool, now: Millis) {
        if !is_alone {
            self.since.store(0, Ordering::Relaxed);
        } else if self.since.load(Ordering::Relaxed) == 0 {
            self.since.store(now.saturating_add(1), Ordering::Relaxed);
        }
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
        assert_eq!(isolation.lasted_ms(5_000), None);
        isolation.look(true, 0);
        isolation.look(true, 1_000);
        assert_eq!(isolation.lasted_ms(1_500), Some(1_500));
        isolation.look(false, 2_000);
        assert_eq!(isolation.lasted_ms(2_500), None);
        isolation.look(true, 3_000);
        assert_eq!(isolation.lasted_ms(3_500), Some(500));
    }
}
