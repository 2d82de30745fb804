//! Where the logs pass a time: which of their places is that of a moment ([`crate::moment`] has the rule), and whether
//! that is clear.

use std::collections::BTreeSet;

use crate::disk::Disk;
use crate::error::StorageError;
use crate::header::{FileHeader, LogStart};
use crate::log::LogReader;
use crate::model::ids::{Incarnation, Millis};
use crate::recover::Files;
use crate::snapshot::SnapshotReader;

/// A clock that goes back by no more is being adjusted: what was logged meanwhile is all of the same moment to people.
const STEP_MS: Millis = 2_000;
/// A node that runs logs something each minute. Where its log goes on with a time that is later by more than this, the clock
/// did not show what lies between.
const LEAP_MS: Millis = 5 * 60_000;

/// A place in the logs: a log's number, and where in it a batch ends, in bytes.
pub(crate) type Place = (u64, u64);

/// Why it is not clear what a node's state was at a moment of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The clock was set back after it had shown the moment, and showed it again. The place is the last of these.
    SetBack {
        /// To what it was set back, milliseconds since 1970: the first moment that is not clear.
        to_ms: u64,
        /// What it had shown before that, milliseconds since 1970: the last one.
        until_ms: u64,
    },
    /// The clock went over the moment at once: it was set ahead, or the machine was suspended. The place is before that.
    Leap {
        /// What it showed last before that, milliseconds since 1970.
        from_ms: u64,
        /// What it showed next, milliseconds since 1970.
        to_ms: u64,
    },
}

/// Where a moment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Behind the last batch that belongs to it.
    pub place: Place,
    /// The same, for the first time at which the clock showed it.
    pub(crate) earliest: Place,
    /// Why that is not clear; none if it is.
    pub doubt: Option<Doubt>,
}

/// Finds where logs pass a time. They are to be given one after the other, in order.
#[derive(Debug)]
pub struct Passes {
    time_ms: u64,
    /// The file before: its number, and the life in which it was begun.
    file: Option<(u64, Incarnation)>,
    /// The batch before.
    last: Option<Batch>,
    /// The last place at which the time was passed without being shown.
    leapt: Option<Passed>,
    shown: Option<Shown>,
}

#[derive(Debug, Clone, Copy)]
struct Batch {
    place: Place,
    time_ms: u64,
}

/// The last place at which the clock showed the time.
#[derive(Debug, Clone, Copy)]
struct Shown {
    passed: Passed,
    /// The latest time since then.
    high_ms: u64,
    /// The earliest one.
    low_ms: u64,
}

impl Passes {
    /// For a time, milliseconds since 1970.
    #[must_use]
    pub fn new(time_ms: u64) -> Self {
        Self { time_ms, file: None, last: None, leapt: None, shown: None }
    }

    /// Reads the next log, as far as whole batches can be read; nothing of it may have been read before. `number` is the
    /// one by which its places are named.
    ///
    /// # Errors
    /// [`StorageError::Io`]: the file cannot be read.
    pub fn read(&mut self, number: u64, log: LogReader) -> Result<(), StorageError> {
        self.read_behind(None, number, log)
    }

    /// The same with the snapshot that the log begins with.
    fn read_behind(
        &mut self,
        snapshot: Option<&FileHeader>,
        number: u64,
        log: LogReader,
    ) -> Result<(), StorageError> {
        let header = log.header();
        // Else the node was off between the two, or its disk had failed.
        let mut ran_on = match log.start() {
            LogStart::After { number, .. } => self.file == Some((number, header.id.incarnation)),
            LogStart::Empty | LogStart::Snapshot => false,
        };
        self.file = Some((header.number, header.id.incarnation));
        if let Some(snapshot) = snapshot.filter(|snapshot| snapshot.time_ms <= header.time_ms) {
            self.note(Batch { place: (number, 0), time_ms: snapshot.time_ms }, ran_on);
        }
        log.times(&mut |end, time_ms| {
            self.note(Batch { place: (number, end), time_ms }, ran_on);
            ran_on = true;
        })
    }

