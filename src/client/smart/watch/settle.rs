//! What became of paths that another node does not show, or shows older: deleted meanwhile, or not
//! there yet?

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::try_join_all;

use crate::client::error::ClientError;
use crate::client::message::{Fields, map_items};
use crate::client::pool::PooledConnection;
use crate::client::smart::entry::{Entry, Version, entry_of};
use crate::model::path::Path;
use crate::model::value::{write_array_len, write_map_len, write_str, write_u64};

/// Requests that are open at a time.
const LOOKS_AT_ONCE: usize = 64;

/// What became of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settled {
    /// There is something newer.
    Newer(Entry),
    /// The version that was delivered is there.
    Same,
    /// It was deleted, so long ago that nothing is left of it.
    Gone {
        /// The node's tock, which is not less than that of the deletion.
        tock: u64,
    },
    /// The node has not heard of what was delivered.
    Behind,
}

/// Asks a node about these paths, of which these versions were delivered; `with_life` names the lives of
/// the events' makers.
///
/// # Errors
/// How the node or its connection failed; nothing is known then.
pub(super) async fn settle(
    used: &Arc<PooledConnection>,
    doubts: &[(Path, Version)],
    mut with_life: impl FnMut(&mut Entry),
) -> Result<Vec<Settled>, ClientError> {
    let mut found = Vec::with_capacity(doubts.len());
    for some in doubts.chunks(LOOKS_AT_ONCE) {
        let looks = some.iter().map(|(path, _)| look(used, path));
        found.extend(try_join_all(looks).await?);
    }
    found.iter_mut().for_each(&mut with_life);
    // Those that are not newer: does the node know their versions at all?
    let open: Vec<usize> = doubts
        .iter()
        .zip(&found)
        .enumerate()
        .filter(|(_, ((_, delivered), entry))| is_open(delivered, entry))
        .map(|(index, _)| index)
        .collect();
    let versions = open.iter().filter_map(|index| doubts.get(*index)).map(|(_, version)| version);
    let is_known = match open.is_empty() {
        true => true,
        false => knows_all(used, versions).await?,
    };
    let settled = doubts.iter().zip(found).map(|((_, delivered), entry)| {
        let tock = entry.tock;
        match entry.version() {
            Some(version) => match version.compare(delivered) {
                Ordering::Greater => Settled::Newer(entry),
                Ordering::Equal => Settled::Same,
                Ordering::Less => Settled::Behind,
            },
            None if is_known => Settled::Gone { tock },
            None => Settled::Behind,
        }
    });
    Ok(settled.collect())
}

/// Whether what is there does not say it by itself.
fn is_open(delivered: &Version, entry: &Entry) -> bool {
    match entry.version() {
        Some(version) => version.compare(delivered) == Ordering::Less,
        None => true,
    }
}

async fn look(used: &Arc<PooledConnection>, path: &Path) -> Result<Entry, ClientError> {
    let mut fields = Fields::at(path);
    fields.u64("nchain", 1);
    let reply = used.connection().request("get_value", &fields).await?;
    entry_of(&reply, &used.identity().name)
}

/// Whether a node has accounted for all of these events.
async fn knows_all(
    used: &Arc<PooledConnection>,
    versions: impl Iterator<Item = &Version>,
) -> Result<bool, ClientError> {
    let mut ticks: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for version in versions {
        if let Some(tick) = version.event.tick {
            ticks.entry(&version.event.node).or_default().push(tick);
        }
    }
    let mut nodes = Vec::new();
    write_map_len(ticks.len(), &mut nodes);
    for (node, mut ticks) in ticks {
        write_str(node, &mut nodes);
        ticks.sort_unstable();
        ticks.dedup();
        write_array_len(ticks.len(), &mut nodes);
        ticks.iter().for_each(|tick| write_u64(*tick, &mut nodes));
    }
    let mut fields = Fields::new();
    fields.raw("nodes", &nodes);
    let reply = used.connection().request("check_deleted", &fields).await?;
    let missing = reply.get("missing").map(|missing| map_items(missing).count());
    // Who does not say it does not know it.
    Ok(missing == Some(0))
}
