//! Watches whether the entries have reached the memory limit, and logs it: at once, repeatedly
//! while it lasts, and when it is over. Changes of other nodes are accepted beyond the limit
//! (refusing them would be divergence), so it would otherwise go unnoticed.

use crate::engine::MemoryExcess;
use crate::model::ids::Millis;

/// The warning is repeated this often.
const WARN_AGAIN_MS: Millis = 600_000;
/// Around the limit, a line is written at most this often.
const QUIET_MS: Millis = 10_000;

/// See the module.
#[derive(Default)]
pub(in crate::node) struct MemoryWatch {
    is_over: bool,
    warned_at: Option<Millis>,
}

impl MemoryWatch {
    /// To be called about every second.
    pub(in crate::node) fn look(&mut self, excess: Option<MemoryExcess>, now: Millis) {
        match self.notice(excess.is_some(), now) {
            Some(true) => tracing::warn!("{}", excess.map(MemoryExcess::text).unwrap_or_default()),
            Some(false) => tracing::info!("entries are below --max-memory again"),
            None => {}
        }
    }

    /// True if it is time for a warning, false if it is over.
    fn notice(&mut self, is_exceeded: bool, now: Millis) -> Option<bool> {
        let since = self.warned_at.map(|at| now.saturating_sub(at));
        let is_due = match (is_exceeded, self.is_over) {
            (true, true) => since.is_none_or(|since| since >= WARN_AGAIN_MS),
            (true, false) | (false, true) => since.is_none_or(|since| since >= QUIET_MS),
            (false, false) => false,
        };
        if !is_due {
            return None;
        }
        self.is_over = is_exceeded;
        self.warned_at = Some(now);
        Some(is_exceeded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_warns_at_once_and_every_ten_minutes_and_says_when_it_is_over() {
        let mut watch = MemoryWatch::default();
        let said: Vec<(u64, bool)> = (0..2_000)
            .filter_map(|s| watch.notice((5..1_300).contains(&s), s * 1_000).map(|n| (s, n)))
            .collect();
        assert_eq!(said, [(5, true), (605, true), (1_205, true), (1_300, false)]);
    }

    #[test]
    fn who_goes_to_and_fro_around_the_limit_does_not_fill_the_log() {
        let mut watch = MemoryWatch::default();
        let said = (0..1_000).filter_map(|s| watch.notice(s % 2 == 0, s * 1_000)).count();
        assert!(said <= 100, "{said} lines");
    }
}
