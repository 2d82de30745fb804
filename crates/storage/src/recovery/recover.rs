//! What a start finds in a data directory, and what of it can be trusted: the newest valid
//! snapshot, and all logs from its number on, each continuing the one before it.
//!
//! Only the last log may have an incomplete end, and only one that was never known to be synced: it
//! was being written when the node was killed or the power failed. It is truncated. Any other
//! deviation from what was written is an error, which names the file and the position;
//! [`RecoverOptions::discard_damaged`] truncates there.
//!
//! Replication rule 9: every start begins a new incarnation, whatever is found here; how the last
//! life ended is only reported to the operator. The store's id is kept only if nothing shows that
//! the loaded state is older than the node's last one. A directory that was set back as a whole, by
//! a snapshot of a virtual machine or of a file system, does not show it.

mod base;
mod files;
mod logs;
pub mod passed_time;
mod report;
mod unborn;

use crate::disk::Disk;
use crate::engine::Image;
use crate::error::StorageError;
use crate::header::LogStart;
use crate::identity::{Identity, Life};
use crate::model::path::Path;
use crate::recover::base::Base;
pub use crate::recover::files::Files;
pub(in crate::recovery) use crate::recover::logs::is_torn;
use crate::recover::logs::{LastLog, Logs};
use crate::recover::report::Repair;
pub use crate::recover::report::{PastGap, Warning};
pub use crate::recover::unborn::never_begun;
pub(in crate::recovery) use crate::recover::unborn::{
    begins_anew, life_in, take_never_begun, take_unborn,
};
use crate::recovery::heads::Heads;
use crate::recovery::hole::hole_before;
pub use crate::recovery::moment::Until;
use crate::recovery::moment::{Cut, Doubt};
use crate::snapshot::{Progress, snapshot_name};

/// How to start.
#[derive(Debug, Clone, Default)]
pub struct RecoverOptions {
    /// Truncate at the first damage.
    pub discard_damaged: bool,
    /// For the tree's hashes; from a random source.
    pub hash_seed: u64,
    /// The store's id, if it needs a new one; from a random source.
    pub new_store: u64,
    /// The state at an earlier moment, to look at. It must not be continued.
    pub until: Option<Until>,
    /// Only what is at and below this path, to look at. It must not be continued.
    pub below: Option<Path>,
    /// A state is put there now: also where that was begun before and broken off.
    pub puts_state: bool,
}

/// What a start has.
pub struct Recovered {
    /// The state; none in an empty directory.
    pub image: Option<Image>,
    /// Whether the node wrote a last record, and nothing was added since except a snapshot that was
    /// put there. As far as the directory shows: it may have been set back to that moment.
    pub stopped_cleanly: bool,
    /// Whether all there is was put there for a node that never ran with this directory: snapshots, and
    /// nothing else.
    pub is_prepared: bool,
    /// The store's id.
    pub store: u64,
    /// Whether that is the one that it was.
    pub keeps_store: bool,
    /// What to go on with.
    pub next: NextLog,
    /// What an operator should read.
    pub warnings: Vec<Warning>,
    /// When the last batch of all logs was logged, milliseconds since 1970; none where there is no log, and where the
    /// wanted moment is before that batch, or in a gap.
    pub last_logged_ms: Option<u64>,
    /// The last time of the logs that is certain to have passed, milliseconds since 1970: not that of a clock that had leapt
    /// ahead by more than an hour when less than an hour of log followed. None where all of the log may be of such a clock.
    pub certain_ms: Option<u64>,
    repairs: Vec<Repair>,
}

/// What to go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextLog {
    /// The next log's number.
    pub number: u64,
    /// What it starts from.
    pub start: LogStart,
    /// A snapshot of that number must be made first: before there is one, nothing that comes into
    /// the log is safe.
    pub needs_snapshot: bool,
}

