//! Reads the logs of a start, one after the other, and judges deviations.

use crate::disk::{Disk, DiskEntry};
use crate::error::{FileKind, FormatError, StorageError};
use crate::header::LogStart;
use crate::identity::Life;
use crate::log::{LogReader, log_name};
use crate::model::ids::Incarnation;
use crate::past::first_base;
use crate::recover::files::Files;
use crate::recover::passed_time::PassedTime;
use crate::recover::report::{Repair, Warning};
use crate::recover::{Owner, RecoverOptions, begins_anew};
use crate::recovery::heads::{cut_or, lasting};
use crate::recovery::moment::{Cut, Until};
use crate::replay::Replay;
use crate::snapshot::{Progress, SnapshotReader};

/// This many batches are read between two reports of progress.
const REPORT_BATCHES: u64 = 1 << 12;

/// The logs of a start.
pub(super) struct Logs<'a> {
    disk: &'a dyn Disk,
    owner: Owner<'a>,
    options: &'a RecoverOptions,
    /// Where to end, if not at the end of all.
    cut: Option<Cut>,
    life: Option<Life>,
    pub(super) replay: Replay,
    /// The last one that was read.
    pub(super) last: Option<LastLog>,
    pub(super) warnings: Vec<Warning>,
    pub(super) repairs: Vec<Repair>,
    /// Whether damage, and everything after it, was left out.
    pub(super) discarded: bool,
    /// Whether the wanted moment was reached before the end of all.
    is_cut_off: bool,
    /// The number of the log that is read, or was the last.
    current: u64,
    passed: PassedTime,
}

/// What is known of the last log that was read.
pub(super) struct LastLog {
    pub(super) number: u64,
    /// Where its last complete batch ends.
    pub(super) end: u64,
    /// Whether that says that the node stopped.
    pub(super) is_stop: bool,
    /// Whether it is the very file that was written.
    pub(super) is_same_file: bool,
    /// The time of that batch, milliseconds since 1970; the log's own if it has none.
    time_ms: u64,
    /// The life of the node that had written it, at its end.
    life: Incarnation,
}

/// Whether to go on.
#[derive(PartialEq)]
enum Flow {
    GoOn,
    /// The wanted moment is reached.
    Enough,
}

impl<'a> Logs<'a> {
    pub(super) fn new(
        disk: &'a dyn Disk,
        owner: Owner<'a>,
        options: &'a RecoverOptions,
        cut: Option<Cut>,
        life: Option<Life>,
        replay: Replay,
    ) -> Self {
        Self {
            disk,
            owner,
            options,
            cut,
            life,
            replay,
            last: None,
            warnings: Vec::new(),
            repairs: Vec::new(),
            discarded: false,
            is_cut_off: false,
            current: 0,
            passed: PassedTime::default(),
        }
    }

    /// When the last batch of all was logged, if the wanted moment is not before it.
    pub(super) fn last_logged_ms(&self) -> Option<u64> {
        self.last.as_ref().filter(|_| !self.is_cut_off).map(|last| last.time_ms)
    }

    /// The last time of the logs that is certain to have passed; see [`PassedTime`].
    pub(super) fn certain_ms(&self) -> Option<u64> {
        self.passed.certain_ms()
    }

