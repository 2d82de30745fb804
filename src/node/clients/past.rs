//! What a node with a data directory remembers: a state of the past, from its snapshots and logs. They are read as a
//! start reads them, while the node goes on writing.

use std::path::Path as FilePath;

use crate::model::ids::{Millis, NodeName};
use crate::model::path::Path;
use crate::protocol::client::request::PastMoment;
use crate::rt;
use crate::server::{PastRefusal, PastState, moment_text};
use crate::storage::history::{History, history as read_history};
use crate::storage::past::{reach_after, read_past};
use crate::storage::recover::{Owner, PastGap, Recovered};
use crate::storage::{Directory, RecoverOptions, StorageError, Until, recover};

/// The state of a moment, at and below a path. `failing_ms`: for how long the log has failed, if it does.
///
/// # Errors
/// [`PastRefusal`].
pub(super) fn recall(
    directory: &FilePath,
    (network, name): (&str, &NodeName),
    at: PastMoment,
    below: &Path,
    failing_ms: &dyn Fn() -> Option<Millis>,
) -> Result<PastState, PastRefusal> {
    let until = match at {
        PastMoment::Time(time_ms) => Until::Time(time_ms),
        PastMoment::Tock(tock) => Until::Tock(tock),
    };
    let now_ms = rt::wall_clock_ms();
    if matches!(at, PastMoment::Time(time_ms) if time_ms > now_ms) {
        return Err(PastRefusal::NotYet { now_ms });
    }
    let disk = Directory::new(directory);
    let options = RecoverOptions {
        hash_seed: rt::random_u64(),
        until: Some(until),
        below: (!below.is_root()).then(|| below.clone()),
        ..RecoverOptions::default()
    };
    let was_failing_ms = failing_ms();
    let owner = Owner { network, name: name.as_str() };
    let found = read_past(&disk, || {
        if let Some(first) = reach_after(&disk, owner, until)? {
            return Ok(Err(first));
        }
        Ok(Ok(recover(&disk, network, name.as_str(), &options, &mut |_, _| {})?))
    });
    let found = found.map_err(lost)?.map_err(|first| {
        let (time_ms, tock) = (first.time_ms, first.tock.get());
        PastRefusal::Before { time_ms, tock }
    })?;
    // It may begin to work again, or to fail, while the files are read.
    let failing_since_ms = was_failing_ms.or_else(failing_ms).map(|ms| now_ms.saturating_sub(ms));
    let gap = gap_of(&found, until, failing_since_ms);
    let image = found.image.ok_or_else(|| {
        PastRefusal::Failed(String::from("the logs hold nothing up to that moment"))
    })?;
    Ok(PastState { image, gap })
}

/// Why the state may not be that of the moment: what reading the past has told, or that nothing was logged from the end of all
/// until now.
fn gap_of(found: &Recovered, until: Until, failing_since_ms: Option<u64>) -> Option<PastGap> {
    PastGap::of_warnings(&found.warnings).or_else(|| {
        let failing_since_ms = failing_since_ms?;
        // Without a log there is no end of one.
        let is_later = matches!(until, Until::Time(time_ms) if time_ms >= failing_since_ms);
        let from_ms = found.last_logged_ms.or_else(|| is_later.then_some(failing_since_ms))?;
        Some(PastGap { from_ms, to_ms: None, is_set_back: false })
    })
}

/// The changes of an entry since a moment, milliseconds since 1970, the last `limit` of them. `failing_ms`: as in [`recall`].
///
/// # Errors
/// [`PastRefusal`].
pub(super) fn history(
    directory: &FilePath,
    (network, name): (&str, &NodeName),
    path: &Path,
    since_ms: u64,
    limit: usize,
    failing_ms: &dyn Fn() -> Option<Millis>,
) -> Result<History, PastRefusal> {
    let disk = Directory::new(directory);
    let owner = Owner { network, name: name.as_str() };
    let was_failing = failing_ms().is_some();
    let found = read_past(&disk, || read_history(&disk, owner, path, since_ms, limit));
    let found = found.map_err(failed)?;
    let none = || PastRefusal::Failed(String::from("there is no state to begin with"));
    let mut history = found.ok_or_else(none)?;
    history.has_gaps |= was_failing || failing_ms().is_some();
    Ok(history)
}

/// No state of the moment: which states there are.
fn lost(error: StorageError) -> PastRefusal {
    PastRefusal::Failed(error.for_past(&moment_text))
}

fn failed(error: StorageError) -> PastRefusal {
    PastRefusal::Failed(error.for_reader())
}
