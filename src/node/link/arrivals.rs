//! Whether bytes keep coming on a link although no whole message does: on a slow line one message takes seconds or
//! minutes, and an answer to a question that stands behind it takes as long. Pure; time comes in.
//!
//! Only bytes of a message that is under way count, or of one that began in the same read: where messages come one
//! by one and whole, an answer would have come, too, so their bytes say nothing about the other direction. Each byte
//! earns its time at the least rate, so a link over which fewer come is not trusted. No more is earned than a
//! pause may last: as long as [`GAP_BYTES`] take at the rate seen, because one lost packet holds up all that the
//! line and its buffers contain behind it, and at most [`GAP_LONG_MS`]. So where a line is fast, a link that dies
//! in the middle of a message is found as soon as any other.

use crate::model::ids::Millis;

/// A link over which a message comes more slowly than this, in bytes per second, is in doubt. A line of 64 kbit/s
/// that eight links share gives each as much; and at this rate the longest message takes more than an hour.
pub(super) const RATE_LEAST: u64 = 1 << 10;
/// A pause may be as long as so many bytes take.
const GAP_BYTES: u64 = 128 << 10;
/// A pause of this length is nothing, however fast the line.
pub(super) const GAP_SHORT_MS: Millis = 1_000;
/// A longer pause than this is one too many, however slow the line. Packets that are lost twice come as late.
pub(super) const GAP_LONG_MS: Millis = 5_000;
/// What came before counts ever less: a line may become slower.
const WINDOW_MS: Millis = 10_000;
/// The peer is told this often that its bytes come, if they have for as long, because it may have no other sign:
/// what it wrote waits in its system, or on the way.
pub(super) const TELL_MS: Millis = 500;
/// The engine is told this often, if they have for as long.
const ENGINE_MS: Millis = 1_000;

/// One link's, in the direction to this node.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Since when bytes of messages under way have come without a whole one between them.
    since: Option<Millis>,
    /// How many, about.
    bytes: u64,
    /// So long the link is trusted.
    until: Millis,
    told: Millis,
    engine_told: Millis,
    /// What has come since the engine was told.
    passed: u64,
}

/// What a read means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct News {
    /// So long the link is trusted.
    pub(super) until: Millis,
    /// Whether the peer should know.
    pub(super) tell: bool,
    /// The engine should know that so many bytes have passed.
    pub(super) passed: Option<u64>,
}

impl Arrivals {
    /// So many bytes have come; `is_amid`: before or behind them a message is under way.
    pub(super) fn on_read(&mut self, count: usize, is_amid: bool, now: Millis) -> Option<News> {
        if !is_amid {
            (self.since, self.bytes, self.passed) = (None, 0, 0);
            return None;
        }
        let count = count as u64;
        let since = *self.since.get_or_insert(now);
        let lasted = now.saturating_sub(since);
        self.bytes = self.bytes.saturating_add(count);
        self.passed = self.passed.saturating_add(count);
        let gap = (GAP_BYTES * lasted / self.bytes.max(1)).clamp(GAP_SHORT_MS, GAP_LONG_MS);
        let earned = self.until.max(now) + count.saturating_mul(1_000) / RATE_LEAST;
        self.until = self.until.max(earned.min(now + gap));
        if lasted >= WINDOW_MS {
            self.since = Some(now.saturating_sub(lasted / 2));
            self.bytes /= 2;
        }
        let is_due = |told: Millis, every| lasted >= every && now.saturating_sub(told) >= every;
        let tell = is_due(self.told, TELL_MS);
        if tell {
            self.told = now;
        }
        let passed = is_due(self.engine_told, ENGINE_MS).then(|| std::mem::take(&mut self.passed));
        if passed.is_some() {
            self.engine_told = now;
        }
        Some(News { until: self.until, tell, passed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of so many bytes each, so far apart, for so long; until when the link is trusted then, seen from the
    /// last of them, and whether it was in doubt meanwhile.
    fn stream(read: usize, every: Millis, for_ms: Millis) -> (Millis, bool) {
        let (mut arrivals, mut until, mut was_doubted) = (Arrivals::default(), 0, false);
        let begin = 100_000;
        let mut last = begin;
        for now in (begin..=begin + for_ms).step_by(every as usize) {
            // The first bytes are awaited by nobody.
            was_doubted |= now > begin && now >= until;
            until = arrivals.on_read(read, true, now).unwrap().until;
            last = now;
        }
        (until.saturating_sub(last), was_doubted)
    }

    #[test]
    fn small_reads_of_a_long_message_are_trusted_down_to_the_least_rate() {
        for (read, every) in [(1_448, 4), (2_896, 45), (1_448, 180), (1_448, 900), (512, 400)] {
            let (_, was_doubted) = stream(read, every, 60_000);
            assert!(!was_doubted, "{read} bytes every {every} ms");
        }
        for (read, every) in [(1_448, 1_600), (512, 600), (64, 500), (1, 1_000)] {
            let (_, was_doubted) = stream(read, every, 60_000);
            assert!(was_doubted, "{read} bytes every {every} ms");
        }
    }

    #[test]
    fn a_pause_may_be_the_longer_the_slower_the_line_is() {
        // 100 Mbit/s, 3 Mbit/s, 512 kbit/s, 64 kbit/s.
        let trusted = [(12_500, 1), (2_896, 8), (1_448, 22), (1_448, 181)]
            .map(|(read, every)| stream(read, every, 9_000).0);
        assert_eq!(trusted[..2], [GAP_SHORT_MS; 2], "as soon as without any bytes");
        assert!((1_900..2_100).contains(&trusted[2]), "{trusted:?}");
        assert_eq!(trusted[3], GAP_LONG_MS);
    }

    #[test]
    fn a_line_that_becomes_slow_is_taken_for_one() {
        let mut arrivals = Arrivals::default();
        let mut until = 0;
        for now in (0..60_000).step_by(10) {
            until = arrivals.on_read(125_000, true, now).unwrap().until;
        }
        assert_eq!(until, 59_990 + GAP_SHORT_MS);
        for now in (60_000..200_000).step_by(200) {
            until = arrivals.on_read(1_448, true, now).unwrap().until;
        }
        assert_eq!(until, 199_800 + GAP_LONG_MS);
    }

    #[test]
    fn whole_messages_say_nothing() {
        let mut arrivals = Arrivals::default();
        for now in (0..10_000).step_by(10) {
            assert_eq!(arrivals.on_read(500, false, now), None);
        }
        assert!(arrivals.on_read(500, true, 10_000).is_some());
        assert_eq!(arrivals.on_read(500, false, 10_100), None, "it is whole");
    }

    #[test]
    fn others_are_told_now_and_then_while_it_goes_on() {
        let mut arrivals = Arrivals::default();
        let news = (0..4_000).step_by(100).filter_map(|now| {
            let news = arrivals.on_read(100, true, 50_000 + now).unwrap();
            (news.tell || news.passed.is_some()).then_some((now, news.tell, news.passed))
        });
        assert_eq!(
            news.collect::<Vec<_>>(),
            [
                (500, true, None),
                (1_000, true, Some(1_100)),
                (1_500, true, None),
                (2_000, true, Some(1_000)),
                (2_500, true, None),
                (3_000, true, Some(1_000)),
                (3_500, true, None),
            ]
        );
        assert!(!arrivals.on_read(100, false, 54_000).is_some_and(|news| news.tell));
        assert!(!arrivals.on_read(100, true, 54_100).unwrap().tell, "another message began");
    }
}
