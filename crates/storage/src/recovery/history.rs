//! The changes of one entry, as far back as a directory's snapshots and logs reach.

use std::collections::{BTreeSet, VecDeque};

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
    let mut bad = Heads::take_bad(disk, &mut files, owner)?.bad_logs;
    let Some(reach) = reach_of(disk, &files)? else {
        return bad.into_values().next().map_or(Ok(None), Err);
    };
    let mut teller = Teller {
        since_ms,
        limit: limit.clamp(1, HISTORY_STEPS_MAX),
        before: None,
        steps: VecDeque::new(),
        gap: None,
        holes: Vec::new(),
        dropped: 0,
        is_unknown: false,
        bytes: 0,
        is_cut: false,
    };
    let base = base(disk, &files, since_ms)?;
    if let Some(number) = base {
        teller.before = in_snapshot(disk, number, path)?;
    }
    let first = base.unwrap_or(0);
    let mut last: Option<End> = None;
    // What is wrong with the logs since then, and with its end.
    let mut damage = Damage::default();
    let bad_numbers = bad.range(first..).map(|(number, _)| *number);
    let numbers = files.logs.range(first..).map(|(number, _)| *number);
    let numbers: BTreeSet<u64> = numbers.chain(bad_numbers).collect();
    for number in numbers {
        let opened = match bad.remove(&number) {
            Some(problem) => Err(problem),
            None => LogReader::open(disk, number),
        };
        let mut log = match opened {
            Ok(log) => log,
            Err(error) => {
                damage.note(number, healed(disk, &files, number + 1, error)?);
                continue;
            }
        };
        let mut joint = joint_of(&log, base, last.as_ref(), damage.newest);
        if let Joint::Hole(of, problem) = joint {
            if damage.newest != Some(of) {
                damage.note(of, healed(disk, &files, number, problem)?);
            }
            joint = Joint::Whole;
        }
        let begun = log.header();
        let was_off = last.as_ref().is_some_and(|last| last.life != begun.id.incarnation);
        let is_gap = matches!(joint, Joint::Gap);
        if is_gap || was_off && !teller.is_before(begun.time_ms) {
            teller.note_gap();
        }
        teller.note_holes(std::mem::take(&mut damage));
        if is_gap || teller.is_unknown {
            match behind_gap(disk, &files, number, path)? {
                Some(version) => teller.is_at(version),
                None => teller.is_unknown = true,
            }
        }
        loop {
            match log.next() {
                Ok(Some(batch)) => {
                    for op in &batch.ops {
                        teller.take(op, path, batch.time_ms, log.table());
                    }
                }
                Ok(None) => break,
                Err(error) if may_be_torn(disk, &files, number) && is_torn(&error, &mut log)? => {
                    break;
                }
                Err(error) => {
                    damage.note(number, healed(disk, &files, number + 1, error)?);
                    break;
                }
            }
        }
        let bytes = files.logs.get(&number).map_or(0, |entry| entry.bytes);
        last = Some(End { number, whole: log.end(), bytes, life: log.life() });
    }
    if damage.newest.is_some() {
        // Only a snapshot follows.
        teller.note_holes(damage);
        let next = files.snapshots.last_key_value().map_or(0, |(number, _)| *number);
        if let Some(version) = behind_gap(disk, &files, next, path)? {
            teller.is_at(version);
        }
    }
    let Teller { before, steps, gap, mut holes, dropped, is_cut, .. } = teller;
    let has_gaps = gap.is_some();
    // One before that is before all that is told.
    holes.retain(|(told, _)| *told >= dropped);
    let more_holes = holes.len().saturating_sub(HOLES_MAX);
    let holes = holes.into_iter().take(HOLES_MAX).map(|(_, problem)| problem.what()).collect();
    let steps = steps.into();
    Ok(Some(History { reach, before, steps, is_cut, has_gaps, holes, more_holes }))
}

/// What is wrong with the logs between two that are read.
#[derive(Default)]
struct Damage {
    /// Invariant: at most one for each log of the directory, and for each that one of these goes on from.
    problems: Vec<StorageError>,
    /// The number of the last log that they are about.
    newest: Option<u64>,
}

impl Damage {
    fn note(&mut self, number: u64, problem: StorageError) {
        self.newest = Some(number);
        self.problems.push(problem);
    }
}

/// The end of a log.
struct End {
    number: u64,
    /// Where its last whole batch ends.
    whole: u64,
    /// How long it was when it was listed.
    bytes: u64,
    life: Incarnation,
}

/// How a log goes on from what comes before it.
enum Joint {
    /// Nothing is between the two.
    Whole,
    /// Nothing was logged for some time: the disk had failed.
    Gap,
    /// The log of that number is missing, or is shorter than it was.
    Hole(u64, StorageError),
}

/// `bad`: the last log before it that cannot be used, if it comes behind the last one that was read.
fn joint_of(log: &LogReader, base: Option<u64>, last: Option<&End>, bad: Option<u64>) -> Joint {
    match (log.start(), last) {
        (LogStart::Empty, _) => Joint::Whole,
        // There may have been room for the snapshot to begin with, and none for its log.
        (LogStart::Snapshot, None) if base.is_none_or(|base| base == log.header().number) => {
            Joint::Whole
        }
        (LogStart::Snapshot, _) => Joint::Gap,
        (LogStart::After { .. }, None) if base == Some(log.header().number) => Joint::Whole,
        (LogStart::After { number, bytes }, Some(last)) if last.number == number => {
            match last.whole == bytes {
                true => Joint::Whole,
                false => Joint::Hole(number, other_end(number, last.whole, last.bytes, bytes)),
            }
        }
        (LogStart::After { number, .. }, _) => {
            let there = bad.max(last.map(|last| last.number));
            let first = there.map_or(base.unwrap_or(0), |there| there + 1);
            Joint::Hole(number, StorageError::missing(first, number))
        }
    }
}

