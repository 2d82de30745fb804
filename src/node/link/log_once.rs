//! Keeps repeated complaints out of the log: a refused peer tries again for ever.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::model::ids::Millis;

/// A complaint is repeated in the log after this time.
pub(super) const REPEAT_AFTER_MS: Millis = 600_000;
/// Most complaints that are remembered; with more of them, the oldest is forgotten and may
/// appear again.
const COMPLAINTS_MAX: usize = 256;
/// Most complaints that are let through within [`CROWD_MS`]: a crowd of senders must not fill
/// the disk.
const CROWD_MAX: u32 = 64;
const CROWD_MS: Millis = 10_000;

/// The complaint, and its time.
#[derive(Default)]
pub(super) struct LogOnce {
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    when: BTreeMap<(String, String), Millis>,
    crowd_since: Millis,
    crowd: u32,
}

impl LogOnce {
    /// Whether this is news: the reason (a fixed word) was not given for this peer of late.
    pub(super) fn is_news(&self, who: &str, reason: &str, now: Millis) -> bool {
        let mut said = self.said.lock();
        let key = (who.to_owned(), reason.to_owned());
        let known = said.when.get(&key).copied();
        if known.is_some_and(|at| now.saturating_sub(at) < REPEAT_AFTER_MS) {
            return false;
        }
        if now.saturating_sub(said.crowd_since) >= CROWD_MS {
            said.crowd_since = now;
            said.crowd = 0;
        }
        said.crowd += 1;
        if said.crowd > CROWD_MAX {
            return false;
        }
        if said.when.len() >= COMPLAINTS_MAX
            && let Some(oldest) =
                said.when.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone())
        {
            said.when.remove(&oldest);
        }
        said.when.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_news_once_per_peer_and_reason() {
        let log = LogOnce::default();
        assert!(log.is_news("a", "network", 0));
        assert!(!log.is_news("a", "network", REPEAT_AFTER_MS - 1));
        assert!(log.is_news("a", "version", 0));
        assert!(log.is_news("b", "network", 0));
        assert!(log.is_news("a", "network", REPEAT_AFTER_MS));
    }

    #[test]
    fn a_crowd_of_senders_fills_neither_log_nor_memory() {
        let log = LogOnce::default();
        let news = (0..10_000).filter(|n| log.is_news(&n.to_string(), "x", 5)).count();
        assert_eq!(news, CROWD_MAX as usize);
        for n in 0..10_000 {
            log.is_news(&n.to_string(), "x", n * CROWD_MS);
        }
        assert!(log.said.lock().when.len() <= COMPLAINTS_MAX);
    }
}
