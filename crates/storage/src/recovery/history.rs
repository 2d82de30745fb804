//! The changes of one entry, as far back as a directory's snapshots and logs reach.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::batch::Op;
use crate::directory_state::past::{Moment, reach_of};
use crate::disk::Disk;
use crate::error::StorageError;
use crate::error::absent::if_usable;
use crate::header::LogStart;
use crate::log::LogReader;
use crate::model::change_time::ChangeTime;
use crate::model::entry::Entry;
use crate::model::ids::{Incarnation, NodeTable};
use crate::model::path::Path;
use crate::recover::{Files, Owner, begins_anew, is_torn, life_in, take_never_begun, take_unborn};
use crate::recovery::heads::{Heads, lasting};
use crate::recovery::hole::{HOLES_MAX, is_good, other_end};
use crate::recovery::passes;
use crate::snapshot::SnapshotReader;

/// Most changes that are told.
const HISTORY_STEPS_MAX: usize = 1_000;
/// Most bytes of their values; one may exceed it alone.
const HISTORY_BYTES_MAX: usize = 4 << 20;

/// A version of the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The event that made it, as it is spelled.
    pub event: String,
    /// Its tock.
    pub tock: u64,
    /// When it was made, by its maker's clock, milliseconds since 1970; none if that is not known.
    pub made_ms: Option<u64>,
    /// The value, as MessagePack; none: it is deleted.
    pub value: Option<Vec<u8>>,
}

/// A change of the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// When it came to this node, milliseconds since 1970; none where it came while nothing was logged.
    pub time_ms: Option<u64>,
    /// What it is since then; none: what was left of a deleted entry was purged.
    pub after: Option<Version>,
    /// It is not known what the entry was just before: that is in a log that is missing or damaged, or was not logged.
    pub is_before_unknown: bool,
}

/// What a directory knows of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// How far back the directory reaches.
    pub reach: Moment,
    /// What the entry was before the first of the changes that are told; none if there was none.
    pub before: Option<Version>,
    /// The changes, oldest first.
    pub steps: Vec<Step>,
    /// There were more since the moment that was asked for: these are the last of them.
    pub is_cut: bool,
    /// For some time since the moment, or between the changes that are told, nothing was logged: the disk had failed, or the
    /// node did not run. Of what happened then, only the end is known.
    pub has_gaps: bool,
    /// What is wrong with each log that is missing, cut, damaged, another node's or unreadable, and that had
    /// changes between those that are told: the oldest first, at most [`HOLES_MAX`]. Newer snapshots have what they came to.
    pub holes: Vec<String>,
    /// How many more there are.
    pub more_holes: usize,
}

/// Reads the changes of an entry from the first since a moment on, milliseconds since 1970, at most `limit` of them, the
/// last; nothing is changed. None: the directory has no state to begin with. A node may use the directory meanwhile. Files of
/// others than the owner are not told of.
///
/// # Errors
/// [`StorageError`]: a file that is needed cannot be read.
pub fn history(
    disk: &dyn Disk,
    owner: Owner<'_>,
    path: &Path,
    since_ms: u64,
    limit: usize,
) -> Result<Option<History>, StorageError> {
    let mut files = Files::list(disk)?;
    let life = life_in(disk, &files);
    // A node is just beginning it, or the disk has failed meanwhile.
    take_unborn(disk, &mut files, life)?;
    take_never_begun(disk, &mut files, life, 0)?;
    let unusable = Heads::take_bad(disk, &mut files, owner)?.bad_logs;
    let Some(reach) = reach_of(disk, &files)? else {
        return unusable.into_values().next().map_or(Ok(None), Err);
    };
    let limit = limit.clamp(1, HISTORY_STEPS_MAX);
    let mut steps = Steps { since_ms, limit, ..Steps::default() };
    let base = base(disk, &files, since_ms)?;
    if let Some(number) = base {
        steps.before = in_snapshot(disk, number, path)?;
    }
    let files = &files;
    let mut walk = Walk { disk, files, path, base, steps, last: None, damage: Damage::default() };
    walk.read_logs(unusable)?;
    walk.end_with_snapshot()?;
    Ok(Some(walk.steps.into_history(reach)))
}

