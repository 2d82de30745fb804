//! Scheduled snapshots (`--snapshot-schedule`): copies of all data in a directory of the operator's, one at a time, each
//! verified after it was written.
//!
//! What was made last is read from the directory, so a restart neither repeats nor forgets one. One that was missed
//! while the node was down is made when it serves clients again.

mod folder;
mod schedule;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use distkv_durable::{AgeClock, BELIEVED_AFTER_MS, ClockNews, Known};
use parking_lot::Mutex;

use self::folder::{Folder, Made, Pruned};
pub use self::schedule::Schedule;
use super::error::NodeError;
use super::lifecycle::opening::is_same_directory;
use super::link::Links;
use super::millis;
use crate::engine::Engine;
use crate::rt;
use crate::server::ScheduledStatus;
use crate::storage::FileHeader;

/// The time between two looks at the clock.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// After a failure, the next attempt is made after this time, or after that of the schedule if that is shorter.
const RETRY: Duration = Duration::from_secs(600);
/// One that has been due for so long is overdue.
const OVERDUE_MS: u64 = 600_000;

/// When and where snapshots are made, and which are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduledConfig {
    /// When.
    pub schedule: Schedule,
    /// The directory; it is made if it is not there.
    pub dir: PathBuf,
    /// So many of the newest are kept, at least 1,
    pub keep: usize,
    /// and those that are younger than this.
    pub keep_for: Duration,
}

/// What is wrong with a directory that is the data directory or that of clients' files, too.
pub(super) const NOT_APART: &str = "it is used for other files; choose another one";

/// The scheduled snapshots of a running node.
pub(super) struct Scheduled {
    config: ScheduledConfig,
    folder: Folder,
    network: String,
    state: Mutex<State>,
    /// What says how old they are.
    ages: Mutex<AgeClock>,
}

#[derive(Default)]
struct State {
    last: Option<Made>,
    failure: Option<String>,
    /// When the next one is due, milliseconds since 1970.
    due_ms: u64,
    /// Before that no attempt is made, because the last one has failed.
    retry_ms: u64,
    is_told_overdue: bool,
}

impl State {
    /// Whether one is to be made. A clock that was set back keeps none away for longer than the schedule has between
    /// two of them.
    fn is_due(&mut self, schedule: Schedule, now: u64) -> bool {
        self.due_ms = self.due_ms.min(schedule.due_ms(now));
        self.retry_ms = self.retry_ms.min(now.saturating_add(millis(RETRY)));
        now >= self.due_ms && now >= self.retry_ms
    }
}

impl Scheduled {
    /// Opens the directory, and sees what is there.
    ///
    /// # Errors
    /// [`NodeError::SnapshotDir`].
    pub(super) fn open(
        config: &super::config::Config,
        scheduled: &ScheduledConfig,
    ) -> Result<Arc<Self>, NodeError> {
        let path = &scheduled.dir;
        let failed = |source| NodeError::SnapshotDir { path: path.clone(), source };
        let folder = Folder::open(path, config.name.as_str()).map_err(failed)?;
        let others = config.data.iter().map(|data| &data.dir).chain(&config.client_files);
        for other in others {
            if is_same_directory(path, other).map_err(failed)? {
                return Err(failed(std::io::Error::new(
                    std::io::ErrorKind::InvalidInput,
                    NOT_APART,
                )));
            }
        }
        let now = rt::wall_clock_ms();
        let found = folder.list(now).map_err(failed)?;
        if let Some(made) = found.first().filter(|made| made.time_ms > now) {
            tracing::warn!(
                file = made.file,
                "a scheduled snapshot is of a time that is still to come: this machine's clock was ahead, or is \
                 behind now; such snapshots count as the oldest"
            );
        }
        let known = known_by(&found);
        let last = found.into_iter().next_back();
        let due_ms =
            last.as_ref().map_or(now, |made| scheduled.schedule.due_ms(made.time_ms.min(now)));
        let ages = Mutex::new(AgeClock::new(known, now, rt::awake_or_not()));
        let state = Mutex::new(State { last, due_ms, ..State::default() });
        let network = config.network.clone();
        Ok(Arc::new(Self { config: scheduled.clone(), folder, network, state, ages }))
    }

    /// How they are, for operators.
    pub(super) fn status(&self) -> ScheduledStatus {
        let now = rt::wall_clock_ms();
        let state = self.state.lock();
        let overdue = now.saturating_sub(state.due_ms);
        ScheduledStatus {
            schedule: self.config.schedule.to_string(),
            directory: self.config.dir.display().to_string(),
            file: state.last.as_ref().map(|made| made.file.clone()),
            time_ms: state.last.as_ref().map(|made| made.time_ms),
            bytes: state.last.as_ref().map(|made| made.bytes),
            entries: state.last.as_ref().and_then(|made| made.entries),
            due_ms: state.due_ms,
            failure: state.failure.clone(),
            overdue_ms: Some(overdue).filter(|overdue| *overdue >= OVERDUE_MS),
        }
    }

    fn is_due(&self, now: u64) -> bool {
        self.state.lock().is_due(self.config.schedule, now)
    }