/// Reads what is in a directory; changes nothing.
///
/// # Errors
/// [`StorageError`].
pub fn recover(
    disk: &dyn Disk,
    network: &str,
    name: &str,
    options: &RecoverOptions,
    progress: &mut dyn FnMut(&str, Progress),
) -> Result<Recovered, StorageError> {
    let mut files = Files::list(disk)?;
    if let Some(file) = files.unfinished().filter(|_| !options.puts_state) {
        return Err(StorageError::Unfinished { file: file.to_owned() });
    }
    let owner = Owner { network, name };
    let found = match options.until {
        Some(until) => Some(find_moment(disk, &mut files, owner, until)?),
        None => None,
    };
    let (cut, doubt) = found.unzip();
    let mut warnings: Vec<Warning> = doubt.flatten().map(Warning::Unclear).into_iter().collect();
    let mut repairs: Vec<Repair> = files.temporary.iter().cloned().map(Repair::Remove).collect();
    let identity = load_identity(disk, &files, owner, options, &mut warnings)?;
    let life = identity.as_ref().map(|(identity, _)| identity.life);
    for torn in take_unborn(disk, &mut files, life)? {
        warnings.push(Warning::Unborn { file: torn.clone() });
        repairs.push(Repair::SetAside(torn));
    }
    let base = crate::recover::base::find(disk, &files, owner, options, cut, progress);
    let base = match base {
        Err(error) if options.discard_damaged && error.is_damage() => {
            warnings.push(Warning::Discarded(Box::new(error)));
            // Nothing there is of use to a node that starts from nothing.
            repairs.extend(files.all().map(|file| Repair::SetAside(file.to_owned())));
            Base::nothing(options)
        }
        other => other?,
    };
    repairs.extend(base.bad.iter().map(|(file, _)| Repair::SetAside(file.clone())));
    let (from, mut bad) = (base.number, base.bad);
    if options.until.is_none() {
        warnings.extend(
            hole_before(disk, &files, owner, from)?.map(|hole| Warning::Hole(Box::new(hole))),
        );
    }
    take_never_begun(disk, &mut files, life, from)?;
    let mut logs = Logs::new(disk, owner, options, cut, life, base.replay);
    let discarded_all = base.discarded;
    if !discarded_all {
        logs.read(&files, from, progress).map_err(|error| match options.until {
            Some(Until::Time(_)) => logs.past_lost(&files, from, error),
            Some(Until::Tock(_)) | None => needed(error, &mut bad),
        })?;
    }
    warnings.extend(bad.into_iter().map(|(_, error)| Warning::BadSnapshot(Box::new(error))));
    let read = Read { files, identity, from, discarded_all, logs, warnings, repairs };
    Ok(read.conclude(options))
}

/// All that was read, before anything is concluded from it.
struct Read<'a> {
    files: Files,
    /// The identity, and whether its file is the very one that was written.
    identity: Option<(Identity, bool)>,
    /// The number of the snapshot that was begun with.
    from: u64,
    /// Whether there was nothing to begin with but damage, which was left out.
    discarded_all: bool,
    logs: Logs<'a>,
    warnings: Vec<Warning>,
    repairs: Vec<Repair>,
}

impl Read<'_> {
    /// The state, whether the node is still who it was, what it goes on with, and what is to be done to files.
    fn conclude(self, options: &RecoverOptions) -> Recovered {
        let Self { files, identity, from, discarded_all, mut logs, mut warnings, mut repairs } =
            self;
        let (last_logged_ms, certain_ms) = (logs.last_logged_ms(), logs.certain_ms());
        warnings.append(&mut logs.warnings);
        repairs.append(&mut logs.repairs);
        let Logs { replay, last, discarded, .. } = logs;
        let is_looked_at = options.until.is_some() || options.below.is_some();
        // All is read, also where only a part is kept.
        let is_whole = !discarded && !discarded_all && options.until.is_none();
        let proof = Proof { identity: identity.as_ref(), last: last.as_ref(), from, is_whole };
        let keeps_store = proof.keeps_store(&files, &mut warnings) && !is_looked_at;
        let stopped_cleanly = keeps_store && proof.stopped_cleanly(&files);
        let store = match &identity {
            Some((identity, _)) if keeps_store => identity.store,
            _ => options.new_store,
        };
        let image = replay.into_image();
        // Whatever a node does with a directory, it begins with a log and an identity.
        let is_prepared =
            image.is_some() && is_whole && files.identity.is_none() && files.logs.is_empty();
        let next = next_log(&files, from, last.as_ref(), image.is_some(), discarded);
        if let LogStart::After { number, .. } = next.start
            && let Some(entry) = files.logs.get(&number)
        {
            // The process that wrote it may have been killed before it had synced the end; the next log
            // says how long it is, so it must not get shorter when the power fails.
            repairs.push(Repair::Sync(entry.name.clone()));
        }
        if is_looked_at {
            repairs.clear();
        }
        Recovered {
            image,
            stopped_cleanly,
            is_prepared,
            store,
            keeps_store,
            next,
            warnings,
            last_logged_ms,
            certain_ms,
            repairs,
        }
    }
}

/// What is wrong with a snapshot that a log needs, where that is not damage: it says more than that the snapshot is missing.
fn needed(error: StorageError, bad: &mut Vec<(String, StorageError)>) -> StorageError {
    let StorageError::NeedsSnapshot { number, .. } = &error else { return error };
    let file = snapshot_name(*number);
    let is_it = |(name, why): &(String, StorageError)| {
        *name == file && matches!(why, StorageError::OtherOwner { .. } | StorageError::Io { .. })
    };
    match bad.iter().position(is_it) {
        Some(place) => bad.swap_remove(place).1,
        None => error,
    }
}

/// Where a moment of the past is, by the files that can be used. Snapshots that cannot be are taken off the list: an older one
/// and the logs behind it tell the same. Logs that cannot be stay on it: what is behind the moment needs none of them, and
/// what is before it needs all.
fn find_moment(
    disk: &dyn Disk,
    files: &mut Files,
    owner: Owner<'_>,
    until: Until,
) -> Result<(Cut, Option<Doubt>), StorageError> {
    let mut usable = files.clone();
    Heads::take_bad(disk, &mut usable, owner)?;
    let found = Cut::find(disk, &usable, until)?;
    files.snapshots = usable.snapshots;
    Ok(found)
}

