//! Trees: whole, entry after entry, what is directly below a path, and all of it deleted.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use futures::stream::{self, Stream};

use super::entry::{self, TreeEntry};
use super::options::{DeleteTreeOptions, TreeOptions};
use crate::connection::Use;
use crate::connection::group::Member;
use crate::connection::{ReplyStream, StreamEvent};
use crate::error::ClientError;
use crate::message::{Fields, Message, array_items};
use crate::model::path::Path;
use crate::model::shard::shard_of;
use crate::model::value::{Kind, Reader};
use crate::pool::PooledConnection;
use crate::retry::{Idempotency, RetryPolicy};
use crate::rt;
use crate::smart::choice::call::{Plan, stream_error};
use crate::smart::choice::tries::Try;
use crate::smart::error::{At, CallError, Fate};
use crate::smart::{Client, Inner};

/// Most entries that [`Client::tree`] gives back; a greater tree is an error.
pub const TREE_ENTRIES_MAX: usize = 1 << 20;

/// A tree that comes entry by entry, as one node had it at one moment. Dropping it ends it.
#[derive(Debug)]
pub struct TreeStream {
    client: Arc<Inner>,
    path: Path,
    /// None once it has ended. Until then, closing the client waits for it.
    stream: Option<(ReplyStream, Member)>,
    /// It ended with this.
    failed: Option<CallError>,
    /// It came when the tree was begun.
    first: Option<TreeEntry>,
    node: String,
    attempts: u32,
    patience: Duration,
}

impl Client {
    /// Deletes all values at and below a path, as the node that is asked has them; returns how
    /// many. It may take as long as the whole call, but a node that is silent is given up sooner.
    ///
    /// # Errors
    /// [`CallError`]. Part of it may have been done if the fate is unknown.
    pub async fn delete_tree(
        &self,
        path: &Path,
        options: DeleteTreeOptions,
    ) -> Result<u64, CallError> {
        let mut fields = Fields::at(path);
        self.inner.order_into(path, false, &mut fields);
        let fields = &fields;
        let idempotency = match options.again_if_unknown {
            true => Idempotency::Guarded,
            false => Idempotency::Unguarded,
        };
        let mut plan = Plan::new("delete_tree", shard_of(path), idempotency);
        // As many entries as there are take as long as that takes.
        plan.try_deadline = Some(self.inner.config.retry.total_deadline);
        plan.begins_soon = true;
        let served = self.inner.call(plan, |used| async move {
            long_request(&self.inner, &used, plan.action, fields).await
        });
        let served = served.await?;
        self.inner.own_writes.on_changed(shard_of(path), served.node());
        Ok(served.value.u64("changed").unwrap_or(0))
    }

    /// All values at and below a path as one node has them at one moment, parents first, in the
    /// order of paths; at most [`TREE_ENTRIES_MAX`]. It is retried as any read, as a whole. While entries come, it
    /// takes as long as it takes.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Usage`] if there are more: use [`Client::tree_stream`].
    pub async fn tree(
        &self,
        path: &Path,
        options: TreeOptions,
    ) -> Result<Vec<TreeEntry>, CallError> {
        let mut fields = Fields::at(path);
        options.write_into(&mut fields);
        let fields = &fields;
        let home = self.inner.home(shard_of(path));
        let plan = Plan { goes_on: true, ..tree_plan(path, home.as_deref()) };
        let RetryPolicy { try_deadline: patience, total_deadline, .. } = self.inner.config.retry;
        let started = rt::now();
        let tree = self.inner.call(plan, |used| async move {
            let elapsed = Duration::from_millis(rt::now().saturating_sub(started));
            let left = patience.min(total_deadline.saturating_sub(elapsed));
            let (mut stream, mut next) = begin_tree(&used, path, fields, left).await?;
            let mut entries = Vec::new();
            while let Some(entry) = next {
                if entries.len() >= TREE_ENTRIES_MAX {
                    // Another try would find as many.
                    return Ok(None);
                }
                entries.push(entry);
                next = next_entry(&mut stream, path, &used.identity().name, patience).await?;
            }
            Ok(Some(entries))
        });
        tree.await?.value.ok_or_else(|| {
            let text = format!("there are more than {TREE_ENTRIES_MAX} entries; stream the tree");
            CallError::Usage(text)
        })
    }

