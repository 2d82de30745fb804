//! What became of paths that another node does not show, or shows older: deleted meanwhile, or not
//! there yet? And of versions that come behind a deletion: its past, or created again?

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::try_join_all;

use crate::error::ClientError;
use crate::message::{Fields, map_items};
use crate::model::path::Path;
use crate::model::value::{write_array_len, write_map_len, write_str, write_u64};
use crate::pool::PooledConnection;
use crate::smart::operations::entry::{Entry, Version, entry_of};

/// Requests that are open at a time.
const LOOKS_AT_ONCE: usize = 64;

/// A version that a node is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) path: Path,
    pub(super) version: Version,
    pub(super) of: Of,
}

/// What there is doubt about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// What was delivered: whether it is still there, and the newest.
    Delivered,
    /// What came in the node's stream, and is not delivered before it is known to be there still.
    Arrived,
}

/// What became of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settled {
    /// There is something newer.
    Newer(Entry),
    /// The node holds this very version.
    Same(Entry),
    /// It was deleted so long ago that nothing is left of it.
    Gone {
        /// The node's tock, which is not less than that of the deletion.
        tock: u64,
    },
    /// The node has not heard of this version.
    Behind,
}

/// Asks a node about these versions.
///
/// # Errors
/// How the node or its connection failed; nothing is known then.
pub(super) async fn settle(
    used: &Arc<PooledConnection>,
    doubts: &[Doubt],
) -> Result<Vec<Settled>, ClientError> {
    // First what the node knows, then what it has: a version that arrives in between is found by
    // the second question. In the other order, such a version would seem to have been deleted.
    let is_known = knows_all(used, doubts.iter().map(|doubt| &doubt.version)).await?;
    let mut found = Vec::with_capacity(doubts.len());
    for some in doubts.chunks(LOOKS_AT_ONCE) {
        let looks = some.iter().map(|doubt| look(used, &doubt.path));
        found.extend(try_join_all(looks).await?);
    }
    let settled = doubts.iter().zip(found).map(|(doubt, entry)| {
        let tock = entry.tock;
        match entry.version() {
            Some(version) => match version.compare(&doubt.version) {
                Ordering::Greater => Settled::Newer(entry),
                Ordering::Equal => Settled::Same(entry),
                Ordering::Less => Settled::Behind,
            },
            None if is_known => Settled::Gone { tock },
            None => Settled::Behind,
        }
    });
    Ok(settled.collect())
}

async fn look(used: &Arc<PooledConnection>, path: &Path) -> Result<Entry, ClientError> {
    let mut fields = Fields::at(path);
    fields.u64("nchain", 1).bool("with_time", true);
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
    // A node that does not say so does not know it.
    Ok(missing == Some(0))
}

#[cfg(test)]
mod tests {
    use futures::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Chain;
    use crate::credentials::Access;
    use crate::pool::{ConnectionPool, PoolConfig};
    use crate::rt::{self, TcpListener};

    /// A node to which the version in question comes between the first request and the second.
    async fn hears_of_it_meanwhile(listener: TcpListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut fields = Fields::new();
        fields.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "late");
        stream.write_all(&fields.u64("tock", 2).u64("qlen", 0).encode()).await.unwrap();
        let (mut seq, mut asked, mut chunk) = (0, 0, [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut chunk).await {
            let is = |word: &[u8]| chunk[..count].windows(word.len()).any(|bytes| bytes == word);
            let mut reply = Fields::new();
            seq += 1;
            reply.u64("seq", seq).u64("tock", 7);
            let has_it = asked > 0;
            if is(b"get_value") {
                asked += 1;
                if has_it {
                    let mut chain = Vec::new();
                    Chain::of("maker", 3).encode(&mut chain);
                    reply.raw("value", &[1]).raw("chain", &chain);
                }
            } else if is(b"check_deleted") {
                asked += 1;
                // Of "maker" the tick 3 is missing, or nothing.
                let missing = if has_it { &b"\x80"[..] } else { &b"\x81\xa5maker\x91\x03"[..] };
                reply.raw("missing", missing);
            } else {
                reply.str("error", "No such action").str("code", "unknown_action");
            }
            stream.write_all(&reply.encode()).await.unwrap();
        }
    }

    #[test]
    fn what_comes_while_a_node_is_asked_does_not_count_as_deleted() {
        rt::block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().into();
            let node = rt::spawn(hears_of_it_meanwhile(listener));
            let pool = ConnectionPool::new(PoolConfig::default(), Access::default());
            let used = pool.get(&address).await.unwrap();
            let event = Chain::of("maker", 3).newest;
            let (path, version) = ("k".parse().unwrap(), Version { tock: 7, event });
            let doubt = Doubt { path, version, of: Of::Delivered };
            let settled = settle(&used, &[doubt]).await.unwrap();
            assert!(matches!(settled[..], [Settled::Same(_)]), "{settled:?}");
            pool.close();
            node.cancel().await;
        });
    }
}
