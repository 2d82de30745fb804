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
use crate::storage::past::reach_after;
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
    let failed = |error: StorageError| PastRefusal::Failed(error.for_reader());
    let disk = Directory::new(directory);
    if let Some(first) = reach_after(&disk, until).map_err(failed)? {
        return Err(PastRefusal::Before { time_ms: first.time_ms, tock: first.tock.get() });
    }
    let options = RecoverOptions {
        hash_seed: rt::random_u64(),
        until: Some(until),
        below: (!below.is_root()).then(|| below.clone()),
        ..RecoverOptions::default()
    };
    let recovered = recover(&disk, network, name.as_str(), &options, &mut |_, _| {});
    let nothing = || PastRefusal::Failed(String::from("the logs hold nothing up to that moment"));
    recovered.map_err(failed)?.image.ok_or_else(nothing)
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
    let failed = |error: StorageError| PastRefusal::Failed(error.for_reader());
    let found = read_history(&Directory::new(directory), path, since_ms, limit).map_err(failed)?;
    found.ok_or_else(|| PastRefusal::Failed(String::from("there is no state to begin with")))
}