    /// The same entries as they come, of a tree of any size: what is not read yet waits at the node.
    /// When this returns, the tree has begun; until then it is retried as any read, later not.
    ///
    /// ```
    /// # use distkv::testing::{TestCluster, block_on};
    /// use distkv_client::{Client, ClientConfig, TreeOptions};
    ///
    /// # block_on(async {
    /// # let cluster = TestCluster::start(1).await?;
    /// # let seeds = cluster.seeds();
    /// let client = Client::connect(seeds, ClientConfig::new()).await?;
    /// let mut tree = client.tree_stream(&"site".parse()?, TreeOptions::default()).await?;
    /// while let Some(found) = tree.next().await? {
    ///     println!("{}: {:?}", found.path, found.entry.value);
    /// }
    /// # cluster.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`CallError`]: no node could begin it in time.
    pub async fn tree_stream(
        &self,
        path: &Path,
        options: TreeOptions,
    ) -> Result<TreeStream, CallError> {
        let open = self.inner.open_call()?;
        let mut fields = Fields::at(path);
        options.write_into(&mut fields);
        let fields = &fields;
        let home = self.inner.home(shard_of(path));
        let plan = tree_plan(path, home.as_deref());
        let patience = self.inner.config.retry.try_deadline;
        let begun = self
            .inner
            .call(plan, |used| async move { begin_tree(&used, path, fields, patience).await });
        let ((stream, first), served) = begun.await?.split();
        Ok(TreeStream {
            client: Arc::clone(&self.inner),
            path: path.clone(),
            // It has ended if there is no entry.
            stream: first.is_some().then_some((stream, open)),
            failed: None,
            first,
            node: served.node().name.clone(),
            attempts: served.attempts,
            patience,
        })
    }

    /// The paths directly below a path that have a value, in the nodes' order; each one's last element
    /// is its name.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn children(&self, path: &Path) -> Result<Vec<Path>, CallError> {
        let fields = &Fields::at(path);
        let home = self.inner.home(shard_of(path));
        let plan = Plan { first: home.as_deref(), ..Plan::read("enum", shard_of(path)) };
        let children = self.inner.call(plan, |used| async move {
            let reply = used.request("enum", fields).await?;
            let malformed = || entry::malformed(&used.identity().name, "a list of children");
            children_of(path, &reply).ok_or_else(malformed)
        });
        Ok(children.await?.value)
    }
}

fn tree_plan<'a>(path: &Path, home: Option<&'a str>) -> Plan<'a> {
    Plan { first: home, place: Use::Stream, ..Plan::read("get_tree", shard_of(path)) }
}

/// Begins a tree at a node, and waits for its first entry, within the given time; no entry if it is empty.
async fn begin_tree(
    used: &PooledConnection,
    path: &Path,
    fields: &Fields,
    patience: Duration,
) -> Result<(ReplyStream, Option<TreeEntry>), ClientError> {
    let node = &used.identity().name;
    let beginning = async {
        let mut stream = used.connection().stream("get_tree", fields).await?;
        let first = next_entry(&mut stream, path, node, patience).await?;
        Ok((stream, first))
    };
    // What was sent before comes there first; the first entry arrives within what it may take itself.
    let patience = patience.saturating_add(used.connection().delay_of(fields.byte_len()));
    let begun = used.connection().while_any_arrives(patience, beginning).await;
    begun.unwrap_or_else(|| Err(silent(node, patience)))
}

impl TreeStream {
    /// The next entry; `None` after the last. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`CallError::BrokenOff`]: the node was lost. [`CallError::Closed`]: the client was closed. The tree has ended
    /// before its end, and each further call says so again.
    pub async fn next(&mut self) -> Result<Option<TreeEntry>, CallError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some((stream, _)) = &mut self.stream else {
            return self.failed.clone().map_or(Ok(None), Err);
        };
        let next = next_entry(stream, &self.path, &self.node, self.patience).await;
        if !matches!(next, Ok(Some(_))) {
            self.stream = None;
        }
        next.map_err(|error| {
            let at =
                At { node: Some(self.node.clone()), attempts: self.attempts, fate: Fate::NotDone };
            let error = match self.client.pool.is_closed() {
                true => CallError::Closed(at),
                false => stream_error(error, at),
            };
            self.failed.insert(error).clone()
        })
    }

    /// The same as a stream, which ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<TreeEntry, CallError>> + Send {
        stream::unfold(Some(self), |tree| async move {
            let mut tree = tree?;
            let next = tree.next().await.transpose()?;
            let rest = next.is_ok().then_some(tree);
            Some((next, rest))
        })
    }

    /// The node that sends it.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }
}