/// Goes through the logs from the base on, and gathers the steps of one entry.
struct Walk<'a> {
    disk: &'a dyn Disk,
    /// Without the logs and snapshots that cannot be used.
    files: &'a Files,
    path: &'a Path,
    /// The snapshot that it begins with; none: it begins with nothing.
    base: Option<u64>,
    steps: Steps,
    /// The end of the last log that was read.
    last: Option<LogEnd>,
    /// What is wrong with the logs since then, and with its end.
    damage: Damage,
}

impl Walk<'_> {
    /// Reads each log in turn; `unusable` says what is wrong with those that cannot be.
    fn read_logs(&mut self, mut unusable: BTreeMap<u64, StorageError>) -> Result<(), StorageError> {
        let first = self.base.unwrap_or(0);
        let numbers = self.files.logs.range(first..).map(|(number, _)| *number);
        let unusable_numbers = unusable.range(first..).map(|(number, _)| *number);
        let numbers: BTreeSet<u64> = numbers.chain(unusable_numbers).collect();
        for number in numbers {
            let opened = match unusable.remove(&number) {
                Some(problem) => Err(problem),
                None => LogReader::open(self.disk, number),
            };
            match opened {
                Ok(log) => {
                    self.note_what_lies_before(number, &log)?;
                    self.read_log(number, log)?;
                }
                Err(error) => self.note_damage(number, number + 1, error)?,
            }
        }
        Ok(())
    }

    /// Notes what lies between the last log that was read and this one. Where something does, the entry is what the snapshot
    /// of this log's number says.
    fn note_what_lies_before(&mut self, number: u64, log: &LogReader) -> Result<(), StorageError> {
        let mut is_gap = false;
        match self.continuation(log) {
            Continuation::Seamless => {}
            Continuation::Gap => is_gap = true,
            // That was told.
            Continuation::Lost(of, _) if self.damage.newest == Some(of) => {}
            Continuation::Lost(of, problem) => self.note_damage(of, number, problem)?,
        }
        let begun = log.header();
        let was_off = self.last.as_ref().is_some_and(|last| last.life != begun.id.incarnation);
        if is_gap || was_off && !self.steps.is_before_wanted(begun.time_ms) {
            self.steps.note_gap();
        }
        self.steps.note_holes(std::mem::take(&mut self.damage));
        if (is_gap || self.steps.is_unknown) && !self.take_snapshot(number)? {
            self.steps.is_unknown = true;
        }
        Ok(())
    }

    /// How a log goes on from what was read.
    fn continuation(&self, log: &LogReader) -> Continuation {
        let is_of_base = self.base == Some(log.header().number);
        match (log.start(), &self.last) {
            (LogStart::Empty, _) => Continuation::Seamless,
            // There may have been room for the snapshot to begin with, and none for its log.
            (LogStart::Snapshot, None) if is_of_base || self.base.is_none() => {
                Continuation::Seamless
            }
            (LogStart::Snapshot, _) => Continuation::Gap,
            (LogStart::After { .. }, None) if is_of_base => Continuation::Seamless,
            (LogStart::After { number, bytes }, Some(last)) if last.number == number => {
                match last.whole == bytes {
                    true => Continuation::Seamless,
                    false => {
                        Continuation::Lost(number, other_end(number, last.whole, last.bytes, bytes))
                    }
                }
            }
            (LogStart::After { number, .. }, last) => {
                let there = self.damage.newest.max(last.as_ref().map(|last| last.number));
                let first = there.map_or(self.base.unwrap_or(0), |there| there + 1);
                Continuation::Lost(number, StorageError::missing(first, number))
            }
        }
    }

    /// Takes the entry's changes in a log, up to the first batch that cannot be read.
    fn read_log(&mut self, number: u64, mut log: LogReader) -> Result<(), StorageError> {
        loop {
            match log.next() {
                Ok(Some(batch)) => {
                    for op in &batch.ops {
                        self.steps.take(op, self.path, batch.time_ms, log.table());
                    }
                }
                Ok(None) => break,
                Err(error) if self.may_be_torn(number) && is_torn(&error, &mut log)? => break,
                Err(error) => {
                    self.note_damage(number, number + 1, error)?;
                    break;
                }
            }
        }
        let bytes = self.files.logs.get(&number).map_or(0, |entry| entry.bytes);
        self.last = Some(LogEnd { number, whole: log.end(), bytes, life: log.life() });
        Ok(())
    }

    /// Where no log follows damage, the newest snapshot says what the entry is.
    fn end_with_snapshot(&mut self) -> Result<(), StorageError> {
        if self.damage.newest.is_none() {
            return Ok(());
        }
        self.steps.note_holes(std::mem::take(&mut self.damage));
        let newest = self.files.snapshots.last_key_value().map_or(0, |(number, _)| *number);
        self.take_snapshot(newest)?;
        Ok(())
    }

    /// Takes the entry as it is in the snapshot of this number. Returns whether there is one that can be used.
    fn take_snapshot(&mut self, number: u64) -> Result<bool, StorageError> {
        if !self.files.snapshots.contains_key(&number) {
            return Ok(false);
        }
        let found = if_usable(in_snapshot(self.disk, number, self.path))?;
        Ok(found.map(|version| self.steps.set_current(version)).is_some())
    }

    /// Notes the problem of a log, where only the history suffers: a good snapshot with the number `healed_from` or a greater
    /// one has what is lost. Otherwise a start needs what is damaged, and nobody knows what the entry is now: an error.
    fn note_damage(
        &mut self,
        number: u64,
        healed_from: u64,
        problem: StorageError,
    ) -> Result<(), StorageError> {
        let problem = lasting(self.disk, problem)?;
        let mut healing = self.files.snapshots.range(healed_from..);
        if !problem.is_of_the_file() || !healing.any(|(number, _)| is_good(self.disk, *number)) {
            return Err(problem);
        }
        self.damage.newest = Some(number);
        self.damage.problems.push(problem);
        Ok(())
    }

    /// Whether nothing goes on from the end of a log: then what is not whole there is where the disk failed.
    fn may_be_torn(&self, number: u64) -> bool {
        let next = self.files.logs.range(number + 1..).next();
        next.is_none_or(|(next, _)| begins_anew(self.disk, *next))
    }
}

