//! Which strangers (nodes of other networks or versions) were reported and answered of late.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::model::ids::Millis;

/// A stranger is reported and answered once in this time.
const STRANGER_PERIOD_MS: Millis = 60_000;
/// Most strangers remembered. More than that within one period are only counted: forged
/// senders must not turn into answers and log lines without end.
const STRANGERS_MAX: usize = 64;

/// When each was reported last.
#[derive(Debug, Default)]
pub(in crate::membership) struct Strangers {
    reported: BTreeMap<SocketAddr, Millis>,
}

impl Strangers {
    /// Whether to report and answer this one now; if so, it is remembered.
    pub(in crate::membership) fn is_news(&mut self, from: SocketAddr, now: Millis) -> bool {
        self.reported.retain(|_, at| now.saturating_sub(*at) < STRANGER_PERIOD_MS);
        let is_news = !self.reported.contains_key(&from) && self.reported.len() < STRANGERS_MAX;
        if is_news {
            self.reported.insert(from, now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_is_news_once_per_period_and_not_all_of_a_crowd_is() {
        let addr = |n: u16| SocketAddr::from(([10, 0, 0, 1], n));
        let mut strangers = Strangers::default();
        assert!(strangers.is_news(addr(1), 0));
        assert!(!strangers.is_news(addr(1), STRANGER_PERIOD_MS - 1));
        assert!(strangers.is_news(addr(1), STRANGER_PERIOD_MS));
        let news = (2..1000).filter(|n| strangers.is_news(addr(*n), STRANGER_PERIOD_MS)).count();
        assert_eq!(news, STRANGERS_MAX - 1);
    }
}
