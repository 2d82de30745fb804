//! Whether nodes ever stop talking. Nodes that answer each other without getting anywhere would keep a
//! processor of each busy for ever. Where messages take no time, the virtual clock then stands still
//! ([`Moment`]); where they take some, the nodes talk on when nothing changes any more ([`Talk`]).

use crate::model::ids::Millis;

/// Most messages that may arrive while the virtual clock stands still, for each node that there is. The
/// busiest moment of 40,000 runs of small networks had 533, that of 1,200 runs of whole ones 20,049 (a
/// catch-up of thousands of entries, each in a message of its own, at several nodes).
const MOMENT_MESSAGES_MAX: u64 = 20_000;
/// So many of the last ones are told.
const TOLD: u64 = 6;
/// Most messages that may come over one link, one way, in a second in which nothing changes: digests,
/// elections and rounds that are blocked took 27 at most in the same runs, while two nodes that answer
/// each other at once would need hundreds.
const CALM_MESSAGES_MAX: u64 = 100;

/// The present moment of the virtual clock.
#[derive(Default)]
pub(crate) struct Moment {
    at: Millis,
    messages: u64,
    last: Vec<String>,
}

impl Moment {
    /// Counts a message in a network of so many nodes; gives back what is wrong if the moment has no end.
    /// Describes only the last messages before that.
    pub(crate) fn note(
        &mut self,
        now: Millis,
        nodes: usize,
        describe: impl FnOnce() -> String,
    ) -> Option<String> {
        let max = MOMENT_MESSAGES_MAX * nodes as u64;
        if self.at != now {
            *self = Self { at: now, ..Self::default() };
        }
        self.messages += 1;
        if self.messages + TOLD > max {
            self.last.push(describe());
        }
        (self.messages >= max)
            .then(|| format!("{} messages; the last: {}", self.messages, self.last.join("; ")))
    }

    /// How many messages arrived in the present moment.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }
}

/// What has arrived over one link, one way, since something last changed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Talk {
    since: Millis,
    messages: u64,
}

impl Talk {
    /// Counts a message. `since`: when something last changed.
    pub(crate) fn note(&mut self, since: Millis) {
        if self.since != since {
            *self = Self { since, messages: 0 };
        }
        self.messages += 1;
    }

    /// How many messages came per second, on average, since nothing changes any more.
    pub(crate) fn per_second(&self, since: Millis, now: Millis) -> u64 {
        let messages = if self.since == since { self.messages } else { 0 };
        messages * 1_000 / now.saturating_sub(since).max(1)
    }

    /// Whether that is so much that it has no end.
    pub(super) fn is_endless(per_second: u64) -> bool {
        per_second > CALM_MESSAGES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_without_an_end_is_noticed_and_told() {
        let mut moment = Moment::default();
        let mut wrong = Vec::new();
        for number in 1..=2 * MOMENT_MESSAGES_MAX {
            wrong.extend(moment.note(7, 2, || format!("m{number}")));
        }
        let [told] = wrong.as_slice() else { panic!("{wrong:?}") };
        assert!(told.starts_with("40000 messages") && told.ends_with("m39999; m40000"), "{told}");
        assert_eq!(moment.note(8, 2, String::new), None, "the clock goes on");
        assert_eq!(moment.messages(), 1);
    }

    #[test]
    fn what_is_said_when_nothing_changes_is_counted_from_then_on() {
        let mut talk = Talk::default();
        (0..50).for_each(|_| talk.note(1_000));
        (0..2_020).for_each(|_| talk.note(2_000));
        assert_eq!(talk.per_second(2_000, 22_000), CALM_MESSAGES_MAX + 1);
        assert!(Talk::is_endless(CALM_MESSAGES_MAX + 1) && !Talk::is_endless(CALM_MESSAGES_MAX));
        assert_eq!(talk.per_second(9_000, 22_000), 0, "something has changed since");
    }
}