/// What is wrong with the logs between two that are read.
#[derive(Default)]
struct Damage {
    /// Invariant: at most one for each log of the directory, and for each that one of these goes on from.
    problems: Vec<StorageError>,
    /// The number of the last log that they are about.
    newest: Option<u64>,
}

/// The end of a log.
struct LogEnd {
    number: u64,
    /// Where its last whole batch ends.
    whole: u64,
    /// How long it was when it was listed.
    bytes: u64,
    life: Incarnation,
}

/// How a log goes on from what was read before it.
enum Continuation {
    /// Nothing is between the two.
    Seamless,
    /// Nothing was logged for some time: the disk had failed.
    Gap,
    /// The log of that number is missing, or is shorter than it was.
    Lost(u64, StorageError),
}

/// The snapshot to begin with: the newest before the first time at which the clock showed the moment; else the oldest, unless
/// the first log starts with nothing. Damaged ones are of no use.
fn base(disk: &dyn Disk, files: &Files, since_ms: u64) -> Result<Option<u64>, StorageError> {
    let first = passes::find(disk, files, since_ms)?.map_or(0, |passed| passed.earliest.0);
    let mut oldest = None;
    for number in files.snapshots.keys().rev() {
        if if_usable(SnapshotReader::open(disk, *number))?.is_some() {
            oldest = Some(*number);
            if *number <= first {
                return Ok(oldest);
            }
        }
    }
    let Some((number, _)) = files.logs.first_key_value() else { return Ok(oldest) };
    match LogReader::open(disk, *number) {
        Ok(log) if log.start() == LogStart::Empty => Ok(None),
        // The past begins with the snapshot.
        Err(error) if oldest.is_none() || matches!(error, StorageError::Io { .. }) => Err(error),
        Ok(_) | Err(_) => Ok(oldest),
    }
}

/// The entry in a snapshot.
fn in_snapshot(disk: &dyn Disk, number: u64, path: &Path) -> Result<Option<Version>, StorageError> {
    // The seed is for a tree of one branch, which is dropped at once.
    let reader = SnapshotReader::open(disk, number)?;
    let (_, image) = reader.into_image(Some(path), 0, &mut |_| {})?;
    let found = image.replica.tree.get(path.as_bytes());
    Ok(found.map(|entry| version(entry, &image.replica.table)))
}

fn version(entry: &Entry, table: &NodeTable) -> Version {
    Version {
        event: table.spell_event(entry.newest()).to_string(),
        tock: entry.tock().get(),
        made_ms: entry.time().map(ChangeTime::ms),
        value: entry.value().map(<[u8]>::to_vec),
    }
}