/// Whose files are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The network's name.
    pub network: &'a str,
    /// The node's.
    pub name: &'a str,
}

impl Owner<'_> {
    /// Whether a file that names this network and node is theirs.
    ///
    /// # Errors
    /// [`StorageError::OtherOwner`].
    pub(in crate::recovery) fn check(
        self,
        file: &str,
        network: &str,
        name: &str,
    ) -> Result<(), StorageError> {
        if network == self.network && name == self.name {
            return Ok(());
        }
        Err(StorageError::OtherOwner {
            file: file.to_owned(),
            found_name: name.into(),
            found_network: network.into(),
            name: self.name.into(),
            network: self.network.into(),
        })
    }
}

/// The identity, and whether its file is the very one that was written.
fn load_identity(
    disk: &dyn Disk,
    files: &Files,
    owner: Owner<'_>,
    options: &RecoverOptions,
    warnings: &mut Vec<Warning>,
) -> Result<Option<(Identity, bool)>, StorageError> {
    let Some(entry) = &files.identity else {
        // If nothing was ever logged, there never was one.
        if !files.logs.is_empty() {
            warnings.push(Warning::NoIdentity);
        }
        return Ok(None);
    };
    match Identity::load(disk, entry) {
        Ok((identity, is_same)) => {
            owner.check(&entry.name, &identity.network, identity.name.as_str())?;
            Ok(Some((identity, is_same)))
        }
        Err(error) if options.discard_damaged && error.is_damage() => {
            warnings.push(Warning::Discarded(Box::new(error)));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What is known of how the node's last life ended.
struct Proof<'a> {
    identity: Option<&'a (Identity, bool)>,
    last: Option<&'a LastLog>,
    /// The snapshot that was begun with.
    from: u64,
    /// Whether nothing was left out.
    is_whole: bool,
}

impl Proof<'_> {
    /// Whether this is what the node had, and no older state.
    fn keeps_store(&self, files: &Files, warnings: &mut Vec<Warning>) -> bool {
        let Some((identity, is_same)) = self.identity else { return false };
        let is_last_same = self.last.is_none_or(|last| last.is_same_file);
        let is_copy = !is_same || !is_last_same;
        if is_copy {
            warnings.push(Warning::Copied);
        }
        let log = identity.life.log();
        let newest = self.last.map_or(self.from, |last| last.number).max(self.from);
        let lacks_log = newest < log || !files.logs.contains_key(&log) && self.from <= log;
        if self.is_whole && lacks_log {
            warnings.push(Warning::Older { log });
        }
        self.is_whole && !lacks_log && !is_copy
    }

    /// Whether the node stopped, and nothing came after that in this directory.
    fn stopped_cleanly(&self, files: &Files) -> bool {
        let Some((identity, _)) = self.identity else { return false };
        let Life::Stopped { log, bytes, changed_ns } = identity.life else { return false };
        let Some(entry) = files.logs.get(&log) else { return false };
        let ends_there = match self.last {
            Some(last) => {
                last.is_stop
                    && last.number == log
                    && files.newest() == Some(log)
                    && last.end == bytes
            }
            // Something was put on top of it since, as a snapshot: by no node, which begins a log.
            None => self.from > log && files.newest() == Some(self.from),
        };
        ends_there && entry.bytes == bytes && entry.changed_ns == changed_ns
    }
}

fn next_log(
    files: &Files,
    from: u64,
    last: Option<&LastLog>,
    has_image: bool,
    discarded: bool,
) -> NextLog {
    let newest = files.newest().unwrap_or(0);
    let (number, start, needs_snapshot) = match last {
        _ if !has_image => (newest + 1, LogStart::Empty, false),
        Some(last) if !discarded => {
            (newest + 1, LogStart::After { number: last.number, bytes: last.end }, false)
        }
        // A snapshot that was put there by itself.
        None if !discarded && newest == from => (from, LogStart::Snapshot, false),
        _ => (newest + 1, LogStart::Snapshot, true),
    };
    NextLog { number, start, needs_snapshot }
}

impl Recovered {
    /// Makes the directory what was recovered: truncates incomplete ends, removes leftovers, and syncs the
    /// log that the next one goes on from. To be called before anything is written there.
    ///
    /// # Errors
    /// [`StorageError`]; some of it may be done. The call can be repeated.
    pub(crate) fn repair(&self, disk: &dyn Disk) -> Result<(), StorageError> {
        for repair in &self.repairs {
            repair.carry_out(disk)?;
        }
        if self.repairs.is_empty() {
            return Ok(());
        }
        disk.sync_dir().map_err(StorageError::io("the data directory", "sync"))
    }
}