/// The next entry of a tree, within the given time; `None` after the last.
async fn next_entry(
    stream: &mut ReplyStream,
    above: &Path,
    node: &str,
    patience: Duration,
) -> Result<Option<TreeEntry>, ClientError> {
    let Some((below, message)) = next_item(stream, node, patience).await? else {
        return Ok(None);
    };
    let path = above.join(&below).map_err(|_| entry::malformed(node, "path"))?;
    Ok(Some(TreeEntry { path, entry: entry::entry_of(&message, node)? }))
}

/// The paths in the answer to `enum`.
fn children_of(path: &Path, reply: &Message) -> Option<Vec<Path>> {
    let names = reply.get("result")?;
    if !matches!(Reader::new(names).peek_kind(), Ok(Kind::Array)) {
        return None;
    }
    let child = |name: &[u8]| Path::from_msgpack(&[path.as_bytes(), name].concat()).ok();
    array_items(names).map(child).collect()
}

/// A request that takes as long as it takes. Meanwhile the node is asked now and then whether it is alive: it is given up
/// once it has sent nothing for about as long as one try may take.
async fn long_request(
    client: &Inner,
    used: &Try,
    action: &str,
    fields: &Fields,
) -> Result<Message, ClientError> {
    let (connection, patience) = (used.connection(), client.config.retry.try_deadline);
    let begun = rt::now();
    let mut reply = pin!(used.request(action, fields));
    loop {
        if let Some(reply) = rt::timeout(patience / 2, reply.as_mut()).await {
            return reply;
        }
        let asking = connection.is_alive(patience / 2);
        let is_alive = match select(reply.as_mut(), pin!(asking)).await {
            Either::Left((reply, _)) => return reply,
            Either::Right((is_alive, _)) => is_alive,
        };
        let heard = connection.heard_at().max(begun);
        if !is_alive && rt::now().saturating_sub(heard) >= rt::millis(patience) {
            client.pool.on_timeout(used.address(), used, heard + 1);
            let (address, reason) =
                (used.address().to_string(), format!("it sent nothing for {patience:?}"));
            return Err(ClientError::Lost { address, reason });
        }
    }
}

fn silent(node: &str, patience: Duration) -> ClientError {
    let reason = format!("nothing came for {patience:?}");
    ClientError::Lost { address: node.to_owned(), reason }
}

/// The next item of a stream that has an end, within the given time.
pub(super) async fn next_item(
    stream: &mut ReplyStream,
    node: &str,
    patience: Duration,
) -> Result<Option<(Path, Message)>, ClientError> {
    loop {
        let next = stream.next_within(patience).await;
        match next.unwrap_or_else(|| Err(silent(node, patience)))? {
            None => return Ok(None),
            Some(StreamEvent::Item { path: Some(path), message }) => {
                return Ok(Some((path, message)));
            }
            Some(StreamEvent::Item { path: None, .. }) => {
                return Err(entry::malformed(node, "path"));
            }
            Some(StreamEvent::Start | StreamEvent::UpToDate | StreamEvent::State(..)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_paths_whatever_their_names_are() {
        let mut reply = Fields::new();
        // "a", 5, "a.b", true.
        reply.raw("result", b"\x94\xa1a\x05\xa3a.b\xc3");
        let reply = Message::new(&reply.encode()).unwrap();
        let told = children_of(&"t".parse().unwrap(), &reply).unwrap();
        let told: Vec<String> = told.iter().map(Path::to_string).collect();
        assert_eq!(told, ["t.a", "t:5", "t.a:.b", "t:t"]);
        assert_eq!(children_of(&Path::root(), &Message::new(b"\x80").unwrap()), None);
        let none = Message::new(b"\x81\xa6result\x05").unwrap();
        assert_eq!(children_of(&Path::root(), &none), None);
    }
}