/// The problem, where only the history has it: a good snapshot of this number or a greater one has what is lost with it.
/// Otherwise a start needs what is damaged, and nobody knows what the entry is now: an error.
fn healed(
    disk: &dyn Disk,
    files: &Files,
    from: u64,
    problem: StorageError,
) -> Result<StorageError, StorageError> {
    let problem = lasting(disk, problem)?;
    let is_healed = problem.is_of_the_file()
        && files.snapshots.range(from..).any(|(number, _)| is_good(disk, *number));
    if is_healed { Ok(problem) } else { Err(problem) }
}

/// Whether nothing goes on from the end of a log: then what is not whole there is where the disk failed.
fn may_be_torn(disk: &dyn Disk, files: &Files, number: u64) -> bool {
    let next = files.logs.range(number + 1..).next();
    next.is_none_or(|(next, _)| begins_anew(disk, *next))
}

/// The entry in the snapshot with which the log of this number begins anew; none if there is no good one.
#[allow(clippy::option_option, reason = "there may be a good snapshot, and no such entry in it")]
fn behind_gap(
    disk: &dyn Disk,
    files: &Files,
    number: u64,
    path: &Path,
) -> Result<Option<Option<Version>>, StorageError> {
    if !files.snapshots.contains_key(&number) {
        return Ok(None);
    }
    if_usable(in_snapshot(disk, number, path))
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

/// Gathers the changes.
struct Teller {
    since_ms: u64,
    limit: usize,
    before: Option<Version>,
    /// Invariant: at most `limit`, and [`HISTORY_BYTES_MAX`] bytes of values but for one.
    steps: VecDeque<Step>,
    /// How many of these were told when the last time ended at which nothing was logged.
    gap: Option<usize>,
    /// What is wrong with each log that is missing or damaged, the oldest first, and how many steps were told before, those that
    /// were dropped included. Invariant: as that of [`Damage::problems`].
    holes: Vec<(usize, StorageError)>,
    /// How many of the steps that were told are none of the last ones any more.
    dropped: usize,
    /// What the entry is after all that was told is in such a log, or was not logged.
    is_unknown: bool,
    bytes: usize,
    is_cut: bool,
}

impl Teller {
    /// What the entry is after all that was told.
    fn last(&self) -> Option<&Version> {
        match self.steps.back() {
            Some(step) => step.after.as_ref(),
            None => self.before.as_ref(),
        }
    }

    /// Whether what has this time, and comes next, is older than what is asked for. Behind the first that is told nothing
    /// is: a clock that was set back makes none of it older than that.
    fn is_before(&self, time_ms: u64) -> bool {
        time_ms < self.since_ms && self.steps.is_empty()
    }

    /// Nothing was logged for some time before what comes next.
    fn note_gap(&mut self) {
        self.gap = Some(self.steps.len());
    }

    /// What was logged before what comes next is lost, if there is damage.
    fn note_holes(&mut self, damage: Damage) {
        self.is_unknown |= !damage.problems.is_empty();
        let told = self.dropped + self.steps.len();
        self.holes.extend(damage.problems.into_iter().map(|problem| (told, problem)));
    }

    /// What the entry is now, whatever has led to it.
    fn is_at(&mut self, version: Option<Version>) {
        if self.last() != version.as_ref() {
            let is_before_unknown = self.is_unknown;
            self.tell(Step { time_ms: None, after: version, is_before_unknown });
        }
        self.is_unknown = false;
    }

    fn take(&mut self, op: &Op, path: &Path, time_ms: u64, table: &NodeTable) {
        let after = match op {
            Op::Put(change) if change.path == *path => Some(version(&change.entry, table)),
            Op::Gone { path: gone, newest } if gone == path => {
                let newest = table.spell_event(*newest).to_string();
                // A newer change stays.
                if self.last().is_none_or(|last| last.event != newest) {
                    return;
                }
                None
            }
            Op::Put(_) | Op::Gone { .. } => return,
        };
        if self.last() == after.as_ref() {
            return;
        }
        let is_before_unknown = std::mem::take(&mut self.is_unknown);
        if self.is_before(time_ms) {
            self.before = after;
            return;
        }
        self.tell(Step { time_ms: Some(time_ms), after, is_before_unknown });
    }

    fn tell(&mut self, step: Step) {
        self.bytes += bytes_of(&step);
        self.steps.push_back(step);
        while self.steps.len() > self.limit
            || (self.bytes > HISTORY_BYTES_MAX && self.steps.len() > 1)
        {
            let Some(oldest) = self.steps.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(bytes_of(&oldest));
            self.before = oldest.after;
            // One before that is before all that is told.
            self.gap = self.gap.and_then(|told| told.checked_sub(1));
            self.dropped += 1;
            self.is_cut = true;
        }
    }
}

fn bytes_of(step: &Step) -> usize {
    let value = step.after.as_ref().and_then(|version| version.value.as_ref());
    value.map_or(0, Vec::len)
}