    /// The time that ages are counted by, after a look at the clock.
    fn look_at_clock(&self) -> u64 {
        let mut ages = self.ages.lock();
        let news = ages.look(rt::wall_clock_ms(), rt::awake_or_not());
        // At a start it is always ahead of the newest snapshot.
        if let Some(news @ ClockNews::LeaptAhead(_)) = news
            && !self.config.keep_for.is_zero()
        {
            news.tell("scheduled snapshots");
        }
        ages.time_ms()
    }

    /// Makes one; takes as long as that takes.
    fn make(&self, links: &Links) {
        let now = rt::wall_clock_ms();
        let image = links.hub.read(Engine::image);
        let header = FileHeader {
            number: 0,
            network: self.network.clone(),
            id: image.id().clone(),
            store: 0,
            // Names of files have seconds.
            time_ms: now - now % 1_000,
        };
        let made = self.folder.write(&header, &image);
        drop(image);
        let ScheduledConfig { schedule, keep, keep_for, .. } = &self.config;
        let times = (now, self.look_at_clock());
        let pruned = made.is_ok().then(|| self.folder.prune(times, *keep, *keep_for));
        let mut state = self.state.lock();
        match made {
            Ok(made) => {
                let Made { file, bytes, entries, .. } = &made;
                tracing::info!(file, bytes, entries, "a scheduled snapshot was made and verified");
                state.due_ms = schedule.due_ms(now);
                (state.last, state.failure, state.is_told_overdue) = (Some(made), None, false);
            }
            Err(why) => {
                let pause = RETRY.min(schedule.length());
                tracing::warn!("the scheduled snapshot could not be made: {why}");
                state.retry_ms = now.saturating_add(millis(pause));
                state.failure = Some(why);
            }
        }
        match pruned {
            Some(Ok(Pruned { removed, spared })) => {
                if !removed.is_empty() {
                    let removed = removed.join(" ");
                    tracing::info!(removed, "old scheduled snapshots were removed");
                }
                if let Some(file) = spared {
                    tracing::warn!(
                        file,
                        "all newer scheduled snapshots hold nothing, so this old one is kept; if the node has lost its \
                         data, restore it"
                    );
                }
            }
            Some(Err(error)) => {
                tracing::warn!("old scheduled snapshots could not be removed: {error}");
            }
            None => {}
        }
    }

    /// Writes it to the log once, when one is overdue.
    fn look_overdue(&self) {
        let status = self.status();
        if let Some(text) = status.overdue_text() {
            let mut state = self.state.lock();
            if !std::mem::replace(&mut state.is_told_overdue, true) {
                tracing::warn!("{text}");
            }
        }
    }
}

/// What snapshots tell of the time. The clock may be wrong at this very moment, and may have been when the newest were made:
/// what was made an hour before the newest of all, or earlier, was made in a time that has passed.
fn known_by(made: &[Made]) -> Known {
    let Some(newest_ms) = made.iter().map(|made| made.time_ms).max() else { return Known::Nothing };
    let is_certain = |time_ms: &u64| newest_ms - time_ms >= BELIEVED_AFTER_MS;
    let certain = made.iter().map(|made| made.time_ms).filter(is_certain).max();
    certain.map_or(Known::Doubtful, Known::Since)
}

/// Makes snapshots when they are due, one after the other, until the node ends.
pub(super) async fn keep_schedule(scheduled: Arc<Scheduled>, links: Arc<Links>) {
    while links.stop.or(rt::sleep(LOOK_INTERVAL)).await.is_some() {
        scheduled.look_overdue();
        scheduled.look_at_clock();
        // A node that has not caught up has nothing to save.
        if !scheduled.is_due(rt::wall_clock_ms()) || !links.hub.read(Engine::is_ready) {
            continue;
        }
        let (done, end) = async_channel::bounded::<()>(1);
        let (work, of) = (Arc::clone(&scheduled), Arc::clone(&links));
        let began = rt::spawn_background_thread("scheduled snapshot", move || {
            work.make(&of);
            drop(done);
        });
        if let Err(error) = began {
            let mut state = scheduled.state.lock();
            state.failure = Some(format!("the system has no thread for it: {error}"));
            state.retry_ms = rt::wall_clock_ms().saturating_add(millis(RETRY));
            continue;
        }
        // It is closed when the thread ends.
        if links.stop.or(end.recv()).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;

    #[test]
    fn a_clock_that_was_set_back_keeps_none_away() {
        let every = Schedule::parse("every 6h").unwrap();
        let hours = |hours: u64| 100 * DAY_MS + hours * 3_600_000;
        // The last was made while the clock was 30 days ahead, and the one before that had failed.
        let (due_ms, retry_ms) = (hours(30 * 24 + 6), hours(30 * 24));
        let mut state = State { due_ms, retry_ms, ..State::default() };
        assert!(!state.is_due(every, hours(0)), "when the last was made nobody knows");
        assert!(!state.is_due(every, hours(6) - 1));
        assert!(state.is_due(every, hours(6)));
        assert_eq!(state.due_ms, hours(6));
    }

    #[test]
    fn after_a_failure_one_waits_for_the_next_attempt() {
        let every = Schedule::parse("every 6h").unwrap();
        let mut state = State { due_ms: DAY_MS, retry_ms: DAY_MS + 9, ..State::default() };
        assert!(!state.is_due(every, DAY_MS + 8));
        assert!(state.is_due(every, DAY_MS + 9));
    }
}