    /// Reads all logs from a number on.
    pub(super) fn read(
        &mut self,
        files: &Files,
        from: u64,
        progress: &mut dyn FnMut(&str, Progress),
    ) -> Result<(), StorageError> {
        let newest = files.logs.keys().next_back().copied();
        for (number, entry) in files.logs.range(from..) {
            self.current = *number;
            // What is not whole at the end of a log that nothing goes on from is where the disk failed.
            let next = files.logs.range(number + 1..).next();
            let may_be_torn = Some(*number) == newest
                || self.cut.is_some()
                    && next.is_some_and(|(next, _)| begins_anew(self.disk, *next));
            let flow = match self.read_log(*number, entry, from, may_be_torn, progress) {
                Ok(flow) => flow,
                // What follows a gap is later than the wanted moment; otherwise its snapshot would
                // be wanted.
                Err(StorageError::NeedsSnapshot { .. }) if self.cut.is_some() => {
                    self.tell_gap(files, from, *number)?;
                    Flow::Enough
                }
                Err(error) if self.is_lost_behind_moment(files, &error) => Flow::Enough,
                Err(error) if self.options.discard_damaged && error.is_damage() => {
                    self.warnings.push(Warning::Discarded(Box::new(error)));
                    self.discarded = true;
                    break;
                }
                Err(error) => return Err(cut_or(self.disk, files, *number, error)),
            };
            if flow == Flow::Enough {
                self.is_cut_off = true;
                break;
            }
        }
        Ok(())
    }

    /// Whether a log that is lost was begun behind the wanted moment, so that the end of the one before it is the state: the
    /// snapshot of its number says when that was, and has nothing that is not in what was read.
    fn is_lost_behind_moment(&self, files: &Files, error: &StorageError) -> bool {
        let (Some(Cut::Behind { number, .. }), Some(Until::Time(time_ms)), Some(last)) =
            (self.cut, self.options.until, &self.last)
        else {
            return false;
        };
        let is_end_read = error.file().is_some_and(|file| file != log_name(last.number));
        if last.number != number || !is_end_read || !error.is_of_the_file() {
            return false;
        }
        files.snapshots.contains_key(&(number + 1))
            && SnapshotReader::open(self.disk, number + 1).is_ok_and(|next| {
                next.header().time_ms > time_ms && self.replay.knows_as_much_as(next.knowledge())
            })
    }

    /// The error of a log that is needed for the state of a moment, with which states there are. From `from` on, logs were read.
    pub(super) fn past_lost(
        &self,
        files: &Files,
        from: u64,
        problem: StorageError,
    ) -> StorageError {
        let time_of = |number: u64| {
            SnapshotReader::open(self.disk, number).ok().map(|reader| reader.header().time_ms)
        };
        let problem = match lasting(self.disk, problem) {
            Ok(problem) if problem.is_of_the_file() => problem,
            Ok(other) | Err(other) => return other,
        };
        // Else what is lost was in the log before.
        let is_this = problem.file().is_some_and(|file| file == log_name(self.current));
        let behind = if is_this { self.current.saturating_add(1) } else { self.current };
        let from_ms = files.snapshots.range(behind..).find_map(|(number, _)| time_of(*number));
        let has_older = first_base(self.disk, files)
            .is_ok_and(|base| base.is_some_and(|(base, _)| base < from));
        let before_ms = match &self.last {
            Some(last) => Some(last.time_ms),
            None if has_older && files.snapshots.contains_key(&from) => time_of(from),
            None => None,
        };
        StorageError::PastLost { problem: Box::new(problem), before_ms, from_ms }
    }

    /// The wanted moment is later than all that was logged before a gap, and earlier than the log behind it.
    fn tell_gap(&mut self, files: &Files, from: u64, behind: u64) -> Result<(), StorageError> {
        let to_ms = LogReader::open(self.disk, behind)?.header().time_ms;
        let before = match (&self.last, files.snapshots.get(&from)) {
            (None, Some(base)) => {
                // There was room for the snapshot that was begun with, and none for its log.
                let from_ms = SnapshotReader::open(self.disk, from)?.header().time_ms;
                Some((base.name.clone(), from_ms))
            }
            _ => self.end_of_last(),
        };
        self.tell_gap_between(before, &log_name(behind), to_ms);
        Ok(())
    }

    /// The last log, and when its last batch was logged.
    fn end_of_last(&self) -> Option<(String, u64)> {
        self.last.as_ref().map(|last| (log_name(last.number), last.time_ms))
    }