    /// `ran_on`: whether the node ran, and logged, since the batch before.
    fn note(&mut self, batch: Batch, ran_on: bool) {
        let before = self.last.replace(batch);
        let is_later = batch.time_ms > self.time_ms;
        if let Some(before) = before.filter(|before| is_later && before.time_ms <= self.time_ms) {
            if ran_on && batch.time_ms - before.time_ms > LEAP_MS {
                let doubt = Doubt::Leap { from_ms: before.time_ms, to_ms: batch.time_ms };
                let (place, earliest) = (before.place, before.place);
                self.leapt = Some(Passed { place, earliest, doubt: Some(doubt) });
            } else {
                self.show(before.place);
            }
        }
        if let Some(shown) = &mut self.shown {
            shown.high_ms = shown.high_ms.max(batch.time_ms);
            shown.low_ms = shown.low_ms.min(batch.time_ms);
        }
    }

    /// The clock has shown the time here, as far as the logs can tell.
    fn show(&mut self, place: Place) {
        let mut passed = Passed { place, earliest: place, doubt: None };
        if let Some(Shown { passed: before, high_ms, low_ms }) = self.shown {
            let is_set_back = high_ms > low_ms.saturating_add(STEP_MS);
            passed.doubt = match before.doubt {
                // All of them together: outside of that, nothing is in doubt because of these.
                Some(Doubt::SetBack { to_ms, until_ms }) if is_set_back => Some(Doubt::SetBack {
                    to_ms: to_ms.min(low_ms),
                    until_ms: until_ms.max(high_ms),
                }),
                None if is_set_back => Some(Doubt::SetBack { to_ms: low_ms, until_ms: high_ms }),
                doubt => doubt,
            };
            if passed.doubt.is_some() {
                passed.earliest = before.earliest;
            }
        }
        self.shown = Some(Shown { passed, high_ms: 0, low_ms: u64::MAX });
    }

    /// Where the moment is, when all logs were read; none if everything in them is later.
    #[must_use]
    pub fn end(mut self) -> Option<Passed> {
        if let Some(last) = self.last.filter(|last| last.time_ms <= self.time_ms) {
            self.show(last.place);
        }
        self.shown.map(|shown| shown.passed).or(self.leapt)
    }
}

/// Where a moment is in a directory, milliseconds since 1970; none if everything is later. All logs are read for it.
///
/// # Errors
/// [`StorageError::Io`]: a file cannot be read. What is damaged counts as not there.
pub(crate) fn find(
    disk: &dyn Disk,
    files: &Files,
    time_ms: u64,
) -> Result<Option<Passed>, StorageError> {
    let mut passes = Passes::new(time_ms);
    let mut has_base = false;
    let numbers: BTreeSet<u64> = files.logs.keys().chain(files.snapshots.keys()).copied().collect();
    for number in numbers {
        let snapshot = match files.snapshots.contains_key(&number) {
            true => readable(SnapshotReader::open(disk, number))?,
            false => None,
        };
        let log = match files.logs.contains_key(&number) {
            true => readable(LogReader::open(disk, number))?,
            false => None,
        };
        let snapshot = snapshot.as_ref().map(SnapshotReader::header);
        has_base |= snapshot.is_some();
        has_base |= log.as_ref().is_some_and(|log| log.start() == LogStart::Empty);
        // There is no state of what is before the first base.
        match log.filter(|_| has_base) {
            Some(log) => passes.read_behind(snapshot, number, log)?,
            None => {
                if let Some(FileHeader { time_ms, .. }) = snapshot {
                    passes.note(Batch { place: (number, 0), time_ms: *time_ms }, false);
                }
            }
        }
    }
    Ok(passes.end())
}

