//! Warnings that may come thousands of times per second: one line now and then, with a count.

use parking_lot::Mutex;

use crate::model::ids::Millis;

/// A line is written this often at most.
const INTERVAL_MS: Millis = 10_000;

/// See the module.
#[derive(Default)]
pub(in crate::server) struct Tally {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    told_at: Option<Millis>,
    count: u64,
}

impl Tally {
    /// Counts one; if a line is due, returns how many there were since the last one.
    #[must_use]
    pub(in crate::server) fn note(&self, now: Millis) -> Option<u64> {
        self.state.lock().count += 1;
        self.due(now)
    }

    /// Returns how many there were since the last line, if there were any and one is due.
    #[must_use]
    pub(in crate::server) fn due(&self, now: Millis) -> Option<u64> {
        let mut state = self.state.lock();
        let is_early = state.told_at.is_some_and(|at| now.saturating_sub(at) < INTERVAL_MS);
        if is_early || state.count == 0 {
            return None;
        }
        state.told_at = Some(now);
        Some(std::mem::take(&mut state.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_now_and_then_and_none_is_lost() {
        let tally = Tally::default();
        let told: Vec<u64> = (0..25_000).filter_map(|now| tally.note(now)).collect();
        assert_eq!(told, [1, 10_000, 10_000]);
        assert_eq!(tally.due(29_999), None);
        assert_eq!(tally.due(30_000), Some(4_999));
        assert_eq!(tally.due(99_000), None, "there were none");
    }
}
