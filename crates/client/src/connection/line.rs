//! A slow line: what has to be sent before a node can answer, and an answer that is still arriving, are not the node's silence
//! (docs/client-behaviour.md, "Slow lines").

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::model::ids::Millis;
use crate::retry::deviations::{Rule, is_broken};
use crate::rt;
use crate::splitter::MESSAGE_BYTES_MAX;

/// So many bytes a line carries in a second, at least. Whoever has a slower one gives each try more time.
const LINE_BYTES_PER_S: u64 = 500_000;
/// A message of which nothing has come for so long is not arriving any more, milliseconds.
const ARRIVING_MS: u64 = 1_000;
/// How long a message can take to arrive over such a line: none is longer than [`MESSAGE_BYTES_MAX`].
const LONGEST_ARRIVAL: Duration =
    Duration::from_secs(MESSAGE_BYTES_MAX as u64 / LINE_BYTES_PER_S + 1);
/// How often it is looked whether one is.
const GLANCE: Duration = Duration::from_millis(100);

/// How long so many bytes may take to get to a node.
pub(crate) fn sending(bytes: usize) -> Duration {
    if is_broken(Rule::SlowLine) {
        return Duration::ZERO;
    }
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    Duration::from_micros(bytes.saturating_mul(1_000_000) / LINE_BYTES_PER_S)
}

/// Whether a part of a message has come whose rest is still to come.
#[derive(Debug, Default)]
pub(super) struct Arrival {
    /// When the last bytes of it have come; 0: there is none.
    at: AtomicU64,
}

impl Arrival {
    /// Bytes have come. `is_part`: with those before, they are not whole messages.
    pub(super) fn note(&self, is_part: bool) {
        let at = if is_part { rt::now().max(1) } else { 0 };
        self.at.store(at, Ordering::Relaxed);
    }

    /// Whether the rest of a message is coming.
    pub(super) fn goes_on(&self) -> bool {
        is_recent(self.at.load(Ordering::Relaxed), rt::now()) && !is_broken(Rule::Arriving)
    }
}

fn is_recent(at: Millis, now: Millis) -> bool {
    at > 0 && now.saturating_sub(at) < ARRIVING_MS
}

/// Waits so long for an answer; longer while a message is arriving, which may be this one, or another that comes first: but no
/// longer than `longest`.
pub(super) async fn while_arriving<T>(
    arrival: &Arrival,
    patience: Duration,
    longest: Duration,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let mut answer = pin!(answer);
    let mut waited = Duration::ZERO;
    let mut time = patience.min(longest);
    loop {
        if let Some(answer) = rt::timeout(time, answer.as_mut()).await {
            return Some(answer);
        }
        waited = waited.saturating_add(time);
        time = longest.saturating_sub(waited).min(GLANCE);
        if time.is_zero() || !arrival.goes_on() {
            return None;
        }
    }
}

/// The same where nothing else bounds it: as long as the longest message takes to arrive.
pub(super) async fn while_any_arrives<T>(
    arrival: &Arrival,
    patience: Duration,
    answer: impl Future<Output = T>,
) -> Option<T> {
    while_arriving(arrival, patience, patience.saturating_add(LONGEST_ARRIVAL), answer).await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn a_megabyte_takes_two_seconds_on_the_slowest_line() {
        assert_eq!(sending(0), Duration::ZERO);
        assert_eq!(sending(1_000_000), Duration::from_secs(2));
        assert!(sending(usize::MAX) > Duration::from_secs(1 << 24), "it does not wrap");
    }

    #[test]
    fn a_message_arrives_as_long_as_some_of_it_comes() {
        assert!(!is_recent(0, 5));
        assert!(is_recent(1, 1_000));
        assert!(!is_recent(1, 1_001));
        let arrival = Arrival::default();
        assert!(!arrival.goes_on());
        arrival.note(true);
        assert!(arrival.goes_on());
        arrival.note(false);
        assert!(!arrival.goes_on());
    }

    #[test]
    fn an_answer_is_waited_for_while_a_message_arrives_and_no_longer_than_may_be() {
        let arrival = Arrival::default();
        let wait = |patience_ms, longest_ms| {
            let (patience, longest) =
                (Duration::from_millis(patience_ms), Duration::from_millis(longest_ms));
            let began = rt::now();
            let answer = rt::block_on(while_arriving(&arrival, patience, longest, pending::<()>()));
            assert_eq!(answer, None);
            rt::now() - began
        };
        assert!(wait(5, 60_000) < 5_000);
        arrival.note(true);
        assert!(wait(0, 300) >= 300);
        // What it was noted for is over by itself.
        assert!(wait(0, 60_000) < 30_000);
        let done = while_arriving(&arrival, Duration::ZERO, Duration::ZERO, ready(7));
        assert_eq!(rt::block_on(done), Some(7));
    }
}
