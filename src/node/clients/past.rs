//! What a node with a data directory remembers: a state of the past, from its snapshots and logs. They are read as a
//! start reads them, while the node goes on writing.

use std::path::Path as FilePath;

use crate::engine::Image;
use crate::model::ids::NodeName;
use crate::model::path::Path;
use crate::protocol::client::request::PastMoment;
use crate::rt;
use crate::server::PastRefusal;
use crate::storage::history::{History, history as read_history};
use crate::storage::past::{reach_after, read_past};
use crate::storage::{Directory, RecoverOptions, StorageError, Until, recover};

/// The state of a moment, at and below a path.
///
/// # Errors
/// [`PastRefusal`].
pub(super) fn recall(
    directory: &FilePath,
    network: &str,
    name: &NodeName,
    at: PastMoment,
    below: &Path,
) -> Result<Image, PastRefusal> {
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
    let found = read_past(&disk, || {
        if let Some(first) = reach_after(&disk, until)? {
            return Ok(Err(first));
        }
        Ok(Ok(recover(&disk, network, name.as_str(), &options, &mut |_, _| {})?.image))
    });
    match found.map_err(failed)? {
        Ok(image) => image.ok_or_else(|| {
            PastRefusal::Failed(String::from("the logs hold nothing up to that moment"))
        }),
        Err(first) => Err(PastRefusal::Before { time_ms: first.time_ms, tock: first.tock.get() }),
    }
}

/// The changes of an entry since a moment, milliseconds since 1970, the last `limit` of them.
///
/// # Errors
/// [`PastRefusal`].
pub(super) fn history(
    directory: &FilePath,
    path: &Path,
    since_ms: u64,
    limit: usize,
) -> Result<History, PastRefusal> {
    let disk = Directory::new(directory);
    let found = read_past(&disk, || read_history(&disk, path, since_ms, limit)).map_err(failed)?;
    found.ok_or_else(|| PastRefusal::Failed(String::from("there is no state to begin with")))
}

fn failed(error: StorageError) -> PastRefusal {
    PastRefusal::Failed(error.for_reader())
}