/// What was read, or none if it is damaged. A file that has gone meanwhile is an error: another place would be found without it.
fn readable<T>(read: Result<T, StorageError>) -> Result<Option<T>, StorageError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error @ StorageError::Io { .. }) => Err(error),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;

    /// Of a node that ran on and logged at these times, a batch of one byte each: how many of them are at most of a moment,
    /// how many if it is the first time that it was shown, and why that is not clear.
    fn passed(times: &[u64], time_ms: u64) -> Option<(u64, u64, Option<Doubt>)> {
        passed_with_starts(times, &[1], time_ms)
    }

    /// The same of one that was started before each of these batches, counted from 1.
    fn passed_with_starts(
        times: &[u64],
        starts: &[u64],
        time_ms: u64,
    ) -> Option<(u64, u64, Option<Doubt>)> {
        let mut passes = Passes::new(time_ms);
        for (end, time_ms) in (1..).zip(times) {
            let batch = Batch { place: (1, end), time_ms: *time_ms };
            passes.note(batch, !starts.contains(&end));
        }
        passes.end().map(|found| (found.place.1, found.earliest.1, found.doubt))
    }

    /// One batch a minute in each of these spans, in minutes.
    fn minutes(spans: &[(u64, u64)]) -> Vec<u64> {
        let span = |(from, to): &(u64, u64)| (*from..=*to).map(|minute| minute * MINUTE_MS);
        spans.iter().flat_map(span).collect()
    }

    fn clear(count: u64) -> Option<(u64, u64, Option<Doubt>)> {
        Some((count, count, None))
    }

    /// Both in minutes.
    fn set_back(to: u64, until: u64) -> Option<Doubt> {
        Some(Doubt::SetBack { to_ms: to * MINUTE_MS, until_ms: until * MINUTE_MS })
    }

    /// A leap behind so many batches, in minutes.
    fn leapt(count: u64, from: u64, to: u64) -> Option<(u64, u64, Option<Doubt>)> {
        let doubt = Doubt::Leap { from_ms: from * MINUTE_MS, to_ms: to * MINUTE_MS };
        Some((count, count, Some(doubt)))
    }

    #[test]
    fn an_adjusted_clock_leaves_no_doubt() {
        for (back, is_clear) in [(1, true), (1_000, true), (STEP_MS, true), (STEP_MS + 1, false)] {
            let (low, high) = (20_000 - back, 20_000);
            let times = [10_000, high, low, 30_000];
            let expected = match is_clear {
                true => clear(3),
                false => Some((3, 1, Some(Doubt::SetBack { to_ms: low, until_ms: high }))),
            };
            assert_eq!(passed(&times, low), expected, "{back} ms");
            assert_eq!(passed(&times, low - 1), clear(1), "{back} ms");
            assert_eq!(passed(&times, high), clear(3), "{back} ms");
        }
        // Many small steps are not one large one.
        let steps = |n: u64| [n * 5_000, n * 5_000 + 4_000, n * 5_000 + 3_000];
        let times: Vec<u64> = (0..100).flat_map(steps).collect();
        for time_ms in (0..500_000).step_by(500) {
            assert_eq!(passed(&times, time_ms).unwrap().2, None, "{time_ms}");
        }
    }

    #[test]
    fn nothing_is_before_the_first_batch_and_all_is_before_a_time_to_come() {
        assert_eq!(passed(&[], 5), None);
        assert_eq!(passed(&[10, 20], 9), None);
        assert_eq!(passed(&[10, 20], 10), clear(1));
        assert_eq!(passed(&[10, 20], u64::MAX), clear(2));
    }

    /// It was set back by an hour, and right again after two minutes.
    #[test]
    fn a_clock_that_was_behind_for_a_while_hides_nothing_of_the_time_in_which_it_was_right() {
        let times = minutes(&[(0, 120), (60, 62), (123, 130)]);
        for minute in (0..60).chain(62..120) {
            assert_eq!(passed(&times, minute * MINUTE_MS), clear(minute + 1), "{minute}");
        }
        // These it showed twice.
        for minute in 60..62 {
            let expected = Some((minute - 60 + 122, minute + 1, set_back(60, 120)));
            assert_eq!(passed(&times, minute * MINUTE_MS), expected, "{minute}");
        }
        // And these not at all.
        for minute in 120..123 {
            assert_eq!(passed(&times, minute * MINUTE_MS), leapt(124, 62, 123), "{minute}");
        }
        assert_eq!(passed(&times, 123 * MINUTE_MS), clear(125));
        // While nobody knows how it goes on, all that the clock had shown may come once more.
        let ends = &times[..124];
        assert_eq!(passed(ends, 90 * MINUTE_MS), Some((124, 91, set_back(60, 120))));
        assert_eq!(passed(ends, 59 * MINUTE_MS), clear(60));
    }

    #[test]
    fn a_clock_that_was_set_back_for_good_leaves_a_doubt_about_what_it_showed_twice() {
        let times = minutes(&[(0, 120), (60, 240)]);
        for minute in [60, 90, 119] {
            let expected = Some((minute - 60 + 122, minute + 1, set_back(60, 120)));
            assert_eq!(passed(&times, minute * MINUTE_MS), expected, "{minute}");
        }
        for minute in [0, 59, 120, 240] {
            assert_eq!(passed(&times, minute * MINUTE_MS).unwrap().2, None, "{minute}");
        }
        // Twice: both are told as one.
        let times = minutes(&[(0, 120), (60, 100), (50, 240)]);
        let (_, earliest, doubt) = passed(&times, 90 * MINUTE_MS).unwrap();
        assert_eq!((earliest, doubt), (91, set_back(50, 120)));
    }

    /// It leapt ahead by an hour, and was right again after two minutes.
    #[test]
    fn a_clock_that_was_ahead_for_a_while_leaves_no_doubt_but_about_that_while() {
        let times = minutes(&[(0, 60), (121, 123), (63, 180)]);
        for minute in (0..60).chain(63..121).chain(123..180) {
            let count = if minute < 60 { minute + 1 } else { minute - 63 + 65 };
            assert_eq!(passed(&times, minute * MINUTE_MS), clear(count), "{minute}");
        }
        for minute in 60..63 {
            assert_eq!(passed(&times, minute * MINUTE_MS), leapt(61, 60, 121), "{minute}");
        }
        for minute in 121..123 {
            let expected = Some((minute - 63 + 65, minute - 121 + 62, set_back(63, 123)));
            assert_eq!(passed(&times, minute * MINUTE_MS), expected, "{minute}");
        }
        // By years: not one moment of all the time since then is in doubt.
        let times = minutes(&[(0, 60), (9_000_000, 9_000_002), (63, 2_000)]);
        for minute in 63..2_000 {
            assert_eq!(passed(&times, minute * MINUTE_MS).unwrap().2, None, "{minute}");
        }
    }

    /// Without a battery, a machine's clock begins where it was saved, or in 1970, until it has learnt the time.
    #[test]
    fn a_clock_that_is_behind_after_a_start_hides_nothing_of_the_time_before() {
        for begun in [0, 60] {
            let times = minutes(&[(30, 110), (begun, begun + 1), (200, 210)]);
            let found = |minute: u64| passed_with_starts(&times, &[1, 82], minute * MINUTE_MS);
            for minute in (30..110).filter(|minute| *minute != begun) {
                assert_eq!(found(minute), clear(minute - 30 + 1), "{minute}");
            }
            for minute in 110..200 {
                assert_eq!(found(minute), leapt(83, begun + 1, 200), "{minute}");
            }
            assert_eq!(found(200), clear(84));
        }
        let times = minutes(&[(30, 110), (60, 61), (200, 210)]);
        let found = passed_with_starts(&times, &[1, 82], 60 * MINUTE_MS);
        assert_eq!(found, Some((82, 31, set_back(60, 110))));
    }

    #[test]
    fn clocks_go_on_while_a_node_is_off() {
        let times = minutes(&[(0, 10), (60, 70)]);
        assert_eq!(passed_with_starts(&times, &[1, 12], 30 * MINUTE_MS), clear(11));
        assert_eq!(passed(&times, 30 * MINUTE_MS), leapt(11, 10, 60));
        // Before, the clock was wrong: was the node off then, or is the wrong clock meant?
        let times = minutes(&[(30, 40), (0, 10), (60, 70)]);
        let found = passed_with_starts(&times, &[1, 23], 35 * MINUTE_MS);
        assert_eq!(found, Some((22, 6, set_back(0, 40))));
    }
}