    fn tell_gap_between(&mut self, before: Option<(String, u64)>, next: &str, to_ms: u64) {
        let Some((file, from_ms)) = before else { return };
        // What is not whole at its end says no more than this.
        self.warnings.retain(|warning| !matches!(warning, Warning::TornTail { .. }));
        self.warnings.push(Warning::Gap { file, from_ms, next: next.to_owned(), to_ms });
    }

    /// Whether a log is of another life than the one before it, so that the node was off between the two. For tocks that
    /// says nothing: they are the network's, and a node gets all of them in the end.
    fn was_off_before(&self, reader: &LogReader) -> bool {
        let life = reader.header().id.incarnation;
        matches!(self.cut, Some(Cut::Behind { .. }))
            && self.last.as_ref().is_some_and(|last| last.life != life)
    }

    /// Tells that the node was off between the last log and this one, which begins behind the wanted moment.
    fn note_gap_before(&mut self, reader: &LogReader, name: &str) {
        if self.was_off_before(reader) {
            self.tell_gap_between(self.end_of_last(), name, reader.header().time_ms);
        }
    }

    /// Whether a log was begun behind the wanted moment, which is in a log before it.
    fn is_behind_moment(&self, reader: &LogReader, number: u64) -> bool {
        let (Some(Cut::Behind { number: last, .. }), Some(Until::Time(time_ms))) =
            (self.cut, self.options.until)
        else {
            return false;
        };
        number > last && reader.header().time_ms > time_ms
    }

    fn read_log(
        &mut self,
        number: u64,
        entry: &DiskEntry,
        from: u64,
        may_be_torn: bool,
        progress: &mut dyn FnMut(&str, Progress),
    ) -> Result<Flow, StorageError> {
        let name = entry.name.as_str();
        let mut reader = LogReader::open(self.disk, number)?;
        self.check_header(&reader, number, from, name)?;
        if self.is_behind_moment(&reader, number) {
            // What is in it is not needed, and may be damaged.
            self.note_gap_before(&reader, name);
            return Ok(Flow::Enough);
        }
        reader.name_into(self.replay.lend_table());
        let mut last = LastLog {
            number,
            end: reader.end(),
            is_stop: false,
            is_same_file: reader.file_id().is_same(&entry.id),
            time_ms: reader.header().time_ms,
            life: reader.life(),
        };
        let read = self.read_batches(&mut reader, &mut last, name, progress);
        let judged = match read {
            Ok(Flow::Enough) => Ok(Flow::Enough),
            Ok(Flow::GoOn) if last.end == entry.bytes => self.check_length(entry, &last),
            Ok(Flow::GoOn) => self.judge_tail(entry, &last, may_be_torn),
            Err(error) if may_be_torn && self.synced(number) <= last.end => {
                match is_torn(&error, &mut reader) {
                    Ok(true) => self.judge_tail(entry, &last, may_be_torn),
                    Ok(false) => Err(error),
                    Err(cannot_read) => Err(cannot_read),
                }
            }
            Err(error) => Err(error),
        };
        self.replay.take_table(reader.into_table());
        self.last = Some(last);
        judged
    }

    fn check_header(
        &self,
        reader: &LogReader,
        number: u64,
        from: u64,
        name: &str,
    ) -> Result<(), StorageError> {
        let header = reader.header();
        self.owner.check(name, &header.network, header.id.name.as_str())?;
        if header.number != number {
            return Err(StorageError::Misnamed { file: name.to_owned(), found: header.number });
        }
        let before = match (&self.last, reader.start()) {
            // The snapshot of its number has all that came before.
            (None, _) if number == from => return Ok(()),
            (_, LogStart::Snapshot | LogStart::Empty) => {
                return Err(StorageError::NeedsSnapshot { file: name.to_owned(), number });
            }
            (last, LogStart::After { number, bytes }) => {
                last.as_ref().filter(|l| l.number == number).map(|l| (l.end, bytes)).ok_or(number)
            }
        };
        match before {
            Ok((end, bytes)) if end == bytes => Ok(()),
            Ok((offset, expected)) => {
                let file = log_name(self.last.as_ref().map_or(0, |l| l.number));
                Err(StorageError::Shortened { file, offset, expected })
            }
            Err(missing) => {
                let first = self.last.as_ref().map_or(from, |last| last.number + 1);
                Err(StorageError::missing(first, missing))
            }
        }
    }