/// The changes that are told: the last ones since a moment, as many as there is room for.
#[derive(Default)]
struct Steps {
    since_ms: u64,
    limit: usize,
    /// What the entry was before the first of them.
    before: Option<Version>,
    /// Invariant: at most `limit`, and [`HISTORY_BYTES_MAX`] bytes of values but for one.
    steps: VecDeque<Step>,
    /// The sum of their values' lengths.
    bytes: usize,
    /// How many that came before these were dropped.
    dropped: usize,
    /// How many of `steps` came before the end of the last gap, a time at which nothing was logged; none without a gap.
    gap: Option<usize>,
    /// What is wrong with each log that is missing or damaged, the oldest first, and how many steps came before, with the
    /// dropped ones. Invariant: as that of [`Damage::problems`].
    holes: Vec<(usize, StorageError)>,
    /// What the entry is now is not known: the last steps may be in such a log, or were not logged.
    is_unknown: bool,
}

impl Steps {
    /// What the entry is after all that came so far.
    fn current(&self) -> Option<&Version> {
        match self.steps.back() {
            Some(step) => step.after.as_ref(),
            None => self.before.as_ref(),
        }
    }

    /// Whether what has this time, and comes next, is before the moment that was asked for. Behind the first step nothing
    /// is: a clock that was set back makes none of it older than that.
    fn is_before_wanted(&self, time_ms: u64) -> bool {
        time_ms < self.since_ms && self.steps.is_empty()
    }

    /// Nothing was logged for some time before what comes next.
    fn note_gap(&mut self) {
        self.gap = Some(self.steps.len());
    }

    /// What was logged before what comes next is lost, if there is damage.
    fn note_holes(&mut self, damage: Damage) {
        self.is_unknown |= !damage.problems.is_empty();
        let before = self.dropped + self.steps.len();
        self.holes.extend(damage.problems.into_iter().map(|problem| (before, problem)));
    }

    /// What the entry is now, whatever has led to it.
    fn set_current(&mut self, version: Option<Version>) {
        if self.current() != version.as_ref() {
            let is_before_unknown = self.is_unknown;
            self.push(Step { time_ms: None, after: version, is_before_unknown });
        }
        self.is_unknown = false;
    }

    /// Takes a change, if it is one of the entry at this path.
    fn take(&mut self, op: &Op, path: &Path, time_ms: u64, table: &NodeTable) {
        let after = match op {
            Op::Put(change) if change.path == *path => Some(version(&change.entry, table)),
            Op::Gone { path: gone, newest } if gone == path => {
                let newest = table.spell_event(*newest).to_string();
                // A newer change stays.
                if self.current().is_none_or(|last| last.event != newest) {
                    return;
                }
                None
            }
            Op::Put(_) | Op::Gone { .. } => return,
        };
        if self.current() == after.as_ref() {
            return;
        }
        let is_before_unknown = std::mem::take(&mut self.is_unknown);
        if self.is_before_wanted(time_ms) {
            self.before = after;
            return;
        }
        self.push(Step { time_ms: Some(time_ms), after, is_before_unknown });
    }

    fn push(&mut self, step: Step) {
        self.bytes += bytes_of(&step);
        self.steps.push_back(step);
        while self.steps.len() > self.limit
            || (self.bytes > HISTORY_BYTES_MAX && self.steps.len() > 1)
        {
            let Some(oldest) = self.steps.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(bytes_of(&oldest));
            self.before = oldest.after;
            // One before that is before all that is told.
            self.gap = self.gap.and_then(|before| before.checked_sub(1));
            self.dropped += 1;
        }
    }

    fn into_history(self, reach: Moment) -> History {
        let Self { before, steps, dropped, gap, mut holes, .. } = self;
        // One before that is before all that is told.
        holes.retain(|(before, _)| *before >= dropped);
        let more_holes = holes.len().saturating_sub(HOLES_MAX);
        let holes = holes.into_iter().take(HOLES_MAX).map(|(_, problem)| problem.what()).collect();
        let (is_cut, has_gaps, steps) = (dropped > 0, gap.is_some(), steps.into());
        History { reach, before, steps, is_cut, has_gaps, holes, more_holes }
    }
}

fn bytes_of(step: &Step) -> usize {
    let value = step.after.as_ref().and_then(|version| version.value.as_ref());
    value.map_or(0, Vec::len)
}