    fn read_batches(
        &mut self,
        reader: &mut LogReader,
        last: &mut LastLog,
        name: &str,
        progress: &mut dyn FnMut(&str, Progress),
    ) -> Result<Flow, StorageError> {
        let mut is_first = true;
        while let Some(mut batch) = reader.next()? {
            if is_first && batch.knowledge.is_none() {
                return Err(StorageError::Damaged {
                    file: name.to_owned(),
                    kind: FileKind::Log,
                    offset: batch.offset,
                    problem: FormatError::Lacks("state in the first batch"),
                });
            }
            if self.cut.is_some_and(|cut| cut.apply(last.number, &mut batch)) {
                if is_first {
                    self.note_gap_before(reader, name);
                }
                self.replay.apply(batch, reader.table());
                return Ok(Flow::Enough);
            }
            (last.end, last.is_stop) = (batch.end, batch.is_stop);
            is_first = false;
            // Not the latest of all: the clock may have been set back meanwhile.
            (last.time_ms, last.life) = (batch.time_ms, reader.life());
            self.passed.note(batch.time_ms);
            self.replay.apply(batch, reader.table());
            if self.replay.batches().is_multiple_of(REPORT_BATCHES) {
                let entries = self.replay.batches();
                progress(name, Progress { entries, total: 0, bytes: last.end });
            }
        }
        if is_first {
            let (file, kind, offset) = (name.to_owned(), FileKind::Log, last.end);
            return Err(StorageError::Incomplete { file, kind, offset });
        }
        Ok(Flow::GoOn)
    }

    /// A log that ends with a whole batch: it must not have been longer.
    fn check_length(&self, entry: &DiskEntry, last: &LastLog) -> Result<Flow, StorageError> {
        match self.synced(last.number) {
            expected if expected > last.end => Err(StorageError::Shortened {
                file: entry.name.clone(),
                offset: last.end,
                expected,
            }),
            _ => Ok(Flow::GoOn),
        }
    }

    /// A log with an incomplete part after its last complete batch.
    fn judge_tail(
        &mut self,
        entry: &DiskEntry,
        last: &LastLog,
        may_be_torn: bool,
    ) -> Result<Flow, StorageError> {
        if !may_be_torn || self.synced(last.number) > last.end {
            let (file, kind, offset) = (entry.name.clone(), FileKind::Log, last.end);
            return Err(StorageError::Incomplete { file, kind, offset });
        }
        let bytes = entry.bytes.saturating_sub(last.end);
        if bytes == 0 {
            // It has grown since it was listed: a node writes it, and this is no start. All that was listed is whole.
            return Ok(Flow::GoOn);
        }
        self.warnings.push(Warning::TornTail { file: entry.name.clone(), offset: last.end, bytes });
        self.repairs.push(Repair::Cut { name: entry.name.clone(), bytes: last.end });
        Ok(Flow::GoOn)
    }

    fn synced(&self, number: u64) -> u64 {
        self.life.map_or(0, |life| life.synced(number))
    }
}

/// Whether an invalid frame is only the end of an interrupted write: nothing valid follows it. Or,
/// since the system does not write in order: something valid follows, but a part in between was
/// never written, and nothing says that it had been synced.
pub(in crate::recovery) fn is_torn(
    error: &StorageError,
    reader: &mut LogReader,
) -> Result<bool, StorageError> {
    let StorageError::Damaged { offset, .. } = error else { return Ok(false) };
    if !error.is_bad_frame() {
        return Ok(false);
    }
    let beyond = reader.look_beyond()?;
    Ok(beyond.frames == 0 || (beyond.has_hole && beyond.claim <= *offset))
}
